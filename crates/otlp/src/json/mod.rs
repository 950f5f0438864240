//! OTLP/JSON to protobuf bytes and back, by the schema tables; no message object in between.
//!
//! [`decode`] reads JSON once and writes protobuf; [`encode`] walks protobuf and writes JSON. Both follow the proto3
//! JSON mapping with the deviations of OTLP (trace and span ids in hexadecimal, enumerations as integers), see
//! opentelemetry-proto `docs/specification.md`, "JSON Protobuf Encoding".
//!
//! # What decoding accepts
//!
//! | JSON | lenient (default) | strict |
//! |---|---|---|
//! | names | lowerCamelCase; snake_case as the Collector | lowerCamelCase; snake_case is an error |
//! | unknown names | ignored, whatever is in them | ignored |
//! | `null` | an absent field; an empty message as an element of a list of messages | an absent field; an error as an element |
//! | a name twice | what the field twice on the wire means: scalars: the last one, messages merge, lists grow (the Collector does so too) | an error |
//! | two members of a oneof | an error | an error |
//! | trace, span, parent ids | 32 or 16 hexadecimal digits in either case, or `""` | the same |
//! | profile ids | hexadecimal, or base64 as the specification's letter has it | the same |
//! | other bytes | base64, standard or URL-safe, padded or not | the same |
//! | enumerations | integers (unknown ones too), names, integers in strings | integers |
//! | integers | numbers and strings; `1e3`, `1.0` and `"1.0"` where integral; strings with a leading `+` or zeros | without the last two |
//! | doubles | numbers, strings; `"NaN"`, `"Infinity"`, `"-Infinity"`; what the Collector reads (`"inf"`, `".5"`) | without the last two |
//! | bool | `true`, `false` | the same |
//! | a leading byte order mark | ignored | ignored |
//!
//! Always errors: text that is not UTF-8 or not JSON, lone surrogates, control characters in strings, numbers out of
//! range, fractions for integers, anything after the top-level object, messages nested deeper than protobuf decoders
//! follow ([`MAX_MESSAGE_DEPTH`]) and unknown values nested deeper than [`MAX_UNKNOWN_DEPTH`].
//!
//! Presence is kept: members of a oneof and `optional` fields are written even when zero; plain proto3 scalars with
//! their default value are not.

mod decode;
mod encode;
mod error;
mod integer;
mod reader;
pub(crate) mod records;
mod writer;

pub use decode::{JsonOptions, MAX_MESSAGE_DEPTH, decode};
pub use encode::{EncodeError, encode, encode_parts};
pub(crate) use encode::{append_scalar, append_string};
pub use error::JsonError;
pub use reader::MAX_UNKNOWN_DEPTH;

use sluice_wire::Kind;
use sluice_wire::schema::{self, MessageDesc};

/// The descriptor of the export request of this kind.
pub const fn request_schema(kind: Kind) -> &'static MessageDesc {
    match kind {
        Kind::Metrics => &schema::EXPORT_METRICS_SERVICE_REQUEST,
        Kind::Logs => &schema::EXPORT_LOGS_SERVICE_REQUEST,
        Kind::Traces => &schema::EXPORT_TRACE_SERVICE_REQUEST,
        Kind::Profiles => &schema::EXPORT_PROFILES_SERVICE_REQUEST,
    }
}

/// The descriptor of the response to an export request of this kind.
pub const fn response_schema(kind: Kind) -> &'static MessageDesc {
    match kind {
        Kind::Metrics => &schema::EXPORT_METRICS_SERVICE_RESPONSE,
        Kind::Logs => &schema::EXPORT_LOGS_SERVICE_RESPONSE,
        Kind::Traces => &schema::EXPORT_TRACE_SERVICE_RESPONSE,
        Kind::Profiles => &schema::EXPORT_PROFILES_SERVICE_RESPONSE,
    }
}
