//! Sharing one request out by what is in it, so that what belongs together goes one way.

use bytes::Bytes;

use crate::count;
use crate::cursor::{Field, Fields, put_varint, varint_len, wire};
use crate::error::WireError;
use crate::kind::Kind;
use crate::message::Message;
use crate::request::{Request, Resource, ResourceItems};
use crate::value::Value;

/// Field numbers on the way down: resources in a request, scopes in a resource, items in a scope.
const RESOURCES: u32 = 1;
const SCOPES: u32 = 2;
const ITEMS: u32 = 2;

/// Field numbers of an item's trace.
const SPAN_TRACE_ID: u32 = 1;
const LOG_TRACE_ID: u32 = 9;

/// What one request may grow by when it is shared out, since what encloses items of several owners is repeated: 8192 items, the
/// default batch, each with 1 KiB of resource. It keeps megabytes of attributes from being copied to a hundred owners.
pub const MAX_REPEATED_BYTES: usize = 8 << 20;

/// What belongs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoutingKey {
    /// Spans and log records of one trace. Log records without a trace (or with one of zeros, which is none), and what has no trace ids, by their service.
    TraceId,
    /// Resources of one `service.name`; one without, by all its attributes.
    Service,
    /// Resources with the same attributes, in whatever order.
    Resource,
}

/// One request cut from a larger one, for one of its takers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Whose it is: what `owner` answered.
    pub to: usize,
    /// The body; the input itself when all of it has one owner.
    pub body: Bytes,
    /// Its items.
    pub items: u64,
}

/// Shares `body` out: `owner` says whose a key is, by the [`stable_hash`] of it.
///
/// The shares hold exactly the items of `body`, each share in the order they came. What encloses items of several owners (resource,
/// scope, schema URLs, unknown fields) is repeated for each; a resource or scope without items is left out. A request that would
/// grow by more than [`MAX_REPEATED_BYTES`] is not cut, and goes by its first key. A profiles request is
/// never cut: it goes by its first resource.
///
/// # Errors
/// When the framing is broken on the way down to the items; a validated body gives none.
pub fn share_out(
    kind: Kind,
    body: &Bytes,
    key: RoutingKey,
    mut owner: impl FnMut(u64) -> usize,
) -> Result<Vec<Share>, WireError> {
    let items = count::count(kind, body)?;
    let owners: Vec<usize> = match (kind, key) {
        (Kind::Profiles, _) => {
            let first = Request::new(kind, body).resources().next();
            vec![owner(
                first.map_or(0, |resource| resource_hash(resource.resource(), key)),
            )]
        }
        (Kind::Traces | Kind::Logs, RoutingKey::TraceId) => item_owners(kind, body, &mut owner),
        _ => Request::new(kind, body)
            .resources()
            .map(|resource| owner(resource_hash(resource.resource(), key)))
            .collect(),
    };
    let to = owners.first().copied().unwrap_or_else(|| owner(0));
    if owners.iter().all(|other| *other == to) {
        let body = body.clone();
        return Ok(vec![Share { to, body, items }]);
    }
    let mut cut = Cut::default();
    let mut owners = owners.into_iter();
    match (kind, key) {
        (Kind::Traces | Kind::Logs, RoutingKey::TraceId) => cut.by_item(body, &mut owners),
        _ => cut.by_resource(kind, body, &mut owners),
    }
    if cut.repeated > MAX_REPEATED_BYTES {
        let body = body.clone();
        return Ok(vec![Share { to, body, items }]);
    }
    Ok(cut.shares())
}

/// The owner of each item, in wire order.
fn item_owners(kind: Kind, body: &[u8], owner: &mut impl FnMut(u64) -> usize) -> Vec<usize> {
    let trace_id = if kind == Kind::Traces {
        SPAN_TRACE_ID
    } else {
        LOG_TRACE_ID
    };
    let mut owners = Vec::new();
    // Spans of a trace often stand side by side.
    let mut last: (&[u8], usize) = (&[], 0);
    for resource in Request::new(kind, body).resources() {
        let mut without = None;
        for item in items_of(resource) {
            let trace = Message::of(item)
                .bytes(trace_id)
                .filter(|trace| trace.len() == 16 && trace.iter().any(|byte| *byte != 0));
            owners.push(match trace {
                Some(trace) if trace == last.0 => last.1,
                Some(trace) => {
                    last = (trace, owner(stable_hash(trace)));
                    last.1
                }
                None => *without
                    .get_or_insert_with(|| owner(resource_hash(resource.resource(), RoutingKey::Service))),
            });
        }
    }
    owners
}

fn items_of<'a>(resource: ResourceItems<'a>) -> impl Iterator<Item = &'a [u8]> {
    delimited(resource.raw(), SCOPES).flat_map(|scope| delimited(scope, ITEMS))
}

fn delimited(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::of(message)
        .filter(move |field| is(field, number))
        .map(|field| field.value)
}

fn is(field: &Field<'_>, number: u32) -> bool {
    field.number == number && field.wire == wire::LEN
}

fn resource_hash(resource: Resource<'_>, key: RoutingKey) -> u64 {
    let service = match key {
        RoutingKey::Resource => None,
        RoutingKey::TraceId | RoutingKey::Service => resource.attributes().get("service.name"),
    };
    match service {
        Some(Value::String(name)) => stable_hash(name.as_bytes()),
        Some(Value::InvalidText(name)) => stable_hash(name),
        // A sum, since two senders need not agree on an order.
        _ => resource
            .attributes()
            .map(|attribute| stable_hash(attribute.raw()))
            .fold(0, u64::wrapping_add),
    }
}

/// A hash that is the same in every process, on every machine and in every version: gateways side by side, and one after its
/// upgrade, must agree on it. No defence against those who choose keys that collide.
#[must_use]
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let begin = mix(bytes.len() as u64);
    let words = words
        .iter()
        .fold(begin, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    if rest.is_empty() {
        words
    } else {
        mix(words ^ u64::from_le_bytes(tail))
    }
}

/// The finaliser of splitmix64 (Steele, Lea and Flood 2014): each bit in changes half of the bits out.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The shares under construction; there are few, so that they are looked through.
#[derive(Default)]
struct Cut {
    outs: Vec<Out>,
    /// Bytes that are in more than one share, less one time each.
    repeated: usize,
}

struct Out {
    to: usize,
    items: u64,
    body: Vec<u8>,
    /// The resource that is open: its scopes so far.
    scopes: Vec<u8>,
    /// The scope that is open: its items so far.
    inside: Vec<u8>,
}

impl Cut {
    fn out(&mut self, to: usize) -> &mut Out {
        let index = self.outs.iter().position(|out| out.to == to).unwrap_or_else(|| {
            self.outs.push(Out {
                to,
                items: 0,
                body: Vec::new(),
                scopes: Vec::new(),
                inside: Vec::new(),
            });
            self.outs.len() - 1
        });
        &mut self.outs[index]
    }

    fn by_resource(&mut self, kind: Kind, body: &[u8], owners: &mut impl Iterator<Item = usize>) {
        let mut unknown = Vec::new();
        for field in Fields::of(body) {
            if !is(&field, RESOURCES) {
                unknown.push(field.framed);
                continue;
            }
            let items = Request::new(kind, field.framed).items();
            let Some(to) = owners.next() else { return };
            if items > 0 {
                let out = self.out(to);
                out.items += items;
                out.body.extend_from_slice(field.framed);
            }
        }
        self.unknown(&unknown);
    }

    fn by_item(&mut self, body: &[u8], owners: &mut impl Iterator<Item = usize>) {
        let mut unknown = Vec::new();
        let (mut resource_head, mut scope_head) = (Vec::new(), Vec::new());
        for resource in Fields::of(body) {
            if !is(&resource, RESOURCES) {
                unknown.push(resource.framed);
                continue;
            }
            resource_head.clear();
            for scope in Fields::of(resource.value) {
                if !is(&scope, SCOPES) {
                    resource_head.push(scope.framed);
                    continue;
                }
                scope_head.clear();
                for item in Fields::of(scope.value) {
                    if !is(&item, ITEMS) {
                        scope_head.push(item.framed);
                        continue;
                    }
                    let Some(to) = owners.next() else { return };
                    let out = self.out(to);
                    out.items += 1;
                    out.inside.extend_from_slice(item.framed);
                }
                let shares = self.outs.iter().filter(|out| !out.inside.is_empty()).count();
                if self.repeats(&scope_head, shares) {
                    return;
                }
                for out in &mut self.outs {
                    close(&mut out.scopes, SCOPES, &scope_head, &mut out.inside);
                }
            }
            let shares = self.outs.iter().filter(|out| !out.scopes.is_empty()).count();
            if self.repeats(&resource_head, shares) {
                return;
            }
            for out in &mut self.outs {
                close(&mut out.body, RESOURCES, &resource_head, &mut out.scopes);
            }
        }
        self.unknown(&unknown);
    }

    /// Fields of the request that nobody here knows say something about all of it.
    fn unknown(&mut self, fields: &[&[u8]]) {
        if self.repeats(fields, self.outs.len()) {
            return;
        }
        for out in &mut self.outs {
            fields.iter().for_each(|field| out.body.extend_from_slice(field));
        }
    }

    /// Before `fields` are written to this many shares: true when they are not to be.
    fn repeats(&mut self, fields: &[&[u8]], shares: usize) -> bool {
        let len: usize = fields.iter().map(|field| field.len()).sum();
        self.repeated += len * shares.saturating_sub(1);
        self.repeated > MAX_REPEATED_BYTES
    }

    fn shares(self) -> Vec<Share> {
        self.outs
            .into_iter()
            .map(|mut out| {
                // It may wait long for its endpoint, and a vector that grew has up to twice the room.
                out.body.shrink_to_fit();
                Share {
                    to: out.to,
                    body: out.body.into(),
                    items: out.items,
                }
            })
            .collect()
    }
}

/// Writes a message of `head` and `inside` to its parent, unless there is nothing inside, which is left empty.
fn close(parent: &mut Vec<u8>, number: u32, head: &[&[u8]], inside: &mut Vec<u8>) {
    if inside.is_empty() {
        return;
    }
    let len = inside.len() + head.iter().map(|field| field.len()).sum::<usize>();
    parent.reserve(1 + varint_len(len as u64) + len);
    put_varint(parent, u64::from(number << 3 | u32::from(wire::LEN)));
    put_varint(parent, len as u64);
    head.iter().for_each(|field| parent.extend_from_slice(field));
    parent.append(inside);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: keys of several lengths.
    /// Guarantees: the hash never changes: gateways of two versions send one trace to one place. It tells neighbours apart.
    #[test]
    fn the_hash_is_the_same_for_ever() {
        assert_eq!(stable_hash(b""), HASHES[0]);
        assert_eq!(stable_hash(b"checkout"), HASHES[1]);
        assert_eq!(stable_hash(&[7; 16]), HASHES[2]);
        let few = (0..10_000u64).map(|n| stable_hash(&n.to_be_bytes()) % 16);
        let mut seen = [0u32; 16];
        few.for_each(|n| seen[n as usize] += 1);
        assert!(seen.iter().all(|n| (530..720).contains(n)), "{seen:?}");
        assert_ne!(stable_hash(b"a"), stable_hash(b"a\0"));
    }

    fn framed(tag: u8, inside: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        put_varint(&mut out, inside.len() as u64);
        out.extend_from_slice(inside);
        out
    }

    /// A request of one resource with an attribute this long, and a span of each of these traces.
    fn spans(attribute: usize, traces: impl Iterator<Item = u8>) -> Bytes {
        let spans: Vec<u8> = traces
            .flat_map(|trace| framed(0x12, &framed(0x0a, &[trace; 16])))
            .collect();
        let resource = framed(0x0a, &framed(0x0a, &framed(0x0a, &vec![b'a'; attribute])));
        framed(0x0a, &[resource, framed(0x12, &spans)].concat()).into()
    }

    /// Scenario: spans of traces of zeros and of no trace.
    /// Guarantees: neither has a trace: both go by their service.
    #[test]
    fn a_trace_of_zeros_is_none() {
        let key = |body: Bytes| {
            let mut keys = Vec::new();
            let owner = |key| {
                keys.push(key);
                0
            };
            share_out(Kind::Traces, &body, RoutingKey::TraceId, owner).unwrap();
            keys
        };
        let without = framed(0x0a, &framed(0x12, &framed(0x12, &[])));
        assert_eq!(key(spans(0, [0].into_iter())).len(), 1);
        assert_ne!(key(spans(0, [0].into_iter())), [stable_hash(&[0; 16])]);
        assert_eq!(
            key(framed(0x0a, &framed(0x12, &framed(0x12, &framed(0x0a, &[0; 16])))).into()),
            key(without.into())
        );
    }

    /// Scenario: a hundred owners of one resource with little, and with a megabyte of attributes.
    /// Guarantees: what would grow too much goes whole.
    #[test]
    fn what_is_repeated_is_bounded() {
        let share = |attribute| {
            let body = spans(attribute, 1..=100);
            let shares = share_out(Kind::Traces, &body, RoutingKey::TraceId, |key| key as usize).unwrap();
            (body, shares)
        };
        let (_, shares) = share(1 << 10);
        assert_eq!(shares.len(), 100);
        let (body, shares) = share(1 << 20);
        assert_eq!((shares.len(), shares[0].items, &shares[0].body), (1, 100, &body));
    }

    const HASHES: [u64; 3] = [
        0xe220_a839_7b1d_cdaf,
        0x0262_3d02_2488_0d32,
        0xbeeb_4541_0b16_cea0,
    ];
}
