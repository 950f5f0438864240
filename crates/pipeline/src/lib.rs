//! From a journal to a destination: batching, the in-flight window, settle and retry policy.

mod exporter;

pub use exporter::{Batch, Export, Exporter, Part, Verdict};
