//! `grpc.health.v1.Health`, as probes of Kubernetes and clients of gRPC ask it, by the protocol in gRPC's
//! `doc/health-checking.md`.
//!
//! It says whether this server takes calls; the health of destinations is in the metrics. It is answered without
//! credentials, which a probe has none of, and outside the memory budget: a gateway whose budget is used up refuses
//! requests, but it is well, and must not be restarted for it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response};
use hyper::body::Incoming;
use sluice_admission::Budget;
use sluice_server::{BodyLimits, Coding, Gate, Refusal, ReplyBody, collect_framed};
use sluice_telemetry::Registry;
use tokio::sync::watch;

use super::Inner;
use super::grpc::{code, failure, framed, in_time, message_encoding, respond, signal_of, trailers_only};
use crate::fields::{Value, fields};

const SERVICE: &str = "grpc.health.v1.Health";

/// A request is the name of a service; no name is this long.
const MAX_REQUEST_BYTES: u64 = 4 << 10;

/// All requests being read at once; a few hundred are more than any prober sends.
const BUDGET_BYTES: u64 = 1 << 20;

/// How long a request waits for a part of that: probes give up after a second.
const WAIT: Duration = Duration::from_secs(1);

/// A method of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// The status now.
    Check,
    /// The status now, and again when it changes.
    Watch,
}

pub(super) fn method_of(service: &str, method: &str) -> Option<Method> {
    match (service, method) {
        (SERVICE, "Check") => Some(Method::Check),
        (SERVICE, "Watch") => Some(Method::Watch),
        _ => None,
    }
}

/// `HealthCheckResponse.ServingStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Serving = 1,
    NotServing = 2,
    /// Only in answers to `Watch`.
    ServiceUnknown = 3,
}

impl Status {
    /// `HealthCheckResponse { status = 1 }`, framed.
    fn framed(self) -> bytes::Bytes {
        const STATUS_VARINT: u8 = 1 << 3;
        framed(&[STATUS_VARINT, self as u8])
    }
}

/// What health is answered from.
#[derive(Debug)]
pub(super) struct Health {
    stopping: watch::Receiver<bool>,
    gate: Gate,
}

impl Health {
    pub(super) fn new(stopping: watch::Receiver<bool>) -> Self {
        // Its waits are not those of the budget, so its metric is registered nowhere; it hints at no delay worth
        // spreading out.
        let (unregistered, seed) = (Registry::default(), 0);
        Self {
            stopping,
            gate: Gate::new(Budget::new(BUDGET_BYTES), WAIT, &unregistered, seed),
        }
    }
}

impl Inner {
    pub(super) async fn serve_health(
        &self,
        method: Method,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Response<ReplyBody> {
        let service = match in_time(std::time::Instant::now(), headers, self.asked_for(headers, body)).await {
            Ok(service) => service,
            Err(refusal) => return failure(&refusal),
        };
        match (method, self.status(&service)) {
            (Method::Check, Some(status)) => {
                respond(ReplyBody::with_trailers(status.framed(), end(code::OK)))
            }
            (Method::Check, None) => {
                let message = format!("no service {service:?} here, or no pipeline that takes its signal");
                trailers_only(code::NOT_FOUND, &message, None)
            }
            (Method::Watch, status) => respond(self.watch(status)),
        }
    }

    /// The service that a request names; empty for the whole server.
    async fn asked_for(&self, headers: &HeaderMap, body: &mut Incoming) -> Result<String, Refusal> {
        let limits = BodyLimits {
            max_bytes: MAX_REQUEST_BYTES,
            ..self.settings.limits
        };
        let coding = Coding {
            encoding: message_encoding(headers)?,
            keep_frame: false,
        };
        let mut visit = self.health.gate.visit();
        let received = collect_framed(body, coding, &mut visit, &limits).await?;
        let mut service = "";
        fields(&received.body, |number, value| {
            if let (1, Value::Bytes(name)) = (number, value) {
                // Not UTF-8 is no name of a service here either.
                service = std::str::from_utf8(name).unwrap_or("\u{fffd}");
            }
            Ok(())
        })
        .map_err(|error| Refusal::Bad(format!("not a HealthCheckRequest: {error}")))?;
        Ok(service.to_owned())
    }

    /// `None`: no such service.
    fn status(&self, service: &str) -> Option<Status> {
        let known = match signal_of(service) {
            Some(signal) => self.intake.takes(signal),
            None => service.is_empty() || service == SERVICE,
        };
        let status = if *self.health.stopping.borrow() {
            Status::NotServing
        } else {
            Status::Serving
        };
        known.then_some(status)
    }

    /// The status now; when the server stops, that it does not serve any more, and the end: a stream that stayed open
    /// would hold up the shutdown.
    fn watch(&self, status: Option<Status>) -> ReplyBody {
        let mut stopping = self.health.stopping.clone();
        ReplyBody::with_later(status.unwrap_or(Status::ServiceUnknown).framed(), async move {
            // An error means that whoever could say so is gone, which is a stop as well.
            let _ = stopping.wait_for(|stopping| *stopping).await;
            let mut trailers = end(code::UNAVAILABLE);
            trailers.insert("grpc-message", HeaderValue::from_static("the server is stopping"));
            let last = match status {
                Some(Status::Serving) => Status::NotServing.framed(),
                // Said already.
                _ => bytes::Bytes::new(),
            };
            ReplyBody::with_trailers(last, trailers)
        })
    }
}

fn end(code: u32) -> HeaderMap {
    HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from(code),
    )])
}
