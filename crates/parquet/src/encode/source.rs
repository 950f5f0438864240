//! What the rows of one resource and scope have in common, read once for all of them, and the columns it goes into.

use sluice_wire::{Fields, ResourceItems, ScopeItems};

use super::attributes::{Pairs, Reading, Repairs, push_text};
use super::column::{Columns, Ending, Maps};
use super::file::{FileSettings, PageEncoder};
use super::keys::Keys;
use super::number::Longs;
use super::promote::{Level, PromotedColumns};
use super::text::Texts;

/// A resource and one of its scopes.
#[derive(Debug, Default)]
pub(crate) struct Source<'a> {
    pub resource: Pairs<'a>,
    pub resource_dropped: u32,
    pub resource_schema_url: Vec<u8>,
    pub scope: Pairs<'a>,
    pub scope_name: Vec<u8>,
    pub scope_version: Vec<u8>,
    pub scope_dropped: u32,
    pub scope_schema_url: Vec<u8>,
    /// Another one for each resource and scope.
    pub version: u64,
}

impl<'a> Source<'a> {
    pub fn set_resource(&mut self, of: &ResourceItems<'a>, keys: &mut Keys, repairs: &mut Repairs) {
        keys.begin_resource();
        self.resource.begin(keys);
        self.resource_dropped = 0;
        self.resource_schema_url.clear();
        for field in Fields::of(of.raw()) {
            match (field.number, field.bytes()) {
                // A message that comes several times is one.
                (1, Some(resource)) => {
                    let mut fields = Fields::of(resource);
                    loop {
                        self.resource.push_next(&mut fields, 1, keys, repairs);
                        let Some(field) = fields.next() else { break };
                        match (field.number, field.bytes()) {
                            (1, Some(attribute)) => self.resource.push(attribute, keys, repairs),
                            (2, None) => self.resource_dropped = field.varint().unwrap_or(0) as u32,
                            _ => {}
                        }
                    }
                }
                (3, Some(url)) => set(&mut self.resource_schema_url, url, repairs),
                _ => {}
            }
        }
    }

    pub fn set_scope(&mut self, of: &ScopeItems<'a>, keys: &mut Keys, repairs: &mut Repairs) {
        self.version += 1;
        self.scope.begin(keys);
        self.scope_dropped = 0;
        for text in [
            &mut self.scope_name,
            &mut self.scope_version,
            &mut self.scope_schema_url,
        ] {
            text.clear();
        }
        for field in Fields::of(of.raw()) {
            match (field.number, field.bytes()) {
                (1, Some(scope)) => {
                    for field in Fields::of(scope) {
                        match (field.number, field.bytes()) {
                            (1, Some(name)) => set(&mut self.scope_name, name, repairs),
                            (2, Some(version)) => set(&mut self.scope_version, version, repairs),
                            (3, Some(attribute)) => self.scope.push(attribute, keys, repairs),
                            (4, None) => self.scope_dropped = field.varint().unwrap_or(0) as u32,
                            _ => {}
                        }
                    }
                }
                (3, Some(url)) => set(&mut self.scope_schema_url, url, repairs),
                _ => {}
            }
        }
    }

    /// Empty, for another request.
    pub fn emptied<'b>(self) -> Source<'b> {
        Source {
            resource: self.resource.emptied(),
            resource_dropped: self.resource_dropped,
            resource_schema_url: self.resource_schema_url,
            scope: self.scope.emptied(),
            scope_name: self.scope_name,
            scope_version: self.scope_version,
            scope_dropped: self.scope_dropped,
            scope_schema_url: self.scope_schema_url,
            version: self.version,
        }
    }

    /// Bytes a row has of it before it is encoded.
    pub fn bytes(&self) -> usize {
        self.resource.bytes()
            + self.scope.bytes()
            + self.resource_schema_url.len()
            + self.scope_name.len()
            + self.scope_version.len()
            + self.scope_schema_url.len()
    }
}

/// Takes a text, mended where it is not UTF-8.
pub(crate) fn set(to: &mut Vec<u8>, text: &[u8], repairs: &mut Repairs) {
    to.clear();
    push_text(to, text, repairs);
}

/// The columns that every table ends with. Those of resource and scope have a value for each run of rows from one
/// source where the page encoder is our own, and for each row where it is not.
#[derive(Debug)]
pub(crate) struct SourceColumns {
    settings: FileSettings,
    /// The source of the last row, 0 before the first one.
    version: u64,
    runs: Vec<u32>,
    rows: usize,
    service_name: Texts,
    resource: Maps,
    resource_dropped: Longs,
    resource_schema_url: Texts,
    scope_name: Texts,
    scope_version: Texts,
    scope: Maps,
    scope_dropped: Longs,
    scope_schema_url: Texts,
    record: Maps,
    promoted: PromotedColumns,
}

impl SourceColumns {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            settings: settings.clone(),
            version: 0,
            runs: Vec::new(),
            rows: 0,
            service_name: Texts::shared(settings),
            resource: Maps::shared(settings),
            resource_dropped: Longs::default(),
            resource_schema_url: Texts::shared(settings),
            scope_name: Texts::shared(settings),
            scope_version: Texts::shared(settings),
            scope: Maps::shared(settings),
            scope_dropped: Longs::default(),
            scope_schema_url: Texts::shared(settings),
            record: Maps::new(settings),
            promoted: PromotedColumns::new(settings),
        }
    }

    #[inline]
    pub fn push(&mut self, source: &Source<'_>, reading: &Reading<'_>) {
        let Reading { keys, pairs, .. } = reading;
        let shared = self.settings.page_encoder() == PageEncoder::Own && self.version == source.version;
        match self.runs.last_mut() {
            Some(run) if shared => *run += 1,
            _ => {
                self.push_source(source, keys);
                self.version = source.version;
                self.runs.push(1);
            }
        }
        if self.settings.maps {
            self.record.push(pairs, keys);
        }
        self.promoted.push(Level::Record, pairs, keys, self.rows);
        self.rows += 1;
    }

    fn push_source(&mut self, source: &Source<'_>, keys: &Keys) {
        self.service_name.push_option(source.resource.service_name());
        if self.settings.maps {
            self.resource.push(&source.resource, keys);
            self.scope.push(&source.scope, keys);
        }
        self.resource_dropped.push(source.resource_dropped.into());
        self.resource_schema_url
            .push_unless_empty(&source.resource_schema_url);
        self.scope_name.push_unless_empty(&source.scope_name);
        self.scope_version.push_unless_empty(&source.scope_version);
        self.scope_dropped.push(source.scope_dropped.into());
        self.scope_schema_url.push_unless_empty(&source.scope_schema_url);
        let run = self.runs.len();
        self.promoted.push(Level::Resource, &source.resource, keys, run);
        self.promoted.push(Level::Scope, &source.scope, keys, run);
    }

    /// Of keys that columns of records have kept something of, the most.
    #[cfg(test)]
    pub fn remembered_keys(&self) -> usize {
        self.record.remembered_keys().max(self.promoted.remembered_keys())
    }

    pub fn finish(&mut self, columns: &mut Columns, ending: &mut Ending) {
        let (runs, rows) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.rows));
        self.version = 0;
        (ending.runs, ending.rows) = (runs.len(), rows);
        columns.put_shared(|columns| self.finish_source(columns, ending));
        if self.settings.maps {
            self.record
                .finish(columns, 71, "attributes", "attr_types", ending);
        }
        self.promoted.finish(columns, runs.len(), rows, ending);
        if runs.len() < rows {
            columns.runs = runs;
        }
    }

    fn finish_source(&mut self, columns: &mut Columns, ending: &mut Ending) {
        columns.put_nullable(60, "service_name", self.service_name.finish(ending));
        if self.settings.maps {
            let (name, types) = ("resource_attributes", "resource_attr_types");
            self.resource.finish(columns, 61, name, types, ending);
        }
        columns.put(
            63,
            "resource_dropped_attributes_count",
            self.resource_dropped.finish(),
        );
        columns.put_nullable(64, "resource_schema_url", self.resource_schema_url.finish(ending));
        columns.put_nullable(65, "scope_name", self.scope_name.finish(ending));
        columns.put_nullable(66, "scope_version", self.scope_version.finish(ending));
        if self.settings.maps {
            let (name, types) = ("scope_attributes", "scope_attr_types");
            self.scope.finish(columns, 67, name, types, ending);
        }
        columns.put(69, "scope_dropped_attributes_count", self.scope_dropped.finish());
        columns.put_nullable(70, "scope_schema_url", self.scope_schema_url.finish(ending));
    }
}
