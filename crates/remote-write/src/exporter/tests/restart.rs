//! What a start sends again, on a paused clock and a simulated disk.

use sluice_client::Auth;
use sluice_journal::testing::SimulatedDisk;

use super::ahead::{Judged, in_lane_of};
use super::*;
use crate::exporter::LanesFile;

const LANES: usize = 4;
const SERIES: usize = 40;

/// An exporter whose endpoint never answers a request with series 7 of the second round, as long as it `stalls`; 400 to series 3 if it is bad.
fn exporter_on(
    disk: &SimulatedDisk,
    stalls: bool,
    is_bad: bool,
    change: impl FnOnce(&mut RemoteWriteExporterOptions),
) -> (RemoteWriteExporter, Arc<impl Scripted + AsSeen>) {
    let mut options = RemoteWriteExporterOptions {
        endpoint: "http://a/".to_owned(),
        lanes: Some(LanesFile {
            path: "/spool/rw.lanes".into(),
            filesystem: Arc::new(disk.clone()),
        }),
        ..Default::default()
    };
    options.encoder.lanes = LANES;
    change(&mut options);
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let endpoint = Arc::new(Judged {
        judge: move |samples: &[(String, f64)]| {
            let has =
                |series: &str, round: f64| samples.iter().any(|(n, value)| n == series && *value == round);
            match () {
                () if stalls && has("7", 2.0) => (Duration::from_secs(1_000_000), 204),
                () if is_bad && has("3", 1.0) => (Duration::from_millis(10), 400),
                () => (Duration::from_millis(10), 204),
            }
        },
        seen: Seen::default(),
    });
    exporter.0.scripted.set(endpoint.clone()).unwrap();
    (exporter, endpoint)
}

trait AsSeen {
    fn taken(&self) -> BTreeMap<String, Vec<f64>>;
}

impl<J: Send + Sync> AsSeen for Judged<J> {
    fn taken(&self) -> BTreeMap<String, Vec<f64>> {
        self.seen.taken.lock().clone()
    }
}

/// What becomes of a batch in the end: an endpoint that has taken nothing yet is asked again.
async fn sent(exporter: &RemoteWriteExporter, batch: &Batch, turn: Turn) -> Verdict {
    loop {
        match exporter.export_in_turn(batch, turn).await {
            Verdict::EndpointFault { .. } => {}
            Verdict::InPart { refused, rejected } => return in_part(Verdict::InPart { refused, rejected }),
            verdict => return verdict,
        }
    }
}

/// The first two rounds of all series, as they are under way when the process is killed: the first is settled unless it `is_left`, in the second one lane has no answer.
async fn until_killed(disk: &SimulatedDisk, is_bad: bool) {
    let (exporter, endpoint) = exporter_on(disk, true, is_bad, |_| {});
    let turn = Turn::first();
    let verdict = sent(&exporter, &batch(0..SERIES, 1.0), turn).await;
    assert_eq!(verdict, delivered(u64::from(is_bad)));
    exporter.ends(turn, Ending::Settled);
    let sending =
        tokio::spawn(async move { exporter.export_in_turn(&batch(0..SERIES, 2.0), turn.next()).await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    sending.abort();
    let _ = sending.await;
    assert!(endpoint.taken().len() >= SERIES - usize::from(is_bad));
    disk.kill();
}

/// Scenario: two rounds of 40 series over four lanes, the first delivered, of the second one lane without an answer; SIGKILL. The next process gets both again, the first because
/// its end had not been written down, in one batch and with a third.
/// Guarantees: of the first nothing is sent, of the second that lane alone, of the third everything; all are delivered, and nothing is rejected.
#[tokio::test(start_paused = true)]
async fn a_lane_goes_on_where_it_was() {
    let disk = SimulatedDisk::default();
    until_killed(&disk, false).await;
    let (exporter, endpoint) = exporter_on(&disk, false, false, |_| {});
    let mut all = batch(0..SERIES, 1.0);
    all.parts.extend(batch(0..SERIES, 2.0).parts);
    all.parts.extend(batch(0..SERIES, 3.0).parts);
    assert_eq!(exporter.export(&all).await, delivered(0));
    let lane = in_lane_of(7, LANES, SERIES);
    for (series, values) in endpoint.taken() {
        let want: &[f64] = if lane.contains(&series) {
            &[2.0, 3.0]
        } else {
            &[3.0]
        };
        assert_eq!(values, want, "{series}");
    }
    assert_eq!(endpoint.taken().len(), SERIES);
}

/// Scenario: as in [`a_lane_goes_on_where_it_was`], but a client sent the second round twice.
/// Guarantees: its lane without an answer is sent, both times, and no other: what was noted of these bytes holds each time they come.
#[tokio::test(start_paused = true)]
async fn what_came_twice_is_known_twice() {
    let disk = SimulatedDisk::default();
    until_killed(&disk, false).await;
    let (exporter, endpoint) = exporter_on(&disk, false, false, |_| {});
    let mut all = batch(0..SERIES, 2.0);
    all.parts.extend(batch(0..SERIES, 2.0).parts);
    assert_eq!(exporter.export(&all).await, delivered(0));
    assert_eq!(sent_series(&*endpoint), lane_of_seven());
}

/// Scenario: as in [`a_lane_goes_on_where_it_was`], but the next process was made before the first one sent anything: it waited for the queue.
/// Guarantees: what was delivered meanwhile is not sent again.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_queue_reads_positions_when_it_has_it() {
    let disk = SimulatedDisk::default();
    let (exporter, endpoint) = exporter_on(&disk, false, false, |_| {});
    until_killed(&disk, false).await;
    let mut all = batch(0..SERIES, 1.0);
    all.parts.extend(batch(0..SERIES, 2.0).parts);
    assert_eq!(exporter.export(&all).await, delivered(0));
    assert_eq!(sent_series(&*endpoint), lane_of_seven());
}

fn sent_series(endpoint: &impl AsSeen) -> Vec<String> {
    endpoint.taken().into_keys().collect()
}

fn lane_of_seven() -> Vec<String> {
    let mut series = in_lane_of(7, LANES, SERIES);
    series.sort();
    series
}

/// Scenario: the same, and the next process has other settings, or other bytes come.
/// Guarantees: everything is sent: what was noted says nothing about that.
#[tokio::test(start_paused = true)]
async fn other_settings_and_other_bytes_are_sent() {
    type Change = fn(&mut RemoteWriteExporterOptions);
    let changes: [Change; 7] = [
        |options| options.encoder.lanes += 1,
        |options| options.endpoint = "http://b/".to_owned(),
        |options| options.shard_endpoints.push("http://b/".to_owned()),
        |options| options.headers.push(("X-Scope-OrgID".to_owned(), "b".to_owned())),
        |options| {
            options.auth = Auth::Bearer {
                scheme: "Bearer".to_owned(),
                token: "b".to_owned(),
            };
        },
        |options| options.encoder.mapping.namespace = "a".to_owned(),
        |options| {
            let labels = &mut options.encoder.mapping.external_labels;
            labels.push(("a".to_owned(), "b".to_owned()));
        },
    ];
    for change in changes {
        let disk = SimulatedDisk::default();
        until_killed(&disk, false).await;
        let (exporter, endpoint) = exporter_on(&disk, false, false, change);
        assert_eq!(exporter.export(&batch(0..SERIES, 1.0)).await, delivered(0));
        assert_eq!(endpoint.taken().len(), SERIES);
    }
    let disk = SimulatedDisk::default();
    until_killed(&disk, false).await;
    let (exporter, endpoint) = exporter_on(&disk, false, false, |_| {});
    assert_eq!(exporter.export(&batch(0..SERIES, 4.0)).await, delivered(0));
    assert_eq!(endpoint.taken().len(), SERIES);
}

/// Scenario: the same, and the endpoint refuses a series of the first round.
/// Guarantees: its lane is sent again, since what was refused may not have been kept; the series is found again and counted.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_found_again() {
    let disk = SimulatedDisk::default();
    until_killed(&disk, true).await;
    let (exporter, endpoint) = exporter_on(&disk, false, true, |_| {});
    let verdict = sent(&exporter, &batch(0..SERIES, 1.0), Turn::first()).await;
    assert_eq!(verdict, delivered(1));
    let mut sent = in_lane_of(3, LANES, SERIES);
    sent.retain(|series| series != "3");
    sent.sort();
    assert_eq!(endpoint.taken().into_keys().collect::<Vec<_>>(), sent);
}
