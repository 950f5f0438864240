//! Requests made from prepared bodies.

use bytes::Bytes;

use crate::outline::{Outline, outlines};
use crate::proto::{Patch, Stamp, Writer, apply};
use crate::random::Random;
use crate::remote_write::{self, RemoteWrite};
use crate::signal::Signal;
use crate::spec::Spec;
use crate::{logs, metrics, traces};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Encoded `Export*ServiceRequest`, or message of remote write, uncompressed.
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
    remote_write: Option<RemoteWrite>,
    made: u64,
    next_id: u64,
}

impl Generator {
    /// Prepares the bodies. A spec without items or variants is taken to mean one of them.
    pub fn new(spec: Spec) -> Self {
        Generator::prepare(spec, None)
    }

    /// Prepares bodies of Prometheus remote write instead: every point is a sample of a series whose label
    /// `sluice_id` carries its id. There are gauges only, with [`crate::Shape::Mixed`] counters too; the signal
    /// of the spec is taken to be metrics, as remote write has no other, and its scopes are left out.
    pub fn remote_write(spec: Spec, version: RemoteWrite) -> Self {
        let spec = Spec {
            signal: Signal::Metrics,
            ..spec
        };
        Generator::prepare(spec, Some(version))
    }

    fn prepare(spec: Spec, remote_write: Option<RemoteWrite>) -> Self {
        let items_per_request = spec.items_per_request.max(1);
        let spec = Spec {
            items_per_request,
            // With one body, and whole requests of series, a series always has the same place, hence the same
            // name and attributes, in it.
            variants: if spec.series > 0 { 1 } else { spec.variants.max(1) },
            series: spec.series.next_multiple_of(u64::from(items_per_request)),
            ..spec
        };
        let mut random = Random::new(spec.seed);
        let templates = (0..spec.variants)
            .map(|_| {
                let mut writer = Writer::default();
                match (remote_write, spec.signal) {
                    (Some(version), _) => remote_write::write(&mut writer, &spec, &mut random, version),
                    (None, Signal::Metrics) => metrics::write(&mut writer, &spec, &mut random),
                    (None, Signal::Logs) => logs::write(&mut writer, &spec, &mut random),
                    (None, Signal::Traces) => traces::write(&mut writer, &spec, &mut random),
                }
                let (body, patches) = writer.finish();
                Template { body, patches }
            })
            .collect();
        Generator {
            next_id: spec.first_id,
            spec,
            templates,
            remote_write,
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
        let (next, first_id, items) = self.next_in_place(unix_nanos);
        body.extend_from_slice(next);
        (first_id, items)
    }

    /// The body of the next request, its first id and its number of items, without copying: the body is good
    /// until the next one is made.
    pub fn next_in_place(&mut self, unix_nanos: u64) -> (&[u8], u64, u32) {
        let first_id = self.next_id;
        let items = self.spec.items_per_request;
        let variants = self.templates.len() as u64;
        let stamp = Stamp {
            first_id,
            unix_nanos,
            uses: self.made / variants,
            first_series: self.first_series(),
        };
        let variant = (self.made % variants) as usize;
        self.made += 1;
        self.next_id += u64::from(items);
        let body = match self.templates.get_mut(variant) {
            Some(template) => {
                for patch in &template.patches {
                    apply(&mut template.body, patch, &stamp);
                }
                template.body.as_slice()
            }
            None => &[],
        };
        (body, first_id, items)
    }

    /// The first series of the next request: they are gone through in turn, in a window that moves on by
    /// whole requests as old series end and new ones begin.
    fn first_series(&self) -> u64 {
        let items = u64::from(self.spec.items_per_request);
        let Some(turn) = (self.made * items).checked_rem(self.spec.series) else {
            return 0;
        };
        let begun_requests = self.made.saturating_mul(self.spec.churn_per_million.into()) / 1_000_000;
        turn + begun_requests * items
    }

    /// What the `Resource*` messages of all requests look like from outside, to recognise them on their way.
    /// Remote write has no resources.
    pub fn outlines(&self) -> Vec<Outline> {
        let mut all = Vec::new();
        if self.remote_write.is_some() {
            return all;
        }
        for template in &self.templates {
            let mut body = template.body.clone();
            let stamp = Stamp {
                // Far from the numbers of series, which look like ids in the bytes.
                first_id: crate::FIRST_ID + (7 << 32),
                unix_nanos: self.spec.start_unix_nanos,
                uses: 0,
                first_series: 0,
            };
            for patch in &template.patches {
                apply(&mut body, patch, &stamp);
            }
            for outline in outlines(self.spec.signal, &body) {
                if !all.contains(&outline) {
                    all.push(outline);
                }
            }
        }
        all
    }
}

impl Iterator for Generator {
    type Item = Request;

    /// The same as [`Generator::next_request`]; never ends.
    fn next(&mut self) -> Option<Request> {
        Some(self.next_request())
    }
}
