//! A tree back to YAML, with secrets redacted.

use crate::coerce::resolve_plain;
use crate::node::{Node, Value};

/// What stands in the place of a secret, as in the Collector.
pub const REDACTED: &str = "[REDACTED]";

/// Writes a tree as YAML that loads to the same tree again, `${` escaped as `$${`.
///
/// `is_secret` is asked for each value with the keys that lead to it; list elements have the path of
/// their list. A secret map or list keeps its keys and its length, and loses every value in it.
pub fn to_yaml(node: &Node, is_secret: &dyn Fn(&[&str]) -> bool) -> String {
    let mut printer = Printer {
        out: String::new(),
        is_secret,
    };
    printer.block(node, &mut Vec::new(), 0, false);
    if !printer.out.ends_with('\n') {
        printer.out.push('\n');
    }
    printer.out
}

struct Printer<'a> {
    out: String,
    is_secret: &'a dyn Fn(&[&str]) -> bool,
}

impl Printer<'_> {
    /// Writes a value that begins on the current line.
    fn block<'n>(&mut self, node: &'n Node, path: &mut Vec<&'n str>, indent: usize, secret: bool) {
        let secret = secret || (self.is_secret)(path);
        match &node.value {
            Value::Mapping(mapping) if mapping.is_empty() => self.out.push_str("{}"),
            Value::Sequence(items) if items.is_empty() => self.out.push_str("[]"),
            Value::Mapping(mapping) => {
                for (index, entry) in mapping.entries().iter().enumerate() {
                    if index > 0 {
                        self.line(indent);
                    }
                    self.out.push_str(&quoted_if_needed(&entry.key));
                    self.out.push(':');
                    path.push(&entry.key);
                    match &entry.value.value {
                        Value::Null => {}
                        Value::Mapping(inner) if !inner.is_empty() => {
                            self.line(indent + 1);
                            self.block(&entry.value, path, indent + 1, secret);
                        }
                        Value::Sequence(inner) if !inner.is_empty() => {
                            self.line(indent + 1);
                            self.block(&entry.value, path, indent + 1, secret);
                        }
                        _ => {
                            self.out.push(' ');
                            self.block(&entry.value, path, indent + 1, secret);
                        }
                    }
                    path.pop();
                }
            }
            Value::Sequence(items) => {
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.line(indent);
                    }
                    self.out.push_str("- ");
                    self.block(item, path, indent + 1, secret);
                }
            }
            Value::Null => self.out.push_str("null"),
            _ if secret => self.out.push_str(&quoted(REDACTED)),
            Value::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
            Value::Int(value) => self.out.push_str(&spelling_or(node, || value.to_string())),
            Value::Float(value) => self.out.push_str(&spelling_or(node, || float(*value))),
            Value::String(text) => self.out.push_str(&quoted_if_needed(&escaped(text))),
        }
    }

    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", indent));
    }
}

/// A number as it was written, when that spelling is safe to write again.
fn spelling_or(node: &Node, otherwise: impl Fn() -> String) -> String {
    match node.text.as_deref() {
        Some(text) if resolve_plain(text) == node.value => text.to_owned(),
        _ => otherwise(),
    }
}

fn float(value: f64) -> String {
    if value.is_nan() {
        ".nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Text that loading will not expand.
fn escaped(text: &str) -> String {
    if text.contains("${") || text.contains("$$") {
        text.replace('$', "$$")
    } else {
        text.to_owned()
    }
}

fn quoted_if_needed(text: &str) -> String {
    let plain_chars = |c: char| c.is_alphanumeric() && c.is_ascii() || "_-./ :=@+,$()%~".contains(c);
    let safe = !text.is_empty()
        && text.chars().all(plain_chars)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '$'))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains("::")
        && !text.starts_with("...")
        && matches!(resolve_plain(text), Value::String(_));
    if safe { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Loader, Mapping, Source, Span, parse_yaml};

    fn parse(text: &str) -> Node {
        parse_yaml(text, &Source::new("t")).unwrap()
    }

    /// Scenario: a tree with every kind of value and some secrets.
    /// Guarantees: the shape stays, secrets go, and keys under a secret map stay readable.
    #[test]
    fn secrets_are_redacted() {
        let tree = parse(
            "exporters:\n  otlp:\n    endpoint: h:4317\n    headers: {x-token: abc, list: [a, b]}\n    auth: {password: p, user: u}\n\
             \n    tls:\n    queue: {}\nlist: [1, {a: b}, [c]]\n",
        );
        let text = to_yaml(&tree, &|path| {
            path.contains(&"headers") || path.ends_with(&["password"])
        });
        let expected = "exporters:\n  otlp:\n    endpoint: h:4317\n    headers:\n      x-token: \"[REDACTED]\"\n      \
                        list:\n        - \"[REDACTED]\"\n        - \"[REDACTED]\"\n    auth:\n      password: \"[REDACTED]\"\n      \
                        user: u\n    tls:\n    queue: {}\nlist:\n  - 1\n  - a: b\n  - - c\n";
        assert_eq!(text, expected);
    }

    fn arbitrary_node() -> impl Strategy<Value = Node> {
        let node = |value| Node::new(value, Span::whole(Source::new("t")));
        let text = prop_oneof![
            "[a-z0-9:/._${}# -]{0,12}",
            "\\PC{0,8}",
            "[ \t\n\\x00-\\x1f\"'\\\\]{0,4}",
            "(null|true|0x1|1e3|~|\\.inf|yes)"
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|i| Value::Int(i.into())),
            (-1.0e9..1.0e9).prop_map(Value::Float),
            text.prop_map(Value::String),
        ]
        .prop_map(node);
        leaf.prop_recursive(4, 32, 4, move |inner| {
            let key = prop_oneof!["[a-z/_]{1,6}", "\\PC{1,4}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(move |v| node(Value::Sequence(v))),
                prop::collection::vec((key, inner), 0..4).prop_map(move |entries| {
                    let mut mapping = Mapping::default();
                    for (key, value) in entries {
                        mapping.insert(key, Span::whole(Source::new("t")), value);
                    }
                    node(Value::Mapping(mapping))
                }),
            ]
        })
    }

    proptest! {
        /// Scenario: arbitrary trees, printed and loaded again with expansion.
        /// Guarantees: the same tree comes back: nothing is retyped, unescaped or expanded.
        #[test]
        fn printed_trees_load_again(value in arbitrary_node()) {
            let mut root = Mapping::default();
            root.insert("root".to_owned(), Span::whole(Source::new("t")), value);
            let root = Node::new(Value::Mapping(root), Span::whole(Source::new("t")));
            let text = to_yaml(&root, &|_| false);
            let document = Loader::new().text("t", text.clone()).load();
            prop_assert_eq!(document.map(|d| d.root).map_err(|e| format!("{e}\n{text}")), Ok(root));
        }
    }
}
