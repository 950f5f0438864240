//! Straight through: remote write in, and out as it came.

use std::collections::BTreeSet;

use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_tests::{Config, Gateway, Kind, Sink, post, snappy_block};

use super::{
    KILL_ROUNDS, KILL_SERIES, KILLS, V1, V2, arrived, arrived_rounds, numbers, receiving, round_of_points,
    slow_destination, write,
};

const RECEIVER: &str = "endpoint: \"127.0.0.1:0\"";

/// A body of 1.0 or 2.0 with a sample of each of so many series of `level`, of this time and value: what [`round_of_points`] is as OTLP.
pub(super) fn round_of_samples(round: u64, series: u64, content_type: &str) -> Vec<u8> {
    let field = |number: u8, value: &[u8]| -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        assert!(value.len() < 1 << 14);
        if value.len() >= 0x80 {
            out.push(value.len() as u8 | 0x80);
            out.push((value.len() >> 7) as u8);
        } else {
            out.push(value.len() as u8);
        }
        out.extend_from_slice(value);
        out
    };
    let varint = |mut value: u64| {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    let time = varint(1_790_000_000_000 + round * 1000);
    let sample = [
        &[1u8 << 3 | 1][..],
        &(round as f64).to_le_bytes(),
        &[2 << 3],
        &time[..],
    ]
    .concat();
    if content_type == V1 {
        let of = |n: u64| {
            let label = |name: &str, value: &str| {
                field(
                    1,
                    &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat(),
                )
            };
            let labels = [label("__name__", "level"), label("series", &n.to_string())].concat();
            field(1, &[labels, field(2, &sample)].concat())
        };
        return (0..series).flat_map(of).collect();
    }
    let mut symbols: Vec<u8> = ["", "__name__", "level", "series"]
        .iter()
        .flat_map(|text| field(4, text.as_bytes()))
        .collect();
    let mut all = Vec::new();
    for n in 0..series {
        symbols.extend(field(4, n.to_string().as_bytes()));
        let refs = [&[1, 2, 3][..], &varint(4 + n)].concat();
        all.extend(field(5, &[field(1, &refs), field(2, &sample)].concat()));
    }
    [symbols, all].concat()
}

/// Posts a round in one of three formats.
async fn send_round(gateway: &Gateway, round: u64) {
    let reply = match round % 3 {
        0 => {
            let body = round_of_points(round, KILL_SERIES);
            post(gateway.http(), "/v1/metrics", &[("content-type", V1)], body).await
        }
        remainder => {
            let content_type = [V1, V2][remainder as usize - 1];
            let body = snappy_block(&round_of_samples(round, KILL_SERIES, content_type));
            write(gateway, content_type, "snappy", body).await
        }
    };
    assert!([200, 204].contains(&reply.status), "{}", reply.text());
}

fn url(gateway: &Gateway) -> String {
    format!(
        "http://{}/api/v1/write",
        gateway.bound("receivers.prometheusremotewrite")
    )
}

/// Scenario: remote write of both versions to one gateway, which sends it on in each format over 16 lanes to a second one, which makes
/// OTLP of it.
/// Guarantees: every sample arrives once; both ledgers balance; the exporter drops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn both_versions_go_through() {
    for format in [
        "",
        "protobuf_message: io.prometheus.write.v2.Request, ",
        "compression: zstd, ",
    ] {
        let sink = Sink::start().await;
        let second = receiving(&sink).await;
        let config = Config::new()
            .signals(&["metrics"])
            .metrics_receiver("prometheusremotewrite", RECEIVER)
            .exporter(
                "prometheusremotewrite",
                &format!(
                    "{format}endpoint: \"{}\", remote_write_queue: {{num_consumers: 16}}, \
                     sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}",
                    url(&second)
                ),
            );
        let first = Gateway::start(&config).await;
        let mut sent = BTreeSet::new();
        for (lane, (version, content_type)) in [(RemoteWrite::V1, V1), (RemoteWrite::V2, V2)]
            .into_iter()
            .enumerate()
        {
            let spec = Spec::gateway(Signal::Metrics).lane(lane as u32);
            let mut generator = Generator::remote_write(spec, version);
            for _ in 0..5 {
                let made = generator.next_request();
                sent.extend(numbers(&made));
                let reply = write(&first, content_type, "snappy", snappy_block(&made.body)).await;
                assert_eq!(reply.status, 204, "{}", reply.text());
            }
        }
        first.settled().await;
        second.settled().await;
        let account = first.account("prometheusremotewrite").await;
        assert_eq!((account.accepted, account.delivered), (5000, 5000), "{account:?}");
        let arrived = arrived(&sink);
        assert_eq!(arrived.len(), sent.len());
        assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), sent);
        let metrics = first.metrics().await;
        assert_eq!(metrics.sum("sluice_remote_write_dropped_points_total", &[]), 0.0);
        first.stop().await;
        second.stop().await;
    }
}

/// Scenario: a gateway with its queue on disk is sent rounds of the same 200 series, in turn as OTLP, as 1.0 and as 2.0, and is killed (SIGKILL)
/// again and again on the way.
/// Guarantees: what was acknowledged arrives, whatever it came as; no sample of a series comes after a later one, but for the two
/// batches that a start may send again.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_formats() {
    let (sink, second, url) = slow_destination().await;
    let spool = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", RECEIVER)
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{url}\", remote_write_queue: {{num_consumers: 16}}, sending_queue: {{storage: file_storage, \
                 batch: {{flush_timeout: 5ms, min_size: {KILL_SERIES}, max_size: {KILL_SERIES}}}}}"
            ),
        );
    let mut first = Gateway::start(&config).await;
    let end = KILL_ROUNDS * (KILLS + 1);
    for round in 0..end {
        if round > 0 && round % KILL_ROUNDS == 0 {
            first.kill().await;
            first = Gateway::start(&config).await;
        }
        send_round(&first, round).await;
    }
    first.settled().await;
    second.settled().await;
    let arrived = arrived_rounds(&sink);
    assert_eq!(arrived.len() as u64, KILL_SERIES);
    for (series, rounds) in &arrived {
        let mut next = 0;
        for round in rounds {
            assert!(*round <= next && next - round <= 2, "{series}: {rounds:?}");
            next = round + 1;
        }
        assert_eq!(next, end, "{series}");
    }
    first.stop().await;
    second.stop().await;
}

/// Scenario: a destination that is down while remote write comes to a queue on disk; then the gateway is started again with an OTLP
/// exporter beside it in the pipeline, the destination is up, and more remote write comes.
/// Guarantees: what waited goes straight to its destination; what comes now goes to both, to the new exporter as OTLP; `journal export` makes
/// OTLP of what is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_no_longer_straight() {
    let spool = tempfile::tempdir().unwrap();
    let storage = format!("directory: {}", spool.path().display());
    let straight = |url: &str| {
        Config::new()
            .signals(&["metrics"])
            .metrics_receiver("prometheusremotewrite", RECEIVER)
            .extension("file_storage", &storage)
            .exporter(
                "prometheusremotewrite",
                &format!("endpoint: \"{url}\", sending_queue: {{storage: file_storage, batch: {{flush_timeout: 5ms}}}}"),
            )
    };
    let mut generator = Generator::remote_write(Spec::gateway(Signal::Metrics).items(20), RemoteWrite::V2);
    let [before, after] = [(); 2].map(|()| generator.next_request());

    let first = Gateway::start(&straight("http://127.0.0.1:9/api/v1/write")).await;
    let reply = write(&first, V2, "snappy", snappy_block(&before.body)).await;
    assert_eq!(reply.status, 204, "{}", reply.text());
    first.kill().await;

    let directory = spool.path().display().to_string();
    let (code, exported, said) = Gateway::command(&["journal", "export", &directory]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 requests with 20 items; 0 refused"), "{said}");
    assert!(exported.contains("resourceMetrics"), "{exported}");

    let (sink, beside) = (Sink::start().await, Sink::start().await);
    let second = receiving(&sink).await;
    let mixed =
        straight(&url(&second)).http_exporter("beside", &beside, "sending_queue: {storage: file_storage}");
    let first = Gateway::start(&mixed).await;
    let reply = write(&first, V2, "snappy", snappy_block(&after.body)).await;
    assert_eq!(reply.status, 204, "{}", reply.text());
    first.settled().await;
    second.settled().await;
    let both: BTreeSet<u64> = numbers(&before).union(&numbers(&after)).copied().collect();
    assert_eq!(arrived(&sink).into_iter().collect::<BTreeSet<_>>(), both);
    beside.wait_for(Kind::Metrics, 20).await;
    assert_eq!(
        arrived(&beside).into_iter().collect::<BTreeSet<_>>(),
        numbers(&after)
    );
    first.stop().await;
    second.stop().await;
}

/// Scenario: a small request of 2.0 that becomes a gigabyte where its texts are written out; one of labels without samples; one of a single
/// series with five million samples; each with a last series that no receiver may take.
/// Guarantees: 413 before anything of it is read or written out (reading it all is 400), straight or not; the gateway takes the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_request_that_becomes_a_large_one() {
    let sink = Sink::start().await;
    let second = receiving(&sink).await;
    let config = Config::new()
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", RECEIVER)
        .exporter(
            "prometheusremotewrite",
            &format!("endpoint: \"{}\"", url(&second)),
        );
    let first = Gateway::start(&config).await;
    let mut symbols = b"\x22\x00\x22\x08__name__\x22\x80\x80\x40".to_vec();
    symbols.resize(symbols.len() + (1 << 20), b'a');
    let samples = 5_000_000;
    let mut many = b"\x2a\x84\xad\xe2\x04\x0a\x02\x01\x02".to_vec();
    many.extend(b"\x12\x00".repeat(samples));
    let bodies = [
        // A thousand series with that name and a sample.
        [&symbols[..], &b"\x2a\x06\x0a\x02\x01\x02\x12\x00".repeat(1000)].concat(),
        [&symbols[..], &b"\x2a\x04\x0a\x02\x01\x02".repeat(1000)].concat(),
        [b"\x22\x00\x22\x08__name__\x22\x01a".to_vec(), many].concat(),
    ];
    for (gateway, body) in [&first, &second]
        .into_iter()
        .flat_map(|one| bodies.iter().map(move |body| (one, body)))
    {
        let with_a_bad_one = [&body[..], b"\x2a\x02\x12\x00"].concat();
        let reply = write(gateway, V2, "snappy", snappy_block(&with_a_bad_one)).await;
        assert_eq!(reply.status, 413, "{}", reply.text());
        let good =
            Generator::remote_write(Spec::gateway(Signal::Metrics).items(5), RemoteWrite::V2).next_request();
        let reply = write(gateway, V2, "snappy", snappy_block(&good.body)).await;
        assert_eq!(reply.status, 204, "{}", reply.text());
    }
    first.settled().await;
    first.stop().await;
    second.stop().await;
}

/// Scenario: a request of one exemplar in a series without samples, and one of metadata alone, straight and not.
/// Guarantees: both are requests that were taken in, as metrics say; the exemplar is counted as left out, once.
#[tokio::test(flavor = "multi_thread")]
async fn requests_without_samples_are_counted() {
    let sink = Sink::start().await;
    let second = receiving(&sink).await;
    let config = Config::new()
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", RECEIVER)
        .exporter(
            "prometheusremotewrite",
            &format!("endpoint: \"{}\"", url(&second)),
        );
    let first = Gateway::start(&config).await;
    let exemplar = b"\x0a\x13\x0a\x0d\x0a\x08__name__\x12\x01a\x1a\x02\x18\x01";
    let metadata = b"\x1a\x05\x08\x01\x12\x01a";
    for gateway in [&first, &second] {
        for body in [&exemplar[..], metadata] {
            let reply = write(gateway, V1, "snappy", snappy_block(body)).await;
            assert_eq!(reply.status, 204, "{}", reply.text());
        }
        let metrics = gateway.metrics().await;
        for (name, want) in [
            ("sluice_receiver_accepted_requests_total", 2.0),
            ("sluice_receiver_accepted_items_total", 0.0),
            ("sluice_remote_write_left_out_exemplars_total", 1.0),
        ] {
            assert_eq!(
                metrics.sum(name, &["receiver=\"prometheusremotewrite\""]),
                want,
                "{name}"
            );
        }
    }
    first.stop().await;
    second.stop().await;
}

/// Scenario: a request of 2.0 with a sample and a native histogram of two and a half observations, to a receiver that makes OTLP of it and to one that
/// passes it on; and one of the histogram alone.
/// Guarantees: the sample is taken by both, and 2.0's headers say so; where it has to be OTLP the histogram is left out, counted and answered with 400.
#[tokio::test(flavor = "multi_thread")]
async fn a_histogram_that_otlp_cannot_say_costs_nothing_else() {
    let sink = Sink::start().await;
    let second = receiving(&sink).await;
    let config = Config::new()
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", RECEIVER)
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{}\", protobuf_message: io.prometheus.write.v2.Request",
                url(&second)
            ),
        );
    let first = Gateway::start(&config).await;
    let symbols = b"\x22\x00\x22\x08__name__\x22\x01a".to_vec();
    let sample = b"\x2a\x09\x0a\x02\x01\x02\x12\x03\x10\xe8\x07".to_vec();
    // count_float, a span of a bucket, its count, the time.
    let mut histogram = [
        &[2 << 3 | 1][..],
        &2.5f64.to_le_bytes(),
        &[11 << 3 | 2, 2, 2 << 3, 1],
    ]
    .concat();
    histogram.extend(
        [
            &[13 << 3 | 2, 8][..],
            &2.5f64.to_le_bytes(),
            &[15 << 3, 0xe8, 0x07],
        ]
        .concat(),
    );
    let mut series = vec![
        0x2a,
        histogram.len() as u8 + 6,
        0x0a,
        2,
        1,
        2,
        3 << 3 | 2,
        histogram.len() as u8,
    ];
    series.extend(histogram);
    let both = [&symbols[..], &sample, &series].concat();
    let alone = [&symbols[..], &series].concat();
    let written = |reply: &sluice_tests::Reply| {
        ["samples", "histograms"].map(|what| {
            let header = format!("x-prometheus-remote-write-{what}-written");
            reply.header(&header).unwrap().to_owned()
        })
    };
    for (body, samples) in [(&both, "1"), (&alone, "0")] {
        let reply = write(&second, V2, "snappy", snappy_block(body)).await;
        assert_eq!(reply.status, 400);
        assert!(
            reply.text().contains("native histograms left out: 1;"),
            "{}",
            reply.text()
        );
        assert_eq!(written(&reply), [samples, "0"]);
    }
    second.settled().await;
    assert_eq!(second.account("otlphttp/sink").await.accepted, 1);
    let metrics = second.metrics().await;
    assert_eq!(
        metrics.sum("sluice_remote_write_left_out_histograms_total", &[]),
        2.0
    );
    let reply = write(&first, V2, "snappy", snappy_block(&both)).await;
    assert_eq!(
        (reply.status, written(&reply)),
        (204, ["1".to_owned(), "1".to_owned()])
    );
    first.stop().await;
    second.stop().await;
}
