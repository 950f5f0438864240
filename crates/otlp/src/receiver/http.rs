//! OTLP/HTTP: protobuf and JSON (statements H1-H7 and J of the specification).

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use sluice_payload::{Encoding, Signal};
use sluice_pipeline::kind;
use sluice_server::{
    Coding, Entered, HeadFault, Received, Refusal, ReplyBody, Visit, check_head, discard, heavy, receive,
};

use super::{Answer, Cors, Inner, Owner, answer};
use crate::json;

/// The media type of a request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Media {
    Protobuf,
    Json,
}

impl Media {
    /// Reads a `Content-Type`; parameters are tolerated.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = value.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/x-protobuf") {
            Some(Media::Protobuf)
        } else if essence.eq_ignore_ascii_case("application/json") {
            Some(Media::Json)
        } else {
            None
        }
    }

    fn content_type(self) -> HeaderValue {
        match self {
            Media::Protobuf => HeaderValue::from_static("application/x-protobuf"),
            Media::Json => HeaderValue::from_static("application/json"),
        }
    }
}

/// What `Accept-Encoding` of a 415 lists.
const ACCEPTED_ENCODINGS: HeaderValue =
    HeaderValue::from_static("gzip, zstd, deflate, snappy, lz4, identity");

/// A refusal that is about HTTP itself.
enum Problem {
    NoSuchPath,
    NotPost,
    /// The head is wrong for any service.
    Head(HeadFault),
    /// An `Expect` other than `100-continue` (RFC 9110, 10.1.1).
    Expectation,
    Refused(Refusal),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Problem::Refused(refusal)
    }
}

impl Inner {
    pub(super) async fn serve_http(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let (head, mut body) = request.into_parts();
        if let Some(cors) = &self.settings.cors
            && Cors::is_preflight(&head.method, &head.headers)
        {
            let mut response = Response::new(ReplyBody::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            cors.preflight(&head.headers, response.headers_mut());
            return response;
        }
        let media = Media::of(&head.headers);
        let signal = self.signal_of(head.uri.path());
        let fault = check_head(&head).err();
        let expected = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let result = match (fault, signal, &head.method) {
            (Some(fault), ..) => Err(Problem::Head(fault)),
            _ if !head.headers.get_all(EXPECT).iter().all(expected) => Err(Problem::Expectation),
            (_, None, _) => Err(Problem::NoSuchPath),
            (_, Some(_), method) if method != Method::POST => Err(Problem::NotPost),
            (_, Some(signal), _) => {
                let mut owner = Owner::UNKNOWN;
                self.export_http(signal, &mut owner, media, &head.headers, &mut body)
                    .await
                    .inspect_err(|refusal| self.refused(signal, owner, refusal))
                    .map_err(Problem::from)
            }
        };
        let mut response = match result {
            Ok((answer, media)) => success(signal, &answer, media),
            Err(problem) => {
                // A client that waits for "100 Continue" sends nothing more.
                if !head.headers.contains_key(EXPECT) {
                    discard(body, head.version);
                }
                let mut response = self.failure(problem, media.unwrap_or(Media::Json));
                if fault.is_some() && head.version != Version::HTTP_2 {
                    response
                        .headers_mut()
                        .insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        };
        if let Some(cors) = &self.settings.cors {
            cors.answer(&head.headers, response.headers_mut());
        }
        for (name, value) in &self.settings.response_headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }

    fn signal_of(&self, path: &str) -> Option<Signal> {
        let paths = &self.settings.paths.by_signal;
        let position = paths.iter().position(|known| known == path).or_else(|| {
            // A character and its percent-encoded form are the same path (RFC 9110, 4.2.3); what that leaves
            // open for reserved ones is read as Go's router does, which is the Collector's.
            let plain = percent_decode_str(path).decode_utf8().ok()?;
            paths.iter().position(|known| *known == plain)
        })?;
        Signal::ALL.get(position).copied()
    }

    async fn export_http(
        &self,
        signal: Signal,
        owner: &mut Owner,
        media: Option<Media>,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Result<(Answer, Media), Refusal> {
        *owner = self.authenticate(headers)?;
        self.served(signal)?;
        let Some(media) = media else {
            let given = headers
                .get(CONTENT_TYPE)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            return Err(Refusal::Unsupported(format!(
                "Content-Type {} is not supported; send application/x-protobuf or application/json",
                given.as_deref().unwrap_or("(none)")
            )));
        };
        let encoding = content_encoding(headers)?;
        let coding = Coding {
            encoding,
            // What came compressed as JSON is nothing an exporter sends on.
            keep_frame: media == Media::Protobuf && self.intake.keeps_frames(signal, encoding),
        };
        let length = headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let mut entered = self.enter(signal, *owner)?;
        let mut visit = self.visit(signal, *owner);
        let mut received = receive(body, length, coding, &mut visit, &self.settings.limits).await?;
        entered.iter_mut().for_each(Entered::received);
        if media == Media::Json {
            received = self.transcode(signal, received, &mut visit).await?;
        }
        let taken = self.take(signal, owner, received, visit).await?;
        Ok((Answer::new(taken, entered), media))
    }

    /// JSON to the protobuf bytes that the rest of the house works on.
    async fn transcode(
        &self,
        signal: Signal,
        received: Received,
        visit: &mut Visit<'_>,
    ) -> Result<Received, Refusal> {
        if received.body.is_empty() {
            return Err(Refusal::Bad(
                "the body is empty; an empty OTLP/JSON request is {}".into(),
            ));
        }
        // Protobuf is shorter than JSON but for lists of short numbers, where the limit holds.
        let mut permit = visit.reserve(received.body.len() as u64).await?;
        let message = json::request_schema(kind(signal));
        let wire = heavy(received.body.len(), || {
            json::decode(message, &received.body, self.json_options())
        })
        .await
        .map_err(|error| match error.is_too_large() {
            true => Refusal::TooLarge(error.to_string()),
            false => Refusal::Bad(format!(
                "the body is not a valid OTLP/JSON {signal} request: {error}"
            )),
        })?;
        let needed = wire.capacity() as u64;
        if needed > permit.bytes() {
            permit.absorb(visit.reserve(needed - permit.bytes()).await?);
        }
        permit.shrink_to(needed);
        Ok(Received {
            body: wire.into(),
            wire_bytes: received.wire_bytes,
            permit,
            compressed: None,
        })
    }

    fn failure(&self, problem: Problem, media: Media) -> Response<ReplyBody> {
        let mut headers = HeaderMap::new();
        let (status, code, message) = match problem {
            Problem::NoSuchPath => {
                let paths = self.settings.paths.by_signal.join(", ");
                (
                    StatusCode::NOT_FOUND,
                    5,
                    format!("no such path; OTLP/HTTP requests go to {paths}"),
                )
            }
            Problem::NotPost => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
                (
                    StatusCode::METHOD_NOT_ALLOWED,
                    12,
                    "OTLP/HTTP requests are POST requests".to_owned(),
                )
            }
            Problem::Head(fault) => match fault {
                HeadFault::Host => (StatusCode::BAD_REQUEST, 3, fault.to_string()),
                HeadFault::TransferCoding => (StatusCode::NOT_IMPLEMENTED, 12, fault.to_string()),
            },
            Problem::Expectation => {
                let message = "the only expectation that is met is Expect: 100-continue";
                (StatusCode::EXPECTATION_FAILED, 3, message.to_owned())
            }
            Problem::Refused(refusal) => {
                let message = refusal.to_string();
                match refusal {
                    Refusal::Busy { retry_after, .. } => {
                        headers.insert(
                            RETRY_AFTER,
                            HeaderValue::from(retry_after.as_secs_f64().ceil() as u64),
                        );
                        (StatusCode::SERVICE_UNAVAILABLE, 14, message)
                    }
                    Refusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, 8, message),
                    Refusal::Bad(_)
                    | Refusal::Broken(_)
                    | Refusal::Cardinality(_)
                    | Refusal::Disconnected(_) => (StatusCode::BAD_REQUEST, 3, message),
                    Refusal::NotServed(_) => (StatusCode::NOT_FOUND, 5, message),
                    Refusal::Unsupported(_) => {
                        headers.insert(ACCEPT_ENCODING, ACCEPTED_ENCODINGS);
                        (StatusCode::UNSUPPORTED_MEDIA_TYPE, 3, message)
                    }
                    Refusal::Unauthorized { challenge, .. } => {
                        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
                        (StatusCode::UNAUTHORIZED, 16, message)
                    }
                    Refusal::TooSlow(_) => (StatusCode::REQUEST_TIMEOUT, 4, message),
                }
            }
        };
        let body = match media {
            Media::Protobuf => answer::status(code, &message, None),
            Media::Json => serde_json::json!({"code": code, "message": message})
                .to_string()
                .into(),
        };
        headers.insert(CONTENT_TYPE, media.content_type());
        let mut response = Response::new(ReplyBody::data(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

fn success(signal: Option<Signal>, answer: &Answer, media: Media) -> Response<ReplyBody> {
    let body = match (media, answer.partial_success()) {
        (Media::Protobuf, _) => answer.message(),
        (Media::Json, None) => Bytes::from_static(b"{}"),
        (Media::Json, Some((rejected, message))) => {
            let field = match signal {
                Some(Signal::Metrics) => "rejectedDataPoints",
                Some(Signal::Logs) => "rejectedLogRecords",
                Some(Signal::Traces) | None => "rejectedSpans",
                Some(Signal::Profiles) => "rejectedProfiles",
            };
            let partial = serde_json::json!({
                "partialSuccess": {field: rejected.to_string(), "errorMessage": message}
            });
            partial.to_string().into()
        }
    };
    let mut response = Response::new(ReplyBody::data(body));
    response.headers_mut().insert(CONTENT_TYPE, media.content_type());
    response
}

fn content_encoding(headers: &HeaderMap) -> Result<Encoding, Refusal> {
    let mut found = Encoding::Identity;
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value.to_str().unwrap_or("(not text)");
        for name in text.split(',') {
            let encoding: Encoding = name
                .parse()
                .map_err(|error| Refusal::Unsupported(format!("Content-Encoding: {error}")))?;
            if encoding == Encoding::Identity {
                continue;
            }
            if found != Encoding::Identity {
                return Err(Refusal::Unsupported(format!(
                    "Content-Encoding {text:?}: compress once, not twice"
                )));
            }
            found = encoding;
        }
    }
    Ok(found)
}
