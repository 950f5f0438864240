//! Signing whole requests: what a header made beforehand cannot do.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::HeaderMap;

use crate::SendError;

/// A future of a signature.
pub type Signing<'a> = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send + 'a>>;

/// Puts a signature over a request into its headers.
pub trait Sign: Debug + Send + Sync {
    /// Signs a POST of `body` to `url`, once for each attempt: a signature holds for some minutes.
    ///
    /// # Errors
    /// [`SendError::Credentials`] when there are no credentials to sign with.
    fn sign<'a>(&'a self, url: &'a str, headers: &'a mut HeaderMap, body: Bytes) -> Signing<'a>;
}
