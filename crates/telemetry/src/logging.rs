//! Log set-up.

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEncoding {
    /// Lines for people.
    Console,
    /// One JSON object a line.
    Json,
}

/// Starts logging to stderr at `level` (`debug`, `info`, `warn`, `error`); `RUST_LOG` overrides it.
/// A second call does nothing: tests start several gateways in one process.
pub fn init_logging(level: &str, encoding: LogEncoding) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    // An error means that logging already runs, which is what the caller wants.
    let _ = match encoding {
        LogEncoding::Console => builder
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .try_init(),
        LogEncoding::Json => builder.json().try_init(),
    };
}
