//! Batches that run ahead of each other, on a paused clock.

use sluice_client::EgressPool;
use tokio::task::JoinHandle;

use super::*;

/// Endpoints that answer as `judge` says, after some time, and note what they take.
pub(super) struct Judged<J> {
    pub judge: J,
    pub seen: Seen,
}

impl<J> std::fmt::Debug for Judged<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.seen.fmt(f)
    }
}

/// An answer with this status.
pub(super) fn answer(status: u16) -> Answer {
    Answer {
        status: http::StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        cut: false,
        trailers: None,
    }
}

impl<J: Fn(&[(String, f64)]) -> (Duration, u16) + Send + Sync> Scripted for Judged<J> {
    fn answer<'a>(
        &'a self,
        _: &'a str,
        body: &'a Body,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>> {
        Box::pin(async move {
            let mut samples = Vec::new();
            each_series(body.format.version(), &body.plain().unwrap(), |series| {
                samples.extend(
                    series
                        .samples
                        .iter()
                        .map(|one| (series.label("n").to_owned(), one.value)),
                );
                Ok(())
            })
            .unwrap();
            self.seen.requests.fetch_add(1, Ordering::SeqCst);
            let (after, status) = (self.judge)(&samples);
            tokio::time::sleep(after).await;
            if status == 204 {
                let mut taken = self.seen.taken.lock();
                for (series, value) in samples {
                    taken.entry(series).or_default().push(value);
                }
            }
            Ok(answer(status))
        })
    }
}

/// An exporter to one endpoint that answers as `judge` says, and has answered so often that each lane has a turn.
async fn judged(
    lanes: usize,
    room_bytes: u64,
    judge: impl Fn(&[(String, f64)]) -> (Duration, u16) + Send + Sync + 'static,
) -> (
    RemoteWriteExporter,
    Arc<Judged<impl Fn(&[(String, f64)]) -> (Duration, u16) + Send + Sync>>,
) {
    let mut options = RemoteWriteExporterOptions {
        endpoint: "http://a/".to_owned(),
        egress: EgressPool::new(room_bytes),
        ..Default::default()
    };
    options.encoder.lanes = lanes;
    options.encoder.mapping.delta_to_cumulative = true;
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let judged = Arc::new(Judged {
        judge,
        seen: Seen::default(),
    });
    exporter.0.scripted.set(judged.clone()).unwrap();
    for _ in 0..30 {
        assert_eq!(exporter.export(&batch(0..40, 0.0)).await, delivered(0));
    }
    judged.seen.taken.lock().clear();
    (exporter, judged)
}

/// Exports a batch as its delivery does: until it is done.
fn exporting(exporter: &RemoteWriteExporter, batch: Batch, turn: Turn) -> JoinHandle<Verdict> {
    let exporter = exporter.clone();
    tokio::spawn(async move {
        loop {
            let verdict = exporter.export_in_turn(&batch, turn).await;
            if let Verdict::Retry { after, .. } = &verdict {
                tokio::time::sleep(after.unwrap_or(Duration::from_secs(1))).await;
                continue;
            }
            if matches!(verdict, Verdict::Delivered { .. } | Verdict::InPart { .. }) {
                exporter.ends(turn, Ending::Settled);
            }
            return verdict;
        }
    })
}

/// So many batches of the same series, made ready and exported.
async fn export_all(exporter: &RemoteWriteExporter, batches: Vec<Batch>) -> Vec<(Turn, JoinHandle<Verdict>)> {
    let mut turn = Turn::first();
    let mut all = Vec::new();
    for batch in batches {
        turn = turn.next();
        exporter.prepare(&batch, turn).await;
        all.push((turn, exporting(exporter, batch, turn)));
    }
    all
}

const QUICK: Duration = Duration::from_millis(100);

/// The series in the lane of this one, of so many.
pub(super) fn in_lane_of(series: usize, lanes: usize, of: usize) -> Vec<String> {
    let (encoded, _) = Encoder::new(EncoderSettings {
        lanes,
        ..EncoderSettings::default()
    })
    .encode(&[&batch(0..of, 0.0).parts[0].body]);
    let names = |bodies: &Vec<Body>| {
        let mut names = Vec::new();
        for body in bodies {
            each_series(body.format.version(), &body.plain().unwrap(), |one| {
                names.push(one.label("n").to_owned());
                Ok(())
            })
            .unwrap();
        }
        names
    };
    let lanes = encoded.iter().map(names);
    lanes
        .into_iter()
        .find(|names| names.contains(&series.to_string()))
        .unwrap()
}

/// Scenario: four batches of 40 series over four lanes; the endpoint does not answer the first request with one of them for a minute, and then with 503.
/// Guarantees: the other lanes' samples of all four batches are taken within a second; those of that lane come when it is taken, in order, each once.
#[tokio::test(start_paused = true)]
async fn a_lane_that_stalls_stops_no_other() {
    const STALL: Duration = Duration::from_secs(60);
    let stalls = AtomicUsize::new(0);
    let (exporter, judged) = judged(4, u64::MAX, move |samples| {
        let has_it = samples.iter().any(|(n, value)| n == "7" && *value > 0.0);
        match has_it && stalls.fetch_add(1, Ordering::SeqCst) == 0 {
            true => (STALL, 503),
            false => (QUICK, 204),
        }
    })
    .await;
    let batches = (1..=4).map(|round| batch(0..40, f64::from(round))).collect();
    let all = export_all(&exporter, batches).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stalled = in_lane_of(7, 4, 40);
    let want = [1.0, 2.0, 3.0, 4.0];
    {
        let taken = judged.seen.taken.lock();
        assert_eq!(taken.len(), 40 - stalled.len());
        assert!(taken.values().all(|values| *values == want), "{taken:?}");
    }
    assert!(all.iter().all(|(_, exporting)| !exporting.is_finished()));
    tokio::time::sleep(STALL).await;
    for (_, exporting) in all {
        assert_eq!(exporting.await.unwrap(), delivered(0));
    }
    let taken = judged.seen.taken.lock();
    assert!(taken.len() == 40 && taken.values().all(|values| *values == want));
    assert!(exporter.0.kept.lock().is_empty());
}

/// Scenario: three batches; one lane of the first is refused until it ends: given up by the pipeline, or left for the next process.
/// Guarantees: given up, its lanes are free and the others are delivered; left, nothing passes it, and who waits for it is told.
#[tokio::test(start_paused = true)]
async fn what_ends_frees_its_lanes_and_what_is_left_does_not() {
    for ending in [Ending::Settled, Ending::Left] {
        let (exporter, judged) = judged(4, u64::MAX, |samples| {
            match samples.iter().any(|(n, value)| n == "7" && *value == 1.0) {
                true => (QUICK, 503),
                false => (QUICK, 204),
            }
        })
        .await;
        let batches = (1..=3).map(|round| batch(0..40, f64::from(round))).collect();
        let mut all = export_all(&exporter, batches).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (turn, first) = all.remove(0);
        first.abort();
        let _ = first.await;
        exporter.ends(turn, ending);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let stalled = in_lane_of(7, 4, 40);
        let taken = judged.seen.taken.lock().clone();
        for (series, values) in &taken {
            let want: &[f64] = match stalled.contains(series) {
                true => &[2.0, 3.0],
                false => &[1.0, 2.0, 3.0],
            };
            assert_eq!(values, want, "{series}");
        }
        let is_left = ending == Ending::Left;
        assert_eq!(taken.len(), if is_left { 40 - stalled.len() } else { 40 });
        for (turn, exporting) in all {
            assert_eq!(exporting.is_finished(), !is_left);
            exporting.abort();
            let _ = exporting.await;
            if is_left {
                // At once: it would be cut off otherwise.
                let verdict = exporter.export_in_turn(&batch(0..40, 2.0), turn).await;
                assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
            }
        }
    }
}

/// Scenario: deltas of three batches, with room for one body: the second and third cannot be made ready while the first stands, but the third could when the
/// first has gone; and the first is refused as a whole and comes in pieces.
/// Guarantees: totals are exact and in order, whatever is encoded when.
#[tokio::test(start_paused = true)]
async fn totals_are_added_up_in_the_order_of_batches() {
    for room_bytes in [1, u64::MAX] {
        let refuses = Arc::new(AtomicUsize::new(1));
        let is_refusing = refuses.clone();
        let (exporter, judged) = judged(2, room_bytes, move |samples| {
            let is_first = samples.iter().any(|(_, value)| *value == 1.0 || *value == 3.0);
            match is_first && is_refusing.load(Ordering::SeqCst) == 1 {
                true => (QUICK, 400),
                false => (QUICK, 204),
            }
        })
        .await;
        let pieces = [deltas(0..40, 1, 1.0), deltas(0..40, 2, 2.0)];
        let mut both = pieces[0].clone();
        both.parts.extend(pieces[1].parts.clone());
        let batches = vec![both, deltas(0..40, 3, 4.0), deltas(0..40, 4, 8.0)];
        let mut all = export_all(&exporter, batches).await;
        let (turn, first) = all.remove(0);
        let verdict = first.await.unwrap();
        assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{verdict:?}");
        refuses.store(0, Ordering::SeqCst);
        for piece in &pieces {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(exporter.export_in_turn(piece, turn).await, delivered(0));
        }
        assert!(all.iter().all(|(_, exporting)| !exporting.is_finished()));
        exporter.ends(turn, Ending::Settled);
        for (_, exporting) in all {
            assert_eq!(exporting.await.unwrap(), delivered(0));
        }
        let taken = judged.seen.taken.lock();
        assert!(
            taken.len() == 40 && taken.values().all(|values| *values == [1.0, 3.0, 7.0, 15.0]),
            "{taken:?}"
        );
    }
}

/// Scenario: an endpoint that has taken nothing yet; three batches of one series each, in lanes of their own.
/// Guarantees: one of them asks, and the others wait until something is taken.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_new_is_asked_by_one_batch() {
    let options = || {
        let mut options = RemoteWriteExporterOptions {
            endpoint: "http://a/".to_owned(),
            ..Default::default()
        };
        options.encoder.lanes = 16;
        options
    };
    let exporter = RemoteWriteExporter::new("rw", options(), &Registry::default()).unwrap();
    let judged = Arc::new(Judged {
        judge: |_: &[(String, f64)]| (QUICK, 400u16),
        seen: Seen::default(),
    });
    exporter.0.scripted.set(judged.clone()).unwrap();
    let all = export_all(&exporter, (0..3).map(|n| batch(n..n + 1, 1.0)).collect()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(judged.seen.requests.load(Ordering::SeqCst), 1);
    let finished: Vec<bool> = all.iter().map(|(_, exporting)| exporting.is_finished()).collect();
    assert_eq!(finished, [true, false, false]);
    all.iter().for_each(|(_, exporting)| exporting.abort());
}
