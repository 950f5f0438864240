//! What a load is to do.

use std::time::Duration;

use sluice_loadgen::{Generator, LANES, RemoteWrite, Signal, Spec};

use super::schedule::Pace;

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// OTLP/HTTP with protobuf bodies.
    Http,
    /// OTLP/HTTP with JSON bodies.
    Json,
    /// OTLP/gRPC.
    Grpc,
    /// Prometheus remote write 1.0: metrics only, snappy or zstd.
    RemoteWrite,
    /// Prometheus remote write 2.0: the same in its newer message.
    #[value(name = "remote-write-2")]
    RemoteWrite2,
}

impl Protocol {
    /// The version of remote write that it is, if it is one.
    pub fn remote_write(self) -> Option<RemoteWrite> {
        match self {
            Protocol::RemoteWrite => Some(RemoteWrite::V1),
            Protocol::RemoteWrite2 => Some(RemoteWrite::V2),
            Protocol::Http | Protocol::Json | Protocol::Grpc => None,
        }
    }

    /// How bodies are compressed where nothing else is said.
    pub fn default_encoding(self) -> Encoding {
        match self.remote_write() {
            Some(_) => Encoding::Snappy,
            None => Encoding::Identity,
        }
    }
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
    /// A snappy block: remote write only, as OTLP's receivers do not agree on what snappy is.
    Snappy,
}

impl Encoding {
    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
            Encoding::Snappy => "snappy",
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
    /// Path of requests over HTTP, where it is not OTLP's for the signal, or /api/v1/write.
    pub path: Option<String>,
    /// Headers beside those of the protocol, such as a tenant's.
    pub headers: Vec<(String, String)>,
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
            headers: Vec::new(),
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
    /// Whether the parts fit together; an error says which do not.
    pub fn check(&self) -> Result<(), String> {
        let encoding = self.encoding;
        match (self.protocol.remote_write(), encoding) {
            (Some(_), _) if self.spec.signal != Signal::Metrics => Err(format!(
                "remote write cannot carry {}: use metrics",
                self.spec.signal
            )),
            (Some(_), Encoding::Identity | Encoding::Gzip) => Err(format!(
                "remote write has no encoding {}: use snappy or zstd",
                encoding.name()
            )),
            (None, Encoding::Snappy) => {
                Err("snappy is for remote write: use identity, gzip or zstd".to_string())
            }
            _ => Ok(()),
        }
    }

    /// Makes what sender number `sender` sends.
    pub(crate) fn generator(&self, sender: u32) -> Generator {
        let spec = self.spec_of(sender);
        match self.protocol.remote_write() {
            Some(version) => Generator::remote_write(spec, version),
            None => Generator::new(spec),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: every protocol with every encoding, and remote write of logs.
    /// Guarantees: what a protocol does by default is allowed; remote write takes snappy and zstd and metrics,
    /// and nothing else does snappy.
    #[test]
    fn remote_write_has_its_own_encodings() {
        let check = |protocol: Protocol, encoding, signal| {
            let plan = Plan {
                protocol,
                encoding,
                spec: Spec::gateway(signal),
                ..Plan::default()
            };
            plan.check()
        };
        for protocol in [Protocol::Http, Protocol::Json, Protocol::Grpc] {
            assert_eq!(check(protocol, protocol.default_encoding(), Signal::Logs), Ok(()));
            assert!(check(protocol, Encoding::Snappy, Signal::Metrics).is_err());
        }
        for protocol in [Protocol::RemoteWrite, Protocol::RemoteWrite2] {
            assert_eq!(
                check(protocol, protocol.default_encoding(), Signal::Metrics),
                Ok(())
            );
            assert_eq!(check(protocol, Encoding::Zstd, Signal::Metrics), Ok(()));
            assert!(check(protocol, Encoding::Gzip, Signal::Metrics).is_err());
            let error = check(protocol, Encoding::Snappy, Signal::Logs).unwrap_err();
            assert!(error.contains("logs"), "{error}");
        }
    }
}
