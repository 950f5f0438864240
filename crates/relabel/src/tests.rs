use super::*;

fn labels(text: &str) -> Labels {
    text.split(' ')
        .filter_map(|label| label.split_once('='))
        .collect()
}

fn text(labels: &Labels) -> String {
    let each: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    each.join(" ")
}

/// What becomes of a set; `None` when it is dropped.
fn applied(config: RuleConfig, set: &str) -> Option<String> {
    let mut set = labels(set);
    let kept = Rules::new(vec![config]).unwrap().apply(&mut set);
    kept.then(|| text(&set))
}

fn rule(action: Action, source: &[&str], target: &str, regex: &str, replacement: &str) -> RuleConfig {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    RuleConfig {
        action,
        source_labels: source.iter().map(|name| (*name).to_owned()).collect(),
        target_label: target.to_owned(),
        regex: given(regex),
        replacement: given(replacement),
        ..RuleConfig::default()
    }
}

/// Scenario: `replace` with and without a match, groups, targets made from groups, and nothing to put in.
/// Guarantees: anchored matches only; a target that is set to nothing is removed; one that is no name is left alone.
#[test]
fn replace() {
    use Action::Replace;
    let set = "a=foo b=bar c=baz";
    for (source, target, regex, replacement, want) in [
        (
            &["a"][..],
            "d",
            "f(.*)",
            "ch${1}-ch${1}",
            "a=foo b=bar c=baz d=choo-choo",
        ),
        (
            &["a", "b"],
            "a",
            "f(.*);(.*)r",
            "b${1}${2}m",
            "a=boobam b=bar c=baz",
        ),
        (&["a"], "d", "o", "x", set),
        (&["a"], "b", "foo|x", "", "a=foo c=baz"),
        (&["a"], "b", "nothing", "x", set),
        (&["a"], "${1}_x", "(fo)o", "v", "a=foo b=bar c=baz fo_x=v"),
        (&["a"], "${2}", "(fo)o", "v", set),
        (&[], "new", "", "plain", "a=foo b=bar c=baz new=plain"),
        (
            &["a"],
            "d",
            "(?P<x>.)(.*)",
            "$x-$2$$",
            "a=foo b=bar c=baz d=f-oo$",
        ),
        (&["none"], "a", "", "", "b=bar c=baz"),
    ] {
        let got = applied(rule(Replace, source, target, regex, replacement), set);
        assert_eq!(got.as_deref(), Some(want), "{target} {regex} {replacement}");
    }
    let separated = RuleConfig {
        separator: Some("\n".to_owned()),
        ..rule(Replace, &["a", "b"], "d", "foo.bar", "x")
    };
    // The dot matches line breaks.
    assert_eq!(
        applied(separated, "a=foo b=bar").as_deref(),
        Some("a=foo b=bar d=x")
    );
}

/// Scenario: rules that keep and drop.
/// Guarantees: the whole value has to match, an absent label is an empty value, comparing takes the joined sources.
#[test]
fn keep_and_drop() {
    use Action::{Drop, DropEqual, Keep, KeepEqual};
    for (action, source, target, regex, kept) in [
        (Keep, "a", "", "f.*", true),
        (Keep, "a", "", "f", false),
        (Keep, "none", "", "", true),
        (Keep, "none", "", ".+", false),
        (Drop, "a", "", "foo", false),
        (Drop, "a", "", "oo", true),
        (KeepEqual, "a", "b", "", true),
        (KeepEqual, "a", "c", "", false),
        (DropEqual, "a", "b", "", false),
        (DropEqual, "a", "c", "", true),
    ] {
        let got = applied(rule(action, &[source], target, regex, ""), "a=foo b=foo c=baz");
        assert_eq!(got.is_some(), kept, "{action:?} {source} {regex}");
    }
}

/// Scenario: rules about names, case and hashes; the hashes are those of Prometheus's own tests.
/// Guarantees: as Prometheus.
#[test]
fn names_case_and_hashes() {
    use Action::{HashMod, LabelDrop, LabelKeep, LabelMap, Lowercase, Uppercase};
    let set = "a=foo b1=bar b2=baz";
    let got = applied(rule(LabelMap, &[], "", "(b.)", "x_${1}"), set);
    assert_eq!(got.as_deref(), Some("a=foo b1=bar b2=baz x_b1=bar x_b2=baz"));
    let got = applied(rule(LabelMap, &[], "", "b1(.*)", "a$1"), set);
    assert_eq!(got.as_deref(), Some("a=bar b1=bar b2=baz"));
    assert_eq!(
        applied(rule(LabelDrop, &[], "", "b.*", ""), set).as_deref(),
        Some("a=foo")
    );
    assert_eq!(
        applied(rule(LabelKeep, &[], "", "b", ""), set).as_deref(),
        Some("")
    );
    let got = applied(rule(Lowercase, &["a"], "d", "", ""), "a=FoÖ");
    assert_eq!(got.as_deref(), Some("a=FoÖ d=foö"));
    let got = applied(rule(Uppercase, &["a"], "d", "", ""), "a=bar");
    assert_eq!(got.as_deref(), Some("a=bar d=BAR"));
    let hashed = |set: &str| {
        let config = RuleConfig {
            modulus: Some(1000),
            ..rule(HashMod, &["c"], "d", "", "")
        };
        let mut set = labels(set);
        assert!(Rules::new(vec![config]).unwrap().apply(&mut set));
        set.get("d").to_owned()
    };
    assert_eq!(hashed("c=baz"), "976");
    assert_eq!(hashed("c=foo\nbar"), "734");
}

/// Scenario: expressions where Go and the crate read differently.
/// Guarantees: they mean what they mean in Go.
#[test]
fn expressions_as_go_reads_them() {
    for (regex, value, matches) in [
        (r"\d+", "12", true),
        (r"\d", "٣", false),
        (r"\w", "é", false),
        (r"\W", "é", true),
        (r"[\d\s]+", "1 2", true),
        (r"[^\w]", "é", true),
        (r"[a&&b]+", "a&b", true),
        (r"[[a]+", "[a", true),
        (r"[]a]+", "]a", true),
        (r"[^]a]", "b", true),
        (r"[[:alpha:]]+", "ab", true),
        (r"[+--]+", "+,-", true),
        (r"[--/]+", "-./", true),
        (r"\Qa.b\E.", "a.bx", true),
        (r"\Qa.b\E", "axb", false),
        (r"a|b", "ab", false),
        (r".", "é", true),
        (r"(?i)FOO", "foo", true),
        (r"\pL+", "éa", true),
        (r"a\b.*", "a b", true),
    ] {
        let mut set = Labels::default();
        set.set("v", value);
        let rules = Rules::new(vec![rule(Action::Keep, &["v"], "", regex, "")]).unwrap();
        assert_eq!(rules.apply(&mut set), matches, "{regex} {value}");
    }
}

/// Scenario: for each action all that it does not use, with the values that hold when nothing is said, as Prometheus's page of its configuration
/// prints them; then each with another value.
/// Guarantees: the first is taken and changes nothing; the second is refused where Prometheus refuses it, and taken where it does not.
#[test]
fn explicit_defaults() {
    use Action::{
        DropEqual, HashMod, Keep, KeepEqual, LabelDrop, LabelKeep, LabelMap, Lowercase, Replace, Uppercase,
    };
    let of = |action| {
        let (source, target) = match action {
            LabelDrop | LabelKeep | LabelMap => (&[][..], ""),
            _ => (&["a"][..], "b"),
        };
        RuleConfig {
            modulus: (action == HashMod).then_some(7),
            ..rule(action, source, target, "", "")
        }
    };
    let given = |text: &str| Some(text.to_owned());
    for action in [
        Replace,
        Keep,
        Action::Drop,
        KeepEqual,
        DropEqual,
        HashMod,
        LabelMap,
        LabelDrop,
        LabelKeep,
        Lowercase,
        Uppercase,
    ] {
        let plain = of(action);
        let is_equal = matches!(action, KeepEqual | DropEqual);
        let said = RuleConfig {
            separator: given(";"),
            replacement: given("$1"),
            regex: given("(.*)").filter(|_| !is_equal),
            modulus: plain.modulus.or(Some(0)),
            ..plain.clone()
        };
        let set = "a=Foo b=Foo c=d";
        assert_eq!(applied(said, set), applied(plain.clone(), set), "{action:?}");
        let refused = |config: RuleConfig| Rules::new(vec![config]).is_err();
        let names = matches!(action, LabelDrop | LabelKeep);
        let is_case = matches!(action, Lowercase | Uppercase);
        let replacement = RuleConfig {
            replacement: given("x"),
            ..plain.clone()
        };
        assert_eq!(refused(replacement), is_equal || names || is_case, "{action:?}");
        let separator = RuleConfig {
            separator: given(""),
            ..plain.clone()
        };
        assert_eq!(refused(separator), is_equal || names, "{action:?}");
        let modulus = RuleConfig {
            modulus: Some(3),
            ..plain.clone()
        };
        assert_eq!(refused(modulus), is_equal || names, "{action:?}");
        let regex = RuleConfig {
            regex: given("(.*)"),
            ..plain
        };
        assert_eq!(refused(regex), is_equal, "{action:?}");
    }
}

/// Scenario: names of actions with capitals, and one that is none.
/// Guarantees: case does not matter, as in Prometheus; what is none is told what there is.
#[test]
fn names_of_actions() {
    use serde::Deserialize;
    use serde::de::IntoDeserializer;
    use serde::de::value::Error;
    let action = |name: &'static str| {
        <Action as Deserialize>::deserialize(IntoDeserializer::<Error>::into_deserializer(name))
    };
    assert_eq!(action("LabelMap"), Ok(Action::LabelMap));
    assert_eq!(action("KEEPEQUAL"), Ok(Action::KeepEqual));
    assert_eq!(action("replace"), Ok(Action::Replace));
    assert!(action("labelmaps").unwrap_err().to_string().contains("labelkeep"));
}

/// Scenario: rules that lack something, or have what they do not use.
/// Guarantees: the error names the rule and what to do.
#[test]
fn rules_that_cannot_be_used() {
    use Action::{DropEqual, HashMod, LabelDrop, LabelMap, Lowercase, Replace};
    for (config, says) in [
        (
            rule(Replace, &["a"], "", "", ""),
            "rule 1 (replace): needs target_label",
        ),
        (rule(HashMod, &["a"], "b", "", ""), "modulus"),
        (rule(Lowercase, &["a"], "b", "", "x"), "replacement"),
        (rule(DropEqual, &["a"], "b", "x", ""), "remove the others"),
        (rule(LabelDrop, &["a"], "", "x", ""), "remove the others"),
        (rule(Replace, &["a"], "b", "(", ""), "regex \"(\""),
    ] {
        let error = Rules::new(vec![config]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let empty = RuleConfig {
        action: LabelMap,
        replacement: Some(String::new()),
        ..RuleConfig::default()
    };
    assert!(Rules::new(vec![empty]).is_err());
}
