//! Receives remote write 1.0 and 2.0 and passes it on: as it came to pipelines of which every exporter reads that, as OTLP metrics
//! to others.
//!
//! | request | answer |
//! |---|---|
//! | taken | 204; in 2.0 with the three `*-Written` headers |
//! | another media type, message or encoding | 415, before the body is read |
//! | not valid | 400 with the reason; nothing of it is taken |
//! | holding native histograms that OTLP cannot say, where it has to be OTLP | 400 with their number; all else is taken, as the `*-Written` headers of 2.0 say |
//! | no room for now | 503 with `Retry-After`, before the body is read where that is known |
//! | larger than the limit, or its texts when they are written out wherever it means them | 413 |
//! | wrong path, method, credentials | 404, 405, 401 |
//!
//! But for those histograms all of a request is taken, or nothing: a sender that is told to come back can send it again as it is. What is answered with 400
//! never comes again (both specifications), so a histogram must not cost the samples beside it.

mod held_metadata;
mod metrics;

use std::sync::Arc;
use std::time::Instant;

use http::header::{
    ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use sluice_payload::{Encoding, Payload, Signal, TenantId, WireFormat};
use sluice_pipeline::{Intake, NotTaken, Offer};
use sluice_server::{
    Authenticator, BodyLimits, Coding, Entered, Gate, Peer, Received, Refusal, ReplyBody, Serve, Shedder,
    Tenancy, Visit, check_head, discard, heavy, receive,
};
use sluice_telemetry::Registry;

use crate::check::{check, written_out};
use crate::decode::{Invalid, Taken, Version};
use crate::exporter::WRITTEN;
use crate::to_otlp::to_otlp;

use held_metadata::HeldMetadata;
use metrics::Metrics;

/// Where requests go.
pub const PATH: &str = "/api/v1/write";

/// What a request is when its texts are written out may be so many times as large as the largest body: a request of 2.0 is
/// some nine times smaller than that, and of the largest only hostile ones come near it.
const MOST_WRITTEN_OUT: u64 = 4;

/// How a listener receives.
#[derive(Debug, Clone)]
pub struct ReceiverSettings {
    /// The receiver's id.
    pub id: String,
    /// Body limits.
    pub limits: BodyLimits,
    /// Who may send.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Whose requests are, by their heads; `None`: all are of one tenant.
    pub tenancy: Option<Tenancy>,
    /// Watches how the gateway is doing, and may turn requests away; `None`: nothing does.
    pub shedder: Option<Shedder>,
    /// Added to every response.
    pub response_headers: Vec<(HeaderName, HeaderValue)>,
}

/// Answers remote-write requests on one listener. Cloning shares it.
#[derive(Debug, Clone)]
pub struct RemoteWriteService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ReceiverSettings,
    gate: Gate,
    intake: Intake,
    metrics: Metrics,
    held_metadata: HeldMetadata,
    /// What the shedder calls the requests.
    method: String,
}

impl RemoteWriteService {
    /// A service that admits through `gate` and feeds `intake`.
    pub fn new(settings: ReceiverSettings, gate: Gate, intake: Intake, registry: &Registry) -> Self {
        let metrics = Metrics::new(registry, &settings.id);
        Self(Arc::new(Inner {
            method: format!("{} http {}", settings.id, Signal::Metrics),
            settings,
            gate,
            intake,
            metrics,
            held_metadata: HeldMetadata::default(),
        }))
    }
}

impl Serve for RemoteWriteService {
    async fn serve(&self, request: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
        let mut response = self.0.answer(request).await;
        for (name, value) in &self.0.settings.response_headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }
}

impl Inner {
    async fn answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let (head, mut body) = request.into_parts();
        if let Err(fault) = check_head(&head) {
            let mut response = text(StatusCode::BAD_REQUEST, &fault.to_string());
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        if head.uri.path() != PATH {
            return text(
                StatusCode::NOT_FOUND,
                &format!("no such path; remote-write requests go to {PATH}"),
            );
        }
        if head.method != Method::POST {
            let mut response = text(
                StatusCode::METHOD_NOT_ALLOWED,
                "remote-write requests are POST requests",
            );
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        // Also on failures: without the headers, a sender of 2.0 would take the receiver for one of 1.0.
        let version = version(&head.headers);
        let mut tenant = TenantId::DEFAULT;
        let (mut response, taken) = match self.take(&version, &mut tenant, &head.headers, &mut body).await {
            Ok(taken) => {
                let response = match taken.left_out_histograms {
                    0 => {
                        let mut response = Response::new(ReplyBody::empty());
                        *response.status_mut() = StatusCode::NO_CONTENT;
                        response
                    }
                    left_out => text(
                        StatusCode::BAD_REQUEST,
                        &format!(
                            "native histograms left out: {left_out}; all else is taken. Their counts are no whole numbers, or their schema is \
                             not known, and OTLP cannot say that; a pipeline of prometheusremotewrite exporters alone takes them"
                        ),
                    ),
                };
                (response, taken)
            }
            Err(refusal) => {
                self.metrics.refused(&refusal);
                if let Some(tenancy) = &self.settings.tenancy {
                    tenancy.refused(tenant, &refusal);
                }
                // A client that waits for "100 Continue" sends nothing more.
                if !head.headers.contains_key(EXPECT) {
                    discard(body, head.version);
                }
                (failure(refusal), Taken::default())
            }
        };
        if version == Ok(Version::V2) {
            for (name, count) in WRITTEN
                .iter()
                .zip([taken.samples, taken.histograms, taken.exemplars])
            {
                response.headers_mut().insert(name, HeaderValue::from(count));
            }
        }
        response
    }

    async fn take(
        &self,
        version: &Result<Version, Refusal>,
        tenant: &mut TenantId,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Result<Taken, Refusal> {
        let identity = match &self.settings.authenticator {
            None => None,
            Some(authenticator) => authenticator
                .check(headers)
                .map_err(|denied| Refusal::Unauthorized {
                    message: denied.message,
                    challenge: denied.challenge,
                })?,
        };
        if let Some(tenancy) = &self.settings.tenancy {
            *tenant = tenancy.of_head(headers, identity.as_deref()).unwrap_or(*tenant);
        }
        let version = version.clone()?;
        let encoding = encoding(headers)?;
        if !self.intake.takes(Signal::Metrics) {
            return Err(self.not_served());
        }
        let coding = Coding {
            encoding,
            keep_frame: false,
        };
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let shedder = self.settings.shedder.as_ref();
        let mut entered = shedder
            .map(|shedder| shedder.enter(&self.method, *tenant, &self.gate))
            .transpose()?;
        let mut visit = self.gate.visit_of(*tenant, Signal::Metrics);
        let received = receive(body, length, coding, &mut visit, &self.settings.limits).await?;
        entered.iter_mut().for_each(Entered::received);
        let wire_bytes = received.wire_bytes;
        let (offer, mut taken) = self.offer(version, *tenant, received, &mut visit).await?;
        let has_items = [&offer.otlp, &offer.as_it_came]
            .into_iter()
            .flatten()
            .any(|payload| payload.items > 0);
        if !has_items {
            // There is no payload for exemplars without any sample to be in. Those that OTLP has no place for are the same ones.
            taken.left_out_exemplars = taken.left_out_exemplars.max(std::mem::take(&mut taken.exemplars));
            self.metrics.accepted(&taken, wire_bytes);
            entered.and_then(Entered::answered);
            return Ok(taken);
        }
        let payloads = [&offer.otlp, &offer.as_it_came].into_iter().flatten();
        let bytes: u64 = payloads.map(Payload::retained_bytes).sum();
        self.intake
            .take_offer(Signal::Metrics, offer, visit.patience(), visit.into_turn())
            .await
            .map_err(|not| match not {
                NotTaken::Refused { message, drains_in } => self.gate.queue_full(bytes, message, drains_in),
                NotTaken::NoPipeline => self.not_served(),
                NotTaken::NotDelivered(reason, items) => self.gate.busy(
                    bytes,
                    format!("{items} samples were not delivered ({}); retry", reason.as_str()),
                    "not_delivered",
                ),
            })?;
        self.metrics.accepted(&taken, wire_bytes);
        // A 204 has no place for words: the hint that OTLP clients get is left out.
        entered.and_then(Entered::answered);
        Ok(taken)
    }

    /// The request in the formats that its pipelines want, each under a permit of its own size.
    async fn offer(
        &self,
        version: Version,
        tenant: TenantId,
        received: Received,
        visit: &mut Visit<'_>,
    ) -> Result<(Offer, Taken), Refusal> {
        let Received {
            mut body, mut permit, ..
        } = received;
        let wanted = self.intake.formats(Signal::Metrics);
        // Before it is read, for which there have to be places for all that is in a series.
        let written_out = heavy(body.len(), || written_out(version, &body)).await;
        if written_out > self.settings.limits.max_bytes.saturating_mul(MOST_WRITTEN_OUT) {
            return Err(Refusal::TooLarge(format!(
                "the texts of the request, written out for each of its samples and series, are more than {MOST_WRITTEN_OUT} times \
                 max_request_body_size; send fewer series at once"
            )));
        }
        let received_at = Instant::now();
        let payload = |wire_format, body, items, permit| Payload {
            signal: Signal::Metrics,
            wire_format,
            body,
            frame: None,
            items,
            tenant,
            received_at,
            permit: Some(permit),
        };
        let bad = |invalid: Invalid| {
            Refusal::Bad(format!("the body is not a valid remote-write request: {invalid}"))
        };
        let mut offer = Offer::default();
        let mut taken = Taken::default();
        if wanted.otlp {
            let mut own = visit.reserve(written_out.max(body.len() as u64)).await?;
            let (otlp, mapped) = heavy(body.len(), || to_otlp(version, &body)).await.map_err(bad)?;
            let needed = otlp.capacity() as u64;
            if needed > own.bytes() {
                own.absorb(visit.reserve(needed - own.bytes()).await?);
            }
            own.shrink_to(needed);
            taken = mapped;
            offer.otlp = Some(payload(WireFormat::Otlp, otlp.into(), mapped.points(), own));
        }
        if wanted.as_it_came {
            let checked = heavy(body.len(), || check(version, &body)).await;
            let checked = checked.map_err(bad)?;
            // What every pipeline has: the headers and the count say no more than the answer does.
            taken = match wanted.otlp {
                true => taken.and_as_it_came(checked),
                false => checked,
            };
            let format = match version {
                Version::V1 if checked.points() == 0 => {
                    let left_out = self.held_metadata.keep(tenant, &body);
                    self.metrics.left_out_metadata(left_out);
                    WireFormat::RemoteWrite1
                }
                Version::V1 => {
                    let metadata = self.held_metadata.take(tenant);
                    if !metadata.is_empty() {
                        let needed = (body.len() + metadata.len()) as u64;
                        permit.absorb(visit.reserve(needed).await?);
                        body = [&body[..], &metadata].concat().into();
                        permit.shrink_to(needed);
                    }
                    WireFormat::RemoteWrite1
                }
                Version::V2 => WireFormat::RemoteWrite2,
            };
            offer.as_it_came = Some(payload(format, body, checked.points(), permit));
        }
        Ok((offer, taken))
    }

    fn not_served(&self) -> Refusal {
        Refusal::NotServed(format!(
            "no pipeline takes metrics from receiver {}; add one under service.pipelines",
            self.settings.id
        ))
    }
}

/// Which message the body is, by its media type; the version header is not needed for it.
fn version(headers: &HeaderMap) -> Result<Version, Refusal> {
    let given = headers
        .get(CONTENT_TYPE)
        .map_or("", |value| value.to_str().unwrap_or("(not text)"));
    let unknown = || {
        Refusal::Unsupported(format!(
            "Content-Type {given:?} is not supported; send application/x-protobuf, with \
             proto=prometheus.WriteRequest or proto=io.prometheus.write.v2.Request"
        ))
    };
    let mut parts = given.split(';').map(str::trim);
    if !parts
        .next()
        .unwrap_or_default()
        .eq_ignore_ascii_case("application/x-protobuf")
    {
        return Err(unknown());
    }
    let message = parts
        .filter_map(|part| part.split_once('='))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case("proto"))
        .map_or("prometheus.WriteRequest", |(_, value)| {
            value.trim().trim_matches('"')
        });
    match message {
        "prometheus.WriteRequest" => Ok(Version::V1),
        "io.prometheus.write.v2.Request" => Ok(Version::V2),
        _ => Err(unknown()),
    }
}

/// Snappy, also where nothing is said; or zstd, which is VictoriaMetrics' extension.
fn encoding(headers: &HeaderMap) -> Result<Encoding, Refusal> {
    let given = headers
        .get(CONTENT_ENCODING)
        .map_or("snappy", |value| value.to_str().unwrap_or("(not text)"));
    match given {
        "snappy" => Ok(Encoding::Snappy),
        "zstd" => Ok(Encoding::Zstd),
        _ => Err(Refusal::Unsupported(format!(
            "Content-Encoding {given:?} is not supported; send snappy"
        ))),
    }
}

fn failure(refusal: Refusal) -> Response<ReplyBody> {
    let message = refusal.to_string();
    let (status, header) = match refusal {
        Refusal::Busy { retry_after, .. } => {
            let seconds = HeaderValue::from(retry_after.as_secs_f64().ceil() as u64);
            (StatusCode::SERVICE_UNAVAILABLE, Some((RETRY_AFTER, seconds)))
        }
        Refusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, None),
        Refusal::Bad(_) | Refusal::Broken(_) | Refusal::Cardinality(_) | Refusal::Disconnected(_) => {
            (StatusCode::BAD_REQUEST, None)
        }
        Refusal::NotServed(_) => (StatusCode::NOT_FOUND, None),
        Refusal::Unsupported(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, None),
        Refusal::Unauthorized { challenge, .. } => (
            StatusCode::UNAUTHORIZED,
            Some((WWW_AUTHENTICATE, HeaderValue::from_static(challenge))),
        ),
        // A slow network, not bad data: 408 would make a sender drop it.
        Refusal::TooSlow(_) => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    let mut response = text(status, &message);
    response.headers_mut().extend(header);
    response
}

fn text(status: StatusCode, message: &str) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::data(format!("{message}\n").into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    /// Scenario: media types as Prometheus, vmagent and strangers send them.
    /// Guarantees: the message's name decides; what is not known is unsupported, not bad.
    #[test]
    fn media_types() {
        for (value, want) in [
            ("application/x-protobuf", Version::V1),
            ("Application/X-Protobuf; charset=utf-8", Version::V1),
            (
                "application/x-protobuf;proto=prometheus.WriteRequest",
                Version::V1,
            ),
            (
                "application/x-protobuf; proto=\"io.prometheus.write.v2.Request\"",
                Version::V2,
            ),
        ] {
            assert_eq!(version(&headers(CONTENT_TYPE, value)), Ok(want), "{value}");
        }
        for value in [
            "",
            "application/json",
            "application/x-protobuf;proto=io.prometheus.write.v3.Request",
        ] {
            let refusal = version(&headers(CONTENT_TYPE, value)).unwrap_err();
            assert!(matches!(refusal, Refusal::Unsupported(_)), "{value}");
        }
        assert!(version(&HeaderMap::new()).is_err());
    }

    /// Scenario: encodings.
    /// Guarantees: snappy, snappy when nothing is said, and zstd; others are unsupported.
    #[test]
    fn encodings() {
        assert_eq!(encoding(&HeaderMap::new()), Ok(Encoding::Snappy));
        assert_eq!(
            encoding(&headers(CONTENT_ENCODING, "snappy")),
            Ok(Encoding::Snappy)
        );
        assert_eq!(encoding(&headers(CONTENT_ENCODING, "zstd")), Ok(Encoding::Zstd));
        for value in ["gzip", "identity", "x-snappy-framed", "snappy, snappy"] {
            let refusal = encoding(&headers(CONTENT_ENCODING, value)).unwrap_err();
            assert!(matches!(refusal, Refusal::Unsupported(_)), "{value}");
        }
    }
}
