//! What a connection is doing, so that one that does nothing, or pretends to, can be closed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

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
}

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
        })
    }

    fn millis(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    pub fn begin_request(self: &Arc<Self>, h2: bool) -> InRequest {
        self.requests.fetch_add(1, Ordering::AcqRel);
        if !self.seen_request.swap(true, Ordering::Relaxed) {
            self.h2.store(h2, Ordering::Relaxed);
        }
        InRequest(self.clone())
    }

    fn read_some(&self) {
        if self.first_byte.load(Ordering::Relaxed) == NONE && self.requests.load(Ordering::Relaxed) == 0 {
            self.first_byte.store(self.millis(), Ordering::Relaxed);
        }
    }

    /// An h2 connection that has served a request sends control frames when it likes: only its
    /// idleness counts. Any other byte outside a request is part of a request head.
    pub fn judge(&self, now: Instant, head: Duration, idle: Option<Duration>) -> Judgement {
        let later = now + head.min(idle.unwrap_or(head));
        if self.requests.load(Ordering::Acquire) > 0 {
            return Judgement::Fine(later);
        }
        let begun = match self.first_byte.load(Ordering::Relaxed) {
            _ if !self.seen_request.load(Ordering::Relaxed) => Some(0),
            _ if self.h2.load(Ordering::Relaxed) => None,
            NONE => None,
            at => Some(at),
        };
        if let Some(begun) = begun {
            let deadline = self.opened + Duration::from_millis(begun) + head;
            return if now >= deadline {
                Judgement::SlowHead
            } else {
                Judgement::Fine(deadline)
            };
        }
        let Some(idle) = idle else {
            return Judgement::Fine(later);
        };
        let deadline = self.opened + Duration::from_millis(self.idle_since.load(Ordering::Relaxed)) + idle;
        if now >= deadline {
            Judgement::Idle
        } else {
            Judgement::Fine(deadline.min(later))
        }
    }
}

/// While it lives, the connection serves a request.
#[derive(Debug)]
pub(crate) struct InRequest(Arc<Activity>);

impl Drop for InRequest {
    fn drop(&mut self) {
        let activity = &self.0;
        activity.first_byte.store(NONE, Ordering::Relaxed);
        activity.idle_since.store(activity.millis(), Ordering::Relaxed);
        activity.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A socket that reports its reads.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    activity: Arc<Activity>,
}

impl<T> Watched<T> {
    pub fn new(inner: T, activity: Arc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let poll = Pin::new(&mut this.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.activity.read_some();
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
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
        assert_eq!(
            silent.judge(Instant::now(), HEAD, Some(IDLE)),
            Judgement::Fine(Instant::now() + HEAD)
        );
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
            activity.read_some();
            wait(10).await;
            let judgement = activity.judge(Instant::now(), HEAD, Some(IDLE));
            assert_eq!(judgement == Judgement::SlowHead, !h2, "{judgement:?}");
        }

        let idle = Activity::new(Instant::now());
        drop(idle.begin_request(false));
        wait(59).await;
        assert!(matches!(
            idle.judge(Instant::now(), HEAD, Some(IDLE)),
            Judgement::Fine(_)
        ));
        assert!(matches!(
            idle.judge(Instant::now(), HEAD, None),
            Judgement::Fine(_)
        ));
        wait(1).await;
        assert_eq!(idle.judge(Instant::now(), HEAD, Some(IDLE)), Judgement::Idle);
    }
}
