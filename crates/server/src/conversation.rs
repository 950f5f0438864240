//! Serving one connection, from its first byte to its end.
//!
//! A connection on which nothing goes on holds nothing but its socket: until its first byte has come, and again
//! [`PARK_AFTER`] its last request over HTTP/1.1. hyper keeps the buffer that a connection's largest body needed for as long as the
//! connection lives; a thousand agents that each send 110 KB every ten seconds held 85 MiB that no permit accounted
//! for, and hold 37 (docs/decisions.md). hyper's connection is on the heap for the same reason: in the task,
//! it would be there for as long as the socket.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::activity::{Activity, HeadRefusal, Judgement, PARK_AFTER, Watched};
use crate::connection::{ConnectionSettings, Peer, Serve};
use crate::inline::Inline;
use crate::reply::ReplyBody;
use crate::streams::{Streams, WithStream};

/// The largest h1 read buffer. A request body is read through it in as few reads as the kernel allows.
const H1_BUFFER_BYTES: usize = 256 << 10;

/// What one h2 stream may send before its request is read: memory outside the budget, so small,
/// but an ordinary request passes without waiting for a window update.
pub(crate) const H2_STREAM_WINDOW: u32 = 256 << 10;

/// The largest frame that an h2 client may send, if it makes use of that: h2's least, 16 KiB, has an ordinary body cut into
/// seven frames, each read and handed on by itself. It is part of the stream's window, so that no more is held; but a body
/// arrives in pieces of a frame, and more would make a slow one look like a stalled one.
const H2_FRAME_BYTES: u32 = 64 << 10;

/// What a connection may hold of a body beside the buffer that it is gathered in, whichever protocol.
pub(crate) const READ_AHEAD_BYTES: u64 = H2_STREAM_WINDOW as u64;
const _: () = assert!(READ_AHEAD_BYTES == H1_BUFFER_BYTES as u64);

/// The largest window that h2 allows (RFC 9113, 6.9.1).
const H2_MAX_WINDOW: u32 = (1 << 31) - 1;

/// What an h2 client says first (RFC 9113, 3.4).
const H2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A peer that does not read gets no proper end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection in hyper's hands.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Ends it when nothing goes on any more; nothing new is begun.
    fn wind_up(self: Pin<&mut Self>);
}

impl<IO, S> Connection for http1::Connection<TokioIo<Watched<IO>>, S>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<Incoming, ResBody = ReplyBody, Error = Infallible>,
    S::Future: 'static,
{
    fn wind_up(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<IO, S> Connection for WithStream<Pin<Box<http2::Connection<TokioIo<Watched<IO>>, S, Streams>>>>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<Incoming, ResBody = ReplyBody, Error = Infallible>,
    S::Future: Send + 'static,
{
    fn wind_up(self: Pin<&mut Self>) {
        self.get_mut().connection().as_mut().graceful_shutdown();
    }
}

/// How it came to an end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Closed,
    /// Nothing goes on, and nothing is left to read or to write: the socket can be served again.
    Parked,
}

/// What serves a connection, and what ends it.
struct Conversation<'a> {
    settings: &'a ConnectionSettings,
    activity: &'a Activity,
    peer: Peer,
    /// When it is too old.
    old: Option<Instant>,
    stop: watch::Receiver<bool>,
}

/// Serves `stream` until it is closed or `stop` turns true.
pub(crate) async fn converse<IO, S>(
    stream: IO,
    service: S,
    peer: Peer,
    settings: &ConnectionSettings,
    stop: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Serve,
{
    let activity = Activity::new(Instant::now());
    let mut socket = Watched::new(stream, activity.clone());
    let mut conversation = Conversation {
        settings,
        activity: &activity,
        peer,
        old: settings.max_age.map(|age| Instant::now() + jittered(age)),
        stop,
    };
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
            in_request.answered(response.status().is_success());
            Ok::<_, Infallible>(response)
        }
    });
    let Some(is_h2) = conversation.first_bytes(&mut socket).await else {
        return;
    };
    if is_h2 {
        socket.read_frames(H2_PREFACE.len());
        let streams = Streams::default();
        let connection =
            Box::pin(h2(settings, streams.clone()).serve_connection(TokioIo::new(socket), service));
        let mut connection = WithStream::new(connection, streams);
        conversation.attend(Pin::new(&mut connection)).await;
        return;
    }
    let h1 = h1();
    loop {
        let mut connection = Box::new(h1.serve_connection(TokioIo::new(socket), service.clone()));
        if conversation.attend(Pin::new(&mut *connection)).await == End::Closed {
            let socket = connection.into_parts().io.into_inner();
            if let Some(refusal) = socket.refusal() {
                // On the heap: it would be there for as long as the connection.
                Box::pin(refuse_head(socket, refusal)).await;
            }
            return;
        }
        socket = take_back(*connection);
        if !conversation.next_byte(&mut socket).await {
            // With TLS that is more than closing it.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.shutdown()).await;
            return;
        }
    }
}

/// Answers a head that was not read to its end: hyper does so only for one that fills its buffer.
async fn refuse_head<IO: AsyncRead + AsyncWrite + Unpin>(mut socket: Watched<IO>, refusal: HeadRefusal) {
    let (status, hint) = match refusal {
        HeadRefusal::TooLong => ("431 Request Header Fields Too Large", ""),
        HeadRefusal::TooMany => ("503 Service Unavailable", "retry-after: 1\r\n"),
    };
    let text = refusal.to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n{hint}connection: close\r\n\r\n{text}",
        text.len()
    );
    socket.read_all();
    // What still comes is read, or the client gets a reset instead of the answer.
    let told = async {
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await?;
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, told).await;
}

/// The socket of a connection that has ended, with what was read and not taken; the connection's buffer goes with this call.
fn take_back<IO, S>(connection: http1::Connection<TokioIo<Watched<IO>>, S>) -> Watched<IO>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    S: HttpService<Incoming, ResBody = ReplyBody, Error = Infallible>,
{
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    let mut socket = io.into_inner();
    socket.put_back(&read_buf);
    socket
}

fn h1() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(H1_BUFFER_BYTES);
    builder
}

fn h2(settings: &ConnectionSettings, streams: Streams) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .max_frame_size(H2_FRAME_BYTES)
        // All streams at once: a stream that waits for admission never stalls the others.
        .initial_connection_window_size(H2_STREAM_WINDOW.saturating_mul(settings.max_concurrent_streams).min(H2_MAX_WINDOW))
        .max_concurrent_streams(settings.max_concurrent_streams)
        .keep_alive_interval(settings.keepalive_time)
        .keep_alive_timeout(settings.keepalive_timeout);
    builder
}

/// A moment that may never come.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

impl Conversation<'_> {
    /// Waits for what tells h2 from h1. `None`: the connection is over before.
    async fn first_bytes<IO: AsyncRead + Unpin>(&mut self, socket: &mut Watched<IO>) -> Option<bool> {
        let ends = Instant::now() + self.settings.header_timeout;
        loop {
            let said = socket.ahead();
            if !H2_PREFACE.starts_with(said) && self.settings.http1 {
                return Some(false);
            }
            if said.len() == H2_PREFACE.len() || !H2_PREFACE.starts_with(said) {
                return Some(true);
            }
            let most = H2_PREFACE.len() - said.len();
            if !self.more(socket, most, Some(ends)).await {
                return None;
            }
        }
    }

    /// Waits for the next request, or whatever comes.
    async fn next_byte<IO: AsyncRead + Unpin>(&mut self, socket: &mut Watched<IO>) -> bool {
        let ends = (self.settings.idle_timeout).map(|timeout| self.activity.idle_since() + timeout);
        !socket.ahead().is_empty() || self.more(socket, 1, ends).await
    }

    /// Waits until anything has come; false when the connection is over instead.
    async fn more<IO: AsyncRead + Unpin>(
        &mut self,
        socket: &mut Watched<IO>,
        most: usize,
        ends: Option<Instant>,
    ) -> bool {
        tokio::select! {
            // What is there comes first.
            biased;
            read = socket.look_ahead(most) => match read {
                Ok(read) => read > 0,
                Err(error) => {
                    tracing::debug!(peer = %self.peer.address, %error, "connection ended");
                    false
                }
            },
            _ = self.stop.wait_for(|stop| *stop) => false,
            () = at(self.old) => false,
            () = at(ends) => {
                tracing::debug!(peer = %self.peer.address, "closed: nothing came in time");
                false
            }
        }
    }

    /// Drives a connection to its end, and brings that about when it is due.
    async fn attend<C: Connection>(&mut self, connection: Pin<&mut C>) -> End {
        let Self {
            settings, activity, ..
        } = *self;
        let address = self.peer.address;
        let mut connection = Inline::new(connection);
        let mut look = Instant::now() + PARK_AFTER;
        let mut old = self.old;
        let mut end: Option<Instant> = None;
        let mut stopping = false;
        loop {
            let mut is_quiet = false;
            tokio::select! {
                done = &mut connection => {
                    if let Err(error) = done {
                        tracing::debug!(peer = %address, error = %error, "connection ended");
                    }
                    return End::Closed;
                }
                _ = self.stop.wait_for(|stop| *stop), if !stopping => {
                    stopping = true;
                    connection.get_mut().as_mut().wind_up();
                }
                () = at(old) => {
                    old = None;
                    end = settings.max_age_grace.map(|grace| Instant::now() + grace);
                    connection.get_mut().as_mut().wind_up();
                }
                () = at(end) => return End::Closed,
                () = at(Some(look)) => match activity.judge(Instant::now(), settings.header_timeout, settings.idle_timeout) {
                    Judgement::Fine(next) => look = next,
                    Judgement::SlowHead => {
                        tracing::debug!(peer = %address, "closed: a request head was not finished in time");
                        return End::Closed;
                    }
                    Judgement::Idle => {
                        // Gracefully, once: a request that crosses with this is still served.
                        look = Instant::now() + settings.header_timeout;
                        connection.get_mut().as_mut().wind_up();
                    }
                    Judgement::Quiet => is_quiet = true,
                },
            }
            if is_quiet {
                look = Instant::now() + settings.header_timeout;
                connection.get_mut().as_mut().wind_up();
                activity.keep_open(true);
                let ended = poll_fn(|cx| Poll::Ready(Pin::new(&mut connection).poll(cx))).await;
                activity.keep_open(false);
                match ended {
                    Poll::Ready(Ok(())) => return End::Parked,
                    Poll::Ready(Err(_)) => return End::Closed,
                    // A body was never read to its end: the connection ends when it is.
                    Poll::Pending => {}
                }
            }
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

#[cfg(test)]
mod tests;
