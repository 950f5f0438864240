//! Accepting and serving connections.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::activity::{Activity, Judgement, Watched};
use crate::endpoint::{BindError, bind};
use crate::inline::Inline;
use crate::reply::ReplyBody;
use crate::tls::{ServerTls, TlsError};

/// A TLS handshake takes two round trips; whoever needs longer does not mean to finish it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long accepting pauses when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The largest h1 read buffer. A request body is read through it in as few reads as the kernel allows.
const H1_BUFFER_BYTES: usize = 256 << 10;

/// What one h2 stream may send before its request is read: memory outside the budget, so small,
/// but an ordinary request passes without waiting for a window update.
pub(crate) const H2_STREAM_WINDOW: u32 = 256 << 10;

/// The largest window that h2 allows (RFC 9113, 6.9.1).
const H2_MAX_WINDOW: u32 = (1 << 31) - 1;

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
                    match tls {
                        None => converse(stream, service, peer, &settings, stop).await,
                        Some(tls) => {
                            match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                                Ok(Ok(stream)) => converse(stream, service, peer, &settings, stop).await,
                                Ok(Err(error)) => tracing::debug!(%address, %error, "TLS handshake failed"),
                                Err(_) => tracing::debug!(%address, "TLS handshake timed out"),
                            }
                        }
                    }
                    drop(place);
                });
            }
            drop(tcp);
            // Every connection holds a place: all places free means all connections gone.
            let _ = places.acquire_many(settings.max_connections as u32).await;
        })
    }
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

async fn converse<IO, S>(
    stream: IO,
    service: S,
    peer: Peer,
    settings: &ConnectionSettings,
    mut stop: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Serve,
{
    let activity = Activity::new(Instant::now());
    let io = TokioIo::new(Watched::new(stream, activity.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if !settings.http1 {
        builder = builder.http2_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(H1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_STREAM_WINDOW)
        // All streams at once: a stream that waits for admission never stalls the others.
        .initial_connection_window_size(H2_STREAM_WINDOW.saturating_mul(settings.max_concurrent_streams).min(H2_MAX_WINDOW))
        .max_concurrent_streams(settings.max_concurrent_streams)
        .keep_alive_interval(settings.keepalive_time)
        .keep_alive_timeout(settings.keepalive_timeout);
    let serving = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let in_request = serving.begin_request(request.version() == Version::HTTP_2);
        let service = service.clone();
        let asks_for_head = request.method() == Method::HEAD;
        async move {
            let mut response = service.serve(request, peer).await;
            if asks_for_head {
                without_content(&mut response);
            }
            drop(in_request);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = pin!(builder.serve_connection(io, service));
    let mut connection = Inline::new(connection);
    let mut look = Instant::now() + settings.header_timeout;
    let mut old = settings.max_age.map(|age| Instant::now() + jittered(age));
    let mut end: Option<Instant> = None;
    let mut stopping = false;
    loop {
        let at = |when: Option<Instant>| async move {
            match when {
                Some(when) => tokio::time::sleep_until(when).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = &mut connection => {
                if let Err(error) = done {
                    tracing::debug!(peer = %peer.address, error = %error, "connection ended");
                }
                return;
            }
            _ = stop.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.get_mut().as_mut().graceful_shutdown();
            }
            () = at(old) => {
                old = None;
                end = settings.max_age_grace.map(|grace| Instant::now() + grace);
                connection.get_mut().as_mut().graceful_shutdown();
            }
            () = at(end) => return,
            () = at(Some(look)) => match activity.judge(Instant::now(), settings.header_timeout, settings.idle_timeout) {
                Judgement::Fine(next) => look = next,
                Judgement::SlowHead => {
                    tracing::debug!(peer = %peer.address, "closed: a request head was not finished in time");
                    return;
                }
                Judgement::Idle => {
                    // Gracefully, once: a request that crosses with this is still served.
                    look = Instant::now() + settings.header_timeout;
                    connection.get_mut().as_mut().graceful_shutdown();
                }
            },
        }
    }
}

/// Leaves the head that a GET would get (RFC 9110, 9.3.2). hyper does so in HTTP/1.1 only; in HTTP/2 a client
/// takes content in the answer to HEAD for a protocol error.
fn without_content(response: &mut Response<ReplyBody>) {
    if let Some(length) = response.body().size_hint().exact().filter(|length| *length > 0) {
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert(HeaderValue::from(length));
    }
    *response.body_mut() = ReplyBody::empty();
}

/// Up to a tenth later, so that connections opened together do not end together.
fn jittered(age: Duration) -> Duration {
    let spread = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |now| now.subsec_nanos());
    age + age / 10 * (spread % 1000) / 1000
}
