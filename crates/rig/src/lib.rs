//! Load, a counting sink, and the comparison of gateways at equal work.
//!
//! What this crate promises:
//!
//! - [`load`] sends at an exact rate and counts latency from when a request was due, so that a stalled gateway cannot
//!   hide behind requests that were never sent; or from virtual users that wait and think.
//! - [`sink`] accounts for every item by its id: sent, delivered, duplicated, lost, reordered; and can misbehave as a
//!   script says. Load and sink speak OTLP and Prometheus remote write.
//! - `floor` is what any gateway on this stack must at least pay.
//! - `disk` is what an acknowledgement that waits for the disk must at least wait.
//! - `siege` puts a gateway into little memory and does to it what makes gateways run out of it.
//!
//! The load posts what was accepted to the sink's control port, so that one side knows both.

pub mod account;
mod cli;
mod compare;
pub mod control;
mod disk;
mod floor;
pub mod histogram;
pub mod load;
mod random;
mod siege;
pub mod sink;
pub mod units;

pub use cli::run;
