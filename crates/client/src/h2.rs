//! HTTP/2 connections, many requests at once each.
//!
//! Several connections, because one connection is one TCP window, one lock in h2 and one loss that
//! stalls everything on it (opentelemetry-collector#14249). A request takes the connection with the
//! fewest requests in flight; a further one is opened, beside the traffic, when all are in use.
//! A connection leaves the pool when it closes, when the peer says GOAWAY, when a request on it
//! timed out, or by age; requests on it finish. A busy one is replaced first and left after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{Request, Uri};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::client::{Outgoing, Progress};
use crate::connect::Connector;
use crate::error::chain;
use crate::io::TlsFault;
use crate::slices::SlicesBody;
use crate::{Phase, SendError, Slices};

/// The connections of an HTTP/2 client.
#[derive(Debug, Clone)]
pub struct Http2Settings {
    /// Connections at most; opened as concurrency asks for them.
    pub connections: usize,
    /// A ping goes out when nothing was received for this long while requests wait.
    pub keepalive_interval: Option<Duration>,
    /// A connection whose ping is not answered for this long is closed.
    pub keepalive_timeout: Duration,
    /// Ping idle connections too. grpc-go servers close a connection whose client pings more often
    /// than every 5 minutes without requests.
    pub keepalive_while_idle: bool,
    /// What the peer may send on one stream before we read it.
    pub stream_window_bytes: u32,
    /// What the peer may send on one connection before we read it.
    pub connection_window_bytes: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self {
            // Two cores of work spread over as many locks and TCP windows, with one to spare for
            // a connection that stalls or is being replaced.
            connections: 3,
            keepalive_interval: Some(Duration::from_secs(10)),
            keepalive_timeout: Duration::from_secs(10),
            keepalive_while_idle: false,
            // Answers are a few bytes; these only bound what a broken peer can make us hold.
            stream_window_bytes: 256 * 1024,
            connection_window_bytes: 1024 * 1024,
        }
    }
}

/// After a further connection could not be made, this long passes before another attempt; without
/// any connection every request may try.
const FURTHER_CONNECTION_AFTER: Duration = Duration::from_secs(1);

/// A request is sent on at most this many connections when each says it has not looked at it: a
/// server that restarts closes all connections of a pool at once.
const MAX_UNPROCESSED_RETRIES: usize = 3;

pub(crate) struct Http2Pool {
    shared: Arc<Shared>,
    scheme: Scheme,
}

struct Shared {
    connector: Connector,
    settings: Http2Settings,
    state: Mutex<State>,
    /// Told after every attempt to connect.
    changed: Notify,
}

#[derive(Default)]
struct State {
    live: Vec<Arc<Live>>,
    connecting: usize,
    /// Attempts that failed, so that a waiting request knows of one since it began to wait.
    failures: u64,
    last_error: Option<SendError>,
    no_further_before: Option<Instant>,
}

struct Live {
    sender: SendRequest<SlicesBody>,
    in_flight: AtomicUsize,
    retired: AtomicBool,
    /// It has answered a request, so it was no dead end from the start.
    proven: AtomicBool,
    fault: TlsFault,
    born: Instant,
}

impl Live {
    fn usable(&self) -> bool {
        !self.retired.load(Ordering::Relaxed) && !self.sender.is_closed()
    }

    fn requests(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// One request on a connection.
struct Lease {
    live: Arc<Live>,
    answered: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.live.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.answered {
            // Timed out or failed: this connection may be a black hole, the next request shall not
            // find that out once more. The others on it are left to finish.
            self.live.retired.store(true, Ordering::Relaxed);
        }
    }
}

impl Http2Pool {
    pub(crate) fn new(connector: Connector, settings: Http2Settings, scheme: &'static str) -> Self {
        let scheme = if scheme == "https" {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        let state = Mutex::default();
        Self {
            shared: Arc::new(Shared {
                connector,
                settings,
                state,
                changed: Notify::new(),
            }),
            scheme,
        }
    }

    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        body: &Slices,
        progress: &Progress,
    ) -> Result<Answer, SendError> {
        let uri = self.uri(outgoing)?;
        let (mut unprocessed, mut lost) = (0, 0);
        loop {
            progress.enter(Phase::Connecting);
            let mut lease = self.shared.lease().await?;
            progress.enter(Phase::Waiting);
            let mut request = Request::new(SlicesBody::new(body));
            *request.method_mut() = outgoing.method.clone();
            *request.version_mut() = http::Version::HTTP_2;
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = outgoing.headers.clone();
            let mut sender = lease.live.sender.clone();
            match sender.try_send_request(request).await {
                Ok(response) => {
                    progress.enter(Phase::Reading);
                    let answer = answer::read(response).await?;
                    lease.answered = true;
                    lease.live.proven.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(mut failed) => {
                    let unsent = failed.take_message().is_some();
                    let error = failed.into_error();
                    let again = if unsent || is_unprocessed(&error) {
                        unprocessed += 1;
                        unprocessed <= MAX_UNPROCESSED_RETRIES
                    } else {
                        // The connection ended under the request: as on HTTP/1.1, a kept one that
                        // went away is replaced once before anybody hears of it.
                        lost += 1;
                        lost == 1 && is_connection_lost(&error) && lease.live.proven.load(Ordering::Relaxed)
                    };
                    if !again {
                        return Err(classify(&error, &lease.live.fault, outgoing));
                    }
                }
            }
        }
    }

    fn uri(&self, outgoing: &Outgoing) -> Result<Uri, SendError> {
        let authority = Authority::try_from(outgoing.authority.as_bytes())
            .map_err(|e| SendError::Unsendable(e.to_string()))?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(authority)
            .path_and_query(outgoing.path.clone())
            .build()
            .map_err(|e| SendError::Unsendable(e.to_string()))
    }

    pub(crate) fn close(&self) {
        self.shared.state.lock().live.clear();
    }
}

impl Shared {
    /// A place on the connection with the fewest requests; waits for one if there is none yet.
    async fn lease(self: &Arc<Self>) -> Result<Lease, SendError> {
        let failures_before = self.state.lock().failures;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                self.tend(&mut state);
                if let Some(best) = state.live.iter().min_by_key(|live| live.requests()) {
                    best.in_flight.fetch_add(1, Ordering::Relaxed);
                    return Ok(Lease {
                        live: best.clone(),
                        answered: false,
                    });
                }
                if state.failures != failures_before
                    && let Some(error) = &state.last_error
                {
                    return Err(error.clone());
                }
            }
            changed.await;
        }
    }

    /// Drops what is of no use, and starts a connection if one is wanted.
    fn tend(self: &Arc<Self>, state: &mut State) {
        let max_age = self.connector.settings().max_connection_age;
        let is_old = |live: &Live| live.born.elapsed() >= max_age;
        state
            .live
            .retain(|live| live.usable() && !(is_old(live) && live.requests() == 0));
        let wanted = if state.live.is_empty() {
            state.connecting == 0
        } else {
            let one_to_replace = state.live.iter().any(|live| is_old(live));
            let all_in_use = state.live.len() + state.connecting < self.settings.connections.max(1)
                && state.live.iter().all(|live| live.requests() > 0);
            let allowed = state
                .no_further_before
                .is_none_or(|before| Instant::now() >= before);
            allowed && state.connecting == 0 && (one_to_replace || all_in_use)
        };
        if wanted {
            state.connecting += 1;
            let shared = self.clone();
            tokio::spawn(async move {
                let connected = shared.connect().await;
                let mut state = shared.state.lock();
                state.connecting -= 1;
                match connected {
                    Ok(live) => {
                        // The oldest one past its age makes room; requests on it go on.
                        let replaced = (0..state.live.len())
                            .filter(|at| state.live[*at].born.elapsed() >= max_age)
                            .min_by_key(|at| state.live[*at].born);
                        if let Some(at) = replaced {
                            state.live.swap_remove(at);
                        }
                        state.live.push(Arc::new(live));
                        state.no_further_before = None;
                    }
                    Err(error) => {
                        state.failures += 1;
                        state.last_error = Some(error);
                        state.no_further_before = Some(Instant::now() + FURTHER_CONNECTION_AFTER);
                    }
                }
                drop(state);
                shared.changed.notify_waiters();
            });
        }
    }

    async fn connect(&self) -> Result<Live, SendError> {
        let io = self.connector.connect().await?;
        if let Some(other) = io.alpn().filter(|name| *name != b"h2") {
            return Err(SendError::Protocol(format!(
                "the server chose {:?} instead of h2",
                String::from_utf8_lossy(other)
            )));
        }
        let (settings, fault) = (&self.settings, io.fault());
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(settings.stream_window_bytes)
            .initial_connection_window_size(settings.connection_window_bytes)
            .keep_alive_interval(settings.keepalive_interval)
            .keep_alive_timeout(settings.keepalive_timeout)
            .keep_alive_while_idle(settings.keepalive_while_idle)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|e| SendError::Lost(chain(&e)))?;
        tokio::spawn(async move {
            // Whoever has a request on it hears of the error.
            let _ = connection.await;
        });
        Ok(Live {
            sender,
            in_flight: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            fault,
            born: Instant::now(),
        })
    }
}

/// The h2 error behind one of hyper's.
fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref::<h2::Error>() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

/// Whether the peer said it had not processed the request (RFC 9113, 8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    h2_cause(error).is_some_and(|cause| {
        cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Whether the whole connection ended, rather than this stream.
fn is_connection_lost(error: &hyper::Error) -> bool {
    // hyper takes the io::Error out of h2's.
    let io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    io || error.is_closed() || error.is_canceled() || h2_cause(error).is_some_and(h2::Error::is_io)
}

fn classify(error: &hyper::Error, fault: &TlsFault, outgoing: &Outgoing) -> SendError {
    if let Some(reason) = fault.reason() {
        SendError::TlsConfiguration {
            host: outgoing.host(),
            reason: reason.to_owned(),
        }
    } else if error.is_user() && h2_cause(error).is_none() {
        SendError::Unsendable(chain(error))
    } else {
        SendError::Lost(chain(error))
    }
}
