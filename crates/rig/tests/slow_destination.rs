//! A destination that is slow, as its script says: measured, and never faster than it should be.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sluice_loadgen::{Signal, Spec};
use sluice_rig::load::{self, Pace, Plan, Protocol};
use sluice_rig::sink::{Check, Sink, SinkOptions};

fn sink(check: Check, faults: &str) -> Sink {
    Sink::start(SinkOptions {
        check,
        faults: faults.parse().unwrap(),
        ..SinkOptions::default()
    })
    .unwrap()
}

/// A single request of 500 log records: the second one would be due after the end.
fn plan(sink: &Sink, protocol: Protocol) -> Plan {
    let address = if protocol == Protocol::Grpc {
        sink.grpc()
    } else {
        sink.http()
    };
    Plan {
        target: address.to_string(),
        protocol,
        spec: Spec::gateway(Signal::Logs),
        connections: 1,
        senders: 1,
        pace: Pace::Open {
            items_per_second: 1_000_000,
        },
        duration: Duration::from_micros(100),
        account: Some(sink.control().to_string()),
        ..Plan::default()
    }
}

/// Scenario: `delay`, a `delay` from a range, `stall` and `bandwidth`, over HTTP and gRPC, in sinks that look at bodies
/// and in those that only count their bytes.
/// Guarantees: the answer takes at least as long as the script says; nothing is lost by it.
#[test]
fn slow_destinations_take_their_time() {
    const SLOW: Duration = Duration::from_millis(200);
    const BYTES_PER_SECOND: u64 = 500_000;
    for check in [Check::Now, Check::Later, Check::Bytes] {
        for protocol in [Protocol::Http, Protocol::Grpc] {
            for fault in [
                "delay 200ms",
                "delay 200ms..210ms",
                "stall 200ms",
                "bandwidth 500KB/s",
            ] {
                let sink = sink(check, fault);
                let report = load::run(&plan(&sink, protocol)).unwrap();
                let case = format!("{check:?} {protocol:?} {fault}: {report:?}");
                assert_eq!((report.requests, report.accepted_items), (1, 500), "{case}");
                let body_bytes = sink.stats().body_bytes;
                assert!(body_bytes > 80_000, "{body_bytes} {case}");
                let expected = if fault.starts_with("bandwidth") {
                    Duration::from_secs(body_bytes) / BYTES_PER_SECOND as u32
                } else {
                    SLOW
                };
                // The load's figures are whole microseconds.
                let took = Duration::from_micros(report.latency_us.max + 1);
                assert!(took >= expected, "{took:?}, not {expected:?}: {case}");
                if check != Check::Bytes {
                    assert!(sink.account(Signal::Logs).is_exact(), "{case}");
                }
            }
        }
    }
}

/// Scenario: a client writes a body that is larger than all socket buffers to a destination that stalls.
/// Guarantees: it cannot write it before the stall is over, since nothing of the body is read; then it is answered.
#[test]
fn a_stall_reads_nothing() {
    const BODY_MIB: usize = 64;
    let sink = sink(Check::Bytes, "stall 200ms");
    let mut stream = TcpStream::connect(sink.http()).unwrap();
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
        BODY_MIB << 20
    );
    let began = Instant::now();
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![0_u8; 1 << 20];
    for _ in 0..BODY_MIB {
        stream.write_all(&piece).unwrap();
    }
    assert!(
        began.elapsed() >= Duration::from_millis(200),
        "{:?}",
        began.elapsed()
    );
    let mut status = [0; 15];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200 OK");
    assert_eq!(sink.stats().body_bytes, (BODY_MIB << 20) as u64);
}
