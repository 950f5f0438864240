//! One measurement: a gateway between load and sink, from its start to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::machine;
use super::peer::{NoCommand, Peer, Ports};
use super::process::{Cgroups, Process, listens};
use super::scenario::{Mode, Placement, Scenario};
use crate::account::AccountReport;
use crate::control;
use crate::histogram::Quantiles;
use crate::load::{Encoding, LoadReport, Protocol};
use crate::sink::Stats;

/// First id lane of the warm-up; the measured load begins at 0 and needs no more lanes than this. The warm-up
/// has few connections, so that its lanes are enough.
const WARM_UP_LANE: u32 = 1000;
const WARM_UP_CONNECTIONS: u32 = 8;

/// Prepared requests of each sender for saturation with compressed bodies: some variety, soon made.
const REPEATED_BODIES: u32 = 8;

/// Calls at a time for each gRPC connection.
const CALLS_PER_CONNECTION: u32 = 2;

/// How often the sink is asked while the queue of a gateway drains.
const DRAIN_POLL: Duration = Duration::from_millis(50);

/// Without arrivals for so long, a gateway that has delivered everything has drained, and so has, after the
/// longer time, one that has not: longer than the pause before a first retry, 5 s in the Collector.
const QUIET_COMPLETE: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_secs(7);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);

/// An idle process is looked at after it has settled.
const IDLE_SETTLE: Duration = Duration::from_secs(3);

const MIB: f64 = 1_048_576.0;

/// What all measurements have in common.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The rig itself, for load and sink.
    pub(crate) rig: PathBuf,
    pub(crate) ports: Ports,
    pub(crate) cores: Vec<usize>,
    pub(crate) cgroups: Option<Cgroups>,
    /// Configurations of the gateways.
    pub(crate) configurations: PathBuf,
    /// For logs and configurations as they were used.
    pub(crate) out: PathBuf,
    pub(crate) duration: Duration,
    pub(crate) warm_up: Duration,
}

/// The figures of one measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// CPU seconds of the gateway, drain included.
    pub(crate) cpu_seconds: f64,
    /// The same per million delivered items.
    pub(crate) cpu_per_million: f64,
    /// Items accepted during the load, per second of it.
    pub(crate) accepted_per_second: f64,
    /// Items delivered, per second of load and drain.
    pub(crate) delivered_per_second: f64,
    /// From the end of the load to the last arrival.
    pub(crate) drain_seconds: f64,
    /// Refused, rejected and unanswered, of the items that were sent.
    pub(crate) refused_percent: f64,
    /// Largest resident set.
    pub(crate) peak_rss_mib: f64,
    /// Largest memory of the control group, where the kernel tells.
    pub(crate) peak_cgroup_mib: Option<f64>,
    /// Bytes of accepted requests before compression, and of what came out of the gateway as it came.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// From when a request was due to its answer.
    pub(crate) latency_us: Quantiles,
    /// By how much the generator itself was late.
    pub(crate) lateness_us: Quantiles,
    /// The account of the measured load, the warm-up included.
    pub(crate) account: AccountReport,
    /// Items of the measured load alone that were delivered.
    pub(crate) delivered: u64,
    /// Requests the sink could not read.
    pub(crate) malformed: u64,
    pub(crate) first_error: Option<String>,
    /// From the start of the process until it listens.
    pub(crate) start_seconds: f64,
    /// CPU seconds of everything outside the measurement, meanwhile.
    pub(crate) others_cpu_seconds: f64,
    /// Idle: resident set, share of one core, and size of the executable.
    pub(crate) idle_rss_mib: f64,
    pub(crate) idle_cpu_percent: f64,
    pub(crate) executable_mib: f64,
}

impl Figures {
    pub(crate) fn bytes_out_per_item(&self) -> f64 {
        self.bytes_out as f64 / self.delivered.max(1) as f64
    }
}

impl Bench {
    /// How a gateway is started.
    pub(crate) fn command(
        &self,
        peer: &Peer,
        scenario: &Scenario,
        mode: Mode,
    ) -> Result<Vec<String>, NoCommand> {
        let threads = Placement::of(mode, &self.cores).gateway.len();
        peer.command(scenario, self.ports, threads, &self.configurations, &self.out)
    }

    /// Measures one gateway once.
    pub(crate) fn measure(
        &self,
        peer: &Peer,
        command: &[String],
        scenario: &Scenario,
        mode: Mode,
    ) -> Result<Figures, String> {
        let ports = self.ports;
        for port in [
            ports.gateway_http,
            ports.gateway_grpc,
            ports.sink_http,
            ports.sink_grpc,
            ports.sink_control,
        ] {
            if listens(port) {
                return Err(format!(
                    "port {port} is taken: end what listens there, or choose others with --base-port"
                ));
            }
        }
        let placement = Placement::of(mode, &self.cores);
        if mode == Mode::Idle {
            return self.idle(peer, scenario, command, &placement);
        }
        let mut sink = self.start_sink(mode, &placement)?;
        sink.await_port(ports.sink_control)?;
        let (mut gateway, start) = self.start_gateway(peer, scenario, command, &placement)?;

        let control = format!("127.0.0.1:{}", ports.sink_control);
        let name = scenario.signal.name();
        let warm_up = Scenario {
            connections: scenario.connections.min(WARM_UP_CONNECTIONS),
            ..scenario.clone()
        };
        self.load(
            peer,
            &warm_up,
            Mode::Fixed,
            self.warm_up,
            WARM_UP_LANE,
            &placement,
        )?;
        let warm = self.drain(&control, name, &gateway)?;

        let (cpu, busy, sink_cpu) = (gateway.cpu(), machine::busy(), sink.cpu());
        let (load, load_cpu) = self.load(peer, scenario, mode, self.duration, 0, &placement)?;
        must_be_alive(&mut gateway, "during the load")?;
        let load_end = control::stats(&control)?.now_millis;
        let done = self.drain(&control, name, &gateway)?;
        must_be_alive(&mut gateway, "after the load")?;
        let measured = (gateway.cpu() + sink.cpu()).saturating_sub(cpu + sink_cpu) + load_cpu;
        let others = machine::busy().saturating_sub(busy).saturating_sub(measured);
        let cpu_seconds = done.gateway_cpu.saturating_sub(cpu).as_secs_f64();
        let delivered = done.account.delivered.saturating_sub(warm.account.delivered);
        let drain_seconds = done.stats.last_arrival_millis.saturating_sub(load_end) as f64 / 1e3;
        let turned_away =
            load.refused_items + load.rejected_items + load.unanswered_items + load.unsent_items;
        Ok(Figures {
            cpu_seconds,
            cpu_per_million: cpu_seconds * 1e6 / delivered.max(1) as f64,
            accepted_per_second: load.accepted_items as f64 / load.seconds,
            delivered_per_second: delivered as f64 / (load.seconds + drain_seconds),
            drain_seconds,
            refused_percent: 100.0 * turned_away as f64 / (load.sent_items + load.unsent_items).max(1) as f64,
            peak_rss_mib: gateway.peak_rss() as f64 / MIB,
            peak_cgroup_mib: gateway.cgroup_peak().map(|bytes| bytes as f64 / MIB),
            bytes_in: load.message_bytes,
            bytes_out: done.stats.body_bytes - warm.stats.body_bytes,
            latency_us: load.latency_us,
            lateness_us: load.lateness_us,
            delivered,
            malformed: done.stats.malformed,
            first_error: load.first_error.or(done.stats.first_malformed),
            account: done.account,
            start_seconds: start.as_secs_f64(),
            others_cpu_seconds: others.as_secs_f64(),
            ..Figures::default()
        })
    }

    fn start_gateway(
        &self,
        peer: &Peer,
        scenario: &Scenario,
        command: &[String],
        placement: &Placement,
    ) -> Result<(Process, Duration), String> {
        let log = self.out.join(format!("{}.log", peer.name));
        let environment = self.ports.environment();
        let cgroups = self.cgroups.as_ref();
        let mut gateway = Process::start(
            &peer.name,
            command,
            &environment,
            &placement.gateway,
            cgroups,
            &log,
        )?;
        let port = match scenario.protocol {
            Protocol::Http | Protocol::Json | Protocol::RemoteWrite | Protocol::RemoteWrite2 => {
                self.ports.gateway_http
            }
            Protocol::Grpc => self.ports.gateway_grpc,
        };
        let start = gateway.await_port(port)?;
        Ok((gateway, start))
    }

    fn start_sink(&self, mode: Mode, placement: &Placement) -> Result<Process, String> {
        let address = |port: u16| format!("127.0.0.1:{port}");
        let check = if mode == Mode::Fixed { "now" } else { "later" };
        let command = [
            &self.rig.display().to_string(),
            "sink",
            "--http",
            &address(self.ports.sink_http),
            "--grpc",
            &address(self.ports.sink_grpc),
            "--control",
            &address(self.ports.sink_control),
            "--check",
            check,
        ]
        .map(String::from);
        Process::start(
            "sink",
            &command,
            &[],
            &placement.load,
            None,
            &self.out.join("sink.log"),
        )
    }

    /// Runs a load to its end; with the CPU time it took.
    fn load(
        &self,
        peer: &Peer,
        scenario: &Scenario,
        mode: Mode,
        duration: Duration,
        lane: u32,
        placement: &Placement,
    ) -> Result<(LoadReport, Duration), String> {
        let log = self.out.join("load.log");
        let mut arguments = load_arguments(scenario, mode, self.ports, &peer.kind.path);
        for (name, value) in [
            ("--duration", format!("{}ms", duration.as_millis())),
            ("--lane", lane.to_string()),
            ("--account", format!("127.0.0.1:{}", self.ports.sink_control)),
        ] {
            arguments.extend([name.to_string(), value]);
        }
        let mut command = vec![self.rig.display().to_string(), "load".into()];
        command.append(&mut arguments);
        let children_before = children_cpu();
        Process::start("load", &command, &[], &placement.load, None, &log)?.wait()?;
        let cpu = children_cpu().saturating_sub(children_before);
        let report = fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let report = report.lines().last().unwrap_or_default();
        let report = serde_json::from_str(report)
            .map_err(|error| format!("{}: not a report of the load: {error}", log.display()))?;
        Ok((report, cpu))
    }

    /// Waits until nothing more arrives. The gateway's CPU time is that at the last arrival: what it burns
    /// while nothing happens is a matter of the idle mode.
    fn drain(&self, control: &str, signal: &str, gateway: &Process) -> Result<Drained, String> {
        let began = Instant::now();
        let mut stats = control::stats(control)?;
        let mut gateway_cpu = gateway.cpu();
        let mut account = None;
        let mut quiet_since = Instant::now();
        loop {
            std::thread::sleep(DRAIN_POLL);
            let now = control::stats(control)?;
            let quiet = quiet_since.elapsed();
            if now.requests != stats.requests {
                (quiet_since, gateway_cpu, account) = (Instant::now(), gateway.cpu(), None);
            } else if account.is_none() && quiet > QUIET_COMPLETE {
                // Whether anything is missing decides how long to wait for it.
                account = Some(signal_account(control, signal)?);
            } else if let Some(account) = account.take_if(|account| account.lost == 0 || quiet > QUIET) {
                return Ok(Drained {
                    stats: now,
                    account,
                    gateway_cpu,
                });
            }
            if began.elapsed() > DRAIN_TIMEOUT {
                return Err(format!("still not drained after {} s", DRAIN_TIMEOUT.as_secs()));
            }
            stats = now;
        }
    }

    fn idle(
        &self,
        peer: &Peer,
        scenario: &Scenario,
        command: &[String],
        placement: &Placement,
    ) -> Result<Figures, String> {
        let (gateway, start) = self.start_gateway(peer, scenario, command, placement)?;
        std::thread::sleep(IDLE_SETTLE);
        let (cpu, began) = (gateway.cpu(), Instant::now());
        std::thread::sleep(self.duration);
        let used = gateway.cpu().saturating_sub(cpu).as_secs_f64();
        let size = fs::metadata(&peer.executable).map_or(0, |file| file.len());
        Ok(Figures {
            start_seconds: start.as_secs_f64(),
            idle_rss_mib: gateway.rss() as f64 / MIB,
            idle_cpu_percent: 100.0 * used / began.elapsed().as_secs_f64(),
            executable_mib: size as f64 / MIB,
            peak_rss_mib: gateway.peak_rss() as f64 / MIB,
            ..Figures::default()
        })
    }
}

/// Whether or not everything arrived: a gateway that ends unasked is at fault.
fn must_be_alive(gateway: &mut Process, when: &str) -> Result<(), String> {
    if gateway.is_alive() {
        return Ok(());
    }
    let (name, last_words) = (gateway.name(), gateway.last_words());
    Err(format!("{name} ended {when}: {last_words}"))
}

struct Drained {
    stats: Stats,
    account: AccountReport,
    gateway_cpu: Duration,
}

fn signal_account(control: &str, signal: &str) -> Result<AccountReport, String> {
    let mut accounts = control::account(control)?;
    accounts
        .remove(signal)
        .ok_or_else(|| format!("the sink has no account of {signal}"))
}

/// What the load is told, apart from duration and lane. `path` is empty where it is OTLP's.
fn load_arguments(scenario: &Scenario, mode: Mode, ports: Ports, path: &str) -> Vec<String> {
    let (protocol, port) = match scenario.protocol {
        Protocol::Http => ("http", ports.gateway_http),
        Protocol::Json => ("json", ports.gateway_http),
        Protocol::Grpc => ("grpc", ports.gateway_grpc),
        Protocol::RemoteWrite => ("remote-write", ports.gateway_http),
        Protocol::RemoteWrite2 => ("remote-write-2", ports.gateway_http),
    };
    let mut arguments = vec![
        ("--target", format!("127.0.0.1:{port}")),
        ("--protocol", protocol.to_string()),
        ("--signal", scenario.signal.to_string()),
        ("--encoding", scenario.encoding.name().to_string()),
        ("--points", scenario.items_per_request().to_string()),
        ("--connections", scenario.connections.to_string()),
        ("--series", scenario.series.to_string()),
    ];
    if !path.is_empty() {
        arguments.push(("--path", path.to_string()));
    }
    if scenario.protocol == Protocol::Grpc {
        arguments.push(("--vus", (scenario.connections * CALLS_PER_CONNECTION).to_string()));
    }
    let expensive = scenario.encoding != Encoding::Identity || scenario.protocol == Protocol::Json;
    if mode == Mode::Fixed {
        arguments.push(("--rate", scenario.rate.to_string()));
    }
    // The warm-up of a saturated run is at the fixed rate, and its requests have ids as well.
    if mode != Mode::Fixed && expensive {
        arguments.push(("--repeat", REPEATED_BODIES.to_string()));
    }
    let pairs = arguments.into_iter();
    let mut arguments: Vec<_> = pairs
        .flat_map(|(name, value)| [name.to_string(), value])
        .collect();
    if scenario.varied {
        arguments.push("--varied".to_string());
    }
    arguments
}

/// CPU time of all children of the rig that have ended and been waited for.
fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    // cutime and cstime: fields 16 and 17 of proc(5), the state being field 3.
    let ticks: u64 = [13, 14]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Makes the directory for logs and reports.
pub(crate) fn prepare(out: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    out.canonicalize()
        .map_err(|error| format!("{}: {error}", out.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the load for a gateway that takes OTLP where OTLP says, and for one that does not.
    /// Guarantees: only the second is told a path.
    #[test]
    fn the_load_goes_where_the_gateway_takes_it() {
        let ports = Ports {
            gateway_http: 1,
            gateway_grpc: 2,
            sink_http: 3,
            sink_grpc: 4,
            sink_control: 5,
        };
        let metrics = Scenario::choose(&["metrics-none".into()]).unwrap().remove(0);
        let at = |path| load_arguments(&metrics, Mode::Fixed, ports, path);
        assert!(!at("").contains(&"--path".into()));
        let elsewhere = ["--path", "/opentelemetry/v1/metrics"].map(String::from);
        assert!(at(&elsewhere[1]).windows(2).any(|pair| pair == elsewhere));
    }

    /// Scenario: a gateway that runs, and one that has ended by itself, with success and with a last word.
    /// Guarantees: only the second is a fault, which says when and what it said, whatever its exit status.
    #[test]
    fn a_gateway_that_ended_is_at_fault() {
        let directory = std::env::temp_dir().join(format!("sluice-rig-ended-{}", std::process::id()));
        let directory = prepare(&directory).unwrap();
        let start = |name: &str, script: &str| {
            let command = ["/bin/sh", "-c", script].map(String::from);
            Process::start(name, &command, &[], &[0], None, &directory.join(name)).unwrap()
        };
        let mut running = start("running", "exec sleep 1000");
        assert_eq!(must_be_alive(&mut running, "after the load"), Ok(()));
        let mut ended = start("ended", "echo enough for today");
        while ended.is_alive() {
            std::thread::yield_now();
        }
        assert_eq!(
            must_be_alive(&mut ended, "after the load").unwrap_err(),
            "ended ended after the load: enough for today"
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
