//! Fixed requests: the same bytes at every run.

use bytes::Bytes;
use sluice_loadgen::{Generator, Request, Signal, Spec};
use sluice_wire::Kind;

/// A spec by its signal.
pub type Shape = fn(Signal) -> Spec;

/// The shapes by name: items all alike (the payloads of the gateway comparison), and what several services send together.
pub const SHAPES: [(&str, Shape); 2] = [("gateway", Spec::gateway), ("mixed", Spec::mixed)];

/// The first request of a spec.
pub fn request(spec: Spec) -> Request {
    Generator::new(spec).next_request()
}

/// The bodies of the first `count` requests of a spec.
pub fn requests(spec: Spec, count: usize) -> Vec<Bytes> {
    let mut generator = Generator::new(spec);
    (0..count).map(|_| generator.next_request().body).collect()
}

/// The wire kind of a signal.
pub fn kind(signal: Signal) -> Kind {
    match signal {
        Signal::Metrics => Kind::Metrics,
        Signal::Logs => Kind::Logs,
        Signal::Traces => Kind::Traces,
    }
}
