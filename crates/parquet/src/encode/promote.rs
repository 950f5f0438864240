//! Attributes that have a column of their own, beside their place in the map.

use arrow_array::types::{Float64Type, Int64Type};

use super::attributes::{Pairs, fingerprint, kind};
use super::column::{Booleans, Columns, Numbers, Texts};

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
    Int(Numbers<Int64Type>),
    Double(Numbers<Float64Type>),
    Bool(Booleans),
}

#[derive(Debug)]
struct Promoted {
    promotion: Promotion,
    id: i32,
    values: Values,
}

/// The promoted columns of a table.
#[derive(Debug)]
pub(crate) struct PromotedColumns {
    columns: Vec<Promoted>,
    /// Where the columns of a key are found: its fingerprint, and the column's place plus one. A power of two, half full at
    /// most; none without columns.
    slots: Vec<(u64, usize)>,
}

/// Field ids of promoted columns begin here; the rest of it is made of the name, so that it does not change with the
/// order of the configuration.
const FIRST_ID: u32 = 10_000_000;

fn field_id(column: &str) -> i32 {
    let hash = crc32c::crc32c(column.as_bytes());
    (FIRST_ID + hash % (i32::MAX as u32 - FIRST_ID)) as i32
}

impl PromotedColumns {
    pub fn new(promotions: &[Promotion]) -> Self {
        let column = |promotion: &Promotion| Promoted {
            id: field_id(&promotion.column),
            values: match promotion.column_type {
                ColumnType::String => Values::String(Texts::default()),
                ColumnType::Int => Values::Int(Numbers::default()),
                ColumnType::Double => Values::Double(Numbers::default()),
                ColumnType::Bool => Values::Bool(Booleans::default()),
            },
            promotion: promotion.clone(),
        };
        let size = match promotions.len() {
            0 => 0,
            count => (count * 2).next_power_of_two(),
        };
        let mut slots = vec![(0, 0); size];
        for (index, promotion) in promotions.iter().enumerate() {
            let fingerprint = fingerprint(promotion.attribute.as_bytes());
            let mut slot = fingerprint as usize & (size - 1);
            while slots[slot].1 > 0 {
                slot = (slot + 1) & (size - 1);
            }
            slots[slot] = (fingerprint, index + 1);
        }
        Self {
            columns: promotions.iter().map(column).collect(),
            slots,
        }
    }

    /// Takes the values of a row, or of a run of rows, whose columns have `rows` values by now. Columns without a value are left
    /// as they are; those of a level are always pushed with the same count.
    pub fn push(&mut self, level: Level, pairs: &Pairs, rows: usize) {
        let Some(mask) = self.slots.len().checked_sub(1) else {
            return;
        };
        for (index, fingerprint) in pairs.fingerprints.iter().enumerate() {
            let mut slot = *fingerprint as usize & mask;
            // An attribute may have several columns, of different types.
            while let (of, place @ 1..) = self.slots[slot] {
                slot = (slot + 1) & mask;
                let column = &mut self.columns[place - 1];
                if of == *fingerprint
                    && column.promotion.level == level
                    && column.promotion.attribute.as_bytes() == pairs.key(index)
                {
                    column.values.pad(rows);
                    column.values.push(pairs.types[index], pairs.value(index));
                }
            }
        }
    }

    /// Puts the columns, of `rows` rows in `runs` runs.
    pub fn finish(&mut self, columns: &mut Columns, runs: usize, rows: usize, repaired: &mut u64) {
        for column in &mut self.columns {
            let name = &column.promotion.column;
            let id = column.id;
            let mut put = |columns: &mut Columns, rows| {
                column.values.pad(rows);
                match &mut column.values {
                    Values::String(values) => columns.put_nullable(id, name, values.finish(repaired)),
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

    /// Takes the value of an attribute of some type, as its text.
    fn push(&mut self, of: u8, value: &[u8]) {
        let text = |kind| std::str::from_utf8(value).ok().filter(|_| of == kind);
        match self {
            Self::String(values) => values.push_option((of == kind::STRING).then_some(value)),
            Self::Int(values) => values.push_option(text(kind::INT).and_then(|text| text.parse().ok())),
            Self::Double(values) => values.push_option(text(kind::DOUBLE).and_then(|text| text.parse().ok())),
            Self::Bool(values) => values.push_option(text(kind::BOOL).map(|text| text == "true")),
        }
    }
}
