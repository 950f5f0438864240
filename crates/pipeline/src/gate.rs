//! Holding a backlog back while its destination refuses everything. Sans-IO: time is a parameter.

use std::time::Duration;

use tokio::time::Instant;

/// The first probe of a held destination comes after this long; an operator who mends a token
/// should not wait much longer.
pub const FIRST_PROBE: Duration = Duration::from_secs(5);

/// Probes come no less often than this, however long the fault lasts.
pub const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// When more payloads than this are refused one after another, with none accepted in between, they are not bad
/// payloads: the destination is at fault, and the rest of the backlog is held, not dropped.
pub const MAX_PAYLOAD_FAULTS_IN_A_ROW: u32 = 8;

/// What a sender may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Send.
    Open,
    /// Send, as the one probe.
    Probe,
    /// Wait until then, or until the gate changes.
    Wait(Instant),
}

/// Open, or held with one probe at a time.
#[derive(Debug)]
pub(crate) struct Gate {
    held: Option<Held>,
    payload_faults: u32,
}

#[derive(Debug)]
struct Held {
    probe_at: Instant,
    interval: Duration,
    probing: bool,
}

impl Gate {
    pub fn new() -> Self {
        Self {
            held: None,
            payload_faults: 0,
        }
    }

    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Asks to send.
    pub fn pass(&mut self, now: Instant) -> Pass {
        match &mut self.held {
            None => Pass::Open,
            Some(held) if !held.probing && now >= held.probe_at => {
                held.probing = true;
                Pass::Probe
            }
            Some(held) => Pass::Wait(if held.probing {
                now + held.interval
            } else {
                held.probe_at
            }),
        }
    }

    /// The destination accepted something.
    pub fn accepted(&mut self) {
        self.held = None;
        self.payload_faults = 0;
    }

    /// The destination refused a single payload. True when that is one too many to be the payload's fault.
    pub fn payload_refused(&mut self) -> bool {
        self.payload_faults = self.payload_faults.saturating_add(1);
        self.held.is_some() || self.payload_faults > MAX_PAYLOAD_FAULTS_IN_A_ROW
    }

    /// The destination is at fault: holds, or holds on for longer after a probe. True when it was open.
    pub fn hold(&mut self, now: Instant, probe: bool) -> bool {
        match &mut self.held {
            None => {
                self.held = Some(Held {
                    probe_at: now + FIRST_PROBE,
                    interval: FIRST_PROBE,
                    probing: false,
                });
                true
            }
            Some(held) => {
                if probe {
                    held.interval = (held.interval * 2).min(MAX_PROBE_INTERVAL);
                    held.probe_at = now + held.interval;
                    held.probing = false;
                }
                false
            }
        }
    }

    /// The probe was not sent, or another endpoint is to be asked: whoever is next has it, now.
    pub fn probe_handed_on(&mut self) {
        if let Some(held) = &mut self.held {
            held.probing = false;
        }
    }

    /// A probe ended without an answer about the fault (time-out, connection lost): probe again later.
    pub fn probe_inconclusive(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.probe_at = now + held.interval;
            held.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a destination answers 401 for a while, then accepts.
    /// Guarantees: one probe at a time, at growing, bounded intervals; one success opens the gate.
    #[test]
    fn one_probe_at_a_time() {
        let start = Instant::now();
        let mut gate = Gate::new();
        assert_eq!(gate.pass(start), Pass::Open);
        assert!(gate.hold(start, false));
        assert!(!gate.hold(start, false), "a second fault in flight is no news");
        assert_eq!(gate.pass(start), Pass::Wait(start + FIRST_PROBE));
        let mut now = start + FIRST_PROBE;
        let mut last = FIRST_PROBE;
        for _ in 0..10 {
            assert_eq!(gate.pass(now), Pass::Probe);
            assert!(matches!(gate.pass(now), Pass::Wait(_)), "only one probe");
            gate.hold(now, true);
            let Pass::Wait(next) = gate.pass(now) else {
                panic!("held")
            };
            assert!(next - now >= last && next - now <= MAX_PROBE_INTERVAL);
            last = next - now;
            now = next;
        }
        assert_eq!(gate.pass(now), Pass::Probe);
        gate.probe_handed_on();
        assert_eq!(gate.pass(now), Pass::Probe, "somebody else's");
        gate.probe_inconclusive(now);
        assert_eq!(gate.pass(now), Pass::Wait(now + MAX_PROBE_INTERVAL));
        gate.accepted();
        assert_eq!(gate.pass(now), Pass::Open);
    }

    /// Scenario: payload after payload is refused.
    /// Guarantees: a few are taken for bad payloads, then the destination is to blame; one success
    /// in between starts the count anew.
    #[test]
    fn a_row_of_payload_faults_is_an_endpoint_fault() {
        let mut gate = Gate::new();
        for _ in 0..MAX_PAYLOAD_FAULTS_IN_A_ROW {
            assert!(!gate.payload_refused());
        }
        gate.accepted();
        for _ in 0..MAX_PAYLOAD_FAULTS_IN_A_ROW {
            assert!(!gate.payload_refused());
        }
        assert!(gate.payload_refused());
    }
}
