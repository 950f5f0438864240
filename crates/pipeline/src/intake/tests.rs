//! Receivers in front of pipelines in memory and on disk, on a paused clock or a busy thread.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::pin::pin;

use bytes::Bytes;
use sluice_admission::Budget;
use sluice_journal::testing::SimulatedDisk;
use sluice_journal::{Cursor, CursorSpec, DiskSettings, Limits, OnFull, Settled};
use sluice_payload::{Tenants, WireFormat};

use super::*;

const PAYLOAD_BYTES: usize = 100 << 10;

fn payload() -> Payload {
    Payload::uncharged(Signal::Logs, Bytes::from_static(&[0; PAYLOAD_BYTES]), 1)
}

fn spec() -> CursorSpec {
    CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    }
}

/// A pipeline of logs with one exporter.
fn pipeline() -> (Intake, Journal, Cursor) {
    with(Journal::memory("logs", vec![spec()]))
}

/// The same on a disk that does nothing before it is its [turn](Journal::turn).
fn durable_pipeline() -> (Intake, Journal, Cursor) {
    let disk = DiskSettings {
        filesystem: Arc::new(SimulatedDisk::default()),
        seed: Some(1),
        ..DiskSettings::new("/journal", Tenants::default())
    };
    let (journal, cursors, _) = Journal::disk("logs", vec![spec()], disk).unwrap();
    with((journal, cursors))
}

fn with((journal, mut cursors): (Journal, Vec<Cursor>)) -> (Intake, Journal, Cursor) {
    let route = Route {
        journal: journal.clone(),
        ack: AckLevel::Persisted,
        passing_through: Vec::new(),
        block_for: Duration::ZERO,
        straight: false,
    };
    (Intake::new([(Signal::Logs, route)]), journal, cursors.remove(0))
}

/// Scenario: a receiver of remote write feeds a pipeline that takes it straight and one that does not; offers in both formats, as OTLP
/// alone, and as it came alone.
/// Guarantees: each pipeline gets its format; OTLP does for both; where a format is missing nothing is taken.
#[tokio::test]
async fn each_pipeline_gets_its_format() {
    let pipelines: Vec<_> = (0..2).map(|_| pipeline()).collect();
    let routes = pipelines
        .iter()
        .zip([true, false])
        .map(|((intake, _, _), straight)| {
            let route = intake.routes[Signal::Logs as usize][0].clone();
            (Signal::Logs, Route { straight, ..route })
        });
    let intake = Intake::new(routes);
    let both = Formats {
        otlp: true,
        as_it_came: true,
    };
    assert_eq!(intake.formats(Signal::Logs), both);
    assert_eq!(intake.formats(Signal::Metrics), Formats::default());
    let came = || Payload {
        wire_format: WireFormat::RemoteWrite2,
        ..payload()
    };
    for (offer, taken) in [
        ((Some(payload()), Some(came())), true),
        ((Some(payload()), None), true),
        ((None, Some(came())), false),
    ] {
        let (otlp, as_it_came) = offer;
        let offer = Offer { otlp, as_it_came };
        let result = intake.take_offer(Signal::Logs, offer, Duration::ZERO, ()).await;
        assert_eq!(result.is_ok(), taken);
    }
    let mut got = Vec::new();
    for (_, journal, mut cursor) in pipelines {
        journal.close();
        let mut formats = Vec::new();
        while let Some(entry) = cursor.next().await {
            formats.push(entry.payload.wire_format);
        }
        got.push(formats);
    }
    let otlp = WireFormat::Otlp;
    assert_eq!(got, [[WireFormat::RemoteWrite2, otlp], [otlp, otlp]]);
}

/// Scenario: a straight pipeline and one of OTLP, which acknowledge what is delivered; a request has an item as it came and none as OTLP.
/// Guarantees: the second journal gets nothing, which nobody could settle there; the answer waits for the first alone.
#[tokio::test(start_paused = true)]
async fn a_format_without_items_is_in_no_journal() {
    let pipelines: Vec<_> = (0..2).map(|_| pipeline()).collect();
    let routes = pipelines
        .iter()
        .zip([true, false])
        .map(|((intake, _, _), straight)| {
            let route = intake.routes[Signal::Logs as usize][0].clone();
            let ack = AckLevel::Delivered;
            (
                Signal::Logs,
                Route {
                    straight,
                    ack,
                    ..route
                },
            )
        });
    let intake = Intake::new(routes);
    let [(_, _, mut cursor), (_, otlp, mut otlp_cursor)] = <[_; 2]>::try_from(pipelines).ok().unwrap();
    let offer = Offer {
        otlp: Some(Payload {
            items: 0,
            ..payload()
        }),
        as_it_came: Some(payload()),
    };
    let exporter = async {
        let entry = cursor.next().await.unwrap();
        cursor.settle(&[Settled {
            seq: entry.seq,
            delivered: 1,
            dropped: None,
        }]);
    };
    let taken = intake.take_offer(Signal::Logs, offer, Duration::ZERO, ());
    let both = async { tokio::join!(taken, exporter) };
    let (taken, ()) = tokio::time::timeout(LONGEST_HOLD, both).await.unwrap();
    assert_eq!(taken, Ok(Taken::default()));
    otlp.close();
    assert!(otlp_cursor.next().await.is_none());
}

/// Scenario: a receiver feeds two pipelines on disks; the disk of the first is slow.
/// Guarantees: the exporter of the second has the payload as soon as its own disk has it; the answer comes when both have.
#[tokio::test(start_paused = true)]
async fn exporters_wait_for_their_own_disk_alone() {
    let pipelines: Vec<_> = (0..2).map(|_| durable_pipeline()).collect();
    let route = |intake: &Intake| (Signal::Logs, intake.routes[Signal::Logs as usize][0].clone());
    let intake = Intake::new(pipelines.iter().map(|(intake, _, _)| route(intake)));
    let mut pipelines = pipelines.into_iter();
    let (slow, (_, quick, mut cursor)) = (pipelines.next().unwrap().1, pipelines.next().unwrap());
    let (mut taking, mut sending) = (pin!(intake.take(payload(), Duration::ZERO)), pin!(cursor.next()));
    let soon = async {
        tokio::select! {
            _ = &mut taking => panic!("no disk has it"),
            _ = &mut sending => panic!("its disk does not have it"),
            () = tokio::time::sleep(LONG_TURN) => {}
        }
    };
    soon.await;
    quick.turn();
    let soon = async {
        tokio::select! {
            _ = &mut taking => panic!("the slow disk does not have it"),
            entry = &mut sending => entry,
        }
    };
    let sent = tokio::time::timeout(LONG_TURN, soon).await;
    assert!(sent.unwrap().is_some());
    slow.turn();
    taking.await.unwrap();
}

/// An exporter that needs so many turns for a payload, beside the one in which it gets it.
async fn export(mut cursor: Cursor, turns: u32) {
    while let Some(entry) = cursor.next().await {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        let settled = Settled {
            seq: entry.seq,
            delivered: 1,
            dropped: None,
        };
        cursor.settle(&[settled]);
    }
}

/// Scenario: on one thread, a receiver that always has another request, and an exporter that keeps up only if it is
/// given two turns for each of them.
/// Guarantees: the exporter gets them; what waits stays at a small part of the limits.
#[tokio::test]
async fn a_busy_receiver_gives_way_to_exporters() {
    let (intake, journal, cursor) = pipeline();
    let exporter = tokio::spawn(export(cursor, 1));
    let mut most = 0;
    for _ in 0..2000 {
        intake.take(payload(), Duration::ZERO).await.unwrap();
        most = most.max(journal.backlog_bytes());
    }
    journal.close();
    exporter.await.unwrap();
    assert!(most < MOST_TURNS * EASED_BYTES, "{most} bytes waited");
}

/// Scenario: on one thread that others keep busy, an exporter that takes six turns for a payload, and eight receivers that
/// always have another one.
/// Guarantees: they are held back until the exporter has caught up; what waits stays at what may wait, and one of each.
#[tokio::test]
async fn receivers_are_held_back_while_the_cores_are_busy() {
    const RECEIVERS: u64 = 8;
    const PAYLOADS: u64 = 10;
    let (intake, journal, cursor) = pipeline();
    let others = tokio::spawn(async {
        loop {
            std::thread::sleep(LONG_TURN);
            tokio::task::yield_now().await;
        }
    });
    let exporter = tokio::spawn(export(cursor, 6));
    let mut receivers = tokio::task::JoinSet::new();
    for _ in 0..RECEIVERS {
        let (intake, journal) = (intake.clone(), journal.clone());
        receivers.spawn(async move {
            let mut most = 0;
            for _ in 0..PAYLOADS {
                let payload = Payload {
                    body: vec![0; PAYLOAD_BYTES * 10].into(),
                    ..payload()
                };
                intake.take(payload, Duration::ZERO).await.unwrap();
                most = most.max(journal.backlog_bytes());
            }
            most
        });
    }
    let most = receivers.join_all().await.into_iter().max().unwrap();
    journal.close();
    exporter.await.unwrap();
    others.abort();
    let payload = (PAYLOAD_BYTES * 10) as u64;
    assert!(
        most < EASED_BYTES + 2 * RECEIVERS * payload,
        "{most} bytes waited"
    );
}

/// Scenario: the same busy thread and an exporter that takes nothing; one tenant has a backlog that holds receivers back, and another
/// sends its first payload, and then the one its next.
/// Guarantees: the one is held back, and the other is not.
#[tokio::test]
async fn a_light_tenant_is_not_held_back() {
    let (intake, journal, _cursor) = pipeline();
    let others = tokio::spawn(async {
        loop {
            std::thread::sleep(LONG_TURN);
            tokio::task::yield_now().await;
        }
    });
    let budget = Budget::new(64 << 20);
    let payload = |tenant: usize, bytes: usize| Payload {
        body: vec![0; bytes].into(),
        permit: budget.visit(tenant).try_reserve(bytes as u64, 0),
        ..payload()
    };
    let take = async |payload| {
        let began = Instant::now();
        intake.take(payload, Duration::ZERO).await.unwrap();
        began.elapsed()
    };
    let heavy = payload(1, 2 * EASED_BYTES as usize);
    let space = journal.try_reserve(journal.cost(&heavy)).unwrap();
    let _ = journal.append(space, Arc::new(heavy), None, Durability::Written);
    assert!(take(payload(2, PAYLOAD_BYTES)).await < LONGEST_HOLD);
    assert!(take(payload(1, PAYLOAD_BYTES)).await >= LONGEST_HOLD);
    others.abort();
}

/// Scenario: each ack level in front of a queue on a disk whose syncs fail; then one that works, and an exporter that takes its time.
/// Guarantees: `accepted` is answered when it is written, and `persisted` and `delivered` are refused; where the disk works `persisted` is
/// answered when it is synced, and `delivered` when the exporter has settled it, and not before.
#[tokio::test(start_paused = true)]
async fn an_answer_waits_as_long_as_its_level_says() {
    use sluice_journal::testing::{Fault, Operation};

    for (ack, fails, written, delivered) in [
        (AckLevel::Accepted, true, Some(true), None),
        (AckLevel::Persisted, true, Some(false), None),
        (AckLevel::Delivered, true, Some(false), None),
        (AckLevel::Persisted, false, Some(true), None),
        (AckLevel::Delivered, false, None, Some(true)),
    ] {
        let disk = SimulatedDisk::default();
        let settings = DiskSettings {
            filesystem: Arc::new(disk.clone()),
            seed: Some(1),
            ..DiskSettings::new("/journal", Tenants::default())
        };
        let (journal, cursors, _) = Journal::disk("logs", vec![spec()], settings).unwrap();
        let (intake, journal, mut cursor) = with((journal, cursors));
        let route = intake.routes[Signal::Logs as usize][0].clone();
        let intake = Intake::new([(Signal::Logs, Route { ack, ..route })]);
        let mut taking = pin!(intake.take(payload(), Duration::ZERO));
        assert!(
            soon(&mut taking).await.is_none(),
            "{ack:?}: the disk has had no turn"
        );
        if fails {
            disk.fail(Operation::Sync, Fault::Io, 1);
        }
        journal.turn();
        assert_eq!(soon(&mut taking).await, written, "{ack:?}, {fails}");
        if delivered.is_some() {
            let entry = cursor.next().await.unwrap();
            assert!(soon(&mut taking).await.is_none(), "{ack:?}: nothing is settled");
            cursor.settle(&[Settled {
                seq: entry.seq,
                delivered: 1,
                dropped: None,
            }]);
            assert_eq!(soon(&mut taking).await, delivered);
        }
    }
}

/// Whether it is taken, if that is known by now.
async fn soon(
    taking: &mut std::pin::Pin<&mut impl Future<Output = Result<Taken, NotTaken>>>,
) -> Option<bool> {
    let taken = tokio::time::timeout(LONG_TURN, taking.as_mut()).await;
    taken.ok().map(|taken| taken.is_ok())
}

/// Scenario: a queue with room for one request, which is in it, with and without `block_on_overflow`; another request, whose sender would not
/// wait. The exporter settles the first after five minutes, or never.
/// Guarantees: without it the second is refused at once; with it the request waits, however short the sender's patience, and is taken as soon as
/// there is room; when there is none for as long as it may wait, it is refused.
#[tokio::test(start_paused = true)]
async fn a_queue_that_blocks_waits_for_room() {
    const WAIT: Duration = Duration::from_secs(600);
    const ROOM_AFTER: Duration = Duration::from_secs(300);
    for (block_for, is_settled, taken, after) in [
        (Duration::ZERO, true, false, Duration::ZERO),
        (WAIT, true, true, ROOM_AFTER),
        (WAIT, false, false, WAIT),
    ] {
        let limits = Limits {
            requests: Some(1),
            ..Limits::default()
        };
        let spec = CursorSpec { limits, ..spec() };
        let (intake, _, mut cursor) = with(Journal::memory("logs", vec![spec]));
        let route = intake.routes[Signal::Logs as usize][0].clone();
        let intake = Intake::new([(Signal::Logs, Route { block_for, ..route })]);
        intake.take(payload(), Duration::ZERO).await.unwrap();
        let entry = cursor.next().await.unwrap();
        let began = Instant::now();
        let exporter = async {
            tokio::time::sleep(ROOM_AFTER).await;
            if is_settled {
                cursor.settle(&[Settled {
                    seq: entry.seq,
                    delivered: 1,
                    dropped: None,
                }]);
            }
            std::future::pending::<()>().await;
        };
        let result = tokio::select! {
            result = intake.take(payload(), Duration::ZERO) => result,
            () = exporter => unreachable!(),
        };
        assert_eq!(result.is_ok(), taken, "{block_for:?}");
        let waited = began.elapsed();
        // Timers go off at whole milliseconds.
        let late = Duration::from_millis(2);
        assert!(
            (after..after + late).contains(&waited),
            "{waited:?}, not {after:?}"
        );
    }
}

/// Scenario: a queue with room for ten payloads, whose exporter works off one a second; then it stands. At its limit another
/// payload comes, at once and after a wait for room.
/// Guarantees: it is refused with the time that the ten take to leave at that pace, and with longer ones while nothing leaves. What was refused
/// has not drained from the memory budget, and what was delivered has.
#[tokio::test(start_paused = true)]
async fn a_full_queue_says_how_long_it_takes() {
    const QUEUE: u64 = 10;
    const SECOND: Duration = Duration::from_secs(1);
    let specs = || CursorSpec {
        limits: Limits {
            requests: Some(QUEUE),
            ..Limits::default()
        },
        ..spec()
    };
    let budget = Budget::new(64 << 20);
    let payload = || Payload {
        permit: budget.try_reserve(PAYLOAD_BYTES as u64),
        ..payload()
    };
    let (intake, _journal, mut cursor) = with(Journal::memory("logs", vec![specs()]));
    let refused = async |patience| match intake.take(payload(), patience).await {
        Err(NotTaken::Refused {
            message,
            drains_in: Some(drains_in),
        }) => {
            assert!(message.contains("exporter x is full (10 requests"), "{message}");
            drains_in
        }
        other => panic!("{other:?}"),
    };
    for _ in 0..QUEUE {
        intake.take(payload(), Duration::ZERO).await.unwrap();
    }
    for _ in 0..2 * QUEUE {
        refused(Duration::ZERO).await;
        tokio::time::sleep(SECOND).await;
        let seq = cursor.next().await.unwrap().seq;
        cursor.settle(&[Settled {
            seq,
            delivered: 1,
            dropped: None,
        }]);
        intake.take(payload(), Duration::ZERO).await.unwrap();
    }
    assert_eq!(budget.usage().drained, 2 * QUEUE * PAYLOAD_BYTES as u64);
    let mut last = refused(Duration::ZERO).await;
    assert!((9..=11).contains(&last.as_secs()), "{last:?}");
    for _ in 0..4 {
        let longer = refused(5 * SECOND).await;
        assert!(longer > 2 * last, "{last:?}, then {longer:?}");
        last = longer;
    }
    assert_eq!(budget.usage().drained, 2 * QUEUE * PAYLOAD_BYTES as u64);
}
