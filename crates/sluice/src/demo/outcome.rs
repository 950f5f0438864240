//! What came of a run, and whether it all adds up.

use std::path::PathBuf;
use std::time::Duration;

use crate::ledger::LedgerLine;

use super::account::Snapshot;
use super::readback::SignalRead;
use super::screen::{bytes, count};

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How long the load lasted.
    pub took: Duration,
    /// Items that a machine that keeps up would have sent.
    pub planned: u64,
    /// Whether somebody ended it early.
    pub interrupted: bool,
    /// What kept the gateway from doing its work.
    pub trouble: Option<String>,
    /// Refusals.
    pub refused: u64,
    /// Requests that were still refused at the end, and so were not sent.
    pub given_up: u64,
    /// The ledger after the gateway stopped.
    pub lines: Vec<LedgerLine>,
    /// Items the gateway could not deliver before it stopped.
    pub left: u64,
    /// What the files hold.
    pub read: Vec<SignalRead>,
    /// The most memory that was resident.
    pub peak_resident_bytes: u64,
    /// CPU time of the load.
    pub cpu_seconds: Option<f64>,
    /// Where the files are.
    pub directory: PathBuf,
    /// A query on the tables and its answer, where there are tables and an engine.
    pub query: Option<(String, Option<String>)>,
    /// How many earlier runs are kept, and their size.
    pub earlier: (usize, u64),
}

impl Outcome {
    /// Whether every id that was sent is in the files exactly once, and the ledger says the same.
    pub fn is_exact(&self) -> bool {
        self.faults().is_empty()
    }

    /// Everything that does not add up.
    fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.trouble.iter().cloned().collect();
        if self.left > 0 {
            faults.push(format!(
                "{} items could not be written before the gateway stopped, and are lost",
                count(self.left)
            ));
        }
        if !faults.is_empty() {
            // What follows from it would hide it.
            return faults;
        }
        for line in self.lines.iter().filter(|line| !line.total.balanced()) {
            faults.push(format!(
                "the ledger of {} in {} does not balance: {:?}",
                line.exporter, line.pipeline, line.total
            ));
        }
        let ledger = Snapshot::of_ledger(&self.lines);
        for read in &self.read {
            let (signal, report) = (read.signal, &read.report);
            if !report.is_exact() {
                faults.push(format!(
                    "{signal}: of {} items sent, {} are lost, {} were written again, {} were never sent, {} have no id",
                    count(report.sent),
                    count(report.lost),
                    count(report.duplicated),
                    count(report.unknown),
                    count(report.unmarked)
                ));
            }
            let flow = ledger.flows[signal.index()];
            let in_files = report.delivered + report.duplicated + report.unmarked;
            if (flow.accepted, flow.delivered) != (report.sent, in_files) {
                faults.push(format!(
                    "{signal}: the ledger has {} accepted and {} delivered, the senders {} acknowledged, the files {}",
                    count(flow.accepted),
                    count(flow.delivered),
                    count(report.sent),
                    count(in_files)
                ));
            }
            faults.extend(read.problems.iter().cloned());
        }
        if self.read.iter().all(|read| read.report.sent == 0) {
            faults.push("nothing was sent".into());
        }
        faults
    }

    /// The closing account.
    pub fn render(&self) -> String {
        let ledger = Snapshot::of_ledger(&self.lines);
        let how = match (&self.trouble, self.interrupted) {
            (Some(_), _) => "gave up",
            (None, true) => "interrupted",
            (None, false) => "done",
        };
        let drained = match self.left {
            0 => "and the queues drained",
            _ => "and the queues could not drain",
        };
        let mut text = format!(
            "\n{how} after {:.1} s, {drained}. Items:\n\n  {:<10} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8}\n",
            self.took.as_secs_f64(),
            "",
            "sent",
            "accepted",
            "delivered",
            "in the files",
            "lost",
            "twice",
            "unknown"
        );
        let mut sums = [0; 7];
        let mut row = |name: &str, figures: [u64; 7]| {
            let [sent, accepted, delivered, found, lost, twice, unknown] = figures.map(count);
            text.push_str(&format!(
                "  {name:<10} {sent:>12} {accepted:>12} {delivered:>12} {found:>12} {lost:>8} {twice:>8} {unknown:>8}\n"
            ));
        };
        for read in &self.read {
            let (flow, report) = (ledger.flows[read.signal.index()], read.report);
            let figures = [
                report.sent,
                flow.accepted,
                flow.delivered,
                report.delivered,
                report.lost,
                report.duplicated,
                report.unknown + report.unmarked,
            ];
            sums.iter_mut()
                .zip(figures)
                .for_each(|(sum, figure)| *sum += figure);
            row(read.signal.name(), figures);
        }
        row("together", sums);
        let total = ledger.total();
        text.push_str(&format!(
            "\n  ledger     {} accepted = {} delivered + {} dropped + {} queued{}\n",
            count(total.accepted),
            count(total.delivered),
            count(total.dropped),
            count(total.queued),
            if ledger.balanced { "" } else { ": DOES NOT BALANCE" }
        ));
        text.push_str(&format!(
            "  refused    {} requests, retried when told\n",
            count(self.refused)
        ));
        // A tenth is jitter of a busy machine.
        if !self.interrupted && self.trouble.is_none() && sums[0] < self.planned / 10 * 9 {
            text.push_str(&format!(
                "  pace       {} items were asked for: the gateway or this machine did not keep up\n",
                count(self.planned)
            ));
        }
        if self.given_up > 0 {
            text.push_str(&format!(
                "             {} of them still refused at the end, and not counted as sent\n",
                count(self.given_up)
            ));
        }
        let cpu = self.cpu_seconds.map_or_else(String::new, |cpu| {
            format!(
                ", {cpu:.2} s of CPU, {:.2} cores",
                cpu / self.took.as_secs_f64().max(0.001)
            )
        });
        text.push_str(&format!(
            "  used       {} of memory at most{cpu} (load generator included)\n",
            bytes(self.peak_resident_bytes)
        ));
        let files: Vec<_> = self
            .read
            .iter()
            .flat_map(|read| read.files.iter().map(move |file| (read, file)))
            .collect();
        let size = files.iter().map(|(_, (_, size))| size).sum();
        text.push_str(&format!(
            "  files      {}, {} as {}\n",
            self.directory.display(),
            bytes(size),
            match self.query {
                Some(_) => "Parquet tables",
                None => "OTLP JSON, one request a line",
            }
        ));
        for (_, (path, size)) in &files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text.push_str(&format!("             {name} {}\n", bytes(*size)));
        }
        if let (runs @ 1.., size) = self.earlier {
            text.push_str(&format!(
                "             ({runs} other runs beside it take {}; remove what you do not need)\n",
                bytes(size)
            ));
        }
        if self.is_exact() {
            text.push_str(
                "\nEvery item that was sent is in the files exactly once, and the ledger says the same.",
            );
        }
        if let Some((query, answer)) = &self.query {
            text.push_str(&format!(
                "\n\nAsk any engine that reads Parquet, such as DuckDB:\n\n  duckdb -c \"{query}\"\n"
            ));
            if let Some(answer) = answer {
                text.push_str(&format!("\n{answer}\n"));
            }
        }
        text
    }

    /// What went wrong, for stderr.
    pub fn complaint(&self) -> Option<String> {
        let faults = self.faults();
        (!faults.is_empty()).then(|| {
            format!(
                "sluice demo: this run does not add up:\n  - {}",
                faults.join("\n  - ")
            )
        })
    }
}
