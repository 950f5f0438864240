//! Which components there are, and what to use in the place of those that are not here.

use sluice_payload::Signal;

/// The sections components stand in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `receivers`.
    Receiver,
    /// `processors`.
    Processor,
    /// `exporters`.
    Exporter,
    /// `extensions`.
    Extension,
    /// `connectors`: none are here yet.
    Connector,
}

impl Kind {
    /// All of them, in the order of the data's way.
    pub const ALL: [Kind; 5] = [
        Kind::Receiver,
        Kind::Processor,
        Kind::Exporter,
        Kind::Connector,
        Kind::Extension,
    ];

    /// The word for one: `receiver`.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Exporter => "exporter",
            Kind::Extension => "extension",
            Kind::Connector => "connector",
        }
    }

    /// The name of the section: `receivers`.
    pub fn section(self) -> &'static str {
        match self {
            Kind::Receiver => "receivers",
            Kind::Processor => "processors",
            Kind::Exporter => "exporters",
            Kind::Extension => "extensions",
            Kind::Connector => "connectors",
        }
    }
}

/// How far a component can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Complete and tested; keys will not change their meaning.
    Stable,
    /// Read so that Collector files run, mapped to something of ours or to nothing.
    Understood,
}

impl Stability {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Stability::Stable => "stable",
            Stability::Understood => "understood",
        }
    }
}

/// One component, as the `components` command lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComponentInfo {
    /// Its section.
    pub kind: Kind,
    /// Its type.
    pub name: &'static str,
    /// Other names of the same type.
    pub aliases: &'static [&'static str],
    /// How far it can be relied on.
    pub stability: Stability,
    /// The signals it handles; none for extensions.
    pub signals: &'static [Signal],
    /// What it does, in a sentence.
    pub summary: &'static str,
}

const ALL_SIGNALS: &[Signal] = &[Signal::Traces, Signal::Metrics, Signal::Logs, Signal::Profiles];

const fn component(
    kind: Kind,
    name: &'static str,
    aliases: &'static [&'static str],
    stability: Stability,
    summary: &'static str,
) -> ComponentInfo {
    let signals: &'static [Signal] = if matches!(kind, Kind::Extension) {
        &[]
    } else {
        ALL_SIGNALS
    };
    ComponentInfo {
        kind,
        name,
        aliases,
        stability,
        signals,
        summary,
    }
}

const COMPONENTS: &[ComponentInfo] = &[
    component(
        Kind::Receiver,
        "otlp",
        &[],
        Stability::Stable,
        "OTLP over gRPC and HTTP, protobuf and JSON.",
    ),
    #[cfg(feature = "remote-write")]
    ComponentInfo {
        signals: &[Signal::Metrics],
        ..component(
            Kind::Receiver,
            "prometheusremotewrite",
            &["prometheus_remote_write"],
            Stability::Stable,
            "Prometheus remote write 1.0 and 2.0, straight through or as OTLP metrics.",
        )
    },
    component(Kind::Receiver, "nop", &[], Stability::Stable, "Receives nothing."),
    component(
        Kind::Processor,
        "batch",
        &[],
        Stability::Understood,
        "Sets how the exporters of its pipelines batch, unless they have sending_queue.batch.",
    ),
    component(
        Kind::Processor,
        "memory_limiter",
        &[],
        Stability::Understood,
        "Sets the memory budget of the process, which is enforced before a request is read.",
    ),
    component(
        Kind::Exporter,
        "otlp",
        &["otlp_grpc"],
        Stability::Stable,
        "OTLP over gRPC.",
    ),
    component(
        Kind::Exporter,
        "otlphttp",
        &["otlp_http"],
        Stability::Stable,
        "OTLP over HTTP, protobuf or JSON.",
    ),
    component(
        Kind::Exporter,
        "loadbalancing",
        &["load_balancing"],
        Stability::Understood,
        "OTLP over gRPC to several endpoints, each with its own keys: otlp with balance: consistent_hash.",
    ),
    component(
        Kind::Exporter,
        "file",
        &[],
        Stability::Stable,
        "OTLP JSON lines or length-delimited protobuf, with rotation.",
    ),
    component(
        Kind::Exporter,
        "debug",
        &["logging"],
        Stability::Stable,
        "Summaries of what passes, for people.",
    ),
    #[cfg(feature = "remote-write")]
    ComponentInfo {
        signals: &[Signal::Metrics],
        ..component(
            Kind::Exporter,
            "prometheusremotewrite",
            &["prometheus_remote_write"],
            Stability::Stable,
            "Prometheus remote write 1.0 (snappy, or zstd) and 2.0, from OTLP metrics or straight through.",
        )
    },
    #[cfg(feature = "parquet")]
    ComponentInfo {
        signals: &[Signal::Traces, Signal::Metrics, Signal::Logs],
        ..component(
            Kind::Exporter,
            "parquet",
            &[],
            Stability::Stable,
            "Parquet tables in a directory, on S3, Google Cloud Storage or Azure, each row exactly once.",
        )
    },
    component(
        Kind::Exporter,
        "nop",
        &[],
        Stability::Stable,
        "Drops everything, on purpose.",
    ),
    component(
        Kind::Extension,
        "health_check",
        &[],
        Stability::Stable,
        "Answers whether the gateway is up.",
    ),
    component(
        Kind::Extension,
        "zpages",
        &[],
        Stability::Stable,
        "Pages about the running gateway, for people.",
    ),
    component(
        Kind::Extension,
        "basicauth",
        &[],
        Stability::Stable,
        "User and password, for receivers or for exporters.",
    ),
    component(
        Kind::Extension,
        "bearertokenauth",
        &[],
        Stability::Stable,
        "A bearer token, for receivers and for exporters.",
    ),
    component(
        Kind::Extension,
        "sigv4auth",
        &[],
        Stability::Stable,
        "Signs requests for AWS: remote write to Amazon's Prometheus.",
    ),
    component(
        Kind::Extension,
        "file_storage",
        &[],
        Stability::Stable,
        "Keeps queues on disk: sending_queue.storage names it.",
    ),
    component(
        Kind::Extension,
        "pprof",
        &[],
        Stability::Understood,
        "Read; it profiles Go programs.",
    ),
    component(
        Kind::Extension,
        "memory_ballast",
        &[],
        Stability::Understood,
        "Passed over; it was for Go's garbage collector.",
    ),
];

/// Every component there is, for the `components` command.
pub fn components() -> &'static [ComponentInfo] {
    COMPONENTS
}

/// The component of this type, by name or alias.
pub(super) fn find(kind: Kind, name: &str) -> Option<&'static ComponentInfo> {
    COMPONENTS
        .iter()
        .find(|info| info.kind == kind && (info.name == name || info.aliases.contains(&name)))
}

/// The names and aliases of a section's types.
pub(super) fn names(kind: Kind) -> impl Iterator<Item = &'static str> {
    COMPONENTS
        .iter()
        .filter(move |info| info.kind == kind)
        .flat_map(|info| std::iter::once(info.name).chain(info.aliases.iter().copied()))
}

/// What to use in the place of a Collector component that is not here.
///
/// Names are compared without `_`: the Collector renames `filelog` to `file_log`, and the like (contrib issue 45339).
pub(super) fn advice(kind: Kind, name: &str) -> Option<&'static str> {
    const LATER: &str = "it comes in a later release; until then run a Collector in front of sluice for it";
    const BEHIND: &str = "send OTLP to a Collector that has it, with the otlp exporter";
    const SOURCE: &str = "receive it with a Collector agent that sends OTLP to sluice";
    let name = name.replace('_', "");
    Some(match (kind, name.as_str()) {
        (Kind::Receiver, "jaeger" | "zipkin" | "opencensus" | "skywalking" | "datadog") => {
            "let the clients send OTLP (Jaeger and Zipkin SDKs have given way to it), or put a Collector agent in front"
        }
        (Kind::Receiver, "prometheus" | "prometheussimple") => {
            "scrape with Prometheus or a Collector agent; if it only scraped the Collector's own :8888, remove it, \
             sluice serves its metrics at service.telemetry.metrics"
        }
        (Kind::Receiver, "prometheusremotewrite") => {
            "this sluice was built without it; build it with the feature remote-write"
        }
        (
            Kind::Receiver,
            "hostmetrics" | "filelog" | "kubeletstats" | "k8scluster" | "k8sevents" | "k8sobjects"
            | "dockerstats" | "journald" | "syslog" | "statsd" | "fluentforward" | "tcplog" | "udplog"
            | "kafka" | "redis" | "postgresql" | "mysql" | "nginx" | "carbon" | "collectd" | "influxdb"
            | "splunkhec" | "awsxray" | "loki" | "receivercreator" | "windowseventlog" | "httpcheck"
            | "sqlquery" | "googlecloudpubsub" | "webhookevent" | "rabbitmq" | "mongodb" | "elasticsearch",
        )
        | (Kind::Receiver, "awsecscontainermetrics" | "awscontainerinsightreceiver") => SOURCE,
        (Kind::Processor, "attributes" | "resource" | "filter" | "probabilisticsampler") => LATER,
        (
            Kind::Processor,
            "transform" | "resourcedetection" | "k8sattributes" | "tailsampling" | "groupbyattrs"
            | "groupbytrace" | "metricstransform" | "metricsgeneration" | "cumulativetodelta" | "deltatorate"
            | "span" | "redaction" | "routing" | "servicegraph" | "spanmetrics" | "interval"
            | "logstransform" | "schema" | "remotetap",
        ) => "run it in a Collector agent in front of sluice, and remove it from this pipeline",
        (Kind::Processor, "memoryballast" | "queuedretry") => {
            "remove it: it is obsolete, and needs no replacement"
        }
        (Kind::Exporter, "prometheusremotewrite") => {
            "this sluice was built without it; build it with the feature remote-write"
        }
        (Kind::Exporter, "awss3") => {
            "use the parquet exporter, which has the same s3uploader keys and writes tables instead of OTLP"
        }
        (Kind::Exporter, "googlecloudstorage") => {
            "use the parquet exporter, whose gcs has the keys of bucket; it writes tables instead of OTLP"
        }
        (Kind::Exporter, "azureblob") => {
            "use the parquet exporter, whose azure has the same url and auth; it writes tables instead of OTLP"
        }
        (Kind::Exporter, "parquet") => "this sluice was built without it; build it with the feature parquet",
        (Kind::Exporter, "jaeger" | "jaegerthrift") => {
            "Jaeger reads OTLP: use the otlp exporter with Jaeger's port 4317"
        }
        (Kind::Exporter, "loki") => "Loki reads OTLP: use otlphttp with endpoint http://loki:3100/otlp",
        (Kind::Exporter, "prometheus") => {
            "Prometheus reads OTLP: use otlphttp with endpoint http://prometheus:9090/api/v1/otlp \
             (start it with --web.enable-otlp-receiver)"
        }
        (Kind::Exporter, "zipkin") => "use the otlp exporter; Zipkin's successors read OTLP",
        (Kind::Exporter, "elasticsearch") => {
            "Elastic reads OTLP: use the otlphttp exporter with the address of its OTLP intake"
        }
        (Kind::Exporter, "datadog") => {
            "Datadog reads OTLP: use the otlphttp exporter with its OTLP intake endpoint"
        }
        (
            Kind::Exporter,
            "coralogix" | "logzio" | "honeycombmarker" | "sumologic" | "dynatrace" | "signalfx" | "sapm",
        ) => "use the otlp or otlphttp exporter with the vendor's OTLP endpoint",
        (
            Kind::Exporter,
            "kafka" | "googlecloud" | "googlecloudpubsub" | "awsemf" | "awsxray" | "awscloudwatchlogs"
            | "azuremonitor" | "clickhouse" | "opensearch" | "splunkhec" | "pulsar" | "opencensus"
            | "influxdb" | "mezmo" | "syslog",
        ) => BEHIND,
        (Kind::Extension, "memorylimiter") => {
            "use the memory_limiter processor: the budget is enforced before requests are read"
        }
        (Kind::Extension, "healthcheckv2") => "use health_check",
        (Kind::Extension, "headerssetter") => {
            "it comes in a later release; fixed headers can be set with `headers` of the exporter"
        }
        (Kind::Extension, "dbstorage" | "redisstorage") => {
            "use file_storage: sending_queue.storage keeps a queue on disk"
        }
        (Kind::Extension, "oauth2client" | "oidc" | "googleclientauth" | "azureauth" | "asapclient") => {
            "basicauth, bearertokenauth and sigv4auth are here; for others put a proxy that signs requests in between"
        }
        (
            Kind::Extension,
            "opamp" | "jaegerremotesampling" | "k8sobserver" | "hostobserver" | "dockerobserver",
        ) => "remove it: it has no counterpart here",
        (Kind::Connector, _) => {
            "connectors are not here yet; keep this part in a Collector in front of or behind sluice"
        }
        _ => return None,
    })
}
