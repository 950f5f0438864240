//! OTLP/gRPC on hyper: calls of several senders share a connection.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::drive::Exchange;
use super::http::partial_success;
use super::outcome::Answer;
use super::plan::{Encoding, Plan};
use super::source::Outgoing;

/// Large enough that flow control never holds a request of the comparison back.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
const SEND_BUFFER: usize = 1 << 20;
/// gRPC's UNKNOWN: an answer without a readable status.
const UNKNOWN: u16 = 2;

/// The calls of one sender.
pub(crate) struct GrpcExchange {
    target: String,
    uri: String,
    encoding: Encoding,
    headers: Vec<(String, String)>,
    connection: Option<http2::SendRequest<Full<Bytes>>>,
}

impl GrpcExchange {
    pub(crate) fn new(plan: &Plan, connection: http2::SendRequest<Full<Bytes>>) -> GrpcExchange {
        GrpcExchange {
            target: plan.target.clone(),
            uri: format!("http://{}{}", plan.target, plan.spec.signal.grpc_path()),
            encoding: plan.encoding,
            headers: plan.headers.clone(),
            connection: Some(connection),
        }
    }

    async fn call(&mut self, message: Bytes) -> Result<Answer, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", self.target);
        let mut connection = match self
            .connection
            .take()
            .filter(|connection| !connection.is_closed())
        {
            Some(connection) => connection,
            None => connect(&self.target).await?,
        };
        let mut request = hyper::Request::post(&self.uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if self.encoding != Encoding::Identity {
            request = request.header("grpc-encoding", self.encoding.name());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(message)).map_err(|error| wrong(&error))?;
        let mut response = connection
            .send_request(request)
            .await
            .map_err(|error| wrong(&error))?;
        self.connection = Some(connection);
        let mut headers = response.headers().clone();
        let mut body = Vec::new();
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| wrong(&error))?;
            match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        headers.extend(trailers);
                    }
                }
            }
        }
        let status = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        let status = status.and_then(|status| status.parse().ok()).unwrap_or(UNKNOWN);
        Ok(Answer {
            status,
            accepted: status == 0,
            hinted: headers.contains_key("grpc-status-details-bin"),
            rejected_items: body.get(5..).map_or(0, partial_success),
        })
    }
}

impl Exchange for GrpcExchange {
    async fn exchange(&mut self, request: Outgoing<'_>) -> Result<Answer, String> {
        // The prefix: whether the message is compressed, and its length.
        let mut message = BytesMut::with_capacity(5 + request.body.len());
        message.put_u8(u8::from(self.encoding != Encoding::Identity));
        message.put_u32(request.body.len() as u32);
        message.put_slice(request.body);
        self.call(message.freeze()).await
    }
}

/// Opens a connection.
pub(crate) async fn connect(target: &str) -> Result<http2::SendRequest<Full<Bytes>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{target}: {error}");
    let stream = TcpStream::connect(target).await.map_err(|error| wrong(&error))?;
    stream.set_nodelay(true).map_err(|error| wrong(&error))?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| wrong(&error))?;
    tokio::spawn(connection);
    Ok(sender)
}
