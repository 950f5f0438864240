//! The machine crashed and took the end of a journal, whose numbers are given to other rows.

use std::time::Instant;

use sluice_payload::Tenants;
use sluice_telemetry::Registry;

use super::failures::{append, delivery, journal, rows};
use super::layout::{Layout, LayoutSettings, ReadyFile};
use super::spool::Spool;
use super::tests::{all, open, payload};

/// Scenario: of files with the numbers 1 to 4 and with 5, the former arrived and the latter waits. A crash of the machine takes what the journal has
/// from 3 on, or from 5, or nothing; with and without a restart before it. The process is killed again before it writes anything, and the journal has grown meanwhile.
/// Guarantees: what is there of the old numbers is not written again; what has a number anew is, in files of other names; what waits
/// is sent under its own. Where nothing was lost, names go on as before.
#[test]
fn numbers_that_a_crash_took_are_given_anew() {
    let cases = [(3, 1..3), (5, 1..5), (6, 1..6)];
    for ((next, known), was_restarted) in cases
        .into_iter()
        .flat_map(|case| [(case.clone(), false), (case, true)])
    {
        let directory = tempfile::tempdir().unwrap();
        let (mut layout, _) = open(directory.path(), true);
        let (mut ready, now) = (Vec::new(), Instant::now());
        for numbers in [1..5, 5..6] {
            for number in numbers {
                let payload = payload(number, 1);
                layout.push(number, &payload, 1, now, &mut ready).unwrap();
            }
            layout.cut_all(1, &mut ready).unwrap();
        }
        drop(layout);
        std::fs::remove_file(&ready[0].finished.path).unwrap();
        if was_restarted {
            drop(open(directory.path(), true));
        }
        let again = |next| {
            let (spool, waiting) = Spool::open(directory.path(), Some(next), &Tenants::default()).unwrap();
            assert_eq!(waiting.len(), 1, "{next}");
            assert_eq!(waiting[0].cut.name, ready[1].finished.cut.name);
            Layout::new(LayoutSettings::default(), spool)
        };
        drop(again(next));
        let mut layout = again(8);
        let mut written = Vec::new();
        for number in 1..8 {
            let laid = layout
                .push(number, &payload(number, 1), 1, now, &mut written)
                .unwrap();
            assert_eq!(!laid.known.is_empty(), known.contains(&number), "{next} {number}");
        }
        layout.cut_all(1, &mut written).unwrap();
        let expected: Vec<_> = (known.end..8).map(|number| format!("{number}.0")).collect();
        assert_eq!(all(&written), expected);
        let epoch = |file: &ReadyFile| file.finished.cut.name[..16].to_owned();
        assert_eq!(epoch(&written[0]) == epoch(&ready[0]), next == 6, "{next}");
    }
}

/// Scenario: the spool knows of files with the numbers 1 to 3, all of which have arrived; of the journal the crash left nothing, and other rows come in.
/// Guarantees: they arrive, and what is counted as delivered is what arrived.
#[tokio::test]
async fn rows_with_numbers_that_are_given_anew_arrive() {
    let directory = tempfile::tempdir().unwrap();
    {
        let (mut layout, _) = open(&directory.path().join("spool"), true);
        let mut ready = Vec::new();
        for number in 1..4 {
            let payload = payload(number, 3);
            layout
                .push(number, &payload, 1, Instant::now(), &mut ready)
                .unwrap();
        }
        layout.cut_all(1, &mut ready).unwrap();
        for file in ready {
            std::fs::remove_file(file.finished.path).unwrap();
        }
    }
    let (journal, cursor) = journal(Some(&directory.path().join("queue")));
    let registry = Registry::default();
    let delivery = delivery(cursor, directory.path(), true, 1, &registry);
    for number in 11..13 {
        append(&journal, payload(number, 3)).await;
    }
    let run = tokio::spawn(delivery.run());
    journal.drained().await;
    journal.close();
    run.await.unwrap();
    assert_eq!(
        rows(&directory.path().join("out")),
        ["11.0", "11.1", "11.2", "12.0", "12.1", "12.2"]
    );
    assert_eq!(journal.reports(Instant::now())[0].total().delivered, 6);
}
