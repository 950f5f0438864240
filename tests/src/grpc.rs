//! A gRPC client that can do what no gRPC library would: h2 with frames made by hand.

use std::net::SocketAddr;

use base64::Engine;
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::http::{Any, RpcStatus};
use crate::within;

/// gRPC status codes.
#[allow(missing_docs, reason = "named as in the gRPC documents")]
pub mod code {
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

/// A length-prefixed message.
pub fn frame(flag: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + message.len());
    out.put_u8(flag);
    out.put_u32(message.len() as u32);
    out.put(message);
    out.freeze()
}

/// The answer to a call.
#[derive(Debug)]
pub struct GrpcReply {
    /// The HTTP status, which is 200 for every gRPC answer.
    pub http_status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Trailers; empty when the headers ended the stream.
    pub trailers: HeaderMap,
    /// Body bytes.
    pub body: Bytes,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl GrpcReply {
    /// A trailer, or a header of a trailers-only answer.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers
            .get(name)
            .or_else(|| self.headers.get(name))
            .map(|value| value.to_str().unwrap())
    }

    /// `grpc-status`.
    pub fn code(&self) -> u32 {
        let status = self.trailer("grpc-status");
        status
            .unwrap_or_else(|| panic!("no grpc-status in {self:?}"))
            .parse()
            .unwrap()
    }

    /// `grpc-message`, still percent-encoded.
    pub fn message(&self) -> &str {
        self.trailer("grpc-message").unwrap_or_default()
    }

    /// The only message of the answer.
    pub fn only_message(&self) -> Bytes {
        assert!(self.body.len() >= 5, "no message in {self:?}");
        let length = u32::from_be_bytes(self.body[1..5].try_into().unwrap()) as usize;
        assert_eq!(
            (self.body[0], self.body.len()),
            (0, 5 + length),
            "not one plain message: {self:?}"
        );
        self.body.slice(5..)
    }

    /// `grpc-status-details-bin`, decoded.
    pub fn details(&self) -> Option<RpcStatus> {
        let text = self.trailer("grpc-status-details-bin")?;
        let bytes = base64::engine::general_purpose::STANDARD_NO_PAD
            .decode(text.trim_end_matches('='))
            .unwrap();
        Some(prost::Message::decode(&bytes[..]).unwrap())
    }

    /// The delay of `RetryInfo`, when there is one.
    pub fn retry_delay(&self) -> Option<std::time::Duration> {
        let status = self.details()?;
        let is_retry_info = |any: &&Any| any.type_url == "type.googleapis.com/google.rpc.RetryInfo";
        let any = status.details.iter().find(is_retry_info)?;
        let info: RetryInfo = prost::Message::decode(&any.value[..]).unwrap();
        let delay = info.retry_delay?;
        Some(std::time::Duration::new(delay.seconds as u64, delay.nanos as u32))
    }
}

/// An h2 connection for gRPC calls.
#[derive(Debug)]
pub struct GrpcConnection {
    sender: SendRequest<Bytes>,
    authority: String,
    driver: JoinHandle<Result<(), h2::Error>>,
}

impl GrpcConnection {
    /// On plain TCP.
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        Self::on(TcpStream::connect(address).await?, &address.to_string())
            .await
            .map_err(std::io::Error::other)
    }

    /// On any stream.
    pub async fn on(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        authority: &str,
    ) -> Result<Self, h2::Error> {
        let (sender, connection) = h2::client::handshake(stream).await?;
        Ok(Self {
            sender,
            authority: authority.to_owned(),
            driver: tokio::spawn(connection),
        })
    }

    /// The head of a call: what every gRPC client sends, and `headers`, where an empty value removes one.
    pub fn head(&self, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("http://{}{path}", self.authority).parse().unwrap();
        *request.version_mut() = http::Version::HTTP_2;
        let usual = [
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "sluice-tests"),
        ];
        for (name, value) in usual.iter().chain(headers) {
            let name: HeaderName = name.parse().unwrap();
            match value.is_empty() {
                true => drop(request.headers_mut().remove(name)),
                false => drop(
                    request
                        .headers_mut()
                        .insert(name, HeaderValue::from_str(value).unwrap()),
                ),
            }
        }
        request
    }

    /// Sends a request whose body is `pieces`, each in a DATA frame (or several) of its own.
    pub async fn send(&mut self, head: Request<()>, pieces: &[Bytes]) -> Result<GrpcReply, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(head, pieces.is_empty())?;
        for (index, piece) in pieces.iter().enumerate() {
            // A server may answer before it has read everything; what it says then is what counts.
            if body.send_data(piece.clone(), index + 1 == pieces.len()).is_err() {
                break;
            }
        }
        let (head, mut stream) = response.await?.into_parts();
        let mut data = BytesMut::new();
        while let Some(piece) = stream.data().await {
            let piece = piece?;
            // Giving back window on a stream that has ended is nobody's concern.
            let _ = stream.flow_control().release_capacity(piece.len());
            data.extend_from_slice(&piece);
        }
        let trailers = stream.trailers().await?.unwrap_or_default();
        Ok(GrpcReply {
            http_status: head.status.as_u16(),
            headers: head.headers,
            trailers,
            body: data.freeze(),
        })
    }

    /// Calls `path` with the body `framed`.
    pub async fn call(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        framed: impl Into<Bytes>,
    ) -> Result<GrpcReply, h2::Error> {
        let head = self.head(path, headers);
        self.send(head, &[framed.into()]).await
    }

    /// The sender, for what this type does not do.
    pub fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// Waits until the connection has ended.
    pub async fn closed(self) -> Result<(), h2::Error> {
        drop(self.sender);
        within("the connection ends", self.driver).await.unwrap()
    }

    /// Whether the connection has ended, or will before the deadline although this side keeps it open.
    pub async fn closed_by_peer(&mut self) -> Result<(), h2::Error> {
        within("the server closes the connection", &mut self.driver)
            .await
            .unwrap()
    }
}

/// Calls on a connection of its own.
pub async fn grpc_call(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    framed: impl Into<Bytes>,
) -> GrpcReply {
    let framed = framed.into();
    within(&format!("an answer to the call of {path}"), async {
        let mut connection = GrpcConnection::open(address).await.unwrap();
        connection
            .call(path, headers, framed)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    })
    .await
}
