//! Bytes in several pieces that are read as one.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// A list of [`Bytes`] read as one: the body of a batch, made of slices of what was received.
///
/// Laying the bodies of two export requests of one kind end to end gives one valid, larger request, because their
/// top level is a repeated field. (Not so for profiles: their `dictionary` is singular and indexed by position, so
/// profile requests are forwarded one by one.)
#[derive(Debug, Clone, Default)]
pub struct Chain {
    parts: VecDeque<Bytes>,
    len: usize,
}

impl Chain {
    /// An empty chain.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: VecDeque::new(),
            len: 0,
        }
    }

    /// An empty chain with room for `parts` slices.
    #[must_use]
    pub fn with_capacity(parts: usize) -> Self {
        Self {
            parts: VecDeque::with_capacity(parts),
            len: 0,
        }
    }

    /// Bytes left to read.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is left to read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a slice; empty ones are left out.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push_back(part);
        }
    }

    /// Appends all slices of another chain.
    pub fn append(&mut self, other: Self) {
        self.len += other.len;
        self.parts.extend(other.parts);
    }

    /// Lays chains end to end without copying their bytes.
    #[must_use]
    pub fn concat(chains: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::new();
        for chain in chains {
            all.append(chain);
        }
        all
    }

    /// The slices, in order.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.parts.iter()
    }

    /// All bytes in one piece: the slice itself where there is only one, else a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.parts.len() {
            0 => Bytes::new(),
            1 => self.parts[0].clone(),
            _ => {
                let mut out = BytesMut::with_capacity(self.len);
                for part in &self.parts {
                    out.extend_from_slice(part);
                }
                out.freeze()
            }
        }
    }

    /// Appends all bytes to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        for part in &self.parts {
            out.extend_from_slice(part);
        }
    }
}

impl From<Bytes> for Chain {
    fn from(part: Bytes) -> Self {
        let mut chain = Self::with_capacity(1);
        chain.push(part);
        chain
    }
}

impl FromIterator<Bytes> for Chain {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let mut chain = Self::new();
        chain.extend(parts);
        chain
    }
}

impl Extend<Bytes> for Chain {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, parts: I) {
        for part in parts {
            self.push(part);
        }
    }
}

impl Buf for Chain {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, part) in slices.iter_mut().zip(&self.parts) {
            *slot = IoSlice::new(part);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(
            count <= self.len,
            "cannot advance {count} bytes in a chain of {}",
            self.len
        );
        self.len -= count;
        while count > 0 {
            let Some(front) = self.parts.front_mut() else {
                return;
            };
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.parts.pop_front();
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        assert!(
            count <= self.len,
            "cannot take {count} bytes of a chain of {}",
            self.len
        );
        if let Some(front) = self.parts.front_mut() {
            if front.len() > count {
                self.len -= count;
                return front.split_to(count);
            }
            if front.len() == count {
                self.len -= count;
                return self.parts.pop_front().unwrap_or_default();
            }
        }
        let mut out = BytesMut::with_capacity(count);
        while out.len() < count {
            let take = self.chunk().len().min(count - out.len());
            out.extend_from_slice(&self.chunk()[..take]);
            self.advance(take);
        }
        out.freeze()
    }
}
