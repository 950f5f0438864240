//! One exporter's actor: reads its cursor, batches, sends through the in-flight window, settles.
//!
//! The rules, by [`Verdict`]:
//!
//! | verdict | what follows |
//! |---|---|
//! | delivered | settled; what the destination rejected is counted as `partial_success`, never retried |
//! | retry | the same batch again after the destination's delay, else exponential backoff with jitter |
//! | too large | halved, between payloads, then between items; a single item is a dead letter |
//! | delivered in part | settled; the pieces that the destination refuses are dead letters |
//! | payload fault | bisected between payloads, then, within a budget, between items; what is left is a dead letter |
//! | endpoint fault | nothing is dropped: the backlog is held, an alarm raised, one probe at a time sent |
//! | refused by one of several endpoints | retried, and not given up for it |
//! | moved | cut anew by where its keys belong now, and sent there at once, with the tries it had |
//!
//! An exporter that keeps the order of batches by itself ([`Exporter::runs_ahead`]) is given more than one of them. The first of those under way is the one
//! that probes, and time until it is given up counts from when it became the first: the others may be waiting for it.
//!
//! A dead letter is kept where there is a place for them, and dropped otherwise; both are counted and logged.
//!
//! A queue on disk that is closed is for the next process: requests under way may finish within [`LEAVING_GRACE`], nothing is
//! begun or tried again. One in memory is sent until the stop's deadline; but what is held, and was refused when it was probed as well, is left
//! at once: a stop is not the moment at which that is mended.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_admission::{Jitter, Origin, Tracker};
use sluice_journal::{Cursor, DeadLetters};
use sluice_payload::{Signal, TenantId};
use sluice_telemetry::{Counter, DropReason, Gauge, Registry};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::in_turn::InTurn;
use self::place::Place;
use crate::batcher::{BatchSettings, Batcher};
use crate::gate::{Gate, Line};
use crate::retry::RetrySettings;
use crate::tracked::Tracked;
use crate::turn::Turns;
use crate::window::Window;
use crate::{Blame, Exporter, Sent, Turn, Verdict};

mod in_turn;
mod passed_by;
mod place;
mod settle;

/// While a destination refuses payload after payload, one of them probes this often before it is
/// given up and the next one has its turn: at the pace of probes, a backlog does not drain away.
const MAX_REFUSED_PROBES: u32 = 2;

/// Requests that looking for the bad items in the payloads of one batch may cost. One bad item in 8192 is found with 26; with
/// many, what is left is given up in pieces that may hold good items too.
const MAX_ITEM_BISECTION: u32 = 32;

/// How long a request under way may take to finish when its queue stays on disk: longer than any destination that works
/// needs. What is cut off then is sent again by the next process.
pub const LEAVING_GRACE: Duration = Duration::from_secs(5);

/// How one exporter delivers in one pipeline.
#[derive(Debug, Clone)]
pub struct DeliverySettings {
    /// The exporter's id.
    pub exporter: String,
    /// How payloads are gathered.
    pub batch: BatchSettings,
    /// How failures are retried.
    pub retry: RetrySettings,
    /// Requests under way at once, at most (`num_consumers`), and those that the exporter runs ahead.
    pub max_in_flight: usize,
    /// Where each attempt's duration is recorded, however it ended, on the clock of [`Origin::process`].
    pub latency: Arc<Tracker>,
    /// Where what the destination refuses for good is kept.
    pub dead_letters: Option<DeadLetters>,
}

struct Delivery {
    settings: DeliverySettings,
    signal: Signal,
    exporter: Arc<dyn Exporter>,
    cursor: Cursor,
    gate: Mutex<Gate>,
    gate_changed: Notify,
    /// The exporter keeps the order, and what is under way has one.
    runs_ahead: bool,
    turns: Mutex<Turns>,
    window: Mutex<Window>,
    window_changed: Notify,
    /// When a batch was delivered last.
    delivered: Mutex<Option<Instant>>,
    jitter: Jitter,
    metrics: DeliveryMetrics,
}

struct DeliveryMetrics {
    requests: Counter,
    failed: Counter,
    passed_by: Counter,
    held: Gauge,
    in_flight: Gauge,
}

impl DeliveryMetrics {
    fn new(registry: &Registry, pipeline: &str, exporter: &str, signal: Signal) -> Self {
        let labels = || {
            vec![
                ("exporter", exporter.to_owned()),
                ("pipeline", pipeline.to_owned()),
                ("signal", signal.to_string()),
            ]
        };
        Self {
            requests: registry.counter("sluice_exporter_requests_total", "Export requests sent, retries included.", labels()),
            failed: registry.counter(
                "sluice_exporter_failed_items_total",
                "Items in export attempts that failed; those that will be retried are counted at each attempt.",
                labels(),
            ),
            passed_by: registry.counter(
                "sluice_exporter_passed_by_batches_total",
                "Batches that failed again and again while others were delivered to the same place, each counted once: somebody has to look.",
                labels(),
            ),
            held: registry.gauge(
                "sluice_exporter_held",
                "1 while the destination refuses everything and the backlog is held: somebody has to mend it.",
                labels(),
            ),
            in_flight: registry.gauge("sluice_exporter_in_flight_requests", "Export requests under way.", labels()),
        }
    }
}

/// Runs one exporter's cursor until its journal is closed and everything read from it is settled.
pub async fn deliver(
    mut cursor: Cursor,
    signal: Signal,
    exporter: Arc<dyn Exporter>,
    settings: DeliverySettings,
    registry: Registry,
) {
    let mut batcher = Batcher::new(signal, settings.batch, exporter.max_request_bytes())
        .by_tenant(exporter.for_tenant(TenantId::DEFAULT).is_some());
    let metrics = DeliveryMetrics::new(&registry, cursor.pipeline(), &settings.exporter, signal);
    let ahead = exporter.runs_ahead();
    let delivery = Arc::new(Delivery {
        window: Mutex::new(Window::new(settings.max_in_flight + ahead)),
        runs_ahead: ahead > 0,
        turns: Mutex::new(Turns::new(Instant::now())),
        settings,
        signal,
        exporter,
        cursor: cursor.clone(),
        gate: Mutex::new(Gate::new()),
        gate_changed: Notify::new(),
        window_changed: Notify::new(),
        delivered: Mutex::new(None),
        jitter: Jitter::new(RandomState::new().build_hasher().finish()),
        metrics,
    });
    let mut under_way = JoinSet::new();
    let mut ready = Vec::new();
    let mut open = true;
    let mut turn = Turn::first();
    // One timer, set again only when it has gone off: setting it for each payload would cost a wake-up each.
    let mut flush = pin!(sleep_until(Instant::now()));
    let mut flush_set = false;
    while open {
        if let Some(deadline) = batcher.deadline()
            && !flush_set
        {
            flush.as_mut().reset(deadline);
            flush_set = true;
        }
        tokio::select! {
            entry = cursor.next() => match entry {
                Some(entry) if !delivery.exporter.takes(entry.payload.wire_format) => delivery.give_up(&entry),
                Some(entry) => {
                    let full = entry.full;
                    batcher.push(entry, Instant::now(), &mut ready);
                    if full {
                        batcher.flush(&mut ready);
                    }
                }
                None => {
                    batcher.flush(&mut ready);
                    open = false;
                }
            },
            () = flush.as_mut(), if flush_set => {
                flush_set = false;
                // Set for a batch that has gone since, it comes too early for the one that waits now.
                batcher.flush_due(Instant::now(), &mut ready);
            }
        }
        for mut tracked in ready
            .drain(..)
            .flat_map(|tracked| tracked.routed(&*delivery.exporter))
        {
            turn = turn.next();
            tracked.turn = turn;
            let in_turn = InTurn::begin(delivery.clone(), turn);
            let entered = async {
                // What was not made ready is made when it is sent; a panic that is no accident shows there again.
                let prepared = unless_panicking(async {
                    match &tracked.to {
                        Some(owner) => owner.prepare(&tracked.batch, turn).await,
                        None => delivery.exporter.prepare(&tracked.batch, turn).await,
                    }
                });
                tokio::join!(delivery.window_allows(Window::try_enter), prepared);
            };
            // Left on disk, it is not settled, and is read again by the next process.
            match delivery.unless_left(entered).await {
                Some(()) => {
                    under_way.spawn(delivery.clone().send(tracked, in_turn));
                }
                None => in_turn.leave(),
            }
        }
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
    delivery.exporter.shutdown().await;
}

/// The search for what is bad in one batch.
struct Search {
    /// Between items.
    requests_left: u32,
    /// The payload that was refused last.
    blamed: Option<u64>,
    /// Its pieces wait for probes as one: what was refused before it was halved comes behind what was not.
    line: Line,
}

/// One attempt. An exporter that panics has not delivered, and must not take its batch with it.
async fn attempt_export(exporter: &dyn Exporter, tracked: &Tracked) -> Sent {
    let sent = unless_panicking(async {
        match &tracked.to {
            Some(owner) => owner.send(&tracked.batch, tracked.turn).await,
            None => Sent::Answered(exporter.export_in_turn(&tracked.batch, tracked.turn).await),
        }
    });
    sent.await.unwrap_or_else(|| {
        let reason = "the exporter panicked; please report the panic message above".to_owned();
        Sent::Answered(Verdict::Retry { after: None, reason })
    })
}

/// What `work` comes to, or `None` when it panics: the delivery of everything else must not end with it.
async fn unless_panicking<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(
        |cx| match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        },
    )
    .await
}

impl Delivery {
    /// What `wait` comes to, or `None` when the queue is left on disk for the next process, or in memory because there is no hope for it.
    async fn unless_left<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cursor.kept_for_later() => None,
            // Behind it: most waits are none, and then it is not asked.
            value = wait => Some(value),
            () = self.closed_without_hope() => None,
        }
    }

    /// Waits until the queue is closed and its destination is to be mended by somebody.
    async fn closed_without_hope(&self) {
        self.cursor.closed().await;
        loop {
            let changed = self.gate_changed.notified();
            if self.gate.lock().is_hopeless() {
                return;
            }
            changed.await;
        }
    }

    /// Sends one batch until all of it is settled, or left.
    async fn send(self: Arc<Self>, tracked: Tracked, in_turn: InTurn) {
        let mut place = Place::taken(&self);
        let mut work = vec![tracked];
        let mut search = Search {
            requests_left: MAX_ITEM_BISECTION,
            blamed: None,
            line: Line::default(),
        };
        // Depth first, head first: order is kept, and the list stays as short as the bisection is deep.
        while let Some(tracked) = work.pop() {
            let sent = self.send_one(tracked, &mut work, &mut search, &mut place);
            if sent.await.is_none() {
                return in_turn.leave();
            }
        }
    }

    /// One attempt; `None`: cut off, because the queue is left on disk and there was no answer in time.
    async fn attempt(&self, tracked: &Tracked) -> Option<Sent> {
        // Not a request: nobody is asked.
        if let Some(known) = tracked.to.as_ref().and_then(|owner| owner.unasked()) {
            return Some(known);
        }
        self.metrics.requests.add(1);
        let begun = Instant::now();
        let left = async {
            self.cursor.kept_for_later().await;
            tokio::time::sleep(LEAVING_GRACE).await;
        };
        let sent = tokio::select! {
            sent = attempt_export(&*self.exporter, tracked) => sent,
            () = left => return None,
        };
        self.record_latency(begun + self.exporter.waited(tracked.turn));
        if !matches!(
            sent,
            Sent::Answered(Verdict::Delivered { .. } | Verdict::InPart { .. })
        ) {
            self.metrics.failed.add(tracked.batch.items());
        }
        Some(sent)
    }

    /// Sends `tracked` until it is settled, or pushes its halves to `work`; `None`: it is left.
    async fn send_one(
        &self,
        mut tracked: Tracked,
        work: &mut Vec<Tracked>,
        search: &mut Search,
        place: &mut Place<'_>,
    ) -> Option<()> {
        let begun = *tracked.tries.begun.get_or_insert_with(Instant::now);
        loop {
            let turn = tracked.turn;
            let probe = self
                .unless_left(self.wait_for_turn(place, &mut search.line, turn))
                .await?;
            let sent = self.attempt(&tracked).await?;
            let refused = matches!(sent, Sent::Refused { .. });
            let verdict = match sent {
                Sent::Answered(verdict) => verdict,
                Sent::Refused { reason } => Verdict::Retry { after: None, reason },
                Sent::Moved => {
                    self.moved(tracked, probe, work);
                    return Some(());
                }
            };
            match verdict {
                Verdict::Delivered { rejected, message } => {
                    *self.delivered.lock() = Some(Instant::now());
                    self.destination_accepted(tracked.sources.len());
                    return self.settle_delivered(&tracked, rejected, message).await;
                }
                Verdict::InPart { refused, rejected } => {
                    *self.delivered.lock() = Some(Instant::now());
                    self.destination_accepted(tracked.sources.len());
                    return self.settle_in_part(&tracked, refused, rejected).await;
                }
                Verdict::Retry { after, reason } => {
                    if probe {
                        search.line.refused();
                        self.gate.lock().probe_inconclusive(Instant::now());
                        self.gate_changed.notify_waiters();
                    }
                    let others_work = tracked.to.as_ref().is_some_and(|owner| owner.others_work());
                    // How much goes at once to an exporter that runs ahead is its own affair.
                    if !others_work && !self.runs_ahead {
                        self.window.lock().shrank();
                    }
                    let retries = tracked.tries.retries;
                    let delay =
                        after.unwrap_or_else(|| self.settings.retry.delay(retries, self.jitter.draw()));
                    if !refused && self.gives_up(begun, tracked.turn, delay) {
                        tracing::error!(
                            exporter = self.settings.exporter, signal = %self.signal, items = tracked.batch.items(), reason,
                            "gave up a batch: retry_on_failure.max_elapsed_time has passed (set it to 0 to retry for ever)"
                        );
                        self.settle_dropped(&tracked, DropReason::RetryExhausted);
                        return Some(());
                    }
                    // The first failure of a batch is worth a line; the rest of an outage is in the metrics.
                    if retries == 0 {
                        tracing::warn!(
                            exporter = self.settings.exporter, signal = %self.signal, items = tracked.batch.items(),
                            ?delay, reason, "export failed; it will be retried"
                        );
                    }
                    tracked.tries.retries = retries.saturating_add(1);
                    let ends = self.settings.retry.max_elapsed_time.filter(|_| !refused);
                    self.note_failure(&mut tracked, &reason, ends);
                    place.pause();
                    let wait = async {
                        match &tracked.to {
                            Some(owner) => drop(tokio::time::timeout(delay, owner.moved()).await),
                            None => tokio::time::sleep(delay).await,
                        }
                    };
                    self.unless_left(wait).await?;
                }
                Verdict::TooLarge { reason } => {
                    // An answer about this request alone: the destination works.
                    self.destination_accepted(0);
                    return self.halve_or_refuse(tracked, work, &reason).await;
                }
                Verdict::PayloadFault { reason } => {
                    let between_items = tracked.sources.len() == 1;
                    if !between_items || search.requests_left >= 2 && tracked.batch.items() > 1 {
                        if probe {
                            search.line.refused();
                            self.gate.lock().probe_inconclusive(Instant::now());
                            self.gate_changed.notify_waiters();
                        }
                        search.requests_left -= if between_items { 2 } else { 0 };
                        return self.halve_or_refuse(tracked, work, &reason).await;
                    }
                    match self.blame(&tracked, search) {
                        Blame::Payload => {
                            return self.refused(&tracked, &reason).await;
                        }
                        Blame::Moved => {
                            self.moved(tracked, probe, work);
                            return Some(());
                        }
                        Blame::Endpoint => {}
                    }
                    // Held, and this payload is the probe: others must have their turn at probing, or a
                    // poison payload would hold a mended destination for ever.
                    tracked.tries.refused_probes += u32::from(probe);
                    if tracked.tries.refused_probes > MAX_REFUSED_PROBES {
                        self.gate.lock().probe_inconclusive(Instant::now());
                        self.gate_changed.notify_waiters();
                        return self.refused(&tracked, &reason).await;
                    }
                    search.line.refused();
                    self.hold(probe, false, &format!("most payloads are refused: {reason}"));
                }
                Verdict::EndpointFault { reason } => {
                    self.note_failure(&mut tracked, &reason, None);
                    search.line.refused();
                    self.hold(probe, true, &reason);
                }
                Verdict::Exhausted { reason } => {
                    self.note_failure(&mut tracked, &reason, None);
                    search.line.refused();
                    self.hold(probe, false, &reason);
                }
            }
        }
    }

    /// Whose fault one more payload is that is refused. Its pieces count as one.
    fn blame(&self, tracked: &Tracked, search: &mut Search) -> Blame {
        let seq = tracked.sources.first().map(|source| source.seq);
        let new = std::mem::replace(&mut search.blamed, seq) != seq;
        let blame = (tracked.to.as_ref()).map_or(Blame::Payload, |owner| owner.payload_refused(new));
        if blame != Blame::Payload {
            return blame;
        }
        let mut gate = self.gate.lock();
        let at_fault = if new {
            gate.payload_refused()
        } else {
            gate.is_held()
        };
        if at_fault { Blame::Endpoint } else { Blame::Payload }
    }

    /// What belongs to others now is theirs, and so is its turn as a probe.
    fn moved(&self, tracked: Tracked, probe: bool, work: &mut Vec<Tracked>) {
        if probe {
            self.gate.lock().probe_handed_on();
            self.gate_changed.notify_waiters();
        }
        work.extend(tracked.routed(&*self.exporter).into_iter().rev());
    }

    fn record_latency(&self, begun: Instant) {
        let origin = Origin::process();
        let (begun, now) = (
            origin.nanos(begun.into_std()),
            origin.nanos(Instant::now().into_std()),
        );
        self.settings.latency.record(now, now.saturating_sub(begun));
    }

    /// It took so many payloads, or showed otherwise that it works.
    fn destination_accepted(&self, payloads: usize) {
        let was_held = {
            let mut gate = self.gate.lock();
            let held = gate.is_held();
            gate.accepted(payloads);
            held
        };
        if was_held {
            self.metrics.held.set(0);
            tracing::info!(exporter = self.settings.exporter, signal = %self.signal, "the destination accepts again; the backlog goes on");
            self.gate_changed.notify_waiters();
        }
        self.window.lock().grew();
    }

    fn hold(&self, probe: bool, is_fault: bool, reason: &str) {
        let news = self.gate.lock().hold(Instant::now(), probe, is_fault);
        self.gate_changed.notify_waiters();
        if news {
            self.metrics.held.set(1);
            tracing::error!(
                exporter = self.settings.exporter, signal = %self.signal, reason,
                "the destination refuses everything; the backlog is held, nothing is dropped, and it is probed until \
                 it accepts: check its endpoint, its credentials and that it takes this signal"
            );
        }
    }

    fn gives_up(&self, begun: Instant, turn: Turn, delay: Duration) -> bool {
        let retry = &self.settings.retry;
        let since = match self.runs_ahead {
            true => self.turns.lock().first_since(turn).map(|first| first.max(begun)),
            false => Some(begun),
        };
        let is_over = |max| since.is_some_and(|since| since.elapsed() + delay > max);
        !retry.enabled || retry.max_elapsed_time.is_some_and(is_over)
    }

    async fn halve_or_refuse(&self, tracked: Tracked, work: &mut Vec<Tracked>, reason: &str) -> Option<()> {
        match tracked.halve() {
            Ok((head, tail)) => work.extend([tail, head]),
            Err(single) => return self.refused(&single, reason).await,
        }
        Some(())
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::batches_passed_by;
