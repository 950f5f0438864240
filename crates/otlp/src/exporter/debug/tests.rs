use bytes::Bytes;
use sluice_payload::{Signal, WireFormat};
use sluice_pipeline::Part;

use super::*;
use crate::json::{JsonOptions, decode};

/// A batch of one part, from OTLP/JSON.
fn batch(signal: Signal, items: u64, text: &str) -> Batch {
    let body = decode(
        request_schema(kind(signal)),
        text.as_bytes(),
        JsonOptions::default(),
    )
    .expect("OTLP/JSON");
    Batch {
        signal,
        parts: vec![Part {
            body: body.into(),
            items,
            wire_format: WireFormat::Otlp,
            frame: None,
        }],
    }
}

fn text(batch: &Batch, verbosity: Verbosity) -> String {
    let mut out = Vec::new();
    describe(batch, verbosity, &mut out);
    String::from_utf8(out).expect("text is UTF-8")
}

fn spans() -> Batch {
    batch(
        Signal::Traces,
        1,
        r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
        "scopeSpans":[{"scope":{"name":"lib","version":"1"},"spans":[{"traceId":"5b8efff798038103d269b633813fc60c",
        "spanId":"eee19b7ec3c1b174","name":"a \u001b[31mred\nline","kind":2,"startTimeUnixNano":"1544712660000000000",
        "attributes":[{"key":"n","value":{"intValue":"-5"}},
            {"key":"list","value":{"arrayValue":{"values":[{"boolValue":true},{"stringValue":"x y"}]}}},
            {"key":"map","value":{"kvlistValue":{"values":[{"key":"k","value":{"doubleValue":0.5}}]}}}]}]}]}]}"#,
    )
}

/// Scenario: a span with control characters in its name, nested attributes and a resource, at each verbosity.
/// Guarantees: counts, one line per item, and every field; nothing of the telemetry is written unescaped.
#[test]
fn spans_are_told_at_each_verbosity() {
    let counts = "Traces\t{\"resource spans\": 1, \"spans\": 1}\n";
    assert_eq!(text(&spans(), Verbosity::Basic), counts);
    let normal = concat!(
        "resource_spans #0 service.name=shop\n",
        "scope_spans #0 lib 1\n",
        r#""a \u001b[31mred\nline" 5b8efff798038103d269b633813fc60c eee19b7ec3c1b174"#,
        r#" n=-5 list=[true, "x y"] map={"k": 0.5}"#,
        "\n",
    );
    assert_eq!(text(&spans(), Verbosity::Normal), format!("{counts}{normal}"));
    let detailed = r#"resource_spans #0
    resource:
        attributes:
             -> "service.name": "shop"
    scope_spans #0
        scope:
            name: "lib"
            version: "1"
        spans #0
            trace_id: "5b8efff798038103d269b633813fc60c"
            span_id: "eee19b7ec3c1b174"
            name: "a \u001b[31mred\nline"
            kind: SPAN_KIND_SERVER (2)
            start_time_unix_nano: 1544712660000000000 (2018-12-13T14:51:00.000000000Z)
            attributes:
                 -> "n": -5
                 -> "list": [true, "x y"]
                 -> "map": {"k": 0.5}
"#;
    assert_eq!(text(&spans(), Verbosity::Detailed), format!("{counts}{detailed}"));
}

/// Scenario: a gauge, a histogram and an exponential histogram; a log record.
/// Guarantees: each data point and record is one line with its values.
#[test]
fn points_and_records_are_one_line_each() {
    let metrics = batch(
        Signal::Metrics,
        3,
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
        {"name":"g","gauge":{"dataPoints":[{"timeUnixNano":"5","asInt":"7","attributes":[
            {"key":"a","value":{"stringValue":"b"}},{"key":"c","value":{"stringValue":""}}]}]}},
        {"name":"h","histogram":{"dataPoints":[{"count":"3","sum":1.5,"bucketCounts":["1","2"],"explicitBounds":[0.5]}]}},
        {"name":"e","exponentialHistogram":{"dataPoints":[{"count":"3","scale":-1,"positive":{"offset":1,"bucketCounts":[3]}}]}}
        ]}]}]}"#,
    );
    let expected = concat!(
        "Metrics\t{\"resource metrics\": 1, \"metrics\": 3, \"data points\": 3}\n",
        "resource_metrics #0\nscope_metrics #0\n",
        "g{a=b,c=\"\"} 7\n",
        "h{} count=3 sum=1.5 bucket_counts=[1 2] explicit_bounds=[0.5]\n",
        "e{} count=3 scale=-1 positive(offset=1 bucket_counts=[3])\n",
    );
    assert_eq!(text(&metrics, Verbosity::Normal), expected);
    let logs = batch(
        Signal::Logs,
        1,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO","body":{"stringValue":"hello there"}}]}]}]}"#,
    );
    let expected = concat!(
        "Logs\t{\"resource logs\": 1, \"log records\": 1}\n",
        "resource_logs #0\nscope_logs #0\nINFO \"hello there\"\n",
    );
    assert_eq!(text(&logs, Verbosity::Normal), expected);
}

/// Scenario: unknown fields, a foreign wire type, and bytes that are no protobuf.
/// Guarantees: the dump says so and goes on or ends; nothing panics.
#[test]
fn oddities_are_told() {
    let mut body = spans().parts[0].body.to_vec();
    body.extend([0x9a, 0x3e, 2, 1, 2, 0x08, 5, 0x0a, 99]);
    let batch = Batch {
        signal: Signal::Traces,
        parts: vec![Part {
            body: Bytes::from(body),
            items: 1,
            wire_format: WireFormat::Otlp,
            frame: None,
        }],
    };
    let said = text(&batch, Verbosity::Detailed);
    assert!(said.contains("(unknown field 995, 2 bytes)\n"), "{said}");
    assert!(
        said.contains("resource_spans: (a wire type that does not belong to the field)\n"),
        "{said}"
    );
    assert!(said.ends_with("(the rest is no protobuf message)\n"), "{said}");
    assert!(text(&batch, Verbosity::Normal).contains("eee19b7ec3c1b174"));
}

/// Scenario: five batches in one second and one in the next, with two initial ones and each second one after.
/// Guarantees: the first two, the fourth, and the first of the next second are written.
#[test]
fn sampling_counts_by_the_second() {
    let start = Instant::now();
    let mut sampler = Sampler {
        initial: 2,
        thereafter: 2,
        second: None,
    };
    let taken: Vec<bool> = (0..5)
        .map(|tenth| sampler.takes(start + Duration::from_millis(100 * tenth)))
        .collect();
    assert_eq!(taken, [true, true, false, true, false]);
    assert!(sampler.takes(start + Duration::from_secs(1)));
    let mut sampler = Sampler {
        initial: 0,
        thereafter: 0,
        second: None,
    };
    assert!(!sampler.takes(start));
}

/// Scenario: a batch is exported to a buffer, and to a pipe whose reader is gone.
/// Guarantees: the text arrives; a broken output does not hold up the pipeline.
#[test]
fn a_broken_output_holds_up_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let options = DebugExporterOptions {
        verbosity: Verbosity::Basic,
        sampling_initial: 2,
        sampling_thereafter: 1,
    };
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let exporter = DebugExporter::new(options, Box::new(writer));
    let delivered = Verdict::Delivered {
        rejected: 0,
        message: None,
    };
    assert_eq!(
        runtime.block_on(async { exporter.export(&spans()).await }),
        delivered
    );
    let mut line = [0; 7];
    std::io::Read::read_exact(&mut reader, &mut line).expect("the text");
    assert_eq!(&line, b"Traces\t");
    drop(reader);
    assert_eq!(
        runtime.block_on(async { exporter.export(&spans()).await }),
        delivered
    );
}

/// An output that takes nothing until it is told to, and says when it is asked.
struct Stalling {
    asked: tokio::sync::mpsc::UnboundedSender<usize>,
    goes_on: std::sync::mpsc::Receiver<()>,
}

impl Write for Stalling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.asked.send(bytes.len()).expect("the test listens");
        self.goes_on.recv().expect("the test is there");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Scenario: an output stands still while one batch is written; more come; then it goes on, and another comes.
/// Guarantees: the first holds up the pipeline for a moment, the next do not and are not written; the last one is.
#[tokio::test(start_paused = true)]
async fn an_output_that_stands_still_holds_up_nothing() {
    let (ask, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let options = DebugExporterOptions {
        verbosity: Verbosity::Basic,
        sampling_initial: 100,
        sampling_thereafter: 1,
    };
    let exporter = Arc::new(DebugExporter::new(
        options,
        Box::new(Stalling { asked: ask, goes_on }),
    ));
    let export = || {
        let exporter = exporter.clone();
        tokio::spawn(async move { exporter.export(&spans()).await })
    };
    let first = export();
    let bytes = asked.recv().await.expect("a write");
    tokio::time::advance(LONGEST_WRITE).await;
    first.await.expect("it is passed on");
    for _ in 0..3 {
        export().await.expect("it is passed on");
    }
    go_on.send(()).expect("the output waits");
    while exporter.shared.is_stalled.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    go_on.send(()).expect("the output is there");
    export().await.expect("it is written");
    assert_eq!((asked.try_recv(), asked.try_recv().is_err()), (Ok(bytes), true));
}

/// Scenario: a write ends just before its time is over, so that the output is called stalled after it.
/// Guarantees: the next batch is written.
#[tokio::test]
async fn a_write_that_ends_in_its_last_moment_silences_nothing() {
    let (ask, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, goes_on) = std::sync::mpsc::channel();
    let options = DebugExporterOptions {
        verbosity: Verbosity::Basic,
        sampling_initial: 100,
        sampling_thereafter: 1,
    };
    let exporter = DebugExporter::new(options, Box::new(Stalling { asked: ask, goes_on }));
    exporter.shared.is_stalled.store(true, Ordering::Relaxed);
    go_on.send(()).expect("the output is there");
    exporter.export(&spans()).await;
    assert!(asked.try_recv().is_ok());
    assert!(!exporter.shared.is_stalled.load(Ordering::Relaxed));
}
