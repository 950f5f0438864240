//! The gRPC receive path measured two ways: own framing on hyper, as the receiver does it, and
//! tonic with a codec that hands the message through as bytes. Both only receive, count and answer.
//!
//! ```sh
//! cargo build --release -p sluice-benches --example grpc_framing
//! cargo build --release -p sluice-rig
//! target/release/examples/grpc_framing own 127.0.0.1:14317 &      # or: tonic
//! target/release/sluice-rig load --protocol grpc --target 127.0.0.1:14317 --repeat 4
//! ```
//!
//! On SIGINT it prints requests and CPU seconds; docs/decisions.md has the figures.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use sluice_admission::Budget;
use sluice_payload::Encoding;
use sluice_server::{
    BodyLimits, Coding, ConnectionSettings, Gate, Listener, Peer, ReplyBody, Serve, collect_framed,
};
use sluice_telemetry::Registry;
use sluice_wire::Kind;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static ITEMS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn took(body: &[u8]) {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    ITEMS.fetch_add(
        sluice_wire::count(Kind::Metrics, body).unwrap_or(0),
        Ordering::Relaxed,
    );
}

/// The receiver's own path.
#[derive(Clone)]
struct Own(Gate);

impl Serve for Own {
    async fn serve(&self, request: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
        let (head, mut body) = request.into_parts();
        let encoding = head
            .headers
            .get("grpc-encoding")
            .and_then(|name| name.to_str().ok()?.parse().ok());
        let coding = Coding {
            encoding: encoding.unwrap_or(Encoding::Identity),
            keep_frame: false,
        };
        let status =
            match collect_framed(&mut body, coding, &mut self.0.visit(), &BodyLimits::default()).await {
                Ok(received) => {
                    took(&received.body);
                    0
                }
                Err(_) => 13,
            };
        let trailers = HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            HeaderValue::from(status),
        )]);
        let mut response = Response::new(ReplyBody::with_trailers(Bytes::from_static(&[0; 5]), trailers));
        response
            .headers_mut()
            .insert("content-type", HeaderValue::from_static("application/grpc"));
        response
    }
}

/// tonic's path with a codec that does not decode.
#[derive(Clone)]
struct Tonic;

#[derive(Default)]
struct RawCodec;
struct RawDecoder;
struct RawEncoder;

impl Codec for RawCodec {
    type Encode = ();
    type Decode = Bytes;
    type Encoder = RawEncoder;
    type Decoder = RawDecoder;
    fn encoder(&mut self) -> RawEncoder {
        RawEncoder
    }
    fn decoder(&mut self) -> RawDecoder {
        RawDecoder
    }
}

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = tonic::Status;
    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(buf.copy_to_bytes(buf.remaining())))
    }
}

impl Encoder for RawEncoder {
    type Item = ();
    type Error = tonic::Status;
    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        Ok(())
    }
}

impl UnaryService<Bytes> for Tonic {
    type Response = ();
    type Future = std::future::Ready<Result<tonic::Response<()>, tonic::Status>>;
    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        took(request.get_ref());
        std::future::ready(Ok(tonic::Response::new(())))
    }
}

impl tower::Service<Request<tonic::body::Body>> for Tonic {
    type Response = Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(RawCodec)
                .max_decoding_message_size(64 << 20)
                .accept_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Zstd);
            Ok(grpc.unary(service, request).await)
        })
    }
}

impl tonic::server::NamedService for Tonic {
    const NAME: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";
}

fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some((fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?) / 100.0)
}

async fn run(way: &str, address: SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let serving: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match way {
        "own" => {
            let gate = Gate::new(
                Budget::new(1 << 30),
                Duration::from_secs(5),
                &Registry::default(),
                1,
            );
            let settings = ConnectionSettings {
                http1: false,
                ..Default::default()
            };
            let listener = Listener::bind(&address.to_string(), None, settings).await?;
            Box::pin(listener.serve(Own(gate), stopping)?)
        }
        "tonic" => {
            let server = tonic::transport::Server::builder()
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(16 << 20)
                .add_service(Tonic)
                .serve(address);
            Box::pin(async move {
                if let Err(error) = server.await {
                    tracing::error!(%error, "tonic stopped");
                }
            })
        }
        other => return Err(format!("{other:?} is not a way; use own or tonic").into()),
    };
    tokio::spawn(serving);
    tokio::signal::ctrl_c().await?;
    stop.send(true)?;
    let (requests, items) = (REQUESTS.load(Ordering::Relaxed), ITEMS.load(Ordering::Relaxed));
    let cpu = cpu_seconds().unwrap_or(f64::NAN);
    let line = format!(
        "{way}: {requests} requests, {items} items, {cpu:.2} CPU-s, {:.1} us of CPU a request",
        cpu * 1e6 / requests as f64
    );
    std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes())?;
    std::process::exit(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_else(|| "own".to_owned());
    let address = args
        .next()
        .unwrap_or_else(|| "127.0.0.1:14317".to_owned())
        .parse()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run(&way, address))
}
