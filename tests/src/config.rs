//! Configurations in the Collector's form, on free ports.

use std::fmt::Write;

use crate::Sink;

/// A configuration: one `otlp` receiver on free ports, pipelines of all four signals into all
/// exporters. Each setting is the inside of a YAML flow mapping: `endpoint: x, timeout: 1s`.
#[derive(Debug, Clone, Default)]
pub struct Config {
    receiver: String,
    grpc: String,
    http: String,
    metrics_receivers: Vec<(String, String)>,
    processors: Vec<(String, String)>,
    exporters: Vec<(String, String)>,
    extensions: Vec<(String, String)>,
    signals: Option<Vec<&'static str>>,
    admission: String,
    text: Option<String>,
}

/// Batches leave at once: tests wait for arrivals, not for timers.
const AT_ONCE: &str = "sending_queue: {batch: {flush_timeout: 5ms, min_size: 1}}";

/// The first retry comes soon, and later ones too.
const SOON: &str = "retry_on_failure: {initial_interval: 50ms, max_interval: 500ms}";

impl Config {
    /// Without exporters.
    pub fn new() -> Self {
        Self::default()
    }

    /// This text, whatever else is asked for.
    pub fn of_text(text: String) -> Self {
        Self {
            text: Some(text),
            ..Self::default()
        }
    }

    /// Everything to `sink` over OTLP/HTTP, at once.
    pub fn to(sink: &Sink) -> Self {
        Self::new().http_exporter("sink", sink, "")
    }

    /// An OTLP/HTTP exporter `otlphttp/NAME` to `sink`, without delay; `more` are further settings.
    pub fn http_exporter(self, name: &str, sink: &Sink, more: &str) -> Self {
        let endpoint = format!("endpoint: http://{}", sink.address());
        self.exporter(
            &format!("otlphttp/{name}"),
            &join(&[&endpoint, &defaults(more), more]),
        )
    }

    /// An OTLP/gRPC exporter `otlp/NAME` to `sink`, without delay; `more` are further settings.
    pub fn grpc_exporter(self, name: &str, sink: &Sink, more: &str) -> Self {
        let endpoint = format!("endpoint: http://{}, tls: {{insecure: true}}", sink.address());
        self.exporter(
            &format!("otlp/{name}"),
            &join(&[&endpoint, &defaults(more), more]),
        )
    }

    /// Any exporter.
    pub fn exporter(mut self, id: &str, settings: &str) -> Self {
        self.exporters.push((id.to_owned(), settings.to_owned()));
        self
    }

    /// Settings beside `protocols` of the receiver.
    pub fn receiver(mut self, settings: &str) -> Self {
        self.receiver = settings.to_owned();
        self
    }

    /// A receiver beside `otlp`, of the metrics pipeline.
    pub fn metrics_receiver(mut self, id: &str, settings: &str) -> Self {
        self.metrics_receivers.push((id.to_owned(), settings.to_owned()));
        self
    }

    /// Settings of the gRPC listener.
    pub fn grpc(mut self, settings: &str) -> Self {
        self.grpc = settings.to_owned();
        self
    }

    /// Settings of the HTTP listener.
    pub fn http(mut self, settings: &str) -> Self {
        self.http = settings.to_owned();
        self
    }

    /// A processor of every pipeline.
    pub fn processor(mut self, id: &str, settings: &str) -> Self {
        self.processors.push((id.to_owned(), settings.to_owned()));
        self
    }

    /// An extension.
    pub fn extension(mut self, id: &str, settings: &str) -> Self {
        self.extensions.push((id.to_owned(), settings.to_owned()));
        self
    }

    /// Settings of `service.admission`.
    pub fn admission(mut self, settings: &str) -> Self {
        self.admission = settings.to_owned();
        self
    }

    /// Pipelines of these signals only.
    pub fn signals(mut self, signals: &[&'static str]) -> Self {
        self.signals = Some(signals.to_vec());
        self
    }

    /// The configuration file.
    pub fn yaml(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let mut text = String::new();
        let grpc = join(&["endpoint: \"127.0.0.1:0\"", &self.grpc]);
        let http = join(&["endpoint: \"127.0.0.1:0\"", &self.http]);
        let receiver = join(&[
            &format!("protocols: {{grpc: {{{grpc}}}, http: {{{http}}}}}"),
            &self.receiver,
        ]);
        let _ = writeln!(text, "receivers:\n  otlp: {{{receiver}}}");
        for (id, settings) in &self.metrics_receivers {
            let _ = writeln!(text, "  {id}: {{{settings}}}");
        }
        let mut extensions = vec![("health_check".to_owned(), "endpoint: \"127.0.0.1:0\"".to_owned())];
        extensions.extend(self.extensions.iter().cloned());
        for (section, components) in [
            ("processors", &self.processors),
            ("exporters", &self.exporters),
            ("extensions", &extensions),
        ] {
            if !components.is_empty() {
                let _ = writeln!(text, "{section}:");
            }
            for (id, settings) in components {
                let _ = writeln!(text, "  {id}: {{{settings}}}");
            }
        }
        let ids = |components: &[(String, String)]| {
            components
                .iter()
                .map(|(id, _)| id.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let _ = writeln!(
            text,
            "service:\n  admission: {{{}}}\n  extensions: [{}]\n  telemetry:\n    metrics: {{readers: [{{pull: {{exporter: {{prometheus: \
             {{host: 127.0.0.1, port: 0}}}}}}}}]}}\n  pipelines:",
            self.admission,
            ids(&extensions)
        );
        let all = ["metrics", "logs", "traces", "profiles"];
        for signal in self.signals.as_deref().unwrap_or(&all) {
            let receivers = match *signal {
                "metrics" => &self.metrics_receivers[..],
                _ => &[],
            };
            let more = receivers.iter().map(|(id, _)| format!(", {id}"));
            let _ = writeln!(
                text,
                "    {signal}: {{receivers: [otlp{}], processors: [{}], exporters: [{}]}}",
                more.collect::<String>(),
                ids(&self.processors),
                ids(&self.exporters)
            );
        }
        text
    }
}

fn defaults(more: &str) -> String {
    let unless = |key: &str, text: &str| {
        if more.contains(key) {
            String::new()
        } else {
            text.to_owned()
        }
    };
    join(&[
        &unless("sending_queue", AT_ONCE),
        &unless("retry_on_failure", SOON),
    ])
}

fn join(parts: &[&str]) -> String {
    parts
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(", ")
}
