//! What the exporter shows of itself.

use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice_telemetry::{Counter, Gauge, Registry, Sample};

use super::Shared;

/// What the exporter shows, all pipelines together.
#[derive(Debug)]
pub(super) struct Metrics {
    pub rows: Counter,
    pub bytes: Counter,
    pub files: Counter,
    pub failed: Counter,
    pub duplicate_keys: Counter,
    pub invalid_texts: Counter,
    pub deep_values: Counter,
    pub refused: Gauge,
}

impl Metrics {
    pub fn new(registry: &Registry, exporter: &str) -> Self {
        let labels = || vec![("exporter", exporter.to_owned())];
        let counter = |name, help| registry.counter(name, help, labels());
        let repairs = |what: &str| {
            let mut labels = labels();
            labels.push(("what", what.to_owned()));
            registry.counter(
                "sluice_parquet_repairs_total",
                "What had to be changed for files to be readable: attributes whose key occurred twice, texts that were not UTF-8, lists and maps below a hundred others.",
                labels,
            )
        };
        Self {
            rows: counter(
                "sluice_parquet_rows_total",
                "Rows in files that the destination has.",
            ),
            bytes: counter(
                "sluice_parquet_bytes_total",
                "Bytes of files that the destination has.",
            ),
            files: counter("sluice_parquet_files_total", "Files that the destination has."),
            failed: counter(
                "sluice_parquet_failed_uploads_total",
                "Attempts to send a file that failed.",
            ),
            duplicate_keys: repairs("duplicate_key"),
            invalid_texts: repairs("invalid_text"),
            deep_values: repairs("deep_value"),
            refused: registry.gauge(
                "sluice_parquet_refused",
                "Files whose last attempt the destination refused for a reason that somebody has to mend.",
                labels(),
            ),
        }
    }
}

/// A file's part of [`Metrics::refused`]; none when it is dropped.
pub(super) struct Refused<'a> {
    files: &'a Gauge,
    counts: bool,
}

impl<'a> Refused<'a> {
    pub fn no(metrics: &'a Metrics) -> Self {
        Self {
            files: &metrics.refused,
            counts: false,
        }
    }

    pub fn set(&mut self, refused: bool) {
        self.files.add(i64::from(refused) - i64::from(self.counts));
        self.counts = refused;
    }
}

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// What one pipeline's side of the exporter shows.
#[derive(Debug)]
pub(super) struct FeedMetrics {
    pub open_files: Gauge,
    pub failing: Gauge,
    pub failures: Counter,
}

impl FeedMetrics {
    pub fn new(registry: &Registry, exporter: &str, pipeline: &str) -> Self {
        let labels = || {
            vec![
                ("exporter", exporter.to_owned()),
                ("pipeline", pipeline.to_owned()),
            ]
        };
        let gauge = |name, help| registry.gauge(name, help, labels());
        Self {
            failing: gauge(
                "sluice_parquet_write_failing",
                "1 while files cannot be written, be it that the disk is nearly full; it is tried again.",
            ),
            failures: registry.counter(
                "sluice_parquet_failed_writes_total",
                "How often writing files failed; what was in them is written anew.",
                labels(),
            ),
            open_files: gauge("sluice_parquet_open_files", "Files that rows are written to."),
        }
    }
}

impl Shared {
    /// What is read when somebody scrapes: it changes while nothing happens, too.
    pub(super) fn samples(&self, now: Instant, out: &mut Vec<Sample>) {
        let (received, cut) = (self.settlement.oldest(), self.waiting.oldest());
        let age = |oldest: Option<Instant>| {
            let age = oldest.map(|oldest| now.saturating_duration_since(oldest));
            age.unwrap_or_default().as_secs_f64()
        };
        let mut add = |name, help, value| {
            out.push(Sample {
                name,
                help,
                labels: vec![
                    ("exporter", self.exporter.0.id.clone()),
                    ("pipeline", self.pipeline.clone()),
                ],
                value,
            });
        };
        add(
            "sluice_parquet_oldest_unflushed_seconds",
            "How long ago the oldest row was received that was read from the queue and is not at the destination.",
            // Rows of a file that an earlier process left may not have been read again yet.
            age(received.into_iter().chain(cut).min()),
        );
        add(
            "sluice_parquet_upload_lag_seconds",
            "How long ago the oldest file was cut that is not at the destination; 0 where none waits.",
            age(cut),
        );
        add(
            "sluice_parquet_spooled_bytes",
            "Bytes of files that wait to be sent.",
            self.spooled.load(Ordering::Acquire) as f64,
        );
    }
}
