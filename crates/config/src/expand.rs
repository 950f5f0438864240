//! `${...}` as the OpenTelemetry Collector expands it.
//!
//! - `${env:X}`, `${X}`: the environment variable; `${env:X:-default}`, `${X:-default}`: a default when it is not set.
//! - `${file:path}`: the content of a file, without one trailing newline; `${yaml:text}`: the text itself.
//! - A reference that is the entire value takes the type its text has as YAML; inside other text it stays text.
//! - References nest, innermost first, and what they bring is expanded in turn, within bounds.
//! - `$$` is a literal `$`. A `${` that is never closed is literal too, and so is `$NAME`, with a warning where it looks like a variable.
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
                    self.warn_of_bare_variables(text, &node.span);
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

    /// `$NAME` was a variable in old Collectors, and is text since: in the place of an API key its variable's name would be sent.
    ///
    /// What only looks like one may be a secret, and is not shown.
    fn warn_of_bare_variables(&mut self, text: &str, span: &Span) {
        for name in bare_variables(text) {
            if self.environment.variable(name).is_some() {
                let message = format!(
                    "${name} is taken as text, although there is a variable of that name; write ${{env:{name}}} for its value, or $${name} for this text"
                );
                self.report.warn(span, message);
            } else if name.len() + 1 == text.len() && !name.contains(|c: char| c.is_ascii_lowercase()) {
                let message = "this begins with `$` and is taken as text; write ${env:NAME} for a variable, or `$$` in the place of `$` for this text";
                self.report.warn(span, message);
            }
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
            Some(("env", rest)) => self.variable(rest, span, ""),
            Some(("file", path)) => match self.environment.read_file(path) {
                Ok(content) => Ok(without_last_newline(&content).to_owned()),
                Err(error) => Err(format!("${{file:{path}}} cannot be read: {error}")),
            },
            Some(("yaml", text)) => Ok(text.to_owned()),
            Some((name, rest)) if rest.starts_with('-') && is_name(name) => {
                self.variable(reference, span, "")
            }
            Some((scheme, _)) => Err(format!(
                "${{{reference}}} has the unknown scheme {scheme:?}; use ${{env:NAME}}, ${{env:NAME:-default}}, \
                 ${{file:path}} or ${{yaml:text}}, and write $${{{reference}}} for a literal ${{{reference}}}"
            )),
            None => {
                let literal = format!(
                    "; write $${{{reference}}} for a literal ${{{reference}}}, as in a rule's replacement"
                );
                self.variable(reference, span, &literal)
            }
        }
    }

    /// `otherwise` ends the warning that it is not set: what else may have been meant.
    fn variable(&mut self, reference: &str, span: &Span, otherwise: &str) -> Result<String, String> {
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
                     set it, or write ${{env:{name}:-default}}{otherwise}"
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

/// The names after every `$` that is neither doubled nor the beginning of `${`.
fn bare_variables(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('$')? + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
                continue;
            }
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            rest = after;
            if is_name(name) {
                return Some(name);
            }
        }
    })
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
mod tests;
