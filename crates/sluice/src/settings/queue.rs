//! What queued exporters share: `sending_queue`, `retry_on_failure`, `timeout`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ComponentId;
use super::scope::Scope;

/// What sizes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizer {
    /// Received requests.
    #[default]
    Requests,
    /// Data points, log records, spans.
    Items,
    /// Bytes of the request bodies, not compressed.
    Bytes,
}

/// When a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Send what there is when the oldest of it waited this long; zero: send at once.
    pub flush_timeout: Duration,
    /// Send when there is this much; `u64::MAX`: only the timeout counts.
    pub min_size: u64,
    /// Never send more than this at once; `None`: no limit.
    pub max_size: Option<u64>,
    /// What the sizes count: items or bytes.
    pub sizer: Sizer,
}

impl Default for Batching {
    /// The Collector's figures: 8192 items or 200 ms.
    fn default() -> Self {
        Self {
            flush_timeout: Duration::from_millis(200),
            min_size: 8192,
            max_size: None,
            sizer: Sizer::Items,
        }
    }
}

/// `sending_queue`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SendingQueue {
    /// False: a request is acknowledged only when delivered.
    pub enabled: bool,
    /// Requests under way at once, at most; absent: 10. Fewer while the destination is overloaded.
    pub num_consumers: Option<usize>,
    /// How much the queue holds, counted by `sizer`; absent: what the memory budget allows.
    pub queue_size: Option<u64>,
    /// What `queue_size` counts.
    pub sizer: Sizer,
    /// When the queue is full: make the client wait rather than refuse it at once.
    #[serde(alias = "blocking")]
    pub block_on_overflow: bool,
    /// A request is acknowledged only when delivered.
    pub wait_for_result: bool,
    /// The id of the `file_storage` that keeps the queue on disk; absent: it is in memory.
    pub storage: Option<ComponentId>,
    /// Batching of this exporter; absent: as the pipeline's `batch` processor says.
    pub batch: Option<QueueBatch>,
}

impl Default for SendingQueue {
    fn default() -> Self {
        Self {
            enabled: true,
            num_consumers: None,
            queue_size: None,
            sizer: Sizer::Requests,
            block_on_overflow: false,
            wait_for_result: false,
            storage: None,
            batch: None,
        }
    }
}

impl SendingQueue {
    /// Whether clients are answered only when this exporter has delivered.
    pub fn confirms_delivery(&self) -> bool {
        !self.enabled || self.wait_for_result
    }

    /// Where the queue is kept on disk, if it is.
    pub fn durable(&self) -> Option<&ComponentId> {
        self.storage.as_ref().filter(|_| self.enabled)
    }

    /// The exporter's own batching, if it has any.
    pub fn batching(&self) -> Option<Batching> {
        self.batch.as_ref().map(QueueBatch::batching)
    }

    pub(super) fn check(&self, scope: &mut Scope<'_>) {
        const AT: &str = "sending_queue";
        if !self.enabled {
            scope.warn(
                &[AT, "enabled"],
                "without a queue, clients are answered only when the destination has answered, and must keep what it refuses",
            );
        }
        if self.enabled && self.num_consumers == Some(0) {
            scope.error(
                &[AT, "num_consumers"],
                "must be at least 1; remove it to have 10, and fewer while the destination is overloaded",
            );
        }
        if self.enabled && self.queue_size == Some(0) {
            scope.error(
                &[AT, "queue_size"],
                "must be at least 1; remove it to use what the memory budget allows",
            );
        }
        if self.storage.is_some() && self.wait_for_result {
            scope.error(
                &[AT, "storage"],
                "cannot be used together with wait_for_result; remove one of the two",
            );
        }
        if self.storage.is_some() && !self.enabled {
            scope.warn(&[AT, "storage"], "has no effect: there is no queue to keep there");
        }
        if scope.has(&[AT, "blocking"]) {
            scope.warn(&[AT, "blocking"], "is the old name; write block_on_overflow");
        }
        if let Some(batch) = &self.batch {
            batch.check(self, scope);
        }
    }
}

/// `sending_queue.batch`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct QueueBatch {
    /// Send what there is when the oldest of it waited this long.
    pub flush_timeout: Duration,
    /// Send when there is this much.
    pub min_size: u64,
    /// Never send more than this at once; 0: no limit.
    pub max_size: u64,
    /// What the sizes count; absent: items.
    pub sizer: Option<Sizer>,
    /// Read for the Collector's sake.
    partition: Option<IgnoredAny>,
}

impl Default for QueueBatch {
    fn default() -> Self {
        Self {
            flush_timeout: Duration::from_millis(200),
            min_size: 8192,
            max_size: 0,
            sizer: None,
            partition: None,
        }
    }
}

impl QueueBatch {
    fn batching(&self) -> Batching {
        Batching {
            flush_timeout: self.flush_timeout,
            min_size: self.min_size,
            max_size: Some(self.max_size).filter(|size| *size > 0),
            sizer: self.sizer.unwrap_or(Sizer::Items),
        }
    }

    fn check(&self, queue: &SendingQueue, scope: &mut Scope<'_>) {
        const AT: [&str; 2] = ["sending_queue", "batch"];
        let [queue_key, batch_key] = AT;
        if self.sizer == Some(Sizer::Requests) {
            scope.error(
                &[queue_key, batch_key, "sizer"],
                "batches are counted in items or bytes, not requests",
            );
        }
        if self.max_size > 0 && self.max_size < self.min_size {
            let hint = if scope.has(&[queue_key, batch_key, "min_size"]) {
                ""
            } else {
                " (8192 by default)"
            };
            scope.error(
                &[queue_key, batch_key, "max_size"],
                format!("must not be smaller than min_size{hint}"),
            );
        }
        let sizer = self.sizer.unwrap_or(Sizer::Items);
        if let Some(queue_size) = queue.queue_size
            && queue.sizer == sizer
            && self.min_size > queue_size
        {
            scope.error(
                &[queue_key, batch_key, "min_size"],
                "must not be larger than queue_size: the batch would never fill",
            );
        }
        scope.without_effect(&[(
            &[queue_key, batch_key, "partition"],
            "batches are not kept apart by request metadata yet",
        )]);
    }
}

/// `retry_on_failure`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// False: what fails once is dropped, and counted.
    pub enabled: bool,
    /// The first delay.
    pub initial_interval: Duration,
    /// Each delay is spread by this fraction to both sides.
    pub randomization_factor: f64,
    /// Each delay is this many times the last.
    pub multiplier: f64,
    /// No delay is longer, unless the destination asks for it.
    pub max_interval: Duration,
    /// Drop what could not be delivered for this long; absent or 0: never, an outage must not turn into loss.
    pub max_elapsed_time: Option<Duration>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            enabled: true,
            // The Collector waits 5 s; most faults (a restart, a new leader) are over sooner.
            initial_interval: Duration::from_secs(1),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: Duration::from_secs(30),
            max_elapsed_time: None,
        }
    }
}

impl Retry {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>) {
        const AT: &str = "retry_on_failure";
        self.max_elapsed_time = self.max_elapsed_time.filter(|time| !time.is_zero());
        if !self.enabled {
            scope.warn(
                &[AT, "enabled"],
                "without retries, whatever fails once is lost; remove this line to keep it",
            );
            return;
        }
        if self.max_elapsed_time.is_some() {
            scope.warn(
                &[AT, "max_elapsed_time"],
                "what cannot be delivered for this long is dropped; remove it (or set 0) to keep it until it is delivered",
            );
        }
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            scope.error(&[AT, "randomization_factor"], "must be from 0 to 1");
        }
        if !self.multiplier.is_finite() || self.multiplier < 0.0 {
            scope.error(&[AT, "multiplier"], "must be a number of at least 0");
        }
        if self.max_interval < self.initial_interval && scope.has(&[AT, "max_interval"]) {
            if scope.has(&[AT, "initial_interval"]) {
                scope.warn(
                    &[AT, "max_interval"],
                    "is shorter than initial_interval, which is therefore cut to it",
                );
            }
            self.initial_interval = self.max_interval;
        }
        if let Some(total) = self.max_elapsed_time
            && total < self.initial_interval
            && scope.has(&[AT, "initial_interval"])
        {
            scope.error(
                &[AT, "max_elapsed_time"],
                "must not be shorter than initial_interval",
            );
        }
    }
}
