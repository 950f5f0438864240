//! Trace requests: span trees.

use crate::proto::Writer;
use crate::random::Random;
use crate::resource::{Service, write_attributes, write_request};
use crate::spec::{Shape, Spec};

/// Spans in a trace, in turn: the sizes of the recorded traces behind the comparison's 467-span payload.
const TRACE_SPANS: [u32; 6] = [6, 6, 8, 12, 12, 12];

/// A span's place in its tree.
#[derive(Clone, Copy, Debug)]
struct Place {
    root: u32,
    parent: Option<u32>,
    depth: i64,
}

/// Arranges a scope's spans as trees: each span but the first of a trace has an earlier one as its parent.
fn arrange(range: std::ops::Range<u32>, random: &mut Random) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut traces = TRACE_SPANS.iter().cycle();
    let mut root = range.start;
    let mut left = 0;
    for item in range.clone() {
        if left == 0 {
            left = traces.next().copied().unwrap_or(1);
            root = item;
            places.push(Place {
                root,
                parent: None,
                depth: 0,
            });
        } else {
            let parent = root + random.below(u64::from(item - root)) as u32;
            let depth = places
                .get((parent - range.start) as usize)
                .map_or(0, |place| place.depth);
            places.push(Place {
                root,
                parent: Some(parent),
                depth: depth + 1,
            });
        }
        left -= 1;
    }
    places
}

pub(crate) fn write(writer: &mut Writer, spec: &Spec, random: &mut Random) {
    write_request(writer, spec, random, |w, random, service, range| {
        let places = arrange(range.clone(), random);
        for (item, place) in range.zip(places) {
            w.message(2, |w| write_span(w, spec, random, service, item, place));
        }
    });
}

fn write_span(w: &mut Writer, spec: &Spec, random: &mut Random, service: Service, item: u32, place: Place) {
    const SERVER: u64 = 2;
    const MILLISECOND: i64 = 1_000_000;
    let mixed = spec.shape == Shape::Mixed;
    let failed = mixed && random.chance(4);
    // Children begin after their parent and end before it.
    let start = -(2000 - 50 * place.depth) * MILLISECOND + random.below(1_000_000) as i64;
    let end = -(50 * place.depth) * MILLISECOND - random.below(1_000_000) as i64;

    w.trace_id(1, place.root);
    w.span_id(2, item);
    if let Some(parent) = place.parent {
        w.span_id(4, parent);
    }
    w.string(5, random.pick(&service.operations));
    w.uint(
        6,
        if place.parent.is_none() {
            SERVER
        } else {
            1 + random.below(5)
        },
    );
    w.time(7, start);
    w.time(8, end);
    write_attributes(w, random, 9, spec.attributes_per_item);
    if failed || mixed && random.chance(25) {
        w.message(11, |w| {
            w.time(1, end - MILLISECOND);
            w.string(2, if failed { "exception" } else { "message" });
            w.string_attribute(3, "exception.type", "io.grpc.StatusRuntimeException");
            w.string_attribute(3, "exception.message", "DEADLINE_EXCEEDED: 1.5 s");
        });
    }
    if mixed && random.chance(8) {
        w.message(13, |w| {
            w.fixed_trace_id(1, random.next_u64() | 1);
            w.fixed_span_id(2, random.next_u64() | 1);
            w.string_attribute(4, "messaging.operation.type", "receive");
        });
    }
    if failed {
        w.message(15, |w| {
            w.string(2, "deadline exceeded");
            w.uint(3, 2);
        });
    }
    w.fixed32(16, 0x101);
}
