//! What is kept of the series that a destination refuses, until their batch is done: for the dead letters.

use std::sync::Arc;

use sluice_client::{Egress, EgressPermit};
use sluice_payload::WireFormat;
use sluice_pipeline::Refused;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Inner;
use super::lane::Lane;
use crate::body::Body;
use crate::decode::Version;
use crate::rewrite::joined;

/// Bytes of refused series that are kept: as they are held, of all batches of an exporter, and written out, of one. They are a few series, or a
/// destination that refuses nearly everything, and a search has no end in time; what is beyond is logged and counted only.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// What holding a series takes beside its body and the reason: the structs, and an allocation for each of the two.
const SERIES_BYTES: usize = 256;

/// Room is asked for in such pieces: the pool counts in KiB, and a series is less than one.
const CHARGE_BYTES: usize = 64 << 10;

/// Where refused series are kept, of all batches of an exporter.
#[derive(Debug)]
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_KEPT_BYTES)))
    }
}

/// The refused series of a lane.
#[derive(Debug, Default)]
pub(super) struct Kept {
    series: Vec<(Body, String)>,
    points: u64,
    held: Held,
}

/// What the series of a lane take.
#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
    charged_bytes: usize,
    charges: Vec<EgressPermit>,
}

impl Held {
    /// Whether there is room for so many bytes more. They are charged to the memory for bodies where it has any: the series is there already, and what
    /// they take is bounded.
    fn grow(&mut self, bytes: usize, room: &Room, egress: &Egress) -> bool {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(more) = room.0.clone().try_acquire_many_owned(permits) else {
            return false;
        };
        match &mut self.room {
            Some(room) => room.merge(more),
            none => *none = Some(more),
        }
        self.bytes += bytes;
        if self.bytes > self.charged_bytes {
            let charge = (self.bytes - self.charged_bytes).max(CHARGE_BYTES);
            let permit = egress.try_reserve(charge);
            self.charged_bytes += if permit.is_some() { charge } else { 0 };
            self.charges.extend(permit);
        }
        true
    }
}

impl Kept {
    /// One more, which is counted, and kept if there is room.
    pub fn add(&mut self, body: Body, reason: String, inner: &Inner) {
        self.put(body, reason, &inner.room_for_refused, &inner.egress);
    }

    fn put(&mut self, body: Body, reason: String, room: &Room, egress: &Egress) {
        self.points += body.written.points();
        let bytes = body.bytes.len() + reason.len() + SERIES_BYTES;
        if self.held.grow(bytes, room, egress) {
            self.series.push((body, reason));
        }
    }

    /// Samples of all of them, also of those that are not kept.
    pub fn points(&self) -> u64 {
        self.points
    }
}

/// The series that were refused in these lanes: one request of each version, since each is a record that is synced by itself. The log has
/// what was said of each series; here it is what was said of the first.
pub(super) fn refused(lanes: &[Lane]) -> Vec<Refused> {
    let all: Vec<&(Body, String)> = lanes.iter().flat_map(|lane| &lane.refused().series).collect();
    let of = |version: Version| {
        let bodies = || {
            all.iter()
                .filter(move |(body, _)| body.format.version() == version)
        };
        let (_, first) = bodies().next()?;
        let others = bodies().filter(|(_, reason)| reason != first).count();
        let reason = match others {
            0 => first.clone(),
            _ => format!("{first} (and {others} for other reasons, which the log has)"),
        };
        let (body, items) = joined(version, bodies().map(|(body, _)| body), MAX_KEPT_BYTES)?;
        // What has exemplars only is no payload.
        (items > 0).then_some(Refused {
            body,
            wire_format: match version {
                Version::V1 => WireFormat::RemoteWrite1,
                Version::V2 => WireFormat::RemoteWrite2,
            },
            items,
            reason,
        })
    };
    [Version::V1, Version::V2].into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sluice_client::EgressPool;

    use super::*;
    use crate::body::{Format, Written};

    fn body(len: usize) -> Body {
        Body {
            bytes: Bytes::from(vec![0; len]),
            written: Written {
                series: 1,
                samples: 2,
                ..Written::default()
            },
            format: Format::V1,
        }
    }

    /// Scenario: two lanes, of two batches, have a hundred thousand series refused, some 40 MiB; both batches are done in the end. The memory for bodies has room for all
    /// of it, or for 1 MiB.
    /// Guarantees: all are counted; what is kept of both together is 8 MiB at most, and nearly that; it is charged where there is room; when a batch is done,
    /// its part is free again.
    #[test]
    fn what_is_kept_of_refused_series_is_bounded_and_charged() {
        const SERIES: usize = 50_000;
        for pool_bytes in [64 << 20, 1 << 20] {
            let room = Room::default();
            let pool = EgressPool::new(pool_bytes);
            let egress = Egress::new(pool.clone());
            let mut lanes = [Kept::default(), Kept::default()];
            for _ in 0..SERIES {
                for lane in &mut lanes {
                    lane.put(body(400), "HTTP 400 Bad Request".to_owned(), &room, &egress);
                }
            }
            let mut kept_bytes = 0;
            for lane in &lanes {
                assert_eq!(lane.points(), 2 * SERIES as u64);
                let bodies = lane
                    .series
                    .iter()
                    .map(|(body, reason)| body.bytes.len() + reason.len());
                kept_bytes += bodies.sum::<usize>() + lane.series.len() * SERIES_BYTES;
            }
            assert!(
                (MAX_KEPT_BYTES - 1024..=MAX_KEPT_BYTES).contains(&kept_bytes),
                "{kept_bytes}"
            );
            let want = pool_bytes.min(MAX_KEPT_BYTES as u64);
            let used = pool.used();
            assert!(
                used <= pool_bytes && used + 64 * 1024 > want,
                "{used} of {pool_bytes}"
            );
            let [first, second] = lanes;
            drop(first);
            assert!(room.0.available_permits() > MAX_KEPT_BYTES / 3);
            drop(second);
            assert_eq!((room.0.available_permits(), pool.used()), (MAX_KEPT_BYTES, 0));
        }
    }
}
