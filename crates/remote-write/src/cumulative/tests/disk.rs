//! The file of totals on a disk that fails, fills, loses or alters what was written, and what a start takes of it.

use super::*;

/// Scenario: the power goes after every request and at every operation within one, with what was not synced there, torn or gone.
/// Guarantees: the totals go on, but where the power went before there was a file; records of several sectors, torn anywhere, cost no other's deltas.
#[test]
fn a_power_cut_costs_no_delta() {
    let mut went_on = 0;
    let names: Vec<String> = (0..60).map(|n| format!("n{n}")).collect();
    for seed in 1..400u64 {
        let disk = SimulatedDisk::default();
        let mut before = encoder(&disk);
        let whole = seed % 5;
        let request = |n, delta| {
            let wide = if seed % 2 == 0 { &names[..] } else { &[] };
            let points = wide.iter().map(|name| (&**name, n, Some(1)));
            numbers(&points.chain([("a", n, Some(delta))]).collect::<Vec<_>>())
        };
        for n in 1..=whole {
            send(&mut before, &[&request(n, 100)]);
        }
        let last = request(whole + 1, 1);
        disk.stop_after(seed / 5 % 14);
        send(&mut before, &[&last]);
        disk.crash_torn(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut after = encoder(&disk);
        let value = values(&send(&mut after, &[&last]).0, "a")[0];
        match after.take_faults()[..] {
            [] => {
                assert_eq!(value, whole as f64 * 100.0 + 1.0, "{seed}");
                went_on += 1;
            }
            [Fault::Absent] if whole == 0 => assert_eq!(value, 1.0, "{seed}"),
            ref faults => panic!("{seed}: {faults:?}"),
        }
        let next = send(&mut after, &[&numbers(&[("a", 9, Some(1))])]);
        assert_eq!(values(&next.0, "a"), [value + 1.0], "{seed}");
    }
    assert!(went_on > 200, "{went_on}");
}

/// Scenario: each byte of a file is flipped in turn, and the file cut at each length.
/// Guarantees: damage is counted, and totals begin anew with a new start; but damage in the last record looks like one that was being written
/// when the power went, as a cut does: that request, which then was not sent, is missing, and added when it comes. Nothing panics, and the file is good afterwards.
#[test]
fn damage_begins_anew() {
    let disk = SimulatedDisk::default();
    let mut before = encoder(&disk);
    let shape = histogram_of(3, &[1, 2, 2, 40]);
    let mut last_record = 0;
    for n in 1..=3 {
        last_record = disk.size_bytes(Path::new(PATH)).unwrap_or(0) as usize;
        send(
            &mut before,
            &[
                &numbers(&[("a", n, Some(100))]),
                &exponentials(&[("h", n, &shape)], DELTA),
            ],
        );
    }
    let file = |disk: &SimulatedDisk| {
        let mut content = Vec::new();
        disk.damage(PATH, |bytes| content.clone_from(bytes));
        content
    };
    let good = file(&disk);
    let last = numbers(&[("a", 3, Some(100))]);
    let next = numbers(&[("a", 4, Some(1))]);
    for at in 0..last_record {
        disk.damage(PATH, |bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 0x10;
        });
        let mut after = encoder(&disk);
        let (got, _) = send(&mut after, &[&next]);
        assert_eq!(after.take_faults(), [Fault::Damaged], "byte {at}");
        assert_eq!(got[&("a".to_owned(), 4000)], (1.0, Vec::new(), 3000), "byte {at}");
        let mut once_more = encoder(&disk);
        assert_eq!(
            values(&send(&mut once_more, &[&numbers(&[("a", 5, Some(1))])]).0, "a"),
            [2.0]
        );
        assert!(once_more.take_faults().is_empty());
    }
    for at in last_record..good.len() {
        disk.damage(PATH, |bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 0x10;
        });
        let mut after = encoder(&disk);
        assert_eq!(
            values(&send(&mut after, &[&last, &next]).0, "a"),
            [300.0, 301.0],
            "byte {at}"
        );
        assert!(after.take_faults().is_empty());
    }
    let mut torn = 0;
    for len in 0..good.len() {
        disk.damage(PATH, |bytes| bytes.clone_from(&good[..len].to_vec()));
        let mut after = encoder(&disk);
        let (got, _) = send(&mut after, &[&last]);
        match after.take_faults()[..] {
            [] => {
                // That of the last request is cut, or more, which nobody can see at the end of a record.
                assert!([100.0, 200.0, 300.0].contains(&values(&got, "a")[0]), "{len}");
                torn += 1;
            }
            [fault] => assert_eq!((fault, values(&got, "a")), (Fault::Damaged, vec![100.0]), "{len}"),
            ref faults => panic!("{len}: {faults:?}"),
        }
    }
    assert!(torn > 10, "{torn}");
}

/// Scenario: the disk is full for a while, in the middle of a file's life and from the beginning; and the file cannot be removed either.
/// Guarantees: what is sent goes on as if nothing were; a restart meanwhile begins anew and never with less; once there is room again,
/// a restart goes on.
#[test]
fn a_full_disk_stops_nothing() {
    for begins_full in [false, true] {
        let disk = SimulatedDisk::default();
        let mut process = encoder(&disk);
        let mut second = 0;
        let mut next = |process: &mut Encoder| {
            second += 1;
            let got = send(process, &[&numbers(&[("a", second, Some(1))])]);
            values(&got.0, "a")[0]
        };
        if !begins_full {
            assert_eq!(next(&mut process), 1.0);
        }
        disk.fail(Operation::Write, DiskFault::NoSpace, usize::MAX);
        let mut value = f64::from(u8::from(!begins_full));
        for _ in 0..5 {
            value += 1.0;
            assert_eq!(next(&mut process), value);
        }
        assert!(process.take_faults().contains(&Fault::Unwritten));
        // As it is now, another process would begin anew.
        let size = disk.size_bytes(Path::new(PATH));
        assert!(size.is_err(), "{size:?}");
        disk.mend();
        for _ in 0..40 {
            value += 1.0;
            assert_eq!(next(&mut process), value);
        }
        disk.kill();
        let mut after = encoder(&disk);
        assert_eq!(next(&mut after), value + 1.0);
        assert!(after.take_faults().is_empty());
    }
    let disk = SimulatedDisk::default();
    let mut process = encoder(&disk);
    send(&mut process, &[&numbers(&[("a", 1, Some(1))])]);
    disk.fail(Operation::Write, DiskFault::NoSpace, usize::MAX);
    disk.fail(Operation::Remove, DiskFault::Io, usize::MAX);
    send(&mut process, &[&numbers(&[("a", 2, Some(1))])]);
    disk.mend();
    let mut after = encoder(&disk);
    assert_eq!(
        values(&send(&mut after, &[&numbers(&[("a", 3, Some(5))])]).0, "a"),
        [5.0]
    );
    assert_eq!(after.take_faults(), [Fault::Damaged]);
}

/// Scenario: a thousand requests of a hundred series each, with a file that is written anew after 20 KB of them; power cuts on the way.
/// Guarantees: the file is bounded; what it says is what is known, and the last requests are in it.
#[test]
fn a_file_does_not_grow() {
    let disk = SimulatedDisk::default();
    let mut log = Log::new(on(&disk));
    log.log_bytes = 20_000;
    assert_eq!(log.read(0, &mut |_, _| {}), Err(Fault::Absent));
    let mut totals = HashMap::new();
    let mut largest = 0;
    for request in 0..1000i64 {
        let changes: Vec<_> = (0..100)
            .map(|series| {
                let key = Key(series, request as u64 / 100 % 2);
                let total = Total {
                    amount: Amount::Float(request as f64),
                    start_ms: 0,
                    last_ms: request,
                };
                totals.insert(key, total.clone());
                Change::Added(key, total)
            })
            .collect();
        log.write(0, &changes, 7, &totals).unwrap();
        largest = largest.max(disk.size_bytes(Path::new(PATH)).unwrap());
        if request % 50 != 49 {
            continue;
        }
        disk.crash_torn(request as u64);
        log = Log::new(on(&disk));
        log.log_bytes = 20_000;
        let mut found = HashMap::new();
        let mut last = 0;
        let seed = log.read(0, &mut |is_request, change| {
            let Change::Added(key, total) = change else { return };
            last += u64::from(is_request && total.last_ms == request);
            if found
                .get(&key)
                .is_none_or(|known: &Total| known.last_ms <= total.last_ms)
            {
                found.insert(key, total);
            }
        });
        assert_eq!((seed, last), (Ok(7), 100), "{request}");
        assert_eq!(found, totals, "{request}");
    }
    // Totals are 9 KB, a request 4 KB; it doubles before it is written anew.
    assert!(largest < 2 * (9_000 + (256 << 10) + 4_200) + 4_200, "{largest}");
}

/// Scenario: a file was left aside for more than an hour, as by an older release that does not know it, and for less.
/// Guarantees: the old one is not gone on with, which is counted, and is not there any more; the other is.
#[test]
fn an_old_file_is_not_believed() {
    for (hours, want) in [(2, &[Fault::Stale][..]), (0, &[])] {
        let disk = SimulatedDisk::default();
        send(&mut encoder(&disk), &[&numbers(&[("a", 1, Some(1))])]);
        let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
        let mut after = Cumulative::new(1000, Some(on(&disk)));
        after.begin(now_ms + hours * 3_600_000, Instant::now());
        assert_eq!(after.take_faults(), want);
        assert_eq!(after.totals.len(), usize::from(hours == 0));
        assert_eq!(disk.size_bytes(Path::new(PATH)).is_ok(), hours == 0);
    }
}

/// Scenario: more series are in the file than there is room for now.
/// Guarantees: as many go on as may be; the others begin anew if there is room.
#[test]
fn a_smaller_table_takes_what_it_can() {
    let disk = SimulatedDisk::default();
    let names: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let points: Vec<_> = names.iter().map(|name| (&**name, 1, Some(1))).collect();
    send(&mut encoder(&disk), &[&numbers(&points)]);
    let mut after = encoder_of(20, Some(on(&disk)));
    let points: Vec<_> = names.iter().map(|name| (&**name, 2, Some(1))).collect();
    let (got, outcome) = send(&mut after, &[&numbers(&points)]);
    assert!(got.len() == 20 && got.values().all(|(value, ..)| *value == 2.0));
    assert_eq!(outcome.dropped.get(Reason::DeltaRoom), 30);
}

/// Scenario: files that are written anew again and again, in which one operation of the disk fails; requests go on, and the power goes.
/// Guarantees: what can be read is all that was known; a file that could not be written is not there, or is empty.
#[test]
fn a_disk_that_fails_never_leaves_less() {
    let operations = [
        Operation::Write,
        Operation::Sync,
        Operation::SyncDirectory,
        Operation::Rename,
        Operation::Open,
        Operation::Read,
        Operation::Truncate,
    ];
    let (mut went_on, mut began_anew) = (0, 0);
    for seed in 0..700u64 {
        let disk = SimulatedDisk::default();
        let mut log = Log::new(on(&disk));
        log.log_bytes = 100;
        let _ = log.read(0, &mut |_, _| {});
        let mut totals = HashMap::new();
        for request in 0..4 + seed / 7 % 60 {
            if request == seed % 11 {
                disk.fail(operations[seed as usize % 7], DiskFault::Io, 1);
            }
            let total = Total {
                amount: Amount::Float(request as f64),
                start_ms: 0,
                last_ms: request as i64,
            };
            let key = Key(request % 3, 0);
            totals.insert(key, total.clone());
            let _ = log.write(0, &[Change::Added(key, total)], 7, &totals);
        }
        disk.mend();
        disk.crash_torn(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut found = HashMap::new();
        let read = Log::new(on(&disk)).read(0, &mut |_, change| {
            if let Change::Added(key, total) = change {
                found.insert(key, total);
            }
        });
        match read {
            Ok(_) => {
                assert_eq!(found, totals, "{seed}");
                went_on += 1;
            }
            Err(_) => began_anew += 1,
        }
    }
    assert!(went_on > 300 && began_anew > 50, "{went_on} {began_anew}");
}
