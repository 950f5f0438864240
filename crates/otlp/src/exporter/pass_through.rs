//! Sending compressed frames on as they came, instead of compressing their content again.
//!
//! zstd frames and gzip members laid end to end are one valid body (RFC 8878, 3.1; RFC 1952, 2.2), just as the
//! requests in them are. A destination that stops after the first frame would however lose the rest without
//! anybody noticing, and some do. So frames are passed through only where somebody said that the destination reads
//! all of them, or where a probe showed it: an empty frame followed by a broken one, which only a destination that
//! looks at the second frame refuses.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use sluice_client::{Compression, Egress, EgressPermit, Slices, compress, compress_slices, expected_bytes};
use sluice_payload::Encoding;
use sluice_pipeline::{Batch, Part, Verdict};
use tokio::time::Instant;

/// Frames of shorter requests are not passed on: compressed together they take fewer bytes.
pub const MIN_FRAME_BODY_BYTES: usize = 16 << 10;

/// A probe that was not answered, or whose answer says nothing, is repeated no sooner than this.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// Whether frames are passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PassThroughMode {
    /// Never: everything is compressed here.
    #[default]
    Never,
    /// Once a probe has shown that the destination reads all frames of a body.
    Probe,
    /// Always: the operator knows that the destination does.
    Always,
}

/// The destination is to be probed.
const UNKNOWN: u8 = 0;
/// It reads all frames of a body.
const READS: u8 = 1;
/// Nothing is passed through: it stops after the first frame or refused some, or nobody wants it.
const OFF: u8 = 2;

/// What an answer to the probe means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probed {
    /// The broken frame was noticed.
    Refused,
    /// It was taken: nobody looked behind the first frame.
    Taken,
    /// No answer, or one about something else.
    Inconclusive,
}

/// One destination's readiness for frames.
///
/// An exporter asks [`ready`](Self::ready) for each batch. Where it is, [`assemble`](Self::assemble) makes the body
/// and [`settle`](Self::settle) has the last word on its verdict; where it is not, the exporter compresses as ever.
#[derive(Debug)]
pub(crate) struct PassThrough {
    compression: Compression,
    /// [`Encoding::Identity`], which no frame has, where none can be laid end to end.
    encoding: Encoding,
    state: AtomicU8,
    next_probe: Mutex<Option<Instant>>,
}

impl PassThrough {
    /// For a destination whose bodies are compressed with `compression`; only zstd frames and gzip members can be
    /// laid end to end, with anything else nothing is passed through whatever the mode.
    pub fn new(mode: PassThroughMode, compression: Compression) -> Self {
        let (encoding, state) = match (compression, mode) {
            (Compression::Zstd, mode) => (Encoding::Zstd, first_state(mode)),
            (Compression::Gzip, mode) => (Encoding::Gzip, first_state(mode)),
            _ => (Encoding::Identity, OFF),
        };
        Self {
            compression,
            encoding,
            state: AtomicU8::new(state),
            next_probe: Mutex::new(None),
        }
    }

    /// The frames that can be used; `None` where nothing is passed through, or no longer.
    pub fn encoding(&self) -> Option<Encoding> {
        (self.state.load(Ordering::Relaxed) != OFF).then_some(self.encoding)
    }

    /// `self` when `batch`, which is about to be sent with `compression`, has frames to pass through and the
    /// destination reads all of a body's. Where that is not known yet it is probed first, if it is time:
    /// `send_probe` sends this body and says what the answer means.
    pub async fn ready<P>(
        &self,
        batch: &Batch,
        compression: Compression,
        send_probe: impl FnOnce(Bytes) -> P,
    ) -> Option<&Self>
    where
        P: Future<Output = Probed>,
    {
        if !self.applies(batch, compression) {
            return None;
        }
        if self.probe_is_due(Instant::now())
            && let Ok(body) = self.probe()
        {
            self.probed(send_probe(body).await);
        }
        self.is_read().then_some(self)
    }

    /// The verdict on a body of passed-through frames: before the payload is blamed, the destination gets what is
    /// compressed here, and so it does from now on.
    pub fn settle(&self, verdict: Verdict) -> Verdict {
        let Verdict::PayloadFault { reason } = verdict else {
            return verdict;
        };
        if self.state.swap(OFF, Ordering::Relaxed) != OFF {
            tracing::warn!(encoding = %self.encoding, "the destination refused a body of frames passed through; bodies are compressed again from now on");
        }
        Verdict::Retry {
            after: Some(Duration::ZERO),
            reason: format!("{reason}; sent as frames passed through"),
        }
    }

    fn applies(&self, batch: &Batch, compression: Compression) -> bool {
        compression == self.compression
            && self.state.load(Ordering::Relaxed) != OFF
            && batch.parts.iter().any(|part| self.frame(part).is_some())
    }

    /// Whether the destination reads all frames.
    fn is_read(&self) -> bool {
        self.state.load(Ordering::Relaxed) == READS
    }

    /// Whether the caller is to probe now. It is told so once for each interval.
    fn probe_is_due(&self, now: Instant) -> bool {
        if self.state.load(Ordering::Relaxed) != UNKNOWN {
            return false;
        }
        let mut next = self.next_probe.lock();
        let due = next.is_none_or(|next| now >= next);
        if due {
            *next = Some(now + PROBE_INTERVAL);
        }
        due
    }

    /// The body of a probe: an empty request, then a broken frame.
    fn probe(&self) -> io::Result<Bytes> {
        let mut body = BytesMut::from(&compress(self.compression, 1, [&b""[..]], 0)?[..]);
        let broken: &[u8] = match self.compression {
            // Magic number, a header (single segment, content size 1), a block of the reserved type.
            Compression::Zstd => &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x01, 0x07, 0x00, 0x00],
            // A whole member with one stored byte; CRC-32 and length are wrong.
            _ => &[
                0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0x01, 1, 0, 0xfe, 0xff, b'?', 0xde, 0xad, 0xbe, 0xef,
                9, 0, 0, 0,
            ],
        };
        body.extend_from_slice(broken);
        Ok(body.freeze())
    }

    /// Takes up the answer to a probe.
    fn probed(&self, answer: Probed) {
        match answer {
            Probed::Refused => {
                self.state.store(READS, Ordering::Relaxed);
                tracing::info!(encoding = %self.encoding, "the destination reads every frame of a body; frames are passed through");
            }
            Probed::Taken => {
                self.state.store(OFF, Ordering::Relaxed);
                tracing::warn!(encoding = %self.encoding, "the destination reads only the first frame of a body; nothing is passed through");
            }
            Probed::Inconclusive => {}
        }
    }

    /// The frames of `batch` laid end to end; runs of parts without one are compressed into one frame each.
    pub async fn assemble(&self, batch: &Batch, level: i32, egress: &Egress) -> io::Result<Slices> {
        let mut frames: Vec<Bytes> = Vec::with_capacity(batch.parts.len());
        let mut run: Vec<Bytes> = Vec::new();
        let mut permit = egress.reserve(self.expected(batch)).await;
        for part in &batch.parts {
            match self.frame(part) {
                Some(frame) => {
                    self.pack(&mut run, level, &mut permit, &mut frames).await?;
                    frames.push(frame.clone());
                }
                None => run.push(part.body.clone()),
            }
        }
        self.pack(&mut run, level, &mut permit, &mut frames).await?;
        Ok(Slices::new(frames))
    }

    async fn pack(
        &self,
        run: &mut Vec<Bytes>,
        level: i32,
        permit: &mut EgressPermit,
        frames: &mut Vec<Bytes>,
    ) -> io::Result<()> {
        if !run.is_empty() {
            let slices = Slices::new(run.drain(..));
            frames.push(compress_slices(self.compression, level, &slices, permit).await?);
        }
        Ok(())
    }

    /// What compressing the parts without a frame is expected to take.
    fn expected(&self, batch: &Batch) -> usize {
        let parts = batch.parts.iter().filter(|part| self.frame(part).is_none());
        match parts.map(|part| part.body.len()).sum() {
            0 => 0,
            bytes => expected_bytes(self.compression, bytes),
        }
    }

    fn frame<'a>(&self, part: &'a Part) -> Option<&'a Bytes> {
        let frame = part.frame.as_ref()?;
        (frame.encoding == self.encoding && part.body.len() >= MIN_FRAME_BODY_BYTES).then_some(&frame.bytes)
    }
}

fn first_state(mode: PassThroughMode) -> u8 {
    match mode {
        PassThroughMode::Never => OFF,
        PassThroughMode::Probe => UNKNOWN,
        PassThroughMode::Always => READS,
    }
}

#[cfg(test)]
mod tests {
    use sluice_client::inflate;
    use sluice_payload::{Frame, Signal, WireFormat};

    use super::*;

    fn part(fill: u8, len: usize, compression: Option<(Compression, Encoding)>) -> Part {
        let body = Bytes::from(vec![fill; len]);
        let frame = compression.map(|(compression, encoding)| Frame {
            encoding,
            bytes: compress(compression, 1, [&body[..]], len).unwrap().into(),
        });
        Part {
            body,
            items: 1,
            wire_format: WireFormat::Otlp,
            frame,
        }
    }

    /// Scenario: parts with a frame, with a frame of another encoding, too short ones, in a row.
    /// Guarantees: what is sent inflates to the parts in their order, and a frame that fits is sent as it came.
    #[tokio::test]
    async fn frames_and_the_rest_are_one_body() {
        let zstd = Some((Compression::Zstd, Encoding::Zstd));
        let gzip = Some((Compression::Gzip, Encoding::Gzip));
        for (compression, own, other) in [(Compression::Zstd, zstd, gzip), (Compression::Gzip, gzip, zstd)] {
            let pass = PassThrough::new(PassThroughMode::Always, compression);
            let batch = Batch {
                signal: Signal::Logs,
                parts: vec![
                    part(1, 100, own),
                    part(2, MIN_FRAME_BODY_BYTES, other),
                    part(3, MIN_FRAME_BODY_BYTES, own),
                    part(4, 2 * MIN_FRAME_BODY_BYTES, own),
                    part(5, 7, None),
                ],
            };
            assert!(pass.applies(&batch, compression));
            let sent = pass
                .assemble(&batch, 1, &Egress::new(Default::default()))
                .await
                .unwrap();
            let laid: Vec<u8> = sent.iter().flat_map(|slice| slice.to_vec()).collect();
            let content = inflate(compression, &laid, 1 << 20).unwrap();
            let expected: Vec<u8> = batch.parts.iter().flat_map(|part| part.body.to_vec()).collect();
            assert!(content == expected);
            let frame = &batch.parts[3].frame.as_ref().unwrap().bytes;
            assert!(laid.windows(frame.len()).any(|window| window == frame));
        }
    }

    /// Scenario: the probe's body, given to readers that read all frames, and to ones that stop after the first.
    /// Guarantees: the former refuse it; the latter see an empty request.
    #[test]
    fn only_who_reads_on_refuses_the_probe() {
        for compression in [Compression::Zstd, Compression::Gzip] {
            let body = PassThrough::new(PassThroughMode::Probe, compression)
                .probe()
                .unwrap();
            assert!(inflate(compression, &body, 1 << 20).is_err(), "{compression:?}");
            let mut first = Vec::new();
            match compression {
                Compression::Zstd => {
                    let reader = zstd::stream::read::Decoder::with_buffer(&body[..])
                        .unwrap()
                        .single_frame();
                    io::copy(&mut { reader }, &mut first).unwrap();
                }
                _ => {
                    io::copy(&mut flate2::read::GzDecoder::new(&body[..]), &mut first).unwrap();
                }
            }
            assert!(first.is_empty());
        }
    }

    /// Scenario: a destination that does not answer probes, then answers one; one that refuses frames later.
    /// Guarantees: one probe an interval while nothing is known, none after; a refusal is retried otherwise, for good.
    #[tokio::test(start_paused = true)]
    async fn what_is_known_about_a_destination() {
        let zstd = Compression::Zstd;
        let batch = Batch {
            signal: Signal::Logs,
            parts: vec![part(1, MIN_FRAME_BODY_BYTES, Some((zstd, Encoding::Zstd)))],
        };
        let pass = PassThrough::new(PassThroughMode::Probe, zstd);
        // Whether frames are passed through, and whether there was a probe, which is answered so.
        let send = async |pass: &PassThrough, answer| {
            let mut probed = false;
            let ready = pass.ready(&batch, zstd, |_| {
                probed = true;
                std::future::ready(answer)
            });
            (ready.await.is_some(), probed)
        };
        assert_eq!(send(&pass, Probed::Inconclusive).await, (false, true));
        assert_eq!(
            send(&pass, Probed::Refused).await,
            (false, false),
            "one at a time"
        );
        tokio::time::advance(PROBE_INTERVAL).await;
        assert_eq!(send(&pass, Probed::Refused).await, (true, true));
        tokio::time::advance(PROBE_INTERVAL).await;
        assert_eq!(send(&pass, Probed::Taken).await, (true, false));
        let delivered = Verdict::Delivered {
            rejected: 0,
            message: None,
        };
        assert!(matches!(pass.settle(delivered), Verdict::Delivered { .. }));
        assert_eq!(pass.encoding(), Some(Encoding::Zstd));
        let reason = "400".to_owned();
        let settled = pass.settle(Verdict::PayloadFault { reason });
        assert!(matches!(settled, Verdict::Retry { .. }), "{settled:?}");
        assert_eq!(send(&pass, Probed::Refused).await, (false, false));
        assert_eq!(pass.encoding(), None);

        let stops = PassThrough::new(PassThroughMode::Probe, zstd);
        assert_eq!(send(&stops, Probed::Taken).await, (false, true));
        assert_eq!(stops.encoding(), None);
        let snappy = PassThrough::new(PassThroughMode::Always, Compression::Snappy);
        let never = PassThrough::new(PassThroughMode::Never, zstd);
        assert_eq!((snappy.encoding(), never.encoding()), (None, None));
    }
}
