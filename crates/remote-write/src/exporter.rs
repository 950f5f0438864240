//! Sends OTLP metrics as remote write, and remote write as it came.
//!
//! A batch is encoded once, into one list of bodies for each lane. Lanes go at the same time, the bodies of a lane one after
//! another, so that **the samples of a series arrive in the order they came in**: a series is always in the same lane, a
//! lane has at most one request under way, and a body is never sent before the one before it is settled. The pipeline gives
//! [`BATCHES_AHEAD`] batches beside the oldest; each goes on in the lanes in which nothing before it is left (`order.rs`), so that a lane that is retried or searched
//! holds up no other. What has been delivered of a batch is not sent again when the rest is retried (`attempt.rs`); the encoded bodies are kept and are what is
//! sent again. What a lane has delivered is noted in a file beside a queue on disk, so that the next process does not send it again either (`positions.rs`).
//!
//! With several endpoints each has lanes of its own, so that a series always goes to the same one. How many of the lanes go at once follows what the
//! endpoint answers (`concurrency.rs`).
//!
//! What a batch makes of the totals of deltas is in a file before its bodies are sent (`cumulative/file.rs`).
//!
//! A destination that takes a body but for some series (400, 413, 422) gets the body in pieces, in place, until
//! the series it does not take are known (`lane.rs`, `search.rs`). One that does not read the version gets what is left in the one
//! before it (`formats.rs`).

mod attempt;
mod classify;
mod concurrency;
mod formats;
mod lane;
mod metrics;
mod options;
mod order;
mod pending;
mod positions;
mod refused;
mod repeats;
mod search;
mod tenant;
mod turns;
mod untried;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use sluice_client::{
    AGENT, Answer, Client, ClientSettings, Credentials, Destination, Egress, Phase, SendError, Sign, Slices,
};
use sluice_payload::{TenantId, WireFormat};
use sluice_pipeline::{Batch, Ending, Export, Exporter, Turn, Verdict};
use sluice_telemetry::{Gauge, Registry};
use tokio::time::Instant;

use crate::body::{Body, Format};
use crate::encoder::{Encoder, EncoderSettings};

use attempt::Attempt;
pub(crate) use classify::WRITTEN;
use formats::Formats;
use metrics::{Metrics, concurrency_limit};
pub use options::{ExporterError, RemoteWriteExporterOptions};
use order::Order;
use pending::Pending;
pub use positions::LanesFile;
use positions::Positions;
pub use tenant::TenantHeader;
use tenant::{Naming, Tenant};
use turns::Turns;
use untried::Untried;

/// Batches that are under way beside the oldest one, and go on in the lanes that are free. More of them would send hardly more (`tests/pace.rs`), and all of them
/// may come again after a kill.
pub(crate) const BATCHES_AHEAD: usize = 7;

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
    /// Of all endpoints.
    lanes: usize,
    /// Batches between two attempts, and before the first.
    kept: Mutex<HashMap<Turn, Pending>>,
    order: Arc<Order>,
    /// Where what a lane has delivered is noted; none: nowhere.
    positions: Option<positions::Late>,
    /// For series that were refused, of all batches.
    room_for_refused: refused::Room,
    too_old: lane::TooOld,
    metrics: Metrics,
    /// Answers in the place of all endpoints.
    #[cfg(test)]
    scripted: std::sync::OnceLock<Arc<dyn tests::Scripted>>,
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
    /// When it took something last.
    took_at: Mutex<Option<Instant>>,
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
            took_at: Mutex::new(None),
        })
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
        let lanes = options.encoder.lanes.max(1) * shards.len();
        let positions = options.lanes.clone();
        let positions = positions.map(|file| Positions::late(file, options.deciding()));
        let encoder = EncoderSettings {
            lanes,
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
            lanes,
            kept: Mutex::default(),
            order: Arc::default(),
            positions,
            room_for_refused: refused::Room::default(),
            too_old: lane::TooOld::default(),
            metrics: Metrics::new(registry, id),
            #[cfg(test)]
            scripted: std::sync::OnceLock::new(),
        })))
    }

    /// Sends a batch of one tenant, where tenants are told apart, that nobody has given a turn.
    async fn send(&self, batch: &Batch, of: Option<&Tenant>) -> Verdict {
        let turn = self.turn_of(batch);
        let verdict = self.send_in_turn(batch, turn, of).await;
        if matches!(verdict, Verdict::Delivered { .. } | Verdict::InPart { .. }) {
            self.ends(turn, Ending::Settled);
        }
        verdict
    }

    async fn send_in_turn(&self, batch: &Batch, turn: Turn, of: Option<&Tenant>) -> Verdict {
        let inner = &self.0;
        inner.order.enter(turn);
        inner.order.set_waited(turn, Duration::ZERO);
        match inner.pending(batch, turn, of).await {
            Ok(pending) => Attempt::new(inner, turn, pending).run(batch).await,
            Err(verdict) => verdict,
        }
    }

    /// The turn of a batch that nobody has given one: no other is before it.
    fn turn_of(&self, batch: &Batch) -> Turn {
        let kept = self.0.kept.lock();
        let known = kept.iter().find(|(_, pending)| pending.is_of(batch));
        known.map_or_else(Turn::first, |(turn, _)| *turn)
    }
}

impl Inner {
    /// What bodies are made in: what is configured, as long as one endpoint reads it; the others get theirs converted.
    fn format(&self) -> Format {
        let mut formats = self.shards.iter().map(|shard| shard.formats.current());
        formats.find(|format| *format != Format::V1).unwrap_or_default()
    }

    /// Which endpoint is that of a lane.
    fn shard_of(&self, lane: usize) -> usize {
        lane % self.shards.len()
    }

    /// Sends one body of a lane once.
    async fn post(&self, shard: &Shard, of: Option<&Tenant>, body: &Body) -> Result<Answer, SendError> {
        #[cfg(test)]
        if let Some(scripted) = self.scripted.get() {
            return scripted.answer(&shard.signed_url, body).await;
        }
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

    fn runs_ahead(&self) -> usize {
        BATCHES_AHEAD
    }

    fn prepare<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.0.encode_ahead(batch, turn, None))
    }

    fn export_in_turn<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Export<'a> {
        Box::pin(self.send_in_turn(batch, turn, None))
    }

    fn waited(&self, turn: Turn) -> Duration {
        self.0.order.waited(turn)
    }

    fn ends(&self, turn: Turn, ending: Ending) {
        self.0.kept.lock().remove(&turn);
        if let Some(positions) = &self.0.positions
            && ending == Ending::Settled
        {
            positions.ends(turn);
        }
        self.0.order.ends(turn, ending);
    }

    fn for_tenant(&self, tenant: TenantId) -> Option<Arc<dyn Exporter>> {
        tenant::of_tenant(self, tenant)
    }

    fn max_request_bytes(&self) -> usize {
        self.0.max_request_bytes
    }

    fn shutdown<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.shards.iter().for_each(|shard| shard.client.close());
        Box::pin(async {})
    }
}
