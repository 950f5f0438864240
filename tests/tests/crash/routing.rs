//! SIGKILL while traces are shared out over three endpoints by consistent hash, one of which is down for a while: nothing that was
//! acknowledged is lost, and every trace is whole at one endpoint, but for those that had spans under way while one was down.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use sluice_tests::{Answer, Config, Gateway, Kind, Sink, eventually, within};

use super::{AT_START, BATCH, Bodies, CONSUMERS, ITEMS, Moments, kills, start_senders};

/// Requests one after the other have spans of the same traces: one each. Eight senders have them under way at once.
const REQUESTS_A_TRACE: u64 = 8;

const SPANS: Bodies = (Kind::Traces, spans);

/// A request with a span of each of ten traces.
fn spans(id: u64) -> Vec<u8> {
    let span = |n: u64| {
        let trace = id / REQUESTS_A_TRACE * ITEMS + n + 1;
        Span {
            trace_id: [trace.to_be_bytes(), trace.to_be_bytes()].concat(),
            span_id: (id * ITEMS + n + 1).to_be_bytes().to_vec(),
            name: "text ".repeat(40),
            ..Span::default()
        }
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: (0..ITEMS).map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
    .encode_to_vec()
}

fn number(id: &[u8]) -> u64 {
    u64::from_be_bytes(id[id.len() - 8..].try_into().unwrap())
}

/// What arrived at all endpoints together.
#[derive(Default)]
struct Arrivals {
    /// How often each span came.
    spans: HashMap<u64, u32>,
    /// The endpoints that have spans of each trace.
    traces: HashMap<u64, BTreeSet<usize>>,
    /// An endpoint is down, or what waits since then is not delivered yet.
    is_outage: bool,
    /// The traces that had spans under way then.
    in_outage: HashSet<u64>,
}

impl Arrivals {
    fn take(&mut self, endpoint: usize, body: &[u8]) {
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let scopes = (request.resource_spans.into_iter()).flat_map(|resource| resource.scope_spans);
        for span in scopes.flat_map(|scope| scope.spans) {
            let trace = number(&span.trace_id);
            *self.spans.entry(number(&span.span_id)).or_default() += 1;
            self.traces.entry(trace).or_default().insert(endpoint);
            if self.is_outage {
                self.in_outage.insert(trace);
            }
        }
    }
}

fn config(sinks: &[Sink; 3], spool: &Path) -> Config {
    let more = format!(
        "balance: consistent_hash, more_endpoints: [\"http://{}\", \"http://{}\"], \
         retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms}}, sending_queue: {{storage: file_storage, \
         num_consumers: {CONSUMERS}, batch: {{flush_timeout: 5ms, min_size: {BATCH}, max_size: {BATCH}}}}}",
        sinks[1].address(),
        sinks[2].address()
    );
    Config::new()
        .signals(&["traces"])
        .extension("file_storage", &format!("directory: {}", spool.display()))
        .http_exporter("sink", &sinks[0], &more)
}

async fn endpoints_out(gateway: &Gateway, count: f64) {
    eventually("endpoints leave", || async {
        let out = gateway.metrics().await.sum("sluice_exporter_endpoints_out", &[]);
        (out == count).then_some(())
    })
    .await;
}

/// Scenario: senders over HTTP and gRPC, whose requests have spans of the same traces; SIGKILL after a random time, again and again, every
/// other time within 150 ms of a start. Half-way one of the three endpoints goes down, until it has left; the gateway is killed then, and started
/// again before the endpoint is back.
/// Guarantees: every span of a request that was acknowledged is delivered; no more come twice than were under way; each trace is at one
/// endpoint, but for those with spans under way from when the endpoint went down until all that had waited was delivered.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_stays_whole_under_sigkill() {
    let kills = kills();
    let sinks = [Sink::start().await, Sink::start().await, Sink::start().await];
    let arrivals: Arc<Mutex<Arrivals>> = Arc::default();
    for (endpoint, sink) in sinks.iter().enumerate() {
        let arrivals = arrivals.clone();
        sink.answer(move |arrived| {
            arrivals.lock().unwrap().take(endpoint, &arrived.body);
            Answer::Take
        });
    }
    let spool = tempfile::tempdir().unwrap();
    let config = config(&sinks, spool.path());
    let next = Arc::new(AtomicU64::new(0));
    let mut acked: Vec<u64> = Vec::new();
    let mut moments = Moments(0x9e37_79b9_7f4a_7c15);
    for kill in 0..kills {
        if kill % 2 == 1 {
            Gateway::kill_at_start(&config, moments.below(AT_START)).await;
            continue;
        }
        let gateway = Gateway::start(&config).await;
        let mut senders = start_senders(&gateway, SPANS, &next);
        let is_outage = kill == kills / 4 * 2;
        if is_outage {
            arrivals.lock().unwrap().is_outage = true;
            sinks[1].stop().await;
            endpoints_out(&gateway, 1.0).await;
        }
        // Not to wait for anything: the moment of the kill is what is at random.
        tokio::time::sleep(moments.below(Duration::from_millis(400))).await;
        gateway.kill().await;
        while let Some(round) = within("senders notice", senders.join_next()).await {
            acked.extend(round.unwrap());
        }
        if is_outage {
            let gateway = Gateway::start(&config).await;
            tokio::time::sleep(moments.below(Duration::from_millis(400))).await;
            sinks[1].up().await;
            gateway.settled().await;
            // Requests that the next one cuts go to whom they belong.
            endpoints_out(&gateway, 0.0).await;
            gateway.kill().await;
            arrivals.lock().unwrap().is_outage = false;
        }
        sinks.iter().for_each(Sink::clear);
    }
    let gateway = Gateway::start(&config).await;
    gateway.settled().await;
    gateway.stop().await;

    let arrivals = arrivals.lock().unwrap();
    let items = (acked.iter()).flat_map(|request| request * ITEMS..(request + 1) * ITEMS);
    let lost = items
        .filter(|item| !arrivals.spans.contains_key(&(item + 1)))
        .count();
    let twice: u64 = arrivals.spans.values().map(|times| u64::from(*times - 1)).sum();
    // In the round of the outage a second gateway is killed, and requests are cut off by the endpoint that goes down.
    let cut_off = kills + 2;
    let most = cut_off * CONSUMERS * BATCH;
    let is_split =
        |(trace, at): &(&u64, &BTreeSet<usize>)| at.len() > 1 && !arrivals.in_outage.contains(trace);
    let split = arrivals.traces.iter().filter(is_split).count();
    println!(
        "{kills} kills: {} spans acknowledged, {lost} lost, {twice} delivered twice (at most {most}); {} traces, {} of them under way during the \
         outage, {split} of the others at two endpoints",
        acked.len() as u64 * ITEMS,
        arrivals.traces.len(),
        arrivals.in_outage.len(),
    );
    for endpoint in 0..sinks.len() {
        let has_some = arrivals.traces.values().any(|at| at.contains(&endpoint));
        assert!(has_some, "endpoint {endpoint} has its share");
    }
    assert!(!acked.is_empty() && arrivals.in_outage.len() < arrivals.traces.len());
    assert_eq!((lost, split), (0, 0));
    assert!(twice <= most, "{twice} delivered twice");
}
