//! Which units of the reservation are taken, and which free ones still have memory: the bookkeeping. No addresses.
//!
//! Three bits a unit, nothing else: whoever gives units back says how many they are. First fit: the lowest run that is long enough. For each size a
//! hint says below which unit there is none, so that a search does not go over all that is taken.

use std::ops::Range;

const WORD: usize = u64::BITS as usize;

/// Sizes that are searched for: 1 to 8, and from there on four to each doubling, as jemalloc has them. They reach to 2^22 units and beyond.
const SIZES: usize = 96;

/// So many units are given back at a time, and are nobody's meanwhile: the kernel takes a millisecond or two for them.
const MOST_AT_ONCE: usize = 2048;

/// The units that runs of `units` take: with few sizes, what one leaves another one takes.
pub(super) fn rounded(units: usize) -> usize {
    units.next_multiple_of(1 << shift(units))
}

/// A quarter of the doubling that `units` is in.
fn shift(units: usize) -> u32 {
    (units.max(2) - 1).ilog2().saturating_sub(2)
}

/// The number of a rounded size among all sizes.
fn number(units: usize) -> usize {
    let shift = shift(units);
    4 * shift as usize + (units >> shift) - 1
}

/// The opposite of [`number`].
fn size(number: usize) -> usize {
    match number {
        0..4 => number + 1,
        _ => (number % 4 + 5) << (number / 4 - 1),
    }
}

/// A bit for each of `WORDS` * 64 units.
struct Bits<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Bits<WORDS> {
    fn set(&mut self, run: Range<usize>, value: bool) {
        for (word, mask) in masks(run) {
            match value {
                true => self.0[word] |= mask,
                false => self.0[word] &= !mask,
            }
        }
    }

    fn count(&self, run: Range<usize>) -> usize {
        masks(run)
            .map(|(word, mask)| (self.0[word] & mask).count_ones() as usize)
            .sum()
    }

    /// The first unit of `run` whose bit is `value`, or the end.
    fn next(&self, run: Range<usize>, value: bool) -> usize {
        let (start, end) = (run.start, run.end);
        for (word, mask) in masks(run) {
            let found = (if value { self.0[word] } else { !self.0[word] }) & mask;
            if found != 0 {
                return word * WORD + found.trailing_zeros() as usize;
            }
        }
        end.max(start)
    }

    /// Where the run of clear bits begins that ends before `unit`.
    fn clear_before(&self, unit: usize) -> usize {
        let mut word = unit / WORD;
        let mut set = self
            .0
            .get(word)
            .map_or(0, |bits| bits & ((1 << (unit % WORD)) - 1));
        loop {
            if set != 0 {
                return word * WORD + WORD - set.leading_zeros() as usize;
            }
            if word == 0 {
                return 0;
            }
            word -= 1;
            set = self.0[word];
        }
    }
}

/// The words that a run is in, and its bits in each.
fn masks(run: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = run;
    let words = if start < end {
        start / WORD..end.div_ceil(WORD)
    } else {
        0..0
    };
    words.map(move |word| {
        let from = start.saturating_sub(word * WORD);
        let to = (end - word * WORD).min(WORD);
        (word, u64::MAX << from & u64::MAX >> (WORD - to))
    })
}

/// A run of units that was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub start: usize,
    /// Whether none of its units has memory: then the kernel makes zeros of it.
    pub is_clean: bool,
}

/// The account of `WORDS` * 64 units.
pub(super) struct Units<const WORDS: usize> {
    taken: Bits<WORDS>,
    /// Free units that have memory: given back since the last [`Units::age`], and before it.
    recent: Bits<WORDS>,
    old: Bits<WORDS>,
    dirty: usize,
    /// Below which unit no run of a size is free.
    hints: [u32; SIZES],
    /// What lies above was never taken.
    top: usize,
    /// The longest run that was ever taken.
    longest: usize,
}

impl<const WORDS: usize> Units<WORDS> {
    /// All are free, and none has memory.
    pub const fn new() -> Self {
        Self {
            taken: Bits([0; WORDS]),
            recent: Bits([0; WORDS]),
            old: Bits([0; WORDS]),
            dirty: 0,
            hints: [0; SIZES],
            top: 0,
            longest: 0,
        }
    }

    /// Free units that have memory.
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Takes a run of `units` (a rounded size) below `limit`, if one is free.
    pub fn take(&mut self, units: usize, limit: usize) -> Option<Taken> {
        let start = self.find(units, limit)?;
        self.longest = self.longest.max(units);
        for hint in &mut self.hints[number(units)..] {
            *hint = (*hint).max(start as u32);
        }
        let is_clean = self.mark(start..start + units) == 0;
        Some(Taken { start, is_clean })
    }

    fn find(&self, units: usize, limit: usize) -> Option<usize> {
        let mut start = self.taken.next(self.hints[number(units)] as usize..limit, false);
        while start + units <= limit {
            let end = self.taken.next(start..start + units, true);
            if end == start + units {
                return Some(start);
            }
            start = self.taken.next(end..limit, false);
        }
        None
    }

    /// Takes exactly these units, if they are free and below `limit`.
    pub fn extend(&mut self, run: Range<usize>, limit: usize) -> bool {
        let is_free = run.end <= limit && self.taken.next(run.clone(), true) == run.end;
        if is_free {
            self.mark(run);
        }
        is_free
    }

    /// Takes free units; how many of them have memory.
    fn mark(&mut self, run: Range<usize>) -> usize {
        let dirty = self.recent.count(run.clone()) + self.old.count(run.clone());
        self.dirty -= dirty;
        self.recent.set(run.clone(), false);
        self.old.set(run.clone(), false);
        self.top = self.top.max(run.end);
        self.taken.set(run, true);
        dirty
    }

    /// Takes a run back, whose units may have memory, or have none.
    pub fn free(&mut self, run: Range<usize>, has_memory: bool) {
        self.taken.set(run.clone(), false);
        if has_memory {
            self.recent.set(run.clone(), true);
            self.dirty += run.len();
        }
        let start = self.taken.clear_before(run.start);
        // Further than the longest run nobody has to look: a hint that is too low costs a search, and nothing else.
        let reach = self.top.min(start + self.longest);
        let end = self.taken.next(run.end..reach, true);
        let free = if end >= reach { usize::MAX } else { end - start };
        for (number, hint) in self.hints.iter_mut().enumerate() {
            if size(number) > free {
                break;
            }
            *hint = (*hint).min(start as u32);
        }
    }

    /// The next run of free units from `from` on that have memory, since before the last [`Units::age`] or, with `all`, at all, and are at least
    /// `least`. They are taken until [`Units::free`] is told that they have none any more.
    pub fn take_dirty(&mut self, from: usize, all: bool, least: usize) -> Option<Range<usize>> {
        let mut end = from;
        while end < self.top {
            let start = self.next_dirty(end..self.top, all, true);
            end = self.next_dirty(start..self.top, all, false);
            if end - start >= MOST_AT_ONCE + least {
                end = start + MOST_AT_ONCE;
            }
            if end - start >= least.max(1) {
                self.mark(start..end);
                return Some(start..end);
            }
        }
        None
    }

    /// The first unit of `run` that is free with memory, old or with `all` at all, or the first that is not; or the end.
    fn next_dirty(&self, run: Range<usize>, all: bool, value: bool) -> usize {
        let end = run.end.max(run.start);
        for (word, mask) in masks(run) {
            let dirty = self.old.0[word] | if all { self.recent.0[word] } else { 0 };
            let found = (if value { dirty } else { !dirty }) & mask;
            if found != 0 {
                return word * WORD + found.trailing_zeros() as usize;
            }
        }
        end
    }

    /// What is recent is old from now on.
    pub fn age(&mut self) {
        for word in 0..self.top.div_ceil(WORD) {
            self.old.0[word] |= std::mem::take(&mut self.recent.0[word]);
        }
    }
}

#[cfg(test)]
mod tests;
