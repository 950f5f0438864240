//! Requests that come again, after a kill or within a process, have the values that they had.

use super::*;

/// Scenario: three requests of two series; the process is killed, and the queue hands out the last two again, cut another way; then
/// comes a fourth.
/// Guarantees: what comes again has the values and start times that it had; every delta is in the total once; a point that comes again
/// a second time is out of order.
#[test]
fn a_restart_goes_on_with_the_totals() {
    let disk = SimulatedDisk::default();
    let mut before = encoder(&disk);
    let first = numbers(&[("a", 1, Some(1)), ("b", 1, Some(10))]);
    let second = numbers(&[("a", 2, Some(2)), ("b", 2, Some(20)), ("a", 3, Some(4))]);
    let third = numbers(&[("a", 4, Some(8))]);
    send(&mut before, &[&first]);
    assert_eq!(before.take_faults(), [Fault::Absent]);
    let (mut sent, _) = send(&mut before, &[&second]);
    sent.extend(send(&mut before, &[&third]).0);
    assert_eq!(values(&sent, "a"), [3.0, 7.0, 15.0]);
    drop(before);
    disk.kill();

    let mut after = encoder(&disk);
    let (again, outcome) = send(&mut after, &[&second, &third]);
    assert_eq!(again, sent);
    assert_eq!((outcome.points, outcome.dropped.total()), (4, 0));
    let (more, _) = send(&mut after, &[&numbers(&[("a", 5, Some(16)), ("b", 5, Some(40))])]);
    assert_eq!((values(&more, "a"), values(&more, "b")), (vec![31.0], vec![70.0]));
    assert_eq!(more[&("a".to_owned(), 5000)].2, sent[&("a".to_owned(), 2000)].2);
    let (more, outcome) = send(&mut after, &[&third]);
    assert!(more.is_empty());
    assert_eq!(outcome.dropped.get(Reason::DeltaOrder), 1);
    assert!(after.take_faults().is_empty());
}

/// Scenario: the process is killed again and again before it has sent anything of what came again.
/// Guarantees: what comes again has its values each time.
#[test]
fn what_comes_again_comes_again_after_the_next_kill() {
    let disk = SimulatedDisk::default();
    let requests: Vec<_> = (1..=3).map(|n| numbers(&[("a", n, Some(n as i64))])).collect();
    let mut process = encoder(&disk);
    for request in &requests {
        send(&mut process, &[request]);
    }
    for _ in 0..3 {
        disk.kill();
        process = encoder(&disk);
        assert_eq!(values(&send(&mut process, &[&requests[1]]).0, "a"), [3.0]);
    }
    assert_eq!(values(&send(&mut process, &[&requests[2]]).0, "a"), [6.0]);
    assert_eq!(
        values(&send(&mut process, &[&numbers(&[("a", 4, Some(4))])]).0, "a"),
        [10.0]
    );
}

/// Scenario: a series ends and begins anew, and all of that comes again after a kill.
/// Guarantees: the values are the same, and the series goes on from the total that began after its end.
#[test]
fn an_end_that_comes_again_ends_nothing() {
    let disk = SimulatedDisk::default();
    let all = numbers(&[("a", 1, Some(5)), ("a", 2, None), ("a", 3, Some(7))]);
    let (sent, _) = send(&mut encoder(&disk), &[&all]);
    disk.kill();
    let mut after = encoder(&disk);
    let (again, _) = send(&mut after, &[&all]);
    // The marker that ends a series is no number, and so never equal to itself.
    let bits = |got: &Got| {
        got.values()
            .map(|(value, _, start)| (value.to_bits(), *start))
            .collect::<Vec<_>>()
    };
    assert_eq!(bits(&again), bits(&sent));
    assert_eq!(
        values(&send(&mut after, &[&numbers(&[("a", 4, Some(1))])]).0, "a"),
        [8.0]
    );
}

/// Scenario: a request is encoded and then again, whole or in parts, in the same process: all lanes were refused, or one panicked.
/// Guarantees: the points have the values that they had; those that come a third time are out of order.
#[test]
fn a_request_that_is_encoded_again_has_its_values() {
    let mut encoder = encoder_of(1000, None);
    let (one, two) = (numbers(&[("a", 1, Some(1))]), numbers(&[("a", 2, Some(2))]));
    let (sent, _) = send(&mut encoder, &[&one, &two]);
    let changes = encoder.take_changes();
    // One that was encoded ahead meanwhile.
    assert_eq!(
        values(&send(&mut encoder, &[&numbers(&[("a", 3, Some(4))])]).0, "a"),
        [7.0]
    );
    encoder.comes_again(changes);
    let mut again = send(&mut encoder, &[&one]).0;
    again.extend(send(&mut encoder, &[&two]).0);
    assert_eq!(again, sent);
    let (_, outcome) = send(&mut encoder, &[&two]);
    assert_eq!(outcome.dropped.get(Reason::DeltaOrder), 1);
    assert_eq!(
        values(&send(&mut encoder, &[&numbers(&[("a", 4, Some(8))])]).0, "a"),
        [15.0]
    );
}

/// Scenario: a request is said to come again, and does so after many others, as those of another pipeline.
/// Guarantees: its points have the values that they had.
#[test]
fn what_comes_again_late_has_its_values() {
    let mut encoder = encoder_of(1000, None);
    let one = numbers(&[("a", 1, Some(1))]);
    let (sent, _) = send(&mut encoder, &[&one]);
    let changes = encoder.take_changes();
    encoder.comes_again(changes);
    for n in 2..100 {
        send(&mut encoder, &[&numbers(&[("a", n, Some(1))])]);
    }
    assert_eq!(send(&mut encoder, &[&one]).0, sent);
}

/// Scenario: points are expected again without end, some twice, and some come.
/// Guarantees: what is remembered is bounded, the oldest go first, and what is expected twice or has come takes no room.
#[test]
fn what_does_not_come_again_is_forgotten() {
    let wide = Arc::new(histogram_of(0, &(0..160).collect::<Vec<_>>()));
    let change = |at_ms| {
        let total = Total {
            amount: Amount::Histogram(wide.clone()),
            start_ms: 0,
            last_ms: at_ms,
        };
        Change::Added(Key(1, 1), total)
    };
    let points = ((16 << 20) / change(0).bytes()) as i64;
    let mut again = Again::default();
    again.expect(change(-1));
    for _ in 0..3 {
        for at_ms in 0..points / 2 {
            again.expect(change(at_ms));
        }
    }
    for at_ms in 0..3 * points {
        again.expect(change(-2 - at_ms));
        assert!(again.take(Key(1, 1), -2 - at_ms).is_some());
    }
    assert!(again.take(Key(1, 1), -1).is_some());
    for at_ms in 0..3 * points {
        again.expect(change(at_ms));
    }
    assert!(again.take(Key(1, 1), 0).is_none());
    assert!(again.take(Key(1, 1), 3 * points - 1).is_some());
}

/// Scenario: a request with more changes than are kept, among them an end, a point before it and one after it.
/// Guarantees: of each series the last total is left, and the last end before it.
#[test]
fn the_last_changes_of_each_series_are_kept() {
    let added = |key: u64, at_ms| {
        let total = Total {
            amount: Amount::Float(at_ms as f64),
            start_ms: 0,
            last_ms: at_ms,
        };
        Change::Added(Key(key, 0), total)
    };
    let mut changes = Changes::default();
    changes.add(added(1, 5));
    changes.add(Change::Ended(Key(1, 0), 6));
    changes.add(added(1, 7));
    // It came again.
    changes.add(added(1, 5));
    for at_ms in 0..(MAX_CHANGES_BYTES / added(2, 0).bytes()) as i64 {
        changes.add(added(2, at_ms));
    }
    let [Change::Ended(end, 6), first, second, ..] = changes.all() else {
        panic!("{:?}", &changes.all()[..4]);
    };
    assert_eq!((*end, first), (Key(1, 0), &added(1, 7)));
    assert!(matches!(second, Change::Added(Key(2, 0), _)));
    assert!(changes.all().len() < 10);
}

/// Scenario: requests of 1 MB each, twenty of them.
/// Guarantees: of those that are kept for the next file there are fewer then.
#[test]
fn large_requests_are_not_all_kept() {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(on(&disk));
    let _ = log.read(0, &mut |_, _| {});
    log.log_bytes = 1 << 20;
    let changes = vec![Change::Ended(Key(1, 1), 1); 40_000];
    let mut largest = 0;
    for _ in 0..40 {
        log.write(0, &changes, 7, &HashMap::new()).unwrap();
        largest = largest.max(disk.size_bytes(Path::new(PATH)).unwrap());
    }
    // Ten requests of somewhat less than 1 MiB are kept at least.
    assert!(largest < 2 * ((10 << 20) + (1 << 20)) + (1 << 20), "{largest}");
}

/// Scenario: two pipelines that share the exporter have 18 requests of 20 KB encoded, none of which is settled; the last one fills the file, which is written anew; SIGKILL.
/// Guarantees: the next process knows them all.
#[test]
fn requests_of_two_pipelines_are_kept() {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(on(&disk));
    let _ = log.read(0, &mut |_, _| {});
    for request in 0..18 {
        if request == 17 {
            log.log_bytes = disk.size_bytes(Path::new(PATH)).unwrap() - 1024;
        }
        let changes = vec![Change::Ended(Key(request, 0), 1); 800];
        log.write(0, &changes, 7, &HashMap::new()).unwrap();
    }
    disk.kill();
    let mut known = BTreeSet::new();
    let mut visit = |_, change| {
        if let Change::Ended(key, _) = change {
            known.insert(key.0);
        }
    };
    Log::new(on(&disk)).read(0, &mut visit).unwrap();
    assert_eq!(known, (0..18).collect());
}
