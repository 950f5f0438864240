//! Deep merge of sources, `::` keys, and `--set`.

use crate::error::Problem;
use crate::node::{Mapping, Node, Source, Span, Value};
use crate::parse::{MAX_DEPTH, parse_yaml};

/// Lays `over` on `base`: maps merge key by key, everything else is replaced, as the Collector's confmap does.
pub(crate) fn merge(base: &mut Node, over: Node) {
    match (&mut base.value, over.value) {
        (Value::Mapping(base), Value::Mapping(over)) => {
            for entry in over.into_entries() {
                match base.get_mut(&entry.key) {
                    Some(value) => merge(value, entry.value),
                    None => base.insert(entry.key, entry.key_span, entry.value),
                }
            }
        }
        (_, value) => {
            *base = Node {
                value,
                span: over.span,
                text: over.text,
            }
        }
    }
}

/// Spreads top-level keys such as `exporters::debug::verbosity` into nested maps, as the Collector reads them.
pub(crate) fn unfold(root: Node) -> Node {
    let Node {
        value: Value::Mapping(mapping),
        span,
        text,
    } = root
    else {
        return root;
    };
    let mut unfolded = Node {
        value: Value::Mapping(Mapping::default()),
        span,
        text,
    };
    for entry in mapping.into_entries() {
        let keys: Vec<&str> = entry.key.split("::").collect();
        let nested = if keys.len() <= MAX_DEPTH && keys.iter().all(|key| !key.is_empty()) {
            nest(&keys, &entry.key_span, entry.value)
        } else {
            nest(&[&entry.key], &entry.key_span, entry.value)
        };
        merge(&mut unfolded, nested);
    }
    unfolded
}

/// Reads the `number`th `--set key.path=value` into a tree that has only this value.
pub(crate) fn parse_set(argument: &str, number: usize) -> Result<Node, Problem> {
    let source = Source::new(format!("--set #{number}"));
    let span = Span::whole(source.clone());
    let Some((path, value)) = argument.split_once('=') else {
        return Err(Problem::at(
            &span,
            format!("expected key.path=value; found {argument:?}"),
        ));
    };
    let keys: Vec<&str> = path.trim().split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(Problem::at(&span, format!("the path {path:?} has an empty key")));
    }
    if keys.len() > MAX_DEPTH {
        return Err(Problem::at(
            &span,
            format!("the path {path:?} has more than {MAX_DEPTH} keys"),
        ));
    }
    let mut value = if value.trim().is_empty() {
        Node::new(Value::Null, span.clone())
    } else {
        parse_yaml(value, &source)?
    };
    place_all(&mut value, &span);
    Ok(nest(&keys, &span, value))
}

/// Gives a node and everything below it one place.
pub(crate) fn place_all(node: &mut Node, span: &Span) {
    node.span = span.clone();
    match &mut node.value {
        Value::Sequence(items) => items.iter_mut().for_each(|item| place_all(item, span)),
        Value::Mapping(mapping) => {
            for entry in mapping.entries_mut() {
                entry.key_span = span.clone();
                place_all(&mut entry.value, span);
            }
        }
        _ => {}
    }
}

fn nest(keys: &[&str], span: &Span, value: Node) -> Node {
    keys.iter().rev().fold(value, |value, key| {
        let mut mapping = Mapping::default();
        mapping.insert((*key).to_owned(), span.clone(), value);
        Node::new(Value::Mapping(mapping), span.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(text: &str) -> Node {
        parse_yaml(text, &Source::new("t")).unwrap()
    }

    /// Scenario: two trees that share maps, lists, scalars and a null.
    /// Guarantees: maps merge; lists, scalars and nulls are replaced; each value keeps its own place.
    #[test]
    fn maps_merge_and_the_rest_is_replaced() {
        let mut base = parse_yaml("a: {x: 1, y: [1, 2]}\nb: {c: 1}\nd: 1\n", &Source::new("one")).unwrap();
        let over = parse_yaml("a: {y: [3], z: 4}\nb:\ne: 5\n", &Source::new("two")).unwrap();
        merge(&mut base, over);
        assert_eq!(base, yaml("a: {x: 1, y: [3], z: 4}\nb:\nd: 1\ne: 5\n"));
        assert_eq!(base.at(&["a", "x"]).unwrap().span.to_string(), "one:1:8");
        assert_eq!(base.at(&["a", "y"]).unwrap().span.to_string(), "two:1:8");
    }

    /// Scenario: the Collector's `::` form at the top level, mixed with the nested form.
    /// Guarantees: both end in one tree; a key with an empty part stays as it is.
    #[test]
    fn double_colon_keys_unfold() {
        let tree = unfold(yaml("a::b::c: 1\na: {b: {d: 2}}\n\"::x\": 3\n"));
        assert_eq!(tree, yaml("a: {b: {c: 1, d: 2}}\n\"::x\": 3\n"));
    }

    /// Scenario: `--set` with ids that have a slash, typed values, lists, nothing, and mistakes.
    /// Guarantees: the value is typed as YAML and carries the number of its `--set`.
    #[test]
    fn set_places_one_value() {
        let tree = parse_set("exporters.otlp/backend.tls.insecure=true", 2).unwrap();
        let value = tree
            .at(&["exporters", "otlp/backend", "tls", "insecure"])
            .unwrap();
        assert_eq!(value.value, Value::Bool(true));
        assert_eq!(value.span.to_string(), "--set #2");
        let tree = parse_set("a.b=[x, {y: 1}]", 1).unwrap();
        assert_eq!(tree, yaml("a: {b: [x, {y: 1}]}"));
        assert!(parse_set("a.b=", 1).unwrap().at(&["a", "b"]).unwrap().is_null());
        assert_eq!(
            parse_set("a=http://h:1/?x=y", 1)
                .unwrap()
                .get("a")
                .unwrap()
                .as_text(),
            Some("http://h:1/?x=y")
        );
        for (argument, message) in [
            ("a.b", "expected key.path=value"),
            (".a=1", "empty key"),
            ("a={", "--set #3"),
        ] {
            let error = parse_set(argument, 3).unwrap_err().to_string();
            assert!(
                error.starts_with("--set #3") && error.contains(message),
                "{error}"
            );
        }
    }
}
