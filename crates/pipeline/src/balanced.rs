//! Several endpoints that are as good as one another, as one exporter.
//!
//! A request goes to one endpoint; where that one cannot take it now, to the next, at once, until each that is not
//! resting was asked. What comes back is then the pipeline's to act on as ever: it retries when none took the request, and
//! holds the backlog when all have said that they refuse everything. An answer about the request itself (too large, bad data,
//! rejected items) is not asked for twice: the others would say the same.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_payload::Encoding;
use sluice_telemetry::{Gauge, Registry};
use tokio::time::Instant;

use crate::{Batch, Export, Exporter, Verdict};

/// An endpoint that failed is left alone for so long; each further failure doubles it, up to the second figure. Short, for
/// what it costs is one attempt of a request that goes elsewhere then.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Which endpoint has the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest requests under way; each in turn among those.
    LeastLoaded,
    /// The first that works, in the order they are written.
    Failover,
}

/// Sends each batch to one of several endpoints.
pub struct Balanced {
    /// As they are written, each with what sends to it.
    exporters: Vec<(String, Arc<dyn Exporter>)>,
    endpoints: Mutex<Endpoints>,
    out: Gauge,
}

impl Balanced {
    /// Over these endpoints, at least one, by name; their exporters differ in nothing else.
    pub fn new(
        exporters: Vec<(String, Arc<dyn Exporter>)>,
        balance: Balance,
        exporter: &str,
        registry: &Registry,
    ) -> Self {
        let (known, out) = endpoint_gauges(exporter, registry);
        known.set(exporters.len() as i64);
        Self {
            endpoints: Mutex::new(Endpoints::new(exporters.len(), balance)),
            exporters,
            out,
        }
    }

    /// `change` is made to the endpoint at `index`; says so, once, when it is out or back by that.
    fn change(&self, index: usize, reason: &str, change: impl FnOnce(&mut Endpoints)) {
        let is_out = {
            let mut endpoints = self.endpoints.lock();
            let was_out = endpoints.all[index].is_out();
            change(&mut endpoints);
            let is_out = endpoints.all[index].is_out();
            if was_out == is_out {
                return;
            }
            let out = endpoints.all.iter().filter(|endpoint| endpoint.is_out()).count();
            self.out.set(out as i64);
            is_out
        };
        let endpoint = &self.exporters[index].0;
        match is_out {
            true => tracing::warn!(
                endpoint,
                reason,
                "the endpoint takes nothing now; requests go to the others"
            ),
            false => tracing::info!(endpoint, "the endpoint works again"),
        }
    }

    async fn send(&self, batch: &Batch) -> Verdict {
        let mut asked = vec![false; self.exporters.len()];
        let mut said = (None, "there is no endpoint".to_owned());
        loop {
            let chosen = self.endpoints.lock().choose(&asked, Instant::now());
            let Some(index) = chosen else {
                let (after, reason) = said;
                // As long as one of them may take it later, the backlog is not held.
                return match self.endpoints.lock().all.iter().all(|endpoint| endpoint.refuses) {
                    true => Verdict::EndpointFault { reason },
                    false => Verdict::Retry { after, reason },
                };
            };
            asked[index] = true;
            let under_way = UnderWay {
                endpoints: &self.endpoints,
                index,
            };
            let verdict = self.exporters[index].1.export(batch).await;
            drop(under_way);
            let (refuses, after, reason) = match verdict {
                Verdict::Retry { after, reason } => (false, after, reason),
                Verdict::EndpointFault { reason } | Verdict::Exhausted { reason } => (true, None, reason),
                answered => {
                    self.change(index, "", |endpoints| endpoints.works(index));
                    return answered;
                }
            };
            self.change(index, &reason, |endpoints| {
                endpoints.failed(index, refuses, after, Instant::now());
            });
            said = (after, reason);
        }
    }
}

/// One request more at an endpoint, however it ends.
struct UnderWay<'a> {
    endpoints: &'a Mutex<Endpoints>,
    index: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.endpoints.lock().all[self.index].under_way -= 1;
    }
}

impl Exporter for Balanced {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.send(batch))
    }

    fn max_request_bytes(&self) -> usize {
        let sizes = self
            .exporters
            .iter()
            .map(|(_, exporter)| exporter.max_request_bytes());
        sizes.min().unwrap_or(usize::MAX)
    }

    fn passes_through(&self) -> Option<Encoding> {
        self.exporters.first()?.1.passes_through()
    }

    fn shutdown<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async {
            for (_, exporter) in &self.exporters {
                exporter.shutdown().await;
            }
        })
    }
}

/// The metrics of an exporter with several endpoints, whatever chooses among them: how many there are, and how many of them are out.
pub(crate) fn endpoint_gauges(exporter: &str, registry: &Registry) -> (Gauge, Gauge) {
    let gauge = |name, help| registry.gauge(name, help, vec![("exporter", exporter.to_owned())]);
    (
        gauge(
            "sluice_exporter_endpoints",
            "Endpoints of an exporter that has several.",
        ),
        gauge(
            "sluice_exporter_endpoints_out",
            "Those of them that take nothing, so that others have what they would.",
        ),
    )
}

/// How the endpoints are doing. Sans-IO: time is a parameter.
#[derive(Debug)]
struct Endpoints {
    balance: Balance,
    all: Vec<Endpoint>,
    /// Whose turn it is.
    turn: usize,
}

#[derive(Debug, Clone, Default)]
struct Endpoint {
    under_way: usize,
    /// After a failure; a request may go there again from then on, one at first.
    rests_until: Option<Instant>,
    rest: Duration,
    /// It said that it refuses everything.
    refuses: bool,
}

impl Endpoints {
    fn new(count: usize, balance: Balance) -> Self {
        Self {
            balance,
            all: vec![Endpoint::default(); count],
            turn: 0,
        }
    }

    /// The endpoint for a request, of those it was not sent to yet; it counts as under way there. When all rest, the one whose
    /// rest ends first: a request is never left without an attempt.
    fn choose(&mut self, asked: &[bool], now: Instant) -> Option<usize> {
        let count = self.all.len();
        let is_first = !asked.contains(&true);
        let order = (0..count).map(|step| match self.balance {
            Balance::Failover => step,
            Balance::RoundRobin | Balance::LeastLoaded => (self.turn + step) % count,
        });
        let left: Vec<usize> = order.filter(|index| !asked[*index]).collect();
        let ready = left
            .iter()
            .copied()
            .filter(|index| self.all[*index].is_ready(now));
        let chosen = match self.balance {
            Balance::LeastLoaded => ready.min_by_key(|index| self.all[*index].under_way),
            Balance::RoundRobin | Balance::Failover => ready.clone().next(),
        };
        let chosen = match chosen {
            None if is_first => left.into_iter().min_by_key(|index| self.all[*index].rests_until),
            chosen => chosen,
        }?;
        self.turn = (chosen + 1) % count;
        self.all[chosen].under_way += 1;
        Some(chosen)
    }

    fn works(&mut self, index: usize) {
        self.all[index] = Endpoint {
            under_way: self.all[index].under_way,
            ..Endpoint::default()
        };
    }

    fn failed(&mut self, index: usize, refuses: bool, after: Option<Duration>, now: Instant) {
        let endpoint = &mut self.all[index];
        endpoint.refuses = refuses;
        // Requests that were under way together failed together: that is one failure.
        if endpoint.rests_until.is_some_and(|until| until > now) {
            return;
        }
        endpoint.rest = (endpoint.rest * 2).clamp(FIRST_REST, LONGEST_REST);
        endpoint.rests_until = Some(now + after.unwrap_or(endpoint.rest));
    }
}

impl Endpoint {
    /// It failed, and took nothing since.
    fn is_out(&self) -> bool {
        self.rests_until.is_some()
    }

    /// One that failed is tried with one request at a time.
    fn is_ready(&self, now: Instant) -> bool {
        self.rests_until
            .is_none_or(|until| until <= now && self.under_way == 0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sluice_payload::{Signal, WireFormat};

    use super::*;
    use crate::Part;

    struct Scripted {
        name: usize,
        verdict: Arc<Mutex<Vec<Verdict>>>,
        asked: Arc<Mutex<Vec<usize>>>,
    }

    impl Exporter for Scripted {
        fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
            self.asked.lock().push(self.name);
            let verdict = self.verdict.lock()[self.name].clone();
            Box::pin(async { verdict })
        }

        fn max_request_bytes(&self) -> usize {
            1000 - self.name
        }
    }

    fn ok() -> Verdict {
        Verdict::Delivered {
            rejected: 0,
            message: None,
        }
    }

    fn busy() -> Verdict {
        Verdict::Retry {
            after: None,
            reason: "503".into(),
        }
    }

    fn expired() -> Verdict {
        Verdict::EndpointFault { reason: "401".into() }
    }

    type Verdicts = Arc<Mutex<Vec<Verdict>>>;
    type Asked = Arc<Mutex<Vec<usize>>>;

    fn balanced(balance: Balance, verdicts: Vec<Verdict>) -> (Balanced, Verdicts, Asked) {
        counted(balance, verdicts, &Registry::default())
    }

    fn counted(balance: Balance, verdicts: Vec<Verdict>, registry: &Registry) -> (Balanced, Verdicts, Asked) {
        let (verdict, asked) = (Arc::new(Mutex::new(verdicts)), Asked::default());
        let count = verdict.lock().len();
        let exporters = (0..count).map(|name| {
            let (verdict, asked) = (verdict.clone(), asked.clone());
            let exporter: Arc<dyn Exporter> = Arc::new(Scripted { name, verdict, asked });
            (name.to_string(), exporter)
        });
        let balanced = Balanced::new(exporters.collect(), balance, "x", registry);
        (balanced, verdict, asked)
    }

    fn batch() -> Batch {
        Batch {
            signal: Signal::Logs,
            parts: vec![Part {
                body: Bytes::from_static(b"x"),
                items: 1,
                wire_format: WireFormat::Otlp,
                frame: None,
            }],
        }
    }

    /// Scenario: three endpoints, in turn; then one is busy for a while.
    /// Guarantees: each has a third; no request fails for the one that is busy, which is asked once, rests ever longer, is
    /// asked again by one request, and is back with the first success.
    #[tokio::test(start_paused = true)]
    async fn a_busy_endpoint_rests() {
        let (balanced, verdicts, asked) = balanced(Balance::RoundRobin, vec![ok(), ok(), ok()]);
        assert_eq!(balanced.max_request_bytes(), 998);
        for _ in 0..4 {
            assert_eq!(balanced.export(&batch()).await, ok());
        }
        assert_eq!(std::mem::take(&mut *asked.lock()), [0, 1, 2, 0]);
        verdicts.lock()[1] = busy();
        for _ in 0..4 {
            assert_eq!(balanced.export(&batch()).await, ok());
        }
        assert_eq!(std::mem::take(&mut *asked.lock()), [1, 2, 0, 2, 0]);
        tokio::time::advance(FIRST_REST).await;
        assert_eq!(balanced.export(&batch()).await, ok());
        assert_eq!(std::mem::take(&mut *asked.lock()), [1, 2]);
        tokio::time::advance(FIRST_REST).await;
        balanced.export(&batch()).await;
        balanced.export(&batch()).await;
        assert_eq!(
            std::mem::take(&mut *asked.lock()),
            [0, 2],
            "it rests for two seconds now"
        );
        verdicts.lock()[1] = ok();
        tokio::time::advance(FIRST_REST).await;
        for _ in 0..3 {
            balanced.export(&batch()).await;
        }
        assert_eq!(std::mem::take(&mut *asked.lock()), [0, 1, 2]);
    }

    /// Scenario: an endpoint with another behind it for emergencies; the first fails, then comes back.
    /// Guarantees: the other one has requests only while the first fails.
    #[tokio::test(start_paused = true)]
    async fn the_second_stands_in_for_the_first() {
        let (balanced, verdicts, asked) = balanced(Balance::Failover, vec![ok(), ok()]);
        balanced.export(&batch()).await;
        verdicts.lock()[0] = expired();
        balanced.export(&batch()).await;
        balanced.export(&batch()).await;
        verdicts.lock()[0] = ok();
        tokio::time::advance(FIRST_REST).await;
        balanced.export(&batch()).await;
        balanced.export(&batch()).await;
        assert_eq!(*asked.lock(), [0, 0, 1, 1, 0, 0]);
    }

    /// Scenario: all endpoints fail, for themselves or for now; a request is bad.
    /// Guarantees: the backlog is held only when all refuse everything; a request is never left without an attempt; a bad one is
    /// not sent around.
    #[tokio::test(start_paused = true)]
    async fn what_all_say_counts() {
        let cases = [
            (vec![expired(), expired()], expired()),
            (vec![expired(), busy()], busy()),
            (vec![busy(), expired()], busy()),
        ];
        for (verdicts, wanted) in cases {
            let (balanced, _, asked) = balanced(Balance::RoundRobin, verdicts);
            let kind = |verdict: &Verdict| std::mem::discriminant(verdict);
            assert_eq!(kind(&balanced.export(&batch()).await), kind(&wanted));
            assert_eq!(asked.lock().len(), 2);
            balanced.export(&batch()).await;
            assert_eq!(asked.lock().len(), 3, "all rest, and one is asked");
        }
        let bad = Verdict::PayloadFault { reason: "400".into() };
        let (balanced, _, asked) = balanced(Balance::LeastLoaded, vec![bad.clone(), ok()]);
        assert_eq!(balanced.export(&batch()).await, bad);
        assert_eq!(*asked.lock(), [0]);
    }

    /// Scenario: two of three endpoints fail, one after the other, and come back, by an answer that is no delivery too.
    /// Guarantees: the metrics say how many there are, and how many of them have taken nothing since they failed.
    #[tokio::test(start_paused = true)]
    async fn endpoints_that_are_out_are_counted() {
        let registry = Registry::default();
        let (balanced, verdicts, _) = counted(Balance::Failover, vec![ok(), ok(), ok()], &registry);
        let says = |known: usize, out: usize| {
            let text = registry.render();
            let has = |line: String| assert!(text.lines().any(|one| one == line), "no {line} in {text}");
            has(format!("sluice_exporter_endpoints{{exporter=\"x\"}} {known}"));
            has(format!("sluice_exporter_endpoints_out{{exporter=\"x\"}} {out}"));
        };
        says(3, 0);
        *verdicts.lock() = vec![busy(), ok(), ok()];
        balanced.export(&batch()).await;
        says(3, 1);
        *verdicts.lock() = vec![busy(), expired(), ok()];
        balanced.export(&batch()).await;
        says(3, 2);
        *verdicts.lock() = vec![Verdict::PayloadFault { reason: "400".into() }, ok(), ok()];
        tokio::time::advance(LONGEST_REST).await;
        balanced.export(&batch()).await;
        says(3, 1);
        verdicts.lock()[0] = busy();
        balanced.export(&batch()).await;
        balanced.export(&batch()).await;
        says(3, 1);
    }

    /// Scenario: requests that do not end at one endpoint.
    /// Guarantees: further ones go to the endpoint with fewer under way.
    #[test]
    fn the_least_loaded_is_chosen() {
        let mut endpoints = Endpoints::new(3, Balance::LeastLoaded);
        let now = Instant::now();
        let none = [false; 3];
        for expected in [0, 1, 2, 0] {
            assert_eq!(endpoints.choose(&none, now), Some(expected));
        }
        endpoints.all[2].under_way -= 1;
        assert_eq!(endpoints.choose(&none, now), Some(2));
        assert_eq!(endpoints.choose(&[true, true, true], now), None);
    }
}
