//! Holding a backlog back while its destination refuses everything. Sans-IO: time is a parameter.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::refusals::Refusals;

/// The first probe of a held destination comes after this long; an operator who mends a token
/// should not wait much longer.
pub const FIRST_PROBE: Duration = Duration::from_secs(5);

/// Probes come no less often than this, however long the fault lasts.
pub const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(60);

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
    refusals: Refusals,
    /// Given to those who wait.
    numbers: u64,
}

/// Where a batch waits for a probe: those that were not refused yet come first, then who has waited longest. That the destination refuses
/// everything may be true of one batch alone, and that one must not have every probe.
#[derive(Debug, Default)]
pub(crate) struct Line {
    number: Option<u64>,
    /// The probe that the batch was given last.
    probe: Option<u64>,
    is_refused: bool,
}

impl Line {
    /// The batch was refused: from now on it is behind those that were not.
    pub fn refused(&mut self) {
        self.is_refused = true;
    }
}

#[derive(Debug)]
struct Held {
    probe_at: Instant,
    interval: Duration,
    /// The probe that is given and has not ended.
    probing: Option<u64>,
    /// What it said last is that somebody has to mend it: not that it has too much to do, nor something about payloads.
    is_fault: bool,
    /// Who waits, and how ([`Line`]).
    line: BTreeSet<(bool, u64)>,
}

impl Gate {
    pub fn new() -> Self {
        Self {
            held: None,
            refusals: Refusals::default(),
            numbers: 0,
        }
    }

    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// As [`pass`](Self::pass), for who may not probe. `None` while the destination is held: it is not in the line, where it would keep the probe
    /// from who may.
    pub fn pass_without_probe(&self) -> Option<Pass> {
        self.held.is_none().then_some(Pass::Open)
    }

    /// Asks to send. While the destination is held, who asks waits in `line`: the probe is for the first in it, who may ask again until it has
    /// sent it.
    pub fn pass(&mut self, now: Instant, line: &mut Line) -> Pass {
        let Some(held) = &mut self.held else {
            return Pass::Open;
        };
        if held.probing.is_some() && held.probing == line.probe {
            return Pass::Probe;
        }
        let number = *line.number.get_or_insert_with(|| {
            self.numbers += 1;
            self.numbers
        });
        let mine = (line.is_refused, number);
        held.line.insert(mine);
        if now < held.probe_at && held.probing.is_none() {
            return Pass::Wait(held.probe_at);
        }
        if held.probing.is_some() || held.line.first() != Some(&mine) {
            return Pass::Wait(now + held.interval);
        }
        held.line.remove(&mine);
        line.number = None;
        line.probe = Some(number);
        held.probing = line.probe;
        Pass::Probe
    }

    /// The destination accepted so many payloads; none: what it said shows all the same that it works.
    pub fn accepted(&mut self, payloads: usize) {
        self.held = None;
        match payloads {
            0 => self.refusals.works(),
            some => self.refusals.took(some),
        }
    }

    /// The destination refused a single payload. True when that is one too many to be the payload's fault.
    pub fn payload_refused(&mut self) -> bool {
        self.refusals.refused();
        self.held.is_some() || self.refusals.are_too_many()
    }

    /// Somebody has to mend the destination: it refuses everything, and did so again when it was probed. Not while a probe is under way.
    pub fn is_hopeless(&self) -> bool {
        (self.held.as_ref())
            .is_some_and(|held| held.is_fault && held.probing.is_none() && held.interval > FIRST_PROBE)
    }

    /// The destination refuses everything: holds, or holds on for longer after a probe. True when it was open. `is_fault`: somebody has to mend it.
    pub fn hold(&mut self, now: Instant, probe: bool, is_fault: bool) -> bool {
        match &mut self.held {
            None => {
                self.held = Some(Held {
                    probe_at: now + FIRST_PROBE,
                    interval: FIRST_PROBE,
                    probing: None,
                    is_fault,
                    line: BTreeSet::new(),
                });
                true
            }
            Some(held) => {
                held.is_fault = is_fault;
                if probe {
                    held.interval = (held.interval * 2).min(MAX_PROBE_INTERVAL);
                    held.probe_at = now + held.interval;
                    held.probing = None;
                }
                false
            }
        }
    }

    /// The probe was not sent, or another endpoint is to be asked: whoever is next has it, now.
    pub fn probe_handed_on(&mut self) {
        if let Some(held) = &mut self.held {
            held.probing = None;
        }
    }

    /// A probe ended without an answer about the fault (time-out, connection lost): probe again later.
    pub fn probe_inconclusive(&mut self, now: Instant) {
        if let Some(held) = &mut self.held {
            held.probe_at = now + held.interval;
            held.probing = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: while the destination is held one asks that may not probe, then one that may and was refused; then it is time for a probe.
    /// Guarantees: the probe is for the one that may: the other is not before it.
    #[test]
    fn who_may_not_probe_is_not_in_the_line() {
        let mut now = Instant::now();
        let mut gate = Gate::new();
        assert_eq!(gate.pass_without_probe(), Some(Pass::Open));
        gate.hold(now, false, true);
        assert_eq!(gate.pass_without_probe(), None);
        let mut first = Line::default();
        first.refused();
        assert!(matches!(gate.pass(now, &mut first), Pass::Wait(_)));
        now += FIRST_PROBE;
        assert_eq!(gate.pass_without_probe(), None);
        assert_eq!(gate.pass(now, &mut first), Pass::Probe);
    }

    /// Scenario: a destination answers 401 for a while, then accepts.
    /// Guarantees: probes come at growing, bounded intervals; one success opens the gate.
    #[test]
    fn probes_come_ever_less_often() {
        let start = Instant::now();
        let (mut gate, mut line) = (Gate::new(), Line::default());
        assert_eq!(gate.pass(start, &mut line), Pass::Open);
        assert!(gate.hold(start, false, true));
        assert!(
            !gate.hold(start, false, true),
            "a second fault in flight is no news"
        );
        assert_eq!(gate.pass(start, &mut line), Pass::Wait(start + FIRST_PROBE));
        let mut now = start + FIRST_PROBE;
        let mut last = FIRST_PROBE;
        for _ in 0..10 {
            assert_eq!(gate.pass(now, &mut line), Pass::Probe);
            gate.hold(now, true, true);
            let Pass::Wait(next) = gate.pass(now, &mut line) else {
                panic!("held")
            };
            assert!(next - now >= last && next - now <= MAX_PROBE_INTERVAL);
            last = next - now;
            now = next;
        }
        assert_eq!(gate.pass(now, &mut line), Pass::Probe);
        gate.probe_handed_on();
        assert_eq!(gate.pass(now, &mut line), Pass::Probe, "somebody else's");
        gate.probe_inconclusive(now);
        assert_eq!(gate.pass(now, &mut line), Pass::Wait(now + MAX_PROBE_INTERVAL));
        gate.accepted(1);
        assert_eq!(gate.pass(now, &mut line), Pass::Open);
    }

    /// Scenario: two batches that are refused each time wait for probes, first by first; later a third one comes that was never sent.
    /// Guarantees: they take turns, however quick the one that had the last probe is to ask again; the new one is before both.
    #[test]
    fn probes_go_round() {
        let mut now = Instant::now();
        let mut gate = Gate::new();
        gate.hold(now, false, true);
        let mut lines = [Line::default(), Line::default(), Line::default()];
        lines[..2].iter_mut().for_each(Line::refused);
        // They ask in this order, and again when the probe is due; it is refused.
        let mut probe = |order: &[usize]| {
            for one in order {
                assert!(matches!(gate.pass(now, &mut lines[*one]), Pass::Wait(_)));
            }
            now += MAX_PROBE_INTERVAL;
            let mut probes = Vec::new();
            for one in order {
                if gate.pass(now, &mut lines[*one]) == Pass::Probe {
                    probes.push(*one);
                }
            }
            gate.hold(now, true, true);
            probes
        };
        assert_eq!(probe(&[0, 1]), [0]);
        assert_eq!(probe(&[0, 1]), [1]);
        assert_eq!(probe(&[1, 0]), [0]);
        assert_eq!(probe(&[0, 1]), [1]);
        assert_eq!(probe(&[1, 0, 2]), [2]);
    }

    /// Scenario: who has the probe asks once more before it sends: while the destination is held, after another request was accepted, and after the
    /// destination refused everything anew.
    /// Guarantees: the probe is still its own, and nobody else has one; then there is none to be sent; then it waits like everybody.
    #[test]
    fn a_probe_that_has_not_been_sent_asks_again() {
        let mut now = Instant::now();
        let mut gate = Gate::new();
        let (mut line, mut other) = (Line::default(), Line::default());
        gate.hold(now, false, true);
        gate.pass(now, &mut line);
        now += FIRST_PROBE;
        assert_eq!(gate.pass(now, &mut line), Pass::Probe);
        assert!(
            matches!(gate.pass(now, &mut other), Pass::Wait(_)),
            "only one probe"
        );
        assert_eq!(gate.pass(now, &mut line), Pass::Probe);
        gate.accepted(1);
        assert_eq!(gate.pass(now, &mut line), Pass::Open);
        gate.hold(now, false, true);
        assert_eq!(gate.pass(now, &mut line), Pass::Wait(now + FIRST_PROBE));
        now += FIRST_PROBE;
        assert_eq!(gate.pass(now, &mut line), Pass::Probe);
        gate.hold(now, true, true);
        assert!(matches!(gate.pass(now, &mut line), Pass::Wait(_)), "it has ended");
    }
}
