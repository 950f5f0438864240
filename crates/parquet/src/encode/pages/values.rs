//! The values of one page, without what is null.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrowPrimitiveType, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

/// Values of a leaf of the schema.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    Texts(Texts<'a>),
    /// Integers and booleans as they are, doubles as their bits.
    Numbers(&'a [i64]),
}

/// Texts that lie one after the other.
#[derive(Debug)]
pub(crate) struct Texts<'a> {
    bytes: &'a [u8],
    /// Where each begins, and where the last one ends.
    offsets: &'a [i32],
}

impl Values<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.offsets.len() - 1,
            Self::Numbers(numbers) => numbers.len(),
        }
    }
}

impl<'a> Texts<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.offsets
            .windows(2)
            .map(move |pair| &bytes[pair[0] as usize..pair[1] as usize])
    }

    /// Appends each with its length before it.
    pub fn put_plain(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes.len() + 4 * self.offsets.len());
        for text in self.iter() {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        }
    }
}

impl Texts<'_> {
    /// Appends those at these places, as [`Texts::put_plain`] does.
    pub fn put_plain_of(&self, places: &[u32], out: &mut Vec<u8>) {
        for place in places {
            let place = *place as usize;
            let text = &self.bytes[self.offsets[place] as usize..self.offsets[place + 1] as usize];
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        }
    }
}

/// What values are gathered into where they do not lie as they are needed.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    numbers: Vec<i64>,
    offsets: Vec<i32>,
}

/// The values of a leaf array; none for a type that no table has.
pub(crate) fn of<'a>(array: &'a dyn Array, gathered: &'a mut Gathered) -> Option<Values<'a>> {
    Some(match array.data_type() {
        DataType::Utf8 => Values::Texts(texts(array.as_string(), gathered)),
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
            Values::Numbers(&gathered.numbers)
        }
        _ => return None,
    })
}

fn longs<'a, T: ArrowPrimitiveType<Native = i64>>(
    array: &'a dyn Array,
    gathered: &'a mut Gathered,
) -> Values<'a> {
    let values = array.as_primitive::<T>().values();
    match array.nulls() {
        Some(_) => gather(values, array.nulls(), gathered, |value| value),
        None => Values::Numbers(values),
    }
}

fn gather<'a, T: Copy>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    gathered: &'a mut Gathered,
    number: impl Fn(T) -> i64,
) -> Values<'a> {
    gathered.numbers.clear();
    match nulls {
        Some(nulls) => gathered
            .numbers
            .extend(nulls.valid_indices().map(|index| number(values[index]))),
        None => gathered.numbers.extend(values.iter().map(|value| number(*value))),
    }
    Values::Numbers(&gathered.numbers)
}

fn texts<'a>(array: &'a StringArray, gathered: &'a mut Gathered) -> Texts<'a> {
    let (bytes, offsets) = (array.value_data(), array.value_offsets());
    let Some(nulls) = array.nulls() else {
        return Texts { bytes, offsets };
    };
    // What is null has no bytes in the row builders, so the texts that are left still lie one after the other.
    gathered.offsets.clear();
    gathered.offsets.push(offsets[0]);
    gathered
        .offsets
        .extend(nulls.valid_indices().map(|index| offsets[index + 1]));
    Texts {
        bytes,
        offsets: &gathered.offsets,
    }
}
