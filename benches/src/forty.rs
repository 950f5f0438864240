//! Log requests with the 40 columns of the lakerunner project's synthetic benchmark, from a generator of our own with a
//! fixed seed: 12 resource attributes, and groups of attributes that 5 to 40% of the records have.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

/// 2025-01-01T00:00:00Z; each record is a second after the one before.
const START: u64 = 1_735_689_600_000_000_000;

/// Records of a request.
const BATCH: usize = 1000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        let (one, two, three) = (a >> 32, a >> 16 & 0xffff, a & 0xfff);
        format!(
            "{one:08x}-{two:04x}-4{three:03x}-{:04x}-{:012x}",
            b >> 48,
            b & 0xffff_ffff_ffff
        )
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn int(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(value as i64))
}

fn resource(random: &mut Random) -> Resource {
    let service = random.below(5);
    let names = ["frontend", "checkout", "payment", "catalog", "shipping"];
    let (region, zone) = (random.below(4), random.below(3));
    let address = random.below(1 << 24);
    Resource {
        attributes: vec![
            text("service.name", names[service as usize]),
            text("service.namespace", "production"),
            text(
                "service.version",
                format!("1.{}.{}", random.below(20), random.below(10)),
            ),
            text(
                "host.name",
                format!("ip-10-{}-{}-{}", address >> 16, address >> 8 & 255, address & 255),
            ),
            text("host.id", random.uuid()),
            text("cloud.provider", "aws"),
            text("cloud.region", format!("us-east-{region}")),
            text("cloud.availability_zone", format!("zone-{zone}")),
            text("k8s.cluster.name", "main"),
            text("k8s.namespace.name", format!("team-{}", random.below(4))),
            text(
                "k8s.pod.name",
                format!("{}-{}", names[service as usize], random.below(10)),
            ),
            text("k8s.container.name", "app"),
        ],
        ..Default::default()
    }
}

fn record(random: &mut Random, index: usize) -> LogRecord {
    let level = match random.below(100) {
        0..60 => (9, "INFO"),
        60..80 => (13, "WARN"),
        80..90 => (17, "ERROR"),
        _ => (5, "DEBUG"),
    };
    let mut attributes = vec![attribute("fingerprint", Value::IntValue(random.next() as i64))];
    if random.percent(30) {
        attributes.push(text(
            "http.method",
            ["GET", "POST", "PUT", "DELETE", "PATCH"][random.below(5) as usize],
        ));
        attributes.push(int(
            "http.status_code",
            [200, 201, 204, 301, 400, 404, 500][random.below(7) as usize],
        ));
        attributes.push(text(
            "http.url",
            format!("/api/v1/resource/{}", random.below(10_000)),
        ));
        attributes.push(text("http.user_agent", format!("agent/{}", random.below(4))));
    }
    if random.percent(20) {
        attributes.push(text("db.system", "postgresql"));
        attributes.push(text("db.name", format!("db{}", random.below(3))));
        attributes.push(text(
            "db.operation",
            ["SELECT", "INSERT", "UPDATE", "DELETE"][random.below(4) as usize],
        ));
        attributes.push(int("db.query_duration_ms", random.below(5000)));
    }
    if random.percent(15) {
        let kind = random.below(4);
        attributes.push(attribute("error", Value::BoolValue(true)));
        attributes.push(text("error.type", format!("Error{kind}")));
        attributes.push(text(
            "error.message",
            format!("something went wrong in place {kind}"),
        ));
        attributes.push(text(
            "error.stack",
            "at a.b.c (file.js:10:5)\nat d.e.f (file.js:20:7)",
        ));
    }
    if random.percent(25) {
        attributes.push(text("user.id", format!("user-{}", random.below(100_000))));
        attributes.push(text("session.id", random.uuid()));
        attributes.push(text("request.id", random.uuid()));
    }
    if random.percent(40) {
        attributes.push(int("duration_ms", random.below(10_000)));
        attributes.push(int("bytes_sent", random.below(1_000_000)));
        attributes.push(int("bytes_received", random.below(1_000_000)));
    }
    if random.percent(5) {
        attributes.push(attribute("cache.hit", Value::BoolValue(random.percent(70))));
        attributes.push(text("cache.key", format!("key-{}", random.below(10_000))));
    }
    if random.percent(5) {
        attributes.push(text("queue.name", format!("queue-{}", random.below(3))));
        attributes.push(int("queue.size", random.below(10_000)));
    }
    LogRecord {
        time_unix_nano: START + index as u64 * 1_000_000_000,
        severity_number: level.0,
        severity_text: level.1.to_owned(),
        body: Some(AnyValue {
            value: Some(Value::StringValue(format!(
                "message number {} of the application",
                random.below(10)
            ))),
        }),
        attributes,
        ..Default::default()
    }
}

/// Requests of 1000 records that hold `rows` in all, `per_resource` of them to a resource.
pub fn logs(rows: usize, per_resource: usize) -> Vec<Vec<u8>> {
    let mut random = Random(42);
    let mut requests = Vec::new();
    let mut index = 0;
    while index < rows {
        let end = rows.min(index + BATCH);
        let mut resource_logs = Vec::new();
        while index < end {
            let until = end.min(index + per_resource);
            let resource = resource(&mut random);
            let log_records = (index..until).map(|index| record(&mut random, index)).collect();
            index = until;
            resource_logs.push(ResourceLogs {
                resource: Some(resource),
                scope_logs: vec![ScopeLogs {
                    scope: Some(InstrumentationScope {
                        name: "logger".to_owned(),
                        version: "1.0.0".to_owned(),
                        ..Default::default()
                    }),
                    log_records,
                    ..Default::default()
                }],
                ..Default::default()
            });
        }
        requests.push(ExportLogsServiceRequest { resource_logs }.encode_to_vec());
    }
    requests
}
