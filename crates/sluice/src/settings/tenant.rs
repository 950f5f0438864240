//! `tenant` of a receiver: whose a request is; `tenant_header` of an exporter, which tells its destination. Our own keys.

use serde::Deserialize;
use sluice_payload::MAX_TENANT_NAME_BYTES;

use super::network::Headers;
use super::scope::Scope;

/// Where the tenant of a request comes from; the first that is there counts, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TenantFrom {
    /// A request header, which is metadata in gRPC.
    pub from_header: Option<String>,
    /// The user of a `basicauth`, or the name of a `bearertokenauth`'s token.
    pub from_auth: bool,
    /// An attribute of the first resource in a request.
    pub from_resource_attribute: Option<String>,
}

/// Headers whose values are secrets or say nothing about tenants.
const NEVER: [&str; 6] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "content-type",
    "content-length",
    "host",
];

/// More headers that HTTP or remote write has a meaning for.
const OF_THE_PROTOCOL: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-prometheus-remote-write-version",
    "x-victoriametrics-remote-write-version",
];

impl TenantFrom {
    /// Refuses what cannot name a tenant. `from_auth` is checked where the receivers' authenticators are.
    pub(super) fn check(&self, scope: &mut Scope<'_>) {
        if *self == Self::default() {
            scope.error(
                &["tenant"],
                "says nothing; set from_header, from_auth: true or from_resource_attribute, or remove it",
            );
        }
        if let Some(name) = &self.from_header {
            let at = &["tenant", "from_header"];
            let lower = name.to_ascii_lowercase();
            if NEVER.contains(&lower.as_str()) {
                scope.error(
                    at,
                    format!(
                        "{name} does not name a tenant, and its value may be a secret; tenants are shown in metrics. \
                         Use a header of its own, such as X-Scope-OrgID, or from_auth"
                    ),
                );
            } else if lower.ends_with("-bin") {
                scope.error(
                    at,
                    format!("{name} is binary in gRPC; use a header whose value is text"),
                );
            } else if lower.parse::<http::HeaderName>().is_err() {
                scope.error(at, format!("{name:?} is not a header name (RFC 9110, 5.1)"));
            }
        }
        if self.from_resource_attribute.as_deref().is_some_and(str::is_empty) {
            scope.error(
                &["tenant", "from_resource_attribute"],
                "is empty; name an attribute, such as tenant.id, or remove it",
            );
        }
    }
}

/// Refuses a `tenant_header` that cannot name a tenant beside these `headers`, and a `default_tenant` that is no name.
pub(super) fn check_tenant_header(
    scope: &mut Scope<'_>,
    name: Option<&str>,
    default: &str,
    headers: &Headers,
) {
    let Some(name) = name else {
        if scope.has(&["default_tenant"]) {
            scope.error(
                &["default_tenant"],
                "is the value of a header that is not named; add tenant_header: X-Scope-OrgID, or remove it",
            );
        }
        return;
    };
    let at = &["tenant_header"];
    let lower = name.to_ascii_lowercase();
    if lower.parse::<http::HeaderName>().is_err() {
        scope.error(at, format!("{name:?} is not a header name (RFC 9110, 5.1)"));
    } else if NEVER.contains(&&*lower) || OF_THE_PROTOCOL.contains(&&*lower) {
        scope.error(
            at,
            format!("{name} has a meaning of its own; name tenants in another header, such as X-Scope-OrgID"),
        );
    }
    if headers
        .0
        .iter()
        .any(|(other, _)| other.eq_ignore_ascii_case(name))
    {
        scope.error(
            at,
            format!("{name} is in headers too; remove it there, and set default_tenant for data that names no tenant"),
        );
    }
    let is_printable = default.bytes().all(|byte| byte.is_ascii_graphic());
    if default.is_empty() || default.len() > MAX_TENANT_NAME_BYTES || !is_printable {
        scope.error(
            &["default_tenant"],
            format!("must be of 1 to {MAX_TENANT_NAME_BYTES} printable ASCII characters without blanks; remove it to use default"),
        );
    }
}
