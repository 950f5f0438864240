//! What destinations refuse: series, bodies, everything.

use super::*;

/// Scenario: one series among 21 is refused with 400, at each place; one among 10,000 at some, those that take longest among them (`search.rs` has all).
/// Guarantees: exactly that one is missing and counted, for at most 7 or 20 requests more than the one: 1.44 log2(n) + 2.
#[tokio::test]
async fn one_bad_series_costs_itself() {
    let few = (0..21).map(|bad| (21, bad, 7));
    let many = [0, 1, 4_711, 6_180, 9_999].map(|bad| (10_000, bad, 20));
    for (series, bad, most) in few.chain(many) {
        let poison = bad.to_string();
        let (url, seen) =
            destination(
                move |_, samples| match samples.iter().any(|(series, _)| *series == poison) {
                    true => REFUSED,
                    false => TAKEN,
                },
            )
            .await;
        let exporter = exporter(&url, 1);
        has_taken(&exporter).await;
        assert_eq!(
            in_part(exporter.export(&batch(0..series, 1.0)).await),
            delivered(1)
        );
        let taken = seen.taken.lock();
        assert_eq!(taken.len(), 1 + series - 1);
        assert!(!taken.contains_key(&bad.to_string()));
        assert!(taken.values().all(|values| values.len() == 1));
        let extra = seen.requests.load(Ordering::SeqCst) - 2;
        assert!(extra <= most, "{extra} for {bad} of {series}");
        assert_eq!(exporter.0.metrics.refused_series.get(), 1);
    }
}

/// Scenario: a destination that takes at most 100 series in a request.
/// Guarantees: bodies are halved until they fit; nothing is lost.
#[tokio::test]
async fn a_body_that_is_too_large_is_halved() {
    let (url, seen) = destination(|_, samples| match samples.len() {
        0..=100 => TAKEN,
        _ => "413 Content Too Large\r\n",
    })
    .await;
    let exporter = exporter(&url, 1);
    has_taken(&exporter).await;
    assert_eq!(exporter.export(&batch(0..1000, 1.0)).await, delivered(0));
    assert_eq!(seen.taken.lock().len(), 1 + 1000);
}

/// Scenario: a destination that refuses everything from the start, with each of the statuses that say so in its own way.
/// Guarantees: the backlog is held, each attempt is one request, and nothing is counted as refused. What it does not like about the data
/// (400, 413, 422) is searched after three such attempts, and then a fault of the payload after a few requests.
#[tokio::test]
async fn a_destination_that_refuses_everything() {
    for (status, is_of_data) in [
        ("401 Unauthorized\r\n", false),
        ("403 Forbidden\r\n", false),
        ("404 Not Found\r\n", false),
        ("415 Unsupported Media Type\r\n", false),
        (REFUSED, true),
        ("413 Content Too Large\r\n", true),
        ("422 Unprocessable Content\r\n", true),
    ] {
        for lanes in [1, 16] {
            let (url, seen) = destination(move |_, _| status).await;
            let exporter = exporter(&url, lanes);
            let batch = batch(0..10_000, 1.0);
            for attempt in 1..=3 {
                let verdict = exporter.export(&batch).await;
                assert!(
                    matches!(verdict, Verdict::EndpointFault { .. }),
                    "{status} {verdict:?}"
                );
                assert_eq!(seen.requests.load(Ordering::SeqCst), attempt, "{status}");
            }
            if is_of_data {
                let verdict = exporter.export(&batch).await;
                assert!(
                    matches!(verdict, Verdict::PayloadFault { .. }),
                    "{status} {verdict:?}"
                );
                assert!(seen.requests.load(Ordering::SeqCst) <= 3 + 40 * lanes, "{status}");
            }
            assert_eq!(exporter.0.metrics.refused_series.get(), 0);
        }
    }
}

/// Scenario: a destination that has taken something refuses everything for what is in it or for its size; single series too.
/// Guarantees: that is a fault of the payload after a few requests, and nothing is counted as refused.
#[tokio::test]
async fn a_destination_that_refuses_everything_from_now_on() {
    for status in [
        REFUSED,
        "413 Content Too Large\r\n",
        "422 Unprocessable Content\r\n",
    ] {
        for series in [10_000, 1] {
            let (url, seen) = destination(move |number, _| if number == 0 { TAKEN } else { status }).await;
            let exporter = exporter(&url, 1);
            has_taken(&exporter).await;
            let verdict = exporter.export(&batch(0..series, 1.0)).await;
            assert!(
                matches!(verdict, Verdict::PayloadFault { .. }),
                "{status} {verdict:?}"
            );
            assert!(seen.requests.load(Ordering::SeqCst) <= 1 + 40, "{status}");
            assert_eq!(exporter.0.metrics.refused_series.get(), 0);
        }
    }
}

/// Scenario: an endpoint refuses everything, as a proxy without its backend, and is mended after one attempt or after four; in one lane of many
/// series, and in lanes of one each.
/// Guarantees: nothing is given up for what it said before: every sample is taken once, or the pipeline is told that all of it was refused.
#[tokio::test]
async fn what_was_refused_before_anything_was_taken_is_sent_again() {
    for (series, lanes) in [(1000, 1), (4, 4), (1, 1)] {
        for attempts in [1, 4] {
            let mended = Arc::new(AtomicUsize::new(0));
            let is_mended = mended.clone();
            let (url, seen) = destination(move |_, _| match is_mended.load(Ordering::SeqCst) {
                1 => TAKEN,
                _ => REFUSED,
            })
            .await;
            let exporter = exporter(&url, lanes);
            let batch = batch(0..series, 1.0);
            for _ in 0..attempts {
                let verdict = exporter.export(&batch).await;
                assert!(!matches!(verdict, Verdict::Delivered { .. }), "{verdict:?}");
            }
            mended.store(1, Ordering::SeqCst);
            assert_eq!(exporter.export(&batch).await, delivered(0));
            let taken = seen.taken.lock();
            assert_eq!(taken.len(), series);
            assert!(taken.values().all(|values| *values == [1.0]));
        }
    }
}

/// Scenario: two or ten of 10,000 series in one lane are refused; beside one that is refused the first time, or twice, and then taken.
/// Guarantees: those are missing and counted, and no other, each once for no more than it costs alone; the strange one is taken.
#[tokio::test]
async fn several_bad_series_cost_themselves() {
    for (bad, refusals) in [(2, 0), (10, 0), (0, 1), (1, 2), (10, 2)] {
        let asked_for = AtomicUsize::new(0);
        let (url, seen) = destination(move |_, samples| {
            let is_bad = |n: usize| n % 1_000 == 618 && n / 1_000 < bad;
            let is_strange = samples.iter().any(|(n, _)| n == "5000")
                && asked_for.fetch_add(1, Ordering::SeqCst) < refusals;
            match is_strange || samples.iter().any(|(n, _)| is_bad(n.parse().unwrap())) {
                true => REFUSED,
                false => TAKEN,
            }
        })
        .await;
        let exporter = exporter(&url, 1);
        has_taken(&exporter).await;
        let verdict = exporter.export(&batch(0..10_000, 1.0)).await;
        match bad {
            0 => assert_eq!(verdict, delivered(0)),
            _ => assert_eq!(in_part(verdict), delivered(bad as u64)),
        }
        let taken = seen.taken.lock();
        assert_eq!(taken.len(), 1 + 10_000 - bad);
        assert!(taken.contains_key("5000") && taken.values().all(|values| values.len() == 1));
        let extra = seen.requests.load(Ordering::SeqCst) - 2;
        assert!(
            extra <= 20 * (bad + usize::from(refusals > 0)),
            "{extra} for {bad}"
        );
    }
}

/// Scenario: 32 of 1,024 series in one lane are refused, spread out over the body: more than are looked for at once.
/// Guarantees: those are missing and counted, and no other.
#[tokio::test]
async fn many_bad_series_cost_no_more_than_themselves() {
    let (url, seen) = destination(|_, samples| {
        let is_bad = |n: &str| n.parse::<usize>().unwrap() % 32 == 31;
        match samples.iter().any(|(n, _)| is_bad(n)) {
            true => REFUSED,
            false => TAKEN,
        }
    })
    .await;
    let exporter = exporter(&url, 1);
    has_taken(&exporter).await;
    assert_eq!(
        in_part(exporter.export(&batch(0..1024, 1.0)).await),
        delivered(32)
    );
    let taken = seen.taken.lock();
    assert_eq!(taken.len(), 1 + 1024 - 32);
    assert!(taken.values().all(|values| values.len() == 1));
    assert_eq!(exporter.0.metrics.refused_series.get(), 32);
}

/// Scenario: two lanes, of which one has 30 bad series at its front, so that nothing of it is taken for long. The other one is taken at once, or
/// had a 403 at the attempt before and goes last.
/// Guarantees: what the endpoint takes of the other lane shows that the bad ones are at fault, and what is behind them is sent all the same.
#[tokio::test]
async fn bad_series_at_the_front_of_a_lane_cost_no_more_than_themselves() {
    const BAD: usize = 30;
    for goes_last in [false, true] {
        // The series of the first body of the second batch, of the other lane, and the bad ones of that.
        let lanes: Arc<Mutex<(Vec<String>, Vec<String>)>> = Arc::default();
        let told = lanes.clone();
        let (url, seen) = destination(move |_, samples| {
            if samples[0].1 == 0.0 {
                return TAKEN;
            }
            let names = || samples.iter().map(|(n, _)| n.clone());
            let (first, bad) = &mut *told.lock();
            if first.is_empty() {
                *first = names().collect();
                if goes_last {
                    return "403 Forbidden\r\n";
                }
                *bad = names().take(BAD).collect();
            }
            if bad.is_empty() && !first.contains(&samples[0].0) {
                *bad = names().take(BAD).collect();
            }
            match samples.iter().any(|(n, _)| bad.contains(n)) {
                true => REFUSED,
                false => TAKEN,
            }
        })
        .await;
        let exporter = exporter(&url, 2);
        assert_eq!(exporter.export(&batch(0..200, 0.0)).await, delivered(0));
        let batch = batch(0..200, 1.0);
        let mut verdict = exporter.export(&batch).await;
        if goes_last {
            assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
            verdict = exporter.export(&batch).await;
        }
        assert_eq!(in_part(verdict), delivered(BAD as u64), "{goes_last}");
        let taken = seen.taken.lock();
        assert_eq!(
            taken.values().filter(|values| **values == [0.0, 1.0]).count(),
            200 - BAD
        );
        assert_eq!(exporter.0.metrics.refused_series.get(), BAD as u64);
    }
}

/// Scenario: of two lanes one is taken and the other has a 503; then the endpoint refuses everything with 400, and is mended.
/// Guarantees: what it took before says nothing about what it refuses now: nothing is given up, nothing comes twice.
#[tokio::test]
async fn what_was_taken_before_says_nothing_about_what_is_refused_now() {
    let stage = Arc::new(AtomicUsize::new(0));
    let now = stage.clone();
    let first: Mutex<Option<String>> = Mutex::default();
    let (url, seen) = destination(move |_, samples| match now.load(Ordering::SeqCst) {
        _ if samples[0].1 == 0.0 => TAKEN,
        0 => {
            let mut first = first.lock();
            match *first.get_or_insert(samples[0].0.clone()) == samples[0].0 {
                true => TAKEN,
                false => "503 Service Unavailable\r\n",
            }
        }
        1 => REFUSED,
        _ => TAKEN,
    })
    .await;
    let exporter = exporter(&url, 2);
    assert_eq!(exporter.export(&batch(0..200, 0.0)).await, delivered(0));
    let batch = batch(0..200, 1.0);
    let verdict = exporter.export(&batch).await;
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
    stage.store(1, Ordering::SeqCst);
    for _ in 0..2 {
        let verdict = exporter.export(&batch).await;
        assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
    }
    stage.store(2, Ordering::SeqCst);
    assert_eq!(exporter.export(&batch).await, delivered(0));
    assert_eq!(exporter.0.metrics.refused_series.get(), 0);
    let taken = seen.taken.lock();
    assert_eq!(taken.len(), 200);
    assert!(taken.values().all(|values| *values == [0.0, 1.0]));
}

/// Scenario: of two lanes of a small batch one is taken and the other has a 503; then every series that is left is refused, whatever comes.
/// Guarantees: the batch is held for some attempts, and then those series are given up and counted: what is behind them does not wait for ever.
#[tokio::test]
async fn bad_series_that_are_all_that_is_left_hold_nothing_for_ever() {
    let first: Mutex<Option<String>> = Mutex::default();
    let requests = AtomicUsize::new(0);
    let (url, seen) = destination(move |_, samples| {
        let mut first = first.lock();
        match *first.get_or_insert(samples[0].0.clone()) == samples[0].0 {
            _ if samples[0].1 == 0.0 => {
                *first = None;
                TAKEN
            }
            true => TAKEN,
            false if requests.fetch_add(1, Ordering::SeqCst) == 0 => "503 Service Unavailable\r\n",
            false => REFUSED,
        }
    })
    .await;
    let exporter = exporter(&url, 2);
    assert_eq!(exporter.export(&batch(0..20, 0.0)).await, delivered(0));
    let batch = batch(0..20, 1.0);
    let verdict = exporter.export(&batch).await;
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
    for _ in 0..3 {
        let verdict = exporter.export(&batch).await;
        assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
    }
    let good = seen
        .taken
        .lock()
        .values()
        .filter(|values| values.len() == 2)
        .count();
    assert_eq!(
        in_part(exporter.export(&batch).await),
        delivered(20 - good as u64)
    );
}

/// Scenario: two of a hundred series over four lanes are refused, each for a reason of its own; in each version.
/// Guarantees: what is kept of them is one request of that version, which has just these series and their samples, and says the first reason.
#[tokio::test]
async fn what_is_refused_is_kept_as_one_request() {
    for format in [Format::V1, Format::V1Zstd, Format::V2] {
        let (url, _) = destination_of_formats(|got, samples| {
            match samples.iter().find(|(n, _)| ["37", "77"].contains(&n.as_str())) {
                Some((n, _)) if n == "37" => REFUSED,
                Some(_) => "422 Unprocessable Content\r\n",
                None if got.format == Format::V2 => {
                    "204 No Content\r\nx-prometheus-remote-write-samples-written: 1000\r\n"
                }
                None => TAKEN,
            }
        })
        .await;
        let exporter = exporter_of(&url, 4, format);
        has_taken(&exporter).await;
        let verdict = exporter.export(&batch(0..100, 3.0)).await;
        let Verdict::InPart { refused, rejected: 2 } = verdict else {
            panic!("{verdict:?}")
        };
        let [kept] = &refused[..] else {
            panic!("{refused:?}")
        };
        assert_eq!(kept.items, 2);
        assert!(
            kept.reason
                .ends_with("(and 1 for other reasons, which the log has)"),
            "{}",
            kept.reason
        );
        let want = match format {
            Format::V2 => WireFormat::RemoteWrite2,
            _ => WireFormat::RemoteWrite1,
        };
        assert_eq!(kept.wire_format, want);
        let mut series = Vec::new();
        each_series(format.version(), &kept.body, |one| {
            assert_eq!(one.label("__name__"), "m");
            series.push((one.label("n").to_owned(), one.samples[0].value));
            Ok(())
        })
        .unwrap();
        series.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(series, [("37".to_owned(), 3.0), ("77".to_owned(), 3.0)]);
    }
}
