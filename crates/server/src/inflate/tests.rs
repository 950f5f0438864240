use std::io::Write;

use super::content::PIECE_BYTES;
use super::declared::MAX_ZSTD_WINDOW_LOG;
use super::steps::STEP_BYTES;
use super::zstandard::{CONTEXT, KEPT_CONTEXT_BYTES};
use super::*;

fn text() -> Vec<u8> {
    (0..50_000u32).flat_map(|n| (n / 3).to_le_bytes()).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

fn lz4(data: &[u8]) -> Vec<u8> {
    let mut e = lz4_flex::frame::FrameEncoder::new(Vec::new());
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

/// With all the time there is.
fn inflate(encoding: Encoding, compressed: &[u8], capacity: u64, cap: u64) -> Result<Vec<u8>, InflateError> {
    super::inflate(encoding, compressed, capacity, cap, &|| true)
}

/// With all the time there is.
fn inflated_size(encoding: Encoding, compressed: &[u8]) -> Result<Option<u64>, InflateError> {
    super::inflated_size(encoding, compressed, &|| true)
}

/// With all the time there is.
fn is_portable(encoding: Encoding, compressed: &[u8]) -> bool {
    super::is_portable(encoding, compressed, &|| true)
}

/// With all the time there is.
fn counted(encoding: Encoding, compressed: &[u8], most: u64) -> Result<u64, InflateError> {
    counted_size(encoding, compressed, most, &|| true)
}

fn zstd_unsized(data: &[u8]) -> Vec<u8> {
    let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

/// Scenario: frames with a window as large as readers allow, one larger, frames laid end to end, a skippable one.
/// Guarantees: only what any reader takes counts as portable.
#[test]
fn portable_frames() {
    let with_window = |log| {
        let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
        e.window_log(log).unwrap();
        e.write_all(&text()).unwrap();
        e.finish().unwrap()
    };
    let ordinary = with_window(MAX_ZSTD_WINDOW_LOG);
    assert!(is_portable(Encoding::Zstd, &ordinary));
    assert!(!is_portable(
        Encoding::Zstd,
        &with_window(MAX_ZSTD_WINDOW_LOG + 1)
    ));
    let sized = zstd::bulk::compress(&text(), 1).unwrap();
    assert!(is_portable(Encoding::Zstd, &[&sized[..], &ordinary].concat()));
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9][..], &sized].concat();
    assert!(!is_portable(Encoding::Zstd, &skippable));
    assert!(is_portable(Encoding::Gzip, &gzip(&text())));
    assert!(!is_portable(Encoding::Snappy, b"x"));
}

/// What this thread keeps.
fn kept_bytes() -> usize {
    CONTEXT.with_borrow(|context| context.as_ref().map_or(0, zstd_safe::DCtx::sizeof))
}

/// Scenario: a body is inflated; the thread gives back what it keeps; another body.
/// Guarantees: nothing is kept before the first body and after giving back, and the next is inflated as the first.
#[test]
fn what_is_given_back_is_made_anew() {
    let body = zstd_unsized(&text());
    assert_eq!(kept_bytes(), 0);
    for _ in 0..2 {
        assert_eq!(inflate(Encoding::Zstd, &body, 1 << 20, 1 << 20), Ok(text()));
        assert!(kept_bytes() > 0);
        give_back_contexts();
        assert_eq!(kept_bytes(), 0);
    }
}

/// Scenario: a body of unknown size with the largest window, of little content, twice; of 5 MiB; of little content, cut short; and one with a
/// small window.
/// Guarantees: the context stays where little was written into its window; no thread keeps a window that was filled, or of a body that
/// is not valid.
#[test]
fn windows_are_not_kept() {
    let with_window = |log, data: &[u8]| {
        let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
        e.window_log(log).unwrap();
        e.write_all(data).unwrap();
        e.finish().unwrap()
    };
    let after = |body: &[u8], is_whole| {
        let inflated = inflate(Encoding::Zstd, body, 1 << 20, 8 << 20);
        assert_eq!(inflated.is_ok(), is_whole);
        kept_bytes()
    };
    let little = with_window(MAX_ZSTD_WINDOW_LOG, &text());
    let much = with_window(MAX_ZSTD_WINDOW_LOG, &text().repeat(27)[..5 << 20]);
    let damaged = &little[..little.len() - 9];

    assert!(after(&with_window(10, &text()), true) <= KEPT_CONTEXT_BYTES);
    let large = after(&little, true);
    assert!(large > KEPT_CONTEXT_BYTES, "{large} bytes");
    assert_eq!(after(&little, true), large);
    assert!(after(&much, true) <= KEPT_CONTEXT_BYTES);
    assert_eq!(after(&little, true), large);
    assert!(after(damaged, false) <= KEPT_CONTEXT_BYTES);
}

fn samples(data: &[u8]) -> Vec<(Encoding, Vec<u8>, bool)> {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(data).unwrap();
    let mut framed = snap::write::FrameEncoder::new(Vec::new());
    framed.write_all(data).unwrap();
    vec![
        (Encoding::Gzip, gzip(data), true),
        (Encoding::Zstd, zstd::bulk::compress(data, 1).unwrap(), true),
        (Encoding::Zstd, zstd_unsized(data), false),
        (Encoding::Zlib, zlib.finish().unwrap(), false),
        (
            Encoding::Snappy,
            snap::raw::Encoder::new().compress_vec(data).unwrap(),
            true,
        ),
        (Encoding::Snappy, framed.into_inner().unwrap(), true),
        (Encoding::Lz4, lz4(data), false),
    ]
}

/// Scenario: every encoding, with the size declared or not, from a good or a tiny first capacity.
/// Guarantees: the content comes back whole, and a declared size is exact.
#[test]
fn every_encoding_inflates() {
    for data in [text(), Vec::new(), b"x".to_vec()] {
        // An empty snappy stream is no bytes at all, and no bytes are not inflated.
        for (encoding, compressed, sized) in samples(&data).into_iter().filter(|(_, c, _)| !c.is_empty()) {
            let size = inflated_size(encoding, &compressed).unwrap();
            if sized {
                assert_eq!(size, Some(data.len() as u64), "{encoding}");
            }
            for capacity in [size.unwrap_or(0), 1, 1 << 20] {
                let out = inflate(encoding, &compressed, capacity, 1 << 20).unwrap();
                assert!(out == data, "{encoding} {capacity}");
            }
        }
    }
}

/// Scenario: every encoding, content of many counting buffers, of exactly one, and none; alone, and three times end to end where that is one
/// body; then one byte less than there is.
/// Guarantees: what is counted is what is inflated within exactly that cap; one byte less is too little for counting.
#[test]
fn counted_sizes_are_exact() {
    for data in [text(), vec![7; PIECE_BYTES], vec![7; 3 * PIECE_BYTES], Vec::new()] {
        for (encoding, compressed, _) in samples(&data).into_iter().filter(|(_, c, _)| !c.is_empty()) {
            let many = matches!(encoding, Encoding::Gzip | Encoding::Zstd);
            let bodies = [(1, compressed.clone()), (3, compressed.repeat(3))];
            for (times, body) in bodies.into_iter().take(1 + usize::from(many)) {
                let size = counted(encoding, &body, 1 << 22).unwrap();
                assert_eq!(size, (times * data.len()) as u64, "{encoding}");
                assert_eq!(counted(encoding, &body, size), Ok(size), "{encoding}");
                assert_eq!(inflate(encoding, &body, size, size).unwrap().len() as u64, size);
                if size > 0 {
                    let larger = InflateError::Larger(size - 1);
                    assert_eq!(counted(encoding, &body, size - 1), Err(larger), "{encoding}");
                }
            }
        }
    }
}

/// Scenario: content in a frame of its own, then frames without any, or with some; as zstd, gzip and LZ4.
/// Guarantees: all of it is counted, and inflated within exactly that cap; nothing that follows is lost.
#[test]
fn what_follows_is_looked_at() {
    let data = text();
    let skippable = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let bodies = [
        (Encoding::Zstd, zstd_unsized(&data), zstd_unsized(&[]), 0),
        (Encoding::Zstd, zstd_unsized(&data), skippable, 0),
        (Encoding::Zstd, zstd_unsized(&data), zstd_unsized(b"more"), 4),
        (Encoding::Gzip, gzip(&data), gzip(&[]), 0),
        (Encoding::Gzip, gzip(&data), gzip(b"more"), 4),
        (Encoding::Lz4, lz4(&data), lz4(&[]), 0),
        (Encoding::Lz4, lz4(&data), lz4(b"more"), 4),
    ];
    for (encoding, first, second, more) in bodies {
        let body = [first, second].concat();
        let size = (data.len() + more) as u64;
        assert_eq!(counted(encoding, &body, 1 << 20), Ok(size), "{encoding} {more}");
        let inflated = inflate(encoding, &body, size, size).unwrap();
        assert_eq!(inflated.len() as u64, size, "{encoding} {more}");
        assert_eq!(
            inflate(encoding, &body, size, size - 1),
            Err(InflateError::Larger(size - 1)),
            "{encoding} {more}"
        );
    }
}

/// Scenario: bodies that inflate to several counting buffers; counting may go on until the third time it asks.
/// Guarantees: whatever the encoding, it asks again and again, and ends there.
#[test]
fn counting_ends_in_time() {
    let zeros = vec![0; 4 * PIECE_BYTES];
    let mut bodies: Vec<_> = samples(&zeros)
        .into_iter()
        .filter(|(_, _, is_sized)| !is_sized)
        .collect();
    bodies.push((Encoding::Gzip, gzip(&zeros), false));
    for (encoding, body, _) in bodies {
        let asked = std::cell::Cell::new(0);
        let may_go_on = || asked.replace(asked.get() + 1) < 2;
        let counted = counted_size(encoding, &body, 1 << 22, &may_go_on);
        assert_eq!(
            (counted, asked.get()),
            (Err(InflateError::OutOfTime), 3),
            "{encoding}"
        );
    }
}

/// `head`, so many times `one` that they are three steps and more, and `tail`.
fn three_steps(head: &[u8], one: &[u8], tail: &[u8]) -> Vec<u8> {
    [head, &one.repeat(3 * STEP_BYTES / one.len() + 1), tail].concat()
}

/// Bodies with much work for little content, or none, each three steps long and more.
fn laborious() -> Vec<(&'static str, Encoding, Vec<u8>)> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const ONE_BYTE: [u8; 4] = [1 << 1 | 1 << 3, 0, 0, b'x'];
    const LAST: [u8; 3] = [1, 0, 0];
    let blocks = 3 * STEP_BYTES / ONE_BYTE.len() + 1;
    let single_segment = [&MAGIC[..], &[0xa0], &(blocks as u32).to_le_bytes()].concat();
    let small_window = [&MAGIC[..], &[0, 0]].concat();
    let empty = |is_sized| match is_sized {
        true => [&MAGIC[..], &[0x20, 0], &LAST].concat(),
        false => [&MAGIC[..], &[0, 0], &LAST].concat(),
    };
    const STORED: [u8; 5] = [0, 0, 0, 0xff, 0xff];
    const LAST_STORED: [u8; 5] = [1, 0, 0, 0xff, 0xff];
    let member = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let zlib_end = [&LAST_STORED[..], &[0, 0, 0, 1]].concat();
    const SNAPPY_STREAM: &[u8] = b"\xff\x06\x00\x00sNaPpY";
    let lz4_blocks = [&[1, 0, 0, 0x80, b'x'][..], &[0, 0, 0, 0x80].repeat(9)].concat();
    vec![
        (
            "sized frames",
            Encoding::Zstd,
            three_steps(&[], &empty(true), &[]),
        ),
        ("frames", Encoding::Zstd, three_steps(&[], &empty(false), &[])),
        (
            "blocks of one sized frame",
            Encoding::Zstd,
            three_steps(&single_segment, &ONE_BYTE, &LAST),
        ),
        (
            "blocks of one frame",
            Encoding::Zstd,
            three_steps(&small_window, &ONE_BYTE, &LAST),
        ),
        ("members", Encoding::Gzip, three_steps(&[], &gzip(&[]), &[])),
        (
            "members of a byte",
            Encoding::Gzip,
            three_steps(&[], &gzip(b"x"), &[]),
        ),
        (
            "blocks of one member",
            Encoding::Gzip,
            three_steps(&member, &STORED, &[&LAST_STORED[..], &[0; 8]].concat()),
        ),
        (
            "blocks of a stream",
            Encoding::Zlib,
            three_steps(&[0x78, 1], &STORED, &zlib_end),
        ),
        (
            "padding",
            Encoding::Snappy,
            three_steps(SNAPPY_STREAM, &[0xfe, 0, 0, 0], &[]),
        ),
        (
            "blocks",
            Encoding::Lz4,
            three_steps(&lz4(&[])[..7], &lz4_blocks, &[0; 4]),
        ),
    ]
}

/// Scenario: bodies with much work for little content, in every encoding but a block of snappy; there is all the time, or so much that it is over at
/// one of its looks at the clock.
/// Guarantees: each inflates; it looks at the clock for each step, whether its content is kept or counted, and ends at that one look where there is no more time.
#[test]
fn what_is_laborious_ends_in_time() {
    for (what, encoding, body) in laborious() {
        let case = format!("{encoding}: {what}");
        let asked = std::cell::Cell::new(0);
        let may_ask = |times: usize| {
            asked.set(0);
            let asked = &asked;
            move || asked.replace(asked.get() + 1) < times
        };
        let cap = body.len() as u64;
        let content = super::inflate(encoding, &body, cap, cap, &may_ask(usize::MAX)).unwrap();
        let most = asked.get();
        assert!(most >= 3, "{case}: asked {most} times");
        for times in 1..most.min(9) {
            let kept = super::inflate(encoding, &body, cap, cap, &may_ask(times));
            assert_eq!(
                (kept, asked.get()),
                (Err(InflateError::OutOfTime), times + 1),
                "{case}"
            );
        }
        let counted = counted_size(encoding, &body, cap, &may_ask(usize::MAX));
        assert_eq!(counted, Ok(content.len() as u64), "{case}");
        if !what.ends_with("sized frame") {
            assert!(asked.get() >= 3, "{case}: asked {} times", asked.get());
            let counted = counted_size(encoding, &body, cap, &may_ask(2));
            assert_eq!(
                (counted, asked.get()),
                (Err(InflateError::OutOfTime), 3),
                "{case}"
            );
        }
        let sized = super::inflated_size(encoding, &body, &may_ask(0));
        assert!(
            matches!(sized, Ok(None) | Err(InflateError::OutOfTime)) || encoding == Encoding::Gzip,
            "{case}"
        );
        super::is_portable(encoding, &body, &may_ask(0));
        assert!(asked.get() <= 1, "{case}");
    }
}

/// Scenario: bodies that declare their size, larger than a step, in one frame and several; cut short anywhere, and of a declared size that is not true.
/// Guarantees: whole, they inflate in steps as at once, into exactly their size; what is missing or too much is an error.
#[test]
fn sized_zstd_inflates_in_steps() {
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let mut content: Vec<u8> = noise.take(2 * STEP_BYTES + 1000).collect();
    content.extend(text());
    let one = zstd::bulk::compress(&content, 1).unwrap();
    let skippable = &[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9][..];
    for frames in [1, 3] {
        let body = [&one.repeat(frames)[..], skippable].concat();
        assert!(body.len() > 2 * STEP_BYTES);
        let size = inflated_size(Encoding::Zstd, &body).unwrap().unwrap();
        assert_eq!(size, (frames * content.len()) as u64);
        let inflated = inflate(Encoding::Zstd, &body, 0, size).unwrap();
        assert!(inflated == content.repeat(frames) && inflated.capacity() as u64 == size);
        for cut in [1, STEP_BYTES, STEP_BYTES + 1, body.len() - skippable.len() - 1] {
            assert!(inflate(Encoding::Zstd, &body[..cut], 0, size).is_err(), "{cut}");
            assert!(
                zstandard::inflate_sized(&body[..cut], size, &|| true).is_err(),
                "{cut}"
            );
        }
        for wrong in [size - 1, size / 2] {
            assert!(
                zstandard::inflate_sized(&body, wrong, &|| true).is_err(),
                "{wrong}"
            );
        }
    }
    assert!(
        inflate(Encoding::Zstd, &one, 0, content.len() as u64).is_ok(),
        "the context is as it was"
    );
}

/// Scenario: gzip members of every size, with all that a header may have, laid end to end; the second or the last is damaged, or followed by what is none.
/// Guarantees: all members inflate; damage anywhere is an error.
#[test]
fn gzip_members_that_follow_are_checked() {
    let with_header = |data: &[u8]| {
        let builder = flate2::GzBuilder::new()
            .filename("name")
            .comment("words")
            .extra("more");
        let mut e = builder.write(Vec::new(), flate2::Compression::fast());
        e.write_all(data).unwrap();
        e.finish().unwrap()
    };
    let data = text();
    let members = [
        gzip(b"x"),
        with_header(&data),
        gzip(&[]),
        with_header(&[]),
        gzip(&data),
    ];
    let expected = [&b"x"[..], &data, &data].concat();
    let body = members.concat();
    assert!(inflate(Encoding::Gzip, &body, 0, 1 << 20).unwrap() == expected);
    let second = members[0].len();
    let places = [
        second,
        second + 3,
        second + members[1].len() - 5,
        body.len() - 5,
        body.len() - 1,
    ];
    for place in places {
        let mut damaged = body.clone();
        damaged[place] ^= 0x80;
        let inflated = inflate(Encoding::Gzip, &damaged, 0, 1 << 20);
        assert!(
            matches!(inflated, Err(InflateError::Corrupt { .. })),
            "{place}: {inflated:?}"
        );
        assert!(
            inflate(Encoding::Gzip, &body[..place], 0, 1 << 20).is_err() || place == second,
            "{place}"
        );
    }
    let followed = [&body[..], b"nothing that is gzip"].concat();
    assert!(inflate(Encoding::Gzip, &followed, 0, 1 << 20).is_err());
}

/// An LZ4 frame of three blocks.
fn blocks(info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
    let mut e = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    for block in [&b"one"[..], &[7; 100], b"three"] {
        e.write_all(block).unwrap();
        e.flush().unwrap();
    }
    e.finish().unwrap()
}

fn content_of_blocks() -> Vec<u8> {
    [&b"one"[..], &[7; 100], b"three"].concat()
}

/// Scenario: an LZ4 frame of several blocks, with and without checksums and its size, cut off anywhere; a frame of the old format.
/// Guarantees: whole, it inflates; cut off, be it between two blocks, it is not valid; nor is one that would not say that it is.
#[test]
fn an_lz4_frame_that_is_cut_off_is_not_valid() {
    let info = lz4_flex::frame::FrameInfo::new;
    let size = content_of_blocks().len() as u64;
    for info in [
        info(),
        info().block_checksums(true),
        info().content_checksum(true).content_size(Some(size)),
        info().block_mode(lz4_flex::frame::BlockMode::Linked),
    ] {
        let whole = blocks(info);
        assert_eq!(
            inflate(Encoding::Lz4, &whole, 9, 1000).unwrap(),
            content_of_blocks()
        );
        for cut in 1..whole.len() {
            let error = inflate(Encoding::Lz4, &whole[..cut], 9, 1000).unwrap_err();
            assert!(matches!(error, InflateError::Corrupt { .. }), "{cut}");
            assert!(counted(Encoding::Lz4, &whole[..cut], 1000).is_err(), "{cut}");
            let behind = [&whole[..], &whole[..cut]].concat();
            assert!(inflate(Encoding::Lz4, &behind, 9, 1000).is_err(), "{cut}");
        }
    }
    let legacy = [0x02, 0x21, 0x4c, 0x18, 2, 0, 0, 0, 0x10, b'x'];
    let error = inflate(Encoding::Lz4, &legacy, 9, 1000).unwrap_err();
    assert!(error.to_string().contains("legacy"), "{error}");
}

/// Scenario: frames that are to be skipped before, between and behind LZ4 frames, and alone; more of them than there may be frames.
/// Guarantees: they are skipped.
#[test]
fn lz4_frames_for_others_are_skipped() {
    let skipped = |number: u8| vec![0x50 + number, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let many: Vec<u8> = (0..16).chain(0..16).flat_map(skipped).collect();
    for (body, content) in [
        (
            [&many[..], &lz4(b"x"), &skipped(15), &lz4(b"y"), &many].concat(),
            &b"xy"[..],
        ),
        (many, b""),
    ] {
        assert_eq!(inflate(Encoding::Lz4, &body, 9, 9).unwrap(), content);
        assert_eq!(counted(Encoding::Lz4, &body, 9), Ok(content.len() as u64));
        assert!(inflate(Encoding::Lz4, &body[..body.len() - 1], 9, 9).is_err());
    }
}

/// Scenario: blocks without content, compressed and not, at the beginning of an LZ4 frame and behind its first block; another frame follows.
/// Guarantees: all that has content comes.
#[test]
fn lz4_blocks_without_content_end_nothing() {
    const HEADER_BYTES: usize = 7;
    let whole = blocks(lz4_flex::frame::FrameInfo::new());
    let first = u32::from_le_bytes(whole[HEADER_BYTES..].first_chunk().copied().unwrap());
    let behind_first = HEADER_BYTES + 4 + (first & !(1 << 31)) as usize;
    for empty in [&[0, 0, 0, 0x80][..], &[1, 0, 0, 0, 0]] {
        let with = [
            &whole[..HEADER_BYTES],
            empty,
            empty,
            &whole[HEADER_BYTES..behind_first],
            empty,
            &whole[behind_first..],
            &lz4(b"x"),
        ];
        let expected = [&content_of_blocks()[..], b"x"].concat();
        assert_eq!(inflate(Encoding::Lz4, &with.concat(), 9, 1000).unwrap(), expected);
        assert_eq!(
            counted(Encoding::Lz4, &with.concat(), 1000),
            Ok(expected.len() as u64)
        );
    }
}

/// Scenario: an LZ4 frame with as many blocks without content in a row as there may be, and one more.
/// Guarantees: the first inflates; the second is not valid.
#[test]
fn lz4_blocks_without_content_are_bounded() {
    const HEADER_BYTES: usize = 7;
    let whole = lz4(b"x");
    let with = |blocks: u32| {
        let empty = [0, 0, 0, 0x80].repeat(blocks as usize);
        [&whole[..HEADER_BYTES], &empty, &whole[HEADER_BYTES..]].concat()
    };
    let most = with(lz4::MOST_EMPTY_BLOCKS);
    assert_eq!(inflate(Encoding::Lz4, &most, 9, 9).unwrap(), b"x");
    let error = counted(Encoding::Lz4, &with(lz4::MOST_EMPTY_BLOCKS + 1), 9).unwrap_err();
    assert!(error.to_string().contains("without content"), "{error}");
}

/// Scenario: LZ4 frames without content, as many as a body may have, and one more.
/// Guarantees: the body is empty; with one more it is not valid.
#[test]
fn lz4_frames_are_bounded() {
    let frames = |number: u32| lz4(&[]).repeat(number as usize);
    assert_eq!(counted(Encoding::Lz4, &frames(lz4::MOST_FRAMES), 9), Ok(0));
    let error = inflate(Encoding::Lz4, &frames(lz4::MOST_FRAMES + 1), 9, 9).unwrap_err();
    assert!(error.to_string().contains("frames"), "{error}");
}

/// Scenario: content one byte larger than the cap, and a bomb.
/// Guarantees: refused as larger, never a byte beyond the cap kept.
#[test]
fn the_cap_holds() {
    let data = text();
    for (encoding, compressed, _) in samples(&data) {
        let cap = data.len() as u64;
        inflate(encoding, &compressed, 0, cap).unwrap();
        assert_eq!(
            inflate(encoding, &compressed, 0, cap - 1),
            Err(InflateError::Larger(cap - 1)),
            "{encoding}"
        );
    }
}

/// Scenario: each body cut short, each with bytes flipped, and plain text declared as compressed.
/// Guarantees: an error that names the encoding; no panic.
#[test]
fn damage_is_an_error() {
    let data = text();
    for (encoding, compressed, _) in samples(&data) {
        for cut in [1, compressed.len() / 2, compressed.len() - 1] {
            let result = inflate(encoding, &compressed[..cut], 100, 1 << 20);
            // Snappy streams may end at a chunk boundary; what came is then whole chunks.
            if let Ok(out) = result {
                assert_eq!(encoding, Encoding::Snappy);
                assert!(data.starts_with(&out), "{encoding} cut at {cut}");
            }
        }
        let error = inflate(encoding, b"plain text, not compressed at all", 100, 1 << 20).unwrap_err();
        assert!(error.to_string().contains(encoding.as_str()), "{error}");
    }
}

/// Scenario: three gzip members, three zstd frames, laid end to end.
/// Guarantees: all of them are read.
#[test]
fn concatenated_members_are_one_body() {
    let data = text();
    for one in [
        gzip(&data),
        zstd::bulk::compress(&data, 1).unwrap(),
        zstd_unsized(&data),
    ] {
        let encoding = if one.starts_with(&[0x1f, 0x8b]) {
            Encoding::Gzip
        } else {
            Encoding::Zstd
        };
        let out = inflate(encoding, &[&one[..], &one, &one].concat(), 10, 1 << 22).unwrap();
        assert!(out == [&data[..], &data, &data].concat());
    }
}
