//! Protobuf bytes -> JSON.

use super::reader::plain_run;
use super::records::{self, Malformed, Records, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sluice_wire::schema::{self, Cardinality, FieldDesc, FieldKind, JsonForm, MessageDesc};

/// The bytes do not decode as the message they were said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A record is cut off or has an impossible key, length or wire type.
    #[error("{message}: not a protobuf message")]
    Malformed {
        /// The message the bad record is in.
        message: &'static str,
    },
    /// A field of the schema has a wire type that does not belong to it.
    #[error("{message}.{field}: a wire type that does not belong to the field")]
    WireType {
        /// The message of the field.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A string is not UTF-8, so JSON cannot hold it.
    #[error("{message}.{field}: a string that is not UTF-8")]
    NotUtf8 {
        /// The message of the field.
        message: &'static str,
        /// The field.
        field: &'static str,
    },
    /// Messages nest deeper than protobuf decoders follow.
    #[error("{message}: messages nest deeper than 100 levels")]
    TooDeep {
        /// The message that is one too deep.
        message: &'static str,
    },
}

/// Appends the OTLP/JSON form of a message to `out`; on an error `out` is as it was.
///
/// Fields mean what prost decodes: the last scalar counts, a singular message that occurs twice is merged, an arm of
/// a oneof replaces the others, numbers in lists are packed or not. Unknown fields are dropped, JSON cannot express
/// them. Members appear in the order of the fields on the wire, or of the schema where the wire has them mixed up.
pub fn encode(message: &'static MessageDesc, wire: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_parts(message, &[wire], out)
}

/// As [`encode`], for a message whose bytes are the parts laid end to end; no part ends inside a record.
pub fn encode_parts(
    message: &'static MessageDesc,
    parts: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let before = out.len();
    let result = Encoder { out }.message(message, parts, 0);
    if result.is_err() {
        out.truncate(before);
    }
    result
}

/// Appends the JSON form of one value that is not a message; `false`, and nothing appended, if the wire type does not
/// belong to the field.
pub(crate) fn append_scalar(
    message: &'static MessageDesc,
    field: &'static FieldDesc,
    value: Value<'_>,
    out: &mut Vec<u8>,
) -> bool {
    Encoder { out }.value(Place { message, field }, value).is_ok()
}

/// Appends a JSON string.
pub(crate) fn append_string(out: &mut Vec<u8>, text: &str) {
    string(out, text);
}

struct Encoder<'o> {
    out: &'o mut Vec<u8>,
}

type Outcome<T = ()> = Result<T, EncodeError>;

/// A field with the message it belongs to, for errors.
#[derive(Clone, Copy)]
struct Place {
    message: &'static MessageDesc,
    field: &'static FieldDesc,
}

impl Place {
    fn malformed(self) -> EncodeError {
        EncodeError::Malformed {
            message: self.message.name(),
        }
    }

    fn wire_type(self) -> EncodeError {
        EncodeError::WireType {
            message: self.message.name(),
            field: self.field.name,
        }
    }
}

impl Encoder<'_> {
    fn message(&mut self, message: &'static MessageDesc, pieces: &[&[u8]], depth: usize) -> Outcome {
        if depth > records::MAX_DEPTH {
            return Err(EncodeError::TooDeep {
                message: message.name(),
            });
        }
        match message.json_form() {
            JsonForm::Object => {
                self.out.push(b'{');
                let mut members = Members { first: true };
                self.members(message, pieces, depth, &mut members)?;
                self.out.push(b'}');
                Ok(())
            }
            JsonForm::Any => self.any(pieces, depth),
            JsonForm::Duration => self.duration(pieces),
        }
    }

    /// The members of an object without its braces.
    fn members(
        &mut self,
        message: &'static MessageDesc,
        pieces: &[&[u8]],
        depth: usize,
        members: &mut Members,
    ) -> Outcome {
        if is_in_order(message, pieces)? {
            return self.members_in_order(message, pieces, depth, members);
        }
        for field in message.fields() {
            self.member_collected(Place { message, field }, pieces, depth, members)?;
        }
        Ok(())
    }

    /// Every field occurs in one run of records: written as it comes.
    fn members_in_order(
        &mut self,
        message: &'static MessageDesc,
        pieces: &[&[u8]],
        depth: usize,
        members: &mut Members,
    ) -> Outcome {
        let mut open_list: Option<&'static FieldDesc> = None;
        let mut records = Records::new(pieces);
        while let Some((number, value)) = next(message, &mut records)? {
            let Some(field) = message.field(number) else {
                continue;
            };
            let place = Place { message, field };
            if field.is_repeated() {
                let is_open = open_list.is_some_and(|open| open.number == number);
                if !is_open {
                    self.end_list(&mut open_list);
                    members.name(self.out, field);
                    self.out.push(b'[');
                    open_list = Some(field);
                }
                self.elements(place, value, depth)?;
            } else {
                self.end_list(&mut open_list);
                if let (FieldKind::Message(inner), Value::Len(body)) = (field.kind, value) {
                    members.name(self.out, field);
                    self.message(inner, &[body], depth + 1)?;
                } else if field.has_presence() || !is_default(value) {
                    members.name(self.out, field);
                    self.value(place, value)?;
                } else {
                    check_wire_type(place, value)?;
                }
            }
        }
        self.end_list(&mut open_list);
        Ok(())
    }

    fn end_list(&mut self, open: &mut Option<&'static FieldDesc>) {
        if open.take().is_some() {
            if self.out.last() == Some(&b',') {
                self.out.pop();
            }
            self.out.push(b']');
        }
    }

    /// A field whose records are scattered over the message: collected, then written.
    fn member_collected(
        &mut self,
        place: Place,
        pieces: &[&[u8]],
        depth: usize,
        members: &mut Members,
    ) -> Outcome {
        let Place { message, field } = place;
        let mut records = Records::new(pieces);
        if field.is_repeated() {
            let mut open_list = None;
            while let Some((number, value)) = next(message, &mut records)? {
                if number == field.number {
                    if open_list.is_none() {
                        members.name(self.out, field);
                        self.out.push(b'[');
                        open_list = Some(field);
                    }
                    self.elements(place, value, depth)?;
                }
            }
            self.end_list(&mut open_list);
            return Ok(());
        }
        let mut last = None;
        let mut bodies: Vec<&[u8]> = Vec::new();
        while let Some((number, value)) = next(message, &mut records)? {
            if number == field.number {
                check_wire_type(place, value)?;
                last = Some(value);
                if let (FieldKind::Message(_), Value::Len(body)) = (field.kind, value) {
                    bodies.push(body);
                }
            } else if field.oneof().is_some()
                && message
                    .field(number)
                    .is_some_and(|other| other.oneof() == field.oneof())
            {
                last = None;
                bodies.clear();
            }
        }
        match (last, field.kind) {
            (Some(_), FieldKind::Message(inner)) => {
                members.name(self.out, field);
                self.message(inner, &bodies, depth + 1)
            }
            (Some(value), _) if field.has_presence() || !is_default(value) => {
                members.name(self.out, field);
                self.value(place, value)
            }
            _ => Ok(()),
        }
    }

    /// The element or, packed, the elements of one record of a list, each with a comma behind it.
    fn elements(&mut self, place: Place, value: Value<'_>, depth: usize) -> Outcome {
        match (place.field.kind, value) {
            (FieldKind::Message(inner), Value::Len(body)) => {
                self.message(inner, &[body], depth + 1)?;
                self.out.push(b',');
            }
            (kind, Value::Len(mut packed)) if place.field.cardinality == Cardinality::Packed => {
                while !packed.is_empty() {
                    let value = records::packed_element(kind.wire_kind(), &mut packed);
                    self.value(place, value.map_err(|Malformed| place.malformed())?)?;
                    self.out.push(b',');
                }
            }
            (_, value) => {
                self.value(place, value)?;
                self.out.push(b',');
            }
        }
        Ok(())
    }

    /// A value that is not a message.
    fn value(&mut self, place: Place, value: Value<'_>) -> Outcome {
        match (place.field.kind, value) {
            (FieldKind::String, Value::Len(text)) => {
                let text = std::str::from_utf8(text).map_err(|_| EncodeError::NotUtf8 {
                    message: place.message.name(),
                    field: place.field.name,
                })?;
                string(self.out, text);
            }
            (FieldKind::Bytes, Value::Len(bytes)) => base64(self.out, bytes),
            (FieldKind::Id(_), Value::Len(id)) => hex(self.out, id),
            (FieldKind::Bool, Value::Varint(value)) => {
                self.out
                    .extend_from_slice(if value == 0 { b"false" } else { b"true" });
            }
            (FieldKind::Int32 | FieldKind::Enum(_), Value::Varint(value)) => {
                signed(self.out, i64::from(value as i32))
            }
            (FieldKind::Uint32, Value::Varint(value)) => unsigned(self.out, u64::from(value as u32)),
            (FieldKind::Sint32, Value::Varint(value)) => {
                let value = value as u32;
                signed(self.out, i64::from((value >> 1) as i32 ^ -((value & 1) as i32)));
            }
            (FieldKind::Int64, Value::Varint(value)) => self.quoted(|out| signed(out, value as i64)),
            (FieldKind::Uint64, Value::Varint(value)) => self.quoted(|out| unsigned(out, value)),
            (FieldKind::Sint64, Value::Varint(value)) => {
                self.quoted(|out| signed(out, (value >> 1) as i64 ^ -((value & 1) as i64)));
            }
            (FieldKind::Fixed32, Value::Fixed32(value)) => unsigned(self.out, u64::from(value)),
            (FieldKind::Sfixed32, Value::Fixed32(value)) => signed(self.out, i64::from(value as i32)),
            (FieldKind::Fixed64, Value::Fixed64(value)) => self.quoted(|out| unsigned(out, value)),
            (FieldKind::Sfixed64, Value::Fixed64(value)) => self.quoted(|out| signed(out, value as i64)),
            (FieldKind::Float, Value::Fixed32(value)) => {
                let value = f32::from_bits(value);
                match special(f64::from(value)) {
                    Some(name) => self.out.extend_from_slice(name),
                    None => append_json(self.out, &value),
                }
            }
            (FieldKind::Double, Value::Fixed64(value)) => {
                let value = f64::from_bits(value);
                match special(value) {
                    Some(name) => self.out.extend_from_slice(name),
                    None => append_json(self.out, &value),
                }
            }
            _ => return Err(place.wire_type()),
        }
        Ok(())
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(b'"');
        write(self.out);
        self.out.push(b'"');
    }

    /// `google.protobuf.Any`: the fields of the message beside `@type`; of a type this program does not know, `value`
    /// in base64.
    fn any(&mut self, pieces: &[&[u8]], depth: usize) -> Outcome {
        let message = &schema::ANY;
        let mut type_url: &[u8] = &[];
        let mut body: &[u8] = &[];
        let mut records = Records::new(pieces);
        while let Some((number, value)) = next(message, &mut records)? {
            match (number, value) {
                (1, Value::Len(bytes)) => type_url = bytes,
                (2, Value::Len(bytes)) => body = bytes,
                (1 | 2, _) => {
                    return Err(EncodeError::WireType {
                        message: message.name(),
                        field: "value",
                    });
                }
                _ => {}
            }
        }
        self.out.push(b'{');
        if !type_url.is_empty() {
            let not_utf8 = EncodeError::NotUtf8 {
                message: message.name(),
                field: "type_url",
            };
            let type_url = std::str::from_utf8(type_url).map_err(|_| not_utf8)?;
            self.out.extend_from_slice(b"\"@type\":");
            string(self.out, type_url);
            let known = schema::MESSAGES
                .iter()
                .find(|known| type_url.rsplit('/').next() == Some(known.name()));
            match known {
                Some(known) if known.json_form() == JsonForm::Object => {
                    self.members(known, &[body], depth + 1, &mut Members { first: false })?;
                }
                _ => {
                    self.out.extend_from_slice(b",\"value\":");
                    base64(self.out, body);
                }
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    fn duration(&mut self, pieces: &[&[u8]]) -> Outcome {
        let message = &schema::DURATION;
        let (mut seconds, mut nanos) = (0i64, 0i32);
        let mut records = Records::new(pieces);
        while let Some((number, value)) = next(message, &mut records)? {
            match (number, value) {
                (1, Value::Varint(value)) => seconds = value as i64,
                (2, Value::Varint(value)) => nanos = value as i32,
                (1 | 2, _) => {
                    return Err(EncodeError::WireType {
                        message: message.name(),
                        field: "seconds",
                    });
                }
                _ => {}
            }
        }
        let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
        let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
        let text = match nanos {
            0 => format!("\"{sign}{seconds}s\""),
            _ => format!(
                "\"{sign}{seconds}.{}s\"",
                format!("{nanos:09}").trim_end_matches('0')
            ),
        };
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Puts commas between the members of an object.
struct Members {
    first: bool,
}

impl Members {
    #[inline]
    fn name(&mut self, out: &mut Vec<u8>, field: &FieldDesc) {
        if !self.first {
            out.push(b',');
        }
        self.first = false;
        out.extend_from_slice(field.json_key.as_bytes());
    }
}

#[inline(always)]
fn next<'a>(
    message: &'static MessageDesc,
    records: &mut Records<'a, '_>,
) -> Result<Option<(u32, Value<'a>)>, EncodeError> {
    records.next().map_err(|Malformed| EncodeError::Malformed {
        message: message.name(),
    })
}

/// Whether every field of the schema occurs in one run of records, and not more than once unless it is a list, and no
/// more than one arm of each oneof: as every encoder writes it. Then one walk is enough.
fn is_in_order(message: &'static MessageDesc, pieces: &[&[u8]]) -> Result<bool, EncodeError> {
    let mut records = Records::new(pieces);
    let mut seen = 0u32;
    let mut sets = 0u32;
    let mut run = 0;
    while let Some((number, _)) = next(message, &mut records)? {
        let Some(position) = message.position(number) else {
            continue;
        };
        let field = &message.fields()[position];
        if number == run && field.is_repeated() {
            continue;
        }
        if seen & 1 << position != 0 {
            return Ok(false);
        }
        if let Some(set) = field.oneof() {
            if sets & 1 << set != 0 {
                return Ok(false);
            }
            sets |= 1 << set;
        }
        seen |= 1 << position;
        run = number;
    }
    Ok(true)
}

/// Whether the value is what a proto3 scalar has when it is absent.
fn is_default(value: Value<'_>) -> bool {
    match value {
        Value::Varint(value) | Value::Fixed64(value) => value == 0,
        Value::Fixed32(value) => value == 0,
        Value::Len(bytes) => bytes.is_empty(),
        Value::Group => false,
    }
}

fn check_wire_type(place: Place, value: Value<'_>) -> Outcome {
    let belongs = match place.field.kind.wire_kind() {
        schema::WireKind::Varint => matches!(value, Value::Varint(_)),
        schema::WireKind::Fixed64 => matches!(value, Value::Fixed64(_)),
        schema::WireKind::Fixed32 => matches!(value, Value::Fixed32(_)),
        schema::WireKind::Len => matches!(value, Value::Len(_)),
    };
    if belongs { Ok(()) } else { Err(place.wire_type()) }
}

/// The string that stands for a float JSON has no number for.
fn special(value: f64) -> Option<&'static [u8]> {
    if value.is_nan() {
        Some(b"\"NaN\"")
    } else if value.is_infinite() {
        Some(if value > 0.0 {
            b"\"Infinity\""
        } else {
            b"\"-Infinity\""
        })
    } else {
        None
    }
}

/// The shortest text that reads back as the same float.
fn append_json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    let before = out.len();
    // Writing a finite float to memory cannot fail; were it to, null is JSON and means absent.
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let run = plain_run(rest);
        out.extend_from_slice(&rest[..run]);
        let Some(&special) = rest.get(run) else { break };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&hex_pair(control));
            }
        }
        rest = &rest[run + 1..];
    }
    out.push(b'"');
}

fn hex_pair(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

fn hex(out: &mut Vec<u8>, id: &[u8]) {
    out.push(b'"');
    for &byte in id {
        out.extend_from_slice(&hex_pair(byte));
    }
    out.push(b'"');
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD
        .encode_slice(bytes, &mut out[start..])
        .unwrap_or_default();
    out.truncate(start + written);
    out.push(b'"');
}

fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
}

fn unsigned(out: &mut Vec<u8>, mut value: u64) {
    // u64::MAX has twenty digits; they are made two at a time.
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&TWO_DIGITS[(value % 100) as usize]);
        value /= 100;
    }
    let pair = TWO_DIGITS[value as usize];
    if value >= 10 {
        at -= 1;
        digits[at] = pair[1];
        at -= 1;
        digits[at] = pair[0];
    } else {
        at -= 1;
        digits[at] = pair[1];
    }
    out.extend_from_slice(&digits[at..]);
}

/// The numbers below a hundred.
static TWO_DIGITS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut value = 0;
    while value < 100 {
        pairs[value] = [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        value += 1;
    }
    pairs
};
