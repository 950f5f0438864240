//! What a connection is doing, so that one that does nothing, or pretends to, can be closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::discard::DRAIN_TIME;
use crate::frames::{Frames, MOST_UNFINISHED, Unfinished};

/// Shared by a connection's socket, its requests and its watchdog.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    requests: AtomicU32,
    seen_request: AtomicBool,
    h2: AtomicBool,
    /// Milliseconds since `opened` when the connection last became idle.
    idle_since: AtomicU64,
    /// The same for the first byte after that; `NONE` when there was none.
    first_byte: AtomicU64,
    /// Something was written and not flushed yet.
    unflushed: AtomicBool,
    /// The last request was refused: what still comes of its body is thrown away.
    refused: AtomicBool,
    /// Whoever shuts the socket down only gives it back.
    kept_open: AtomicBool,
    /// Bytes read of a request head that is not complete yet, over HTTP/1.1.
    head_bytes: AtomicUsize,
    /// That head has one of the places for long ones.
    has_place: AtomicBool,
    /// A frame that is not complete, over HTTP/2.
    pub unfinished: Unfinished,
}

/// The longest request head over HTTP/1.1. A hundredth of it is usual; nginx takes 32 KiB, Envoy 60.
const HEAD_BYTES: usize = 64 << 10;

/// A head longer than this needs one of [`LONG_HEADS`] until it is complete: heads come before any budget, and each that is never finished would keep a
/// buffer that grows with it. As much as hyper's first buffer has, which is there anyway.
const SHORT_HEAD_BYTES: usize = 8 << 10;

/// Long heads that come at once, of all connections: with buffers that double, 8 MiB.
pub(crate) const MOST_LONG_HEADS: usize = 64;
const _: () = assert!(MOST_LONG_HEADS * 2 * HEAD_BYTES <= 8 << 20);

static LONG_HEADS: Semaphore = Semaphore::const_new(MOST_LONG_HEADS);

/// Why a head is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadRefusal {
    #[error("a request head is longer than {HEAD_BYTES} bytes")]
    TooLong,
    #[error("{MOST_LONG_HEADS} request heads of more than {SHORT_HEAD_BYTES} bytes come already")]
    TooMany,
}

/// An h1 connection without requests is parked after this: long enough that one in steady use is not, short enough that most
/// connections of clients that send every few seconds are.
pub(crate) const PARK_AFTER: Duration = Duration::from_secs(1);

/// What is thrown away is read in pieces of this size, lest the connection's buffer grows for it.
const DISCARD_BYTES: usize = 16 << 10;

const NONE: u64 = u64::MAX;

/// What the watchdog should do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Look again then.
    Fine(Instant),
    /// A request head was begun and never finished.
    SlowHead,
    /// Nothing happened for the idle time-out.
    Idle,
    /// Nothing goes on for [`PARK_AFTER`], over HTTP/1.1.
    Quiet,
}

impl Activity {
    pub fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self {
            opened: now,
            requests: AtomicU32::new(0),
            seen_request: AtomicBool::new(false),
            h2: AtomicBool::new(false),
            idle_since: AtomicU64::new(0),
            first_byte: AtomicU64::new(NONE),
            unflushed: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            kept_open: AtomicBool::new(false),
            head_bytes: AtomicUsize::new(0),
            has_place: AtomicBool::new(false),
            unfinished: Unfinished::default(),
        })
    }

    /// Whether more may be read of a head that is not complete.
    fn may_read_on(&self) -> Result<(), HeadRefusal> {
        let bytes = self.head_bytes.load(Ordering::Relaxed);
        if bytes >= HEAD_BYTES {
            return Err(HeadRefusal::TooLong);
        }
        if bytes >= SHORT_HEAD_BYTES && !self.has_place.load(Ordering::Relaxed) {
            LONG_HEADS
                .try_acquire()
                .map_err(|_| HeadRefusal::TooMany)?
                .forget();
            self.has_place.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The head is complete, or the connection over.
    fn end_head(&self) {
        self.head_bytes.store(0, Ordering::Relaxed);
        // Looked at first: hardly any head has one, and an exchange costs each request more than a look.
        if self.has_place.load(Ordering::Relaxed) && self.has_place.swap(false, Ordering::Relaxed) {
            LONG_HEADS.add_permits(1);
        }
    }

    /// From here on shutting the socket down does nothing, or something again.
    pub fn keep_open(&self, keep: bool) {
        self.kept_open.store(keep, Ordering::Relaxed);
    }

    /// When the last request ended.
    pub fn idle_since(&self) -> Instant {
        self.opened + Duration::from_millis(self.idle_since.load(Ordering::Relaxed))
    }

    /// Whether a request is under way.
    pub fn is_serving(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > 0
    }

    fn millis(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    pub fn begin_request(self: &Arc<Self>, h2: bool) -> InRequest {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.end_head();
        self.unfinished.give_place();
        if !self.seen_request.swap(true, Ordering::Relaxed) {
            self.h2.store(h2, Ordering::Relaxed);
        }
        self.refused.store(false, Ordering::Relaxed);
        InRequest(self.clone())
    }

    fn read_some(&self, bytes: usize) {
        if self.requests.load(Ordering::Relaxed) > 0 {
            return;
        }
        if self.first_byte.load(Ordering::Relaxed) == NONE {
            let now = self.millis();
            // What comes behind the answer of a refused request is its body for as long as that is read, and no head that is never finished.
            let is_body = self.refused.load(Ordering::Relaxed)
                && now < self.idle_since.load(Ordering::Relaxed) + DRAIN_TIME.as_millis() as u64;
            if is_body {
                return;
            }
            self.first_byte.store(now, Ordering::Relaxed);
        }
        self.head_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An h2 connection that has served a request sends control frames when it likes: only its
    /// idleness counts. Any other byte outside a request is part of a request head.
    pub fn judge(&self, now: Instant, head: Duration, idle: Option<Duration>) -> Judgement {
        let h2 = self.h2.load(Ordering::Relaxed);
        let soon = if h2 { head } else { head.min(PARK_AFTER) };
        let later = now + soon.min(idle.unwrap_or(soon));
        if self.requests.load(Ordering::Acquire) > 0 {
            return Judgement::Fine(later);
        }
        let begun = match self.first_byte.load(Ordering::Relaxed) {
            _ if !self.seen_request.load(Ordering::Relaxed) => Some(0),
            _ if h2 => None,
            NONE => None,
            at => Some(at),
        };
        if let Some(begun) = begun {
            let deadline = self.opened + Duration::from_millis(begun) + head;
            return if now >= deadline {
                Judgement::SlowHead
            } else {
                Judgement::Fine(deadline.min(later))
            };
        }
        let since = self.idle_since();
        let closes = idle.map(|idle| since + idle);
        // A refused request's body may still be on its way, and must not be taken for a request.
        let draining = match self.refused.load(Ordering::Relaxed) {
            true => DRAIN_TIME,
            false => Duration::ZERO,
        };
        let parks = (!h2).then_some(since + draining + PARK_AFTER);
        match (closes, parks) {
            (Some(closes), _) if now >= closes => Judgement::Idle,
            (_, Some(parks)) if now < parks => Judgement::Fine(closes.unwrap_or(parks).min(parks)),
            (_, Some(_)) if !self.unflushed.load(Ordering::Relaxed) => Judgement::Quiet,
            _ => Judgement::Fine(closes.unwrap_or(later).min(later)),
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.end_head();
        self.unfinished.give_place();
    }
}

/// While it lives, the connection serves a request.
#[derive(Debug)]
pub(crate) struct InRequest(Arc<Activity>);

impl InRequest {
    /// It has its answer.
    pub fn answered(self, successfully: bool) {
        self.0.refused.store(!successfully, Ordering::Relaxed);
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        let activity = &self.0;
        activity.first_byte.store(NONE, Ordering::Relaxed);
        activity.idle_since.store(activity.millis(), Ordering::Relaxed);
        if activity.requests.fetch_sub(1, Ordering::SeqCst) == 1 {
            activity.unfinished.request_ended();
        }
    }
}

/// A socket that reports what is read and written, and can be looked into.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    activity: Arc<Activity>,
    /// Read, and to be read again.
    ahead: Bytes,
    /// Why nothing more is read, where a head has become too long.
    refusal: Option<HeadRefusal>,
    limits_heads: bool,
    /// Over HTTP/2.
    frames: Option<Frames>,
}

impl<T> Watched<T> {
    pub fn new(inner: T, activity: Arc<Activity>) -> Self {
        Self {
            inner,
            activity,
            ahead: Bytes::new(),
            refusal: None,
            limits_heads: true,
            frames: None,
        }
    }

    /// From here on whatever comes is read: it is thrown away.
    pub fn read_all(&mut self) {
        self.limits_heads = false;
        self.activity.end_head();
    }

    /// What comes are the frames of HTTP/2, behind a preface of so many bytes.
    pub fn read_frames(&mut self, preface: usize) {
        self.read_all();
        self.frames = Some(Frames::behind(preface));
    }

    /// Looks at what h2 is given: `came`, and then perhaps nothing more.
    fn watch_frames(&mut self, came: &[u8], cx: &Context<'_>) {
        let (Some(frames), unfinished) = (&mut self.frames, &self.activity.unfinished) else {
            return;
        };
        if frames.advance(came) {
            unfinished.end();
        }
        if came.is_empty() && frames.are_large() {
            unfinished.wait(cx.waker());
            if !self.activity.is_serving() {
                unfinished.take_place(&self.activity);
            }
        }
    }

    /// Why nothing more was read.
    pub fn refusal(&self) -> Option<HeadRefusal> {
        self.refusal
    }

    /// What was read and not taken.
    pub fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Gives back what was taken last.
    pub fn put_back(&mut self, bytes: &[u8]) {
        self.activity.end_head();
        if !bytes.is_empty() {
            self.activity.read_some(0);
        }
        // A copy: these are a slice of a connection's buffer.
        self.ahead = [bytes, &self.ahead].concat().into();
    }
}

impl<T: AsyncRead + Unpin> Watched<T> {
    /// Reads up to `most` more bytes without taking them; 0 says that there are no more. Nothing is lost where this is
    /// dropped.
    pub async fn look_ahead(&mut self, most: usize) -> std::io::Result<usize> {
        let mut space = [0; 32];
        let most = most.min(space.len());
        let read = self.inner.read(&mut space[..most]).await?;
        if read > 0 {
            // They are counted when they are taken.
            self.activity.read_some(0);
            self.ahead = [&self.ahead, &space[..read]].concat().into();
        }
        Ok(read)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if this.limits_heads
            && let Err(refusal) = this.activity.may_read_on()
        {
            this.refusal = Some(refusal);
            return Poll::Ready(Err(std::io::Error::other(refusal)));
        }
        if this.activity.unfinished.is_ended() {
            return Poll::Ready(Err(std::io::Error::other(format!(
                "of more than {MOST_UNFINISHED} frames that are not whole this is the oldest"
            ))));
        }
        let before = buf.filled().len();
        if !this.ahead.is_empty() {
            let ahead = this.ahead.split_to(this.ahead.len().min(buf.remaining()));
            buf.put_slice(&ahead);
        }
        let replayed = buf.filled().len() - before;
        let mut poll = Poll::Ready(Ok(()));
        if this.activity.refused.load(Ordering::Relaxed) && buf.remaining() > DISCARD_BYTES {
            let mut little = ReadBuf::new(buf.initialize_unfilled_to(DISCARD_BYTES));
            poll = Pin::new(&mut this.inner).poll_read(cx, &mut little);
            let read = little.filled().len();
            buf.advance(read);
        } else if buf.remaining() > 0 {
            poll = Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let came = buf.filled().len() - before;
        if came > 0 {
            this.activity.read_some(came);
        }
        if this.frames.is_some() {
            this.watch_frames(&buf.filled()[before..], cx);
        }
        // What else there is to say, the next read says again.
        match replayed {
            0 => poll,
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        self.activity.unflushed.store(true, Ordering::Relaxed);
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_flush(cx);
        if poll.is_ready() {
            this.activity.unflushed.store(false, Ordering::Relaxed);
        }
        poll
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.activity.kept_open.load(Ordering::Relaxed) {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.get_mut().inner).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.activity.unflushed.store(true, Ordering::Relaxed);
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Duration = Duration::from_secs(10);
    const IDLE: Duration = Duration::from_secs(60);

    /// Scenario: a client connects and sends nothing; one sends half a head after a request; an h2
    /// client sends pings between requests; a keep-alive client is idle.
    /// Guarantees: the first two are closed after the head time-out, the pings are not, idleness
    /// ends after the idle time-out, and never while a request is served.
    #[tokio::test(start_paused = true)]
    async fn judgements() {
        let wait = |secs| tokio::time::advance(Duration::from_secs(secs));
        let silent = Activity::new(Instant::now());
        assert!(matches!(
            silent.judge(Instant::now(), HEAD, Some(IDLE)),
            Judgement::Fine(_)
        ));
        wait(10).await;
        assert_eq!(
            silent.judge(Instant::now(), HEAD, Some(IDLE)),
            Judgement::SlowHead
        );

        for h2 in [false, true] {
            let activity = Activity::new(Instant::now());
            let request = activity.begin_request(h2);
            wait(1000).await;
            assert!(matches!(
                activity.judge(Instant::now(), HEAD, Some(IDLE)),
                Judgement::Fine(_)
            ));
            drop(request);
            activity.read_some(1);
            wait(10).await;
            let judgement = activity.judge(Instant::now(), HEAD, Some(IDLE));
            assert_eq!(judgement == Judgement::SlowHead, !h2, "{judgement:?}");
        }

        for h2 in [false, true] {
            let idle = Activity::new(Instant::now());
            idle.begin_request(h2).answered(true);
            tokio::time::advance(PARK_AFTER - Duration::from_millis(1)).await;
            let judge = |limit| idle.judge(Instant::now(), HEAD, limit);
            assert!(matches!(judge(Some(IDLE)), Judgement::Fine(_)));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(judge(Some(IDLE)) == Judgement::Quiet, !h2);
            assert_eq!(judge(None) == Judgement::Quiet, !h2);
            idle.unflushed.store(true, Ordering::Relaxed);
            assert!(
                matches!(judge(None), Judgement::Fine(_)),
                "an answer is under way"
            );
            tokio::time::advance(IDLE).await;
            assert_eq!(judge(Some(IDLE)), Judgement::Idle);
        }
    }

    /// Scenario: the same bytes wait in a socket, some of them looked at before, while a request is answered and after one was refused.
    /// Guarantees: all of them are read, in their order; what a refusal leaves to be thrown away comes in small pieces.
    #[tokio::test]
    async fn what_is_thrown_away_is_read_in_small_pieces() {
        let sent: Vec<u8> = (0..4 * DISCARD_BYTES).map(|n| (n / 7) as u8).collect();
        for successfully in [true, false] {
            let (mut client, server) = tokio::io::duplex(sent.len());
            tokio::io::AsyncWriteExt::write_all(&mut client, &sent)
                .await
                .unwrap();
            let activity = Activity::new(Instant::now());
            let mut socket = Watched::new(server, activity.clone());
            assert_eq!(socket.look_ahead(3).await.unwrap(), 3);
            activity.begin_request(false).answered(successfully);
            let mut buffer = vec![0; sent.len()];
            let first = socket.read(&mut buffer).await.unwrap();
            assert_eq!(
                first,
                if successfully {
                    sent.len()
                } else {
                    3 + DISCARD_BYTES
                }
            );
            socket.read_exact(&mut buffer[first..]).await.unwrap();
            assert!(buffer == sent, "{successfully}");
        }
    }
}
