//! Columns as they grow, row by row, and what becomes of them: a tree of plain buffers, which our pages are made of and Arrow's
//! arrays can be.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

use super::attributes::Pairs;
use super::file::FileSettings;
use super::keys::{Keys, REMEMBERED};
use super::number::NumberColumn;
use super::text::{TextColumn, Texts};

/// How a batch ends.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// Whether it is the last one of its row group.
    pub row_group: bool,
    /// Texts that had to be mended.
    pub invalid_texts: u64,
    /// Runs of rows that share a source, and rows: known to the columns that have a value for each run.
    pub runs: usize,
    pub rows: usize,
}

/// What a column has in a batch.
#[derive(Debug)]
pub(crate) enum Data {
    Numbers(NumberColumn),
    /// Texts for Arrow.
    Array(ArrayRef),
    /// Texts of our own encoder, to which alone they mean something.
    Texts(TextColumn),
    Structs(Columns),
    Lists(Lists),
}

/// Lists of elements; never null, empty at most.
#[derive(Debug)]
pub(crate) struct Lists {
    element: FieldRef,
    pub ends: OffsetBuffer<i32>,
    pub elements: Box<Data>,
    /// Elements are structs of a key and a value, and the lists are maps.
    pub maps: bool,
}

impl Data {
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Numbers(numbers) => numbers.data_type(),
            Self::Array(array) => array.data_type().clone(),
            Self::Texts(_) => TextColumn::TYPE,
            Self::Structs(columns) => DataType::Struct(Fields::from(columns.fields.as_slice())),
            Self::Lists(lists) if lists.maps => DataType::Map(lists.element.clone(), false),
            Self::Lists(lists) => DataType::List(lists.element.clone()),
        }
    }

    /// Bytes of memory of its values. Columns of our own pages keep as much for the next ones.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Numbers(numbers) => size_of_val(&*numbers.values),
            // Their buffers are given away.
            Self::Array(_) => 0,
            Self::Texts(texts) => texts.page.texts.memory_bytes(),
            Self::Structs(columns) => columns.memory_bytes(),
            Self::Lists(lists) => lists.elements.memory_bytes(),
        }
    }

    fn into_array(self) -> Result<ArrayRef, ArrowError> {
        const STRANGE: &str = "texts of our own pages cannot be had as an array";
        Ok(match self {
            Self::Numbers(numbers) => numbers.into_array(),
            Self::Array(array) => array,
            Self::Texts(_) => return Err(ArrowError::InvalidArgumentError(STRANGE.to_owned())),
            Self::Structs(columns) => {
                let fields = Fields::from(columns.fields.as_slice());
                Arc::new(StructArray::try_new(fields, columns.into_arrays()?, None)?)
            }
            Self::Lists(lists) => {
                let elements = lists.elements.into_array()?;
                match lists.maps {
                    true => {
                        let entries = elements.as_struct().clone();
                        Arc::new(MapArray::try_new(
                            lists.element,
                            lists.ends,
                            entries,
                            None,
                            false,
                        )?)
                    }
                    false => Arc::new(ListArray::try_new(lists.element, lists.ends, elements, None)?),
                }
            }
        })
    }
}

/// The columns of a table, in order, each with its name and field id.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub fields: Vec<FieldRef>,
    pub data: Vec<Data>,
    /// Of each column: whether it has a value for each run of rows, rather than for each row.
    pub shared: Vec<bool>,
    /// Rows of each run. Empty where all are of one row.
    pub runs: Vec<u32>,
    /// Whether columns that are put now are shared.
    sharing: bool,
}

impl Columns {
    pub fn put(&mut self, id: i32, name: &str, data: Data) {
        self.push(id, name, data, false);
    }

    pub fn put_nullable(&mut self, id: i32, name: &str, data: Data) {
        self.push(id, name, data, true);
    }

    fn push(&mut self, id: i32, name: &str, data: Data, nullable: bool) {
        self.fields.push(Arc::new(field(id, name, &data, nullable)));
        self.data.push(data);
        self.shared.push(self.sharing);
    }

    /// Puts columns that have a value for each run.
    pub fn put_shared(&mut self, put: impl FnOnce(&mut Self)) {
        self.sharing = true;
        put(self);
        self.sharing = false;
    }

    /// Bytes of memory of their values, and what the table keeps for as many again.
    pub fn memory_bytes(&self) -> usize {
        self.data.iter().map(Data::memory_bytes).sum()
    }

    /// As arrays, in the order of the schema.
    pub fn into_arrays(self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.data.into_iter().map(Data::into_array).collect()
    }
}

/// A field with its Parquet field id, by which readers of table formats know a column whatever its name.
fn field(id: i32, name: &str, data: &Data, nullable: bool) -> Field {
    let key = parquet::arrow::PARQUET_FIELD_ID_META_KEY.to_owned();
    let metadata = std::collections::HashMap::from([(key, id.to_string())]);
    Field::new(name, data.data_type(), nullable).with_metadata(metadata)
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
    #[inline]
    pub fn push(&mut self, more: usize) {
        let last = self.0.last().copied().unwrap_or_default();
        self.0.push(last + more as i32);
    }

    fn finish(&mut self) -> OffsetBuffer<i32> {
        OffsetBuffer::new(ScalarBuffer::from(std::mem::take(self).0))
    }

    /// Lists of `elements`.
    pub fn lists(&mut self, id: i32, elements: Data) -> Data {
        Data::Lists(Lists {
            element: Arc::new(field(id * 100 + 1, "element", &elements, false)),
            ends: self.finish(),
            elements: Box::new(elements),
            maps: false,
        })
    }

    /// Maps of these entries.
    fn maps(&mut self, entries: Columns) -> Data {
        let entries = Data::Structs(entries);
        Data::Lists(Lists {
            element: Arc::new(Field::new("key_value", entries.data_type(), false)),
            ends: self.finish(),
            elements: Box::new(entries),
            maps: true,
        })
    }
}

/// Attributes: a map of text to text, and beside it a text with one letter an entry that says what each value was.
#[derive(Debug)]
pub(crate) struct Maps {
    ends: Ends,
    keys: Texts,
    values: Texts,
    types: Texts,
    /// Of each of the first keys' numbers: what the key was pushed with in this row group. Void when `generation` is not that of
    /// the keys.
    known: Vec<u32>,
    generation: u64,
    scratch: Vec<u8>,
}

impl Maps {
    /// Maps of rows.
    pub fn new(settings: &FileSettings) -> Self {
        Self::of(settings, Texts::new(settings), Texts::in_lists)
    }

    /// Maps of runs of rows.
    pub fn shared(settings: &FileSettings) -> Self {
        Self::of(settings, Texts::shared(settings), Texts::shared_in_lists)
    }

    /// Maps of what is in lists.
    pub fn in_lists(settings: &FileSettings) -> Self {
        Self::of(settings, Texts::in_lists(settings), Texts::in_lists)
    }

    fn of(settings: &FileSettings, types: Texts, entries: fn(&FileSettings) -> Texts) -> Self {
        Self {
            ends: Ends::default(),
            keys: entries(settings),
            values: entries(settings),
            types,
            known: Vec::new(),
            generation: 0,
            scratch: Vec::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, pairs: &Pairs<'_>, keys: &Keys) {
        if self.generation != keys.generation() {
            self.known.clear();
            self.generation = keys.generation();
        }
        for attribute in pairs.iter() {
            let key = attribute.key as usize;
            if key >= self.known.len() && key < REMEMBERED {
                self.known.resize(key + 1, 0);
            }
            let mut unknown = 0;
            let known = self.known.get_mut(key).unwrap_or(&mut unknown);
            let owner = self.keys.push_known(known, || keys.text(attribute.key));
            self.values.push_of(owner, attribute.value(&mut self.scratch));
        }
        self.ends.push(pairs.len());
        self.types.push(&pairs.types);
    }

    #[cfg(test)]
    pub fn remembered_keys(&self) -> usize {
        self.known.len()
    }

    /// Puts both columns: `{name}` and `{types}`.
    pub fn finish(&mut self, columns: &mut Columns, id: i32, name: &str, types: &str, ending: &mut Ending) {
        let mut entries = Columns::default();
        entries.put(id * 100 + 1, "key", self.keys.finish(ending));
        entries.put(id * 100 + 2, "value", self.values.finish(ending));
        columns.put(id, name, self.ends.maps(entries));
        columns.put(id + 1, types, self.types.finish(ending));
        // What is kept of keys that were made up is not kept for long.
        if ending.row_group {
            self.known = Vec::new();
        }
    }
}
