//! A request body, whole or framed, in any encoding and any pieces, is taken within its limits or
//! refused; either way every byte of the budget comes back.
#![no_main]

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use sluice_admission::Budget;
use sluice_payload::Encoding;
use sluice_server::{BodyLimits, Coding, Gate, collect_framed, receive};
use sluice_telemetry::Registry;

const MAX_BYTES: u64 = 1 << 16;

const ENCODINGS: [Encoding; 6] = [
    Encoding::Identity,
    Encoding::Gzip,
    Encoding::Zstd,
    Encoding::Zlib,
    Encoding::Snappy,
    Encoding::Lz4,
];

/// The bytes in pieces of one size, as a connection might deliver them.
struct Pieces {
    rest: Bytes,
    size: usize,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let take = self.size.min(self.rest.len());
        let piece = self.rest.split_to(take);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&[choice, size, flags], body)) = data.split_first_chunk() else {
        return;
    };
    let encoding = ENCODINGS[choice as usize % ENCODINGS.len()];
    let framed = choice & 0x80 != 0;
    let is_declared = flags & 1 == 1;
    let keep_frame = flags & 2 == 0;
    let coding = Coding { encoding, keep_frame };
    // Larger than any one body needs, so that nothing waits: the clock stands still here.
    let budget = Budget::new(64 * MAX_BYTES);
    let gate = Gate::new(budget.clone(), Duration::ZERO, &Registry::default(), 1);
    let limits = BodyLimits {
        max_bytes: MAX_BYTES,
        ..Default::default()
    };
    let mut pieces = Pieces {
        rest: Bytes::copy_from_slice(body),
        size: 1 + size as usize,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let result = runtime.block_on(async {
        if framed {
            return collect_framed(&mut pieces, coding, &mut gate.visit(), &limits).await;
        }
        // A length that lies is hyper's to refuse; none at all is ours to live with.
        let length = is_declared.then_some(body.len() as u64);
        receive(&mut pieces, length, coding, &mut gate.visit(), &limits).await
    });
    if let Ok(received) = result {
        assert!(received.body.len() as u64 <= MAX_BYTES);
        assert!(
            received.permit.bytes() >= received.body.len() as u64,
            "what is kept is charged"
        );
        assert!(keep_frame || received.compressed.is_none(), "nobody wants it");
        let frame = received.compressed.as_ref().map_or(0, |kept| kept.permit.bytes());
        assert_eq!(budget.usage().used, received.permit.bytes() + frame);
        if encoding == Encoding::Identity && !framed {
            assert_eq!(received.body, body);
        }
    }
    assert_eq!(budget.usage().used, 0);
});
