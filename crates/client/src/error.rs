//! Why a request got no answer.

use std::net::SocketAddr;
use std::time::Duration;

/// Why a request got no answer. Cloned to every request that waited for the same connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The name has no address just now, or the resolver failed.
    #[error("cannot resolve {host:?}: {reason}")]
    Resolve {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// No address of the destination took a connection.
    #[error("cannot connect to {host} ({addresses}): {reason}")]
    Connect {
        /// The name and port.
        host: String,
        /// The addresses tried.
        addresses: Addresses,
        /// What the last one said.
        reason: String,
    },
    /// The TLS handshake failed for a reason that may pass.
    #[error("TLS handshake with {host} failed: {reason}")]
    Tls {
        /// The name and port.
        host: String,
        /// What failed.
        reason: String,
    },
    /// The peer's certificate does not satisfy us, ours does not satisfy the peer, or the local
    /// TLS files cannot be read: somebody has to mend something.
    #[error("TLS with {host} is not possible as configured: {reason}")]
    TlsConfiguration {
        /// The name and port.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// The credentials to send cannot be read.
    #[error("cannot read credentials: {0}")]
    Credentials(String),
    /// No answer within the time the request had.
    #[error("no answer within {after:?} (while {phase})")]
    Timeout {
        /// The time the request had.
        after: Duration,
        /// What it was doing when the time was up.
        phase: Phase,
    },
    /// The connection was lost before the answer was complete.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The answer was not HTTP.
    #[error("not a valid HTTP answer: {0}")]
    Protocol(String),
    /// The request cannot be put on the wire: a header or address that HTTP does not allow.
    #[error("cannot send: {0}")]
    Unsendable(String),
}

impl SendError {
    /// Whether somebody has to mend the configuration or the destination before a retry can help.
    pub fn needs_mending(&self) -> bool {
        matches!(
            self,
            SendError::TlsConfiguration { .. } | SendError::Credentials(_) | SendError::Unsendable(_)
        )
    }
}

/// What a request was doing when its time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for a connection: a free one, or DNS, TCP and TLS of a new one.
    Connecting,
    /// Sending, or waiting for the head of the answer.
    Waiting,
    /// Reading the body of the answer.
    Reading,
    /// Waiting for the credentials to sign with.
    Signing,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Connecting => "connecting",
            Phase::Waiting => "waiting for the answer",
            Phase::Reading => "reading the answer",
            Phase::Signing => "waiting for credentials to sign with",
        })
    }
}

/// The addresses of a failed connect, for its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub Vec<SocketAddr>);

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// A name with hundreds of addresses must not fill the log.
        const SHOWN: usize = 4;
        for (n, address) in self.0.iter().take(SHOWN).enumerate() {
            if n > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{address}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Every cause of an error, outermost first, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
