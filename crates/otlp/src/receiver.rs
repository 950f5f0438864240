//! OTLP receivers: one service answers gRPC and HTTP; it admits, scans, and hands payloads to the
//! pipelines.
//!
//! The path of a request: [`http`](self) or gRPC head checks, admission and body
//! (`sluice_server::receive`), scan (`sluice_wire::validate`), [`Intake::take`], answer.

mod answer;
mod cors;
mod grpc;
mod health;
mod http;
mod metrics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use sluice_payload::{Payload, Signal, TenantId};
use sluice_pipeline::{Intake, NotTaken, Taken, kind};
use sluice_server::{Authenticator, BodyLimits, Gate, Peer, Received, Refusal, ReplyBody, Serve, heavy};
use sluice_telemetry::Registry;
use sluice_wire::Depth;
use tokio::sync::watch;

pub use cors::Cors;

use crate::json::JsonOptions;
use health::Health;
use metrics::Metrics;

/// Which protocol a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP, protobuf and JSON.
    Http,
}

impl Transport {
    /// The value of the `transport` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::Grpc => "grpc",
            Transport::Http => "http",
        }
    }
}

/// The paths of OTLP/HTTP.
#[derive(Debug, Clone)]
pub struct HttpPaths {
    /// By signal, in the order of [`Signal::ALL`].
    pub by_signal: [String; Signal::ALL.len()],
}

impl Default for HttpPaths {
    fn default() -> Self {
        Self {
            by_signal: ["/v1/metrics", "/v1/logs", "/v1/traces", "/v1development/profiles"]
                .map(str::to_owned),
        }
    }
}

/// How one OTLP listener receives.
#[derive(Debug, Clone)]
pub struct ReceiverSettings {
    /// The receiver's id.
    pub id: String,
    /// gRPC or HTTP.
    pub transport: Transport,
    /// Body limits.
    pub limits: BodyLimits,
    /// How deep bodies are validated.
    pub validation: Depth,
    /// What JSON is taken.
    pub json_strict: bool,
    /// HTTP paths.
    pub paths: HttpPaths,
    /// Cross-origin requests, HTTP only.
    pub cors: Option<Cors>,
    /// Who may send.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Added to every HTTP response.
    pub response_headers: Vec<(::http::HeaderName, ::http::HeaderValue)>,
}

/// Answers OTLP requests on one listener. Cloning shares it.
#[derive(Debug, Clone)]
pub struct OtlpService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ReceiverSettings,
    gate: Gate,
    intake: Intake,
    metrics: Metrics,
    health: Health,
}

impl OtlpService {
    /// A service that admits through `gate` and feeds `intake`, until `stopping` turns true.
    pub fn new(
        settings: ReceiverSettings,
        gate: Gate,
        intake: Intake,
        registry: &Registry,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let metrics = Metrics::new(registry, &settings.id, settings.transport);
        Self(Arc::new(Inner {
            settings,
            gate,
            intake,
            metrics,
            health: Health::new(stopping),
        }))
    }
}

impl Serve for OtlpService {
    async fn serve(&self, request: ::http::Request<Incoming>, _: Peer) -> ::http::Response<ReplyBody> {
        match self.0.settings.transport {
            Transport::Grpc => self.0.serve_grpc(request).await,
            Transport::Http => self.0.serve_http(request).await,
        }
    }
}

impl Inner {
    fn json_options(&self) -> JsonOptions {
        JsonOptions {
            strict: self.settings.json_strict,
            limit_bytes: self.settings.limits.max_bytes as usize,
        }
    }

    fn authenticate(&self, headers: &::http::HeaderMap) -> Result<(), Refusal> {
        match &self.settings.authenticator {
            None => Ok(()),
            Some(authenticator) => authenticator
                .check(headers)
                .map_err(|denied| Refusal::Unauthorized {
                    message: denied.message,
                    challenge: denied.challenge,
                }),
        }
    }

    /// Whether anything takes this signal; asked before a byte of the body is read.
    fn served(&self, signal: Signal) -> Result<(), Refusal> {
        match self.intake.takes(signal) {
            true => Ok(()),
            false => Err(self.not_served(signal)),
        }
    }

    fn not_served(&self, signal: Signal) -> Refusal {
        Refusal::NotServed(format!(
            "no pipeline takes {signal} from receiver {}; add one under service.pipelines",
            self.settings.id
        ))
    }

    /// Scans a received body and puts it into the pipelines, waiting for room in them no longer than `patience`.
    async fn take(&self, signal: Signal, received: Received, patience: Duration) -> Result<Taken, Refusal> {
        let Received {
            body,
            mut permit,
            wire_bytes,
            compressed,
        } = received;
        let frame = compressed.map(|kept| {
            permit.absorb(kept.permit);
            kept.frame
        });
        let scan = heavy(body.len(), || {
            sluice_wire::validate(kind(signal), self.settings.validation, &body)
        })
        .await
        .map_err(|error| Refusal::Bad(format!("the body is not a valid OTLP {signal} request: {error}")))?;
        let payload = Payload {
            signal,
            body,
            frame,
            items: scan.items,
            tenant: TenantId::DEFAULT,
            received_at: Instant::now(),
            permit: Some(permit),
        };
        let bytes = payload.retained_bytes();
        let taken = self
            .intake
            .take(payload, patience)
            .await
            .map_err(|not| match not {
                NotTaken::Refused(message) => self.gate.busy(bytes, message, "queue_full"),
                NotTaken::NoPipeline => self.not_served(signal),
                NotTaken::NotDelivered(reason, items) => self.gate.busy(
                    bytes,
                    format!("{items} items were not delivered ({}); retry", reason.as_str()),
                    "not_delivered",
                ),
            })?;
        self.metrics.accepted(signal, scan.items, wire_bytes);
        Ok(taken)
    }

    /// An empty body is an empty request: it succeeds (S4).
    fn is_empty(received: &Received) -> bool {
        received.body.is_empty()
    }
}

/// What a partial success says.
const REJECTED: &str =
    "these items were refused for good by a destination; the gateway's log says which one and why";

fn response_bytes(taken: Taken) -> Bytes {
    if taken.rejected == 0 {
        return Bytes::new();
    }
    answer::partial_success(taken.rejected, REJECTED)
}
