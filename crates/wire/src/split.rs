//! Cutting one request into several, each a valid request of its own.
//!
//! One pass counts the body and writes down where its messages and stretches of items lie ([`Map`]); the cuts are found
//! on that list, and what goes to a piece is named by its place in the body. Nothing inside an item is read, and no byte
//! is copied but the short headers that are repeated in every piece.

mod map;

use bytes::Bytes;

use crate::chain::Chain;
use crate::count;
use crate::cursor::{put_varint, varint_len, wire};
use crate::error::WireError;
use crate::kind::Kind;
use crate::locate;
use crate::validate::Depth;

use map::{Entry, Map, Role};

/// Headers up to this long are copied into the pieces: cheaper than a slice, which counts a reference up and down and is a
/// part of its own to whatever reads the piece.
const COPIED_HEADER_BYTES: usize = 256;

/// Framing and headers of a few pieces.
const FRAMING_BYTES: usize = 1024;

/// How large a piece of [`split`] may be. Zero is read as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// At most this many items.
    Items(u64),
    /// At most this many bytes; an item that is larger with its headers comes out alone.
    Bytes(usize),
}

/// One request cut from a larger one.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The body: slices of the input, and the few bytes of the lengths that had to change and of what is repeated.
    pub chain: Chain,
    /// Its items.
    pub items: u64,
}

impl Piece {
    /// Length of the body.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.chain.len()
    }
}

/// Cuts `body` into pieces within `limit`, in order; together they hold exactly the items of `body`.
///
/// Cuts lie between resources where that leaves a piece at least half full, else between scopes, else between items
/// (within a metric: between data points). What encloses a cut is repeated in every piece: resource, scope, schema
/// URLs, a metric's name, unit, type and metadata, and every unknown field on the way; a profiles request's dictionary
/// too. Within a metric that has to be cut, arms of its `data` that a later arm replaces are left out.
///
/// A body within the limit comes back as one piece that is the body itself. An empty body gives no piece.
///
/// # Errors
/// When the framing is broken on the way down to the items; a validated body gives none.
pub fn split(kind: Kind, body: &Bytes, limit: Limit) -> Result<Vec<Piece>, WireError> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let mut map = Map::new(body);
    let items = count::census(kind.root(), body, &mut map)
        .ok_or_else(|| locate::locate(kind, Depth::Shallow, body))?;
    if limit.holds(items, body.len()) {
        return Ok(vec![Piece {
            chain: Chain::from(body.clone()),
            items,
        }]);
    }
    let mut cut = Cut {
        body,
        map: &map,
        limit,
        frames: Vec::with_capacity(map::LEVELS),
        spare: Vec::with_capacity(map::LEVELS),
        items: 0,
        framing: Vec::with_capacity(FRAMING_BYTES),
        parts: Vec::new(),
        ends: Vec::new(),
    };
    cut.open(0);
    cut.header(0..body.len(), 0..map.len());
    cut.distribute(0..map.len());
    cut.flush();
    Ok(cut.pieces())
}

impl Limit {
    fn holds(self, items: u64, bytes: usize) -> bool {
        match self {
            Self::Items(max) => items <= max.max(1),
            Self::Bytes(max) => bytes <= max,
        }
    }

    /// Whether a piece of this size is worth closing to keep the next unit whole.
    fn half_full(self, items: u64, bytes: usize) -> bool {
        match self {
            Self::Items(max) => items >= max.max(1).div_ceil(2),
            Self::Bytes(max) => bytes >= max.div_ceil(2),
        }
    }
}

/// A stretch of a piece.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Bytes of the input, from and to.
    Input(usize, usize),
    /// Bytes of our own: from and to in [`Cut::framing`].
    Framing(usize, usize),
}

impl Part {
    const fn len(self) -> usize {
        match self {
            Self::Input(from, to) | Self::Framing(from, to) => to - from,
        }
    }
}

/// Appends a part, to the last one where it continues that; those before `start` belong to another piece.
fn push(parts: &mut Vec<Part>, start: usize, part: Part) {
    match (parts[start..].last_mut(), part) {
        (Some(Part::Input(_, end)), Part::Input(from, to))
        | (Some(Part::Framing(_, end)), Part::Framing(from, to))
            if *end == from =>
        {
            *end = to;
        }
        _ => parts.push(part),
    }
}

/// A message that is open in the piece under construction.
#[derive(Default)]
struct Frame {
    /// Field number under which it stands in its parent; 0 for the request.
    number: u32,
    /// Repeated at the start of the message in every piece: ranges of the input.
    header: Vec<(usize, usize)>,
    header_len: usize,
    /// What has been added below it in this piece, header not included.
    parts: Vec<Part>,
    parts_len: usize,
    /// While the piece is being closed: length of the message.
    closed_len: usize,
}

impl Frame {
    const fn len(&self) -> usize {
        self.header_len + self.parts_len
    }

    fn push(&mut self, part: Part) {
        self.parts_len += part.len();
        push(&mut self.parts, 0, part);
    }
}

/// Bytes a field of a message takes whose value has `len` bytes; every number on the way to an item fits a one-byte key.
const fn framed_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends the key and the length of a message; the range it takes in `framing`.
fn put_framing(framing: &mut Vec<u8>, number: u32, len: usize) -> Part {
    let from = framing.len();
    put_varint(framing, u64::from(number << 3 | u32::from(wire::LEN)));
    put_varint(framing, len as u64);
    Part::Framing(from, framing.len())
}

/// A range of a header as it goes to a piece.
fn put_header(framing: &mut Vec<u8>, body: &[u8], (from, to): (usize, usize)) -> Part {
    if to - from > COPIED_HEADER_BYTES {
        return Part::Input(from, to);
    }
    let at = framing.len();
    framing.extend_from_slice(&body[from..to]);
    Part::Framing(at, framing.len())
}

struct Cut<'b> {
    body: &'b Bytes,
    map: &'b Map<'b>,
    limit: Limit,
    /// The path from the request to where units are being added; never empty.
    frames: Vec<Frame>,
    /// Closed ones, kept for their memory.
    spare: Vec<Frame>,
    /// Items in the piece under construction.
    items: u64,
    /// Keys, lengths and short headers of all pieces.
    framing: Vec<u8>,
    /// The parts of all pieces, and where each piece ends among them, with its items.
    parts: Vec<Part>,
    ends: Vec<(usize, u64)>,
}

impl Cut<'_> {
    /// Length of the piece were `extra` bytes added to the innermost frame and everything closed; with or without
    /// what the piece holds so far.
    fn len_with(&self, extra: usize, alone: bool) -> usize {
        self.frames.iter().rev().fold(extra, |inner, frame| {
            let len = inner + if alone { frame.header_len } else { frame.len() };
            if frame.number == 0 { len } else { framed_len(len) }
        })
    }

    fn filled(&self) -> bool {
        self.frames.iter().any(|frame| frame.parts_len > 0)
    }

    /// Adds to the innermost frame's header what lies between the `entries` of its message `value`.
    fn header(&mut self, value: std::ops::Range<usize>, entries: std::ops::Range<usize>) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let mut done = value.start;
        let mut add = |from: usize, to: usize| {
            if from < to {
                frame.header_len += to - from;
                frame.header.push((from, to));
            }
        };
        for (_, entry) in self.map.siblings(entries) {
            add(done, entry.at);
            done = entry.end;
        }
        add(done, value.end);
    }

    /// Distributes the fields of one message over the pieces.
    fn distribute(&mut self, entries: std::ops::Range<usize>) {
        for (index, entry) in self.map.siblings(entries) {
            let items = entry.items;
            if entry.role == Role::Items {
                self.add_items(entry);
                continue;
            }
            let size = entry.size();
            let mut fits = self.limit.holds(self.items + items, self.len_with(size, false));
            if !fits && self.filled() {
                let alone = self.limit.holds(items, self.len_with(size, true));
                if items == 0 || (alone && self.limit.half_full(self.items, self.len_with(0, false))) {
                    self.flush();
                    fits = alone;
                }
            }
            if fits || items == 0 {
                self.add(entry.at, entry.end, items);
            } else {
                self.descend(index..entry.next);
            }
        }
    }

    fn add(&mut self, from: usize, to: usize, items: u64) {
        self.items += items;
        if let Some(frame) = self.frames.last_mut() {
            frame.push(Part::Input(from, to));
        }
    }

    /// Adds the items of a stretch.
    fn add_items(&mut self, stretch: &Entry) {
        let (mut at, mut left) = (stretch.at, stretch.items);
        while left > 0 {
            let (items, bytes) = self.room();
            let (mut taken, mut end) = self.map.take(stretch, at, left.min(items), bytes);
            if taken == 0 {
                (taken, end) = self.map.take(stretch, at, 1, usize::MAX);
                if self.filled() && !self.limit.holds(self.items + 1, self.len_with(end - at, false)) {
                    self.flush();
                    continue;
                }
            }
            self.add(at, end, taken);
            at = end;
            left -= taken.max(1);
        }
    }

    /// How many items, in how many bytes, certainly fit; perhaps one more does.
    fn room(&self) -> (u64, usize) {
        match self.limit {
            Limit::Items(max) => (max.max(1).saturating_sub(self.items), usize::MAX),
            Limit::Bytes(max) => {
                // The length of every open message may grow by four bytes at most.
                let used = self.len_with(0, false) + 4 * self.frames.len();
                (u64::MAX, max.saturating_sub(used))
            }
        }
    }

    /// Opens a message in the piece and distributes what is in it. `occurrences` are siblings that are one message to every
    /// reader: one entry, or the arms of a metric's data.
    fn descend(&mut self, occurrences: std::ops::Range<usize>) {
        let map = self.map;
        let number = map.number(occurrences.start);
        self.open(number);
        for (index, entry) in map.siblings(occurrences.clone()) {
            self.header(entry.value(), index + 1..entry.next);
        }
        for (index, entry) in map.siblings(occurrences) {
            let inside = map.counting_arms(index + 1..entry.next);
            // Occurrences of one arm are taken apart together.
            if map.are_merged(inside.clone()) {
                self.descend(inside);
            } else {
                self.distribute(inside);
            }
        }
        self.close();
    }

    /// Opens a message, with nothing in it so far.
    fn open(&mut self, number: u32) {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.number = number;
        frame.header.clear();
        frame.header_len = 0;
        self.frames.push(frame);
    }

    /// Ends the innermost message and moves it into its parent: key, length, header, parts. One without parts is left out.
    fn close(&mut self) {
        let Some(mut frame) = self.frames.pop() else {
            return;
        };
        if frame.parts_len > 0
            && let Some(parent) = self.frames.last_mut()
        {
            parent.push(put_framing(&mut self.framing, frame.number, frame.len()));
            for range in &frame.header {
                parent.push(put_header(&mut self.framing, self.body, *range));
            }
            for part in frame.parts.drain(..) {
                parent.push(part);
            }
            frame.parts_len = 0;
        }
        self.spare.push(frame);
    }

    /// Ends the piece under construction; the frames stay open for the next one.
    fn flush(&mut self) {
        // Messages below the last one that has something in it are left out.
        let Some(last) = self.frames.iter().rposition(|frame| frame.parts_len > 0) else {
            return;
        };
        let open = &mut self.frames[..=last];
        open.iter_mut().rev().fold(0, |below, frame| {
            frame.closed_len = frame.len() + below;
            framed_len(frame.closed_len)
        });
        let start = self.parts.len();
        for frame in open {
            if frame.number != 0 {
                let framing = put_framing(&mut self.framing, frame.number, frame.closed_len);
                push(&mut self.parts, start, framing);
            }
            for range in &frame.header {
                let header = put_header(&mut self.framing, self.body, *range);
                push(&mut self.parts, start, header);
            }
            for part in frame.parts.drain(..) {
                push(&mut self.parts, start, part);
            }
            frame.parts_len = 0;
        }
        self.ends
            .push((self.parts.len(), std::mem::take(&mut self.items)));
    }

    fn pieces(self) -> Vec<Piece> {
        let framing = Bytes::from(self.framing);
        let mut parts = self.parts.iter();
        let mut done = 0;
        let mut pieces = Vec::with_capacity(self.ends.len());
        for (end, items) in self.ends {
            let mut chain = Chain::with_capacity(end - done);
            for part in parts.by_ref().take(end - done) {
                chain.push(match *part {
                    Part::Input(from, to) => self.body.slice(from..to),
                    Part::Framing(from, to) => framing.slice(from..to),
                });
            }
            done = end;
            pieces.push(Piece { chain, items });
        }
        pieces
    }
}
