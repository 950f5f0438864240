//! Why a request is turned away: one type for all receivers.

use std::time::Duration;

/// A request that is turned away, in words a person can act on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// For now: retryable, with a hint (503 + `Retry-After`; UNAVAILABLE + `RetryInfo`).
    #[error("{message}")]
    Busy {
        /// What is short.
        message: String,
        /// When to come back.
        retry_after: Duration,
        /// The value of the `reason` label.
        reason: &'static str,
    },
    /// For good: larger than a limit (413; RESOURCE_EXHAUSTED without `RetryInfo`).
    #[error("{0}")]
    TooLarge(String),
    /// For good: bad data (400; INVALID_ARGUMENT).
    #[error("{0}")]
    Bad(String),
    /// For good: broken below the level of the protocol buffers, in its framing or its compression
    /// (400; INTERNAL, as gRPC's statuscodes.md and compression.md have it).
    #[error("{0}")]
    Broken(String),
    /// For good: no message, or several, where gRPC has exactly one (UNIMPLEMENTED).
    #[error("{0}")]
    Cardinality(String),
    /// For good: no pipeline takes this signal (404; UNIMPLEMENTED).
    #[error("{0}")]
    NotServed(String),
    /// For good: a content encoding or media type nobody here reads (415; UNIMPLEMENTED).
    #[error("{0}")]
    Unsupported(String),
    /// No or wrong credentials (401; UNAUTHENTICATED).
    #[error("{message}")]
    Unauthorized {
        /// What is missing.
        message: String,
        /// The `WWW-Authenticate` value.
        challenge: &'static str,
    },
    /// The body came too slowly, or the client's own deadline passed (408; DEADLINE_EXCEEDED).
    #[error("{0}")]
    TooSlow(String),
    /// The client went away while sending, or its transfer coding is broken.
    #[error("the request body broke off: {0}")]
    Disconnected(String),
}

impl Refusal {
    /// The value of the `reason` label.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::Busy { reason, .. } => reason,
            Refusal::TooLarge(_) => "too_large",
            Refusal::Bad(_) | Refusal::Broken(_) | Refusal::Cardinality(_) => "bad_data",
            Refusal::Unsupported(_) | Refusal::NotServed(_) => "unsupported",
            Refusal::Unauthorized { .. } => "unauthorized",
            Refusal::TooSlow(_) => "too_slow",
            Refusal::Disconnected(_) => "disconnected",
        }
    }
}
