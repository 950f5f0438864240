//! The schema tables against the compiled `.proto` files that opentelemetry-proto carries.

use prost::Message;
use sluice_wire::schema::{self, Cardinality, EnumDesc, FieldKind, MessageDesc};
use std::collections::BTreeMap;

/// The part of `google/protobuf/descriptor.proto` this test reads.
mod descriptor {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct FileSet {
        #[prost(message, repeated, tag = "1")]
        pub files: Vec<File>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct File {
        #[prost(string, tag = "2")]
        pub package: String,
        #[prost(message, repeated, tag = "4")]
        pub messages: Vec<Message>,
        #[prost(message, repeated, tag = "5")]
        pub enums: Vec<Enum>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Message {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub fields: Vec<Field>,
        #[prost(message, repeated, tag = "3")]
        pub nested: Vec<Message>,
        #[prost(message, repeated, tag = "4")]
        pub enums: Vec<Enum>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Field {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(int32, tag = "3")]
        pub number: i32,
        #[prost(int32, tag = "4")]
        pub label: i32,
        #[prost(int32, tag = "5")]
        pub kind: i32,
        #[prost(string, tag = "6")]
        pub type_name: String,
        #[prost(int32, optional, tag = "9")]
        pub oneof_index: Option<i32>,
        #[prost(string, tag = "10")]
        pub json_name: String,
        #[prost(bool, tag = "17")]
        pub proto3_optional: bool,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Enum {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, repeated, tag = "2")]
        pub values: Vec<EnumValue>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EnumValue {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(int32, tag = "2")]
        pub number: i32,
    }
}

const LABEL_REPEATED: i32 = 3;

/// The messages and enumerations of the compiled `.proto` files, by their full names.
fn compiled() -> (
    BTreeMap<String, descriptor::Message>,
    BTreeMap<String, descriptor::Enum>,
) {
    fn visit(
        scope: &str,
        message: &descriptor::Message,
        messages: &mut BTreeMap<String, descriptor::Message>,
        enums: &mut BTreeMap<String, descriptor::Enum>,
    ) {
        let name = format!("{scope}.{}", message.name);
        for nested in &message.nested {
            visit(&name, nested, messages, enums);
        }
        for nested in &message.enums {
            enums.insert(format!("{name}.{}", nested.name), nested.clone());
        }
        messages.insert(name, message.clone());
    }
    let set = descriptor::FileSet::decode(opentelemetry_proto::DESCRIPTORS).expect("a FileDescriptorSet");
    let (mut messages, mut enums) = (BTreeMap::new(), BTreeMap::new());
    for file in &set.files {
        for message in &file.messages {
            visit(&file.package, message, &mut messages, &mut enums);
        }
        for found in &file.enums {
            enums.insert(format!("{}.{}", file.package, found.name), found.clone());
        }
    }
    (messages, enums)
}

/// The number of a type in `FieldDescriptorProto.Type`.
fn type_number(kind: FieldKind) -> i32 {
    match kind {
        FieldKind::Double => 1,
        FieldKind::Float => 2,
        FieldKind::Int64 => 3,
        FieldKind::Uint64 => 4,
        FieldKind::Int32 => 5,
        FieldKind::Fixed64 => 6,
        FieldKind::Fixed32 => 7,
        FieldKind::Bool => 8,
        FieldKind::String => 9,
        FieldKind::Message(_) => 11,
        FieldKind::Bytes | FieldKind::Id(_) => 12,
        FieldKind::Uint32 => 13,
        FieldKind::Enum(_) => 14,
        FieldKind::Sfixed32 => 15,
        FieldKind::Sfixed64 => 16,
        FieldKind::Sint32 => 17,
        FieldKind::Sint64 => 18,
    }
}

fn assert_same_enum(desc: &EnumDesc, compiled: &descriptor::Enum) {
    let values: Vec<(i32, &str)> = compiled
        .values
        .iter()
        .map(|v| (v.number, v.name.as_str()))
        .collect();
    assert_eq!(desc.values, values, "{}", desc.name);
}

fn assert_same_message(desc: &MessageDesc, compiled: &descriptor::Message) {
    let mut declared: Vec<_> = compiled.fields.iter().collect();
    let mut known: Vec<_> = desc.fields().iter().collect();
    declared.sort_by_key(|field| field.number);
    known.sort_by_key(|field| field.number);
    let names = |fields: &[&descriptor::Field]| fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        known.iter().map(|f| f.name.to_owned()).collect::<Vec<_>>(),
        names(&declared),
        "{}",
        desc.name()
    );
    for (field, declared) in known.into_iter().zip(declared) {
        let at = format!("{}.{}", desc.name(), field.name);
        assert_eq!(field.number, declared.number as u32, "{at}");
        assert_eq!(field.json_name, declared.json_name, "{at}");
        assert_eq!(field.json_key, format!("\"{}\":", declared.json_name), "{at}");
        assert_eq!(type_number(field.kind), declared.kind, "{at}");
        assert_eq!(field.is_repeated(), declared.label == LABEL_REPEATED, "{at}");
        assert_eq!(
            field.cardinality == Cardinality::Optional,
            declared.proto3_optional,
            "{at}"
        );
        let oneof = declared.oneof_index.filter(|_| !declared.proto3_optional);
        assert_eq!(field.oneof().is_some(), oneof.is_some(), "{at}");
        let is_number = !matches!(declared.kind, 9 | 11 | 12);
        let is_packed = declared.label == LABEL_REPEATED && is_number;
        assert_eq!(field.cardinality == Cardinality::Packed, is_packed, "{at}");
        let type_name = match field.kind {
            FieldKind::Message(message) => message.name(),
            FieldKind::Enum(desc) => desc.name,
            _ => "",
        };
        assert_eq!(type_name, declared.type_name.trim_start_matches('.'), "{at}");
    }
}

/// Scenario: every OTLP message of the tables is held against the compiled `.proto` files of opentelemetry-proto.
/// Guarantees: names, numbers, types, JSON names, oneofs, `optional` and packing are those of the schema, and no field
/// is missing.
#[test]
fn the_tables_are_the_compiled_schema() {
    let (messages, enums) = compiled();
    let mut compared = 0;
    for desc in schema::MESSAGES
        .iter()
        .filter(|desc| desc.name().starts_with("opentelemetry."))
    {
        let Some(compiled) = messages.get(desc.name()) else {
            panic!("{} is not in the compiled schema", desc.name());
        };
        assert_same_message(desc, compiled);
        for field in desc.fields() {
            if let FieldKind::Enum(desc) = field.kind {
                assert_same_enum(desc, &enums[desc.name]);
            }
        }
        compared += 1;
    }
    assert!(compared > 40, "only {compared} messages compared");
}

/// Scenario: fields are looked up by number and by name, in every message.
/// Guarantees: each lookup finds its field whatever the guess; unknown numbers and names find nothing.
#[test]
fn fields_are_found_by_number_and_by_name() {
    for desc in schema::MESSAGES {
        for (position, field) in desc.fields().iter().enumerate() {
            assert_eq!(desc.position(field.number), Some(position));
            assert_eq!(desc.field(field.number).map(|found| found.name), Some(field.name));
            assert_eq!(
                desc.field_by_name(field.name).map(|found| found.number),
                Some(field.number)
            );
            for guess in [0, position, position + 1, usize::MAX] {
                assert_eq!(
                    desc.position_of_json_name(field.json_name.as_bytes(), guess),
                    Some(position)
                );
            }
        }
        for unknown in [0, 17, 23, 24, 1000, u32::MAX] {
            assert!(desc.field(unknown).is_none(), "{} {unknown}", desc.name());
        }
        assert_eq!(desc.position_of_json_name(b"", 0), None);
        assert_eq!(desc.position_of_json_name(b"nonsense", 1), None);
    }
}

/// Scenario: the message types reachable from the roots are collected.
/// Guarantees: each of them is listed in `MESSAGES`, under the name its descriptor has.
#[test]
fn every_reachable_message_is_listed() {
    fn visit(desc: &'static MessageDesc, seen: &mut Vec<&'static str>) {
        if seen.contains(&desc.name()) {
            return;
        }
        seen.push(desc.name());
        for field in desc.fields() {
            if let FieldKind::Message(message) = field.kind {
                visit(message, seen);
            }
        }
    }
    let mut seen = Vec::new();
    for root in [
        &schema::EXPORT_METRICS_SERVICE_REQUEST,
        &schema::EXPORT_METRICS_SERVICE_RESPONSE,
        &schema::EXPORT_LOGS_SERVICE_REQUEST,
        &schema::EXPORT_LOGS_SERVICE_RESPONSE,
        &schema::EXPORT_TRACE_SERVICE_REQUEST,
        &schema::EXPORT_TRACE_SERVICE_RESPONSE,
        &schema::EXPORT_PROFILES_SERVICE_REQUEST,
        &schema::EXPORT_PROFILES_SERVICE_RESPONSE,
        &schema::RPC_STATUS,
        &schema::RETRY_INFO,
    ] {
        visit(root, &mut seen);
    }
    let mut listed: Vec<_> = schema::MESSAGES.iter().map(|desc| desc.name()).collect();
    listed.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, listed);
}
