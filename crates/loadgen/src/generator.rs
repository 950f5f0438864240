//! Requests made from prepared bodies.

use bytes::Bytes;

use crate::proto::{Patch, Writer, apply};
use crate::random::Random;
use crate::signal::Signal;
use crate::spec::Spec;
use crate::{logs, metrics, traces};

/// One export request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Encoded `Export*ServiceRequest`.
    pub body: Bytes,
    /// Id of the first item; the others follow without a gap.
    pub first_id: u64,
    /// Number of items.
    pub items: u32,
}

impl Request {
    /// Ids of all items.
    pub fn ids(&self) -> std::ops::Range<u64> {
        self.first_id..self.first_id + u64::from(self.items)
    }
}

#[derive(Debug)]
struct Template {
    body: Vec<u8>,
    patches: Vec<Patch>,
}

/// Makes export requests that differ in ids, times and counters, at about the cost of copying them.
#[derive(Debug)]
pub struct Generator {
    spec: Spec,
    templates: Vec<Template>,
    made: u64,
    next_id: u64,
}

impl Generator {
    /// Prepares the bodies. A spec without items or variants is taken to mean one of them.
    pub fn new(spec: Spec) -> Self {
        let spec = Spec {
            items_per_request: spec.items_per_request.max(1),
            variants: spec.variants.max(1),
            ..spec
        };
        let mut random = Random::new(spec.seed);
        let templates = (0..spec.variants)
            .map(|_| {
                let mut writer = Writer::default();
                match spec.signal {
                    Signal::Metrics => metrics::write(&mut writer, &spec, &mut random),
                    Signal::Logs => logs::write(&mut writer, &spec, &mut random),
                    Signal::Traces => traces::write(&mut writer, &spec, &mut random),
                }
                let (body, patches) = writer.finish();
                Template { body, patches }
            })
            .collect();
        Generator {
            next_id: spec.first_id,
            spec,
            templates,
            made: 0,
        }
    }

    /// What is made.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The id that the next request will begin with.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// The next request, stamped by the spec's own clock: the same at every run.
    pub fn next_request(&mut self) -> Request {
        let elapsed = self.made.wrapping_mul(self.spec.interval_nanos);
        self.next_request_at(self.spec.start_unix_nanos.wrapping_add(elapsed))
    }

    /// The next request, stamped with a time in nanoseconds since the Unix epoch.
    pub fn next_request_at(&mut self, unix_nanos: u64) -> Request {
        let mut body = Vec::new();
        let (first_id, items) = self.write_next(unix_nanos, &mut body);
        Request {
            body: body.into(),
            first_id,
            items,
        }
    }

    /// Replaces `body` with that of the next request and returns its first id and its number of items.
    pub fn write_next(&mut self, unix_nanos: u64, body: &mut Vec<u8>) -> (u64, u32) {
        body.clear();
        let first_id = self.next_id;
        let variants = self.templates.len() as u64;
        let uses = self.made / variants;
        if let Some(template) = self.templates.get((self.made % variants) as usize) {
            body.extend_from_slice(&template.body);
            for patch in &template.patches {
                apply(body, patch, first_id, unix_nanos, uses);
            }
        }
        self.made += 1;
        self.next_id += u64::from(self.spec.items_per_request);
        (first_id, self.spec.items_per_request)
    }
}

impl Iterator for Generator {
    type Item = Request;

    /// The same as [`Generator::next_request`]; never ends.
    fn next(&mut self) -> Option<Request> {
        Some(self.next_request())
    }
}
