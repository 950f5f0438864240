//! YAML text becomes a tree. What YAML allows and a configuration has no use for is refused with its place.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput, Tag};

use crate::coerce::{parse_bool, parse_int, resolve_plain};
use crate::error::Problem;
use crate::node::{Entry, Mapping, Node, Source, Span, Value};

/// How deep maps and lists may nest; real files stay under 15, and every walk over the tree is recursive.
pub const MAX_DEPTH: usize = 64;

/// How many nodes all aliases of a file together may copy. Real files stay under 1,000; without a bound a
/// page of nested aliases ("billion laughs") would fill the memory.
pub const MAX_ALIAS_NODES: usize = 20_000;

/// Reads one YAML document.
///
/// An empty text is an empty map. A second document, duplicate keys, keys that are not scalars, custom
/// tags and recursive aliases are errors; anchors, aliases and merge keys (`<<`) work as in YAML 1.1.
pub fn parse_yaml(text: &str, source: &Source) -> Result<Node, Problem> {
    let mut text = Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut bytes_left = MAX_REREAD_BYTES;
    loop {
        let mut builder = Builder {
            parser: Parser::new_from_str(&text),
            source,
            anchors: HashMap::new(),
            alias_nodes: 0,
            depth: 0,
            last_span: Span::new(source.clone(), 1, 1),
            tab_before: None,
        };
        let result = builder.stream();
        let mended = (builder.tab_before)
            .filter(|_| bytes_left >= text.len())
            .and_then(|(line, column)| without_tabs_before(&text, line, column));
        let Some(mended) = mended else { return result };
        bytes_left -= text.len();
        text = Cow::Owned(mended);
    }
}

/// The text with spaces in the place of the tabs between a `:` and what stands at this line and column, counted from 1 and 0; `None` when
/// there are none.
///
/// YAML allows them, and the Collector's library reads them; the parser takes them only before a quote, a bracket or the end of the line.
fn without_tabs_before(text: &str, line: usize, column: usize) -> Option<String> {
    let start = match line.checked_sub(2) {
        None => 0,
        Some(before) => text.match_indices('\n').nth(before)?.0 + 1,
    };
    let end = start + text[start..].char_indices().nth(column)?.0;
    let key = text[start..end].trim_end_matches([' ', '\t']);
    let blanks = &text[start + key.len()..end];
    if !key.ends_with(':') || !blanks.contains('\t') {
        return None;
    }
    let mut mended = text.to_owned();
    mended.replace_range(start + key.len()..end, &" ".repeat(blanks.len()));
    Some(mended)
}

/// How much of a file is read again, over all, because of tabs after colons: a hundred lines of them in the largest real files (1 MiB).
const MAX_REREAD_BYTES: usize = 100 << 20;

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a Source,
    /// Finished anchored nodes and their sizes in nodes.
    anchors: HashMap<usize, (Node, usize)>,
    alias_nodes: usize,
    depth: usize,
    last_span: Span,
    /// Line and column, as the parser counts, of a value that it does not take because a tab stands before it.
    tab_before: Option<(usize, usize)>,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                let span = self.span(span.start.line(), span.start.col());
                self.last_span = span.clone();
                Ok((event, span))
            }
            Some(Err(error)) => {
                let (line, column) = (error.marker().line(), error.marker().col());
                if error.info().contains(TAB_AFTER_COLON) {
                    self.tab_before = Some((line, column));
                }
                let span = self.span(line, column);
                Err(Problem::at(
                    &span,
                    format!("not valid YAML: {}{}", error.info(), hint(error.info())),
                ))
            }
            None => Err(Problem::at(&self.last_span, "not valid YAML: it ends too early")),
        }
    }

    fn span(&self, line: usize, column_from_zero: usize) -> Span {
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span::new(
            self.source.clone(),
            clip(line),
            clip(column_from_zero.saturating_add(1)),
        )
    }

    fn stream(&mut self) -> Result<Node, Problem> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Problem::at(
                        &span,
                        "a second YAML document begins here; write one document per file \
                         and pass each with its own --config",
                    ));
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                event => root = Some(self.node(event, span)?.0),
            }
        }
        let empty = || {
            Node::new(
                Value::Mapping(Mapping::default()),
                Span::new(self.source.clone(), 1, 1),
            )
        };
        Ok(root.unwrap_or_else(empty))
    }

    /// Builds the node that starts with `event`; also says of how many nodes it consists.
    fn node(&mut self, event: Event<'a>, span: Span) -> Result<(Node, usize), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let node = scalar(&text, style, tag.as_deref(), &span)?;
                Ok(self.anchored(anchor, node, 1))
            }
            Event::SequenceStart(anchor, tag) => {
                check_collection_tag(tag.as_deref(), "seq", &span)?;
                self.enter(&span)?;
                let mut items = Vec::new();
                let mut size = 1;
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => {
                            let (item, item_size) = self.node(event, span)?;
                            size += item_size;
                            items.push(item);
                        }
                    }
                }
                self.depth -= 1;
                Ok(self.anchored(anchor, Node::new(Value::Sequence(items), span), size))
            }
            Event::MappingStart(anchor, tag) => {
                check_collection_tag(tag.as_deref(), "map", &span)?;
                self.enter(&span)?;
                let (mapping, size) = self.mapping()?;
                self.depth -= 1;
                Ok(self.anchored(anchor, Node::new(Value::Mapping(mapping), span), size))
            }
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor) else {
                    return Err(Problem::at(
                        &span,
                        "this alias stands inside the value it refers to",
                    ));
                };
                self.alias_nodes += size;
                if self.alias_nodes > MAX_ALIAS_NODES {
                    return Err(Problem::at(
                        &span,
                        format!("aliases expand to more than {MAX_ALIAS_NODES} values; write the values out"),
                    ));
                }
                let (node, size) = (node.clone(), *size);
                if self.depth + depth(&node) > MAX_DEPTH {
                    return Err(too_deep(&span));
                }
                Ok((node, size))
            }
            _ => Err(Problem::at(&span, "not valid YAML: a value was expected")),
        }
    }

    fn enter(&mut self, span: &Span) -> Result<(), Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(too_deep(span))
        } else {
            Ok(())
        }
    }

    fn anchored(&mut self, anchor: usize, node: Node, size: usize) -> (Node, usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        (node, size)
    }

    fn mapping(&mut self) -> Result<(Mapping, usize), Problem> {
        let mut mapping = Mapping::default();
        let mut merged: Vec<Entry> = Vec::new();
        let mut merge_key: Option<Span> = None;
        let mut size = 1;
        loop {
            let (event, key_span) = self.next()?;
            let (key, plain) = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, style, anchor, tag) => {
                    let node = scalar(&text, style, tag.as_deref(), &key_span)?;
                    self.anchored(anchor, node, 1);
                    (text.into_owned(), style == ScalarStyle::Plain)
                }
                Event::Alias(anchor) => {
                    match self.anchors.get(&anchor).and_then(|(node, _)| node.as_text()) {
                        Some(text) => (text.to_owned(), false),
                        None => return Err(Problem::at(&key_span, "a key must be text")),
                    }
                }
                _ => return Err(Problem::at(&key_span, "a key must be text, not a list or a map")),
            };
            let (event, value_span) = self.next()?;
            let (value, value_size) = self.node(event, value_span)?;
            size += value_size;
            if key == "<<" && plain {
                if let Some(first) = &merge_key {
                    return Err(duplicate(&key, &key_span, first));
                }
                merge_key = Some(key_span);
                merged = merge_entries(value)?;
            } else if let Some(first) = mapping.entry(&key) {
                return Err(duplicate(&key, &key_span, &first.key_span));
            } else {
                mapping.insert(key, key_span, value);
            }
        }
        for entry in merged {
            if mapping.entry(&entry.key).is_none() {
                mapping.insert(entry.key, entry.key_span, entry.value);
            }
        }
        Ok((mapping, size))
    }
}

/// What a merge key brings: the entries of one map, or of a list of maps of which earlier ones win.
fn merge_entries(value: Node) -> Result<Vec<Entry>, Problem> {
    const FORM: &str = "a merge key `<<` takes a map or a list of maps (`<<: *anchor`)";
    match value.value {
        Value::Mapping(mapping) => Ok(mapping.into_entries()),
        Value::Sequence(items) => {
            let mut entries = Vec::new();
            for item in items {
                match item.value {
                    Value::Mapping(mapping) => entries.extend(mapping.into_entries()),
                    _ => return Err(Problem::at(&item.span, FORM)),
                }
            }
            Ok(entries)
        }
        _ => Err(Problem::at(&value.span, FORM)),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> Result<Node, Problem> {
    let core = match tag {
        None => None,
        Some(tag) if tag.is_yaml_core_schema() => Some(tag.suffix.as_str()),
        // The lone `!` says: this is text.
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Some("str"),
        Some(tag) => {
            return Err(Problem::at(
                span,
                format!("the tag {tag} has no meaning here; remove it"),
            ));
        }
    };
    let wrong = |what: &str| Problem::at(span, format!("{text:?} is not {what}, as its tag says"));
    let value = match core {
        None if style == ScalarStyle::Plain => resolve_plain(text),
        None | Some("str" | "binary" | "timestamp") => Value::String(text.to_owned()),
        Some("int") => Value::Int(parse_int(text).ok_or_else(|| wrong("an integer"))?),
        Some("bool") => Value::Bool(parse_bool(text).ok_or_else(|| wrong("a boolean"))?),
        Some("float") => match resolve_plain(text) {
            Value::Float(float) => Value::Float(float),
            Value::Int(int) => Value::Float(int as f64),
            _ => return Err(wrong("a number")),
        },
        Some("null") => Value::Null,
        Some(other) => {
            return Err(Problem::at(
                span,
                format!("the tag !!{other} does not fit a scalar"),
            ));
        }
    };
    let spelled = matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_));
    Ok(Node {
        value,
        span: span.clone(),
        text: spelled.then(|| text.into()),
    })
}

fn check_collection_tag(tag: Option<&Tag>, expected: &str, span: &Span) -> Result<(), Problem> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == expected => Ok(()),
        Some(tag) => Err(Problem::at(
            span,
            format!("the tag {tag} has no meaning here; remove it"),
        )),
    }
}

/// How deep a node nests: 0 for a scalar.
pub(crate) fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Sequence(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Mapping(mapping) => {
            1 + mapping
                .entries()
                .iter()
                .map(|e| depth(&e.value))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

fn too_deep(span: &Span) -> Problem {
    Problem::at(span, format!("maps and lists nest deeper than {MAX_DEPTH}"))
}

fn duplicate(key: &str, span: &Span, first: &Span) -> Problem {
    Problem::at(
        span,
        format!(
            "the key {key:?} is already set on line {}; remove one of the two",
            first.line
        ),
    )
}

/// What the parser says of a tab between a `:` and a plain value.
const TAB_AFTER_COLON: &str = "must be followed by a valid YAML whitespace";

/// What to do about the mistakes that are easy to make and hard to see.
fn hint(info: &str) -> &'static str {
    if info.contains("tab") {
        " (YAML is indented with spaces, not tabs)"
    } else if info.contains(TAB_AFTER_COLON) {
        " (write a space between the `:` and the value, not a tab)"
    } else if info.contains("while parsing a flow") {
        " (inside `[` `]` and `{` `}` quote values that contain `${...}` or `: `, and close each bracket)"
    } else if info.contains("mapping values are not allowed") || info.contains("did not find expected") {
        " (check the indentation, and quote values that contain `: `)"
    } else if info.contains("flow") {
        " (a `[` or `{` before this place is not closed, or its lines are not indented)"
    } else if info.contains("quoted scalar") {
        " (a quote before this place is not closed)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests;
