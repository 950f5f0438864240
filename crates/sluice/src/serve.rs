//! Serving until stopped.

use std::process::ExitCode;
use std::time::Duration;

use sluice_telemetry::{LogEncoding, init_logging};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::assembly::{Gateway, signals};
use crate::cli::complain;
use crate::settings::{self, LogLevel, Settings};

/// One thread on one core, a worker a core on more (docs/decisions.md has the figures).
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = match cores {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if cores > 1 {
        builder.worker_threads(cores);
    }
    builder.enable_all().thread_name("sluice").build()
}

/// Serves until SIGTERM or SIGINT, then drains for at most `deadline`.
pub(crate) fn serve(settings: &Settings, deadline: Duration) -> ExitCode {
    let level = match settings.telemetry.logs.level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    let encoding = match settings.telemetry.logs.encoding {
        settings::LogEncoding::Console => LogEncoding::Console,
        settings::LogEncoding::Json => LogEncoding::Json,
    };
    init_logging(level, encoding);
    if let Err(error) = sluice_memory::prepare_allocator() {
        tracing::warn!(%error, "jemalloc's thread did not start: the memory sampler gives freed memory back in its place");
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(format_args!("the runtime did not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let code = runtime.block_on(until_stopped(settings, deadline));
    // A write that hangs (a stalled FIFO, a dead NFS server) must not keep the process past its deadline.
    runtime.shutdown_background();
    code
}

async fn until_stopped(settings: &Settings, deadline: Duration) -> ExitCode {
    let (mut terminate, mut interrupt) =
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            (Err(error), _) | (_, Err(error)) => {
                complain(format_args!("signals cannot be caught: {error}"));
                return ExitCode::FAILURE;
            }
        };
    // Unhandled, SIGHUP would end the process: whoever sends one expects a reload, not an outage.
    if let Ok(mut hangup) = signal(SignalKind::hangup()) {
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                tracing::warn!(
                    "SIGHUP ignored: the configuration is read at start only; restart to apply a change"
                );
            }
        });
    }
    let gateway = match Gateway::start(settings).await {
        Ok(gateway) => gateway,
        Err(error) => {
            complain(format_args!("sluice did not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for bound in gateway.bound() {
        tracing::info!("{} listens on {}", bound.name, bound.address);
    }
    let capacity = gateway.budget().usage().capacity;
    tracing::info!(
        signals = signals(settings)
            .iter()
            .map(|signal| signal.as_str())
            .collect::<Vec<_>>()
            .join(","),
        memory_budget_mib = capacity >> 20,
        "{} is ready",
        crate::VERSION
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!(?deadline, "stopping: queues drain; a second signal stops at once");
    let stopped = tokio::select! {
        stopped = gateway.stop(deadline) => stopped,
        _ = terminate.recv() => return ExitCode::FAILURE,
        _ = interrupt.recv() => return ExitCode::FAILURE,
    };
    for line in &stopped.lines {
        let account = &line.total;
        tracing::info!(
            pipeline = line.pipeline,
            exporter = line.exporter,
            accepted = account.accepted,
            recovered = account.recovered,
            delivered = account.delivered,
            dropped = account.dropped_total(),
            queued = account.queued,
            "final account"
        );
    }
    if stopped.left > 0 {
        tracing::error!(
            items = stopped.left,
            "stopped with items undelivered; they are lost: the shutdown deadline passed (--shutdown-timeout), or their destination \
             refuses everything; a queue on disk (sending_queue.storage) keeps them for the next start"
        );
        return ExitCode::FAILURE;
    }
    match stopped.kept {
        0 => tracing::info!("stopped; nothing was left undelivered"),
        items => tracing::info!(
            items,
            "stopped; nothing was lost: what is undelivered is on disk, for the next start"
        ),
    }
    ExitCode::SUCCESS
}
