//! In which order requests reach a destination that takes its time to answer, at a window of one.

use super::*;

/// How long each answer takes.
const TAKES: Duration = Duration::from_secs(1);

/// Answers by rule, by the number of a request from 0, each after [`TAKES`]; remembers when requests came, and whose they were.
struct Slow {
    rule: fn(usize) -> Verdict,
    start: Instant,
    seen: Mutex<Vec<(Duration, u8)>>,
}

impl Exporter for Slow {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(async {
            let marker = batch.parts[0].body.last().copied().unwrap();
            let number = {
                let mut seen = self.seen.lock();
                seen.push((self.start.elapsed(), marker));
                seen.len() - 1
            };
            tokio::time::sleep(TAKES).await;
            (self.rule)(number)
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Sends a payload with each of these markers, one every `every`, through so many places, and ends after `time`. Returns what the destination saw, and how much
/// was delivered.
async fn sent(
    markers: std::ops::Range<u8>,
    every: Duration,
    places: usize,
    time: Duration,
    rule: fn(usize) -> Verdict,
) -> (Vec<(Duration, u8)>, u64) {
    let spec = CursorSpec {
        exporter: "x".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("logs", vec![spec]);
    let start = Instant::now();
    let exporter = Arc::new(Slow {
        rule,
        start,
        seen: Mutex::default(),
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
    let (cursor, to) = (cursors.remove(0), exporter.clone());
    let delivery = tokio::spawn(deliver(cursor, Signal::Logs, to, settings, Registry::default()));
    for marker in markers {
        let payload = Payload::uncharged(Signal::Logs, logs(1, marker), 1);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
        tokio::time::sleep(every).await;
    }
    tokio::time::sleep_until(start + time).await;
    delivery.abort();
    let delivered = journal.reports(std::time::Instant::now())[0].total().delivered;
    (exporter.seen.lock().clone(), delivered)
}

/// Scenario: four batches fail at once, which shrinks the window to one request; they wait for it to be tried again when the answer to the first of them is 401.
/// Guarantees: the others ask the gate once more: the next request is the one probe, when it is time, and they go when it was accepted.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_window_does_not_pass_a_closed_gate() {
    let rule = |number: usize| match number {
        0..4 => Verdict::Retry {
            after: None,
            reason: "503".into(),
        },
        4 => Verdict::EndpointFault { reason: "401".into() },
        _ => ok(),
    };
    let minute = Duration::from_secs(60);
    let (seen, delivered) = sent(1..5, Duration::ZERO, 4, minute, rule).await;
    let times: Vec<u64> = seen.iter().map(|(at, _)| at.as_secs()).collect();
    // The first again after its answer and the first delay; its answer and the time to a probe later, one; by then the window is two.
    assert_eq!((&times[..6], delivered), (&[0, 0, 0, 0, 2, 8][..], 4), "{seen:?}");
    assert!(times[6..].iter().all(|at| *at >= 9), "{seen:?}");
}

/// Scenario: a destination that answers 503 to everything, so that the window is one; batches come more quickly than it answers, and have places for a
/// long time.
/// Guarantees: those that wait to be tried again have every other request at least: first attempts do not go before them until there are no places left.
#[tokio::test(start_paused = true)]
async fn first_attempts_and_retries_take_turns() {
    let busy = |_: usize| Verdict::Retry {
        after: None,
        reason: "503".into(),
    };
    let time = Duration::from_secs(40);
    let (seen, _) = sent(0..100, Duration::from_millis(100), 60, time, busy).await;
    let mut tried = std::collections::HashSet::new();
    let is_first: Vec<(Duration, bool)> = seen
        .iter()
        .map(|(at, marker)| (*at, tried.insert(*marker)))
        .collect();
    // From when the window has shrunk and the first batches want to be tried again.
    let small = is_first.iter().filter(|(at, _)| *at > Duration::from_secs(4));
    let (mut firsts, mut again) = (0, 0);
    for (at, is_first) in small {
        firsts += u64::from(*is_first);
        again += u64::from(!is_first);
        assert!(
            firsts <= again + 1,
            "after {at:?}: {firsts} first attempts and {again} others: {seen:?}"
        );
    }
    assert!(firsts > 10, "{seen:?}");
}
