//! The payload itself.

use std::time::Instant;

use bytes::Bytes;
use sluice_admission::Permit;

use crate::{Encoding, Signal, TenantId, WireFormat};

/// The compressed frame a payload came in, kept while it still says the same as the body.
#[derive(Debug, Clone)]
pub struct Frame {
    /// How `bytes` are compressed; never [`Encoding::Identity`].
    pub encoding: Encoding,
    /// The compressed body as received.
    pub bytes: Bytes,
}

/// One received request.
#[derive(Debug)]
pub struct Payload {
    /// What it carries.
    pub signal: Signal,
    /// Which message `body` is.
    pub wire_format: WireFormat,
    /// A validated request, not compressed.
    pub body: Bytes,
    /// The frame the body came in, if it was compressed, is unedited, and somebody may reuse it.
    pub frame: Option<Frame>,
    /// Data points, log records, spans or profiles in `body`; of remote write, samples and native histograms.
    pub items: u64,
    /// Whose it is.
    pub tenant: TenantId,
    /// When its body was complete, on the monotonic clock.
    pub received_at: Instant,
    /// The bytes of the memory budget it holds; what is retained, not just what is used.
    pub permit: Option<Permit>,
}

impl Payload {
    /// An OTLP request of the default tenant, complete now, that is in no budget: what tests and benches send.
    pub fn uncharged(signal: Signal, body: Bytes, items: u64) -> Self {
        Self {
            signal,
            wire_format: WireFormat::Otlp,
            body,
            frame: None,
            items,
            tenant: TenantId::DEFAULT,
            received_at: Instant::now(),
            permit: None,
        }
    }

    /// Bytes of memory this payload retains, as charged to the budget.
    pub fn retained_bytes(&self) -> u64 {
        match &self.permit {
            Some(permit) => permit.bytes(),
            None => self.body.len() as u64,
        }
    }
}
