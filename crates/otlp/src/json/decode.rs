//! JSON -> protobuf bytes.

use super::error::{Failure, JsonError, Outcome, Step};
use super::integer::{Integer, NotInteger};
use super::reader::{Number, Reader, Text, number_len};
use super::writer::Writer;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sluice_wire::schema::{self, Cardinality, EnumDesc, FieldDesc, FieldKind, IdKind, JsonForm, MessageDesc};

/// How deep messages may nest below the top-level one: as deep as prost, and so everything behind it, follows.
pub const MAX_MESSAGE_DEPTH: usize = 100;

/// No message of the schema has more oneofs.
const MAX_ONEOFS: usize = 2;

/// How to read JSON; see the module's table.
#[derive(Debug, Clone, Copy)]
pub struct JsonOptions {
    /// Refuse what the OTLP specification does not allow but the Collector accepts. Off by default.
    pub strict: bool,
    /// The most bytes the protobuf form may have. A list of numbers can be four times as long in protobuf as in JSON
    /// (`0,` becomes eight bytes), so a limit on the body alone does not bound the memory.
    pub limit_bytes: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            strict: false,
            limit_bytes: usize::MAX,
        }
    }
}

/// Reads one JSON object as this message and returns its protobuf encoding.
///
/// Fields are written in the order of the JSON text. The input is read once and nothing is built from it but the
/// output; there is no allocation per field.
pub fn decode(
    message: &'static MessageDesc,
    json: &[u8],
    options: JsonOptions,
) -> Result<Vec<u8>, JsonError> {
    let text = match std::str::from_utf8(json) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let problem = if json.starts_with(&[0xFF, 0xFE]) || json.starts_with(&[0xFE, 0xFF]) {
                "the body is UTF-16; send UTF-8"
            } else {
                "the body is not UTF-8"
            };
            return Err(Failure::new(error.valid_up_to(), problem).locate(json));
        }
    };
    let mut decoder = Decoder {
        reader: Reader::new(text),
        // OTLP/JSON is two to four times as long as its protobuf form.
        writer: Writer::with_capacity((text.len() / 3).min(options.limit_bytes)),
        options,
    };
    match decoder.document(message) {
        Ok(()) => {
            let mut wire = decoder.writer.finish();
            if wire.len() > options.limit_bytes {
                return Err(Failure::too_large(text.len(), options.limit_bytes).locate(text.as_bytes()));
            }
            // What is kept is charged by its capacity.
            if wire.capacity() - wire.len() > wire.len() / 4 {
                wire.shrink_to_fit();
            }
            Ok(wire)
        }
        Err(failure) => Err(failure.locate(text.as_bytes())),
    }
}

struct Decoder<'a> {
    reader: Reader<'a>,
    writer: Writer,
    options: JsonOptions,
}

/// How a scalar is written.
#[derive(Clone, Copy)]
enum Emit {
    /// With its tag, unless it has the default value.
    NonDefault,
    /// With its tag, whatever its value.
    Always,
    /// An element of a packed list.
    Bare,
}

/// A scalar on the wire.
enum Scalar {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
}

impl<'a> Decoder<'a> {
    fn document(&mut self, message: &'static MessageDesc) -> Outcome<()> {
        if self.reader.peek().is_none() {
            return Err(Failure::new(
                self.reader.position(),
                "the body holds no JSON; an empty request is {}",
            ));
        }
        if self.reader.peek() != Some(b'{') {
            return Err(self.reader.unexpected("an object at the top level"));
        }
        self.object(message, 0)?;
        if self.reader.peek().is_some() {
            return Err(self.reader.unexpected("nothing after the top-level object"));
        }
        Ok(())
    }

    /// The body of a message, in the JSON form its type has.
    fn message(&mut self, message: &'static MessageDesc, depth: usize) -> Outcome<()> {
        match message.json_form() {
            JsonForm::Object => self.object(message, depth),
            JsonForm::Any => self.any(depth),
            JsonForm::Duration => self.duration(),
        }
    }

    /// The members of an object, as the fields of a message.
    fn object(&mut self, message: &'static MessageDesc, depth: usize) -> Outcome<()> {
        let at = self.reader.position();
        self.reader.expect(b'{', "an object")?;
        if depth > MAX_MESSAGE_DEPTH {
            let problem =
                format!("messages nest deeper than {MAX_MESSAGE_DEPTH} levels; no receiver decodes that");
            return Err(Failure::new(at, problem));
        }
        if self.reader.take(b'}') {
            return Ok(());
        }
        let mut seen = 0u32;
        let mut taken = [None; MAX_ONEOFS];
        let mut guess = 0;
        loop {
            self.reader.peek();
            let name_at = self.reader.position();
            let name = self.reader.name()?;
            match self.position_of(message, name, guess, name_at)? {
                None => self.reader.skip_value()?,
                Some(position) => {
                    guess = position + 1;
                    if !self.reader.take_null()? {
                        let field = &message.fields()[position];
                        let again = seen & 1 << position != 0;
                        seen |= 1 << position;
                        if again && self.options.strict {
                            let problem = format!("\"{}\" occurs twice in one object", field.json_name);
                            return Err(Failure::new(name_at, problem));
                        }
                        if let Some(set) = field.oneof() {
                            exclusive(&mut taken, set, field, name_at)?;
                        }
                        self.field(field, again, depth)
                            .map_err(|failure| failure.within(Step::Field(field.json_name)))?;
                        if self.writer.least_len() > self.options.limit_bytes {
                            return Err(Failure::too_large(name_at, self.options.limit_bytes));
                        }
                    }
                }
            }
            if !self.reader.another(b'}')? {
                return Ok(());
            }
        }
    }

    /// Which field of the message a name stands for.
    #[inline]
    fn position_of(
        &self,
        message: &'static MessageDesc,
        name: Text<'a>,
        guess: usize,
        at: usize,
    ) -> Outcome<Option<usize>> {
        let name = self.reader.content(name);
        if let Some(position) = message.position_of_json_name(name.as_bytes(), guess) {
            return Ok(Some(position));
        }
        if !name.contains('_') {
            return Ok(None);
        }
        let position = message.fields().iter().position(|field| field.name == name);
        match position {
            Some(position) if self.options.strict => {
                let wanted = message.fields()[position].json_name;
                Err(Failure::new(
                    at,
                    format!("\"{name}\" is not a name of OTLP/JSON; write \"{wanted}\""),
                ))
            }
            position => Ok(position),
        }
    }

    /// The value of a known field; `again` if this object had the field before.
    fn field(&mut self, field: &'static FieldDesc, again: bool, depth: usize) -> Outcome<()> {
        match field.cardinality {
            Cardinality::Repeated => {
                self.reader.expect(b'[', "an array")?;
                self.elements(|decoder| decoder.element(field, depth))
            }
            Cardinality::Packed => {
                self.reader.expect(b'[', "an array")?;
                let tag_len = self.writer.tag(field.number, 2);
                let open = self.writer.open(depth + 1);
                self.elements(|decoder| decoder.scalar(field, Emit::Bare))?;
                if self.writer.is_empty_since(&open) {
                    self.writer.undo(&open, tag_len);
                } else {
                    self.writer.close(open);
                }
                Ok(())
            }
            // A default value after another one has to be written, or the other one would stand.
            Cardinality::Singular => {
                self.value(field, if again { Emit::Always } else { Emit::NonDefault }, depth)
            }
            Cardinality::Optional | Cardinality::Oneof(_) => self.value(field, Emit::Always, depth),
        }
    }

    /// The elements of an array whose bracket is read.
    #[inline]
    fn elements(&mut self, mut element: impl FnMut(&mut Self) -> Outcome<()>) -> Outcome<()> {
        if self.reader.take(b']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            element(self).map_err(|failure| failure.within(Step::Index(index)))?;
            if self.writer.least_len() > self.options.limit_bytes {
                return Err(Failure::too_large(
                    self.reader.position(),
                    self.options.limit_bytes,
                ));
            }
            index += 1;
            if !self.reader.another(b']')? {
                return Ok(());
            }
        }
    }

    /// One element of a list that is not packed.
    fn element(&mut self, field: &'static FieldDesc, depth: usize) -> Outcome<()> {
        let at = self.reader.position();
        if self.reader.take_null()? {
            return match field.kind {
                FieldKind::Message(_) if !self.options.strict => {
                    self.writer.tag(field.number, 2);
                    self.writer.varint(0);
                    Ok(())
                }
                _ => Err(Failure::new(at, "null is no element of a list; leave it out")),
            };
        }
        self.value(field, Emit::Always, depth)
    }

    /// A value that is not null.
    fn value(&mut self, field: &'static FieldDesc, emit: Emit, depth: usize) -> Outcome<()> {
        match field.kind {
            FieldKind::Message(message) => {
                self.writer.tag(field.number, 2);
                let open = self.writer.open(depth + 1);
                self.message(message, depth + 1)?;
                self.writer.close(open);
                Ok(())
            }
            FieldKind::String => {
                let text = self.reader.string("a string")?;
                let content = self.reader.content(text);
                if !content.is_empty() || matches!(emit, Emit::Always) {
                    self.writer.tag(field.number, 2);
                    self.writer.varint(content.len() as u64);
                    self.writer.bytes(content.as_bytes());
                }
                Ok(())
            }
            FieldKind::Bytes => self.base64(field, emit),
            FieldKind::Id(kind) => self.id(field, kind, emit),
            _ => self.scalar(field, emit),
        }
    }

    fn scalar(&mut self, field: &'static FieldDesc, emit: Emit) -> Outcome<()> {
        let scalar = match field.kind {
            FieldKind::Double => Scalar::Fixed64(self.double()?.to_bits().to_le_bytes()),
            FieldKind::Float => Scalar::Fixed32(self.float()?.to_bits().to_le_bytes()),
            FieldKind::Bool => Scalar::Varint(u64::from(self.reader.boolean()?)),
            FieldKind::Enum(desc) => Scalar::Varint(i64::from(self.enumeration(desc)?) as u64),
            FieldKind::Int64 => Scalar::Varint(self.signed(i64::MIN, i64::MAX)? as u64),
            FieldKind::Int32 => Scalar::Varint(self.signed_32()? as u64),
            FieldKind::Uint64 => Scalar::Varint(self.unsigned(u64::MAX)?),
            FieldKind::Uint32 => Scalar::Varint(self.unsigned(u64::from(u32::MAX))?),
            FieldKind::Sint64 => {
                let value = self.signed(i64::MIN, i64::MAX)?;
                Scalar::Varint((value << 1 ^ value >> 63) as u64)
            }
            FieldKind::Sint32 => {
                let value = self.signed_32()?;
                Scalar::Varint((value << 1 ^ value >> 63) as u64)
            }
            FieldKind::Fixed64 => Scalar::Fixed64(self.unsigned(u64::MAX)?.to_le_bytes()),
            FieldKind::Fixed32 => Scalar::Fixed32((self.unsigned(u64::from(u32::MAX))? as u32).to_le_bytes()),
            FieldKind::Sfixed64 => Scalar::Fixed64(self.signed(i64::MIN, i64::MAX)?.to_le_bytes()),
            FieldKind::Sfixed32 => Scalar::Fixed32((self.signed_32()? as i32).to_le_bytes()),
            FieldKind::String | FieldKind::Bytes | FieldKind::Id(_) | FieldKind::Message(_) => {
                return Err(self.reader.unexpected("a number"));
            }
        };
        let is_default = match scalar {
            Scalar::Varint(value) => value == 0,
            Scalar::Fixed32(bytes) => bytes == [0; 4],
            Scalar::Fixed64(bytes) => bytes == [0; 8],
        };
        match emit {
            Emit::NonDefault if is_default => return Ok(()),
            Emit::NonDefault | Emit::Always => {
                self.writer.tag(field.number, field.kind.wire_kind() as u8);
            }
            Emit::Bare => {}
        }
        match scalar {
            Scalar::Varint(value) => self.writer.varint(value),
            Scalar::Fixed32(bytes) => self.writer.bytes(&bytes),
            Scalar::Fixed64(bytes) => self.writer.bytes(&bytes),
        }
        Ok(())
    }

    /// An integer as a number or a string.
    #[inline]
    fn integer(&mut self) -> Outcome<(Integer, usize)> {
        let next = self.reader.peek();
        let at = self.reader.position();
        let parsed = if next == Some(b'"') {
            let text = self.reader.string("an integer")?;
            let content = self.reader.content(text);
            let number = match content.strip_prefix('+') {
                Some(unsigned) if !self.options.strict && !unsigned.starts_with('-') => unsigned,
                _ => content,
            };
            if !is_number(number, self.options.strict) {
                return Err(Failure::new(
                    at,
                    format!("{} is not an integer", excerpt(content)),
                ));
            }
            Integer::parse(number)
        } else {
            let Number { text, .. } = match next {
                Some(b'-' | b'0'..=b'9') => self.reader.number()?,
                _ => return Err(self.reader.unexpected("an integer, as a number or a string")),
            };
            Integer::parse(text)
        };
        match parsed {
            Ok(integer) => Ok((integer, at)),
            Err(NotInteger::Fraction) => Err(Failure::new(at, "this field holds an integer, not a fraction")),
            Err(NotInteger::Range) => Err(out_of_range(at)),
        }
    }

    fn signed(&mut self, min: i64, max: i64) -> Outcome<i64> {
        let (integer, at) = self.integer()?;
        integer
            .as_i64()
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| out_of_range(at))
    }

    fn signed_32(&mut self) -> Outcome<i64> {
        self.signed(i64::from(i32::MIN), i64::from(i32::MAX))
    }

    fn unsigned(&mut self, max: u64) -> Outcome<u64> {
        let (integer, at) = self.integer()?;
        integer.as_u64().filter(|value| *value <= max).ok_or_else(|| {
            if integer.negative {
                Failure::new(at, "this field is unsigned")
            } else {
                out_of_range(at)
            }
        })
    }

    fn enumeration(&mut self, desc: &'static EnumDesc) -> Outcome<i32> {
        if self.reader.peek() != Some(b'"') {
            return self.signed_32().map(|value| value as i32);
        }
        let at = self.reader.position();
        let text = self.reader.string("an integer")?;
        let name = self.reader.content(text);
        let value = desc.value_of(name);
        if self.options.strict {
            let instead = value.map_or_else(String::new, |value| format!(": {value} for {}", excerpt(name)));
            return Err(Failure::new(
                at,
                format!("enumerations are integers in OTLP/JSON{instead}"),
            ));
        }
        let as_integer = || {
            let number = Some(name).filter(|name| is_number(name, true))?;
            i32::try_from(Integer::parse(number).ok()?.as_i64()?).ok()
        };
        value.or_else(as_integer).ok_or_else(|| {
            Failure::new(
                at,
                format!(
                    "{} is not a value of {}; enumerations are integers",
                    excerpt(name),
                    desc.name
                ),
            )
        })
    }

    fn double(&mut self) -> Outcome<f64> {
        let (text, at) = self.float_text()?;
        let text = self.reader.content(text);
        let value: f64 = match text.parse() {
            Ok(value) => value,
            Err(_) => return Err(not_a_double(at, text)),
        };
        if value.is_infinite() && !names_infinity(text) {
            return Err(out_of_range(at));
        }
        Ok(value)
    }

    fn float(&mut self) -> Outcome<f32> {
        let (text, at) = self.float_text()?;
        let text = self.reader.content(text);
        let value: f32 = match text.parse() {
            Ok(value) => value,
            Err(_) => return Err(not_a_double(at, text)),
        };
        if value.is_infinite() && !names_infinity(text) {
            return Err(out_of_range(at));
        }
        Ok(value)
    }

    /// The text of a floating-point number, in a form that `str::parse` reads.
    fn float_text(&mut self) -> Outcome<(Text<'a>, usize)> {
        match self.reader.peek() {
            Some(b'"') => {
                let at = self.reader.position();
                let text = self.reader.string("a number")?;
                let content = self.reader.content(text);
                let is_special = matches!(content, "NaN" | "Infinity" | "-Infinity");
                if self.options.strict && !is_special && !is_number(content, true) {
                    return Err(not_a_double(at, content));
                }
                Ok((text, at))
            }
            Some(b'-' | b'0'..=b'9') => {
                let number = self.reader.number()?;
                Ok((Text::Plain(number.text), number.at))
            }
            _ => Err(self
                .reader
                .unexpected("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")),
        }
    }

    fn base64(&mut self, field: &'static FieldDesc, emit: Emit) -> Outcome<()> {
        self.reader.peek();
        let at = self.reader.position();
        let text = self.reader.string("bytes as a base64 string")?;
        let content = self.reader.content(text);
        if content.is_empty() && matches!(emit, Emit::NonDefault) {
            return Ok(());
        }
        self.writer.tag(field.number, 2);
        // Three bytes for four characters; the prefix is known once the padding is.
        let unpadded = content.trim_end_matches('=').len();
        self.writer
            .varint((unpadded / 4 * 3 + (unpadded % 4 * 3) / 4) as u64);
        match base64_engine(content).decode_vec(content, self.writer.buffer()) {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::new(
                at,
                format!("bytes are base64 in JSON; this is not: {error}"),
            )),
        }
    }

    fn id(&mut self, field: &'static FieldDesc, kind: IdKind, emit: Emit) -> Outcome<()> {
        self.reader.peek();
        let at = self.reader.position();
        let text = self.reader.string("an id as a string of hexadecimal digits")?;
        let content = self.reader.content(text);
        if content.is_empty() {
            if matches!(emit, Emit::Always) {
                self.writer.tag(field.number, 2);
                self.writer.varint(0);
            }
            return Ok(());
        }
        let mut id = [0; 16];
        let id = &mut id[..kind.len_bytes()];
        if !hex_into(content.as_bytes(), id) {
            let decoded = base64_engine(content)
                .decode(content)
                .ok()
                .filter(|bytes| bytes.len() == kind.len_bytes());
            match decoded {
                Some(bytes) if kind == IdKind::Profile => id.copy_from_slice(&bytes),
                decoded => return Err(not_an_id(at, field, kind, content, decoded.is_some())),
            }
        }
        self.writer.tag(field.number, 2);
        self.writer.varint(id.len() as u64);
        self.writer.bytes(id);
        Ok(())
    }

    /// `google.protobuf.Any`: the type is wherever in the object `@type` is, so it is looked for first.
    fn any(&mut self, depth: usize) -> Outcome<()> {
        self.reader.peek();
        let start = self.reader.position();
        self.reader.expect(b'{', "an object")?;
        let mut type_url = None;
        let mut value = None;
        let mut more = !self.reader.take(b'}');
        while more {
            let name = self.reader.name()?;
            match self.reader.content(name) {
                "@type" => {
                    let text = self.reader.string("a type URL")?;
                    type_url = Some(self.reader.content(text).to_owned());
                }
                "value" => {
                    self.reader.peek();
                    value = Some(self.reader.position());
                    self.reader.skip_value()?;
                }
                _ => self.reader.skip_value()?,
            }
            more = self.reader.another(b'}')?;
        }
        let end = self.reader.position();
        let Some(type_url) = type_url else { return Ok(()) };
        self.writer.tag(1, 2);
        self.writer.varint(type_url.len() as u64);
        self.writer.bytes(type_url.as_bytes());
        let known = schema::MESSAGES
            .iter()
            .find(|message| type_url.rsplit('/').next() == Some(message.name()));
        match (known, value) {
            (Some(message), _) if message.json_form() == JsonForm::Object => {
                self.reader.rewind(start);
                self.writer.tag(2, 2);
                let open = self.writer.open(depth + 1);
                self.object(message, depth + 1)?;
                self.writer.close(open);
            }
            // A type this program does not know, as `encode` writes it.
            (None, Some(at)) => {
                self.reader.rewind(at);
                if self.reader.peek() == Some(b'"')
                    && let Some(field) = schema::ANY.field(2)
                {
                    self.base64(field, Emit::NonDefault)?;
                }
            }
            _ => {}
        }
        self.reader.rewind(end);
        Ok(())
    }

    /// `google.protobuf.Duration`: decimal seconds with up to nine places and an `s`.
    fn duration(&mut self) -> Outcome<()> {
        self.reader.peek();
        let at = self.reader.position();
        let text = self.reader.string("a duration such as \"1.5s\"")?;
        let content = self.reader.content(text);
        let Some((seconds, nanos)) = parse_duration(content) else {
            return Err(Failure::new(
                at,
                format!("{} is not a duration such as \"1.5s\"", excerpt(content)),
            ));
        };
        for (number, value) in [(1, seconds), (2, nanos)] {
            if value != 0 {
                self.writer.tag(number, 0);
                self.writer.varint(value as u64);
            }
        }
        Ok(())
    }
}

/// Takes note that a member of a oneof is set; another member of the same set is an error.
fn exclusive(
    taken: &mut [Option<&'static str>; MAX_ONEOFS],
    set: u8,
    field: &'static FieldDesc,
    at: usize,
) -> Outcome<()> {
    match taken.get_mut(usize::from(set)) {
        Some(Some(other)) if *other != field.json_name => Err(Failure::new(
            at,
            format!(
                "\"{other}\" and \"{}\" exclude each other; keep one of them",
                field.json_name
            ),
        )),
        Some(slot) => {
            *slot = Some(field.json_name);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Whether the text is a number of the JSON grammar; leniently, leading zeros are allowed.
fn is_number(text: &str, strict: bool) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let without_zeros = unsigned.trim_start_matches('0');
    let number = match without_zeros.as_bytes().first() {
        Some(b'0'..=b'9') if !strict => without_zeros,
        _ if !strict && without_zeros.len() < unsigned.len() => {
            &unsigned[unsigned.len() - without_zeros.len() - 1..]
        }
        _ => unsigned,
    };
    !number.starts_with('-') && number_len(number.as_bytes()) == Ok(number.len())
}

/// Whether a float that came out infinite was meant to be.
fn names_infinity(text: &str) -> bool {
    text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'i'))
}

/// The engine for the alphabet the text is written in.
fn base64_engine(text: &str) -> &'static GeneralPurpose {
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    static STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    static URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, CONFIG);
    if text.contains(['-', '_']) {
        &URL_SAFE
    } else {
        &STANDARD
    }
}

/// Reads exactly as many hexadecimal digits as fill `id`.
#[inline]
fn hex_into(digits: &[u8], id: &mut [u8]) -> bool {
    if digits.len() != 2 * id.len() {
        return false;
    }
    let mut all = 0;
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (HEX_VALUES[usize::from(pair[0])], HEX_VALUES[usize::from(pair[1])]);
        all |= high | low;
        *byte = high << 4 | low & 15;
    }
    all & NOT_HEX == 0
}

/// Set in [`HEX_VALUES`] for what is no hexadecimal digit.
const NOT_HEX: u8 = 0x80;

/// The value of each byte as a hexadecimal digit.
static HEX_VALUES: [u8; 256] = {
    let mut values = [NOT_HEX; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Seconds and nanoseconds, of one sign.
fn parse_duration(text: &str) -> Option<(i64, i64)> {
    let number = text.strip_suffix('s')?;
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    Some(if negative {
        (-seconds, -nanos)
    } else {
        (seconds, nanos)
    })
}

#[cold]
fn out_of_range(at: usize) -> Box<Failure> {
    Failure::new(at, "this number is out of the range of the field")
}

#[cold]
fn not_a_double(at: usize, text: &str) -> Box<Failure> {
    let problem = format!(
        "{} is neither a number nor \"NaN\", \"Infinity\", \"-Infinity\"",
        excerpt(text)
    );
    Failure::new(at, problem)
}

#[cold]
fn not_an_id(at: usize, field: &FieldDesc, kind: IdKind, text: &str, is_base64: bool) -> Box<Failure> {
    let (name, digits) = (field.json_name, 2 * kind.len_bytes());
    let cause = if is_base64 {
        "this looks like base64, a known bug of SDKs that use a plain protobuf-to-JSON library".to_owned()
    } else if let Some(other) = text.chars().find(|character| !character.is_ascii_hexdigit()) {
        format!("{other:?} is not one")
    } else {
        format!("this has {}", text.len())
    };
    Failure::new(at, format!("{name} must be {digits} hex digits; {cause}"))
}

/// The beginning of a text of the input, quoted, for an error message.
fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        format!("{shown:?}...")
    } else {
        format!("{shown:?}")
    }
}
