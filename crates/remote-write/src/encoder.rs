//! From OTLP bytes, and from remote write as it came, to bodies that are ready to be sent.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use sluice_client::Compression;
use sluice_journal::{Clock, SystemClock};
use sluice_payload::WireFormat;
use sluice_relabel::Rules;

use crate::body::{Format, Lanes};
use crate::cumulative::{Change, Cumulative, Fault, TotalsFile};
use crate::decode::Version;
use crate::dropped::Reason;
use crate::lane_set::LaneSet;
use crate::mapping::Mapping;
use crate::relabelled::Relabelled;
use crate::snappy;
use crate::through::Through;
use crate::transcode::{Outcome, Sink, Transcoder};
use crate::v1::{self, V1};
use crate::v2::V2;

/// What the bodies are made like.
#[derive(Debug, Clone)]
pub struct EncoderSettings {
    /// What bodies are.
    pub format: Format,
    /// How OTLP maps to series.
    pub mapping: Mapping,
    /// Lanes: all samples of a series are in one lane, in the order they came in.
    pub lanes: usize,
    /// A body ends before it is larger than this, before compression, unless it is a single series.
    pub max_body_bytes: usize,
    /// Whether metadata of the metrics is sent in 1.0. In 2.0 it is a part of every series.
    pub metadata: bool,
    /// Series of delta temporality whose totals are kept, for [`Mapping::delta_to_cumulative`].
    pub max_delta_series: usize,
    /// Where those totals are kept over a restart; without it they begin anew.
    pub totals: Option<TotalsFile>,
    /// Applied to the labels of every series, external ones included, before it is written.
    pub relabel: Rules,
}

impl Default for EncoderSettings {
    fn default() -> Self {
        Self {
            format: Format::V1,
            mapping: Mapping::default(),
            lanes: 1,
            max_body_bytes: 3_000_000,
            metadata: false,
            max_delta_series: 100_000,
            totals: None,
            relabel: Rules::default(),
        }
    }
}

/// Turns OTLP metrics into remote-write bodies, and hands remote write through.
#[derive(Debug)]
pub struct Encoder {
    transcoder: Transcoder,
    through: Through,
    cumulative: Cumulative,
    relabelled: Relabelled,
    writer: Writer,
    lanes: usize,
    max_body_bytes: usize,
    metadata: bool,
    /// What the age of totals goes by.
    clock: Arc<dyn Clock>,
    /// A request is being encoded; found at the beginning of one: the one before it ended in a panic.
    is_encoding: bool,
}

#[derive(Debug)]
enum Writer {
    V1(V1<snappy::Block>),
    V1Zstd(V1<UnderZstd>),
    V2(V2),
}

impl Writer {
    fn new(format: Format, lanes: usize, max_body_bytes: usize, metadata: bool) -> Self {
        match format {
            Format::V1 => Writer::V1(V1::new(lanes, max_body_bytes, metadata)),
            Format::V1Zstd => Writer::V1Zstd(V1::new(lanes, max_body_bytes, metadata)),
            Format::V2 => Writer::V2(V2::new(lanes, max_body_bytes)),
        }
    }
}

impl Encoder {
    /// An encoder that has made nothing yet.
    #[must_use]
    pub fn new(settings: EncoderSettings) -> Self {
        let (lanes, max, metadata) = (settings.lanes, settings.max_body_bytes, settings.metadata);
        let adds_up = settings.mapping.delta_to_cumulative;
        Self {
            through: Through::new(&settings.mapping.external_labels),
            transcoder: Transcoder::new(settings.mapping),
            cumulative: Cumulative::new(settings.max_delta_series, settings.totals.filter(|_| adds_up)),
            relabelled: Relabelled::new(settings.relabel),
            writer: Writer::new(settings.format, lanes, max, metadata),
            lanes,
            max_body_bytes: max,
            metadata,
            clock: Arc::new(SystemClock),
            is_encoding: false,
        }
    }

    /// From now on this is the time.
    #[cfg(test)]
    pub(crate) fn set_clock(&mut self, clock: impl Clock + 'static) {
        self.clock = Arc::new(clock);
    }

    /// From the next request on its bodies are of this format.
    pub fn set_format(&mut self, format: Format) {
        if self.format() != format {
            self.writer = Writer::new(format, self.lanes, self.max_body_bytes, self.metadata);
        }
    }

    /// From the next request on series are this tenant's: those of others with the same labels are other series. `None`: they are nobody's.
    pub(crate) fn set_tenant(&mut self, tenant: Option<Arc<str>>) {
        self.cumulative.set_tenant(tenant);
    }

    /// What its bodies are.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.writer {
            Writer::V1(_) => Format::V1,
            Writer::V1Zstd(_) => Format::V1Zstd,
            Writer::V2(_) => Format::V2,
        }
    }

    /// Whether encoding waits for a file.
    #[must_use]
    pub fn waits_for_a_file(&self) -> bool {
        self.cumulative.has_file()
    }

    /// What the last request has made of the totals of deltas: to be [told](Self::comes_again) when it will be encoded once more.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.cumulative.take_changes()
    }

    /// The request that made these changes comes once more, or parts of it: its points get the totals that they had.
    pub(crate) fn comes_again(&mut self, changes: Vec<Change>) {
        self.cumulative.comes_again(changes);
    }

    /// Why totals do not go on after a restart, as often as that came to be known.
    pub(crate) fn take_faults(&mut self) -> Vec<Fault> {
        self.cumulative.take_faults()
    }

    /// The bodies for an OTLP metrics request, which is `parts` laid end to end, and what came of its points.
    pub fn encode(&mut self, parts: &[&[u8]]) -> (Lanes, Outcome) {
        let parts: Vec<_> = parts.iter().map(|part| (WireFormat::Otlp, *part)).collect();
        self.encode_all(&parts)
    }

    /// The bodies for parts of a batch in the order they came in, of which those of OTLP that follow each other are one request, and
    /// each of remote write is one.
    pub fn encode_all(&mut self, parts: &[(WireFormat, &[u8])]) -> (Lanes, Outcome) {
        self.encode_but(parts, &[])
    }

    /// The same, where `delivered` says of each part in which lanes it has been delivered: its series in them are left out. It may be empty.
    pub(crate) fn encode_but(
        &mut self,
        parts: &[(WireFormat, &[u8])],
        delivered: &[LaneSet],
    ) -> (Lanes, Outcome) {
        self.begin();
        let out = self.format().version();
        let mut steps = Steps {
            transcoder: &mut self.transcoder,
            through: &mut self.through,
            cumulative: &mut self.cumulative,
            relabelled: &mut self.relabelled,
        };
        let made = match &mut self.writer {
            Writer::V1(writer) => {
                let outcome = steps.run(parts, delivered, out, writer);
                (writer.finish(), outcome)
            }
            Writer::V1Zstd(writer) => {
                let outcome = steps.run(parts, delivered, out, writer);
                (writer.finish(), outcome)
            }
            Writer::V2(writer) => {
                let outcome = steps.run(parts, delivered, out, writer);
                (writer.finish(), outcome)
            }
        };
        self.is_encoding = false;
        made
    }

    /// Begins a request. Of one before it that ended in a panic, and will come again, nothing is left in the bodies and the counts.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_encoding, true) {
            self.writer = Writer::new(self.format(), self.lanes, self.max_body_bytes, self.metadata);
            self.cumulative.forget_request();
            self.relabelled.take_dropped_points();
        }
        let since_1970 = self.clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        let now_ms = i64::try_from(since_1970.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        self.cumulative.begin(now_ms, self.clock.now());
    }
}

/// What series go through before they are written.
struct Steps<'e> {
    transcoder: &'e mut Transcoder,
    through: &'e mut Through,
    cumulative: &'e mut Cumulative,
    relabelled: &'e mut Relabelled,
}

impl Steps<'_> {
    fn run(
        &mut self,
        parts: &[(WireFormat, &[u8])],
        delivered: &[LaneSet],
        out: Version,
        writer: &mut impl Sink,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let nowhere = LaneSet::default();
        let delivered = delivered.iter().chain(std::iter::repeat(&nowhere));
        let parts: Vec<_> = parts.iter().zip(delivered).collect();
        for parts in parts.chunk_by(|(a, in_a), (b, in_b)| a.0 == b.0 && in_a == in_b) {
            let ((format, _), delivered) = parts[0];
            writer.leave_out(delivered);
            let mut relabelled = self.relabelled.before(writer);
            let version = match format {
                WireFormat::Otlp => {
                    let parts: Vec<&[u8]> = parts.iter().map(|((_, body), _)| *body).collect();
                    let mut totals = self.cumulative.before(&mut relabelled);
                    outcome.add(&self.transcoder.run(&parts, &mut totals));
                    continue;
                }
                WireFormat::RemoteWrite1 => Version::V1,
                WireFormat::RemoteWrite2 => Version::V2,
            };
            for ((_, body), _) in parts {
                outcome.add(&self.through.run(version, body, out, &mut relabelled));
            }
        }
        writer.leave_out(&nowhere);
        let [out_of_order, no_room, invalid] = self.cumulative.end();
        for (reason, points) in [
            (Reason::DeltaOrder, out_of_order),
            (Reason::DeltaRoom, no_room),
            (Reason::Histogram, invalid),
            (Reason::Relabel, self.relabelled.take_dropped_points()),
        ] {
            outcome.points -= points;
            outcome.dropped.add(reason, points);
        }
        outcome
    }
}

/// A body of 1.0 that is compressed when it is complete: zstd finds repeats further back than snappy's writer can be told.
#[derive(Debug, Default)]
struct UnderZstd(Vec<u8>);

impl v1::Writer for UnderZstd {
    const FORMAT: Format = Format::V1Zstd;

    #[inline]
    fn position(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    #[inline]
    fn again(&mut self, len: usize, position: u64) -> bool {
        let start = position as usize;
        self.0.extend_from_within(start..start + len);
        true
    }

    #[inline]
    fn again_after(&mut self, _: usize, len: usize, position: u64) -> bool {
        self.again(len, position)
    }

    fn finish(&mut self) -> Bytes {
        let zstd = Compression::Zstd;
        let packed = sluice_client::compress(zstd, zstd.default_level(), [&self.0[..]], self.0.len());
        self.0.clear();
        packed.expect("zstd fails on no input").into()
    }
}

#[cfg(test)]
mod tests {
    use sluice_loadgen::{Generator, Signal, Spec};

    use super::*;
    use crate::mapping::Promote;

    /// Bytes of the bodies of 4,000 points with six attributes and ten of their resource, before compression and after it.
    fn bytes_in(format: Format) -> [usize; 2] {
        let mut generator = Generator::new(Spec::gateway(Signal::Metrics));
        let parts: Vec<_> = (0..8).map(|_| generator.next_request().body).collect();
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let mut encoder = Encoder::new(EncoderSettings {
            format,
            mapping: Mapping {
                promote: Promote::AllBut(Vec::new()),
                ..Mapping::default()
            },
            max_body_bytes: usize::MAX,
            ..EncoderSettings::default()
        });
        let (lanes, outcome) = encoder.encode(&parts);
        assert_eq!(outcome.points, 4000);
        let body = &lanes[0][0];
        [body.plain().unwrap().len(), body.bytes.len()]
    }

    /// Scenario: the points of the gateway comparison, all resource attributes as labels, in one body of either version.
    /// Guarantees: 2.0 has at most a quarter of 1.0's bytes before compression, and is not larger after it, although snappy takes
    /// out of 1.0 much of what 2.0 leaves out.
    #[test]
    fn the_second_version_is_a_quarter_of_the_first() {
        let (first, second) = (bytes_in(Format::V1), bytes_in(Format::V2));
        println!("1.0: {first:?}, 2.0: {second:?} bytes for 4,000 points");
        assert!(4 * second[0] <= first[0], "{first:?} {second:?}");
        assert!(second[1] <= first[1], "{first:?} {second:?}");
    }

    /// Scenario: a request is given up half way, as by a panic: what was written is not taken. Another one comes, and that again.
    /// Guarantees: the bodies are those of an encoder that has not had the first one, and no more is begun anew.
    #[test]
    fn what_a_panic_left_is_not_sent() {
        let mut generator = Generator::new(Spec::gateway(Signal::Metrics));
        let [first, second] = [(); 2].map(|()| generator.next_request().body);
        for format in [Format::V1, Format::V1Zstd, Format::V2] {
            let settings = EncoderSettings {
                format,
                ..EncoderSettings::default()
            };
            let mut encoder = Encoder::new(settings.clone());
            encoder.begin();
            let first = [(WireFormat::Otlp, &first[..])];
            let mut steps = Steps {
                transcoder: &mut encoder.transcoder,
                through: &mut encoder.through,
                cumulative: &mut encoder.cumulative,
                relabelled: &mut encoder.relabelled,
            };
            match &mut encoder.writer {
                Writer::V1(writer) => steps.run(&first, &[], format.version(), writer),
                Writer::V1Zstd(writer) => steps.run(&first, &[], format.version(), writer),
                Writer::V2(writer) => steps.run(&first, &[], format.version(), writer),
            };
            let (lanes, outcome) = encoder.encode(&[&second]);
            let (want, want_outcome) = Encoder::new(settings).encode(&[&second]);
            assert_eq!(outcome, want_outcome);
            assert_eq!(lanes[0].len(), want[0].len());
            for (body, want) in lanes[0].iter().zip(&want[0]) {
                assert!(body.plain().unwrap() == want.plain().unwrap(), "{format:?}");
                assert_eq!(body.written, want.written);
            }
            assert!(!encoder.is_encoding);
        }
    }
}
