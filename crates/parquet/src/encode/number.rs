//! Columns of numbers and booleans as they grow.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

use super::column::Data;
use super::validity::Validity;

/// What the 64 bits of a number are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberType {
    Int,
    Long,
    Double,
    Bool,
    /// Microseconds since 1970.
    Time,
}

/// A number that has 64 bits.
pub(crate) trait Number: Copy {
    const TYPE: NumberType;

    /// Integers and booleans as they are, doubles as their bits.
    fn bits(self) -> i64;
}

impl Number for i32 {
    const TYPE: NumberType = NumberType::Int;

    fn bits(self) -> i64 {
        self.into()
    }
}

impl Number for i64 {
    const TYPE: NumberType = NumberType::Long;

    fn bits(self) -> i64 {
        self
    }
}

impl Number for f64 {
    const TYPE: NumberType = NumberType::Double;

    fn bits(self) -> i64 {
        self.to_bits() as i64
    }
}

impl Number for bool {
    const TYPE: NumberType = NumberType::Bool;

    fn bits(self) -> i64 {
        self.into()
    }
}

/// Numbers, some of which may be absent.
#[derive(Debug)]
pub(crate) struct Numbers<T: Number> {
    values: Vec<i64>,
    validity: Validity,
    of: PhantomData<T>,
}

pub(crate) type Longs = Numbers<i64>;
pub(crate) type Ints = Numbers<i32>;
pub(crate) type Doubles = Numbers<f64>;
pub(crate) type Booleans = Numbers<bool>;

/// A batch of numbers.
#[derive(Debug)]
pub(crate) struct NumberColumn {
    of: NumberType,
    /// Without those that are null.
    pub values: Vec<i64>,
    pub nulls: Option<NullBuffer>,
}

impl<T: Number> Default for Numbers<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            validity: Validity::default(),
            of: PhantomData,
        }
    }
}

impl<T: Number> Numbers<T> {
    #[inline]
    pub fn push(&mut self, value: T) {
        self.values.push(value.bits());
        self.validity.push_present();
    }

    #[inline]
    pub fn push_option(&mut self, value: Option<T>) {
        match value {
            Some(value) => self.push(value),
            None => self.validity.push_absent(),
        }
    }

    /// Adds the number of row `row`; those from here up to it are absent.
    #[inline]
    pub fn push_at(&mut self, row: usize, value: T) {
        self.values.push(value.bits());
        self.validity.push_present_at(row);
    }

    /// Adds what is absent up to `rows`.
    #[inline]
    pub fn pad(&mut self, rows: usize) {
        self.validity.pad(rows);
    }

    /// The column; no rows are left.
    pub fn finish(&mut self) -> Data {
        self.finish_as(T::TYPE)
    }

    /// The column, of numbers that are something else.
    pub fn finish_as(&mut self, of: NumberType) -> Data {
        let room = self.values.len();
        Data::Numbers(NumberColumn {
            of,
            values: std::mem::replace(&mut self.values, Vec::with_capacity(room)),
            nulls: self.validity.finish(),
        })
    }
}

impl NumberColumn {
    pub fn data_type(&self) -> DataType {
        match self.of {
            NumberType::Int => DataType::Int32,
            NumberType::Long => DataType::Int64,
            NumberType::Double => DataType::Float64,
            NumberType::Bool => DataType::Boolean,
            NumberType::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    pub fn into_array(self) -> ArrayRef {
        match self.of {
            NumberType::Int => Arc::new(self.primitive::<Int32Type>(|bits| bits as i32)),
            NumberType::Long => Arc::new(self.primitive::<Int64Type>(|bits| bits)),
            NumberType::Double => Arc::new(self.primitive::<Float64Type>(|bits| f64::from_bits(bits as u64))),
            NumberType::Bool => {
                let values = self.spread(|bits| bits != 0);
                Arc::new(BooleanArray::new(values.into(), self.nulls))
            }
            NumberType::Time => {
                let times = self.primitive::<TimestampMicrosecondType>(|bits| bits);
                Arc::new(times.with_timezone("UTC"))
            }
        }
    }

    fn primitive<T: ArrowPrimitiveType>(self, number: impl Fn(i64) -> T::Native) -> PrimitiveArray<T> {
        PrimitiveArray::new(self.spread(number).into(), self.nulls)
    }

    /// One for each row, whatever for those that are null.
    fn spread<N: Default + Clone>(&self, number: impl Fn(i64) -> N) -> Vec<N> {
        let numbers = self.values.iter().map(|bits| number(*bits));
        match &self.nulls {
            None => numbers.collect(),
            Some(nulls) => {
                let mut all = vec![N::default(); nulls.len()];
                nulls
                    .valid_indices()
                    .zip(numbers)
                    .for_each(|(row, number)| all[row] = number);
                all
            }
        }
    }
}
