//! What a load is to do.

use std::time::Duration;

use sluice_loadgen::{LANES, Signal, Spec};

use super::schedule::Pace;

/// How requests travel. Remote write joins here when sluice speaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// OTLP/HTTP with protobuf bodies.
    Http,
    /// OTLP/HTTP with JSON bodies.
    Json,
    /// OTLP/gRPC.
    Grpc,
}

/// How request bodies are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// gzip at level 6, the default of the SDKs.
    Gzip,
    /// zstd at level 1.
    Zstd,
}

impl Encoding {
    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
        }
    }
}

/// Where bodies come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// Every request has ids of its own: every item is accounted for by id.
    Fresh,
    /// Each sender makes this many requests before the start and sends them in turn: for saturation with
    /// compressed bodies, which cost the generator more to make than a gateway to take. Items are accounted
    /// for by number.
    Repeated(u32),
}

/// A load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Host and port of the gateway.
    pub target: String,
    /// Path of requests over HTTP, where it is not OTLP's for the signal.
    pub path: Option<String>,
    /// How requests travel.
    pub protocol: Protocol,
    /// What is in them, for the first sender; see [`Plan::spec_of`].
    pub spec: Spec,
    /// How they are compressed.
    pub encoding: Encoding,
    /// Where bodies come from.
    pub bodies: Bodies,
    /// Connections. Over HTTP there are never more than senders.
    pub connections: u32,
    /// Senders (virtual users): requests under way at a time. Over HTTP each has its own connection.
    pub senders: u32,
    /// Who decides when a request is sent.
    pub pace: Pace,
    /// For how long requests are sent.
    pub duration: Duration,
    /// First id lane; sender n takes lane + n.
    pub lane: u32,
    /// Control address of the sink that is to be told what was sent.
    pub account: Option<String>,
}

impl Default for Plan {
    /// The comparison's load: 100,000 gauge points/s in requests of 500 over 8 connections for 10 s.
    fn default() -> Self {
        Plan {
            target: "127.0.0.1:4318".into(),
            path: None,
            protocol: Protocol::Http,
            spec: Spec::gateway(Signal::Metrics),
            encoding: Encoding::Identity,
            bodies: Bodies::Fresh,
            connections: 8,
            senders: 8,
            pace: Pace::Open {
                items_per_second: 100_000,
            },
            duration: Duration::from_secs(10),
            lane: 0,
            account: None,
        }
    }
}

impl Plan {
    /// What sender number `sender` sends: its own lane of ids, and its own seed, since requests that only
    /// differ in ids would compress too well when batched. Live series are shared out among the senders.
    pub fn spec_of(&self, sender: u32) -> Spec {
        let mut spec = self.spec.clone();
        let senders = u64::from(self.senders.max(1));
        spec.series = spec.series.div_ceil(senders);
        let lane = (self.lane + sender) % LANES;
        spec.lane(lane).seed(1 + u64::from(lane))
    }
}
