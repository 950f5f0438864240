//! Destinations that refuse most payloads, and not all.

use super::*;
use crate::MAX_PAYLOAD_FAULTS_LATELY;

const PAYLOADS: u8 = 232;

/// When the destination is mended.
const MENDED: Duration = Duration::from_secs(60);

/// Refused until the destination is mended: while it is held, one payload is given up for a few probes.
const GIVEN_UP_BY_PROBES: u64 = 3;

fn marker(batch: &Batch) -> Option<u8> {
    batch.parts.last()?.body.last().copied()
}

fn bad() -> Verdict {
    Verdict::PayloadFault { reason: "400".into() }
}

/// How many of the payloads are dropped, and when the last request came.
async fn dropped(rule: impl Fn(&Batch) -> Verdict + Send + Sync + 'static) -> (u64, Duration) {
    let payloads: Vec<_> = (0..PAYLOADS).map(|marker| (1, marker)).collect();
    let (seen, report) = run(&payloads, vec![], rule, steady()).await;
    let dropped = report.total().dropped[DropReason::PayloadFault as usize];
    assert_eq!(report.total().delivered, u64::from(PAYLOADS) - dropped);
    (dropped, seen.last().unwrap().0)
}

/// Scenario: a destination refuses seven of eight payloads for a minute, and takes the eighth, as where one of
/// eight backends behind one address is well.
/// Guarantees: the backlog does not drain away: some payloads are given up, then one every few probes, and the rest arrives when the destination is
/// mended.
#[tokio::test(start_paused = true)]
async fn one_of_eight_taken_does_not_drain_a_backlog() {
    let most = u64::from(MAX_PAYLOAD_FAULTS_LATELY) + GIVEN_UP_BY_PROBES;
    let start = Instant::now();
    let by_payload = move |batch: &Batch| {
        let is_good = batch.parts.len() == 1 && marker(batch).unwrap() % 8 == 7;
        if is_good || start.elapsed() >= MENDED {
            ok()
        } else {
            bad()
        }
    };
    let (given_up, until) = dropped(by_payload).await;
    assert!(given_up <= most && until >= MENDED, "{given_up} until {until:?}");
}

/// Scenario: every second payload is bad.
/// Guarantees: they are given up, and what is good waits for no probe.
#[tokio::test(start_paused = true)]
async fn a_half_that_is_bad_does_not_hold_the_other() {
    let rule = |batch: &Batch| {
        let is_good = batch.parts.iter().all(|part| part.body.last().unwrap() % 2 == 0);
        if is_good { ok() } else { bad() }
    };
    let half = u64::from(PAYLOADS / 2);
    assert_eq!(dropped(rule).await, (half, Duration::ZERO));
}
