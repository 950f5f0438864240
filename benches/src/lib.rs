//! Benchmark data shared by the criterion suites.
