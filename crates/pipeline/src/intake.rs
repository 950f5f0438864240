//! From a receiver into the journals of every pipeline of its signal.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluice_admission::Permit;
use sluice_journal::{Appended, Confirm, Confirmed, Durability, EASED_BYTES, Full, Journal, NotPersisted};
use sluice_payload::{Encoding, Payload, Signal};
use sluice_telemetry::DropReason;
use tokio::time::Instant;

use crate::Exporter;

/// For each [`EASED_BYTES`] that a pipeline has in front of an exporter, a receiver gives the runtime's other tasks a turn
/// before it answers, and so many at most.
const MOST_TURNS: u64 = 4;

/// A turn of all tasks that takes this long, for each [`EASED_BYTES`] of backlog, says that the cores are the bottleneck: an
/// export needs half a dozen turns. On an idle core a turn takes some microseconds.
const LONG_TURN: Duration = Duration::from_millis(2);

/// A receiver holds an answer back at most so long. 256 clients with 110 KB each, on half a core, wait for a quarter of it.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// When a receiver answers "accepted".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// Once the payload is in the journal; in one on disk, once it is written.
    Accepted,
    /// Once the payload is in the journal on disk, synced as its settings say.
    Persisted,
    /// Once every exporter of the pipeline confirmed it.
    Delivered,
}

/// One pipeline as a receiver sees it.
#[derive(Clone)]
pub struct Route {
    /// Its journal.
    pub journal: Journal,
    /// When its payloads are acknowledged.
    pub ack: AckLevel,
    /// The exporters that can send compressed frames on as they came.
    pub passing_through: Vec<Arc<dyn Exporter>>,
    /// How long a payload waits for room in the journal at least (`block_on_overflow`), whatever its own patience.
    pub block_for: Duration,
    /// Every exporter reads remote write as it came: it is not turned into OTLP for them.
    pub straight: bool,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({:?}, {:?})", self.journal, self.ack)
    }
}

/// Why a payload was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// Try again later: a queue is full, or the gateway is stopping.
    Refused(String),
    /// No pipeline takes this signal.
    NoPipeline,
    /// Taken, and then given up by an exporter that could not deliver it in time: try again.
    NotDelivered(DropReason, u64),
}

/// One request, in as many formats as [`Intake::formats`] asks for; each holds the same items.
#[derive(Debug, Default)]
pub struct Offer {
    /// As OTLP.
    pub otlp: Option<Payload>,
    /// As it came, where that is remote write: for the pipelines that take it straight.
    pub as_it_came: Option<Payload>,
}

impl Offer {
    /// The one that pipelines take: straight ones read both.
    fn shared(self) -> [Option<Arc<Payload>>; 2] {
        let [otlp, as_it_came] = [self.otlp, self.as_it_came].map(|payload| payload.map(Arc::new));
        let straight = as_it_came.or_else(|| otlp.clone());
        [otlp, straight]
    }
}

/// What the pipelines of a signal want a request of remote write as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Formats {
    /// Some as OTLP.
    pub otlp: bool,
    /// Some as it came.
    pub as_it_came: bool,
}

/// What was taken, and what of it the destinations rejected for good (ack level `delivered` only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Items no destination will ever have.
    pub rejected: u64,
}

/// The way in for one receiver: its pipelines by signal.
#[derive(Debug, Clone, Default)]
pub struct Intake {
    routes: [Arc<[Route]>; Signal::ALL.len()],
}

impl Intake {
    /// `routes` are the pipelines the receiver feeds.
    pub fn new(routes: impl IntoIterator<Item = (Signal, Route)>) -> Self {
        let mut by_signal: [Vec<Route>; Signal::ALL.len()] = Default::default();
        for (signal, route) in routes {
            by_signal[signal as usize].push(route);
        }
        Self {
            routes: by_signal.map(Into::into),
        }
    }

    /// Whether any pipeline takes this signal.
    pub fn takes(&self, signal: Signal) -> bool {
        !self.routes[signal as usize].is_empty()
    }

    /// What this signal's pipelines want a request of remote write as; neither where there is none.
    pub fn formats(&self, signal: Signal) -> Formats {
        let routes = &self.routes[signal as usize];
        Formats {
            otlp: routes.iter().any(|route| !route.straight),
            as_it_came: routes.iter().any(|route| route.straight),
        }
    }

    /// Whether a compressed frame of `encoding` may be of use, to an exporter or to a journal.
    pub fn keeps_frames(&self, signal: Signal, encoding: Encoding) -> bool {
        self.routes[signal as usize].iter().any(|route| {
            let mut exporters = route.passing_through.iter();
            route.journal.stores_frames(encoding)
                || exporters.any(|exporter| exporter.passes_through() == Some(encoding))
        })
    }

    /// Puts a payload of OTLP into every pipeline of its signal, all or none, and waits as long as their
    /// ack level says. `patience` is how long the request may wait for room in all of them together.
    ///
    /// # Errors
    /// [`NotTaken`]; nothing was taken, but for [`NotTaken::NotDelivered`].
    pub async fn take(&self, payload: Payload, patience: Duration) -> Result<Taken, NotTaken> {
        self.take_in_turn(payload, patience, ()).await
    }

    /// As [`take`](Self::take); drops `turn` when the payload is in the journals or has to wait for room in one, whatever is waited
    /// for then.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_in_turn<T>(
        &self,
        payload: Payload,
        patience: Duration,
        turn: T,
    ) -> Result<Taken, NotTaken> {
        let signal = payload.signal;
        let offer = Offer {
            otlp: Some(payload),
            as_it_came: None,
        };
        self.take_offer(signal, offer, patience, turn).await
    }

    /// The same of a request of this signal in several formats.
    ///
    /// # Errors
    /// [`NotTaken`], of which [`NotTaken::NoPipeline`] also where a format that a pipeline needs is missing.
    pub async fn take_offer<T>(
        &self,
        signal: Signal,
        offer: Offer,
        patience: Duration,
        turn: T,
    ) -> Result<Taken, NotTaken> {
        let payloads = offer.shared();
        let routes = &*self.routes[signal as usize];
        let of = |route: &Route| payloads[usize::from(route.straight)].as_ref();
        let wanted = || routes.iter().filter_map(move |route| Some((route, of(route)?)));
        if routes.is_empty() || wanted().count() < routes.len() {
            return Err(NotTaken::NoPipeline);
        }
        if wanted().all(|(_, payload)| payload.items == 0) {
            // Nothing to deliver, nothing to account for (C9: no empty envelopes).
            return Ok(Taken::default());
        }
        let mut turn = Some(turn);
        let mut spaces = Vec::with_capacity(routes.len());
        let asked = Instant::now();
        for (route, payload) in wanted() {
            let cost = route.journal.cost(payload);
            let space = match route.journal.try_reserve(cost) {
                Ok(space) => space,
                // Space already reserved in other journals is kept meanwhile: the wait is bounded.
                Err(full @ Full::Now { .. }) => {
                    turn = None;
                    let deadline = asked + patience.max(route.block_for);
                    match tokio::time::timeout_at(deadline, route.journal.reserve(cost)).await {
                        Ok(Ok(space)) => space,
                        Ok(Err(full)) => return Err(NotTaken::Refused(full.to_string())),
                        Err(_) => return Err(NotTaken::Refused(full.to_string())),
                    }
                }
                Err(refused) => return Err(NotTaken::Refused(refused.to_string())),
            };
            spaces.push(Some(space));
        }
        let waiting: u32 = routes
            .iter()
            .filter(|route| route.ack == AckLevel::Delivered)
            .map(|route| route.journal.cursor_count() as u32)
            .sum();
        let (confirm, delivered) = match waiting {
            0 => (None, None),
            cursors => {
                let (confirm, delivered) = Confirm::new(cursors);
                (Some(confirm), Some(delivered))
            }
        };
        // Journals on disk may refuse yet; those in memory take what was reserved, and so come last. With two on disk, one may
        // take what the other refuses: the client sends it again, and it is in the first one twice.
        for durable in [true, false] {
            let mut on_disk = Vec::new();
            for ((route, payload), space) in wanted().zip(&mut spaces) {
                if route.journal.is_durable() != durable {
                    continue;
                }
                let Some(space) = space.take() else { continue };
                let confirm = confirm.as_ref().filter(|_| route.ack == AckLevel::Delivered);
                let durability = match route.ack {
                    AckLevel::Accepted => Durability::Written,
                    AckLevel::Persisted | AckLevel::Delivered => Durability::Synced,
                };
                let appended = route
                    .journal
                    .append(space, payload.clone(), confirm.cloned(), durability);
                if durable {
                    on_disk.push(appended);
                }
            }
            let refused = |error: NotPersisted| NotTaken::Refused(error.to_string());
            all_persisted(on_disk).await.map_err(refused)?;
        }
        let permit = payloads
            .iter()
            .flatten()
            .find_map(|payload| payload.permit.as_ref());
        let is_light = permit.is_some_and(Permit::is_of_a_light_tenant);
        drop((confirm, payloads, turn));
        if !is_light {
            give_way(routes).await;
        }
        let Some(delivered) = delivered else {
            return Ok(Taken::default());
        };
        match delivered.await {
            Ok(Confirmed { dropped: None }) => Ok(Taken::default()),
            Ok(Confirmed {
                dropped:
                    Some((
                        DropReason::PayloadFault | DropReason::DeadLetter | DropReason::PartialSuccess,
                        rejected,
                    )),
            }) => Ok(Taken { rejected }),
            Ok(Confirmed {
                dropped: Some((reason, items)),
            }) => Err(NotTaken::NotDelivered(reason, items)),
            Err(_) => Err(NotTaken::Refused(
                "the gateway stopped before delivery was confirmed; retry".into(),
            )),
        }
    }
}

/// Waits for all of them side by side: the exporters of one journal wait for no other journal's disk.
async fn all_persisted(mut waiting: Vec<Appended>) -> Result<(), NotPersisted> {
    std::future::poll_fn(|cx| {
        let mut result = Ok(());
        waiting.retain_mut(|appended| match appended.poll_persisted(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(refused) => {
                result = refused;
                false
            }
        });
        match (&result, waiting.is_empty()) {
            (Ok(()), false) => Poll::Pending,
            _ => Poll::Ready(result),
        }
    })
    .await
}

/// Receiving and sending share cores. A receiver that is never idle would take every turn it can get, and the queue
/// would grow to its limit in front of a destination that is waiting for more; and what leaves a long queue is in no cache
/// any more.
///
/// So a receiver with a backlog in front of it gives others turns. When turns take long, it holds its answer back, and with it
/// its client, until what waits is little. Where the destination is the bottleneck, and not the cores, turns are short,
/// and the queue is what it is for. Tenants and signals that hold little of what waits are not held back for those that hold much.
async fn give_way(routes: &[Route]) {
    let Some(route) = routes.iter().max_by_key(|route| route.journal.backlog_bytes()) else {
        return;
    };
    let excess = route.journal.backlog_bytes() / EASED_BYTES;
    if excess == 0 {
        return;
    }
    let began = std::time::Instant::now();
    let turns = excess.min(MOST_TURNS) as u32;
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    let turn = began.elapsed() / turns;
    if turn * (excess as u32) >= LONG_TURN {
        route.journal.eased(LONGEST_HOLD).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::pin::pin;

    use bytes::Bytes;
    use sluice_admission::Budget;
    use sluice_journal::testing::SimulatedDisk;
    use sluice_journal::{Cursor, CursorSpec, DiskSettings, Limits, OnFull, Settled};
    use sluice_payload::{TenantId, Tenants, WireFormat};

    use super::*;

    const PAYLOAD_BYTES: usize = 100 << 10;

    fn payload() -> Payload {
        Payload {
            signal: Signal::Logs,
            body: Bytes::from_static(&[0; PAYLOAD_BYTES]),
            wire_format: WireFormat::Otlp,
            frame: None,
            items: 1,
            tenant: TenantId::DEFAULT,
            received_at: std::time::Instant::now(),
            permit: None,
        }
    }

    fn spec() -> CursorSpec {
        CursorSpec {
            exporter: "x".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        }
    }

    /// A pipeline of logs with one exporter.
    fn pipeline() -> (Intake, Journal, Cursor) {
        with(Journal::memory("logs", vec![spec()]))
    }

    /// The same on a disk that does nothing before it is its [turn](Journal::turn).
    fn durable_pipeline() -> (Intake, Journal, Cursor) {
        let disk = DiskSettings {
            filesystem: Arc::new(SimulatedDisk::default()),
            seed: Some(1),
            ..DiskSettings::new("/journal", Tenants::default())
        };
        let (journal, cursors, _) = Journal::disk("logs", vec![spec()], disk).unwrap();
        with((journal, cursors))
    }

    fn with((journal, mut cursors): (Journal, Vec<Cursor>)) -> (Intake, Journal, Cursor) {
        let route = Route {
            journal: journal.clone(),
            ack: AckLevel::Persisted,
            passing_through: Vec::new(),
            block_for: Duration::ZERO,
            straight: false,
        };
        (Intake::new([(Signal::Logs, route)]), journal, cursors.remove(0))
    }

    /// Scenario: a receiver of remote write feeds a pipeline that takes it straight and one that does not; offers in both formats, as OTLP
    /// alone, and as it came alone.
    /// Guarantees: each pipeline gets its format; OTLP does for both; where a format is missing nothing is taken.
    #[tokio::test]
    async fn each_pipeline_gets_its_format() {
        let pipelines: Vec<_> = (0..2).map(|_| pipeline()).collect();
        let routes = pipelines
            .iter()
            .zip([true, false])
            .map(|((intake, _, _), straight)| {
                let route = intake.routes[Signal::Logs as usize][0].clone();
                (Signal::Logs, Route { straight, ..route })
            });
        let intake = Intake::new(routes);
        let both = Formats {
            otlp: true,
            as_it_came: true,
        };
        assert_eq!(intake.formats(Signal::Logs), both);
        assert_eq!(intake.formats(Signal::Metrics), Formats::default());
        let came = || Payload {
            wire_format: WireFormat::RemoteWrite2,
            ..payload()
        };
        for (offer, taken) in [
            ((Some(payload()), Some(came())), true),
            ((Some(payload()), None), true),
            ((None, Some(came())), false),
        ] {
            let (otlp, as_it_came) = offer;
            let offer = Offer { otlp, as_it_came };
            let result = intake.take_offer(Signal::Logs, offer, Duration::ZERO, ()).await;
            assert_eq!(result.is_ok(), taken);
        }
        let mut got = Vec::new();
        for (_, journal, mut cursor) in pipelines {
            journal.close();
            let mut formats = Vec::new();
            while let Some(entry) = cursor.next().await {
                formats.push(entry.payload.wire_format);
            }
            got.push(formats);
        }
        let otlp = WireFormat::Otlp;
        assert_eq!(got, [[WireFormat::RemoteWrite2, otlp], [otlp, otlp]]);
    }

    /// Scenario: a receiver feeds two pipelines on disks; the disk of the first is slow.
    /// Guarantees: the exporter of the second has the payload as soon as its own disk has it; the answer comes when both have.
    #[tokio::test(start_paused = true)]
    async fn exporters_wait_for_their_own_disk_alone() {
        let pipelines: Vec<_> = (0..2).map(|_| durable_pipeline()).collect();
        let route = |intake: &Intake| (Signal::Logs, intake.routes[Signal::Logs as usize][0].clone());
        let intake = Intake::new(pipelines.iter().map(|(intake, _, _)| route(intake)));
        let mut pipelines = pipelines.into_iter();
        let (slow, (_, quick, mut cursor)) = (pipelines.next().unwrap().1, pipelines.next().unwrap());
        let (mut taking, mut sending) = (pin!(intake.take(payload(), Duration::ZERO)), pin!(cursor.next()));
        let soon = async {
            tokio::select! {
                _ = &mut taking => panic!("no disk has it"),
                _ = &mut sending => panic!("its disk does not have it"),
                () = tokio::time::sleep(LONG_TURN) => {}
            }
        };
        soon.await;
        quick.turn();
        let soon = async {
            tokio::select! {
                _ = &mut taking => panic!("the slow disk does not have it"),
                entry = &mut sending => entry,
            }
        };
        let sent = tokio::time::timeout(LONG_TURN, soon).await;
        assert!(sent.unwrap().is_some());
        slow.turn();
        taking.await.unwrap();
    }

    /// An exporter that needs so many turns for a payload, beside the one in which it gets it.
    async fn export(mut cursor: Cursor, turns: u32) {
        while let Some(entry) = cursor.next().await {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let settled = Settled {
                seq: entry.seq,
                delivered: 1,
                dropped: None,
            };
            cursor.settle(&[settled]);
        }
    }

    /// Scenario: on one thread, a receiver that always has another request, and an exporter that keeps up only if it is
    /// given two turns for each of them.
    /// Guarantees: the exporter gets them; what waits stays at a small part of the limits.
    #[tokio::test]
    async fn a_busy_receiver_gives_way_to_exporters() {
        let (intake, journal, cursor) = pipeline();
        let exporter = tokio::spawn(export(cursor, 1));
        let mut most = 0;
        for _ in 0..2000 {
            intake.take(payload(), Duration::ZERO).await.unwrap();
            most = most.max(journal.backlog_bytes());
        }
        journal.close();
        exporter.await.unwrap();
        assert!(most < MOST_TURNS * EASED_BYTES, "{most} bytes waited");
    }

    /// Scenario: on one thread that others keep busy, an exporter that takes six turns for a payload, and eight receivers that
    /// always have another one.
    /// Guarantees: they are held back until the exporter has caught up; what waits stays at what may wait, and one of each.
    #[tokio::test]
    async fn receivers_are_held_back_while_the_cores_are_busy() {
        const RECEIVERS: u64 = 8;
        const PAYLOADS: u64 = 10;
        let (intake, journal, cursor) = pipeline();
        let others = tokio::spawn(async {
            loop {
                std::thread::sleep(LONG_TURN);
                tokio::task::yield_now().await;
            }
        });
        let exporter = tokio::spawn(export(cursor, 6));
        let mut receivers = tokio::task::JoinSet::new();
        for _ in 0..RECEIVERS {
            let (intake, journal) = (intake.clone(), journal.clone());
            receivers.spawn(async move {
                let mut most = 0;
                for _ in 0..PAYLOADS {
                    let payload = Payload {
                        body: vec![0; PAYLOAD_BYTES * 10].into(),
                        ..payload()
                    };
                    intake.take(payload, Duration::ZERO).await.unwrap();
                    most = most.max(journal.backlog_bytes());
                }
                most
            });
        }
        let most = receivers.join_all().await.into_iter().max().unwrap();
        journal.close();
        exporter.await.unwrap();
        others.abort();
        let payload = (PAYLOAD_BYTES * 10) as u64;
        assert!(
            most < EASED_BYTES + 2 * RECEIVERS * payload,
            "{most} bytes waited"
        );
    }

    /// Scenario: the same busy thread and an exporter that takes nothing; one tenant has a backlog that holds receivers back, and another
    /// sends its first payload, and then the one its next.
    /// Guarantees: the one is held back, and the other is not.
    #[tokio::test]
    async fn a_light_tenant_is_not_held_back() {
        let (intake, journal, _cursor) = pipeline();
        let others = tokio::spawn(async {
            loop {
                std::thread::sleep(LONG_TURN);
                tokio::task::yield_now().await;
            }
        });
        let budget = Budget::new(64 << 20);
        let payload = |tenant: usize, bytes: usize| Payload {
            body: vec![0; bytes].into(),
            permit: budget.visit(tenant).try_reserve(bytes as u64, 0),
            ..payload()
        };
        let take = async |payload| {
            let began = Instant::now();
            intake.take(payload, Duration::ZERO).await.unwrap();
            began.elapsed()
        };
        let heavy = payload(1, 2 * EASED_BYTES as usize);
        let space = journal.try_reserve(journal.cost(&heavy)).unwrap();
        let _ = journal.append(space, Arc::new(heavy), None, Durability::Written);
        assert!(take(payload(2, PAYLOAD_BYTES)).await < LONGEST_HOLD);
        assert!(take(payload(1, PAYLOAD_BYTES)).await >= LONGEST_HOLD);
        others.abort();
    }
}
