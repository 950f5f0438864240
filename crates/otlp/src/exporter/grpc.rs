//! OTLP over gRPC: one unary call per batch, framed here, sent as one h2 stream.
//!
//! The message is the batch's slices behind a five-byte prefix; tonic's codec would copy them
//! together first (research: rust-anchors 4.1).

use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sluice_client::{
    Answer, Client, ClientSettings, Compression, Credentials, Destination, Egress, MAX_ANSWER_BYTES,
    Protocol, SendError, Slices, compress_slices, expected_bytes, inflate,
};
use sluice_payload::{Encoding, Signal};
use sluice_pipeline::{Batch, Export, Exporter, Verdict};

use super::classify::{self, Code, cannot_compress};
use super::fallback::Negotiated;
use super::options::{self, ExporterError, GrpcExporterOptions, MAX_REQUEST_BYTES};
use super::pass_through::{PassThrough, Probed};
use super::protobuf;
use super::status::{self, BodyFormat, words};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Compressed-flag and length before a message.
const PREFIX_BYTES: usize = 5;

/// What answers may be compressed with. They are tiny, so only what any server has.
const ANSWERS_ACCEPTED: HeaderValue = HeaderValue::from_static("identity,gzip");

/// Binary metadata is base64 with or without padding (gRPC over HTTP2, "Binary-Header").
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Sends batches to an OTLP/gRPC destination: one `Export` call per batch, its answer turned into
/// a [`Verdict`].
#[derive(Debug)]
pub struct GrpcExporter {
    client: Client,
    /// The base path of the endpoint, without the slash at its end; nearly always empty.
    base: String,
    headers: HeaderMap,
    credentials: Credentials,
    compression: Negotiated,
    level: i32,
    pass_through: PassThrough,
    egress: Egress,
    timeout: Duration,
    max_request_bytes: usize,
}

impl GrpcExporter {
    /// Reads the settings, and the TLS files among them; connects to nothing yet.
    ///
    /// # Errors
    /// When the endpoint, a header, TLS, credentials or the compression cannot be used.
    pub fn new(options: GrpcExporterOptions) -> Result<Self, ExporterError> {
        if options.endpoint.trim().is_empty() {
            return Err(ExporterError::NoEndpoint);
        }
        grpc_encoding(options.compression)?;
        let (mut headers, authority) = options::static_headers(&options.headers)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(GRPC_ACCEPT_ENCODING, ANSWERS_ACCEPTED);
        headers.insert(GRPC_TIMEOUT, grpc_timeout(options.timeout));
        let mut destination = Destination::parse(&options.endpoint, !options.tls.insecure, 4317)?;
        if let Some(authority) = authority {
            destination.authority = authority;
        }
        let base = destination
            .path
            .split('?')
            .next()
            .unwrap_or_default()
            .trim_end_matches('/')
            .to_owned();
        let client = Client::new(ClientSettings {
            destination,
            tls: options.tls,
            connect: options.connect,
            protocol: Protocol::Http2,
            http1: Default::default(),
            http2: options.http2,
        })?;
        Ok(Self {
            client,
            base,
            headers,
            credentials: options::credentials(&options.auth)?,
            compression: Negotiated::new(options.compression),
            level: options
                .compression_level
                .unwrap_or(options.compression.default_level()),
            pass_through: PassThrough::new(options.pass_through, options.compression),
            egress: Egress::new(options.egress),
            timeout: options.timeout,
            max_request_bytes: options.max_request_bytes.min(MAX_REQUEST_BYTES),
        })
    }

    async fn send(&self, batch: &Batch) -> Verdict {
        let (items, bytes) = (batch.items(), batch.bytes());
        if bytes == 0 {
            // Nothing to say is not worth a request (C9).
            return Verdict::Delivered {
                rejected: 0,
                message: None,
            };
        }
        if bytes > MAX_REQUEST_BYTES {
            let reason =
                format!("{bytes} bytes are more than OTLP allows in one request ({MAX_REQUEST_BYTES})");
            return Verdict::TooLarge { reason };
        }
        let compression = self.compression.current();
        let (path, headers) = match (self.path(batch.signal), self.headers(compression)) {
            (Ok(path), Ok(headers)) => (path, headers),
            (Err(error), _) | (_, Err(error)) => return classify::unanswered(&error),
        };
        let probe = |body| self.probe(&path, headers.clone(), body);
        let frames = self.pass_through.ready(batch, compression, probe).await;
        let body = match self.body(batch, compression, frames).await {
            Ok(body) => body,
            Err(verdict) => return verdict,
        };
        let verdict = match self.client.post(&path, headers, &body, self.timeout).await {
            Ok(answer) => self.verdict(&answer, compression, items),
            Err(error) => classify::unanswered(&error),
        };
        match frames {
            Some(frames) => frames.settle(verdict),
            None => verdict,
        }
    }

    async fn probe(&self, path: &PathAndQuery, headers: HeaderMap, body: Bytes) -> Probed {
        let body = Slices::new([prefix(true, body.len()), body]);
        let Ok(answer) = self.client.post(path, headers, &body, self.timeout).await else {
            return Probed::Inconclusive;
        };
        let status = answer
            .trailers
            .as_ref()
            .and_then(outcome)
            .or_else(|| outcome(&answer.headers));
        match status.map(|status| status.code) {
            Some(Code::OK) => Probed::Taken,
            // grpc-go and tonic answer a message they cannot decompress with INTERNAL, others blame the argument.
            Some(Code::INVALID_ARGUMENT | Code::INTERNAL) => Probed::Refused,
            _ => Probed::Inconclusive,
        }
    }

    /// The message behind its prefix, with `frames` from what came compressed.
    async fn body(
        &self,
        batch: &Batch,
        compression: Compression,
        frames: Option<&PassThrough>,
    ) -> Result<Slices, Verdict> {
        let parts = Slices::new(batch.parts.iter().map(|part| part.body.clone()));
        let message = match frames {
            Some(frames) => frames.assemble(batch, self.level, &self.egress).await,
            None if compression == Compression::None => Ok(parts),
            None => {
                let compression = wire_compression(compression);
                let expected = expected_bytes(compression, parts.len());
                let mut permit = self.egress.reserve(expected).await;
                compress_slices(compression, self.level, &parts, &mut permit)
                    .await
                    .map(Slices::from)
            }
        };
        let message = message.map_err(cannot_compress)?;
        let prefix = prefix(compression != Compression::None, message.len());
        Ok(Slices::new(
            std::iter::once(prefix).chain(message.iter().cloned()),
        ))
    }

    fn path(&self, signal: Signal) -> Result<PathAndQuery, SendError> {
        let method = match signal {
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Profiles => {
                "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
            }
        };
        if self.base.is_empty() {
            return Ok(PathAndQuery::from_static(method));
        }
        PathAndQuery::try_from(format!("{}{method}", self.base))
            .map_err(|e| SendError::Unsendable(e.to_string()))
    }

    fn headers(&self, compression: Compression) -> Result<HeaderMap, SendError> {
        let mut headers = self.headers.clone();
        if let Ok(Some(name)) = grpc_encoding(compression) {
            headers.insert(GRPC_ENCODING, HeaderValue::from_static(name));
        }
        if let Some(value) = self.credentials.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn verdict(&self, answer: &Answer, compression: Compression, items: u64) -> Verdict {
        if answer.cut && answer.status == StatusCode::OK {
            // A message is only sent by a server that took the call.
            let message =
                format!("delivered, but the answer is longer than {MAX_ANSWER_BYTES} bytes and was not read");
            return status::warned(message);
        }
        // The status comes after the message, or in the headers when there is none ("Trailers-Only").
        let trailers = answer
            .trailers
            .as_ref()
            .filter(|trailers| trailers.contains_key(GRPC_STATUS));
        let Some(outcome) = outcome(trailers.unwrap_or(&answer.headers)) else {
            return without_status(answer);
        };
        if outcome.code == Code::OK {
            return message_of(answer, items);
        }
        if outcome.code == Code::UNAUTHENTICATED {
            self.credentials.refresh();
        }
        if outcome.code == Code::UNIMPLEMENTED {
            let accepted = [trailers, Some(&answer.headers)]
                .into_iter()
                .flatten()
                .find_map(|map| map.get(GRPC_ACCEPT_ENCODING)?.to_str().ok());
            if is_about_encoding(&outcome.message, compression, accepted)
                && self.compression.refuse(compression, accepted)
            {
                let reason = format!("gRPC {}: {}; falling back", outcome.code, outcome.message);
                return Verdict::Retry {
                    after: Some(Duration::ZERO),
                    reason,
                };
            }
        }
        classify::grpc_failure(outcome.code, &outcome.message, outcome.retry_delay)
    }
}

impl Exporter for GrpcExporter {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.send(batch))
    }

    fn max_request_bytes(&self) -> usize {
        self.max_request_bytes
    }

    fn passes_through(&self) -> Option<Encoding> {
        self.pass_through.encoding()
    }

    fn shutdown<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.client.close();
        Box::pin(async {})
    }
}

/// The name of a compression on gRPC; `None` for no header.
fn grpc_encoding(compression: Compression) -> Result<Option<&'static str>, ExporterError> {
    match compression {
        Compression::None => Ok(None),
        Compression::Gzip => Ok(Some("gzip")),
        Compression::Zstd => Ok(Some("zstd")),
        Compression::Deflate => Ok(Some("deflate")),
        Compression::Snappy | Compression::SnappyFramed => Ok(Some("snappy")),
        Compression::Lz4 => Err(ExporterError::Compression(compression)),
    }
}

/// What goes on the wire under that name: Go's `snappy` codec for gRPC writes and reads the framing format.
fn wire_compression(compression: Compression) -> Compression {
    match compression {
        Compression::Snappy => Compression::SnappyFramed,
        other => other,
    }
}

fn prefix(compressed: bool, len: usize) -> Bytes {
    let mut bytes = [0u8; PREFIX_BYTES];
    bytes[0] = u8::from(compressed);
    // Messages are at most MAX_REQUEST_BYTES long, which incompressible ones exceed by a little.
    bytes[1..].copy_from_slice(&(len as u32).to_be_bytes());
    Bytes::copy_from_slice(&bytes)
}

/// At most eight digits and a unit (gRPC over HTTP2, "Timeout").
fn grpc_timeout(timeout: Duration) -> HeaderValue {
    const MOST: u128 = 99_999_999;
    let (value, unit) = if timeout.as_millis() <= MOST {
        (timeout.as_millis(), "m")
    } else {
        (timeout.as_secs().into(), "S")
    };
    let text = format!("{}{unit}", value.clamp(1, MOST));
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("10S"))
}

/// What the trailers say.
struct Outcome {
    code: Code,
    message: String,
    retry_delay: Option<Duration>,
}

fn outcome(trailers: &HeaderMap) -> Option<Outcome> {
    let code = trailers.get(GRPC_STATUS)?;
    let code = code
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .map_or(Code::UNKNOWN, Code);
    let message = trailers.get(GRPC_MESSAGE).map_or(String::new(), |value| {
        words(&percent_encoding::percent_decode(value.as_bytes()).decode_utf8_lossy())
    });
    let details = trailers
        .get(GRPC_STATUS_DETAILS)
        .and_then(|value| ANY_PADDING.decode(value.as_bytes()).ok())
        .and_then(|bytes| protobuf::error_status(&bytes).ok());
    // otel-arrow's engine gives its delay this way (gRPC retry design, A6); negative means "do not".
    let pushback = || {
        let millis: u64 = trailers
            .get(GRPC_RETRY_PUSHBACK)?
            .to_str()
            .ok()?
            .trim()
            .parse()
            .ok()?;
        Some(Duration::from_millis(millis))
    };
    let retry_delay = details
        .as_ref()
        .and_then(|details| details.retry_delay)
        .or_else(pushback);
    let message = match details {
        Some(details) if message.is_empty() => words(&details.message),
        _ => message,
    };
    Some(Outcome {
        code,
        message,
        retry_delay,
    })
}

/// An answer that never says what became of the call.
fn without_status(answer: &Answer) -> Verdict {
    if answer.status == StatusCode::OK {
        let is_grpc = answer.headers.get(CONTENT_TYPE).is_some_and(|value| {
            value
                .as_bytes()
                .to_ascii_lowercase()
                .starts_with(b"application/grpc")
        });
        return if is_grpc {
            // Cut by something between us and the server; whether it took the call nobody knows.
            Verdict::Retry {
                after: None,
                reason: "the answer ended without a grpc-status".to_owned(),
            }
        } else {
            Verdict::EndpointFault {
                reason: "the answer is not gRPC; is this a gRPC endpoint?".to_owned(),
            }
        };
    }
    // Something before the server answered in plain HTTP.
    let format = BodyFormat::of(answer.headers.get(CONTENT_TYPE));
    let said = status::error_words(format, &answer.body).message;
    let mut message = format!("HTTP {}", answer.status);
    if !said.is_empty() {
        message = format!("{message}: {said}");
    }
    if answer.status == StatusCode::PAYLOAD_TOO_LARGE {
        // A proxy with a limit of its own: half the batch may pass it.
        return Verdict::TooLarge { reason: message };
    }
    let delay = sluice_client::retry_after(&answer.headers, std::time::SystemTime::now());
    classify::grpc_failure(Code::of_http(answer.status), &message, delay)
}

/// The verdict on OK: what the one message says.
fn message_of(answer: &Answer, items: u64) -> Verdict {
    let Some((prefix, rest)) = answer.body.split_first_chunk::<PREFIX_BYTES>() else {
        return if answer.body.is_empty() {
            Verdict::Delivered {
                rejected: 0,
                message: None,
            }
        } else {
            status::warned("delivered, but the answer is not framed as gRPC frames it".to_owned())
        };
    };
    let [flag, length @ ..] = *prefix;
    let Some(message) = rest.get(..u32::from_be_bytes(length) as usize) else {
        return status::warned("delivered, but the answer is shorter than it says".to_owned());
    };
    if flag & 1 == 0 {
        return status::delivered(BodyFormat::Protobuf, message, items);
    }
    let name = answer
        .headers
        .get(GRPC_ENCODING)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("gzip");
    let inflated = name
        .parse::<Compression>()
        .map_err(|e| e.to_string())
        .and_then(|name| {
            inflate(wire_compression(name), message, MAX_ANSWER_BYTES).map_err(|e| e.to_string())
        });
    match inflated {
        Ok(message) => status::delivered(BodyFormat::Protobuf, &message, items),
        Err(error) => status::warned(format!("delivered, but the answer cannot be inflated: {error}")),
    }
}

/// Whether UNIMPLEMENTED speaks of the compression rather than of the service.
fn is_about_encoding(message: &str, compression: Compression, accepted: Option<&str>) -> bool {
    let Ok(Some(name)) = grpc_encoding(compression) else {
        return false;
    };
    let message = message.to_ascii_lowercase();
    let said = message.contains("ompress") || message.contains("grpc-encoding") || message.contains(name);
    let offered = accepted.map(|list| list.split(',').any(|offer| offer.trim() == name));
    // A list without ours says it as well; a list with ours speaks against it.
    offered == Some(false) || (said && offered.is_none())
}
