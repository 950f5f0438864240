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
    /// Of the request: a text that series refer to by its number; 0: there are none.
    pub texts: u32,
}

/// Those of 1.0, `prometheus.WriteRequest`.
pub const REMOTE_WRITE_1: RemoteWriteFields = RemoteWriteFields {
    series: 1,
    items: [2, 4],
    texts: 0,
};

/// Those of 2.0, `io.prometheus.write.v2.Request`.
pub const REMOTE_WRITE_2: RemoteWriteFields = RemoteWriteFields {
    series: 5,
    items: [2, 3],
    texts: 4,
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
/// What is not a series is for all of them, and is in both halves. A text of 2.0 keeps its number, and is empty where nothing of the
/// half refers to it: halves of halves do not keep what they were cut from.
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
    let texts = Fields::of(body).filter(|field| field.number == fields.texts);
    // The halves that refer to each text, as bits.
    let mut referred = vec![0u8; texts.count()];
    for (index, series) in all().enumerate().filter(|_| fields.texts != 0) {
        let half = 1 << u8::from(index >= first_series);
        each_reference(series.value, |reference| {
            let text = usize::try_from(reference)
                .ok()
                .and_then(|at| referred.get_mut(at));
            text.into_iter().for_each(|halves| *halves |= half);
        });
    }
    let mut referred = referred.into_iter();
    for field in Fields::of(body) {
        if is_series(&field) {
            halves[usize::from(number >= first_series)].extend_from_slice(field.framed);
            number += 1;
        } else if field.number == fields.texts {
            let by = referred.next().unwrap_or_default();
            for (index, half) in halves.iter_mut().enumerate() {
                match by & 1 << index {
                    0 => half.extend_from_slice(&NO_TEXT),
                    _ => half.extend_from_slice(field.framed),
                }
            }
        } else {
            halves
                .iter_mut()
                .for_each(|half| half.extend_from_slice(field.framed));
        }
    }
    let [first, second] = halves.map(Bytes::from);
    Some([(first, in_first), (second, total - in_first)])
}

/// An empty text, as a field of a request of 2.0.
const NO_TEXT: [u8; 2] = [4 << 3 | 2, 0];

/// Calls `visit` with the numbers that a series of 2.0 has for texts: of its labels, of those of its exemplars, of help and unit.
fn each_reference(series: &[u8], mut visit: impl FnMut(u64)) {
    for field in Fields::of(series) {
        match field.number {
            1 => varints(field.value, &mut visit),
            4 => Fields::of(field.value)
                .filter(|field| field.number == 1)
                .for_each(|field| varints(field.value, &mut visit)),
            5 => Fields::of(field.value)
                .filter(|field| matches!(field.number, 3 | 4))
                .for_each(|field| varints(field.value, &mut visit)),
            _ => {}
        }
    }
}

/// Those of a packed field, or the one of another.
fn varints(bytes: &[u8], visit: &mut impl FnMut(u64)) {
    let (mut value, mut shift) = (0u64, 0);
    for byte in bytes {
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        shift += 7;
        if *byte < 0x80 {
            visit(value);
            (value, shift) = (0, 0);
        }
    }
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

    /// Scenario: four series of 2.0 that refer to texts of their own and to one that all have: as labels, packed and not, of an exemplar, as
    /// help and as unit.
    /// Guarantees: a half has the texts that its series refer to, under their numbers, and empty ones in place of the others.
    #[test]
    fn a_half_has_its_own_texts() {
        let texts = ["", "all", "a", "b", "c", "d", "nobody's"];
        let sample = field(2, b"");
        let series = [
            field(5, &[field(1, &[1, 2]), sample.clone()].concat()),
            field(5, &[&field(1, &[1, 1])[..], &[1 << 3, 3], &sample].concat()),
            field(
                5,
                &[field(1, &[1, 1]), sample.clone(), field(4, &field(1, &[1, 4]))].concat(),
            ),
            field(
                5,
                &[
                    field(1, &[1, 1]),
                    sample.clone(),
                    field(5, &[3 << 3, 5, 4 << 3, 1]),
                ]
                .concat(),
            ),
        ];
        let table: Vec<u8> = texts.iter().flat_map(|text| field(4, text.as_bytes())).collect();
        let body = Bytes::from([table, series.concat()].concat());
        let [first, second] = halve_remote_write(REMOTE_WRITE_2, &body).unwrap();
        let texts = |half: &(Bytes, u64)| -> Vec<String> {
            let texts = Fields::of(&half.0).filter(|field| field.number == 4);
            texts
                .map(|text| String::from_utf8(text.value.to_vec()).unwrap())
                .collect()
        };
        assert_eq!(texts(&first), ["", "all", "a", "b", "", "", ""]);
        assert_eq!(texts(&second), ["", "all", "", "", "c", "d", ""]);
        assert_eq!((first.1, second.1), (2, 2));
    }
}
