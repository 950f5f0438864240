//! What every black-box test shares: the gateway as a child process, sinks that decode, clients,
//! payloads, and a comparison of decoded trees.
//!
//! Nothing here sleeps to wait for something: every wait is for an event and has a deadline that a
//! loaded machine keeps ([`DEADLINE`]).

#![allow(
    clippy::unwrap_used,
    reason = "a failure in the harness is a failure of the test"
)]

mod certificates;
mod cgroup;
mod config;
mod gateway;
mod grpc;
mod http;
mod payloads;
mod python;
mod raw;
mod sink;
mod skip;
mod tree;
mod volume;
mod wait;

pub use certificates::{Authority, Identity, client_tls};
pub use cgroup::Cgroup;
pub use config::Config;
pub use gateway::{Account, Exit, Gateway, Metrics};
pub use grpc::{GrpcConnection, GrpcReply, code, frame, grpc_call};
pub use http::{HttpConnection, Reply, RpcStatus, post, request};
pub use payloads::{
    deflated, every_value, gzipped, lz4, profile, sample, snappy_block, snappy_framed, zlib, zstd,
};
pub use python::{PythonServer, python, run, script};
pub use raw::{RawHttp, RawReply};
pub use sink::{Answer, Arrived, Kind, Sink};
pub use skip::skipped;
pub use tree::{Items, items_of};
pub use volume::Volume;
pub use wait::{DEADLINE, eventually, within};
