//! From OTLP bytes to bodies that are ready to be sent.

use bytes::Bytes;
use sluice_relabel::Rules;

use crate::dropped::Reason;
use crate::mapping::Mapping;
use crate::relabelled::Relabelled;
use crate::transcode::{Outcome, Transcoder};
use crate::v1::V1;

/// What the bodies are made like.
#[derive(Debug, Clone)]
pub struct EncoderSettings {
    /// How OTLP maps to series.
    pub mapping: Mapping,
    /// Lanes: all samples of a series are in one lane, in the order they came in.
    pub lanes: usize,
    /// A body ends before it is larger than this, before compression, unless it is a single series.
    pub max_body_bytes: usize,
    /// Whether metadata of the metrics is sent.
    pub metadata: bool,
    /// Applied to the labels of every series, external ones included, before it is written.
    pub relabel: Rules,
}

impl Default for EncoderSettings {
    fn default() -> Self {
        Self {
            mapping: Mapping::default(),
            lanes: 1,
            max_body_bytes: 3_000_000,
            metadata: false,
            relabel: Rules::default(),
        }
    }
}

/// The body of one request.
#[derive(Debug, Clone)]
pub struct Body {
    /// A snappy block.
    pub bytes: Bytes,
    /// What is in it.
    pub written: Written,
}

/// How much a body holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// `TimeSeries` messages.
    pub series: u64,
    /// Float samples.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

/// The bodies of each lane, in the order they are to be sent in.
pub type Lanes = Vec<Vec<Body>>;

impl Body {
    pub(crate) fn compress(body: &[u8], written: Written) -> Self {
        let mut out = vec![0; snap::raw::max_compress_len(body.len())];
        let len = snap::raw::Encoder::new()
            .compress(body, &mut out)
            .expect("the buffer is as long as max_compress_len says");
        out.truncate(len);
        Self {
            bytes: out.into(),
            written,
        }
    }
}

/// Turns OTLP metrics into remote-write bodies.
#[derive(Debug)]
pub struct Encoder {
    transcoder: Transcoder,
    relabelled: Relabelled,
    v1: V1,
}

impl Encoder {
    /// An encoder that has made nothing yet.
    #[must_use]
    pub fn new(settings: EncoderSettings) -> Self {
        Self {
            v1: V1::new(settings.lanes, settings.max_body_bytes, settings.metadata),
            relabelled: Relabelled::new(settings.relabel),
            transcoder: Transcoder::new(settings.mapping),
        }
    }

    /// The bodies for an OTLP metrics request, which is `parts` laid end to end, and what came of its points.
    pub fn encode(&mut self, parts: &[&[u8]]) -> (Lanes, Outcome) {
        let mut sink = self.relabelled.before(&mut self.v1);
        let mut outcome = self.transcoder.run(parts, &mut sink);
        let dropped = self.relabelled.take_dropped_points();
        outcome.points -= dropped;
        outcome.dropped.add(Reason::Relabel, dropped);
        (self.v1.finish(), outcome)
    }
}
