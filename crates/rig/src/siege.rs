//! A gateway in a control group with little memory, under everything that makes gateways run out of it, one
//! phase after the other, while a small well-behaved client goes on.
//!
//! The sink is a new one in each phase, so that each has an account of its own. A gateway that dies is started
//! again, and counted.

mod attack;
mod group;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_loadgen::{Signal, Spec};

use crate::compare::process::{Process, listens, usable_cores};
use crate::control;
use crate::load::{self, LoadReport, Pace, Plan};
use crate::units;
use attack::{Answers, Attack, Bodies, is_retryable};
use group::{Group, Limits};

/// The well-behaved client: twenty requests of ten spans a second, none of them tried again.
const BYSTANDER_ITEMS: u32 = 10;
const BYSTANDER_RATE: u64 = 200;
const BYSTANDER_SENDERS: u32 = 8;
const BYSTANDER_LANE: u32 = 1000;

/// Clients of the load: few while the highest rate is looked for, many when there is too much of it.
const CALM_CONNECTIONS: u32 = 16;
const CROWD: u32 = 256;

const INFLATIONS: usize = 256;
const BOMBS: usize = 16;
const IDLE_CONNECTIONS: usize = 10_000;
const DRIPS: usize = 200;

/// How often the gateway is looked after.
const LOOK: Duration = Duration::from_millis(100);

/// After a phase the queue drains, for so long at most; nothing new for `QUIET` says that nothing comes. Gateways wait for up to
/// 30 s before they try again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(180);
const DRAIN_POLL: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(45);
const QUIET_COMPLETE: Duration = Duration::from_secs(1);

/// After everything, the gateway is left alone for so long before its memory is looked at.
const REST: Duration = Duration::from_secs(60);

/// Open files for ten thousand connections, their other ends, and the rest.
const OPEN_FILES: u64 = 16_384;

const MIB: f64 = 1_048_576.0;

#[derive(Args, Debug)]
pub(crate) struct SiegeArgs {
    /// The gateways, one after the other: NAME=EXECUTABLE, started with `--config FILE`.
    #[arg(
        long = "gateway",
        value_name = "NAME=PATH",
        value_delimiter = ',',
        default_value = "sluice=target/release/sluice"
    )]
    gateways: Vec<String>,
    /// Their configuration, which reads GATEWAY_HTTP and SINK_HTTP from the environment.
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
    /// First of four ports on 127.0.0.1: gateway, sink gRPC, sink HTTP, sink control.
    #[arg(long, default_value_t = 34_317)]
    base_port: u16,
}

/// What the load does in a phase, as a share of the highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// As fast as it is answered.
    Closed,
    Open(f64),
    None,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    name: &'static str,
    what: &'static str,
    load: Load,
    faults: &'static str,
    attack: fn(&mut Attack, &str, &Bodies),
}

const PHASES: [Phase; 10] = [
    Phase {
        name: "unrefused",
        what: "16 clients, as fast as they are answered",
        load: Load::Closed,
        faults: "",
        attack: |_, _, _| {},
    },
    Phase {
        name: "overload",
        what: "256 clients, twice that rate",
        load: Load::Open(2.0),
        faults: "",
        attack: |_, _, _| {},
    },
    Phase {
        name: "inflations",
        what: "256 bodies that inflate to 60 MiB at a time",
        load: Load::None,
        faults: "",
        attack: |attack, at, bodies| attack.bodies(INFLATIONS, at, &bodies.inflation),
    },
    Phase {
        name: "bombs",
        what: "16 gzip and zstd bodies that inflate to 1 GiB at a time; a quarter of the rate",
        load: Load::Open(0.25),
        faults: "",
        attack: |attack, at, bodies| {
            for bomb in &bodies.bombs {
                attack.bodies(BOMBS / bodies.bombs.len(), at, bomb);
            }
        },
    },
    Phase {
        name: "idle",
        what: "10,000 idle connections; half the rate",
        load: Load::Open(0.5),
        faults: "",
        attack: |attack, at, _| attack.idle(IDLE_CONNECTIONS, at),
    },
    Phase {
        name: "slow-clients",
        what: "200 bodies of 1 MiB at a byte a second; half the rate",
        load: Load::Open(0.5),
        faults: "",
        attack: |attack, at, _| attack.drips(DRIPS, at),
    },
    Phase {
        name: "dead-backend",
        what: "the destination resets every connection; half the rate",
        load: Load::Open(0.5),
        faults: "reset",
        attack: |_, _, _| {},
    },
    Phase {
        name: "slow-backend",
        what: "the destination takes 3 s for each answer; half the rate",
        load: Load::Open(0.5),
        faults: "delay 3s",
        attack: |_, _, _| {},
    },
    Phase {
        name: "everything",
        what: "64 inflations, 16 bombs, 1,000 idle, 50 slow, a destination of 100 ms, a quarter of the rate",
        load: Load::Open(0.25),
        faults: "delay 100ms",
        attack: |attack, at, bodies| {
            attack.bodies(INFLATIONS / 4, at, &bodies.inflation);
            for bomb in &bodies.bombs {
                attack.bodies(BOMBS / bodies.bombs.len(), at, bomb);
            }
            attack.idle(IDLE_CONNECTIONS / 10, at);
            attack.drips(DRIPS / 4, at);
        },
    },
    Phase {
        name: "after",
        what: "as the first",
        load: Load::Closed,
        faults: "",
        attack: |_, _, _| {},
    },
];

#[derive(Debug, Default)]
struct Outcome {
    load: LoadReport,
    bystander: LoadReport,
    answers: Answers,
    peak_rss: u64,
    lost: u64,
    duplicated: u64,
    deaths: u32,
    oom_kills: u64,
    first_error: Option<String>,
}

/// One gateway under siege.
struct Siege<'a> {
    args: &'a SiegeArgs,
    name: &'a str,
    command: Vec<String>,
    group: Group,
    bodies: &'a Bodies,
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
            cores: usable_cores()?,
        };
        report += &siege.run()?;
        fs::write(args.out.join("report.md"), &report).map_err(|error| format!("report.md: {error}"))?;
    }
    println!("{report}");
    Ok(())
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
    fn run(&self) -> Result<String, String> {
        for port in (0..4).map(|distance| self.args.base_port + distance) {
            if listens(port) {
                return Err(format!(
                    "port {port} is taken: end what listens there, or choose others with --base-port"
                ));
            }
        }
        let mut gateway = self.start()?;
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
            if number == 0 {
                rate = (outcome.load.accepted_items as f64 / outcome.load.seconds) as u64;
            }
            let row = row(phase, &outcome);
            eprint!("{}: {row}", self.name);
            text += &row;
        }
        let rss_at_once = gateway.rss();
        thread::sleep(REST);
        let _ = writeln!(
            text,
            "\nPeak of the control group {} MiB of {}, {} OOM kills. Resident after it {:.0} MiB, {} s later {:.0} MiB.\n",
            self.group
                .memory_peak()
                .map_or("?".into(), |bytes| format!("{:.0}", bytes as f64 / MIB)),
            self.args.memory_mib,
            self.group.oom_kills(),
            rss_at_once as f64 / MIB,
            REST.as_secs(),
            gateway.rss() as f64 / MIB,
        );
        Ok(text)
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
            while !bystander.is_finished() || !load.is_finished() || began.elapsed() < self.args.phase {
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
        control::put_faults(&control, "")?;
        self.drain(gateway, &control, &mut outcome)?;
        outcome.oom_kills = self.group.oom_kills() - oom_kills;
        let errors = [
            &outcome.load.first_error,
            &outcome.bystander.first_error,
            &outcome.answers.first_error,
        ];
        outcome.first_error = errors.into_iter().flatten().next().cloned();
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

    fn drain(&self, gateway: &mut Process, control: &str, outcome: &mut Outcome) -> Result<(), String> {
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
                // Logs are sent over and over: they have no ids of their own.
                let told_apart = accounts
                    .iter()
                    .filter(|(signal, _)| *signal != Signal::Logs.name());
                let (lost, duplicated) = told_apart.fold((0, 0), |(lost, duplicated), (_, account)| {
                    (lost + account.lost, duplicated + account.duplicated)
                });
                (outcome.lost, outcome.duplicated) = (lost, duplicated);
                if lost == 0 || quiet.elapsed() > QUIET || began.elapsed() > DRAIN_TIMEOUT {
                    return Ok(());
                }
            }
            if began.elapsed() > DRAIN_TIMEOUT + QUIET {
                return Ok(());
            }
        }
    }
}

const HEADER: &str = "\
| phase | load: items/s accepted | refused or unanswered | of these with a hint | p99, ms | bystander accepted | p99, ms | attackers' answers | retryable with a hint | peak RSS, MiB | lost | twice | deaths (OOM) | first error |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

fn row(phase: &Phase, outcome: &Outcome) -> String {
    let share = |part: u64, whole: u64| match whole {
        0 => "-".into(),
        whole => format!("{:.2}%", 100.0 * part as f64 / whole as f64),
    };
    let load = &outcome.load;
    let refusals: u64 = load
        .statuses
        .iter()
        .filter(|(status, _)| **status != 200)
        .map(|(_, count)| count)
        .sum();
    let turned_away = load.refused_items + load.rejected_items + load.unanswered_items;
    let mut statuses: Vec<_> = outcome
        .answers
        .statuses
        .iter()
        .map(|(status, count)| match status {
            0 => format!("none: {count}"),
            status => format!("{status}: {count}"),
        })
        .collect();
    statuses.extend(
        load.statuses
            .keys()
            .filter(|status| **status != 200 && !is_retryable(**status))
            .map(|status| format!("load not retryable: {status}")),
    );
    format!(
        "| {}: {} | {:.0} | {} | {} | {:.0} | {} | {:.0} | {} | {} | {:.0} | {} | {} | {} ({}) | {} |\n",
        phase.name,
        phase.what,
        load.accepted_items as f64 / load.seconds.max(0.001),
        share(turned_away, load.sent_items),
        share(load.hinted_requests, refusals),
        load.latency_us.p99 as f64 / 1e3,
        share(
            outcome.bystander.accepted_items,
            outcome.bystander.sent_items + outcome.bystander.unsent_items
        ),
        outcome.bystander.latency_us.p99 as f64 / 1e3,
        statuses.join(", "),
        share(outcome.answers.hinted, outcome.answers.retryable),
        outcome.peak_rss as f64 / MIB,
        outcome.lost,
        outcome.duplicated,
        outcome.deaths,
        outcome.oom_kills,
        outcome.first_error.as_deref().unwrap_or("").replace('|', "/"),
    )
}
