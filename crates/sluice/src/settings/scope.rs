//! One component's text while it is being understood: decoding, and errors and warnings with their place.

use serde::de::DeserializeOwned;
use sluice_config::{Node, Report, Span, decode};

/// A node, the key path it stands at, and where to report.
pub(super) struct Scope<'a> {
    pub(super) node: &'a Node,
    pub(super) path: &'a str,
    pub(super) report: &'a mut Report,
}

impl Scope<'_> {
    /// Decodes the node; see [`sluice_config::decode`].
    pub(super) fn decode<T: DeserializeOwned>(&mut self) -> Option<T> {
        decode(self.node, self.path, self.report)
    }

    /// Whether something was written at this key path, be it a variable that turned out empty.
    pub(super) fn has(&self, keys: &[&str]) -> bool {
        self.node
            .at(keys)
            .is_some_and(|node| !node.is_null() || node.text.is_some())
    }

    /// Notes an error about the value at a key path.
    pub(super) fn error(&mut self, keys: &[&str], message: impl AsRef<str>) {
        let text = self.sentence(keys, message.as_ref());
        let span = self.span(keys);
        self.report.error(&span, text);
    }

    /// Notes a warning about the value at a key path.
    pub(super) fn warn(&mut self, keys: &[&str], message: impl AsRef<str>) {
        let text = self.sentence(keys, message.as_ref());
        let span = self.span(keys);
        self.report.warn(&span, text);
    }

    /// Warns about keys that are read and then not needed, each with the reason.
    pub(super) fn without_effect(&mut self, keys_and_reasons: &[(&[&str], &str)]) {
        for (keys, reason) in keys_and_reasons {
            if self.has(keys) {
                self.warn(keys, format!("has no effect here: {reason}"));
            }
        }
    }

    fn sentence(&self, keys: &[&str], message: &str) -> String {
        let mut path = self.path.to_owned();
        for key in keys {
            path.push('.');
            path.push_str(key);
        }
        format!("{path}: {message}")
    }

    /// The place of the deepest key of the path that was written.
    fn span(&self, keys: &[&str]) -> Span {
        let mut node = self.node;
        let mut span = &node.span;
        for key in keys {
            let Some(entry) = node.as_mapping().and_then(|mapping| mapping.entry(key)) else {
                break;
            };
            span = &entry.key_span;
            node = &entry.value;
        }
        span.clone()
    }
}
