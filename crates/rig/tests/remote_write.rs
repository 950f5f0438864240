//! Remote write between load and sink: exact counts where nothing goes wrong, and what goes wrong is found.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "../../loadgen/tests/prompb/mod.rs"]
mod prompb;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use prompb::{request_v1, request_v2, v1, v2};
use prost::Message;
use sluice_loadgen::{FIRST_ID, Generator, RemoteWrite, Request, Signal, Spec};
use sluice_rig::account::{AccountReport, SentIds};
use sluice_rig::control;
use sluice_rig::load::{self, Encoding, Pace, Plan, Protocol};
use sluice_rig::sink::{Check, Sink, SinkOptions};

const V2_TYPE: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

fn media_type(version: RemoteWrite) -> &'static str {
    match version {
        RemoteWrite::V1 => "application/x-protobuf",
        RemoteWrite::V2 => V2_TYPE,
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

/// 40 requests of 50 samples at an exact rate.
fn plan(sink: &Sink, protocol: Protocol) -> Plan {
    Plan {
        target: sink.http().to_string(),
        protocol,
        spec: Spec::gateway(Signal::Metrics).items(50),
        encoding: protocol.default_encoding(),
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

fn snappy(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(body).unwrap()
}

/// The answer's status, headers in lower case, and text.
struct Answer {
    status: u16,
    head: String,
    text: String,
}

impl Answer {
    fn written(&self, kind: &str) -> Option<u64> {
        let header = format!("x-prometheus-remote-write-{kind}-written: ");
        let line = self.head.lines().find_map(|line| line.strip_prefix(&header))?;
        line.parse().ok()
    }
}

/// Posts a body on a connection of its own.
fn post(to: SocketAddr, path: &str, media_type: &str, encoding: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(to).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: {media_type}\r\nContent-Encoding: {encoding}\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    Answer {
        status: head[9..12].parse().unwrap(),
        head: head.to_ascii_lowercase(),
        text: text.into(),
    }
}

fn write(sink: &Sink, version: RemoteWrite, body: &[u8]) -> Answer {
    let body = snappy(body);
    post(
        sink.http(),
        RemoteWrite::PATH,
        media_type(version),
        "snappy",
        &body,
    )
}

fn tell(sink: &Sink, requests: &[Request]) {
    let accepted = requests
        .iter()
        .map(|request| (request.first_id, request.items.into()));
    let sent = SentIds {
        signal: "metrics".into(),
        accepted: accepted.collect(),
        ..SentIds::default()
    };
    control::post_sent(&sink.control().to_string(), &sent).unwrap();
}

/// Scenario: both versions in both encodings, gauges and mixed, into sinks that check at once and later.
/// Guarantees: every sample is delivered exactly once, by id; the load takes each for accepted.
#[test]
fn every_way_is_exact() {
    for check in [Check::Now, Check::Later] {
        let sink = sink(check, "");
        let (mut lane, mut sent) = (0, 0);
        for protocol in [Protocol::RemoteWrite, Protocol::RemoteWrite2] {
            for encoding in [Encoding::Snappy, Encoding::Zstd] {
                for spec in [Spec::gateway(Signal::Metrics), Spec::mixed(Signal::Metrics)] {
                    let report = load::run(&Plan {
                        encoding,
                        lane,
                        spec: spec.items(50),
                        ..plan(&sink, protocol)
                    })
                    .unwrap();
                    lane += 4;
                    sent += 2000;
                    let case = format!("{check:?} {protocol:?} {encoding:?}: {report:?}");
                    assert_eq!((report.requests, report.accepted_items), (40, 2000), "{case}");
                    assert_eq!(report.statuses[&204], 40, "{case}");
                    let account = sink.account(Signal::Metrics);
                    assert!(account.is_exact() && account.by_id, "{case}: {account:?}");
                    assert_eq!((account.sent, account.reordered), (sent, 0), "{case}");
                }
            }
        }
        let stats = sink.stats();
        assert_eq!((stats.requests, stats.malformed), (320, 0), "{stats:?}");
    }
}

/// Scenario: a sink that only counts bytes.
/// Guarantees: both versions are accepted, 2.0 with what it wrote, and no item is accounted for.
#[test]
fn bytes_are_counted_and_2_0_is_told_what_was_written() {
    let sink = sink(Check::Bytes, "");
    for protocol in [Protocol::RemoteWrite, Protocol::RemoteWrite2] {
        let report = load::run(&Plan {
            account: None,
            ..plan(&sink, protocol)
        })
        .unwrap();
        assert_eq!(report.accepted_items, 2000, "{report:?}");
    }
    let stats = sink.stats();
    assert_eq!((stats.requests, stats.items, stats.malformed), (80, 0, 0));
    assert_eq!(sink.account(Signal::Metrics).delivered, 0);
}

/// Scenario: requests that arrive whole, with a sample taken out, twice, and not at all; beside them samples of
/// nobody's, `target_info` and parts of a histogram; then a sample with an id of no generator.
/// Guarantees: each loss and each duplicate is found by its id, later or at once; what has no id is counted
/// beside and disturbs nothing; a wrong id does.
#[test]
fn losses_and_duplicates_are_caught() {
    for check in [Check::Now, Check::Later] {
        for version in RemoteWrite::ALL {
            let sink = sink(check, "");
            let spec = Spec::gateway(Signal::Metrics).items(50);
            let requests: Vec<_> = Generator::remote_write(spec, version).take(4).collect();
            let without_seventh = match version {
                RemoteWrite::V1 => {
                    let mut request = v1::WriteRequest::decode(requests[1].body.clone()).unwrap();
                    request.timeseries.remove(7);
                    request.encode_to_vec()
                }
                RemoteWrite::V2 => {
                    let mut request = v2::Request::decode(requests[1].body.clone()).unwrap();
                    request.timeseries.remove(7);
                    request.encode_to_vec()
                }
            };
            assert_eq!(write(&sink, version, &requests[0].body).status, 204);
            assert_eq!(write(&sink, version, &without_seventh).status, 204);
            for _ in 0..2 {
                assert_eq!(write(&sink, version, &requests[2].body).status, 204);
            }
            let id = requests[0].first_id.to_string();
            let beside: [&[(&str, &str)]; 3] = [
                &[("__name__", "target_info"), ("job", "shop/cart")],
                &[("__name__", "up"), ("job", "shop/cart")],
                &[("__name__", "a_bucket"), ("le", "1"), ("sluice_id", &id)],
            ];
            let body = match version {
                RemoteWrite::V1 => request_v1(&beside).encode_to_vec(),
                RemoteWrite::V2 => request_v2(&beside).encode_to_vec(),
            };
            assert_eq!(write(&sink, version, &body).status, 204);
            tell(&sink, &requests);

            let first_lost = requests[1].first_id + 7;
            let wanted = AccountReport {
                by_id: true,
                sent: 200,
                delivered: 149,
                lost: 51,
                duplicated: 50,
                beside: 2,
                lost_runs: vec![(first_lost, 1), (requests[3].first_id, 50)],
                ..AccountReport::default()
            };
            let account = sink.account(Signal::Metrics);
            assert_eq!(account, wanted, "{check:?} {version:?}");
            assert!(!account.is_exact());

            let wrong: [&[(&str, &str)]; 1] = [&[("__name__", "a"), ("sluice_id", "7")]];
            write(&sink, RemoteWrite::V1, &request_v1(&wrong).encode_to_vec());
            assert_eq!(sink.account(Signal::Metrics).unmarked, 1);
        }
    }
}

/// Scenario: heads and bodies that no receiver may take; between them good ones, on the same path with a
/// query, without an encoding.
/// Guarantees: 415 for unknown media types and encodings, 400 with the reason for broken snappy, broken
/// protobuf and invalid series; 2.0 is told that nothing was written; all are counted as malformed, and none as
/// delivered. Good ones are 204 with exact numbers.
#[test]
fn broken_requests_are_turned_away() {
    let sink = sink(Check::Now, "");
    let request =
        Generator::remote_write(Spec::gateway(Signal::Metrics).items(9), RemoteWrite::V2).next_request();
    let good = snappy(&request.body);
    let post_2 = |encoding: &str, body: &[u8]| post(sink.http(), RemoteWrite::PATH, V2_TYPE, encoding, body);

    let mut claims_much = vec![0xff, 0xff, 0xff, 0xff, 0x0f];
    claims_much.extend_from_slice(&good);
    let nameless = snappy(&request_v2(&[&[("job", "a")]]).encode_to_vec());
    let cut = snappy(&request.body[..request.body.len() - 1]);
    let bad: [(&str, &[u8], u16, &str); 7] = [
        ("gzip", &good, 415, "use snappy or zstd"),
        ("snappy", &good[..good.len() - 1], 400, "snappy"),
        ("zstd", &good, 400, ""),
        ("snappy", &claims_much, 400, "are no request"),
        ("snappy", &request.body, 400, ""),
        ("snappy", &cut, 400, "not protobuf"),
        ("snappy", &nameless, 400, "series 0: no metric name"),
    ];
    for (encoding, body, status, text) in bad {
        let answer = post_2(encoding, body);
        assert_eq!(answer.status, status, "{encoding} {text}: {}", answer.text);
        assert!(answer.text.contains(text), "{text:?} in {:?}", answer.text);
        assert_eq!(answer.written("samples"), Some(0), "{}", answer.head);
    }
    let answer = post(sink.http(), RemoteWrite::PATH, "text/plain", "snappy", &good);
    assert_eq!((answer.status, answer.written("samples")), (415, None));
    let stats = sink.stats();
    assert_eq!((stats.malformed, stats.items), (8, 0), "{stats:?}");

    let answer = post(sink.http(), "/api/v1/write?tenant=1", V2_TYPE, "", &good);
    assert_eq!(answer.status, 204, "{}", answer.text);
    let written = ["samples", "histograms", "exemplars"].map(|kind| answer.written(kind));
    assert_eq!(written, [Some(9), Some(0), Some(0)], "{}", answer.head);
    let one = request_v1(&[&[("__name__", "a"), ("sluice.id", &FIRST_ID.to_string())]]);
    let answer = write(&sink, RemoteWrite::V1, &one.encode_to_vec());
    assert_eq!((answer.status, answer.written("samples")), (204, None));
    assert_eq!(sink.stats().items, 10);
}

/// Scenario: a sink that refuses every fourth request, resets one, loses the answer of another, and rejects part
/// of a third, for both versions; then one that answers 400.
/// Guarantees: the load sees each: what may be sent again is refused, what may not is rejected, in 2.0 as many
/// as were not written; items whose fate nobody told are not held to be lost.
#[test]
fn scripted_faults_reach_the_load() {
    for (protocol, rejected) in [(Protocol::RemoteWrite, 50), (Protocol::RemoteWrite2, 7)] {
        let faults = "every 4: status 503, retry-after 1s\nfirst 1: reset\nskip 1, first 2: lose-answer\nskip 2, first 3: partial 7";
        let sink = sink(Check::Now, faults);
        let report = load::run(&plan(&sink, protocol)).unwrap();
        assert_eq!(report.statuses[&503], 10, "{report:?}");
        assert_eq!(report.statuses[&400], 1, "{report:?}");
        assert_eq!(
            (report.refused_items, report.hinted_requests),
            (500, 10),
            "{report:?}"
        );
        assert_eq!(
            (report.unanswered_items, report.rejected_items),
            (100, rejected),
            "{report:?}"
        );
        assert_eq!(report.accepted_items, 2000 - 500 - 100 - rejected);
        let account = sink.account(Signal::Metrics);
        assert_eq!(
            (account.sent, account.lost, account.unknown),
            (2000 - 500 - 100 - 50, 0, 0),
            "{account:?}"
        );
        // Of the request whose answer was lost all, of the one partly rejected all but seven.
        assert_eq!(account.unsure_delivered, 50 + 43, "{account:?}");

        let sink = self::sink(Check::Now, "status 400");
        let report = load::run(&plan(&sink, protocol)).unwrap();
        assert_eq!(
            (report.rejected_items, report.refused_items),
            (2000, 0),
            "{report:?}"
        );
    }
}
