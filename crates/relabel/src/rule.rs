//! One rule, and rules in order.

use md5::{Digest, Md5};
use regex::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, IntoDeserializer as _};

use crate::Labels;
use crate::expression::compile;

/// What separates source labels unless a rule says so.
const SEPARATOR: &str = ";";

/// What is put in unless a rule says so: the first group.
const REPLACEMENT: &str = "$1";

/// What a rule does. In a file its name may have capitals, as in Prometheus's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase", remote = "Self")]
pub enum Action {
    /// Sets `target_label` to `replacement`, where `regex` matches the source labels.
    #[default]
    Replace,
    /// Drops the series unless `regex` matches the source labels.
    Keep,
    /// Drops the series if `regex` matches the source labels.
    Drop,
    /// Drops the series unless the source labels are what `target_label` is.
    KeepEqual,
    /// Drops the series if the source labels are what `target_label` is.
    DropEqual,
    /// Sets `target_label` to a hash of the source labels, modulo `modulus`.
    HashMod,
    /// Copies labels whose names match `regex` to what `replacement` makes of their names.
    LabelMap,
    /// Removes labels whose names match `regex`.
    LabelDrop,
    /// Removes labels whose names do not match `regex`.
    LabelKeep,
    /// Sets `target_label` to the source labels in lower case.
    Lowercase,
    /// Sets `target_label` to the source labels in upper case.
    Uppercase,
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::deserialize(name.to_lowercase().into_deserializer())
    }
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }
}

/// A rule as written: the keys of Prometheus's `relabel_configs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RuleConfig {
    /// The labels whose values are joined with `separator`.
    pub source_labels: Vec<String>,
    /// Absent: `;`
    pub separator: Option<String>,
    /// Absent: `(.*)`
    pub regex: Option<String>,
    /// For `hashmod`.
    pub modulus: Option<u64>,
    /// The label that is set or compared; in `replace`, groups of `regex` can be part of it.
    pub target_label: String,
    /// Absent: `$1`
    pub replacement: Option<String>,
    /// Absent: `replace`
    pub action: Action,
}

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {number} ({action}): {reason}")]
pub struct InvalidRule {
    /// Which one, from 1.
    pub number: usize,
    /// What it is to do.
    pub action: &'static str,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

#[derive(Debug, Clone)]
struct Rule {
    source_labels: Vec<String>,
    separator: String,
    regex: Regex,
    modulus: u64,
    target_label: String,
    replacement: String,
    action: Action,
}

/// Rules, applied in order.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Makes rules ready.
    ///
    /// # Errors
    /// When one lacks what its action needs, has what it does not use, or has an expression that cannot be read.
    pub fn new(configs: Vec<RuleConfig>) -> Result<Self, InvalidRule> {
        let rule = |(index, config): (usize, RuleConfig)| {
            let action = config.action;
            Rule::new(config).map_err(|reason| InvalidRule {
                number: index + 1,
                action: action.name(),
                reason,
            })
        };
        let rules: Result<_, _> = configs.into_iter().enumerate().map(rule).collect();
        Ok(Self(rules?))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies all of them; false when the series is to be dropped, whose labels are then as they were up to there.
    #[must_use]
    pub fn apply(&self, labels: &mut Labels) -> bool {
        let mut value = String::new();
        self.0.iter().all(|rule| rule.apply(labels, &mut value))
    }
}

impl Rule {
    fn new(config: RuleConfig) -> Result<Self, String> {
        use Action::{
            DropEqual, HashMod, KeepEqual, LabelDrop, LabelKeep, LabelMap, Lowercase, Replace, Uppercase,
        };
        let action = config.action;
        // What is said to be as it is anyway, as on Prometheus's page of its configuration, does not count.
        let sets = |given: &Option<String>, default| given.as_deref().is_some_and(|given| given != default);
        let replaces = sets(&config.replacement, REPLACEMENT);
        let sets_more = config.modulus.unwrap_or(0) != 0 || sets(&config.separator, SEPARATOR) || replaces;
        match action {
            Replace | HashMod | Lowercase | Uppercase | KeepEqual | DropEqual
                if config.target_label.is_empty() =>
            {
                return Err("needs target_label".to_owned());
            }
            HashMod if config.modulus.unwrap_or(0) == 0 => {
                return Err("needs a modulus of at least 1".to_owned());
            }
            Lowercase | Uppercase if replaces => {
                return Err("does not use replacement; remove it".to_owned());
            }
            // Prometheus takes no expression here, not even the default one; its page does not print that.
            KeepEqual | DropEqual if sets_more || config.regex.is_some() => {
                return Err("uses source_labels and target_label only; remove the others".to_owned());
            }
            LabelDrop | LabelKeep
                if sets_more || !config.source_labels.is_empty() || !config.target_label.is_empty() =>
            {
                return Err("uses regex only; remove the others".to_owned());
            }
            LabelMap if config.replacement.as_deref() == Some("") => {
                return Err("needs a replacement that makes a label name".to_owned());
            }
            _ => {}
        }
        let expression = config.regex.as_deref().unwrap_or("(.*)");
        let regex = compile(expression).map_err(|error| format!("regex {expression:?}: {error}"))?;
        Ok(Self {
            source_labels: config.source_labels,
            separator: config.separator.unwrap_or_else(|| SEPARATOR.to_owned()),
            regex,
            modulus: config.modulus.unwrap_or(0),
            target_label: config.target_label,
            replacement: config.replacement.unwrap_or_else(|| REPLACEMENT.to_owned()),
            action,
        })
    }

    fn apply(&self, labels: &mut Labels, value: &mut String) -> bool {
        value.clear();
        for (index, name) in self.source_labels.iter().enumerate() {
            if index > 0 {
                value.push_str(&self.separator);
            }
            value.push_str(labels.get(name));
        }
        match self.action {
            Action::Keep => return self.regex.is_match(value),
            Action::Drop => return !self.regex.is_match(value),
            Action::KeepEqual => return labels.get(&self.target_label) == value,
            Action::DropEqual => return labels.get(&self.target_label) != value,
            Action::Replace => {
                if let Some(groups) = self.regex.captures(value) {
                    let (mut target, mut replacement) = (String::new(), String::new());
                    groups.expand(&self.target_label, &mut target);
                    groups.expand(&self.replacement, &mut replacement);
                    labels.set(&target, &replacement);
                }
            }
            Action::HashMod => {
                let digest: [u8; 16] = Md5::digest(value.as_bytes()).into();
                let [.., a, b, c, d, e, f, g, h] = digest;
                let hash = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % self.modulus;
                labels.set(&self.target_label, &hash.to_string());
            }
            Action::Lowercase => labels.set(&self.target_label, &value.to_lowercase()),
            Action::Uppercase => labels.set(&self.target_label, &value.to_uppercase()),
            Action::LabelMap => {
                // Names found on the way are not looked at again.
                let found: Vec<(String, String)> = labels
                    .iter()
                    .filter_map(|(name, value)| {
                        let groups = self.regex.captures(name)?;
                        let mut mapped = String::new();
                        groups.expand(&self.replacement, &mut mapped);
                        Some((mapped, value.to_owned()))
                    })
                    .collect();
                for (name, value) in found {
                    labels.set(&name, &value);
                }
            }
            Action::LabelDrop => labels.retain(|name| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name| self.regex.is_match(name)),
        }
        true
    }
}
