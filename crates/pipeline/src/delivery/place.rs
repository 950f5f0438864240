//! When a batch may be sent: its place in the window, and its way through the gate.

use tokio::time::{Instant, sleep_until};

use super::Delivery;
use crate::Turn;
use crate::gate::{Line, Pass};
use crate::window::{Attempt, InLine, Window};

/// A batch's place in the window, and its right to a request while it has one; given back however its task ends.
pub(super) struct Place<'a> {
    delivery: &'a Delivery,
    attempt: Option<Attempt>,
    in_line: InLine,
}

impl<'a> Place<'a> {
    /// Of a batch that has entered.
    pub(super) fn taken(delivery: &'a Delivery) -> Self {
        delivery.metrics.in_flight.add(1);
        Self {
            delivery,
            attempt: Some(Attempt::First),
            in_line: InLine::default(),
        }
    }

    /// Waits for the right to a request; true when it had to.
    async fn begin(&mut self) -> bool {
        if self.attempt.is_some() {
            return false;
        }
        let in_line = &mut self.in_line;
        let has_waited = self
            .delivery
            .window_allows(|window| window.try_again(in_line))
            .await;
        self.delivery.metrics.in_flight.add(1);
        self.attempt = Some(Attempt::Again);
        // A first attempt may go beside it, and the next in line where there is room: both may have asked before it did.
        self.delivery.window_changed.notify_waiters();
        has_waited
    }

    /// There is none for now: others may.
    pub(super) fn pause(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.delivery.metrics.in_flight.add(-1);
            self.delivery.window.lock().ended(attempt);
            self.delivery.window_changed.notify_waiters();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut window = self.delivery.window.lock();
        if let Some(attempt) = self.attempt.take() {
            self.delivery.metrics.in_flight.add(-1);
            window.ended(attempt);
        }
        window.leave(std::mem::take(&mut self.in_line));
        drop(window);
        self.delivery.window_changed.notify_waiters();
    }
}

impl Delivery {
    /// Waits until the window allows what `allowed` takes of it; true when it had to.
    pub(super) async fn window_allows(&self, mut allowed: impl FnMut(&mut Window) -> bool) -> bool {
        let mut has_waited = false;
        loop {
            let changed = self.window_changed.notified();
            if allowed(&mut self.window.lock()) {
                return has_waited;
            }
            changed.await;
            has_waited = true;
        }
    }

    /// Waits until a request may be sent; true when it is the probe of a held destination.
    pub(super) async fn wait_for_turn(&self, place: &mut Place<'_>, line: &mut Line, turn: Turn) -> bool {
        loop {
            let probe = self.wait_for_gate(place, line, turn).await;
            // Behind the gate: who waits there has no right to a request that the probe could be waiting for. Meanwhile the gate may have closed.
            if !place.begin().await {
                return probe;
            }
        }
    }

    async fn wait_for_gate(&self, place: &mut Place<'_>, line: &mut Line, turn: Turn) -> bool {
        loop {
            let changed = self.gate_changed.notified();
            // A probe that waited for what comes before it would wait for ever: that waits for the probe.
            let may_probe = !self.runs_ahead || self.turns.lock().first_since(turn).is_some();
            let pass = {
                let mut gate = self.gate.lock();
                match may_probe {
                    true => Some(gate.pass(Instant::now(), line)),
                    false => gate.pass_without_probe(),
                }
            };
            match pass {
                None => {
                    place.pause();
                    changed.await;
                }
                Some(Pass::Open) => return false,
                Some(Pass::Probe) => return true,
                Some(Pass::Wait(until)) => {
                    place.pause();
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }
}
