//! Gateways side by side, at equal work: each is a child process between a load and a sink that accounts for
//! every item.
//!
//! Gateways take turns within a repeat, and the turn rotates, so that none of them has the quiet minutes of a
//! machine for itself. Ratios are made within a repeat. What could not be measured is in the report, with the
//! reason.

mod chart;
mod html;
mod machine;
mod measure;
mod peer;
pub(crate) mod process;
mod report;
mod scenario;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::load::{Encoding, Protocol};
use crate::units;
use machine::Machine;
use measure::Bench;
use peer::{Found, NoCommand, Peer, Ports};
use process::Cgroups;
use report::{Report, Sample, Work};
use scenario::{DEFAULT, Mode, Placement, SCENARIOS, Scenario};

/// Distances of the ports from the first one.
const PORTS: [u16; 5] = [0, 1, 2, 3, 4];

/// What to compare.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Gateways, as NAME or NAME=PATH; NAME is one of peers.txt, or begins with one
    /// (sluice-old=/usr/bin/sluice). Arguments of its own may follow, without commas:
    /// 'sluice-shallow --set receivers.otlp.validation=shallow' [default: every one that is found].
    #[arg(
        long = "peer",
        value_name = "NAME[=PATH][ ARGUMENT ...]",
        value_delimiter = ','
    )]
    peers: Vec<String>,
    /// The gateways that ratios refer to: in each table the first of these that does its work
    /// [default: the first gateway that does].
    #[arg(long = "baseline", value_name = "NAME", value_delimiter = ',')]
    baselines: Vec<String>,
    /// Whose faults make the comparison fail: items lost, delivered twice or altered, nothing delivered, a
    /// gateway that ended or is not there. All of them are reported, whatever this says.
    #[arg(long, value_enum, default_value = "ours")]
    fail_on: FailOn,
    /// What to send: names, "all", or "sweep".
    #[arg(long = "scenario", value_name = "NAME", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// How to send it.
    #[arg(
        long = "mode",
        value_enum,
        value_delimiter = ',',
        default_value = "fixed,saturated"
    )]
    modes: Vec<Mode>,
    /// How often each measurement is repeated.
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// How long each lasts.
    #[arg(long, value_parser = units::duration, default_value = "10s")]
    duration: Duration,
    /// How long the load runs, at the fixed rate, before anything is measured.
    #[arg(long, value_parser = units::duration, default_value = "2s")]
    warm_up: Duration,
    /// Items per second of the fixed mode, in place of the scenarios' own.
    #[arg(long)]
    rate: Option<u64>,
    /// Connections, in place of the scenarios' own.
    #[arg(long)]
    connections: Option<u32>,
    /// Items in each request, in place of the scenarios' own.
    #[arg(long)]
    points: Option<u32>,
    /// Directory of peers.txt and of the gateways' configurations.
    #[arg(long, default_value = "deploy/compare")]
    configurations: PathBuf,
    /// Directory for report.json, report.md, report.html, report.svg and the logs.
    #[arg(long, default_value = "target/compare")]
    out: PathBuf,
    /// First of five ports on 127.0.0.1: gateway gRPC and HTTP, sink gRPC, HTTP and control.
    #[arg(long, default_value_t = 14317)]
    base_port: u16,
    /// Do not use control groups, even if they can be had.
    #[arg(long)]
    no_cgroups: bool,
    /// Show the scenarios and gateways, and end.
    #[arg(long)]
    list: bool,
    /// Write the other reports again from this report.json, and measure nothing.
    #[arg(long, value_name = "FILE")]
    render: Option<PathBuf>,
}

/// Which gateways have to be without fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// Those whose names begin with sluice or floor.
    Ours,
    /// All of them.
    Any,
    /// None: that peers lose things is what is measured.
    Never,
}

impl FailOn {
    fn concerns(self, gateway: &str) -> bool {
        match self {
            FailOn::Ours => ["sluice", "floor"].iter().any(|ours| gateway.starts_with(ours)),
            FailOn::Any => true,
            FailOn::Never => false,
        }
    }
}

/// Measures, or lists, or writes a report again.
///
/// # Errors
/// What keeps it from measuring; or the measurements in which a gateway did what it must not, see `--fail-on`.
pub(crate) fn run(args: CompareArgs) -> Result<(), String> {
    let out = measure::prepare(&args.out)?;
    if let Some(file) = &args.render {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let report = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        return write(&report, &out);
    }
    let table = args.configurations.join("peers.txt");
    let kinds = fs::read_to_string(&table).map_err(|error| {
        format!(
            "{}: {error}; start the rig in the repository, or name its deploy/compare with --configurations",
            table.display()
        )
    })?;
    let Found { peers, absent } = peer::find(&peer::read_kinds(&kinds)?, &args.peers)?;
    if args.list {
        list(&peers, &absent);
        return Ok(());
    }
    if peers.is_empty() {
        return Err(format!("no gateway is there: {absent:?}"));
    }
    let lock = out.join("lock");
    let lock = File::create(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    lock.try_lock()
        .map_err(|_| format!("another comparison is running in {}", out.display()))?;

    let scenarios = chosen(&args)?;
    let bench = bench(&args, &out)?;
    let is_asked = |name: &String| {
        peers.iter().any(|peer| peer.name == *name) || absent.iter().any(|(absent, _)| absent == name)
    };
    if let Some(baseline) = args.baselines.iter().find(|name| !is_asked(name)) {
        return Err(format!("the baseline {baseline:?} is not among the gateways"));
    }
    let mut report = Report {
        taken: machine::now(),
        command: command_line(),
        machine: Machine::describe(bench.cores.len(), accounting(&args, &bench)),
        seconds: args.duration.as_secs_f64(),
        warm_up_seconds: args.warm_up.as_secs_f64(),
        repeats: args.repeats,
        baselines: args.baselines.clone(),
        shared_cores: Placement::of(Mode::Fixed, &bench.cores).is_shared(),
        works: scenarios.iter().map(work).collect(),
        remarks: remarks(&peers),
        absent,
        samples: Vec::new(),
    };
    for scenario in &scenarios {
        for mode in &args.modes {
            // A process that is left alone does not care what it would be sent.
            if *mode == Mode::Idle && scenario.name != scenarios[0].name {
                continue;
            }
            for repeat in 0..args.repeats {
                for turn in 0..peers.len() {
                    let peer = &peers[(turn + repeat as usize) % peers.len()];
                    let sample = sample(&bench, peer, scenario, *mode, repeat);
                    eprintln!("{}", line(&sample));
                    report.samples.push(sample);
                    // Whatever ends the rig, what has been measured is there.
                    write(&report, &out)?;
                }
            }
        }
    }
    let name = |name: &str| out.join(name).display().to_string();
    eprintln!(
        "\n{}\n{}\n{}\n{}",
        name("report.html"),
        name("report.svg"),
        name("report.md"),
        name("report.json")
    );
    print(&report.markdown());
    judge(&report, args.fail_on)
}

/// Tells all faults; those that count are the error.
fn judge(report: &Report, fail_on: FailOn) -> Result<(), String> {
    if report.samples.iter().all(|sample| sample.figures.is_none()) {
        return Err("nothing was measured: the report says why".into());
    }
    let (failures, others): (Vec<_>, Vec<_>) = report
        .faults()
        .into_iter()
        .partition(|(gateway, _)| fail_on.concerns(gateway));
    for (_, fault) in others {
        eprintln!("not a failure, by --fail-on: {fault}");
    }
    let failures: Vec<_> = failures.into_iter().map(|(_, fault)| fault).collect();
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the comparison fails, see --fail-on:\n{}",
        failures.join("\n")
    ))
}

#[allow(clippy::print_stdout, reason = "the table is the output")]
fn print(text: &str) {
    println!("{text}");
}

fn list(peers: &[Peer], absent: &[(String, String)]) {
    for scenario in SCENARIOS {
        print(&format!("{:24} {}", scenario.name, scenario.about));
    }
    print("");
    for peer in peers {
        print(&format!("{:24} {}", peer.name, peer.executable.display()));
    }
    for (name, error) in absent {
        print(&format!("{name:24} absent: {error}"));
    }
}

fn chosen(args: &CompareArgs) -> Result<Vec<Scenario>, String> {
    let default: Vec<String> = DEFAULT.iter().map(|name| name.to_string()).collect();
    let names = if args.scenarios.is_empty() {
        &default
    } else {
        &args.scenarios
    };
    let scenarios = Scenario::choose(names)?.into_iter();
    Ok(scenarios
        .map(|scenario| Scenario {
            rate: args.rate.unwrap_or(scenario.rate),
            connections: args.connections.unwrap_or(scenario.connections),
            items: args.points.unwrap_or(scenario.items),
            ..scenario
        })
        .collect())
}

fn bench(args: &CompareArgs, out: &Path) -> Result<Bench, String> {
    let cores = process::usable_cores()?;
    if cores.len() < 2 {
        return Err(
            "this machine has one core for the rig: a gateway cannot be measured beside its load".into(),
        );
    }
    let [gateway_grpc, gateway_http, sink_grpc, sink_http, sink_control] =
        PORTS.map(|distance| args.base_port.saturating_add(distance));
    let cgroups = if args.no_cgroups {
        None
    } else {
        Cgroups::find().ok()
    };
    Ok(Bench {
        rig: std::env::current_exe().map_err(|error| format!("cannot find the rig itself: {error}"))?,
        ports: Ports {
            gateway_http,
            gateway_grpc,
            sink_http,
            sink_grpc,
            sink_control,
        },
        cores,
        cgroups,
        configurations: args.configurations.clone(),
        out: out.into(),
        duration: args.duration,
        warm_up: args.warm_up,
    })
}

fn accounting(args: &CompareArgs, bench: &Bench) -> String {
    match (&bench.cgroups, args.no_cgroups) {
        (Some(_), _) => "control group (v2)".into(),
        (None, true) => "/proc".into(),
        (None, false) => {
            let why = Cgroups::find().err().unwrap_or_default();
            format!("/proc ({why})")
        }
    }
}

/// The command as it was given; of absolute paths only the last part, for where things lie here is of no
/// interest.
fn command_line() -> String {
    let arguments = std::env::args()
        .skip(1)
        .map(|argument| quoted(without_directories(&argument)));
    std::iter::once("sluice-rig".to_string())
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted(argument: String) -> String {
    if argument.contains(' ') {
        format!("'{argument}'")
    } else {
        argument
    }
}

fn without_directories(argument: &str) -> String {
    let part = |part: &str| {
        let (gateway, arguments) = peer::split_arguments(part);
        let (name, path) = gateway.split_once('=').unwrap_or(("", gateway));
        let Some((_, file)) = path.rsplit_once('/').filter(|_| path.starts_with('/')) else {
            return part.to_string();
        };
        let equals = if name.is_empty() { "" } else { "=" };
        format!("{name}{equals}{file} {arguments}").trim_end().to_string()
    };
    argument.split(',').map(part).collect::<Vec<_>>().join(",")
}

fn work(scenario: &Scenario) -> Work {
    Work {
        scenario: scenario.name.into(),
        about: scenario.about.into(),
        items: scenario.item_name().into(),
        rate: scenario.rate,
        items_per_request: scenario.items_per_request(),
        connections: scenario.connections,
        saturated_by_id: scenario.encoding == Encoding::Identity && scenario.protocol != Protocol::Json,
    }
}

fn remarks(peers: &[Peer]) -> Vec<(String, String)> {
    let remarked = peers.iter().filter(|peer| !peer.kind.remark.is_empty());
    remarked
        .map(|peer| (peer.name.clone(), peer.kind.remark.clone()))
        .collect()
}

fn sample(bench: &Bench, peer: &Peer, scenario: &Scenario, mode: Mode, repeat: u32) -> Sample {
    let (measured, not_its_work) = match bench.command(peer, scenario, mode) {
        Ok(command) => (bench.measure(peer, &command, scenario, mode), false),
        Err(NoCommand::NotItsWork(why)) => (Err(why), true),
        Err(NoCommand::Failed(error)) => (Err(error), false),
    };
    let (figures, error) = match measured {
        Ok(figures) => (Some(figures), None),
        Err(error) => (None, Some(error)),
    };
    Sample {
        scenario: scenario.name.into(),
        mode,
        gateway: peer.name.clone(),
        repeat,
        figures,
        error,
        not_its_work,
    }
}

/// A measurement in a line, for who waits.
fn line(sample: &Sample) -> String {
    let name = format!(
        "{} {} {} #{}",
        sample.scenario,
        sample.mode.name(),
        sample.gateway,
        sample.repeat + 1
    );
    match (&sample.figures, &sample.error) {
        (Some(figures), _) if sample.mode == Mode::Idle => format!(
            "{name:52} {:.1} MiB, {:.3}% CPU, {:.0} ms to start",
            figures.idle_rss_mib,
            figures.idle_cpu_percent,
            figures.start_seconds * 1e3
        ),
        (Some(figures), _) => format!(
            "{name:52} {:.3} CPU-s/M, {:.0}/s delivered, {:.2}% refused, {} lost, {} twice, {:.0} MiB, p99 {:.1} ms",
            figures.cpu_per_million,
            figures.delivered_per_second,
            figures.refused_percent,
            figures.account.lost,
            figures.account.duplicated,
            figures.peak_rss_mib,
            figures.latency_us.p99 as f64 / 1e3
        ),
        (None, error) => format!(
            "{name:52} not measured: {}",
            error.as_deref().unwrap_or("unknown")
        ),
    }
}

fn write(report: &Report, out: &Path) -> Result<(), String> {
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    for (name, text) in [
        ("report.json", json),
        ("report.md", report.markdown()),
        ("report.html", html::page(report)),
        ("report.svg", chart::picture(report)),
    ] {
        let path = out.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: gateways of ours and of others under each choice of whose faults count.
    /// Guarantees: by default those whose names begin with sluice or floor.
    #[test]
    fn faults_count_as_asked() {
        for (fail_on, ours, others) in [
            (FailOn::Ours, true, false),
            (FailOn::Any, true, true),
            (FailOn::Never, false, false),
        ] {
            for gateway in ["sluice", "sluice-old", "floor"] {
                assert_eq!(fail_on.concerns(gateway), ours, "{fail_on:?} {gateway}");
            }
            assert_eq!(fail_on.concerns("collector"), others, "{fail_on:?}");
        }
    }

    /// Scenario: arguments with and without absolute paths.
    /// Guarantees: only the directories of absolute paths are left out.
    #[test]
    fn directories_are_left_out() {
        assert_eq!(
            without_directories("a=/x/y/sluice,floor,b=/z/q"),
            "a=sluice,floor,b=q"
        );
        assert_eq!(
            without_directories("a=/x/y/sluice --set b=/z,floor --threads 1"),
            "a=sluice --set b=/z,floor --threads 1"
        );
        assert_eq!(without_directories("--out"), "--out");
        assert_eq!(without_directories("deploy/compare"), "deploy/compare");
        assert_eq!(without_directories("/x/out"), "out");
    }
}
