//! Requests of Prometheus remote write: which series they are made of, and cutting them between two series.

use bytes::Bytes;

use crate::cursor::{Field, Fields};

/// The fields of a request of remote write that say what it holds, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteWriteFields {
    /// Of the request: a series.
    pub series: u32,
    /// Of a series: a sample, and a native histogram.
    pub items: [u32; 2],
}

/// Those of 1.0, `prometheus.WriteRequest`.
pub const REMOTE_WRITE_1: RemoteWriteFields = RemoteWriteFields {
    series: 1,
    items: [2, 4],
};

/// Those of 2.0, `io.prometheus.write.v2.Request`.
pub const REMOTE_WRITE_2: RemoteWriteFields = RemoteWriteFields {
    series: 5,
    items: [2, 3],
};

impl RemoteWriteFields {
    fn items_of(self, series: &Field<'_>) -> u64 {
        let is_item = |field: &Field<'_>| self.items.contains(&field.number);
        Fields::of(series.value).filter(is_item).count() as u64
    }
}

/// Cuts a request of remote write in two valid ones, between series, about halfway by its samples and native histograms; with
/// each half the number of its own. `None` when it has not two series with something of the kind.
///
/// What is not a series is for all of them (the texts of 2.0), and is in both halves.
#[must_use]
pub fn halve_remote_write(fields: RemoteWriteFields, body: &Bytes) -> Option<[(Bytes, u64); 2]> {
    let is_series = |field: &Field<'_>| field.number == fields.series;
    let all = || Fields::of(body).filter(is_series);
    let total: u64 = all().map(|series| fields.items_of(&series)).sum();
    let (mut in_first, mut first_series) = (0, 0);
    for series in all() {
        let items = fields.items_of(&series);
        // Where this one is most of what there is, it has a half of its own.
        if in_first > 0 && in_first + items > total / 2 {
            break;
        }
        in_first += items;
        first_series += 1;
    }
    if in_first == 0 || in_first == total {
        return None;
    }
    let mut halves = [Vec::new(), Vec::new()];
    let mut number = 0;
    for field in Fields::of(body) {
        if is_series(&field) {
            halves[usize::from(number >= first_series)].extend_from_slice(field.framed);
            number += 1;
        } else {
            halves
                .iter_mut()
                .for_each(|half| half.extend_from_slice(field.framed));
        }
    }
    let [first, second] = halves.map(Bytes::from);
    Some([(first, in_first), (second, total - in_first)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, value.len() as u8], value].concat()
    }

    /// A request of 2.0 with two texts and a series for each of these numbers of samples.
    fn request(samples: &[usize]) -> Bytes {
        let mut body = [field(4, b""), field(4, b"text")].concat();
        for count in samples {
            body.extend(field(
                5,
                &[field(1, &[0, 1]), field(2, b"").repeat(*count)].concat(),
            ));
        }
        body.into()
    }

    /// Scenario: requests of one to five series, some of them without samples, halved as long as they can be.
    /// Guarantees: both halves have samples, together those of the request, in order; each has the texts; at the end every
    /// series with samples is alone.
    #[test]
    fn halves_end_at_single_series() {
        for samples in [
            &[1][..],
            &[3, 1],
            &[1, 1, 9],
            &[9, 1, 1],
            &[0, 2, 0, 0, 1],
            &[0],
            &[],
        ] {
            let (mut work, mut alone) = (vec![request(samples)], Vec::new());
            while let Some(body) = work.pop() {
                let texts = Fields::of(&body).filter(|field| field.number == 4).count();
                assert_eq!(texts, 2);
                match halve_remote_write(REMOTE_WRITE_2, &body) {
                    None => {
                        let series = Fields::of(&body).filter(|field| field.number == 5);
                        alone.push(
                            series
                                .map(|one| REMOTE_WRITE_2.items_of(&one))
                                .collect::<Vec<_>>(),
                        );
                    }
                    Some([(first, a), (second, b)]) => {
                        assert!(a > 0 && b > 0, "{samples:?}");
                        work.extend([second, first]);
                    }
                }
            }
            let all: Vec<_> = alone.concat();
            assert_eq!(all, samples.iter().map(|n| *n as u64).collect::<Vec<_>>());
            let with_samples = |some: &Vec<u64>| some.iter().filter(|items| **items > 0).count();
            assert!(alone.iter().all(|some| with_samples(some) <= 1), "{alone:?}");
        }
    }
}
