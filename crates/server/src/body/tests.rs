#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::Frame;
use http_body_util::Full;
use sluice_admission::Budget;
use sluice_telemetry::Registry;
use tokio::time::{Sleep, sleep};

use super::*;
use crate::Gate;

mod simulation;

fn gate() -> Gate {
    Gate::new(
        Budget::new(1 << 30),
        Duration::from_secs(5),
        &Registry::default(),
        1,
    )
}

/// `noise` bytes that do not compress and `zeros` that compress a thousandfold.
fn content(noise: usize, zeros: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let mut content: Vec<u8> = std::iter::repeat_with(&mut random).take(noise).collect();
    content.resize(noise + zeros, 0);
    content
}

/// Nobody asks for the compressed form.
fn plain(encoding: Encoding) -> Coding {
    Coding {
        encoding,
        keep_frame: false,
    }
}

fn compressed(encoding: Encoding, content: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Identity => content.to_vec(),
        // A stream of unknown length: the frame does not say how large its content is.
        Encoding::Zstd => zstd::stream::encode_all(content, 1).unwrap(),
        Encoding::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(content).unwrap();
            gzip.finish().unwrap()
        }
        Encoding::Zlib => {
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            zlib.write_all(content).unwrap();
            zlib.finish().unwrap()
        }
        Encoding::Snappy => snap::raw::Encoder::new().compress_vec(content).unwrap(),
        Encoding::Lz4 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(content).unwrap();
            lz4.finish().unwrap()
        }
    }
}

/// Scenario: bodies in every encoding whose content is a little below the room they are given, far below it, and
/// above it; with and without `Content-Length`.
/// Guarantees: the permit covers every byte that is kept, spare capacity included, and little more than the content;
/// with the body it all goes back.
#[tokio::test]
async fn what_is_kept_is_charged_and_little_is_kept() {
    const NOISE: usize = 100_000;
    let encodings = [
        Encoding::Identity,
        Encoding::Gzip,
        Encoding::Zstd,
        Encoding::Zlib,
        Encoding::Snappy,
        Encoding::Lz4,
    ];
    let mut spare_kept = 0;
    for encoding in encodings {
        for zeros in [0, NOISE, 4 * NOISE, 6 * NOISE, 20 * NOISE] {
            let content = content(NOISE, zeros);
            let wire = compressed(encoding, &content);
            for length in [Some(wire.len() as u64), None] {
                let gate = gate();
                let mut body = Full::new(Bytes::from(wire.clone()));
                let received = receive(
                    &mut body,
                    length,
                    plain(encoding),
                    &mut gate.visit(),
                    &BodyLimits::default(),
                )
                .await;
                let Received {
                    body,
                    permit,
                    wire_bytes,
                    ..
                } = received.unwrap();
                let case = format!("{encoding} {zeros} {length:?}");
                assert!(body == content, "{case}");
                assert_eq!(wire_bytes, wire.len() as u64, "{case}");
                assert_eq!(gate.usage().used, permit.bytes(), "{case}");
                let kept = body.try_into_mut().unwrap().capacity();
                assert!(
                    kept as u64 <= permit.bytes(),
                    "{case}: {kept} bytes kept, {} charged",
                    permit.bytes()
                );
                let most = content.len() + content.len() / SPARE_CAPACITY;
                assert!(
                    permit.bytes() <= most as u64,
                    "{case}: {} charged",
                    permit.bytes()
                );
                spare_kept += kept - content.len();
                drop(permit);
                assert_eq!(gate.usage().used, 0, "{case}");
            }
        }
    }
    assert!(
        spare_kept > 0,
        "no case keeps spare capacity, which is what this is about"
    );
}

/// Scenario: compressed bodies, plain and framed as gRPC frames them, whose compressed form is wanted or not.
/// Guarantees: what is wanted is kept and charged beside the content; what is not wanted is gone, and so is its
/// charge, as soon as the body is inflated.
#[tokio::test]
async fn a_frame_nobody_wants_is_not_charged() {
    let content = content(100_000, 0);
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let wire = compressed(encoding, &content);
        let mut message = vec![1];
        message.extend_from_slice(&(wire.len() as u32).to_be_bytes());
        message.extend_from_slice(&wire);
        for keep_frame in [true, false] {
            let coding = Coding { encoding, keep_frame };
            let limits = BodyLimits::default();
            for framed in [true, false] {
                let gate = gate();
                let mut visit = gate.visit();
                let received = if framed {
                    let mut body = Full::new(Bytes::from(message.clone()));
                    collect_framed(&mut body, coding, &mut visit, &limits).await
                } else {
                    let mut body = Full::new(Bytes::from(wire.clone()));
                    receive(&mut body, Some(wire.len() as u64), coding, &mut visit, &limits).await
                };
                let received = received.unwrap();
                let case = format!("{encoding} {keep_frame} {framed}");
                assert!(received.body == content, "{case}");
                let kept = received.compressed.as_ref();
                // Not assert_eq: it would print both.
                assert!(
                    kept.map(|kept| &kept.frame.bytes[..]) == keep_frame.then_some(&wire[..]),
                    "{case}"
                );
                let for_frame = kept.map_or(0, |kept| kept.permit.bytes());
                assert!(
                    !keep_frame || for_frame >= wire.len() as u64,
                    "{case}: {for_frame}"
                );
                let used = gate.usage().used;
                assert_eq!(used, received.permit.bytes() + for_frame, "{case}");
                let most = (content.len() + content.len() / SPARE_CAPACITY) as u64;
                assert!(keep_frame || used <= most, "{case}: {used} charged");
                drop(received);
                assert_eq!(gate.usage().used, 0, "{case}");
            }
        }
    }
}

/// A body that comes in pieces of one size at one pace.
struct Paced {
    pieces: usize,
    piece: Bytes,
    every: Duration,
    next: Pin<Box<Sleep>>,
}

impl Paced {
    fn new(pieces: usize, piece_bytes: usize, every: Duration) -> Self {
        Self {
            pieces,
            piece: vec![0; piece_bytes].into(),
            every,
            next: Box::pin(sleep(every)),
        }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.pieces == 0 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.next.as_mut().poll(cx));
        self.pieces -= 1;
        let next = self.next.deadline() + self.every;
        self.next.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

/// Sends so many pieces of so many bytes, one a second, of a body that announces its size or does not.
async fn send_paced(
    pieces: usize,
    announced: Option<u64>,
    piece_bytes: usize,
) -> (Result<u64, Refusal>, Duration) {
    let mut body = Paced::new(pieces, piece_bytes, Duration::from_secs(1));
    let started = Instant::now();
    let gate = gate();
    let received = receive(
        &mut body,
        announced,
        plain(Encoding::Identity),
        &mut gate.visit(),
        &BodyLimits::default(),
    )
    .await;
    let received = received.map(|received| received.wire_bytes);
    assert_eq!(gate.usage().used, 0);
    (received, started.elapsed())
}

/// Scenario: bodies of 6 MB that come evenly, slightly faster and slightly slower than would complete them within a
/// minute; a small one at the least rate, and below it; one of unknown length.
/// Guarantees: a large body has to come at the rate that completes what it holds within a minute, and is given up
/// before the minute is over when it does not; a small one is held to the fixed least rate.
#[tokio::test(start_paused = true)]
async fn a_large_body_has_to_come_within_a_minute() {
    let size = 6_000_000;
    let announced = Some(size as u64);
    let (received, took) = send_paced(58, Some(58 * 102_000), 102_000).await;
    assert_eq!((received, took.as_secs()), (Ok(58 * 102_000), 58));

    let (received, took) = send_paced(62, announced, size / 62).await;
    match received {
        Err(Refusal::TooSlow(message)) => {
            assert!(message.contains("bytes a second are expected"), "{message}");
        }
        other => panic!("too slow, not {other:?}"),
    }
    assert!(
        (BodyLimits::default().idle_timeout..LONGEST_BODY).contains(&took),
        "{took:?}"
    );

    // Far below a kilobyte a second of what it holds: the fixed least rate counts.
    let (received, took) = send_paced(40, Some(40 * 1100), 1100).await;
    assert_eq!((received, took.as_secs()), (Ok(40 * 1100), 40));
    let (received, _) = send_paced(40, Some(40 * 900), 900).await;
    assert!(matches!(received, Err(Refusal::TooSlow(_))), "{received:?}");

    // A body of unknown length holds twice what came at most: it is fast enough, until it holds too much.
    let (received, _) = send_paced(50, None, 20_000).await;
    assert_eq!(received, Ok(1_000_000));
    let (received, took) = send_paced(100, None, 60_000).await;
    assert!(matches!(received, Err(Refusal::TooSlow(_))), "{received:?}");
    assert!(took < LONGEST_BODY, "{took:?}");
}

/// Scenario: a body of 60 MB is announced and a little of it sent; then another request finds the budget used up
/// and waits.
/// Guarantees: the announced body holds one step of memory, not what it announces; once somebody waits it is given
/// up with an answer that says to come back, long before its own time-out.
#[tokio::test(start_paused = true)]
async fn who_stalls_holds_little_and_not_for_long() {
    let gate = gate();
    let budget = gate.budget().clone();
    let mut stalled = Paced::new(2, 1000, Duration::from_secs(9));
    let mut visit = gate.visit();
    let limits = BodyLimits::default();
    let receiving = receive(
        &mut stalled,
        Some(60_000_000),
        plain(Encoding::Identity),
        &mut visit,
        &limits,
    );
    let others = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let first = FIRST_STEP_BYTES + READ_AHEAD_BYTES;
        assert_eq!(budget.usage().used, first);
        let rest = budget.largest() - first;
        let held = budget.try_reserve(rest).unwrap();
        let waiting = budget.visit(0);
        let granted = waiting.reserve(2 << 20, 0);
        let let_go = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(held);
        };
        tokio::join!(granted, let_go).0.unwrap();
    };
    let (received, ()) = tokio::join!(
        async {
            let started = Instant::now();
            (receiving.await, started.elapsed())
        },
        others
    );
    let (outcome, took) = received;
    assert!(
        matches!(
            outcome,
            Err(Refusal::Busy {
                reason: "stalled",
                ..
            })
        ),
        "{outcome:?}"
    );
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// Scenario: where four large bodies have turns at a time, four come slowly; then one comes at once.
/// Guarantees: the slow ones keep their turns for a moment, and come to their end all the same; the other one goes on then.
#[tokio::test(start_paused = true)]
async fn who_is_slow_keeps_nobodys_turn() {
    const LARGE: usize = 1 << 20;
    const PACE: Duration = Duration::from_millis(100);
    // A quarter of the budget has turns.
    let gate = Gate::new(
        Budget::new(4 * 4 * LARGE as u64),
        Duration::from_secs(5),
        &Registry::default(),
        1,
    );
    let began = Instant::now();
    let receiving = async |mut body: Paced| {
        let mut visit = gate.visit();
        let coding = plain(Encoding::Identity);
        let limits = BodyLimits::default();
        let received = receive(&mut body, Some(LARGE as u64), coding, &mut visit, &limits).await;
        assert_eq!(received.unwrap().wire_bytes, LARGE as u64);
        began.elapsed()
    };
    let slow = || receiving(Paced::new(64, LARGE / 64, PACE));
    let quick = receiving(Paced::new(1, LARGE, Duration::ZERO));
    let (a, b, c, d, quick) = tokio::join!(slow(), slow(), slow(), slow(), quick);
    assert_eq!([a, b, c, d], [64 * PACE; 4]);
    assert!(quick > PACE && quick <= 3 * PACE, "{quick:?}");
}

/// Scenario: zstd without a content size, of 20 MiB that compress to next to nothing, with a frame without content behind it; then of more than a
/// body may be.
/// Guarantees: the first is received whole and charged what it is; the other is too large, and nothing stays reserved.
#[tokio::test]
async fn bodies_without_a_size_are_counted() {
    let limits = BodyLimits::default();
    let body = |content: u64| {
        let zeros = std::io::Read::take(std::io::repeat(0), content);
        let mut body = zstd::stream::encode_all(zeros, 1).unwrap();
        body.extend(zstd::stream::encode_all(&[][..], 1).unwrap());
        assert!(body.len() as u64 * GUESSED_RATIO < LARGEST_GUESS);
        Full::new(Bytes::from(body))
    };
    let gate = gate();
    const SIZE: u64 = 20 << 20;
    let mut small = body(SIZE);
    let received = receive(
        &mut small,
        None,
        plain(Encoding::Zstd),
        &mut gate.visit(),
        &limits,
    )
    .await;
    let received = received.unwrap();
    assert_eq!(
        (received.body.len() as u64, received.permit.bytes()),
        (SIZE, SIZE)
    );
    drop(received);
    let mut large = body(limits.max_bytes + 1);
    let refused = receive(
        &mut large,
        None,
        plain(Encoding::Zstd),
        &mut gate.visit(),
        &limits,
    )
    .await;
    assert!(matches!(refused, Err(Refusal::TooLarge(_))), "{refused:?}");
    assert_eq!(gate.usage().used, 0);
}

/// Scenario: a budget of 8 MiB; a zstd body without a content size that holds nine times what it takes, and gzip of a large and a small member,
/// whose trailer is the small one's.
/// Guarantees: both are received: a guess that never fits is not waited for.
#[tokio::test(start_paused = true)]
async fn guesses_fit_small_budgets() {
    let large = content(130_000, 1_100_000);
    let zstd = zstd::stream::encode_all(&large[..], 1).unwrap();
    let gzip = [
        &compressed(Encoding::Gzip, &large)[..],
        &compressed(Encoding::Gzip, b"small"),
    ]
    .concat();
    for (encoding, wire, size) in [
        (Encoding::Zstd, zstd, large.len()),
        (Encoding::Gzip, gzip, large.len() + 5),
    ] {
        let gate = Gate::new(
            Budget::new(8 << 20),
            Duration::from_secs(5),
            &Registry::default(),
            1,
        );
        let mut body = Full::new(Bytes::from(wire));
        let mut visit = gate.visit();
        let received = receive(
            &mut body,
            None,
            plain(encoding),
            &mut visit,
            &BodyLimits::default(),
        )
        .await;
        let received = received.unwrap();
        assert_eq!(received.body.len(), size, "{encoding}");
        assert_eq!(gate.usage().used, received.permit.bytes(), "{encoding}");
    }
}

/// Scenario: the content of a body is counted, and there is no time for it.
/// Guarantees: it is refused for now, with a hint, and is not called broken.
#[tokio::test(start_paused = true)]
async fn who_takes_too_long_to_count_may_come_again() {
    let gate = Gate::new(Budget::new(64 << 20), Duration::ZERO, &Registry::default(), 1);
    let body = zstd::stream::encode_all(&content(1000, 100_000)[..], 1).unwrap();
    let mut visit = gate.visit();
    let refused = count(Encoding::Zstd, &body, 1 << 20, Duration::ZERO, &mut visit).await;
    assert!(matches!(refused, Err(Refusal::Busy { .. })), "{refused:?}");
    let counted = count(Encoding::Zstd, &body, 1 << 20, LEAST_COUNTING, &mut visit).await;
    assert_eq!(counted.unwrap(), Ok(101_000));
}
