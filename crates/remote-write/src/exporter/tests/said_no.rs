//! Endpoints that say no to everything.

use super::*;

/// Scenario: 16 lanes to an endpoint that takes everything; then it answers 401 to everything, until it is mended.
/// Guarantees: when it says no nothing more is sent to it of that attempt, and each attempt after that is a single request; once it is mended every sample
/// is taken once, in order.
#[tokio::test]
async fn an_endpoint_that_says_no_is_asked_once_an_attempt() {
    const ROUNDS: usize = 2;
    let mended = Arc::new(AtomicUsize::new(1));
    let is_mended = mended.clone();
    let (url, seen) = destination(move |_, _| match is_mended.load(Ordering::SeqCst) {
        1 => TAKEN,
        _ => "401 Unauthorized\r\n",
    })
    .await;
    let exporter = exporter(&url, 16);
    for round in 0..ROUNDS {
        let batch = batch(0..400, round as f64);
        assert_eq!(exporter.export(&batch).await, delivered(0));
    }
    let requests = || seen.requests.load(Ordering::SeqCst);
    mended.store(0, Ordering::SeqCst);
    let batch = batch(0..400, ROUNDS as f64);
    let mut before = requests();
    for attempt in 0..4 {
        let verdict = exporter.export(&batch).await;
        assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
        let sent = requests() - before;
        // The first time some are under way together.
        assert!(
            if attempt == 0 { sent < 16 } else { sent == 1 },
            "{attempt}: {sent}"
        );
        before = requests();
    }
    mended.store(1, Ordering::SeqCst);
    assert_eq!(exporter.export(&batch).await, delivered(0));
    assert_eq!(requests() - before, 16);
    let want: Vec<f64> = (0..=ROUNDS).map(|round| round as f64).collect();
    let taken = seen.taken.lock();
    assert!(taken.len() == 400 && taken.values().all(|values| *values == want));
}

/// Scenario: 32 lanes to an endpoint that answers 403 to one body whenever it comes: the first that it is sent, or the sixth.
/// Guarantees: all others are delivered at the next attempt at the latest; from then on only that body is sent, until it is taken; nothing comes twice.
#[tokio::test]
async fn a_no_to_one_body_keeps_no_other_from_being_sent() {
    const LANES: usize = 32;
    for bad_one in [0, 5] {
        let bad = Arc::new(Mutex::new(None));
        let (told, is_mended) = (bad.clone(), Arc::new(AtomicUsize::new(0)));
        let mended = is_mended.clone();
        let (url, seen) = destination(move |number, samples| {
            let mut bad = told.lock();
            if number == bad_one {
                *bad = Some(samples[0].0.clone());
            }
            let is_bad = samples.iter().any(|(series, _)| Some(series) == bad.as_ref());
            match is_bad && is_mended.load(Ordering::SeqCst) == 0 {
                true => "403 Forbidden\r\n",
                false => TAKEN,
            }
        })
        .await;
        let exporter = exporter(&url, LANES);
        let batch = batch(0..800, 1.0);
        let requests = || seen.requests.load(Ordering::SeqCst);
        for attempt in 0..4 {
            let before = requests();
            let verdict = exporter.export(&batch).await;
            assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
            let sent = match attempt {
                0 if bad_one == 0 => 1,
                0 => LANES,
                1 if bad_one == 0 => LANES,
                _ => 1,
            };
            assert_eq!(requests() - before, sent, "{bad_one}: {attempt}");
        }
        mended.store(1, Ordering::SeqCst);
        assert_eq!(exporter.export(&batch).await, delivered(0));
        let taken = seen.taken.lock();
        assert!(taken.len() == 800 && taken.values().all(|values| *values == [1.0]));
    }
}

/// Scenario: two endpoints with two lanes each. One answers 403 once, the other 503; then the first takes everything, and the other never answers again.
/// Guarantees: all of the first one's series are taken meanwhile, also those of the lane that had been told no: it waits for its own endpoint alone.
#[tokio::test]
async fn a_lane_that_was_told_no_waits_for_no_other_endpoint() {
    let (told, mut taken) = tokio::sync::watch::channel(0);
    let (good, _) = destination(move |number, samples| match number {
        0 => "403 Forbidden\r\n",
        _ => {
            told.send_modify(|taken| *taken += samples.len());
            TAKEN
        }
    })
    .await;
    let (hangs, asked) = destination(|number, _| match number {
        0 | 1 => "503 Service Unavailable\r\n",
        _ => "",
    })
    .await;
    let mut options = RemoteWriteExporterOptions {
        endpoint: good,
        shard_endpoints: vec![hangs],
        timeout: Duration::from_secs(3600),
        ..Default::default()
    };
    options.encoder.lanes = 2;
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let batch = batch(0..300, 1.0);
    let verdict = exporter.export(&batch).await;
    assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
    {
        let kept = exporter.0.kept.lock();
        let lanes = kept.values().flat_map(|pending| &pending.lanes);
        let of_good = lanes.filter(|lane| lane.number() % 2 == 0);
        assert_eq!(of_good.map(Lane::noes).sum::<u32>(), 1);
    }
    let (lanes, _) = Encoder::new(EncoderSettings {
        lanes: 4,
        ..EncoderSettings::default()
    })
    .encode(&[&batch.parts[0].body]);
    let want: u64 = lanes
        .iter()
        .step_by(2)
        .flatten()
        .map(|body| body.written.samples)
        .sum();
    let sending = tokio::spawn(async move { exporter.export(&batch).await });
    let all = taken.wait_for(|taken| *taken as u64 == want);
    tokio::time::timeout(Duration::from_secs(60), all)
        .await
        .unwrap()
        .unwrap();
    assert!(!sending.is_finished() && asked.requests.load(Ordering::SeqCst) >= 2);
    sending.abort();
}
