//! What a run will send, where it goes, and how much room that takes.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_loadgen::{Generator, Signal, Spec};
use sluice_otlp::json;
use sluice_pipeline::kind;

use crate::settings::{Exporter, Extension, FileCompression, FileFormat, ListenAddress, Receiver, Settings};

use super::screen::{bytes, count};

/// Items in a request when there are enough of them: what an agent in front of a few services sends.
const MAX_ITEMS_PER_REQUEST: u32 = 120;

/// With few items a second, requests get smaller rather than rarer than this.
const MIN_REQUESTS_PER_SECOND: f64 = 4.0;

/// Tables are cut this often, so that there is something to see.
const MAX_AGE: Duration = Duration::from_secs(2);

/// What the Parquet files of all tables of one cut take beside their rows, at most: names, statistics and indexes of some 40 columns
/// each, and so much again because a run may straddle an hour.
const CUT_BYTES: f64 = 6.0 * 2.0 * 64.0 * 1024.0;

/// More than this on somebody's disk is a mistake in `--rate` or `--seconds`.
const MAX_DISK_BYTES: u64 = 20_000_000_000;

/// What the generators prepare for each request in turn, and so what is sampled for its size.
const VARIANTS: u32 = 16;

/// How a sender reaches the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Grpc,
    Http,
}

/// One client of the gateway.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    pub signal: Signal,
    pub way: Way,
    pub compression: sluice_client::Compression,
    /// What it sends.
    pub spec: Spec,
    /// The time from one request to the next.
    pub interval: Duration,
    /// How many requests fit the run.
    pub requests: u64,
}

/// What a run will send.
#[derive(Debug)]
pub(super) struct Plan {
    pub duration: Duration,
    pub rate: u32,
    pub senders: Vec<Sender>,
    /// The most its files can take, as lines or tables.
    pub max_disk_bytes: u64,
}

impl Plan {
    /// Half of the items are data points, the rest log records and spans; every signal over both protocols.
    ///
    /// # Errors
    /// When that would fill a disk.
    pub fn new(rate: u32, duration: Duration) -> Result<Self, String> {
        use sluice_client::Compression::{Gzip, None, Zstd};
        const SENDERS: [(Signal, Way, sluice_client::Compression, f64); 6] = [
            (Signal::Metrics, Way::Grpc, Gzip, 0.25),
            (Signal::Metrics, Way::Http, Zstd, 0.25),
            (Signal::Logs, Way::Grpc, Zstd, 0.125),
            (Signal::Logs, Way::Http, None, 0.125),
            (Signal::Traces, Way::Grpc, None, 0.125),
            (Signal::Traces, Way::Http, Gzip, 0.125),
        ];
        let mut senders = Vec::new();
        let mut max_disk_bytes = 0.0;
        for (lane, (signal, way, compression, share)) in (0..).zip(SENDERS) {
            let rate = f64::from(rate) * share;
            let items = (rate / MIN_REQUESTS_PER_SECOND).clamp(1.0, f64::from(MAX_ITEMS_PER_REQUEST)) as u32;
            let spec = Spec {
                variants: VARIANTS,
                ..Spec::mixed(signal)
                    .items(items)
                    .seed(u64::from(lane) + 1)
                    .lane(lane)
            };
            let interval = Duration::from_secs_f64(f64::from(items) / rate);
            let requests = (duration.as_secs_f64() / interval.as_secs_f64()).ceil().max(1.0) as u64;
            max_disk_bytes += requests as f64 * largest_record(&spec)? as f64;
            senders.push(Sender {
                signal,
                way,
                compression,
                spec,
                interval,
                requests,
            });
        }
        // Rows take less than the JSON they would be.
        max_disk_bytes += CUT_BYTES * (1.0 + duration.as_secs_f64() / MAX_AGE.as_secs_f64()).ceil();
        let max_disk_bytes = max_disk_bytes as u64;
        if max_disk_bytes > MAX_DISK_BYTES {
            return Err(format!(
                "this run could write {}, more than the {} a demo may; lower --rate or --seconds",
                bytes(max_disk_bytes),
                bytes(MAX_DISK_BYTES)
            ));
        }
        Ok(Self {
            duration,
            rate,
            senders,
            max_disk_bytes,
        })
    }

    /// Items that fit the run.
    pub fn items(&self) -> u64 {
        self.senders
            .iter()
            .map(|sender| sender.requests * u64::from(sender.spec.items_per_request))
            .sum()
    }

    /// In a breath.
    pub fn describe(&self) -> String {
        format!(
            "{} items/s for {} s, metrics, logs and traces, over OTLP/gRPC and OTLP/HTTP, plain, gzip and zstd",
            count(u64::from(self.rate)),
            self.duration.as_secs_f64()
        )
    }
}

/// The longest record that a request of this kind becomes in a file. Several in one batch share an envelope, and so
/// take less.
fn largest_record(spec: &Spec) -> Result<usize, String> {
    let mut longest = 0;
    let mut record = Vec::new();
    for request in Generator::new(spec.clone()).take(VARIANTS as usize) {
        record.clear();
        json::encode(
            json::request_schema(kind(signal_of(spec.signal))),
            &request.body,
            &mut record,
        )
        .map_err(|error| format!("a generated request has no JSON form: {error}"))?;
        longest = longest.max(record.len() + 1);
    }
    // Times and counters have a few digits more or less from one use of a body to the next.
    Ok(longest + longest / 20)
}

/// The gateway's word for a signal.
pub(super) fn signal_of(signal: Signal) -> sluice_payload::Signal {
    match signal {
        Signal::Metrics => sluice_payload::Signal::Metrics,
        Signal::Logs => sluice_payload::Signal::Logs,
        Signal::Traces => sluice_payload::Signal::Traces,
    }
}

/// How a signal is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// OTLP JSON, one request a line.
    Lines,
    /// Parquet.
    #[cfg_attr(
        not(feature = "parquet"),
        allow(dead_code, reason = "nothing writes them then")
    )]
    Tables,
}

/// A signal's file, before rotation; or the directory of its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignalFile {
    pub signal: Signal,
    pub path: PathBuf,
    pub form: Form,
}

/// Moves the files of the `file` and `parquet` exporters into `directory` and keeps all that is put aside. Returns the file of every
/// signal.
///
/// # Errors
/// When a signal does not go into exactly one place of its own that can be read back.
pub(super) fn move_files(settings: &mut Settings, directory: &Path) -> Result<Vec<SignalFile>, String> {
    let mut files = Vec::new();
    for signal in Signal::ALL {
        let only = |found: usize| {
            format!(
                "{signal} need one pipeline with one parquet exporter, or one file exporter of its own, to be read back from, and have {found}; \
                 leave pipelines and exporters as the built-in default has them"
            )
        };
        let exporters: Vec<_> = settings
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.signal == signal_of(signal))
            .flat_map(|pipeline| pipeline.exporters.clone())
            .collect();
        let [id] = &exporters[..] else {
            return Err(only(exporters.len()));
        };
        #[cfg(feature = "parquet")]
        if let Some(Exporter::Parquet(tables)) = settings.exporters.get_mut(id) {
            if tables.path.as_os_str().is_empty() {
                return Err(format!(
                    "exporters.{id}: the demo reads directories back; use path"
                ));
            }
            if tables.tenant_prefix {
                return Err(format!(
                    "exporters.{id}: the demo has no tenants; leave tenant_prefix out"
                ));
            }
            tables.path = directory.to_owned();
            tables.spool_directory = None;
            // Something to see while it runs.
            tables.max_age = tables.max_age.min(MAX_AGE);
            files.push(SignalFile {
                signal,
                path: directory.to_owned(),
                form: Form::Tables,
            });
            continue;
        }
        if settings.signals_of(id).len() != 1 {
            return Err(only(0));
        }
        let Some(Exporter::File(file)) = settings.exporters.get_mut(id) else {
            return Err(only(0));
        };
        if file.format != FileFormat::Json || file.compression != FileCompression::None {
            return Err(format!(
                "exporters.{id}: the demo reads JSON lines back; leave format and compression alone"
            ));
        }
        let name = file
            .path
            .file_name()
            .ok_or_else(|| format!("exporters.{id}.path: there is no file name"))?;
        file.path = directory.join(name);
        file.create_directory = true;
        if let Some(rotation) = &mut file.rotation {
            (rotation.max_backups, rotation.max_days) = (0, 0);
        }
        files.push(SignalFile {
            signal,
            path: file.path.clone(),
            form: Form::Lines,
        });
    }
    Ok(files)
}

/// Lets the system choose the port of every listener whose own is taken; returns those that were.
pub(super) fn free_ports(settings: &mut Settings) -> Vec<String> {
    let mut listeners: Vec<&mut ListenAddress> = Vec::new();
    for receiver in settings.receivers.values_mut() {
        if let Receiver::Otlp(otlp) = receiver {
            listeners.extend(otlp.grpc.as_mut().map(|grpc| &mut grpc.endpoint));
            listeners.extend(otlp.http.as_mut().map(|http| &mut http.endpoint));
        }
    }
    for extension in settings.extensions.values_mut() {
        match extension {
            Extension::HealthCheck(health) => listeners.push(&mut health.endpoint),
            Extension::Zpages(zpages) => listeners.push(&mut zpages.endpoint),
            _ => {}
        }
    }
    listeners.extend(settings.telemetry.metrics.listen.as_mut());
    let mut taken = Vec::new();
    for listener in listeners {
        if listener.port != 0 && !is_free(listener) {
            taken.push(listener.to_string());
            listener.port = 0;
        }
    }
    taken
}

/// Whether the address that the gateway would choose can be bound just now.
fn is_free(listener: &ListenAddress) -> bool {
    let host = if listener.host.is_empty() {
        "0.0.0.0"
    } else {
        &listener.host
    };
    let Ok(addresses) = (host, listener.port).to_socket_addrs() else {
        return false;
    };
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort_by_key(std::net::SocketAddr::is_ipv6);
    addresses
        .first()
        .is_some_and(|address| TcpListener::bind(address).is_ok())
}
