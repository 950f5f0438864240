//! What the three signals share: resources, scopes and attributes.

use std::borrow::Cow;
use std::fmt;

use crate::proto::Writer;
use crate::random::Random;
use crate::spec::{Shape, Spec};

const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// A service of the demo shop and the operations it serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    language: &'static str,
    pub(crate) operations: [&'static str; 4],
}

pub(crate) const SERVICES: [Service; 6] = [
    Service {
        name: "frontend",
        language: "nodejs",
        operations: ["GET /", "GET /product/{id}", "GET /cart", "POST /cart/checkout"],
    },
    Service {
        name: "checkout",
        language: "go",
        operations: ["PlaceOrder", "PrepareOrderItems", "ChargeCard", "ShipOrder"],
    },
    Service {
        name: "cart",
        language: "dotnet",
        operations: ["AddItem", "GetCart", "EmptyCart", "HGETALL"],
    },
    Service {
        name: "payment",
        language: "java",
        operations: ["Charge", "ValidateCard", "INSERT payments", "SELECT accounts"],
    },
    Service {
        name: "recommendation",
        language: "python",
        operations: [
            "ListRecommendations",
            "get_product_list",
            "GET /flags/{name}",
            "SELECT products",
        ],
    },
    Service {
        name: "shipping",
        language: "rust",
        operations: ["GetQuote", "ShipOrder", "POST /get-quote", "publish orders"],
    },
];

/// Writes the whole request: `Resource*` messages with their scopes, and in each scope the items that `items`
/// writes for the given range of item indexes. All signals have the same field numbers here.
pub(crate) fn write_request(
    writer: &mut Writer,
    spec: &Spec,
    random: &mut Random,
    mut items: impl FnMut(&mut Writer, &mut Random, Service, std::ops::Range<u32>),
) {
    let scopes = spec.scopes.max(1);
    let resources = spec.resources.clamp(1, spec.items_per_request);
    let groups = resources.saturating_mul(scopes);
    let share =
        |group: u32| (u64::from(spec.items_per_request) * u64::from(group) / u64::from(groups)) as u32;
    for resource in 0..resources {
        let service = SERVICES[resource as usize % SERVICES.len()];
        writer.message(1, |w| {
            w.message(1, |w| write_resource(w, spec, random, service));
            for scope in 0..scopes {
                let group = resource * scopes + scope;
                let range = share(group)..share(group + 1);
                if range.is_empty() {
                    continue;
                }
                w.message(2, |w| {
                    w.message(1, |w| {
                        w.string(
                            1,
                            &format!("io.opentelemetry.{}.{}", service.language, service.name),
                        );
                        w.string(2, "2.4.1");
                    });
                    items(w, random, service, range);
                    if spec.shape == Shape::Mixed {
                        w.string(3, SCHEMA_URL);
                    }
                });
            }
            w.string(3, SCHEMA_URL);
        });
    }
}

/// Number of the pod that a service runs in, and its `service.instance.id`.
pub(crate) fn instance(spec: &Spec, service: Service) -> (u64, String) {
    // Instances follow from the seed, not from the variant: a service does not move between requests.
    let mut random = Random::new(spec.seed ^ u64::from(service.name.len() as u32));
    let pod = random.next_u64();
    (pod, format!("{:016x}{:016x}", pod, random.next_u64()))
}

fn write_resource(w: &mut Writer, spec: &Spec, random: &mut Random, service: Service) {
    let (pod, instance) = instance(spec, service);
    w.string_attribute(1, "service.name", service.name);
    w.string_attribute(1, "service.namespace", "shop");
    w.string_attribute(1, "service.version", "1.14.2");
    w.string_attribute(1, "service.instance.id", &instance);
    w.string_attribute(1, "telemetry.sdk.name", "opentelemetry");
    w.string_attribute(1, "telemetry.sdk.language", service.language);
    w.string_attribute(1, "telemetry.sdk.version", "1.36.0");
    w.string_attribute(1, "k8s.pod.name", &format!("{}-{:08x}", service.name, pod as u32));
    w.string_attribute(1, "k8s.node.name", &format!("node-{}", pod % 40));
    w.string_attribute(1, "deployment.environment.name", "production");
    if spec.shape == Shape::Mixed {
        w.int_attribute(1, "process.pid", 1 + pod % 30_000);
        // An array and a nested map, which walkers must pass over.
        w.message(1, |w| {
            w.string(1, "process.command_args");
            w.message(2, |w| {
                w.message(5, |w| {
                    for argument in ["/app/server", "--port=8080"] {
                        w.message(1, |w| w.string(1, argument));
                    }
                });
            });
        });
        w.message(1, |w| {
            w.string(1, "deployment.labels");
            w.message(2, |w| {
                w.message(6, |w| {
                    w.string_attribute(1, "team", service.name);
                    w.bool_attribute(1, "canary", random.chance(10));
                });
            });
        });
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Text(String),
    Int(u64),
    Bool(bool),
    Double(f64),
}

impl fmt::Display for Attribute {
    /// As a label has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Text(value) => f.write_str(value),
            Attribute::Int(value) => value.fmt(f),
            Attribute::Bool(value) => value.fmt(f),
            Attribute::Double(value) => value.fmt(f),
        }
    }
}

/// Writes `count` attributes of an item, each with another key.
pub(crate) fn write_attributes(w: &mut Writer, random: &mut Random, field: u32, count: u32) {
    for at in 0..count {
        let (key, value) = attribute(random, at);
        match value {
            Attribute::Text(value) => w.string_attribute(field, &key, &value),
            Attribute::Int(value) => w.int_attribute(field, &key, value),
            Attribute::Bool(value) => w.bool_attribute(field, &key, value),
            Attribute::Double(value) => w.double_attribute(field, &key, value),
        }
    }
}

/// Key and value of an item's attribute number `at`.
pub(crate) fn attribute(random: &mut Random, at: u32) -> (Cow<'static, str>, Attribute) {
    let text = |value: &str| Attribute::Text(value.into());
    let (key, value) = match at {
        0 => (
            "http.route",
            text(random.pick(&["/api/v1/orders/{id}", "/api/v1/carts/{id}", "/api/v1/users/{id}"])),
        ),
        1 => (
            "http.response.status_code",
            Attribute::Int(random.pick(&[200, 200, 200, 201, 204, 302, 404, 500])),
        ),
        2 => ("http.request.method", text(random.pick(&["GET", "POST", "PUT"]))),
        3 => (
            "server.address",
            Attribute::Text(format!("shop-{}.internal", random.below(64))),
        ),
        4 => (
            "cloud.region",
            text(random.pick(&["eu-central-1", "ap-southeast-1"])),
        ),
        5 => (
            "user.id",
            Attribute::Text(format!("{:012x}", random.next_u64() >> 16)),
        ),
        6 => ("server.port", Attribute::Int(8000 + random.below(1000))),
        7 => ("feature_flag.result", Attribute::Bool(random.chance(30))),
        8 => ("shop.discount", Attribute::Double(random.unit())),
        _ => {
            let value = Attribute::Text(format!("value-{}", random.below(100)));
            return (format!("shop.dimension.{at}").into(), value);
        }
    };
    (key.into(), value)
}
