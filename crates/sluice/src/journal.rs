//! `sluice journal`: looking into journals and dead letters on disk, taking out what is in them, and repairing them.

mod export;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use sluice_journal::{Disk, Inspection, inspect, journals, repair};

use crate::cli::{complain, say};

/// What to do with a journal.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalCommand {
    /// Read and check every byte, and say what is wrong; exits non-zero if anything is. Changes nothing.
    Verify {
        /// The directory of a file_storage, or of one journal in it.
        directory: PathBuf,
    },
    /// Say what is in it, and how far each exporter is. Changes nothing.
    Stat {
        /// The directory of a file_storage, or of one journal in it.
        directory: PathBuf,
    },
    /// Write the requests in it to a file, or send them to an OTLP/HTTP endpoint. Changes nothing: remove dead letters
    /// yourself once they are where you want them.
    Export(export::ExportArgs),
    /// Put a damaged journal in order, while no gateway has it open. What is readable stays; the damaged files are kept
    /// in `damaged/`. A gateway does not need it: it delivers what can be read.
    Repair {
        /// The directory of a file_storage, or of one journal in it.
        directory: PathBuf,
    },
}

/// Runs one of the commands.
pub(crate) fn run(command: &JournalCommand) -> ExitCode {
    let (directory, thorough) = match command {
        JournalCommand::Verify { directory } => (directory, true),
        JournalCommand::Stat { directory } => (directory, false),
        JournalCommand::Export(args) => return export::run(args),
        JournalCommand::Repair { directory } => return put_in_order(directory),
    };
    match look(directory, thorough) {
        Ok(found) if found.is_empty() => {
            complain(format_args!("{}: there is no journal in it", directory.display()));
            ExitCode::from(2)
        }
        Ok(found) => {
            let problems: usize = found.iter().map(|journal| journal.problems.len()).sum();
            let code = say(format_args!(
                "{}",
                found.iter().map(text).collect::<String>().trim_end()
            ));
            match thorough && problems > 0 {
                true => ExitCode::FAILURE,
                false => code,
            }
        }
        Err(error) => {
            complain(format_args!("{}: {error}", directory.display()));
            ExitCode::from(2)
        }
    }
}

fn put_in_order(directory: &Path) -> ExitCode {
    let found = match journals(&Disk, directory) {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => {
            complain(format_args!("{}: there is no journal in it", directory.display()));
            return ExitCode::from(2);
        }
        Err(error) => {
            complain(format_args!("{}: {error}", directory.display()));
            return ExitCode::from(2);
        }
    };
    let mut code = ExitCode::SUCCESS;
    for journal in found {
        match repair(&Disk, &journal) {
            Ok(repaired) => {
                let done = format!(
                    "{}: {} segments written anew with {} requests, {} positions\n",
                    journal.display(),
                    repaired.segments.len(),
                    repaired.records,
                    repaired.positions.len()
                );
                say(format_args!("{}", done.trim_end()));
            }
            Err(error) => {
                complain(format_args!("{error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn look(directory: &Path, thorough: bool) -> std::io::Result<Vec<Inspection>> {
    let found = journals(&Disk, directory)?;
    found
        .iter()
        .map(|journal| inspect(&Disk, journal, thorough))
        .collect()
}

fn text(journal: &Inspection) -> String {
    let sum = |of: fn(&sluice_journal::InspectedSegment) -> u64| journal.segments.iter().map(of).sum::<u64>();
    let mut text = format!(
        "{}\n  {} segments, {} bytes: {} requests, {} items, {} bytes inflated\n",
        journal.directory.display(),
        journal.segments.len(),
        sum(|segment| segment.bytes),
        sum(|segment| segment.records),
        sum(|segment| segment.items),
        sum(|segment| segment.inflated_bytes),
    );
    for segment in &journal.segments {
        let (first, last) = segment.numbers.unwrap_or_default();
        let sealed = if segment.sealed { "sealed" } else { "open" };
        text += &format!(
            "  segment {} {sealed}, {} bytes, {} requests ({first} to {last}), {} items\n",
            segment.name, segment.bytes, segment.records, segment.items
        );
    }
    for cursor in &journal.cursors {
        text += &format!(
            "  exporter {}: settled up to {}, {} requests with {} items wait\n",
            cursor.exporter, cursor.floor, cursor.waiting, cursor.waiting_items
        );
    }
    for ((signal, refusal), cost) in &journal.letters {
        text += &format!(
            "  dead letters of {}: {} requests with {} items of {signal}, refused: {}\n",
            refusal.exporter, cost.requests, cost.items, refusal.reason
        );
    }
    for problem in &journal.problems {
        text += &format!("  problem: {problem}\n");
    }
    text
}
