//! A destination that takes nothing older than some time, as Prometheus an hour behind what it has from others.

use super::*;

const TOO_OLD: &str = "400 Bad Request\r\n\r\nout of bounds";

/// An exporter of so many lanes to a destination that refuses whole requests with samples before that time, and those with series 7 for another reason. Values are times.
async fn exporter_to(oldest: f64, lanes: usize, words: &'static str) -> (RemoteWriteExporter, Arc<Seen>) {
    let (url, seen) = destination(move |_, samples| {
        let is_too_old = samples.iter().any(|(_, time)| *time < oldest);
        match samples.iter().any(|(series, _)| series == "7") {
            _ if is_too_old => words,
            true => REFUSED,
            false => TAKEN,
        }
    })
    .await;
    (exporter(&url, lanes), seen)
}

/// A batch of so many series at each of these seconds, which are the values too.
fn batch_of(seconds: std::ops::Range<u64>, series: std::ops::Range<usize>) -> Batch {
    let parts = seconds.flat_map(|second| batch_at(second, series.clone(), second as f64).parts);
    Batch {
        signal: Signal::Metrics,
        parts: parts.collect(),
    }
}

/// Scenario: right after a start a backlog of ten batches that are too old, each of eight samples of 100 series, then one of which half is, then live ones; in one lane and four. The destination says so as
/// Prometheus, Thanos and Mimir do.
/// Guarantees: what is too old is given up for some ten requests a lane and batch, without being held once; all that is not arrives, each once and in order. A bad series beside it costs itself.
#[tokio::test]
async fn a_backlog_that_is_too_old_holds_up_nothing() {
    for words in [
        TOO_OLD,
        "409 Conflict\r\n\r\nstore locally for endpoint 127.0.0.1: too old sample",
        "400 Bad Request\r\n\r\nthe sample has been rejected because its timestamp is too old (err-mimir-sample-timestamp-too-old)",
    ] {
        for lanes in [1, 4] {
            let (exporter, seen) = exporter_to(84.0, lanes, words).await;
            for batch in 0..10 {
                let batch = batch_of(batch * 8..batch * 8 + 8, 100..200);
                assert_eq!(in_part(exporter.export(&batch).await), delivered(8 * 100));
            }
            let requests = seen.requests.load(Ordering::SeqCst);
            assert!(requests <= 10 * lanes * 10, "{requests}");
            assert!(seen.taken.lock().is_empty());
            assert_eq!(
                in_part(exporter.export(&batch_of(80..88, 100..200)).await),
                delivered(4 * 100)
            );
            assert_eq!(exporter.export(&batch_of(88..92, 100..200)).await, delivered(0));
            assert_eq!(
                in_part(exporter.export(&batch_of(80..92, 0..8)).await),
                delivered(4 * 8 + 8)
            );
            let taken = seen.taken.lock();
            let all: Vec<f64> = (84..92).map(f64::from).collect();
            assert!(taken.values().all(|values| *values == all), "{taken:?}");
            assert_eq!(taken.len(), 100 + 7);
            let metrics = &exporter.0.metrics;
            assert_eq!(metrics.too_old_samples.get(), 84 * 100 + 4 * 8);
        }
    }
}

/// Scenario: an endpoint that refuses everything in words that sound alike.
/// Guarantees: it is held as before.
#[tokio::test]
async fn a_program_that_is_out_of_bounds_is_not_a_sample() {
    let words = "400 Bad Request\r\n\r\nruntime error: index out of bounds";
    let (exporter, _) = exporter_to(1e9, 1, words).await;
    let verdict = exporter.export(&batch_of(0..2, 100..200)).await;
    assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
    assert_eq!(exporter.0.metrics.too_old_samples.get(), 0);
}
