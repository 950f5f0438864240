//! The decision whether a request of a method may come in: levels, breaker and trickle put together.
//!
//! A guard knows no protocol and no clock. Ask it with [`Guard::admit`] before the work and tell it with
//! [`Guard::settle`] after; give it what the process feels with [`Guard::observe`]. It holds no bytes: reserve those
//! in the [`Budget`](crate::Budget) beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::{Rotor, Trickle};
use crate::registry::{Named, Registry};
use crate::tracker::duration_nanos;
use crate::{
    Action, Breaker, BreakerChange, BreakerState, Cause, GuardSettings, Jitter, Level, LevelChange,
    LevelGauge, NeverFits, Outcome, Pass, Priority, Signals, Stats, Tracker,
};

/// The name of what methods beyond the limit share.
pub const OTHER_METHODS: &str = "other";

/// A method's level is judged at most this often, in nanoseconds, so that judging costs a busy one nothing: a level
/// is at most 1 ms behind its samples. The samples' figures themselves are never behind.
const JUDGE_EVERY: u64 = 1_000_000;

/// A method that is turned away is judged at the latest after this, in nanoseconds, however few samples there are:
/// with fewer than ten in ten seconds, admitting them all does no harm.
const JUDGE_AT_LAST: u64 = 10_000_000_000;

/// A process level is left when its signal, increased by a ninth, would no longer cause it: it must fall to 90%.
const LEAVE_FACTOR: f64 = 1.0 / 0.9;

/// Told about what a guard does. Called in the thread that made it happen: be quick.
pub trait Hooks: Send + Sync {
    /// A level changed: a method's, or that of the process (`None`). Once for each change.
    fn level_changed(&self, method: Option<&str>, change: LevelChange) {
        let _ = (method, change);
    }

    /// A method's breaker changed its state. Once for each change.
    fn breaker_changed(&self, method: &str, change: BreakerChange) {
        let _ = (method, change);
    }

    /// A request came in while the level that holds for it was `level`.
    fn admitted(&self, method: &str, level: Level) {
        let _ = (method, level);
    }

    /// A request that came in is over: how it ended, and how many nanoseconds it took; `None` where it was never worked on.
    fn settled(&self, method: &str, outcome: Outcome, latency: Option<u64>) {
        let _ = (method, outcome, latency);
    }

    /// A request was refused, or would have been by its level, where the guard [only watches](GuardSettings::enforce).
    fn refused(&self, method: &str, refusal: &Refusal) {
        let _ = (method, refusal);
    }
}

/// Hooks that do nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The level, and the signal that set it.
    Level(Level, Cause),
    /// The method keeps failing.
    Breaker,
    /// There is no room for it for now, says whoever reserves bytes.
    NoRoom,
    /// There never is.
    NeverFits(NeverFits),
}

/// Come back later, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// When; with jitter, so that the refused do not come back as one. `None`: never, for the answer would be the same.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Of what is too large for ever.
    pub fn never(never: NeverFits) -> Self {
        Self {
            reason: Reason::NeverFits(never),
            retry_after: None,
        }
    }

    /// `retry_after` in whole seconds, rounded up: the value of HTTP's `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let delay = self.retry_after?;
        Some(delay.as_secs() + u64::from(delay.subsec_nanos() > 0))
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.reason {
            Reason::Level(level, cause) => write!(f, "overloaded: level {level} by {cause}")?,
            Reason::Breaker => f.write_str("the method failed repeatedly and is left alone")?,
            Reason::NoRoom => f.write_str("no room for the request")?,
            Reason::NeverFits(never) => write!(f, "{never}; send less at once")?,
        }
        match self.retry_after_seconds() {
            Some(seconds) => write!(f, "; try again in {seconds} s"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

/// Leave to work on one request. Give it back with [`Guard::settle`], to the guard that gave it: it says where that one keeps the method.
#[derive(Debug)]
#[must_use = "the guard learns how requests end from settled tickets only"]
pub struct Ticket {
    /// `None` for what is skipped.
    method: Option<Place>,
    pass: Option<Pass>,
    /// Set when the client should be asked to slow down.
    pub hint: Option<Duration>,
}

/// Where a method is in the guard's table; anywhere else is what methods beyond the limit share. Not a pointer: the count of its holders
/// would cost every request two atomic updates of what all threads update.
#[derive(Debug, Clone, Copy)]
struct Place(usize);

const OTHER: Place = Place(usize::MAX);

/// What is kept for a method.
#[derive(Debug)]
pub(crate) struct Method {
    tracker: Tracker,
    gauge: LevelGauge,
    /// When the level was judged last.
    judged: AtomicU64,
    trickle: Trickle,
    /// `None` for what methods beyond the limit share: they are not one endpoint.
    breaker: Option<Breaker>,
}

impl Method {
    fn new(settings: &GuardSettings, breaker: Option<Breaker>, now: u64) -> Self {
        Self {
            tracker: Tracker::new(&settings.tracker),
            gauge: LevelGauge::new(),
            judged: AtomicU64::new(now),
            trickle: Trickle::default(),
            breaker,
        }
    }
}

/// What a guard knows about a method, for metrics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodView<'a> {
    /// The method, or [`OTHER_METHODS`].
    pub name: &'a str,
    /// Its latency.
    pub stats: Stats,
    /// Its own level.
    pub level: Level,
    /// Its breaker.
    pub breaker: Option<BreakerState>,
}

/// Decides which requests come in. Share it in an [`Arc`](std::sync::Arc); nothing in it locks.
pub struct Guard {
    settings: GuardSettings,
    trickle_nanos: u64,
    methods: Registry<Method>,
    other: Named<Method>,
    process: LevelGauge,
    rotors: [Rotor; 3],
    jitter: Jitter,
    hooks: Box<dyn Hooks>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("settings", &self.settings)
            .field("level", &self.process.level())
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// A guard that has seen nothing; `seed` drives the jitter of its hints.
    pub fn new(settings: GuardSettings, hooks: impl Hooks + 'static, seed: u64) -> Self {
        Self {
            trickle_nanos: duration_nanos(settings.trickle),
            methods: Registry::new(settings.max_methods),
            other: Named {
                name: OTHER_METHODS.into(),
                value: Method::new(&settings, None, 0),
            },
            process: LevelGauge::new(),
            rotors: Default::default(),
            jitter: Jitter::new(seed),
            hooks: Box::new(hooks),
            settings,
        }
    }

    /// Whether a request of `method` may come in at `now` (nanoseconds of the clock used everywhere here).
    ///
    /// `method` should be from a bounded set, such as a route and not a path: the first
    /// [`GuardSettings::max_methods`] names are kept for good.
    ///
    /// # Errors
    /// [`Refusal`] with the reason and when to come back; tell it to the client in a way that invites a retry.
    #[inline]
    pub fn admit(&self, method: &str, priority: Priority, now: u64) -> Result<Ticket, Refusal> {
        // What is known is not skipped, or it would not be known: no prefix needs a look.
        let place = match self.methods.find(method) {
            Ok(place) => Place(place),
            Err(_) if self.skips(method) => {
                return Ok(Ticket {
                    method: None,
                    pass: None,
                    hint: None,
                });
            }
            Err(at) => self.meet(at, method, now),
        };
        let method = self.named(place);
        let level = method.value.gauge.level().max(self.process.level());
        let mut hint = None;
        if level != Level::Normal {
            hint = self.admit_above_normal(method, priority, now)?;
        }
        let pass = match (&method.value.breaker, &self.settings.breaker) {
            (Some(breaker), Some(settings)) => match breaker.admit(settings, now) {
                Ok(pass) => Some(pass),
                Err(open) => return Err(self.refuse(method, Reason::Breaker, open.retry_after)),
            },
            _ => None,
        };
        self.hooks.admitted(&method.name, level);
        Ok(Ticket {
            method: Some(place),
            pass,
            hint,
        })
    }

    /// Takes in that the request of `ticket` ended at `now`, `latency` nanoseconds after it came. A request that was
    /// given up ([`Outcome::Abandoned`]) took at least as long, and counts for the latency but not for the breaker.
    #[inline]
    pub fn settle(&self, ticket: Ticket, outcome: Outcome, latency: u64, now: u64) {
        let Some(method) = ticket.method.map(|place| self.named(place)) else {
            return;
        };
        method.value.tracker.record(now, latency);
        self.hooks.settled(&method.name, outcome, Some(latency));
        if let (Some(pass), Some(breaker), Some(settings)) =
            (ticket.pass, &method.value.breaker, &self.settings.breaker)
            && let Some(change) = breaker.settle(settings, pass, outcome, now)
        {
            self.hooks.breaker_changed(&method.name, change);
        }
        if now.saturating_sub(method.value.judged.load(Ordering::Relaxed)) >= JUDGE_EVERY {
            self.judge(method, now);
        }
    }

    /// Takes back a ticket whose request was never worked on: nothing is learnt from it.
    pub fn abandon(&self, ticket: Ticket, now: u64) {
        let Some(method) = ticket.method.map(|place| self.named(place)) else {
            return;
        };
        self.hooks.settled(&method.name, Outcome::Abandoned, None);
        if let (Some(pass), Some(settings)) = (ticket.pass, &self.settings.breaker)
            && let Some(breaker) = &method.value.breaker
            && let Some(change) = breaker.settle(settings, pass, Outcome::Abandoned, now)
        {
            self.hooks.breaker_changed(&method.name, change);
        }
    }

    /// Takes back a ticket whose request was turned away for want of something that the guard knows nothing of, and tells the hooks.
    pub fn turn_away(&self, ticket: Ticket, refusal: &Refusal, now: u64) {
        if let Some(place) = ticket.method {
            self.hooks.refused(&self.named(place).name, refusal);
        }
        self.abandon(ticket, now);
    }

    /// Takes in what the process feels at `now`. Call it every 100 ms or so, and when something changed for sure.
    pub fn observe(&self, signals: &Signals, now: u64) {
        let thresholds = &self.settings.signals;
        let enter = thresholds.worst(signals, 1.0);
        let leave = thresholds.worst(signals, LEAVE_FACTOR);
        // Above the threshold of a level: enter it. Within a tenth below it: stay, but do not rise to it.
        let held = self.process.level();
        let (level, cause) = if enter.0 >= held.min(leave.0) {
            enter
        } else {
            (held.min(leave.0), leave.1)
        };
        if let Some(change) = self.process.observe(level, cause, now, self.settings.hold) {
            self.hooks.level_changed(None, change);
        }
    }

    /// The level of the process, by the signals observed.
    pub fn level(&self) -> Level {
        self.process.level()
    }

    /// Every method tracked, as of `now`, the shared one last.
    pub fn methods(&self, now: u64) -> impl Iterator<Item = MethodView<'_>> {
        self.methods
            .iter()
            .chain(std::iter::once(&self.other))
            .map(move |method| MethodView {
                name: &method.name,
                stats: method.value.tracker.stats(now),
                level: method.value.gauge.level(),
                breaker: method.value.breaker.as_ref().map(Breaker::state),
            })
    }

    #[inline]
    fn skips(&self, method: &str) -> bool {
        self.settings
            .skip
            .iter()
            .any(|prefix| method.starts_with(&**prefix))
    }

    /// Begins to track a method, which is not known yet and belongs `at` a place.
    #[cold]
    fn meet(&self, at: usize, method: &str, now: u64) -> Place {
        let breaker = self.settings.breaker.map(|_| Breaker::new(now));
        let make = || Method::new(&self.settings, breaker, now);
        self.methods.insert(at, method, make).map_or(OTHER, Place)
    }

    #[inline]
    fn named(&self, place: Place) -> &Named<Method> {
        self.methods.at(place.0).unwrap_or(&self.other)
    }

    /// What the level means for this request: a hint, perhaps, or a refusal.
    #[cold]
    fn admit_above_normal(
        &self,
        method: &Named<Method>,
        priority: Priority,
        now: u64,
    ) -> Result<Option<Duration>, Refusal> {
        // Without requests nothing is recorded and nobody judges: a level must not outlive its reason.
        if now.saturating_sub(method.value.judged.load(Ordering::Relaxed)) >= JUDGE_AT_LAST {
            self.judge(method, now);
        }
        let own = method.value.gauge.level_and_cause();
        let process = self.process.level_and_cause();
        let (level, cause) = if process.0 > own.0 { process } else { own };
        let retry_after = self.settings.retry_after[level as usize];
        let turned_away = match self.settings.actions.of(level) {
            Action::Admit => return Ok(None),
            Action::AdmitAndHint => return Ok(self.settings.enforce.then(|| self.spread(retry_after))),
            Action::Shed(shares) => self.rotors[priority as usize].takes(shares[priority as usize]),
            Action::Refuse => true,
        };
        if turned_away && !method.value.trickle.takes(now, self.trickle_nanos) {
            let refusal = self.refuse(method, Reason::Level(level, cause), retry_after);
            return if self.settings.enforce {
                Err(refusal)
            } else {
                Ok(None)
            };
        }
        Ok(self.settings.enforce.then(|| self.spread(retry_after)))
    }

    #[cold]
    fn refuse(&self, method: &Named<Method>, reason: Reason, retry_after: Duration) -> Refusal {
        let refusal = Refusal {
            reason,
            retry_after: Some(self.spread(retry_after)),
        };
        self.hooks.refused(&method.name, &refusal);
        refusal
    }

    fn spread(&self, delay: Duration) -> Duration {
        delay.mul_f64(0.75 + 0.5 * self.jitter.draw())
    }

    /// Judges a method's level by its figures. While requests of it are turned away, it is judged by what passes,
    /// in blocks: what was recorded before the last judgement is forgotten, or thousands of slow samples from before
    /// would outweigh the trickle that shows a recovery.
    #[cold]
    fn judge(&self, method: &Named<Method>, now: u64) {
        let Method {
            tracker,
            gauge,
            judged,
            ..
        } = &method.value;
        let last = judged.load(Ordering::Relaxed);
        let stats = tracker.stats(now);
        let turns_away = |level| self.settings.enforce && self.settings.actions.of(level).turns_away();
        let turning_away = turns_away(gauge.level());
        let enough = stats.weight >= self.settings.latency.min_weight
            || self.settings.tracker.percentiles.is_none()
            || now.saturating_sub(last) >= JUDGE_AT_LAST;
        if turning_away && !enough {
            return;
        }
        // One judge at a time is enough; the others' samples are in the figures.
        if judged
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let level = self.settings.latency.level(&stats);
        if let Some(change) = gauge.observe(level, Cause::Latency, now, self.settings.hold) {
            self.hooks.level_changed(Some(&method.name), change);
        }
        if turns_away(level) && turns_away(gauge.level()) {
            tracker.restart();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLISECOND;

    #[derive(Default, Clone)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Hooks for Log {
        fn level_changed(&self, method: Option<&str>, change: LevelChange) {
            let method = method.unwrap_or("process");
            self.push(format!(
                "{method} {} -> {} by {}",
                change.from, change.to, change.cause
            ));
        }

        fn breaker_changed(&self, method: &str, change: BreakerChange) {
            self.push(format!("{method} {:?} -> {:?}", change.from, change.to));
        }
    }

    impl Log {
        fn push(&self, line: String) {
            self.0.lock().unwrap().push(line);
        }

        fn lines(&self) -> Vec<String> {
            self.0.lock().unwrap().clone()
        }
    }

    fn request(guard: &Guard, method: &str, latency: u64, now: u64) -> bool {
        match guard.admit(method, Priority::Normal, now) {
            Ok(ticket) => {
                guard.settle(ticket, Outcome::Success, latency, now + latency);
                true
            }
            Err(_) => false,
        }
    }

    /// Scenario: Floodgate's latch: a busy method takes 20 s, is refused, then is fast at once; 100 requests/s.
    /// Guarantees: a trickle passes all the while; a few seconds after it is fast, everything is admitted again.
    /// (There, it was refused until its cache entry ran out, by default two minutes, as no request could show it.)
    #[test]
    fn a_method_that_recovers_is_admitted_again() {
        let log = Log::default();
        let guard = Guard::new(GuardSettings::default(), log.clone(), 1);
        // A minute of 1,000 requests/s, each of 20 s: the histogram is full of slow samples.
        for n in 0..60_000 {
            if let Ok(ticket) = guard.admit("/slow", Priority::Normal, SECOND + n * MILLISECOND) {
                guard.settle(ticket, Outcome::Success, 20 * SECOND, SECOND + n * MILLISECOND);
            }
        }
        assert_eq!(log.lines(), ["/slow normal -> emergency by latency"]);
        let (mut now, mut admitted) = (62 * SECOND, 0);
        for _ in 0..1_000 {
            now += 10 * MILLISECOND;
            if let Ok(ticket) = guard.admit("/slow", Priority::Normal, now) {
                guard.settle(ticket, Outcome::Success, 20 * SECOND, now);
                admitted += 1;
            }
        }
        assert_eq!(admitted, 100, "one each 100 ms");
        let fast_from = now;
        let recovered = (0..1_000)
            .find(|_| {
                now += 10 * MILLISECOND;
                request(&guard, "/slow", MILLISECOND, now);
                guard.methods(now).all(|method| method.level == Level::Normal)
            })
            .map(|_| now - fast_from);
        assert!(recovered.is_some_and(|after| after < 3 * SECOND), "{recovered:?}");
        assert!((0..100).all(|n| request(&guard, "/slow", MILLISECOND, now + n * MILLISECOND)));
        assert_eq!(log.lines()[1..], ["/slow emergency -> normal by latency"]);
    }

    /// Scenario: a refused method that nobody asks for any more, then a single request after a minute.
    /// Guarantees: it is admitted: a level does not outlive its reason.
    #[test]
    fn a_level_does_not_outlive_its_reason() {
        let guard = Guard::new(GuardSettings::default(), NoHooks, 1);
        for n in 0..100 {
            request(&guard, "/slow", 20 * SECOND, SECOND + n * MILLISECOND);
        }
        assert!(
            guard
                .methods(30 * SECOND)
                .any(|method| method.level == Level::Emergency)
        );
        let later = 90 * SECOND;
        for n in 0..10 {
            assert!(
                request(&guard, "/slow", MILLISECOND, later + n * MILLISECOND),
                "{n}"
            );
        }
    }

    /// Scenario: Floodgate's one breaker for all: a sick method and a healthy one, requests taking turns.
    /// Guarantees: the sick one is left alone though the healthy one succeeds in between; the healthy one never is.
    #[test]
    fn a_sick_method_does_not_close_the_way_to_others() {
        let log = Log::default();
        let guard = Guard::new(GuardSettings::default(), log.clone(), 1);
        let (mut sick, mut healthy) = (0, 0);
        for n in 0..1_000 {
            let now = SECOND + n * 10 * MILLISECOND;
            if let Ok(ticket) = guard.admit("/sick", Priority::Normal, now) {
                guard.settle(ticket, Outcome::Failure, MILLISECOND, now);
                sick += 1;
            }
            healthy += usize::from(request(&guard, "/healthy", MILLISECOND, now));
        }
        assert_eq!(healthy, 1_000);
        assert!((3..=101).contains(&sick), "{sick}");
        assert_eq!(log.lines(), ["/sick Closed -> Open"]);
        let refusal = guard.admit("/sick", Priority::High, 11 * SECOND).unwrap_err();
        assert_eq!(refusal.reason, Reason::Breaker);
    }

    /// Scenario: each level of the process in turn, 10,000 requests of each priority at each.
    /// Guarantees: the shares of the default actions are refused, with a hint, beside the trickle; a level change is
    /// told once with its cause; skipped methods always pass.
    #[test]
    fn levels_shed_by_priority() {
        let log = Log::default();
        let settings = GuardSettings {
            trickle: Duration::from_secs(3_600),
            ..GuardSettings::default()
        };
        let guard = Guard::new(settings, log.clone(), 1);
        let mut now = SECOND;
        // The trickle of each method is used up beforehand.
        for (disk, refused) in [
            (0.0, [0, 0, 0]),
            (0.76, [0, 0, 0]),
            (0.86, [5_000, 1_000, 0]),
            (0.93, [10_000, 8_000, 2_500]),
            (0.98, [10_000, 10_000, 10_000]),
        ] {
            now += MILLISECOND;
            for _ in 0..3 {
                guard.observe(
                    &Signals {
                        disk,
                        ..Signals::default()
                    },
                    now,
                );
            }
            for (priority, expected) in [Priority::Low, Priority::Normal, Priority::High]
                .into_iter()
                .zip(refused)
            {
                let got = (0..10_000)
                    .filter(|_| match guard.admit("/m", priority, now) {
                        Ok(ticket) => {
                            assert_eq!(ticket.hint.is_some(), disk > 0.75);
                            false
                        }
                        Err(refusal) => {
                            assert!(refusal.retry_after_seconds() >= Some(1), "{refusal}");
                            true
                        }
                    })
                    .count();
                assert!(
                    expected - got as i64 <= 10 && got as i64 - expected <= 10,
                    "{disk} {priority:?}: {got}"
                );
            }
            assert!(
                guard
                    .admit("/grpc.health.v1.Health/Check", Priority::Low, now)
                    .is_ok()
            );
        }
        assert_eq!(
            log.lines(),
            [
                "process normal -> warning by disk",
                "process warning -> moderate by disk",
                "process moderate -> critical by disk",
                "process critical -> emergency by disk",
            ]
        );
    }

    /// Scenario: a budget that swings between 84% and 86% every 2 s, longer than the hold time, then 76%.
    /// Guarantees: the level is entered once, at 85%, and left once, below nine tenths of that.
    #[test]
    fn a_signal_around_its_threshold_does_not_flap() {
        let log = Log::default();
        let guard = Guard::new(GuardSettings::default(), log.clone(), 1);
        for n in 0..200_u64 {
            let budget = match n {
                100.. => 0.76,
                _ if n / 20 % 2 == 0 => 0.84,
                _ => 0.86,
            };
            guard.observe(
                &Signals {
                    budget,
                    ..Signals::default()
                },
                n * 100 * MILLISECOND,
            );
        }
        assert_eq!(
            log.lines(),
            [
                "process normal -> warning by budget",
                "process warning -> moderate by budget",
                "process moderate -> warning by budget",
            ]
        );
    }

    /// Scenario: 10,000 different methods.
    /// Guarantees: memory for 512, and one shared entry for the rest, which has no breaker and works as the others.
    #[test]
    fn methods_are_bounded() {
        let guard = Guard::new(GuardSettings::default(), NoHooks, 1);
        for n in 0..10_000_u64 {
            assert!(request(
                &guard,
                &format!("/method/{n}"),
                MILLISECOND,
                SECOND + n * MILLISECOND
            ));
        }
        let methods: Vec<_> = guard.methods(12 * SECOND).collect();
        assert_eq!(methods.len(), 513);
        let other = methods[512];
        assert_eq!((other.name, other.breaker), (OTHER_METHODS, None));
        assert!(other.stats.weight > 1_000.0);
    }

    /// Scenario: the presets and the default.
    /// Guarantees: memory for each method is what the documentation says; 512 methods of the default, with names and
    /// table, take at most 1 MiB.
    #[test]
    fn memory_is_as_stated() {
        let kib = |settings: &GuardSettings| settings.method_memory_bytes() as f64 / 1_024.0;
        let default = GuardSettings::default();
        assert!(kib(&default) <= 1.9, "{}", kib(&default));
        assert!(kib(&GuardSettings::high_throughput()) <= 1.9);
        assert!(kib(&GuardSettings::low_latency()) <= 1.9);
        assert!(
            kib(&GuardSettings::small_memory()) <= 1.3,
            "{}",
            kib(&GuardSettings::small_memory())
        );
        let names = 512 * (64 + size_of::<Named<()>>() + 2 * size_of::<usize>());
        let total = 512 * default.method_memory_bytes() + names + Registry::<Method>::memory_bytes(512);
        assert!(total <= 1 << 20, "{total}");
    }

    /// Scenario: requests that end well, badly, and without having been worked on; one that is refused, and one of a skipped method.
    /// Guarantees: the hooks hear of each that came in once when it does, with the level, and once when it is over, with how and how long; of a
    /// refused one as that alone, and of a skipped one nothing.
    #[test]
    fn every_request_is_told() {
        #[derive(Default, Clone)]
        struct Told(Arc<Mutex<Vec<String>>>);
        impl Hooks for Told {
            fn admitted(&self, method: &str, level: Level) {
                self.0.lock().unwrap().push(format!("{method} in at {level}"));
            }
            fn settled(&self, method: &str, outcome: Outcome, latency: Option<u64>) {
                let line = format!("{method} {outcome:?} after {latency:?}");
                self.0.lock().unwrap().push(line);
            }
            fn refused(&self, method: &str, _: &Refusal) {
                self.0.lock().unwrap().push(format!("{method} refused"));
            }
        }
        let told = Told::default();
        let guard = Guard::new(GuardSettings::default(), told.clone(), 1);
        let admit = |method: &str| guard.admit(method, Priority::Normal, SECOND);
        guard.settle(admit("/a").unwrap(), Outcome::Success, 7, SECOND);
        guard.settle(admit("/a").unwrap(), Outcome::Failure, 8, SECOND);
        guard.abandon(admit("/a").unwrap(), SECOND);
        guard.settle(admit("/health").unwrap(), Outcome::Success, 9, SECOND);
        let disk = Signals {
            disk: 1.0,
            ..Signals::default()
        };
        guard.observe(&disk, SECOND);
        // The trickle, and then nobody.
        let _trickle = admit("/a").unwrap();
        assert!(admit("/a").is_err());
        assert_eq!(
            *told.0.lock().unwrap(),
            [
                "/a in at normal",
                "/a Success after Some(7)",
                "/a in at normal",
                "/a Failure after Some(8)",
                "/a in at normal",
                "/a Abandoned after None",
                "/a in at emergency",
                "/a refused",
            ]
        );
    }

    /// Scenario: a guard that only watches, at emergency; ten requests.
    /// Guarantees: all come in, without a hint; the hooks hear of those that would have been refused, which is all but
    /// the trickle.
    #[test]
    fn a_guard_that_only_watches_refuses_nobody() {
        #[derive(Default, Clone)]
        struct Refused(Arc<AtomicU64>);
        impl Hooks for Refused {
            fn refused(&self, _: &str, _: &Refusal) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let refused = Refused::default();
        let settings = GuardSettings {
            enforce: false,
            ..GuardSettings::default()
        };
        let guard = Guard::new(settings, refused.clone(), 1);
        guard.observe(
            &Signals {
                disk: 1.0,
                ..Signals::default()
            },
            SECOND,
        );
        assert_eq!(guard.level(), Level::Emergency);
        for _ in 0..10 {
            let ticket = guard.admit("/a", Priority::Normal, SECOND).unwrap();
            assert_eq!(ticket.hint, None);
            guard.settle(ticket, Outcome::Success, MILLISECOND, SECOND);
        }
        assert_eq!(refused.0.load(Ordering::Relaxed), 9);
    }
}
