//! A reader's side.

use std::sync::Arc;

use sluice_payload::Payload;

use crate::disk::{Again, Next};
use crate::journal::Shared;
use crate::state::{Released, Settled};

/// One payload as handed to a cursor.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place in the journal.
    pub seq: u64,
    /// The payload.
    pub payload: Arc<Payload>,
    /// Nothing more is handed out until some of it is settled: what was gathered should go.
    pub full: bool,
}

/// One exporter's reading position. Reading is done by one task; settling by any.
#[derive(Clone)]
pub struct Cursor {
    shared: Arc<Shared>,
    index: usize,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cursor({}, {})", self.shared.pipeline, self.index)
    }
}

impl Cursor {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self { shared, index }
    }

    /// The pipeline's id.
    pub fn pipeline(&self) -> &str {
        &self.shared.pipeline
    }

    /// The next payload; waits for one, and ends with `None` when the journal is closed and read.
    pub async fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(disk) = &self.shared.disk {
                match disk.next(&self.shared, self.index) {
                    Next::Ready(entry) => return Some(entry),
                    Next::Wait => self.shared.readable[self.index].notified().await,
                    Next::Retry => tokio::task::yield_now().await,
                    Next::Closed => return None,
                }
                continue;
            }
            // One reader, and `notify_one` stores a permit: nothing is missed between look and wait.
            {
                let mut state = self.shared.state.lock();
                if let Some((seq, payload)) = state.next(self.index) {
                    return Some(Entry {
                        seq,
                        payload,
                        full: false,
                    });
                }
                if state.closed {
                    return None;
                }
            }
            self.shared.readable[self.index].notified().await;
        }
    }

    /// Whether what it reads is on disk.
    pub fn is_durable(&self) -> bool {
        self.shared.disk.is_some()
    }

    /// The number that the next payload gets which is appended: all that were are below it.
    pub fn end(&self) -> u64 {
        self.shared.state.lock().end
    }

    /// Waits until the journal is closed and keeps what is not settled for the next process; one in memory never does.
    pub async fn kept_for_later(&self) {
        match self.shared.disk {
            Some(_) => self.shared.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the journal is closed.
    pub async fn closed(&self) {
        self.shared.closed().await;
    }

    /// Hands out this many bytes before some are settled, rather than what is right for a reader that keeps payloads until
    /// then. Only a journal on disk asks; one in memory keeps them anyway.
    pub fn hand_out_up_to(&self, bytes: u64) {
        let mut state = self.shared.state.lock();
        if self.shared.disk.is_some() {
            state.spilled().lags[self.index].most_in_flight_bytes = Some(bytes);
        }
    }

    /// For reading once more what was handed out and is not settled.
    pub fn again(&self) -> Again {
        Again::new(self.shared.clone(), self.index)
    }

    /// Settles items of payloads this cursor was handed; a payload is done when all its items are.
    pub fn settle(&self, settled: &[Settled]) {
        let mut released = Released::new();
        let now = tokio::time::Instant::now().into_std();
        self.shared
            .state
            .lock()
            .settle(self.index, settled, now, &mut released);
        drop(released);
        if let Some(disk) = &self.shared.disk {
            disk.queue.moved();
            // There may be room in flight.
            self.shared.readable[self.index].notify_one();
        }
        self.shared.after_settle(settled.len());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use sluice_admission::Budget;
    use sluice_payload::{Signal, TenantId, WireFormat};
    use sluice_telemetry::DropReason;

    use super::*;
    use crate::*;

    fn payload(budget: &Budget, items: u64) -> Arc<Payload> {
        Arc::new(Payload {
            signal: Signal::Logs,
            body: Bytes::from_static(b"x"),
            wire_format: WireFormat::Otlp,
            frame: None,
            items,
            tenant: TenantId::DEFAULT,
            received_at: Instant::now(),
            permit: budget.try_reserve(100),
        })
    }

    fn spec(exporter: &str, requests: Option<u64>, on_full: OnFull) -> CursorSpec {
        CursorSpec {
            exporter: exporter.into(),
            limits: Limits {
                requests,
                ..Default::default()
            },
            on_full,
        }
    }

    fn put(journal: &Journal, payload: Arc<Payload>) -> Result<u64, Full> {
        let cost = Cost {
            requests: 1,
            items: payload.items,
            bytes: 100,
        };
        let _ = journal.append(journal.try_reserve(cost)?, payload, None, Durability::Written);
        Ok(journal.0.state.lock().end - 1)
    }

    fn done(seq: u64, delivered: u64) -> Settled {
        Settled {
            seq,
            delivered,
            dropped: None,
        }
    }

    fn balanced(journal: &Journal) {
        for report in journal.reports(Instant::now()) {
            assert!(report.total().balanced(), "{report:?}");
            assert_eq!(report.total().queued, report.depth.backlog.items, "{report:?}");
        }
    }

    /// A journal with one cursor, in front of which so many payloads of `bytes` wait.
    fn with_backlog(payloads: usize, bytes: u64) -> (Journal, Vec<Cursor>) {
        let (journal, cursors) = Journal::memory("logs", vec![spec("a", None, OnFull::Refuse)]);
        let budget = Budget::new(10_000);
        let cost = Cost {
            requests: 1,
            items: 1,
            bytes,
        };
        for _ in 0..payloads {
            let space = journal.try_reserve(cost).unwrap();
            let _ = journal.append(space, payload(&budget, 1), None, Durability::Written);
        }
        (journal, cursors)
    }

    /// Scenario: six payloads of 1 MiB in front of an exporter that settles one after the other, and three receivers who wait
    /// for the backlog to ease.
    /// Guarantees: nobody goes on while more waits than may; then one for each that left; all once half of it has.
    #[tokio::test(start_paused = true)]
    async fn receivers_go_on_as_payloads_leave() {
        const LONGEST: Duration = Duration::from_secs(60);
        let (journal, cursors) = with_backlog(6, EASED_BYTES / 4);
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let journal = journal.clone();
            waiting.spawn(async move { journal.eased(LONGEST).await });
        }
        let mut left = Vec::new();
        for seq in 0..4 {
            tokio::task::yield_now().await;
            cursors[0].settle(&[done(seq, 1)]);
            tokio::task::yield_now().await;
            while waiting.try_join_next().is_some() {}
            left.push(waiting.len());
        }
        assert_eq!(left, [3, 2, 1, 0]);
    }

    /// Scenario: an exporter that settles nothing; receivers wait for the backlog to ease, one after the other. Then it settles one payload a second
    /// of eight, while as many come; then nearly all of them.
    /// Guarantees: the first waits as long as it may; nobody waits for one that stands, nor for one that would take eight seconds; who comes when little is left waits again.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_an_exporter_that_is_too_slow() {
        const LONGEST: Duration = Duration::from_secs(1);
        let (journal, cursors) = with_backlog(20, EASED_BYTES);
        let wait = || async {
            let began = tokio::time::Instant::now();
            journal.eased(LONGEST).await;
            began.elapsed()
        };
        assert_eq!(wait().await, LONGEST);
        assert_eq!(wait().await, Duration::ZERO, "it stands");
        for seq in 0..8 {
            tokio::time::advance(LONGEST).await;
            cursors[0].settle(&[done(seq, 1)]);
            assert_eq!(wait().await, Duration::ZERO, "{seq} have left, one a second");
        }
        let most: Vec<_> = (8..18).map(|seq| done(seq, 1)).collect();
        cursors[0].settle(&most);
        assert_eq!(wait().await, LONGEST, "two are left");
    }

    /// Scenario: two cursors settle three payloads out of order, one of them in parts.
    /// Guarantees: memory goes back only with the last cursor, in any order, and the account
    /// balances at every step.
    #[tokio::test]
    async fn the_last_cursor_releases() {
        let budget = Budget::new(10_000);
        let (journal, mut cursors) = Journal::memory(
            "logs",
            vec![spec("a", None, OnFull::Refuse), spec("b", None, OnFull::Refuse)],
        );
        for items in [3, 5, 7] {
            put(&journal, payload(&budget, items)).unwrap();
        }
        assert_eq!(budget.usage().used, 300);
        let mut handed = Vec::new();
        for cursor in &mut cursors {
            for _ in 0..3 {
                let entry = cursor.next().await.unwrap();
                handed.push((entry.seq, entry.payload.items));
            }
        }
        assert_eq!(handed, [(0, 3), (1, 5), (2, 7), (0, 3), (1, 5), (2, 7)]);
        cursors[0].settle(&[done(2, 7), done(0, 3), done(1, 5)]);
        assert_eq!(budget.usage().used, 300);
        cursors[1].settle(&[done(2, 4)]);
        balanced(&journal);
        assert_eq!(budget.usage().used, 300);
        cursors[1].settle(&[Settled {
            seq: 2,
            delivered: 1,
            dropped: Some((DropReason::PayloadFault, 2)),
        }]);
        assert_eq!(budget.usage().used, 200);
        cursors[1].settle(&[done(0, 3), done(1, 5)]);
        assert_eq!(budget.usage().used, 0);
        balanced(&journal);
        let b = journal.reports(Instant::now())[1].total();
        assert_eq!(
            (b.accepted, b.delivered, b.dropped_total(), b.queued),
            (15, 13, 2, 0)
        );
    }

    /// Scenario: one exporter is dead and its cursor may hold two payloads.
    /// Guarantees: with `drop_oldest` the other cursor gets everything and the dead one's losses
    /// are counted; with `refuse` the journal refuses, naming the exporter, until there is room.
    #[tokio::test]
    async fn a_dead_cursor_is_cut_loose_or_holds_back() {
        let budget = Budget::new(10_000);
        let (journal, mut cursors) = Journal::memory(
            "logs",
            vec![
                spec("ok", None, OnFull::Refuse),
                spec("dead", Some(2), OnFull::DropOldest),
            ],
        );
        for _ in 0..10 {
            let seq = put(&journal, payload(&budget, 1)).unwrap();
            let entry = cursors[0].next().await.unwrap();
            assert_eq!(entry.seq, seq);
            cursors[0].settle(&[done(seq, 1)]);
        }
        balanced(&journal);
        let dead = journal.reports(Instant::now())[1].total();
        assert_eq!(
            (
                dead.accepted,
                dead.queued,
                dead.dropped[DropReason::QueueFull as usize]
            ),
            (10, 2, 8)
        );
        assert_eq!(budget.usage().used, 200);
        assert_eq!(cursors[1].next().await.unwrap().seq, 8);

        let both = vec![
            spec("a", Some(2), OnFull::DropOldest),
            spec("b", Some(2), OnFull::DropOldest),
        ];
        let (overloaded, _cursors) = Journal::memory("logs", both);
        put(&overloaded, payload(&budget, 1)).unwrap();
        put(&overloaded, payload(&budget, 1)).unwrap();
        put(&overloaded, payload(&budget, 1)).expect_err("nobody is a laggard when all are full");

        let (journal, mut cursors) = Journal::memory("logs", vec![spec("dead", Some(2), OnFull::Refuse)]);
        put(&journal, payload(&budget, 1)).unwrap();
        put(&journal, payload(&budget, 1)).unwrap();
        let full = put(&journal, payload(&budget, 1)).unwrap_err();
        assert!(full.to_string().contains("exporter dead is full"), "{full}");
        let waiting = {
            let journal = journal.clone();
            tokio::spawn(async move {
                journal
                    .reserve(Cost {
                        requests: 1,
                        items: 1,
                        bytes: 1,
                    })
                    .await
                    .map(drop)
            })
        };
        tokio::task::yield_now().await;
        let entry = cursors[0].next().await.unwrap();
        cursors[0].settle(&[done(entry.seq, 1)]);
        waiting.await.unwrap().unwrap();
    }

    /// Scenario: one exporter never settles the first payload; a thousand more pass through the other.
    /// Guarantees: nothing but the dead exporter's own backlog stays behind.
    #[tokio::test]
    async fn a_dead_cursor_keeps_only_its_backlog() {
        let budget = Budget::new(1_000_000);
        let (journal, mut cursors) = Journal::memory(
            "logs",
            vec![
                spec("ok", None, OnFull::Refuse),
                spec("dead", Some(2), OnFull::DropOldest),
            ],
        );
        put(&journal, payload(&budget, 1)).unwrap();
        cursors[1].next().await.unwrap();
        for _ in 0..1000 {
            put(&journal, payload(&budget, 1)).unwrap();
            let entry = cursors[0].next().await.unwrap();
            cursors[0].settle(&[done(entry.seq, 1)]);
        }
        assert!(journal.slots() <= 3, "{} slots", journal.slots());
        balanced(&journal);
    }

    /// Scenario: a payload above the limits meets an idle exporter that may be cut loose.
    /// Guarantees: it is kept and delivered, not acknowledged and dropped.
    #[tokio::test]
    async fn an_idle_cursor_is_no_laggard() {
        let budget = Budget::new(10_000);
        let limits = Limits {
            items: Some(10),
            ..Default::default()
        };
        let spec = CursorSpec {
            exporter: "a".into(),
            limits,
            on_full: OnFull::DropOldest,
        };
        let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
        put(&journal, payload(&budget, 11)).unwrap();
        assert_eq!(cursors[0].next().await.unwrap().payload.items, 11);
    }

    /// Scenario: of one payload, one exporter loses a part for good and another gives up a part for now.
    /// Guarantees: the client hears the reason that makes it retry.
    #[tokio::test]
    async fn a_reason_to_retry_outweighs_a_final_one() {
        let budget = Budget::new(10_000);
        let (journal, mut cursors) = Journal::memory(
            "logs",
            vec![spec("a", None, OnFull::Refuse), spec("b", None, OnFull::Refuse)],
        );
        let (confirm, waiting) = Confirm::new(2);
        let space = journal
            .try_reserve(Cost {
                requests: 1,
                items: 5,
                bytes: 1,
            })
            .unwrap();
        let _ = journal.append(space, payload(&budget, 5), Some(confirm), Durability::Written);
        for (cursor, reason, lost) in [
            (0, DropReason::PayloadFault, 4),
            (1, DropReason::RetryExhausted, 1),
        ] {
            cursors[cursor].next().await.unwrap();
            cursors[cursor].settle(&[Settled {
                seq: 0,
                delivered: 5 - lost,
                dropped: Some((reason, lost)),
            }]);
        }
        assert_eq!(
            waiting.await.unwrap(),
            Confirmed {
                dropped: Some((DropReason::RetryExhausted, 4))
            }
        );
    }

    /// Scenario: a payload larger than the whole queue.
    /// Guarantees: it is taken when the queue is empty, or it would be refused for ever.
    #[test]
    fn an_oversized_payload_is_taken_by_an_empty_queue() {
        let budget = Budget::new(10_000);
        let limits = Limits {
            items: Some(10),
            ..Default::default()
        };
        let spec = CursorSpec {
            exporter: "a".into(),
            limits,
            on_full: OnFull::Refuse,
        };
        let (journal, _cursors) = Journal::memory("logs", vec![spec]);
        put(&journal, payload(&budget, 11)).unwrap();
        put(&journal, payload(&budget, 1)).unwrap_err();
    }

    /// Scenario: a request waits for delivery at two exporters; one drops part of it.
    /// Guarantees: it is told once, after the last cursor, what was lost at worst.
    #[tokio::test]
    async fn confirmation_comes_after_the_last_cursor() {
        let budget = Budget::new(10_000);
        let (journal, mut cursors) = Journal::memory(
            "logs",
            vec![spec("a", None, OnFull::Refuse), spec("b", None, OnFull::Refuse)],
        );
        let (confirm, mut waiting) = Confirm::new(2);
        let space = journal
            .try_reserve(Cost {
                requests: 1,
                items: 5,
                bytes: 1,
            })
            .unwrap();
        let _ = journal.append(space, payload(&budget, 5), Some(confirm), Durability::Written);
        cursors[0].next().await.unwrap();
        cursors[0].settle(&[done(0, 5)]);
        assert!(waiting.try_recv().is_err());
        cursors[1].next().await.unwrap();
        cursors[1].settle(&[Settled {
            seq: 0,
            delivered: 3,
            dropped: Some((DropReason::PayloadFault, 2)),
        }]);
        assert_eq!(
            waiting.await.unwrap(),
            Confirmed {
                dropped: Some((DropReason::PayloadFault, 2))
            }
        );
    }

    /// Scenario: the journal closes with one payload in flight and one unread; then the deadline.
    /// Guarantees: cursors read what is there and end; what is left is counted as shutdown, a late
    /// settle changes nothing, and the account balances.
    #[tokio::test]
    async fn closing_and_abandoning_is_counted() {
        let budget = Budget::new(10_000);
        let (journal, mut cursors) = Journal::memory("logs", vec![spec("a", None, OnFull::Refuse)]);
        put(&journal, payload(&budget, 2)).unwrap();
        put(&journal, payload(&budget, 3)).unwrap();
        let first = cursors[0].next().await.unwrap();
        journal.close();
        assert_eq!(put(&journal, payload(&budget, 1)).unwrap_err(), Full::Closed);
        let second = cursors[0].next().await.unwrap();
        assert!(cursors[0].next().await.is_none());
        assert_eq!(journal.abandon(), 5);
        drop((first, second));
        cursors[0].settle(&[done(0, 2)]);
        balanced(&journal);
        assert_eq!(
            journal.reports(Instant::now())[0].total().dropped[DropReason::Shutdown as usize],
            5
        );
        assert_eq!(budget.usage().used, 0);
        journal.drained().await;
    }
}
