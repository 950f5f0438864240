//! A client of one destination: its pool, and the time a request has.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::answer::Answer;
use crate::connect::Connector;
use crate::h1::Http1Pool;
use crate::h2::Http2Pool;
use crate::tls::TlsError;
use crate::{
    ClientTls, ConnectSettings, Destination, Http1Settings, Http2Settings, Phase, SendError, Slices,
};

/// What every request says of its sender (OTLP specification: exporters SHOULD send one).
pub const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// The HTTP version towards a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1, one request at a time per connection, as many connections as requests in flight.
    #[default]
    Http1,
    /// HTTP/2: by ALPN on TLS, with prior knowledge on plain TCP.
    Http2,
}

/// Everything a [`Client`] is made from.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Where to.
    pub destination: Destination,
    /// TLS, if the destination says so.
    pub tls: ClientTls,
    /// Making connections.
    pub connect: ConnectSettings,
    /// The HTTP version.
    pub protocol: Protocol,
    /// The HTTP/1.1 pool.
    pub http1: Http1Settings,
    /// The HTTP/2 pool.
    pub http2: Http2Settings,
}

impl ClientSettings {
    /// The defaults for `destination`.
    pub fn new(destination: Destination, protocol: Protocol) -> Self {
        Self {
            destination,
            tls: ClientTls::default(),
            connect: ConnectSettings::default(),
            protocol,
            http1: Http1Settings::default(),
            http2: Http2Settings::default(),
        }
    }
}

/// Sends requests to one destination over connections it keeps. Called concurrently.
pub struct Client {
    pool: Pool,
    authority: HeaderValue,
}

enum Pool {
    Http1(Box<Http1Pool>),
    Http2(Http2Pool),
}

impl Client {
    /// A client that has not connected yet. TLS files are read now, so that a wrong one shows at start-up.
    ///
    /// # Errors
    /// When the TLS settings cannot be used, or the authority cannot be a header.
    pub fn new(settings: ClientSettings) -> Result<Self, TlsError> {
        let ClientSettings {
            destination,
            tls,
            connect,
            protocol,
            http1,
            http2,
        } = settings;
        let authority = HeaderValue::from_str(&destination.authority)
            .map_err(|e| TlsError(format!("authority {:?}: {e}", destination.authority)))?;
        let pool = match protocol {
            Protocol::Http1 => {
                let connector = Connector::new(destination, tls, connect, &[b"http/1.1"])?;
                Pool::Http1(Box::new(Http1Pool::new(connector, http1)))
            }
            Protocol::Http2 => {
                let scheme = destination.scheme();
                let connector = Connector::new(destination, tls, connect, &[b"h2"])?;
                Pool::Http2(Http2Pool::new(connector, http2, scheme))
            }
        };
        Ok(Self { pool, authority })
    }

    /// POSTs `body` to `path` and reads the whole answer (up to [`MAX_ANSWER_BYTES`](crate::MAX_ANSWER_BYTES))
    /// within `timeout`, which covers waiting for a connection, making one, sending and reading.
    ///
    /// The request goes out a second time only when a kept connection turned out to be closed
    /// before a byte of the answer, or the peer said it had not looked at it (GOAWAY, REFUSED_STREAM).
    ///
    /// # Errors
    /// When there is no complete answer; any status is an answer.
    pub async fn post(
        &self,
        path: &PathAndQuery,
        headers: HeaderMap,
        body: &Slices,
        timeout: Duration,
    ) -> Result<Answer, SendError> {
        self.send(Method::POST, path, headers, body, timeout).await
    }

    /// As [`Client::post`], with any method.
    ///
    /// # Errors
    /// When there is no complete answer; any status is an answer.
    pub async fn send(
        &self,
        method: Method,
        path: &PathAndQuery,
        headers: HeaderMap,
        body: &Slices,
        timeout: Duration,
    ) -> Result<Answer, SendError> {
        let mut outgoing = Outgoing {
            method,
            path: path.clone(),
            headers,
            authority: self.authority.clone(),
        };
        outgoing
            .headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(AGENT));
        let progress = Progress::default();
        let sent = async {
            match &self.pool {
                Pool::Http1(pool) => pool.send(&outgoing, body, &progress).await,
                Pool::Http2(pool) => pool.send(&outgoing, body, &progress).await,
            }
        };
        match tokio::time::timeout(timeout, sent).await {
            Ok(result) => result,
            Err(_) => Err(SendError::Timeout {
                after: timeout,
                phase: progress.phase(),
            }),
        }
    }

    /// Closes connections nobody uses; requests in flight go on.
    pub fn close(&self) {
        match &self.pool {
            Pool::Http1(pool) => pool.close(),
            Pool::Http2(pool) => pool.close(),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// A request's head.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) authority: HeaderValue,
}

impl Outgoing {
    /// The host, for messages.
    pub(crate) fn host(&self) -> String {
        String::from_utf8_lossy(self.authority.as_bytes()).into_owned()
    }
}

/// How far a request has come, for the message of a time-out.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

impl Progress {
    pub(crate) fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            n if n == Phase::Waiting as u8 => Phase::Waiting,
            n if n == Phase::Reading as u8 => Phase::Reading,
            _ => Phase::Connecting,
        }
    }
}
