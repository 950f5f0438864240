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
    assert!(warning.ends_with("or write ${env:NO:-default}"), "{warning}");
    let (_, report) = expanded("x${NO}");
    let warning = report.warnings[0].to_string();
    assert!(warning.contains("write $${NO} for a literal ${NO}"), "{warning}");
}

/// Scenario: `$NAME` as old Collectors had it: a variable that is set, one that is not, amid text, and in capitals only; a password
/// hash, `$$`, and names that are not variables.
/// Guarantees: all of it stays text; a warning where it is likely that a variable was meant, which shows nothing that is not a variable's name.
#[test]
fn a_bare_dollar_name_is_text_with_a_warning() {
    let warnings = |text: &str| -> Vec<String> {
        let (node, report) = expanded(text);
        assert_eq!(node.value, string(&text.replace("$$", "$")), "{text}");
        report.warnings.iter().map(ToString::to_string).collect()
    };
    for (text, name) in [
        ("$PORT", "PORT"),
        ("Bearer $EMPTY", "EMPTY"),
        ("h:$PORT/p", "PORT"),
    ] {
        let found = warnings(text);
        assert!(
            found.len() == 1
                && found[0].starts_with(&format!("t.yaml:3:7: ${name} is taken as text"))
                && found[0].contains(&format!("write ${{env:{name}}}")),
            "{text}: {found:?}"
        );
    }
    let found = warnings("$API_KEY");
    assert!(
        found.len() == 1 && found[0].contains("write ${env:NAME} for a variable"),
        "{found:?}"
    );
    assert!(!found[0].contains("API_KEY"), "{found:?}");
    for text in [
        "$$PORT",
        "$$API_KEY",
        "$apr1$r31$HqJ",
        "$2y$10$abc",
        "a$b",
        "$1",
        "US$",
        "$",
        "x$API_KEY",
    ] {
        assert_eq!(warnings(text), [""; 0], "{text}");
    }
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
