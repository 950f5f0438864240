//! Benchmark data shared by the criterion suites.

pub mod otlp_wire;

pub mod forty;
pub mod points;
pub mod sparse;
