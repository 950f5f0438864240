//! Samples that are older than the destination takes: after an outage Prometheus refuses what is more than an hour behind what it has from others.
//!
//! They get no younger. So they are given up, as Prometheus itself and the Collector do, and what is newer goes on; an endpoint that says so works, and is not held.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Heard, Lane, LaneEnd};
use crate::body::Body;
use crate::exporter::Inner;
use crate::exporter::classify::Settled;
use crate::exporter::search::Because;
use crate::rewrite::{Samples, name_of_first, samples, with_samples};

/// How often samples that are too old are told of, at most.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What there is to tell of samples that are too old.
#[derive(Debug, Default)]
pub(in crate::exporter) struct TooOld(Mutex<(u64, Option<Instant>)>);

impl TooOld {
    /// Adds so many; how many are to be told now.
    fn tell(&self, samples: u64) -> Option<u64> {
        let (untold, told) = &mut *self.0.lock();
        *untold += samples;
        if told.is_some_and(|told| told.elapsed() < TELL_EVERY) {
            return None;
        }
        *told = Some(Instant::now());
        Some(std::mem::take(untold))
    }
}

impl Lane {
    /// Of a body that has samples which are too old: gives those up. How old that is is asked with the samples of one series in their order, the one that begins last, and
    /// with one of another series: where both say so, what is as old is too old in all of them.
    pub(super) async fn pass_too_old(
        &mut self,
        body: Body,
        reason: String,
        inner: &Inner,
        heard: &Heard,
    ) -> Option<LaneEnd> {
        if body.written.points() < 2 {
            self.refuse_too_old(body, reason, inner);
            return None;
        }
        let Some(Samples { of_series, times_ms }) = samples(&body) else {
            return self.cut(body, reason, Because::Fault, inner, heard).await;
        };
        let begins = |of: &&Vec<usize>| of.first().map(|first| times_ms[*first]);
        let latest = of_series.iter().max_by_key(begins).cloned().unwrap_or_default();
        let (mut too_old, mut taken, mut end) = (Vec::new(), None, None);
        for number in latest {
            match self.ask_whether_too_old(&body, number, inner, heard).await {
                Ok(Some(true)) => {
                    too_old.push(number);
                    continue;
                }
                Ok(Some(false)) => taken = Some(number),
                Ok(None) => {}
                Err(other) => end = Some(other),
            }
            break;
        }
        if let (Some(oldest), Some(limit), None) = (
            too_old.first().copied(),
            too_old.last().map(|number| times_ms[*number]),
            &end,
        ) {
            let others = of_series.iter().filter(|of| !of.contains(&oldest));
            let is_as_old = |of: &&Vec<usize>| begins(of).is_some_and(|time| time <= limit);
            if let Some(other) = others.filter(is_as_old).max_by_key(begins) {
                match self.ask_whether_too_old(&body, other[0], inner, heard).await {
                    Ok(Some(true)) => too_old.extend((0..times_ms.len()).filter(|n| times_ms[*n] <= limit)),
                    Ok(Some(false)) => taken = Some(other[0]),
                    Ok(None) => {}
                    Err(other) => end = Some(other),
                }
            }
        }
        let too_old: HashSet<usize> = too_old.into_iter().collect();
        let rest = with_samples(&body, true, |one| !too_old.contains(&one) && Some(one) != taken);
        self.work.infer_nothing();
        if too_old.is_empty() && end.is_none() {
            // It is not the latest ones.
            return match rest {
                Some(rest) => self.cut(rest, reason, Because::Fault, inner, heard).await,
                None => None,
            };
        }
        if let Some(old) = with_samples(&body, false, |one| too_old.contains(&one)) {
            self.refuse_too_old(old, reason, inner);
        }
        if let Some(rest) = rest {
            self.work.put_back(rest);
        }
        end
    }

    /// Asks about one sample of a body; none where it is neither taken nor too old.
    async fn ask_whether_too_old(
        &mut self,
        body: &Body,
        number: usize,
        inner: &Inner,
        heard: &Heard,
    ) -> Result<Option<bool>, LaneEnd> {
        let Some(sample) = with_samples(body, false, |one| one == number) else {
            return Ok(None);
        };
        match self.ask(&sample, true, inner, heard).await? {
            (Settled::TooOld { .. }, _) => Ok(Some(true)),
            (Settled::Taken | Settled::InPart { .. }, _) => Ok(Some(false)),
            (Settled::Hold { reason }, _) => Err(LaneEnd::Hold { reason }),
            (Settled::Retry { after, reason }, _) => Err(LaneEnd::Retry { after, reason }),
            _ => Ok(None),
        }
    }

    /// Gives up what is too old, which is counted and kept as other refused series are, and told once in a while: a backlog may hold hours of it.
    fn refuse_too_old(&mut self, body: Body, reason: String, inner: &Inner) {
        let samples = body.written.points();
        inner.metrics.too_old_samples.add(samples);
        if let Some(samples) = inner.too_old.tell(samples) {
            tracing::error!(
                exporter = inner.id,
                samples,
                first = name_of_first(&body),
                reason,
                "dropped samples that are older than the destination takes; what is newer goes on. If they are to be taken, let it take late samples \
                 (Prometheus: storage.tsdb.out_of_order_time_window), then send the dead letters again"
            );
        }
        self.took(inner);
        self.refused.add(body, reason, inner);
    }
}
