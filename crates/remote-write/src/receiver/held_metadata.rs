//! Metadata of 1.0, between the request it came in and one that takes it along.
//!
//! Prometheus sends it once a minute, in requests without samples. A queue counts samples, so that alone it has no place in one: it waits
//! for the next request of its tenant that has some. What is lost by a refusal or a restart, or finds no room, comes again in a minute.

use std::collections::{HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use sluice_payload::TenantId;
use sluice_wire::{Field, Fields};

/// `WriteRequest.metadata`
const METADATA: u32 = 3;

/// `MetricMetadata.metric_family_name`
const FAMILY: u32 = 2;

/// What may wait of one tenant: the metadata of some ten thousand families.
const MAX_TENANT_BYTES: usize = 1 << 20;

/// What may wait of all tenants together: of four large ones, or of some thousand usual ones.
const MAX_HELD_BYTES: usize = 4 << 20;

/// What a family takes beside its bytes, and a tenant: their places, about.
const PLACE_BYTES: usize = 64;

/// The metadata that waits.
#[derive(Debug, Default)]
pub(super) struct HeldMetadata(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    by_tenant: HashMap<TenantId, Waiting>,
    bytes: usize,
}

/// What waits of one tenant.
#[derive(Debug, Default)]
struct Waiting {
    /// `WriteRequest.metadata` with key and length, each family once, the oldest first.
    fields: VecDeque<Box<[u8]>>,
    /// Of the fields, with their places.
    bytes: usize,
}

impl Waiting {
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.fields.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |field| size(field));
        oldest.is_some()
    }
}

fn size(field: &[u8]) -> usize {
    field.len() + PLACE_BYTES
}

/// The family that a field of a request is about; the last one that is named counts.
fn family<'a>(field: &Field<'a>) -> &'a [u8] {
    let named = Fields::of(field.value).filter(|field| field.number == FAMILY);
    named.last().map_or(&[], |field| field.value)
}

impl HeldMetadata {
    /// Keeps the metadata of a request, in place of what waits of the same families. Where there is no room, the tenant's oldest is
    /// forgotten, and then what waits of the tenant that has most. Returns how many families were.
    pub fn keep(&self, tenant: TenantId, body: &[u8]) -> u64 {
        let metadata = || Fields::of(body).filter(|field| field.number == METADATA);
        let families: HashSet<&[u8]> = metadata().map(|field| family(&field)).collect();
        if families.is_empty() {
            return 0;
        }
        let held = &mut *self.0.lock();
        let mut of = held.remove(tenant);
        of.fields.retain(|field| {
            let stays = Fields::of(field).all(|field| !families.contains(family(&field)));
            of.bytes -= if stays { 0 } else { size(field) };
            stays
        });
        let mut forgotten = 0;
        for field in metadata() {
            of.fields.push_back(field.framed.into());
            of.bytes += size(field.framed);
            while of.bytes > MAX_TENANT_BYTES && of.forget_oldest() {
                forgotten += 1;
            }
        }
        held.bytes += of.bytes + PLACE_BYTES;
        while held.bytes > MAX_HELD_BYTES {
            let Some((largest, _)) = held.by_tenant.iter().max_by_key(|(_, of)| of.bytes) else {
                break;
            };
            let largest = *largest;
            forgotten += held.remove(largest).fields.len() as u64;
        }
        held.by_tenant.insert(tenant, of);
        forgotten
    }

    /// What waits for a request of this tenant, to be laid behind it.
    pub fn take(&self, tenant: TenantId) -> Vec<u8> {
        let taken = self.0.lock().remove(tenant);
        taken
            .fields
            .iter()
            .flat_map(|field| field.iter())
            .copied()
            .collect()
    }
}

impl Held {
    fn remove(&mut self, tenant: TenantId) -> Waiting {
        let removed = self.by_tenant.remove(&tenant);
        self.bytes -= removed.as_ref().map_or(0, |of| of.bytes + PLACE_BYTES);
        removed.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use sluice_payload::Tenants;

    use super::*;

    /// A field that says so much of a family.
    fn about(family: &str, help: usize) -> Vec<u8> {
        let mut message = Vec::new();
        crate::protobuf::put_delimited(&mut message, FAMILY, family.as_bytes());
        crate::protobuf::put_delimited(&mut message, 4, &vec![b'h'; help]);
        let mut field = Vec::new();
        crate::protobuf::put_delimited(&mut field, METADATA, &message);
        field
    }

    /// Scenario: metadata of two tenants, beside series, in several requests, of one family twice.
    /// Guarantees: each tenant gets its own, once, and of a request the metadata alone; of a family what was said last.
    #[test]
    fn each_tenant_gets_its_own() {
        let tenants = Tenants::default();
        let [a, b] = ["a", "b"].map(|name| tenants.intern(name));
        let held = HeldMetadata::default();
        let [x, y, x_again] = [about("x", 1), about("y", 1), about("x", 2)];
        assert_eq!(held.keep(a, &[b"\x0a\x01s", &x[..], &y].concat()), 0);
        assert_eq!(held.keep(a, &x_again), 0);
        assert_eq!(held.keep(b, b"\x0a\x01s"), 0);
        assert_eq!(held.take(b), b"");
        assert_eq!(held.take(a), [y, x_again].concat());
        assert_eq!(held.take(a), b"");
        assert_eq!(held.0.lock().bytes, 0);
    }

    /// Scenario: a tenant sends the same metadata a hundred times, and then of ever new families; four others send as much, and one a
    /// little.
    /// Guarantees: what is the same takes room once; a tenant keeps what is newest within its limit; one that has little gets it, the
    /// largest give way; what is forgotten is counted, and all of it stays within the limit.
    #[test]
    fn one_tenant_does_not_fill_it() {
        let tenants = Tenants::default();
        let held = HeldMetadata::default();
        let small = tenants.intern("small");
        let large: Vec<_> = (0..5).map(|n| tenants.intern(&n.to_string())).collect();
        let half = MAX_TENANT_BYTES / 2;
        for _ in 0..100 {
            assert_eq!(held.keep(large[0], &about("same", half)), 0);
        }
        assert_eq!(held.keep(large[0], &about("new", half)), 1);
        assert_eq!(held.take(large[0]), about("new", half));
        // More in one request than a tenant has room for.
        let many: Vec<u8> = (0..5).flat_map(|n| about(&n.to_string(), half)).collect();
        for tenant in &large {
            assert!(held.keep(*tenant, &many) >= 4);
        }
        let little = about("little", 10);
        assert_eq!(held.keep(small, &little), 0);
        for n in 0..100 {
            held.keep(large[0], &about(&format!("family {n}"), half / 3));
            assert!(held.0.lock().bytes <= MAX_HELD_BYTES);
        }
        assert_eq!(held.take(small), little);
    }
}
