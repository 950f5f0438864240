//! A request body that stays the slices it is made of.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// Slices shorter than this are copied together. h2 chains a frame only from 256 B on and refuses
/// to account for tiny ones cheaply (RUSTSEC-2026-0258); an iovec entry costs about what copying
/// 1 KiB costs.
const COALESCE_BELOW_BYTES: usize = 1024;

/// Bytes laid end to end without being copied together. Cloning shares them, so a request can be
/// sent a second time on another connection.
#[derive(Debug, Clone, Default)]
pub struct Slices {
    parts: Arc<[Bytes]>,
    len: usize,
}

impl Slices {
    /// Lays `parts` end to end, in order. Only runs of slices under 1 KiB are copied.
    pub fn new(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let mut kept: Vec<Bytes> = Vec::new();
        let mut small: VecDeque<Bytes> = VecDeque::new();
        let mut len = 0;
        for part in parts {
            if part.is_empty() {
                continue;
            }
            len += part.len();
            if part.len() < COALESCE_BELOW_BYTES {
                small.push_back(part);
            } else {
                kept.extend(join(&mut small));
                kept.push(part);
            }
        }
        kept.extend(join(&mut small));
        Self {
            parts: kept.into(),
            len,
        }
    }

    /// Length of all slices.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in them.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices, in order; none of them empty.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.parts.iter()
    }
}

impl From<Bytes> for Slices {
    fn from(bytes: Bytes) -> Self {
        Self::new([bytes])
    }
}

/// Copies a run of short slices into one; a run of one is kept as it is.
fn join(small: &mut VecDeque<Bytes>) -> Option<Bytes> {
    if small.len() <= 1 {
        return small.pop_front();
    }
    let mut joined = BytesMut::with_capacity(small.iter().map(Bytes::len).sum());
    for part in small.drain(..) {
        joined.extend_from_slice(&part);
    }
    Some(joined.freeze())
}

/// Reads [`Slices`] from front to back: one `Buf` per request, however many slices there are, so
/// that HTTP/1.1 writes them with `writev` and h2 makes one stream of full DATA frames of them.
#[derive(Debug)]
pub struct SlicesBuf {
    slices: Slices,
    /// The slice read from now.
    index: usize,
    /// Bytes of it already read.
    offset: usize,
    remaining: usize,
}

impl Buf for SlicesBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        match self.slices.parts.get(self.index) {
            Some(part) => &part[self.offset..],
            None => &[],
        }
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let mut offset = self.offset;
        let mut filled = 0;
        for (slot, part) in dst
            .iter_mut()
            .zip(self.slices.parts.get(self.index..).unwrap_or_default())
        {
            *slot = IoSlice::new(&part[offset..]);
            offset = 0;
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining, "cannot advance past the end");
        self.remaining -= count;
        while let Some(part) = self.slices.parts.get(self.index) {
            let left = part.len() - self.offset;
            if count < left {
                self.offset += count;
                return;
            }
            count -= left;
            self.index += 1;
            self.offset = 0;
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        let within = self
            .slices
            .parts
            .get(self.index)
            .map(|part| part.slice(self.offset..));
        match within {
            // A range of one slice is shared, not copied.
            Some(part) if len <= part.len() => {
                self.advance(len);
                part.slice(..len)
            }
            _ => {
                assert!(len <= self.remaining, "cannot copy past the end");
                let mut copied = BytesMut::with_capacity(len);
                while copied.len() < len {
                    let chunk = self.chunk();
                    let take = chunk.len().min(len - copied.len());
                    copied.extend_from_slice(&chunk[..take]);
                    self.advance(take);
                }
                copied.freeze()
            }
        }
    }
}

/// [`Slices`] as the body of a request: one data frame, its length known.
#[derive(Debug)]
pub(crate) struct SlicesBody(Option<SlicesBuf>);

impl SlicesBody {
    pub(crate) fn new(slices: &Slices) -> Self {
        Self((!slices.is_empty()).then(|| SlicesBuf {
            slices: slices.clone(),
            index: 0,
            offset: 0,
            remaining: slices.len,
        }))
    }
}

impl Body for SlicesBody {
    type Data = SlicesBuf;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<SlicesBuf>, Infallible>>> {
        Poll::Ready(self.0.take().map(|buf| Ok(Frame::data(buf))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |buf| buf.remaining as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buf(slices: &Slices) -> SlicesBuf {
        SlicesBody::new(slices).0.unwrap()
    }

    /// Scenario: short and long slices, in runs, with empty ones between.
    /// Guarantees: runs of short ones become one slice, long ones keep their memory, order and
    /// length hold.
    #[test]
    fn short_slices_are_joined_and_long_ones_shared() {
        let long = Bytes::from(vec![7u8; COALESCE_BELOW_BYTES]);
        let parts = [
            Bytes::from_static(b"ab"),
            Bytes::new(),
            Bytes::from_static(b"cd"),
            long.clone(),
            Bytes::from_static(b"e"),
        ];
        let slices = Slices::new(parts.clone());
        let kept: Vec<&Bytes> = slices.iter().collect();
        assert_eq!(kept.len(), 3);
        assert_eq!(&kept[0][..], b"abcd");
        assert_eq!(kept[1].as_ptr(), long.as_ptr());
        assert_eq!(slices.len(), 5 + COALESCE_BELOW_BYTES);
    }

    /// Scenario: the buffer is read in steps of every length, and all at once through iovecs.
    /// Guarantees: the bytes come out in order, whatever the step.
    #[test]
    fn reads_in_any_step() {
        let parts: Vec<Bytes> = (0..40u8)
            .map(|n| Bytes::from(vec![n; 1024 + usize::from(n)]))
            .collect();
        let whole: Vec<u8> = parts.iter().flat_map(|p| p.to_vec()).collect();
        let slices = Slices::new(parts);
        for step in [1, 1023, 1024, 1025, 5000, whole.len()] {
            let mut buf = buf(&slices);
            let mut read = Vec::new();
            while buf.has_remaining() {
                let take = step.min(buf.remaining());
                if read.len() % 2 == 0 {
                    read.extend_from_slice(&buf.copy_to_bytes(take));
                } else {
                    let take = take.min(buf.chunk().len());
                    read.extend_from_slice(&buf.chunk()[..take]);
                    buf.advance(take);
                }
            }
            assert_eq!(read, whole, "step {step}");
        }
        let mut buf = buf(&slices);
        buf.advance(1500);
        let mut iovecs = [IoSlice::new(&[]); 64];
        let filled = buf.chunks_vectored(&mut iovecs);
        let gathered: Vec<u8> = iovecs[..filled].iter().flat_map(|s| s.to_vec()).collect();
        assert_eq!(gathered, whole[1500..]);
    }
}
