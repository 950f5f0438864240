//! OTLP/gRPC with its own framing on hyper (statements G1-G6): tonic would reserve and inflate a
//! message before anything here could say no.

use std::time::{Duration, Instant};

use base64::Engine;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sluice_payload::{Encoding, Signal};
use sluice_server::{Coding, Entered, Refusal, ReplyBody, check_head, collect_framed, discard};

use super::{Answer, Inner, Owner, answer, health};

const CONTENT_TYPE_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const ACCEPTED_ENCODINGS: HeaderValue = HeaderValue::from_static("identity,gzip,zstd,snappy,deflate");

/// What `grpc-message` escapes: everything outside printable ASCII, and the percent sign.
const MESSAGE: &AsciiSet = &CONTROLS.add(b'%');

/// gRPC status codes used here.
pub(super) mod code {
    pub const OK: u32 = 0;
    pub const INVALID_ARGUMENT: u32 = 3;
    pub const DEADLINE_EXCEEDED: u32 = 4;
    pub const NOT_FOUND: u32 = 5;
    pub const RESOURCE_EXHAUSTED: u32 = 8;
    pub const UNIMPLEMENTED: u32 = 12;
    pub const INTERNAL: u32 = 13;
    pub const UNAVAILABLE: u32 = 14;
    pub const UNAUTHENTICATED: u32 = 16;
}

/// The signal that a service exports.
pub(super) fn signal_of(service: &str) -> Option<Signal> {
    Some(match service {
        "opentelemetry.proto.collector.metrics.v1.MetricsService" => Signal::Metrics,
        "opentelemetry.proto.collector.logs.v1.LogsService" => Signal::Logs,
        "opentelemetry.proto.collector.trace.v1.TraceService" => Signal::Traces,
        "opentelemetry.proto.collector.profiles.v1development.ProfilesService" => Signal::Profiles,
        _ => return None,
    })
}

/// What a path calls.
enum Call {
    Export(Signal),
    Health(health::Method),
}

fn call_of(path: &str) -> Option<Call> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    match method {
        "Export" => signal_of(service).map(Call::Export),
        _ => health::method_of(service, method).map(Call::Health),
    }
}

impl Inner {
    pub(super) async fn serve_grpc(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        let (head, mut body) = request.into_parts();
        let response = self.answer_grpc(&head, &mut body).await;
        // There is something left of it only where it was refused.
        discard(body, head.version);
        response
    }

    async fn answer_grpc(&self, head: &Parts, body: &mut Incoming) -> Response<ReplyBody> {
        let started = Instant::now();
        if check_head(head).is_err() {
            return plain(StatusCode::BAD_REQUEST, "a request names its host: :authority\n");
        }
        let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(|value| {
            let value = value.as_bytes();
            value == b"application/grpc"
                || value.starts_with(b"application/grpc+")
                || value.starts_with(b"application/grpc;")
        });
        if !is_grpc {
            return plain(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "this port speaks OTLP/gRPC (content-type application/grpc); OTLP/HTTP is on the other port, 4318 by default\n",
            );
        }
        if head.method != Method::POST {
            return plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "gRPC requests are POST requests\n",
            );
        }
        // With what follows a question mark: the path of a call is the name of its method and nothing else.
        let path = head.uri.path_and_query().map_or("", |path| path.as_str());
        let Some(call) = call_of(path) else {
            let message =
                format!("no such method {path}; this server exports OTLP metrics, logs, traces and profiles");
            return trailers_only(code::UNIMPLEMENTED, &message, None);
        };
        let signal = match call {
            Call::Export(signal) => signal,
            Call::Health(method) => return self.serve_health(method, &head.headers, body).await,
        };
        let mut owner = Owner::UNKNOWN;
        let outcome = in_time(
            started,
            &head.headers,
            self.export_grpc(signal, &mut owner, &head.headers, body),
        )
        .await;
        match outcome {
            Ok(answer) => success(&answer),
            Err(refusal) => {
                self.refused(signal, owner, &refusal);
                failure(&refusal)
            }
        }
    }

    async fn export_grpc(
        &self,
        signal: Signal,
        owner: &mut Owner,
        headers: &HeaderMap,
        body: &mut Incoming,
    ) -> Result<Answer, Refusal> {
        *owner = self.authenticate(headers)?;
        self.served(signal)?;
        let encoding = message_encoding(headers)?;
        let coding = Coding {
            encoding,
            keep_frame: self.intake.keeps_frames(signal, encoding),
        };
        let mut entered = self.enter(signal, *owner)?;
        let mut visit = self.visit(signal, *owner);
        let received = collect_framed(body, coding, &mut visit, &self.settings.limits).await?;
        entered.iter_mut().for_each(Entered::received);
        let taken = self.take(signal, owner, received, visit).await?;
        Ok(Answer::new(taken, entered))
    }
}

/// How the messages of a call are compressed, if they are.
pub(super) fn message_encoding(headers: &HeaderMap) -> Result<Encoding, Refusal> {
    match headers.get("grpc-encoding") {
        None => Ok(Encoding::Identity),
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok())
            .ok_or_else(|| Refusal::Unsupported(format!("grpc-encoding {value:?} is not supported"))),
    }
}

/// The work of a call that came at `started`, for as long as its caller waits: an answer after that is read by nobody,
/// and work is not begun when there is no time for it.
pub(super) async fn in_time<T>(
    started: Instant,
    headers: &HeaderMap,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let passed = |timeout: Duration| {
        Err(Refusal::TooSlow(format!(
            "the call's deadline of {timeout:?} has passed"
        )))
    };
    match grpc_timeout(headers) {
        None => work.await,
        Some(timeout) if started.elapsed() >= timeout => passed(timeout),
        Some(timeout) => tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| passed(timeout)),
    }
}

/// `grpc-timeout`: at most eight digits and a unit (PROTOCOL-HTTP2.md). What cannot be read is no deadline.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// A message in its frame.
pub(super) fn framed(message: &[u8]) -> Bytes {
    if message.is_empty() {
        return Bytes::from_static(&[0; 5]);
    }
    let mut framed = BytesMut::with_capacity(5 + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put(message);
    framed.freeze()
}

fn success(answer: &Answer) -> Response<ReplyBody> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from(code::OK));
    respond(ReplyBody::with_trailers(framed(&answer.message()), trailers))
}

/// An answer with a body.
pub(super) fn respond(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    response
}

pub(super) fn failure(refusal: &Refusal) -> Response<ReplyBody> {
    let message = refusal.to_string();
    match refusal {
        Refusal::Busy { retry_after, .. } => {
            let details = answer::status(code::UNAVAILABLE, &message, Some(*retry_after));
            let mut response = trailers_only(code::UNAVAILABLE, &message, Some(details));
            // The SDK for Python looks for the hint nowhere else.
            insert_binary(
                response.headers_mut(),
                "google.rpc.retryinfo-bin",
                &answer::retry_info(*retry_after),
            );
            response
        }
        // Without RetryInfo: "do not retry" (G2).
        Refusal::TooLarge(_) => trailers_only(code::RESOURCE_EXHAUSTED, &message, None),
        Refusal::Bad(_) | Refusal::Disconnected(_) => trailers_only(code::INVALID_ARGUMENT, &message, None),
        Refusal::Broken(_) => trailers_only(code::INTERNAL, &message, None),
        Refusal::Cardinality(_) | Refusal::NotServed(_) => trailers_only(code::UNIMPLEMENTED, &message, None),
        Refusal::Unsupported(_) => {
            let mut response = trailers_only(code::UNIMPLEMENTED, &message, None);
            response
                .headers_mut()
                .insert("grpc-accept-encoding", ACCEPTED_ENCODINGS);
            response
        }
        Refusal::Unauthorized { .. } => trailers_only(code::UNAUTHENTICATED, &message, None),
        Refusal::TooSlow(_) => trailers_only(code::DEADLINE_EXCEEDED, &message, None),
    }
}

pub(super) fn trailers_only(code: u32, message: &str, details: Option<Bytes>) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, CONTENT_TYPE_GRPC);
    headers.insert("grpc-status", HeaderValue::from(code));
    let escaped = utf8_percent_encode(message, MESSAGE).to_string();
    if let Ok(value) = HeaderValue::from_str(&escaped) {
        headers.insert("grpc-message", value);
    }
    if let Some(details) = details {
        insert_binary(headers, "grpc-status-details-bin", &details);
    }
    response
}

fn insert_binary(headers: &mut HeaderMap, name: &'static str, value: &[u8]) {
    let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(value);
    if let Ok(value) = HeaderValue::from_str(&encoded) {
        headers.insert(name, value);
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::data(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: deadlines in every unit, the longest one, and text that is none.
    /// Guarantees: what PROTOCOL-HTTP2.md allows is read; the rest is no deadline.
    #[test]
    fn timeouts() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]);
            grpc_timeout(&headers)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("3M"), Some(Duration::from_secs(180)));
        assert_eq!(read("4S"), Some(Duration::from_secs(4)));
        assert_eq!(read("5m"), Some(Duration::from_millis(5)));
        assert_eq!(read("6u"), Some(Duration::from_micros(6)));
        assert_eq!(read("99999999n"), Some(Duration::from_nanos(99_999_999)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for text in ["", "S", "5", "5s", "+5S", "-5S", "1.5S", "100000000S", "5 S"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
