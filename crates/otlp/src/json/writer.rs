//! Protobuf records written in one pass, before the length of the message around them is known.
//!
//! A length prefix is reserved with the width its predecessor at that level had, one or two bytes. When the message
//! closes and the guess was wrong, a short body is moved; a long one stays where it is and the missing bytes are
//! noted, to be inserted for all such messages in one sweep at the end. So a byte is moved at most a few times however
//! deep messages nest, and prefixes are always minimal.

/// Bodies up to this long are moved at once when the width of their prefix was guessed wrong.
const MOVE_AT_ONCE_BYTES: usize = 4096;

/// Levels that remember the width of their last prefix; deeper ones start with one byte.
const REMEMBERED_LEVELS: usize = 32;

/// Protobuf output.
pub(super) struct Writer {
    out: Vec<u8>,
    /// Whether the last message at this level was longer than 127 bytes.
    was_long: [bool; REMEMBERED_LEVELS],
    late: Vec<LatePrefix>,
    /// The bytes all late prefixes lack.
    lacking: usize,
}

/// A message whose length prefix is not complete yet.
struct LatePrefix {
    start: usize,
    reserved: usize,
    length: u64,
}

/// An open message; hand it back to [`Writer::close`].
#[must_use]
pub(super) struct Open {
    start: usize,
    reserved: usize,
    lacking: usize,
    level: usize,
}

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            out: Vec::with_capacity(capacity),
            was_long: [false; REMEMBERED_LEVELS],
            late: Vec::new(),
            lacking: 0,
        }
    }

    /// What the output so far will come to at least: a prefix reserved too wide for a message that
    /// is still open gives back a byte when it closes.
    #[inline]
    pub(super) fn least_len(&self) -> usize {
        (self.out.len() + self.lacking).saturating_sub(REMEMBERED_LEVELS)
    }

    /// Opens a length-delimited field at a nesting level.
    #[inline]
    pub(super) fn open(&mut self, level: usize) -> Open {
        let is_long = self.was_long.get(level) == Some(&true);
        let open = Open {
            start: self.out.len(),
            reserved: 1 + usize::from(is_long),
            lacking: self.lacking,
            level,
        };
        self.out.push(0);
        if is_long {
            self.out.push(0);
        }
        open
    }

    /// Closes a length-delimited field.
    #[inline]
    pub(super) fn close(&mut self, open: Open) {
        let body = open.start + open.reserved;
        let present = self.out.len() - body;
        let length = (present + self.lacking - open.lacking) as u64;
        if length < 0x80 && open.reserved == 1 {
            self.out[open.start] = length as u8;
            return;
        }
        let (prefix, width) = varint(length);
        if let Some(was_long) = self.was_long.get_mut(open.level) {
            *was_long = width > 1;
        }
        if width == open.reserved {
            self.out[open.start..body].copy_from_slice(&prefix[..width]);
        } else if present <= MOVE_AT_ONCE_BYTES {
            if width > open.reserved {
                self.out.resize(self.out.len() + width - open.reserved, 0);
            }
            self.out.copy_within(body..body + present, open.start + width);
            self.out.truncate(open.start + width + present);
            self.out[open.start..open.start + width].copy_from_slice(&prefix[..width]);
        } else {
            // The body is longer than two bytes can tell or was taken for a short one, so the prefix only ever grows.
            self.lacking += width - open.reserved;
            self.late.push(LatePrefix {
                start: open.start,
                reserved: open.reserved,
                length,
            });
        }
    }

    /// Takes back everything since this field was opened, including the tag of `tag_len` bytes before it.
    #[inline]
    pub(super) fn undo(&mut self, open: &Open, tag_len: usize) {
        debug_assert_eq!(open.lacking, self.lacking, "only an empty field is taken back");
        self.out.truncate(open.start - tag_len);
    }

    /// Whether nothing was written since this field was opened.
    #[inline]
    pub(super) fn is_empty_since(&self, open: &Open) -> bool {
        self.out.len() == open.start + open.reserved
    }

    /// Writes the tag of a field and returns its length.
    #[inline]
    pub(super) fn tag(&mut self, number: u32, wire: u8) -> usize {
        let before = self.out.len();
        self.varint(u64::from(number) << 3 | u64::from(wire));
        self.out.len() - before
    }

    #[inline]
    pub(super) fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.out.push(value as u8);
        } else {
            let (bytes, width) = varint(value);
            self.out.extend_from_slice(&bytes[..width]);
        }
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The buffer itself, to append a body to.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Completes the late prefixes and hands the output over.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.late.is_empty() {
            return self.out;
        }
        self.late.sort_unstable_by_key(|late| late.start);
        let mut from_end = self.out.len();
        let mut to_end = from_end + self.lacking;
        self.out.resize(to_end, 0);
        // From the back, so that nothing is overwritten before it has moved.
        for late in self.late.iter().rev() {
            let body = late.start + late.reserved;
            let (prefix, width) = varint(late.length);
            self.out.copy_within(body..from_end, to_end - (from_end - body));
            to_end -= from_end - body;
            self.out[to_end - width..to_end].copy_from_slice(&prefix[..width]);
            to_end -= width;
            from_end = late.start;
        }
        debug_assert_eq!(from_end, to_end, "what comes before the first late prefix stays");
        self.out
    }
}

/// The bytes of a varint and how many of them count.
#[inline]
fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut width = 0;
    loop {
        bytes[width] = value as u8 | 0x80;
        width += 1;
        value >>= 7;
        if value == 0 {
            bytes[width - 1] &= 0x7f;
            return (bytes, width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of messages: each node is a field 1 with so many bytes of its own before and after its children.
    fn write(writer: &mut Writer, level: usize, tree: &Tree) {
        writer.tag(1, 2);
        let open = writer.open(level);
        writer.bytes(&vec![7; tree.own]);
        for child in &tree.children {
            write(writer, level + 1, child);
            writer.bytes(&[9]);
        }
        writer.close(open);
    }

    fn expected(tree: &Tree) -> Vec<u8> {
        let mut body = vec![7; tree.own];
        for child in &tree.children {
            body.extend(expected(child));
            body.push(9);
        }
        let (prefix, width) = varint(body.len() as u64);
        [&[10], &prefix[..width], &body].concat()
    }

    struct Tree {
        own: usize,
        children: Vec<Tree>,
    }

    fn random_tree(state: &mut u64, depth: usize) -> Tree {
        let mut next = |bound: u64| {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (*state >> 33) % bound
        };
        let own = match next(6) {
            0 => 0,
            1 => 120 + next(16),
            2 => 16_370 + next(20),
            3 => 4080 + next(30),
            _ => next(60),
        } as usize;
        let count = if depth == 0 { 0 } else { next(4) };
        Tree {
            own,
            children: (0..count).map(|_| random_tree(state, depth - 1)).collect(),
        }
    }

    /// Scenario: random trees of messages with lengths around every change of the prefix width (seeds 0 to 299).
    /// Guarantees: the output is the one with minimal prefixes, whatever was guessed, moved or inserted late.
    #[test]
    fn prefixes_are_minimal_whatever_was_guessed() {
        for seed in 0..300 {
            let mut state = seed;
            let trees: Vec<Tree> = (0..3).map(|_| random_tree(&mut state, 5)).collect();
            let mut writer = Writer::with_capacity(0);
            trees.iter().for_each(|tree| write(&mut writer, 0, tree));
            let least = writer.least_len();
            let out = writer.finish();
            assert!(
                least <= out.len() && out.len() - least <= REMEMBERED_LEVELS,
                "seed {seed}"
            );
            assert!(
                out == trees.iter().flat_map(expected).collect::<Vec<_>>(),
                "seed {seed}"
            );
        }
    }
}
