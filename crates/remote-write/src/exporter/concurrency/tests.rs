//! The limit before a simulated endpoint, on a clock of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// Requests of this kind are answered after 10 ms where nobody waits.
const WORK: f64 = 0.010;
const LANES: usize = 64;

/// An endpoint that works on `capacity` requests at once and keeps the others waiting, in order.
struct Endpoint {
    /// When each of its places is free again, in seconds.
    free: BinaryHeap<Reverse<Nanos>>,
    /// What a request takes there, as a part of what is usual.
    slowness: f64,
    /// Every so many-th request fails, at once.
    fails_every: u64,
    /// Nothing is answered before; what is under way then times out.
    stalled_until: f64,
    noise: Noise,
}

type Nanos = u64;

/// A stretch of what an answer takes, with an average of 1.
#[derive(Clone, Copy)]
enum Noise {
    None,
    /// As long as it happens: the work of a queue of random arrivals.
    Exponential(u64),
}

impl Noise {
    fn draw(&mut self) -> f64 {
        match self {
            Noise::None => 1.0,
            Noise::Exponential(state) => {
                // xorshift64*
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                let uniform = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64;
                -(1.0 - uniform).ln()
            }
        }
    }
}

/// What lanes that always have something to send come to.
struct Run {
    endpoint: Endpoint,
    limit: Concurrency,
    origin: Instant,
    now: f64,
    /// When requests end, which, how, and when they began.
    ends: BinaryHeap<Reverse<(Nanos, u64)>>,
    under_way: std::collections::HashMap<u64, (Request, Came, f64)>,
    sent: u64,
    /// The sizes of bodies, in turn.
    bytes: Vec<usize>,
}

/// What an endpoint was given in some time.
#[derive(Debug)]
struct Seen {
    answers_per_second: f64,
    average_latency: f64,
    most_under_way: usize,
}

const TIMEOUT: f64 = 30.0;

impl Run {
    fn new(capacity: usize, noise: Noise) -> Self {
        Self {
            endpoint: Endpoint {
                free: (0..capacity).map(|_| Reverse(0)).collect(),
                slowness: 1.0,
                fails_every: u64::MAX,
                stalled_until: 0.0,
                noise,
            },
            limit: Concurrency::new(LANES),
            origin: Instant::now(),
            now: 0.0,
            ends: BinaryHeap::new(),
            under_way: std::collections::HashMap::new(),
            sent: 0,
            bytes: vec![1000],
        }
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_secs_f64(self.now)
    }

    fn send(&mut self) {
        loop {
            let bytes = self.bytes[self.sent as usize % self.bytes.len()];
            let at = self.instant();
            let Some(request) = self.limit.begin(bytes, at) else {
                return;
            };
            assert!(self.under_way.len() < LANES);
            self.sent += 1;
            let (end, came) = self.answer(bytes);
            self.ends.push(Reverse((end, self.sent)));
            self.under_way.insert(self.sent, (request, came, self.now));
        }
    }

    /// When a request that is sent now is answered, and how.
    fn answer(&mut self, bytes: usize) -> (Nanos, Came) {
        let nanos = |seconds: f64| (seconds * 1e9) as Nanos;
        let endpoint = &mut self.endpoint;
        if self.sent.is_multiple_of(endpoint.fails_every) {
            return (nanos(self.now + 0.001), Came::Failure);
        }
        let Reverse(free) = endpoint.free.pop().unwrap();
        let begin = (free as f64 / 1e9).max(self.now).max(endpoint.stalled_until);
        let work = WORK * bytes as f64 / 1000.0 * endpoint.slowness * endpoint.noise.draw();
        endpoint.free.push(Reverse(nanos(begin + work)));
        if begin + work - self.now > TIMEOUT {
            return (nanos(self.now + TIMEOUT), Came::Failure);
        }
        (nanos(begin + work), Came::Answer)
    }

    fn for_seconds(&mut self, seconds: f64) -> Seen {
        let (began, until) = (self.now, self.now + seconds);
        let (mut answers, mut latency, mut most_under_way) = (0u64, 0.0, 0);
        self.send();
        while let Some(Reverse((end, id))) = self.ends.peek().copied()
            && end as f64 / 1e9 <= until
        {
            self.ends.pop();
            self.now = (end as f64 / 1e9).max(self.now);
            most_under_way = most_under_way.max(self.under_way.len());
            let (request, came, begun) = self.under_way.remove(&id).unwrap();
            if came == Came::Answer {
                answers += 1;
                latency += self.now - begun;
            }
            let at = self.instant();
            self.limit.end(request, came, at);
            self.send();
        }
        self.now = until;
        Seen {
            answers_per_second: answers as f64 / (until - began),
            average_latency: latency / answers as f64,
            most_under_way,
        }
    }
}

/// Scenario: endpoints that work on 1 to 40 requests at once, one that has room for all there are, each after as long as the last or after
/// random times; 64 lanes that always have something to send.
/// Guarantees: at least four fifths of what the endpoint can do, and no more than twice the latency of one that nobody waits at.
#[test]
fn an_endpoint_is_kept_busy_and_nobody_waits_long() {
    for noise in [Noise::None, Noise::Exponential(7)] {
        for capacity in [1, 2, 3, 5, 10, 20, 40, 1000] {
            let mut run = Run::new(capacity, noise);
            run.for_seconds(20.0);
            let seen = run.for_seconds(60.0);
            let best = capacity.min(LANES) as f64 / WORK;
            println!("{capacity}: {seen:?}, limit {}", run.limit.limit());
            assert!(
                seen.answers_per_second >= 0.8 * best,
                "{capacity}: {seen:?} of {best}"
            );
            assert!(seen.average_latency <= 2.0 * WORK, "{capacity}: {seen:?}");
        }
    }
}

/// Scenario: an endpoint that is found out about.
/// Guarantees: it is sent one request at first, and what it can do within two seconds.
#[test]
fn it_begins_with_one_and_grows_fast() {
    let mut run = Run::new(20, Noise::None);
    assert_eq!(run.for_seconds(WORK / 2.0).most_under_way, 0);
    assert_eq!(run.under_way.len(), 1);
    run.for_seconds(2.0);
    assert!(run.limit.limit() >= 20, "{}", run.limit.limit());
}

/// Scenario: an endpoint answers nothing for 100 s, and what is under way times out; then it answers again.
/// Guarantees: while it stalls fewer and fewer requests are under way; within ten seconds after it all is as before.
#[test]
fn it_recovers_from_a_stall() {
    for noise in [Noise::None, Noise::Exponential(3)] {
        let mut run = Run::new(10, noise);
        let before = run.for_seconds(30.0);
        run.endpoint.stalled_until = run.now + 100.0;
        run.for_seconds(100.0);
        assert!(run.limit.limit() <= 8, "{}", run.limit.limit());
        run.for_seconds(10.0);
        let after = run.for_seconds(30.0);
        assert!(
            after.answers_per_second >= 0.9 * before.answers_per_second,
            "{before:?} {after:?}"
        );
        assert!(after.average_latency <= 2.0 * WORK, "{after:?}");
    }
}

/// Scenario: every request takes four times as long from some time on, for good, and later as long as at first.
/// Guarantees: fewer are under way at first; then what the endpoint can do now is found, and again when it can do more.
#[test]
fn what_is_calm_is_learned_anew() {
    let mut run = Run::new(10, Noise::None);
    run.for_seconds(30.0);
    let before = run.limit.limit();
    run.endpoint.slowness = 4.0;
    let mut least = before;
    for _ in 0..100 {
        run.for_seconds(0.1);
        least = least.min(run.limit.limit());
    }
    assert!(least <= before / 2, "{least} of {before}");
    run.for_seconds(20.0);
    let slow = run.for_seconds(60.0);
    assert!(slow.answers_per_second >= 0.8 * 10.0 / (4.0 * WORK), "{slow:?}");
    assert!(slow.average_latency <= 2.0 * 4.0 * WORK, "{slow:?}");
    run.endpoint.slowness = 1.0;
    run.for_seconds(60.0);
    let fast = run.for_seconds(60.0);
    assert!(fast.answers_per_second >= 0.8 * 10.0 / WORK, "{fast:?}");
    assert!(fast.average_latency <= 2.0 * WORK, "{fast:?}");
}

/// Scenario: bodies of 1,000 and of 60,000 bytes take turns, in runs of 50, and take as much longer.
/// Guarantees: that is taken for no queue: as many are under way as with bodies of one size.
#[test]
fn large_bodies_are_not_taken_for_a_queue() {
    let mut run = Run::new(1000, Noise::None);
    run.bytes = [vec![1000; 50], vec![60_000; 50]].concat();
    run.for_seconds(30.0);
    let mut least = usize::MAX;
    for _ in 0..100 {
        run.for_seconds(0.5);
        if !run.limit.round.is_calm {
            least = least.min(run.limit.limit());
        }
    }
    assert_eq!(least, LANES);
}

/// Scenario: one request in ten fails, and later three in four do.
/// Guarantees: the first costs no place; under the second one request is left.
#[test]
fn failures_are_overload_when_they_are_many() {
    let mut run = Run::new(1000, Noise::None);
    run.endpoint.fails_every = 10;
    run.for_seconds(20.0);
    run.limit.round.is_calm = false;
    assert_eq!(run.limit.limit(), LANES);
    let at = run.instant();
    let mut limit = run.limit;
    for number in 0..2000 {
        let Some(request) = limit.begin(1000, at) else {
            // Those that were under way before end as well.
            limit.under_way = 0;
            continue;
        };
        let came = if number % 4 == 0 {
            Came::Answer
        } else {
            Came::Failure
        };
        limit.end(request, came, at + Duration::from_secs_f64(WORK));
    }
    assert_eq!(limit.limit(), 1);
}

/// Scenario: few requests at a time, whatever may be; then answers that say nothing.
/// Guarantees: a limit that nobody comes up to does not grow; what says nothing changes nothing.
#[test]
fn a_limit_that_is_not_used_stays() {
    let mut limit = Concurrency::new(LANES);
    limit.limit = 8.0;
    let at = Instant::now();
    for _ in 0..1000 {
        let request = limit.begin(10, at).unwrap();
        limit.end(request, Came::Answer, at + Duration::from_millis(5));
    }
    assert!((limit.limit - 8.0).abs() < 1e-9);
    for _ in 0..1000 {
        let request = limit.begin(10, at).unwrap();
        limit.end(request, Came::Nothing, at + Duration::from_secs(5));
    }
    assert!((limit.limit - 8.0).abs() < 1e-9);
}
