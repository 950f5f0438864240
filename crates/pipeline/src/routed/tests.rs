//! Endpoints that come, go and fail, on a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use sluice_admission::{GuardSettings, Tracker};
use sluice_journal::{Cost, CursorSpec, Durability, Journal, Limits, OnFull};
use sluice_payload::Payload;

use super::*;
use crate::delivery::batches_passed_by;
use crate::ring::LEAVES_AFTER;
use crate::{BatchSettings, DeliverySettings, RetrySettings, deliver};

/// When a request that is not answered is given up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long a slow endpoint needs.
const SLOW: Duration = Duration::from_secs(10);

/// Endpoints by name: what they answer, and the spans they took, each by trace and number.
#[derive(Default)]
struct Backends {
    broken: Mutex<BTreeMap<String, Verdict>>,
    /// Those that take requests and do not answer.
    hung: Mutex<BTreeSet<String>>,
    /// Those that take [`SLOW`] to answer, and have taken the request before.
    slow: Mutex<BTreeSet<String>>,
    /// An endpoint, and the number of the spans that it never takes.
    stuck: Mutex<Option<(&'static str, u8)>>,
    taken: Mutex<BTreeMap<String, Vec<(u8, u8)>>>,
    asked: Mutex<BTreeMap<String, u32>>,
    /// Requests under way, and the most there were at once.
    under_way: Mutex<BTreeMap<String, (usize, usize)>>,
}

struct Backend {
    name: String,
    all: Arc<Backends>,
}

impl Exporter for Backend {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        *self.all.asked.lock().entry(self.name.clone()).or_default() += 1;
        if self.all.hung.lock().contains(&self.name) {
            return Box::pin(async {
                tokio::time::sleep(TIMEOUT).await;
                down()
            });
        }
        {
            let mut under_way = self.all.under_way.lock();
            let (now, most) = under_way.entry(self.name.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let mut verdict = self.all.broken.lock().get(&self.name).cloned().unwrap_or_else(ok);
        if let Some((name, number)) = *self.all.stuck.lock()
            && name == self.name
            && batch
                .parts
                .iter()
                .any(|part| spans_of(&part.body).iter().any(|span| span.1 == number))
        {
            verdict = down();
        }
        if verdict == ok() {
            let spans = batch.parts.iter().flat_map(|part| spans_of(&part.body));
            self.all
                .taken
                .lock()
                .entry(self.name.clone())
                .or_default()
                .extend(spans);
        }
        let needs = match self.all.slow.lock().contains(&self.name) {
            true => SLOW,
            false => Duration::from_millis(10),
        };
        Box::pin(async move {
            tokio::time::sleep(needs).await;
            self.all.under_way.lock().get_mut(&self.name).unwrap().0 -= 1;
            verdict
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

fn ok() -> Verdict {
    Verdict::Delivered {
        rejected: 0,
        message: None,
    }
}

fn down() -> Verdict {
    Verdict::Retry {
        after: None,
        reason: "connection refused".into(),
    }
}

fn refuses() -> Verdict {
    Verdict::EndpointFault { reason: "401".into() }
}

fn framed(tag: u8, inside: &[u8]) -> Vec<u8> {
    [
        &[tag, (inside.len() & 0x7f) as u8 | 0x80, (inside.len() >> 7) as u8],
        inside,
    ]
    .concat()
}

/// One resource and scope with a span of each of these traces, all with this number.
fn request(traces: std::ops::Range<u8>, number: u8) -> Bytes {
    let span = |trace: u8| {
        framed(
            0x12,
            &[&[0x0a, 16][..], &[trace; 16], &[0x12, 8], &[number; 8]].concat(),
        )
    };
    let spans: Vec<u8> = traces.flat_map(span).collect();
    framed(0x0a, &framed(0x12, &spans)).into()
}

fn spans_of(body: &[u8]) -> Vec<(u8, u8)> {
    let request = sluice_wire::Request::new(sluice_wire::Kind::Traces, body);
    let scopes = request.resources().flat_map(|resource| resource.scopes());
    scopes
        .flat_map(|scope| scope.spans())
        .map(|span| (span.trace_id().unwrap()[0], span.span_id().unwrap()[0]))
        .collect()
}

const TRACES: std::ops::Range<u8> = 0..90;

struct Rig {
    backends: Arc<Backends>,
    routed: Arc<Routed>,
    journal: Journal,
    done: tokio::task::JoinHandle<()>,
    registry: Registry,
}

impl Rig {
    fn new(endpoints: &[&str]) -> Self {
        Self::with(endpoints, 4, RetrySettings::default())
    }

    fn with(endpoints: &[&str], max_in_flight: usize, retry: RetrySettings) -> Self {
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let (journal, mut cursors) = Journal::memory("traces", vec![spec]);
        let backends = Arc::new(Backends::default());
        let like = Arc::new(Backend {
            name: "none".into(),
            all: backends.clone(),
        });
        let registry = Registry::default();
        let routed = Arc::new(Routed::new(None, like, "x", &registry));
        let settings = DeliverySettings {
            exporter: "x".into(),
            batch: BatchSettings {
                flush_timeout: Duration::ZERO,
                ..Default::default()
            },
            retry,
            max_in_flight,
            latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
            dead_letters: None,
        };
        let delivery = deliver(
            cursors.remove(0),
            Signal::Traces,
            routed.clone(),
            settings,
            registry.clone(),
        );
        let done = tokio::spawn(delivery);
        let rig = Self {
            backends,
            routed,
            journal,
            done,
            registry,
        };
        rig.endpoints(endpoints);
        rig
    }

    fn endpoints(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.routed.set_endpoints(&names, |name| {
            let backend = Backend {
                name: name.to_owned(),
                all: self.backends.clone(),
            };
            Ok::<_, Infallible>(Arc::new(backend) as Arc<dyn Exporter>)
        });
    }

    fn breaks(&self, name: &str, verdict: Verdict) {
        self.backends.broken.lock().insert(name.to_owned(), verdict);
    }

    fn hangs(&self, name: &str) {
        self.backends.hung.lock().insert(name.to_owned());
    }

    /// Spans that have arrived anywhere.
    fn arrived(&self) -> usize {
        self.backends.taken.lock().values().map(Vec::len).sum()
    }

    /// A span of each trace.
    fn send(&self, number: u8) {
        let items = u64::from(TRACES.end);
        let cost = Cost {
            requests: 1,
            items,
            bytes: 1,
        };
        let payload = Payload::uncharged(Signal::Traces, request(TRACES, number), items);
        let space = self.journal.try_reserve(cost).unwrap();
        let _ = self
            .journal
            .append(space, Arc::new(payload), None, Durability::Written);
    }

    /// Waits until everything is delivered and returns, for each number sent, the endpoint of each trace, having seen that each span
    /// arrived once.
    async fn owners(self) -> BTreeMap<u8, Vec<String>> {
        self.journal.drained().await;
        self.journal.close();
        self.done.await.unwrap();
        let account = self.journal.reports(std::time::Instant::now())[0].total();
        assert!(
            account.balanced() && account.queued == 0 && account.dropped_total() == 0,
            "{account:?}"
        );
        let mut owners: BTreeMap<u8, BTreeMap<u8, String>> = BTreeMap::new();
        for (name, taken) in &*self.backends.taken.lock() {
            for (trace, number) in taken {
                let before = owners.entry(*number).or_default().insert(*trace, name.clone());
                assert_eq!(before, None, "span {trace} {number} arrived twice");
            }
        }
        assert!(owners.values().all(|traces| traces.len() == TRACES.len()), "lost");
        let arrived: u64 = owners.values().map(|traces| traces.len() as u64).sum();
        assert_eq!(account.delivered, arrived);
        owners
            .into_iter()
            .map(|(number, traces)| (number, traces.into_values().collect()))
            .collect()
    }
}

/// Scenario: ninety traces with a span in each of five requests; three endpoints.
/// Guarantees: each span arrives once; all spans of a trace at one endpoint; each endpoint has its share.
#[tokio::test(start_paused = true)]
async fn a_trace_has_one_endpoint() {
    let rig = Rig::new(&["a", "b", "c"]);
    (0..5).for_each(|number| rig.send(number));
    let owners = rig.owners().await;
    assert!(owners.values().all(|one| *one == owners[&0]));
    for name in ["a", "b", "c"] {
        let share = owners[&0].iter().filter(|owner| *owner == name).count();
        assert!((15..45).contains(&share), "{name}: {share}");
    }
}

/// Scenario: one endpoint of three is down, and refuses everything in another run; what belongs to it waits, then it comes back.
/// Guarantees: the others have its keys, and only those move; nothing is lost or comes twice; once it works it has its own keys again.
#[tokio::test(start_paused = true)]
async fn a_dead_endpoints_backlog_is_handed_over() {
    for fault in [down(), refuses()] {
        let rig = Rig::new(&["a", "b", "c"]);
        rig.send(0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.breaks("b", fault);
        (1..9).for_each(|number| rig.send(number));
        tokio::time::sleep(LEAVES_AFTER * 4).await;
        let taken: usize = rig.backends.taken.lock().values().map(Vec::len).sum();
        assert_eq!(taken, 9 * TRACES.len(), "nothing waits for it any more");
        rig.backends.broken.lock().clear();
        // Its trial.
        rig.send(9);
        tokio::time::sleep(Duration::from_secs(60)).await;
        rig.send(10);
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.send(11);
        let owners = rig.owners().await;
        for (before, during) in owners[&0].iter().zip(&owners[&5]) {
            assert!(if before == "b" {
                during != "b"
            } else {
                during == before
            });
        }
        assert_eq!(owners[&11], owners[&0]);
    }
}

/// Scenario: an endpoint does not answer, and is gone from the list while it has a backlog; a new one comes.
/// Guarantees: what was for the one that is gone arrives at the others, once.
#[tokio::test(start_paused = true)]
async fn a_vanished_endpoints_backlog_is_handed_over() {
    let rig = Rig::new(&["a", "b", "c"]);
    rig.breaks("b", down());
    (0..3).for_each(|number| rig.send(number));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(rig.backends.taken.lock().values().map(Vec::len).sum::<usize>() < 3 * TRACES.len());
    let asked = rig.backends.asked.lock()["b"];
    rig.endpoints(&["a", "c", "d"]);
    (3..6).for_each(|number| rig.send(number));
    let backends = rig.backends.clone();
    let owners = rig.owners().await;
    assert!(owners.values().flatten().all(|owner| owner != "b"));
    assert!(owners[&5].iter().any(|owner| owner == "d"));
    assert_eq!(backends.asked.lock()["b"], asked, "nobody asks one that is gone");
}

/// Scenario: an endpoint asks for four seconds before the next try, and is gone from the list after one.
/// Guarantees: what waits for it arrives at the others at once.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_vanished_endpoint_is_not_left_waiting() {
    let rig = Rig::new(&["a", "b", "c"]);
    let later = Verdict::Retry {
        after: Some(Duration::from_secs(4)),
        reason: "503".into(),
    };
    rig.breaks("b", later);
    rig.send(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.endpoints(&["a", "c"]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let taken: usize = rig.backends.taken.lock().values().map(Vec::len).sum();
    assert_eq!(taken, TRACES.len());
    rig.owners().await;
}

/// Scenario: an endpoint takes requests and does not answer. A request is sent to it, and twenty seconds later as many more as may be under way.
/// Guarantees: it leaves when the first one's time is up, and soon after the others have everything: nobody waits until each of those
/// requests has had its time.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_does_not_keep_its_places() {
    let rig = Rig::with(&["a", "b", "c"], 4, RetrySettings::default());
    rig.hangs("b");
    rig.send(0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    (1..6).for_each(|number| rig.send(number));
    tokio::time::sleep(TIMEOUT - Duration::from_secs(21)).await;
    assert!(rig.arrived() < 6 * TRACES.len());
    tokio::time::sleep(Duration::from_secs(1) + LAST_WORD * 3 / 2).await;
    assert_eq!(rig.arrived(), 6 * TRACES.len());
    rig.backends.hung.lock().clear();
    rig.owners().await;
}

/// Scenario: one of two endpoints is down until it leaves; then many requests come at once.
/// Guarantees: its failures say nothing about the other one: that has as many requests at once as may be under way.
#[tokio::test(start_paused = true)]
async fn failures_of_one_do_not_narrow_the_window_of_all() {
    const AT_ONCE: usize = 8;
    let rig = Rig::with(&["a", "b"], AT_ONCE, RetrySettings::default());
    rig.breaks("b", down());
    rig.send(0);
    tokio::time::sleep(LEAVES_AFTER * 3).await;
    assert!(rig.backends.asked.lock()["b"] > 3);
    (1..20).for_each(|number| rig.send(number));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (_, most) = rig.backends.under_way.lock()["a"];
    assert!((AT_ONCE - 1..=AT_ONCE).contains(&most), "{most} at once");
    rig.backends.broken.lock().clear();
    rig.owners().await;
}

/// Scenario: one of two endpoints never takes one batch, and takes all others; in another run it takes nothing at all.
/// Guarantees: the batch is told of, once, though the other endpoint works; an endpoint that is out is nothing to tell of a batch.
#[tokio::test(start_paused = true)]
async fn a_batch_that_its_own_endpoint_passes_by_is_told_of() {
    for (is_down, told) in [(false, 1), (true, 0)] {
        let rig = Rig::new(&["a", "b"]);
        match is_down {
            true => rig.breaks("a", down()),
            false => *rig.backends.stuck.lock() = Some(("a", 0)),
        }
        // Often enough that the endpoint does not leave for that one batch.
        for number in 0..250 {
            rig.send(number);
            tokio::time::sleep(LEAVES_AFTER / 2).await;
        }
        assert_eq!(batches_passed_by(&rig.registry), told);
        rig.backends.broken.lock().clear();
        *rig.backends.stuck.lock() = None;
        rig.owners().await;
    }
}

/// Scenario: the trial of an endpoint that is out is under way, and not answered, when the endpoint is gone from the list; it comes back
/// under the same name, and works.
/// Guarantees: the new one has its keys from the first request on, whatever becomes of the trial of the old one; what the trial was
/// arrives once its time is up.
#[tokio::test(start_paused = true)]
async fn a_vanished_endpoints_trial_is_no_concern_of_the_next() {
    let rig = Rig::new(&["a", "b", "c"]);
    rig.send(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.breaks("b", refuses());
    rig.send(1);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(rig.arrived(), 2 * TRACES.len());
    rig.hangs("b");
    let asked = rig.backends.asked.lock()["b"];
    rig.send(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.backends.asked.lock()["b"], asked + 1, "its trial");
    rig.endpoints(&["a", "c"]);
    rig.backends.hung.lock().clear();
    rig.backends.broken.lock().clear();
    rig.endpoints(&["a", "b", "c"]);
    rig.send(3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let under_trial = 3 * TRACES.len()..4 * TRACES.len();
    assert!(under_trial.contains(&rig.arrived()), "{}", rig.arrived());
    tokio::time::sleep(TIMEOUT).await;
    assert_eq!(rig.arrived(), 4 * TRACES.len());
    assert_eq!(rig.routed.endpoints.ring.lock().count(), (3, 0));
    rig.send(4);
    let owners = rig.owners().await;
    assert_eq!(owners[&3], owners[&0]);
    assert_eq!(owners[&4], owners[&0]);
}

/// Scenario: both endpoints refuse everything, with one request under way at once, until one of them is mended: either.
/// Guarantees: the probes find it, and it has everything.
#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_one_endpoint_mended() {
    for mended in ["a", "b"] {
        let rig = Rig::with(&["a", "b"], 1, RetrySettings::default());
        rig.breaks("a", refuses());
        rig.breaks("b", refuses());
        (0..3).for_each(|number| rig.send(number));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(rig.backends.taken.lock().is_empty());
        rig.backends.broken.lock().remove(mended);
        tokio::time::sleep(Duration::from_secs(130)).await;
        let taken = rig.backends.taken.lock()[mended].len();
        assert_eq!(taken, 3 * TRACES.len());
        rig.owners().await;
    }
}

/// Scenario: both endpoints say for ten minutes that they take nothing for now; retries end after a minute, or are disabled. Then both
/// work.
/// Guarantees: no batch is given up for an endpoint that is exhausted, not even the one that probes; all arrives.
#[tokio::test(start_paused = true)]
async fn what_is_refused_for_now_is_never_given_up() {
    let ended = RetrySettings {
        max_elapsed_time: Some(Duration::from_secs(60)),
        ..RetrySettings::default()
    };
    let disabled = RetrySettings {
        enabled: false,
        ..RetrySettings::default()
    };
    let exhausted = || Verdict::Exhausted {
        reason: "quota".into(),
    };
    for retry in [ended, disabled] {
        let rig = Rig::with(&["a", "b"], 4, retry);
        rig.breaks("a", exhausted());
        rig.breaks("b", exhausted());
        (0..3).for_each(|number| rig.send(number));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(rig.arrived(), 0);
        let asked: u32 = rig.backends.asked.lock().values().sum();
        assert!((4..200).contains(&asked), "{asked} requests: held, and probed");
        rig.backends.broken.lock().clear();
        rig.owners().await;
    }
}

/// Scenario: one endpoint of two takes nothing for a moment; retries are disabled; more is sent meanwhile.
/// Guarantees: within its grace the batch waits for it and is not given up; what the other one has of what comes is not held.
#[tokio::test(start_paused = true)]
async fn one_that_is_exhausted_loses_nothing_in_its_grace() {
    let disabled = RetrySettings {
        enabled: false,
        ..RetrySettings::default()
    };
    let rig = Rig::with(&["a", "b"], 4, disabled);
    let quota = Verdict::Exhausted {
        reason: "quota".into(),
    };
    rig.breaks("b", quota);
    rig.send(0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.send(1);
    tokio::time::sleep(LEAVES_AFTER / 2).await;
    let is_later = |(_, number): &(u8, u8)| *number == 1;
    assert!(rig.backends.taken.lock()["a"].iter().any(is_later));
    rig.backends.broken.lock().clear();
    rig.owners().await;
}

/// Scenario: an endpoint is answering a request, which takes it ten seconds, when it asks for others to come five seconds later.
/// Guarantees: it is out, and keeps the request it is working on: nothing arrives twice.
#[tokio::test(start_paused = true)]
async fn one_that_leaves_and_speaks_keeps_what_is_under_way() {
    let rig = Rig::with(&["a", "b"], 4, RetrySettings::default());
    rig.backends.slow.lock().insert("b".to_owned());
    rig.send(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let later = Verdict::Retry {
        after: Some(LEAVES_AFTER),
        reason: "busy".into(),
    };
    rig.backends.slow.lock().clear();
    rig.breaks("b", later);
    rig.send(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.routed.endpoints.ring.lock().count(), (2, 1));
    rig.backends.broken.lock().clear();
    rig.owners().await;
}

/// Scenario: one endpoint of three answers 400 to everything.
/// Guarantees: no more than a few payloads are given up for it, then the others have its keys; its trials lose nothing.
#[tokio::test(start_paused = true)]
async fn one_that_refuses_every_payload_leaves() {
    let rig = Rig::with(&["a", "b", "c"], 1, RetrySettings::default());
    let bad = Verdict::PayloadFault { reason: "400".into() };
    rig.breaks("b", bad);
    for number in 0..60 {
        rig.send(number);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    rig.journal.close();
    rig.done.await.unwrap();
    let account = rig.journal.reports(std::time::Instant::now())[0].total();
    let lost = account.dropped_total();
    let its_share = 45;
    assert!(
        lost > 0 && lost <= u64::from(crate::MAX_PAYLOAD_FAULTS_IN_A_ROW) * its_share,
        "{lost} of {}",
        60 * TRACES.len()
    );
    assert!(account.balanced() && account.queued == 0);
}

/// Scenario: both endpoints are down for ever; retries end after a minute.
/// Guarantees: they do, however often the batch goes from one to the other, and the waits in between grow.
#[tokio::test(start_paused = true)]
async fn what_moves_has_no_more_time() {
    let retry = RetrySettings {
        max_elapsed_time: Some(Duration::from_secs(60)),
        ..RetrySettings::default()
    };
    let rig = Rig::with(&["a", "b"], 4, retry);
    rig.breaks("a", down());
    rig.breaks("b", down());
    rig.send(0);
    rig.journal.close();
    tokio::time::timeout(Duration::from_secs(61), rig.done)
        .await
        .expect("it is given up")
        .unwrap();
    let account = rig.journal.reports(std::time::Instant::now())[0].total();
    assert_eq!(account.dropped_total(), u64::from(TRACES.end));
    let asked: u32 = rig.backends.asked.lock().values().sum();
    assert!(asked < 40, "{asked} requests");
}

/// Scenario: no endpoint is known at first; later all refuse everything, until one is mended.
/// Guarantees: nothing is lost; the backlog waits.
#[tokio::test(start_paused = true)]
async fn without_endpoints_the_backlog_waits() {
    let rig = Rig::new(&[]);
    (0..3).for_each(|number| rig.send(number));
    tokio::time::sleep(Duration::from_secs(100)).await;
    rig.breaks("a", refuses());
    rig.breaks("b", refuses());
    rig.endpoints(&["a", "b"]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(rig.backends.taken.lock().is_empty());
    let asked: u32 = rig.backends.asked.lock().values().sum();
    assert!(
        asked < 200,
        "{asked} requests in ten minutes: it is probed, not hammered"
    );
    rig.backends.broken.lock().clear();
    rig.owners().await;
}
