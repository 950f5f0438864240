use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> Result<Node, String> {
    parse_yaml(text, &Source::new("t.yaml")).map_err(|p| p.to_string())
}

/// Scenario: a nested document.
/// Guarantees: every key and value knows its line and column, counted from 1.
#[test]
fn nodes_know_their_places() {
    let root = parse("a:\n  b: 1\n  c: [x, y]\n").unwrap();
    let a = root.get("a").unwrap();
    assert_eq!(a.get("b").unwrap().span.to_string(), "t.yaml:2:6");
    assert_eq!(
        a.as_mapping().unwrap().entry("c").unwrap().key_span.to_string(),
        "t.yaml:3:3"
    );
    assert_eq!(
        a.get("c").unwrap().as_sequence().unwrap()[1].span.to_string(),
        "t.yaml:3:10"
    );
}

/// Scenario: scalars that are not text.
/// Guarantees: they keep their spelling, and quoted ones stay text.
#[test]
fn scalars_keep_their_spelling() {
    let root = parse("a: 1.10\nb: \"1\"\nc: 0x10\nd:\ne: !!str 5\n").unwrap();
    assert_eq!(root.get("a").unwrap().as_text(), Some("1.10"));
    assert_eq!(root.get("b").unwrap().value, Value::String("1".into()));
    assert_eq!(root.get("c").unwrap().value, Value::Int(16));
    assert!(root.get("d").unwrap().is_null());
    assert_eq!(root.get("e").unwrap().value, Value::String("5".into()));
}

/// Scenario: an empty file, one with only comments, and one with a byte order mark.
/// Guarantees: the first two are an empty map; the mark is not part of a key.
#[test]
fn empty_files_are_empty_maps() {
    for text in ["", "# nothing\n", "---\n", "\u{feff}"] {
        let root = parse(text).unwrap();
        assert!(
            root.is_null() || root.as_mapping().is_some_and(Mapping::is_empty),
            "{text:?}"
        );
    }
    assert!(parse("\u{feff}a: 1\n").unwrap().get("a").is_some());
}

/// Scenario: duplicate keys, tabs, bad indentation, unclosed quotes, a second document, odd keys and tags.
/// Guarantees: each is an error that names the place.
#[test]
fn mistakes_are_errors_with_a_place() {
    let cases = [
        (
            "a: 1\na: 2\n",
            "t.yaml:2:1: the key \"a\" is already set on line 1; remove one of the two",
        ),
        ("a:\n\tb: 1\n", "t.yaml:2:"),
        ("a:\n  b: 1\n c: 2\n", "t.yaml:3:"),
        ("a: \"x\n", "t.yaml:"),
        ("a: 1\n---\nb: 2\n", "t.yaml:2:1: a second YAML document"),
        ("? [a]\n: 1\n", "t.yaml:1:3: a key must be text"),
        ("a: !thing 1\n", "t.yaml:1:"),
        ("a: !!int x\n", "t.yaml:1:"),
        ("a: b: c\n", "t.yaml:1:"),
        ("a: *b\n", "t.yaml:1:"),
        ("a: [1, 2\nb: 3\n", "t.yaml:"),
    ];
    for (text, start) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(start), "{text:?} gave {error}");
    }
    for (text, hint) in [
        ("a:\n\tb: 1\n", "not tabs"),
        ("a: [${B}]\n", "quote values that contain `${...}`"),
        ("a: {b: ${C}}\n", "quote values that contain `${...}`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.starts_with("t.yaml:") && error.contains(hint),
            "{text:?} gave {error}"
        );
    }
}

/// Scenario: tabs between keys and values, before comments, within values and in text that is kept as it is.
/// Guarantees: the former separate, places stay what they are, and no other tab is touched; a tab does not make a map of a value.
#[test]
fn tabs_separate_keys_from_values() {
    let root = parse(
        "a:\tx:1\né:\n  \u{e9}b: \t\t5s\t# c\n  c:\t\"q\tr\"\n  d: |\n    k:\tv\ne: [1,\t2]\n? f\n:\tg\n",
    )
    .unwrap();
    let text = |path: &[&str]| root.at(path).and_then(Node::as_text);
    assert_eq!(text(&["a"]), Some("x:1"));
    assert_eq!(text(&["é", "éb"]), Some("5s"));
    assert_eq!(root.at(&["é", "éb"]).unwrap().span.to_string(), "t.yaml:3:9");
    assert_eq!(text(&["é", "c"]), Some("q\tr"));
    assert_eq!(text(&["é", "d"]), Some("k:\tv\n"));
    assert_eq!(text(&["f"]), Some("g"));
    for wrong in ["a:\tb: c\n", "a:\t- b\n"] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
    let many = "k:\n".to_owned() + &(0..300).map(|n| format!("  k{n}:\tv{n}\n")).collect::<String>();
    assert_eq!(
        parse(&many)
            .unwrap()
            .get("k")
            .unwrap()
            .as_mapping()
            .unwrap()
            .len(),
        300
    );
}

/// Scenario: anchors, aliases, and merge keys with one map and with a list of maps.
/// Guarantees: aliases copy, explicit keys win over merged ones, and earlier maps win over later ones.
#[test]
fn aliases_and_merge_keys_work() {
    let root = parse(
        "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: *a\n  x: 3\nd:\n  <<: [*a, *b]\ne: *a\n\"<<\": 5\n",
    )
    .unwrap();
    let int = |path: &[&str]| root.at(path).map(|n| n.value.clone());
    assert_eq!(int(&["c", "x"]), Some(Value::Int(3)));
    assert_eq!(int(&["c", "y"]), Some(Value::Int(1)));
    assert_eq!(int(&["d", "y"]), Some(Value::Int(1)));
    assert_eq!(int(&["d", "z"]), Some(Value::Int(2)));
    assert_eq!(root.get("e"), root.get("a"));
    assert_eq!(int(&["<<"]), Some(Value::Int(5)));
    assert!(parse("a: {<<: 5}\n").unwrap_err().contains("merge key"));
}

/// Scenario: aliases that would expand to a billion values, an alias inside itself, and 10,000 brackets.
/// Guarantees: an error in bounded time and memory, not an overflow.
#[test]
fn bombs_are_defused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    assert!(parse(&bomb).unwrap_err().contains("aliases expand"));
    assert!(parse("a: &a [*a]\n").unwrap_err().contains("inside the value"));
    for opening in ["[", "- ", "{a: ", "[{a: "] {
        assert!(
            parse(&opening.repeat(100)).unwrap_err().contains("nest deeper"),
            "{opening}"
        );
        assert!(parse(&opening.repeat(10_000)).is_err(), "{opening}");
    }
    let mut deep = String::from("a0: &a0 [x]\n");
    for i in 1..100 {
        deep.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
    }
    assert!(parse(&deep).unwrap_err().contains("nest deeper"));
}

proptest! {
    /// Scenario: arbitrary text.
    /// Guarantees: a tree or an error, never a panic.
    #[test]
    fn arbitrary_text_never_panics(text in "(?s).{0,200}") {
        let _ = parse(&text);
    }

    /// Scenario: text made of YAML's own punctuation.
    /// Guarantees: a tree or an error, never a panic.
    #[test]
    fn yaml_like_text_never_panics(text in "([-?:,&*!|>%@`'\"{}\\[\\]# \t\n~<a0.\\\\]|\\$\\{|<<: |- |\r\n|---\n){0,60}") {
        let _ = parse(&text);
    }
}
