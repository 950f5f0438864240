//! `${...}` as the OpenTelemetry Collector expands it.
//!
//! - `${env:X}`, `${X}`: the environment variable; `${env:X:-default}`, `${X:-default}`: a default when it is not set.
//! - `${file:path}`: the content of a file, without one trailing newline; `${yaml:text}`: the text itself.
//! - A reference that is the entire value takes the type its text has as YAML; inside other text it stays text.
//! - References nest, innermost first, and what they bring is expanded in turn, within bounds.
//! - `$$` is a literal `$`. A `${` that is never closed is literal too.
//! - A variable that is not set is empty, with a warning.

use crate::error::Report;
use crate::load::Environment;
use crate::merge::place_all;
use crate::node::{Node, Source, Span, Value};
use crate::parse::{MAX_DEPTH, depth, parse_yaml};

/// How many references one value may take to expand; a reference to itself would never end.
const MAX_REFERENCES: usize = 100;

/// How long one value may become while its references are expanded.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// Expands every reference below `node`; problems go to `report` and leave the value as written.
pub(crate) fn expand(node: &mut Node, environment: &dyn Environment, report: &mut Report) {
    let mut expander = Expander {
        environment,
        report,
        references_left: MAX_REFERENCES,
    };
    expander.node(node, 0, true);
}

struct Expander<'a> {
    environment: &'a dyn Environment,
    report: &'a mut Report,
    references_left: usize,
}

impl Expander<'_> {
    /// `fresh` marks values as written: each of them has the whole allowance of references.
    fn node(&mut self, node: &mut Node, level: usize, fresh: bool) {
        match &mut node.value {
            Value::Sequence(items) => {
                for item in items {
                    self.node(item, level + 1, fresh);
                }
            }
            Value::Mapping(mapping) => {
                for entry in mapping.entries_mut() {
                    self.node(&mut entry.value, level + 1, fresh);
                }
            }
            Value::String(text) if text.contains('$') => {
                if fresh {
                    self.references_left = MAX_REFERENCES;
                }
                let text = std::mem::take(text);
                match self.text(&text, &node.span, level) {
                    Ok(expanded) => {
                        node.value = expanded.value;
                        node.text = expanded.text;
                    }
                    Err(message) => {
                        self.report.error(&node.span, message);
                        node.value = Value::String(text);
                    }
                }
            }
            _ => {}
        }
    }

    /// Expands one text until no reference is left.
    fn text(&mut self, text: &str, span: &Span, level: usize) -> Result<Node, String> {
        let mut text = text.to_owned();
        while let Some((start, end)) = find_reference(&text) {
            self.references_left = self.references_left.checked_sub(1).ok_or_else(|| {
                format!(
                    "more than {MAX_REFERENCES} references in one value; does a variable refer to itself?"
                )
            })?;
            let content = self.resolve(&text[start + 2..end - 1], span)?;
            if text.len() + content.len() > MAX_EXPANDED_BYTES {
                return Err(format!(
                    "the value expands to more than {} MiB",
                    MAX_EXPANDED_BYTES >> 20
                ));
            }
            if start == 0 && end == text.len() {
                return self.whole(&content, span, level);
            }
            text.replace_range(start..end, &content);
        }
        Ok(Node::new(Value::String(text.replace("$$", "$")), span.clone()))
    }

    /// A reference that is the entire value: its content is YAML, or text where it is not.
    fn whole(&mut self, content: &str, span: &Span, level: usize) -> Result<Node, String> {
        let mut node = match parse_yaml(content, &Source::new("")) {
            // Nothing but blanks and comments. The spelling stays: where text is expected, `#secret` is text.
            Ok(node) if is_empty_map(&node) && !content.contains('{') => Node::new(Value::Null, span.clone()),
            Ok(node) if !matches!(node.value, Value::String(_)) => node,
            // Text is taken exactly as it is: `"quoted"` keeps its quotes, as in the Collector.
            Ok(_) | Err(_) => return self.text(content, span, level),
        };
        if level + depth(&node) > MAX_DEPTH {
            return Err(format!(
                "the value expands to maps and lists that nest deeper than {MAX_DEPTH}"
            ));
        }
        place_all(&mut node, span);
        self.node(&mut node, level, false);
        // Where text is expected, the text counts, not what YAML made of it.
        node.text = Some(content.replace("$$", "$").into());
        Ok(node)
    }

    /// The text a reference stands for.
    fn resolve(&mut self, reference: &str, span: &Span) -> Result<String, String> {
        match reference.split_once(':') {
            Some(("env", rest)) => self.variable(rest, span),
            Some(("file", path)) => match self.environment.read_file(path) {
                Ok(content) => Ok(without_last_newline(&content).to_owned()),
                Err(error) => Err(format!("${{file:{path}}} cannot be read: {error}")),
            },
            Some(("yaml", text)) => Ok(text.to_owned()),
            Some((name, rest)) if rest.starts_with('-') && is_name(name) => self.variable(reference, span),
            Some((scheme, _)) => Err(format!(
                "${{{reference}}} has the unknown scheme {scheme:?}; use ${{env:NAME}}, ${{env:NAME:-default}}, \
                 ${{file:path}} or ${{yaml:text}}, and write $${{{reference}}} for a literal ${{{reference}}}"
            )),
            None => self.variable(reference, span),
        }
    }

    fn variable(&mut self, reference: &str, span: &Span) -> Result<String, String> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_name(name) {
            return Err(format!(
                "{name:?} is not the name of an environment variable (letters, digits and _); \
                 write $${{{name}}} for a literal ${{{name}}}, as in a rule's replacement"
            ));
        }
        match (self.environment.variable(name), default) {
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => {
                let message = format!(
                    "the environment variable {name} is not set, so this value is empty; \
                     set it, or write ${{env:{name}:-default}}; write $${{{name}}} for a literal ${{{name}}}, as in a rule's \
                     replacement"
                );
                self.report.warn(span, message);
                Ok(String::new())
            }
        }
    }
}

fn is_empty_map(node: &Node) -> bool {
    node.as_mapping().is_some_and(|mapping| mapping.is_empty())
}

/// Editors end files with a newline that no token or password means to have.
fn without_last_newline(content: &str) -> &str {
    let content = content.strip_suffix('\n').unwrap_or(content);
    content.strip_suffix('\r').unwrap_or(content)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The first innermost reference that is not escaped, as the range of its bytes including `${` and `}`.
fn find_reference(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(close) = text[from..].find('}').map(|at| from + at) {
        let open = text[from..close].rfind("${").map(|at| from + at);
        if let Some(open) = open {
            let dollars = text[from..open].bytes().rev().take_while(|b| *b == b'$').count();
            if dollars % 2 == 0 {
                return Some((open, close + 1));
            }
        }
        from = close + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::*;

    struct Fixed;

    impl Environment for Fixed {
        fn variable(&self, name: &str) -> Option<String> {
            let value = match name {
                "PORT" => "4317",
                "YES" => "true",
                "LIST" => "[a, b]",
                "MAP" => "{x: 1, y: \"${env:PORT}\"}",
                "EMPTY" => "",
                "NAME" => "PORT",
                "LOOP" => "${env:LOOP}",
                "GROW" => "${env:GROW}${env:GROW}xxxxxxxxxxxxxxxx",
                "ZEROS" => "0123",
                "HASH" => "#secret",
                "QUOTED" => "\"q\"",
                "COLON" => "a: b: c",
                _ => return None,
            };
            Some(value.to_owned())
        }

        fn read_file(&self, path: &str) -> io::Result<String> {
            match path {
                "token" => Ok("s3cret\n".to_owned()),
                _ => Err(io::Error::from(io::ErrorKind::NotFound)),
            }
        }
    }

    fn expanded(text: &str) -> (Node, Report) {
        let mut node = Node::new(
            Value::String(text.to_owned()),
            Span::new(Source::new("t.yaml"), 3, 7),
        );
        let mut report = Report::default();
        expand(&mut node, &Fixed, &mut report);
        (node, report)
    }

    fn value(text: &str) -> Value {
        let (node, report) = expanded(text);
        assert!(report.errors.is_empty(), "{text}: {:?}", report.errors);
        node.value
    }

    fn string(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    /// Scenario: references as entire values.
    /// Guarantees: they take the type their text has as YAML; text in quotes or that is no YAML stays exactly as it is.
    #[test]
    fn an_entire_value_takes_its_type() {
        assert_eq!(value("${env:PORT}"), Value::Int(4317));
        assert_eq!(value("${PORT}"), Value::Int(4317));
        assert_eq!(value("${env:YES}"), Value::Bool(true));
        assert!(matches!(value("${env:LIST}"), Value::Sequence(items) if items.len() == 2));
        assert_eq!(value("${env:NO:-5s}"), string("5s"));
        assert_eq!(value("${NO:-7}"), Value::Int(7));
        assert_eq!(value("${env:QUOTED}"), string("\"q\""));
        assert_eq!(value("${env:COLON}"), string("a: b: c"));
        assert_eq!(value("${env:EMPTY}"), Value::Null);
        assert_eq!(
            value("${yaml:[1]}"),
            Value::Sequence(vec![Node::new(Value::Int(1), Span::whole(Source::new("")))])
        );
        let (node, _) = expanded("${env:ZEROS}");
        assert_eq!(node.text.as_deref(), Some("0123"));
        let (node, _) = expanded("${env:HASH}");
        assert_eq!((node.value, node.text.as_deref()), (Value::Null, Some("#secret")));
    }

    /// Scenario: a map from the environment that itself refers to the environment.
    /// Guarantees: it is expanded too, and every part of it carries the place of the reference.
    #[test]
    fn what_a_reference_brings_is_expanded() {
        let (node, _) = expanded("${env:MAP}");
        assert_eq!(node.get("y").unwrap().value, Value::Int(4317));
        assert_eq!(node.get("x").unwrap().span.to_string(), "t.yaml:3:7");
    }

    /// Scenario: references inside text, nested references, escapes and things that only look like references.
    /// Guarantees: text stays text, `$$` is `$`, and an unclosed `${` is literal.
    #[test]
    fn text_stays_text() {
        let cases = [
            ("0.0.0.0:${env:PORT}", "0.0.0.0:4317"),
            ("${env:PORT}${env:PORT}", "43174317"),
            ("x${env:NO:-${env:PORT}}", "x4317"),
            ("x${env:${env:NAME}}", "x4317"),
            ("$${env:PORT}", "${env:PORT}"),
            ("$$${env:PORT}", "$4317"),
            ("$$$${env:PORT}", "$${env:PORT}"),
            ("a$$b", "a$b"),
            ("a$b", "a$b"),
            ("${env:PORT", "${env:PORT"),
            ("}${env:PORT}", "}4317"),
            ("a}b", "a}b"),
            ("Bearer ${file:token}", "Bearer s3cret"),
            ("x${env:EMPTY}y", "xy"),
        ];
        for (text, expected) in cases {
            assert_eq!(value(text), string(expected), "{text}");
        }
        assert_eq!(value("${env:NO:-${env:PORT}}"), Value::Int(4317));
        assert_eq!(value("${file:token}"), string("s3cret"));
    }

    /// Scenario: a variable that is not set.
    /// Guarantees: empty, with a warning that names it and its place.
    #[test]
    fn an_unset_variable_is_empty_with_a_warning() {
        let (node, report) = expanded("x${env:NO}");
        assert_eq!(node.value, string("x"));
        let warning = report.warnings[0].to_string();
        assert!(
            warning.starts_with("t.yaml:3:7: the environment variable NO is not set"),
            "{warning}"
        );
        assert!(warning.contains("write $${NO} for a literal ${NO}"), "{warning}");
    }

    /// Scenario: self-reference, unknown schemes, bad names, a missing file.
    /// Guarantees: an error at the place of the value, in bounded time.
    #[test]
    fn mistakes_are_errors() {
        let cases = [
            ("${env:LOOP}", "more than 100 references"),
            ("${env:GROW}", "more than 100 references"),
            ("${vault:x}", "unknown scheme"),
            ("${env:a b}", "not the name"),
            ("${}", "not the name"),
            ("x_${1}", "write $${1} for a literal ${1}"),
            ("${file:none}", "cannot be read"),
        ];
        for (text, message) in cases {
            let (_, report) = expanded(text);
            let error = report.errors.first().map(ToString::to_string).unwrap_or_default();
            assert!(
                error.starts_with("t.yaml:3:7: ") && error.contains(message),
                "{text}: {error}"
            );
        }
    }

    proptest! {
        /// Scenario: arbitrary text made of what references are made of.
        /// Guarantees: an answer in bounded time, never a panic.
        #[test]
        fn arbitrary_references_never_panic(text in "(\\$|\\{|\\}|env:|:-|PORT|LOOP|MAP|GROW|file:|[a-z é:]){0,30}") {
            let _ = expanded(&text);
        }

        /// Scenario: text without a reference, escaped as print-config escapes it.
        /// Guarantees: expansion gives the text back.
        #[test]
        fn escaped_text_comes_back(text in "[a-z$ ]{0,20}") {
            prop_assert_eq!(value(&text.replace('$', "$$")), string(&text));
        }

        /// Scenario: text without any `$`.
        /// Guarantees: it is left alone.
        #[test]
        fn text_without_dollar_is_left_alone(text in "[^$]{0,40}") {
            prop_assert_eq!(value(&text), string(&text));
        }
    }
}
