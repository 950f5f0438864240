//! Whose a request is.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use sluice_payload::{TenantId, Tenants};
use sluice_telemetry::{Registry, Sample};

use crate::Refusal;

/// Where the tenant of a request comes from; the first that is there counts, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSource {
    /// A request header, which is metadata in gRPC.
    pub header: Option<HeaderName>,
    /// The name that the credentials belong to.
    pub identity: bool,
    /// An attribute of the first resource in the body: known only when the body has been read and scanned.
    pub resource_attribute: Option<String>,
}

/// How one receiver tells tenants apart. Cloning shares it.
///
/// Nothing here is trusted to be few: the table of tenants is bounded ([`sluice_payload::MAX_TENANTS`]), and so is what
/// is counted by tenant. A name that a client sends is taken only after its credentials have been checked.
#[derive(Debug, Clone)]
pub struct Tenancy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: TenantSource,
    tenants: Tenants,
    /// Refusals by tenant and reason: written when a request is turned away, which is not the path of one that is taken.
    refused: Mutex<BTreeMap<(TenantId, &'static str), u64>>,
}

impl Tenancy {
    /// Tenants of `receiver` from `source`, named in `tenants`; counts refusals by tenant in `registry`.
    pub fn new(receiver: &str, source: TenantSource, tenants: Tenants, registry: &Registry) -> Self {
        let tenancy = Self(Arc::new(Inner {
            source,
            tenants,
            refused: Mutex::default(),
        }));
        let (counted, receiver) = (tenancy.clone(), receiver.to_owned());
        registry.collect_with(move |out| counted.samples(&receiver, out));
        tenancy
    }

    /// The tenant that the head of a request names; `identity` is whose the credentials are. `None`: it names none.
    pub fn of_head(&self, headers: &HeaderMap, identity: Option<&str>) -> Option<TenantId> {
        let Inner { source, tenants, .. } = &*self.0;
        let header = source.header.as_ref().and_then(|name| headers.get(name));
        header
            .and_then(|value| tenants.intern_sent(value.as_bytes()))
            .or_else(|| {
                let identity = identity.filter(|_| source.identity)?;
                tenants.intern_sent(identity.as_bytes())
            })
    }

    /// The resource attribute that names the tenant of a request whose head does not.
    pub fn resource_attribute(&self) -> Option<&str> {
        self.0.source.resource_attribute.as_deref()
    }

    /// The tenant of a name found in the body.
    pub fn of_body(&self, name: &str) -> Option<TenantId> {
        self.0.tenants.intern_sent(name.as_bytes())
    }

    /// Counts a refusal.
    pub fn refused(&self, tenant: TenantId, refusal: &Refusal) {
        *self
            .0
            .refused
            .lock()
            .entry((tenant, refusal.reason()))
            .or_default() += 1;
    }

    fn samples(&self, receiver: &str, out: &mut Vec<Sample>) {
        for ((tenant, reason), count) in &*self.0.refused.lock() {
            out.push(Sample {
                name: "sluice_tenant_refused_requests_total",
                help: "Requests turned away, by tenant.",
                labels: vec![
                    ("receiver", receiver.to_owned()),
                    ("tenant", self.0.tenants.name(*tenant).to_string()),
                    ("reason", (*reason).to_owned()),
                ],
                value: *count as f64,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: HeaderName = HeaderName::from_static("x-scope-orgid");

    fn tenancy(header: bool, identity: bool) -> (Tenancy, Tenants) {
        let source = TenantSource {
            header: header.then_some(HEADER),
            identity,
            resource_attribute: None,
        };
        let tenants = Tenants::default();
        let tenancy = Tenancy::new("otlp", source, tenants.clone(), &Registry::default());
        (tenancy, tenants)
    }

    fn headers(value: &'static [u8]) -> HeaderMap {
        HeaderMap::from_iter([(HEADER, http::HeaderValue::from_bytes(value).unwrap())])
    }

    /// Scenario: a header and an identity, each there or not, asked for or not.
    /// Guarantees: the header comes before the identity, an empty one is none, and what is not asked for does not count.
    #[test]
    fn the_first_source_that_is_there_counts() {
        let named = |(tenancy, tenants): &(Tenancy, Tenants), headers: &HeaderMap, identity| {
            let id = tenancy.of_head(headers, identity)?;
            Some(tenants.name(id).to_string())
        };
        let (both, only_identity) = (tenancy(true, true), tenancy(false, true));
        assert_eq!(named(&both, &headers(b"a"), Some("ann")).as_deref(), Some("a"));
        assert_eq!(
            named(&both, &HeaderMap::new(), Some("ann")).as_deref(),
            Some("ann")
        );
        assert_eq!(named(&both, &headers(b" "), Some("ann")).as_deref(), Some("ann"));
        assert_eq!(named(&both, &HeaderMap::new(), None), None);
        assert_eq!(
            named(&only_identity, &headers(b"a"), Some("ann")).as_deref(),
            Some("ann")
        );
        assert_eq!(named(&tenancy(true, false), &HeaderMap::new(), Some("ann")), None);
    }

    /// Scenario: two tenants are refused for different reasons.
    /// Guarantees: each is counted by its own name and reason, and nothing is said of what did not happen.
    #[test]
    fn refusals_are_counted_by_tenant_and_reason() {
        let (registry, tenants) = (Registry::default(), Tenants::default());
        let tenancy = Tenancy::new("otlp", TenantSource::default(), tenants.clone(), &registry);
        assert!(!registry.render().contains("sluice_tenant"));
        let (a, b) = (tenants.intern("a"), tenants.intern("b"));
        tenancy.refused(a, &Refusal::TooLarge(String::new()));
        tenancy.refused(a, &Refusal::TooLarge(String::new()));
        tenancy.refused(b, &Refusal::TooSlow(String::new()));
        let text = registry.render();
        let family = "sluice_tenant_refused_requests_total";
        for line in [
            format!("{family}{{receiver=\"otlp\",tenant=\"a\",reason=\"too_large\"}} 2\n"),
            format!("{family}{{receiver=\"otlp\",tenant=\"b\",reason=\"too_slow\"}} 1\n"),
        ] {
            assert!(text.contains(&line), "{text}");
        }
    }
}
