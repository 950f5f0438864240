//! OTLP over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode};
use sluice_client::{
    Answer, Client, ClientSettings, Compression, Credentials, Destination, Egress, InvalidEndpoint,
    MAX_ANSWER_BYTES, Slices, compress_slices, expected_bytes, inflate,
};
use sluice_payload::{Encoding, Signal};
use sluice_pipeline::{Batch, Export, Exporter, Verdict};

use super::classify::{self, cannot_compress};
use super::fallback::Negotiated;
use super::options::{self, BodyEncoding, ExporterError, HttpExporterOptions, MAX_REQUEST_BYTES};
use super::pass_through::{PassThrough, PassThroughMode, Probed};
use super::status::{self, BodyFormat};
use crate::json;

/// How much larger a request is expected to be as JSON: names, quotes and hexadecimal ids make it two to four times
/// as large.
const JSON_FACTOR: usize = 4;

/// Sends batches to an OTLP/HTTP destination: one POST per batch, its answer turned into a [`Verdict`].
#[derive(Debug)]
pub struct HttpExporter {
    /// By signal, in the order of [`Signal::ALL`].
    routes: [Option<Route>; 4],
    headers: HeaderMap,
    credentials: Credentials,
    compression: Negotiated,
    level: i32,
    pass_through: PassThrough,
    egress: Egress,
    encoding: BodyEncoding,
    timeout: Duration,
    max_request_bytes: usize,
}

/// Where one signal goes.
#[derive(Debug)]
struct Route {
    client: Arc<Client>,
    path: PathAndQuery,
}

impl HttpExporter {
    /// Reads the settings, and the TLS files among them; connects to nothing yet.
    ///
    /// # Errors
    /// When an endpoint, a header, TLS or credentials cannot be used.
    pub fn new(options: HttpExporterOptions) -> Result<Self, ExporterError> {
        let (headers, authority) = options::static_headers(&options.headers)?;
        let mut clients: Vec<(Destination, Arc<Client>)> = Vec::new();
        let mut route = |signal: Signal| -> Result<Option<Route>, ExporterError> {
            let Some(mut destination) = destination_of(&options, signal)? else {
                return Ok(None);
            };
            if let Some(authority) = &authority {
                destination.authority.clone_from(authority);
            }
            let written = std::mem::replace(&mut destination.path, "/".to_owned());
            let path = written
                .parse()
                .map_err(|e: http::uri::InvalidUri| InvalidEndpoint {
                    endpoint: written,
                    reason: e.to_string(),
                })?;
            let shared = clients
                .iter()
                .find(|(known, _)| *known == destination)
                .map(|(_, client)| client.clone());
            let client = match shared {
                Some(client) => client,
                None => {
                    let client = Arc::new(Client::new(ClientSettings {
                        destination: destination.clone(),
                        tls: options.tls.clone(),
                        connect: options.connect.clone(),
                        protocol: options.protocol,
                        http1: options.http1.clone(),
                        http2: options.http2.clone(),
                    })?);
                    clients.push((destination, client.clone()));
                    client
                }
            };
            Ok(Some(Route { client, path }))
        };
        let [metrics, logs, traces, profiles] = Signal::ALL;
        let routes = [route(metrics)?, route(logs)?, route(traces)?, route(profiles)?];
        if routes.iter().all(Option::is_none) {
            return Err(ExporterError::NoEndpoint);
        }
        let compression = options.compression;
        let pass_through = match options.encoding {
            BodyEncoding::Protobuf => options.pass_through,
            BodyEncoding::Json => PassThroughMode::Never,
        };
        Ok(Self {
            routes,
            headers,
            credentials: options::credentials(&options.auth)?,
            compression: Negotiated::new(compression),
            level: options.compression_level.unwrap_or(compression.default_level()),
            pass_through: PassThrough::new(pass_through, compression),
            egress: Egress::new(options.egress),
            encoding: options.encoding,
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
        let Some(route) = &self.routes[index(batch.signal)] else {
            let signal = batch.signal;
            return Verdict::EndpointFault {
                reason: format!("no endpoint for {signal} is configured"),
            };
        };
        let compression = self.compression.current();
        let headers = match self.headers(compression) {
            Ok(headers) => headers,
            Err(error) => return classify::unanswered(&error),
        };
        let probe = |body| self.probe(route, headers.clone(), body);
        let frames = self.pass_through.ready(batch, compression, probe).await;
        let body = match self.body(batch, compression, frames).await {
            Ok(body) => body,
            Err(verdict) => return verdict,
        };
        let verdict = match route.client.post(&route.path, headers, &body, self.timeout).await {
            Ok(answer) => self.verdict(answer, compression, items),
            Err(error) => classify::unanswered(&error),
        };
        match frames {
            Some(frames) => frames.settle(verdict),
            None => verdict,
        }
    }

    async fn probe(&self, route: &Route, headers: HeaderMap, body: Bytes) -> Probed {
        let answer = route
            .client
            .post(&route.path, headers, &body.into(), self.timeout)
            .await;
        match answer.map(|answer| answer.status) {
            Ok(status) if status.is_success() => Probed::Taken,
            Ok(StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) => Probed::Refused,
            Ok(_) | Err(_) => Probed::Inconclusive,
        }
    }

    /// The body, with `frames` from what came compressed.
    async fn body(
        &self,
        batch: &Batch,
        compression: Compression,
        frames: Option<&PassThrough>,
    ) -> Result<Slices, Verdict> {
        if let Some(frames) = frames {
            return frames
                .assemble(batch, self.level, &self.egress)
                .await
                .map_err(cannot_compress);
        }
        let protobuf = || Slices::new(batch.parts.iter().map(|part| part.body.clone()));
        let (body_bytes, written_bytes) = match self.encoding {
            BodyEncoding::Protobuf if compression == Compression::None => return Ok(protobuf()),
            BodyEncoding::Protobuf => (batch.bytes(), 0),
            BodyEncoding::Json => (batch.bytes() * JSON_FACTOR, batch.bytes() * JSON_FACTOR),
        };
        let packed_bytes = match compression {
            Compression::None => 0,
            _ => expected_bytes(compression, body_bytes),
        };
        // All of it at once: whoever held some and waited for more could wait for ever.
        let mut permit = self.egress.reserve(written_bytes + packed_bytes).await;
        let body = match self.encoding {
            BodyEncoding::Protobuf => protobuf(),
            BodyEncoding::Json if compression == Compression::None => {
                return Ok(permit.keep(as_json(batch)?).into());
            }
            BodyEncoding::Json => Bytes::from(as_json(batch)?).into(),
        };
        let packed = compress_slices(compression, self.level, &body, &mut permit).await;
        packed.map(Slices::from).map_err(cannot_compress)
    }

    fn headers(&self, compression: Compression) -> Result<HeaderMap, sluice_client::SendError> {
        let mut headers = self.headers.clone();
        let content_type = match self.encoding {
            BodyEncoding::Protobuf => "application/x-protobuf",
            BodyEncoding::Json => "application/json",
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(name) = compression.content_encoding() {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        if let Some(value) = self.credentials.header()? {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn verdict(&self, answer: Answer, compression: Compression, items: u64) -> Verdict {
        let format = BodyFormat::of(answer.headers.get(CONTENT_TYPE));
        if answer.status.is_success() && answer.cut {
            let message =
                format!("delivered, but the answer is longer than {MAX_ANSWER_BYTES} bytes and was not read");
            return status::warned(message);
        }
        let body = match answer.headers.get(CONTENT_ENCODING) {
            None => answer.body,
            // We asked for none, but an intermediary may compress all the same.
            Some(name) => {
                let name: Option<Compression> = name.to_str().ok().and_then(|name| name.parse().ok());
                name.and_then(|name| inflate(name, &answer.body, MAX_ANSWER_BYTES).ok())
                    .unwrap_or(answer.body)
            }
        };
        if answer.status.is_success() {
            // Some answer without a type; ours is the one they were asked in.
            let format = match (answer.headers.contains_key(CONTENT_TYPE), self.encoding) {
                (true, _) => format,
                (false, BodyEncoding::Protobuf) => BodyFormat::Protobuf,
                (false, BodyEncoding::Json) => BodyFormat::Json,
            };
            return status::delivered(format, &body, items);
        }
        match answer.status {
            StatusCode::UNAUTHORIZED => self.credentials.refresh(),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                // RFC 9110, 15.5.16 and 12.5.3: with Accept-Encoding it is the coding that is not read.
                let accepted = answer
                    .headers
                    .get(ACCEPT_ENCODING)
                    .and_then(|value| value.to_str().ok());
                if self.compression.refuse(compression, accepted) {
                    let reason = format!("HTTP 415: {compression:?} is not read there; falling back");
                    return Verdict::Retry {
                        after: Some(Duration::ZERO),
                        reason,
                    };
                }
            }
            _ => {}
        }
        classify::http_failure(answer.status, &answer.headers, status::error_words(format, &body))
    }
}

fn as_json(batch: &Batch) -> Result<Vec<u8>, Verdict> {
    let parts: Vec<&[u8]> = batch.parts.iter().map(|part| &part.body[..]).collect();
    let mut written = Vec::new();
    json::encode_parts(json::request_schema(kind(batch.signal)), &parts, &mut written)
        .map(|()| written)
        .map_err(|error| Verdict::PayloadFault {
            reason: format!("cannot be written as JSON: {error}"),
        })
}

impl Exporter for HttpExporter {
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
        for route in self.routes.iter().flatten() {
            route.client.close();
        }
        Box::pin(async {})
    }
}

fn index(signal: Signal) -> usize {
    match signal {
        Signal::Metrics => 0,
        Signal::Logs => 1,
        Signal::Traces => 2,
        Signal::Profiles => 3,
    }
}

fn kind(signal: Signal) -> sluice_wire::Kind {
    match signal {
        Signal::Metrics => sluice_wire::Kind::Metrics,
        Signal::Logs => sluice_wire::Kind::Logs,
        Signal::Traces => sluice_wire::Kind::Traces,
        Signal::Profiles => sluice_wire::Kind::Profiles,
    }
}

/// The destination and full path for `signal`: its own endpoint as written, or the base and the signal's path.
fn destination_of(
    options: &HttpExporterOptions,
    signal: Signal,
) -> Result<Option<Destination>, ExporterError> {
    let (own, suffix) = match signal {
        Signal::Metrics => (&options.metrics_endpoint, "v1/metrics"),
        Signal::Logs => (&options.logs_endpoint, "v1/logs"),
        Signal::Traces => (&options.traces_endpoint, "v1/traces"),
        Signal::Profiles => (&options.profiles_endpoint, "v1development/profiles"),
    };
    // A bare host:port has no scheme to tell; HTTP endpoints are written with one, 4318 is OTLP's port.
    let parse = |endpoint: &str| Destination::parse(endpoint, false, 4318);
    if let Some(own) = own {
        return Ok(Some(parse(own)?));
    }
    let Some(base) = &options.endpoint else {
        return Ok(None);
    };
    let mut destination = parse(base)?;
    let (path, query) = match destination.path.split_once('?') {
        Some((path, query)) => (path.to_owned(), format!("?{query}")),
        None => (destination.path.clone(), String::new()),
    };
    destination.path = format!("{}/{suffix}{query}", path.trim_end_matches('/'));
    Ok(Some(destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: base endpoints with and without path, slash and query, and a signal's own endpoint.
    /// Guarantees: the signal's path is appended to a base, and an own endpoint is used as written.
    #[test]
    fn paths_by_signal() {
        let cases = [
            ("http://a:4318", "/v1/traces"),
            ("http://a:4318/", "/v1/traces"),
            ("http://a:4318/otlp", "/otlp/v1/traces"),
            ("http://a:4318/otlp/?key=1", "/otlp/v1/traces?key=1"),
        ];
        for (base, path) in cases {
            let options = HttpExporterOptions {
                endpoint: Some(base.into()),
                ..Default::default()
            };
            let destination = destination_of(&options, Signal::Traces).unwrap().unwrap();
            assert_eq!(destination.path, path, "{base}");
        }
        let options = HttpExporterOptions {
            logs_endpoint: Some("https://b/in?x".into()),
            ..Default::default()
        };
        assert_eq!(
            destination_of(&options, Signal::Logs).unwrap().unwrap().path,
            "/in?x"
        );
        assert!(destination_of(&options, Signal::Traces).unwrap().is_none());
        let none = HttpExporter::new(HttpExporterOptions::default());
        assert!(matches!(none, Err(ExporterError::NoEndpoint)));
    }

    /// Scenario: a header the protocol sets is configured.
    /// Guarantees: start-up fails and names it, rather than every request failing later.
    #[test]
    fn protocol_headers_cannot_be_configured() {
        let options = HttpExporterOptions {
            endpoint: Some("http://a".into()),
            headers: vec![("Content-Length".into(), "1".into())],
            ..Default::default()
        };
        let error = HttpExporter::new(options).unwrap_err().to_string();
        assert!(error.contains("Content-Length"), "{error}");
    }
}
