//! Prometheus relabelling.
//!
//! Promise: [`Rules::apply`] does to a label set what Prometheus 3's `relabel_configs` do: expressions are anchored at both
//! ends, `.` matches line breaks, `\d`, `\w`, `\s` and `\b` know ASCII only, as in Go. Expressions run in linear time.

mod expression;
mod labels;
mod rule;

#[cfg(test)]
mod tests;

pub use labels::Labels;
pub use rule::{Action, InvalidRule, RuleConfig, Rules};
