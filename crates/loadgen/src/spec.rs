//! What a generator should make.

use crate::signal::Signal;

/// The smallest item id.
///
/// Ids from here up to [`FIRST_ID`] + [`LANES`] << 32 are six-byte varints, so that an id can be written
/// over another one without moving a byte, in the shortest encoding that protobuf allows.
pub const FIRST_ID: u64 = 1 << 35;

/// Number of disjoint id ranges for [`Spec::lane`]; each holds 2^32 ids.
pub const LANES: u32 = (((1_u64 << 42) - FIRST_ID) >> 32) as u32;

/// Whether any generator can have made this id.
pub(crate) fn is_item_id(id: u64) -> bool {
    (FIRST_ID..1 << 42).contains(&id)
}

/// The kind of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Items that are all alike, as in the comparison figures: gauge points, plain records, server spans.
    Uniform,
    /// What several services send together: all five metric kinds, severities and bodies of many sorts,
    /// span trees with events, links and errors.
    Mixed,
}

/// What a [`crate::Generator`] makes. The same spec always gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Signal of every request.
    pub signal: Signal,
    /// The kind of content.
    pub shape: Shape,
    /// Items in each request.
    pub items_per_request: u32,
    /// Attributes of each item, for metrics and logs including the one that carries the id.
    pub attributes_per_item: u32,
    /// Resources in each request; at most one for each item is made.
    pub resources: u32,
    /// Scopes in each resource.
    pub scopes: u32,
    /// Data points in each metric; other signals do not use it.
    pub points_per_metric: u32,
    /// Metrics of [`Shape::Uniform`]: every point draws its own time and attribute values. Otherwise they are as
    /// an SDK collects them: one time for all, and the n-th points of all metrics of a resource have the same
    /// attributes. Compressors feel the difference.
    pub varied: bool,
    /// Number of different bodies prepared in advance, which are sent in turn with new ids and times.
    pub variants: u32,
    /// Metrics: number of series live at a time, told apart by an attribute of their own (one of
    /// [`Spec::attributes_per_item`]) and counted without the attribute that carries the id. Rounded up to
    /// whole requests; there is one variant then. 0 leaves the attribute out.
    pub series: u64,
    /// With [`Spec::series`]: how many of a million points begin a new series, in whole requests.
    pub churn_per_million: u32,
    /// Seed of every value.
    pub seed: u64,
    /// Id of the first item; see [`Spec::lane`].
    pub first_id: u64,
    /// Time of the first request, in nanoseconds since the Unix epoch.
    pub start_unix_nanos: u64,
    /// Time from one request to the next in the payload's own clock, in nanoseconds.
    pub interval_nanos: u64,
}

impl Spec {
    /// The payloads of the gateway comparison: 500 gauge points with 6 attributes each (110.7 KB), 500 log
    /// records, or 467 spans.
    pub fn gateway(signal: Signal) -> Self {
        Spec {
            signal,
            shape: Shape::Uniform,
            items_per_request: if signal == Signal::Traces { 467 } else { 500 },
            attributes_per_item: 6,
            resources: 1,
            scopes: 1,
            points_per_metric: 10,
            varied: false,
            variants: 4,
            series: 0,
            churn_per_million: 0,
            seed: 1,
            first_id: FIRST_ID,
            // 2026-01-01T00:00:00Z: recent enough to be plausible, fixed so that runs are comparable.
            start_unix_nanos: 1_767_225_600_000_000_000,
            interval_nanos: 10_000_000,
        }
    }

    /// A mix of several services with every kind of item, as an agent in front of them would send it.
    pub fn mixed(signal: Signal) -> Self {
        Spec {
            shape: Shape::Mixed,
            items_per_request: 120,
            attributes_per_item: 5,
            resources: 4,
            scopes: 2,
            points_per_metric: 3,
            variants: 16,
            ..Spec::gateway(signal)
        }
    }

    /// The same spec with another number of items in each request.
    pub fn items(self, items_per_request: u32) -> Self {
        Spec {
            items_per_request,
            ..self
        }
    }

    /// The same spec with another seed.
    pub fn seed(self, seed: u64) -> Self {
        Spec { seed, ..self }
    }

    /// The same spec in the id range of one sender out of [`LANES`]: ranges of different lanes never meet
    /// while each sends fewer than 2^32 items. Lane numbers wrap around.
    pub fn lane(self, lane: u32) -> Self {
        Spec {
            first_id: FIRST_ID + (u64::from(lane % LANES) << 32),
            ..self
        }
    }
}
