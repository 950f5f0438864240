//! What the rows of one resource and scope have in common, read once for all of them, and the columns it goes into.

use arrow_schema::ArrowError;
use sluice_wire::{Fields, KeyValue, ResourceItems, ScopeItems};

use super::attributes::{Pairs, Repairs, kind};
use super::column::{Columns, Longs, Maps, Texts};
use super::file::{FileSettings, PageEncoder};
use super::promote::{Level, PromotedColumns};

/// A resource and one of its scopes.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub resource: Pairs,
    pub resource_dropped: u32,
    pub resource_schema_url: Vec<u8>,
    pub scope: Pairs,
    pub scope_name: Vec<u8>,
    pub scope_version: Vec<u8>,
    pub scope_dropped: u32,
    pub scope_schema_url: Vec<u8>,
    /// Another one for each resource and scope.
    pub version: u64,
    /// Where `service.name` is among the resource's attributes, if it is there and a string.
    service_name: Option<usize>,
}

impl Source {
    pub fn set_resource(&mut self, of: &ResourceItems<'_>, repairs: &mut Repairs) {
        let resource = of.resource();
        self.resource.fill(resource.attributes(), repairs);
        self.resource_dropped = resource.dropped_attributes_count();
        set(&mut self.resource_schema_url, of.schema_url());
        self.service_name = (0..self.resource.len()).find(|index| {
            self.resource.key(*index) == b"service.name" && self.resource.types[*index] == kind::STRING
        });
    }

    pub fn set_scope(&mut self, of: &ScopeItems<'_>, repairs: &mut Repairs) {
        self.version += 1;
        let scope = of.scope();
        self.scope.fill(scope.attributes(), repairs);
        set(&mut self.scope_name, scope.name());
        set(&mut self.scope_version, scope.version());
        self.scope_dropped = scope.dropped_attributes_count();
        set(&mut self.scope_schema_url, of.schema_url());
    }

    /// Bytes a row has of it before it is encoded.
    pub fn bytes(&self) -> usize {
        self.resource.bytes() + self.scope.bytes() + self.scope_name.len() + self.resource_schema_url.len()
    }
}

fn set(to: &mut Vec<u8>, text: &str) {
    to.clear();
    to.extend_from_slice(text.as_bytes());
}

/// The attributes in field `number` of a message.
pub(crate) fn attributes(message: &[u8], number: u32) -> impl Iterator<Item = KeyValue<'_>> {
    Fields::of(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.bytes())
        .map(KeyValue::parse)
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
            service_name: Texts::default(),
            resource: Maps::default(),
            resource_dropped: Longs::default(),
            resource_schema_url: Texts::default(),
            scope_name: Texts::default(),
            scope_version: Texts::default(),
            scope: Maps::default(),
            scope_dropped: Longs::default(),
            scope_schema_url: Texts::default(),
            record: Maps::default(),
            promoted: PromotedColumns::new(&settings.promotions),
        }
    }

    #[inline]
    pub fn push(&mut self, source: &Source, record: &Pairs) {
        let shared = self.settings.encoder == PageEncoder::Own && self.version == source.version;
        match self.runs.last_mut() {
            Some(run) if shared => *run += 1,
            _ => {
                self.push_source(source);
                self.version = source.version;
                self.runs.push(1);
            }
        }
        if self.settings.maps {
            self.record.push(record);
        }
        self.promoted.push(Level::Record, record, self.rows);
        self.rows += 1;
    }

    fn push_source(&mut self, source: &Source) {
        let service_name = source.service_name.map(|index| source.resource.value(index));
        self.service_name.push_option(service_name);
        if self.settings.maps {
            self.resource.push(&source.resource);
            self.scope.push(&source.scope);
        }
        self.resource_dropped.push(source.resource_dropped.into());
        self.resource_schema_url
            .push_unless_empty(&source.resource_schema_url);
        self.scope_name.push_unless_empty(&source.scope_name);
        self.scope_version.push_unless_empty(&source.scope_version);
        self.scope_dropped.push(source.scope_dropped.into());
        self.scope_schema_url.push_unless_empty(&source.scope_schema_url);
        let run = self.runs.len();
        self.promoted.push(Level::Resource, &source.resource, run);
        self.promoted.push(Level::Scope, &source.scope, run);
    }

    pub fn finish(&mut self, columns: &mut Columns, repaired: &mut u64) -> Result<(), ArrowError> {
        let (runs, rows) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.rows));
        self.version = 0;
        columns.put_shared(|columns| self.finish_source(columns, repaired))?;
        if self.settings.maps {
            self.record
                .finish(columns, 71, "attributes", "attr_types", repaired)?;
        }
        self.promoted.finish(columns, runs.len(), rows, repaired);
        if runs.len() < rows {
            columns.runs = runs;
        }
        Ok(())
    }

    fn finish_source(&mut self, columns: &mut Columns, repaired: &mut u64) -> Result<(), ArrowError> {
        columns.put_nullable(60, "service_name", self.service_name.finish(repaired));
        if self.settings.maps {
            let (name, types) = ("resource_attributes", "resource_attr_types");
            self.resource.finish(columns, 61, name, types, repaired)?;
        }
        columns.put(
            63,
            "resource_dropped_attributes_count",
            self.resource_dropped.finish(),
        );
        columns.put_nullable(
            64,
            "resource_schema_url",
            self.resource_schema_url.finish(repaired),
        );
        columns.put_nullable(65, "scope_name", self.scope_name.finish(repaired));
        columns.put_nullable(66, "scope_version", self.scope_version.finish(repaired));
        if self.settings.maps {
            let (name, types) = ("scope_attributes", "scope_attr_types");
            self.scope.finish(columns, 67, name, types, repaired)?;
        }
        columns.put(69, "scope_dropped_attributes_count", self.scope_dropped.finish());
        columns.put_nullable(70, "scope_schema_url", self.scope_schema_url.finish(repaired));
        Ok(())
    }
}
