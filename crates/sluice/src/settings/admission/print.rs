//! `service.admission` as it holds, for `print-config`.

use std::fmt::Write;

use sluice_admission::{LatencyThresholds, Steps};
use sluice_config::{Node, Report, Source, parse_yaml};

use super::steps::NEVER;
use super::{Admission, admission};

/// Puts what a preset and the defaults stand for into a document's `service.admission`, where the document has a service and
/// that key has no mistakes. What is written there already, it says as well.
pub(in crate::settings) fn fill_in(root: &mut Node) {
    let Some(service) = root.at_mut(&["service"]) else {
        return;
    };
    let span = service.span.clone();
    let mut report = Report::default();
    let settings = match service.get("admission") {
        None => Admission::default(),
        Some(node) => admission(node, true, &mut report),
    };
    let text = as_yaml(&settings);
    let (Ok(_), Ok(holds)) = (
        report.finish(),
        parse_yaml(&text, &Source::new("service.admission")),
    ) else {
        return;
    };
    let sluice_config::Value::Mapping(service) = &mut service.value else {
        return;
    };
    let written = service.remove("admission").map(|entry| entry.value);
    let mut all = holds;
    if let sluice_config::Value::Mapping(all) = &mut all.value {
        let written = written.iter().filter_map(Node::as_mapping);
        for entry in written.flat_map(|mapping| mapping.entries()) {
            // Tenants: the rest is in the settings.
            if all.get(&entry.key).is_none() {
                all.insert(entry.key.clone(), entry.key_span.clone(), entry.value.clone());
            }
        }
    }
    service.insert("admission".to_owned(), span, all);
}

fn as_yaml(settings: &Admission) -> String {
    let guard = &settings.guard;
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        // Writing to text does not fail.
        let _ = writeln!(text, "{key}: {value}");
    };
    line("mode", settings.mode.as_str().to_owned());
    line("preset", settings.preset.as_str().to_owned());
    for (key, steps) in [
        ("budget", &guard.signals.budget),
        ("queue_bytes", &guard.signals.queue_bytes),
        ("disk", &guard.signals.disk),
    ] {
        line(key, in_braces(steps, share));
    }
    for (key, steps) in [
        ("queue_age", &guard.signals.queue_age_seconds),
        ("export_latency", &guard.signals.export_latency_seconds),
    ] {
        line(key, in_braces(steps, |seconds| time(seconds * 1e9)));
    }
    let latency = &guard.latency;
    let nanos = |nanos: u64| match nanos {
        u64::MAX => NEVER.to_owned(),
        nanos => time(nanos as f64),
    };
    let slope = match latency.slope_warning {
        slope if slope >= LatencyThresholds::NEVER.slope_warning => NEVER.to_owned(),
        slope => time(slope as f64),
    };
    line(
        "latency",
        format!(
            "{{warning: {}, moderate: {}, critical: {}, emergency: {}, critical_average: {}, slope: {slope}}}",
            nanos(latency.ema_warning),
            nanos(latency.p95_moderate),
            nanos(latency.p95_critical),
            nanos(latency.p99_emergency),
            nanos(latency.ema_critical),
        ),
    );
    line("half_life", time(guard.tracker.half_life.as_nanos() as f64));
    line("hold", time(guard.hold.as_nanos() as f64));
    line("trickle", time(guard.trickle.as_nanos() as f64));
    text
}

fn in_braces(steps: &Steps, text: fn(f64) -> String) -> String {
    let Steps {
        warning,
        moderate,
        critical,
        emergency,
    } = *steps;
    let [warning, moderate, critical, emergency] = [warning, moderate, critical, emergency].map(text);
    format!("{{warning: {warning}, moderate: {moderate}, critical: {critical}, emergency: {emergency}}}")
}

fn share(share: f64) -> String {
    match share.is_finite() {
        // Rounded to what somebody may have written: 0.07 times a hundred is not seven.
        true => format!("{}%", (share * 1e8).round() / 1e6),
        false => NEVER.to_owned(),
    }
}

fn time(nanos: f64) -> String {
    let nanos = nanos.round();
    if !nanos.is_finite() {
        return NEVER.to_owned();
    }
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
    let whole = units.into_iter().find(|(unit, _)| nanos % unit == 0.0);
    let (unit, name) = whole.unwrap_or((1.0, "ns"));
    format!("{}{name}", nanos / unit)
}
