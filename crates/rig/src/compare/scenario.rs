//! What is measured.

use serde::{Deserialize, Serialize};
use sluice_loadgen::{Signal, Spec};

use crate::load::{Encoding, Protocol};

/// The rate of the fixed mode where a scenario names no other: points, and spans or records, per second.
const POINTS_PER_SECOND: u64 = 100_000;
const RECORDS_PER_SECOND: u64 = 50_000;

/// What a gateway sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// OTLP, as it was received.
    Otlp,
    /// Prometheus remote write.
    RemoteWrite,
}

/// A kind of work that every gateway is given in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) signal: Signal,
    /// In; out as well where OTLP is sent.
    pub(crate) protocol: Protocol,
    pub(crate) output: Output,
    /// Of the requests.
    pub(crate) encoding: Encoding,
    /// Of what the gateway sends; names its configuration.
    pub(crate) compression: &'static str,
    /// Requests are answered when they are in a queue on disk; the configuration's name says so as well.
    pub(crate) on_disk: bool,
    /// What of a compressed request goes on as it came, if anything: `frames` of zstd, `members` of gzip. The
    /// configuration's name says so as well.
    pub(crate) passes: Option<&'static str>,
    /// Items per second of the fixed mode.
    pub(crate) rate: u64,
    pub(crate) connections: u32,
    /// Items in each request; 0 is what [`Spec::gateway`] has.
    pub(crate) items: u32,
    /// Series live at a time; 0 leaves them to chance.
    pub(crate) series: u64,
    /// Every point draws its own time and attributes ([`Spec::varied`]).
    pub(crate) varied: bool,
}

const METRICS: Scenario = Scenario {
    name: "metrics-none",
    about: "Gauge points over HTTP, no compression in or out",
    signal: Signal::Metrics,
    protocol: Protocol::Http,
    output: Output::Otlp,
    encoding: Encoding::Identity,
    compression: "none",
    on_disk: false,
    passes: None,
    rate: POINTS_PER_SECOND,
    connections: 8,
    items: 0,
    series: 0,
    varied: false,
};
const METRICS_ZSTD: Scenario = Scenario {
    name: "metrics-zstd",
    about: "Gauge points over HTTP, zstd out",
    compression: "zstd",
    ..METRICS
};
const METRICS_REMOTE_WRITE: Scenario = Scenario {
    name: "metrics-remote-write",
    about: "Gauge points over HTTP, Prometheus remote write out with snappy",
    output: Output::RemoteWrite,
    compression: "snappy",
    ..METRICS
};
const TRACES: Scenario = Scenario {
    name: "traces-none",
    about: "Spans over HTTP, no compression in or out",
    signal: Signal::Traces,
    rate: RECORDS_PER_SECOND,
    ..METRICS
};
const LOGS: Scenario = Scenario {
    name: "logs-none",
    about: "Log records over HTTP, no compression in or out",
    signal: Signal::Logs,
    rate: RECORDS_PER_SECOND,
    ..METRICS
};

/// Every scenario. The first ones are the comparison, those named sweep-… vary one thing of the first.
pub(crate) const SCENARIOS: &[Scenario] = &[
    METRICS,
    METRICS_ZSTD,
    Scenario {
        name: "metrics-zstd-disk",
        about: "Gauge points over HTTP, answered when they are in a queue on disk, zstd out",
        on_disk: true,
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-zstd-varied",
        about: "Gauge points that each have a time and attributes of their own, over HTTP, zstd out",
        varied: true,
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-gzip-in",
        about: "Gauge points over HTTP, gzip in, zstd out",
        encoding: Encoding::Gzip,
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-zstd-in",
        about: "Gauge points over HTTP, zstd in and out",
        encoding: Encoding::Zstd,
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-zstd-frames",
        about: "Gauge points over HTTP, zstd in and out, frames passed through by who can",
        encoding: Encoding::Zstd,
        passes: Some("frames"),
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-gzip-members",
        about: "Gauge points over HTTP, gzip in and out, members passed through; zstd out by who cannot",
        encoding: Encoding::Gzip,
        compression: "gzip",
        passes: Some("members"),
        ..METRICS
    },
    Scenario {
        name: "metrics-json-in",
        about: "Gauge points over HTTP, JSON in, protobuf and zstd out",
        protocol: Protocol::Json,
        ..METRICS_ZSTD
    },
    Scenario {
        name: "metrics-grpc",
        about: "Gauge points over gRPC in and out, 16 calls at a time, zstd out",
        protocol: Protocol::Grpc,
        ..METRICS_ZSTD
    },
    METRICS_REMOTE_WRITE,
    Scenario {
        name: "metrics-remote-write-zstd",
        about: "Gauge points over HTTP, Prometheus remote write out with zstd, as VictoriaMetrics takes it",
        compression: "zstd",
        ..METRICS_REMOTE_WRITE
    },
    Scenario {
        name: "remote-write-through",
        about: "Prometheus remote write 1.0 in and out, snappy in and out",
        protocol: Protocol::RemoteWrite,
        encoding: Encoding::Snappy,
        ..METRICS_REMOTE_WRITE
    },
    Scenario {
        name: "remote-write-2-through",
        about: "Prometheus remote write 2.0 in, 1.0 out, snappy in and out",
        protocol: Protocol::RemoteWrite2,
        encoding: Encoding::Snappy,
        ..METRICS_REMOTE_WRITE
    },
    TRACES,
    Scenario {
        name: "traces-zstd",
        about: "Spans over HTTP, zstd out",
        compression: "zstd",
        ..TRACES
    },
    LOGS,
    Scenario {
        name: "logs-zstd",
        about: "Log records over HTTP, zstd out",
        compression: "zstd",
        ..LOGS
    },
    Scenario {
        name: "sweep-1-point",
        about: "Requests of a single gauge point, 5,000 a second, no compression",
        rate: 5_000,
        items: 1,
        ..METRICS
    },
    Scenario {
        name: "sweep-10-points",
        about: "Requests of 10 gauge points, no compression",
        rate: 50_000,
        items: 10,
        ..METRICS
    },
    Scenario {
        name: "sweep-100-points",
        about: "Requests of 100 gauge points, no compression",
        items: 100,
        ..METRICS
    },
    Scenario {
        name: "sweep-10000-points",
        about: "Requests of 10,000 gauge points, no compression",
        items: 10_000,
        ..METRICS
    },
    Scenario {
        name: "sweep-15k",
        about: "15,000 gauge points a second, no compression",
        rate: 15_000,
        ..METRICS
    },
    Scenario {
        name: "sweep-1M",
        about: "1,000,000 gauge points a second, no compression",
        rate: 1_000_000,
        ..METRICS
    },
    Scenario {
        name: "sweep-1000-connections",
        about: "Gauge points over 1,000 connections, no compression",
        connections: 1000,
        ..METRICS
    },
    Scenario {
        name: "sweep-25k-series",
        about: "Gauge points of 25,000 series, no compression",
        series: 25_000,
        ..METRICS
    },
    Scenario {
        name: "sweep-1M-series",
        about: "Gauge points of 1,000,000 series, no compression",
        series: 1_000_000,
        ..METRICS
    },
    Scenario {
        name: "sweep-remote-write-1k-series",
        about: "Gauge points of 1,000 series, remote write out with snappy",
        series: 1_000,
        ..METRICS_REMOTE_WRITE
    },
    Scenario {
        name: "sweep-remote-write-10k-series",
        about: "Gauge points of 10,000 series, remote write out with snappy",
        series: 10_000,
        ..METRICS_REMOTE_WRITE
    },
    Scenario {
        name: "sweep-remote-write-100k-series",
        about: "Gauge points of 100,000 series, remote write out with snappy",
        series: 100_000,
        ..METRICS_REMOTE_WRITE
    },
];

/// What is run when nothing is chosen.
pub(crate) const DEFAULT: &[&str] = &["metrics-none", "metrics-zstd"];

impl Scenario {
    /// The named scenarios; `all` is the comparison, `sweep` what varies it.
    pub(crate) fn choose(names: &[String]) -> Result<Vec<Scenario>, String> {
        let mut chosen = Vec::new();
        for name in names {
            let before = chosen.len();
            let wanted = |scenario: &&Scenario| match name.as_str() {
                "all" => !scenario.name.starts_with("sweep-"),
                "sweep" => scenario.name.starts_with("sweep-"),
                name => scenario.name == name,
            };
            chosen.extend(SCENARIOS.iter().filter(wanted).cloned());
            if chosen.len() == before {
                return Err(format!(
                    "unknown scenario {name:?}: sluice-rig compare --list shows them"
                ));
            }
        }
        Ok(chosen)
    }

    pub(crate) fn items_per_request(&self) -> u32 {
        match self.items {
            0 => Spec::gateway(self.signal).items_per_request,
            items => items,
        }
    }

    /// What names the gateways' configuration.
    fn transport(&self) -> &'static str {
        match self.protocol {
            Protocol::Http | Protocol::Json => "http",
            Protocol::Grpc => "grpc",
            Protocol::RemoteWrite => "remote-write",
            Protocol::RemoteWrite2 => "remote-write-2",
        }
    }

    /// What the gateways' configuration for it is called: how they send, with which compression, where the
    /// queue is, if not in memory, and what is passed through. A gateway that has none of the first name passes
    /// nothing through, and is configured as for zstd.
    pub(crate) fn configurations(&self) -> Vec<String> {
        let out = match self.output {
            Output::Otlp => self.transport(),
            Output::RemoteWrite if self.protocol.remote_write().is_some() => "through",
            Output::RemoteWrite => "remote-write",
        };
        let queue = if self.on_disk { "-disk" } else { "" };
        match self.passes {
            None => vec![format!("{out}-{}{queue}", self.compression)],
            Some(passes) => vec![
                format!("{out}-{}-{passes}", self.compression),
                format!("{out}-zstd"),
            ],
        }
    }

    /// What an item is called.
    pub(crate) fn item_name(&self) -> &'static str {
        match self.signal {
            Signal::Metrics => "points",
            Signal::Logs => "log records",
            Signal::Traces => "spans",
        }
    }
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// At the scenario's rate on two cores; every item is told apart and checked.
    Fixed,
    /// The gateway alone on one core, requests as fast as they are answered.
    Saturated,
    /// The same with the gateway on two cores.
    Scaling,
    /// Started, and left alone.
    Idle,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Fixed => "fixed",
            Mode::Saturated => "saturated",
            Mode::Scaling => "scaling",
            Mode::Idle => "idle",
        }
    }
}

/// Which cores the gateway, and which the generator and the sink run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) gateway: Vec<usize>,
    pub(crate) load: Vec<usize>,
}

impl Placement {
    /// `cores` are all that may be used, at least two.
    pub(crate) fn of(mode: Mode, cores: &[usize]) -> Placement {
        let gateway = if mode == Mode::Saturated { 1 } else { 2 };
        let (gateway, rest) = cores.split_at(gateway.min(cores.len()));
        // With too few cores everything shares them.
        let load = if rest.is_empty() { gateway } else { rest };
        Placement {
            gateway: gateway.to_vec(),
            load: load.to_vec(),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.load.iter().any(|core| self.gateway.contains(core))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Scenario: scenarios are chosen by name, by group, and by a name that is none.
    /// Guarantees: names are unique; groups do not overlap and miss none; the error names what was asked for.
    #[test]
    fn scenarios_are_chosen() {
        let names: BTreeSet<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        let choose =
            |names: &[&str]| Scenario::choose(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        assert_eq!(choose(&["all", "sweep"]).unwrap().len(), SCENARIOS.len());
        assert_eq!(choose(DEFAULT).unwrap().len(), DEFAULT.len());
        assert!(choose(&["metrics"]).unwrap_err().contains("\"metrics\""));
    }

    /// Scenario: machines with two, four and eight cores.
    /// Guarantees: a saturated gateway is alone on its core; two-core modes share only where there is no
    /// other core.
    #[test]
    fn cores_are_shared_out() {
        let saturated = Placement::of(Mode::Saturated, &[0, 1]);
        assert_eq!(
            (saturated.gateway.as_slice(), saturated.load.as_slice()),
            ([0].as_slice(), [1].as_slice())
        );
        assert!(!saturated.is_shared());
        assert!(Placement::of(Mode::Fixed, &[0, 1]).is_shared());
        let four = Placement::of(Mode::Scaling, &[0, 1, 4, 5]);
        assert_eq!(
            (four.gateway.as_slice(), four.load.as_slice()),
            ([0, 1].as_slice(), [4, 5].as_slice())
        );
    }
}
