//! Delivery in any weather, with crashes, by a seed: the real loop on a paused clock, over the real journal on a simulated disk.
//!
//! `SLUICE_SEEDS=100000 cargo test -p sluice-pipeline --release simulation` runs more seeds than CI does; `SLUICE_SEED=17` runs one. A
//! failure names its seed. What `select!` looks at first of two things that are ready in the same millisecond is tokio's own dice: a seed
//! that fails may need to be run a few times.

mod items;
mod network;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_admission::GuardSettings;
use sluice_journal::testing::{Fault, Operation, Random, SimulatedDisk, for_seeds};
use sluice_journal::{Clock, CursorSpec, DiskSettings, Journal, Limits, OnFull, SyncPolicy, Which, export};
use sluice_payload::{Payload, TenantId, Tenants, WireFormat};
use tokio::task::JoinHandle;

use self::items::{Items, is_poison, is_rejected, items_in, items_of, request, up_to};
use self::network::{Manners, Network, Stuck};
use super::*;
use crate::{AckLevel, Balance, Balanced, Intake, Route, Routed};

/// Seeds of a run in CI: seconds in a build for tests.
const SEEDS: u64 = 2000;

/// Payloads of each sender in each process.
const PAYLOADS: u64 = 12;

/// A destination in fair weather has everything by then: probes come at least once a minute, and a row of bad payloads takes
/// three of them each.
const DRAINED_BY: Duration = Duration::from_secs(6 * 3600);

/// Long enough for a window to shrink to its least by one batch that fails.
const QUIET: Duration = Duration::from_secs(180);

/// Between two turns of the writer meanwhile.
const QUIET_TICK_MILLIS: u64 = 700;

/// Between two turns of a writer that has only positions to write.
const IDLE_TICK_MILLIS: u64 = 10_000;

/// As the journal has it: positions are synced so often, and what was settled since may be forgotten in a crash of the machine.
const POSITION_SYNC: Duration = Duration::from_secs(1);

/// How several endpoints are used.
#[derive(Debug, Clone, Copy)]
enum Endpoints {
    One,
    Balanced(Balance),
    Routed,
}

/// What a run may do to a delivery.
#[derive(Debug, Clone, Copy)]
struct Mischief {
    crashes: bool,
    /// Of the disk.
    faults: bool,
    manners: Manners,
    endpoints: Endpoints,
    ack: AckLevel,
    dead_letters: bool,
    gives_up: Option<Duration>,
    sync: SyncPolicy,
    /// Between two turns of the journal's writer.
    tick: Duration,
}

impl Mischief {
    fn new(random: &mut Random) -> Self {
        let balances = [Balance::RoundRobin, Balance::LeastLoaded, Balance::Failover];
        let endpoints = match random.below(3) {
            0 => Endpoints::Balanced(balances[random.below(3) as usize]),
            1 => Endpoints::Routed,
            _ => Endpoints::One,
        };
        let ack = match random.one_in(4) {
            true => AckLevel::Delivered,
            false => AckLevel::Persisted,
        };
        // Clients that are told of the delivery would wait for ever. Where endpoints have keys of their own, what waits behind such an item is more than it
        // was sent with.
        let is_stuck =
            random.one_in(3) && ack == AckLevel::Persisted && !matches!(endpoints, Endpoints::Routed);
        Self {
            crashes: !random.one_in(4),
            faults: random.one_in(4),
            manners: Manners {
                poison: random.one_in(2),
                rejects: random.one_in(3),
                most_items: random.one_in(4).then(|| 1 + random.below(10)),
                stuck: is_stuck.then(|| Stuck {
                    item: items_of(random.below(8) as u32).start,
                    refuses_all: random.one_in(3),
                }),
            },
            endpoints,
            ack,
            dead_letters: !random.one_in(4),
            gives_up: random.one_in(6).then(|| up_to(random, Duration::from_secs(20))),
            sync: match random.below(6) {
                0 => SyncPolicy::Interval(Duration::from_millis(500)),
                1 => SyncPolicy::Off,
                _ => SyncPolicy::Group,
            },
            tick: Duration::from_millis([30, 150, 700][random.below(3) as usize]),
        }
    }

    /// Nothing may be dropped: what a destination refuses for good is kept.
    fn keeps_everything(&self) -> bool {
        self.dead_letters && self.gives_up.is_none()
    }
}

/// The runtime's clock.
#[derive(Debug)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000) + self.0.elapsed()
    }
}

struct World {
    random: Random,
    mischief: Mischief,
    disk: SimulatedDisk,
    clock: Arc<PausedClock>,
    items: Arc<Mutex<Items>>,
    networks: Vec<Arc<Network>>,
    next_payload: Arc<AtomicU32>,
    /// What was settled by then outlives the machine.
    synced_until: Instant,
    /// In all processes, by reason.
    dropped: [u64; DropReason::ALL.len()],
}

/// One process.
struct Process {
    journal: Journal,
    started: Instant,
    /// Between two turns of its writer, in milliseconds.
    tick: Arc<AtomicU64>,
    delivery: JoinHandle<()>,
    senders: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Process {
    /// Its tasks are gone, and so is what they had begun.
    async fn end(self) {
        for task in self.others.into_iter().chain(self.senders).chain([self.delivery]) {
            task.abort();
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        // Time stands still as long as a thread writes a dead letter.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mischief = Mischief::new(&mut random);
        let items: Arc<Mutex<Items>> = Arc::default();
        let endpoints = match mischief.endpoints {
            Endpoints::One => 1,
            Endpoints::Balanced(_) | Endpoints::Routed => 3,
        };
        let networks = (0..endpoints)
            .map(|_| Arc::new(Network::new(items.clone(), mischief.manners, random.draw())))
            .collect();
        Self {
            random,
            mischief,
            disk: SimulatedDisk::default(),
            clock: Arc::new(PausedClock(Instant::now())),
            items,
            networks,
            next_payload: Arc::default(),
            synced_until: Instant::now(),
            dropped: Default::default(),
        }
    }

    fn disk_settings(&mut self) -> DiskSettings {
        DiskSettings {
            sync: self.mischief.sync,
            segment_bytes: 4 << 10,
            kept_bytes: 2 << 10,
            in_flight_bytes: 1000 + self.random.below(10_000),
            filesystem: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            seed: Some(self.random.draw()),
            lock_timeout: Duration::ZERO,
            ..DiskSettings::new("/spool", Tenants::default())
        }
    }

    /// The exporter, and what changes its endpoints while it runs.
    fn exporter(&mut self) -> (Arc<dyn Exporter>, Option<JoinHandle<()>>) {
        let all = || {
            self.networks
                .iter()
                .map(|network| network.clone() as Arc<dyn Exporter>)
        };
        let first = || all().next().expect("there is one endpoint at least");
        match self.mischief.endpoints {
            Endpoints::One => (first(), None),
            Endpoints::Balanced(balance) => {
                let named = (0..).map(|index: u32| index.to_string()).zip(all());
                let balanced = Balanced::new(named.collect(), balance, "x", &Registry::default());
                (Arc::new(balanced), None)
            }
            Endpoints::Routed => {
                let routed = Arc::new(Routed::new(None, first(), "x", &Registry::default()));
                let moves = endpoints_move(routed.clone(), self.networks.clone(), Random(self.random.draw()));
                (routed, Some(tokio::spawn(moves)))
            }
        }
    }

    fn start(&mut self) -> Process {
        let random = &mut self.random;
        let spec = CursorSpec {
            exporter: "x".into(),
            limits: Limits {
                requests: random.one_in(2).then(|| 3 + random.below(30)),
                ..Limits::default()
            },
            on_full: OnFull::Refuse,
        };
        let batch = BatchSettings {
            min_size: 1 + random.below(30),
            max_size: random.one_in(2).then(|| 1 + random.below(12)),
            flush_timeout: Duration::from_millis(random.below(200)),
            ..BatchSettings::default()
        };
        let retry = RetrySettings {
            initial_interval: up_to(random, Duration::from_secs(1)),
            // The delivery's own dice are not the seed's.
            randomization_factor: 0.0,
            max_interval: Duration::from_secs(5),
            max_elapsed_time: self.mischief.gives_up,
            ..RetrySettings::default()
        };
        // One place is for what nobody takes.
        let least_in_flight = 1 + usize::from(self.mischief.manners.stuck.is_some());
        let max_in_flight = least_in_flight + random.below(5) as usize;
        let settings = self.disk_settings();
        let letters = DeadLetters::new("logs", &settings);
        let (journal, mut cursors, _) = Journal::disk("logs", vec![spec], settings).unwrap();
        let (exporter, moves) = self.exporter();
        let settings = DeliverySettings {
            exporter: "x".into(),
            batch,
            retry,
            max_in_flight,
            latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
            dead_letters: self.mischief.dead_letters.then_some(letters),
        };
        let cursor = cursors.remove(0);
        let delivery = tokio::spawn(deliver(
            cursor,
            Signal::Logs,
            exporter,
            settings,
            Registry::default(),
        ));
        let tick = Arc::new(AtomicU64::new(self.mischief.tick.as_millis() as u64));
        let writer = tokio::spawn(write(journal.clone(), tick.clone()));
        let senders: Vec<_> = (0..1 + self.random.below(3))
            .map(|_| tokio::spawn(self.sender(&journal).send()))
            .collect();
        Process {
            senders,
            started: Instant::now(),
            others: moves.into_iter().chain([writer]).collect(),
            journal,
            tick,
            delivery,
        }
    }

    fn sender(&mut self, journal: &Journal) -> Sender {
        let route = Route {
            journal: journal.clone(),
            ack: self.mischief.ack,
            passing_through: Vec::new(),
            block_for: Duration::ZERO,
            straight: false,
        };
        Sender {
            intake: Intake::new([(Signal::Logs, route)]),
            ack: self.mischief.ack,
            random: Random(self.random.draw()),
            next_payload: self.next_payload.clone(),
            items: self.items.clone(),
        }
    }

    /// What the ledger says, and what the destination has seen of this process, is the same.
    fn balance(&self, process: &Process) {
        for report in process.journal.reports(Instant::now().into_std()) {
            let total = report.total();
            assert!(total.balanced(), "{report:?}");
            assert_eq!(total.queued, report.depth.backlog.items, "{report:?}");
            assert_eq!(total.delivered, self.items.lock().delivered, "{report:?}");
        }
    }

    fn note_dropped(&mut self, process: &Process) {
        for report in process.journal.reports(Instant::now().into_std()) {
            let of_this = report.total().dropped;
            self.dropped
                .iter_mut()
                .zip(of_this)
                .for_each(|(all, more)| *all += more);
        }
    }

    async fn live(&mut self, lives_on: bool) {
        let process = self.start();
        for _ in 0..self.random.below(5) {
            tokio::time::sleep(up_to(&mut self.random, Duration::from_secs(8))).await;
            self.balance(&process);
            if self.mischief.faults {
                self.fail();
            }
        }
        match lives_on {
            true => self.crash_or_stop(process).await,
            false => self.drain(process).await,
        }
    }

    fn fail(&mut self) {
        let operation = [Operation::Sync, Operation::Write, Operation::Open][self.random.below(3) as usize];
        let fault = match self.random.one_in(2) {
            true => Fault::Io,
            false => Fault::NoSpace,
        };
        self.disk
            .fail(operation, fault, 1 + self.random.below(3) as usize);
    }

    async fn crash_or_stop(&mut self, process: Process) {
        // A process that lives for less may have synced nothing, not even what the one before it had written.
        let synced = Instant::now() - POSITION_SYNC - 2 * (self.mischief.tick + Duration::from_millis(2));
        if synced >= process.started {
            self.synced_until = synced;
        }
        let kept_until;
        let is_orderly = self.random.one_in(3);
        let power_fails = self.mischief.sync == SyncPolicy::Group && self.random.one_in(2);
        if is_orderly {
            process.journal.close();
            let ends = async {
                while !process.delivery.is_finished() {
                    tokio::time::sleep(self.mischief.tick).await;
                }
            };
            assert!(
                tokio::time::timeout(DRAINED_BY, ends).await.is_ok(),
                "it never ends"
            );
            self.balance(&process);
            let journal = process.journal.clone();
            self.note_dropped(&process);
            process.end().await;
            assert_eq!(journal.abandon(), 0);
            self.disk.kill();
            kept_until = Instant::now();
        } else {
            if power_fails && self.random.one_in(2) {
                // In the middle of a turn of the writer.
                self.disk.stop_after(self.random.below(20));
                process.journal.turn();
            }
            let now = Instant::now();
            self.note_dropped(&process);
            process.end().await;
            let tick = self.mischief.tick + Duration::from_millis(2);
            if power_fails {
                self.disk.crash_torn(self.random.draw());
                kept_until = self.synced_until;
            } else {
                self.disk.kill();
                kept_until = now - tick;
            }
        }
        self.disk.mend();
        let waiting = self.stored("logs.journal", &Which::Waiting);
        self.items
            .lock()
            .crashed(kept_until, !is_orderly && power_fails, &waiting);
        self.nothing_is_passed_over(&waiting);
    }

    /// Fair weather, until everything has arrived.
    async fn drain(&mut self, mut process: Process) {
        self.disk.mend();
        self.networks.iter().for_each(|network| network.calm());
        for sender in std::mem::take(&mut process.senders) {
            sender.await.unwrap();
        }
        if self.mischief.manners.stuck.is_some() {
            self.all_else_arrives(&process).await;
            self.networks.iter().for_each(|network| network.mend());
        }
        // There is nothing more to write but positions, maybe for hours.
        process.tick.store(IDLE_TICK_MILLIS, Ordering::Relaxed);
        let drained = tokio::time::timeout(DRAINED_BY, process.journal.drained()).await;
        assert!(
            drained.is_ok(),
            "it never drains: {:?}",
            process.journal.reports(Instant::now().into_std())
        );
        self.balance(&process);
        self.note_dropped(&process);
        process.end().await;
    }

    /// What nobody takes is alone with that: what comes after a time in which nothing came goes its way.
    async fn all_else_arrives(&mut self, process: &Process) {
        process.tick.store(QUIET_TICK_MILLIS, Ordering::Relaxed);
        tokio::time::sleep(QUIET).await;
        self.sender(&process.journal).send().await;
        let queued = || {
            let reports = process.journal.reports(Instant::now().into_std());
            reports.iter().map(|report| report.total().queued).sum::<u64>()
        };
        let arrives = async {
            while queued() > self.items.lock().stuck_with.len() as u64 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let arrived = tokio::time::timeout(DRAINED_BY, arrives).await;
        assert!(
            arrived.is_ok(),
            "{} items wait for what was sent with {:?}",
            queued(),
            self.items.lock().stuck_with
        );
    }

    /// The items of what is stored in a directory.
    fn stored(&self, directory: &str, which: &Which) -> BTreeSet<u32> {
        let mut items = BTreeSet::new();
        let directory = Path::new("/spool").join(directory);
        // There are no dead letters before the first one.
        let _ = export(&self.disk, &directory, which, &mut |stored| {
            items.extend(items_in(&stored.body));
            Ok(())
        });
        items
    }

    /// What was acknowledged and has not arrived yet will be read by the next process.
    fn nothing_is_passed_over(&self, waiting: &BTreeSet<u32>) {
        if !self.mischief.keeps_everything() {
            return;
        }
        let dead = self.stored("logs.dead", &Which::All);
        let items = self.items.lock();
        let is_done = |item: &u32| items.answered.contains(item) || dead.contains(item);
        let passed: Vec<_> = (items.acked.iter())
            .filter(|item| !is_done(item) && !waiting.contains(item))
            .collect();
        assert!(passed.is_empty(), "the position has passed {passed:?}");
    }

    fn finish(&self) {
        let Mischief {
            manners, gives_up, ..
        } = self.mischief;
        let items = self.items.lock();
        let dead = self.stored("logs.dead", &Which::All);
        let arrived = |item: &u32| items.taken.contains_key(item) || items.rejected.contains(item);
        let missing: Vec<_> = (items.acked.iter())
            .filter(|item| !arrived(item) && !dead.contains(item))
            .collect();
        let dropped = |reason: DropReason| self.dropped[reason as usize];
        if self.mischief.keeps_everything() {
            assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
        }
        // What was kept or arrived is not missing, whatever it is counted as.
        let kept = dropped(DropReason::DeadLetter) + dropped(DropReason::PartialSuccess);
        assert!(
            missing.len() as u64 <= self.dropped.iter().sum::<u64>() - kept,
            "lost without a word: {missing:?}, dropped {:?}",
            self.dropped
        );
        for (reason, is_allowed) in [
            (DropReason::PayloadFault, manners.poison || manners.rejects),
            (
                DropReason::DeadLetter,
                self.mischief.dead_letters && (manners.poison || manners.rejects),
            ),
            (DropReason::PartialSuccess, manners.rejects),
            (DropReason::RetryExhausted, gives_up.is_some()),
            (DropReason::QueueFull, false),
            (DropReason::Shutdown, false),
            (DropReason::Damaged, false),
        ] {
            assert!(
                is_allowed || dropped(reason) == 0,
                "{reason:?}: {:?}",
                self.dropped
            );
        }
        assert!(!manners.poison || !items.taken.keys().any(|item| is_poison(*item)));
        assert!(dead.iter().any(|item| is_poison(*item) || is_rejected(*item)) || dead.is_empty());
        if !self.mischief.faults {
            items.assert_repeats_explained();
        }
    }
}

/// The journal's writer.
async fn write(journal: Journal, tick: Arc<AtomicU64>) {
    loop {
        journal.turn();
        tokio::time::sleep(Duration::from_millis(tick.load(Ordering::Relaxed))).await;
    }
}

/// Endpoints leave and come back.
async fn endpoints_move(routed: Arc<Routed>, networks: Vec<Arc<Network>>, mut random: Random) {
    loop {
        let gone = random.below(2 * networks.len() as u64) as usize;
        let names: Vec<String> = (0..networks.len())
            .filter(|index| *index != gone)
            .map(|index| index.to_string())
            .collect();
        routed.set_endpoints(&names, |name| {
            let index: usize = name.parse().unwrap();
            Ok::<Arc<dyn Exporter>, std::convert::Infallible>(networks[index].clone())
        });
        tokio::time::sleep(up_to(&mut random, Duration::from_secs(20))).await;
    }
}

/// A client.
struct Sender {
    intake: Intake,
    ack: AckLevel,
    random: Random,
    next_payload: Arc<AtomicU32>,
    items: Arc<Mutex<Items>>,
}

impl Sender {
    async fn send(mut self) {
        for _ in 0..PAYLOADS {
            tokio::time::sleep(up_to(&mut self.random, Duration::from_millis(1500))).await;
            let number = self.next_payload.fetch_add(1, Ordering::Relaxed);
            let items = items_of(number);
            let payload = Payload {
                signal: Signal::Logs,
                body: request(number),
                wire_format: WireFormat::Otlp,
                frame: None,
                items: items.len() as u64,
                tenant: TenantId::DEFAULT,
                received_at: Instant::now().into_std(),
                permit: None,
            };
            let patience = Duration::from_millis(self.random.below(3000));
            let Ok(taken) = self.intake.take(payload, patience).await else {
                continue;
            };
            let mut of = self.items.lock();
            if self.ack == AckLevel::Delivered {
                // Which items of a batch were rejected is known to nobody else.
                let is_known = |item: &u32| of.taken.contains_key(item) || of.rejected.contains(item);
                let known = items.clone().filter(is_known).count();
                assert!(
                    known as u64 + taken.rejected >= items.len() as u64,
                    "{number} is not delivered"
                );
            }
            of.acked.extend(items);
        }
    }
}

fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed);
        if world.mischief.crashes {
            for _ in 0..1 + world.random.below(3) {
                world.live(true).await;
            }
        }
        world.live(false).await;
        world.finish();
    });
}

fn mischief_of(seed: u64) -> String {
    format!("{:?}", Mischief::new(&mut Random(seed)))
}

/// Scenario: clients and a destination that is slow, overloaded, refuses everything for a while, refuses some items for good, or one for as long as nobody mends
/// it, hangs, takes requests and does not say so, or is gone; one endpoint or several, which come and go; a disk that fails; processes that end in order,
/// by SIGKILL, or with the power, at any moment.
/// Guarantees: what was acknowledged is delivered, or kept as a dead letter, or counted as dropped for a reason that the settings allow; what was
/// acknowledged as delivered was; no position passes what has not arrived; the ledger and the destination count the same; nothing comes twice but what had
/// no answer, or was not settled in time before a crash; beside a batch that is never taken everything else arrives.
#[test]
fn simulation() {
    for_seeds(SEEDS, run, mischief_of);
}
