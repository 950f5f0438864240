//! Memory for what is written to be sent: compressed bodies, and those written in another format.
//!
//! A batch that is sent as it came needs no memory of its own. One that is compressed does, until the destination has
//! it, and so many large ones at once would be as much again as the requests they come from. They share a pool, which
//! the memory plan sets aside for them: a body is written once there is room for what it is expected to take.
//!
//! No destination can keep another from sending: each may have one body more, whatever the pool holds. So what is
//! held is at most the pool, one body a destination, and what bodies take beyond what was expected of them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What the pool counts in: a semaphore gives out at most 2^32 at once.
const UNIT_BYTES: usize = 1024;

/// Buffers with more spare capacity than this part of their content give it back.
const SPARE_PART: usize = 4;

/// The memory that all exporters write bodies into. Cloning shares it.
#[derive(Debug, Clone)]
pub struct EgressPool {
    units: Arc<Semaphore>,
    size: usize,
}

impl EgressPool {
    /// A pool of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT_BYTES;
        let size = units.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            units: Arc::new(Semaphore::new(size)),
            size,
        }
    }

    /// Bytes set aside for bodies being written and sent.
    pub fn used(&self) -> u64 {
        (self.size - self.units.available_permits()) as u64 * UNIT_BYTES as u64
    }
}

impl Default for EgressPool {
    /// Without a limit.
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

/// One destination's way to the pool.
#[derive(Debug, Clone)]
pub struct Egress {
    pool: EgressPool,
    /// The one body that needs no room in the pool.
    own: Arc<Semaphore>,
}

impl Egress {
    /// For one destination.
    pub fn new(pool: EgressPool) -> Self {
        Self {
            pool,
            own: Arc::new(Semaphore::new(1)),
        }
    }

    /// Room for a body that is expected to take `bytes` and is not sent yet: of the pool, if there is any just now. The one body that
    /// needs none is for what is sent: if one that waits for its turn had it, the one before it might wait for it for ever.
    pub fn try_reserve(&self, bytes: usize) -> Option<EgressPermit> {
        let permit = self.pool.try_take(units(bytes))?;
        Some(EgressPermit(Room::Pool(permit, self.pool.clone())))
    }

    /// Waits for room for a body that is expected to take `bytes`.
    pub async fn reserve(&self, bytes: usize) -> EgressPermit {
        if let Some(permit) = self.try_reserve(bytes) {
            return permit;
        }
        let units = units(bytes);
        let fits = units as usize <= self.pool.size;
        let pool = self.pool.units.clone();
        let room = tokio::select! {
            biased;
            Ok(own) = self.own.clone().acquire_owned() => Room::Own(Arc::new(own)),
            Ok(permit) = pool.acquire_many_owned(units), if fits => Room::Pool(permit, self.pool.clone()),
            // The semaphores are never closed.
            else => Room::None,
        };
        EgressPermit(room)
    }
}

impl EgressPool {
    fn try_take(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        self.units.clone().try_acquire_many_owned(units).ok()
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// Room for the bodies of one request; what is not kept for one is given back on drop.
#[derive(Debug)]
pub struct EgressPermit(Room);

#[derive(Debug)]
enum Room {
    Pool(OwnedSemaphorePermit, EgressPool),
    Own(Arc<OwnedSemaphorePermit>),
    None,
}

impl EgressPermit {
    /// `body`, with its part of the room, which comes free when the last of its bytes is dropped.
    pub fn keep(&mut self, mut body: Vec<u8>) -> Bytes {
        if body.capacity() - body.len() > body.len() / SPARE_PART {
            body.shrink_to_fit();
        }
        let EgressPermit(room) = self.part(body.capacity());
        Bytes::from_owner(Kept { body, _room: room })
    }

    /// The part of the room that `bytes` take which are there already.
    pub fn part(&mut self, bytes: usize) -> EgressPermit {
        EgressPermit(match &mut self.0 {
            Room::Pool(left, pool) => {
                let needed = units(bytes) as usize;
                let expected = needed.min(left.num_permits());
                let mut part = left.split(expected);
                // It is written already: what nobody expected is charged if there is room.
                if let (Some(part), Some(more)) = (&mut part, pool.try_take((needed - expected) as u32)) {
                    part.merge(more);
                }
                part.map_or(Room::None, |part| Room::Pool(part, pool.clone()))
            }
            Room::Own(own) => Room::Own(own.clone()),
            Room::None => Room::None,
        })
    }
}

struct Kept {
    body: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const KIB: usize = 1024;

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// Scenario: bodies that fill the pool, some smaller and some larger than was expected of them.
    /// Guarantees: what is charged is what they take, as long as there is room, until their last byte is dropped.
    #[test]
    fn bodies_are_charged_for_what_they_take() {
        let pool = EgressPool::new(100 * KIB as u64);
        let egress = Egress::new(pool.clone());
        let mut permit = now(egress.reserve(50 * KIB)).unwrap();
        assert_eq!(pool.used(), 50 * KIB as u64);
        let first = permit.keep(vec![1; 10 * KIB]);
        let second = permit.keep(vec![2; 20 * KIB]);
        drop(permit);
        assert_eq!(pool.used(), 30 * KIB as u64);
        let slice = first.slice(..1);
        drop((first, second));
        assert_eq!((pool.used(), slice.len()), (10 * KIB as u64, 1));
        drop(slice);
        assert_eq!(pool.used(), 0);

        let mut permit = now(egress.reserve(KIB)).unwrap();
        let larger = permit.keep(vec![3; 60 * KIB]);
        assert_eq!(pool.used(), 60 * KIB as u64);
        let spare = permit.keep(Vec::with_capacity(1 << 20));
        assert_eq!((pool.used(), spare.len()), (60 * KIB as u64, 0));
        drop((larger, spare, permit));
        assert_eq!(pool.used(), 0);
    }

    /// Scenario: one destination fills the pool and never answers; another sends, a body larger than the whole pool
    /// among it.
    /// Guarantees: the other always has one body under way, and never two while the pool is full.
    #[test]
    fn a_destination_that_stalls_holds_up_nobody_else() {
        let pool = EgressPool::new(100 * KIB as u64);
        let (stalled, other) = (Egress::new(pool.clone()), Egress::new(pool.clone()));
        let held: Vec<_> = (0..2).map(|_| now(stalled.reserve(50 * KIB)).unwrap()).collect();
        let more = now(stalled.reserve(50 * KIB)).unwrap();
        assert!(now(stalled.reserve(KIB)).is_none(), "its own body is under way");
        for bytes in [10 * KIB, 1 << 20] {
            let mut permit = now(other.reserve(bytes)).unwrap();
            let body = permit.keep(vec![0; bytes]);
            drop(permit);
            assert!(now(other.reserve(KIB)).is_none());
            drop(body);
        }
        drop(held);
        let (one, two) = (now(other.reserve(50 * KIB)), now(other.reserve(50 * KIB)));
        assert!(one.is_some() && two.is_some());
        drop((one, two, more));
        assert_eq!(pool.used(), 0);
    }

    /// Scenario: bodies are written ahead of their turn until the pool is full, and then one more than the pool would ever hold.
    /// Guarantees: they get room of the pool or none; the destination's own body is left for the one whose turn it is.
    #[test]
    fn bodies_ahead_of_their_turn_take_nobodys_place() {
        let pool = EgressPool::new(100 * KIB as u64);
        let egress = Egress::new(pool.clone());
        let ahead = egress.try_reserve(100 * KIB).unwrap();
        assert!(egress.try_reserve(KIB).is_none() && egress.try_reserve(1 << 20).is_none());
        assert!(now(egress.reserve(50 * KIB)).is_some());
        drop(ahead);
        assert!(egress.try_reserve(1 << 20).is_none() && egress.try_reserve(KIB).is_some());
        assert_eq!(pool.used(), 0);
    }
}
