//! Component and pipeline ids: `type` or `type/name`.

use std::fmt;

/// The id of a component or pipeline as written: `otlp` or `otlp/backend`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    /// The type: before the slash.
    pub kind: String,
    /// The name: after the slash, if there is one.
    pub name: Option<String>,
}

/// The Collector's limits.
const MAX_KIND_CHARS: usize = 63;
const MAX_NAME_CHARS: usize = 1024;

impl ComponentId {
    /// Reads `type` or `type/name`.
    ///
    /// # Errors
    /// A sentence saying what an id looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind.trim(), Some(name.trim())),
            None => (text.trim(), None),
        };
        let kind_ok = kind.starts_with(|c: char| c.is_ascii_alphabetic())
            && kind.len() <= MAX_KIND_CHARS
            && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let name_ok = name.is_none_or(|name| {
            !name.is_empty()
                && name.chars().count() <= MAX_NAME_CHARS
                && !name.chars().any(|c| c.is_whitespace() || c.is_control())
        });
        if kind_ok && name_ok {
            Ok(Self {
                kind: kind.to_owned(),
                name: name.map(str::to_owned),
            })
        } else {
            Err(format!(
                "{text:?} is not an id; write `type` or `type/name`, the type in letters, digits and _, the name without blanks"
            ))
        }
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: good and bad ids.
    /// Guarantees: type and name are told apart, blanks around them do not count, bad ones are refused.
    #[test]
    fn ids_have_a_type_and_perhaps_a_name() {
        let id = ComponentId::parse("otlp / backend").unwrap();
        assert_eq!((id.kind.as_str(), id.name.as_deref()), ("otlp", Some("backend")));
        assert_eq!(id.to_string(), "otlp/backend");
        assert_eq!(ComponentId::parse("otlp").unwrap().name, None);
        assert_eq!(
            ComponentId::parse("otlp/a/b").unwrap().name.as_deref(),
            Some("a/b")
        );
        for text in ["", "/", "otlp/", "/x", "1otlp", "ot lp", "ot-lp", "otlp/a b"] {
            assert!(ComponentId::parse(text).is_err(), "{text}");
        }
    }
}
