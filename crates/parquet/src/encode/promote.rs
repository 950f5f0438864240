//! Attributes that have a column of their own, beside their place in the map.

use arrow_array::types::{Float64Type, Int64Type};

use super::attributes::{Pairs, kind};
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
    /// Where it was the last time: rows of one source have their attributes in one order.
    hint: usize,
    values: Values,
}

/// The promoted columns of a table.
#[derive(Debug)]
pub(crate) struct PromotedColumns(Vec<Promoted>);

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
            hint: 0,
            values: match promotion.column_type {
                ColumnType::String => Values::String(Texts::default()),
                ColumnType::Int => Values::Int(Numbers::default()),
                ColumnType::Double => Values::Double(Numbers::default()),
                ColumnType::Bool => Values::Bool(Booleans::default()),
            },
            promotion: promotion.clone(),
        };
        Self(promotions.iter().map(column).collect())
    }

    pub fn push(&mut self, resource: &Pairs, scope: &Pairs, record: &Pairs) {
        for column in &mut self.0 {
            let pairs = match column.promotion.level {
                Level::Resource => resource,
                Level::Scope => scope,
                Level::Record => record,
            };
            let key = column.promotion.attribute.as_bytes();
            let found = if column.hint < pairs.len() && pairs.key(column.hint) == key {
                Some(column.hint)
            } else {
                (0..pairs.len()).find(|index| pairs.key(*index) == key)
            };
            column.hint = found.unwrap_or(column.hint);
            let found = found.map(|index| (pairs.types[index], pairs.value(index)));
            let text = |letter| {
                let value = found.filter(|(kind, _)| *kind == letter)?;
                std::str::from_utf8(value.1).ok()
            };
            match &mut column.values {
                Values::String(values) => {
                    let value = found.filter(|(of, _)| *of == kind::STRING);
                    values.push_option(value.map(|(_, value)| value));
                }
                Values::Int(values) => values.push_option(text(kind::INT).and_then(|text| text.parse().ok())),
                Values::Double(values) => {
                    values.push_option(text(kind::DOUBLE).and_then(|text| text.parse().ok()));
                }
                Values::Bool(values) => values.push_option(text(kind::BOOL).map(|text| text == "true")),
            }
        }
    }

    pub fn finish(&mut self, columns: &mut Columns, repaired: &mut u64) {
        for column in &mut self.0 {
            let name = &column.promotion.column;
            match &mut column.values {
                Values::String(values) => columns.put_nullable(column.id, name, values.finish(repaired)),
                Values::Int(values) => columns.put_nullable(column.id, name, values.finish()),
                Values::Double(values) => columns.put_nullable(column.id, name, values.finish()),
                Values::Bool(values) => columns.put_nullable(column.id, name, values.finish()),
            }
        }
    }
}
