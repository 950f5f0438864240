//! OTLP bytes to Parquet: walk a request, push rows into columns, write columns into a file.
//!
//! In the order of a row's way: `walk` reads requests, `source`, `attributes`, `scalar`, `keys` and `json` what their rows are made of;
//! `logs`, `spans`, `metrics` and `points` are the tables; `column`, `number` and `text` have what they are made of, with `interned` and
//! `dictionary` for texts that come again and `plain` for those that do not; `file` writes them, with `pages`, or the parquet crate's own writer, before which `sorted` may have rows wait.

mod attributes;
mod column;
mod dictionary;
mod file;
mod interned;
mod json;
mod keys;
mod logs;
mod metrics;
mod number;
mod pages;
mod plain;
mod plan;
mod points;
mod promote;
mod scalar;
mod seen;
mod sorted;
mod source;
mod spans;
mod table;
mod text;
mod times;
mod validity;
mod walk;

#[cfg(test)]
pub(crate) mod repairs;
#[cfg(test)]
mod tests;

use std::io::Write;

use sluice_wire::{Kind, Request};

pub use attributes::Repairs;
pub(crate) use file::TableFile;
pub use file::{FileSettings, PageEncoder};
pub use promote::{ColumnType, Level, Promotion};
pub(crate) use table::Rows;
pub use table::Table;
pub(crate) use walk::{Sink, Walker};

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The file refuses: disk full, mostly.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The Parquet library refuses.
    #[error("{0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// The Arrow library refuses.
    #[error("{0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A fault of sluice's own.
    #[error("{0}; please report this")]
    Internal(&'static str),
}

/// Writes requests into one file of one table, whatever the hour of their items. For tools, benches and tests; the
/// exporter lays rows out by hour.
#[derive(Debug)]
pub struct Encoder<W: Write + Send> {
    kind: Kind,
    walker: Walker,
    file: OneFile<W>,
}

#[derive(Debug)]
struct OneFile<W: Write + Send> {
    table: Table,
    file: TableFile<W>,
    /// Where rows of other tables go: nowhere.
    elsewhere: Option<Box<Rows>>,
    settings: FileSettings,
    repairs: Repairs,
}

impl<W: Write + Send> Sink for OneFile<W> {
    fn open(&mut self, table: Table, _: u64, bytes: usize) -> Result<&mut Rows, EncodeError> {
        if table == self.table {
            return self.file.room(bytes, &mut self.repairs);
        }
        let rows = Rows::new(table, &self.settings);
        Ok(self.elsewhere.insert(Box::new(rows)))
    }
}

impl<W: Write + Send> Encoder<W> {
    /// A file of `table` that is written to `out`.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(table: Table, settings: &FileSettings, out: W) -> Result<Self, EncodeError> {
        Ok(Self {
            kind: match table {
                Table::Logs => Kind::Logs,
                Table::Spans => Kind::Traces,
                _ => Kind::Metrics,
            },
            walker: Walker::default(),
            file: OneFile {
                table,
                file: TableFile::new(table, settings, out)?,
                elsewhere: None,
                settings: settings.clone(),
                repairs: Repairs::default(),
            },
        })
    }

    /// Adds the items of an `Export*ServiceRequest` that belong to the table.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn push(&mut self, request: &[u8]) -> Result<(), EncodeError> {
        self.walker
            .walk(&Request::new(self.kind, request), &mut self.file)?;
        Ok(())
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.file.file.rows()
    }

    /// Ends the file; what had to be repaired for it to be readable.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<(W, Repairs), EncodeError> {
        let out = self.file.file.finish(&mut self.file.repairs)?;
        self.file.repairs.add(self.walker.take_repairs());
        Ok((out, self.file.repairs))
    }
}
