use super::*;

const SUFFIXES: Strategy = Strategy::UnderscoreEscapingWithSuffixes;

fn named(strategy: Strategy, name: &str, unit: &str, suffix: Suffix) -> String {
    metric_name(strategy, "", name, unit, suffix).unwrap_or_default()
}

/// Scenario: names whose translation surprises, each run through Prometheus's own translator by hand.
/// Guarantees: the same names come out.
#[test]
fn metric_names_that_surprise() {
    use Suffix::{None as Other, Ratio, Total};
    for (name, unit, suffix, want) in [
        (
            "requests_per_second",
            "1/s",
            Ratio,
            "requests_per_second_per_second",
        ),
        ("foo_total_bar", "By", Total, "foo_bar_bytes_total"),
        ("seconds.cpu", "s", Total, "seconds_cpu_total"),
        ("9lives", "", Other, "_9lives"),
        ("p", "{packet}/s", Other, "p_per_second"),
        ("x", "m/m", Other, "x_meters_per_minute"),
        ("cpu.utilization", "1", Ratio, "cpu_utilization_ratio"),
        ("cpu.utilization", "1", Total, "cpu_utilization_total"),
        (
            "http.server.duration",
            "ms",
            Other,
            "http_server_duration_milliseconds",
        ),
        ("__x__y__", "", Other, "x_y"),
        ("größe", "%", Other, "gr_e_percent"),
        ("...", "", Other, ""),
        ("", "", Total, "total"),
        ("a:b", "foo-bar", Other, "a:b_foo_bar"),
    ] {
        assert_eq!(named(SUFFIXES, name, unit, suffix), want, "{name} {unit}");
    }
    let without = Strategy::UnderscoreEscapingWithoutSuffixes;
    for (name, want) in [("a__b.c", "a__b_c"), ("_", "_"), (".", ""), ("1.x", "_1_x")] {
        assert_eq!(named(without, name, "s", Total), want);
    }
    let utf8 = Strategy::NoUtf8EscapingWithSuffixes;
    for (name, unit, suffix, want) in [
        ("milliseconds", "s", Other, "milliseconds"),
        ("a.b_total", "s", Total, "a.b_seconds_total"),
        ("total", "", Total, "total_total"),
        ("x_per_second", "By/s", Other, "x_bytes_per_second"),
        // The character before the word goes with it, whole, where Prometheus takes one byte.
        ("xétotal", "", Total, "x_total"),
    ] {
        assert_eq!(named(utf8, name, unit, suffix), want, "{name} {unit}");
    }
    assert_eq!(
        metric_name(SUFFIXES, "ns", "9x", "", Suffix::None).unwrap(),
        "ns_9x"
    );
}

/// Scenario: keys of attributes in every combination of the label options.
/// Guarantees: legacy names as Prometheus makes them, and none where nothing is left.
#[test]
fn label_names() {
    let plain = LabelNames {
        escapes: true,
        keep_multiple_underscores: false,
        key_before_underscore: true,
    };
    for (key, want) in [
        ("http.method", Some("http_method")),
        ("a..b", Some("a_b")),
        ("1st", Some("key_1st")),
        ("_private", Some("key_private")),
        ("__reserved--x__", Some("__reserved_x__")),
        ("__half", Some("key_half")),
        ("___", Some("key_")),
        ("____", None),
        ("é", Some("key_")),
        ("", None),
    ] {
        assert_eq!(plain.of(key).as_deref(), want, "{key}");
    }
    let kept = LabelNames {
        keep_multiple_underscores: true,
        ..plain
    };
    assert_eq!(kept.of("a..b").as_deref(), Some("a__b"));
    let bare = LabelNames {
        key_before_underscore: false,
        ..plain
    };
    assert_eq!(bare.of("_private").as_deref(), Some("_private"));
    assert_eq!(bare.of("é"), None);
    let utf8 = LabelNames {
        escapes: false,
        ..plain
    };
    assert_eq!(utf8.of("é.x").as_deref(), Some("é.x"));
}

/// Scenario: units in metadata.
/// Guarantees: the words of the name, joined.
#[test]
fn units_of_metadata() {
    for (unit, want) in [
        ("By/s", "bytes_per_second"),
        ("{x}", ""),
        ("1", ""),
        ("foo-", "foo"),
    ] {
        assert_eq!(unit_of_metadata(unit), want);
    }
}
