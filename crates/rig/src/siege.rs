//! A gateway in a control group with little memory, under everything that makes gateways run out of it, one
//! phase after the other, while a small well-behaved client goes on.
//!
//! The sink is a new one in each phase, so that each has an account of its own. A gateway that dies is started
//! again, and counted. In the end it is judged.

mod attack;
mod group;
mod phases;
mod report;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_loadgen::{Signal, Spec};

use crate::account::SentIds;
use crate::compare::process::{Process, listens, usable_cores};
use crate::control;
use crate::load::{self, LoadReport, Pace, Plan};
use crate::units;
use attack::{Attack, Bodies};
use group::{Group, Limits};
use phases::{Load, PHASES, Phase};
use report::{HEADER, Outcome, Rest, Seen};

/// The well-behaved client: twenty requests of ten spans a second, none of them tried again.
const BYSTANDER_ITEMS: u32 = 10;
const BYSTANDER_RATE: u64 = 200;
const BYSTANDER_SENDERS: u32 = 8;
const BYSTANDER_LANE: u32 = 1000;

/// Clients of the load: few while the highest rate is looked for, many when there is too much of it.
const CALM_CONNECTIONS: u32 = 16;
const CROWD: u32 = 256;

/// How often the gateway is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// After a phase the queue drains, for so long at most; nothing new for `QUIET` says that nothing comes. Gateways wait for up to
/// 30 s before they try again. `QUIET_COMPLETE` is enough where nothing is lost and the gateway says that its queue is empty, or where it
/// says nothing and had no cause to send anything twice.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);
const DRAIN_POLL: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(45);
const QUIET_COMPLETE: Duration = Duration::from_secs(1);

/// A phase ends so long after its time at the latest: the load may be late by ten seconds and wait a minute for its last answers. A
/// gateway that answers nobody until then is killed, and the next phase begins with a new one.
const END_TIMEOUT: Duration = Duration::from_secs(90);
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// From the start to the first look at its memory: everything listens, and nothing was sent.
const SETTLE: Duration = Duration::from_secs(2);

/// After the first phase and after everything, the gateway is left alone for so long before its memory is looked at.
const REST: Duration = Duration::from_secs(60);

/// Open files for ten thousand connections, their other ends, and the rest.
const OPEN_FILES: u64 = 16_384;

#[derive(Args, Debug)]
pub(crate) struct SiegeArgs {
    /// The gateways, one after the other: NAME=EXECUTABLE, started with `--config FILE`. All are judged in the report; by the first one the
    /// exit code is 0 or 1.
    #[arg(
        long = "gateway",
        value_name = "NAME=PATH",
        value_delimiter = ',',
        default_value = "sluice=target/release/sluice"
    )]
    gateways: Vec<String>,
    /// Their configuration, which reads GATEWAY_HTTP, GATEWAY_METRICS and SINK_HTTP from the environment.
    #[arg(long, default_value = "deploy/compare/siege.yaml")]
    config: PathBuf,
    /// Memory of the control group.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    memory_mib: u64,
    /// CPU time of the control group, in cores.
    #[arg(long, default_value_t = 0.5)]
    cpus: f64,
    /// How long each phase lasts; there are ten.
    #[arg(long, value_parser = units::duration, default_value = "3m")]
    phase: Duration,
    /// Only these phases, by name; the first one is always there, for it finds the rate of the others.
    #[arg(long = "only", value_name = "PHASE", value_delimiter = ',')]
    only: Vec<String>,
    /// Directory for the report and the gateways' logs.
    #[arg(long, default_value = "target/siege")]
    out: PathBuf,
    /// First of five ports on 127.0.0.1: gateway, sink gRPC, sink HTTP, sink control, the gateway's metrics.
    #[arg(long, default_value_t = 34_317)]
    base_port: u16,
}

/// One gateway under siege.
struct Siege<'a> {
    args: &'a SiegeArgs,
    name: &'a str,
    command: Vec<String>,
    group: Group,
    bodies: &'a Bodies,
    /// It is the one that the exit code is for: what it does not tell fails.
    must_be_seen: bool,
    cores: Vec<usize>,
}

#[allow(clippy::print_stdout, reason = "the report is the output")]
pub(crate) fn run(args: &SiegeArgs) -> Result<(), String> {
    for name in &args.only {
        if !PHASES.iter().any(|phase| phase.name == name) {
            let names: Vec<_> = PHASES.iter().map(|phase| phase.name).collect();
            return Err(format!(
                "there is no phase {name:?}: use one of {}",
                names.join(", ")
            ));
        }
    }
    raise_open_files()?;
    fs::create_dir_all(&args.out).map_err(|error| format!("cannot make {}: {error}", args.out.display()))?;
    eprintln!("making bodies");
    let bodies = Bodies::make().map_err(|error| format!("cannot make the bodies: {error}"))?;
    let mut report = String::new();
    let mut failed = None;
    for gateway in &args.gateways {
        let (name, path) = gateway
            .split_once('=')
            .ok_or_else(|| format!("--gateway {gateway}: say NAME=EXECUTABLE"))?;
        let group = Group::make(
            name,
            Limits {
                memory_bytes: args.memory_mib << 20,
                cpus: args.cpus,
            },
        )?;
        let command = [
            path.to_string(),
            "--config".into(),
            args.config.display().to_string(),
        ];
        let siege = Siege {
            args,
            name,
            command: group.inside(&command),
            group,
            bodies: &bodies,
            must_be_seen: failed.is_none(),
            cores: usable_cores()?,
        };
        let (text, failures) = match siege.run() {
            Ok(judged) => judged,
            // The report of the others is not to be lost.
            Err(error) if failed.is_some() => (format!("### {name}: broken off: {error}\n\n"), 1),
            Err(error) => return Err(error),
        };
        report += &text;
        failed.get_or_insert((name, failures));
        fs::write(args.out.join("report.md"), &report).map_err(|error| format!("report.md: {error}"))?;
    }
    println!("{report}");
    match failed {
        Some((name, failures)) if failures > 0 => Err(format!(
            "{name} does not hold out: {failures} of what it must do FAILS, see the report"
        )),
        _ => Ok(()),
    }
}

fn raise_open_files() -> Result<(), String> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|files| files >= OPEN_FILES) {
        return Ok(());
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(OPEN_FILES),
            maximum: limit.maximum.map(|files| files.max(OPEN_FILES)),
        },
    )
    .map_err(|error| format!("cannot open {OPEN_FILES} files (ulimit -n): {error}"))
}

impl Siege<'_> {
    /// The report, and how much of what it must do failed.
    fn run(&self) -> Result<(String, usize), String> {
        for port in (0..5).map(|distance| self.args.base_port + distance) {
            if listens(port) {
                return Err(format!(
                    "port {port} is taken: end what listens there, or choose others with --base-port"
                ));
            }
        }
        let mut gateway = self.start()?;
        thread::sleep(SETTLE);
        let mut seen = Seen {
            memory_limit: self.args.memory_mib << 20,
            started: self.look(),
            is_the_same: true,
            ..Seen::default()
        };
        let mut text = format!(
            "### {}: {} MiB and {} cores, {} s a phase\n\n{HEADER}",
            self.name,
            self.args.memory_mib,
            self.args.cpus,
            self.args.phase.as_secs()
        );
        let mut rate = 0;
        for (number, phase) in PHASES.iter().enumerate() {
            if number > 0
                && !self.args.only.is_empty()
                && !self.args.only.iter().any(|name| name == phase.name)
            {
                continue;
            }
            let outcome = self.phase(&mut gateway, phase, rate)?;
            let row = report::row(phase, &outcome);
            eprint!("{}: {row}", self.name);
            text += &row;
            if number == 0 {
                rate = outcome.rate() as u64;
                thread::sleep(REST);
                seen.warm = self.look();
            } else {
                seen.is_the_same &= outcome.deaths == 0 && !outcome.overran;
            }
            seen.phases.push((*phase, outcome));
        }
        thread::sleep(REST);
        seen.ended = self.look();
        if !gateway.is_alive() {
            seen.is_the_same = false;
            if let Some((_, last)) = seen.phases.last_mut() {
                last.deaths += 1;
            }
        }
        (seen.memory_peak, seen.oom_kills) = (self.group.memory_peak(), self.group.oom_kills());
        text += &report::memory(&seen);
        let judgements = verdict::judge(&seen, self.must_be_seen);
        text += &verdict::words(&judgements);
        Ok((text, verdict::failed(&judgements)))
    }

    /// What it holds now.
    fn look(&self) -> Rest {
        // A gateway that has no such page tells nothing, which is judged.
        let metrics = control::page(&self.port(4), "/metrics").unwrap_or_default();
        Rest {
            resident: self.group.resident(),
            reserved: reserved(&metrics),
        }
    }

    fn port(&self, distance: u16) -> String {
        format!("127.0.0.1:{}", self.args.base_port + distance)
    }

    fn log(&self, name: &str) -> PathBuf {
        Path::new(&self.args.out).join(format!("{name}.log"))
    }

    fn start(&self) -> Result<Process, String> {
        let port = self.args.base_port;
        let environment = [
            ("GATEWAY_HTTP", port.to_string()),
            ("SINK_HTTP", (port + 2).to_string()),
            ("GATEWAY_METRICS", (port + 4).to_string()),
        ];
        let log = self.log(self.name);
        let mut gateway = Process::start(self.name, &self.command, &environment, &self.cores, None, &log)?;
        gateway.await_port(port)?;
        Ok(gateway)
    }

    fn sink(&self, phase: &Phase) -> Result<Process, String> {
        let rig = std::env::current_exe().map_err(|error| format!("cannot find the rig itself: {error}"))?;
        let mut command = vec![rig.display().to_string(), "sink".into()];
        for (option, value) in [
            ("--grpc", self.port(1)),
            ("--http", self.port(2)),
            ("--control", self.port(3)),
            ("--check", "later".into()),
            ("--faults", phase.faults.into()),
        ] {
            command.extend([option.to_string(), value]);
        }
        let mut sink = Process::start("sink", &command, &[], &self.cores, None, &self.log("sink"))?;
        sink.await_port(self.args.base_port + 3)?;
        Ok(sink)
    }

    fn phase(&self, gateway: &mut Process, phase: &Phase, rate: u64) -> Result<Outcome, String> {
        let _sink = self.sink(phase)?;
        let control = self.port(3);
        let target = self.port(0);
        let mut outcome = Outcome::default();
        let oom_kills = self.group.oom_kills();
        let mut attack = Attack::none();
        (phase.attack)(&mut attack, &target, self.bodies);
        let bystander = self.bystander(&control);
        let load = self.load(phase, rate, &control);
        let began = Instant::now();
        thread::scope(|scope| {
            let bystander = scope.spawn(|| load::run(&bystander));
            let load = scope.spawn(|| load.as_ref().map_or_else(|| Ok(LoadReport::default()), load::run));
            loop {
                if bystander.is_finished() && load.is_finished() && began.elapsed() >= self.args.phase {
                    attack.stop();
                    if attack.is_over() {
                        break;
                    }
                }
                if !outcome.overran && began.elapsed() > self.args.phase + END_TIMEOUT {
                    outcome.overran = true;
                    attack.stop();
                    self.restart(gateway)?;
                }
                self.look_after(gateway, &mut outcome)?;
                thread::sleep(LOOK);
            }
            let ended = |thread: thread::ScopedJoinHandle<'_, Result<LoadReport, String>>| {
                thread.join().unwrap_or_else(|_| Err("a load panicked".into()))
            };
            (outcome.bystander, outcome.load) = (ended(bystander)?, ended(load)?);
            Ok::<(), String>(())
        })?;
        outcome.answers = attack.end();
        if outcome.answers.accepted_items > 0 {
            let sent = SentIds {
                signal: Signal::Logs.name().into(),
                repeated: outcome.answers.accepted_items,
                ..SentIds::default()
            };
            control::post_sent(&control, &sent)?;
        }
        control::put_faults(&control, "")?;
        self.drain(gateway, phase, &control, &mut outcome)?;
        outcome.oom_kills = self.group.oom_kills() - oom_kills;
        Ok(outcome)
    }

    fn bystander(&self, control: &str) -> Plan {
        Plan {
            target: self.port(0),
            spec: Spec::gateway(Signal::Traces).items(BYSTANDER_ITEMS),
            connections: BYSTANDER_SENDERS,
            senders: BYSTANDER_SENDERS,
            pace: Pace::Open {
                items_per_second: BYSTANDER_RATE,
            },
            duration: self.args.phase,
            lane: BYSTANDER_LANE,
            account: Some(control.into()),
            ..Plan::default()
        }
    }

    fn load(&self, phase: &Phase, rate: u64, control: &str) -> Option<Plan> {
        let (senders, pace) = match phase.load {
            Load::None => return None,
            Load::Closed => (
                CALM_CONNECTIONS,
                Pace::Closed {
                    think: (Duration::ZERO, Duration::ZERO),
                },
            ),
            Load::Open(share) => (
                CROWD,
                Pace::Open {
                    items_per_second: ((rate as f64 * share) as u64).max(1),
                },
            ),
        };
        Some(Plan {
            target: self.port(0),
            connections: senders,
            senders,
            pace,
            duration: self.args.phase,
            account: Some(control.into()),
            ..Plan::default()
        })
    }

    /// Starts the gateway again if it has died.
    fn look_after(&self, gateway: &mut Process, outcome: &mut Outcome) -> Result<(), String> {
        outcome.peak_rss = outcome.peak_rss.max(gateway.rss());
        if !gateway.is_alive() {
            outcome.deaths += 1;
            *gateway = self.start()?;
        }
        Ok(())
    }

    /// Kills it, which ends all that its clients wait for, and starts a new one.
    fn restart(&self, gateway: &mut Process) -> Result<(), String> {
        self.group.kill();
        let began = Instant::now();
        while gateway.is_alive() {
            if began.elapsed() > KILL_TIMEOUT {
                return Err(format!("{} cannot be killed", self.name));
            }
            thread::sleep(LOOK);
        }
        *gateway = self.start()?;
        Ok(())
    }

    /// Waits for what may still arrive, a second time too, for the sink and its account go with the phase.
    fn drain(
        &self,
        gateway: &mut Process,
        phase: &Phase,
        control: &str,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let began = Instant::now();
        let mut requests = control::stats(control)?.requests;
        let mut quiet = Instant::now();
        loop {
            self.look_after(gateway, outcome)?;
            thread::sleep(DRAIN_POLL);
            let now = control::stats(control)?.requests;
            if now != requests {
                (requests, quiet) = (now, Instant::now());
            }
            if quiet.elapsed() > QUIET_COMPLETE {
                let accounts = control::account(control)?;
                let lost = outcome.settle(&accounts);
                if quiet.elapsed() > QUIET || began.elapsed() > DRAIN_TIMEOUT {
                    return Ok(());
                }
                let metrics = control::page(&self.port(4), "/metrics").unwrap_or_default();
                if lost == 0 && is_settled(waiting(&metrics), phase) {
                    return Ok(());
                }
            }
            if began.elapsed() > DRAIN_TIMEOUT + QUIET {
                return Ok(());
            }
        }
    }
}

/// Nothing more can arrive: the gateway has nothing left to send or, where it does not tell, nothing made it try again.
fn is_settled(waiting: Option<f64>, phase: &Phase) -> bool {
    waiting.map_or(phase.faults.is_empty(), |requests| requests == 0.0)
}

/// Requests that are not settled yet, of all exporters: `sluice_queue_requests` of a page of metrics.
fn waiting(metrics: &str) -> Option<f64> {
    let values = metrics
        .lines()
        .filter(|line| line.starts_with("sluice_queue_requests{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

/// `sluice_memory_reserved_bytes` of a page of metrics.
fn reserved(metrics: &str) -> Option<f64> {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("sluice_memory_reserved_bytes "));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: pages of metrics of a gateway with two exporters, of one whose queue is empty, and of one that does not tell.
    /// Guarantees: a queue that holds anything is waited for, an empty one is not; who does not tell is waited for after faults.
    #[test]
    fn a_phase_is_settled_when_nothing_waits() {
        let page = |first, second| {
            format!(
                "# TYPE sluice_queue_requests gauge\nsluice_queue_requests{{exporter=\"a\",signal=\"logs\"}} {first}\n\
                 sluice_queue_requests{{exporter=\"a\",signal=\"traces\"}} {second}\nsluice_queue_items{{exporter=\"a\"}} 9\n"
            )
        };
        assert_eq!(waiting(&page(2, 3)), Some(5.0));
        assert_eq!(waiting("otelcol_exporter_queue_size 7\n"), None);
        let faultless = &PHASES[0];
        let faulty = PHASES.iter().find(|phase| !phase.faults.is_empty()).unwrap();
        for phase in [faultless, faulty] {
            assert!(!is_settled(waiting(&page(0, 1)), phase));
            assert!(is_settled(waiting(&page(0, 0)), phase));
        }
        assert!(is_settled(None, faultless));
        assert!(!is_settled(None, faulty));
    }

    /// Scenario: a page of metrics of sluice; one of another gateway.
    /// Guarantees: the value is read, not the help text; who tells nothing has none.
    #[test]
    fn reserved_bytes_are_read_from_the_metrics() {
        let page = "# HELP sluice_memory_reserved_bytes what is reserved\n# TYPE sluice_memory_reserved_bytes gauge\n\
                    sluice_memory_reserved_bytes 1048576\nsluice_memory_limit_bytes 5\n";
        assert_eq!(reserved(page), Some(1_048_576.0));
        assert_eq!(reserved("otelcol_process_memory_rss 7\n"), None);
    }
}
