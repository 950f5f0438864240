//! Batching, fan-out, the Processor and Exporter traits, settle and retry policy.
