#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use sluice_admission::{Budget, LatencyThresholds};

use super::*;

const METHOD: &str = "otlp/a b grpc logs";

fn gate() -> Gate {
    Gate::new(Budget::new(64 << 20), Duration::ZERO, &Registry::default(), 1)
}

fn shedder(guard: GuardSettings) -> (Shedder, Registry) {
    let registry = Registry::default();
    let settings = ShedSettings {
        guard,
        priorities: Vec::new(),
    };
    (Shedder::new(settings, &registry, 1), registry)
}

/// The value of a metric with these labels.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("{series} not in\n{text}"))
        .trim()
        .parse()
        .unwrap()
}

/// Scenario: twenty requests of one receiver's signal, the later ones slower, recorded with their own times.
/// Guarantees: every figure of the tracker is a metric, labelled by receiver, transport and signal; there is no series of anything else.
#[test]
fn every_figure_is_a_metric() {
    let (shedder, registry) = shedder(GuardSettings::default());
    let guard = &shedder.0.guard;
    let now = shedder.0.origin.now();
    for n in 1..=20_u64 {
        let ticket = guard.admit(METHOD, Priority::Normal, now).unwrap();
        guard.settle(ticket, Outcome::Success, n * 1_000_000, now);
    }
    let text = registry.render();
    let labels = "receiver=\"otlp/a b\",transport=\"grpc\",signal=\"logs\"";
    let of = |name: &str| value(&text, &format!("sluice_receiver_latency_{name}{{{labels}}}"));
    let median = value(
        &text,
        &format!("sluice_receiver_latency_seconds{{{labels},quantile=\"0.5\"}}"),
    );
    assert!((0.009..=0.012).contains(&median), "{median}");
    assert!((0.001..0.020).contains(&of("average_seconds")), "{text}");
    assert!(
        of("slope_seconds") > 0.0 && of("drift_seconds") > of("slope_seconds"),
        "{text}"
    );
    assert!((0.1..10.0).contains(&of("drift_ratio")), "{text}");
    assert!((19.0..=20.0).contains(&of("samples")), "{text}");
    assert_eq!(of("level"), 0.0);
    let series = text
        .lines()
        .filter(|line| line.starts_with("sluice_receiver_latency"));
    assert_eq!(series.count(), 9, "{text}");
}

/// Scenario: latency sets a level, at a guard that enforces; the requests of one signal are slow, those of another are not.
/// Guarantees: the slow ones have their level, as a metric, and are refused with a hint, as busy; the others come in.
#[test]
fn latency_may_set_a_level() {
    let (shedder, registry) = shedder(GuardSettings {
        latency: LatencyThresholds {
            p99_emergency: 50_000_000,
            ..LatencyThresholds::NEVER
        },
        ..GuardSettings::default()
    });
    let guard = &shedder.0.guard;
    let now = shedder.0.origin.now();
    for n in 0..20_u64 {
        let ticket = guard.admit(METHOD, Priority::Normal, now).unwrap();
        // Judged when the last of them ends, a moment later.
        guard.settle(ticket, Outcome::Success, 100_000_000, now + n / 19 * 2_000_000);
    }
    let level = "sluice_receiver_latency_level{receiver=\"otlp/a b\",transport=\"grpc\",signal=\"logs\"}";
    assert_eq!(value(&registry.render(), level), 4.0);
    let gate = gate();
    let enter = |method| shedder.enter(method, TenantId::DEFAULT, &gate);
    // One each tenth of a second passes.
    let answers: Vec<_> = (0..3).map(|_| enter(METHOD).map(drop)).collect();
    let refused = answers.into_iter().find_map(Result::err).unwrap();
    assert!(
        matches!(&refused, Refusal::Busy { reason: "level", retry_after, .. } if !retry_after.is_zero()),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("level emergency by latency"),
        "{refused}"
    );
    assert!((0..10).all(|_| enter("otlp/a b grpc traces").is_ok()));
}

/// Scenario: moderate is switched off, critical is not, and the budget is above critical.
/// Guarantees: what has to drain is counted from the first step that sheds.
#[test]
fn a_step_that_is_switched_off_is_skipped() {
    let thresholds = SignalThresholds {
        budget: Steps::new(0.5, f64::INFINITY, 0.8, f64::INFINITY),
        ..SignalThresholds::default()
    };
    let signals = Signals {
        budget: 0.9,
        ..Signals::default()
    };
    assert!((excess(&signals, &thresholds) - 0.2).abs() < 1e-9);
}
