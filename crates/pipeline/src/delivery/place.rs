//! When a batch may be sent: its place in the window, and its way through the gate.

use tokio::time::{Instant, sleep_until};

use super::Delivery;
use crate::Turn;
use crate::gate::{Line, Pass};
use crate::window::{Attempt, Window};

/// A batch's place in the window, and its right to a request while it has one; given back however its task ends.
pub(super) struct Place<'a> {
    delivery: &'a Delivery,
    attempt: Option<Attempt>,
}

impl<'a> Place<'a> {
    /// Of a batch that has entered.
    pub(super) fn taken(delivery: &'a Delivery) -> Self {
        delivery.metrics.in_flight.add(1);
        Self {
            delivery,
            attempt: Some(Attempt::First),
        }
    }

    /// Waits for the right to a request.
    async fn begin(&mut self) {
        if self.attempt.is_none() {
            self.delivery.window_allows(Window::try_again).await;
            self.delivery.metrics.in_flight.add(1);
            self.attempt = Some(Attempt::Again);
        }
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
        window.leave();
        drop(window);
        self.delivery.window_changed.notify_waiters();
    }
}

impl Delivery {
    /// Waits until the window allows what `allowed` takes of it.
    pub(super) async fn window_allows(&self, allowed: fn(&mut Window) -> bool) {
        loop {
            let changed = self.window_changed.notified();
            if allowed(&mut self.window.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until a request may be sent; true when it is the probe of a held destination.
    pub(super) async fn wait_for_turn(&self, place: &mut Place<'_>, line: &mut Line, turn: Turn) -> bool {
        let probe = self.wait_for_gate(place, line, turn).await;
        // Behind the gate: who waits there has no right to a request that the probe could be waiting for.
        place.begin().await;
        probe
    }

    async fn wait_for_gate(&self, place: &mut Place<'_>, line: &mut Line, turn: Turn) -> bool {
        loop {
            let changed = self.gate_changed.notified();
            // A probe that waited for what comes before it would wait for ever: that waits for the probe.
            let may_probe = !self.runs_ahead || self.turns.lock().first_since(turn).is_some();
            if !may_probe && self.gate.lock().is_held() {
                place.pause();
                changed.await;
                continue;
            }
            let pass = self.gate.lock().pass(Instant::now(), line);
            match pass {
                Pass::Open => return false,
                Pass::Probe => return true,
                Pass::Wait(until) => {
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
