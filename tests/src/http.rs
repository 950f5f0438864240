//! HTTP clients with hyper: one request on a connection of its own, or many on one.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::within;

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// HTTP/1.1 or h2.
    pub version: Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// `google.rpc.Status` as OTLP/HTTP answers carry it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcStatus {
    /// The gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// More, by type.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Any {
    /// What is in it.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

impl Reply {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The `Status` of an error answer, read as its `Content-Type` says.
    pub fn rpc_status(&self) -> RpcStatus {
        match self.header("content-type") {
            Some("application/x-protobuf") => prost::Message::decode(self.body.clone()).unwrap(),
            Some("application/json") => {
                let json = self.json();
                RpcStatus {
                    code: json["code"].as_i64().unwrap_or_default() as i32,
                    message: json["message"].as_str().unwrap_or_default().to_owned(),
                    details: Vec::new(),
                }
            }
            other => panic!("an answer of type {other:?}: {:?}", self.body),
        }
    }
}

/// One connection, plain or TLS, HTTP/1.1 or h2.
#[derive(Debug)]
pub enum HttpConnection {
    /// HTTP/1.1.
    Http1(http1::SendRequest<Full<Bytes>>),
    /// h2.
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl HttpConnection {
    /// HTTP/1.1 on plain TCP.
    pub async fn http1(address: SocketAddr) -> std::io::Result<Self> {
        Self::http1_on(TcpStream::connect(address).await?)
            .await
            .map_err(std::io::Error::other)
    }

    /// h2 on plain TCP, with prior knowledge.
    pub async fn http2(address: SocketAddr) -> std::io::Result<Self> {
        Self::http2_on(TcpStream::connect(address).await?)
            .await
            .map_err(std::io::Error::other)
    }

    /// HTTP/1.1 on any stream.
    pub async fn http1_on(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    /// h2 on any stream.
    pub async fn http2_on(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> hyper::Result<Self> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self::Http2(sender))
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let response = match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply {
            status: head.status.as_u16(),
            version: head.version,
            headers: head.headers,
            body,
        })
    }
}

/// A request for `path`; `headers` in pairs.
pub fn request(
    method: Method,
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.into()));
    *request.method_mut() = method;
    *request.uri_mut() = format!("http://{address}{path}").parse().unwrap();
    request
        .headers_mut()
        .insert("host", HeaderValue::from_str(&address.to_string()).unwrap());
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    request
}

/// Posts on a connection of its own.
pub async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Reply {
    let request = request(Method::POST, address, path, headers, body);
    within(&format!("an answer to POST {path}"), async {
        HttpConnection::http1(address)
            .await
            .unwrap()
            .send(request)
            .await
            .unwrap()
    })
    .await
}

/// Gets a page; `None` when nobody answers.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<Reply> {
    let request = request(Method::GET, address, path, &[], Bytes::new());
    HttpConnection::http1(address)
        .await
        .ok()?
        .send(request)
        .await
        .ok()
}
