//! What became of the requests that were sent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, Quantiles};

/// Consecutive ids, kept as few ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<Range<u64>>);

impl Runs {
    pub(crate) fn push(&mut self, ids: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == ids.start => last.end = ids.end,
            _ => self.0.push(ids),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }
}

/// What a gateway said to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// HTTP status or gRPC code.
    pub(crate) status: u16,
    /// Whether the whole request was accepted or part of it.
    pub(crate) accepted: bool,
    /// Whether a refusal says when to come again.
    pub(crate) hinted: bool,
    /// Items that a partial success rejected, or that a refusal turned away for good.
    pub(crate) rejected_items: u64,
}

/// The account of one sender, and by [`Outcome::merge`] of all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) accepted_items: u64,
    pub(crate) refused_items: u64,
    pub(crate) rejected_items: u64,
    pub(crate) unanswered_items: u64,
    pub(crate) unsent_requests: u64,
    pub(crate) message_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) hinted: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// From the time a request was due to its answer, in microseconds, of accepted requests.
    pub(crate) latency: Histogram,
    /// From the time it was sent, of the same requests.
    pub(crate) from_sent: Histogram,
    /// By how much requests were sent later than due, in microseconds.
    pub(crate) lateness: Histogram,
    /// Ids that must arrive.
    pub(crate) accepted: Runs,
    /// Ids that may arrive: nobody can tell from the answer, or from its absence.
    pub(crate) unsure: Runs,
}

/// A request as far as the account needs to know it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) ids: Range<u64>,
    pub(crate) message_bytes: u64,
    pub(crate) body_bytes: u64,
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Outcome {
    /// Notes an answer that came `latency` after the request was due, and `from_sent` after it was sent.
    pub(crate) fn answered(&mut self, sent: &Sent, answer: Answer, latency: Duration, from_sent: Duration) {
        let items = sent.ids.end - sent.ids.start;
        self.requests += 1;
        *self.statuses.entry(answer.status).or_default() += 1;
        self.body_bytes += sent.body_bytes;
        let rejected = answer.rejected_items.min(items);
        self.rejected_items += rejected;
        if !answer.accepted {
            self.refused_items += items - rejected;
            self.hinted += u64::from(answer.hinted);
            self.unsure.push(sent.ids.clone());
            return;
        }
        self.latency.record(micros(latency));
        self.from_sent.record(micros(from_sent));
        self.message_bytes += sent.message_bytes;
        self.accepted_items += items - rejected;
        if rejected == 0 {
            self.accepted.push(sent.ids.clone());
        } else {
            // The answer says how many were rejected, not which.
            self.unsure.push(sent.ids.clone());
        }
    }

    /// Notes that a request got no answer.
    pub(crate) fn failed(&mut self, sent: &Sent, error: String) {
        self.requests += 1;
        self.errors += 1;
        self.unanswered_items += sent.ids.end - sent.ids.start;
        self.unsure.push(sent.ids.clone());
        self.first_error.get_or_insert(error);
    }

    pub(crate) fn merge(&mut self, other: Outcome) {
        self.requests += other.requests;
        self.accepted_items += other.accepted_items;
        self.refused_items += other.refused_items;
        self.rejected_items += other.rejected_items;
        self.unanswered_items += other.unanswered_items;
        self.unsent_requests += other.unsent_requests;
        self.message_bytes += other.message_bytes;
        self.body_bytes += other.body_bytes;
        self.hinted += other.hinted;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.latency.merge(&other.latency);
        self.from_sent.merge(&other.from_sent);
        self.lateness.merge(&other.lateness);
        self.accepted.0.extend(other.accepted.0);
        self.unsure.0.extend(other.unsure.0);
    }

    pub(crate) fn report(&self, seconds: f64, items_per_request: u32) -> LoadReport {
        LoadReport {
            seconds,
            requests: self.requests,
            sent_items: self.accepted_items
                + self.refused_items
                + self.rejected_items
                + self.unanswered_items,
            accepted_items: self.accepted_items,
            refused_items: self.refused_items,
            rejected_items: self.rejected_items,
            unanswered_items: self.unanswered_items,
            unsent_items: self.unsent_requests * u64::from(items_per_request),
            message_bytes: self.message_bytes,
            body_bytes: self.body_bytes,
            hinted_requests: self.hinted,
            first_error: self.first_error.clone(),
            statuses: self.statuses.clone(),
            latency_us: self.latency.quantiles(),
            from_sent_us: self.from_sent.quantiles(),
            latency_buckets_us: self.latency.buckets(),
            lateness_us: self.lateness.quantiles(),
        }
    }
}

/// What a load reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadReport {
    /// From the start to the last answer.
    pub seconds: f64,
    /// Requests sent.
    pub requests: u64,
    /// Items sent: the sum of the next four.
    pub sent_items: u64,
    /// Items in requests that were answered with success.
    pub accepted_items: u64,
    /// Items in requests that were answered with anything else.
    pub refused_items: u64,
    /// Items that partial successes rejected; of remote write, all that are not to be sent again: what a 4xx
    /// other than 429 does not say to be written.
    pub rejected_items: u64,
    /// Items in requests without an answer.
    pub unanswered_items: u64,
    /// Items that were due and never sent, since the run had to end.
    pub unsent_items: u64,
    /// Bytes of accepted requests before compression.
    pub message_bytes: u64,
    /// Bytes of answered requests as they were sent.
    pub body_bytes: u64,
    /// Refusals that said when to come again.
    pub hinted_requests: u64,
    /// What went wrong first, of the requests without an answer.
    pub first_error: Option<String>,
    /// Number of answers by HTTP status or gRPC code.
    pub statuses: BTreeMap<u16, u64>,
    /// From when a request was due to its answer, accepted requests only, in microseconds.
    pub latency_us: Quantiles,
    /// From when it was sent to its answer, of the same requests, in microseconds: what a client sees that begins no request
    /// before the last one is answered.
    #[serde(default)]
    pub from_sent_us: Quantiles,
    /// All of `latency_us`: microseconds, and how many requests took about so long; to be put together with those of other loads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency_buckets_us: Vec<(u64, u64)>,
    /// By how much requests were sent later than due, in microseconds: what the generator could not keep up
    /// with.
    pub lateness_us: Quantiles,
}
