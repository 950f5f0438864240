//! A small metrics registry: counters and gauges in atomics, sampled values by callback, written
//! in the Prometheus text format.
//!
//! Recorded in docs/decisions.md: a counter on the request path is one relaxed add on an atomic
//! its owner holds; everything else is read only when somebody scrapes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

/// A value that only grows. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One value read at scrape time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Metric name; a name that ends in `_total` is a counter, any other a gauge.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Label names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

type Collector = Box<dyn Fn(&mut Vec<Sample>) + Send + Sync>;

/// All metrics of one gateway. Cloning shares it.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    handles: Vec<(Sample, Handle)>,
    collectors: Vec<Collector>,
}

enum Handle {
    Counter(Counter),
    Gauge(Gauge),
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    /// Registers a counter; `name` must end in `_total`.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
    ) -> Counter {
        let counter = Counter::default();
        self.0.lock().handles.push((
            Sample {
                name,
                help,
                labels,
                value: 0.0,
            },
            Handle::Counter(counter.clone()),
        ));
        counter
    }

    /// Registers a gauge.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Vec<(&'static str, String)>,
    ) -> Gauge {
        let gauge = Gauge::default();
        self.0.lock().handles.push((
            Sample {
                name,
                help,
                labels,
                value: 0.0,
            },
            Handle::Gauge(gauge.clone()),
        ));
        gauge
    }

    /// Registers a callback that adds samples at scrape time.
    pub fn collect_with(&self, collector: impl Fn(&mut Vec<Sample>) + Send + Sync + 'static) {
        self.0.lock().collectors.push(Box::new(collector));
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut samples = Vec::new();
        {
            let inner = self.0.lock();
            for (sample, handle) in &inner.handles {
                let value = match handle {
                    Handle::Counter(c) => c.get() as f64,
                    Handle::Gauge(g) => g.get() as f64,
                };
                samples.push(Sample {
                    value,
                    ..sample.clone()
                });
            }
            for collector in &inner.collectors {
                collector(&mut samples);
            }
        }
        let mut families: BTreeMap<&'static str, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            families.entry(sample.name).or_default().push(sample);
        }
        let mut text = String::new();
        for (name, samples) in families {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name} {}", samples[0].help);
            let _ = writeln!(text, "# TYPE {name} {kind}");
            for sample in samples {
                text.push_str(name);
                for (i, (label, value)) in sample.labels.iter().enumerate() {
                    let _ = write!(
                        text,
                        "{}{label}=\"{}\"",
                        if i == 0 { '{' } else { ',' },
                        escape(value)
                    );
                }
                if !sample.labels.is_empty() {
                    text.push('}');
                }
                let _ = writeln!(text, " {}", sample.value);
            }
        }
        text
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a counter, a gauge and a collected sample with awkward label text.
    /// Guarantees: the text parses as Prometheus exposition: one HELP/TYPE a family, escaped labels.
    #[test]
    fn renders_prometheus_text() {
        let registry = Registry::default();
        registry.counter("a_total", "A.", vec![("x", "1".into())]).add(3);
        registry
            .counter("a_total", "A.", vec![("x", "2\"\n".into())])
            .add(4);
        registry.gauge("b", "B.", vec![]).set(-2);
        registry.collect_with(|out| {
            out.push(Sample {
                name: "c",
                help: "C.",
                labels: vec![],
                value: 0.5,
            })
        });
        assert_eq!(
            registry.render(),
            "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 3\na_total{x=\"2\\\"\\n\"} 4\n\
             # HELP b B.\n# TYPE b gauge\nb -2\n# HELP c C.\n# TYPE c gauge\nc 0.5\n"
        );
    }
}
