//! Passes over the bytes of a request.

use std::hint::black_box;

use bytes::Bytes;
use sluice_loadgen::{Signal, Spec};
use sluice_wire::{
    Chain, Depth, Edits, KeyValue, Kind, Limit, Request, ResourceItems, count, range_of, split, validate,
};
use sluice_workloads::{kind, request, requests};

use crate::{Entry, Workload, each_request};

/// Items in a piece of a split request: several cuts in requests of either shape, within resources and metrics too.
const PIECE_ITEMS: u64 = 50;

/// Requests laid end to end.
const CHAIN_REQUESTS: usize = 16;

/// `schema_url` of a `Resource*` message: key, length, text.
const SCHEMA_URL: &[u8] = b"\x1a\x13https://example.org";

pub fn entries(entries: &mut Vec<Entry>) {
    each_request(entries, "count", |signal, spec| {
        scan(signal, spec, |kind, body| {
            let _ = black_box(count(kind, black_box(body)));
        })
    });
    each_request(entries, "validate", |signal, spec| {
        scan(signal, spec, |kind, body| {
            let _ = black_box(validate(kind, Depth::Deep, black_box(body)));
        })
    });
    each_request(entries, "iterate", |signal, spec| {
        scan(signal, spec, |kind, body| {
            for resource in Request::new(kind, black_box(body)).resources() {
                black_box(read(kind, &resource));
            }
        })
    });
    each_request(entries, "split", |signal, spec| {
        scan(signal, spec, |kind, body| {
            for piece in split(kind, black_box(body), Limit::Items(PIECE_ITEMS)).unwrap_or_default() {
                black_box(piece.chain.to_bytes());
            }
        })
    });
    each_request(entries, "edit", edit);
    each_request(entries, "concatenate", concatenate);
}

fn scan(signal: Signal, spec: Spec, pass: fn(Kind, &Bytes)) -> Workload {
    let (kind, request) = (kind(signal), request(spec));
    Workload::new(request.items.into(), move || pass(kind, &request.body))
}

/// Reads what a filter or a converter would: names, times and all attributes. The sum keeps it from being left out.
fn read(kind: Kind, resource: &ResourceItems<'_>) -> u64 {
    let mut sum = attributes(resource.resource().attributes());
    for scope in resource.scopes() {
        match kind {
            Kind::Metrics => {
                for metric in scope.metrics() {
                    sum += metric.name().len() as u64;
                    for point in metric.points() {
                        black_box(point.value());
                        sum += point.time_unix_nano() + attributes(point.attributes());
                    }
                }
            }
            Kind::Logs => {
                for record in scope.log_records() {
                    black_box(record.body());
                    sum += record.time_unix_nano() + attributes(record.attributes());
                }
            }
            _ => {
                for span in scope.spans() {
                    black_box(span.trace_id());
                    sum += span.name().len() as u64 + attributes(span.attributes());
                }
            }
        }
    }
    sum
}

fn attributes<'a>(attributes: impl Iterator<Item = KeyValue<'a>>) -> u64 {
    attributes
        .map(|attribute| {
            black_box(attribute.value());
            attribute.key().len() as u64
        })
        .sum()
}

/// Every second item dropped, and a field added to every resource. Only applying it is counted.
fn edit(signal: Signal, spec: Spec) -> Workload {
    let (kind, request) = (kind(signal), request(spec));
    let (items, body) = (request.items.into(), request.body);
    let range = |part: &[u8]| range_of(&body, part).expect("views borrow the body");
    let mut edits = Edits::new();
    for resource in Request::new(kind, &body).resources() {
        edits.append(range(resource.raw()), Bytes::from_static(SCHEMA_URL));
        for scope in resource.scopes() {
            let framed: Vec<&[u8]> = match kind {
                Kind::Metrics => (scope.metrics())
                    .flat_map(|metric| metric.points())
                    .map(|point| point.framed())
                    .collect(),
                Kind::Logs => scope.log_records().map(|record| record.framed()).collect(),
                _ => scope.spans().map(|span| span.framed()).collect(),
            };
            (framed.iter().step_by(2)).for_each(|item| edits.drop(range(item)));
        }
    }
    Workload::new(items, move || {
        let edited = edits.apply(kind, black_box(&body));
        black_box(edited.expect("every edit is on a field of a valid request"));
    })
}

fn concatenate(_: Signal, spec: Spec) -> Workload {
    let items = u64::from(spec.items_per_request) * CHAIN_REQUESTS as u64;
    let bodies = requests(spec, CHAIN_REQUESTS);
    Workload::new(items, move || {
        let chain = Chain::concat(black_box(&bodies).iter().cloned().map(Chain::from));
        black_box(chain.to_bytes());
    })
}
