//! Where labels of blocks stand.

use crate::snappy::MAX_OFFSET;

/// Where labels of blocks stand: for runs that are not repeated in one piece, with all that is before them in their series.
#[derive(Debug)]
pub(super) struct Places {
    slots: Box<[Place]>,
    /// The labels, for comparing.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    hash: u64,
    position: u64,
    start: u32,
    end: u32,
}

impl Places {
    /// Labels of a few dozen resources.
    const SLOTS: usize = 512;

    /// When the labels take more than this, all are forgotten: the last one, of at most [`MAX_OFFSET`], may go beyond it.
    const MAX_BYTES: usize = 256 << 10;

    pub fn clear(&mut self) {
        self.slots.fill(Place::default());
        self.bytes.clear();
    }

    /// Where this label stands, if it does; from now on it stands at `position`.
    pub fn note(&mut self, hash: u64, bytes: &[u8], position: u64) -> Option<u64> {
        if bytes.len() as u64 > MAX_OFFSET {
            // No copy reaches back over it.
            return None;
        }
        if self.bytes.len() > Self::MAX_BYTES {
            self.clear();
        }
        let place = &mut self.slots[hash as usize % Self::SLOTS];
        if place.hash == hash && self.bytes[place.start as usize..place.end as usize] == *bytes {
            return Some(std::mem::replace(&mut place.position, position));
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        *place = Place {
            hash,
            position,
            start,
            end: self.bytes.len() as u32,
        };
        None
    }
}

impl Default for Places {
    fn default() -> Self {
        Self {
            slots: vec![Place::default(); Self::SLOTS].into(),
            bytes: Vec::new(),
        }
    }
}
