//! Metadata of 1.0, between the request it came in and one that takes it along.
//!
//! Prometheus sends it once a minute, in requests without samples. A queue counts samples, so that alone it has no place in one: it waits
//! for the next request of its tenant that has some. What is lost by a refusal or a restart, or finds no room, comes again in a minute.

use std::collections::HashMap;

use parking_lot::Mutex;
use sluice_payload::TenantId;
use sluice_wire::Fields;

/// `WriteRequest.metadata`
const METADATA: u32 = 3;

/// What may wait, of all tenants together: the metadata of some ten thousand families.
const MAX_HELD_BYTES: usize = 1 << 20;

/// The metadata that waits.
#[derive(Debug, Default)]
pub(super) struct HeldMetadata(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    by_tenant: HashMap<TenantId, Vec<u8>>,
    bytes: usize,
}

impl HeldMetadata {
    /// Keeps the metadata of a request, unless there is no room for it.
    pub fn keep(&self, tenant: TenantId, body: &[u8]) {
        let metadata = || Fields::of(body).filter(|field| field.number == METADATA);
        let bytes: usize = metadata().map(|field| field.framed.len()).sum();
        let held = &mut *self.0.lock();
        if bytes == 0 || held.bytes + bytes > MAX_HELD_BYTES {
            return;
        }
        held.bytes += bytes;
        let of = held.by_tenant.entry(tenant).or_default();
        metadata().for_each(|field| of.extend_from_slice(field.framed));
    }

    /// What waits for a request of this tenant, to be laid behind it.
    pub fn take(&self, tenant: TenantId) -> Vec<u8> {
        let held = &mut *self.0.lock();
        let taken = held.by_tenant.remove(&tenant).unwrap_or_default();
        held.bytes -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use sluice_payload::Tenants;

    use super::*;

    /// Scenario: metadata of two tenants, beside series, and then more of it than may wait.
    /// Guarantees: each tenant gets its own, once, and of a request the metadata alone; what has no room is left out.
    #[test]
    fn each_tenant_gets_its_own() {
        let tenants = Tenants::default();
        let [a, b] = ["a", "b"].map(|name| tenants.intern(name));
        let held = HeldMetadata::default();
        held.keep(a, b"\x0a\x01s\x1a\x01x\x1a\x01y");
        held.keep(a, b"\x1a\x01z");
        held.keep(b, b"\x0a\x01s");
        assert_eq!(held.take(b), b"");
        assert_eq!(held.take(a), b"\x1a\x01x\x1a\x01y\x1a\x01z");
        assert_eq!(held.take(a), b"");
        let half = b"\x1a\x01x".repeat(MAX_HELD_BYTES / 6 + 1);
        held.keep(a, &half);
        held.keep(b, &half);
        assert_eq!((held.take(a).len(), held.take(b).len()), (half.len(), 0));
        held.keep(b, &half);
        assert_eq!(held.take(b).len(), half.len());
    }
}
