//! HTTP/1.1 connections, one request at a time each.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::client::{Outgoing, Progress};
use crate::connect::Connector;
use crate::error::chain;
use crate::io::TlsFault;
use crate::slices::SlicesBody;
use crate::{Phase, SendError, Slices};

/// How many connections are kept, and how long.
#[derive(Debug, Clone)]
pub struct Http1Settings {
    /// Connections at once; requests beyond it wait.
    pub max_connections: usize,
    /// Connections kept without a request.
    pub max_idle_connections: usize,
    /// A connection without a request for this long is closed rather than used.
    pub idle_timeout: Duration,
}

impl Default for Http1Settings {
    fn default() -> Self {
        Self {
            // Well above any in-flight window; a limit on a fault, not on throughput.
            max_connections: 256,
            max_idle_connections: 64,
            // Below the idle limits of common servers and balancers (AWS ALB 60 s, nginx 75 s), so
            // that it is rarely the peer who closes first.
            idle_timeout: Duration::from_secs(50),
        }
    }
}

/// A connection that has not become ready again this long after its answer is not worth waiting
/// for: the server answered without reading the request.
const READY_WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct Http1Pool {
    connector: Connector,
    settings: Http1Settings,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Idle>>>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

struct Connection {
    sender: SendRequest<SlicesBody>,
    fault: TlsFault,
    born: Instant,
}

impl Http1Pool {
    pub(crate) fn new(connector: Connector, settings: Http1Settings) -> Self {
        Self {
            connector,
            permits: Arc::new(Semaphore::new(settings.max_connections.max(1))),
            settings,
            idle: Arc::default(),
        }
    }

    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        body: &Slices,
        progress: &Progress,
    ) -> Result<Answer, SendError> {
        let permit = self
            .permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| SendError::Lost("the client is closed".to_owned()))?;
        if let Some(mut connection) = self.take_idle() {
            match self.attempt(&mut connection, outgoing, body, progress).await {
                Ok(answer) => {
                    self.give_back(connection, permit, &answer);
                    return Ok(answer);
                }
                // The peer closed it while it lay idle, or as we wrote: not a fault of the
                // destination, so the request gets one new connection before anybody hears of it.
                Err(Failed { stale: true, .. }) => {}
                Err(Failed { error, .. }) => return Err(error),
            }
        }
        progress.enter(Phase::Connecting);
        let mut connection = self.connect().await?;
        let answer = self
            .attempt(&mut connection, outgoing, body, progress)
            .await
            .map_err(|failed| failed.error)?;
        self.give_back(connection, permit, &answer);
        Ok(answer)
    }

    pub(crate) fn close(&self) {
        self.idle.lock().clear();
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        // The last one used is the least likely to have been closed; the others age and go.
        let newest = loop {
            let candidate = idle.pop()?;
            if candidate.connection.sender.is_closed()
                || candidate.connection.born.elapsed() >= self.connector.settings().max_connection_age
            {
                continue;
            }
            if candidate.since.elapsed() >= self.settings.idle_timeout {
                // Those below lay idle even longer.
                idle.clear();
                return None;
            }
            break candidate;
        };
        Some(newest.connection)
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        let io = self.connector.connect().await?;
        let fault = io.fault();
        let (sender, connection) = http1::Builder::new()
            .writev(true)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|e| SendError::Lost(chain(&e)))?;
        tokio::spawn(async move {
            // Whoever sent a request on it hears of the error.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            fault,
            born: Instant::now(),
        })
    }

    async fn attempt(
        &self,
        connection: &mut Connection,
        outgoing: &Outgoing,
        body: &Slices,
        progress: &Progress,
    ) -> Result<Answer, Failed> {
        progress.enter(Phase::Waiting);
        let mut request = Request::new(SlicesBody::new(body));
        *request.method_mut() = outgoing.method.clone();
        *request.uri_mut() = outgoing.path.clone().into();
        *request.headers_mut() = outgoing.headers.clone();
        request
            .headers_mut()
            .insert(http::header::HOST, outgoing.authority.clone());
        let response = match connection.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut failed) => {
                let unsent = failed.take_message().is_some();
                let error = failed.into_error();
                // Closed before a byte of the answer: the end of a kept connection.
                let stale = unsent || error.is_incomplete_message() || error.is_closed() || is_reset(&error);
                return Err(Failed {
                    stale,
                    error: classify(&error, &connection.fault, outgoing),
                });
            }
        };
        progress.enter(Phase::Reading);
        answer::read(response)
            .await
            .map_err(|error| Failed { stale: false, error })
    }

    /// Keeps the connection for the next request as soon as it can take one.
    fn give_back(&self, mut connection: Connection, permit: OwnedSemaphorePermit, answer: &Answer) {
        if answer.cut || connection.sender.is_closed() {
            return;
        }
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match connection.sender.poll_ready(&mut context) {
            Poll::Ready(Ok(())) => keep(&self.idle, self.settings.max_idle_connections, connection),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let (idle, max_idle) = (self.idle.clone(), self.settings.max_idle_connections);
                tokio::spawn(async move {
                    let ready = tokio::time::timeout(READY_WITHIN, connection.sender.ready());
                    if let Ok(Ok(())) = ready.await {
                        keep(&idle, max_idle, connection);
                    }
                    drop(permit);
                });
            }
        }
    }
}

fn keep(idle: &Mutex<Vec<Idle>>, max_idle: usize, connection: Connection) {
    let mut idle = idle.lock();
    if idle.len() < max_idle {
        idle.push(Idle {
            connection,
            since: Instant::now(),
        });
    }
}

struct Failed {
    /// Nothing of an answer had come: the usual end of a kept connection.
    stale: bool,
    error: SendError,
}

fn is_reset(error: &hyper::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::ConnectionAborted
                    | std::io::ErrorKind::NotConnected
            );
        }
        source = cause.source();
    }
    false
}

fn classify(error: &hyper::Error, fault: &TlsFault, outgoing: &Outgoing) -> SendError {
    if let Some(reason) = fault.reason() {
        SendError::TlsConfiguration {
            host: outgoing.host(),
            reason: reason.to_owned(),
        }
    } else if error.is_parse() {
        SendError::Protocol(chain(error))
    } else if error.is_user() {
        SendError::Unsendable(chain(error))
    } else {
        SendError::Lost(chain(error))
    }
}
