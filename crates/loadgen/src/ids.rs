//! Finding item ids in encoded bodies: a walk of its own, which takes any valid encoding.

use crate::random::unmix;
use crate::signal::Signal;
use crate::spec::is_item_id;
use crate::walk::{Malformed, Value, each, next_field};

/// Attribute key that carries the id of a data point or log record.
pub(crate) const ID_KEY: &str = "sluice.id";

/// The ids of all items of a decoded `Export*ServiceRequest`, in the order they appear; items without an id
/// are left out.
pub fn ids(signal: Signal, body: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut found = Vec::new();
    for_each_id(signal, body, |id| found.extend(id))?;
    Ok(found)
}

/// Calls `seen` once for every item of a decoded `Export*ServiceRequest`: with its id, or with `None` if it
/// has none that a [`crate::Generator`] can have made.
///
/// Unknown fields and groups are passed over. Items in front of a malformed field have been seen when the
/// error is returned.
pub fn for_each_id(signal: Signal, body: &[u8], mut seen: impl FnMut(Option<u64>)) -> Result<(), Malformed> {
    each(body, 1, &mut |resource| {
        each(resource, 2, &mut |scope| {
            each(scope, 2, &mut |item| {
                match signal {
                    Signal::Metrics => metric(item, &mut seen)?,
                    Signal::Logs => seen(attribute_id(item, 6)?),
                    Signal::Traces => seen(span_id(item)?),
                }
                Ok(())
            })
        })
    })
}

/// Data fields of `Metric`, each with the field of its points' attributes.
const DATA: [(u32, u32); 5] = [(5, 7), (7, 7), (9, 9), (10, 1), (11, 7)];

fn metric(metric: &[u8], seen: &mut dyn FnMut(Option<u64>)) -> Result<(), Malformed> {
    for (data_field, attributes_field) in DATA {
        each(metric, data_field, &mut |data| {
            each(data, 1, &mut |point| {
                seen(attribute_id(point, attributes_field)?);
                Ok(())
            })
        })?;
    }
    Ok(())
}

fn attribute_id(item: &[u8], attributes_field: u32) -> Result<Option<u64>, Malformed> {
    let mut id = None;
    each(item, attributes_field, &mut |attribute| {
        let mut is_id = false;
        each(attribute, 1, &mut |key| {
            is_id = key == ID_KEY.as_bytes();
            Ok(())
        })?;
        if is_id {
            each(attribute, 2, &mut |value| {
                let mut rest = value;
                while let Some((field, value)) = next_field(&mut rest)? {
                    if let (3, Value::Varint(value)) = (field, value) {
                        id = Some(value);
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(id.filter(|id| is_item_id(*id)))
}

fn span_id(span: &[u8]) -> Result<Option<u64>, Malformed> {
    let mut id = None;
    each(span, 2, &mut |bytes| {
        id = bytes
            .try_into()
            .ok()
            .map(|bytes| unmix(u64::from_le_bytes(bytes)));
        Ok(())
    })?;
    Ok(id.filter(|id| is_item_id(*id)))
}
