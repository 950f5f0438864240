//! Scripted destinations on a paused clock.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_admission::GuardSettings;
use sluice_journal::{
    Cost, CursorReport, CursorSpec, DiskSettings, Durability, Journal, Limits, OnFull, Which, export,
};
use sluice_payload::{Payload, Tenants, WireFormat};

use super::*;
use crate::{Batch, Export, Refused};

mod in_order;
mod refusals;
mod turns;

/// Answers by script, then by rule; remembers the sequence of item counts it was sent.
struct Scripted {
    script: Mutex<VecDeque<Verdict>>,
    rule: Box<dyn Fn(&Batch) -> Verdict + Send + Sync>,
    seen: Mutex<Vec<(Instant, u64)>>,
}

impl Exporter for Scripted {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(async move {
            self.seen.lock().push((Instant::now(), batch.items()));
            let scripted = self.script.lock().pop_front();
            scripted.unwrap_or_else(|| (self.rule)(batch))
        })
    }

    fn prepare<'a>(
        &'a self,
        batch: &'a Batch,
        _: Turn,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let poison = batch
            .parts
            .iter()
            .any(|part| part.body.ends_with(&[UNPREPARABLE]));
        Box::pin(async move { assert!(!poison, "it cannot be prepared") })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// What marks a payload that no batch with it at its end can be prepared.
const UNPREPARABLE: u8 = 0xee;

fn ok() -> Verdict {
    Verdict::Delivered {
        rejected: 0,
        message: None,
    }
}

fn logs(records: usize, marker: u8) -> Bytes {
    let body = vec![marker; 2];
    let mut record = vec![0x12, 0x04, 0x1a, 0x02];
    record.extend(body);
    let scope: Vec<u8> = std::iter::repeat_n(record, records).flatten().collect();
    let mut resource = vec![0x12, scope.len() as u8];
    resource.extend(scope);
    let mut request = vec![0x0a, resource.len() as u8];
    request.extend(resource);
    request.into()
}

/// Sends `payloads` (items, marker) through a destination until all is settled.
async fn run(
    payloads: &[(usize, u8)],
    script: Vec<Verdict>,
    rule: impl Fn(&Batch) -> Verdict + Send + Sync + 'static,
    retry: RetrySettings,
) -> (Vec<(Duration, u64)>, CursorReport) {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, cursors) = Journal::memory("logs", vec![spec]);
    run_through(journal, cursors, payloads, script, rule, retry, None).await
}

/// As [`run`], through this journal, with a place for dead letters.
async fn run_through(
    journal: Journal,
    mut cursors: Vec<Cursor>,
    payloads: &[(usize, u8)],
    script: Vec<Verdict>,
    rule: impl Fn(&Batch) -> Verdict + Send + Sync + 'static,
    retry: RetrySettings,
    dead_letters: Option<DeadLetters>,
) -> (Vec<(Duration, u64)>, CursorReport) {
    let exporter = Arc::new(Scripted {
        script: Mutex::new(script.into()),
        rule: Box::new(rule),
        seen: Mutex::new(Vec::new()),
    });
    for (items, marker) in payloads {
        let payload = Payload::uncharged(Signal::Logs, logs(*items, *marker), *items as u64);
        let space = journal
            .try_reserve(Cost {
                requests: 1,
                items: *items as u64,
                bytes: 1,
            })
            .unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
    }
    // As large as all of them, so that the batch is ready at once.
    let items: usize = payloads.iter().map(|(items, _)| items).sum();
    let settings = DeliverySettings {
        exporter: "x".into(),
        batch: BatchSettings {
            min_size: items as u64,
            ..Default::default()
        },
        retry,
        max_in_flight: 4,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters,
    };
    let start = Instant::now();
    let delivery = deliver(
        cursors.remove(0),
        Signal::Logs,
        exporter.clone(),
        settings,
        Registry::default(),
    );
    tokio::join!(delivery, close_when_drained(&journal));
    let seen = exporter
        .seen
        .lock()
        .iter()
        .map(|(at, items)| (*at - start, *items))
        .collect();
    let report = journal.reports(std::time::Instant::now()).remove(0);
    assert!(
        report.total().balanced() && report.total().queued == 0,
        "{report:?}"
    );
    (seen, report)
}

/// What is held must not be left, as it is once the journal is closed.
async fn close_when_drained(journal: &Journal) {
    journal.drained().await;
    journal.close();
}

fn steady() -> RetrySettings {
    RetrySettings {
        randomization_factor: 0.0,
        ..Default::default()
    }
}

/// Scenario: two overloads, one with a delay asked for, then success.
/// Guarantees: the same batch comes again, after the destination's delay or the backoff, once delivered.
#[tokio::test(start_paused = true)]
async fn retries_after_the_hint_or_the_backoff() {
    let after = Some(Duration::from_secs(7));
    let script = vec![
        Verdict::Retry {
            after: None,
            reason: "503".into(),
        },
        Verdict::Retry {
            after,
            reason: "503".into(),
        },
        ok(),
    ];
    let (seen, report) = run(&[(3, 1), (4, 2)], script, |_| unreachable!(), steady()).await;
    assert_eq!(
        seen,
        [
            (Duration::ZERO, 7),
            (Duration::from_secs(1), 7),
            (Duration::from_secs(8), 7)
        ]
    );
    assert_eq!(report.total().delivered, 7);
}

/// Scenario: `max_elapsed_time` passes; retries disabled.
/// Guarantees: the batch is dropped, counted as `retry_exhausted`, and not before its time.
#[tokio::test(start_paused = true)]
async fn gives_up_only_when_told_to() {
    let retry = RetrySettings {
        max_elapsed_time: Some(Duration::from_secs(10)),
        ..steady()
    };
    let busy = |_: &Batch| Verdict::Retry {
        after: None,
        reason: "503".into(),
    };
    let (seen, report) = run(&[(3, 1)], vec![], busy, retry).await;
    assert_eq!(report.total().dropped[DropReason::RetryExhausted as usize], 3);
    assert!(
        seen.len() >= 4 && seen.last().unwrap().0 > Duration::from_secs(5),
        "{seen:?}"
    );
    let (seen, _) = run(
        &[(3, 1)],
        vec![],
        busy,
        RetrySettings {
            enabled: false,
            ..steady()
        },
    )
    .await;
    assert_eq!(seen.len(), 1);
}

/// Scenario: the destination takes at most 2 items a request.
/// Guarantees: halving delivers every item, in order of payloads, dropping none.
#[tokio::test(start_paused = true)]
async fn too_large_is_halved() {
    let rule = |batch: &Batch| {
        if batch.items() > 2 {
            Verdict::TooLarge { reason: "413".into() }
        } else {
            ok()
        }
    };
    let (_, report) = run(&[(3, 1), (7, 2), (1, 3)], vec![], rule, steady()).await;
    assert_eq!(report.total().delivered, 11);
}

/// Scenario: one of 16 payloads in a merged batch is poison.
/// Guarantees: only its items are dropped, within 2 x 16 requests, and no time passes waiting.
#[tokio::test(start_paused = true)]
async fn poison_is_found_by_bisection() {
    let payloads: Vec<_> = (0..16).map(|n| (2, n)).collect();
    let poison = |batch: &Batch| {
        let bad = batch.parts.iter().any(|part| part.body.ends_with(&[11, 11]));
        if bad {
            Verdict::PayloadFault { reason: "400".into() }
        } else {
            ok()
        }
    };
    let (seen, report) = run(&payloads, vec![], poison, steady()).await;
    assert_eq!(report.total().dropped[DropReason::PayloadFault as usize], 2);
    assert_eq!(report.total().delivered, 30);
    assert!(seen.len() <= 32, "{} requests", seen.len());
    assert_eq!(seen.last().unwrap().0, Duration::ZERO);
}

/// Scenario: an expired token (401) for 20 s, with 3 batches under way, then mended.
/// Guarantees: nothing is dropped, one probe at a time is sent at growing intervals, and everything
/// arrives once after the first probe that succeeds.
#[tokio::test(start_paused = true)]
async fn an_endpoint_fault_holds_the_backlog() {
    let start = Instant::now();
    let rule = move |_: &Batch| {
        if start.elapsed() < Duration::from_secs(20) {
            Verdict::EndpointFault { reason: "401".into() }
        } else {
            ok()
        }
    };
    let (seen, report) = run(&[(50, 1), (40, 2)], vec![], rule, steady()).await;
    assert_eq!(report.total().delivered, 90);
    let times: Vec<_> = seen.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [0, 5, 15, 35]);
}

/// Scenario: a destination answers 400 to everything for a minute: a wrong path, not bad payloads.
/// Guarantees: a few payloads are dropped, then no more than one every few probes; the backlog is
/// held and later delivered.
#[tokio::test(start_paused = true)]
async fn refusing_everything_is_an_endpoint_fault() {
    let start = Instant::now();
    let rule = move |_: &Batch| {
        if start.elapsed() < Duration::from_secs(60) {
            Verdict::PayloadFault { reason: "400".into() }
        } else {
            ok()
        }
    };
    let payloads: Vec<_> = (0..100).map(|n| (1, n)).collect();
    let (_, report) = run(&payloads, vec![], rule, steady()).await;
    let dropped = report.total().dropped[DropReason::PayloadFault as usize];
    let at_once = u64::from(crate::MAX_PAYLOAD_FAULTS_IN_A_ROW);
    assert!(
        (at_once..=at_once + 1).contains(&dropped),
        "{dropped} dropped in a minute"
    );
    assert_eq!(report.total().delivered, 100 - dropped);
}

/// Scenario: nine poison payloads in a row at an exporter that sends one at a time, then good ones.
/// Guarantees: the destination is not held for ever by a poison payload that probes: what is good arrives.
#[tokio::test(start_paused = true)]
async fn a_poison_probe_makes_way() {
    let poison = |batch: &Batch| {
        let bad = batch.parts.iter().any(|part| part.body.ends_with(&[1, 1]));
        if bad {
            Verdict::PayloadFault { reason: "400".into() }
        } else {
            ok()
        }
    };
    let payloads: Vec<_> = (0..20).map(|n| (1, if n < 12 { 1 } else { 2 })).collect();
    let (_, report) = run(&payloads, vec![], poison, steady()).await;
    assert_eq!(
        (report.total().delivered, report.total().dropped_total()),
        (8, 12)
    );
}

/// Scenario: the exporter panics at the first attempt.
/// Guarantees: nothing is lost and nothing stays in flight: the batch is sent again.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt() {
    let panicked = std::sync::atomic::AtomicBool::new(false);
    let rule = move |_: &Batch| {
        assert!(
            panicked.swap(true, std::sync::atomic::Ordering::SeqCst),
            "the first attempt panics"
        );
        ok()
    };
    let (seen, report) = run(&[(3, 1)], vec![], rule, steady()).await;
    assert_eq!((seen.len(), report.total().delivered), (2, 3));
}

/// Scenario: the exporter panics while it makes the second of three batches ready.
/// Guarantees: delivery goes on; each batch is sent, this one too.
#[tokio::test(start_paused = true)]
async fn a_panic_while_preparing_ends_nothing() {
    let payloads = [(20, 1), (20, UNPREPARABLE), (20, 3)];
    let (seen, report) = run(&payloads, vec![], |_| ok(), steady()).await;
    assert_eq!(seen.iter().map(|(_, items)| items).sum::<u64>(), 60);
    assert_eq!(report.total().delivered, 60);
}

/// Scenario: partial success.
/// Guarantees: what was rejected is counted, the rest delivered, and nothing is sent again (C4).
#[tokio::test(start_paused = true)]
async fn partial_success_is_counted_and_never_retried() {
    let script = vec![Verdict::Delivered {
        rejected: 4,
        message: Some("too old".into()),
    }];
    let (seen, report) = run(&[(3, 1), (4, 2)], script, |_| unreachable!(), steady()).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(report.total().dropped[DropReason::PartialSuccess as usize], 4);
    assert_eq!(report.total().delivered, 3);
}

/// Scenario: a payload of 20 records, of which the destination takes all but the first; then one of which it takes none.
/// Guarantees: what is good in the first is delivered; the second is given up within the budget of requests, and counts as
/// one refused payload: the destination is not held.
#[tokio::test(start_paused = true)]
async fn bad_items_are_searched_for_within_a_budget() {
    let fault = || Verdict::PayloadFault { reason: "400".into() };
    // Records are alike: the script refuses whatever the first one is in.
    let script = vec![fault(), fault(), fault(), fault(), fault(), fault()];
    let (seen, report) = run(&[(20, 1)], script, |_| ok(), steady()).await;
    let items: Vec<_> = seen.iter().map(|(_, items)| *items).collect();
    assert_eq!(items, [20, 10, 5, 3, 2, 1, 1, 1, 2, 5, 10]);
    let total = report.total();
    assert_eq!(
        (total.delivered, total.dropped[DropReason::PayloadFault as usize]),
        (19, 1)
    );

    let (seen, report) = run(&[(20, 1)], vec![], move |_| fault(), steady()).await;
    assert_eq!(report.total().dropped[DropReason::PayloadFault as usize], 20);
    assert!(
        seen.len() as u32 <= 1 + MAX_ITEM_BISECTION,
        "{} requests",
        seen.len()
    );
    assert_eq!(seen.last().unwrap().0, Duration::ZERO, "nothing was held");
}

fn disk(directory: &std::path::Path) -> DiskSettings {
    DiskSettings::new(directory, Tenants::default())
}

/// Unless a directory is there, a file is in its place for a hundred seconds.
fn is_mended_later(place: &Path) {
    if place.is_dir() {
        return;
    }
    std::fs::write(place, "").unwrap();
    let place = place.to_owned();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(100)).await;
        std::fs::remove_file(place).unwrap();
    });
}

/// Scenario: of three payloads one is refused, one is rejected whole by a partial success, where dead letters are kept; then
/// where their directory cannot be made for a hundred seconds; then where it never can, and batches are given up after ten.
/// Guarantees: both are kept with the destination's words and counted as dead letters, as soon as there is a place; where they are given up,
/// they are dropped and counted as payload faults.
#[tokio::test(start_paused = true)]
async fn what_is_refused_is_a_dead_letter() {
    let directory = tempfile::tempdir().unwrap();
    for (place, gives_up, reason) in [
        ("", None, DropReason::DeadLetter),
        ("mended", None, DropReason::DeadLetter),
        ("never", Some(Duration::from_secs(10)), DropReason::PayloadFault),
    ] {
        let place = directory.path().join(place);
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        if reason == DropReason::PayloadFault {
            std::fs::write(&place, "").unwrap();
        } else {
            is_mended_later(&place);
        }
        let letters = DeadLetters::new("logs", &disk(&place));
        let (journal, cursors) = Journal::memory("logs", vec![spec]);
        let retry = RetrySettings {
            max_elapsed_time: gives_up,
            ..steady()
        };
        let rule = |batch: &Batch| match (batch.parts.len(), batch.parts[0].body.ends_with(&[2, 2])) {
            (1, true) => Verdict::Delivered {
                rejected: 1,
                message: Some("too old".into()),
            },
            (1, false) if batch.parts[0].body.ends_with(&[3, 3]) => ok(),
            _ => Verdict::PayloadFault {
                reason: "HTTP 400".into(),
            },
        };
        let payloads = [(1, 1), (1, 2), (2, 3)];
        let (_, report) = run_through(journal, cursors, &payloads, vec![], rule, retry, Some(letters)).await;
        let total = report.total();
        assert_eq!(
            (total.delivered, total.dropped[reason as usize]),
            (2, 2),
            "{report:?}"
        );
    }
    let mut kept = Vec::new();
    let dead = directory.path().join("logs.dead");
    export(&sluice_journal::Disk, &dead, &Which::Waiting, &mut |stored| {
        kept.push((stored.body, stored.refusal.unwrap().reason));
        Ok(())
    })
    .unwrap();
    kept.sort();
    assert_eq!(kept[0], (logs(1, 1), "HTTP 400".to_owned()));
    assert_eq!(kept[1].0, logs(1, 2));
    assert!(kept[1].1.contains("too old"), "{}", kept[1].1);
}

/// Scenario: a batch of three payloads with six items is taken but for a piece of two, with two more that are not known; where dead letters are kept, and
/// where their directory cannot be made for a hundred seconds.
/// Guarantees: the piece is kept with the destination's words and counted as dead letters, as soon as there is a place, the others as partial success.
#[tokio::test(start_paused = true)]
async fn a_piece_that_is_refused_is_a_dead_letter() {
    let directory = tempfile::tempdir().unwrap();
    for place in ["", "mended"] {
        let place = directory.path().join(place);
        is_mended_later(&place);
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let letters = DeadLetters::new("logs", &disk(&place));
        let (journal, cursors) = Journal::memory("logs", vec![spec]);
        let rule = |_: &Batch| Verdict::InPart {
            refused: vec![Refused {
                body: Bytes::from_static(b"piece"),
                wire_format: WireFormat::RemoteWrite1,
                items: 2,
                reason: "HTTP 400".into(),
            }],
            rejected: 4,
        };
        let payloads = [(1, 1), (2, 2), (3, 3)];
        let (_, report) =
            run_through(journal, cursors, &payloads, vec![], rule, steady(), Some(letters)).await;
        let total = report.total();
        let dropped = |reason: DropReason| total.dropped[reason as usize];
        assert_eq!(
            (
                total.delivered,
                dropped(DropReason::DeadLetter),
                dropped(DropReason::PartialSuccess)
            ),
            (2, 2, 2),
            "{report:?}"
        );
    }
    let mut kept = Vec::new();
    let dead = directory.path().join("logs.dead");
    export(&sluice_journal::Disk, &dead, &Which::Waiting, &mut |stored| {
        let refusal = stored.refusal.unwrap();
        kept.push((
            stored.body,
            stored.wire_format,
            stored.items,
            refusal.exporter,
            refusal.reason,
        ));
        Ok(())
    })
    .unwrap();
    let want = (
        Bytes::from_static(b"piece"),
        WireFormat::RemoteWrite1,
        2,
        "x".to_owned(),
        "HTTP 400".to_owned(),
    );
    assert_eq!(kept, [want]);
}

/// Scenario: a journal on disk is closed while a batch waits for its retry at one destination, and while another destination
/// does not answer.
/// Guarantees: delivery ends at once in the first case and after [`LEAVING_GRACE`] in the second, with nothing settled: it is
/// there for the next process.
#[tokio::test(start_paused = true)]
async fn a_queue_on_disk_is_left_to_the_next_process() {
    for (stalls, grace) in [(false, Duration::ZERO), (true, LEAVING_GRACE)] {
        let directory = tempfile::tempdir().unwrap();
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let (journal, mut cursors, _) = Journal::disk("logs", vec![spec], disk(directory.path())).unwrap();
        let payload = Payload::uncharged(Signal::Logs, logs(3, 1), 3);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let appended = journal.append(space, Arc::new(payload), None, Durability::Synced);
        appended.persisted().await.unwrap();
        let asked = Arc::new(Notify::new());
        let delivery = tokio::spawn(deliver(
            cursors.remove(0),
            Signal::Logs,
            Arc::new(Unwilling {
                asked: asked.clone(),
                stalls,
            }),
            DeliverySettings {
                exporter: "x".into(),
                batch: BatchSettings::default(),
                retry: RetrySettings {
                    initial_interval: Duration::from_secs(3600),
                    max_interval: Duration::from_secs(3600),
                    ..steady()
                },
                max_in_flight: 1,
                latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
                dead_letters: None,
            },
            Registry::default(),
        ));
        asked.notified().await;
        tokio::task::yield_now().await;
        let closed = Instant::now();
        journal.close();
        delivery.await.unwrap();
        assert!(closed.elapsed() >= grace && closed.elapsed() < grace + Duration::from_secs(1));
        assert_eq!(journal.reports(std::time::Instant::now())[0].total().queued, 3);
        assert_eq!(journal.abandon(), 0);
    }
}

/// A destination that never takes anything, and may not answer at all.
struct Unwilling {
    asked: Arc<Notify>,
    stalls: bool,
}

impl Exporter for Unwilling {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        Box::pin(async {
            self.asked.notify_one();
            if self.stalls {
                std::future::pending::<()>().await;
            }
            Verdict::Retry {
                after: None,
                reason: "503".into(),
            }
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Scenario: a queue in memory is closed while its destination refuses everything: before it was probed, after a probe was refused, and while a probe
/// is under way that it takes; or while what it says is that it has too much to do.
/// Guarantees: it is probed once at least, then what is held is left at once and not sent again; where the probe is taken, or it has too much to do, all
/// arrives.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_send_again_what_is_refused() {
    let fault: fn() -> Verdict = || Verdict::EndpointFault { reason: "401".into() };
    let busy: fn() -> Verdict = || Verdict::Exhausted {
        reason: "quota".into(),
    };
    // What it answers before it takes everything, after a second each; when the queue is closed, when the last request comes, and when delivery ends, in halves of a second;
    // what arrives.
    let cases = [
        (fault, 9, 6, [12, 14], 0),
        (fault, 9, 18, [12, 18], 0),
        (fault, 2, 35, [34, 36], 3),
        (busy, 2, 18, [34, 36], 3),
    ];
    for (answer, times, closed, halves, delivered) in cases {
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
        let payload = Payload::uncharged(Signal::Logs, logs(3, 1), 3);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
        let exporter = Arc::new(Slow {
            answers: Mutex::new(std::iter::repeat_with(answer).take(times).collect()),
            asked: Mutex::default(),
        });
        let start = Instant::now();
        let settings = DeliverySettings {
            exporter: "x".into(),
            batch: BatchSettings {
                min_size: 3,
                ..Default::default()
            },
            retry: steady(),
            max_in_flight: 1,
            latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
            dead_letters: None,
        };
        let delivery = deliver(
            cursors.remove(0),
            Signal::Logs,
            exporter.clone(),
            settings,
            Registry::default(),
        );
        let closes = async {
            tokio::time::sleep(Duration::from_millis(500 * closed)).await;
            journal.close();
        };
        tokio::join!(delivery, closes);
        let asked = *exporter.asked.lock().last().unwrap() - start;
        assert_eq!([asked, start.elapsed()].map(|at| at.as_millis() / 500), halves);
        let account = journal.reports(std::time::Instant::now())[0].total();
        assert_eq!((account.delivered, account.queued), (delivered, 3 - delivered));
    }
}

/// A destination that takes a second for each answer, and everything once its answers are used up.
struct Slow {
    answers: Mutex<Vec<Verdict>>,
    asked: Mutex<Vec<Instant>>,
}

impl Exporter for Slow {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        Box::pin(async {
            self.asked.lock().push(Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.answers.lock().pop().unwrap_or_else(ok)
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Scenario: a payload of remote write between two of OTLP, in front of an exporter that reads OTLP alone: as when the position of a new
/// exporter in a queue on disk is lost.
/// Guarantees: it is dropped and counted, the others are delivered.
#[tokio::test(start_paused = true)]
async fn what_an_exporter_does_not_read_is_given_up() {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
    for wire_format in [WireFormat::Otlp, WireFormat::RemoteWrite1, WireFormat::Otlp] {
        let payload = Payload {
            wire_format,
            ..Payload::uncharged(Signal::Logs, logs(3, 1), 3)
        };
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
    }
    journal.close();
    let exporter = Arc::new(Scripted {
        script: Mutex::default(),
        rule: Box::new(|batch| {
            assert!(
                batch
                    .parts
                    .iter()
                    .all(|part| part.wire_format == WireFormat::Otlp)
            );
            Verdict::Delivered {
                rejected: 0,
                message: None,
            }
        }),
        seen: Mutex::new(Vec::new()),
    });
    let settings = DeliverySettings {
        exporter: "x".into(),
        batch: BatchSettings::default(),
        retry: RetrySettings::default(),
        max_in_flight: 1,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters: None,
    };
    deliver(
        cursors.remove(0),
        Signal::Logs,
        exporter,
        settings,
        Registry::default(),
    )
    .await;
    let account = journal.reports(std::time::Instant::now())[0].total();
    assert_eq!(account.delivered, 6);
    assert_eq!(account.dropped[DropReason::PayloadFault as usize], 3);
    assert!(account.balanced());
}

/// Sends a payload of one item with each of these markers, one every `every`, through an exporter with `places`; what has marker 1 is answered with
/// `stuck` for ever. Returns how many others were delivered, and how many batches were told of as passed by.
async fn beside_a_stuck_batch(places: usize, markers: &[u8], every: Duration, stuck: Verdict) -> (u64, u64) {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
    let exporter = Arc::new(Scripted {
        script: Mutex::default(),
        rule: Box::new(move |batch| match batch.parts[0].body.ends_with(&[1, 1]) {
            true => stuck.clone(),
            false => ok(),
        }),
        seen: Mutex::new(Vec::new()),
    });
    let settings = DeliverySettings {
        exporter: "x".into(),
        batch: BatchSettings {
            flush_timeout: Duration::ZERO,
            ..Default::default()
        },
        retry: steady(),
        max_in_flight: places,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters: None,
    };
    let registry = Registry::default();
    let delivery = tokio::spawn(deliver(
        cursors.remove(0),
        Signal::Logs,
        exporter,
        settings,
        registry.clone(),
    ));
    for marker in markers {
        let payload = Payload::uncharged(Signal::Logs, logs(1, *marker), 1);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
        tokio::time::sleep(every).await;
    }
    delivery.abort();
    let delivered = journal.reports(std::time::Instant::now())[0].total().delivered;
    (delivered, batches_passed_by(&registry))
}

/// What the counter of batches that were passed by says, of all exporters.
pub(crate) fn batches_passed_by(registry: &Registry) -> u64 {
    let text = registry.render();
    let values = text
        .lines()
        .filter(|line| line.starts_with("sluice_exporter_passed_by_batches_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    values.sum()
}

/// Scenario: a batch, and three more, are answered with 503 for ever; another comes every ten minutes, at an exporter with five places.
/// Guarantees: each of the others arrives, though the window has shrunk to one request; each stuck batch is told of, once.
#[tokio::test(start_paused = true)]
async fn a_quiet_exporter_goes_on_beside_stuck_batches() {
    let busy = Verdict::Retry {
        after: None,
        reason: "503".into(),
    };
    let often = Duration::from_secs(600);
    for stuck in [1, 4] {
        let markers = [vec![1; stuck], vec![2; 30]].concat();
        let (delivered, told) = beside_a_stuck_batch(5, &markers, often, busy.clone()).await;
        assert_eq!((delivered, told), (30, stuck as u64));
    }
}

/// Scenario: one batch is answered with 403 for ever, as by a firewall that does not like what is in it; another comes every minute.
/// Guarantees: the others arrive, for they probe before it does; it is told of, once.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_forbidden_does_not_hold_the_others_for_ever() {
    let forbidden = Verdict::EndpointFault { reason: "403".into() };
    let markers = [&[1][..], &[2; 60]].concat();
    let (delivered, told) = beside_a_stuck_batch(2, &markers, Duration::from_secs(120), forbidden).await;
    assert_eq!((delivered, told), (60, 1));
}

/// Sends through one of its own for each tenant, and remembers whose batches were prepared, and whose items sent.
#[derive(Clone, Default)]
struct ByTenant {
    of: Option<TenantId>,
    prepared: Arc<Mutex<Vec<Option<TenantId>>>>,
    sent: Arc<Mutex<Vec<SentItems>>>,
}

/// Of whom, and how many.
type SentItems = (Option<TenantId>, u64);

impl Exporter for ByTenant {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(async {
            if self.of == Some(TenantId::OVERFLOW) && batch.items() > 1 {
                return Verdict::PayloadFault { reason: "400".into() };
            }
            self.sent.lock().push((self.of, batch.items()));
            ok()
        })
    }

    fn prepare<'a>(
        &'a self,
        _: &'a Batch,
        _: Turn,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.prepared.lock().push(self.of);
        Box::pin(async {})
    }

    fn for_tenant(&self, tenant: TenantId) -> Option<Arc<dyn Exporter>> {
        Some(Arc::new(ByTenant {
            of: Some(tenant),
            ..self.clone()
        }))
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Scenario: payloads of two tenants in turn to an exporter that has something of its own for each; what one sends is refused until it is in single items.
/// Guarantees: every batch, and every piece of one, is prepared and sent with what is its tenant's.
#[tokio::test(start_paused = true)]
async fn each_tenant_has_its_own_sender() {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
    for tenant in [
        TenantId::DEFAULT,
        TenantId::OVERFLOW,
        TenantId::DEFAULT,
        TenantId::OVERFLOW,
    ] {
        let payload = Payload {
            tenant,
            ..Payload::uncharged(Signal::Logs, logs(2, 1), 2)
        };
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
    }
    journal.close();
    let exporter = ByTenant::default();
    let (prepared, sent) = (exporter.prepared.clone(), exporter.sent.clone());
    let settings = DeliverySettings {
        exporter: "x".into(),
        batch: BatchSettings::default(),
        retry: RetrySettings::default(),
        max_in_flight: 1,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters: None,
    };
    let (cursor, exporter) = (cursors.remove(0), Arc::new(exporter));
    deliver(cursor, Signal::Logs, exporter, settings, Registry::default()).await;
    let (nobody, other) = (Some(TenantId::DEFAULT), Some(TenantId::OVERFLOW));
    assert_eq!(*prepared.lock(), [nobody, other]);
    let single = (other, 1);
    assert_eq!(*sent.lock(), [(nobody, 4), single, single, single, single]);
    assert!(journal.reports(std::time::Instant::now())[0].total().balanced());
}
