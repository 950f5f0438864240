use std::io::Write;

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
    ZSTD.with_borrow(|context| context.as_ref().map_or(0, zstd_safe::DCtx::sizeof))
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
    for data in [
        text(),
        vec![7; COUNTING_BYTES],
        vec![7; 3 * COUNTING_BYTES],
        Vec::new(),
    ] {
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

/// Scenario: bodies that inflate to several counting buffers, or have nothing in many members; counting may go on until the second time it
/// asks.
/// Guarantees: whatever the encoding, it asks again and again, and ends there.
#[test]
fn counting_ends_in_time() {
    let zeros = vec![0; 4 * COUNTING_BYTES];
    let mut bodies: Vec<_> = samples(&zeros)
        .into_iter()
        .filter(|(_, _, is_sized)| !is_sized)
        .collect();
    bodies.push((Encoding::Gzip, gzip(&zeros), false));
    bodies.push((Encoding::Gzip, gzip(&[]).repeat(5), false));
    for (encoding, body, _) in bodies {
        let asked = std::cell::Cell::new(0);
        let may_go_on = || asked.replace(asked.get() + 1) < 1;
        let counted = counted_size(encoding, &body, 1 << 22, &may_go_on);
        assert_eq!(
            (counted, asked.get()),
            (Err(InflateError::OutOfTime), 2),
            "{encoding}"
        );
    }
}

/// Scenario: gzip members and zstd frames without content, laid end to end; inflating may go on until the third time it asks.
/// Guarantees: it ends there, though there is never too much content.
#[test]
fn inflating_ends_in_time() {
    let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
    e.include_contentsize(false).unwrap();
    let zstd_unsized = e.finish().unwrap();
    for (encoding, one) in [(Encoding::Gzip, gzip(&[])), (Encoding::Zstd, zstd_unsized)] {
        let asked = std::cell::Cell::new(0);
        let may_go_on = || asked.replace(asked.get() + 1) < 2;
        let inflated = super::inflate(encoding, &one.repeat(9), 0, 9, &may_go_on);
        assert_eq!(
            (inflated, asked.get()),
            (Err(InflateError::OutOfTime), 3),
            "{encoding}"
        );
    }
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
