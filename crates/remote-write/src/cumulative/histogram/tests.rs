use super::*;

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A histogram of these values, which are given by their buckets at the finest scale; below zero by the second list.
fn of(scale: i32, values: &[i64], below_zero: &[i64]) -> Exponential {
    let buckets = |values: &[i64]| {
        let indexes: Vec<i64> = values.iter().map(|value| value >> (FINEST - scale)).collect();
        let Some(first) = indexes.iter().min() else {
            return Buckets::default();
        };
        let mut counts = vec![0; (indexes.iter().max().unwrap() - first + 1) as usize];
        indexes
            .iter()
            .for_each(|index| counts[(index - first) as usize] += 1);
        Buckets {
            offset: *first as i32,
            counts,
        }
    };
    Exponential {
        count: (values.len() + below_zero.len()) as u64,
        scale,
        positive: buckets(values),
        negative: buckets(below_zero),
        ..Default::default()
    }
}

/// Scenario: a thousand rows of up to ten histograms of random values at random scales, near each other and far apart.
/// Guarantees: the sum is the histogram of all values at the sum's scale; it is the finest that has few enough buckets, and no finer than any of them.
#[test]
fn a_sum_is_the_histogram_of_all_values() {
    let mut random = Random(11);
    for round in 0..1000 {
        let spread = 1 << (1 + random.below(19));
        let (mut all, mut all_below) = (Vec::new(), Vec::new());
        let mut sum: Option<Exponential> = None;
        let mut coarsest = FINEST;
        for _ in 0..1 + random.below(10) {
            let mut draw = |most: u64| {
                let count = random.below(most);
                (0..count)
                    .map(|_| random.below(spread) as i64 - spread as i64 / 2)
                    .collect::<Vec<_>>()
            };
            let (values, below_zero) = (draw(20), draw(4));
            let scale = FINEST - random.below(13) as i32;
            let delta = of(scale, &values, &below_zero).for_total().unwrap();
            coarsest = coarsest.min(scale);
            all.extend(values);
            all_below.extend(below_zero);
            sum = Some(match sum {
                Some(sum) => sum.plus(&delta).unwrap(),
                None => delta,
            });
        }
        let sum = sum.unwrap();
        let want = of(sum.scale, &all, &all_below);
        assert_eq!(sum, want, "{round}");
        let fits = |histogram: &Exponential| {
            histogram.positive.counts.len() <= MAX_BUCKETS && histogram.negative.counts.len() <= MAX_BUCKETS
        };
        assert!(fits(&sum) && sum.scale <= coarsest);
        assert!(
            sum.scale == coarsest || !fits(&of(sum.scale + 1, &all, &all_below)),
            "{round}"
        );
    }
}

/// Scenario: histograms that count different values as zero, one of them in the middle of a bucket that is not empty.
/// Guarantees: the larger threshold holds, up to the end of that bucket; no value is lost.
#[test]
fn the_larger_zero_holds() {
    // Buckets of scale 0: (1, 2], (2, 4], (4, 8].
    let one = Exponential {
        count: 4,
        zero_count: 1,
        zero_threshold: 0.5,
        positive: Buckets {
            offset: 0,
            counts: vec![1, 1, 1],
        },
        ..Default::default()
    };
    let two = Exponential {
        count: 2,
        zero_count: 1,
        zero_threshold: 3.0,
        negative: Buckets {
            offset: 2,
            counts: vec![1],
        },
        ..Default::default()
    };
    for (a, b) in [(&one, &two), (&two, &one)] {
        let sum = a.plus(b).unwrap();
        assert_eq!((sum.count, sum.zero_count, sum.zero_threshold), (6, 4, 4.0));
        assert_eq!((sum.positive.offset, &sum.positive.counts[..]), (2, &[1][..]));
        assert_eq!((sum.negative.offset, &sum.negative.counts[..]), (2, &[1][..]));
    }
}

/// Scenario: totals near the end of what can be counted and of what can be summed up, and buckets at the ends of what a double can be.
/// Guarantees: nothing overflows: such sums are none; what is possible is taken, what is not is refused.
#[test]
fn the_ends_of_what_can_be_counted() {
    let many = Exponential {
        count: i64::MAX as u64,
        zero_count: i64::MAX as u64,
        ..Default::default()
    };
    assert!(many.for_total().unwrap().plus(&of(0, &[0], &[])).is_none());
    let huge = Exponential {
        sum: f64::MAX,
        ..of(0, &[0, 1], &[])
    }
    .for_total()
    .unwrap();
    assert!(huge.plus(&huge).is_none());
    for scale in [-4, 0, 3, 8, 20] {
        let per_power = |power: i64| match u32::try_from(scale) {
            Ok(finer) => power << finer,
            Err(_) => power >> 4,
        };
        for (power, taken) in [(-1075, true), (1023, true), (-1200, false), (1100, false)] {
            let histogram = Exponential {
                count: 1,
                scale,
                positive: Buckets {
                    offset: per_power(power) as i32,
                    counts: vec![0, 0, 1, 0][2..].to_vec(),
                },
                ..Default::default()
            };
            assert_eq!(histogram.for_total().is_some(), taken, "{scale} {power}");
        }
    }
    let wide = Exponential {
        count: 2,
        scale: i32::MAX,
        positive: Buckets {
            offset: i32::MIN,
            counts: vec![2],
        },
        ..Default::default()
    };
    let _ = wide.for_total();
    let last = Exponential {
        count: 1,
        positive: Buckets {
            offset: i32::MAX,
            counts: vec![0, 0, 1],
        },
        ..Default::default()
    };
    assert!(last.for_total().is_none());
}
