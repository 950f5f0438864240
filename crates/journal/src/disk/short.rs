//! A disk that is nearly full: exporters that may be cut loose give up the oldest of what waits for them, before the disk refuses what
//! the others wait for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::writer::Writer;
use crate::OnFull;
use crate::journal::Shared;
use crate::state::{Released, State};

/// The disk is short when less than this part is free of what the journal has and could have: room for what comes until the oldest is gone.
const SHORT_PART: u64 = 16;

/// Of a large disk as much: more than all that comes between two looks.
const MOST_SHORT_BYTES: u64 = 1 << 30;

/// A segment is no smaller for the disk's sake: each has a file, and a sync of its name.
const LEAST_SEGMENT_BYTES: u64 = 1 << 20;

/// How much is written, in parts of a segment, and how long it takes at most before somebody looks again. Not at each group: some file
/// systems have to ask over a network.
const LOOK_PART: u64 = 4;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When the writer looks at what is free.
#[derive(Debug)]
pub(super) struct Watch {
    every_bytes: u64,
    looked_at: Option<(Instant, u64)>,
}

impl Watch {
    pub fn new(segment_bytes: u64) -> Self {
        Self {
            every_bytes: segment_bytes / LOOK_PART,
            looked_at: None,
        }
    }

    fn is_due(&self, now: Instant, stored_bytes: u64) -> bool {
        self.looked_at.is_none_or(|(at, before)| {
            now.saturating_duration_since(at) >= LOOK_EVERY || stored_bytes - before >= self.every_bytes
        })
    }
}

/// A segment is what is freed at once: on a small disk it must not be most of it.
pub(super) fn segment_bytes(wanted: u64, own_bytes: u64, free_bytes: u64) -> u64 {
    let part = own_bytes.saturating_add(free_bytes) / SHORT_PART;
    wanted.min(part.max(LEAST_SEGMENT_BYTES))
}

fn is_short(own_bytes: u64, free_bytes: u64) -> bool {
    let part = own_bytes.saturating_add(free_bytes) / SHORT_PART;
    free_bytes < part.min(MOST_SHORT_BYTES)
}

impl Writer {
    /// Drops what laggards have not sent of the oldest segment, if the disk is short. One segment at a look: it is gone when whoever else
    /// sends something of it is done, and more is freed at each look than is written between two.
    pub(super) fn spare_disk(&mut self, shared: &Shared) {
        let Some(disk) = &shared.disk else { return };
        let (now, stored_bytes) = (disk.clock.now(), disk.stored_bytes.load(Ordering::Relaxed));
        if !self.watch.is_due(now, stored_bytes) {
            return;
        }
        self.watch.looked_at = Some((now, stored_bytes));
        // What cannot be asked shows when it is written.
        let Ok(free_bytes) = disk.free_bytes() else { return };
        let own_bytes = disk.report(&mut shared.state.lock()).bytes;
        if !is_short(own_bytes, free_bytes) {
            return;
        }
        let Some((laggards, last)) = shared.state.lock().laggards() else {
            return;
        };
        let mut released = Released::new();
        for index in laggards {
            let exporter = shared.state.lock().exporter(index).to_owned();
            tracing::warn!(
                pipeline = shared.pipeline,
                exporter,
                free_bytes,
                "the disk is nearly full: the oldest requests that wait for this exporter are dropped, for the others of its pipeline to go on. Mend its destination, or set its queue_size to what it may have of the disk"
            );
            while shared.state.lock().cursors[index].next <= last
                && self.drop_oldest(shared, index, &mut released)
            {}
        }
        drop(released);
    }
}

impl State {
    /// The cursors for which the oldest segment is kept, and the last number in it: when all of them may be cut loose, and another one is
    /// past it. What they are sending is not theirs to drop, and keeps its segment.
    fn laggards(&self) -> Option<(Vec<usize>, u64)> {
        let oldest = self.cursors.iter().map(|cursor| cursor.next).min()?;
        let mut segments = self.spill.as_deref()?.segments.values();
        let segment =
            segments.find(|segment| !segment.contents.is_empty() && segment.contents.last >= oldest)?;
        let last = segment.contents.last;
        let laggards: Vec<_> = (0..self.cursors.len())
            .filter(|index| self.cursors[*index].next <= last)
            .collect();
        let mut specs = laggards.iter().map(|index| &self.cursors[*index].spec);
        let may_go = segment.closed
            && laggards.len() < self.cursors.len()
            && specs.all(|spec| spec.on_full == OnFull::DropOldest);
        may_go.then_some((laggards, last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use sluice_payload::{Payload, Signal, Tenants};
    use sluice_telemetry::DropReason;

    use super::super::{DiskSettings, Durability, Next};
    use super::*;
    use crate::testing::{ManualClock, SimulatedDisk};
    use crate::{Clock, Cursor, CursorSpec, Entry, Journal, Limits, Settled};

    const CAPACITY_BYTES: u64 = 400_000;
    const BODY_BYTES: usize = 500;
    const SEGMENT_BYTES: u64 = 3 << 10;

    /// What fits on the disk without what is kept free, positions, and the heads of records and segments, at least.
    const FIT: u64 = CAPACITY_BYTES * 7 / 8 / (BODY_BYTES as u64 + 200);

    struct World {
        journal: Journal,
        clock: ManualClock,
        next: u64,
    }

    impl World {
        /// A journal on a small disk, with exporters that have no limits of their own.
        fn new(on_full: &[OnFull]) -> Self {
            let disk = SimulatedDisk::default();
            disk.set_capacity_bytes(CAPACITY_BYTES);
            let clock = ManualClock::at(UNIX_EPOCH);
            let spec = |(index, on_full): (usize, &OnFull)| CursorSpec {
                exporter: index.to_string(),
                limits: Limits::default(),
                on_full: *on_full,
            };
            let settings = DiskSettings {
                segment_bytes: SEGMENT_BYTES,
                kept_bytes: 0,
                filesystem: Arc::new(disk.clone()),
                clock: Arc::new(clock.clone()),
                seed: Some(1),
                ..DiskSettings::new("/spool", Tenants::default())
            };
            let specs = on_full.iter().enumerate().map(spec).collect();
            let (journal, _, _) = Journal::disk("logs", specs, settings).unwrap();
            Self {
                journal,
                clock,
                next: 0,
            }
        }

        /// Whether one more payload is taken.
        fn append(&mut self) -> bool {
            let mut random = crate::testing::Random(self.next);
            let body: Vec<u8> = (0..BODY_BYTES).map(|_| random.draw() as u8).collect();
            let payload = Payload::uncharged(Signal::Logs, body.into(), 1);
            let Ok(space) = self.journal.try_reserve(self.journal.cost(&payload)) else {
                return false;
            };
            let mut appended = self
                .journal
                .append(space, Arc::new(payload), None, Durability::Synced);
            self.journal.turn();
            let taken = matches!(appended.outcome(), Some(Ok(())));
            self.next += u64::from(taken);
            taken
        }

        /// Delivers all that waits for this exporter; how many it is.
        fn deliver(&self, index: usize) -> u64 {
            let disk = self.journal.0.disk.as_ref().unwrap();
            let mut count = 0;
            while let Next::Ready(Entry { seq, .. }) = disk.next(&self.journal.0, index) {
                let settled = Settled {
                    seq,
                    delivered: 1,
                    dropped: None,
                };
                Cursor::new(self.journal.0.clone(), index).settle(&[settled]);
                count += 1;
            }
            count
        }

        fn dropped(&self, index: usize) -> u64 {
            let total = self.journal.reports(self.clock.now())[index].total();
            assert!(total.balanced());
            total.dropped[DropReason::QueueFull as usize]
        }
    }

    /// Scenario: one destination of two, or two of three, stand while three times as much comes as the disk holds; then they go again.
    /// Guarantees: nothing is refused, and the one that goes gets everything; what the others lose is the oldest and is counted, none of it
    /// before the disk is nearly full, and they still get what fits on it.
    #[test]
    fn a_short_disk_costs_the_laggards_and_nobody_else() {
        for exporters in [2, 3] {
            let mut world = World::new(&vec![OnFull::DropOldest; exporters]);
            let all = 3 * CAPACITY_BYTES / BODY_BYTES as u64;
            for id in 0..all {
                assert!(world.append(), "{id} is refused");
                assert_eq!(world.deliver(0), 1);
                if id < FIT {
                    assert_eq!(world.dropped(1), 0, "{id} fits");
                }
            }
            assert_eq!(world.dropped(0), 0);
            for laggard in 1..exporters {
                let dropped = world.dropped(laggard);
                assert!(dropped > 0 && dropped <= all - FIT, "{dropped} of {all}");
                assert_eq!(world.deliver(laggard), all - dropped);
            }
        }
    }

    /// Scenario: both destinations stand until the disk is full, then one goes again; the same where the other one may not be cut loose.
    /// Guarantees: while both stand payloads are refused and none is dropped; then the one that stands is cut loose, and the other has all
    /// that comes. One that may not be cut loose loses nothing, and payloads are refused.
    #[test]
    fn who_is_not_alone_in_lagging_loses_nothing() {
        for other in [OnFull::DropOldest, OnFull::Refuse] {
            let mut world = World::new(&[OnFull::DropOldest, other]);
            while world.append() {
                assert!(world.next * BODY_BYTES as u64 <= CAPACITY_BYTES, "more than fits");
            }
            assert!(world.next >= FIT);
            assert_eq!((world.dropped(0), world.dropped(1)), (0, 0));
            assert_eq!(world.deliver(0), world.next);
            let mut taken = 0;
            for _ in 0..1000 {
                world.clock.advance(Duration::from_secs(2));
                taken += u64::from(world.append());
                world.deliver(0);
            }
            assert_eq!(world.dropped(0), 0);
            match other {
                OnFull::DropOldest => assert!(taken >= 999 && world.dropped(1) > 0, "{taken} taken"),
                OnFull::Refuse => assert_eq!((taken, world.dropped(1)), (0, 0)),
            }
        }
    }

    /// Scenario: disks of several sizes, empty and with files of the journal.
    /// Guarantees: a segment is a sixteenth of what the journal can have, but not less than 1 MiB; large disks keep 1 GiB free and no more.
    #[test]
    fn sizes_follow_the_disk() {
        const MIB: u64 = 1 << 20;
        assert_eq!(segment_bytes(64 * MIB, 0, u64::MAX), 64 * MIB);
        assert_eq!(segment_bytes(64 * MIB, 300 * MIB, 20 * MIB), 20 * MIB);
        assert_eq!(segment_bytes(64 * MIB, 0, 0), MIB);
        assert!(is_short(1 << 40, (1 << 30) - 1) && !is_short(1 << 40, 1 << 30));
        assert!(is_short(150 * MIB, 9 * MIB) && !is_short(150 * MIB, 10 * MIB));
    }
}
