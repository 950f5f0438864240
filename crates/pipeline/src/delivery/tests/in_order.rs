//! Exporters that keep the order by themselves, and are given batches ahead.

use std::collections::BTreeMap;

use super::*;
use crate::Ending;

/// Batches ahead.
const AHEAD: usize = 3;

/// What it says to an attempt, by the number of the batch and of the attempt; what says nothing is delivered when nothing is left before it.
type Says = dyn Fn(u64, u32) -> Option<Verdict> + Send + Sync;

/// An exporter in which each batch waits for those before it.
struct InOrder {
    says: Box<Says>,
    begun: Instant,
    attempts: Mutex<Vec<(Duration, u64)>>,
    ended: Mutex<BTreeMap<u64, Ending>>,
    changed: Notify,
}

impl InOrder {
    fn new(says: impl Fn(u64, u32) -> Option<Verdict> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            says: Box::new(says),
            begun: Instant::now(),
            attempts: Mutex::default(),
            ended: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn seconds(&self, number: u64) -> Vec<u64> {
        let attempts = self.attempts.lock();
        let of = attempts.iter().filter(|(_, of)| *of == number);
        of.map(|(at, _)| at.as_secs()).collect()
    }
}

impl Exporter for InOrder {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        panic!("it has a turn")
    }

    fn runs_ahead(&self) -> usize {
        AHEAD
    }

    fn export_in_turn<'a>(&'a self, _: &'a Batch, turn: Turn) -> Export<'a> {
        Box::pin(async move {
            let number = turn.number;
            self.attempts.lock().push((self.begun.elapsed(), number));
            let attempt = self.seconds(number).len() as u32;
            if let Some(verdict) = (self.says)(number, attempt) {
                sleep_until(Instant::now() + Duration::from_secs(1)).await;
                return verdict;
            }
            loop {
                let changed = self.changed.notified();
                let is_settled = |before| self.ended.lock().get(&before) == Some(&Ending::Settled);
                if (1..number).all(is_settled) {
                    return ok();
                }
                changed.await;
            }
        })
    }

    fn ends(&self, turn: Turn, ending: Ending) {
        assert!(self.ended.lock().insert(turn.number, ending).is_none());
        self.changed.notify_waiters();
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

fn settings(retry: RetrySettings) -> DeliverySettings {
    DeliverySettings {
        exporter: "x".into(),
        batch: BatchSettings {
            flush_timeout: Duration::ZERO,
            ..Default::default()
        },
        retry,
        max_in_flight: 1,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters: None,
    }
}

/// Delivers so many payloads, a batch each.
async fn delivered(exporter: Arc<InOrder>, payloads: u64, retry: RetrySettings) -> CursorReport {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
    for _ in 0..payloads {
        let payload = Payload::uncharged(Signal::Logs, logs(1, 1), 1);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
    }
    let delivery = deliver(
        cursors.remove(0),
        Signal::Logs,
        exporter,
        settings(retry),
        Registry::default(),
    );
    let ends = async { tokio::join!(delivery, close_when_drained(&journal)) };
    let ends = tokio::time::timeout(Duration::from_secs(3600), ends).await;
    ends.expect("nothing waits for what waits for it");
    journal.reports(std::time::Instant::now()).remove(0)
}

fn fault() -> Option<Verdict> {
    Some(Verdict::EndpointFault { reason: "401".into() })
}

fn retry() -> Option<Verdict> {
    Some(Verdict::Retry {
        after: None,
        reason: "503".into(),
    })
}

/// Scenario: of four batches the second is told that nothing is taken, and the first one three times; the others wait for it.
/// Guarantees: all four are under way at once; while the destination is held the first one probes and no other; all are delivered.
#[tokio::test(start_paused = true)]
async fn the_first_one_probes() {
    let exporter = InOrder::new(|number, attempt| match (number, attempt) {
        (1, 1..=3) | (2, 1) => fault(),
        _ => None,
    });
    let report = delivered(exporter.clone(), 6, steady()).await;
    assert_eq!(report.total().delivered, 6);
    assert_eq!(exporter.seconds(1), [0, 6, 17, 38]);
    assert_eq!(exporter.seconds(2), [0, 38]);
    assert_eq!(exporter.seconds(4), [0]);
    assert!(
        exporter
            .ended
            .lock()
            .values()
            .all(|ending| *ending == Ending::Settled)
    );
}

/// Scenario: two batches are retried for ever, and given up after ten seconds.
/// Guarantees: the second has its own ten seconds, from when it is the first one.
#[tokio::test(start_paused = true)]
async fn who_waits_for_others_is_not_given_up_for_it() {
    let exporter = InOrder::new(|number, _| if number <= 2 { retry() } else { None });
    let settings = RetrySettings {
        max_elapsed_time: Some(Duration::from_secs(10)),
        ..steady()
    };
    let report = delivered(exporter.clone(), 3, settings).await;
    let (first, second) = (exporter.seconds(1), exporter.seconds(2));
    assert_eq!(report.total().dropped[DropReason::RetryExhausted as usize], 2);
    assert_eq!(report.total().delivered, 1);
    assert!(*first.last().unwrap() <= 10, "{first:?}");
    let last = *second.last().unwrap();
    assert!((15..=20).contains(&last), "{second:?}");
}

/// Scenario: a journal on disk is closed while the first of two batches waits for its retry, and the second for the first.
/// Guarantees: both are left, and the exporter is told so: nothing may pass them.
#[tokio::test(start_paused = true)]
async fn what_stays_on_disk_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors, _) = Journal::disk("logs", vec![spec], disk(directory.path())).unwrap();
    for _ in 0..2 {
        let payload = Payload::uncharged(Signal::Logs, logs(1, 1), 1);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let appended = journal.append(space, Arc::new(payload), None, Durability::Synced);
        appended.persisted().await.unwrap();
    }
    let exporter = InOrder::new(|number, _| if number == 1 { retry() } else { None });
    let long = RetrySettings {
        initial_interval: Duration::from_secs(3600),
        max_interval: Duration::from_secs(3600),
        ..steady()
    };
    let delivery = tokio::spawn(deliver(
        cursors.remove(0),
        Signal::Logs,
        exporter.clone(),
        settings(long),
        Registry::default(),
    ));
    while exporter.attempts.lock().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    journal.close();
    delivery.await.unwrap();
    let left: Vec<_> = exporter.ended.lock().clone().into_iter().collect();
    assert_eq!(left, [(1, Ending::Left), (2, Ending::Left)]);
    assert_eq!(journal.reports(std::time::Instant::now())[0].total().queued, 2);
    assert_eq!(journal.abandon(), 0);
}
