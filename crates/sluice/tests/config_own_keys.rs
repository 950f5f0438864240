//! Keys that the Collector does not have: `tenant` of receivers, `named_tokens`, `service.admission`, `tenant_header`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sluice::settings::{
    Admission, AdmissionMode, AdmissionPreset, Exporter, Receiver, Settings, TenantFrom, print_config,
};
use sluice_admission::{GuardSettings, LatencyThresholds};
use sluice_config::Loader;

fn settings(receiver: &str, extensions: &str, service: &str) -> Result<Settings, String> {
    let yaml = format!(
        "receivers:\n  otlp: {{{receiver}}}\n\
         exporters: {{debug: {{}}}}\n\
         extensions: {{{extensions}}}\n\
         service:\n  {service}\n  pipelines: {{logs: {{receivers: [otlp], exporters: [debug]}}}}\n"
    );
    let document = Loader::new().text("own.yaml", yaml).load().unwrap();
    Settings::from_document(&document).map_err(|problems| problems.to_string())
}

const BOTH: &str = "protocols: {grpc: , http: }";

/// Scenario: tenants from every source at once, from one of them, and from none.
/// Guarantees: what is written is what is read; nothing is the default.
#[test]
fn tenants_are_read() {
    let tenant = |text: &str| {
        let settings = settings(&format!("{BOTH}{text}"), "", "extensions: []").unwrap();
        let Some(Receiver::Otlp(otlp)) = settings.receivers.into_values().next() else {
            panic!("an otlp receiver")
        };
        otlp.tenant
    };
    assert_eq!(tenant(""), None);
    assert_eq!(
        tenant(", tenant: {from_header: X-Scope-OrgID, from_resource_attribute: tenant.id}"),
        Some(TenantFrom {
            from_header: Some("X-Scope-OrgID".into()),
            from_auth: false,
            from_resource_attribute: Some("tenant.id".into()),
        })
    );
}

/// Scenario: tenants from nowhere, from headers that are secrets, binary or no headers, from no attribute, from identities
/// that are not there, and misspelt.
/// Guarantees: each is an error that names the key and says what to do.
#[test]
fn wrong_tenants_are_told() {
    for (text, expected) in [
        ("{}", "receivers.otlp.tenant: says nothing; set from_header"),
        (
            "{from_header: Authorization}",
            "receivers.otlp.tenant.from_header: Authorization does not name a tenant, and its value may be a secret",
        ),
        (
            "{from_header: x-tenant-bin}",
            "from_header: x-tenant-bin is binary in gRPC",
        ),
        (
            "{from_header: \"a b\"}",
            "from_header: \"a b\" is not a header name",
        ),
        (
            "{from_resource_attribute: \"\"}",
            "from_resource_attribute: is empty",
        ),
        (
            "{from_auth: true}",
            "receivers.otlp.tenant.from_auth: protocols.grpc has no auth, so nobody there has a name",
        ),
        ("{from_auth: true}", "protocols.http has no auth"),
        ("{from_headers: x}", "did you mean \"from_header\"?"),
    ] {
        let error = settings(&format!("{BOTH}, tenant: {text}"), "", "extensions: []").unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Scenario: tenants by identity, where tokens have names, and where they have none; a token without text.
/// Guarantees: names are enough; without them the error says where to put them; an empty token is an error; tokens are
/// not printed.
#[test]
fn identities_need_names() {
    let receiver = "protocols: {grpc: {auth: {authenticator: bearertokenauth}}}, tenant: {from_auth: true}";
    let with = |bearer: &str| {
        settings(
            receiver,
            &format!("bearertokenauth: {{{bearer}}}"),
            "extensions: [bearertokenauth]",
        )
    };
    with("named_tokens: {team-a: s3cret}").unwrap();
    let error = with("token: s3cret").unwrap_err();
    assert!(
        error.contains(
            "the tokens of bearertokenauth belong to nobody; give them names under its named_tokens"
        ),
        "{error}"
    );
    let error = with("named_tokens: {team-a: \"\"}").unwrap_err();
    assert!(
        error.contains("extensions.bearertokenauth.named_tokens.team-a: is empty"),
        "{error}"
    );
    let text = "extensions: {bearertokenauth: {named_tokens: {team-a: s3cret}}}\n";
    let printed = print_config(&Loader::new().text("t.yaml", text).load().unwrap());
    assert!(
        !printed.contains("s3cret") && printed.contains("team-a"),
        "{printed}"
    );
}

/// Scenario: `service.admission` absent, with some keys, and with all sorts of mistakes.
/// Guarantees: it only observes by default; given steps replace defaults; mistakes are told with their place.
#[test]
fn admission_is_read() {
    let with = |admission: &str| settings(BOTH, "", admission);
    let defaults = with("extensions: []").unwrap().admission;
    assert_eq!(defaults.mode, AdmissionMode::Observe);
    let given = with(
        "admission: {mode: enforce, budget: {moderate: 90%, critical: never, emergency: never}, queue_age: {warning: 10s}, \
         priority: {high: [acme], low: [batch]}}",
    )
    .unwrap()
    .admission;
    assert_eq!(given.mode, AdmissionMode::Enforce);
    let budget = given.guard.signals.budget;
    assert_eq!(
        (budget.warning, budget.moderate, budget.critical),
        (defaults.guard.signals.budget.warning, 0.9, f64::INFINITY)
    );
    assert!(given.guard.enforce && !defaults.guard.enforce);
    assert_eq!(given.guard.signals.queue_age_seconds.warning, 10.0);
    assert_eq!(
        (given.high, given.low),
        (vec!["acme".to_owned()], vec!["batch".to_owned()])
    );
    for (text, expected) in [
        ("{mode: on}", "service.admission.mode"),
        (
            "{budget: {warning: 0.8}}",
            "service.admission.budget.warning: expected a percentage",
        ),
        (
            "{budget: {warning: 95%}}",
            "service.admission.budget.warning: warning begins above moderate",
        ),
        (
            "{disk: {warning: -5%}}",
            "service.admission.disk.warning: expected a percentage above 0% and up to 100%",
        ),
        (
            "{disk: {emergency: 101%}}",
            "service.admission.disk.emergency: expected a percentage above 0% and up to 100%",
        ),
        (
            "{export_latency: {critical: -5s}}",
            "service.admission.export_latency.critical: a duration must not be negative",
        ),
        // Below the preset's own critical step, which is not written.
        (
            "{preset: low_latency, queue_age: {emergency: 30s}}",
            "service.admission.queue_age.emergency: critical begins above emergency",
        ),
        ("{preset: fast}", "service.admission.preset"),
        (
            "{latency: {moderate: 2s, critical: 1s}}",
            "service.admission.latency.moderate: moderate begins above critical",
        ),
        (
            "{latency: {critical: 1s, critical_average: 2s}}",
            "service.admission.latency.critical_average: is above critical",
        ),
        (
            "{hold: 1h}",
            "service.admission.hold: expected a duration from 0ns to 600s; found 3600s",
        ),
        (
            "{trickle: 0s}",
            "service.admission.trickle: expected a duration from 1ms to 10s; found 0ns",
        ),
        (
            "{half_life: 1ms}",
            "service.admission.half_life: expected a duration from 100ms to 600s; found 1ms",
        ),
        (
            "{queue_age: {warning: 10}}",
            "service.admission.queue_age.warning",
        ),
        ("{queue_agee: {}}", "did you mean \"queue_age\"?"),
        (
            "{weights: {a: 2, b: 0}}",
            "service.admission.weights.b: expected a whole number from 1 to 100; found 0",
        ),
        (
            "{mode: enforce, priority: {high: [a], low: [a]}}",
            "service.admission.priority.low: a is in high too",
        ),
    ] {
        let error = with(&format!("admission: {text}")).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.starts_with("own.yaml:6:"), "{text}: {error}");
    }
    for (text, expected) in [
        (
            "{priority: {high: [a]}}",
            "nothing is shed unless mode is enforce",
        ),
        ("{weights: {a: 2}}", "no receiver knows tenants; set its tenant"),
    ] {
        let warned = with(&format!("admission: {text}")).unwrap().warnings;
        assert!(
            warned.iter().any(|warning| warning.message.contains(expected)),
            "{warned:?}"
        );
    }
    for source in ["from_header: X-Scope-OrgID", "from_resource_attribute: tenant.id"] {
        let receiver = format!("{BOTH}, tenant: {{{source}}}");
        let weighed = settings(&receiver, "", "admission: {weights: {payments: 4}}").unwrap();
        assert!(weighed.warnings.is_empty(), "{:?}", weighed.warnings);
        assert_eq!(weighed.admission.weights["payments"].get(), 4);
    }
}

/// Scenario: each preset by its name, alone and with one threshold, one time and some latencies set beside it; a step that is switched
/// off below one that is not.
/// Guarantees: a preset is the library's, but that no latency sets a level; what is set replaces that and nothing else.
#[test]
fn presets_are_read() {
    let with = |admission: &str| -> Admission {
        let settings = settings(BOTH, "", &format!("admission: {admission}")).unwrap();
        settings.admission
    };
    for (name, preset, guard) in [
        ("balanced", AdmissionPreset::Balanced, GuardSettings::default()),
        (
            "high_throughput",
            AdmissionPreset::HighThroughput,
            GuardSettings::high_throughput(),
        ),
        (
            "low_latency",
            AdmissionPreset::LowLatency,
            GuardSettings::low_latency(),
        ),
        (
            "small_memory",
            AdmissionPreset::SmallMemory,
            GuardSettings::small_memory(),
        ),
    ] {
        let plain = GuardSettings {
            latency: LatencyThresholds::NEVER,
            enforce: false,
            ..guard
        };
        let read = with(&format!("{{preset: {name}}}"));
        assert_eq!((read.preset, &read.guard), (preset, &plain));
        let mut expected = plain;
        expected.signals.disk.moderate = 0.9;
        expected.hold = Duration::from_secs(3);
        expected.tracker.half_life = Duration::from_secs(20);
        expected.latency.ema_warning = 300_000_000;
        expected.latency.p95_critical = 2_000_000_000;
        expected.latency.ema_critical = 500_000_000;
        expected.latency.slope_warning = 10_000_000;
        let read = with(&format!(
            "{{preset: {name}, disk: {{moderate: 90%}}, hold: 3s, half_life: 20s, \
             latency: {{warning: 300ms, critical: 2s, slope: 10ms}}}}"
        ));
        assert_eq!(read.guard, expected);
    }
    let skipped = with("{budget: {moderate: never}}").guard.signals.budget;
    assert_eq!((skipped.moderate, skipped.critical), (f64::INFINITY, 0.95));
}

/// Scenario: `print-config` with a preset and a threshold, with tenants' priorities, with nothing of admission, and with a mistake.
/// Guarantees: it says every step and time that holds, and loads to the same settings again; a mistake is left as it was written.
#[test]
fn what_holds_is_printed() {
    let printed = |admission: &str| {
        let text = format!(
            "receivers: {{otlp: {{{BOTH}}}}}\nexporters: {{debug: {{}}}}\n\
             service: {{{admission} pipelines: {{logs: {{receivers: [otlp], exporters: [debug]}}}}}}\n"
        );
        let document = Loader::new().text("own.yaml", text).load().unwrap();
        let printed = print_config(&document);
        let again = Loader::new()
            .text("printed.yaml", printed.clone())
            .load()
            .unwrap();
        let read = |document| Settings::from_document(document).map(|settings| settings.admission);
        if let Ok(first) = read(&document) {
            assert_eq!(read(&again).unwrap(), first, "{printed}");
        }
        printed
    };
    let text = printed(
        "admission: {mode: enforce, preset: low_latency, disk: {warning: 7%}, trickle: 1.5ms, priority: {high: [acme]}},",
    );
    for line in [
        "mode: enforce",
        "preset: low_latency",
        "warning: 7%",
        "critical: 92%",
        "trickle: 1500us",
        "hold: 250ms",
        "half_life: 2s",
        "critical_average: never",
        "- acme",
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
    assert!(printed("").contains("preset: balanced"));
    printed("admission: {latency: {moderate: 1s, critical: 2s, slope: 1ms}, budget: {moderate: never}},");
    assert!(!printed("admission: {preset: fast},").contains("half_life"));
}

/// Scenario: a header for tenants, with a default and without; one that cannot be sent or has a meaning, or is configured as a header too; defaults that are
/// no names; no receiver that tells tenants apart.
/// Guarantees: what is written is what is read; what cannot work is an error that names the key and says what to do; the last is a warning.
#[test]
fn tenant_headers_are_read() {
    let read = |tenant: &str, more: &str| {
        let yaml = format!(
            "receivers: {{prometheusremotewrite: {{{tenant}}}}}\n\
             exporters: {{prometheusremotewrite: {{endpoint: \"http://a/api/v1/write\", {more}}}}}\n\
             service: {{pipelines: {{metrics: {{receivers: [prometheusremotewrite], exporters: [prometheusremotewrite]}}}}}}\n"
        );
        let document = Loader::new().text("own.yaml", yaml).load().unwrap();
        Settings::from_document(&document).map_err(|problems| problems.to_string())
    };
    const TENANT: &str = "tenant: {from_header: X-Scope-OrgID}";
    for (text, want) in [
        ("", (None, "default")),
        ("tenant_header: THANOS-TENANT", (Some("THANOS-TENANT"), "default")),
        (
            "tenant_header: X-Scope-OrgID, default_tenant: anonymous",
            (Some("X-Scope-OrgID"), "anonymous"),
        ),
    ] {
        let settings = read(TENANT, text).unwrap();
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
        let Some(Exporter::RemoteWrite(exporter)) = settings.exporters.into_values().next() else {
            panic!("a prometheusremotewrite exporter")
        };
        assert_eq!(
            (exporter.tenant_header.as_deref(), &*exporter.default_tenant),
            want
        );
    }
    for (text, expected) in [
        (
            "tenant_header: \"a b\"",
            "exporters.prometheusremotewrite.tenant_header: \"a b\" is not a header name",
        ),
        (
            "tenant_header: Authorization",
            "tenant_header: Authorization has a meaning of its own; name tenants in another header",
        ),
        ("tenant_header: Content-Encoding", "has a meaning of its own"),
        (
            "tenant_header: X-Scope-OrgID, headers: {x-scope-orgid: a}",
            "tenant_header: X-Scope-OrgID is in headers too; remove it there, and set default_tenant",
        ),
        (
            "default_tenant: a",
            "default_tenant: is the value of a header that is not named",
        ),
        (
            "tenant_header: X-T, default_tenant: \"\"",
            "default_tenant: must be of 1 to 150",
        ),
        (
            "tenant_header: X-T, default_tenant: a b",
            "default_tenant: must be of 1 to 150",
        ),
        ("tenant_headers: X-T", "did you mean \"tenant_header\"?"),
    ] {
        let error = read(TENANT, text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let warned = read("", "tenant_header: X-T").unwrap().warnings;
    let expected = "exporters.prometheusremotewrite.tenant_header: no receiver tells tenants apart, so all data is default's";
    assert!(
        warned.iter().any(|warning| warning.message.contains(expected)),
        "{warned:?}"
    );
}
