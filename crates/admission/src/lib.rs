//! Admission: what may come in, decided before a byte of it is read.
//!
//! Two parts that know nothing of each other. The [`Guard`] decides by how things are going: a [`Tracker`] of latency
//! and a [`Breaker`] for each method, a [`Level`] for each and for the process; with the feature `tower`, `GuardLayer`
//! puts it in front of any tower service. The [`Budget`] decides by bytes:
//!
//! Promise: the sum of all live [`Permit`]s never exceeds the [`Budget`]'s capacity, a permit
//! gives its bytes back exactly once (on drop), and waiting is first come, first served within
//! its lane. A request that can never fit is told so at once ([`NeverFits`]) instead of waiting
//! for ever.
//!
//! Two lanes share the capacity: a *general* lane, and a small *express* lane that only small
//! requests may use, so that a handful of huge bodies cannot starve everybody else.

mod breaker;
mod budget;
mod drain;
mod gauge;
mod guard;
mod guard_settings;
mod hint;
mod histogram;
mod jitter;
#[cfg(feature = "tower")]
mod layer;
mod level;
mod policy;
mod registry;
mod sync;
mod tracker;

pub use breaker::{Breaker, BreakerChange, BreakerSettings, BreakerState, Open, Outcome, Pass};
pub use budget::{
    Budget, Denied, EXPRESS_MAX_BYTES, EXPRESS_SHARE, GIVE_WAY_AFTER, GIVE_WAY_AGAIN_AFTER, NeverFits,
    OverShare, Permit, Usage, Visitor,
};
pub use drain::DrainRate;
pub use gauge::{LevelChange, LevelGauge};
pub use guard::{Guard, Hooks, MethodView, NoHooks, OTHER_METHODS, Reason, Refusal, Ticket};
pub use guard_settings::GuardSettings;
pub use hint::{MAX_RETRY_HINT, MIN_RETRY_HINT, RetryHint};
pub use jitter::Jitter;
#[cfg(feature = "tower")]
pub use layer::{
    AnyResponse, Budgeted, Classify, GuardLayer, Guarded, GuardedFuture, LONGEST_LINE, NoPermits, Reserve,
    Reserved,
};
pub use level::{Cause, LatencyThresholds, Level, SignalThresholds, Signals, Steps};
pub use policy::{Action, Actions, Priority};
pub use tracker::{Origin, Stats, Tracker, TrackerSettings};
