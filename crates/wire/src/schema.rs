//! Descriptors of every message of OTLP: what the JSON codec, the dumps and the validators walk by.
//!
//! The tables follow opentelemetry-proto 1.11 (the message fields are those of 1.10) and hold every message reachable
//! from `Export{Metrics,Logs,Trace,Profiles}ServiceRequest`, from their responses and from `google.rpc.Status`. They
//! are plain `static` data: a lookup by number is one array read, a lookup by name compares a handful of slices.
//!
//! A name such as [`SPAN`] is the descriptor of the message `opentelemetry.proto.trace.v1.Span`.

/// Numbers below this are looked up through an index; OTLP's highest is 16 (`Span.flags`).
const INDEXED_NUMBERS: usize = 24;

/// Marks a number without a field in the index.
const NO_FIELD: u8 = u8::MAX;

/// One message type: its name and its fields in the order of their declaration.
#[derive(Debug)]
pub struct MessageDesc {
    name: &'static str,
    fields: &'static [FieldDesc],
    index: [u8; INDEXED_NUMBERS],
    json_form: JsonForm,
}

/// One field of a message.
#[derive(Debug)]
pub struct FieldDesc {
    /// The field number on the wire.
    pub number: u32,
    /// The name in the `.proto` file, in snake case.
    pub name: &'static str,
    /// The name in JSON, in lower camel case.
    pub json_name: &'static str,
    /// The JSON name as it stands before a value: in quotes and with a colon.
    pub json_key: &'static str,
    /// The type of one element.
    pub kind: FieldKind,
    /// How many elements the field holds and how its absence is told.
    pub cardinality: Cardinality,
}

/// The type of one element of a field.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// `double`, 8 bytes.
    Double,
    /// `float`, 4 bytes.
    Float,
    /// `int32`, a sign-extended varint.
    Int32,
    /// `int64`, a varint.
    Int64,
    /// `uint32`, a varint.
    Uint32,
    /// `uint64`, a varint.
    Uint64,
    /// `sint32`, a zigzag varint.
    Sint32,
    /// `sint64`, a zigzag varint.
    Sint64,
    /// `fixed32`, 4 bytes.
    Fixed32,
    /// `fixed64`, 8 bytes.
    Fixed64,
    /// `sfixed32`, 4 bytes.
    Sfixed32,
    /// `sfixed64`, 8 bytes.
    Sfixed64,
    /// `bool`, a varint.
    Bool,
    /// `string`, UTF-8.
    String,
    /// `bytes`, base64 in JSON.
    Bytes,
    /// `bytes` holding an identifier: hexadecimal in OTLP/JSON, of a fixed length or empty.
    Id(IdKind),
    /// An enumeration, a sign-extended varint.
    Enum(&'static EnumDesc),
    /// A nested message.
    Message(&'static MessageDesc),
}

/// Which identifier a `bytes` field holds, hence its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// A trace id, 16 bytes.
    Trace,
    /// A span id, 8 bytes.
    Span,
    /// A profile id, 16 bytes. The specification names only trace and span ids as hexadecimal; the Collector, which is
    /// where profiles come from today, writes and reads profile ids as hexadecimal too.
    Profile,
}

/// How many elements a field holds and how its absence is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// A proto3 scalar (its default value is not written) or a singular message (present or not).
    Singular,
    /// Declared `optional`: a default value is written when it was set.
    Optional,
    /// A member of a oneof; the number tells the sets of one message apart.
    Oneof(u8),
    /// Any number of elements, one record each.
    Repeated,
    /// Any number of numbers, packed into one record (decoders take them unpacked as well).
    Packed,
}

/// One enumeration: its name and its values.
#[derive(Debug)]
pub struct EnumDesc {
    /// The full name, for example `opentelemetry.proto.trace.v1.Span.SpanKind`.
    pub name: &'static str,
    /// The names of the values, with the value each stands for, in ascending order.
    pub values: &'static [(i32, &'static str)],
}

/// Which JSON form a message has; the well-known types have one of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonForm {
    /// An object of its fields.
    Object,
    /// `google.protobuf.Any`: an object with `@type` and the fields of the message inside.
    Any,
    /// `google.protobuf.Duration`: a string such as `"1.5s"`.
    Duration,
}

/// The wire type of a record: the low three bits of its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WireKind {
    /// A varint.
    Varint = 0,
    /// Eight bytes, little endian.
    Fixed64 = 1,
    /// A varint length and that many bytes.
    Len = 2,
    /// Four bytes, little endian.
    Fixed32 = 5,
}

impl MessageDesc {
    /// The full name, for example `opentelemetry.proto.trace.v1.Span`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The fields in the order of their declaration.
    pub const fn fields(&self) -> &'static [FieldDesc] {
        self.fields
    }

    /// The JSON form of this message.
    pub const fn json_form(&self) -> JsonForm {
        self.json_form
    }

    /// The position in [`MessageDesc::fields`] of the field with this number.
    #[inline]
    pub fn position(&self, number: u32) -> Option<usize> {
        match self.index.get(number as usize) {
            Some(&NO_FIELD) => None,
            Some(&position) => Some(usize::from(position)),
            None => self.fields.iter().position(|field| field.number == number),
        }
    }

    /// The field with this number, or `None` if the schema does not know it.
    #[inline]
    pub fn field(&self, number: u32) -> Option<&'static FieldDesc> {
        self.fields.get(self.position(number)?)
    }

    /// The position in [`MessageDesc::fields`] of the field with this JSON name (lower camel case). `guess` is where to
    /// look first: writers keep the fields of a message in one order, so the position after the last hit is a good one.
    #[inline]
    pub fn position_of_json_name(&self, name: &[u8], guess: usize) -> Option<usize> {
        let (before, after) = self.fields.split_at(guess.min(self.fields.len()));
        let is_named = |field: &FieldDesc| field.json_name.as_bytes() == name;
        match after.iter().position(is_named) {
            Some(offset) => Some(before.len() + offset),
            None => before.iter().position(is_named),
        }
    }

    /// The field with this `.proto` name (snake case).
    pub fn field_by_name(&self, name: &str) -> Option<&'static FieldDesc> {
        self.fields.iter().find(|field| field.name == name)
    }
}

impl FieldDesc {
    /// Whether the field holds any number of elements.
    pub const fn is_repeated(&self) -> bool {
        matches!(self.cardinality, Cardinality::Repeated | Cardinality::Packed)
    }

    /// Whether a default value is told apart from an absent one, so that it has to be written.
    pub const fn has_presence(&self) -> bool {
        matches!(self.cardinality, Cardinality::Optional | Cardinality::Oneof(_))
            || (matches!(self.cardinality, Cardinality::Singular)
                && matches!(self.kind, FieldKind::Message(_)))
    }

    /// The oneof this field belongs to.
    pub const fn oneof(&self) -> Option<u8> {
        match self.cardinality {
            Cardinality::Oneof(set) => Some(set),
            _ => None,
        }
    }
}

impl FieldKind {
    /// The wire type of one element, not packed.
    pub const fn wire_kind(self) -> WireKind {
        match self {
            Self::Double | Self::Fixed64 | Self::Sfixed64 => WireKind::Fixed64,
            Self::Float | Self::Fixed32 | Self::Sfixed32 => WireKind::Fixed32,
            Self::Int32 | Self::Int64 | Self::Uint32 | Self::Uint64 => WireKind::Varint,
            Self::Sint32 | Self::Sint64 | Self::Bool | Self::Enum(_) => WireKind::Varint,
            Self::String | Self::Bytes | Self::Id(_) | Self::Message(_) => WireKind::Len,
        }
    }
}

impl IdKind {
    /// The length of the identifier in bytes; in hexadecimal digits it is twice that.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Trace | Self::Profile => 16,
            Self::Span => 8,
        }
    }
}

impl EnumDesc {
    /// The value this name stands for.
    pub fn value_of(&self, name: &str) -> Option<i32> {
        self.values
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(value, _)| *value)
    }

    /// The name of this value.
    pub fn name_of(&self, value: i32) -> Option<&'static str> {
        self.values
            .iter()
            .find(|(known, _)| *known == value)
            .map(|(_, name)| *name)
    }
}

const fn index_of(numbers: &[u32]) -> [u8; INDEXED_NUMBERS] {
    let mut index = [NO_FIELD; INDEXED_NUMBERS];
    let mut position = 0;
    while position < numbers.len() {
        let number = numbers[position] as usize;
        if number < INDEXED_NUMBERS {
            assert!(index[number] == NO_FIELD, "two fields with one number");
            index[number] = position as u8;
        }
        position += 1;
    }
    index
}

/// One row of a message table: `number name "jsonName" kind [cardinality]`.
macro_rules! field {
    ($number:literal $name:ident $json:literal $kind:expr) => {
        field!($number $name $json $kind, Cardinality::Singular)
    };
    ($number:literal $name:ident $json:literal $kind:expr, $cardinality:expr) => {
        FieldDesc {
            number: $number,
            name: stringify!($name),
            json_name: $json,
            json_key: concat!("\"", $json, "\":"),
            kind: $kind,
            cardinality: $cardinality,
        }
    };
}

macro_rules! messages {
    ($($ident:ident $full:literal $form:ident {
        $($number:literal $name:ident $json:literal $kind:expr $(, $cardinality:expr)?;)*
    })*) => {
        $(
            #[doc = concat!("`", $full, "`.")]
            pub static $ident: MessageDesc = MessageDesc {
                name: $full,
                fields: {
                    const FIELDS: usize = { const N: &[u32] = &[$($number),*]; N.len() };
                    static TABLE: [FieldDesc; FIELDS] = [$(field!($number $name $json $kind $(, $cardinality)?)),*];
                    &TABLE
                },
                index: {
                    const NUMBERS: &[u32] = &[$($number),*];
                    index_of(NUMBERS)
                },
                json_form: JsonForm::$form,
            };
        )*

        /// Every message of the schema.
        pub static MESSAGES: &[&MessageDesc] = &[$(&$ident),*];
    };
}

messages! {
    EXPORT_METRICS_SERVICE_REQUEST "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest" Object {
        1 resource_metrics "resourceMetrics" FieldKind::Message(&RESOURCE_METRICS), Cardinality::Repeated;
    }
    EXPORT_METRICS_SERVICE_RESPONSE "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceResponse" Object {
        1 partial_success "partialSuccess" FieldKind::Message(&EXPORT_METRICS_PARTIAL_SUCCESS);
    }
    EXPORT_METRICS_PARTIAL_SUCCESS "opentelemetry.proto.collector.metrics.v1.ExportMetricsPartialSuccess" Object {
        1 rejected_data_points "rejectedDataPoints" FieldKind::Int64;
        2 error_message "errorMessage" FieldKind::String;
    }
    EXPORT_LOGS_SERVICE_REQUEST "opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest" Object {
        1 resource_logs "resourceLogs" FieldKind::Message(&RESOURCE_LOGS), Cardinality::Repeated;
    }
    EXPORT_LOGS_SERVICE_RESPONSE "opentelemetry.proto.collector.logs.v1.ExportLogsServiceResponse" Object {
        1 partial_success "partialSuccess" FieldKind::Message(&EXPORT_LOGS_PARTIAL_SUCCESS);
    }
    EXPORT_LOGS_PARTIAL_SUCCESS "opentelemetry.proto.collector.logs.v1.ExportLogsPartialSuccess" Object {
        1 rejected_log_records "rejectedLogRecords" FieldKind::Int64;
        2 error_message "errorMessage" FieldKind::String;
    }
    EXPORT_TRACE_SERVICE_REQUEST "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest" Object {
        1 resource_spans "resourceSpans" FieldKind::Message(&RESOURCE_SPANS), Cardinality::Repeated;
    }
    EXPORT_TRACE_SERVICE_RESPONSE "opentelemetry.proto.collector.trace.v1.ExportTraceServiceResponse" Object {
        1 partial_success "partialSuccess" FieldKind::Message(&EXPORT_TRACE_PARTIAL_SUCCESS);
    }
    EXPORT_TRACE_PARTIAL_SUCCESS "opentelemetry.proto.collector.trace.v1.ExportTracePartialSuccess" Object {
        1 rejected_spans "rejectedSpans" FieldKind::Int64;
        2 error_message "errorMessage" FieldKind::String;
    }
    EXPORT_PROFILES_SERVICE_REQUEST "opentelemetry.proto.collector.profiles.v1development.ExportProfilesServiceRequest" Object {
        1 resource_profiles "resourceProfiles" FieldKind::Message(&RESOURCE_PROFILES), Cardinality::Repeated;
        2 dictionary "dictionary" FieldKind::Message(&PROFILES_DICTIONARY);
    }
    EXPORT_PROFILES_SERVICE_RESPONSE "opentelemetry.proto.collector.profiles.v1development.ExportProfilesServiceResponse" Object {
        1 partial_success "partialSuccess" FieldKind::Message(&EXPORT_PROFILES_PARTIAL_SUCCESS);
    }
    EXPORT_PROFILES_PARTIAL_SUCCESS "opentelemetry.proto.collector.profiles.v1development.ExportProfilesPartialSuccess" Object {
        1 rejected_profiles "rejectedProfiles" FieldKind::Int64;
        2 error_message "errorMessage" FieldKind::String;
    }
    ANY_VALUE "opentelemetry.proto.common.v1.AnyValue" Object {
        1 string_value "stringValue" FieldKind::String, Cardinality::Oneof(0);
        2 bool_value "boolValue" FieldKind::Bool, Cardinality::Oneof(0);
        3 int_value "intValue" FieldKind::Int64, Cardinality::Oneof(0);
        4 double_value "doubleValue" FieldKind::Double, Cardinality::Oneof(0);
        5 array_value "arrayValue" FieldKind::Message(&ARRAY_VALUE), Cardinality::Oneof(0);
        6 kvlist_value "kvlistValue" FieldKind::Message(&KEY_VALUE_LIST), Cardinality::Oneof(0);
        7 bytes_value "bytesValue" FieldKind::Bytes, Cardinality::Oneof(0);
        8 string_value_strindex "stringValueStrindex" FieldKind::Int32, Cardinality::Oneof(0);
    }
    ARRAY_VALUE "opentelemetry.proto.common.v1.ArrayValue" Object {
        1 values "values" FieldKind::Message(&ANY_VALUE), Cardinality::Repeated;
    }
    KEY_VALUE_LIST "opentelemetry.proto.common.v1.KeyValueList" Object {
        1 values "values" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
    }
    KEY_VALUE "opentelemetry.proto.common.v1.KeyValue" Object {
        1 key "key" FieldKind::String;
        2 value "value" FieldKind::Message(&ANY_VALUE);
        3 key_strindex "keyStrindex" FieldKind::Int32;
    }
    INSTRUMENTATION_SCOPE "opentelemetry.proto.common.v1.InstrumentationScope" Object {
        1 name "name" FieldKind::String;
        2 version "version" FieldKind::String;
        3 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        4 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
    }
    ENTITY_REF "opentelemetry.proto.common.v1.EntityRef" Object {
        1 schema_url "schemaUrl" FieldKind::String;
        2 type "type" FieldKind::String;
        3 id_keys "idKeys" FieldKind::String, Cardinality::Repeated;
        4 description_keys "descriptionKeys" FieldKind::String, Cardinality::Repeated;
    }
    RESOURCE "opentelemetry.proto.resource.v1.Resource" Object {
        1 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
        3 entity_refs "entityRefs" FieldKind::Message(&ENTITY_REF), Cardinality::Repeated;
    }
    RESOURCE_METRICS "opentelemetry.proto.metrics.v1.ResourceMetrics" Object {
        1 resource "resource" FieldKind::Message(&RESOURCE);
        2 scope_metrics "scopeMetrics" FieldKind::Message(&SCOPE_METRICS), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    SCOPE_METRICS "opentelemetry.proto.metrics.v1.ScopeMetrics" Object {
        1 scope "scope" FieldKind::Message(&INSTRUMENTATION_SCOPE);
        2 metrics "metrics" FieldKind::Message(&METRIC), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    METRIC "opentelemetry.proto.metrics.v1.Metric" Object {
        1 name "name" FieldKind::String;
        2 description "description" FieldKind::String;
        3 unit "unit" FieldKind::String;
        5 gauge "gauge" FieldKind::Message(&GAUGE), Cardinality::Oneof(0);
        7 sum "sum" FieldKind::Message(&SUM), Cardinality::Oneof(0);
        9 histogram "histogram" FieldKind::Message(&HISTOGRAM), Cardinality::Oneof(0);
        10 exponential_histogram "exponentialHistogram" FieldKind::Message(&EXPONENTIAL_HISTOGRAM), Cardinality::Oneof(0);
        11 summary "summary" FieldKind::Message(&SUMMARY), Cardinality::Oneof(0);
        12 metadata "metadata" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
    }
    GAUGE "opentelemetry.proto.metrics.v1.Gauge" Object {
        1 data_points "dataPoints" FieldKind::Message(&NUMBER_DATA_POINT), Cardinality::Repeated;
    }
    SUM "opentelemetry.proto.metrics.v1.Sum" Object {
        1 data_points "dataPoints" FieldKind::Message(&NUMBER_DATA_POINT), Cardinality::Repeated;
        2 aggregation_temporality "aggregationTemporality" FieldKind::Enum(&AGGREGATION_TEMPORALITY);
        3 is_monotonic "isMonotonic" FieldKind::Bool;
    }
    HISTOGRAM "opentelemetry.proto.metrics.v1.Histogram" Object {
        1 data_points "dataPoints" FieldKind::Message(&HISTOGRAM_DATA_POINT), Cardinality::Repeated;
        2 aggregation_temporality "aggregationTemporality" FieldKind::Enum(&AGGREGATION_TEMPORALITY);
    }
    EXPONENTIAL_HISTOGRAM "opentelemetry.proto.metrics.v1.ExponentialHistogram" Object {
        1 data_points "dataPoints" FieldKind::Message(&EXPONENTIAL_HISTOGRAM_DATA_POINT), Cardinality::Repeated;
        2 aggregation_temporality "aggregationTemporality" FieldKind::Enum(&AGGREGATION_TEMPORALITY);
    }
    SUMMARY "opentelemetry.proto.metrics.v1.Summary" Object {
        1 data_points "dataPoints" FieldKind::Message(&SUMMARY_DATA_POINT), Cardinality::Repeated;
    }
    NUMBER_DATA_POINT "opentelemetry.proto.metrics.v1.NumberDataPoint" Object {
        7 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 start_time_unix_nano "startTimeUnixNano" FieldKind::Fixed64;
        3 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        4 as_double "asDouble" FieldKind::Double, Cardinality::Oneof(0);
        6 as_int "asInt" FieldKind::Sfixed64, Cardinality::Oneof(0);
        5 exemplars "exemplars" FieldKind::Message(&EXEMPLAR), Cardinality::Repeated;
        8 flags "flags" FieldKind::Uint32;
    }
    HISTOGRAM_DATA_POINT "opentelemetry.proto.metrics.v1.HistogramDataPoint" Object {
        9 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 start_time_unix_nano "startTimeUnixNano" FieldKind::Fixed64;
        3 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        4 count "count" FieldKind::Fixed64;
        5 sum "sum" FieldKind::Double, Cardinality::Optional;
        6 bucket_counts "bucketCounts" FieldKind::Fixed64, Cardinality::Packed;
        7 explicit_bounds "explicitBounds" FieldKind::Double, Cardinality::Packed;
        8 exemplars "exemplars" FieldKind::Message(&EXEMPLAR), Cardinality::Repeated;
        10 flags "flags" FieldKind::Uint32;
        11 min "min" FieldKind::Double, Cardinality::Optional;
        12 max "max" FieldKind::Double, Cardinality::Optional;
    }
    EXPONENTIAL_HISTOGRAM_DATA_POINT "opentelemetry.proto.metrics.v1.ExponentialHistogramDataPoint" Object {
        1 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 start_time_unix_nano "startTimeUnixNano" FieldKind::Fixed64;
        3 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        4 count "count" FieldKind::Fixed64;
        5 sum "sum" FieldKind::Double, Cardinality::Optional;
        6 scale "scale" FieldKind::Sint32;
        7 zero_count "zeroCount" FieldKind::Fixed64;
        8 positive "positive" FieldKind::Message(&BUCKETS);
        9 negative "negative" FieldKind::Message(&BUCKETS);
        10 flags "flags" FieldKind::Uint32;
        11 exemplars "exemplars" FieldKind::Message(&EXEMPLAR), Cardinality::Repeated;
        12 min "min" FieldKind::Double, Cardinality::Optional;
        13 max "max" FieldKind::Double, Cardinality::Optional;
        14 zero_threshold "zeroThreshold" FieldKind::Double;
    }
    BUCKETS "opentelemetry.proto.metrics.v1.ExponentialHistogramDataPoint.Buckets" Object {
        1 offset "offset" FieldKind::Sint32;
        2 bucket_counts "bucketCounts" FieldKind::Uint64, Cardinality::Packed;
    }
    SUMMARY_DATA_POINT "opentelemetry.proto.metrics.v1.SummaryDataPoint" Object {
        7 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 start_time_unix_nano "startTimeUnixNano" FieldKind::Fixed64;
        3 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        4 count "count" FieldKind::Fixed64;
        5 sum "sum" FieldKind::Double;
        6 quantile_values "quantileValues" FieldKind::Message(&VALUE_AT_QUANTILE), Cardinality::Repeated;
        8 flags "flags" FieldKind::Uint32;
    }
    VALUE_AT_QUANTILE "opentelemetry.proto.metrics.v1.SummaryDataPoint.ValueAtQuantile" Object {
        1 quantile "quantile" FieldKind::Double;
        2 value "value" FieldKind::Double;
    }
    EXEMPLAR "opentelemetry.proto.metrics.v1.Exemplar" Object {
        7 filtered_attributes "filteredAttributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        2 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        3 as_double "asDouble" FieldKind::Double, Cardinality::Oneof(0);
        6 as_int "asInt" FieldKind::Sfixed64, Cardinality::Oneof(0);
        4 span_id "spanId" FieldKind::Id(IdKind::Span);
        5 trace_id "traceId" FieldKind::Id(IdKind::Trace);
    }
    RESOURCE_LOGS "opentelemetry.proto.logs.v1.ResourceLogs" Object {
        1 resource "resource" FieldKind::Message(&RESOURCE);
        2 scope_logs "scopeLogs" FieldKind::Message(&SCOPE_LOGS), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    SCOPE_LOGS "opentelemetry.proto.logs.v1.ScopeLogs" Object {
        1 scope "scope" FieldKind::Message(&INSTRUMENTATION_SCOPE);
        2 log_records "logRecords" FieldKind::Message(&LOG_RECORD), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    LOG_RECORD "opentelemetry.proto.logs.v1.LogRecord" Object {
        1 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        11 observed_time_unix_nano "observedTimeUnixNano" FieldKind::Fixed64;
        2 severity_number "severityNumber" FieldKind::Enum(&SEVERITY_NUMBER);
        3 severity_text "severityText" FieldKind::String;
        5 body "body" FieldKind::Message(&ANY_VALUE);
        6 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        7 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
        8 flags "flags" FieldKind::Fixed32;
        9 trace_id "traceId" FieldKind::Id(IdKind::Trace);
        10 span_id "spanId" FieldKind::Id(IdKind::Span);
        12 event_name "eventName" FieldKind::String;
    }
    RESOURCE_SPANS "opentelemetry.proto.trace.v1.ResourceSpans" Object {
        1 resource "resource" FieldKind::Message(&RESOURCE);
        2 scope_spans "scopeSpans" FieldKind::Message(&SCOPE_SPANS), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    SCOPE_SPANS "opentelemetry.proto.trace.v1.ScopeSpans" Object {
        1 scope "scope" FieldKind::Message(&INSTRUMENTATION_SCOPE);
        2 spans "spans" FieldKind::Message(&SPAN), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    SPAN "opentelemetry.proto.trace.v1.Span" Object {
        1 trace_id "traceId" FieldKind::Id(IdKind::Trace);
        2 span_id "spanId" FieldKind::Id(IdKind::Span);
        3 trace_state "traceState" FieldKind::String;
        4 parent_span_id "parentSpanId" FieldKind::Id(IdKind::Span);
        16 flags "flags" FieldKind::Fixed32;
        5 name "name" FieldKind::String;
        6 kind "kind" FieldKind::Enum(&SPAN_KIND);
        7 start_time_unix_nano "startTimeUnixNano" FieldKind::Fixed64;
        8 end_time_unix_nano "endTimeUnixNano" FieldKind::Fixed64;
        9 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        10 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
        11 events "events" FieldKind::Message(&SPAN_EVENT), Cardinality::Repeated;
        12 dropped_events_count "droppedEventsCount" FieldKind::Uint32;
        13 links "links" FieldKind::Message(&SPAN_LINK), Cardinality::Repeated;
        14 dropped_links_count "droppedLinksCount" FieldKind::Uint32;
        15 status "status" FieldKind::Message(&STATUS);
    }
    SPAN_EVENT "opentelemetry.proto.trace.v1.Span.Event" Object {
        1 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        2 name "name" FieldKind::String;
        3 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        4 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
    }
    SPAN_LINK "opentelemetry.proto.trace.v1.Span.Link" Object {
        1 trace_id "traceId" FieldKind::Id(IdKind::Trace);
        2 span_id "spanId" FieldKind::Id(IdKind::Span);
        3 trace_state "traceState" FieldKind::String;
        4 attributes "attributes" FieldKind::Message(&KEY_VALUE), Cardinality::Repeated;
        5 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
        6 flags "flags" FieldKind::Fixed32;
    }
    STATUS "opentelemetry.proto.trace.v1.Status" Object {
        2 message "message" FieldKind::String;
        3 code "code" FieldKind::Enum(&STATUS_CODE);
    }
    PROFILES_DICTIONARY "opentelemetry.proto.profiles.v1development.ProfilesDictionary" Object {
        1 mapping_table "mappingTable" FieldKind::Message(&MAPPING), Cardinality::Repeated;
        2 location_table "locationTable" FieldKind::Message(&LOCATION), Cardinality::Repeated;
        3 function_table "functionTable" FieldKind::Message(&FUNCTION), Cardinality::Repeated;
        4 link_table "linkTable" FieldKind::Message(&PROFILE_LINK), Cardinality::Repeated;
        5 string_table "stringTable" FieldKind::String, Cardinality::Repeated;
        6 attribute_table "attributeTable" FieldKind::Message(&KEY_VALUE_AND_UNIT), Cardinality::Repeated;
        7 stack_table "stackTable" FieldKind::Message(&STACK), Cardinality::Repeated;
    }
    RESOURCE_PROFILES "opentelemetry.proto.profiles.v1development.ResourceProfiles" Object {
        1 resource "resource" FieldKind::Message(&RESOURCE);
        2 scope_profiles "scopeProfiles" FieldKind::Message(&SCOPE_PROFILES), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    SCOPE_PROFILES "opentelemetry.proto.profiles.v1development.ScopeProfiles" Object {
        1 scope "scope" FieldKind::Message(&INSTRUMENTATION_SCOPE);
        2 profiles "profiles" FieldKind::Message(&PROFILE), Cardinality::Repeated;
        3 schema_url "schemaUrl" FieldKind::String;
    }
    PROFILE "opentelemetry.proto.profiles.v1development.Profile" Object {
        1 sample_type "sampleType" FieldKind::Message(&VALUE_TYPE);
        2 samples "samples" FieldKind::Message(&SAMPLE), Cardinality::Repeated;
        3 time_unix_nano "timeUnixNano" FieldKind::Fixed64;
        4 duration_nano "durationNano" FieldKind::Uint64;
        5 period_type "periodType" FieldKind::Message(&VALUE_TYPE);
        6 period "period" FieldKind::Int64;
        7 profile_id "profileId" FieldKind::Id(IdKind::Profile);
        8 dropped_attributes_count "droppedAttributesCount" FieldKind::Uint32;
        9 original_payload_format "originalPayloadFormat" FieldKind::String;
        10 original_payload "originalPayload" FieldKind::Bytes;
        11 attribute_indices "attributeIndices" FieldKind::Int32, Cardinality::Packed;
    }
    PROFILE_LINK "opentelemetry.proto.profiles.v1development.Link" Object {
        1 trace_id "traceId" FieldKind::Id(IdKind::Trace);
        2 span_id "spanId" FieldKind::Id(IdKind::Span);
    }
    VALUE_TYPE "opentelemetry.proto.profiles.v1development.ValueType" Object {
        1 type_strindex "typeStrindex" FieldKind::Int32;
        2 unit_strindex "unitStrindex" FieldKind::Int32;
    }
    SAMPLE "opentelemetry.proto.profiles.v1development.Sample" Object {
        1 stack_index "stackIndex" FieldKind::Int32;
        2 attribute_indices "attributeIndices" FieldKind::Int32, Cardinality::Packed;
        3 link_index "linkIndex" FieldKind::Int32;
        4 values "values" FieldKind::Int64, Cardinality::Packed;
        5 timestamps_unix_nano "timestampsUnixNano" FieldKind::Fixed64, Cardinality::Packed;
    }
    MAPPING "opentelemetry.proto.profiles.v1development.Mapping" Object {
        1 memory_start "memoryStart" FieldKind::Uint64;
        2 memory_limit "memoryLimit" FieldKind::Uint64;
        3 file_offset "fileOffset" FieldKind::Uint64;
        4 filename_strindex "filenameStrindex" FieldKind::Int32;
        5 attribute_indices "attributeIndices" FieldKind::Int32, Cardinality::Packed;
    }
    STACK "opentelemetry.proto.profiles.v1development.Stack" Object {
        1 location_indices "locationIndices" FieldKind::Int32, Cardinality::Packed;
    }
    LOCATION "opentelemetry.proto.profiles.v1development.Location" Object {
        1 mapping_index "mappingIndex" FieldKind::Int32;
        2 address "address" FieldKind::Uint64;
        3 lines "lines" FieldKind::Message(&LINE), Cardinality::Repeated;
        4 attribute_indices "attributeIndices" FieldKind::Int32, Cardinality::Packed;
    }
    LINE "opentelemetry.proto.profiles.v1development.Line" Object {
        1 function_index "functionIndex" FieldKind::Int32;
        2 line "line" FieldKind::Int64;
        3 column "column" FieldKind::Int64;
    }
    FUNCTION "opentelemetry.proto.profiles.v1development.Function" Object {
        1 name_strindex "nameStrindex" FieldKind::Int32;
        2 system_name_strindex "systemNameStrindex" FieldKind::Int32;
        3 filename_strindex "filenameStrindex" FieldKind::Int32;
        4 start_line "startLine" FieldKind::Int64;
    }
    KEY_VALUE_AND_UNIT "opentelemetry.proto.profiles.v1development.KeyValueAndUnit" Object {
        1 key_strindex "keyStrindex" FieldKind::Int32;
        2 value "value" FieldKind::Message(&ANY_VALUE);
        3 unit_strindex "unitStrindex" FieldKind::Int32;
    }
    RPC_STATUS "google.rpc.Status" Object {
        1 code "code" FieldKind::Int32;
        2 message "message" FieldKind::String;
        3 details "details" FieldKind::Message(&ANY), Cardinality::Repeated;
    }
    ANY "google.protobuf.Any" Any {
        1 type_url "typeUrl" FieldKind::String;
        2 value "value" FieldKind::Bytes;
    }
    RETRY_INFO "google.rpc.RetryInfo" Object {
        1 retry_delay "retryDelay" FieldKind::Message(&DURATION);
    }
    DURATION "google.protobuf.Duration" Duration {
        1 seconds "seconds" FieldKind::Int64;
        2 nanos "nanos" FieldKind::Int32;
    }
}

/// `opentelemetry.proto.metrics.v1.AggregationTemporality`.
pub static AGGREGATION_TEMPORALITY: EnumDesc = EnumDesc {
    name: "opentelemetry.proto.metrics.v1.AggregationTemporality",
    values: &[
        (0, "AGGREGATION_TEMPORALITY_UNSPECIFIED"),
        (1, "AGGREGATION_TEMPORALITY_DELTA"),
        (2, "AGGREGATION_TEMPORALITY_CUMULATIVE"),
    ],
};

/// `opentelemetry.proto.logs.v1.SeverityNumber`.
pub static SEVERITY_NUMBER: EnumDesc = EnumDesc {
    name: "opentelemetry.proto.logs.v1.SeverityNumber",
    values: &[
        (0, "SEVERITY_NUMBER_UNSPECIFIED"),
        (1, "SEVERITY_NUMBER_TRACE"),
        (2, "SEVERITY_NUMBER_TRACE2"),
        (3, "SEVERITY_NUMBER_TRACE3"),
        (4, "SEVERITY_NUMBER_TRACE4"),
        (5, "SEVERITY_NUMBER_DEBUG"),
        (6, "SEVERITY_NUMBER_DEBUG2"),
        (7, "SEVERITY_NUMBER_DEBUG3"),
        (8, "SEVERITY_NUMBER_DEBUG4"),
        (9, "SEVERITY_NUMBER_INFO"),
        (10, "SEVERITY_NUMBER_INFO2"),
        (11, "SEVERITY_NUMBER_INFO3"),
        (12, "SEVERITY_NUMBER_INFO4"),
        (13, "SEVERITY_NUMBER_WARN"),
        (14, "SEVERITY_NUMBER_WARN2"),
        (15, "SEVERITY_NUMBER_WARN3"),
        (16, "SEVERITY_NUMBER_WARN4"),
        (17, "SEVERITY_NUMBER_ERROR"),
        (18, "SEVERITY_NUMBER_ERROR2"),
        (19, "SEVERITY_NUMBER_ERROR3"),
        (20, "SEVERITY_NUMBER_ERROR4"),
        (21, "SEVERITY_NUMBER_FATAL"),
        (22, "SEVERITY_NUMBER_FATAL2"),
        (23, "SEVERITY_NUMBER_FATAL3"),
        (24, "SEVERITY_NUMBER_FATAL4"),
    ],
};

/// `opentelemetry.proto.trace.v1.Span.SpanKind`.
pub static SPAN_KIND: EnumDesc = EnumDesc {
    name: "opentelemetry.proto.trace.v1.Span.SpanKind",
    values: &[
        (0, "SPAN_KIND_UNSPECIFIED"),
        (1, "SPAN_KIND_INTERNAL"),
        (2, "SPAN_KIND_SERVER"),
        (3, "SPAN_KIND_CLIENT"),
        (4, "SPAN_KIND_PRODUCER"),
        (5, "SPAN_KIND_CONSUMER"),
    ],
};

/// `opentelemetry.proto.trace.v1.Status.StatusCode`.
pub static STATUS_CODE: EnumDesc = EnumDesc {
    name: "opentelemetry.proto.trace.v1.Status.StatusCode",
    values: &[
        (0, "STATUS_CODE_UNSET"),
        (1, "STATUS_CODE_OK"),
        (2, "STATUS_CODE_ERROR"),
    ],
};
