//! The beginning of a frame over HTTP/2 whose end does not come.
//!
//! h2 hands a frame on when it is whole, and a request head when its last frame is. While a connection serves a request, what it
//! holds of them is reserved with that. Without one nothing is reserved, and nothing ends the connection: a frame of 64 KiB that is
//! begun on each of 10,000 connections would hold as much as the whole process may. So there are places for them, and whoever takes one too many ends the oldest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;

use crate::activity::Activity;

/// Less than this of a connection needs no place: a usual request head is a tenth of it, and h2's first buffer has as much.
const SMALL_BYTES: u32 = 8 << 10;

/// Places: 16 MiB with frames of 64 KiB. In order are those that come in late behind the refusal of their request, and they are soon whole.
pub(crate) const MOST_UNFINISHED: usize = 256;

/// Where the frames of a connection begin and end (RFC 9113, 4.1).
#[derive(Debug)]
pub(crate) struct Frames {
    /// Of what is under way, still to come: of the preface, or of a frame.
    left: u32,
    /// The payload under way.
    length: u32,
    /// What has come of the head of the next one.
    head: [u8; Self::HEAD_BYTES],
    head_bytes: usize,
    /// Payloads of a request head whose last frame has not come, less that under way.
    in_block: u32,
    /// What is under way belongs to a request head, and whether it is the last of it.
    block: Option<bool>,
}

impl Frames {
    const HEAD_BYTES: usize = 9;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;

    /// Of a connection that begins with so many bytes that are no frame.
    pub fn behind(preface: usize) -> Self {
        Self {
            left: preface as u32,
            length: 0,
            head: [0; Self::HEAD_BYTES],
            head_bytes: 0,
            in_block: 0,
            block: None,
        }
    }

    /// These came. Whether the end of a frame was among them.
    pub fn advance(&mut self, mut bytes: &[u8]) -> bool {
        let mut has_ended = false;
        while !bytes.is_empty() {
            if self.left == 0 {
                let (head, behind) = bytes.split_at(bytes.len().min(Self::HEAD_BYTES - self.head_bytes));
                self.head[self.head_bytes..][..head.len()].copy_from_slice(head);
                self.head_bytes += head.len();
                bytes = behind;
                if self.head_bytes < Self::HEAD_BYTES {
                    break;
                }
                self.begin();
            } else {
                let (payload, behind) = bytes.split_at(bytes.len().min(self.left as usize));
                self.left -= payload.len() as u32;
                bytes = behind;
            }
            if self.left == 0 {
                self.end();
                has_ended = true;
            }
        }
        has_ended
    }

    fn begin(&mut self) {
        self.head_bytes = 0;
        let [a, b, c, kind, flags, ..] = self.head;
        self.length = u32::from_be_bytes([0, a, b, c]);
        self.left = self.length;
        self.block =
            matches!(kind, Self::HEADERS | Self::CONTINUATION).then_some(flags & Self::END_HEADERS != 0);
    }

    fn end(&mut self) {
        match self.block.take() {
            Some(true) => self.in_block = 0,
            Some(false) => self.in_block = self.in_block.saturating_add(self.length),
            None => {}
        }
        self.length = 0;
    }

    /// Whether what is held of frames and request heads that are not whole is, or will be, much.
    pub fn are_large(&self) -> bool {
        self.length.saturating_add(self.in_block) > SMALL_BYTES
    }
}

/// Where a connection stands with such a frame.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// One is under way, and nothing more has come.
    is_waiting: AtomicBool,
    /// Who reads on then.
    reader: Mutex<Option<Waker>>,
    /// Its place among all; 0 is none.
    place: AtomicU64,
    is_ended: AtomicBool,
}

/// Of all connections, the oldest first.
#[derive(Debug)]
struct Places {
    taken: u64,
    waiting: BTreeMap<u64, Weak<Activity>>,
}

static PLACES: Mutex<Places> = Mutex::new(Places {
    taken: 0,
    waiting: BTreeMap::new(),
});

impl Unfinished {
    /// Nothing more has come of a large frame; `reader` would read on. Before it is asked whether a request is under way: one that ends
    /// looks here afterwards, so that one of the two sees the other.
    pub fn wait(&self, reader: &Waker) {
        {
            let mut known = self.reader.lock();
            match &mut *known {
                Some(known) => known.clone_from(reader),
                None => *known = Some(reader.clone()),
            }
        }
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    /// The frame is whole.
    pub fn end(&self) {
        if self.is_waiting.load(Ordering::Relaxed) {
            self.is_waiting.store(false, Ordering::Relaxed);
            self.give_place();
        }
    }

    /// The last request has ended: from here on what is held is nobody's.
    pub fn request_ended(&self) {
        if self.is_waiting.load(Ordering::SeqCst)
            && let Some(reader) = &*self.reader.lock()
        {
            reader.wake_by_ref();
        }
    }

    /// Takes a place, from the oldest if there is none left.
    pub fn take_place(&self, of: &Arc<Activity>) {
        if self.place.load(Ordering::Relaxed) != 0 {
            return;
        }
        let oldest = {
            let mut places = PLACES.lock();
            places.taken += 1;
            let place = places.taken;
            places.waiting.insert(place, Arc::downgrade(of));
            self.place.store(place, Ordering::Relaxed);
            match places.waiting.len() > MOST_UNFINISHED {
                true => places.waiting.pop_first(),
                false => None,
            }
        };
        // Behind the lock: it may be the last to hold it.
        if let Some(oldest) = oldest.and_then(|(_, oldest)| oldest.upgrade()) {
            oldest.unfinished.lose_place(oldest.is_serving());
        }
    }

    /// Gives its place back, if it has one.
    pub fn give_place(&self) {
        // Looked at first: hardly any has one.
        if self.place.load(Ordering::Relaxed) != 0 {
            let mut places = PLACES.lock();
            let place = self.place.swap(0, Ordering::Relaxed);
            places.waiting.remove(&place);
        }
    }

    /// Somebody else has it; if the connection needs none at this moment, that is all.
    fn lose_place(&self, is_serving: bool) {
        self.place.store(0, Ordering::Relaxed);
        if is_serving || !self.is_waiting.load(Ordering::SeqCst) {
            return;
        }
        self.is_ended.store(true, Ordering::Relaxed);
        if let Some(reader) = &*self.reader.lock() {
            reader.wake_by_ref();
        }
    }

    /// The connection is to be closed: somebody else has its place.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use tokio::time::Instant;

    use super::*;

    /// Frames of every length up to beyond what is small, among them request heads in up to three, behind a preface.
    ///
    /// The bytes; and behind each of them, how much is held of what is not whole.
    fn conversation(preface: usize) -> (Vec<u8>, Vec<u32>) {
        let mut bytes = vec![0xff; preface];
        let mut held = vec![0; preface];
        let mut frame = |kind: u8, flags: u8, length: u32, block: &mut u32| {
            bytes.extend_from_slice(&length.to_be_bytes()[1..]);
            bytes.extend([kind, flags, 0, 0, 0, 1]);
            bytes.extend(std::iter::repeat_n(0xff, length as usize));
            held.extend([*block; Frames::HEAD_BYTES - 1]);
            held.extend(std::iter::repeat_n(*block + length, length as usize));
            let heads = [Frames::HEADERS, Frames::CONTINUATION].contains(&kind);
            *block = match heads && flags & Frames::END_HEADERS == 0 {
                true => *block + length,
                false => 0,
            };
            held.push(*block);
        };
        for length in [0, 1, 100, SMALL_BYTES, SMALL_BYTES + 1, 60_000] {
            let mut block = 0;
            frame(0, 1, length, &mut block);
            frame(0x77, Frames::END_HEADERS, length, &mut block);
            frame(Frames::HEADERS, Frames::END_HEADERS, length, &mut block);
            for pieces in 1..3 {
                frame(Frames::HEADERS, 0, length, &mut block);
                for piece in 1..=pieces {
                    let flags = if piece == pieces { Frames::END_HEADERS } else { 0 };
                    frame(Frames::CONTINUATION, flags, length / 2, &mut block);
                }
            }
        }
        (bytes, held)
    }

    /// Scenario: a conversation comes in pieces of every usual size, one byte too.
    /// Guarantees: behind each piece it is known exactly whether much is held of what is not whole, and whether a frame has ended.
    #[test]
    fn frames_are_followed() {
        let (bytes, held) = conversation(24);
        for piece in [1, 2, 7, 9, 10, 1000, 8192, 16_384, 70_000, bytes.len()] {
            let mut frames = Frames::behind(24);
            let mut seen = 0;
            for piece in bytes.chunks(piece) {
                frames.advance(piece);
                seen += piece.len();
                assert_eq!(frames.are_large(), held[seen - 1] > SMALL_BYTES, "behind {seen}");
            }
        }
        let mut frames = Frames::behind(3);
        let empty = [0; 9];
        assert!(!frames.advance(&[1, 2]));
        assert!(frames.advance(&[3]));
        assert!(!frames.advance(&empty[..8]));
        assert!(frames.advance(&empty[8..]));
    }

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Scenario: nothing more comes of a large frame while a request is under way, which then ends.
    /// Guarantees: whoever reads is told, so that the frame gets its place: h2 may have looked before.
    #[tokio::test]
    async fn a_frame_outlives_its_request() {
        let activity = Activity::new(Instant::now());
        let wakes = Arc::new(Wakes::default());
        let request = activity.begin_request(true);
        activity.unfinished.wait(&wakes.clone().into());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(request);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        activity.unfinished.end();
        drop(activity.begin_request(true));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }
}
