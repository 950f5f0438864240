//! `grpc.health.v1.Health` on the gRPC port, as Kubernetes' probes and gRPC's clients use it.

use sluice_tests::{
    Config, Gateway, GrpcConnection, Kind, Sink, code, frame, grpc_call, gzipped, post, sample, within,
};
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::pair;

const CHECK: &str = "/grpc.health.v1.Health/Check";
const LOGS: &str = "opentelemetry.proto.collector.logs.v1.LogsService";
const TRACES: &str = "opentelemetry.proto.collector.trace.v1.TraceService";

fn asking(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

async fn client(gateway: &Gateway) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{}", gateway.grpc())).unwrap();
    HealthClient::new(within("a connection", endpoint.connect()).await.unwrap())
}

/// Scenario: tonic's health client asks for the whole server, for services with and without a pipeline, and for
/// services that are not there, at a gateway that wants credentials for data.
/// Guarantees: SERVING without credentials for the server and for what it takes; NOT_FOUND for the rest.
#[tokio::test(flavor = "multi_thread")]
async fn check_answers_for_what_is_served() {
    let sink = Sink::start().await;
    let config = Config::to(&sink)
        .signals(&["logs"])
        .extension("bearertokenauth", "token: t0ken")
        .grpc("auth: {authenticator: bearertokenauth}");
    let gateway = Gateway::start(&config).await;
    let mut client = client(&gateway).await;
    for service in ["", LOGS, "grpc.health.v1.Health"] {
        let answer = client.check(asking(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    for service in [TRACES, "LogsService", "é"] {
        let refused = client.check(asking(service)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{service}: {refused:?}");
        assert!(refused.message().contains(service), "{refused:?}");
    }
    let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &[], frame(0, &[])).await;
    assert_eq!(
        reply.code(),
        code::UNAUTHENTICATED,
        "data still needs them: {reply:?}"
    );
    drop(client);
    gateway.stop().await;
}

/// Scenario: watches of the server and of an unknown service, open on one connection; SIGTERM.
/// Guarantees: each says its status at once and stays open; at the stop the first says NOT_SERVING, both end with
/// UNAVAILABLE, and neither holds up the shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn watch_says_when_the_gateway_stops() {
    let (_sink, gateway) = pair().await;
    let mut client = client(&gateway).await;
    let mut server = client.watch(asking("")).await.unwrap().into_inner();
    let mut unknown = client.watch(asking("nobody")).await.unwrap().into_inner();
    let status = |answer: Option<HealthCheckResponse>| answer.unwrap().status();
    assert_eq!(status(server.message().await.unwrap()), ServingStatus::Serving);
    assert_eq!(
        status(unknown.message().await.unwrap()),
        ServingStatus::ServiceUnknown
    );
    // The connection is not taken up by them.
    client.check(asking("")).await.unwrap();
    gateway.terminate();
    let last = within("the status changes", server.message()).await.unwrap();
    assert_eq!(status(last), ServingStatus::NotServing);
    for mut stream in [server, unknown] {
        let end = within("the watch ends", stream.message()).await.unwrap_err();
        assert_eq!(end.code(), Code::Unavailable, "{end:?}");
    }
    let exit = gateway.ended().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(
        !exit.log.contains("some clients keep their connections open"),
        "{}",
        exit.log
    );
}

/// Scenario: the destination is down and the memory budget is used up, so that data is refused.
/// Guarantees: the gateway says that it is well all the same: a probe must not restart it for being full.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_gateway_is_well() {
    let sink = Sink::down().await;
    let config = Config::to(&sink).processor("memory_limiter", "check_interval: 1s, limit_mib: 32");
    let gateway = Gateway::start(&config).await;
    let headers = [("content-type", "application/x-protobuf")];
    let body: Vec<u8> = (0..100).flat_map(|seed| sample(Kind::Logs, seed)).collect();
    loop {
        let reply = post(gateway.http(), Kind::Logs.http_path(), &headers, body.clone()).await;
        if reply.status == 503 {
            break;
        }
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    // Two bytes of key and length, and a name.
    let named = [&[10, LOGS.len() as u8], LOGS.as_bytes()].concat();
    let reply = connection
        .call(CHECK, &[("grpc-timeout", "5S")], frame(0, &named))
        .await
        .unwrap();
    assert_eq!(
        (reply.code(), &reply.only_message()[..]),
        (code::OK, &[8, 1][..]),
        "{reply:?}"
    );
}

/// Scenario: health requests that are compressed, hold unknown fields, or are broken, oversized or missing; a method
/// that is not there.
/// Guarantees: the good ones are answered; each of the others has the status that gRPC has for it.
#[tokio::test(flavor = "multi_thread")]
async fn odd_health_requests() {
    let (_sink, gateway) = pair().await;
    let named = [&[10, LOGS.len() as u8], LOGS.as_bytes()].concat();
    let with_unknown = [&[16, 1], &named[..]].concat();
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    for (headers, message, expected) in [
        (&[][..], frame(0, &named), code::OK),
        (&[("grpc-encoding", "gzip")], frame(1, &gzipped(&named)), code::OK),
        (&[], frame(0, &with_unknown), code::OK),
        (&[("grpc-encoding", "br")], frame(1, b"?"), code::UNIMPLEMENTED),
        (&[], frame(0, &[10, 5, b'x']), code::INVALID_ARGUMENT),
        (&[], frame(0, &[10, 1, 0xff]), code::NOT_FOUND),
        (&[], frame(0, &[0; 5000]), code::RESOURCE_EXHAUSTED),
        (&[], frame(2, &[]), code::INTERNAL),
        (&[], bytes::Bytes::new(), code::UNIMPLEMENTED),
    ] {
        let reply = connection.call(CHECK, headers, message.clone()).await.unwrap();
        assert_eq!(reply.code(), expected, "{message:?}: {reply:?}");
        let is_ok = expected == code::OK;
        assert_eq!(reply.body.len(), if is_ok { 7 } else { 0 }, "{reply:?}");
    }
    let reply = connection
        .call("/grpc.health.v1.Health/List", &[], frame(0, &[]))
        .await
        .unwrap();
    assert_eq!(reply.code(), code::UNIMPLEMENTED, "{reply:?}");
    gateway.stop().await;
}
