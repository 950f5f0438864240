//! What an OTLP receiver must do, statement by statement (S, G, H and J of the OTLP specification as
//! this project reads it), and what the documents below it say: RFC 9110, 9112 and 9113, gRPC over
//! HTTP/2, the JSON form of proto3.

#![allow(clippy::unwrap_used, reason = "tests")]

mod auth;
mod connections;
mod cors;
mod framing;
mod grpc;
mod health;
mod http;
mod http1;
mod json;
mod levels;
mod overload;
mod refused_while_sending;
mod server;
mod tenants;
mod tls;

use sluice_tests::{Config, Gateway, Reply, Sink};

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway in front of a sink that takes everything.
async fn pair() -> (Sink, Gateway) {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    (sink, gateway)
}

/// An answer that says why, as OTLP/HTTP wants it: a `Status` in the request's own encoding.
#[track_caller]
fn assert_refused(reply: &Reply, status: u16, code: i32, content_type: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), Some(content_type), "{reply:?}");
    let rpc = reply.rpc_status();
    assert_eq!(rpc.code, code, "{rpc:?}");
    assert!(!rpc.message.is_empty(), "{rpc:?}");
}
