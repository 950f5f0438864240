//! A telemetry gateway: OTLP and remote write in, batched OTLP and remote write out, nothing lost silently.
//!
//! The binary is [`run`]. To follow a request, open `sluice_otlp::receiver`, then
//! `sluice_pipeline`, `sluice_journal`, `sluice_otlp::exporter`, in that order; [`Gateway::start`]
//! puts them together from [`settings`].

mod admin;
mod assembly;
mod cli;
mod demo;
mod journal;
mod ledger;
mod serve;
pub mod settings;

pub use assembly::{Bound, Gateway, StartError, Stopped};
pub use cli::run;
pub use ledger::{Ledger, LedgerLine};

/// Name and version, as printed.
pub const VERSION: &str = concat!("sluice ", env!("CARGO_PKG_VERSION"));

/// The configuration of a gateway that is given none.
#[cfg(feature = "parquet")]
pub const DEFAULT_CONFIG: &str = include_str!("../../../config/default.yaml");

/// What runs without any configuration.
#[cfg(not(feature = "parquet"))]
pub const DEFAULT_CONFIG: &str = include_str!("../../../config/files.yaml");
