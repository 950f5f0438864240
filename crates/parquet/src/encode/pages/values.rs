//! The numbers of one page, without what is null.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

/// What values are gathered into where they do not lie as they are needed.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    numbers: Vec<i64>,
}

/// The values of a leaf array, integers and booleans as they are, doubles as their bits; none for a type that no table has.
pub(crate) fn of<'a>(array: &'a dyn Array, gathered: &'a mut Gathered) -> Option<&'a [i64]> {
    Some(match array.data_type() {
        DataType::Int64 => longs::<Int64Type>(array, gathered),
        DataType::Timestamp(TimeUnit::Microsecond, _) => longs::<TimestampMicrosecondType>(array, gathered),
        DataType::Int32 => gather(
            array.as_primitive::<Int32Type>().values(),
            array.nulls(),
            gathered,
            i64::from,
        ),
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            gather(values, array.nulls(), gathered, |value| value.to_bits() as i64)
        }
        DataType::Boolean => {
            let values = array.as_boolean().values();
            gathered.numbers.clear();
            match array.nulls() {
                Some(nulls) => gathered
                    .numbers
                    .extend(nulls.valid_indices().map(|index| i64::from(values.value(index)))),
                None => gathered.numbers.extend(values.iter().map(i64::from)),
            }
            &gathered.numbers
        }
        _ => return None,
    })
}

fn longs<'a, T: ArrowPrimitiveType<Native = i64>>(
    array: &'a dyn Array,
    gathered: &'a mut Gathered,
) -> &'a [i64] {
    let values = array.as_primitive::<T>().values();
    match array.nulls() {
        Some(_) => gather(values, array.nulls(), gathered, |value| value),
        None => values,
    }
}

fn gather<'a, T: Copy>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    gathered: &'a mut Gathered,
    number: impl Fn(T) -> i64,
) -> &'a [i64] {
    gathered.numbers.clear();
    match nulls {
        Some(nulls) => gathered
            .numbers
            .extend(nulls.valid_indices().map(|index| number(values[index]))),
        None => gathered.numbers.extend(values.iter().map(|value| number(*value))),
    }
    &gathered.numbers
}
