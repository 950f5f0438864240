//! The ledger as JSON: the account of items of every pipeline, exporter and tenant.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use sluice_journal::{DeadLetters, Journal};
use sluice_payload::{Signal, Tenants};
use sluice_telemetry::{Account, DropReason, Registry, Sample};

/// All journals of one gateway. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pipelines: Vec<(Journal, Signal)>,
    tenants: Tenants,
}

/// One exporter's account in one pipeline.
#[derive(Debug, Clone, Serialize)]
pub struct LedgerLine {
    /// The pipeline's id.
    pub pipeline: String,
    /// What it carries.
    pub signal: &'static str,
    /// The exporter's id.
    pub exporter: String,
    /// All tenants together.
    pub total: Account,
    /// By tenant name; tenants without items are left out.
    pub tenants: BTreeMap<String, Account>,
    /// What waits, in received requests.
    pub queued_requests: u64,
    /// What waits, in retained bytes.
    pub queued_bytes: u64,
    /// How long the oldest of it has waited.
    pub queue_age_seconds: f64,
}

impl Ledger {
    /// The ledger of these journals.
    pub fn new(pipelines: Vec<(Journal, Signal)>, tenants: Tenants) -> Self {
        Self { pipelines, tenants }
    }

    /// Every account, each consistent in itself.
    pub fn lines(&self) -> Vec<LedgerLine> {
        let now = Instant::now();
        let mut lines = Vec::new();
        for (journal, signal) in &self.pipelines {
            for report in journal.reports(now) {
                let tenants = report
                    .tenants
                    .iter()
                    .enumerate()
                    .filter(|(_, account)| **account != Account::default())
                    .map(|(index, account)| (self.tenants.name_at(index).to_string(), *account))
                    .collect();
                lines.push(LedgerLine {
                    pipeline: journal.pipeline().to_owned(),
                    signal: signal.as_str(),
                    total: report.total(),
                    exporter: report.exporter,
                    tenants,
                    queued_requests: report.depth.backlog.requests,
                    queued_bytes: report.depth.backlog.bytes,
                    queue_age_seconds: report.depth.age.as_secs_f64(),
                });
            }
        }
        lines
    }

    /// The ledger as a JSON document.
    pub fn json(&self) -> String {
        serde_json::json!({ "exporters": self.lines() }).to_string()
    }

    /// Adds the ledger to the metrics.
    pub fn export_to(&self, registry: &Registry) {
        let ledger = self.clone();
        registry.collect_with(move |out| {
            ledger.lines().iter().for_each(|line| samples(line, out));
            for (journal, _) in &ledger.pipelines {
                disk_samples(journal, out);
            }
        });
    }
}

/// Adds what becomes of a pipeline's dead letters to the metrics.
pub(crate) fn export_dead_letters(pipeline: &str, letters: &DeadLetters, registry: &Registry) {
    let (pipeline, letters) = (pipeline.to_owned(), letters.clone());
    registry.collect_with(move |out| {
        out.push(Sample {
            name: "sluice_dead_letters_removed_items_total",
            help: "Items of dead letters that were removed, the oldest first, because there were more than are kept.",
            labels: vec![("pipeline", pipeline.clone())],
            value: letters.removed_items() as f64,
        });
    });
}

fn disk_samples(journal: &Journal, out: &mut Vec<Sample>) {
    let Some(disk) = journal.disk_report() else { return };
    let figures = [
        (
            "sluice_journal_segments",
            "Files of the journal on disk.",
            disk.segments,
        ),
        ("sluice_journal_bytes", "Bytes of these files.", disk.bytes),
        (
            "sluice_journal_kept_bytes",
            "Bytes of memory that hold payloads which are on disk too.",
            disk.kept_bytes,
        ),
        (
            "sluice_journal_stored_bytes_total",
            "Bytes of payloads written to the journal, as stored.",
            disk.stored_bytes,
        ),
        (
            "sluice_journal_damaged_total",
            "Places in the journal that could not be read.",
            disk.damaged,
        ),
        (
            "sluice_journal_lost_requests_total",
            "Stored requests that are not there any more, once for each exporter that had not settled them.",
            disk.lost,
        ),
        (
            "sluice_journal_failing",
            "1 while the journal cannot be written and payloads are refused for it.",
            u64::from(disk.trouble.is_some()),
        ),
    ];
    for (name, help, value) in figures {
        out.push(Sample {
            name,
            help,
            labels: vec![("pipeline", journal.pipeline().to_owned())],
            value: value as f64,
        });
    }
}

fn samples(line: &LedgerLine, out: &mut Vec<Sample>) {
    let labels = || {
        vec![
            ("exporter", line.exporter.clone()),
            ("pipeline", line.pipeline.clone()),
            ("signal", line.signal.to_owned()),
        ]
    };
    let mut add = |name, help, value: f64| {
        out.push(Sample {
            name,
            help,
            labels: labels(),
            value,
        })
    };
    add(
        "sluice_exporter_accepted_items_total",
        "Items taken in for this exporter.",
        line.total.accepted as f64,
    );
    add(
        "sluice_exporter_sent_items_total",
        "Items the destination confirmed.",
        line.total.delivered as f64,
    );
    add(
        "sluice_queue_items",
        "Items neither delivered nor dropped yet.",
        line.total.queued as f64,
    );
    add(
        "sluice_queue_requests",
        "Received requests not settled yet.",
        line.queued_requests as f64,
    );
    add(
        "sluice_queue_bytes",
        "Bytes of memory the queue retains.",
        line.queued_bytes as f64,
    );
    add(
        "sluice_queue_age_seconds",
        "How long the oldest queued request has waited.",
        line.queue_age_seconds,
    );
    for reason in DropReason::ALL {
        let mut labels = labels();
        labels.push(("reason", reason.as_str().to_owned()));
        out.push(Sample {
            name: "sluice_exporter_dropped_items_total",
            help: "Items given up, by reason.",
            labels,
            value: line.total.dropped[reason as usize] as f64,
        });
    }
}
