//! OTLP/gRPC on hyper.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{BufMut, Bytes};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluice_loadgen::Signal;
use tokio::time::sleep;

use super::fault::{Transport, Treatment};
use super::intake::{Format, Intake, Received, pace};
use super::response;

/// Large enough that flow control never holds a gateway's batch back.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// One byte that says whether the message is compressed, four of length.
const PREFIX_LEN: usize = 5;

type Body = BoxBody<Bytes, std::convert::Infallible>;

pub(super) fn to_tokio(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

pub(super) async fn serve(listener: TcpListener, intake: Arc<Intake>) {
    let listener = match to_tokio(listener) {
        Ok(listener) => listener,
        Err(error) => return eprintln!("sink: gRPC port: {error}"),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        // Without it answers wait for the peer's delayed acknowledgements.
        let _ = stream.set_nodelay(true);
        let intake = intake.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| export(intake.clone(), request));
            // A connection that breaks is the gateway's affair; what was lost with it shows in the account.
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// An error makes hyper reset the stream.
async fn export(
    intake: Arc<Intake>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, mut incoming) = request.into_parts();
    let signal = Signal::of_path(parts.uri.path());
    let treatment = intake.treat(signal, Transport::Grpc);
    sleep(treatment.stall).await;
    let encoding = parts.headers.get("grpc-encoding");
    let encoding = encoding.and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut body = Vec::new();
    let mut body_bytes = 0;
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        body_bytes += data.len();
        if intake.wants_body(Format::Protobuf) {
            body.extend_from_slice(&data);
        }
        if let Some(bandwidth) = treatment.bandwidth {
            sleep(pace(bandwidth, data.len() as u64)).await;
        }
    }
    sleep(treatment.delay).await;
    intake.arrived(body_bytes.saturating_sub(PREFIX_LEN) as u64, &treatment);
    if treatment.counts() && intake.wants_body(Format::Protobuf) {
        let compressed = body.first() == Some(&1);
        body.drain(..PREFIX_LEN.min(body.len()));
        let received = Received {
            signal,
            encoding: if compressed { encoding } else { "" },
            format: Format::Protobuf,
            body,
        };
        // What cannot be read is counted, and answered like the rest: the account is what tells.
        let _ = intake.take(received, treatment.partial);
    }
    if treatment.reset {
        return Err("the fault script resets this stream".into());
    }
    Ok(answer(&treatment))
}

fn answer(treatment: &Treatment) -> Response<Body> {
    let code = treatment.refusal.map_or(0, |(_, code)| code);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    if let Some(delay) = treatment.retry_after.filter(|_| code != 0) {
        let details = STANDARD_NO_PAD.encode(response::retry_info(code, delay));
        if let Ok(details) = HeaderValue::from_str(&details) {
            trailers.insert("grpc-status-details-bin", details);
        }
    }
    let mut message = Vec::new();
    if code == 0 {
        let body = response::protobuf(treatment.partial);
        message.put_u8(0);
        message.put_u32(body.len() as u32);
        message.put_slice(&body);
    }
    let body = Full::new(Bytes::from(message)).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    let content_type = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    response
}
