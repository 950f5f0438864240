//! Load and sink in one process: exact counts where nothing goes wrong, and what goes wrong is found.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod broken_gateway;

use std::time::Duration;

use broken_gateway::{BrokenGateway, Defect};
use sluice_loadgen::{Signal, Spec};
use sluice_rig::load::{self, Bodies, Encoding, Pace, Plan, Protocol};
use sluice_rig::sink::{Check, Sink, SinkOptions};

/// 40 requests at an exact rate.
fn plan(sink: &Sink, signal: Signal, protocol: Protocol) -> Plan {
    let address = if protocol == Protocol::Grpc {
        sink.grpc()
    } else {
        sink.http()
    };
    Plan {
        target: address.to_string(),
        protocol,
        spec: Spec::gateway(signal).items(50),
        connections: 4,
        senders: 4,
        pace: Pace::Open {
            items_per_second: 20_000,
        },
        duration: Duration::from_millis(100),
        account: Some(sink.control().to_string()),
        ..Plan::default()
    }
}

fn sink(check: Check, faults: &str) -> Sink {
    Sink::start(SinkOptions {
        check,
        faults: faults.parse().unwrap(),
        ..SinkOptions::default()
    })
    .unwrap()
}

/// Scenario: every signal over HTTP, JSON and gRPC, in every encoding, into sinks that check at once and
/// later.
/// Guarantees: exactly the requests of the rate are sent; every item is delivered exactly once, by id.
#[test]
fn every_way_is_exact() {
    for check in [Check::Now, Check::Later] {
        for protocol in [Protocol::Http, Protocol::Json, Protocol::Grpc] {
            let sink = sink(check, "");
            let mut lane = 0;
            for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
                for signal in Signal::ALL {
                    let report = load::run(&Plan {
                        encoding,
                        lane,
                        ..plan(&sink, signal, protocol)
                    })
                    .unwrap();
                    let case = format!("{check:?} {protocol:?} {encoding:?} {signal}: {report:?}");
                    assert_eq!((report.requests, report.accepted_items), (40, 2000), "{case}");
                    lane += 4;
                    let account = sink.account(signal);
                    assert!(account.is_exact() && account.by_id, "{case}: {account:?}");
                    assert_eq!(
                        account.sent,
                        u64::from(lane / 4).div_ceil(3) * 2000,
                        "{case}: {account:?}"
                    );
                    assert_eq!(account.reordered, 0, "{case}");
                }
            }
            let stats = sink.stats();
            assert_eq!((stats.requests, stats.malformed), (360, 0), "{stats:?}");
        }
    }
}

/// Scenario: requests that are sent over and over, compressed, in a closed loop.
/// Guarantees: items are counted, and the account says so.
#[test]
fn repeated_requests_are_counted() {
    let sink = sink(Check::Later, "");
    let report = load::run(&Plan {
        encoding: Encoding::Zstd,
        bodies: Bodies::Repeated(3),
        pace: Pace::Closed {
            think: (Duration::from_millis(2), Duration::from_millis(4)),
        },
        ..plan(&sink, Signal::Metrics, Protocol::Http)
    })
    .unwrap();
    assert!(report.requests > 12, "{report:?}");
    let account = sink.account(Signal::Metrics);
    assert!(!account.by_id && account.is_exact(), "{account:?}");
    assert_eq!(account.sent, report.accepted_items);
}

/// Scenario: a sink that refuses every fourth request, resets one and loses the answer of another, and
/// rejects part of a third, over HTTP and gRPC.
/// Guarantees: the load sees each, with its hint, and items whose fate nobody told are not held to be lost.
#[test]
fn scripted_faults_reach_the_load() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let faults = "every 4: status 503, retry-after 1s\nfirst 1: reset\nskip 1, first 2: lose-answer\nskip 2, first 3: partial 7";
        let sink = sink(Check::Now, faults);
        let report = load::run(&plan(&sink, Signal::Logs, protocol)).unwrap();
        let unavailable = if protocol == Protocol::Grpc { 14 } else { 503 };
        assert_eq!(report.statuses[&unavailable], 10, "{report:?}");
        assert_eq!(
            (report.refused_items, report.hinted_requests),
            (500, 10),
            "{report:?}"
        );
        assert_eq!(
            (report.unanswered_items, report.rejected_items),
            (100, 7),
            "{report:?}"
        );
        assert_eq!(report.accepted_items, 2000 - 500 - 100 - 7);
        let account = sink.account(Signal::Logs);
        assert_eq!(
            (account.sent, account.lost, account.unknown),
            (2000 - 500 - 100 - 50, 0, 0),
            "{account:?}"
        );
        // Of the request whose answer was lost all, of the one partly rejected all but seven.
        assert_eq!(account.unsure_delivered, 50 + 43, "{account:?}");
    }
}

/// Scenario: gateways between load and sink that drop one item in 10,000, duplicate a request, and send two requests in
/// the wrong order; over HTTP and gRPC, looked at at once and later.
/// Guarantees: the account finds exactly the lost ids, the duplicates and the reordering, and is not exact for the first
/// two.
#[test]
fn broken_gateways_are_caught() {
    for (check, protocol) in [
        (Check::Now, Protocol::Http),
        (Check::Later, Protocol::Http),
        (Check::Now, Protocol::Grpc),
        (Check::Later, Protocol::Grpc),
    ] {
        let through = |defect: Defect| {
            let sink = sink(check, "");
            let gateway = match protocol {
                Protocol::Grpc => BrokenGateway::grpc(sink.grpc(), defect),
                _ => BrokenGateway::http(sink.http(), defect),
            };
            let report = load::run(&Plan {
                target: gateway.address().to_string(),
                spec: Spec::gateway(Signal::Logs).items(500),
                senders: 1,
                connections: 1,
                pace: Pace::Open {
                    items_per_second: 200_000,
                },
                ..plan(&sink, Signal::Logs, protocol)
            })
            .unwrap();
            assert_eq!(report.accepted_items, 20_000);
            gateway.finish();
            sink.account(Signal::Logs)
        };
        let case = format!("{check:?} {protocol:?}");
        let account = through(Defect::None);
        assert!(
            account.is_exact() && account.reordered == 0,
            "{case}: {account:?}"
        );

        let account = through(Defect::DropItem { every: 10_000 });
        assert!(!account.is_exact());
        assert_eq!(
            (account.lost, account.delivered, account.unknown),
            (2, 19_998, 0),
            "{case}: {account:?}"
        );
        assert_eq!(account.lost_runs.len(), 2);

        let account = through(Defect::DuplicateRequest { number: 7 });
        assert!(!account.is_exact());
        assert_eq!(
            (account.duplicated, account.lost),
            (500, 0),
            "{case}: {account:?}"
        );

        let account = through(Defect::SwapRequests { number: 20 });
        assert_eq!(
            (account.reordered, account.lost, account.duplicated),
            (500, 0, 0),
            "{case}: {account:?}"
        );
        assert!(account.is_exact());
    }
}
