//! How much a cursor may lag behind, and what happens then.

/// What a payload, or a queue, amounts to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Payloads.
    pub requests: u64,
    /// Items.
    pub items: u64,
    /// Retained bytes.
    pub bytes: u64,
}

impl Cost {
    pub(crate) fn add(&mut self, other: Cost) {
        self.requests += other.requests;
        self.items += other.items;
        self.bytes += other.bytes;
    }

    pub(crate) fn sub(&mut self, other: Cost) {
        self.requests -= other.requests;
        self.items -= other.items;
        self.bytes -= other.bytes;
    }
}

/// Limits of one cursor's backlog; `None` is unlimited (the memory budget still holds).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Payloads, the Collector's `sizer: requests`.
    pub requests: Option<u64>,
    /// Items, `sizer: items`.
    pub items: Option<u64>,
    /// Retained bytes, `sizer: bytes`.
    pub bytes: Option<u64>,
}

impl Limits {
    pub(crate) fn allow(&self, backlog: Cost) -> bool {
        self.requests.is_none_or(|max| backlog.requests <= max)
            && self.items.is_none_or(|max| backlog.items <= max)
            && self.bytes.is_none_or(|max| backlog.bytes <= max)
    }

    /// How full a queue is with this in it: 1 is at the first of its limits, 0 is empty or without any.
    pub(crate) fn filled(&self, backlog: Cost) -> f64 {
        let share = |limit: Option<u64>, used: u64| limit.map_or(0.0, |max| used as f64 / max.max(1) as f64);
        share(self.requests, backlog.requests)
            .max(share(self.items, backlog.items))
            .max(share(self.bytes, backlog.bytes))
    }
}

/// What a full cursor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// New payloads are refused for the whole journal until it has room: nothing is lost.
    Refuse,
    /// Its oldest unread payloads are dropped and counted, so that a dead exporter does not take the
    /// others down. Only a laggard is cut loose: when every cursor is full, the journal refuses.
    DropOldest,
}

/// One exporter's place in a journal.
#[derive(Debug, Clone)]
pub struct CursorSpec {
    /// The exporter's id, for the account and the metrics.
    pub exporter: String,
    /// How far it may lag.
    pub limits: Limits,
    /// What happens beyond that.
    pub on_full: OnFull,
}

/// How far a cursor lags now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// What is not settled yet.
    pub backlog: Cost,
    /// How long the oldest of it has been here.
    pub age: std::time::Duration,
}

/// How the cursors are doing that receivers are coupled to: one that is cut loose when it lags holds nobody back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Strain {
    /// How full the fullest of their queues is: 1 is at its limit, 0 where there is none.
    pub filled: f64,
    /// How long the oldest payload has waited for one of them.
    pub age: std::time::Duration,
}

/// A coupled cursor has no room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// No room now; it will come.
    #[error(
        "the queue of exporter {exporter} is full ({requests} requests, {items} items, {bytes} bytes wait); retry later"
    )]
    Now {
        /// The cursor that is full.
        exporter: String,
        /// Its backlog in payloads.
        requests: u64,
        /// Its backlog in items.
        items: u64,
        /// Its backlog in retained bytes.
        bytes: u64,
        /// How long that takes to leave, as the exporter went lately.
        drains_in: std::time::Duration,
    },
    /// The disk takes nothing now; that is tried again all the time.
    #[error("the journal of pipeline {pipeline} cannot be written ({reason}); retry later")]
    Disk {
        /// The pipeline.
        pipeline: String,
        /// What the disk said.
        reason: String,
    },
    /// The journal takes nothing any more: the gateway is shutting down.
    #[error("the gateway is shutting down; retry later or elsewhere")]
    Closed,
}
