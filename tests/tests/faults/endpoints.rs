//! Exporters with several endpoints.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use sluice_tests::{Answer, Config, Gateway, Items, Kind, Sink, items_of};

use crate::{ITEMS, send};

/// Scenario: three endpoints in turn; one is down, one says that it is overloaded, later all are well.
/// Guarantees: everything arrives, once, at those that work, without a failure in the account; each endpoint has its
/// share once it is back. The metrics and the log say how many are out, which, and when they are back.
#[tokio::test(flavor = "multi_thread")]
async fn the_others_take_what_one_cannot() {
    let (well, down, busy) = (Sink::start().await, Sink::down().await, Sink::start().await);
    busy.answer(|_| Answer::Http(503, None));
    let more = format!(
        "more_endpoints: [\"http://{}\", \"http://{}\"]",
        down.address(),
        busy.address()
    );
    let config = Config::new().http_exporter("sink", &well, &more);
    let gateway = Gateway::start(&config).await;
    let sent = send(&gateway, Kind::Logs, 0..20).await;
    well.wait_for_same(Kind::Logs, &sent).await;
    gateway.settled().await;
    let endpoints = async |which: &str| {
        gateway
            .metrics()
            .await
            .sum(which, &["exporter=\"otlphttp/sink\""])
    };
    assert_eq!(endpoints("sluice_exporter_endpoints").await, 3.0);
    assert_eq!(endpoints("sluice_exporter_endpoints_out").await, 2.0);
    gateway.says("the endpoint takes nothing now").await;
    down.up().await;
    busy.answer(|_| Answer::Take);
    let mut next = 20;
    while down.taken().is_empty() || busy.taken().is_empty() {
        send(&gateway, Kind::Logs, next..next + 1).await;
        gateway.settled().await;
        next += 1;
    }
    assert_eq!(endpoints("sluice_exporter_endpoints_out").await, 0.0);
    gateway.says("the endpoint works again").await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(
        (account.delivered, account.dropped.len()),
        (next * ITEMS as u64, 0),
        "{account:?}"
    );
    let arrived: usize = [&well, &down, &busy]
        .iter()
        .flat_map(|sink| sink.taken())
        .map(|arrived| arrived.items().iter().count())
        .sum();
    assert_eq!(arrived, next as usize * ITEMS, "nothing came twice");
    gateway.stop().await;
}

/// The traces a sink has spans of.
fn traces(sink: &Sink) -> BTreeSet<Vec<u8>> {
    sink.taken()
        .iter()
        .flat_map(|arrived| {
            ExportTraceServiceRequest::decode(arrived.body.clone())
                .unwrap()
                .resource_spans
        })
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .map(|span| span.trace_id)
        .collect()
}

/// Scenario: three endpoints by consistent hash of the trace, half of them over HTTP, half over gRPC; then one of them goes down for good.
/// Guarantees: no trace has spans at two endpoints while all are up; the share of the one that is down arrives at the others, everything once,
/// without a drop in the account.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_to_one_endpoint() {
    for grpc in [false, true] {
        let sinks = [Sink::start().await, Sink::start().await, Sink::start().await];
        let more = format!(
            "balance: consistent_hash, more_endpoints: [\"http://{}\", \"http://{}\"]",
            sinks[1].address(),
            sinks[2].address()
        );
        let config = match grpc {
            false => Config::new().http_exporter("sink", &sinks[0], &more),
            true => Config::new().grpc_exporter("sink", &sinks[0], &more),
        };
        let gateway = Gateway::start(&config).await;
        send(&gateway, Kind::Traces, 0..20).await;
        gateway.settled().await;
        let of: Vec<_> = sinks.iter().map(traces).collect();
        assert!(
            of.iter().all(|traces| !traces.is_empty()),
            "{:?}",
            of.iter().map(BTreeSet::len).collect::<Vec<_>>()
        );
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert!(of[one].is_disjoint(&of[other]), "a trace is at two endpoints");
        }
        sinks[1].stop().await;
        send(&gateway, Kind::Traces, 20..40).await;
        gateway.settled().await;
        let account = gateway
            .account(if grpc { "otlp/sink" } else { "otlphttp/sink" })
            .await;
        assert_eq!(
            (account.delivered, account.dropped.len()),
            (40 * ITEMS as u64, 0),
            "{account:?}"
        );
        let arrived: usize = sinks.iter().map(|sink| sink.items(Kind::Traces).len()).sum();
        assert_eq!(arrived, 40 * ITEMS, "nothing came twice");
        gateway.stop().await;
    }
}

/// Scenario: the queue is on disk, and one of two endpoints by consistent hash is down; SIGKILL; the next process has another list, in which
/// the endpoint that was down is replaced.
/// Guarantees: the backlog of the vanished endpoint arrives at those there are now: every span, and none twice but what was under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_vanished_endpoints_backlog_survives_a_kill() {
    let spool = tempfile::tempdir().unwrap();
    let (first, gone, new) = (Sink::start().await, Sink::down().await, Sink::start().await);
    let config = |second: &Sink| {
        let more = format!(
            "balance: consistent_hash, more_endpoints: [\"http://{}\"], \
             sending_queue: {{storage: file_storage, batch: {{flush_timeout: 5ms, min_size: 1}}}}",
            second.address()
        );
        Config::new()
            .signals(&["traces"])
            .extension("file_storage", &format!("directory: {}", spool.path().display()))
            .http_exporter("sink", &first, &more)
    };
    // The first one takes nothing either, so that the second never leaves.
    first.answer(|_| Answer::Http(503, None));
    let gateway = Gateway::start(&config(&gone)).await;
    let sent = send(&gateway, Kind::Traces, 0..10).await;
    gateway.kill().await;
    first.answer(|_| Answer::Take);
    let gateway = Gateway::start(&config(&new)).await;
    gateway.settled().await;
    let arrived: Vec<_> = [&first, &new].map(|sink| sink.items(Kind::Traces)).into();
    assert!(
        arrived.iter().all(|items| !items.is_empty()),
        "{:?}",
        arrived.iter().map(Items::len).collect::<Vec<_>>()
    );
    let expected: Items = sent.iter().map(|body| items_of(Kind::Traces, body)).collect();
    let all: Items = [first.taken(), new.taken()]
        .concat()
        .iter()
        .map(|arrived| arrived.items())
        .collect();
    all.assert_same(&expected);
    gateway.stop().await;
}
