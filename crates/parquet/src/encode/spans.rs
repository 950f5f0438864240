//! The table `spans`: a row for each span, its events and links in lists.

use sluice_wire::{Fields, Span};

use super::attributes::Reading;
use super::column::{Columns, Data, Ending, Ends, Maps};
use super::file::FileSettings;
use super::number::{Ints, Longs};
use super::source::{Source, SourceColumns};
use super::text::Texts;
use super::times::Times;

#[derive(Debug)]
pub(crate) struct Spans {
    times: Times,
    end: Longs,
    duration: Longs,
    trace_id: Texts,
    span_id: Texts,
    parent_span_id: Texts,
    trace_state: Texts,
    name: Texts,
    kind: Ints,
    status_code: Ints,
    status_message: Texts,
    flags: Longs,
    dropped: Longs,
    events: Events,
    dropped_events: Longs,
    links: Links,
    dropped_links: Longs,
    source: SourceColumns,
}

impl Spans {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            times: Times::default(),
            end: Longs::default(),
            duration: Longs::default(),
            trace_id: Texts::unique(settings),
            span_id: Texts::unique(settings),
            parent_span_id: Texts::unique(settings),
            trace_state: Texts::new(settings),
            name: Texts::new(settings),
            kind: Ints::default(),
            status_code: Ints::default(),
            status_message: Texts::new(settings),
            flags: Longs::default(),
            dropped: Longs::default(),
            events: Events::new(settings),
            dropped_events: Longs::default(),
            links: Links::new(settings),
            dropped_links: Longs::default(),
            source: SourceColumns::new(settings),
        }
    }

    pub fn push<'a>(&mut self, source: &Source<'_>, span: &Span<'a>, reading: &mut Reading<'a>) {
        let (mut start, mut end, mut kind, mut flags) = (0u64, 0u64, 0, 0);
        let (mut dropped, mut dropped_events, mut dropped_links) = (0, 0, 0);
        let [mut trace_id, mut span_id, mut parent, mut state, mut name]: [&[u8]; 5] = [&[]; 5];
        let (mut events, mut links) = (0, 0);
        let (mut status_code, mut status_message): (i32, &[u8]) = (0, &[]);
        for field in Fields::of(span.raw()) {
            let bytes = || field.bytes().unwrap_or_default();
            let count = || field.varint().unwrap_or(0) as u32;
            match field.number {
                1 => trace_id = bytes(),
                2 => span_id = bytes(),
                3 => state = bytes(),
                4 => parent = bytes(),
                5 => name = bytes(),
                6 => kind = field.varint().unwrap_or(0) as i32,
                7 => start = field.fixed64().unwrap_or(0),
                8 => end = field.fixed64().unwrap_or(0),
                10 => dropped = count(),
                11 => {
                    self.events.push(bytes(), reading);
                    events += 1;
                }
                12 => dropped_events = count(),
                13 => {
                    self.links.push(bytes(), reading);
                    links += 1;
                }
                14 => dropped_links = count(),
                15 => {
                    for field in Fields::of(bytes()) {
                        match field.number {
                            2 => status_message = field.bytes().unwrap_or_default(),
                            3 => status_code = field.varint().unwrap_or(0) as i32,
                            _ => {}
                        }
                    }
                }
                16 => flags = field.fixed32().unwrap_or(0),
                _ => {}
            }
        }
        self.times.push(start, start);
        self.end.push(end as i64);
        self.duration.push(end.wrapping_sub(start) as i64);
        self.trace_id.push_hex(trace_id);
        self.span_id.push_hex(span_id);
        self.parent_span_id.push_hex(parent);
        self.trace_state.push_unless_empty(state);
        self.name.push(name);
        self.kind.push(kind);
        self.status_code.push(status_code);
        self.status_message.push_unless_empty(status_message);
        self.flags.push(flags.into());
        self.dropped.push(dropped.into());
        self.events.ends.push(events);
        self.dropped_events.push(dropped_events.into());
        self.links.ends.push(links);
        self.dropped_links.push(dropped_links.into());
        reading.read(span.raw(), 9);
        self.source.push(source, reading);
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = Columns::default();
        self.times.finish(&mut columns);
        columns.put(3, "end_time_unix_nano", self.end.finish());
        columns.put(4, "duration_nano", self.duration.finish());
        columns.put_nullable(9, "trace_id", self.trace_id.finish(ending));
        columns.put_nullable(10, "span_id", self.span_id.finish(ending));
        columns.put_nullable(12, "parent_span_id", self.parent_span_id.finish(ending));
        columns.put_nullable(13, "trace_state", self.trace_state.finish(ending));
        columns.put(14, "name", self.name.finish(ending));
        columns.put(15, "kind", self.kind.finish());
        columns.put(16, "status_code", self.status_code.finish());
        columns.put_nullable(17, "status_message", self.status_message.finish(ending));
        columns.put(11, "flags", self.flags.finish());
        self.events.finish(&mut columns, ending);
        columns.put(20, "dropped_events_count", self.dropped_events.finish());
        self.links.finish(&mut columns, ending);
        columns.put(22, "dropped_links_count", self.dropped_links.finish());
        columns.put(73, "dropped_attributes_count", self.dropped.finish());
        self.source.finish(&mut columns, ending);
        columns
    }
}

#[derive(Debug)]
struct Events {
    ends: Ends,
    time: Longs,
    name: Texts,
    attributes: Maps,
    dropped: Longs,
}

impl Events {
    fn new(settings: &FileSettings) -> Self {
        Self {
            ends: Ends::default(),
            time: Longs::default(),
            name: Texts::in_lists(settings),
            attributes: Maps::in_lists(settings),
            dropped: Longs::default(),
        }
    }

    fn push<'a>(&mut self, event: &'a [u8], reading: &mut Reading<'a>) {
        let (mut time, mut dropped, mut name): (u64, u32, &[u8]) = (0, 0, &[]);
        for field in Fields::of(event) {
            match field.number {
                1 => time = field.fixed64().unwrap_or(0),
                2 => name = field.bytes().unwrap_or_default(),
                4 => dropped = field.varint().unwrap_or(0) as u32,
                _ => {}
            }
        }
        self.time.push(time as i64);
        self.name.push(name);
        self.dropped.push(dropped.into());
        reading.read(event, 3);
        self.attributes.push(&reading.pairs, reading.keys);
    }

    fn finish(&mut self, columns: &mut Columns, ending: &mut Ending) {
        let mut event = Columns::default();
        event.put(1901, "time_unix_nano", self.time.finish());
        event.put(1902, "name", self.name.finish(ending));
        self.attributes
            .finish(&mut event, 1903, "attributes", "attr_types", ending);
        event.put(1905, "dropped_attributes_count", self.dropped.finish());
        columns.put(19, "events", self.ends.lists(19_00, Data::Structs(event)));
    }
}

#[derive(Debug)]
struct Links {
    ends: Ends,
    trace_id: Texts,
    span_id: Texts,
    trace_state: Texts,
    attributes: Maps,
    dropped: Longs,
    flags: Longs,
}

impl Links {
    fn new(settings: &FileSettings) -> Self {
        Self {
            ends: Ends::default(),
            trace_id: Texts::in_lists(settings),
            span_id: Texts::in_lists(settings),
            trace_state: Texts::in_lists(settings),
            attributes: Maps::in_lists(settings),
            dropped: Longs::default(),
            flags: Longs::default(),
        }
    }

    fn push<'a>(&mut self, link: &'a [u8], reading: &mut Reading<'a>) {
        let (mut dropped, mut flags) = (0u32, 0u32);
        let (mut trace_id, mut span_id, mut state): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        for field in Fields::of(link) {
            let bytes = || field.bytes().unwrap_or_default();
            match field.number {
                1 => trace_id = bytes(),
                2 => span_id = bytes(),
                3 => state = bytes(),
                5 => dropped = field.varint().unwrap_or(0) as u32,
                6 => flags = field.fixed32().unwrap_or(0),
                _ => {}
            }
        }
        self.trace_id.push_hex(trace_id);
        self.span_id.push_hex(span_id);
        self.trace_state.push_unless_empty(state);
        self.dropped.push(dropped.into());
        self.flags.push(flags.into());
        reading.read(link, 4);
        self.attributes.push(&reading.pairs, reading.keys);
    }

    fn finish(&mut self, columns: &mut Columns, ending: &mut Ending) {
        let mut link = Columns::default();
        link.put_nullable(2101, "trace_id", self.trace_id.finish(ending));
        link.put_nullable(2102, "span_id", self.span_id.finish(ending));
        link.put_nullable(2103, "trace_state", self.trace_state.finish(ending));
        self.attributes
            .finish(&mut link, 2104, "attributes", "attr_types", ending);
        link.put(2106, "dropped_attributes_count", self.dropped.finish());
        link.put(2107, "flags", self.flags.finish());
        columns.put(21, "links", self.ends.lists(21_00, Data::Structs(link)));
    }
}
