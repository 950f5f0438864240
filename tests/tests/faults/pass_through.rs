//! Compressed frames that are sent on as they came.

use sluice_tests::{
    Answer, Config, Gateway, Kind, Sink, frame, grpc_call, gzipped, items_of, post, sample, zstd,
};

use crate::ITEMS;

/// Samples in a request: enough of them for its frame to be worth passing on.
const SAMPLES: u64 = 10;

/// A batch is everything that came within half a second.
const MERGING: &str = "sending_queue: {batch: {flush_timeout: 500ms, min_size: 1000000}}";

/// A large request, and how it looks compressed.
fn request(kind: Kind, seed: u64, encoding: &str) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..SAMPLES)
        .flat_map(|n| sample(kind, seed * SAMPLES + n))
        .collect();
    assert!(body.len() > 16 << 10);
    let packed = if encoding == "zstd" {
        zstd(&body)
    } else {
        gzipped(&body)
    };
    (body, packed)
}

async fn send(gateway: &Gateway, kind: Kind, packed: &[u8], encoding: &str, grpc: bool) {
    if grpc {
        let headers = [("grpc-encoding", encoding)];
        let reply = grpc_call(gateway.grpc(), kind.grpc_path(), &headers, frame(1, packed)).await;
        assert_eq!(reply.code(), 0, "{reply:?}");
    } else {
        let headers = [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", encoding),
        ];
        let reply = post(gateway.http(), kind.http_path(), &headers, packed.to_vec()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

/// Scenario: `passthrough: always`; compressed and plain requests are merged into one batch. Both
/// transports, both encodings.
/// Guarantees: the frames arrive bit by bit as they were sent, the rest compressed here, every item once.
#[tokio::test(flavor = "multi_thread")]
async fn frames_arrive_as_they_were_sent() {
    for (grpc, encoding) in [(false, "zstd"), (false, "gzip"), (true, "zstd"), (true, "gzip")] {
        let sink = Sink::start().await;
        let more = format!("compression: {encoding}, passthrough: always, {MERGING}");
        let config = match grpc {
            true => Config::new().grpc_exporter("sink", &sink, &more),
            false => Config::new().http_exporter("sink", &sink, &more),
        };
        let gateway = Gateway::start(&config).await;
        let kind = Kind::Logs;
        let (first, packed) = request(kind, 1, encoding);
        send(&gateway, kind, &packed, encoding, grpc).await;
        let mut sent = vec![first, sample(kind, 100)];
        let headers = [("content-type", "application/x-protobuf")];
        post(gateway.http(), kind.http_path(), &headers, sent[1].clone()).await;
        let (last, packed_last) = request(kind, 2, encoding);
        send(&gateway, kind, &packed_last, encoding, grpc).await;
        sent.push(last);
        sink.wait_for_same(kind, &sent).await;
        for frame in [&packed, &packed_last] {
            let found = |wire: &[u8]| wire.windows(frame.len()).any(|window| window == &frame[..]);
            assert!(
                sink.taken().iter().any(|arrived| found(&arrived.wire)),
                "{encoding} {grpc}"
            );
        }
        gateway.settled().await;
        gateway.stop().await;
    }
}

/// Scenario: `passthrough: probe` towards another gateway, over both transports.
/// Guarantees: the probe shows that it reads every frame; what is passed through arrives, each item once; the
/// probe itself delivers nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_tells_a_reader_of_all_frames() {
    for grpc in [false, true] {
        let sink = Sink::start().await;
        let second = Gateway::start(&Config::to(&sink)).await;
        let (id, endpoint) = match grpc {
            true => (
                "otlp/next",
                format!("endpoint: http://{}, tls: {{insecure: true}}", second.grpc()),
            ),
            false => ("otlphttp/next", format!("endpoint: http://{}", second.http())),
        };
        let settings = format!("{endpoint}, compression: zstd, passthrough: probe, {MERGING}");
        let first = Gateway::start(&Config::new().exporter(id, &settings)).await;
        let kind = Kind::Traces;
        let mut sent = Vec::new();
        for seed in 0..3 {
            let (body, packed) = request(kind, seed, "zstd");
            send(&first, kind, &packed, "zstd", grpc).await;
            sent.push(body);
        }
        first.says("reads every frame of a body").await;
        sink.wait_for_same(kind, &sent).await;
        first.settled().await;
        let account = first.account(id).await;
        assert_eq!(account.delivered, 3 * SAMPLES * ITEMS as u64, "{account:?}");
        first.stop().await;
        second.stop().await;
    }
}

/// Scenario: `passthrough: probe` towards a destination that answers everything with 200, as one does that
/// stops reading after the first frame; and `always` towards one that refuses laid-together frames.
/// Guarantees: the former gets nothing passed through; the latter gets the batch compressed here, before any
/// payload is blamed; nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_on_gets_one_frame() {
    let sink = Sink::start().await;
    let config = Config::new().http_exporter("sink", &sink, "compression: zstd, passthrough: probe");
    let gateway = Gateway::start(&config).await;
    let (body, packed) = request(Kind::Logs, 1, "zstd");
    send(&gateway, Kind::Logs, &packed, "zstd", false).await;
    gateway.says("reads only the first frame").await;
    sink.wait_for_same(Kind::Logs, std::slice::from_ref(&body)).await;
    assert!(sink.taken().iter().all(|arrived| arrived.wire != packed));
    gateway.stop().await;

    let sink = Sink::start().await;
    let passed = packed.clone();
    sink.answer(move |arrived| match arrived.wire == passed {
        true => Answer::Http(400, None),
        false => Answer::Take,
    });
    let config = Config::new().http_exporter("sink", &sink, "compression: zstd, passthrough: always");
    let gateway = Gateway::start(&config).await;
    send(&gateway, Kind::Logs, &packed, "zstd", false).await;
    sink.wait_for_same(Kind::Logs, std::slice::from_ref(&body)).await;
    gateway.settled().await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(
        account.delivered,
        items_of(Kind::Logs, &body).len() as u64,
        "{account:?}"
    );
    assert!(account.dropped.is_empty(), "{account:?}");
    gateway.stop().await;
}
