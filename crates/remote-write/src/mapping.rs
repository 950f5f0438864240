//! How OTLP metrics become Prometheus series: the settings of the mapping.

use crate::names::Strategy;

/// Everything about the mapping that can be chosen. The defaults are those of Prometheus's own OTLP endpoint, but
/// that labels of the scope are sent, as the OpenTelemetry specification has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// How names are translated.
    pub strategy: Strategy,
    /// Put before every metric name, with `_` between; empty: nothing. A valid metric name by itself.
    pub namespace: String,
    /// Labels of every series, unless a data point has its own by that name.
    pub external_labels: Vec<(String, String)>,
    /// Which resource attributes become labels of every series of the resource.
    pub promote: Promote,
    /// `target_info`: a series a resource with the attributes that are not labels of the others.
    pub target_info: bool,
    /// `target_info` has `service.name`, `service.namespace` and `service.instance.id` too, which make `job` and
    /// `instance`.
    pub keep_identifying_attributes: bool,
    /// `otel_scope_*` labels, where the scope has a name.
    pub scope_labels: bool,
    /// Several `_` in a row stay in label names.
    pub keep_multiple_underscores: bool,
    /// Histograms with explicit bounds become native ones with custom buckets, which 1.0 does not have.
    pub custom_buckets: bool,
    /// Sums and histograms of delta temporality are added up; else they are dropped.
    pub delta_to_cumulative: bool,
    /// Label names that begin with one `_` get `key` before it.
    pub key_before_underscore: bool,
}

impl Default for Mapping {
    fn default() -> Self {
        Self {
            strategy: Strategy::UnderscoreEscapingWithSuffixes,
            namespace: String::new(),
            external_labels: Vec::new(),
            promote: Promote::None,
            target_info: true,
            keep_identifying_attributes: false,
            scope_labels: true,
            keep_multiple_underscores: false,
            custom_buckets: false,
            delta_to_cumulative: false,
            key_before_underscore: true,
        }
    }
}

/// Which resource attributes become labels of every series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Promote {
    /// None but those that make `job` and `instance`.
    #[default]
    None,
    /// These, by their OTLP names.
    Listed(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

impl Promote {
    pub(crate) fn takes(&self, key: &str) -> bool {
        match self {
            Promote::None => false,
            Promote::Listed(listed) => listed.iter().any(|name| name == key),
            Promote::AllBut(left_out) => !left_out.iter().any(|name| name == key),
        }
    }
}
