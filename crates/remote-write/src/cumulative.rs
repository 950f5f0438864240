//! Delta to cumulative, between the mapping and the bodies: each series keeps its total.
//!
//! What a point of delta temporality becomes adds up series by series, whatever the metric was: a number is one, an explicit histogram is those
//! of its buckets, its count and its sum, an exponential histogram is one (`histogram.rs` has how).
//!
//! A point is added once, though its request may come again: because the request is encoded anew, or because the process was killed and the
//! queue hands it out again. What every point made of its series is remembered until its request is done ([`Change`]), and
//! in a file where there is one (`file.rs`); a point that comes again is given that total.

mod again;
mod changes;
mod file;
mod histogram;
mod record;
#[cfg(test)]
mod tests;
mod total;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hash;
use crate::labels::SeriesLabels;
use crate::transcode::{About, Exponential, STALE_NAN, Sample, Sink, Value};

use again::Again;
use changes::Changes;
pub(crate) use changes::MAX_BYTES as MAX_CHANGES_BYTES;
pub(crate) use file::Fault;
use file::Log;
pub use file::TotalsFile;
pub(crate) use total::Change;
use total::{Amount, Key, Total};

/// A series to which nothing was added for so long gives up its place to one that needs it: the default of `max_stale` in the Collector's processor.
/// It goes by our clock: by the times of points, one sender whose clock is ahead would make the series of all others stale.
const STALE_AFTER: Duration = Duration::from_secs(300);

/// No more than this passes for them between two requests: after an outage, in which nothing was encoded, or all would be stale at once.
const LONGEST_GAP: Duration = Duration::from_secs(60);

/// Points from so far in the future are of a clock that was wrong. After a restart their series may begin anew.
const AHEAD_MS: i64 = 3_600_000;

/// Why a point is not added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    OutOfOrder,
    NoRoom,
    Invalid,
}

/// Numbers of what is refused, by [`Refused`].
type Counts = [u64; 3];

/// A total in its place.
#[derive(Debug)]
struct Placed {
    total: Total,
    /// When it was last added to, as [`Cumulative::worked`] was then.
    added_at: Duration,
}

/// The totals of the series that have come as deltas.
#[derive(Debug)]
pub(crate) struct Cumulative {
    totals: HashMap<Key, Placed>,
    /// Places that they take, and may take.
    places: usize,
    max_places: usize,
    /// What keeps senders from making series that have the same key.
    seed: u64,
    /// Whose series the request has, and what keeps them apart from those of others.
    tenant: Option<Arc<str>>,
    tenant_seed: u64,
    /// What the points of this request have made of their series.
    changes: Changes,
    /// The time of day when it began, and when that was.
    now_ms: i64,
    begun: Option<Instant>,
    /// The time that has passed in the beginnings of requests, with gaps of at most [`LONGEST_GAP`].
    worked: Duration,
    again: Again,
    log: Option<Log>,
    is_read: bool,
    faults: Vec<Fault>,
    /// Whether places were looked for in this request already.
    swept: bool,
    /// Series of the point being written that were kept, and those that were not, by why.
    kept: u64,
    refused: Counts,
    dropped_points: Counts,
}

impl Cumulative {
    /// Keeps totals that take at most `max_places`, in `file` where there is one; without any, no point of delta temporality gets here.
    pub fn new(max_places: usize, file: Option<TotalsFile>) -> Self {
        let random = std::hash::RandomState::new();
        let seed = std::hash::BuildHasher::hash_one(&random, max_places);
        Self {
            totals: HashMap::new(),
            places: 0,
            max_places,
            seed,
            tenant: None,
            tenant_seed: seed,
            changes: Changes::default(),
            now_ms: 0,
            begun: None,
            worked: Duration::ZERO,
            again: Again::default(),
            log: file.filter(|_| max_places > 0).map(Log::new),
            is_read: false,
            faults: Vec::new(),
            swept: false,
            kept: 0,
            refused: [0; 3],
            dropped_points: [0; 3],
        }
    }

    /// Whether a request waits for a file.
    pub fn has_file(&self) -> bool {
        self.log.is_some()
    }

    /// Whose the series of the next request are; `None`: nobody's.
    pub fn set_tenant(&mut self, tenant: Option<Arc<str>>) {
        self.tenant = tenant;
    }

    /// Begins a request; `now_ms` is the time of day. The first one reads the file.
    pub fn begin(&mut self, now_ms: i64, now: Instant) {
        self.changes.take();
        self.now_ms = now_ms;
        if let Some(before) = self.begun.replace(now) {
            self.worked += now.saturating_duration_since(before).min(LONGEST_GAP);
        }
        if !std::mem::replace(&mut self.is_read, true) {
            self.read();
        }
        self.tenant_seed = match &self.tenant {
            None => self.seed,
            Some(name) => hash::hash(name.as_bytes(), self.seed),
        };
    }

    fn read(&mut self) {
        let (now_ms, latest_ms) = (self.now_ms, self.latest_ms());
        let Some(log) = &mut self.log else { return };
        let (mut totals, mut again) = (HashMap::new(), Again::default());
        let seed = log.read(now_ms, &mut |is_request, change| {
            if is_request {
                again.expect(change.clone());
            }
            match change {
                Change::Added(key, total) => {
                    let is_older = |known: &Total| known.last_ms <= total.last_ms;
                    if totals.get(&key).is_none_or(is_older) {
                        totals.insert(key, total);
                    }
                }
                Change::Ended(key, at_ms) => {
                    if totals
                        .get(&key)
                        .is_some_and(|total: &Total| total.last_ms < at_ms)
                    {
                        totals.remove(&key);
                    }
                }
            }
        });
        match seed {
            Ok(seed) => self.seed = seed,
            Err(fault) => return self.faults.push(fault),
        }
        self.again = again;
        let found = totals.len();
        for (key, total) in totals {
            let places = self.places + total.places();
            if places <= self.max_places && total.last_ms <= latest_ms {
                self.places = places;
                let added_at = self.worked;
                self.totals.insert(key, Placed { total, added_at });
            } else {
                // In the file, too: it would be taken for the last one after the next start.
                self.changes
                    .add(Change::Ended(key, total.last_ms.saturating_add(1)));
            }
        }
        let left_out = found - self.totals.len();
        tracing::info!(
            file = %log.path().display(),
            series = self.totals.len(),
            left_out,
            "the totals of deltas go on where they were"
        );
    }

    /// Ends a request: what it has changed is written before its bodies are sent. Returns data points of it that are not after the last one of their
    /// series, those there was no room for, and those that are not valid.
    pub fn end(&mut self) -> Counts {
        if let Some(log) = &mut self.log
            && !self.changes.is_empty()
            && let Err(fault) = {
                let totals = self.totals.iter().map(|(key, placed)| (key, &placed.total));
                log.write(self.now_ms, self.changes.all(), self.seed, totals)
            }
        {
            self.faults.push(fault);
        }
        self.swept = false;
        std::mem::take(&mut self.dropped_points)
    }

    /// What the last request has changed; to be [told](Self::comes_again) when it will be encoded once more.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.take()
    }

    /// The points that made these changes come once more: they are given the totals that they had.
    pub fn comes_again(&mut self, changes: Vec<Change>) {
        changes.into_iter().for_each(|change| self.again.expect(change));
    }

    /// Of a request that ended in a panic nothing is left but its changes, for it comes again.
    pub fn forget_request(&mut self) {
        let changes = self.take_changes();
        self.comes_again(changes);
        self.swept = false;
        self.kept = 0;
        self.refused = [0; 3];
        self.dropped_points = [0; 3];
    }

    /// Why totals do not go on after a restart, as often as that came to be known.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// `sink`, with the totals before it.
    pub fn before<'s, S>(&'s mut self, sink: &'s mut S) -> Before<'s, S> {
        Before {
            totals: self,
            sink,
            message: Vec::new(),
        }
    }

    fn key(&self, labels: &SeriesLabels<'_>) -> Key {
        let mut second = self.tenant_seed;
        labels.each(|name, value| {
            second = hash::hash(value.as_bytes(), hash::hash(name.as_bytes(), second));
        });
        Key(labels.hash(), second)
    }

    /// What the point with this time is in: it came before, and was given this.
    fn given(&mut self, key: Key, at_ms: i64) -> Option<Total> {
        let total = self.again.take(key, at_ms)?;
        if at_ms <= self.latest_ms() {
            self.changes.add(Change::Added(key, total.clone()));
        }
        Some(total)
    }

    /// A point after it is of a clock that was wrong.
    fn latest_ms(&self) -> i64 {
        self.now_ms.saturating_add(AHEAD_MS)
    }

    /// The total with `delta` in it. One that is no finite number any more begins anew.
    fn add(&mut self, key: Key, delta: f64, sample: &Sample<'_>) -> Result<(f64, i64), Refused> {
        let at_ms = sample.timestamp_ms;
        if let Some(Total {
            amount: Amount::Float(value),
            start_ms,
            ..
        }) = self.given(key, at_ms)
        {
            return Ok((value, start_ms));
        }
        let known = self.totals.get_mut(&key);
        if known.as_ref().is_some_and(|known| at_ms <= known.total.last_ms) {
            return Err(Refused::OutOfOrder);
        }
        let (value, start_ms) = match known {
            Some(Placed {
                total:
                    Total {
                        amount: Amount::Float(value),
                        start_ms,
                        last_ms,
                    },
                added_at,
            }) if (*value + delta).is_finite() => {
                *value += delta;
                *last_ms = at_ms;
                *added_at = self.worked;
                (*value, *start_ms)
            }
            _ => {
                let total = Total {
                    amount: Amount::Float(delta),
                    start_ms: sample.start_ms,
                    last_ms: at_ms,
                };
                self.keep(key, total)?;
                (delta, sample.start_ms)
            }
        };
        let total = Total {
            amount: Amount::Float(value),
            start_ms,
            last_ms: at_ms,
        };
        self.changes.add(Change::Added(key, total));
        Ok((value, start_ms))
    }

    /// The total with `delta` in it. One that cannot be counted any more begins anew.
    fn add_histogram(
        &mut self,
        key: Key,
        delta: &Exponential,
        sample: &Sample<'_>,
    ) -> Result<(Arc<Exponential>, i64), Refused> {
        let at_ms = sample.timestamp_ms;
        if let Some(Total {
            amount: Amount::Histogram(histogram),
            start_ms,
            ..
        }) = self.given(key, at_ms)
        {
            return Ok((histogram, start_ms));
        }
        let known = self.totals.get(&key).map(|placed| &placed.total);
        if known.is_some_and(|total| at_ms <= total.last_ms) {
            return Err(Refused::OutOfOrder);
        }
        let delta = delta.for_total().ok_or(Refused::Invalid)?;
        let sum = known.and_then(|total| match &total.amount {
            Amount::Histogram(histogram) => Some((histogram.plus(&delta)?, total.start_ms)),
            Amount::Float(_) => None,
        });
        let (histogram, start_ms) = sum.unwrap_or((delta, sample.start_ms));
        let histogram = Arc::new(histogram);
        let total = Total {
            amount: Amount::Histogram(histogram.clone()),
            start_ms,
            last_ms: at_ms,
        };
        self.keep(key, total.clone())?;
        self.changes.add(Change::Added(key, total));
        Ok((histogram, start_ms))
    }

    /// Puts a total into its place, if there is room for it.
    fn keep(&mut self, key: Key, total: Total) -> Result<(), Refused> {
        let needed = |totals: &Self| {
            let before = totals.totals.get(&key).map_or(0, |known| known.total.places());
            totals.places - before + total.places()
        };
        let mut places = needed(self);
        if places > self.max_places && !std::mem::replace(&mut self.swept, true) {
            let (worked, changes) = (self.worked, &mut self.changes);
            self.totals.retain(|key, Placed { total, added_at }| {
                let stays = worked - *added_at <= STALE_AFTER;
                if !stays {
                    changes.add(Change::Ended(*key, total.last_ms.saturating_add(1)));
                }
                stays
            });
            self.places = self.totals.values().map(|placed| placed.total.places()).sum();
            places = needed(self);
        }
        if places > self.max_places {
            return Err(Refused::NoRoom);
        }
        self.places = places;
        let added_at = self.worked;
        self.totals.insert(key, Placed { total, added_at });
        Ok(())
    }

    /// The series ends. When it went on after that, only an end that comes again is sent again.
    fn end_series(&mut self, key: Key, at_ms: i64) -> Result<(), Refused> {
        let came_before = self.again.take_end(key, at_ms);
        match self.totals.entry(key) {
            Entry::Occupied(known) if known.get().total.last_ms < at_ms => {
                self.places -= known.remove().total.places();
            }
            Entry::Occupied(_) if !came_before => return Err(Refused::OutOfOrder),
            _ => {}
        }
        self.changes.add(Change::Ended(key, at_ms));
        Ok(())
    }
}

/// A sink with totals before it.
pub(crate) struct Before<'s, S> {
    totals: &'s mut Cumulative,
    sink: &'s mut S,
    message: Vec<u8>,
}

impl<S: Sink> Sink for Before<'_, S> {
    #[inline]
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
        if !sample.is_delta {
            return self.sink.sample(labels, sample, about);
        }
        let key = self.totals.key(labels);
        let delta = match sample.value {
            Value::Float(delta) if delta.to_bits() != STALE_NAN => delta,
            // A histogram comes by the other way, unless it ends its series.
            _ => {
                match self.totals.end_series(key, sample.timestamp_ms) {
                    Ok(()) => {
                        self.totals.kept += 1;
                        self.sink.sample(labels, sample, about);
                    }
                    Err(why) => self.totals.refused[why as usize] += 1,
                }
                return;
            }
        };
        match self.totals.add(key, delta, sample) {
            Ok((value, start_ms)) => {
                self.totals.kept += 1;
                let sample = Sample {
                    value: Value::Float(value),
                    start_ms,
                    ..*sample
                };
                self.sink.sample(labels, &sample, about);
            }
            Err(why) => self.totals.refused[why as usize] += 1,
        }
    }

    fn delta(
        &mut self,
        labels: &SeriesLabels<'_>,
        delta: &Exponential,
        sample: &Sample<'_>,
        about: &About<'_>,
    ) {
        let key = self.totals.key(labels);
        match self.totals.add_histogram(key, delta, sample) {
            Ok((histogram, start_ms)) => {
                self.totals.kept += 1;
                self.message.clear();
                histogram.put(&mut self.message, false);
                let sample = Sample {
                    value: Value::Native(&self.message),
                    start_ms,
                    ..*sample
                };
                self.sink.sample(labels, &sample, about);
            }
            Err(why) => self.totals.refused[why as usize] += 1,
        }
    }

    fn metric(&mut self, about: &About<'_>) {
        self.sink.metric(about);
    }

    fn point(&mut self) {
        let totals = &mut *self.totals;
        let refused = std::mem::take(&mut totals.refused);
        if std::mem::take(&mut totals.kept) == 0
            && let Some(why) = refused.iter().position(|series| *series > 0)
        {
            // Nothing of it is written: the sink is not told that there was a point.
            totals.dropped_points[why] += 1;
            return;
        }
        self.sink.point();
    }
}
