//! What `sluice-rig load --series --churn` sends, as who receives it sees it.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod broken_gateway;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;

/// The series of 40 requests of 100 points from one sender: names and attributes without the id.
fn series(churn: &str) -> BTreeSet<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let receiver = std::thread::spawn(move || broken_gateway::receive(listener.accept().unwrap().0));
    let load = Command::new(env!("CARGO_BIN_EXE_sluice-rig"))
        .args([
            "load",
            "--target",
            &target,
            "--connections",
            "1",
            "--points",
            "100",
        ])
        .args([
            "--rate",
            "100000",
            "--duration",
            "40ms",
            "--series",
            "200",
            "--churn",
            churn,
        ])
        .output()
        .unwrap();
    assert!(load.status.success(), "{load:?}");
    let bodies = receiver.join().unwrap();
    assert_eq!(bodies.len(), 40);
    let mut series = BTreeSet::new();
    for body in bodies {
        let request = ExportMetricsServiceRequest::decode(body.as_slice()).unwrap();
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let Some(Data::Gauge(gauge)) = metric.data else {
                panic!("the load sends gauges");
            };
            for mut point in gauge.data_points {
                point.attributes.retain(|attribute| attribute.key != "sluice.id");
                series.insert(format!("{} {:?}", metric.name, point.attributes));
            }
        }
    }
    series
}

/// Scenario: 200 live series in requests of 100 points, 40 requests, first without churn, then with half of all points in
/// new series.
/// Guarantees: 200 series without churn; with it every second request begins a hundred more.
#[test]
fn churn_begins_series() {
    assert_eq!(series("0").len(), 200);
    assert_eq!(series("500000").len(), 200 + 19 * 100);
}
