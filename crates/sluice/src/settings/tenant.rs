//! `tenant` of a receiver: whose a request is. Our own key.

use serde::Deserialize;

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
