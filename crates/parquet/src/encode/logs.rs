//! The table `logs`: a row for each log record.

use sluice_wire::{Fields, LogRecord};

use super::attributes::{Reading, Repairs, kind, write_value};
use super::column::{Columns, Ending};
use super::file::FileSettings;
use super::number::{Ints, Longs};
use super::source::{Source, SourceColumns};
use super::text::Texts;
use super::times::Times;

/// A log record without its attributes, read in one pass.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    record: LogRecord<'a>,
    time: u64,
    observed: u64,
    severity_number: i32,
    severity_text: &'a [u8],
    /// The last body there is, and how many there are: they are one message.
    body: &'a [u8],
    bodies: usize,
    event_name: &'a [u8],
    trace_id: &'a [u8],
    span_id: &'a [u8],
    flags: u32,
    dropped: u32,
}

impl<'a> Record<'a> {
    /// Reads a record; its attributes are in `reading` afterwards.
    pub fn read(record: LogRecord<'a>, reading: &mut Reading<'a>) -> Self {
        let mut read = Self {
            record,
            time: 0,
            observed: 0,
            severity_number: 0,
            severity_text: &[],
            body: &[],
            bodies: 0,
            event_name: &[],
            trace_id: &[],
            span_id: &[],
            flags: 0,
            dropped: 0,
        };
        let Reading { keys, pairs, repairs } = reading;
        pairs.begin(keys);
        let mut fields = Fields::of(record.raw());
        loop {
            pairs.push_next(&mut fields, 6, keys, repairs);
            let Some(field) = fields.next() else { break };
            let bytes = || field.bytes().unwrap_or_default();
            match field.number {
                1 => read.time = field.fixed64().unwrap_or(0),
                2 => read.severity_number = field.varint().unwrap_or(0) as i32,
                3 => read.severity_text = bytes(),
                5 => {
                    read.body = bytes();
                    read.bodies += 1;
                }
                6 => {
                    if let Some(attribute) = field.bytes() {
                        pairs.push(attribute, keys, repairs);
                    }
                }
                7 => read.dropped = field.varint().unwrap_or(0) as u32,
                8 => read.flags = field.fixed32().unwrap_or(0),
                9 => read.trace_id = bytes(),
                10 => read.span_id = bytes(),
                11 => read.observed = field.fixed64().unwrap_or(0),
                12 => read.event_name = bytes(),
                _ => {}
            }
        }
        read
    }

    /// When it happened: its time, or else when it was observed.
    pub fn shown_time(&self) -> u64 {
        match self.time {
            0 => self.observed,
            time => time,
        }
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
    text: Vec<u8>,
}

impl Logs {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            times: Times::default(),
            observed: Longs::default(),
            severity_number: Ints::default(),
            severity_text: Texts::new(settings),
            body: Texts::new(settings),
            body_type: Texts::new(settings),
            event_name: Texts::new(settings),
            trace_id: Texts::unique(settings),
            span_id: Texts::unique(settings),
            flags: Longs::default(),
            dropped: Longs::default(),
            source: SourceColumns::new(settings),
            text: Vec::new(),
        }
    }

    /// Takes a record, whose attributes are in `reading`.
    pub fn push(&mut self, source: &Source<'_>, record: &Record<'_>, reading: &mut Reading<'_>) {
        self.times.push(record.shown_time(), record.time);
        self.observed.push(record.observed as i64);
        self.severity_number.push(record.severity_number);
        self.severity_text.push_unless_empty(record.severity_text);
        self.push_body(record, reading.repairs);
        self.event_name.push_unless_empty(record.event_name);
        self.trace_id.push_hex(record.trace_id);
        self.span_id.push_hex(record.span_id);
        self.flags.push(record.flags.into());
        self.dropped.push(record.dropped.into());
        self.source.push(source, reading);
    }

    fn push_body(&mut self, record: &Record<'_>, repairs: &mut Repairs) {
        let mut fields = Fields::of(record.body);
        if record.bodies == 1
            && let (Some(field), None) = (fields.next(), fields.next())
            && let (1, Some(text)) = (field.number, field.bytes())
        {
            self.body.push(text);
            self.body_type.push(&[kind::STRING]);
            return;
        }
        self.text.clear();
        let body_type = match record.bodies {
            0 => kind::EMPTY,
            _ => write_value(&mut self.text, record.record.body(), repairs),
        };
        let has_body = body_type != kind::EMPTY;
        self.body.push_option(has_body.then_some(&self.text));
        self.body_type.push_option(has_body.then_some(&[body_type]));
    }

    #[cfg(test)]
    pub fn remembered_keys(&self) -> usize {
        self.source.remembered_keys()
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = Columns::default();
        self.times.finish(&mut columns);
        columns.put(3, "observed_time_unix_nano", self.observed.finish());
        columns.put(4, "severity_number", self.severity_number.finish());
        columns.put_nullable(5, "severity_text", self.severity_text.finish(ending));
        columns.put_nullable(6, "body", self.body.finish(ending));
        columns.put_nullable(7, "body_type", self.body_type.finish(ending));
        columns.put_nullable(8, "event_name", self.event_name.finish(ending));
        columns.put_nullable(9, "trace_id", self.trace_id.finish(ending));
        columns.put_nullable(10, "span_id", self.span_id.finish(ending));
        columns.put(11, "flags", self.flags.finish());
        columns.put(73, "dropped_attributes_count", self.dropped.finish());
        self.source.finish(&mut columns, ending);
        columns
    }
}
