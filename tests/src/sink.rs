//! A destination: OTLP over HTTP and gRPC on one port; it decodes, collects, and answers as told.

use std::fmt;
use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::{Any, RpcStatus};
use crate::tree::{Items, items_of};
use crate::within;

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Metrics,
    Logs,
    Traces,
    Profiles,
}

impl Kind {
    /// All four.
    pub const ALL: [Kind; 4] = [Kind::Metrics, Kind::Logs, Kind::Traces, Kind::Profiles];

    /// The three whose content is known.
    pub const STABLE: [Kind; 3] = [Kind::Metrics, Kind::Logs, Kind::Traces];

    /// The OTLP/HTTP path.
    pub fn http_path(self) -> &'static str {
        match self {
            Kind::Metrics => "/v1/metrics",
            Kind::Logs => "/v1/logs",
            Kind::Traces => "/v1/traces",
            Kind::Profiles => "/v1development/profiles",
        }
    }

    /// The gRPC path.
    pub fn grpc_path(self) -> &'static str {
        match self {
            Kind::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Kind::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Kind::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Kind::Profiles => "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        }
    }

    fn of_path(path: &str) -> Option<Kind> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.http_path() == path || kind.grpc_path() == path)
    }
}

/// A request that arrived, inflated.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// The signal, by its path.
    pub kind: Kind,
    /// Whether it came as a gRPC call.
    pub grpc: bool,
    /// The HTTP version.
    pub version: Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// The body as it came, without gRPC's prefix.
    pub wire: Bytes,
    /// The request message, in protobuf unless the exporter was told to send JSON.
    pub body: Bytes,
}

impl Arrived {
    /// The items in it.
    pub fn items(&self) -> Items {
        items_of(self.kind, &self.body)
    }
}

/// What the sink does with a request.
#[derive(Clone, Default)]
pub enum Answer {
    /// Takes it.
    #[default]
    Take,
    /// Takes it, but for so many items.
    Partial(u64, &'static str),
    /// Refuses it with an HTTP status, and a `Retry-After`.
    Http(u16, Option<u64>),
    /// Refuses it with a gRPC status, and a `RetryInfo`.
    Grpc(u32, Option<Duration>),
    /// Refuses it with RESOURCE_EXHAUSTED, which speaks of a quota and says nothing about when to come again; gRPC only.
    Exhausted,
    /// Answers only after the future is done.
    After(
        Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>,
        Box<Answer>,
    ),
    /// Never answers.
    Stall,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

type Script = Arc<dyn Fn(&Arrived) -> Answer + Send + Sync>;

#[derive(Default)]
struct State {
    taken: Vec<Arrived>,
    refused: Vec<Arrived>,
}

struct Shared {
    state: Mutex<State>,
    script: Mutex<Script>,
    changes: watch::Sender<u64>,
    connections: watch::Sender<usize>,
}

/// A destination on a free port of 127.0.0.1.
pub struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({})", self.address)
    }
}

impl Sink {
    /// A sink that takes everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            script: Mutex::new(Arc::new(|_| Answer::Take)),
            changes: watch::Sender::new(0),
            connections: watch::Sender::new(0),
        });
        let server = tokio::spawn(serve(listener, shared.clone()));
        Self {
            address,
            shared,
            server: Mutex::new(Some(server)),
        }
    }

    /// A port on which nobody listens until [`Sink::up`].
    pub async fn down() -> Self {
        let sink = Self::start().await;
        sink.stop().await;
        sink
    }

    /// Closes the port and every connection.
    pub async fn stop(&self) {
        let server = self.server.lock().unwrap().take();
        if let Some(server) = server {
            server.abort();
            // It ends by being aborted.
            let _ = server.await;
        }
    }

    /// Opens the port again.
    pub async fn up(&self) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let server = tokio::spawn(serve(socket.listen(256).unwrap(), self.shared.clone()));
        *self.server.lock().unwrap() = Some(server);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on every request is answered as `script` says.
    pub fn answer(&self, script: impl Fn(&Arrived) -> Answer + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// The requests that were taken, in order.
    pub fn taken(&self) -> Vec<Arrived> {
        self.shared.state.lock().unwrap().taken.clone()
    }

    /// The requests that were refused, stalled or delayed at first sight, in order.
    pub fn refused(&self) -> Vec<Arrived> {
        self.shared.state.lock().unwrap().refused.clone()
    }

    /// Forgets what arrived.
    pub fn clear(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.taken.clear();
        state.refused.clear();
    }

    /// All items of a signal that were taken.
    pub fn items(&self, kind: Kind) -> Items {
        self.taken()
            .iter()
            .filter(|arrived| arrived.kind == kind)
            .map(Arrived::items)
            .collect()
    }

    /// Waits until `ready` has something to say about this sink.
    pub async fn until<T>(&self, what: &str, mut ready: impl FnMut(&Sink) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        within(what, async {
            loop {
                changes.borrow_and_update();
                if let Some(outcome) = ready(self) {
                    return outcome;
                }
                changes.changed().await.unwrap();
            }
        })
        .await
    }

    /// Waits for so many items of a signal and returns all there are.
    pub async fn wait_for(&self, kind: Kind, items: usize) -> Items {
        self.until(&format!("{items} {kind:?} items arrive"), |sink| {
            Some(sink.items(kind)).filter(|found| found.len() >= items)
        })
        .await
    }

    /// Waits for exactly the items of these request bodies, each once.
    pub async fn wait_for_same(&self, kind: Kind, sent: &[Vec<u8>]) {
        let expected: Items = sent.iter().map(|body| items_of(kind, body)).collect();
        self.wait_for(kind, expected.len()).await.assert_same(&expected);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.abort();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Connections are tasks of this set, so that stopping the server closes them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted.unwrap(),
            Some(_) = connections.join_next() => continue,
        };
        let shared = shared.clone();
        connections.spawn(async move {
            shared.connections.send_modify(|connections| *connections += 1);
            let service = service_fn(|request| answer(request, shared.clone()));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http2()
                .max_concurrent_streams(1000)
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(16 << 20);
            // A connection that breaks is the other side's business.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<SinkBody>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let header = |name: &str| {
        head.headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let content_type = header("content-type").unwrap_or_default();
    let grpc = content_type.starts_with("application/grpc");
    let Some(kind) = Kind::of_path(head.uri.path()) else {
        return Ok(reply(grpc, &Answer::Http(404, None), &content_type));
    };
    let wire = match grpc {
        true => body.slice(5.min(body.len())..),
        false => body.clone(),
    };
    let message = match grpc {
        true => {
            let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
            assert_eq!(body.len(), 5 + length, "not one message");
            let encoding = if body[0] == 1 {
                header("grpc-encoding").unwrap()
            } else {
                "identity".into()
            };
            inflate(&encoding, body.slice(5..), true)
        }
        false => inflate(
            &header("content-encoding").unwrap_or_else(|| "identity".into()),
            body,
            false,
        ),
    };
    let arrived = Arrived {
        kind,
        grpc,
        version: head.version,
        headers: head.headers,
        wire,
        body: message,
    };
    let script = shared.script.lock().unwrap().clone();
    let mut answer = script(&arrived);
    if let Answer::Stall | Answer::After(..) = answer {
        shared.state.lock().unwrap().refused.push(arrived.clone());
        shared.changes.send_modify(|changes| *changes += 1);
    }
    loop {
        answer = match answer {
            Answer::After(done, next) => {
                done().await;
                *next
            }
            Answer::Stall => std::future::pending().await,
            answer => break shared.settle(arrived, grpc, &answer, &content_type),
        };
    }
}

impl Shared {
    fn settle(
        &self,
        arrived: Arrived,
        grpc: bool,
        answer: &Answer,
        content_type: &str,
    ) -> Result<Response<SinkBody>, hyper::Error> {
        {
            let mut state = self.state.lock().unwrap();
            match answer {
                Answer::Take | Answer::Partial(..) => state.taken.push(arrived),
                _ => state.refused.push(arrived),
            }
        }
        self.changes.send_modify(|changes| *changes += 1);
        Ok(reply(grpc, answer, content_type))
    }
}

/// `Export*ServiceResponse`, whose partial success has the same numbers for every signal.
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

fn reply(grpc: bool, answer: &Answer, content_type: &str) -> Response<SinkBody> {
    let partial_success = match answer {
        Answer::Partial(rejected, message) => Some(PartialSuccess {
            rejected: *rejected as i64,
            error_message: (*message).to_owned(),
        }),
        _ => None,
    };
    let success = ExportResponse { partial_success }.encode_to_vec();
    let mut response = Response::new(SinkBody::default());
    if grpc {
        response
            .headers_mut()
            .insert("content-type", HeaderValue::from_static("application/grpc"));
        let mut trailers = HeaderMap::new();
        match answer {
            Answer::Grpc(code, retry) => {
                trailers.insert("grpc-status", HeaderValue::from(*code));
                // Without RetryInfo it is about the size, and says so as gRPC libraries do.
                let message = match (*code, retry) {
                    (crate::code::RESOURCE_EXHAUSTED, None) => {
                        "grpc: received message larger than max (2 vs. 1)"
                    }
                    _ => "scripted",
                };
                trailers.insert("grpc-message", HeaderValue::from_static(message));
                if let Some(delay) = retry {
                    trailers.insert("grpc-status-details-bin", details(*code, *delay));
                }
            }
            Answer::Exhausted => {
                trailers.insert("grpc-status", HeaderValue::from(crate::code::RESOURCE_EXHAUSTED));
                trailers.insert("grpc-message", HeaderValue::from_static("the quota is used up"));
            }
            Answer::Http(status, _) => *response.status_mut() = StatusCode::from_u16(*status).unwrap(),
            _ => {
                response.body_mut().data = Some(crate::grpc::frame(0, &success));
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
            }
        }
        response.body_mut().trailers = Some(trailers);
        return response;
    }
    let content_type = HeaderValue::from_str(content_type).unwrap();
    response
        .headers_mut()
        .insert("content-type", content_type.clone());
    match answer {
        Answer::Http(status, retry_after) => {
            *response.status_mut() = StatusCode::from_u16(*status).unwrap();
            if let Some(seconds) = retry_after {
                response
                    .headers_mut()
                    .insert("retry-after", HeaderValue::from(*seconds));
            }
            let status = RpcStatus {
                code: 0,
                message: "scripted".into(),
                details: vec![],
            };
            response.body_mut().data = Some(status.encode_to_vec().into());
        }
        Answer::Grpc(..) | Answer::Exhausted => panic!("a gRPC answer to an HTTP request"),
        _ if content_type == "application/json" => response.body_mut().data = Some(Bytes::from_static(b"{}")),
        _ => response.body_mut().data = Some(success.into()),
    }
    response
}

fn details(code: u32, delay: Duration) -> HeaderValue {
    // RetryInfo { retry_delay: Duration { seconds, nanos } }
    #[derive(Clone, PartialEq, Message)]
    struct Pair {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }
    #[derive(Clone, PartialEq, Message)]
    struct RetryInfo {
        #[prost(message, optional, tag = "1")]
        delay: Option<Pair>,
    }
    let info = RetryInfo {
        delay: Some(Pair {
            seconds: delay.as_secs() as i64,
            nanos: delay.subsec_nanos() as i32,
        }),
    };
    let any = Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".into(),
        value: info.encode_to_vec(),
    };
    let status = RpcStatus {
        code: code as i32,
        message: "scripted".into(),
        details: vec![any],
    };
    let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.encode_to_vec());
    HeaderValue::from_str(&text).unwrap()
}

fn inflate(encoding: &str, body: Bytes, grpc: bool) -> Bytes {
    let mut out = Vec::new();
    match encoding {
        "identity" => return body,
        "gzip" => drop(
            flate2::read::MultiGzDecoder::new(&body[..])
                .read_to_end(&mut out)
                .unwrap(),
        ),
        // Frames up to the first broken one: a destination that reads on would refuse, this one tells what came.
        "zstd" => drop(::zstd::Decoder::new(&body[..]).unwrap().read_to_end(&mut out)),
        "deflate" | "zlib" => drop(
            flate2::read::ZlibDecoder::new(&body[..])
                .read_to_end(&mut out)
                .unwrap(),
        ),
        "snappy" if grpc => drop(
            snap::read::FrameDecoder::new(&body[..])
                .read_to_end(&mut out)
                .unwrap(),
        ),
        "snappy" => out = snap::raw::Decoder::new().decompress_vec(&body).unwrap(),
        "lz4" => drop(
            lz4_flex::frame::FrameDecoder::new(&body[..])
                .read_to_end(&mut out)
                .unwrap(),
        ),
        other => panic!("the exporter sent encoding {other}"),
    }
    out.into()
}

/// Data, then trailers.
#[derive(Debug, Default)]
struct SinkBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for SinkBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match self.data.take().filter(|data| !data.is_empty()) {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        std::task::Poll::Ready(frame.map(Ok))
    }
}
