//! Small requests that would become large ones, and bodies that end where they are to.

use super::super::Through;
use super::*;
use crate::snappy;
use crate::v1::V1;

/// Scenario: a series of 2.0 without samples that refers to a text of a megabyte four thousand times, as if nobody had checked it.
/// Guarantees: none of its labels is made; the series after it goes out.
#[test]
fn labels_of_a_series_without_samples_are_not_made() {
    let mut body = b"\x22\x00\x22\x08__name__".to_vec();
    put_delimited(&mut body, 4, &vec![b'a'; 1 << 20]);
    let mut empty = Vec::new();
    put_delimited(&mut empty, v2::LABELS_REFS, &[2].repeat(8000));
    put_delimited(&mut empty, v2::METADATA, &[1 << 3, 1]);
    put_delimited(&mut body, 5, &empty);
    let mut through = Through::new(&[]);
    let mut sink = V1::<snappy::Block>::new(1, usize::MAX, false);
    through.run(Version::V2, &body, Version::V1, &mut sink);
    assert_eq!(through.keys.len(), 0);
    // A sample, the label `__name__` with that text as its name.
    put_delimited(&mut body, 5, b"\x0a\x02\x01\x02\x12\x00");
    assert_eq!(through.run(Version::V2, &body, Version::V1, &mut sink).points, 1);
}

/// Scenario: a thousand series of as many families of 2.0 that share a help of more than half of a body, to destinations of 2.0, and of 1.0
/// with metadata.
/// Guarantees: in 2.0 the help is once in a body, and does not end it; in 1.0 metadata comes in bodies that end before they are larger
/// than is configured, each family once.
#[test]
fn a_long_help_ends_bodies_where_they_are_full() {
    let max_body_bytes = 100_000;
    let help = "h".repeat(60_000);
    let name = |n: usize| format!("m{n}");
    let series: Vec<_> = (0..1000)
        .map(|n| Series {
            about: (COUNTER, help.clone(), String::new()),
            ..one(&[("__name__", &name(n))], 1.0)
        })
        .collect();
    for format in [Format::V1, Format::V1Zstd, Format::V2] {
        let mut encoder = Encoder::new(EncoderSettings {
            format,
            max_body_bytes,
            metadata: true,
            ..EncoderSettings::default()
        });
        let (lanes, outcome) = encode(&mut encoder, &[request(Version::V2, &series)]);
        assert_eq!(outcome.points, 1000);
        let plain: Vec<_> = lanes[0].iter().map(|body| body.plain().unwrap()).collect();
        assert!(
            plain.iter().all(|body| body.len() <= max_body_bytes),
            "{format:?}"
        );
        if format == Format::V2 {
            assert!(plain.len() <= 3, "{}", plain.len());
        } else {
            let fields = plain.iter().flat_map(|body| sluice_wire::Fields::of(body));
            assert_eq!(fields.filter(|field| field.number == 3).count(), 1000);
        }
    }
}

/// Scenario: a native histogram with custom buckets that came as 1.0, which has no place for them, to a destination of 1.0.
/// Guarantees: it goes out as it came. (What came as 2.0 is dropped and counted: `series_go_out_as_they_came`.)
#[test]
fn custom_buckets_of_the_first_version_stay() {
    let mut histogram = Vec::new();
    put_uint(&mut histogram, 4, zigzag(CUSTOM_BUCKETS));
    let mut series = one(&[("__name__", "m")], 0.0);
    series.items[0].value = Err(histogram);
    let (lanes, outcome) = encode(
        &mut encoder(Format::V1, 1),
        &[request(Version::V1, &[series.clone()])],
    );
    assert_eq!((outcome.points, outcome.dropped.total()), (1, 0));
    assert_eq!(read(&lanes[0][0]), [series]);
}
