//! From a node to a type, with every problem on the way reported.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use crate::de::{Context, NodeDeserializer, Path, Step, render};
use crate::error::{Problem, Report};
use crate::node::{Node, Value};

/// How many wrong values of one node are reported; a file with more has another kind of problem.
const MAX_WRONG_VALUES: usize = 64;

/// Decodes `node`, which stands at the key path `path` of its document.
///
/// Every unknown key and every wrong value is added to `report` as an error. A value comes back whenever one can be
/// made by taking the wrong values as absent, so that later checks can find more; it is sound only when
/// no error was added.
pub fn decode<T: DeserializeOwned>(node: &Node, path: &str, report: &mut Report) -> Option<T> {
    let mut tree = node.clone();
    let mut taken_out: HashSet<String> = HashSet::new();
    for _ in 0..MAX_WRONG_VALUES {
        let context = Context {
            prefix: path,
            unknown: Default::default(),
        };
        let result = T::deserialize(NodeDeserializer {
            node: &tree,
            path: &Path::Root,
            context: &context,
        });
        for problem in context.unknown.into_inner() {
            report.push_error(problem);
        }
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let (span, steps) = error.place.unwrap_or_else(|| (tree.span.clone(), Vec::new()));
        let place = render(path, &steps);
        // A key that is missing only because its wrong value was taken out has been reported already.
        let follows = error
            .missing
            .is_some_and(|key| taken_out.contains(&format!("{place}.{key}")));
        if !follows && !error.empty {
            let message = if place.is_empty() {
                error.message
            } else {
                format!("{place}: {}", error.message)
            };
            report.push_error(Problem::at(&span, message));
        }
        let key_steps = steps
            .iter()
            .rposition(|step| matches!(step, Step::Key(_)))
            .map_or(0, |last| last + 1);
        let steps = &steps[..key_steps];
        taken_out.insert(render(path, steps));
        if !take_out(&mut tree, steps) {
            return None;
        }
    }
    None
}

/// Removes the entry at the end of `steps`; false when there is none.
fn take_out(tree: &mut Node, steps: &[Step]) -> bool {
    let Some((Step::Key(last), parents)) = steps.split_last() else {
        return false;
    };
    let mut node = tree;
    for step in parents {
        let next = match (step, &mut node.value) {
            (Step::Key(key), Value::Mapping(mapping)) => mapping.get_mut(key),
            (Step::Index(index), Value::Sequence(items)) => items.get_mut(*index),
            _ => None,
        };
        match next {
            Some(next) => node = next,
            None => return false,
        }
    }
    match &mut node.value {
        Value::Mapping(mapping) => mapping.remove(last).is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::Deserialize;

    use super::*;
    use crate::{ByteSize, Percent, Secret, Source, Spanned, parse_yaml};

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Compression {
        #[default]
        Gzip,
        Zstd,
        #[serde(rename = "", alias = "none")]
        Off,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        #[serde(alias = "max_size_mb")]
        max_size: u64,
        list: Vec<String>,
        timeout: Option<Duration>,
        flag: bool,
    }

    #[derive(Debug, Deserialize)]
    struct Outer {
        endpoint: Spanned<String>,
        #[serde(default)]
        inner: Inner,
        #[serde(default)]
        compression: Compression,
        #[serde(default)]
        headers: BTreeMap<String, Secret>,
        #[serde(default)]
        size: ByteSize,
        #[serde(default)]
        share: Percent,
        #[serde(default)]
        ratio: f64,
        section: Option<Inner>,
    }

    fn read(text: &str) -> (Option<Outer>, Vec<String>) {
        let node = parse_yaml(text, &Source::new("t.yaml")).unwrap();
        let mut report = Report::default();
        let outer = decode(&node, "exporters.x", &mut report);
        (outer, report.errors.iter().map(ToString::to_string).collect())
    }

    /// Scenario: a document that uses every kind of value, in lenient spellings.
    /// Guarantees: numbers stand for text, text for numbers and booleans, durations and sizes have units, bare keys are absent.
    #[test]
    fn spellings_are_lenient() {
        let text = "endpoint: 1.10\ninner:\n  max_size_mb: \"512\"\n  list: a, b\n  timeout: 1m30s\n  flag: \"true\"\n\
                    compression: none\nheaders: {X-Org: 0123}\nsize: 64MiB\nshare: 80%\nratio: 1\nsection:\n";
        let (outer, errors) = read(text);
        assert_eq!(errors, [] as [String; 0]);
        let outer = outer.unwrap();
        assert_eq!(outer.endpoint.value, "1.10");
        assert_eq!(outer.endpoint.span.to_string(), "t.yaml:1:11");
        assert_eq!(outer.inner.max_size, 512);
        assert_eq!(outer.inner.list, ["a", "b"]);
        assert_eq!(outer.inner.timeout, Some(Duration::from_secs(90)));
        assert!(outer.inner.flag);
        assert_eq!(outer.compression, Compression::Off);
        assert_eq!(outer.headers["X-Org"].expose(), "0123");
        assert_eq!(outer.size, ByteSize(64 << 20));
        assert_eq!(outer.share, Percent(80.0));
        assert_eq!(outer.ratio, 1.0);
        assert!(outer.section.is_none());
        assert!(!format!("{outer:?}").contains("0123"), "secrets must not print");
    }

    /// Scenario: unknown keys at two levels, wrong types, a wrong word, a duration without a unit.
    /// Guarantees: all are reported at once, each with place, key path, nearest key and known keys; a value still comes back.
    #[test]
    fn all_problems_are_reported() {
        let text = "endpont: a\nendpoint: b\ninner:\n  max_sise: 1\n  max_size: many\n  timeout: 10\n  list: {a: 1}\n\
                    compression: gzp\nratio: [1]\nshare: 101\n";
        let (outer, errors) = read(text);
        assert!(outer.is_some());
        let expected = [
            "t.yaml:1:1: unknown key \"endpont\" in exporters.x; did you mean \"endpoint\"? Known keys: endpoint, inner, \
             compression, headers, size, share, ratio, section",
            "t.yaml:4:3: unknown key \"max_sise\" in exporters.x.inner; did you mean \"max_size\"? Known keys: max_size, \
             max_size_mb, list, timeout, flag",
            "t.yaml:5:13: exporters.x.inner.max_size: expected a whole number; found \"many\"",
            "t.yaml:6:12: exporters.x.inner.timeout: the duration 10 needs a unit, such as \"10s\" or \"10ms\"",
            "t.yaml:7:9: exporters.x.inner.list: expected a list; found a map",
            "t.yaml:8:14: exporters.x.compression: \"gzp\" is not a known value; did you mean \"gzip\"?",
            "t.yaml:9:8: exporters.x.ratio: expected a number; found a list",
            "t.yaml:10:8: exporters.x.share: expected a percentage from 0 to 100; found \"101\"",
        ];
        for start in expected {
            assert!(
                errors.iter().any(|error| error.starts_with(start)),
                "{start}\nnot in\n{}",
                errors.join("\n")
            );
        }
        assert_eq!(errors.len(), expected.len(), "{}", errors.join("\n"));
    }

    /// Scenario: a required key is absent, and the same key present with a wrong value.
    /// Guarantees: the first is said once, and the second is not said twice.
    #[test]
    fn missing_keys_are_said_once() {
        let (outer, errors) = read("ratio: 1\n");
        assert!(outer.is_none());
        assert_eq!(
            errors,
            ["t.yaml:1:1: exporters.x: the key \"endpoint\" is required; add it"]
        );
        let (_, errors) = read("endpoint: [1]\n");
        assert_eq!(
            errors,
            ["t.yaml:1:11: exporters.x.endpoint: expected text; found a list"]
        );
    }

    /// Scenario: an element of a list is wrong.
    /// Guarantees: the key path has its index.
    #[test]
    fn list_elements_have_their_index() {
        let (_, errors) = read("endpoint: a\ninner: {list: [a, [b], c]}\n");
        assert_eq!(
            errors,
            ["t.yaml:2:19: exporters.x.inner.list[1]: expected text; found a list"]
        );
    }

    /// Scenario: text with commas, and a single word, where a list is expected.
    /// Guarantees: each part is an element, with the place of the text.
    #[test]
    fn text_stands_for_a_list() {
        let node = parse_yaml("list: otlp, debug\none: otlp\n", &Source::new("t.yaml")).unwrap();
        let mut report = Report::default();
        let lists: BTreeMap<String, Vec<Spanned<String>>> = decode(&node, "x", &mut report).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let texts = |key: &str| {
            lists[key]
                .iter()
                .map(|item| item.value.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (texts("list"), texts("one")),
            (vec!["otlp", "debug"], vec!["otlp"])
        );
        assert_eq!(lists["one"][0].span.to_string(), "t.yaml:2:6");
    }

    /// Scenario: a number that does not fit.
    /// Guarantees: an error with its place, no wrap-around.
    #[test]
    fn numbers_that_do_not_fit_are_errors() {
        let (_, errors) = read("endpoint: a\ninner: {max_size: -1}\n");
        assert!(
            errors[0].starts_with("t.yaml:2:19: exporters.x.inner.max_size: expected u64"),
            "{}",
            errors[0]
        );
    }

    /// Scenario: an empty value from a variable that is not set, where a number and where text is expected.
    /// Guarantees: the number keeps its default without a further error, and text is empty.
    #[test]
    fn empty_values_from_the_environment_are_absent() {
        let mut node = parse_yaml("endpoint:\ninner: {max_size: }\n", &Source::new("t.yaml")).unwrap();
        for path in [&["endpoint"][..], &["inner", "max_size"]] {
            node.at_mut(path).unwrap().text = Some("".into());
        }
        let mut report = Report::default();
        let outer: Outer = decode(&node, "x", &mut report).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!(outer.endpoint.value, "");
        assert_eq!(outer.inner.max_size, 0);
    }
}
