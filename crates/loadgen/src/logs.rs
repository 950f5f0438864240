//! Log requests.

use crate::proto::Writer;
use crate::random::Random;
use crate::resource::{write_attributes, write_request};
use crate::spec::{Shape, Spec};

/// Severity number and text with their share in percent.
const SEVERITIES: [(u64, &str, u64); 6] = [
    (1, "TRACE", 2),
    (5, "DEBUG", 18),
    (9, "INFO", 62),
    (13, "WARN", 12),
    (17, "ERROR", 5),
    (21, "FATAL", 1),
];

fn severity(random: &mut Random) -> (u64, &'static str) {
    let mut at = random.below(100);
    for (number, text, share) in SEVERITIES {
        if at < share {
            return (number, text);
        }
        at -= share;
    }
    (9, "INFO")
}

fn message(random: &mut Random, severity_number: u64) -> String {
    let id = random.next_u64();
    match (severity_number, id % 4) {
        (17.., 0) => {
            format!(
                "connection to payment-{}.internal:5432 refused after 3 attempts (os error 111)",
                id % 10
            )
        }
        (17.., _) => format!(
            "unhandled exception in order {:08x}\njava.lang.IllegalStateException: card expired\n\tat \
             shop.payment.Charge.run(Charge.java:{})\n\tat shop.Worker.loop(Worker.java:41)",
            id as u32,
            id % 400
        ),
        (13.., _) => format!(
            "slow query: SELECT * FROM products WHERE category = $1 took {} ms",
            id % 4000
        ),
        (_, 0) => format!("order {:08x} placed by user {:06x}", id as u32, (id >> 40) as u32),
        (_, 1) => format!(
            "10.0.{}.{} - - \"GET /api/v1/carts/{:x} HTTP/1.1\" 200 {}",
            id % 16,
            id % 250,
            id >> 40,
            id % 9000
        ),
        (_, 2) => format!("cache hit for product {} in {} µs", id % 5000, id % 900),
        (_, _) => format!("worker {} finished batch of {} messages", id % 32, id % 500),
    }
}

pub(crate) fn write(writer: &mut Writer, spec: &Spec, random: &mut Random) {
    let mixed = spec.shape == Shape::Mixed;
    write_request(writer, spec, random, |w, random, service, range| {
        for item in range {
            let age_nanos = random.below(1_000_000_000) as i64;
            let (number, text) = severity(random);
            w.message(2, |w| {
                w.time(1, -age_nanos);
                w.uint(2, number);
                w.string(3, text);
                w.message(5, |w| {
                    if mixed && random.chance(15) {
                        // A structured body: a map.
                        w.message(6, |w| {
                            w.string_attribute(1, "msg", &message(random, number));
                            w.string_attribute(1, "logger", service.name);
                            w.int_attribute(1, "thread", random.below(64));
                        });
                    } else {
                        w.string(1, &message(random, number));
                    }
                });
                w.id_attribute(6, item);
                write_attributes(w, random, 6, spec.attributes_per_item.saturating_sub(1));
                if mixed && random.chance(60) {
                    w.fixed32(8, 1);
                    w.fixed_trace_id(9, random.next_u64() | 1);
                    w.fixed_span_id(10, random.next_u64() | 1);
                }
                w.time(11, 0);
                if mixed && random.chance(10) {
                    w.string(12, "shop.order.placed");
                }
            });
        }
    });
}
