//! Contexts of encoders, which take longer to make than a small body takes to compress.

use parking_lot::Mutex;

/// Contexts kept between bodies.
pub(super) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    /// Contexts kept when nobody compresses: more than this many at once on this many cores would
    /// only wait for each other.
    const KEPT: usize = 4;

    /// An empty one.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A kept context that satisfies `fits`.
    pub fn take(&self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(fits)?;
        Some(kept.swap_remove(at))
    }

    /// Keeps `context` for the next body, in the place of the oldest where there are enough.
    pub fn put(&self, context: T) {
        let mut kept = self.0.lock();
        if kept.len() >= Self::KEPT {
            kept.swap_remove(0);
        }
        kept.push(context);
    }

    /// Drops all of them.
    pub fn give_back(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;

    /// Scenario: more contexts than are kept are put back; one is taken; the others are given back; the one that was taken is put back.
    /// Guarantees: no more stay than are kept, none after that, and the pool goes on.
    #[test]
    fn what_is_given_back_is_gone() {
        let context = Arc::new(());
        let pool = Pool::new();
        for _ in 0..=Pool::<Arc<()>>::KEPT {
            pool.put(context.clone());
        }
        assert_eq!(Arc::strong_count(&context), 1 + Pool::<Arc<()>>::KEPT);
        let taken = pool.take(|_| true).unwrap();
        pool.give_back();
        assert_eq!(Arc::strong_count(&context), 2);
        assert!(pool.take(|_| true).is_none());
        pool.put(taken);
        assert!(pool.take(|_| true).is_some());
    }
}
