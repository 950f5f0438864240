//! Columns as they grow, row by row: plain buffers that become Arrow arrays without being copied.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field, FieldRef, Fields};

use super::attributes::Pairs;

/// A field with its Parquet field id, by which readers of table formats know a column whatever its name.
pub(crate) fn field(id: i32, name: &str, array: &dyn Array, nullable: bool) -> Field {
    let key = parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned();
    let metadata = std::collections::HashMap::from([(key, id.to_string())]);
    Field::new(name, array.data_type().clone(), nullable).with_metadata(metadata)
}

/// The columns of a table, in order, each with its name and field id.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub fields: Vec<FieldRef>,
    pub arrays: Vec<ArrayRef>,
    /// Of each column: whether it has a value for each run of rows, rather than for each row.
    pub shared: Vec<bool>,
    /// Rows of each run. Empty where all are of one row.
    pub runs: Vec<u32>,
    /// Whether columns that are put now are shared.
    sharing: bool,
}

impl Columns {
    pub fn put(&mut self, id: i32, name: &str, array: impl Array + 'static) {
        self.push(id, name, array, false);
    }

    pub fn put_nullable(&mut self, id: i32, name: &str, array: impl Array + 'static) {
        self.push(id, name, array, true);
    }

    fn push(&mut self, id: i32, name: &str, array: impl Array + 'static, nullable: bool) {
        self.fields.push(Arc::new(field(id, name, &array, nullable)));
        self.arrays.push(Arc::new(array));
        self.shared.push(self.sharing);
    }

    /// Puts columns that have a value for each run.
    pub fn put_shared<R>(&mut self, put: impl FnOnce(&mut Self) -> R) -> R {
        self.sharing = true;
        let put = put(self);
        self.sharing = false;
        put
    }

    /// As one column of structs, for what is repeated in a row.
    pub fn into_structs(self) -> Result<StructArray, ArrowError> {
        StructArray::try_new(Fields::from(self.fields), self.arrays, None)
    }
}

/// Numbers, some of which may be absent.
#[derive(Debug)]
pub(crate) struct Numbers<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
}

pub(crate) type Longs = Numbers<Int64Type>;
pub(crate) type Ints = Numbers<Int32Type>;
pub(crate) type Doubles = Numbers<Float64Type>;

impl<T: ArrowPrimitiveType> Default for Numbers<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl<T: ArrowPrimitiveType> Numbers<T> {
    #[inline]
    pub fn push(&mut self, value: T::Native) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    #[inline]
    pub fn push_option(&mut self, value: Option<T::Native>) {
        self.values.push(value.unwrap_or_default());
        self.nulls.append(value.is_some());
    }

    /// Adds what is absent up to `rows`.
    #[inline]
    pub fn pad(&mut self, rows: usize) {
        self.nulls.append_n_nulls(rows - self.values.len());
        self.values.resize(rows, T::Native::default());
    }

    pub fn finish(&mut self) -> PrimitiveArray<T> {
        let values = ScalarBuffer::from(std::mem::take(&mut self.values));
        PrimitiveArray::new(values, self.nulls.finish())
    }
}

/// Booleans, some of which may be absent.
#[derive(Debug)]
pub(crate) struct Booleans {
    values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl Default for Booleans {
    fn default() -> Self {
        Self {
            values: BooleanBufferBuilder::new(0),
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Booleans {
    pub fn push_option(&mut self, value: Option<bool>) {
        self.values.append(value.unwrap_or_default());
        self.nulls.append(value.is_some());
    }

    /// Adds what is absent up to `rows`.
    pub fn pad(&mut self, rows: usize) {
        let missing = rows - self.values.len();
        self.nulls.append_n_nulls(missing);
        self.values.append_n(missing, false);
    }

    pub fn finish(&mut self) -> BooleanArray {
        BooleanArray::new(self.values.finish(), self.nulls.finish())
    }
}

/// Texts, some of which may be absent. What is pushed is believed to be UTF-8 and checked all at once at the end.
#[derive(Debug)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            ends: vec![0],
            nulls: NullBufferBuilder::new(0),
        }
    }
}

impl Texts {
    #[inline]
    fn end(&mut self, present: bool) {
        // A batch is flushed long before its texts reach 2 GiB: see `BATCH_BYTES`.
        self.ends.push(self.bytes.len() as i32);
        self.nulls.append(present);
    }

    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end(true);
    }

    /// Absent when empty: proto3 does not tell the two apart.
    #[inline]
    pub fn push_unless_empty(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.end(!text.is_empty());
    }

    pub fn push_option(&mut self, text: Option<&[u8]>) {
        self.bytes.extend_from_slice(text.unwrap_or_default());
        self.end(text.is_some());
    }

    /// An id in lower-case hexadecimal digits; absent when empty.
    #[inline]
    pub fn push_hex(&mut self, id: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in id {
            self.bytes
                .extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        self.end(!id.is_empty());
    }

    /// Adds what is absent up to `rows`.
    #[inline]
    pub fn pad(&mut self, rows: usize) {
        self.nulls.append_n_nulls(rows + 1 - self.ends.len());
        self.ends.resize(rows + 1, self.bytes.len() as i32);
    }

    /// Many texts at once, all present.
    #[inline]
    fn extend(&mut self, bytes: &[u8], ends: &[u32]) {
        let base = self.bytes.len() as i32;
        self.bytes.extend_from_slice(bytes);
        self.ends.extend(ends.iter().map(|end| base + *end as i32));
        self.nulls.append_n_non_nulls(ends.len());
    }

    /// The array, and how many texts were not UTF-8 and have been mended: only bodies that a receiver
    /// let in unchecked have such.
    pub fn finish(&mut self, repaired: &mut u64) -> StringArray {
        let mut all = std::mem::take(self);
        let (bytes, nulls) = (Buffer::from_vec(all.bytes), all.nulls.finish());
        let offsets = OffsetBuffer::new(ScalarBuffer::from(all.ends));
        // Cloning shares; this is where UTF-8 is checked, once for all texts of the batch.
        if let Ok(texts) = StringArray::try_new(offsets.clone(), bytes.clone(), nulls.clone()) {
            return texts;
        }
        let (bytes, ends) = mended(&bytes, &offsets, repaired);
        StringArray::new(
            OffsetBuffer::new(ScalarBuffer::from(ends)),
            Buffer::from_vec(bytes),
            nulls,
        )
    }
}

#[cold]
fn mended(bytes: &[u8], ends: &[i32], repaired: &mut u64) -> (Vec<u8>, Vec<i32>) {
    let (mut good, mut good_ends) = (Vec::with_capacity(bytes.len()), vec![0]);
    for pair in ends.windows(2) {
        let text = String::from_utf8_lossy(&bytes[pair[0] as usize..pair[1] as usize]);
        *repaired += u64::from(matches!(text, std::borrow::Cow::Owned(_)));
        good.extend_from_slice(text.as_bytes());
        good_ends.push(good.len() as i32);
    }
    (good, good_ends)
}

/// Where the lists of rows end in the column of their elements.
#[derive(Debug)]
pub(crate) struct Ends(Vec<i32>);

impl Default for Ends {
    fn default() -> Self {
        Self(vec![0])
    }
}

impl Ends {
    /// The row ends after `more` elements.
    pub fn push(&mut self, more: usize) {
        let last = self.0.last().copied().unwrap_or_default();
        self.0.push(last + more as i32);
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(std::mem::take(self).0))
    }

    /// Lists of `elements`; never null, empty at most.
    pub fn lists(&mut self, id: i32, elements: impl Array + 'static) -> Result<ListArray, ArrowError> {
        let element = Arc::new(field(id * 100 + 1, "element", &elements, false));
        ListArray::try_new(element, self.finish(), Arc::new(elements), None)
    }
}

/// Attributes: a map of text to text, and beside it a text with one letter an entry that says what each value was.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    ends: Ends,
    keys: Texts,
    values: Texts,
    types: Texts,
}

impl Maps {
    #[inline]
    pub fn push(&mut self, pairs: &Pairs) {
        self.keys.extend(&pairs.keys, &pairs.key_ends);
        self.values.extend(&pairs.values, &pairs.value_ends);
        self.ends.push(pairs.len());
        self.types.push(&pairs.types);
    }

    /// Puts both columns: `{name}` and `{types}`.
    pub fn finish(
        &mut self,
        columns: &mut Columns,
        id: i32,
        name: &str,
        types: &str,
        repaired: &mut u64,
    ) -> Result<(), ArrowError> {
        let mut entries = Columns::default();
        entries.put(id * 100 + 1, "key", self.keys.finish(repaired));
        entries.put(id * 100 + 2, "value", self.values.finish(repaired));
        let entries = entries.into_structs()?;
        let entry = Field::new("key_value", entries.data_type().clone(), false);
        let map = MapArray::try_new(Arc::new(entry), self.ends.finish(), entries, None, false)?;
        columns.put(id, name, map);
        columns.put(id + 1, types, self.types.finish(repaired));
        Ok(())
    }
}
