//! Attributes that have a column of their own, beside their place in the map.

use super::attributes::{Attribute, Pairs, kind};
use super::column::{Columns, Ending};
use super::file::FileSettings;
use super::keys::{Keys, REMEMBERED};
use super::number::{Booleans, Doubles, Longs};
use super::text::Texts;

/// Where an attribute is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// The resource.
    #[default]
    Resource,
    /// The instrumentation scope.
    Scope,
    /// The log record, span or data point.
    Record,
}

/// What a promoted column holds. A value of another type leaves it empty; the map has it all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColumnType {
    /// Strings.
    #[default]
    String,
    /// 64-bit integers.
    Int,
    /// Doubles.
    Double,
    /// Booleans.
    Bool,
}

/// An attribute that gets a column of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promotion {
    /// The attribute's key.
    pub attribute: String,
    /// Where it is looked for.
    pub level: Level,
    /// What the column holds.
    pub column_type: ColumnType,
    /// The column's name.
    pub column: String,
}

#[derive(Debug)]
enum Values {
    String(Texts),
    Int(Longs),
    Double(Doubles),
    Bool(Booleans),
}

#[derive(Debug)]
struct Promoted {
    promotion: Promotion,
    id: i32,
    values: Values,
    /// The next column of the same attribute: it may have several, of different types.
    next: Option<u32>,
}

/// The promoted columns of a table.
#[derive(Debug)]
pub(crate) struct PromotedColumns {
    columns: Vec<Promoted>,
    /// Of each level and number of one of the first keys: the first of its columns. Void when `generation` is not that of the keys.
    first: [Vec<First>; 3],
    generation: u64,
}

/// The first column of a key.
#[derive(Debug, Clone, Copy)]
enum First {
    Unknown,
    None,
    At(u32),
}

/// Field ids of promoted columns begin here; the rest of it is made of the name, so that it does not change with the
/// order of the configuration.
const FIRST_ID: u32 = 10_000_000;

fn field_id(column: &str) -> i32 {
    let hash = crc32c::crc32c(column.as_bytes());
    (FIRST_ID + hash % (i32::MAX as u32 - FIRST_ID)) as i32
}

impl PromotedColumns {
    pub fn new(settings: &FileSettings) -> Self {
        let promotions = &settings.promotions;
        let alike =
            |one: &Promotion, other: &Promotion| one.level == other.level && one.attribute == other.attribute;
        let column = |(index, promotion): (usize, &Promotion)| Promoted {
            id: field_id(&promotion.column),
            values: match promotion.column_type {
                ColumnType::String => Values::String(match promotion.level {
                    Level::Record => Texts::new(settings),
                    Level::Resource | Level::Scope => Texts::shared(settings),
                }),
                ColumnType::Int => Values::Int(Longs::default()),
                ColumnType::Double => Values::Double(Doubles::default()),
                ColumnType::Bool => Values::Bool(Booleans::default()),
            },
            next: (index + 1..promotions.len())
                .find(|next| alike(&promotions[*next], promotion))
                .map(|next| next as u32),
            promotion: promotion.clone(),
        };
        Self {
            columns: promotions.iter().enumerate().map(column).collect(),
            first: Default::default(),
            generation: 0,
        }
    }

    /// Takes the values of a row, or of a run of rows, whose columns have `rows` values by now. Columns without a value are left
    /// as they are; those of a level are always pushed with the same count.
    pub fn push(&mut self, level: Level, pairs: &Pairs<'_>, keys: &Keys, rows: usize) {
        if self.columns.is_empty() {
            return;
        }
        if self.generation != keys.generation() {
            self.first = Default::default();
            self.generation = keys.generation();
        }
        for attribute in pairs.iter() {
            let first = match self.first[level as usize].get(attribute.key as usize) {
                None | Some(First::Unknown) => self.find(level, attribute.key, keys),
                Some(known) => *known,
            };
            let mut next = match first {
                First::At(first) => Some(first),
                First::Unknown | First::None => None,
            };
            while let Some(at) = next {
                let column = &mut self.columns[at as usize];
                column.values.push(rows, attribute);
                next = column.next;
            }
        }
    }

    #[cold]
    fn find(&mut self, level: Level, key: u32, keys: &Keys) -> First {
        let of = |column: &Promoted| {
            column.promotion.level == level && column.promotion.attribute.as_bytes() == keys.text(key)
        };
        let found = self.columns.iter().position(of);
        let found = found.map_or(First::None, |at| First::At(at as u32));
        let first = &mut self.first[level as usize];
        if first.len() <= key as usize && (key as usize) < REMEMBERED {
            first.resize(key as usize + 1, First::Unknown);
        }
        if let Some(first) = first.get_mut(key as usize) {
            *first = found;
        }
        found
    }

    #[cfg(test)]
    pub fn remembered_keys(&self) -> usize {
        self.first.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Puts the columns, of `rows` rows in `runs` runs.
    pub fn finish(&mut self, columns: &mut Columns, runs: usize, rows: usize, ending: &mut Ending) {
        for column in &mut self.columns {
            let name = &column.promotion.column;
            let id = column.id;
            let mut put = |columns: &mut Columns, rows| {
                column.values.pad(rows);
                match &mut column.values {
                    Values::String(values) => columns.put_nullable(id, name, values.finish(ending)),
                    Values::Int(values) => columns.put_nullable(id, name, values.finish()),
                    Values::Double(values) => columns.put_nullable(id, name, values.finish()),
                    Values::Bool(values) => columns.put_nullable(id, name, values.finish()),
                }
            };
            match column.promotion.level {
                Level::Record => put(columns, rows),
                Level::Resource | Level::Scope => columns.put_shared(|columns| put(columns, runs)),
            }
        }
    }
}

impl Values {
    fn pad(&mut self, rows: usize) {
        match self {
            Self::String(values) => values.pad(rows),
            Self::Int(values) => values.pad(rows),
            Self::Double(values) => values.pad(rows),
            Self::Bool(values) => values.pad(rows),
        }
    }

    /// Takes the value of an attribute of row `row`; nothing where it is of another type, and the row is padded later.
    #[inline]
    fn push(&mut self, row: usize, attribute: Attribute<'_>) {
        match (self, attribute.kind) {
            (Self::String(values), kind::STRING) => values.push_at(row, attribute.text()),
            (Self::Int(values), kind::INT) => values.push_at(row, attribute.number() as i64),
            (Self::Double(values), kind::DOUBLE) => values.push_at(row, f64::from_bits(attribute.number())),
            (Self::Bool(values), kind::BOOL) => values.push_at(row, attribute.number() != 0),
            _ => {}
        }
    }
}
