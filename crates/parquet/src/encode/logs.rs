//! The table `logs`: a row for each log record.

use arrow_schema::ArrowError;
use sluice_wire::{Fields, LogRecord};

use super::attributes::{Pairs, Repairs, kind, write_value};
use super::column::{Columns, Ints, Longs, Texts};
use super::file::FileSettings;
use super::source::{Source, SourceColumns, attributes};
use super::times::Times;

/// When a log record happened: its time, or else when it was observed.
pub(crate) fn time(record: &LogRecord<'_>) -> u64 {
    match record.time_unix_nano() {
        0 => record.observed_time_unix_nano(),
        time => time,
    }
}

#[derive(Debug)]
pub(crate) struct Logs {
    times: Times,
    observed: Longs,
    severity_number: Ints,
    severity_text: Texts,
    body: Texts,
    body_type: Texts,
    event_name: Texts,
    trace_id: Texts,
    span_id: Texts,
    flags: Longs,
    dropped: Longs,
    source: SourceColumns,
    pairs: Pairs,
    text: Vec<u8>,
}

impl Logs {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            times: Times::default(),
            observed: Longs::default(),
            severity_number: Ints::default(),
            severity_text: Texts::default(),
            body: Texts::default(),
            body_type: Texts::default(),
            event_name: Texts::default(),
            trace_id: Texts::default(),
            span_id: Texts::default(),
            flags: Longs::default(),
            dropped: Longs::default(),
            source: SourceColumns::new(settings),
            pairs: Pairs::default(),
            text: Vec::new(),
        }
    }

    pub fn push(&mut self, source: &Source, record: &LogRecord<'_>, repairs: &mut Repairs) {
        let (mut time, mut observed, mut severity, mut flags, mut dropped) = (0, 0, 0, 0, 0);
        let [mut severity_text, mut trace_id, mut span_id, mut event_name]: [&[u8]; 4] = [&[]; 4];
        for field in Fields::of(record.raw()) {
            let bytes = || field.bytes().unwrap_or_default();
            match field.number {
                1 => time = field.fixed64().unwrap_or(0),
                2 => severity = field.varint().unwrap_or(0) as i32,
                3 => severity_text = bytes(),
                7 => dropped = field.varint().unwrap_or(0) as u32,
                8 => flags = field.fixed32().unwrap_or(0),
                9 => trace_id = bytes(),
                10 => span_id = bytes(),
                11 => observed = field.fixed64().unwrap_or(0),
                12 => event_name = bytes(),
                _ => {}
            }
        }
        self.times.push(if time == 0 { observed } else { time }, time);
        self.observed.push(observed as i64);
        self.severity_number.push(severity);
        self.severity_text.push_unless_empty(severity_text);
        self.text.clear();
        let body_type = record
            .body()
            .map_or(kind::EMPTY, |body| write_value(&mut self.text, Some(body)));
        let has_body = body_type != kind::EMPTY;
        self.body.push_option(has_body.then_some(&self.text));
        self.body_type.push_option(has_body.then_some(&[body_type]));
        self.event_name.push_unless_empty(event_name);
        self.trace_id.push_hex(trace_id);
        self.span_id.push_hex(span_id);
        self.flags.push(flags.into());
        self.dropped.push(dropped.into());
        self.pairs.fill(attributes(record.raw(), 6), repairs);
        self.source.push(source, &self.pairs);
    }

    pub fn finish(&mut self, repaired: &mut u64) -> Result<Columns, ArrowError> {
        let mut columns = Columns::default();
        self.times.finish(&mut columns);
        columns.put(3, "observed_time_unix_nano", self.observed.finish());
        columns.put(4, "severity_number", self.severity_number.finish());
        columns.put_nullable(5, "severity_text", self.severity_text.finish(repaired));
        columns.put_nullable(6, "body", self.body.finish(repaired));
        columns.put_nullable(7, "body_type", self.body_type.finish(repaired));
        columns.put_nullable(8, "event_name", self.event_name.finish(repaired));
        columns.put_nullable(9, "trace_id", self.trace_id.finish(repaired));
        columns.put_nullable(10, "span_id", self.span_id.finish(repaired));
        columns.put(11, "flags", self.flags.finish());
        columns.put(73, "dropped_attributes_count", self.dropped.finish());
        self.source.finish(&mut columns, repaired)?;
        Ok(columns)
    }
}
