//! Accepting connections.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::conversation::converse;
use crate::endpoint::{BindError, bind};
use crate::reply::ReplyBody;
use crate::tls::{ServerTls, TlsError};

/// A TLS handshake takes two round trips; whoever needs longer does not mean to finish it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long accepting pauses when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ConnectionSettings {
    /// Connections served at once; more wait in the kernel's queue. Each costs memory outside the budget.
    pub max_connections: usize,
    /// A request head must be complete within this time.
    pub header_timeout: Duration,
    /// A connection without requests is closed after this time; `None` keeps it.
    pub idle_timeout: Option<Duration>,
    /// A connection is closed, gracefully, at this age, so that clients rebalance; `None` keeps it.
    pub max_age: Option<Duration>,
    /// How long requests may go on after that.
    pub max_age_grace: Option<Duration>,
    /// h2: a ping after this long without data; `None` never pings.
    pub keepalive_time: Option<Duration>,
    /// h2: a ping must be answered within this time.
    pub keepalive_timeout: Duration,
    /// h2: requests under way on one connection.
    pub max_concurrent_streams: u32,
    /// Speak HTTP/1.1 besides h2.
    pub http1: bool,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            idle_timeout: None,
            max_age: None,
            max_age_grace: None,
            keepalive_time: Some(Duration::from_secs(7200)),
            keepalive_timeout: Duration::from_secs(20),
            max_concurrent_streams: 100,
            http1: true,
        }
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
}

/// Serves requests; cloned for every connection.
pub trait Serve: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn serve(
        &self,
        request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    settings: ConnectionSettings,
}

impl Listener {
    /// Binds `endpoint`.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(
        endpoint: &str,
        tls: Option<ServerTls>,
        settings: ConnectionSettings,
    ) -> Result<Self, BindError> {
        Ok(Self {
            tcp: bind(endpoint).await?,
            tls,
            settings,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Reads the certificates, then serves in the background until `stop` turns true; the future
    /// ends when the last connection has.
    ///
    /// # Errors
    /// [`TlsError`] when the certificates cannot be used.
    pub fn serve<S: Serve>(
        self,
        service: S,
        stop: watch::Receiver<bool>,
    ) -> Result<impl Future<Output = ()> + Send, TlsError> {
        let tls = self.tls.map(ServerTls::start).transpose()?;
        let settings = Arc::new(self.settings);
        let tcp = self.tcp;
        Ok(async move {
            let mut stopping = stop.clone();
            let places = Arc::new(Semaphore::new(settings.max_connections));
            loop {
                let accepted = tokio::select! {
                    accepted = accept(&tcp, &places) => accepted,
                    _ = stopping.wait_for(|stop| *stop) => break,
                };
                let Some((stream, address, place)) = accepted else {
                    continue;
                };
                let service = service.clone();
                let settings = settings.clone();
                let stop = stop.clone();
                let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.load_full()));
                tokio::spawn(async move {
                    let peer = Peer { address };
                    attend(tls, stream, service, peer, &settings, stop).await;
                    drop(place);
                });
            }
            drop(tcp);
            // Every connection holds a place: all places free means all connections gone.
            let _ = places.acquire_many(settings.max_connections as u32).await;
        })
    }
}

/// Serves a connection, with or without TLS.
async fn attend<S: Serve>(
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    service: S,
    peer: Peer,
    settings: &ConnectionSettings,
    stop: watch::Receiver<bool>,
) {
    match tls {
        None => converse(stream, service, peer, settings, stop).await,
        Some(tls) => converse_encrypted(tls, stream, service, peer, settings, stop).await,
    }
}

/// [`converse`] behind a handshake. On the heap: what TLS needs would be in the task of every connection, in those without TLS too.
fn converse_encrypted<'a, S: Serve>(
    tls: TlsAcceptor,
    stream: TcpStream,
    service: S,
    peer: Peer,
    settings: &'a ConnectionSettings,
    stop: watch::Receiver<bool>,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    let address = peer.address;
    Box::pin(async move {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(stream, service, peer, settings, stop).await,
            Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
        }
    })
}

async fn accept(
    tcp: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match tcp.accept().await {
        Ok((stream, address)) => {
            // Fails only when the connection is gone already; serving it will tell.
            let _ = stream.set_nodelay(true);
            Some((stream, address, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[derive(Clone)]
    struct Silent;

    impl Serve for Silent {
        async fn serve(&self, _: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
            Response::new(ReplyBody::empty())
        }
    }

    /// What a connection without a request may take as a task: timers, what it is told by, what it keeps count in. What hyper and TLS need is
    /// several times that.
    const WAITING_BYTES: usize = 2 << 10;

    /// Scenario: the task of a connection, before it is begun.
    /// Guarantees: nothing of hyper's is in it and nothing of TLS, which connections that wait for their first byte would hold.
    #[tokio::test]
    async fn a_waiting_connection_is_small() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (_stop, stopping) = watch::channel(false);
        let settings = ConnectionSettings::default();
        let task = attend(None, stream, Silent, Peer { address }, &settings, stopping);
        let bytes = size_of_val(&task);
        assert!(bytes <= WAITING_BYTES, "{bytes} bytes");
    }
}
