//! Spellings of older and newer Collectors than the one the rest is written after, each brought into that one's.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Entry, Mapping, Node, Report, Value};

use super::scope::Scope;

/// What stood at the top of an exporter before v0.39 of the Collector, and stands in its `tls` since.
const TLS_AT_THE_TOP: [&str; 6] = [
    "insecure",
    "insecure_skip_verify",
    "ca_file",
    "cert_file",
    "key_file",
    "server_name_override",
];

/// Moves an exporter's TLS keys from its top into its `tls`, each with a warning. What `tls` says itself counts.
pub(super) fn gather_tls(node: &mut Node, path: &str, report: &mut Report) {
    let Value::Mapping(keys) = &mut node.value else {
        return;
    };
    let moved: Vec<Entry> = TLS_AT_THE_TOP.iter().filter_map(|key| keys.remove(key)).collect();
    let Some(first) = moved.first() else { return };
    let at = first.key_span.clone();
    let mut tls = keys.remove("tls").unwrap_or_else(|| Entry {
        key: "tls".to_owned(),
        key_span: at.clone(),
        value: Node::new(Value::Null, at),
    });
    if tls.value.is_null() {
        tls.value.value = Value::Mapping(Mapping::default());
    }
    for entry in moved {
        let key = &entry.key;
        report.warn(
            &entry.key_span,
            format!("{path}.{key}: is the old place; write {key} under tls"),
        );
        if let Value::Mapping(within) = &mut tls.value.value
            && within.entry(&entry.key).is_none()
        {
            within.insert(entry.key, entry.key_span, entry.value);
        }
    }
    keys.insert(tls.key, tls.key_span, tls.value);
}

/// A listener's `tls_settings`, as `tls` was called before v0.39 of the Collector, with a warning. A `tls` beside it counts.
pub(super) fn rename_tls(node: &mut Node, at: &[&str], path: &str, report: &mut Report) {
    let Some(Value::Mapping(keys)) = node.at_mut(at).map(|listener| &mut listener.value) else {
        return;
    };
    let Some(old) = keys.remove("tls_settings") else {
        return;
    };
    let at = at.join(".");
    report.warn(
        &old.key_span,
        format!("{path}.{at}.tls_settings: is the old name; write tls"),
    );
    if keys.entry("tls").is_none() {
        keys.insert("tls".to_owned(), old.key_span, old.value);
    }
}

/// `keepalive` of an exporter over HTTP, in which v0.160 of the Collector gathered keys that stood beside it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct HttpClientKeepalive {
    enabled: Option<bool>,
    idle_conn_timeout: Option<Duration>,
    #[serde(rename = "max_idle_conns")]
    _max_idle_conns: Option<IgnoredAny>,
    #[serde(rename = "max_idle_conns_per_host")]
    _max_idle_conns_per_host: Option<IgnoredAny>,
}

impl HttpClientKeepalive {
    /// Sets what it says; `disabled` is `None` where connections are kept in any case.
    pub(super) fn apply(
        self,
        scope: &mut Scope<'_>,
        idle_conn_timeout: &mut Duration,
        disabled: Option<&mut bool>,
    ) {
        refuse_beside(
            scope,
            &[],
            &[
                "idle_conn_timeout",
                "max_idle_conns",
                "max_idle_conns_per_host",
                "disable_keep_alives",
            ],
        );
        *idle_conn_timeout = self.idle_conn_timeout.unwrap_or(*idle_conn_timeout);
        match disabled {
            Some(disabled) => *disabled = self.enabled == Some(false),
            None if self.enabled == Some(false) => {
                scope.without_effect(&[(&["keepalive", "enabled"], "connections are kept")]);
            }
            None => {}
        }
        let few = "connections are few and kept";
        scope.without_effect(&[
            (&["keepalive", "max_idle_conns"], few),
            (&["keepalive", "max_idle_conns_per_host"], few),
        ]);
    }
}

/// `keepalive` of a listener for HTTP, since v0.160 of the Collector.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct HttpServerKeepalive {
    enabled: Option<bool>,
    idle_timeout: Option<Duration>,
}

impl HttpServerKeepalive {
    /// Sets what it says, of the listener at `at`.
    pub(super) fn apply(self, scope: &mut Scope<'_>, at: &[&str], idle_timeout: &mut Option<Duration>) {
        refuse_beside(scope, at, &["idle_timeout", "keep_alives_enabled"]);
        *idle_timeout = self.idle_timeout.or(*idle_timeout);
        if self.enabled == Some(false) {
            let key = [at, &["keepalive", "enabled"]].concat();
            scope.without_effect(&[(
                &key,
                "connections are kept; use keepalive.idle_timeout to close idle ones",
            )]);
        }
    }
}

/// As the Collector: what says the same in two places is an error.
fn refuse_beside(scope: &mut Scope<'_>, at: &[&str], old: &[&str]) {
    for key in old {
        let keys = [at, &[*key]].concat();
        if scope.has(&keys) {
            scope.error(&keys, "goes into keepalive, which is there too; write it there");
        }
    }
}
