//! Answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// A small answer: at most one piece of data, then at most one set of trailers, or another answer later.
#[derive(Default)]
pub struct ReplyBody {
    data: Option<Bytes>,
    trailers: Option<Box<HeaderMap>>,
    later: Option<Pin<Box<dyn Future<Output = ReplyBody> + Send>>>,
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.data.as_ref().map_or(0, Bytes::len);
        write!(f, "ReplyBody({bytes} bytes, ended: {})", self.is_end_stream())
    }
}

impl ReplyBody {
    /// No body.
    pub fn empty() -> Self {
        Self::default()
    }

    /// One piece of data.
    pub fn data(data: Bytes) -> Self {
        Self {
            data: (!data.is_empty()).then_some(data),
            ..Self::default()
        }
    }

    /// One piece of data and trailers, as gRPC answers.
    pub fn with_trailers(data: Bytes, trailers: HeaderMap) -> Self {
        Self {
            trailers: Some(Box::new(trailers)),
            ..Self::data(data)
        }
    }

    /// One piece of data, and when `later` is done what it says: a stream that waits for news.
    pub fn with_later(data: Bytes, later: impl Future<Output = ReplyBody> + Send + 'static) -> Self {
        Self {
            later: Some(Box::pin(later)),
            ..Self::data(data)
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.data.is_none()
            && let Some(later) = &mut self.later
        {
            *self = ready!(later.as_mut().poll(cx));
            return self.poll_frame(cx);
        }
        let next = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(|trailers| Frame::trailers(*trailers)),
        };
        Poll::Ready(next.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none() && self.later.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.later {
            None => SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64)),
            Some(_) => SizeHint::default(),
        }
    }
}
