//! What deltas add up to, what is not added, and what ends a series.

use super::*;

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
