//! Which format a destination reads: what is configured, until it says otherwise.
//!
//! Remote write negotiates by trying: a receiver that does not know 2.0, or zstd, answers 415, and is sent 1.0 under snappy, which
//! every receiver has to take. That is remembered until sluice is started again.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::body::{Body, Format};
use crate::rewrite::converted;

const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");
const VICTORIA_METRICS_VERSION: HeaderName =
    HeaderName::from_static("x-victoriametrics-remote-write-version");

/// The headers that say what a body is; they cannot be configured.
pub(super) const OWN_HEADERS: [HeaderName; 4] =
    [CONTENT_TYPE, CONTENT_ENCODING, VERSION, VICTORIA_METRICS_VERSION];

/// Sets the headers that say what a body is.
pub(super) fn put_headers(headers: &mut HeaderMap, format: Format) {
    let (kind, encoding) = match format {
        Format::V1 => ("application/x-protobuf", "snappy"),
        Format::V1Zstd => ("application/x-protobuf", "zstd"),
        Format::V2 => (
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            "snappy",
        ),
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    let (name, version) = match format {
        Format::V1 => (VERSION, "0.1.0"),
        Format::V1Zstd => (VICTORIA_METRICS_VERSION, "1"),
        Format::V2 => (VERSION, "2.0.0"),
    };
    headers.insert(name, HeaderValue::from_static(version));
}

/// What is sent to one destination.
#[derive(Debug)]
pub(super) struct Formats(Mutex<State>);

#[derive(Debug)]
struct State {
    current: Format,
    proven: bool,
}

impl Formats {
    pub fn new(preferred: Format) -> Self {
        Self(Mutex::new(State {
            current: preferred,
            proven: false,
        }))
    }

    pub fn current(&self) -> Format {
        self.0.lock().current
    }

    /// Whether a body of this format has been taken.
    pub fn is_proven(&self, format: Format) -> bool {
        let state = self.0.lock();
        state.proven && state.current == format
    }

    /// A body of this format has been taken.
    pub fn prove(&self, format: Format) {
        let mut state = self.0.lock();
        state.proven |= state.current == format;
    }

    /// The destination does not read this format.
    pub fn fall_back(&self, format: Format, exporter: &str, reason: &str) {
        let mut state = self.0.lock();
        if state.current == format {
            *state = State {
                current: Format::V1,
                proven: false,
            };
            let refused = match format {
                Format::V2 => "remote write 2.0",
                _ => "zstd",
            };
            tracing::warn!(
                exporter,
                reason,
                "the destination does not take {refused}; sending remote write 1.0 under snappy from now on"
            );
        }
    }

    /// The body in the format that the destination reads, where it is another.
    pub fn fit(&self, body: &Body) -> Option<Body> {
        let current = self.current();
        if body.format == current {
            return None;
        }
        converted(body, current)
    }
}
