//! The command line of `sluice-rig`.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sluice_loadgen::{Signal, Spec};

use crate::compare::{self, CompareArgs};
use crate::disk::{self, DiskArgs};
use crate::floor::{self, FloorArgs};
use crate::load::{self, Bodies, Encoding, Pace, Plan, Protocol};
use crate::siege::{self, SiegeArgs};
use crate::sink::{Check, Script, Sink, SinkOptions};
use crate::units;

/// gRPC calls under way at a time, for each connection, where nothing else is said.
const CALLS_PER_CONNECTION: u32 = 2;

#[derive(Parser, Debug)]
#[command(
    name = "sluice-rig",
    version,
    about = "Load, a counting sink, and the comparison of telemetry gateways at equal work"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Send OTLP or Prometheus remote write requests, at an exact rate or from virtual users, and print what became
    /// of them as JSON.
    Load(Box<LoadArgs>),
    /// Receive OTLP and Prometheus remote write, account for every item by id, and misbehave as told; prints the account as JSON when it
    /// ends.
    Sink(SinkArgs),
    /// Forward OTLP/HTTP with none of a gateway's duties: what any gateway on this stack must at least pay.
    Floor(FloorArgs),
    /// Measure gateways side by side, and write a report.
    Compare(Box<CompareArgs>),
    /// Put gateways into a control group with little memory, and do to them what makes gateways run out of it.
    Siege(SiegeArgs),
    /// Measure what a disk can do by itself: syncs of small writes, and reading; prints it as JSON.
    Disk(DiskArgs),
}

#[derive(Args, Debug)]
struct LoadArgs {
    /// Host and port of the gateway.
    #[arg(long, default_value = "127.0.0.1:4318")]
    target: String,
    /// Path of requests over HTTP, for gateways that take them elsewhere [default: OTLP's, /v1/metrics and the like;
    /// remote write /api/v1/write].
    #[arg(long)]
    path: Option<String>,
    /// A header beside those of the protocol, such as X-Scope-OrgID=acme; may be given several times.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// How requests travel.
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// metrics, logs or traces.
    #[arg(long, default_value = "metrics")]
    signal: Signal,
    /// Items of many kinds from several services, instead of items that are all alike; of remote write, gauges and
    /// counters.
    #[arg(long)]
    mixed: bool,
    /// Items in each request [default: 500, traces 467; mixed 120].
    #[arg(long)]
    points: Option<u32>,
    /// Attributes of each item, for metrics and logs including the one that carries its id [default: 6; mixed
    /// 5].
    #[arg(long)]
    attributes: Option<u32>,
    /// Metrics: every point draws its own time and attribute values, instead of one time for a request and the
    /// same attributes under each of its metrics, as an SDK collects them.
    #[arg(long)]
    varied: bool,
    /// Resources in each request [default: 1; mixed 4].
    #[arg(long)]
    resources: Option<u32>,
    /// Metrics: series live at a time, over all senders, not counting the attribute with the id; rounded up
    /// to whole requests of each sender. 0 leaves it to chance.
    #[arg(long, default_value_t = 0)]
    series: u64,
    /// With --series: of a million points, how many begin a new series; in whole requests.
    #[arg(long, default_value_t = 0)]
    churn: u32,
    /// How bodies are compressed [default: identity; remote write snappy].
    #[arg(long, value_enum)]
    encoding: Option<Encoding>,
    /// Send the same so many prepared requests of each sender over and over, instead of new ids in each
    /// request: items are then counted instead of told apart.
    #[arg(long, value_name = "NUMBER")]
    repeat: Option<u32>,
    /// Number of connections.
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Virtual users: senders that wait for their answers. Over HTTP each has a connection of its own
    /// [default: --connections; gRPC: twice as many].
    #[arg(long)]
    vus: Option<u32>,
    /// Closed loop: pause of a virtual user before its next request; a duration, or a range as in 10ms..90ms.
    #[arg(long, value_parser = think, default_value = "0", conflicts_with = "rate")]
    think: (Duration, Duration),
    /// Open loop: exactly so many items per second, whatever the answers do. Without it every virtual user
    /// sends as soon as it has been answered and has thought.
    #[arg(long)]
    rate: Option<u64>,
    /// How long to send.
    #[arg(long, value_parser = units::duration, default_value = "10s")]
    duration: Duration,
    /// First id lane; each sender takes one. Loads that share an account need lanes of their own.
    #[arg(long, default_value_t = 0)]
    lane: u32,
    /// Control address of the sink that is to be told what was sent.
    #[arg(long, value_name = "ADDRESS")]
    account: Option<String>,
    /// Print latencies as a histogram too, to be put together with those of other loads.
    #[arg(long)]
    buckets: bool,
}

fn think(text: &str) -> Result<(Duration, Duration), String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    Ok((units::duration(low)?, units::duration(high)?))
}

/// `NAME=VALUE`.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    match is_name && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        true => Ok((name.to_owned(), value.to_owned())),
        false => Err("expected a header's NAME=VALUE of letters, digits and what can be printed".into()),
    }
}

impl LoadArgs {
    fn plan(self) -> Plan {
        let mut spec = if self.mixed {
            Spec::mixed(self.signal)
        } else {
            Spec::gateway(self.signal)
        };
        spec.items_per_request = self.points.unwrap_or(spec.items_per_request);
        spec.attributes_per_item = self.attributes.unwrap_or(spec.attributes_per_item);
        spec.resources = self.resources.unwrap_or(spec.resources);
        spec.varied = self.varied;
        spec.series = self.series;
        spec.churn_per_million = self.churn;
        let senders = match self.protocol {
            Protocol::Http | Protocol::Json | Protocol::RemoteWrite | Protocol::RemoteWrite2 => {
                self.connections
            }
            Protocol::Grpc => self.connections * CALLS_PER_CONNECTION,
        };
        Plan {
            target: self.target,
            path: self.path,
            headers: self.headers,
            protocol: self.protocol,
            spec,
            encoding: self.encoding.unwrap_or(self.protocol.default_encoding()),
            bodies: self.repeat.map_or(Bodies::Fresh, Bodies::Repeated),
            connections: self.connections,
            senders: self.vus.unwrap_or(senders),
            pace: match self.rate {
                Some(items_per_second) => Pace::Open { items_per_second },
                None => Pace::Closed { think: self.think },
            },
            duration: self.duration,
            lane: self.lane,
            account: self.account,
        }
    }
}

#[derive(Args, Debug)]
struct SinkArgs {
    /// Address for OTLP/HTTP, and for remote write 1.0 and 2.0 at /api/v1/write: samples are told apart by their
    /// label sluice_id.
    #[arg(long, default_value = "127.0.0.1:24318")]
    http: String,
    /// Address for OTLP/gRPC.
    #[arg(long, default_value = "127.0.0.1:24317")]
    grpc: String,
    /// Address for the account (GET /account, /stats) and the faults (PUT /faults).
    #[arg(long, default_value = "127.0.0.1:24319")]
    control: String,
    /// How closely to look: every item at once, most of it later and cheaply, or bytes only.
    #[arg(long, value_enum, default_value = "now")]
    check: Check,
    /// What to do wrong: rules such as "every 10: status 503, retry-after 2s", separated by semicolons;
    /// deploy/compare/README.md has the language.
    #[arg(long, default_value = "")]
    faults: Script,
}

#[allow(clippy::print_stdout, reason = "the account is the output")]
fn run_sink(args: SinkArgs) -> Result<(), String> {
    let sink = Sink::start(SinkOptions {
        http: args.http,
        grpc: args.grpc,
        control: args.control,
        check: args.check,
        faults: args.faults,
    })?;
    eprintln!(
        "OTLP/HTTP and remote write {}, OTLP/gRPC {}, control {}",
        sink.http(),
        sink.grpc(),
        sink.control()
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|error| format!("cannot wait for SIGTERM: {error}"))?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            outcome = tokio::signal::ctrl_c() => outcome.map_err(|error| error.to_string()),
        }
    })?;
    println!("{}", sink.summary());
    Ok(())
}

#[allow(clippy::print_stdout, reason = "the report is the output")]
fn run_load(args: LoadArgs) -> Result<(), String> {
    let with_buckets = args.buckets;
    let mut report = load::run(&args.plan())?;
    if !with_buckets {
        report.latency_buckets_us.clear();
    }
    println!(
        "{}",
        serde_json::to_string(&report).map_err(|error| error.to_string())?
    );
    Ok(())
}

/// Runs a command line; the exit code is not zero if it could not be carried out.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match Cli::parse_from(args).command {
        Command::Load(args) => run_load(*args),
        Command::Sink(args) => run_sink(args),
        Command::Floor(args) => floor::run(args),
        Command::Compare(args) => compare::run(*args),
        Command::Siege(args) => siege::run(&args),
        Command::Disk(args) => disk::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-rig: {error}");
            ExitCode::FAILURE
        }
    }
}
