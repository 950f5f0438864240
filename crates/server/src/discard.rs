//! What becomes of a refused body that is still being sent. The answer does not wait for it, and the client has to get the answer.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use crate::conversation::H2_STREAM_WINDOW;

/// How much of a refused HTTP/1.1 body is read and thrown away, so that the client reads the answer
/// instead of a reset, and for how long.
const DRAIN_BYTES: u64 = 16 << 20;
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(5);

/// How long the stream of a refused h2 request stays open behind its answer: a round trip across an ocean. A client that reads the answer ends the
/// stream by itself in this time, and what it had sent by then has a stream to arrive at.
pub(crate) const H2_LINGER: Duration = Duration::from_millis(100);

/// Streams that linger at once; others are reset with their answers. Each may hold a window of bytes that nobody reads, outside of the budget.
const MOST_LINGERING: usize = 64;
const _: () = assert!(MOST_LINGERING * H2_STREAM_WINDOW as usize <= 16 << 20);

static LINGERING: Semaphore = Semaphore::const_new(MOST_LINGERING);

/// Gets rid of what is left of a refused body, in the background, within bounds.
///
/// Over HTTP/1.1 it is read and thrown away: closing the connection would reset it, and take the answer away from a client that still sends.
///
/// Over h2 the client is told to stop: RST_STREAM(NO_ERROR) behind the answer (RFC 9113, 8.1), which h2 sends when the answer is complete and nobody
/// holds the body any more. That is [`H2_LINGER`] later. What has come, a window of it at most, is thrown away, and nothing more is read: so a client that sends fast comes to the end of the next window and has nothing
/// under way when the reset comes. One that still sends does: h2 remembers 50 streams that it has reset, and counts each frame for others as a fault of the
/// peer; with 1024 faults it ends the connection, and all requests on it.
pub fn discard(mut body: Incoming, version: Version) {
    if body.is_end_stream() {
        return;
    }
    if version != Version::HTTP_2 {
        tokio::spawn(tokio::time::timeout(DRAIN_TIME, drain(body)));
        return;
    }
    let mut nobody = Context::from_waker(Waker::noop());
    let mut thrown_away = 0;
    while thrown_away < H2_STREAM_WINDOW as usize
        && let Poll::Ready(next) = Pin::new(&mut body).poll_frame(&mut nobody)
    {
        // Its end, or that of its stream.
        let Some(Ok(frame)) = next else { return };
        thrown_away += frame.data_ref().map_or(0, Bytes::len);
    }
    if let Ok(place) = LINGERING.try_acquire() {
        tokio::spawn(async move {
            tokio::time::sleep(H2_LINGER).await;
            drop((body, place));
        });
    }
}

async fn drain(mut body: Incoming) {
    let mut left = DRAIN_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let len = frame.data_ref().map_or(0, |data| data.len() as u64);
        left = left.saturating_sub(len);
        if left == 0 {
            return;
        }
    }
}
