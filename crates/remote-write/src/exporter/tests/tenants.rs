//! Whose the data is, told to the destination.

use sluice_payload::{TenantId, Tenants};

use super::*;

/// An exporter that names tenants, and their names.
fn naming(url: &str, change: impl FnOnce(&mut RemoteWriteExporterOptions)) -> (RemoteWriteExporter, Tenants) {
    let tenants = Tenants::default();
    let mut options = RemoteWriteExporterOptions {
        endpoint: url.to_owned(),
        tenant_header: Some(TenantHeader {
            name: "THANOS-TENANT".to_owned(),
            default: "anonymous".to_owned(),
            tenants: tenants.clone(),
        }),
        ..Default::default()
    };
    options.encoder.lanes = 4;
    change(&mut options);
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    (exporter, tenants)
}

fn tenants_of(seen: &Seen) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for head in seen.heads.lock().iter() {
        let name = head.split("\r\nthanos-tenant: ").nth(1).unwrap();
        let name = name.split("\r\n").next().unwrap().to_owned();
        *all.entry(name).or_default() += 1;
    }
    all
}

/// Scenario: batches of two tenants and of none over four lanes, one made ready beforehand; a body is refused and cut, another is retried.
/// Guarantees: every request says whose it is, the first as those that follow from its answer; an exporter without the setting has no senders of tenants.
#[tokio::test]
async fn each_request_says_whose_it_is() {
    let (url, seen) = destination(|number, samples| match number {
        1 => "503 Service Unavailable\r\n",
        _ if samples.iter().any(|(n, _)| n == "7") => REFUSED,
        _ => TAKEN,
    })
    .await;
    assert!(exporter(&url, 1).for_tenant(TenantId::DEFAULT).is_none());
    let (exporter, tenants) = naming(&url, |_| {});
    let [a, b] = ["team-a", "team-b"].map(|name| exporter.for_tenant(tenants.intern(name)).unwrap());
    let nobody = exporter.for_tenant(TenantId::DEFAULT).unwrap();
    let (first, second, third) = (batch(100..140, 1.0), batch(0..40, 2.0), batch(200..240, 3.0));
    b.prepare(&second, Turn::first()).await;
    let mut verdict = a.export(&first).await;
    if matches!(verdict, Verdict::Retry { .. }) {
        verdict = a.export(&first).await;
    }
    assert_eq!(verdict, delivered(0));
    let of_a = seen.requests.load(Ordering::SeqCst);
    assert_eq!(in_part(b.export(&second).await), delivered(1));
    let of_b = seen.requests.load(Ordering::SeqCst) - of_a;
    assert_eq!(nobody.export(&third).await, delivered(0));
    let of_nobody = seen.requests.load(Ordering::SeqCst) - of_a - of_b;
    let want = [("anonymous", of_nobody), ("team-a", of_a), ("team-b", of_b)];
    assert!(of_a > 1 && of_b > 4 && of_nobody > 0, "{want:?}");
    assert_eq!(
        tenants_of(&seen),
        want.map(|(name, requests)| (name.to_owned(), requests)).into()
    );
}

/// Scenario: deltas of the same series of two tenants and of none, in turn.
/// Guarantees: each tenant's series has a total of its own.
#[tokio::test]
async fn each_tenant_has_totals_of_its_own() {
    let (url, seen) = destination(|_, _| TAKEN).await;
    let (exporter, tenants) = naming(&url, |options| options.encoder.mapping.delta_to_cumulative = true);
    let ids = [tenants.intern("a"), TenantId::DEFAULT, tenants.intern("b")];
    for second in 1..4 {
        for (id, delta) in ids.into_iter().zip([1.0, 10.0, 100.0]) {
            let sender = exporter.for_tenant(id).unwrap();
            assert_eq!(sender.export(&deltas(0..1, second, delta)).await, delivered(0));
        }
    }
    let want = [1.0, 10.0, 100.0, 2.0, 20.0, 200.0, 3.0, 30.0, 300.0];
    assert_eq!(seen.taken.lock()["0"], want);
}

/// Scenario: deltas of the same series of nobody, and of a tenant that is named as nobody is told to the destination.
/// Guarantees: they have one total, for the destination has one series.
#[tokio::test]
async fn who_is_named_as_nobody_has_its_totals() {
    let (url, seen) = destination(|_, _| TAKEN).await;
    let (exporter, tenants) = naming(&url, |options| options.encoder.mapping.delta_to_cumulative = true);
    let ids = [tenants.intern("anonymous"), TenantId::DEFAULT];
    for (id, second) in ids.into_iter().zip([1, 2]) {
        let sender = exporter.for_tenant(id).unwrap();
        assert_eq!(sender.export(&deltas(0..1, second, 1.0)).await, delivered(0));
    }
    assert_eq!(seen.taken.lock()["0"], [1.0, 2.0]);
}

/// Scenario: header names and defaults that cannot name a tenant.
/// Guarantees: each is refused at start, by name.
#[test]
fn headers_that_cannot_name_a_tenant() {
    for (name, default, what) in [
        ("X Y", "a", "is not a header name"),
        ("Connection", "a", "is set by the protocol"),
        ("Content-Type", "a", "has a meaning of its own"),
        ("Authorization", "a", "has a meaning of its own"),
        ("X-Scope-OrgID", "a\nb", "cannot be its value"),
    ] {
        let options = RemoteWriteExporterOptions {
            endpoint: "http://a/api/v1/write".to_owned(),
            tenant_header: Some(TenantHeader {
                name: name.to_owned(),
                default: default.to_owned(),
                tenants: Tenants::default(),
            }),
            ..Default::default()
        };
        let error = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(name) && error.contains(what), "{error}");
    }
}
