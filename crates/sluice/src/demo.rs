//! `sluice demo`: the gateway on real sockets and files, under load that it must account for.
//!
//! [`plan`] turns settings into a demo's (own directory, free ports, bounded disk use), the gateway starts on them,
//! [`senders`] drive its receivers while [`screen`] shows the [`account`], the gateway drains, [`readback`] finds every
//! id again in the files, and [`outcome`] says whether it all adds up.

mod account;
mod directory;
mod outcome;
mod plan;
mod query;
mod readback;
mod screen;
mod senders;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use sluice_telemetry::{LogEncoding, init_logging};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::assembly::Gateway;
use crate::cli::{complain, say};
use crate::serve::runtime;
use crate::settings::Settings;
use account::{History, Snapshot};
use directory::RunDirectory;
use outcome::Outcome;
use plan::Plan;
use screen::Screen;
use senders::{Sent, Stop};

/// How long the queues may drain after the load. Files take what is queued in far less.
const DRAIN: Duration = Duration::from_secs(30);

/// How long requests under way may still be retried after the load.
const GRACE: Duration = Duration::from_secs(10);

/// Nothing delivered for this long, while something waits: time to see whether the disk is full.
const STALL: Duration = Duration::from_secs(2);

/// A day: longer runs are the work of a load generator.
const MAX_SECONDS: f64 = 86_400.0;

/// What the demo can be told.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long to send, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    seconds: Duration,
    /// Where the files go: into a fresh subdirectory of it (run-1, run-2, ...), so that runs do not mix.
    #[arg(long, value_name = "DIR", default_value = "./sluice-data/demo")]
    dir: PathBuf,
    /// Items (data points, log records, spans) to send each second, all signals together.
    #[arg(long, value_name = "ITEMS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected seconds, more than 0 and at most {MAX_SECONDS}")),
    }
}

/// Runs the demo on these settings: the built-in default's, with the changes of `--set`.
pub(crate) fn run(settings: Settings, args: &DemoArgs) -> ExitCode {
    // Lines of the log would tear the picture on a terminal; what matters is in it.
    let level = if std::io::stdout().is_terminal() {
        "error"
    } else {
        "warn"
    };
    init_logging(level, LogEncoding::Console);
    let result = runtime()
        .map_err(|error| format!("the runtime did not start: {error}"))
        .and_then(|runtime| {
            let result = runtime.block_on(demo(settings, args));
            // A thread that reads files back must not hold up an interrupted demo.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(outcome) if outcome.is_exact() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            complain(format_args!("sluice demo: {message}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(mut settings: Settings, args: &DemoArgs) -> Result<Outcome, String> {
    let mut interrupts = Interrupts::new().map_err(|error| format!("signals cannot be caught: {error}"))?;
    let plan = Plan::new(args.rate, args.seconds)?;
    let directory = RunDirectory::create(&args.dir)?;
    let files = plan::move_files(&mut settings, directory.path())?;
    let moved = plan::free_ports(&mut settings);
    let gateway = Gateway::start(&settings)
        .await
        .map_err(|error| format!("the gateway did not start: {error}"))?;
    introduce(&plan, &directory, &gateway, &moved);

    let sent = Arc::new(Sent::default());
    let (stop, stopping) = watch::channel(Stop::No);
    let senders = senders::start(&plan, &gateway, &sent, &stopping)?;
    let load = Load {
        plan: &plan,
        gateway: &gateway,
        directory: &directory,
        sent: &sent,
    };
    let mut watching = Watching::new();
    let end = tokio::select! {
        end = load.watch(&mut watching) => end,
        () = interrupts.next() => End::Interrupted,
    };
    let _ = stop.send(if matches!(end, End::TimeUp) {
        Stop::AtGrace
    } else {
        Stop::Now
    });
    // Requests under way are answered within their own time-outs, so this ends.
    for sender in senders {
        let _ = sender.await;
    }
    let load_took = watching.started.elapsed();
    let drain = if matches!(end, End::Disk(_)) {
        Duration::ZERO
    } else {
        DRAIN
    };
    let stopped = tokio::select! {
        stopped = gateway.stop(drain) => stopped,
        () = interrupts.next() => return Err("interrupted while the queues drained; nothing was checked".into()),
    };
    let trouble = match &end {
        End::Disk(trouble) => Some(trouble.clone()),
        _ if stopped.left > 0 => directory.probe().err(),
        _ => sent.failure(),
    };
    let tallies = std::mem::take(&mut *sent.tallies.lock());
    let root = directory.path().to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let tables = files.iter().any(|file| file.form == plan::Form::Tables);
        let query = tables.then(|| query::query(&root));
        let answer = query.as_deref().and_then(query::answer);
        (
            readback::read(&files, tallies),
            query.map(|query| (query, answer)),
        )
    });
    let (read, query) = tokio::select! {
        read = read => read.map_err(|error| format!("reading the files back: {error}"))?,
        () = interrupts.next() => return Err("interrupted while the files were read; nothing was checked".into()),
    };
    let last = watching.history.last();
    let outcome = Outcome {
        took: load_took,
        planned: plan.items(),
        interrupted: matches!(end, End::Interrupted),
        trouble,
        refused: sent.refused(),
        given_up: sent.given_up(),
        lines: stopped.lines,
        left: stopped.left,
        read,
        peak_resident_bytes: watching.peak_resident_bytes,
        cpu_seconds: last.and_then(|last| Some(last.cpu_seconds? - watching.history.first()?.cpu_seconds?)),
        directory: directory.path().to_owned(),
        query,
        earlier: directory.earlier(),
    };
    say(format_args!("{}", outcome.render()));
    if let Some(complaint) = outcome.complaint() {
        complain(format_args!("{complaint}"));
    }
    Ok(outcome)
}

fn introduce(plan: &Plan, directory: &RunDirectory, gateway: &Gateway, moved: &[String]) {
    say(format_args!("{} demo: {}", crate::VERSION, plan.describe()));
    for bound in gateway.bound() {
        say(format_args!("  {:<30} {}", bound.name, bound.address));
    }
    for taken in moved {
        say(format_args!("  {taken} is taken; a free port stands in for it"));
    }
    say(format_args!(
        "  files in {}: at most {}\n",
        directory.path().display(),
        screen::bytes(plan.max_disk_bytes)
    ));
}

/// Why the load ended.
enum End {
    /// It lasted as long as it was meant to.
    TimeUp,
    /// A sender was turned away for good; [`Sent::failure`] says why.
    Failed,
    /// The disk takes no more.
    Disk(String),
    /// Somebody asked for it.
    Interrupted,
}

/// Ctrl-C and SIGTERM.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    last: Option<Instant>,
}

impl Interrupts {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            last: None,
        })
    }

    /// Waits for the next one that somebody meant: `timeout` and shells may send the same one twice.
    async fn next(&mut self) {
        const SAME: Duration = Duration::from_millis(500);
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self
                .last
                .replace(Instant::now())
                .is_none_or(|last| last.elapsed() > SAME)
            {
                return;
            }
        }
    }
}

/// What is looked at while the load runs.
struct Load<'a> {
    plan: &'a Plan,
    gateway: &'a Gateway,
    directory: &'a RunDirectory,
    sent: &'a Sent,
}

/// What was seen while the load ran; outlives an interrupted look.
struct Watching {
    started: Instant,
    history: History,
    peak_resident_bytes: u64,
    screen: Screen,
}

impl Watching {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            history: History::default(),
            peak_resident_bytes: 0,
            screen: Screen::new(
                std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            ),
        }
    }
}

impl Load<'_> {
    /// Shows the account until the time is up, a sender failed, or the disk takes no more.
    async fn watch(&self, watching: &mut Watching) -> End {
        let mut ticks = tokio::time::interval(watching.screen.period());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut progress = (0, Instant::now());
        loop {
            ticks.tick().await;
            let elapsed = watching.started.elapsed();
            let snapshot = self.snapshot(elapsed);
            watching.peak_resident_bytes = watching
                .peak_resident_bytes
                .max(snapshot.resident_bytes.unwrap_or(0));
            let total = snapshot.total();
            if total.delivered != progress.0 || total.queued == 0 {
                progress = (total.delivered, Instant::now());
            }
            watching.history.push(snapshot);
            watching.screen.show(&watching.history, self.plan);
            if progress.1.elapsed() > STALL
                && let Err(trouble) = self.directory.probe()
            {
                return End::Disk(trouble);
            }
            if self.sent.failure().is_some() {
                return End::Failed;
            }
            if elapsed >= self.plan.duration {
                return End::TimeUp;
            }
        }
    }

    fn snapshot(&self, elapsed: Duration) -> Snapshot {
        let mut snapshot = Snapshot::of_ledger(&self.gateway.ledger().lines());
        let usage = self.gateway.budget().usage();
        snapshot.elapsed = elapsed;
        snapshot.refused = self.sent.refused();
        snapshot.budget_used = usage.used;
        snapshot.budget_capacity = usage.capacity;
        snapshot.resident_bytes = sluice_memory::resident_bytes();
        snapshot.cpu_seconds = sluice_memory::cpu_seconds();
        snapshot.disk_bytes = self.directory.bytes();
        for (flow, items) in snapshot.flows.iter_mut().zip(self.sent.items()) {
            flow.sent = items;
        }
        snapshot
    }
}

#[cfg(test)]
mod tests;
