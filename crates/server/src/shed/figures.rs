//! What is known of how long something takes, as metrics: one family for each figure.

use sluice_admission::Stats;
use sluice_telemetry::Sample;

/// Names and meanings of the metrics of one kind of latency.
#[derive(Debug)]
pub struct LatencyFigures {
    /// The percentiles, by `quantile`.
    pub quantiles: (&'static str, &'static str),
    /// The moving average.
    pub average: (&'static str, &'static str),
    /// What the average changes by from one sample to the next.
    pub slope: (&'static str, &'static str),
    /// How much the average is above what it was before.
    pub drift: (&'static str, &'static str),
    /// The same as a share of what it was before.
    pub drift_ratio: (&'static str, &'static str),
    /// How many samples that rests on.
    pub samples: (&'static str, &'static str),
}

impl LatencyFigures {
    /// Adds the figures of one thing with these labels.
    pub fn add_to(&self, out: &mut Vec<Sample>, labels: &[(&'static str, String)], stats: &Stats) {
        let mut add = |(name, help): (&'static str, &'static str), more: Option<&str>, value| {
            let quantile = more.map(|quantile| ("quantile", quantile.to_owned()));
            out.push(Sample {
                name,
                help,
                labels: labels.iter().cloned().chain(quantile).collect(),
                value,
            });
        };
        let seconds = |nanos: f64| nanos / 1e9;
        for (quantile, nanos) in [("0.5", stats.p50), ("0.95", stats.p95), ("0.99", stats.p99)] {
            add(self.quantiles, Some(quantile), seconds(nanos as f64));
        }
        add(self.average, None, seconds(stats.ema as f64));
        add(self.slope, None, seconds(stats.slope as f64));
        add(self.drift, None, seconds(stats.drift as f64));
        add(self.drift_ratio, None, stats.relative_drift());
        add(self.samples, None, stats.weight);
    }
}
