//! The OTLP messages as the validator reads them: per message its fields, per field what its value must be.
//!
//! Source: opentelemetry-proto 1.9 as generated into the crate `opentelemetry-proto` 0.33, which is also the oracle
//! of the tests. A field that is not listed is unknown: it is skipped, whatever its wire type.

use crate::cursor::wire;

/// What a field's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A varint: bool, enum or integer; truncated to the field's width, as prost does.
    Varint,
    /// Four bytes.
    Fixed32,
    /// Eight bytes.
    Fixed64,
    /// UTF-8.
    String,
    /// Any bytes.
    Bytes,
    /// Empty or 16 bytes.
    Id16,
    /// Empty or 8 bytes.
    Id8,
    /// Repeated varints, packed or not.
    Varints,
    /// Repeated eight-byte values, packed or not.
    Fixed64s,
    /// A message counting does not look into.
    Message(MessageId),
    /// A message counting walks through.
    Walk(MessageId),
    /// A message counting walks through, one arm of a oneof: another arm that follows replaces it.
    Arm(MessageId),
    /// A message that is counted.
    Item(MessageId),
}

impl Shape {
    /// The wire type the value has (when not packed).
    pub(crate) const fn wire(self) -> u8 {
        match self {
            Self::Varint | Self::Varints => wire::VARINT,
            Self::Fixed32 => wire::FIXED32,
            Self::Fixed64 | Self::Fixed64s => wire::FIXED64,
            _ => wire::LEN,
        }
    }

    /// The message inside, if any.
    pub(crate) const fn message(self) -> Option<MessageId> {
        match self {
            Self::Message(id) | Self::Walk(id) | Self::Arm(id) | Self::Item(id) => Some(id),
            _ => None,
        }
    }

    /// Whether counting looks at this field.
    pub(crate) const fn counted(self) -> bool {
        matches!(self, Self::Walk(_) | Self::Arm(_) | Self::Item(_))
    }
}

/// One field of the schema.
#[derive(Debug)]
pub(crate) struct FieldRule {
    pub number: u32,
    pub name: &'static str,
    pub shape: Shape,
    pub repeated: bool,
}

/// What to do on meeting a one-byte key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Not in the schema: skip by wire type.
    Unknown,
    /// Wire type that does not exist here, an end-group key, or field number 0.
    Bad,
    Varint,
    Fixed32,
    Fixed64,
    String,
    Bytes,
    Id16,
    Id8,
    PackedVarints,
    PackedFixed64s,
    Message(MessageId),
    /// A `KeyValue`.
    Pair,
    Walk(MessageId),
    Arm(MessageId),
    Item(MessageId),
}

/// One message of the schema.
#[derive(Debug)]
pub(crate) struct MessageRule {
    pub fields: &'static [FieldRule],
    /// Indexed by one-byte key.
    pub ops: [Op; 128],
}

impl MessageRule {
    const fn new(fields: &'static [FieldRule]) -> Self {
        let mut ops = [Op::Unknown; 128];
        let mut key = 0;
        while key < 128 {
            ops[key] = Self::compute(fields, (key >> 3) as u32, (key & 7) as u8);
            key += 1;
        }
        Self { fields, ops }
    }

    const fn compute(fields: &'static [FieldRule], number: u32, found: u8) -> Op {
        if number == 0 || found > wire::FIXED32 || found == wire::END_GROUP {
            return Op::Bad;
        }
        let mut index = 0;
        while index < fields.len() {
            if fields[index].number == number {
                let shape = fields[index].shape;
                return match shape {
                    Shape::Varints if found == wire::LEN => Op::PackedVarints,
                    Shape::Fixed64s if found == wire::LEN => Op::PackedFixed64s,
                    _ if found != shape.wire() => Op::Bad,
                    Shape::Varint | Shape::Varints => Op::Varint,
                    Shape::Fixed32 => Op::Fixed32,
                    Shape::Fixed64 | Shape::Fixed64s => Op::Fixed64,
                    Shape::String => Op::String,
                    Shape::Bytes => Op::Bytes,
                    Shape::Id16 => Op::Id16,
                    Shape::Id8 => Op::Id8,
                    Shape::Message(MessageId::KeyValue) => Op::Pair,
                    Shape::Message(id) => Op::Message(id),
                    Shape::Walk(id) => Op::Walk(id),
                    Shape::Arm(id) => Op::Arm(id),
                    Shape::Item(id) => Op::Item(id),
                };
            }
            index += 1;
        }
        Op::Unknown
    }

    /// What to do on meeting any key.
    pub(crate) fn op(&self, number: u32, found: u8) -> Op {
        if number < 16 {
            self.ops[(number as usize) << 3 | found as usize]
        } else {
            Self::compute(self.fields, number, found)
        }
    }

    /// The rule of field `number`.
    pub(crate) fn field(&self, number: u32) -> Option<&'static FieldRule> {
        self.fields.iter().find(|rule| rule.number == number)
    }
}

macro_rules! grammar {
    ($( $id:ident { $( $number:literal $name:ident $shape:ident $(($inner:ident))? $($many:literal)? ),* $(,)? } )*) => {
        /// A message of the schema; an index into [`RULES`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub(crate) enum MessageId { $( $id, )* }

        static RULES: &[MessageRule] = &[
            $( MessageRule::new(&[ $(
                FieldRule {
                    number: $number,
                    name: stringify!($name),
                    shape: Shape::$shape $((MessageId::$inner))?,
                    repeated: grammar!(@many $($many)?),
                },
            )* ]), )*
        ];
    };
    (@many) => { false };
    (@many $many:literal) => { true };
}

impl MessageId {
    /// The rule of this message.
    #[inline]
    pub(crate) fn rule(self) -> &'static MessageRule {
        &RULES[self as usize]
    }
}

// `"*"` marks a repeated field.
grammar! {
    MetricsRequest { 1 resource_metrics Walk(ResourceMetrics) "*" }
    LogsRequest { 1 resource_logs Walk(ResourceLogs) "*" }
    TracesRequest { 1 resource_spans Walk(ResourceSpans) "*" }
    ProfilesRequest { 1 resource_profiles Walk(ResourceProfiles) "*", 2 dictionary Message(ProfilesDictionary) }

    ResourceMetrics { 1 resource Message(Resource), 2 scope_metrics Walk(ScopeMetrics) "*", 3 schema_url String }
    ResourceLogs { 1 resource Message(Resource), 2 scope_logs Walk(ScopeLogs) "*", 3 schema_url String }
    ResourceSpans { 1 resource Message(Resource), 2 scope_spans Walk(ScopeSpans) "*", 3 schema_url String }
    ResourceProfiles { 1 resource Message(Resource), 2 scope_profiles Walk(ScopeProfiles) "*", 3 schema_url String }

    ScopeMetrics { 1 scope Message(Scope), 2 metrics Walk(Metric) "*", 3 schema_url String }
    ScopeLogs { 1 scope Message(Scope), 2 log_records Item(LogRecord) "*", 3 schema_url String }
    ScopeSpans { 1 scope Message(Scope), 2 spans Item(Span) "*", 3 schema_url String }
    ScopeProfiles { 1 scope Message(Scope), 2 profiles Item(Profile) "*", 3 schema_url String }

    Resource { 1 attributes Message(KeyValue) "*", 2 dropped_attributes_count Varint, 3 entity_refs Message(EntityRef) "*" }
    EntityRef { 1 schema_url String, 2 type String, 3 id_keys String "*", 4 description_keys String "*" }
    Scope { 1 name String, 2 version String, 3 attributes Message(KeyValue) "*", 4 dropped_attributes_count Varint }
    KeyValue { 1 key String, 2 value Message(AnyValue), 3 key_strindex Varint }
    AnyValue {
        1 string_value String, 2 bool_value Varint, 3 int_value Varint, 4 double_value Fixed64,
        5 array_value Message(ArrayValue), 6 kvlist_value Message(KeyValueList), 7 bytes_value Bytes,
        8 string_value_strindex Varint,
    }
    ArrayValue { 1 values Message(AnyValue) "*" }
    KeyValueList { 1 values Message(KeyValue) "*" }

    Metric {
        1 name String, 2 description String, 3 unit String,
        5 gauge Arm(Gauge), 7 sum Arm(Sum), 9 histogram Arm(Histogram),
        10 exponential_histogram Arm(ExponentialHistogram), 11 summary Arm(Summary),
        12 metadata Message(KeyValue) "*",
    }
    Gauge { 1 data_points Item(NumberDataPoint) "*" }
    Sum { 1 data_points Item(NumberDataPoint) "*", 2 aggregation_temporality Varint, 3 is_monotonic Varint }
    Histogram { 1 data_points Item(HistogramDataPoint) "*", 2 aggregation_temporality Varint }
    ExponentialHistogram { 1 data_points Item(ExponentialHistogramDataPoint) "*", 2 aggregation_temporality Varint }
    Summary { 1 data_points Item(SummaryDataPoint) "*" }
    NumberDataPoint {
        2 start_time_unix_nano Fixed64, 3 time_unix_nano Fixed64, 4 as_double Fixed64,
        5 exemplars Message(Exemplar) "*", 6 as_int Fixed64, 7 attributes Message(KeyValue) "*", 8 flags Varint,
    }
    HistogramDataPoint {
        2 start_time_unix_nano Fixed64, 3 time_unix_nano Fixed64, 4 count Fixed64, 5 sum Fixed64,
        6 bucket_counts Fixed64s "*", 7 explicit_bounds Fixed64s "*", 8 exemplars Message(Exemplar) "*",
        9 attributes Message(KeyValue) "*", 10 flags Varint, 11 min Fixed64, 12 max Fixed64,
    }
    ExponentialHistogramDataPoint {
        1 attributes Message(KeyValue) "*", 2 start_time_unix_nano Fixed64, 3 time_unix_nano Fixed64, 4 count Fixed64,
        5 sum Fixed64, 6 scale Varint, 7 zero_count Fixed64, 8 positive Message(Buckets), 9 negative Message(Buckets),
        10 flags Varint, 11 exemplars Message(Exemplar) "*", 12 min Fixed64, 13 max Fixed64, 14 zero_threshold Fixed64,
    }
    Buckets { 1 offset Varint, 2 bucket_counts Varints "*" }
    SummaryDataPoint {
        2 start_time_unix_nano Fixed64, 3 time_unix_nano Fixed64, 4 count Fixed64, 5 sum Fixed64,
        6 quantile_values Message(ValueAtQuantile) "*", 7 attributes Message(KeyValue) "*", 8 flags Varint,
    }
    ValueAtQuantile { 1 quantile Fixed64, 2 value Fixed64 }
    Exemplar {
        2 time_unix_nano Fixed64, 3 as_double Fixed64, 4 span_id Id8, 5 trace_id Id16, 6 as_int Fixed64,
        7 filtered_attributes Message(KeyValue) "*",
    }

    LogRecord {
        1 time_unix_nano Fixed64, 2 severity_number Varint, 3 severity_text String, 5 body Message(AnyValue),
        6 attributes Message(KeyValue) "*", 7 dropped_attributes_count Varint, 8 flags Fixed32, 9 trace_id Id16,
        10 span_id Id8, 11 observed_time_unix_nano Fixed64, 12 event_name String,
    }

    Span {
        1 trace_id Id16, 2 span_id Id8, 3 trace_state String, 4 parent_span_id Id8, 5 name String, 6 kind Varint,
        7 start_time_unix_nano Fixed64, 8 end_time_unix_nano Fixed64, 9 attributes Message(KeyValue) "*",
        10 dropped_attributes_count Varint, 11 events Message(SpanEvent) "*", 12 dropped_events_count Varint,
        13 links Message(SpanLink) "*", 14 dropped_links_count Varint, 15 status Message(Status), 16 flags Fixed32,
    }
    SpanEvent {
        1 time_unix_nano Fixed64, 2 name String, 3 attributes Message(KeyValue) "*", 4 dropped_attributes_count Varint,
    }
    SpanLink {
        1 trace_id Id16, 2 span_id Id8, 3 trace_state String, 4 attributes Message(KeyValue) "*",
        5 dropped_attributes_count Varint, 6 flags Fixed32,
    }
    Status { 2 message String, 3 code Varint }

    ProfilesDictionary {
        1 mapping_table Message(Mapping) "*", 2 location_table Message(Location) "*",
        3 function_table Message(Function) "*", 4 link_table Message(ProfileLink) "*", 5 string_table String "*",
        6 attribute_table Message(KeyValueAndUnit) "*", 7 stack_table Message(Stack) "*",
    }
    Profile {
        1 sample_type Message(ValueType), 2 samples Message(Sample) "*", 3 time_unix_nano Fixed64, 4 duration_nano Varint,
        5 period_type Message(ValueType), 6 period Varint, 7 profile_id Id16, 8 dropped_attributes_count Varint,
        9 original_payload_format String, 10 original_payload Bytes, 11 attribute_indices Varints "*",
    }
    ProfileLink { 1 trace_id Id16, 2 span_id Id8 }
    ValueType { 1 type_strindex Varint, 2 unit_strindex Varint }
    Sample {
        1 stack_index Varint, 2 attribute_indices Varints "*", 3 link_index Varint, 4 values Varints "*",
        5 timestamps_unix_nano Fixed64s "*",
    }
    Mapping {
        1 memory_start Varint, 2 memory_limit Varint, 3 file_offset Varint, 4 filename_strindex Varint,
        5 attribute_indices Varints "*",
    }
    Stack { 1 location_indices Varints "*" }
    Location { 1 mapping_index Varint, 2 address Varint, 3 lines Message(Line) "*", 4 attribute_indices Varints "*" }
    Line { 1 function_index Varint, 2 line Varint, 3 column Varint }
    Function { 1 name_strindex Varint, 2 system_name_strindex Varint, 3 filename_strindex Varint, 4 start_line Varint }
    KeyValueAndUnit { 1 key_strindex Varint, 2 value Message(AnyValue), 3 unit_strindex Varint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::schema::{self, Cardinality, FieldKind, IdKind, MessageDesc};

    fn compare(id: MessageId, desc: &MessageDesc, seen: &mut Vec<MessageId>) {
        if seen.contains(&id) {
            return;
        }
        seen.push(id);
        assert_eq!(id.rule().fields.len(), desc.fields().len(), "{}", desc.name());
        for field in desc.fields() {
            let rule = id.rule().field(field.number).expect(field.name);
            assert_eq!(rule.name, field.name);
            let many = matches!(field.cardinality, Cardinality::Repeated | Cardinality::Packed);
            assert_eq!(rule.repeated, many, "{} {}", desc.name(), field.name);
            let packed = field.cardinality == Cardinality::Packed;
            match (rule.shape, field.kind) {
                (Shape::String, FieldKind::String) | (Shape::Bytes, FieldKind::Bytes) => {}
                (Shape::Id16, FieldKind::Id(IdKind::Trace | IdKind::Profile))
                | (Shape::Id8, FieldKind::Id(IdKind::Span)) => {}
                (shape, FieldKind::Message(inner)) => {
                    compare(shape.message().expect(field.name), inner, seen)
                }
                (Shape::Varints | Shape::Fixed64s, kind) => {
                    assert!(
                        packed && kind.wire_kind() as u8 == rule.shape.wire(),
                        "{} {}",
                        desc.name(),
                        field.name
                    );
                }
                (shape, kind) => {
                    assert!(
                        !packed && kind.wire_kind() as u8 == shape.wire(),
                        "{} {}",
                        desc.name(),
                        field.name
                    );
                }
            }
        }
    }

    /// Scenario: the validator's tables beside the schema tables, from every request down.
    /// Guarantees: they name the same fields with the same types.
    #[test]
    fn the_grammar_is_the_schema() {
        for kind in Kind::ALL {
            let name = match kind {
                Kind::Metrics => "ExportMetricsServiceRequest",
                Kind::Logs => "ExportLogsServiceRequest",
                Kind::Traces => "ExportTraceServiceRequest",
                Kind::Profiles => "ExportProfilesServiceRequest",
            };
            let desc = schema::MESSAGES
                .iter()
                .find(|desc| desc.name().ends_with(name))
                .expect(name);
            compare(kind.root(), desc, &mut Vec::new());
        }
    }
}
