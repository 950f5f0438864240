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
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use sluice_payload::{Payload, Signal, TenantId, WireFormat};
use sluice_pipeline::{Intake, NotTaken, Taken, kind};
use sluice_server::{
    Authenticator, BodyLimits, Entered, Gate, Peer, Received, Refusal, ReplyBody, Serve, Shedder, Tenancy,
    Visit, heavy,
};
use sluice_telemetry::Registry;
use sluice_wire::{Depth, Request};
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
    /// Whose requests are; `None`: all are of one tenant.
    pub tenancy: Option<Tenancy>,
    /// Watches how the gateway is doing, and may turn requests away; `None`: nothing does.
    pub shedder: Option<Shedder>,
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
    /// What the shedder calls the requests of each signal.
    methods: [String; Signal::ALL.len()],
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
        let transport = settings.transport.as_str();
        let methods = Signal::ALL.map(|signal| format!("{} {transport} {signal}", settings.id));
        Self(Arc::new(Inner {
            methods,
            settings,
            gate,
            intake,
            metrics,
            health: Health::new(stopping),
        }))
    }
}

/// Whose a request is.
#[derive(Debug, Clone, Copy)]
struct Owner {
    tenant: TenantId,
    /// Whether that is settled; if not, the body may name another.
    is_known: bool,
}

impl Owner {
    /// Before anything is known.
    const UNKNOWN: Self = Self {
        tenant: TenantId::DEFAULT,
        is_known: false,
    };
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

    /// Lets in who may send, and finds whose the request is as far as its head says.
    fn authenticate(&self, headers: &::http::HeaderMap) -> Result<Owner, Refusal> {
        let identity = match &self.settings.authenticator {
            None => None,
            Some(authenticator) => authenticator
                .check(headers)
                .map_err(|denied| Refusal::Unauthorized {
                    message: denied.message,
                    challenge: denied.challenge,
                })?,
        };
        let tenancy = self.settings.tenancy.as_ref();
        let named = tenancy.and_then(|tenancy| tenancy.of_head(headers, identity.as_deref()));
        let is_in_body = tenancy.is_some_and(|tenancy| tenancy.resource_attribute().is_some());
        Ok(Owner {
            tenant: named.unwrap_or(TenantId::DEFAULT),
            is_known: named.is_some() || !is_in_body,
        })
    }

    /// The request's turn at the gate, in the share of its tenant as far as that is known.
    fn visit(&self, signal: Signal, owner: Owner) -> Visit<'_> {
        match owner.is_known {
            true => self.gate.visit_of(owner.tenant, signal),
            false => self.gate.visit_unread(signal),
        }
    }

    /// The tenant that a scanned body names, where one is looked for there.
    fn owner_in_body(&self, signal: Signal, body: &[u8]) -> Option<TenantId> {
        let tenancy = self.settings.tenancy.as_ref()?;
        let key = tenancy.resource_attribute()?;
        let first = Request::new(kind(signal), body).resources().next()?;
        tenancy.of_body(first.resource().attributes().get_str(key)?)
    }

    /// Asks whether the gateway is well enough for another request.
    fn enter(&self, signal: Signal, owner: Owner) -> Result<Option<Entered<'_>>, Refusal> {
        let Some(shedder) = &self.settings.shedder else {
            return Ok(None);
        };
        let method = &self.methods[signal as usize];
        shedder.enter(method, owner.tenant, &self.gate).map(Some)
    }

    fn refused(&self, signal: Signal, owner: Owner, refusal: &Refusal) {
        self.metrics.refused(signal, refusal);
        if let Some(tenancy) = &self.settings.tenancy {
            tenancy.refused(owner.tenant, refusal);
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

    /// Scans a received body and puts it into the pipelines, waiting for room in them no longer than its visit may. An
    /// empty body is an empty request: it succeeds (S4).
    async fn take(
        &self,
        signal: Signal,
        owner: &mut Owner,
        received: Received,
        visit: Visit<'_>,
    ) -> Result<Taken, Refusal> {
        if received.body.is_empty() {
            return Ok(Taken::default());
        }
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
        if !owner.is_known {
            *owner = Owner {
                tenant: self.owner_in_body(signal, &body).unwrap_or(owner.tenant),
                is_known: true,
            };
            self.gate.hand_over(&mut permit, owner.tenant, signal)?;
        }
        let payload = Payload {
            signal,
            wire_format: WireFormat::Otlp,
            body,
            frame,
            items: scan.items,
            tenant: owner.tenant,
            received_at: Instant::now(),
            permit: Some(permit),
        };
        let bytes = payload.retained_bytes();
        let taken = self
            .intake
            .take_in_turn(payload, visit.patience(), visit.into_turn())
            .await
            .map_err(|not| match not {
                NotTaken::Refused { message, drains_in } => self.gate.queue_full(bytes, message, drains_in),
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
}

/// What becomes of a request that was taken.
#[derive(Debug, Default)]
struct Answer {
    taken: Taken,
    /// What the client should know besides.
    hint: Option<String>,
}

impl Answer {
    fn new(taken: Taken, entered: Option<Entered<'_>>) -> Self {
        Self {
            taken,
            hint: entered.and_then(Entered::answered),
        }
    }

    /// Items that no destination will have, and a message: the two fields of a partial success. Without rejected items
    /// it is a warning (OTLP, "partial success").
    fn partial_success(&self) -> Option<(u64, &str)> {
        match (self.taken.rejected, &self.hint) {
            (0, None) => None,
            (0, Some(hint)) => Some((0, hint)),
            (rejected, _) => Some((rejected, REJECTED)),
        }
    }

    fn message(&self) -> Bytes {
        let partial = self.partial_success();
        partial.map_or_else(Bytes::new, |(rejected, message)| {
            answer::partial_success(rejected, message)
        })
    }
}

/// What a partial success says.
const REJECTED: &str =
    "these items were refused for good by a destination; the gateway's log says which one and why";
