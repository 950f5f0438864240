//! What the gateway says about itself: the ledger's accounts, metrics in Prometheus text, logging.
//!
//! Promise: for every account, `accepted + recovered = delivered + dropped + queued` in items, at
//! all times ([`Account::balanced`]).

mod account;
mod logging;
mod metrics;

pub use account::{Account, DropReason};
pub use logging::{LogEncoding, init_logging};
pub use metrics::{Counter, Gauge, Registry, Sample};
