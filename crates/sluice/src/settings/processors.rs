//! Processors: `batch` and `memory_limiter`, which are understood and mapped to what sluice has in their place.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Node, Report};
use sluice_memory::MemoryLimit;

use super::queue::{Batching, Sizer};
use super::scope::Scope;

/// A processor's settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Processor {
    /// Batching defaults for the exporters of the pipeline.
    Batch(Batch),
    /// The memory budget of the process.
    MemoryLimiter(MemoryLimiter),
}

/// The `batch` processor: how the exporters of its pipelines batch, unless they say so themselves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Send what there is after this long; 0: at once.
    pub timeout: Duration,
    /// Send when there are this many items; 0: only `timeout` counts.
    pub send_batch_size: u64,
    /// Never send more items than this at once; 0: no limit.
    pub send_batch_max_size: u64,
    /// Batches per value of these metadata keys; read for the Collector's sake.
    pub metadata_keys: Vec<String>,
    /// Bound of `metadata_keys`; read for the Collector's sake.
    pub metadata_cardinality_limit: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(200),
            send_batch_size: 8192,
            send_batch_max_size: 0,
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

impl Batch {
    /// The same in the words of `sending_queue.batch`.
    pub fn batching(&self) -> Batching {
        Batching {
            flush_timeout: self.timeout,
            min_size: if self.send_batch_size == 0 {
                u64::MAX
            } else {
                self.send_batch_size
            },
            max_size: Some(self.send_batch_max_size).filter(|size| *size > 0),
            sizer: Sizer::Items,
        }
    }
}

/// Reads a `batch` processor.
pub(super) fn batch(node: &Node, path: &str, report: &mut Report) -> Option<Batch> {
    let mut scope = Scope { node, path, report };
    let batch: Batch = scope.decode()?;
    if batch.send_batch_max_size > 0 && batch.send_batch_max_size < batch.send_batch_size {
        let explicit = scope.has(&["send_batch_size"]);
        let hint = if explicit { "" } else { " (8192 by default)" };
        scope.error(
            &["send_batch_max_size"],
            format!("must not be smaller than send_batch_size{hint}; raise it or lower send_batch_size"),
        );
    }
    scope.without_effect(&[(
        &["metadata_keys"],
        "batches are not kept apart by request metadata yet; no exporter forwards metadata",
    )]);
    Some(batch)
}

/// The `memory_limiter` processor: the memory budget of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MemoryLimiter {
    /// How often memory beside the budget is measured, at most 100 ms apart whatever this says. The budget itself
    /// is exact at every request.
    pub check_interval: Duration,
    /// The limit in MiB; wins over `limit_percentage`.
    pub limit_mib: u64,
    /// How far below the limit the soft mark is, in MiB; 0: 20% of the limit.
    pub spike_limit_mib: u64,
    /// The limit in percent of the memory of the machine or container.
    pub limit_percentage: u32,
    /// How far below the limit the soft mark is, in percent of that memory.
    pub spike_limit_percentage: u32,
    /// Read for the Collector's sake: there is no garbage collector.
    pub min_gc_interval_when_soft_limited: Duration,
    /// Read for the Collector's sake: there is no garbage collector.
    pub min_gc_interval_when_hard_limited: Duration,
    max_gc_interval_when_soft_limited: Option<IgnoredAny>,
    max_gc_interval_when_hard_limited: Option<IgnoredAny>,
    /// In old Collectors the size of the `memory_ballast`.
    ballast_size_mib: Option<IgnoredAny>,
}

impl MemoryLimiter {
    /// The limit in one value, with the Collector's defaults filled in; `None` when neither key is set.
    pub fn limit(&self) -> Option<MemoryLimit> {
        if self.limit_mib > 0 {
            let limit = self.limit_mib.saturating_mul(1 << 20);
            let spike = if self.spike_limit_mib > 0 {
                self.spike_limit_mib.saturating_mul(1 << 20)
            } else {
                limit / 5
            };
            Some(MemoryLimit::Bytes { limit, spike })
        } else if self.limit_percentage > 0 {
            let default = self.limit_percentage / 5;
            let spike = if self.spike_limit_percentage > 0 {
                self.spike_limit_percentage
            } else {
                default
            };
            Some(MemoryLimit::Percentage {
                limit: self.limit_percentage,
                spike,
            })
        } else {
            None
        }
    }
}

/// Reads a `memory_limiter` processor.
pub(super) fn memory_limiter(node: &Node, path: &str, report: &mut Report) -> Option<MemoryLimiter> {
    let mut scope = Scope { node, path, report };
    let limiter: MemoryLimiter = scope.decode()?;
    match limiter.limit() {
        None => scope.error(&[], "set limit_mib or limit_percentage"),
        Some(MemoryLimit::Bytes { limit, spike }) if spike >= limit => {
            scope.error(&["spike_limit_mib"], "must be smaller than limit_mib");
        }
        Some(MemoryLimit::Percentage { limit, .. }) if limit > 100 => {
            scope.error(&["limit_percentage"], "must be from 1 to 100");
        }
        Some(MemoryLimit::Percentage { limit, spike }) if spike >= limit => {
            scope.error(
                &["spike_limit_percentage"],
                "must be smaller than limit_percentage",
            );
        }
        Some(_) => {}
    }
    if scope.has(&["limit_mib"]) && scope.has(&["limit_percentage"]) && limiter.limit_mib > 0 {
        scope.warn(&["limit_percentage"], "has no effect: limit_mib wins");
    }
    let no_gc = "there is no garbage collector";
    scope.without_effect(&[
        (&["min_gc_interval_when_soft_limited"], no_gc),
        (&["min_gc_interval_when_hard_limited"], no_gc),
        (&["max_gc_interval_when_soft_limited"], no_gc),
        (&["max_gc_interval_when_hard_limited"], no_gc),
        (&["ballast_size_mib"], no_gc),
    ]);
    Some(limiter)
}
