//! Endpoints in any weather, by a seed, that know what they have taken.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What the exporter would wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that weather lasts.
const LONGEST_MILLIS: u64 = 20_000;

/// One sample in so many is refused, where some are.
const POISON_IN: u64 = 40;

#[derive(Debug, Clone, Copy)]
enum Weather {
    Fair,
    Slow,
    /// 503 to some requests.
    Busy,
    /// 503 to all.
    Overloaded,
    Unauthorized,
    Vanished,
    Hangs,
}

/// All endpoints of an exporter.
#[derive(Debug)]
pub struct Endpoints {
    mischief: Mischief,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    calm: bool,
    weather: Vec<(Weather, Instant)>,
    /// A series for which an answer takes for ever, and until when.
    stalled: (usize, Instant),
    /// By series: everything before has been taken, but what is missing.
    next: Vec<u64>,
    missing: Vec<BTreeSet<u64>>,
    /// What had been taken when the process started.
    at_start: Vec<u64>,
    /// By series and point: when the answer came to the process that runs.
    answered: BTreeMap<(usize, u64), Instant>,
    /// What a process before was told in time to write it down.
    settled: BTreeSet<(usize, u64)>,
    wrong: Vec<String>,
}

fn is_poison(series: usize, point: u64) -> bool {
    Random((series as u64) << 32 | point).one_in(POISON_IN)
}

impl Endpoints {
    pub fn new(mischief: Mischief, random: Random) -> Self {
        let now = Instant::now();
        Self {
            state: Mutex::new(State {
                random,
                calm: false,
                weather: vec![(Weather::Fair, now); mischief.shards],
                stalled: (0, now),
                next: vec![0; SERIES],
                missing: vec![BTreeSet::new(); SERIES],
                at_start: vec![0; SERIES],
                answered: BTreeMap::new(),
                settled: BTreeSet::new(),
                wrong: Vec::new(),
            }),
            mischief,
        }
    }

    pub fn calm(&self) {
        self.state.lock().calm = true;
    }

    pub fn process_starts(&self) {
        let mut state = self.state.lock();
        state.at_start = state.next.clone();
    }

    /// An answer of the last millisecond is on its way to the file. The next process does not know of it, and may itself end without one.
    pub fn process_ends(&self) {
        let state = &mut *self.state.lock();
        let in_time = |at: Instant| at + Duration::from_millis(1) < Instant::now();
        let answered = std::mem::take(&mut state.answered).into_iter();
        state
            .settled
            .extend(answered.filter(|(_, at)| in_time(*at)).map(|(point, _)| point));
    }

    pub fn assert_in_order(&self) {
        let state = self.state.lock();
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
    }

    /// How many of these were not taken, but for those that never are.
    pub fn missing(&self, made: &[u64]) -> u64 {
        let state = self.state.lock();
        let mut missing = 0;
        for (series, made) in made.iter().enumerate() {
            let never = |point: &u64| self.mischief.poison && is_poison(series, *point);
            missing += state.missing[series].iter().filter(|point| !never(point)).count();
            missing += (state.next[series]..*made).filter(|point| !never(point)).count();
        }
        missing as u64
    }

    /// Series and points in a body.
    fn points(body: &Body) -> Vec<(usize, u64)> {
        let mut points = Vec::new();
        each_series(body.format.version(), &body.plain().unwrap(), |series| {
            let number: usize = series.label("n").parse().unwrap();
            points.extend(
                series
                    .samples
                    .iter()
                    .map(|sample| (number, sample.value as u64 - 1)),
            );
            Ok(())
        })
        .unwrap();
        points
    }

    fn take(&self, points: &[(usize, u64)]) {
        let state = &mut *self.state.lock();
        for &(series, point) in points {
            let next = state.next[series];
            if point >= next {
                if point > next && self.mischief.keeps_everything() {
                    state
                        .wrong
                        .push(format!("point {point} of {series} passes {next}"));
                }
                state.missing[series].extend(next..point);
                state.next[series] = point + 1;
                continue;
            }
            // What was given up may come after a start all the same: that it was is not written down at once.
            let is_late = state.missing[series].remove(&point);
            let comes_again = point < state.at_start[series];
            if self.mischief.repeats_no_answer() && state.settled.contains(&(series, point)) {
                state.wrong.push(format!(
                    "point {point} of {series} had been answered before the start"
                ));
            }
            if !comes_again && (is_late || !self.mischief.loses_answers) {
                let how = if is_late { "comes late" } else { "came before" };
                state
                    .wrong
                    .push(format!("point {point} of {series} {how}; {next} is next"));
            }
        }
    }
}

impl State {
    fn below(&mut self, millis: u64) -> Duration {
        Duration::from_millis(1 + self.random.below(millis))
    }

    fn weather(&mut self, shard: usize) -> Weather {
        use Weather::{Busy, Fair, Hangs, Overloaded, Slow, Unauthorized, Vanished};
        let now = Instant::now();
        if self.calm {
            return Fair;
        }
        if self.weather[shard].1 <= now {
            let any = [
                Fair,
                Fair,
                Slow,
                Busy,
                Busy,
                Overloaded,
                Unauthorized,
                Vanished,
                Hangs,
            ];
            let next = any[self.random.below(any.len() as u64) as usize];
            self.weather[shard] = (next, now + self.below(LONGEST_MILLIS));
        }
        self.weather[shard].0
    }

    fn is_stalled(&mut self, points: &[(usize, u64)]) -> bool {
        let now = Instant::now();
        if self.stalled.1 + Duration::from_secs(30) <= now {
            let series = self.random.below(SERIES as u64) as usize;
            self.stalled = (series, now + self.below(2 * LONGEST_MILLIS));
        }
        let (stalled, until) = self.stalled;
        !self.calm && now < until && points.iter().any(|(series, _)| *series == stalled)
    }
}

fn no_answer() -> Result<Answer, SendError> {
    Err(SendError::Timeout {
        after: TIMEOUT,
        phase: sluice_client::Phase::Waiting,
    })
}

impl Scripted for Endpoints {
    fn answer<'a>(
        &'a self,
        url: &'a str,
        body: &'a Body,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>> {
        Box::pin(async move {
            let points = Self::points(body);
            let shard = url.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            let (weather, is_stalled, there, back, dice) = {
                let state = &mut *self.state.lock();
                let weather = state.weather(shard);
                let longest = match weather {
                    Weather::Slow => 5000,
                    _ => 150,
                };
                let is_stalled = state.is_stalled(&points);
                (
                    weather,
                    is_stalled,
                    state.below(150),
                    state.below(longest),
                    state.random.below(12),
                )
            };
            tokio::time::sleep(there).await;
            let status = match weather {
                Weather::Hangs => 0,
                _ if is_stalled => 0,
                Weather::Overloaded => 503,
                Weather::Busy if dice < 4 => 503,
                Weather::Unauthorized => 401,
                Weather::Vanished => return Err(SendError::Lost("it is gone".to_owned())),
                _ if points.len() > self.mischief.most_series => 413,
                _ if self.mischief.poison && points.iter().any(|(n, point)| is_poison(*n, *point)) => 400,
                _ => 204,
            };
            if status == 204 {
                self.take(&points);
            }
            if status == 0 || status == 204 && self.mischief.loses_answers && dice == 11 {
                tokio::time::sleep(TIMEOUT).await;
                return no_answer();
            }
            tokio::time::sleep(back).await;
            if status == 204 {
                let points = points.into_iter().map(|point| (point, Instant::now()));
                self.state.lock().answered.extend(points);
            }
            Ok(answer(status))
        })
    }
}
