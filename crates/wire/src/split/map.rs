//! Where the messages and items of a body lie: what [`super::split`] finds its cuts on.

use std::ops::Range;

use crate::count::Census;
use crate::cursor::{self, Fields};
use crate::grammar::MessageId;
use crate::locate::offset_in;

/// Messages on the path to an item, at most: request, resource, scope, metric, data.
pub(super) const LEVELS: usize = 5;

/// Entries to begin with: a few resources.
const ENTRIES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A message with items somewhere below it.
    Message,
    /// As a message, one arm of a oneof.
    Arm,
    /// Items one behind the other; they are not cut.
    Items,
}

/// One field of the body that may go to a piece as a whole, or a stretch of items.
#[derive(Debug)]
pub(super) struct Entry {
    /// Place in the body, from the key to behind the value.
    pub at: usize,
    pub end: usize,
    /// Items inside.
    pub items: u64,
    /// The entry behind this one and everything below it.
    pub next: usize,
    pub role: Role,
    message: Option<MessageId>,
    /// Bytes of key and length of a message.
    head: usize,
    /// Length of every item of a stretch, key and length included; 0 where they differ.
    item_size: usize,
}

impl Entry {
    pub const fn size(&self) -> usize {
        self.end - self.at
    }

    pub const fn value(&self) -> Range<usize> {
        self.at + self.head..self.end
    }
}

/// The messages and items of a body in wire order, a message before what is inside.
pub(super) struct Map<'b> {
    body: &'b [u8],
    entries: Vec<Entry>,
}

impl<'b> Map<'b> {
    pub fn new(body: &'b [u8]) -> Self {
        Self {
            body,
            entries: Vec::with_capacity(ENTRIES),
        }
    }

    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries of one level among `entries`, with their indices.
    pub fn siblings(&self, entries: Range<usize>) -> impl Iterator<Item = (usize, &Entry)> {
        let mut index = entries.start;
        std::iter::from_fn(move || {
            let entry = self.entries.get(index).filter(|_| index < entries.end)?;
            let found = index;
            index = entry.next;
            Some((found, entry))
        })
    }

    /// The number of the field of entry `index`.
    pub fn number(&self, index: usize) -> u32 {
        self.entries
            .get(index)
            .and_then(|entry| cursor::key(&self.body[entry.at..]).ok())
            .map_or(0, |(number, _, _)| number)
    }

    /// Of the `entries` inside a message those that count: a later arm replaces an earlier one for every reader.
    pub fn counting_arms(&self, entries: Range<usize>) -> Range<usize> {
        let mut start = entries.start;
        if !self.is_arm(start) {
            return entries;
        }
        let mut current = None;
        for (index, entry) in self.siblings(entries.clone()) {
            if current != entry.message {
                current = entry.message;
                start = index;
            }
        }
        start..entries.end
    }

    /// Whether the siblings `entries` are several occurrences of one arm, which are one message to every reader.
    pub fn are_merged(&self, entries: Range<usize>) -> bool {
        self.is_arm(entries.start) && self.siblings(entries).nth(1).is_some()
    }

    fn is_arm(&self, index: usize) -> bool {
        self.entries
            .get(index)
            .is_some_and(|entry| entry.role == Role::Arm)
    }

    /// Of the items of `stretch` from `at` on, as many as `max_items` and `max_bytes` allow; how many, and where they end.
    pub fn take(&self, stretch: &Entry, at: usize, max_items: u64, max_bytes: usize) -> (u64, usize) {
        if let Some(fitting) = max_bytes.checked_div(stretch.item_size) {
            let items = max_items.min(fitting as u64);
            return (items, at + items as usize * stretch.item_size);
        }
        let (mut items, mut end) = (0, at);
        let mut fields = Fields::of(&self.body[at..stretch.end]);
        while items < max_items
            && let Some(item) = fields.next()
            && end - at + item.framed.len() <= max_bytes
        {
            items += 1;
            end += item.framed.len();
        }
        (items, end)
    }
}

impl Census for Map<'_> {
    fn enter(&mut self, framed: &[u8], head: usize, message: MessageId, arm: bool) -> usize {
        let at = offset_in(self.body, framed);
        let mark = self.entries.len();
        self.entries.push(Entry {
            at,
            end: at + framed.len(),
            items: 0,
            next: mark + 1,
            role: if arm { Role::Arm } else { Role::Message },
            message: Some(message),
            head,
            item_size: 0,
        });
        mark
    }

    fn leave(&mut self, mark: usize, items: u64) {
        let next = self.entries.len();
        if let Some(entry) = self.entries.get_mut(mark) {
            entry.items = items;
            entry.next = next;
        }
    }

    #[inline]
    fn items(&mut self, bytes: &[u8], step: usize, count: u64) {
        let at = offset_in(self.body, bytes);
        let end = at + step * count as usize;
        // Another message's items never lie right before these without an entry of a message between.
        if let Some(stretch) = self.entries.last_mut()
            && stretch.role == Role::Items
            && stretch.end == at
        {
            stretch.end = end;
            stretch.items += count;
            if stretch.item_size != step {
                stretch.item_size = 0;
            }
            return;
        }
        self.entries.push(Entry {
            at,
            end,
            items: count,
            next: self.entries.len() + 1,
            role: Role::Items,
            message: None,
            head: 0,
            item_size: step,
        });
    }
}
