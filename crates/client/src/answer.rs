//! The answer to a request, read up to a limit.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Duration, Instant, timeout_at};

use crate::SendError;
use crate::error::chain;

/// The most of an answer's body that is read (OTLP specification: "clients should limit the
/// response size", 4 MiB recommended).
pub const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// How long the body of an answer other than a success is waited for. The status and the headers decide what
/// becomes of the request; the body only adds words.
const WORDS_WITHIN: Duration = Duration::from_secs(1);

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, at most [`MAX_ANSWER_BYTES`] of it.
    pub body: Bytes,
    /// The body went on beyond [`MAX_ANSWER_BYTES`] and the rest was not read; or the answer is no success, and
    /// its body broke off or did not come in time.
    pub cut: bool,
    /// The trailers, if the body was complete and followed by some.
    pub trailers: Option<HeaderMap>,
}

/// Reads the rest of `response`. Nothing is reserved for a length that was only announced.
///
/// A success has to be whole: what it says of rejected items must not be missed. Any other answer counts from
/// its head on, or a refusal for good whose body breaks off would be sent again and again, and the delay of a
/// `Retry-After` would be lost with the words behind it.
pub(crate) async fn read(response: http::Response<Incoming>) -> Result<Answer, SendError> {
    let (head, mut incoming) = response.into_parts();
    let mut first: Option<Bytes> = None;
    let mut gathered = BytesMut::new();
    let mut trailers = None;
    let mut cut = false;
    let words_until = (!head.status.is_success()).then(|| Instant::now() + WORDS_WITHIN);
    loop {
        let next = match words_until {
            None => incoming.frame().await,
            Some(until) => match timeout_at(until, incoming.frame()).await {
                Ok(next) => next,
                Err(_) => {
                    cut = true;
                    break;
                }
            },
        };
        let frame = match next {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(_)) if words_until.is_some() => {
                cut = true;
                break;
            }
            Some(Err(error)) => return Err(SendError::Lost(chain(&error))),
        };
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
