//! Sends OTLP metrics as remote write, and remote write as it came.
//!
//! A batch is encoded once, into one list of bodies for each lane. Lanes go at the same time, the bodies of a lane one after
//! another, so that **the samples of a series arrive in the order they came in**: a series is always in the same lane, a
//! lane has at most one request under way, and a body is never sent before the one before it is settled. The pipeline gives one
//! batch at a time (`max_in_flight` 1), so this holds from batch to batch too; the next one is encoded meanwhile. What has been delivered of a batch is not
//! sent again when the rest is retried; the encoded bodies are kept and are what is sent again.
//!
//! With several endpoints each has lanes of its own, so that a series always goes to the same one. How many of the lanes go at once follows what the
//! endpoint answers (`concurrency.rs`).
//!
//! What a batch makes of the totals of deltas is in a file before its bodies are sent (`cumulative/file.rs`).
//!
//! A destination that takes a body but for some series (400, 413, 422) gets the body in pieces, in place, until
//! the series it does not take are known (`lane.rs`, `search.rs`). One that does not read the version gets what is left in the one
//! before it (`formats.rs`).

mod classify;
mod concurrency;
mod formats;
mod lane;
mod metrics;
mod options;
mod refused;
mod search;
mod tenant;
mod turns;
mod untried;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use sluice_client::{
    AGENT, Answer, Client, ClientSettings, Credentials, Destination, Egress, EgressPermit, Phase, SendError,
    Sign, Slices,
};
use sluice_payload::{TenantId, WireFormat};
use sluice_pipeline::{Batch, Export, Exporter, Verdict};
use sluice_telemetry::{Gauge, Registry};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::body::{Body, Format};
use crate::cumulative::{Change, MAX_CHANGES_BYTES};
use crate::dropped::Reason;
use crate::encoder::{Encoder, EncoderSettings};
use crate::transcode::Outcome;

pub(crate) use classify::WRITTEN;
use formats::Formats;
use lane::{Heard, Lane, LaneEnd, Said};
use metrics::{Metrics, concurrency_limit};
pub use options::{ExporterError, RemoteWriteExporterOptions};
pub use tenant::TenantHeader;
use tenant::{Naming, Tenant};
use turns::Turns;
use untried::Untried;

/// Batches that are kept in their encoded form, before and between attempts: two for each pipeline that the exporter is in, of
/// which there are rarely two.
const MAX_PENDING: usize = 8;

/// Batches from this size on are encoded off the reactor, where there is another core to do it: some 2 ms of work.
const OFF_REACTOR_FROM_BYTES: usize = 1 << 20;

/// Bodies are expected to take this part of the OTLP they are made from: what series have in common is written once, so it
/// is the ids and values that count, as in OTLP that is compressed.
const EXPECTED_PART: usize = 2;

/// Sends batches of metrics to a remote-write receiver.
#[derive(Debug, Clone)]
pub struct RemoteWriteExporter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    /// One for each endpoint; lane number n goes to the n-th, counted round.
    shards: Vec<Shard>,
    headers: HeaderMap,
    /// How the destination is told whose data is; none: it is not.
    tenants: Option<Naming>,
    credentials: Credentials,
    signer: Option<Arc<dyn Sign>>,
    egress: Egress,
    timeout: Duration,
    max_request_bytes: usize,
    /// One for all batches: it has the totals of series of delta temporality.
    encoder: Arc<tokio::sync::Mutex<Encoder>>,
    /// Whether totals of deltas are kept.
    adds_up: bool,
    /// Asked once: the answer is read from the control group's files.
    has_several_cores: bool,
    pending: Mutex<Vec<Pending>>,
    /// For series that were refused, of all batches.
    room_for_refused: refused::Room,
    metrics: Metrics,
}

/// One endpoint: its connections, and what it reads.
#[derive(Debug)]
struct Shard {
    client: Client,
    /// What signatures are over: the host as it is sent, and as URLs spell it.
    signed_url: String,
    path: PathAndQuery,
    formats: Formats,
    turns: Turns,
    untried: Untried,
}

impl Shard {
    fn new(
        endpoint: &str,
        authority: Option<&str>,
        options: &RemoteWriteExporterOptions,
        limit: Gauge,
    ) -> Result<Self, ExporterError> {
        let mut destination = Destination::parse(endpoint, false, 80)?;
        let written = std::mem::replace(&mut destination.path, "/".to_owned());
        let path: PathAndQuery = written
            .parse()
            .map_err(|error: http::uri::InvalidUri| ExporterError::Path(error.to_string()))?;
        if let Some(authority) = authority {
            authority.clone_into(&mut destination.authority);
        }
        if options.signer.is_some() {
            destination.authority = destination.normal_authority();
        }
        let signed_url = format!("{}://{}{path}", destination.scheme(), destination.authority);
        let client = Client::new(ClientSettings {
            destination,
            tls: options.tls.clone(),
            connect: options.connect.clone(),
            protocol: sluice_client::Protocol::Http1,
            http1: options.http1.clone(),
            http2: sluice_client::Http2Settings::default(),
        })?;
        Ok(Self {
            client,
            signed_url,
            path,
            formats: Formats::new(options.encoder.format),
            turns: Turns::new(options.encoder.lanes, limit),
            untried: Untried::default(),
        })
    }
}

/// What is left to send of a batch.
#[derive(Debug)]
struct Pending {
    /// The bytes of the batch: holding them keeps their addresses from being used again, which is how the batch is known.
    parts: Vec<Bytes>,
    lanes: Vec<Lane>,
    /// Data points that no series was sent for.
    rejected: u64,
    added: Option<Added>,
}

/// What a batch has made of the totals of deltas, until the batch is done. It is kept though it should take more than was expected and there be no
/// room: without it points of the batch are lost when it is encoded once more.
#[derive(Debug)]
struct Added {
    changes: Vec<Change>,
    _room: EgressPermit,
}

impl Pending {
    fn is_of(&self, batch: &Batch) -> bool {
        let same = |(a, b): (&Bytes, &Bytes)| a.as_ptr() == b.as_ptr() && a.len() == b.len();
        self.parts.len() == batch.parts.len()
            && self
                .parts
                .iter()
                .zip(batch.parts.iter().map(|part| &part.body))
                .all(same)
    }
}

impl RemoteWriteExporter {
    /// Reads the settings, and the TLS files among them; connects to nothing yet.
    ///
    /// # Errors
    /// When the endpoint, a header, TLS, credentials or a label cannot be used.
    pub fn new(
        id: &str,
        options: RemoteWriteExporterOptions,
        registry: &Registry,
    ) -> Result<Self, ExporterError> {
        let (mut headers, authority) = options::static_headers(&options.headers)?;
        formats::OWN_HEADERS.iter().for_each(|name| {
            headers.remove(name);
        });
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        options.check_labels()?;
        let endpoints = std::iter::once(&options.endpoint).chain(&options.shard_endpoints);
        let shards: Vec<Shard> = (0..)
            .zip(endpoints)
            .map(|(shard, endpoint)| {
                let limit = concurrency_limit(registry, id, shard);
                Shard::new(endpoint, authority.as_deref(), &options, limit)
            })
            .collect::<Result<_, _>>()?;
        let encoder = EncoderSettings {
            lanes: options.encoder.lanes.max(1) * shards.len(),
            ..options.encoder
        };
        Ok(Self(Arc::new(Inner {
            id: id.to_owned(),
            shards,
            headers,
            tenants: options.tenant_header.map(Naming::new).transpose()?,
            credentials: Credentials::new(options.auth).map_err(ExporterError::Auth)?,
            signer: options.signer,
            egress: Egress::new(options.egress),
            timeout: options.timeout,
            max_request_bytes: options.max_request_bytes,
            adds_up: encoder.mapping.delta_to_cumulative,
            encoder: Arc::new(tokio::sync::Mutex::new(Encoder::new(encoder))),
            has_several_cores: std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            pending: Mutex::new(Vec::new()),
            room_for_refused: refused::Room::default(),
            metrics: Metrics::new(registry, id),
        })))
    }

    async fn send(&self, batch: &Batch, of: Option<&Tenant>) -> Verdict {
        let inner = &self.0;
        let known = {
            let mut pending = inner.pending.lock();
            let at = pending.iter().position(|pending| pending.is_of(batch));
            // In order of age: what is kept longest is what makes room.
            at.map(|at| pending.remove(at))
        };
        let mut pending = match known {
            Some(pending) => pending,
            None => {
                let room = inner.egress.reserve(inner.expected_bytes(batch)).await;
                match self.encode(batch, of, room).await {
                    Ok(pending) => pending,
                    Err(verdict) => return verdict,
                }
            }
        };
        let mut under_way = JoinSet::new();
        let heard: Heard = inner.shards.iter().map(|_| Said::default()).collect();
        let (first, mut last) = inner.in_order_of_noes(std::mem::take(&mut pending.lanes));
        let mut left_of_first = vec![0usize; inner.shards.len()];
        for lane in first {
            left_of_first[inner.shard_of(lane.number())] += 1;
            under_way.spawn(lane.send(inner.clone(), heard.clone()));
        }
        let mut worst = None;
        let mut hopeless = Vec::new();
        let mut took_any = false;
        while let Some(ended) = under_way.join_next().await {
            let Ok((lane, end)) = ended else {
                // What the lane had not sent is lost with it: the whole batch has to be encoded and sent again.
                inner.encode_again(pending).await;
                let reason = "a lane panicked; please report the panic message above".to_owned();
                return Verdict::Retry { after: None, reason };
            };
            let shard = inner.shard_of(lane.number());
            took_any |= lane.took_any();
            left_of_first[shard] = left_of_first[shard].saturating_sub(1);
            if left_of_first[shard] == 0 {
                for lane in last.extract_if(.., |lane| inner.shard_of(lane.number()) == shard) {
                    under_way.spawn(lane.send(inner.clone(), heard.clone()));
                }
            }
            match end {
                Some(LaneEnd::Hopeless(reason)) => hopeless.push((lane, reason)),
                end => {
                    pending.lanes.push(lane);
                    worst = LaneEnd::worse(worst, end);
                }
            }
            if under_way.is_empty() {
                // What their endpoint took of others in this attempt shows that it takes what is good: their search goes on. What it took in
                // an attempt before says nothing about now.
                let goes_on = |(lane, _): &mut (Lane, String)| heard[inner.shard_of(lane.number())].took();
                for (mut lane, _) in hopeless.extract_if(.., goes_on) {
                    lane.took(inner);
                    under_way.spawn(lane.send(inner.clone(), heard.clone()));
                }
            }
        }
        if let Some((_, reason)) = hopeless.first()
            && !took_any
            && worst.is_none()
        {
            // That may well be no fault of these series. The pipeline knows what to do then.
            let reason = reason.clone();
            inner.encode_again(pending).await;
            return Verdict::PayloadFault { reason };
        }
        let took_of_batch =
            |shard: usize, lane: &Lane| inner.shard_of(lane.number()) == shard && lane.took_any();
        for (mut lane, reason) in hopeless {
            let shard = inner.shard_of(lane.number());
            // What other endpoints take says nothing about this one. What it took of this batch before says nothing about now, but not for ever.
            let took = lane.took_any() || pending.lanes.iter().any(|lane| took_of_batch(shard, lane));
            match lane.is_beyond_doubt() && took {
                true => lane.took(inner),
                false => {
                    lane.take_back();
                    worst = LaneEnd::worse(worst, Some(LaneEnd::Hold { reason }));
                }
            }
            pending.lanes.push(lane);
        }
        let Some(end) = worst else {
            let not_taken: u64 = pending.lanes.iter().map(Lane::rejected).sum();
            let rejected = (pending.rejected + not_taken).min(batch.items());
            let refused = refused::refused(&pending.lanes);
            return match refused.is_empty() {
                true => Verdict::Delivered {
                    rejected,
                    message: None,
                },
                false => Verdict::InPart { refused, rejected },
            };
        };
        inner.keep(pending).await;
        end.verdict()
    }

    /// Encodes the batch that will be sent next, so that the destination need not wait for that; where memory is short, it is
    /// encoded in its turn.
    async fn encode_ahead(&self, batch: &Batch, of: Option<&Tenant>) {
        let Some(room) = self.0.egress.try_reserve(self.0.expected_bytes(batch)) else {
            return;
        };
        if let Ok(pending) = self.encode(batch, of, room).await {
            self.0.keep(pending).await;
        }
    }

    async fn encode(
        &self,
        batch: &Batch,
        of: Option<&Tenant>,
        mut room: EgressPermit,
    ) -> Result<Pending, Verdict> {
        let inner = &self.0;
        let parts: Vec<Bytes> = batch.parts.iter().map(|part| part.body.clone()).collect();
        let formats: Vec<WireFormat> = batch.parts.iter().map(|part| part.wire_format).collect();
        let mut encoder = inner.encoder.clone().lock_owned().await;
        encoder.set_format(inner.format());
        encoder.set_tenant(of.and_then(Tenant::name));
        let off_reactor =
            encoder.waits_for_a_file() || inner.has_several_cores && batch.bytes() >= OFF_REACTOR_FROM_BYTES;
        let work = move || {
            let bodies = parts.iter().map(|part| &part[..]);
            let encoded = encoder.encode_all(&formats.into_iter().zip(bodies).collect::<Vec<_>>());
            (parts, encoded, encoder.take_changes(), encoder.take_faults())
        };
        let (parts, (mut lanes, outcome), changes, faults) = if off_reactor {
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|error| Verdict::Retry {
                    after: None,
                    reason: format!("encoding failed: {error}"),
                })?
        } else {
            work()
        };
        for body in lanes.iter_mut().flatten() {
            body.bytes = room.keep(std::mem::take(&mut body.bytes).into());
        }
        let changed_bytes: usize = changes.iter().map(Change::bytes).sum();
        let added = (changed_bytes > 0).then(|| Added {
            changes,
            _room: room.part(changed_bytes),
        });
        inner.tell(&outcome);
        for fault in faults {
            inner.metrics.totals_lost[fault as usize].add(1);
        }
        Ok(Pending {
            added,
            parts,
            lanes: (0..)
                .zip(lanes)
                .map(|(number, bodies)| Lane::new(number, of.cloned(), bodies))
                .collect(),
            rejected: outcome.dropped.total(),
        })
    }
}

impl Inner {
    async fn keep(&self, pending: Pending) {
        let oldest = {
            let mut kept = self.pending.lock();
            kept.push(pending);
            (kept.len() > MAX_PENDING).then(|| kept.remove(0))
        };
        if let Some(oldest) = oldest {
            self.encode_again(oldest).await;
        }
    }

    /// Forgets the bodies of a batch that is not done: what is left of it is encoded once more, and its deltas are in the totals already.
    async fn encode_again(&self, pending: Pending) {
        if let Some(added) = pending.added {
            self.encoder.lock().await.comes_again(added.changes);
        }
    }

    /// What the bodies of a batch are expected to take, and what it makes of totals.
    fn expected_bytes(&self, batch: &Batch) -> usize {
        let bytes = batch.bytes();
        let changed = if self.adds_up {
            bytes.min(MAX_CHANGES_BYTES)
        } else {
            0
        };
        bytes / EXPECTED_PART + changed
    }

    /// Counts what came of a batch, and says the first time that something is dropped or collides.
    fn tell(&self, outcome: &Outcome) {
        for (reason, counter) in Reason::ALL.into_iter().zip(&self.metrics.dropped) {
            let points = outcome.dropped.get(reason);
            if points > 0 {
                if counter.get() == 0 && reason != Reason::Relabel {
                    tracing::warn!(
                        exporter = self.id,
                        reason = reason.as_str(),
                        points,
                        "{}; all of them are counted in sluice_remote_write_dropped_points_total",
                        reason.advice()
                    );
                }
                counter.add(points);
            }
        }
        for (counter, count, what) in [
            (
                &self.metrics.label_collisions,
                outcome.label_collisions,
                "attributes of one point become the same label, and their values are joined with ';'",
            ),
            (
                &self.metrics.name_collisions,
                outcome.name_collisions,
                "metrics become the same name, and their series may be mixed up",
            ),
        ] {
            if count > 0 {
                if counter.get() == 0 {
                    tracing::warn!(exporter = self.id, count, "{what}");
                }
                counter.add(count);
            }
        }
    }

    /// What bodies are made in: what is configured, as long as one endpoint reads it; the others get theirs converted.
    fn format(&self) -> Format {
        let mut formats = self.shards.iter().map(|shard| shard.formats.current());
        formats.find(|format| *format != Format::V1).unwrap_or_default()
    }

    /// Which endpoint is that of a lane.
    fn shard_of(&self, lane: usize) -> usize {
        lane % self.shards.len()
    }

    /// The lanes that go first, and those that go when these of their endpoint have ended: the ones that it said no to more often than to others. So one body
    /// that it always says no to is not the one that keeps all others from being sent.
    fn in_order_of_noes(&self, lanes: Vec<Lane>) -> (Vec<Lane>, Vec<Lane>) {
        let mut fewest = vec![u32::MAX; self.shards.len()];
        for lane in lanes.iter().filter(|lane| !lane.is_done()) {
            let fewest = &mut fewest[self.shard_of(lane.number())];
            *fewest = lane.noes().min(*fewest);
        }
        let goes_first = |lane: &Lane| lane.noes() <= fewest[self.shard_of(lane.number())];
        lanes.into_iter().partition(goes_first)
    }

    /// Sends one body of a lane once.
    async fn post(&self, shard: &Shard, of: Option<&Tenant>, body: &Body) -> Result<Answer, SendError> {
        let mut headers = self.headers.clone();
        if let Some(tenant) = of {
            tenant.put_header(&mut headers);
        }
        formats::put_headers(&mut headers, body.format);
        if let Some(value) = self.credentials.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        let mut time_left = self.timeout;
        if let Some(signer) = &self.signer {
            let begun = Instant::now();
            let signed = signer.sign(&shard.signed_url, &mut headers, body.bytes.clone());
            let in_time = tokio::time::timeout(self.timeout, signed).await;
            // Whoever gives out credentials may answer the next time: that is nothing to mend.
            in_time.map_err(|_| SendError::Timeout {
                after: self.timeout,
                phase: Phase::Signing,
            })??;
            time_left = self.timeout.saturating_sub(begun.elapsed());
        }
        shard
            .client
            .post(&shard.path, headers, &Slices::from(body.bytes.clone()), time_left)
            .await
    }
}

impl Exporter for RemoteWriteExporter {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.send(batch, None))
    }

    fn takes(&self, _: WireFormat) -> bool {
        true
    }

    fn prepare<'a>(&'a self, batch: &'a Batch) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.encode_ahead(batch, None))
    }

    fn for_tenant(&self, tenant: TenantId) -> Option<Arc<dyn Exporter>> {
        tenant::of_tenant(self, tenant)
    }

    fn max_request_bytes(&self) -> usize {
        self.0.max_request_bytes
    }

    fn shutdown<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.shards.iter().for_each(|shard| shard.client.close());
        Box::pin(async {})
    }
}
