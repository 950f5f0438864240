//! Recognising resources by their length and two ids while a body streams by.
//!
//! A gateway that lays bodies end to end, or splits between resources, leaves `Resource*` messages as the
//! load made them. Of such a message the first id, the last id and the length say everything as long as
//! nobody tampers with it, and the bytes in between can be discarded without being copied out of the kernel.
//! An outline is only trusted after whole messages of its length have been read item by item and agreed with
//! it; one disagreement ends that for good.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use sluice_loadgen::{Outline, Signal};

use crate::account::Arrivals;

/// Whole messages that must agree with an outline before it is trusted.
const TRUST_AFTER: i32 = 8;

/// The tag of `Resource*` in every export request: field 1, length-delimited.
const RESOURCE_TAG: u8 = 0x0a;

/// Longest key and length of a field: one byte of tag, five of a 32-bit length.
const HEADER_LEN: u64 = 6;

/// The bytes of a body, some of which nobody needs.
pub(crate) trait Stream {
    /// Appends exactly `len` bytes to `out`.
    fn read(&mut self, len: u64, out: &mut Vec<u8>) -> io::Result<()>;
    /// Passes over exactly `len` bytes.
    fn discard(&mut self, len: u64) -> io::Result<()>;
}

/// All outlines of one length.
#[derive(Debug)]
struct Length {
    len: usize,
    outlines: Vec<Outline>,
    /// The first bytes that hold the first id of every outline.
    head: usize,
    /// From where on the last id of every outline stands.
    tail: usize,
    /// Messages that have agreed; negative once one has not.
    agreed: AtomicI32,
}

/// The outlines of one signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recogniser(Vec<Arc<Length>>);

impl Recogniser {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, outlines: &[Outline]) {
        for outline in outlines {
            let at = self.0.iter().position(|length| length.len == outline.len);
            if at.is_some_and(|at| self.0[at].outlines.contains(outline)) {
                continue;
            }
            // A length with a new outline has to earn its trust anew.
            let mut known = at.map_or_else(Vec::new, |at| self.0.swap_remove(at).outlines.clone());
            known.push(*outline);
            // Both ids have at most eight bytes.
            let head = known.iter().map(|outline| outline.id_at + 8).max().unwrap_or(0);
            let tail = known.iter().map(|outline| outline.last_id_at).min().unwrap_or(0);
            self.0.push(Arc::new(Length {
                len: outline.len,
                head: head.min(outline.len),
                tail,
                outlines: known,
                agreed: AtomicI32::new(0),
            }));
        }
    }

    /// Reads a body of `len` bytes to its end and finds its ids. An error of the outer kind is the
    /// connection's, of the inner kind the body's.
    pub(crate) fn scan(
        &self,
        signal: Signal,
        len: u64,
        stream: &mut impl Stream,
    ) -> io::Result<Result<Arrivals, String>> {
        let mut arrivals = Arrivals::default();
        let mut left = len;
        let mut pending = Vec::new();
        while left > 0 || !pending.is_empty() {
            let want = HEADER_LEN.saturating_sub(pending.len() as u64).min(left);
            stream.read(want, &mut pending)?;
            left -= want;
            let Some((header_len, message_len)) = header(&pending) else {
                stream.discard(left)?;
                return Ok(Err("a field that is no resource".into()));
            };
            pending.drain(..header_len);
            let buffered = message_len.min(pending.len());
            let mut message: Vec<u8> = pending.drain(..buffered).collect();
            let missing = (message_len - buffered) as u64;
            if missing > left {
                stream.discard(left)?;
                return Ok(Err("a resource that ends after the body".into()));
            }
            left -= missing;
            let length = self.0.iter().find(|length| length.len == message_len);
            if let Some(length) = length.filter(|length| length.agreed.load(Relaxed) >= TRUST_AFTER) {
                match length.skim(signal, &mut message, stream)? {
                    Some(ids) => arrivals.push(ids),
                    None => {
                        stream.discard(left)?;
                        return Ok(Err(
                            "a resource as long as one that was sent, with other ids".into()
                        ));
                    }
                }
                continue;
            }
            stream.read(missing, &mut message)?;
            let mut request = pending_header(message_len);
            request.extend_from_slice(&message);
            let found = match Arrivals::find(signal, &request) {
                Ok(found) => found,
                Err(error) => {
                    stream.discard(left)?;
                    return Ok(Err(error));
                }
            };
            if let Some(length) = length {
                length.compare(signal, &message, &found);
            }
            arrivals.unmarked += found.unmarked;
            for run in found.runs {
                arrivals.push(run);
            }
        }
        Ok(Ok(arrivals))
    }
}

impl Length {
    /// The ids of a message of which only head and tail are read; `message` holds its first bytes.
    fn skim(
        &self,
        signal: Signal,
        message: &mut Vec<u8>,
        stream: &mut impl Stream,
    ) -> io::Result<Option<Range<u64>>> {
        let head = self.head.max(message.len());
        stream.read((head - message.len()) as u64, message)?;
        let tail_at = self.tail.max(head);
        stream.discard((tail_at - head) as u64)?;
        let mut tail = Vec::new();
        stream.read((self.len - tail_at) as u64, &mut tail)?;
        let read = |at: usize| match at.checked_sub(tail_at) {
            Some(in_tail) => Outline::read_id(signal, tail.get(in_tail..)?),
            None => Outline::read_id(signal, message.get(at..)?),
        };
        Ok(self.ids(read))
    }

    /// The ids that one of the outlines reads, if its first and last are as far apart as they should be.
    fn ids(&self, read: impl Fn(usize) -> Option<u64>) -> Option<Range<u64>> {
        self.outlines.iter().find_map(|outline| {
            let first = read(outline.id_at)?;
            let end = first + u64::from(outline.items);
            (read(outline.last_id_at)? + 1 == end).then_some(first..end)
        })
    }

    /// Gains or loses trust by a message that has been read item by item.
    fn compare(&self, signal: Signal, message: &[u8], found: &Arrivals) {
        let skimmed = self.ids(|at| Outline::read_id(signal, message.get(at..)?));
        let agrees = found.unmarked == 0 && skimmed.is_some_and(|ids| found.runs == [ids]);
        if !agrees {
            self.agreed.store(i32::MIN, Relaxed);
        } else if self.agreed.load(Relaxed) >= 0 {
            self.agreed.fetch_add(1, Relaxed);
        }
    }
}

/// Length of a resource's key and length, and the length itself.
fn header(bytes: &[u8]) -> Option<(usize, usize)> {
    if *bytes.first()? != RESOURCE_TAG {
        return None;
    }
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        value |= usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some((at + 1, value));
        }
    }
    None
}

fn pending_header(mut len: usize) -> Vec<u8> {
    let mut header = vec![RESOURCE_TAG];
    while len >= 0x80 {
        header.push(len as u8 | 0x80);
        len >>= 7;
    }
    header.push(len as u8);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_loadgen::{Generator, Spec};

    struct Bytes<'a> {
        left: &'a [u8],
        discarded: usize,
    }

    impl Stream for Bytes<'_> {
        fn read(&mut self, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
            let (now, left) = self.left.split_at(len as usize);
            out.extend_from_slice(now);
            self.left = left;
            Ok(())
        }

        fn discard(&mut self, len: u64) -> io::Result<()> {
            self.left = &self.left[len as usize..];
            self.discarded += len as usize;
            Ok(())
        }
    }

    fn scan(recogniser: &Recogniser, signal: Signal, body: &[u8]) -> (Result<Arrivals, String>, usize) {
        let mut stream = Bytes {
            left: body,
            discarded: 0,
        };
        let found = recogniser.scan(signal, body.len() as u64, &mut stream).unwrap();
        assert!(stream.left.is_empty(), "read to the end");
        (found, stream.discarded)
    }

    fn recogniser(generator: &Generator) -> Recogniser {
        let mut recogniser = Recogniser::default();
        recogniser.add(&generator.outlines());
        recogniser
    }

    /// Scenario: bodies of all signals, one and several resources, laid end to end by threes.
    /// Guarantees: every id is found, from the first body on, and soon most bytes are not read any more.
    #[test]
    fn batches_are_recognised() {
        for signal in Signal::ALL {
            for spec in [Spec::gateway(signal), Spec::mixed(signal)] {
                let mut generator = Generator::new(spec.clone());
                let recogniser = recogniser(&generator);
                let (mut discarded, mut read) = (0, 0);
                for _ in 0..100 {
                    let requests: Vec<_> = (0..3).map(|_| generator.next_request()).collect();
                    let body: Vec<u8> = requests
                        .iter()
                        .flat_map(|request| request.body.to_vec())
                        .collect();
                    let (found, skipped) = scan(&recogniser, signal, &body);
                    assert_eq!(
                        found.unwrap().runs,
                        vec![requests[0].first_id..requests[2].ids().end; 1]
                    );
                    discarded += skipped;
                    read += body.len() - skipped;
                }
                // The mixed payload has small resources, whose head is a good part of them.
                let wanted = if spec == Spec::gateway(signal) {
                    2 * read
                } else {
                    read / 4
                };
                assert!(discarded > wanted, "{signal}: {discarded} discarded, {read} read");
            }
        }
    }

    /// Scenario: once outlines are trusted, a body comes with one item taken out; then one whose ids are not
    /// those of a request, at the same length.
    /// Guarantees: the first is read item by item, and the missing id is missing; the second is an error, not
    /// items.
    #[test]
    fn what_was_changed_is_not_recognised() {
        let signal = Signal::Logs;
        let spec = Spec {
            variants: 1,
            ..Spec::gateway(signal).items(50)
        };
        let mut generator = Generator::new(spec.clone());
        let recogniser = recogniser(&generator);
        for _ in 0..20 {
            let body = generator.next_request().body;
            assert!(scan(&recogniser, signal, &body).0.is_ok());
        }
        let request = generator.next_request();
        let shorter = Generator::new(Spec {
            first_id: request.first_id,
            ..spec.items(49)
        })
        .next_request();
        let (found, discarded) = scan(&recogniser, signal, &shorter.body);
        assert_eq!(
            found.unwrap().runs,
            vec![request.first_id..request.first_id + 49; 1]
        );
        assert_eq!(discarded, 0);

        let mut tampered = request.body.to_vec();
        let outline = generator.outlines()[0];
        let at = tampered.len() - outline.len + outline.last_id_at;
        tampered[at] ^= 1;
        let (found, _) = scan(&recogniser, signal, &tampered);
        assert!(found.unwrap_err().contains("other ids"));
    }

    /// Scenario: a gateway that leaves lengths alone and moves items, from the start.
    /// Guarantees: its messages are never trusted: every one is read whole.
    #[test]
    fn trust_is_earned() {
        let signal = Signal::Logs;
        let mut generator = Generator::new(Spec {
            variants: 1,
            ..Spec::gateway(signal).items(50)
        });
        let recogniser = recogniser(&generator);
        let outline = generator.outlines()[0];
        for _ in 0..30 {
            let mut body = generator.next_request().body.to_vec();
            let resource_at = body.len() - outline.len;
            body[resource_at + outline.last_id_at] ^= 1;
            let (found, discarded) = scan(&recogniser, signal, &body);
            assert!(found.is_ok());
            assert_eq!(discarded, 0);
        }
    }
}
