//! Bytes that are held: growing, shrinking, going over to another tenant.

use super::{AtomicBool, Budget, Granted, Ordering, Share};

/// The tenant that a request turned out to be of has its share already ([`Permit::move_to`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverShare;

/// Bytes reserved in a [`Budget`]; dropping it releases them.
#[derive(Debug)]
pub struct Permit {
    budget: Budget,
    tenant: usize,
    share: Share,
    /// What was reserved for is taken on: its end is progress.
    counts: AtomicBool,
}

impl Permit {
    pub(super) fn new(budget: Budget, tenant: usize, share: Share) -> Self {
        Self {
            budget,
            tenant,
            share,
            counts: AtomicBool::new(false),
        }
    }

    /// What it is for has been taken on: when it is dropped, its bytes [have drained](super::Usage::drained). Those of a request that is
    /// received and then refused come free as well, and say nothing of how soon another would find room.
    pub fn counts_as_drained(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.share.bytes()
    }

    /// Whether its tenant holds less than an equal part of what all tenants hold: what is too much is not its doing. Where one floods a queue
    /// that others use up as they should, they hold what came between, and that may be most of an equal part.
    pub fn is_of_a_light_tenant(&self) -> bool {
        let inner = &self.budget.0;
        let tenants = inner.active_tenants() as u64;
        tenants * inner.held_by(self.tenant) < inner.used()
    }

    /// A permit for a copy of what this one is for, made on its way out: its bytes are taken at once, whether they are free or not, for
    /// what leaves must not wait for what comes in. While more is taken than there is, nothing is granted to anybody.
    pub fn for_copy(&self, bytes: u64) -> Permit {
        let inner = &self.budget.0;
        inner.general.charge(bytes);
        inner.count(self.tenant, bytes);
        Permit::new(
            self.budget.clone(),
            self.tenant,
            Share::of(Granted::General, bytes),
        )
    }

    /// Counts all that this permit holds to `tenant` from now on, which has to have room for it as if it asked for it only now. Of several that
    /// go over at the same time none finds the room that another takes.
    ///
    /// # Errors
    /// [`OverShare`] when it has not. Nothing has changed then: the bytes are free for others when the permit is dropped.
    pub fn move_to(&mut self, tenant: usize) -> Result<(), OverShare> {
        let inner = &self.budget.0;
        let tenant = inner.tenant(tenant);
        if tenant == self.tenant {
            return Ok(());
        }
        // No lane changes by this: what the permit holds there is free for its tenant, and for nobody else.
        let (bytes, own) = (self.bytes(), self.share);
        let fits = |held| {
            let has_room = |free, own| !inner.is_beyond(tenant, held, bytes, free + own);
            held.min(bytes) == 0
                || has_room(inner.general.free(), own.general)
                || own.express > 0 && has_room(inner.express.free(), own.express)
        };
        // Before it is taken off the other: between the two nobody seems to be alone.
        if !inner.count_if(tenant, bytes, fits) {
            return Err(OverShare);
        }
        inner.uncount(self.tenant, bytes);
        self.tenant = tenant;
        // Who waits for the share that the bytes were in may have room in it now. No lane has changed by which it would be seen.
        inner.general.look();
        self.serve_waiting();
        Ok(())
    }

    /// Joins another permit of the same request into this one.
    pub fn absorb(&mut self, mut other: Permit) {
        debug_assert!(
            std::sync::Arc::ptr_eq(&self.budget.0, &other.budget.0) && self.tenant == other.tenant,
            "permits of two budgets or tenants never mix"
        );
        let more = std::mem::take(&mut other.share);
        self.share.general += more.general;
        self.share.express += more.express;
    }

    /// Gives back all above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes().saturating_sub(bytes);
        // The general lane is the contended one: give that back first.
        let general = surplus.min(self.share.general);
        let express = surplus - general;
        self.share.general -= general;
        self.share.express -= express;
        self.release(Share { general, express });
    }

    #[inline]
    fn release(&self, share: Share) {
        if share.bytes() == 0 {
            return;
        }
        let inner = &self.budget.0;
        inner.untake(self.tenant, share);
        self.serve_waiting();
    }

    #[inline]
    fn serve_waiting(&self) {
        if self.budget.0.waiting.load(Ordering::Acquire) > 0 {
            self.budget.serve_waiting();
        }
    }
}

impl Drop for Permit {
    #[inline]
    fn drop(&mut self) {
        if self.counts.load(Ordering::Relaxed) {
            let drained = &self.budget.0.drained;
            drained.fetch_add(self.share.bytes(), Ordering::Relaxed);
        }
        self.release(self.share);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
