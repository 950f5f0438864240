//! Recognising a request's resources by their length and first id, for a sink that has no time to read
//! everything.

use crate::ids::for_each_id;
use crate::random::{mix, unmix};
use crate::signal::Signal;
use crate::spec::is_item_id;
use crate::walk::fields;

/// What a `Resource*` message of a generator looks like from outside.
///
/// A gateway that lays bodies end to end leaves these messages as they are: their length says how many items
/// are in them, and the first id says which. One that takes something out or adds something changes the
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Length of the message in bytes, without its key and length.
    pub len: usize,
    /// Where the id of the first item stands in the message.
    pub id_at: usize,
    /// Where the id of the last item stands in the message.
    pub last_id_at: usize,
    /// Number of items; their ids follow each other without a gap.
    pub items: u32,
}

impl Outline {
    /// Number of bytes of an id where it stands.
    pub fn id_len(signal: Signal) -> usize {
        match signal {
            Signal::Traces => 8,
            Signal::Metrics | Signal::Logs => 6,
        }
    }

    /// Reads the id that stands in these bytes; nothing if it is none that a generator makes.
    pub fn read_id(signal: Signal, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(..Self::id_len(signal))?;
        let id = match signal {
            Signal::Traces => unmix(u64::from_le_bytes(bytes.try_into().ok()?)),
            Signal::Metrics | Signal::Logs => bytes
                .iter()
                .rev()
                .fold(0, |id, byte| id << 7 | u64::from(byte & 0x7f)),
        };
        is_item_id(id).then_some(id)
    }
}

/// The outlines of the resources of an encoded request; those without items, or with ids that do not follow
/// each other, have none.
pub(crate) fn outlines(signal: Signal, body: &[u8]) -> Vec<Outline> {
    let Ok(resources) = fields(body, 1) else {
        return Vec::new();
    };
    resources
        .into_iter()
        .filter_map(|resource| outline(signal, resource))
        .collect()
}

fn outline(signal: Signal, resource: &[u8]) -> Option<Outline> {
    // The walk wants a request: the resource as the only field of one.
    let mut request = vec![0x0a];
    let mut len = resource.len();
    while len >= 0x80 {
        request.push(len as u8 | 0x80);
        len >>= 7;
    }
    request.push(len as u8);
    request.extend_from_slice(resource);
    let mut ids = Vec::new();
    for_each_id(signal, &request, |id| ids.push(id)).ok()?;
    let (first, last) = ((*ids.first()?)?, (*ids.last()?)?);
    let consecutive = (first..).zip(&ids).all(|(expected, id)| *id == Some(expected));
    if !consecutive {
        return None;
    }
    Some(Outline {
        len: resource.len(),
        id_at: find(signal, resource, first)?,
        last_id_at: find(signal, resource, last)?,
        items: u32::try_from(ids.len()).ok()?,
    })
}

fn find(signal: Signal, resource: &[u8], id: u64) -> Option<usize> {
    let bytes = match signal {
        Signal::Traces => mix(id).to_le_bytes().to_vec(),
        Signal::Metrics | Signal::Logs => (0..6)
            .map(|at| (id >> (7 * at)) as u8 & 0x7f | if at < 5 { 0x80 } else { 0 })
            .collect(),
    };
    resource.windows(bytes.len()).position(|window| window == bytes)
}
