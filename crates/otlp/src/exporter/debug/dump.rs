//! Everything in a request: one field a line, nested messages indented, in the order of the wire.

use sluice_wire::schema::{self, FieldDesc, FieldKind, MessageDesc, WireKind};

use super::{any_value, json_string, key_value};
use crate::exporter::stamp::instant;
use crate::json::append_scalar;
use crate::json::records::{Records, Value};

/// As deep as protobuf decoders follow.
const MAX_DEPTH: usize = 100;

/// Appends the fields of a message.
pub(super) fn message(desc: &'static MessageDesc, pieces: &[&[u8]], depth: usize, out: &mut Vec<u8>) {
    let mut counts = [0usize; 32];
    let mut last = 0;
    let mut records = Records::new(pieces);
    loop {
        let (number, value) = match records.next() {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(_) => return line(depth, "(the rest is no protobuf message)", out),
        };
        let Some(position) = desc.position(number) else {
            let size = match value {
                Value::Len(bytes) => format!(", {} bytes", bytes.len()),
                _ => String::new(),
            };
            line(depth, &format!("(unknown field {number}{size})"), out);
            continue;
        };
        let field = &desc.fields()[position];
        let index = counts.get(position).copied().unwrap_or_default();
        if let Some(count) = counts.get_mut(position) {
            *count += 1;
        }
        self::field(
            desc,
            field,
            value,
            Run {
                index,
                is_first: last != number,
            },
            depth,
            out,
        );
        last = number;
    }
}

/// Where a record stands among those of its field.
struct Run {
    index: usize,
    is_first: bool,
}

fn field(
    desc: &'static MessageDesc,
    field: &'static FieldDesc,
    value: Value<'_>,
    run: Run,
    depth: usize,
    out: &mut Vec<u8>,
) {
    match (field.kind, value) {
        (FieldKind::Message(inner), Value::Len(body)) if std::ptr::eq(inner, &schema::KEY_VALUE) => {
            if run.is_first {
                line(depth, &format!("{}:", field.name), out);
            }
            let (key, value) = key_value(body);
            indent(depth, out);
            out.extend_from_slice(b"     -> ");
            json_string(&key, out);
            out.extend_from_slice(b": ");
            any_value(value, 0, json_string, out);
            out.push(b'\n');
        }
        (FieldKind::Message(inner), Value::Len(body)) if std::ptr::eq(inner, &schema::ANY_VALUE) => {
            indent(depth, out);
            out.extend_from_slice(format!("{}: ", field.name).as_bytes());
            any_value(body, 0, json_string, out);
            out.push(b'\n');
        }
        (FieldKind::Message(_), Value::Len(body)) if depth >= MAX_DEPTH => {
            line(depth, &format!("{}: ({} bytes)", field.name, body.len()), out);
        }
        (FieldKind::Message(inner), Value::Len(body)) => {
            let title = if field.is_repeated() {
                format!("{} #{}", field.name, run.index)
            } else {
                format!("{}:", field.name)
            };
            line(depth, &title, out);
            message(inner, &[body], depth + 1, out);
        }
        (kind, Value::Len(packed)) if field.is_repeated() && kind.wire_kind() != WireKind::Len => {
            indent(depth, out);
            out.extend_from_slice(format!("{}: [", field.name).as_bytes());
            for (position, element) in Records::packed(kind.wire_kind(), packed).enumerate() {
                out.extend_from_slice(if position > 0 { b", " } else { b"" });
                append_scalar(desc, field, element, out);
            }
            out.extend_from_slice(b"]\n");
        }
        (kind, value) => {
            indent(depth, out);
            out.extend_from_slice(format!("{}: ", field.name).as_bytes());
            match (kind, value) {
                (FieldKind::String, Value::Len(text)) => json_string(&String::from_utf8_lossy(text), out),
                (FieldKind::Enum(names), Value::Varint(value)) => {
                    let value = value as i32;
                    let name = names.name_of(value).unwrap_or("unknown");
                    out.extend_from_slice(format!("{name} ({value})").as_bytes());
                }
                (FieldKind::Fixed64, Value::Fixed64(nanos)) if field.name.ends_with("unix_nano") => {
                    out.extend_from_slice(format!("{nanos} ({})", instant(nanos)).as_bytes());
                }
                _ if append_scalar(desc, field, value, out) => {}
                _ => out.extend_from_slice(b"(a wire type that does not belong to the field)"),
            }
            out.push(b'\n');
        }
    }
}

fn line(depth: usize, text: &str, out: &mut Vec<u8>) {
    indent(depth, out);
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

fn indent(depth: usize, out: &mut Vec<u8>) {
    out.extend(std::iter::repeat_n(b' ', 4 * depth));
}
