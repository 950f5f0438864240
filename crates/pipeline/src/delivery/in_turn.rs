//! A batch's turn, for exporters that keep the order by themselves.

use std::sync::Arc;

use tokio::time::Instant;

use super::Delivery;
use crate::{Ending, Turn};

/// The turn of a batch that is under way, until nothing more comes of it.
pub(super) struct InTurn {
    delivery: Arc<Delivery>,
    turn: Turn,
    ending: Ending,
}

impl InTurn {
    pub fn begin(delivery: Arc<Delivery>, turn: Turn) -> Self {
        if delivery.runs_ahead {
            delivery.turns.lock().begin(turn, Instant::now());
        }
        Self {
            delivery,
            turn,
            ending: Ending::Settled,
        }
    }

    /// The rest of it is for the next process.
    pub fn leave(mut self) {
        self.ending = Ending::Left;
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        if self.delivery.runs_ahead {
            self.delivery.turns.lock().end(self.turn, Instant::now());
            self.delivery.exporter.ends(self.turn, self.ending);
            // Another one is the first, and may probe.
            self.delivery.gate_changed.notify_waiters();
        }
    }
}
