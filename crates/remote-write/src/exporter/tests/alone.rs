//! Series that are all there is of an endpoint's part, and are refused, on a paused clock.

use super::ahead::{answer, in_lane_of};
use super::*;

/// Two endpoints, of which the second answers as it is told; the first takes everything.
#[derive(Debug)]
struct Two {
    /// The second refuses these series.
    bad: Vec<String>,
    /// What the second says to them.
    status: u16,
    seen: Seen,
}

impl Scripted for Two {
    fn answer<'a>(
        &'a self,
        url: &'a str,
        body: &'a Body,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>> {
        Box::pin(async move {
            let mut samples = Vec::new();
            each_series(body.format.version(), &body.plain().unwrap(), |series| {
                samples.push((series.label("n").to_owned(), series.samples[0].value));
                Ok(())
            })
            .unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            if url.contains("second") && samples.iter().any(|(n, _)| self.bad.contains(n)) {
                return Ok(answer(self.status));
            }
            let mut taken = self.seen.taken.lock();
            for (series, value) in samples {
                taken.entry(series).or_default().push(value);
            }
            Ok(answer(204))
        })
    }
}

/// An exporter of two endpoints of one lane each, and which of 400 series go to either.
fn two(
    bad: impl FnOnce(&[String]) -> Vec<String>,
    status: u16,
) -> (RemoteWriteExporter, Arc<Two>, [Vec<String>; 2]) {
    let options = RemoteWriteExporterOptions {
        endpoint: "http://first/".to_owned(),
        shard_endpoints: vec!["http://second/".to_owned()],
        ..Default::default()
    };
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let with_0 = in_lane_of(0, 2, 400);
    let others = (0..400)
        .map(|n: usize| n.to_string())
        .filter(|n| !with_0.contains(n))
        .collect();
    let is_first = |names: &[String]| {
        let (lanes, _) = Encoder::new(EncoderSettings {
            lanes: 2,
            ..EncoderSettings::default()
        })
        .encode(&[&batch(0..1, 0.0).parts[0].body]);
        lanes[0].len() == 1 && names.contains(&"0".to_owned())
    };
    let parts: [Vec<String>; 2] = match is_first(&with_0) {
        true => [with_0, others],
        false => [others, with_0],
    };
    let endpoints = Arc::new(Two {
        bad: bad(&parts[1]),
        status,
        seen: Seen::default(),
    });
    exporter.0.scripted.set(endpoints.clone()).unwrap();
    (exporter, endpoints, parts)
}

/// A batch of these series.
fn of(series: &[&String]) -> Batch {
    let mut all = batch(0..0, 0.0);
    all.parts.clear();
    for series in series {
        let number = series.parse().unwrap();
        all.parts.extend(batch(number..number + 1, 1.0).parts);
    }
    all
}

/// Attempts until the batch is done, a probe's time apart; none: that many are not enough.
async fn attempts(exporter: &RemoteWriteExporter, batch: &Batch, at_most: usize) -> Option<usize> {
    for attempt in 1..=at_most {
        match exporter.export(batch).await {
            Verdict::InPart { rejected, .. } => {
                assert!(rejected > 0);
                return Some(attempt);
            }
            Verdict::EndpointFault { .. } => tokio::time::sleep(Duration::from_secs(10)).await,
            other => panic!("{other:?}"),
        }
    }
    None
}

/// Scenario: a batch of many series for one endpoint and a bad one alone for the other; that one took others a moment ago, or has never taken anything.
/// Guarantees: the bad series is given up after four attempts, or after some ten minutes, and every other is taken once.
#[tokio::test(start_paused = true)]
async fn a_bad_series_that_is_alone_is_given_up() {
    for (worked, want) in [(true, 4), (false, 16)] {
        let (exporter, endpoints, [first, second]) = two(|part| part[..1].to_vec(), 400);
        if worked {
            let verdict = exporter.export(&of(&[&first[0], &second[5]])).await;
            assert_eq!(verdict, delivered(0));
        }
        endpoints.seen.taken.lock().clear();
        let mut series: Vec<&String> = first.iter().take(100).collect();
        series.push(&second[0]);
        let attempts = attempts(&exporter, &of(&series), 30).await;
        assert_eq!(attempts, Some(want), "it worked: {worked}");
        let taken = endpoints.seen.taken.lock();
        assert!(taken.len() == 100 && taken.values().all(|values| *values == [1.0]));
    }
}

/// Scenario: an endpoint refuses all of its part, a hundred series, with 400 or 401, while the other one takes everything; it took something a moment ago, long ago, or
/// never.
/// Guarantees: where it has just taken others and says 400, its part is searched and given up; else it is held, and nothing is given up.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_refuses_all_of_its_part_loses_nothing() {
    let cases = [
        (400, Some(0), true),
        (400, Some(600), false),
        (400, None, false),
        (401, Some(0), false),
    ];
    for (status, worked, is_given_up) in cases {
        let (exporter, endpoints, [first, second]) = two(|part| part[..100].to_vec(), status);
        if let Some(before) = worked {
            let verdict = exporter.export(&of(&[&first[0], &second[150]])).await;
            assert_eq!(verdict, delivered(0));
            tokio::time::sleep(Duration::from_secs(before)).await;
        }
        endpoints.seen.taken.lock().clear();
        let series: Vec<&String> = first[..50].iter().chain(&second[..100]).collect();
        let attempts = attempts(&exporter, &of(&series), 60).await;
        assert_eq!(
            attempts.is_some(),
            is_given_up,
            "{status} {worked:?}: {attempts:?}"
        );
        assert_eq!(endpoints.seen.taken.lock().len(), 50);
    }
}
