//! Length-prefixed messages that are not as they should be (PROTOCOL-HTTP2.md, compression.md,
//! statuscodes.md of gRPC).

use bytes::Bytes;
use sluice_tests::{GrpcConnection, GrpcReply, Kind, code, frame, gzipped, sample};

use crate::pair;

/// Codes that no OTLP client retries.
const FINAL: [u32; 3] = [code::INVALID_ARGUMENT, code::INTERNAL, code::UNIMPLEMENTED];

async fn call(connection: &mut GrpcConnection, headers: &[(&str, &str)], pieces: &[Bytes]) -> GrpcReply {
    let head = connection.head(Kind::Traces.grpc_path(), headers);
    sluice_tests::within("an answer", connection.send(head, pieces))
        .await
        .unwrap()
}

/// Scenario: the compressed flag set without `grpc-encoding`, and with `identity`.
/// Guarantees: INTERNAL, which compression.md demands, with a description that names the flag.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_flag_without_encoding_is_internal() {
    let (_sink, gateway) = pair().await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    for headers in [&[][..], &[("grpc-encoding", "identity")][..]] {
        let reply = call(
            &mut connection,
            headers,
            &[frame(1, &gzipped(&sample(Kind::Traces, 1)))],
        )
        .await;
        assert_eq!(reply.code(), code::INTERNAL, "{reply:?}");
        assert!(reply.message().contains("compressed"), "{reply:?}");
    }
    gateway.stop().await;
}

/// Scenario: no message at all, and two messages in a unary call.
/// Guarantees: UNIMPLEMENTED, the status of a cardinality violation (statuscodes.md); neither of the two
/// is taken.
#[tokio::test(flavor = "multi_thread")]
async fn not_exactly_one_message() {
    let (sink, gateway) = pair().await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let message = frame(0, &sample(Kind::Traces, 1));
    let two = [&message[..], &message[..]].concat();
    for pieces in [
        vec![],
        vec![Bytes::new()],
        vec![two.into()],
        vec![message.clone(), message.clone()],
    ] {
        let reply = call(&mut connection, &[], &pieces).await;
        assert_eq!(
            reply.code(),
            code::UNIMPLEMENTED,
            "{} pieces: {reply:?}",
            pieces.len()
        );
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: frames that end too early at every place, a frame that is longer than it says, flags that do
/// not exist, compressed messages that are not.
/// Guarantees: refused for good, with a reason; the connection and the server go on.
#[tokio::test(flavor = "multi_thread")]
async fn broken_frames() {
    let (sink, gateway) = pair().await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let body = sample(Kind::Traces, 1);
    let good = frame(0, &body);
    let gzip = gzipped(&body);
    let mut flipped = gzip.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    let encoded = [("grpc-encoding", "gzip")];
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: Vec<(&str, Headers<'_>, Bytes)> = vec![
        ("one byte", &[], good.slice(..1)),
        ("four bytes", &[], good.slice(..4)),
        ("only the prefix", &[], good.slice(..5)),
        ("all but the last byte", &[], good.slice(..good.len() - 1)),
        ("a byte too many", &[], [&good[..], &[0]].concat().into()),
        ("flag 2", &[], frame(2, &body)),
        ("flag 255", &encoded, frame(255, &gzip)),
        ("plain text as gzip", &encoded, frame(1, &body)),
        ("gzip cut short", &encoded, frame(1, &gzip[..gzip.len() - 9])),
        ("gzip with a flipped byte", &encoded, frame(1, &flipped)),
        ("gzip as zstd", &[("grpc-encoding", "zstd")], frame(1, &gzip)),
        ("gzip as snappy", &[("grpc-encoding", "snappy")], frame(1, &gzip)),
        (
            "gzip as deflate",
            &[("grpc-encoding", "deflate")],
            frame(1, &gzip),
        ),
    ];
    for (what, headers, bytes) in cases {
        let reply = call(&mut connection, headers, &[bytes]).await;
        assert!(FINAL.contains(&reply.code()), "{what}: {reply:?}");
        assert!(
            !reply.message().is_empty() && reply.retry_delay().is_none(),
            "{what}: {reply:?}"
        );
    }
    assert!(sink.taken().is_empty());
    assert_eq!(call(&mut connection, &[], &[good]).await.code(), code::OK);
    sink.wait_for_same(Kind::Traces, &[body]).await;
    gateway.stop().await;
}

/// Scenario: one message whose first 300 bytes come in DATA frames of one byte each, with a few empty
/// ones between them (many would be taken for an attack).
/// Guarantees: DATA frame boundaries mean nothing.
#[tokio::test(flavor = "multi_thread")]
async fn data_frames_of_any_size() {
    let (sink, gateway) = pair().await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let body = sample(Kind::Traces, 3);
    let message = frame(0, &body);
    let cut = 300.min(message.len());
    let mut pieces: Vec<Bytes> = (0..cut).map(|at| message.slice(at..at + 1)).collect();
    pieces.splice(3..3, [Bytes::new(), Bytes::new()]);
    pieces.push(message.slice(cut..));
    assert_eq!(call(&mut connection, &[], &pieces).await.code(), code::OK);
    sink.wait_for_same(Kind::Traces, &[body]).await;
    gateway.stop().await;
}

/// Scenario: a client resets its stream in the middle of a message, and one goes away with its
/// connection; then an honest call.
/// Guarantees: what was reserved for them is free again, the server serves on.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let (sink, gateway) = pair().await;
    for reset in [true, false] {
        let connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
        let head = connection.head(Kind::Traces.grpc_path(), &[]);
        let mut sender = connection.sender().ready().await.unwrap();
        let (response, mut body) = sender.send_request(head, false).unwrap();
        body.send_data([&[0, 0, 0x10, 0, 0][..], &[0; 1000]].concat().into(), false)
            .unwrap();
        sluice_tests::eventually("the message is under way", || async {
            (gateway.metrics().await.sum("sluice_memory_reserved_bytes", &[]) > 0.0).then_some(())
        })
        .await;
        if reset {
            body.send_reset(h2::Reason::CANCEL);
        }
        drop((response, body, sender, connection));
        sluice_tests::eventually("nothing is reserved", || async {
            (gateway.metrics().await.sum("sluice_memory_reserved_bytes", &[]) == 0.0).then_some(())
        })
        .await;
    }
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let body = sample(Kind::Traces, 4);
    assert_eq!(
        call(&mut connection, &[], &[frame(0, &body)]).await.code(),
        code::OK
    );
    sink.wait_for_same(Kind::Traces, &[body]).await;
    gateway.stop().await;
}
