//! Why data points are not written.

/// Why a data point was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Delta temporality: Prometheus takes cumulative values.
    Delta,
    /// No temporality where one is needed.
    Temporality,
    /// Nothing of the metric's name can be kept.
    MetricName,
    /// An attribute's key is empty, or nothing of it can be kept.
    LabelName,
    /// There is no value, and no flag that says so.
    NoValue,
    /// An exponential histogram whose scale is below -4.
    Scale,
    /// A delta that does not come after the last one of its series.
    DeltaOrder,
    /// A delta of a series for whose total there is no room.
    DeltaRoom,
    /// A delta whose value or sum is infinite or no number: its total would not be one any more, for ever.
    DeltaValue,
    /// A delta of an exponential histogram that cannot be added: its count is not that of its buckets, or is too large, or one of its numbers is no
    /// finite one.
    Histogram,
    /// A native histogram with custom buckets that came in 2.0, and the destination takes 1.0, which does not have them.
    CustomBuckets,
    /// A rule of `write_relabel_configs` dropped all of its series.
    Relabel,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 12] = [
        Reason::Delta,
        Reason::Temporality,
        Reason::MetricName,
        Reason::LabelName,
        Reason::NoValue,
        Reason::Scale,
        Reason::DeltaOrder,
        Reason::DeltaRoom,
        Reason::DeltaValue,
        Reason::Histogram,
        Reason::CustomBuckets,
        Reason::Relabel,
    ];

    /// The value of the `reason` label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Delta => "delta",
            Reason::Temporality => "temporality",
            Reason::MetricName => "metric_name",
            Reason::LabelName => "label_name",
            Reason::NoValue => "no_value",
            Reason::Scale => "scale",
            Reason::DeltaOrder => "delta_order",
            Reason::DeltaRoom => "delta_room",
            Reason::DeltaValue => "delta_value",
            Reason::Histogram => "histogram",
            Reason::CustomBuckets => "custom_buckets",
            Reason::Relabel => "relabel",
        }
    }

    /// What to do about it, for the log.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Reason::Delta => {
                "points with delta temporality are not sent: set the SDK's temporality preference to cumulative, or delta_to_cumulative, which adds up all but histograms with convert_histograms_to_nhcb"
            }
            Reason::Temporality => {
                "points without an aggregation temporality are not sent: correct the sender"
            }
            Reason::MetricName => {
                "metrics whose names leave nothing after escaping are not sent: rename them"
            }
            Reason::LabelName => {
                "points with an attribute key that leaves nothing after escaping are not sent: rename it"
            }
            Reason::NoValue => "points without a value are not sent: correct the sender",
            Reason::Scale => "exponential histograms with a scale below -4 are not sent: use a finer scale",
            Reason::DeltaOrder => {
                "deltas that are not after the last one of their series are not added: one sender has to make each series"
            }
            Reason::DeltaRoom => {
                "there are more series of deltas than totals are kept for: raise delta_to_cumulative.max_streams"
            }
            Reason::DeltaValue => {
                "deltas whose value or sum is infinite or no number are not added: correct the sender"
            }
            Reason::Histogram => {
                "exponential histograms of delta temporality whose count is not that of their buckets are not added: correct the sender"
            }
            Reason::CustomBuckets => {
                "native histograms with custom buckets are not sent as 1.0: set protobuf_message to io.prometheus.write.v2.Request where the destination reads it"
            }
            Reason::Relabel => "dropped by write_relabel_configs, as configured",
        }
    }
}

/// Data points that were not written, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped([u64; Reason::ALL.len()]);

impl Dropped {
    pub(crate) fn add(&mut self, reason: Reason, points: u64) {
        self.0[reason as usize] += points;
    }

    pub(crate) fn add_all(&mut self, other: &Dropped) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(sum, more)| *sum += more);
    }

    /// How many for this reason.
    #[must_use]
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
