//! How many samples a second go to a destination that is far away, on a paused clock: nothing but its latency takes any time.

use sluice_admission::{GuardSettings, Tracker};
use sluice_journal::testing::Random;
use sluice_journal::{CursorSpec, Durability, Journal, Limits, OnFull};
use sluice_payload::Payload;
use sluice_pipeline::{BatchSettings, DeliverySettings, RetrySettings, deliver};

use super::ahead::answer;
use super::*;

const LANES: usize = 16;
const SERIES: usize = 800;
const BATCHES: u64 = 400;

/// An exporter that runs so many batches ahead.
struct Ahead(RemoteWriteExporter, usize);

impl Exporter for Ahead {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        self.0.export(batch)
    }

    fn runs_ahead(&self) -> usize {
        self.1
    }

    fn prepare<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.prepare(batch, turn)
    }

    fn export_in_turn<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Export<'a> {
        self.0.export_in_turn(batch, turn)
    }

    fn ends(&self, turn: Turn, ending: Ending) {
        self.0.ends(turn, ending);
    }

    fn max_request_bytes(&self) -> usize {
        self.0.max_request_bytes()
    }
}

/// How long an answer takes.
#[derive(Debug, Clone, Copy)]
enum Latency {
    Always100,
    From50To150,
    Exponential100,
    /// One in a hundred takes 2 s, the others 100 ms.
    SometimesLong,
}

#[derive(Debug)]
struct FarAway {
    latency: Latency,
    random: Mutex<Random>,
    /// When the middle of all samples was taken, and the last one.
    samples: Mutex<(u64, Option<Instant>, Option<Instant>)>,
}

impl Scripted for FarAway {
    fn answer<'a>(
        &'a self,
        _: &'a str,
        body: &'a Body,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>> {
        Box::pin(async {
            let unit = self.random.lock().below(1 << 20) as f64 / (1 << 20) as f64;
            let millis = match self.latency {
                Latency::Always100 => 100.0,
                Latency::From50To150 => 50.0 + 100.0 * unit,
                Latency::Exponential100 => -100.0 * (1.0 - unit).ln(),
                Latency::SometimesLong if unit < 0.01 => 2000.0,
                Latency::SometimesLong => 100.0,
            };
            tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
            let (samples, middle, last) = &mut *self.samples.lock();
            *samples += body.written.samples;
            if *samples >= BATCHES * SERIES as u64 / 2 {
                middle.get_or_insert_with(Instant::now);
            }
            *last = Some(Instant::now());
            Ok(answer(204))
        })
    }
}

/// Samples a second in the second half of all batches, so many of them ahead.
async fn pace(latency: Latency, ahead: usize) -> f64 {
    let mut options = RemoteWriteExporterOptions {
        endpoint: "http://a/".to_owned(),
        ..Default::default()
    };
    options.encoder.lanes = LANES;
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let far_away = Arc::new(FarAway {
        latency,
        random: Mutex::new(Random(1)),
        samples: Mutex::default(),
    });
    exporter.0.scripted.set(far_away.clone()).unwrap();
    let spec = CursorSpec {
        exporter: "rw".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("metrics", vec![spec]);
    let body = batch(0..SERIES, 1.0).parts.remove(0).body;
    for _ in 0..BATCHES {
        let payload = Payload::uncharged(Signal::Metrics, body.clone(), SERIES as u64);
        let space = journal.try_reserve(journal.cost(&payload)).unwrap();
        let _ = journal.append(space, Arc::new(payload), None, Durability::Written);
    }
    journal.close();
    let settings = DeliverySettings {
        exporter: "rw".into(),
        batch: BatchSettings {
            min_size: SERIES as u64,
            ..BatchSettings::default()
        },
        retry: RetrySettings::default(),
        max_in_flight: 1,
        latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
        dead_letters: None,
    };
    let exporter = Arc::new(Ahead(exporter, ahead));
    deliver(
        cursors.remove(0),
        Signal::Metrics,
        exporter,
        settings,
        Registry::default(),
    )
    .await;
    let (samples, middle, last) = *far_away.samples.lock();
    assert_eq!(samples, BATCHES * SERIES as u64);
    samples as f64 / 2.0 / (last.unwrap() - middle.unwrap()).as_secs_f64()
}

/// Scenario: 400 batches of 800 samples over 16 lanes to a destination whose answers take 100 ms on average; batches one by one, and some ahead.
/// Guarantees: where latency varies, lanes that run ahead send more, and nowhere less.
///
/// `cargo test -p sluice-remote-write pace -- --nocapture` prints the figures.
#[tokio::test(start_paused = true)]
async fn the_pace_to_a_destination_far_away() {
    for latency in [
        Latency::Always100,
        Latency::From50To150,
        Latency::Exponential100,
        Latency::SometimesLong,
    ] {
        let mut paces = Vec::new();
        for ahead in [0, 1, 3, 7, 15] {
            paces.push(pace(latency, ahead).await);
        }
        println!("{latency:?}: {paces:.0?} samples/s with 0, 1, 3, 7 and 15 batches ahead");
        assert!(paces.iter().all(|pace| *pace > 0.95 * paces[0]));
        assert!(matches!(latency, Latency::Always100) || paces[3] > 1.3 * paces[0]);
    }
}
