//! Cutting one request into several, each a valid request of its own.

use bytes::Bytes;

use crate::chain::Chain;
use crate::count;
use crate::cursor::{self, Field, MAX_DEPTH, put_varint, varint_len, wire};
use crate::error::{Fault, WireError};
use crate::grammar::{MessageId, Shape};
use crate::kind::Kind;
use crate::locate::{self, offset_in};
use crate::validate::Depth;

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
    /// The body: slices of the input, and the few bytes of the lengths that had to change.
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
    let items = count::count(kind, body)?;
    if limit.holds(items, body.len()) {
        return Ok(vec![Piece {
            chain: Chain::from(body.clone()),
            items,
        }]);
    }
    let fault = |_| locate::locate(kind, Depth::Shallow, body);
    let root = Node::open(kind.root(), &[body]).map_err(fault)?;
    let mut cut = Cut {
        body,
        limit,
        frames: vec![Frame::new(body, 0, &root)],
        items: 0,
        pieces: Vec::new(),
    };
    cut.distribute(&root).map_err(fault)?;
    cut.flush();
    Ok(cut.pieces)
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

/// One field below a message that may be moved to a piece as a whole.
struct Unit<'a> {
    field: Field<'a>,
    /// The message inside.
    message: MessageId,
    /// An item is not cut.
    item: bool,
    /// So many fields, one behind the other, all as long as this one: items often are.
    count: usize,
    /// One arm of a oneof.
    arm: bool,
}

/// A message taken apart: what every piece repeats, and what is distributed over the pieces.
struct Node<'a> {
    header: Vec<&'a [u8]>,
    units: Vec<Unit<'a>>,
}

impl<'a> Node<'a> {
    /// Takes apart the message whose (merged) occurrences are `parts`.
    fn open(id: MessageId, parts: &[&'a [u8]]) -> Result<Self, Fault> {
        let rule = id.rule();
        let mut node = Self {
            header: Vec::new(),
            units: Vec::new(),
        };
        for part in parts {
            let mut bytes = *part;
            while !bytes.is_empty() {
                let from = bytes;
                let (field, rest) = cursor::field(bytes, MAX_DEPTH)?;
                bytes = rest;
                let (message, item, arm) = match rule.field(field.number).map(|rule| rule.shape) {
                    Some(Shape::Item(message)) => (message, true, false),
                    Some(Shape::Walk(message)) => (message, false, false),
                    Some(Shape::Arm(message)) => (message, false, true),
                    _ => {
                        node.header.push(field.framed);
                        continue;
                    }
                };
                // A later arm replaces an earlier one for every reader.
                if arm && node.units.last().is_some_and(|unit| unit.message != message) {
                    node.units.clear();
                }
                let mut count = 1;
                if item {
                    let step = field.framed.len();
                    count += count::run(from, rest, step, step - field.value.len(), &mut bytes) as usize;
                }
                node.units.push(Unit {
                    field,
                    message,
                    item,
                    count,
                    arm,
                });
            }
        }
        Ok(node)
    }
}

/// A stretch of a piece.
enum Part {
    /// Bytes of the input, from and to.
    Input(usize, usize),
    /// Framing of our own.
    Framing(Bytes),
}

/// A message that is open in the piece under construction.
struct Frame {
    /// Field number under which it stands in its parent; 0 for the request.
    number: u32,
    /// Repeated at the start of the message in every piece: ranges of the input.
    header: Vec<(usize, usize)>,
    header_len: usize,
    /// What has been added below it in this piece, header not included.
    parts: Vec<Part>,
    parts_len: usize,
}

impl Frame {
    fn new(body: &[u8], number: u32, node: &Node<'_>) -> Self {
        let mut frame = Self {
            number,
            header: Vec::new(),
            header_len: 0,
            parts: Vec::new(),
            parts_len: 0,
        };
        for field in &node.header {
            let at = offset_in(body, field);
            frame.header_len += field.len();
            match frame.header.last_mut() {
                Some((_, end)) if *end == at => *end = at + field.len(),
                _ => frame.header.push((at, at + field.len())),
            }
        }
        frame
    }

    fn len(&self) -> usize {
        self.header_len + self.parts_len
    }

    fn push(&mut self, part: Part, len: usize) {
        self.parts_len += len;
        match (self.parts.last_mut(), part) {
            (Some(Part::Input(_, end)), Part::Input(from, to)) if *end == from => *end = to,
            (_, part) => self.parts.push(part),
        }
    }
}

struct Cut<'b> {
    body: &'b Bytes,
    limit: Limit,
    /// The path from the request to where units are being added; never empty.
    frames: Vec<Frame>,
    /// Items in the piece under construction.
    items: u64,
    pieces: Vec<Piece>,
}

impl Cut<'_> {
    /// Length of the piece were `extra` bytes added to the innermost frame and everything closed; with or without
    /// what the piece holds so far.
    fn len_with(&self, extra: usize, alone: bool) -> usize {
        self.frames.iter().rev().fold(extra, |inner, frame| {
            let len = inner + if alone { frame.header_len } else { frame.len() };
            len + if frame.number == 0 {
                0
            } else {
                1 + varint_len(len as u64)
            }
        })
    }

    fn filled(&self) -> bool {
        self.frames.iter().any(|frame| frame.parts_len > 0)
    }

    fn distribute(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        // Occurrences of one arm are one message to every reader, so they are taken apart together.
        if let [first, _, ..] = node.units.as_slice()
            && first.arm
        {
            let parts: Vec<&[u8]> = node.units.iter().map(|unit| unit.field.value).collect();
            return self.descend(first, &parts);
        }
        for unit in &node.units {
            let at = offset_in(self.body, unit.field.framed);
            let size = unit.field.framed.len();
            if unit.item {
                self.add_items(at, size, unit.count);
                continue;
            }
            let items = count::message(unit.message, unit.field.value).ok_or(Fault::Truncated)?;
            let mut fits = self.limit.holds(self.items + items, self.len_with(size, false));
            if !fits && self.filled() {
                let alone = self.limit.holds(items, self.len_with(size, true));
                if items == 0 || (alone && self.limit.half_full(self.items, self.len_with(0, false))) {
                    self.flush();
                    fits = alone;
                }
            }
            if fits || items == 0 {
                self.add(at, size, items);
            } else {
                self.descend(unit, &[unit.field.value])?;
            }
        }
        Ok(())
    }

    fn add(&mut self, at: usize, size: usize, items: u64) {
        self.items += items;
        if let Some(frame) = self.frames.last_mut() {
            frame.push(Part::Input(at, at + size), size);
        }
    }

    /// Adds `count` items of `size` bytes each, the first one at `at`.
    fn add_items(&mut self, mut at: usize, size: usize, mut count: usize) {
        while count > 0 {
            let mut take = self.room(size).min(count);
            if take == 0 {
                if self.filled() && !self.limit.holds(self.items + 1, self.len_with(size, false)) {
                    self.flush();
                    continue;
                }
                take = 1;
            }
            self.add(at, size * take, take as u64);
            at += size * take;
            count -= take;
        }
    }

    /// How many items of `size` bytes certainly fit; perhaps one more does.
    fn room(&self, size: usize) -> usize {
        match self.limit {
            Limit::Items(max) => usize::try_from(max.max(1).saturating_sub(self.items)).unwrap_or(usize::MAX),
            Limit::Bytes(max) => {
                // The length of every open message may grow by four bytes at most.
                let used = self.len_with(0, false) + 4 * self.frames.len();
                max.saturating_sub(used) / size
            }
        }
    }

    /// Opens the message of `unit` in the piece and distributes what is in it.
    fn descend(&mut self, unit: &Unit<'_>, parts: &[&[u8]]) -> Result<(), Fault> {
        let node = Node::open(unit.message, parts)?;
        self.frames.push(Frame::new(self.body, unit.field.number, &node));
        self.distribute(&node)?;
        if let Some(frame) = self.frames.pop()
            && let Some(parent) = self.frames.last_mut()
        {
            close(
                frame.number,
                &frame.header,
                frame.header_len,
                frame.parts,
                frame.parts_len,
                parent,
            );
        }
        Ok(())
    }

    /// Ends the piece under construction; the frames stay open for the next one.
    fn flush(&mut self) {
        if !self.filled() {
            return;
        }
        for index in (1..self.frames.len()).rev() {
            let (parents, frames) = self.frames.split_at_mut(index);
            if let (Some(parent), Some(frame)) = (parents.last_mut(), frames.first_mut()) {
                let parts = std::mem::take(&mut frame.parts);
                let len = std::mem::take(&mut frame.parts_len);
                close(frame.number, &frame.header, frame.header_len, parts, len, parent);
            }
        }
        let mut chain = Chain::new();
        if let Some(root) = self.frames.first_mut() {
            root.parts_len = 0;
            for (from, to) in &root.header {
                chain.push(self.body.slice(*from..*to));
            }
            for part in root.parts.drain(..) {
                chain.push(match part {
                    Part::Input(from, to) => self.body.slice(from..to),
                    Part::Framing(bytes) => bytes,
                });
            }
        }
        self.pieces.push(Piece {
            chain,
            items: std::mem::take(&mut self.items),
        });
    }
}

/// Moves a finished message into its parent: key, length, header, parts. One without parts is left out.
fn close(
    number: u32,
    header: &[(usize, usize)],
    header_len: usize,
    parts: Vec<Part>,
    parts_len: usize,
    parent: &mut Frame,
) {
    if parts_len == 0 {
        return;
    }
    let mut framing = Vec::with_capacity(11);
    put_varint(&mut framing, u64::from(number << 3 | u32::from(wire::LEN)));
    put_varint(&mut framing, (header_len + parts_len) as u64);
    let len = framing.len();
    parent.push(Part::Framing(Bytes::from(framing)), len);
    for (from, to) in header {
        parent.push(Part::Input(*from, *to), to - from);
    }
    for part in parts {
        let len = match &part {
            Part::Input(from, to) => to - from,
            Part::Framing(bytes) => bytes.len(),
        };
        parent.push(part, len);
    }
}
