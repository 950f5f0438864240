//! Destinations that refuse many series of a batch.

use super::*;

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
        assert_eq!(taken.values().filter(|values| **values == [0.0, 1.0]).count(), 200 - BAD);
        assert_eq!(exporter.0.metrics.refused_series.get(), BAD as u64);
    }
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
        let [kept] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(kept.items, 2);
        assert!(kept.reason.ends_with("(and 1 for other reasons, which the log has)"), "{}", kept.reason);
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
