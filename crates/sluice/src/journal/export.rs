//! `sluice journal export`: through the exporters a gateway has, one stored request at a time.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use sluice_journal::{Disk, Stored, Which, export, journals};
use sluice_otlp::exporter::{
    FileExporter, FileExporterOptions, FileFormat, HttpExporter, HttpExporterOptions,
};
use sluice_payload::{Signal, WireFormat};
use sluice_pipeline::{Batch, Exporter, Part, Verdict};
use tokio::runtime::Runtime;

use crate::cli::complain;

/// A destination that is busy is asked again after this long, or after what it asks for.
const PAUSE: Duration = Duration::from_secs(1);

/// And so often for one request, before the command ends.
const ATTEMPTS: u32 = 10;

/// What to take out, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The directory of a file_storage, or of one journal or of dead letters in it.
    directory: PathBuf,
    /// Only what this exporter has not delivered, by its id.
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    exporter: Option<String>,
    /// Everything that is there, delivered or not. Without it: what some exporter has not delivered, and dead letters.
    #[arg(long)]
    all: bool,
    /// Only this signal: metrics, logs, traces or profiles.
    #[arg(long, value_parser = signal)]
    signal: Option<Signal>,
    /// The file to write, in the formats of the file exporter; it is replaced.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/dev/stdout",
        conflicts_with = "to"
    )]
    file: PathBuf,
    /// How requests are written to the file.
    #[arg(long, value_enum, default_value_t = Format::Json, conflicts_with = "to")]
    format: Format,
    /// Send to this OTLP/HTTP endpoint instead, as in `http://localhost:4318`.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// A header of each request that is sent, as in `authorization=Bearer abc`.
    #[arg(long, value_name = "NAME=VALUE", requires = "to", value_parser = header)]
    header: Vec<(String, String)>,
}

/// How requests are written to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line of OTLP/JSON each.
    Json,
    /// Four bytes of length, big endian, then protobuf.
    Proto,
}

fn signal(text: &str) -> Result<Signal, String> {
    let found = Signal::ALL.into_iter().find(|signal| signal.as_str() == text);
    found.ok_or_else(|| "expected metrics, logs, traces or profiles".to_owned())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

#[derive(Debug, Default)]
struct Outcome {
    requests: u64,
    items: u64,
    refused: u64,
}

/// Runs the command.
pub(super) fn run(args: &ExportArgs) -> ExitCode {
    match take_out(args) {
        Ok((outcome, damaged)) => {
            let Outcome {
                requests,
                items,
                refused,
            } = outcome;
            complain(format_args!(
                "{requests} requests with {items} items; {refused} refused, {damaged} places could not be read"
            ));
            match refused + damaged {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            complain(format_args!("{}: {error}", args.directory.display()));
            ExitCode::from(2)
        }
    }
}

fn take_out(args: &ExportArgs) -> Result<(Outcome, u64), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let found = journals(&Disk, &args.directory).map_err(|error| text(&error))?;
    if found.is_empty() {
        return Err("there is no journal in it".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| text(&error))?;
    let exporter: Box<dyn Exporter> = {
        let _inside = runtime.enter();
        match &args.to {
            Some(endpoint) => Box::new(http(endpoint, args)?),
            None => Box::new(file(args).map_err(|error| text(&error))?),
        }
    };
    let which = match (&args.exporter, args.all) {
        (Some(exporter), _) => Which::WaitingFor(exporter.clone()),
        (None, true) => Which::All,
        (None, false) => Which::Waiting,
    };
    let (mut outcome, mut damaged) = (Outcome::default(), 0);
    for journal in found {
        damaged += export(&Disk, &journal, &which, &mut |stored| match args
            .signal
            .is_none_or(|signal| signal == stored.signal)
        {
            true => send(&runtime, &*exporter, stored, &mut outcome),
            false => Ok(()),
        })
        .map_err(|error| text(&error))?;
    }
    runtime.block_on(exporter.shutdown());
    Ok((outcome, damaged))
}

fn http(endpoint: &str, args: &ExportArgs) -> Result<HttpExporter, String> {
    let options = HttpExporterOptions {
        endpoint: Some(endpoint.to_owned()),
        headers: args.header.clone(),
        ..HttpExporterOptions::default()
    };
    HttpExporter::new(options).map_err(|error| format!("--to: {error}"))
}

fn file(args: &ExportArgs) -> io::Result<FileExporter> {
    FileExporter::open(FileExporterOptions {
        path: args.file.clone(),
        format: match args.format {
            Format::Json => FileFormat::Json,
            Format::Proto => FileFormat::Proto,
        },
        zstd: false,
        rotation: None,
        append: false,
        create_directory: false,
    })
}

/// The request as OTLP, which is what the exporters of this command read.
#[cfg(feature = "remote-write")]
fn as_otlp(stored: &Stored) -> Result<Bytes, String> {
    use sluice_remote_write::{Version, to_otlp};
    let version = match stored.wire_format {
        WireFormat::Otlp => return Ok(stored.body.clone()),
        WireFormat::RemoteWrite1 => Version::V1,
        WireFormat::RemoteWrite2 => Version::V2,
    };
    match to_otlp(version, &stored.body) {
        Ok((otlp, taken)) if taken.left_out_histograms == 0 => Ok(otlp.into()),
        Ok((_, taken)) => Err(format!(
            "it came as remote write, and OTLP cannot say {} of its native histograms",
            taken.left_out_histograms
        )),
        Err(error) => Err(format!(
            "it came as remote write, and OTLP cannot say it: {error}"
        )),
    }
}

#[cfg(not(feature = "remote-write"))]
fn as_otlp(stored: &Stored) -> Result<Bytes, String> {
    match stored.wire_format {
        WireFormat::Otlp => Ok(stored.body.clone()),
        _ => Err("it came as remote write: build sluice with the feature remote-write".to_owned()),
    }
}

/// Sends one request until it is taken or refused for good.
fn send(runtime: &Runtime, exporter: &dyn Exporter, stored: Stored, outcome: &mut Outcome) -> io::Result<()> {
    let (seq, items) = (stored.seq, stored.items);
    let body = match as_otlp(&stored) {
        Ok(body) => body,
        Err(reason) => {
            complain(format_args!("request {seq} is refused: {reason}"));
            outcome.refused += 1;
            return Ok(());
        }
    };
    let batch = Batch {
        signal: stored.signal,
        parts: vec![Part {
            body,
            wire_format: WireFormat::Otlp,
            items,
            frame: None,
        }],
    };
    for _ in 0..ATTEMPTS {
        let reason = match runtime.block_on(exporter.export(&batch)) {
            Verdict::Delivered { rejected: 0, .. } => {
                outcome.requests += 1;
                outcome.items += items;
                return Ok(());
            }
            Verdict::Delivered { rejected, message } => {
                let message = message.unwrap_or_default();
                format!("{rejected} of {items} items rejected: {message}")
            }
            Verdict::InPart { rejected, .. } => format!("{rejected} of {items} items rejected"),
            Verdict::Retry { after, reason } => {
                complain(format_args!("request {seq}: {reason}; it is tried again"));
                runtime.block_on(tokio::time::sleep(after.unwrap_or(PAUSE)));
                continue;
            }
            Verdict::TooLarge { reason } | Verdict::PayloadFault { reason } => reason,
            Verdict::EndpointFault { reason } | Verdict::Exhausted { reason } => {
                return Err(io::Error::other(reason));
            }
        };
        complain(format_args!("request {seq} is refused: {reason}"));
        outcome.refused += 1;
        return Ok(());
    }
    Err(io::Error::other(
        "the destination takes nothing; nothing more is sent",
    ))
}
