//! YAML text becomes a tree. What YAML allows and a configuration has no use for is refused with its place.

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
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        source,
        anchors: HashMap::new(),
        alias_nodes: 0,
        depth: 0,
        last_span: Span::new(source.clone(), 1, 1),
    };
    builder.stream()
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a Source,
    /// Finished anchored nodes and their sizes in nodes.
    anchors: HashMap<usize, (Node, usize)>,
    alias_nodes: usize,
    depth: usize,
    last_span: Span,
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
                let span = self.span(error.marker().line(), error.marker().col());
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

/// What to do about the mistakes that are easy to make and hard to see.
fn hint(info: &str) -> &'static str {
    if info.contains("tab") {
        " (YAML is indented with spaces, not tabs)"
    } else if info.contains("valid YAML whitespace") {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Node, String> {
        parse_yaml(text, &Source::new("t.yaml")).map_err(|p| p.to_string())
    }

    /// Scenario: a nested document.
    /// Guarantees: every key and value knows its line and column, counted from 1.
    #[test]
    fn nodes_know_their_places() {
        let root = parse("a:\n  b: 1\n  c: [x, y]\n").unwrap();
        let a = root.get("a").unwrap();
        assert_eq!(a.get("b").unwrap().span.to_string(), "t.yaml:2:6");
        assert_eq!(
            a.as_mapping().unwrap().entry("c").unwrap().key_span.to_string(),
            "t.yaml:3:3"
        );
        assert_eq!(
            a.get("c").unwrap().as_sequence().unwrap()[1].span.to_string(),
            "t.yaml:3:10"
        );
    }

    /// Scenario: scalars that are not text.
    /// Guarantees: they keep their spelling, and quoted ones stay text.
    #[test]
    fn scalars_keep_their_spelling() {
        let root = parse("a: 1.10\nb: \"1\"\nc: 0x10\nd:\ne: !!str 5\n").unwrap();
        assert_eq!(root.get("a").unwrap().as_text(), Some("1.10"));
        assert_eq!(root.get("b").unwrap().value, Value::String("1".into()));
        assert_eq!(root.get("c").unwrap().value, Value::Int(16));
        assert!(root.get("d").unwrap().is_null());
        assert_eq!(root.get("e").unwrap().value, Value::String("5".into()));
    }

    /// Scenario: an empty file, one with only comments, and one with a byte order mark.
    /// Guarantees: the first two are an empty map; the mark is not part of a key.
    #[test]
    fn empty_files_are_empty_maps() {
        for text in ["", "# nothing\n", "---\n", "\u{feff}"] {
            let root = parse(text).unwrap();
            assert!(
                root.is_null() || root.as_mapping().is_some_and(Mapping::is_empty),
                "{text:?}"
            );
        }
        assert!(parse("\u{feff}a: 1\n").unwrap().get("a").is_some());
    }

    /// Scenario: duplicate keys, tabs, bad indentation, unclosed quotes, a second document, odd keys and tags.
    /// Guarantees: each is an error that names the place.
    #[test]
    fn mistakes_are_errors_with_a_place() {
        let cases = [
            (
                "a: 1\na: 2\n",
                "t.yaml:2:1: the key \"a\" is already set on line 1; remove one of the two",
            ),
            ("a:\n\tb: 1\n", "t.yaml:2:"),
            ("a:\n  b: 1\n c: 2\n", "t.yaml:3:"),
            ("a: \"x\n", "t.yaml:"),
            ("a: 1\n---\nb: 2\n", "t.yaml:2:1: a second YAML document"),
            ("? [a]\n: 1\n", "t.yaml:1:3: a key must be text"),
            ("a: !thing 1\n", "t.yaml:1:"),
            ("a: !!int x\n", "t.yaml:1:"),
            ("a: b: c\n", "t.yaml:1:"),
            ("a: *b\n", "t.yaml:1:"),
            ("a: [1, 2\nb: 3\n", "t.yaml:"),
        ];
        for (text, start) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(start), "{text:?} gave {error}");
        }
        for (text, hint) in [
            ("a:\n\tb: 1\n", "not tabs"),
            ("a:\n  b:\tc:d\n", "not a tab"),
            ("a: [${B}]\n", "quote values that contain `${...}`"),
            ("a: {b: ${C}}\n", "quote values that contain `${...}`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with("t.yaml:") && error.contains(hint),
                "{text:?} gave {error}"
            );
        }
    }

    /// Scenario: anchors, aliases, and merge keys with one map and with a list of maps.
    /// Guarantees: aliases copy, explicit keys win over merged ones, and earlier maps win over later ones.
    #[test]
    fn aliases_and_merge_keys_work() {
        let root = parse(
            "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: *a\n  x: 3\nd:\n  <<: [*a, *b]\ne: *a\n\"<<\": 5\n",
        )
        .unwrap();
        let int = |path: &[&str]| root.at(path).map(|n| n.value.clone());
        assert_eq!(int(&["c", "x"]), Some(Value::Int(3)));
        assert_eq!(int(&["c", "y"]), Some(Value::Int(1)));
        assert_eq!(int(&["d", "y"]), Some(Value::Int(1)));
        assert_eq!(int(&["d", "z"]), Some(Value::Int(2)));
        assert_eq!(root.get("e"), root.get("a"));
        assert_eq!(int(&["<<"]), Some(Value::Int(5)));
        assert!(parse("a: {<<: 5}\n").unwrap_err().contains("merge key"));
    }

    /// Scenario: aliases that would expand to a billion values, an alias inside itself, and 10,000 brackets.
    /// Guarantees: an error in bounded time and memory, not an overflow.
    #[test]
    fn bombs_are_defused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let list = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
        }
        assert!(parse(&bomb).unwrap_err().contains("aliases expand"));
        assert!(parse("a: &a [*a]\n").unwrap_err().contains("inside the value"));
        for opening in ["[", "- ", "{a: ", "[{a: "] {
            assert!(
                parse(&opening.repeat(100)).unwrap_err().contains("nest deeper"),
                "{opening}"
            );
            assert!(parse(&opening.repeat(10_000)).is_err(), "{opening}");
        }
        let mut deep = String::from("a0: &a0 [x]\n");
        for i in 1..100 {
            deep.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
        }
        assert!(parse(&deep).unwrap_err().contains("nest deeper"));
    }

    proptest! {
        /// Scenario: arbitrary text.
        /// Guarantees: a tree or an error, never a panic.
        #[test]
        fn arbitrary_text_never_panics(text in "(?s).{0,200}") {
            let _ = parse(&text);
        }

        /// Scenario: text made of YAML's own punctuation.
        /// Guarantees: a tree or an error, never a panic.
        #[test]
        fn yaml_like_text_never_panics(text in "([-?:,&*!|>%@`'\"{}\\[\\]# \t\n~<a0.\\\\]|\\$\\{|<<: |- |\r\n|---\n){0,60}") {
            let _ = parse(&text);
        }
    }
}
