//! Memory: what the process may use, what it does use, and a budget that follows.
//!
//! Promise: the budget's capacity is what the limit leaves after everything that no permit explains, so that permits
//! and the rest stay within the limit together. What the rest is, is measured every 100 ms to 1 s, the more often the less room is left: the allocator's
//! figures, the kernel's of the process, and the cgroup's where one limits us. The capacity is lowered at once and
//! raised slowly, in steps that do not provoke the next lowering; no request waits for any of this. When nothing has moved for a while,
//! what is kept for the next request goes back.
//!
//! Where to start: [`Machine::detect`] finds the limits, [`Plan::new`] makes figures of them and of what is configured,
//! [`Sampler`] reads and acts, and between readings and acts is [`Controller`], which has neither clock nor files.

mod allocator;
mod cgroup;
mod code;
mod controller;
mod large;
mod limit;
mod process;
mod quiet;
mod report;
mod sampler;
mod workers;

pub use allocator::prepare_allocator;
pub use cgroup::{Cgroup, Hierarchy};

pub use controller::{Cause, Change, Charged, Controller, Decision, Readings};
pub use large::Allocator;
pub use limit::{Machine, MemoryLimit, Plan};
pub use process::{cpu_seconds, resident_bytes};
pub use sampler::{DEFAULT_INTERVAL, Sampler, Sampling};
