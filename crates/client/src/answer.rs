//! The answer to a request, read up to a limit.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::SendError;
use crate::error::chain;

/// The most of an answer's body that is read (OTLP specification: "clients should limit the
/// response size", 4 MiB recommended).
pub const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, at most [`MAX_ANSWER_BYTES`] of it.
    pub body: Bytes,
    /// The body went on beyond [`MAX_ANSWER_BYTES`]; the rest was not read.
    pub cut: bool,
    /// The trailers, if the body was complete and followed by some.
    pub trailers: Option<HeaderMap>,
}

/// Reads the rest of `response`. Nothing is reserved for a length that was only announced.
pub(crate) async fn read(response: http::Response<Incoming>) -> Result<Answer, SendError> {
    let (head, mut incoming) = response.into_parts();
    let mut first: Option<Bytes> = None;
    let mut gathered = BytesMut::new();
    let mut trailers = None;
    let mut cut = false;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|e| SendError::Lost(chain(&e)))?;
        match frame.into_data() {
            Ok(data) => {
                let have = first.as_ref().map_or(gathered.len(), Bytes::len);
                let room = MAX_ANSWER_BYTES - have;
                cut = data.len() > room;
                let data = data.slice(..data.len().min(room));
                match first.take() {
                    // Nearly every answer is one frame, and stays as it came.
                    None if gathered.is_empty() => first = Some(data),
                    None => gathered.extend_from_slice(&data),
                    Some(earlier) => {
                        gathered.extend_from_slice(&earlier);
                        gathered.extend_from_slice(&data);
                    }
                }
                if cut {
                    break;
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let body = first.unwrap_or_else(|| gathered.freeze());
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
        cut,
        trailers,
    })
}
