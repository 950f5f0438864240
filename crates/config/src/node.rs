//! The tree: values that know where they were written.

use std::fmt;
use std::sync::Arc;

/// The name of what a text was read from: a file path, `env:VAR`, `yaml:` or `--set #n`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Source(Arc<str>);

impl Source {
    /// Names a source; the name is what error messages start with.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// Where a key or value was written. Lines and columns count from 1; line 0 means the source as a whole.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Span {
    /// What the text was read from.
    pub source: Source,
    /// Line, from 1; 0 when only the source is known.
    pub line: u32,
    /// Column in characters, from 1; 0 when only the source is known.
    pub column: u32,
}

impl Span {
    /// A place within a source.
    pub fn new(source: Source, line: u32, column: u32) -> Self {
        Self { source, line, column }
    }

    /// A source as a whole.
    pub fn whole(source: Source) -> Self {
        Self {
            source,
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.source),
            line => write!(f, "{}:{}:{}", self.source, line, self.column),
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a node holds. Scalars are resolved as the Collector's YAML library resolves them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing was written (`key:`), or `~`, or `null`.
    Null,
    /// `true` or `false`, unquoted.
    Bool(bool),
    /// An integer, unquoted.
    Int(i128),
    /// A decimal number, unquoted.
    Float(f64),
    /// Text, quoted or not.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// A map, in the order written.
    Mapping(Mapping),
}

impl Value {
    /// The word for this kind of value in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::String(_) => "text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a map",
        }
    }
}

/// A value, the place it was written, and the spelling it was written in.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Where it was written.
    pub span: Span,
    /// The original spelling of a value that is not text, so that `version: 1.10` read as text stays `1.10`.
    /// A `Null` with a spelling stands for an environment variable that was empty or not set.
    pub text: Option<Box<str>>,
}

impl Node {
    /// A node with no spelling of its own.
    pub fn new(value: Value, span: Span) -> Self {
        Self {
            value,
            span,
            text: None,
        }
    }

    /// The value under `key`, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_mapping()?.get(key)
    }

    /// The value at a path of keys.
    pub fn at(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Like [`Node::at`], for changing the value.
    pub fn at_mut(&mut self, path: &[&str]) -> Option<&mut Node> {
        path.iter().try_fold(self, |node, key| match &mut node.value {
            Value::Mapping(mapping) => mapping.get_mut(key),
            _ => None,
        })
    }

    /// The map, if this is one.
    pub fn as_mapping(&self) -> Option<&Mapping> {
        match &self.value {
            Value::Mapping(mapping) => Some(mapping),
            _ => None,
        }
    }

    /// The list, if this is one.
    pub fn as_sequence(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a scalar in its original spelling; `None` for lists, maps and nothing.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => self.text.as_deref(),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// Whether nothing was written here.
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Turns a bare `key:` at `path` into `key: {}`: for sections whose mere presence switches them on.
    pub fn bare_as_empty(&mut self, path: &[&str]) {
        if let Some(node) = self.at_mut(path)
            && node.is_null()
        {
            node.value = Value::Mapping(Mapping::default());
            node.text = None;
        }
    }
}

/// Equality of content: places and spellings do not count.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// One `key: value` of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key, as text.
    pub key: String,
    /// Where the key was written.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// A map in the order written. Keys are unique.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    entries: Vec<Entry>,
}

impl Mapping {
    /// The entries in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries in order, for changing their values.
    pub fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value with this key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Like [`Mapping::get`], for changing the value.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.entries
            .iter_mut()
            .find(|entry| entry.key == key)
            .map(|entry| &mut entry.value)
    }

    /// Sets a value: in the place of the entry with this key, or at the end.
    pub fn insert(&mut self, key: String, key_span: Span, value: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => *entry = Entry { key, key_span, value },
            None => self.entries.push(Entry { key, key_span, value }),
        }
    }

    /// Takes the entry with this key out.
    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index))
    }

    /// Takes the map apart.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

/// Equality of content, whatever the order of keys.
impl PartialEq for Mapping {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .entries
                .iter()
                .all(|entry| other.get(&entry.key).is_some_and(|value| *value == entry.value))
    }
}
