//! Tenants: where their names come from, what is counted by them, and that none starves another.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use prost::Message;
use sluice_tests::{
    Answer, Config, Gateway, Kind, Sink, code, eventually, frame, grpc_call, post, sample, within,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{JSON, PROTOBUF};

/// Log records in one [`sample`].
const ITEMS: u64 = 50;

const SINK: &str = "otlphttp/sink";

async fn over_http(gateway: &Gateway, headers: &[(&str, &str)], body: Vec<u8>) {
    let headers = [&[PROTOBUF], headers].concat();
    let reply = post(gateway.http(), "/v1/logs", &headers, body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}

async fn over_grpc(gateway: &Gateway, headers: &[(&str, &str)], body: &[u8]) {
    let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), headers, frame(0, body)).await;
    assert_eq!(reply.code(), code::OK, "{reply:?}");
}

/// Accounts where everything accepted was delivered.
fn accounts<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, (u64, u64)> {
    (expected.into_iter())
        .map(|(tenant, items)| (tenant.to_owned(), (items, items)))
        .collect()
}

/// A sample whose resource has `tenant.id`.
fn owned(seed: u64, value: Option<Value>) -> Vec<u8> {
    let mut request = ExportLogsServiceRequest::decode(&*sample(Kind::Logs, seed)).unwrap();
    let resource = request.resource_logs[0].resource.get_or_insert_default();
    resource.attributes.push(KeyValue {
        key: "tenant.id".into(),
        value: Some(AnyValue { value }),
        ..KeyValue::default()
    });
    request.encode_to_vec()
}

/// A sample of a tenant by its resource.
fn of(seed: u64, tenant: &str) -> Vec<u8> {
    owned(seed, Some(Value::StringValue(tenant.into())))
}

/// A destination that answers when it is told to.
async fn held_up() -> (Sink, watch::Sender<bool>) {
    let sink = Sink::start().await;
    let (open, opened) = watch::channel(false);
    sink.answer(move |_| {
        let opened = opened.clone();
        let wait = move || -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let mut opened = opened.clone();
            Box::pin(async move { drop(opened.wait_for(|open| *open).await.unwrap()) })
        };
        Answer::After(Arc::new(wait), Box::new(Answer::Take))
    });
    (sink, open)
}

/// Scenario: two tenants named by a header, over HTTP and gRPC and in both encodings; requests without one, with an
/// empty one, and with one that would break a log line.
/// Guarantees: the ledger is exact for each tenant; what names none is the default tenant's; names are presentable.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_by_header() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).receiver("tenant: {from_header: X-Scope-OrgID}");
    let gateway = Gateway::start(&config).await;
    for seed in 0..3 {
        over_http(&gateway, &[("x-scope-orgid", "acme")], sample(Kind::Logs, seed)).await;
    }
    for seed in 3..5 {
        over_grpc(&gateway, &[("x-scope-orgid", "acme")], &sample(Kind::Logs, seed)).await;
        over_grpc(
            &gateway,
            &[("x-scope-orgid", "globex")],
            &sample(Kind::Logs, seed),
        )
        .await;
    }
    let json = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{},{}]}]}]}"#;
    let headers = [JSON, ("X-Scope-OrgID", " globex ")];
    assert_eq!(post(gateway.http(), "/v1/logs", &headers, json).await.status, 200);
    over_http(&gateway, &[], sample(Kind::Logs, 6)).await;
    over_http(&gateway, &[("x-scope-orgid", "")], sample(Kind::Logs, 7)).await;
    over_http(
        &gateway,
        &[("x-scope-orgid", "a\tb \u{e9}")],
        sample(Kind::Logs, 8),
    )
    .await;
    gateway.settled().await;
    let expected = accounts([
        ("acme", 5 * ITEMS),
        ("globex", 2 * ITEMS + 3),
        ("default", 2 * ITEMS),
        ("a_b___", ITEMS),
    ]);
    assert_eq!(gateway.tenants(SINK).await, expected);
    gateway.stop().await;
}

/// Scenario: a receiver that authenticates users over HTTP and named tokens over gRPC, and takes the tenant from that;
/// a header that is not asked for, and wrong credentials that name a tenant.
/// Guarantees: the tenant is who the credentials belong to; nobody can speak for another; wrong credentials are counted
/// by no name that they bring.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_by_identity() {
    let sink = Sink::start().await;
    let config = Config::to(&sink)
        .extension("basicauth", "htpasswd: {inline: \"ann:s:ecret\\nbob:pass\"}")
        .extension(
            "bearertokenauth",
            "named_tokens: {team-a: t0ken-a, team-b: t0ken-b}",
        )
        .http("auth: {authenticator: basicauth}")
        .grpc("auth: {authenticator: bearertokenauth}")
        .receiver("tenant: {from_auth: true}");
    let gateway = Gateway::start(&config).await;
    let basic = |text: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text));
    for (user, spoken_for) in [
        ("ann:s:ecret", "bob"),
        ("bob:pass", "team-a"),
        ("ann:s:ecret", ""),
    ] {
        let headers = [("authorization", &*basic(user)), ("x-scope-orgid", spoken_for)];
        over_http(&gateway, &headers, sample(Kind::Logs, 1)).await;
    }
    over_grpc(
        &gateway,
        &[("authorization", "Bearer t0ken-b")],
        &sample(Kind::Logs, 2),
    )
    .await;
    let headers = [PROTOBUF, ("authorization", &*basic("eve:wrong"))];
    let reply = post(gateway.http(), "/v1/logs", &headers, sample(Kind::Logs, 3)).await;
    assert_eq!(reply.status, 401);
    gateway.settled().await;
    let expected = accounts([("ann", 2 * ITEMS), ("bob", ITEMS), ("team-b", ITEMS)]);
    assert_eq!(gateway.tenants(SINK).await, expected);
    let metrics = gateway.metrics().await;
    let labels = ["tenant=\"default\"", "reason=\"unauthorized\""];
    assert_eq!(metrics.sum("sluice_tenant_refused_requests_total", &labels), 1.0);
    assert!(!metrics.text().contains("\"eve\"") && !metrics.text().contains("t0ken"));
    gateway.stop().await;
}

/// Scenario: the tenant is an attribute of the resource, or a header where there is one; requests with one resource, with
/// two of different tenants, with an attribute that is no string, and without it, in protobuf and JSON.
/// Guarantees: the header wins; a request belongs to its first resource's tenant as a whole; the rest is the default
/// tenant's; nothing is split or lost.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_by_resource_attribute() {
    let sink = Sink::start().await;
    let config = Config::to(&sink)
        .receiver("tenant: {from_header: X-Scope-OrgID, from_resource_attribute: tenant.id}");
    let gateway = Gateway::start(&config).await;
    over_http(&gateway, &[], of(0, "acme")).await;
    over_grpc(&gateway, &[], &of(1, "globex")).await;
    over_grpc(&gateway, &[("x-scope-orgid", "initech")], &of(2, "globex")).await;
    over_http(&gateway, &[], [of(3, "acme"), of(4, "globex")].concat()).await;
    over_http(&gateway, &[], owned(5, Some(Value::IntValue(7)))).await;
    over_http(&gateway, &[], sample(Kind::Logs, 6)).await;
    let json = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"tenant.id","value":{"stringValue":"globex"}}]},
        "scopeLogs":[{"logRecords":[{},{}]}]}]}"#;
    assert_eq!(post(gateway.http(), "/v1/logs", &[JSON], json).await.status, 200);
    gateway.settled().await;
    let expected = accounts([
        ("acme", 3 * ITEMS),
        ("globex", ITEMS + 2),
        ("initech", ITEMS),
        ("default", 2 * ITEMS),
    ]);
    assert_eq!(gateway.tenants(SINK).await, expected);
    gateway.stop().await;
}

/// Scenario: no `tenant` in the configuration, and requests with the header.
/// Guarantees: everything is the default tenant's, and the metrics have no series by tenant.
#[tokio::test(flavor = "multi_thread")]
async fn without_tenancy_there_is_one_tenant() {
    let (sink, gateway) = crate::pair().await;
    over_http(&gateway, &[("x-scope-orgid", "acme")], sample(Kind::Logs, 0)).await;
    post(
        gateway.http(),
        "/v1/logs",
        &[PROTOBUF, ("x-scope-orgid", "acme")],
        "bad",
    )
    .await;
    sink.wait_for(Kind::Logs, ITEMS as usize).await;
    gateway.settled().await;
    assert_eq!(gateway.tenants(SINK).await, accounts([("default", ITEMS)]));
    assert!(!gateway.metrics().await.text().contains("tenant"));
    gateway.stop().await;
}

/// Scenario: a small memory limit and a destination that takes nothing; one tenant sends ten times its share, alone at
/// first, and a hundred of its requests wait in line; then five other tenants send, on both transports, small requests
/// and large ones. In the end the destination answers.
/// Guarantees: every request of the others is taken at the first attempt; the flood is
/// refused, retryably, and only it; all that was taken is delivered, exactly, by tenant.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_at_ten_times_its_share_starves_nobody() {
    let (sink, open) = held_up().await;
    // Some hundred MiB for payloads: a flood leaves twenty free.
    let config = Config::to(&sink)
        .processor("memory_limiter", "check_interval: 1s, limit_mib: 160")
        .receiver("tenant: {from_header: X-Scope-OrgID}");
    let gateway = Gateway::start(&config).await;
    let (http, grpc) = (gateway.http(), gateway.grpc());
    let one = sample(Kind::Logs, 0);
    let samples_per_mib = (1_usize << 20).div_ceil(one.len());
    let large = bytes::Bytes::from(one.repeat(samples_per_mib));
    let flood_items = ITEMS * samples_per_mib as u64;

    let mut flood = JoinSet::new();
    for number in 0..480 {
        let large = large.clone();
        flood.spawn(async move {
            match number % 2 {
                0 => {
                    let headers = [PROTOBUF, ("x-scope-orgid", "flood")];
                    let reply = post(http, "/v1/logs", &headers, large).await;
                    assert!([200, 503].contains(&reply.status), "{reply:?}");
                    reply.status == 200
                }
                _ => {
                    let headers = [("x-scope-orgid", "flood")];
                    let reply = grpc_call(grpc, Kind::Logs.grpc_path(), &headers, frame(0, &large)).await;
                    assert!(
                        reply.code() == code::OK || reply.retry_delay().is_some(),
                        "{reply:?}"
                    );
                    reply.code() == code::OK
                }
            }
        });
    }
    let reserved = || async {
        let metrics = gateway.metrics().await;
        let held = metrics.sum("sluice_tenant_reserved_bytes", &["tenant=\"flood\""]);
        let waiting = metrics.sum("sluice_admission_waiting_requests", &[]);
        (held / metrics.sum("sluice_memory_budget_bytes", &[]), waiting)
    };
    eventually("the flood has its share, and waits for more", || async {
        let (held, waiting) = reserved().await;
        (held > 0.6 && waiting >= 10.0).then_some(())
    })
    .await;

    let mut others = JoinSet::new();
    for number in 0..50_u64 {
        let body = match number % 10 {
            0 => large.clone(),
            _ => one.clone().into(),
        };
        others.spawn(async move {
            let tenant = format!("other-{}", number % 5);
            if number % 2 == 0 {
                let reply = post(http, "/v1/logs", &[PROTOBUF, ("x-scope-orgid", &tenant)], body).await;
                assert_eq!(reply.status, 200, "{tenant}: {reply:?}");
            } else {
                let headers = [("x-scope-orgid", &*tenant)];
                let reply = grpc_call(grpc, Kind::Logs.grpc_path(), &headers, frame(0, &body)).await;
                assert_eq!(reply.code(), code::OK, "{tenant}: {reply:?}");
            }
        });
    }
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
    let mut taken = 0;
    within("the flood is answered", async {
        while let Some(done) = flood.join_next().await {
            taken += u64::from(done.unwrap());
        }
    })
    .await;
    let (held, _) = reserved().await;
    assert!(
        (0.6..0.85).contains(&held),
        "the flood holds {held} of the budget"
    );
    let metrics = gateway.metrics().await;
    let refused = |tenant: &str| {
        let tenant = format!("tenant=\"{tenant}");
        metrics.sum("sluice_tenant_refused_requests_total", &[&tenant])
    };
    assert_eq!(
        (refused("flood"), refused("other")),
        (480.0 - taken as f64, 0.0),
        "{}",
        metrics.text()
    );

    open.send(true).unwrap();
    gateway.settled().await;
    // Ten requests each; those of other-0 are large every other time.
    let small = ITEMS * 10;
    let expected = accounts([
        ("flood", taken * flood_items),
        ("other-0", small / 2 + 5 * flood_items),
        ("other-1", small),
        ("other-2", small),
        ("other-3", small),
        ("other-4", small),
    ]);
    assert_eq!(gateway.tenants(SINK).await, expected);
    gateway.stop().await;
}

/// Scenario: a small memory limit and a destination that takes nothing; a tenant that only the resources of its requests name sends on and on
/// over eight connections, whatever it is told. Once it is refused, four other tenants send, over both transports, small requests and large ones.
/// In the end the destination answers.
/// Guarantees: the flood stops at its share, and is refused, retryably, in its own name; every request of the others is taken at the first
/// attempt; all that was taken is delivered, exactly, by tenant.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_by_attribute_starves_nobody() {
    let (sink, open) = held_up().await;
    let config = Config::to(&sink)
        .processor("memory_limiter", "check_interval: 1s, limit_mib: 80")
        .receiver("tenant: {from_resource_attribute: tenant.id}");
    let gateway = Gateway::start(&config).await;
    let (http, grpc) = (gateway.http(), gateway.grpc());
    let samples_per_mib = (1_usize << 20).div_ceil(of(0, "flood").len());
    let large = |tenant: &str| bytes::Bytes::from(of(0, tenant).repeat(samples_per_mib));

    let (stop, stopped) = watch::channel(false);
    let mut flood = JoinSet::new();
    for _ in 0..8 {
        let (body, stopped) = (large("flood"), stopped.clone());
        flood.spawn(async move {
            let (mut taken, mut refused) = (0_u64, 0_u64);
            while !*stopped.borrow() {
                let reply = post(http, "/v1/logs", &[PROTOBUF], body.clone()).await;
                match reply.status {
                    200 => taken += 1,
                    503 if reply.header("retry-after").is_some() => refused += 1,
                    _ => panic!("{reply:?}"),
                }
            }
            (taken, refused)
        });
    }
    eventually("the flood has its share", || async {
        let metrics = gateway.metrics().await;
        let refused = metrics.sum("sluice_tenant_refused_requests_total", &["tenant=\"flood\""]);
        (refused >= 8.0).then_some(())
    })
    .await;

    let mut others = JoinSet::new();
    for number in 0..24_u64 {
        let tenant = format!("other-{}", number % 4);
        let body = match number / 4 {
            0 => large(&tenant),
            _ => of(number, &tenant).into(),
        };
        others.spawn(async move {
            if number % 2 == 0 {
                let reply = post(http, "/v1/logs", &[PROTOBUF], body).await;
                assert_eq!(reply.status, 200, "{tenant}: {reply:?}");
            } else {
                let reply = grpc_call(grpc, Kind::Logs.grpc_path(), &[], frame(0, &body)).await;
                assert_eq!(reply.code(), code::OK, "{tenant}: {reply:?}");
            }
        });
    }
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
    stop.send(true).unwrap();
    let (mut taken, mut refused) = (0, 0);
    while let Some(done) = flood.join_next().await {
        let (more_taken, more_refused) = done.unwrap();
        (taken, refused) = (taken + more_taken, refused + more_refused);
    }
    let metrics = gateway.metrics().await;
    let of_tenant = |name: &str, tenant: &str| metrics.sum(name, &[&format!("tenant=\"{tenant}")]);
    let held =
        of_tenant("sluice_tenant_reserved_bytes", "flood") / metrics.sum("sluice_memory_budget_bytes", &[]);
    assert!(
        (0.6..0.85).contains(&held),
        "the flood holds {held} of the budget"
    );
    let refusals = |tenant| of_tenant("sluice_tenant_refused_requests_total", tenant);
    assert_eq!(
        (refusals("flood"), refusals("other"), refusals("default")),
        (refused as f64, 0.0, 0.0)
    );
    assert_eq!(metrics.sum("sluice_tenant_unread_bytes", &[]), 0.0);

    open.send(true).unwrap();
    gateway.settled().await;
    let flood_items = ITEMS * samples_per_mib as u64;
    let other = flood_items + 5 * ITEMS;
    let expected = accounts([
        ("flood", taken * flood_items),
        ("other-0", other),
        ("other-1", other),
        ("other-2", other),
        ("other-3", other),
    ]);
    assert_eq!(gateway.tenants(SINK).await, expected);
    gateway.stop().await;
}
