//! Answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// A small answer: at most one piece of data, then at most one set of trailers.
#[derive(Debug, Default)]
pub struct ReplyBody {
    data: Option<Bytes>,
    trailers: Option<Box<HeaderMap>>,
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
            trailers: None,
        }
    }

    /// One piece of data and trailers, as gRPC answers.
    pub fn with_trailers(data: Bytes, trailers: HeaderMap) -> Self {
        Self {
            data: Some(data),
            trailers: Some(Box::new(trailers)),
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(|trailers| Frame::trailers(*trailers)),
        };
        Poll::Ready(next.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}
