//! A destination behind a network, in any weather, by a seed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_journal::testing::Random;
use tokio::time::{Instant, sleep};

use super::items::{Items, is_poison, is_rejected, items_in, up_to};
use crate::{Batch, Export, Exporter, Verdict};

/// When an exporter gives a request up, as its settings would say.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that weather lasts.
const LONGEST: Duration = Duration::from_secs(20);

/// How it is with the destination for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fair,
    Slow,
    /// 503, with or without `Retry-After`.
    Overloaded,
    /// 401.
    Unauthorized,
    /// RESOURCE_EXHAUSTED without `RetryInfo`.
    Exhausted,
    /// Connection refused.
    Vanished,
    /// Anything between: answers are lost, connections cut, requests hang.
    Unreliable,
}

const ANY: [Weather; 7] = [
    Weather::Fair,
    Weather::Slow,
    Weather::Overloaded,
    Weather::Unauthorized,
    Weather::Exhausted,
    Weather::Vanished,
    Weather::Unreliable,
];

/// What a destination is like whatever the weather.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// It refuses requests with some items.
    pub poison: bool,
    /// It rejects some items.
    pub rejects: bool,
    /// It takes no more items in a request.
    pub most_items: Option<u64>,
    /// Until it is mended, it takes no request with this item.
    pub stuck: Option<Stuck>,
}

/// An item of which nobody knows what to do about it.
#[derive(Debug, Clone, Copy)]
pub struct Stuck {
    pub item: u32,
    /// The destination says that it takes nothing; else, that it may work later.
    pub refuses_all: bool,
}

impl Stuck {
    fn answer(self) -> Verdict {
        match self.refuses_all {
            true => Verdict::EndpointFault { reason: "403".into() },
            false => failed(None, "500"),
        }
    }
}

/// One endpoint.
pub struct Network {
    items: Arc<Mutex<Items>>,
    manners: Manners,
    state: Mutex<State>,
}

struct State {
    random: Random,
    weather: Weather,
    until: Instant,
    calm: bool,
    mended: bool,
}

/// What comes of one request.
struct Fate {
    /// Until it is with the destination.
    there: Duration,
    takes: bool,
    /// From then on until there is an answer, or something that is taken for one.
    back: Duration,
    verdict: Verdict,
}

impl Network {
    pub fn new(items: Arc<Mutex<Items>>, manners: Manners, seed: u64) -> Self {
        let state = State {
            random: Random(seed),
            weather: Weather::Fair,
            until: Instant::now(),
            calm: false,
            mended: false,
        };
        Self {
            items,
            manners,
            state: Mutex::new(state),
        }
    }

    /// Fair weather from now on.
    pub fn calm(&self) {
        self.state.lock().calm = true;
    }

    /// It takes every item from now on.
    pub fn mend(&self) {
        self.state.lock().mended = true;
    }

    async fn send(&self, batch: &Batch) -> Verdict {
        let items: Vec<u32> = (batch.parts.iter())
            .flat_map(|part| items_in(&part.body))
            .collect();
        assert_eq!(
            items.len() as u64,
            batch.items(),
            "items are what they are counted as"
        );
        let fate = {
            let mut state = self.state.lock();
            let stuck = self.manners.stuck.filter(|_| !state.mended);
            let answer = match stuck.filter(|stuck| items.contains(&stuck.item)) {
                Some(stuck) => {
                    self.items.lock().stuck_with.extend(&items);
                    stuck.answer()
                }
                None => self.answer(&items),
            };
            state.fate(answer)
        };
        sleep(fate.there).await;
        let (rejected, taken): (Vec<_>, Vec<_>) = items
            .into_iter()
            .partition(|item| self.manners.rejects && is_rejected(*item));
        let mut request = fate.takes.then(|| {
            let mut of = self.items.lock();
            taken
                .iter()
                .for_each(|item| *of.taken.entry(*item).or_default() += 1);
            Request {
                items: &self.items,
                taken,
                is_answered: false,
            }
        });
        sleep(fate.back).await;
        if let (Verdict::Delivered { .. }, Some(request)) = (&fate.verdict, &mut request) {
            request.is_answered = true;
            let of = &mut *self.items.lock();
            of.answer(request.taken.iter().chain(&rejected).copied());
            of.delivered += request.taken.len() as u64;
            of.rejected.extend(rejected);
        }
        fate.verdict
    }

    /// What the destination says to a request that it gets.
    fn answer(&self, items: &[u32]) -> Verdict {
        if self
            .manners
            .most_items
            .is_some_and(|most| items.len() as u64 > most)
        {
            return Verdict::TooLarge { reason: "413".into() };
        }
        if self.manners.poison && items.iter().any(|item| is_poison(*item)) {
            return Verdict::PayloadFault { reason: "400".into() };
        }
        let rejected = items
            .iter()
            .filter(|item| self.manners.rejects && is_rejected(**item));
        Verdict::Delivered {
            rejected: rejected.count() as u64,
            message: None,
        }
    }
}

/// A request that was taken: until somebody knows, it may be sent again.
struct Request<'a> {
    items: &'a Mutex<Items>,
    taken: Vec<u32>,
    is_answered: bool,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.items.lock().may_repeat(&self.taken);
        }
    }
}

fn failed(after: Option<Duration>, reason: &str) -> Verdict {
    let reason = reason.to_owned();
    Verdict::Retry { after, reason }
}

impl State {
    fn weather(&mut self) -> Weather {
        let now = Instant::now();
        if self.calm {
            return Weather::Fair;
        }
        if now >= self.until {
            self.weather = ANY[self.random.below(ANY.len() as u64) as usize];
            self.until = now + up_to(&mut self.random, LONGEST);
        }
        self.weather
    }

    /// `answer`: what the destination would say.
    fn fate(&mut self, answer: Verdict) -> Fate {
        let weather = self.weather();
        let takes = matches!(answer, Verdict::Delivered { .. });
        let random = &mut self.random;
        let quick = Duration::from_millis(20);
        let (there, back) = (up_to(random, quick), up_to(random, quick));
        let answered = Fate {
            there,
            takes,
            back,
            verdict: answer,
        };
        let refused = |verdict| Fate {
            there,
            takes: false,
            back,
            verdict,
        };
        let after = (random.one_in(2)).then(|| up_to(random, Duration::from_secs(5)));
        match weather {
            Weather::Fair => answered,
            Weather::Slow => Fate {
                back: up_to(random, TIMEOUT / 2),
                ..answered
            },
            Weather::Overloaded => refused(failed(after, "503")),
            Weather::Unauthorized => refused(Verdict::EndpointFault { reason: "401".into() }),
            Weather::Exhausted => refused(Verdict::Exhausted {
                reason: "RESOURCE_EXHAUSTED".into(),
            }),
            Weather::Vanished => refused(failed(None, "connection refused")),
            Weather::Unreliable => match random.below(6) {
                0 => refused(failed(None, "the connection was cut")),
                1 => Fate {
                    verdict: failed(None, "the connection was cut before the answer"),
                    ..answered
                },
                2 => Fate {
                    back: TIMEOUT,
                    verdict: failed(None, "no answer in time"),
                    ..answered
                },
                3 => Fate {
                    back: TIMEOUT,
                    ..refused(failed(None, "no answer in time"))
                },
                4 => refused(failed(after, "503")),
                _ => answered,
            },
        }
    }
}

impl Exporter for Network {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.send(batch))
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}
