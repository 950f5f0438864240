//! What is done to a gateway, one after the other.

use super::attack::{Attack, Bodies};

const INFLATIONS: usize = 256;
const BOMBS: usize = 16;
const IDLE_CONNECTIONS: usize = 10_000;
const DRIPS: usize = 200;

/// What the load does in a phase, as a share of the highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// As fast as it is answered.
    Closed,
    Open(f64),
    None,
}

/// What is done to a gateway for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) load: Load,
    pub(crate) faults: &'static str,
    pub(crate) attack: fn(&mut Attack, &str, &Bodies),
}

/// The phase that finds the rate of the others.
pub(crate) const UNREFUSED: &str = "unrefused";
pub(crate) const OVERLOAD: &str = "overload";

/// In this order.
pub(crate) const PHASES: [Phase; 10] = [
    Phase {
        name: UNREFUSED,
        what: "16 clients, as fast as they are answered",
        load: Load::Closed,
        faults: "",
        attack: |_, _, _| {},
    },
    Phase {
        name: OVERLOAD,
        what: "256 clients, twice that rate",
        load: Load::Open(2.0),
        faults: "",
        attack: |_, _, _| {},
    },
    Phase {
        name: "inflations",
        what: "256 bodies that inflate to 60 MiB at a time",
        load: Load::None,
        faults: "",
        attack: |attack, at, bodies| attack.bodies(INFLATIONS, at, &bodies.inflation),
    },
    Phase {
        name: "bombs",
        what: "16 gzip and zstd bodies that inflate to 1 GiB at a time; a quarter of the rate",
        load: Load::Open(0.25),
        faults: "",
        attack: |attack, at, bodies| {
            for bomb in &bodies.bombs {
                attack.bodies(BOMBS / bodies.bombs.len(), at, bomb);
            }
        },
    },
    Phase {
        name: "idle",
        what: "10,000 idle connections; half the rate",
        load: Load::Open(0.5),
        faults: "",
        attack: |attack, at, _| attack.idle(IDLE_CONNECTIONS, at),
    },
    Phase {
        name: "slow-clients",
        what: "200 bodies of 1 MiB at a byte a second; half the rate",
        load: Load::Open(0.5),
        faults: "",
        attack: |attack, at, _| attack.drips(DRIPS, at),
    },
    Phase {
        name: "dead-backend",
        what: "the destination resets every connection; half the rate",
        load: Load::Open(0.5),
        faults: "reset",
        attack: |_, _, _| {},
    },
    Phase {
        name: "slow-backend",
        what: "the destination takes 3 s for each answer; half the rate",
        load: Load::Open(0.5),
        faults: "delay 3s",
        attack: |_, _, _| {},
    },
    Phase {
        name: "everything",
        what: "64 inflations, 16 bombs, 1,000 idle, 50 slow, a destination of 100 ms, a quarter of the rate",
        load: Load::Open(0.25),
        faults: "delay 100ms",
        attack: |attack, at, bodies| {
            attack.bodies(INFLATIONS / 4, at, &bodies.inflation);
            for bomb in &bodies.bombs {
                attack.bodies(BOMBS / bodies.bombs.len(), at, bomb);
            }
            attack.idle(IDLE_CONNECTIONS / 10, at);
            attack.drips(DRIPS / 4, at);
        },
    },
    Phase {
        name: "after",
        what: "as the first",
        load: Load::Closed,
        faults: "",
        attack: |_, _, _| {},
    },
];
