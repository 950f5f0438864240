//! Destinations that have written what they refuse, as a database of time series does: in part, or before their answer was lost.

use super::*;

const SERIES: usize = 500;
const ROUNDS: usize = 4;

/// A database that takes of each series what is newer than all it has, and the newest once more. Values are times.
#[derive(Debug, Default)]
struct Database {
    stored: BTreeMap<String, Vec<f64>>,
    bad: Vec<String>,
    /// Of a request that it refuses it writes what is good.
    writes_in_part: bool,
    /// So many requests are written and not answered.
    loses_answers: usize,
}

impl Database {
    fn take(&mut self, samples: &[(String, f64)]) -> &'static str {
        let before = self.stored.clone();
        let mut is_good = true;
        for (series, time) in samples {
            let stored = self.stored.entry(series.clone()).or_default();
            match stored.last() {
                _ if self.bad.contains(series) => is_good = false,
                Some(newest) if newest > time => is_good = false,
                Some(newest) if newest == time => {}
                _ => stored.push(*time),
            }
        }
        if !is_good {
            if !self.writes_in_part {
                self.stored = before;
            }
            return REFUSED;
        }
        if self.loses_answers > 0 {
            self.loses_answers -= 1;
            return "503 Service Unavailable\r\n";
        }
        TAKEN
    }
}

/// A batch of [`ROUNDS`] rounds is exported to it over so many lanes until that is settled.
async fn exported(
    database: Database,
    format: Format,
    lanes: usize,
) -> (Verdict, Database, usize, RemoteWriteExporter) {
    let database = Arc::new(Mutex::new(database));
    let of_destination = database.clone();
    let (url, seen) = destination_of_formats(move |got, samples| {
        let answer = of_destination.lock().take(samples);
        match got.format {
            Format::V2 if answer == TAKEN => {
                "204 No Content\r\nx-prometheus-remote-write-samples-written: 1000000\r\n"
            }
            _ => answer,
        }
    })
    .await;
    let exporter = exporter_of(&url, lanes, format);
    let parts = (0..ROUNDS).flat_map(|round| batch(0..SERIES, (1 + round) as f64).parts);
    let batch = Batch {
        signal: Signal::Metrics,
        parts: parts.collect(),
    };
    let verdict = loop {
        match exporter.export(&batch).await {
            Verdict::Retry { .. } => {}
            verdict => break verdict,
        }
    };
    let database = std::mem::take(&mut *database.lock());
    (verdict, database, seen.requests.load(Ordering::SeqCst), exporter)
}

/// All rounds of all series but these, each once and in order.
fn assert_has_all_but(database: &Database, but: &[&str]) {
    let all: Vec<f64> = (0..ROUNDS).map(|round| (1 + round) as f64).collect();
    for n in 0..SERIES {
        let n = n.to_string();
        let want: &[f64] = if but.contains(&n.as_str()) { &[] } else { &all };
        assert_eq!(
            database.stored.get(&n).map_or(&[][..], |stored| stored),
            want,
            "{n}"
        );
    }
}

/// Scenario: four samples of each of 500 series in a batch, of which one series is bad, at a destination that refuses the request and writes all but that one.
/// Guarantees: the samples of that series are given up and no other, for few requests; what else was refused is counted as what it is, and not as lost.
#[tokio::test]
async fn a_destination_that_writes_in_part() {
    for format in [Format::V1, Format::V1Zstd, Format::V2] {
        for bad in [0, 1, 250, 499] {
            let database = Database {
                bad: vec![bad.to_string()],
                writes_in_part: true,
                ..Database::default()
            };
            let (verdict, database, requests, exporter) = exported(database, format, 1).await;
            assert_eq!(in_part(verdict), delivered(ROUNDS as u64), "{format:?} {bad}");
            assert_has_all_but(&database, &[&bad.to_string()]);
            assert!(requests <= 40, "{requests} for {bad}");
            let metrics = &exporter.0.metrics;
            assert_eq!(metrics.refused_series.get(), 1);
            assert_eq!(metrics.older_samples.get(), ((SERIES - 1) * (ROUNDS - 1)) as u64);
        }
    }
}

/// Scenario: the same batch in one lane or four, at a destination that writes whole requests or none; its first answers are lost.
/// Guarantees: nothing is given up, for few requests.
#[tokio::test]
async fn a_request_whose_answer_was_lost() {
    for lanes in [1, 4] {
        let database = Database {
            loses_answers: lanes,
            ..Database::default()
        };
        let (verdict, database, requests, exporter) = exported(database, Format::V1, lanes).await;
        assert_eq!(verdict, delivered(0));
        assert_has_all_but(&database, &[]);
        assert!(requests <= lanes * 15, "{requests}");
        assert_eq!(exporter.0.metrics.refused_series.get(), 0);
    }
}

/// Scenario: the same batch at a destination that writes whole requests or none: one series is bad; of another one it has something newer than the first sample.
/// Guarantees: what is given up is that series and that sample.
#[tokio::test]
async fn a_destination_that_writes_all_or_nothing() {
    for (bad, late) in [(0, 1), (1, 0), (250, 251), (499, 3)] {
        let late = late.to_string();
        let database = Database {
            bad: vec![bad.to_string()],
            stored: BTreeMap::from([(late.clone(), vec![1.5])]),
            ..Database::default()
        };
        let (verdict, mut database, _, exporter) = exported(database, Format::V1, 1).await;
        assert_eq!(in_part(verdict), delivered(ROUNDS as u64 + 1), "{bad} {late}");
        assert_eq!(database.stored.remove(&late).unwrap(), [1.5, 2.0, 3.0, 4.0]);
        assert_has_all_but(&database, &[&bad.to_string(), &late]);
        assert_eq!(exporter.0.metrics.older_samples.get(), 0);
    }
}
