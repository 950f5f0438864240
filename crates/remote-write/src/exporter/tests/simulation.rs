//! Batches that run ahead of each other in any weather, with restarts, by a seed: the real exporter behind the real delivery, on a paused clock, over
//! the real journal on a simulated disk. Only the endpoints are a model, which knows of each series what comes next.
//!
//! `SLUICE_SEEDS=10000 cargo test -p sluice-remote-write --release simulation` runs more seeds than CI does; `SLUICE_SEED=17` runs one.

mod endpoints;

use std::time::{SystemTime, UNIX_EPOCH};

use sluice_admission::{GuardSettings, Tracker};
use sluice_client::EgressPool;
use sluice_journal::testing::{Random, SimulatedDisk, for_seeds};
use sluice_journal::{Clock, CursorSpec, DiskSettings, Durability, Journal, Limits, OnFull};
use sluice_payload::{Payload, Tenants};
use sluice_pipeline::{BatchSettings, DeliverySettings, RetrySettings, deliver};
use tokio::task::JoinHandle;

use self::endpoints::Endpoints;
use super::ahead::answer;
use super::*;
use crate::cumulative::TotalsFile;

/// Seeds of a run in CI: seconds in a build for tests.
const SEEDS: u64 = 300;

/// Series of one run; a payload has some of them.
const SERIES: usize = 24;

/// Payloads of each process.
const PAYLOADS: u64 = 40;

/// In fair weather everything has arrived by then: probes come at least once a minute.
const DRAINED_BY: Duration = Duration::from_secs(6 * 3600);

/// The first point of a series: any time that is not in the future.
const FIRST_SECOND: u64 = 1_700_000_000;

/// What a run does to an exporter.
#[derive(Debug, Clone)]
struct Mischief {
    shards: usize,
    lanes: usize,
    /// Points are deltas, of which totals are made.
    deltas: bool,
    /// Some samples are refused with 400.
    poison: bool,
    /// More series in a request are answered with 413.
    most_series: usize,
    /// What was taken may have no answer.
    loses_answers: bool,
    gives_up: Option<Duration>,
    /// How processes end before the last one.
    ends: Vec<End>,
    room_bytes: u64,
}

impl Mischief {
    fn new(random: &mut Random) -> Self {
        Self {
            shards: 1 + random.below(2) as usize,
            lanes: 1 + random.below(6) as usize,
            deltas: random.one_in(3),
            poison: random.one_in(3),
            most_series: match random.one_in(3) {
                true => 2 + random.below(6) as usize,
                false => usize::MAX,
            },
            loses_answers: random.one_in(4),
            gives_up: random
                .one_in(5)
                .then(|| Duration::from_millis(500 + random.below(20_000))),
            ends: match random.one_in(2) {
                true => (0..1 + random.below(3)).map(|_| End::any(random)).collect(),
                false => Vec::new(),
            },
            room_bytes: match random.one_in(3) {
                true => 1 << random.below(15),
                false => u64::MAX,
            },
        }
    }

    fn keeps_everything(&self) -> bool {
        !self.poison && self.gives_up.is_none()
    }

    /// A lane has one request of a batch, and no end of a process takes its position.
    fn repeats_no_answer(&self) -> bool {
        !self.poison && self.most_series == usize::MAX && !self.ends.contains(&End::PowerCut)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    InOrder,
    Killed,
    /// What was not synced is there or not, sector by sector.
    PowerCut,
}

impl End {
    fn any(random: &mut Random) -> Self {
        match random.below(5) {
            0 | 1 => End::InOrder,
            2 | 3 => End::Killed,
            _ => End::PowerCut,
        }
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
        UNIX_EPOCH + Duration::from_secs(FIRST_SECOND) + self.0.elapsed()
    }
}

/// One process.
struct Process {
    journal: Journal,
    delivery: JoinHandle<()>,
    writer: JoinHandle<()>,
}

struct World {
    random: Random,
    mischief: Mischief,
    disk: SimulatedDisk,
    clock: Arc<PausedClock>,
    endpoints: Arc<Endpoints>,
    /// The next point of each series.
    made: Vec<u64>,
    dropped: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mischief = Mischief::new(&mut random);
        Self {
            endpoints: Arc::new(Endpoints::new(mischief.clone(), Random(random.draw()))),
            random,
            mischief,
            disk: SimulatedDisk::default(),
            clock: Arc::new(PausedClock(Instant::now())),
            made: vec![0; SERIES],
            dropped: 0,
        }
    }

    fn start(&mut self) -> Process {
        let settings = DiskSettings {
            filesystem: Arc::new(self.disk.clone()),
            clock: self.clock.clone(),
            seed: Some(self.random.draw()),
            lock_timeout: Duration::ZERO,
            ..DiskSettings::new("/spool", Tenants::default())
        };
        let spec = CursorSpec {
            exporter: "rw".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let (journal, mut cursors, _) = Journal::disk("metrics", vec![spec], settings).unwrap();
        let mut options = RemoteWriteExporterOptions {
            endpoint: "http://shard-0/".to_owned(),
            shard_endpoints: (1..self.mischief.shards)
                .map(|shard| format!("http://shard-{shard}/"))
                .collect(),
            egress: EgressPool::new(self.mischief.room_bytes),
            ..Default::default()
        };
        options.encoder.lanes = self.mischief.lanes;
        options.encoder.mapping.delta_to_cumulative = self.mischief.deltas;
        options.encoder.totals = Some(TotalsFile {
            path: "/spool/rw.totals".into(),
            synced: true,
            filesystem: Arc::new(self.disk.clone()),
        });
        options.lanes = Some(LanesFile {
            path: "/spool/rw.lanes".into(),
            filesystem: Arc::new(self.disk.clone()),
        });
        let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
        exporter.0.scripted.set(self.endpoints.clone()).unwrap();
        self.endpoints.process_starts();
        let random = &mut self.random;
        let settings = DeliverySettings {
            exporter: "rw".into(),
            batch: BatchSettings {
                min_size: 1 + random.below(60),
                flush_timeout: Duration::from_millis(random.below(200)),
                ..BatchSettings::default()
            },
            retry: RetrySettings {
                initial_interval: Duration::from_millis(1 + random.below(1000)),
                // The delivery's own dice are not the seed's.
                randomization_factor: 0.0,
                max_interval: Duration::from_secs(5),
                max_elapsed_time: self.mischief.gives_up,
                ..RetrySettings::default()
            },
            max_in_flight: 1,
            latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
            dead_letters: None,
        };
        let delivery = deliver(
            cursors.remove(0),
            Signal::Metrics,
            Arc::new(exporter),
            settings,
            Registry::default(),
        );
        let written = journal.clone();
        let writer = async move {
            loop {
                written.turn();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        Process {
            journal,
            delivery: tokio::spawn(delivery),
            writer: tokio::spawn(writer),
        }
    }

    /// Points of some series, each the one that follows its last.
    fn payload(&mut self) -> Payload {
        let mut points = Vec::new();
        let all = self.random.one_in(4);
        for series in 0..SERIES {
            if !all && series > 0 && !self.random.one_in(6) {
                continue;
            }
            for _ in 0..1 + u64::from(self.random.one_in(5)) {
                points.push((series, self.made[series]));
                self.made[series] += 1;
            }
        }
        let items = points.len() as u64;
        Payload::uncharged(Signal::Metrics, request(&points, self.mischief.deltas), items)
    }

    async fn send(&mut self, process: &Process) {
        for _ in 0..PAYLOADS {
            let payload = self.payload();
            let space = process
                .journal
                .try_reserve(process.journal.cost(&payload))
                .unwrap();
            let appended = process
                .journal
                .append(space, Arc::new(payload), None, Durability::Synced);
            appended.persisted().await.unwrap();
            tokio::time::sleep(Duration::from_millis(self.random.below(150))).await;
        }
    }

    /// The process ends, some time after it has been sent everything.
    async fn end(&mut self, process: Process, how: End) {
        let Process {
            journal,
            delivery,
            writer,
        } = process;
        tokio::time::sleep(Duration::from_millis(self.random.below(10_000))).await;
        if how == End::InOrder {
            journal.close();
            let ends = tokio::time::timeout(DRAINED_BY, delivery);
            ends.await.expect("it ends").unwrap();
            assert_eq!(journal.abandon(), 0);
        } else {
            delivery.abort();
            let _ = delivery.await;
        }
        self.endpoints.process_ends();
        self.note_dropped(&journal);
        writer.abort();
        let _ = writer.await;
        drop(journal);
        // Time stands still as long as a thread writes totals.
        tokio::time::sleep(Duration::from_millis(1)).await;
        match how {
            End::PowerCut => self.disk.crash_torn(self.random.draw()),
            End::InOrder | End::Killed => self.disk.kill(),
        }
    }

    fn note_dropped(&mut self, journal: &Journal) {
        for report in journal.reports(Instant::now().into_std()) {
            assert!(report.total().balanced(), "{report:?}");
            self.dropped += report.total().dropped_total();
        }
    }

    async fn live(&mut self) {
        for how in self.mischief.ends.clone() {
            let process = self.start();
            self.send(&process).await;
            self.end(process, how).await;
            self.endpoints.assert_in_order();
        }
        let process = self.start();
        self.send(&process).await;
        self.endpoints.calm();
        let drained = tokio::time::timeout(DRAINED_BY, process.journal.drained());
        assert!(
            drained.await.is_ok(),
            "it never drains: {:?}",
            process.journal.reports(Instant::now().into_std())
        );
        self.note_dropped(&process.journal);
        process.delivery.abort();
        process.writer.abort();
        self.endpoints.assert_in_order();
        let missing = self.endpoints.missing(&self.made);
        assert!(
            missing <= self.dropped && !(self.mischief.keeps_everything() && missing + self.dropped > 0),
            "{missing} samples are missing, {} dropped",
            self.dropped
        );
    }
}

/// A request with these points of these series.
fn request(points: &[(usize, u64)], deltas: bool) -> Bytes {
    let data_points = points.iter().map(|(series, point)| NumberDataPoint {
        attributes: vec![KeyValue {
            key: "n".to_owned(),
            value: Some(AnyValue {
                value: Some(Any::StringValue(series.to_string())),
            }),
            ..Default::default()
        }],
        time_unix_nano: (FIRST_SECOND + point) * 1_000_000_000,
        // The total of all of them is the number of the point, counted from 1.
        value: Some(number_data_point::Value::AsDouble(match deltas {
            true => 1.0,
            false => (point + 1) as f64,
        })),
        ..Default::default()
    });
    let data_points = data_points.collect();
    let data = match deltas {
        true => metric::Data::Sum(Sum {
            data_points,
            aggregation_temporality: 1,
            is_monotonic: true,
        }),
        false => metric::Data::Gauge(Gauge { data_points }),
    };
    let metric = Metric {
        name: "m".to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let scope_metrics = vec![ScopeMetrics {
        metrics: vec![metric],
        ..Default::default()
    }];
    let resource_metrics = vec![ResourceMetrics {
        scope_metrics,
        ..Default::default()
    }];
    ExportMetricsServiceRequest { resource_metrics }
        .encode_to_vec()
        .into()
}

fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { World::new(seed).live().await });
}

/// Scenario: batches over several lanes of one or two endpoints, which are slow, overloaded, gone, refuse everything for a while, hang, or hang for one series
/// alone, refuse some samples for good and bodies that are too large; memory is short; batches are given up; processes end in order, by SIGKILL or by a power cut.
/// Guarantees: of each series no sample is taken after a later one, none twice but for what had no answer or a start sends again, and none is missing
/// but what was dropped and counted; totals of deltas are exact. Where a lane has one request of each batch, a start sends nothing again that was answered before
/// the process ended, but after a power cut.
#[test]
fn simulation() {
    for_seeds(SEEDS, run, |seed| {
        format!("{:?}", Mischief::new(&mut Random(seed)))
    });
}
