//! Totals through encoders that come and go, on a disk that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use otlp::exponential_histogram_data_point::Buckets as OtlpBuckets;
use otlp::{metric, number_data_point};
use prost::Message as _;
use sluice_journal::Filesystem as _;
use sluice_journal::testing::{Fault as DiskFault, ManualClock, Operation, SimulatedDisk};
use sluice_wire::Fields;

use super::*;
use crate::body::Format;
use crate::decode::{Version, each_series};
use crate::dropped::Reason;
use crate::encoder::{Encoder, EncoderSettings};
use crate::mapping::Mapping;
use crate::transcode::{Buckets, Outcome, plain_bodies};

const PATH: &str = "/queue/remote-write/rw.totals";
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

fn encoder_of(max_delta_series: usize, totals: Option<TotalsFile>) -> Encoder {
    Encoder::new(EncoderSettings {
        format: Format::V2,
        mapping: Mapping {
            delta_to_cumulative: true,
            ..Mapping::default()
        },
        max_delta_series,
        totals,
        ..EncoderSettings::default()
    })
}

fn on(disk: &SimulatedDisk) -> TotalsFile {
    TotalsFile {
        path: PATH.into(),
        synced: true,
        filesystem: Arc::new(disk.clone()),
    }
}

/// A process that has just started.
fn encoder(disk: &SimulatedDisk) -> Encoder {
    encoder_of(1000, Some(on(disk)))
}

fn attributes(series: &str) -> Vec<KeyValue> {
    vec![KeyValue {
        key: "s".to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(series.to_owned())),
        }),
        ..Default::default()
    }]
}

fn request(name: &str, data: metric::Data) -> Vec<u8> {
    let metric = otlp::Metric {
        name: name.to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let scope = otlp::ScopeMetrics {
        metrics: vec![metric],
        ..Default::default()
    };
    let resource = otlp::ResourceMetrics {
        scope_metrics: vec![scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    }
    .encode_to_vec()
}

/// Deltas by series and second; `None` ends the series.
fn numbers(points: &[(&str, u64, Option<i64>)]) -> Vec<u8> {
    let points = points
        .iter()
        .map(|(series, second, delta)| otlp::NumberDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: (second - 1) * 1_000_000_000,
            time_unix_nano: second * 1_000_000_000,
            flags: u32::from(delta.is_none()),
            value: delta.map(number_data_point::Value::AsInt),
            ..Default::default()
        });
    request(
        "c",
        metric::Data::Sum(otlp::Sum {
            data_points: points.collect(),
            aggregation_temporality: DELTA,
            is_monotonic: true,
        }),
    )
}

fn exponentials(points: &[(&str, u64, &Exponential)], aggregation_temporality: i32) -> Vec<u8> {
    let buckets = |buckets: &Buckets| {
        Some(OtlpBuckets {
            offset: buckets.offset,
            bucket_counts: buckets.counts.clone(),
        })
    };
    let points = points.iter().map(
        |(series, second, histogram)| otlp::ExponentialHistogramDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: (second - 1) * 1_000_000_000,
            time_unix_nano: second * 1_000_000_000,
            count: histogram.count,
            sum: Some(histogram.sum),
            scale: histogram.scale,
            zero_count: histogram.zero_count,
            zero_threshold: histogram.zero_threshold,
            positive: buckets(&histogram.positive),
            negative: buckets(&histogram.negative),
            ..Default::default()
        },
    );
    request(
        "h",
        metric::Data::ExponentialHistogram(otlp::ExponentialHistogram {
            data_points: points.collect(),
            aggregation_temporality,
        }),
    )
}

/// A histogram of one value in each of these buckets.
fn histogram_of(scale: i32, indexes: &[i32]) -> Exponential {
    let first = *indexes.iter().min().unwrap();
    let last = *indexes.iter().max().unwrap();
    let mut counts = vec![0; (last - first + 1) as usize];
    indexes
        .iter()
        .for_each(|index| counts[(index - first) as usize] += 1);
    Exponential {
        count: indexes.len() as u64,
        sum: indexes.len() as f64,
        scale,
        positive: Buckets {
            offset: first,
            counts,
        },
        ..Default::default()
    }
}

/// What was written: value, or the histogram without its times, and the start, by series and time.
type Got = BTreeMap<(String, i64), (f64, Vec<u8>, i64)>;

fn send(encoder: &mut Encoder, requests: &[&[u8]]) -> (Got, Outcome) {
    let (lanes, outcome) = encoder.encode(requests);
    let mut got = Got::new();
    for plain in plain_bodies(&lanes) {
        each_series(Version::V2, &plain, |read| {
            let series = read.label("s").to_owned();
            for sample in &read.samples {
                let at = (series.clone(), sample.timestamp_ms);
                got.insert(at, (sample.value, Vec::new(), sample.start_ms));
            }
            for histogram in &read.histograms {
                let varint = |number| {
                    let field = Fields::of(histogram).find(|field| field.number == number);
                    field.map_or(0, |field| field.varint().unwrap() as i64)
                };
                let own = Fields::of(histogram).filter(|field| !matches!(field.number, 15 | 17));
                let own = own.flat_map(|field| field.framed.to_vec()).collect();
                got.insert((series.clone(), varint(15)), (0.0, own, varint(17)));
            }
            Ok(())
        })
        .unwrap();
    }
    (got, outcome)
}

/// Values of one series, in order.
fn values(got: &Got, series: &str) -> Vec<f64> {
    let of = got.iter().filter(|((name, _), _)| name == series);
    of.map(|(_, (value, ..))| *value).collect()
}

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

/// Scenario: one series has small deltas of a wide histogram, so many that their totals would take 60 MB; the process is killed.
/// Guarantees: what is kept of the request and written is bounded; the total goes on after the kill, and the last point has it again.
#[test]
fn small_deltas_of_wide_histograms_take_bounded_memory() {
    let disk = SimulatedDisk::default();
    let wide = histogram_of(0, &(-80..80).collect::<Vec<_>>());
    let small = histogram_of(0, &[3]);
    let points: Vec<_> = (0..40_000)
        .map(|n| ("h", n + 1, if n == 0 { &wide } else { &small }))
        .collect();
    let mut before = encoder(&disk);
    let (sent, outcome) = send(&mut before, &[&exponentials(&points, DELTA)]);
    assert_eq!(outcome.points, 40_000);
    let kept: usize = before.take_changes().iter().map(Change::bytes).sum();
    assert!(kept <= MAX_CHANGES_BYTES, "{kept}");
    let written = disk.size_bytes(Path::new(PATH)).unwrap();
    assert!(written < MAX_CHANGES_BYTES as u64, "{written}");
    drop(before);
    disk.kill();
    let mut after = encoder(&disk);
    let (again, _) = send(&mut after, &[&exponentials(&points[39_999..], DELTA)]);
    let last = ("h".to_owned(), 40_000_000);
    assert_eq!(again[&last], sent[&last]);
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

/// Scenario: a point of the year 2100 was sent before a restart, beside others.
/// Guarantees: its series begins anew after it, the others go on: a wrong clock does not end a series for good.
#[test]
fn a_point_of_the_future_ends_no_series_for_good() {
    let disk = SimulatedDisk::default();
    let future = 4_102_444_800;
    send(
        &mut encoder(&disk),
        &[&numbers(&[("a", future, Some(1)), ("b", 1, Some(1))])],
    );
    let mut after = encoder(&disk);
    let (got, _) = send(&mut after, &[&numbers(&[("a", 2, Some(3)), ("b", 2, Some(3))])]);
    assert_eq!((values(&got, "a"), values(&got, "b")), (vec![3.0], vec![4.0]));
    // The old total does not come back with the next starts, nor with its point.
    for (start, want) in [(3, 6.0), (4, 9.0)] {
        disk.kill();
        let mut after = encoder(&disk);
        let (got, _) = send(&mut after, &[&numbers(&[("a", start, Some(3))])]);
        assert_eq!(values(&got, "a"), [want], "{start}");
        let (again, _) = send(&mut after, &[&numbers(&[("a", future, Some(1))])]);
        assert_eq!(values(&again, "a"), [1.0], "{start}");
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

/// Scenario: exponential histograms of two series as deltas, with scales that go up and down; a kill, and the last one comes again.
/// Guarantees: what is written is what the same values, counted together at the coarser scale, would be as cumulative ones; a restart goes on.
#[test]
fn exponential_histograms_add_up() {
    let disk = SimulatedDisk::default();
    let deltas = [
        histogram_of(5, &[3, 3, 10]),
        histogram_of(7, &[12, 60]),
        histogram_of(3, &[0, 5]),
        histogram_of(5, &[-40, 9]),
    ];
    // Of one scale by then: the coarsest so far.
    let sums = [
        histogram_of(5, &[3, 3, 10]),
        histogram_of(5, &[3, 3, 10, 3, 15]),
        histogram_of(3, &[0, 0, 2, 0, 3, 0, 5]),
        histogram_of(3, &[0, 0, 2, 0, 3, 0, 5, -10, 2]),
    ];
    let mut plain = encoder_of(0, None);
    let mut process = encoder(&disk);
    for (second, (delta, sum)) in (1..).zip(deltas.iter().zip(&sums)) {
        let delta = exponentials(&[("a", second, delta), ("b", second, delta)], DELTA);
        let (got, outcome) = send(&mut process, &[&delta]);
        assert_eq!((outcome.points, got.len()), (2, 2));
        let (want, _) = send(&mut plain, &[&exponentials(&[("a", second, sum)], CUMULATIVE)]);
        let at = ("a".to_owned(), second as i64 * 1000);
        assert_eq!(got[&at].1, want[&at].1, "{second}");
        assert_eq!(got[&at].2, 0);
        if second % 2 == 0 {
            disk.kill();
            process = encoder(&disk);
            assert_eq!(send(&mut process, &[&delta]).0, got);
        }
    }
}

/// Scenario: the table is full; a new series comes whose clock is six minutes ahead, then one of a clock that is two years ahead takes a place
/// that has become free. Ten minutes go by in which nothing comes, then five in which one series of the two goes on.
/// Guarantees: no sender's clock and no outage makes the series of others stale; one that nothing is added to is, however far ahead its clock.
#[test]
fn no_clock_of_a_sender_makes_others_stale() {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let mut encoder = encoder_of(3, None);
    encoder.set_clock(clock.clone());
    let mut send_all = |points: &[(&str, u64, Option<i64>)]| {
        let (got, outcome) = send(&mut encoder, &[&numbers(points)]);
        (got, outcome.dropped.get(Reason::DeltaRoom))
    };
    let now = 1_000_000;
    send_all(&[
        ("a", now, Some(1)),
        ("b", now, Some(1)),
        ("ahead", now + 63_072_000, Some(1)),
    ]);
    clock.advance(Duration::from_secs(1));
    let (got, no_room) = send_all(&[
        ("new", now + 360, Some(1)),
        ("a", now + 1, Some(1)),
        ("b", now + 1, Some(1)),
    ]);
    assert_eq!(no_room, 1);
    assert_eq!((values(&got, "a"), values(&got, "b")), (vec![2.0], vec![2.0]));
    clock.advance(Duration::from_secs(600));
    let (got, no_room) = send_all(&[
        ("new", now + 601, Some(1)),
        ("a", now + 601, Some(1)),
        ("b", now + 601, Some(1)),
    ]);
    assert_eq!((no_room, values(&got, "b")), (1, vec![3.0]));
    for minute in 1..=5 {
        clock.advance(Duration::from_secs(60));
        let at = now + 601 + 60 * minute;
        send_all(&[("a", at, Some(1)), ("b", at, Some(1))]);
    }
    let at = now + 902;
    let (got, no_room) = send_all(&[("new", at, Some(1)), ("a", at, Some(1)), ("b", at, Some(1))]);
    assert_eq!((no_room, values(&got, "new")), (0, vec![1.0]));
    assert_eq!((values(&got, "a"), values(&got, "b")), (vec![9.0], vec![9.0]));
}

/// Scenario: a number, an explicit and an exponential histogram as deltas; between finite ones come values and sums that are infinite or NaN,
/// as cumulative ones too, and at last one with which the total is more than a double can be.
/// Guarantees: such deltas are dropped, whole, and counted; the totals go on without them; cumulative ones go out as they came; a total that
/// would not be finite any more begins anew.
#[test]
fn what_is_not_finite_is_not_added() {
    fn requests(second: u64, value: f64, temporality: i32) -> [Vec<u8>; 3] {
        let (start, time) = ((second - 1) * 1_000_000_000, second * 1_000_000_000);
        let number = otlp::NumberDataPoint {
            attributes: attributes("a"),
            start_time_unix_nano: start,
            time_unix_nano: time,
            value: Some(number_data_point::Value::AsDouble(value)),
            ..Default::default()
        };
        let histogram = otlp::HistogramDataPoint {
            attributes: attributes("a"),
            start_time_unix_nano: start,
            time_unix_nano: time,
            count: 1,
            sum: Some(value),
            ..Default::default()
        };
        let exponential = Exponential {
            sum: value,
            ..histogram_of(0, &[0])
        };
        [
            request(
                "c",
                metric::Data::Sum(otlp::Sum {
                    data_points: vec![number],
                    aggregation_temporality: temporality,
                    is_monotonic: true,
                }),
            ),
            request(
                "b",
                metric::Data::Histogram(otlp::Histogram {
                    data_points: vec![histogram],
                    aggregation_temporality: temporality,
                }),
            ),
            exponentials(&[("a", second, &exponential)], temporality),
        ]
    }
    let mut encoder = encoder_of(1000, None);
    let mut dropped = |second, value, temporality| {
        requests(second, value, temporality).map(|request| {
            let (got, outcome) = send(&mut encoder, &[&request]);
            assert_eq!(outcome.points + outcome.dropped.total(), 1);
            assert_eq!(got.is_empty(), outcome.points == 0);
            (outcome.dropped.get(Reason::DeltaValue), got)
        })
    };
    dropped(1, 1.0, DELTA);
    for (second, value) in (2..).zip([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]) {
        for (dropped, _) in dropped(second, value, DELTA) {
            assert_eq!(dropped, 1, "{value}");
        }
    }
    let [(_, number), (_, explicit), (_, exponential)] = dropped(5, 2.0, DELTA);
    assert_eq!(values(&number, "a"), [3.0]);
    assert_eq!(explicit[&("a".to_owned(), 5000)].2, 0);
    let two = Exponential {
        sum: 3.0,
        ..histogram_of(0, &[0, 0])
    };
    let (want, _) = send(
        &mut encoder_of(0, None),
        &[&exponentials(&[("a", 5, &two)], CUMULATIVE)],
    );
    assert_eq!(
        exponential[&("a".to_owned(), 5000)].1,
        want[&("a".to_owned(), 5000)].1
    );
    for (dropped, _) in dropped(6, f64::NAN, CUMULATIVE) {
        assert_eq!(dropped, 0);
    }
    dropped(7, f64::MAX, DELTA);
    let [(_, number), ..] = dropped(8, f64::MAX, DELTA);
    assert_eq!(number[&("a".to_owned(), 8000)], (f64::MAX, Vec::new(), 7000));
}

/// Scenario: a series ends at a time that is not after its last point, with and without a kill before it comes again; and an end behind which it
/// went on comes again, as often as the process is killed.
/// Guarantees: an end that came late is counted and not sent, and the series goes on; one that came in its time is sent each time.
#[test]
fn an_end_behind_a_later_point_is_not_sent() {
    let disk = SimulatedDisk::default();
    let mut process = encoder(&disk);
    let good = numbers(&[
        ("new", 1, None),
        ("new", 2, Some(1)),
        ("a", 1, Some(1)),
        ("a", 2, None),
        ("a", 5, Some(1)),
    ]);
    let (sent, _) = send(&mut process, &[&good]);
    assert_eq!(sent.len(), 5);
    for _ in 0..3 {
        for late in [4, 5] {
            let (got, outcome) = send(&mut process, &[&numbers(&[("a", late, None)])]);
            assert!(got.is_empty());
            assert_eq!((outcome.points, outcome.dropped.get(Reason::DeltaOrder)), (0, 1));
        }
        disk.kill();
        process = encoder(&disk);
        let (again, outcome) = send(&mut process, &[&good]);
        assert_eq!((again.len(), outcome.points), (5, 5));
    }
    assert_eq!(
        values(&send(&mut process, &[&numbers(&[("a", 6, Some(1))])]).0, "a"),
        [2.0]
    );
}

/// Scenario: deltas that are not valid, one without room, and a number series by the histogram's name.
/// Guarantees: each is counted by what is wrong with it, and none is added.
#[test]
fn histograms_that_are_not_added() {
    let good = histogram_of(0, &[1, 2]);
    let mut process = encoder_of(4, None);
    let mut send_one = |second, histogram: &Exponential| {
        let (got, outcome) = send(&mut process, &[&exponentials(&[("a", second, histogram)], DELTA)]);
        assert_eq!(outcome.points + outcome.dropped.total(), 1);
        let reasons = [
            Reason::Histogram,
            Reason::DeltaRoom,
            Reason::DeltaOrder,
            Reason::Scale,
        ];
        (got.len(), reasons.map(|reason| outcome.dropped.get(reason)))
    };
    assert_eq!(send_one(1, &good), (1, [0, 0, 0, 0]));
    assert_eq!(send_one(1, &good), (0, [0, 0, 1, 0]));
    let wrong_count = Exponential {
        count: 3,
        ..good.clone()
    };
    let too_many = Exponential {
        count: u64::MAX,
        zero_count: u64::MAX - 2,
        ..good.clone()
    };
    let no_double = histogram_of(0, &[i32::MAX - 1, i32::MAX]);
    let infinite_zero = Exponential {
        zero_threshold: f64::INFINITY,
        ..good.clone()
    };
    for wrong in [wrong_count, too_many, no_double, infinite_zero] {
        assert_eq!(send_one(2, &wrong), (0, [1, 0, 0, 0]), "{wrong:?}");
    }
    assert_eq!(
        send_one(
            2,
            &Exponential {
                scale: -5,
                ..good.clone()
            }
        ),
        (0, [0, 0, 0, 1])
    );
    let many = histogram_of(0, &(0..100).collect::<Vec<_>>());
    assert_eq!(send_one(3, &many), (0, [0, 1, 0, 0]));
    assert_eq!(send_one(4, &good), (1, [0, 0, 0, 0]));
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
