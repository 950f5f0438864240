//! Names: OTLP's to Prometheus's, in four strategies, with units and suffixes.
//!
//! The rules are those of prometheus/otlptranslator 1.0, which Prometheus 3 translates with.

mod units;

#[cfg(test)]
mod tests;

pub(crate) use units::unit_of_metadata;
use units::{clean_unit, unit_suffixes};

/// How names are translated; the names are Prometheus's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// What a legacy name cannot hold becomes `_`; units and types are appended.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// What a legacy name cannot hold becomes `_`.
    UnderscoreEscapingWithoutSuffixes,
    /// Names stay UTF-8; units and types are appended.
    NoUtf8EscapingWithSuffixes,
    /// Names stay as they are.
    NoTranslation,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 4] = [
        Strategy::UnderscoreEscapingWithSuffixes,
        Strategy::UnderscoreEscapingWithoutSuffixes,
        Strategy::NoUtf8EscapingWithSuffixes,
        Strategy::NoTranslation,
    ];

    /// Its name in Prometheus's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Strategy::UnderscoreEscapingWithSuffixes => "UnderscoreEscapingWithSuffixes",
            Strategy::UnderscoreEscapingWithoutSuffixes => "UnderscoreEscapingWithoutSuffixes",
            Strategy::NoUtf8EscapingWithSuffixes => "NoUTF8EscapingWithSuffixes",
            Strategy::NoTranslation => "NoTranslation",
        }
    }

    /// Whether names are held to the legacy characters.
    #[must_use]
    pub fn escapes(self) -> bool {
        matches!(
            self,
            Strategy::UnderscoreEscapingWithSuffixes | Strategy::UnderscoreEscapingWithoutSuffixes
        )
    }

    /// Whether units and types are appended.
    #[must_use]
    pub fn adds_suffixes(self) -> bool {
        matches!(
            self,
            Strategy::UnderscoreEscapingWithSuffixes | Strategy::NoUtf8EscapingWithSuffixes
        )
    }
}

/// What of a metric's type decides on its suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Suffix {
    /// A monotonic sum: `_total`.
    Total,
    /// A gauge: `_ratio`, where the unit is `1`.
    Ratio,
    /// Any other.
    None,
}

/// The name of a metric family; `None` when nothing of it can be kept.
pub(crate) fn metric_name(
    strategy: Strategy,
    namespace: &str,
    name: &str,
    unit: &str,
    suffix: Suffix,
) -> Option<String> {
    if !strategy.escapes() {
        let name = unescaped(namespace, name, unit, suffix, strategy.adds_suffixes());
        return (!name.is_empty()).then_some(name);
    }
    let built = if strategy.adds_suffixes() {
        escaped_with_suffixes(namespace, name, unit, suffix)
    } else {
        escaped(namespace, name)
    };
    // Underscores alone are a name only where the sender chose them.
    let usable = !built.is_empty() && (built == name || built.bytes().any(|byte| byte != b'_'));
    usable.then_some(built)
}

fn is_metric_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

fn escaped(namespace: &str, name: &str) -> String {
    let join = |text: &str| {
        let words = text.split(|c| !is_metric_char(c) && c != '_');
        words
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join("_")
    };
    let name = join(name);
    if !namespace.is_empty() {
        return format!("{}_{name}", join(namespace));
    }
    no_leading_digit(name)
}

fn escaped_with_suffixes(namespace: &str, name: &str, unit: &str, suffix: Suffix) -> String {
    let mut words: Vec<&str> = name
        .split(|c| !is_metric_char(c))
        .filter(|word| !word.is_empty())
        .collect();
    let (main, per) = unit_suffixes(unit);
    let per = per.map_or(String::new(), |per| clean_unit(&format!("per_{per}")));
    let mut main = clean_unit(main);
    if words.contains(&main.as_str()) {
        main.clear();
    }
    let mut per = if per == "per_" {
        ""
    } else {
        per.strip_suffix('_').unwrap_or(&per)
    };
    if words.contains(&per) {
        per = "";
    }
    let mut main = main.as_str();
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    words.extend([main, per].into_iter().filter(|word| !word.is_empty()));
    let last = match suffix {
        Suffix::Total => Some("total"),
        Suffix::Ratio if unit == "1" => Some("ratio"),
        Suffix::Ratio | Suffix::None => None,
    };
    if let Some(last) = last {
        words.retain(|word| *word != last);
        words.push(last);
    }
    if !namespace.is_empty() {
        words.insert(0, namespace);
    }
    no_leading_digit(words.join("_"))
}

fn no_leading_digit(name: String) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("_{name}");
    }
    name
}

fn unescaped(namespace: &str, name: &str, unit: &str, suffix: Suffix, suffixes: bool) -> String {
    let mut built = if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}_{name}")
    };
    if !suffixes {
        return built;
    }
    let last = match suffix {
        Suffix::Total => Some("total"),
        Suffix::Ratio if unit == "1" => Some("ratio"),
        Suffix::Ratio | Suffix::None => None,
    };
    if let Some(last) = last {
        trim_word(&mut built, last);
    }
    let (main, per) = unit_suffixes(unit);
    let per = per.map(|per| format!("per_{per}"));
    if let Some(per) = &per {
        trim_word(&mut built, per);
    }
    if !main.is_empty() && !built.ends_with(main) {
        built.push('_');
        built.push_str(main);
    }
    for word in [per.as_deref(), last].into_iter().flatten() {
        built.push('_');
        built.push_str(word);
    }
    built
}

/// Takes `word` and the character before it off the end, where something is left then.
fn trim_word(name: &mut String, word: &str) {
    if name.len() > word.len() + 1 && name.ends_with(word) {
        name.truncate(name.len() - word.len());
        name.pop();
    }
}

/// How label names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LabelNames {
    pub escapes: bool,
    pub keep_multiple_underscores: bool,
    pub key_before_underscore: bool,
}

impl LabelNames {
    /// The name of the label that an attribute with this key becomes; `None` when nothing of it can be kept.
    pub fn of(self, key: &str) -> Option<String> {
        if key.is_empty() {
            return None;
        }
        if !self.escapes {
            return Some(key.to_owned());
        }
        let mut name = self.escape(key);
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert_str(0, "key_");
        } else if self.key_before_underscore && name.starts_with('_') && !name.starts_with("__") {
            name.insert_str(0, "key");
        }
        name.bytes().any(|byte| byte != b'_').then_some(name)
    }

    fn escape(self, key: &str) -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        if self.keep_multiple_underscores {
            return key.chars().map(kept).collect();
        }
        // The underscores around reserved names stay.
        let inner = key.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
        let mut name = String::with_capacity(key.len());
        if inner.is_some() {
            name.push_str("__");
        }
        let mut after_underscore = false;
        for c in inner.unwrap_or(key).chars().map(kept) {
            if c != '_' || !after_underscore {
                name.push(c);
            }
            after_underscore = c == '_';
        }
        if inner.is_some() {
            name.push_str("__");
        }
        name
    }
}
