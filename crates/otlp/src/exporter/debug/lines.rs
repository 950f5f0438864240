//! One line per resource, scope and item.

use sluice_wire::schema::{self, FieldDesc, FieldKind, MessageDesc, WireKind};

use super::{any_value, bare_string, key_value};
use crate::json::append_scalar;
use crate::json::records::{Records, Value};

/// Appends the lines of a request.
pub(super) fn request(root: &'static MessageDesc, parts: &[&[u8]], out: &mut Vec<u8>) {
    let Some((resources, resource_desc)) = list(root, 1) else {
        return;
    };
    let Some((scopes, scope_desc)) = list(resource_desc, 2) else {
        return;
    };
    for (index, resource) in Records::new(parts).by_number(1).enumerate() {
        header(resources.name, index, out);
        // Field 1 of a `Resource*` is the resource, whose field 1 is its attributes.
        for body in Records::new(&[resource]).by_number(1) {
            attributes(body, 1, b" ", out);
        }
        out.push(b'\n');
        for (index, scope) in Records::new(&[resource]).by_number(2).enumerate() {
            header(scopes.name, index, out);
            for body in Records::new(&[scope]).by_number(1) {
                for name_or_version in [1, 2] {
                    if let Some(text) = Records::new(&[body]).by_number(name_or_version).last() {
                        out.push(b' ');
                        bare_string(&String::from_utf8_lossy(text), out);
                    }
                }
                attributes(body, 3, b" ", out);
            }
            out.push(b'\n');
            let Some((_, item_desc)) = list(scope_desc, 2) else {
                continue;
            };
            for item in Records::new(&[scope]).by_number(2) {
                if std::ptr::eq(item_desc, &schema::METRIC) {
                    metric(item, out);
                } else {
                    self::item(item_desc, item, out);
                }
            }
        }
    }
}

/// The field with this number and the message it holds.
fn list(desc: &'static MessageDesc, number: u32) -> Option<(&'static FieldDesc, &'static MessageDesc)> {
    let field = desc.field(number)?;
    match field.kind {
        FieldKind::Message(inner) => Some((field, inner)),
        _ => None,
    }
}

fn header(name: &str, index: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{name} #{index}").as_bytes());
}

/// A span, a log record or a profile: what it is called, its ids, its body, its attributes.
fn item(desc: &'static MessageDesc, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    for name in [
        "name",
        "severity_text",
        "event_name",
        "profile_id",
        "trace_id",
        "span_id",
        "body",
    ] {
        let Some(field) = desc.field_by_name(name) else {
            continue;
        };
        let Some(value) = Records::new(&[body])
            .by_number(field.number)
            .last()
            .filter(|value| !value.is_empty())
        else {
            continue;
        };
        separate(start, b" ", out);
        match field.kind {
            FieldKind::String => bare_string(&String::from_utf8_lossy(value), out),
            FieldKind::Message(_) => any_value(value, 0, super::json_string, out),
            _ => hex(value, out),
        }
    }
    if let Some(field) = desc.field_by_name("attributes") {
        attributes(body, field.number, b" ", out);
    }
    if let Some(field) = desc.field_by_name("samples") {
        let samples = Records::new(&[body]).by_number(field.number).count();
        out.extend_from_slice(format!(" samples={samples}").as_bytes());
    }
    out.push(b'\n');
}

/// The points of a metric: `name{attributes} value`.
fn metric(body: &[u8], out: &mut Vec<u8>) {
    let name = Records::new(&[body]).by_number(1).last().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    for kind in schema::METRIC
        .fields()
        .iter()
        .filter(|field| field.oneof().is_some())
    {
        let Some((_, point_desc)) = list(&schema::METRIC, kind.number).and_then(|(_, data)| list(data, 1))
        else {
            continue;
        };
        for data in Records::new(&[body]).by_number(kind.number) {
            for point in Records::new(&[data]).by_number(1) {
                bare_string(&name, out);
                out.push(b'{');
                if let Some(field) = point_desc.field_by_name("attributes") {
                    let start = out.len();
                    attributes(point, field.number, b",", out);
                    // The separator stands before each attribute.
                    if out.len() > start {
                        out.remove(start);
                    }
                }
                out.push(b'}');
                values(point_desc, point, out);
                out.push(b'\n');
            }
        }
    }
}

/// The values of a data point: its numbers but for times and flags.
fn values(desc: &'static MessageDesc, point: &[u8], out: &mut Vec<u8>) {
    let pieces = [point];
    let mut records = Records::new(&pieces);
    while let Ok(Some((number, value))) = records.next() {
        let Some(field) = desc.field(number) else { continue };
        if field.name.ends_with("unix_nano") || field.name == "flags" {
            continue;
        }
        match (field.kind, value) {
            (FieldKind::Message(inner), Value::Len(body))
                if !std::ptr::eq(inner, &schema::KEY_VALUE) && !std::ptr::eq(inner, &schema::EXEMPLAR) =>
            {
                out.extend_from_slice(format!(" {}(", field.name).as_bytes());
                let start = out.len();
                values(inner, body, out);
                if out.len() > start {
                    out.remove(start);
                }
                out.push(b')');
            }
            (FieldKind::Message(_), _) => {}
            (kind, Value::Len(packed)) if field.is_repeated() && kind.wire_kind() != WireKind::Len => {
                out.extend_from_slice(format!(" {}=[", field.name).as_bytes());
                for (position, element) in Records::packed(kind.wire_kind(), packed).enumerate() {
                    out.extend_from_slice(if position > 0 { b" " } else { b"" });
                    number_text(desc, field, element, out);
                }
                out.push(b']');
            }
            _ => {
                out.push(b' ');
                // The value of a number needs no name.
                if field.oneof().is_none() {
                    out.extend_from_slice(format!("{}=", field.name).as_bytes());
                }
                number_text(desc, field, value, out);
            }
        }
    }
}

/// A number without the quotes JSON needs around 64 bits.
fn number_text(desc: &'static MessageDesc, field: &'static FieldDesc, value: Value<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    append_scalar(desc, field, value, out);
    if out.get(start) == Some(&b'"') {
        out.pop();
        out.remove(start);
    }
}

/// Appends `key=value` for the attributes in this field, a separator before each.
fn attributes(body: &[u8], number: u32, separator: &[u8], out: &mut Vec<u8>) {
    for entry in Records::new(&[body]).by_number(number) {
        let (key, value) = key_value(entry);
        out.extend_from_slice(separator);
        bare_string(&key, out);
        out.push(b'=');
        any_value(value, 0, bare_string, out);
    }
}

fn separate(start: usize, separator: &[u8], out: &mut Vec<u8>) {
    if out.len() > start {
        out.extend_from_slice(separator);
    }
}

fn hex(id: &[u8], out: &mut Vec<u8>) {
    id.iter()
        .for_each(|byte| out.extend_from_slice(format!("{byte:02x}").as_bytes()));
}
