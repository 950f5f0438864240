use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_config::Loader;
use sluice_loadgen::{Generator, Signal, Spec, Tallies};
use sluice_otlp::json;
use sluice_pipeline::{Batch, Export, Exporter, Verdict};
use sluice_telemetry::Account;

use super::account::Flow;
use super::plan::{Form, SignalFile};
use super::*;
use crate::DEFAULT_CONFIG;
use crate::ledger::LedgerLine;

/// A directory that is removed again.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sluice-demo-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings(set: &[&str]) -> Settings {
    settings_of(DEFAULT_CONFIG, set)
}

/// The same with files of lines.
fn line_settings(set: &[&str]) -> Settings {
    settings_of(include_str!("../../../../config/files.yaml"), set)
}

fn settings_of(config: &str, set: &[&str]) -> Settings {
    let mut loader = Loader::new().text("the configuration", config);
    for assignment in set {
        loader = loader.set(*assignment);
    }
    Settings::from_document(&loader.load().unwrap()).unwrap()
}

fn snapshot(millis: u64, sent: u64) -> Snapshot {
    let flow = Flow {
        sent,
        accepted: sent,
        delivered: sent - 10,
        dropped: 0,
        queued: 10,
    };
    Snapshot {
        elapsed: Duration::from_millis(millis),
        flows: [flow; 3],
        balanced: true,
        queue_bytes: 12_345,
        queue_age_seconds: 0.25,
        budget_used: 1_500_000,
        budget_capacity: 2_000_000_000,
        resident_bytes: Some(30_000_000),
        cpu_seconds: Some(millis as f64 / 2000.0),
        disk_bytes: 999,
        refused: 3,
    }
}

/// Scenario: a load of 1,000 items a second and signal, seen every 250 ms for three seconds.
/// Guarantees: rates are those of the last second, the CPU is in cores, and the first snapshot stays known.
#[test]
fn rates_are_of_the_last_second() {
    let mut history = History::default();
    for quarter in 0..=12_u64 {
        // Twice as fast in the first second.
        let sent = 10 + quarter * 250 + quarter.min(4) * 250;
        history.push(snapshot(quarter * 250, sent));
    }
    let rates = history.rates();
    assert_eq!(rates.sent, [1000.0; 3]);
    assert_eq!(rates.delivered, [1000.0; 3]);
    assert_eq!(rates.cores, Some(0.5));
    assert_eq!(history.first().unwrap().elapsed, Duration::ZERO);
}

/// Scenario: the same moment as a line and as a picture.
/// Guarantees: both say what is sent, delivered, queued, used and refused; the picture fits 100 columns and has no
/// control characters of its own; sizes and numbers are readable.
#[test]
fn the_account_is_readable() {
    let mut history = History::default();
    history.push(snapshot(1000, 1_000));
    history.push(snapshot(2000, 1_234_567));
    let (now, rates) = (history.last().unwrap(), history.rates());
    let plan = Plan::new(10_000, Duration::from_secs(15)).unwrap();
    let line = screen::line(now, &rates);
    assert_eq!(
        line,
        "   2 s  sent 3,703,701 (3,700,701/s)  delivered 3,703,671 (3,700,701/s)  queued 30 (12.3 kB)  memory 30.0 MB  \
         cpu 0.50 cores  refused 3  ledger balances"
    );
    let picture = screen::picture(now, &rates, &plan);
    for words in [
        "2.0 of 15 s",
        "metrics",
        "logs",
        "traces",
        "together",
        "3,703,701",
        "30.0 MB resident",
        "0.50 cores",
    ] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
    assert!(
        picture
            .lines()
            .all(|line| line.len() <= 100 && !line.contains('\x1b')),
        "{picture}"
    );
    assert_eq!(
        [0, 999, 1_000, 1_234_567].map(screen::count),
        ["0", "999", "1,000", "1,234,567"]
    );
    assert_eq!(
        [999, 1_500, 2_000_000_000].map(screen::bytes),
        ["999 B", "1.5 kB", "2.0 GB"]
    );
}

/// Scenario: plans of every size.
/// Guarantees: the shares add up to the rate, every sender sends something, lanes differ, and a run that would fill a
/// disk is refused with its size.
#[test]
fn plans_are_bounded() {
    for (rate, seconds) in [(1, 0.1), (100, 1.0), (10_000, 15.0), (1_000_000, 2.0)] {
        let plan = Plan::new(rate, Duration::from_secs_f64(seconds)).unwrap();
        let planned: f64 = plan
            .senders
            .iter()
            .map(|sender| f64::from(sender.spec.items_per_request) / sender.interval.as_secs_f64())
            .sum();
        assert!(
            (planned - f64::from(rate)).abs() < f64::from(rate) * 0.001,
            "{planned} of {rate}"
        );
        assert!(plan.senders.iter().all(|sender| sender.requests > 0));
        let mut lanes: Vec<_> = plan.senders.iter().map(|sender| sender.spec.first_id).collect();
        lanes.dedup();
        assert_eq!(lanes.len(), plan.senders.len());
        assert!(plan.describe().contains("items/s"));
    }
    let error = Plan::new(10_000_000, Duration::from_secs(86_400)).unwrap_err();
    assert!(error.contains("lower --rate or --seconds"), "{error}");
    assert!(super::seconds("0").is_err() && super::seconds("-1").is_err() && super::seconds("NaN").is_err());
}

/// Scenario: two runs below one directory, one in the way of a file, one where there is no directory to be.
/// Guarantees: runs never share a directory, and what is wrong is said with a remedy.
#[test]
fn every_run_has_its_own_directory() {
    let scratch = Scratch::new();
    let first = RunDirectory::create(&scratch.0.join("demo")).unwrap();
    std::fs::write(first.path().join("traces.jsonl"), "12345").unwrap();
    let second = RunDirectory::create(&scratch.0.join("demo")).unwrap();
    assert_ne!(first.path(), second.path());
    assert_eq!((first.bytes(), second.bytes(), second.earlier()), (5, 0, (1, 5)));
    std::fs::write(scratch.0.join("file"), "").unwrap();
    for wrong in ["file", "file/below"] {
        let error = RunDirectory::create(&scratch.0.join(wrong)).unwrap_err();
        assert!(
            error.contains("--dir") && error.contains("cannot write in"),
            "{error}"
        );
    }
}

/// Scenario: `--set` made a pipeline that cannot be read back.
/// Guarantees: the demo says so before it starts.
#[test]
fn only_what_can_be_read_back_is_run() {
    for (set, words) in [
        ("exporters.file/logs.format=proto", "format"),
        (
            "service.pipelines.logs.exporters=[file/traces]",
            "file exporter of its own",
        ),
        (
            "service.pipelines.metrics.exporters=[file/metrics, file/logs]",
            "have 2",
        ),
    ] {
        let error = plan::move_files(&mut line_settings(&[set]), Path::new("/nowhere")).unwrap_err();
        assert!(error.contains(words), "{set}: {error}");
    }
    for mut settings in [settings(&[]), line_settings(&[])] {
        let files = plan::move_files(&mut settings, Path::new("/somewhere")).unwrap();
        assert_eq!(files.len(), 3);
        assert!(files.iter().all(|file| file.path.starts_with("/somewhere")));
    }
}

/// Scenario: the port of a listener is taken.
/// Guarantees: that listener gets a free one and is named; the others keep theirs.
#[test]
fn taken_ports_are_replaced() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let mut settings = settings(&[
        &format!("receivers.otlp.protocols.grpc.endpoint=127.0.0.1:{port}"),
        "receivers.otlp.protocols.http.endpoint=127.0.0.1:0",
        "extensions.health_check.endpoint=127.0.0.1:0",
        "service.telemetry.metrics.level=none",
    ]);
    assert_eq!(plan::free_ports(&mut settings), [format!("127.0.0.1:{port}")]);
}

/// A file with these requests, one a line, and the tallies of those that were sent.
fn written(path: &Path, written: &[usize], sent: &[usize]) -> Tallies {
    let requests: Vec<_> = Generator::new(Spec::mixed(Signal::Logs).items(10))
        .take(4)
        .collect();
    let mut text = Vec::new();
    for at in written {
        json::encode(
            json::request_schema(sluice_wire::Kind::Logs),
            &requests[*at].body,
            &mut text,
        )
        .unwrap();
        text.push(b'\n');
    }
    std::fs::write(path, text).unwrap();
    let mut tallies = Tallies::new();
    for at in sent {
        tallies
            .of(Signal::Logs)
            .sent(requests[*at].first_id, u64::from(requests[*at].items));
    }
    tallies
}

fn outcome(read: Vec<readback::SignalRead>, account: Account) -> Outcome {
    let line = LedgerLine {
        pipeline: "logs".into(),
        signal: "logs",
        exporter: "file/logs".into(),
        total: account,
        tenants: Default::default(),
        queued_requests: 0,
        queued_bytes: 0,
        queue_age_seconds: 0.0,
    };
    Outcome {
        took: Duration::from_secs(2),
        planned: 40,
        interrupted: false,
        trouble: None,
        refused: 0,
        given_up: 0,
        lines: vec![line],
        left: 0,
        read,
        peak_resident_bytes: 1,
        cpu_seconds: Some(1.0),
        directory: "somewhere".into(),
        query: None,
        earlier: (0, 0),
    }
}

/// Scenario: files that hold everything, in two files; then files with a request missing, written again, never sent,
/// torn, and not JSON; and a ledger that disagrees with correct files.
/// Guarantees: only the first is exact; every other names its fault.
#[test]
fn only_an_exact_run_is_exact() {
    let scratch = Scratch::new();
    let file = SignalFile {
        signal: Signal::Logs,
        path: scratch.0.join("logs.jsonl"),
        form: Form::Lines,
    };
    let account = |items| Account {
        accepted: items,
        delivered: items,
        ..Default::default()
    };
    let check = |in_file: &[usize], sent: &[usize], account| {
        let tallies = written(&file.path, in_file, sent);
        outcome(readback::read(std::slice::from_ref(&file), tallies), account)
    };

    let rotated = scratch.0.join("logs-2026-01-02T03-04-05.678.jsonl");
    written(&rotated, &[3], &[]);
    let good = check(&[0, 1, 2], &[0, 1, 2, 3], account(40));
    assert!(good.is_exact(), "{:?}", good.complaint());
    assert_eq!(good.read[0].files.len(), 2);
    let text = good.render();
    assert!(
        text.contains("exactly once") && text.contains("40 accepted = 40 delivered + 0 dropped + 0 queued"),
        "{text}"
    );
    std::fs::remove_file(&rotated).unwrap();

    for (in_file, sent, items, words) in [
        (&[0, 1][..], &[0, 1, 2][..], 30, "10 are lost"),
        (&[0, 1, 1], &[0, 1], 20, "10 were written again"),
        (&[0, 1, 2], &[0, 1], 20, "10 were never sent"),
        (&[0, 1], &[0, 1], 30, "the ledger has 30 accepted"),
        (&[], &[], 0, "nothing was sent"),
    ] {
        let outcome = check(in_file, sent, account(items));
        let complaint = outcome.complaint().unwrap_or_default();
        assert!(
            !outcome.is_exact() && complaint.contains(words),
            "{words}: {complaint}"
        );
        assert!(!outcome.render().contains("exactly once"));
    }

    let unbalanced = check(
        &[0],
        &[0],
        Account {
            accepted: 10,
            delivered: 10,
            queued: 1,
            ..Default::default()
        },
    );
    assert!(unbalanced.complaint().unwrap().contains("does not balance"));

    let tallies = written(&file.path, &[0, 1], &[0, 1]);
    let mut torn = std::fs::read(&file.path).unwrap();
    torn.pop();
    std::fs::write(&file.path, &torn).unwrap();
    let read = readback::read(std::slice::from_ref(&file), tallies.clone());
    assert!(
        read[0].problems[0].contains("line 2 was not finished"),
        "{:?}",
        read[0].problems
    );
    std::fs::write(&file.path, "{\"resourceLogs\":\n").unwrap();
    let read = readback::read(std::slice::from_ref(&file), tallies);
    assert!(read[0].problems[0].contains("line 1"), "{:?}", read[0].problems);
}

/// A gateway that gives these answers, one after the other.
struct Scripted(parking_lot::Mutex<Vec<Verdict>>);

impl Exporter for Scripted {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        let answer = self.0.lock().pop();
        Box::pin(async {
            answer.unwrap_or(Verdict::Delivered {
                rejected: 0,
                message: None,
            })
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// Scenario: a request is refused twice with a hint and then taken; refused beyond the end of the run; turned away for
/// good.
/// Guarantees: the hint is waited out and the request sent again until it is acknowledged, and only then counted as sent;
/// what is never acknowledged is not counted as sent; what no retry can mend is a failure.
#[tokio::test]
async fn refusals_are_honoured() {
    let plan = Plan::new(1_000, Duration::from_secs(1)).unwrap();
    let sender = &plan.senders[0];
    let request = Generator::new(sender.spec.clone()).next_request();
    let refused = |millis| Verdict::Retry {
        after: Some(Duration::from_millis(millis)),
        reason: "busy".into(),
    };
    let (_stop, mut stopping) = watch::channel(Stop::No);

    let sent = Sent::default();
    let gateway = Scripted(parking_lot::Mutex::new(vec![refused(20), refused(40)]));
    let before = Instant::now();
    let give_up = before + Duration::from_secs(60);
    assert!(senders::deliver(sender, &gateway, &request, &sent, &mut stopping, give_up).await);
    assert!(before.elapsed() >= Duration::from_millis(60));
    assert_eq!(
        (sent.items()[0], sent.refused(), sent.given_up()),
        (u64::from(request.items), 2, 0)
    );

    let sent = Sent::default();
    let gateway = Scripted(parking_lot::Mutex::new(vec![refused(1)]));
    let late = Instant::now();
    assert!(!senders::deliver(sender, &gateway, &request, &sent, &mut stopping, late).await);
    assert_eq!((sent.items()[0], sent.refused(), sent.given_up()), (0, 1, 1));
    assert!(sent.failure().is_none());

    let sent = Sent::default();
    let gateway = Scripted(parking_lot::Mutex::new(vec![Verdict::PayloadFault {
        reason: "no such field".into(),
    }]));
    assert!(!senders::deliver(sender, &gateway, &request, &sent, &mut stopping, give_up).await);
    assert!(sent.failure().unwrap().contains("no such field"));
}

const ANY_PORTS: [&str; 4] = [
    "receivers.otlp.protocols.grpc.endpoint=127.0.0.1:0",
    "receivers.otlp.protocols.http.endpoint=127.0.0.1:0",
    "extensions.health_check.endpoint=127.0.0.1:0",
    "service.telemetry.metrics.level=none",
];

/// Scenario: the whole demo for a second, on ports of the system's choice, into tables.
/// Guarantees: it is exact, over both protocols, its files are where it says, and it ends with a query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_demo_adds_up() {
    let directory = short_demo(settings(&ANY_PORTS), "duckdb -c").await;
    assert!(directory.0.join("run-1/spans").is_dir());
}

/// Scenario: the same into files of lines.
/// Guarantees: the same, without a query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_demo_of_lines_adds_up() {
    let directory = short_demo(line_settings(&ANY_PORTS), "OTLP JSON").await;
    assert!(directory.0.join("run-1/traces.jsonl").is_file());
}

async fn short_demo(settings: Settings, says: &str) -> Scratch {
    let scratch = Scratch::new();
    let args = DemoArgs {
        seconds: Duration::from_secs(1),
        dir: scratch.0.clone(),
        rate: 2_000,
    };
    let outcome = demo(settings, &args).await.unwrap();
    assert!(outcome.is_exact(), "{:?}", outcome.complaint());
    assert_eq!(outcome.read.len(), 3);
    assert!(
        outcome
            .read
            .iter()
            .all(|read| read.report.sent > 0 && read.records > 0),
        "{:?}",
        outcome.read
    );
    assert!(outcome.directory.starts_with(&scratch.0));
    assert!(outcome.render().contains(says), "{}", outcome.render());
    scratch
}
