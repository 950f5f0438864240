//! `service.pipelines` and `service.extensions`: who uses what, and whether it is there.

mod authenticators;

use std::collections::HashSet;

use serde::Deserialize;
use sluice_config::{Node, Report, Span, Spanned, decode, nearest};
use sluice_memory::MemoryLimit;
use sluice_payload::Signal;

use super::extensions::Extension;
use super::network::ListenAddress;
use super::processors::{MemoryLimiter, Processor};
use super::receivers::Receiver;
use super::{ComponentId, Exporter, Kind, SendingQueue, Settings, catalogue};

/// When a pipeline's receivers answer "accepted". Our own key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Once the data is in the queue.
    #[default]
    Accepted,
    /// Once the data is in the queue on disk.
    Persisted,
    /// Once every exporter of the pipeline has delivered it.
    Delivered,
}

/// One pipeline, its references checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Its id as written: `traces` or `traces/name`.
    pub id: ComponentId,
    /// What flows in it.
    pub signal: Signal,
    /// Its receivers; at least one.
    pub receivers: Vec<ComponentId>,
    /// Its processors, in order.
    pub processors: Vec<ComponentId>,
    /// Its exporters; at least one.
    pub exporters: Vec<ComponentId>,
    /// When its receivers answer: by its `ack` key, else `delivered` if every queued exporter confirms delivery
    /// (`sending_queue.enabled: false` or `wait_for_result: true`), else `persisted` if its queue is on disk.
    pub ack: Ack,
    /// The `file_storage` that keeps its queue, for all of its exporters; none: it is in memory.
    pub storage: Option<ComponentId>,
}

/// What `service` asks for, before the components are known.
#[derive(Default)]
pub(super) struct Plan {
    pipelines: Vec<Planned>,
    extensions: Vec<(ComponentId, Span)>,
    used: HashSet<(Kind, ComponentId)>,
}

struct Planned {
    path: String,
    id: ComponentId,
    signal: Signal,
    receivers: Vec<(ComponentId, Span)>,
    processors: Vec<(ComponentId, Span)>,
    exporters: Vec<(ComponentId, Span)>,
    ack: Option<Ack>,
}

impl Plan {
    pub(super) fn uses(&self, kind: Kind, id: &ComponentId) -> bool {
        match kind {
            // A connector stands in the lists of receivers and exporters.
            Kind::Connector => [Kind::Receiver, Kind::Exporter]
                .iter()
                .any(|k| self.used.contains(&(*k, id.clone()))),
            kind => self.used.contains(&(kind, id.clone())),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPipeline {
    receivers: Vec<Spanned<String>>,
    processors: Vec<Spanned<String>>,
    exporters: Vec<Spanned<String>>,
    ack: Option<Ack>,
}

/// Reads `service.pipelines` and `service.extensions`.
pub(super) fn read(root: &Node, report: &mut Report) -> Plan {
    let mut plan = Plan::default();
    if let Some(node) = root.at(&["service", "extensions"])
        && let Some(ids) = decode::<Vec<Spanned<String>>>(node, "service.extensions", report)
    {
        plan.extensions = parse_ids(ids, "service.extensions", report);
    }
    let pipelines = root.at(&["service", "pipelines"]);
    match pipelines.and_then(Node::as_mapping) {
        Some(mapping) if !mapping.is_empty() => {
            for entry in mapping.entries() {
                let path = format!("service.pipelines.{}", entry.key);
                if let Some(id) = pipeline_id(&entry.key, &entry.key_span, report)
                    && let Some(raw) = decode::<RawPipeline>(&entry.value, &path, report)
                {
                    let (id, signal) = id;
                    for (name, list) in [("receiver", &raw.receivers), ("exporter", &raw.exporters)] {
                        // A list that was there and wrong has been reported already.
                        let written = entry.value.get(&format!("{name}s"));
                        if list.is_empty()
                            && written.is_none_or(|node| node.is_null() || node.as_sequence().is_some())
                        {
                            report.error(
                                &entry.key_span,
                                format!("{path}: has no {name}; add one to `{name}s`"),
                            );
                        }
                    }
                    plan.pipelines.push(Planned {
                        receivers: parse_ids(raw.receivers, &format!("{path}.receivers"), report),
                        processors: parse_ids(raw.processors, &format!("{path}.processors"), report),
                        exporters: parse_ids(raw.exporters, &format!("{path}.exporters"), report),
                        ack: raw.ack,
                        path,
                        id,
                        signal,
                    });
                }
            }
        }
        _ => {
            let place = pipelines.or_else(|| root.get("service")).unwrap_or(root);
            report.error(
                &place.span,
                "service.pipelines: there is no pipeline; add one, such as traces: {receivers: [otlp], exporters: [otlp]}",
            );
        }
    }
    let mut used = HashSet::new();
    for pipeline in &plan.pipelines {
        let lists = [
            (Kind::Receiver, &pipeline.receivers),
            (Kind::Processor, &pipeline.processors),
            (Kind::Exporter, &pipeline.exporters),
        ];
        for (kind, ids) in lists {
            used.extend(ids.iter().map(|(id, _)| (kind, id.clone())));
        }
    }
    used.extend(
        plan.extensions
            .iter()
            .map(|(id, _)| (Kind::Extension, id.clone())),
    );
    plan.used = used;
    plan
}

fn pipeline_id(key: &str, span: &Span, report: &mut Report) -> Option<(ComponentId, Signal)> {
    let id = match ComponentId::parse(key) {
        Ok(id) => id,
        Err(message) => {
            report.error(span, format!("service.pipelines: {message}"));
            return None;
        }
    };
    let signal = Signal::ALL.into_iter().find(|signal| signal.as_str() == id.kind);
    if signal.is_none() {
        let names = Signal::ALL.map(Signal::as_str);
        let guess = match nearest(&id.kind, names) {
            Some(guess) => format!("; did you mean {guess:?}?"),
            None => ";".to_owned(),
        };
        let message = format!(
            "service.pipelines.{key}: {:?} is not a signal{guess} A pipeline's type is one of {}",
            id.kind,
            names.join(", ")
        );
        report.error(span, message);
    }
    signal.map(|signal| (id, signal))
}

fn parse_ids(ids: Vec<Spanned<String>>, path: &str, report: &mut Report) -> Vec<(ComponentId, Span)> {
    let mut parsed: Vec<(ComponentId, Span)> = Vec::new();
    for Spanned { value, span } in ids {
        match ComponentId::parse(&value) {
            Ok(id) if parsed.iter().any(|(known, _)| *known == id) => {
                report.error(&span, format!("{path}: {id} is listed twice; remove one"));
            }
            Ok(id) => parsed.push((id, span)),
            Err(message) => report.error(&span, format!("{path}: {message}")),
        }
    }
    parsed
}

/// Follows every reference and fills in what depends on several components.
pub(super) fn connect(settings: &mut Settings, root: &Node, plan: Plan, report: &mut Report) {
    for (id, span) in &plan.extensions {
        check_defined(Kind::Extension, id, span, "service.extensions", root, report);
    }
    for planned in plan.pipelines {
        for (kind, ids) in [
            (Kind::Receiver, &planned.receivers),
            (Kind::Processor, &planned.processors),
            (Kind::Exporter, &planned.exporters),
        ] {
            let path = format!("{}.{}", planned.path, kind.section());
            for (id, span) in ids {
                check_defined(kind, id, span, &path, root, report);
            }
        }
        let sides = [
            (Kind::Receiver, &planned.receivers),
            (Kind::Exporter, &planned.exporters),
        ];
        for (kind, id, span) in sides
            .into_iter()
            .flat_map(|(kind, ids)| ids.iter().map(move |(id, span)| (kind, id, span)))
        {
            if let Some(info) = catalogue::find(kind, &id.kind)
                && !info.signals.contains(&planned.signal)
            {
                let known: Vec<_> = info.signals.iter().map(|signal| signal.as_str()).collect();
                let message = format!(
                    "{}.{}: {id} takes no {}, only {}; remove it from this pipeline",
                    planned.path,
                    kind.section(),
                    planned.signal,
                    known.join(" and ")
                );
                report.error(span, message);
            }
        }
        for (id, span) in &planned.exporters {
            if let Some(Exporter::OtlpHttp(exporter)) = settings.exporters.get(id)
                && exporter.url(planned.signal).is_none()
                // Without any address at all, that has been said where it is defined.
                && Signal::ALL.iter().any(|signal| exporter.url(*signal).is_some())
            {
                let signal = planned.signal;
                let message = format!(
                    "{}.exporters: {id} has no address for {signal}; set its endpoint or {signal}_endpoint",
                    planned.path
                );
                report.error(span, message);
            }
        }
        let ids = |list: Vec<(ComponentId, Span)>| list.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let mut pipeline = Pipeline {
            id: planned.id,
            signal: planned.signal,
            receivers: ids(planned.receivers),
            processors: ids(planned.processors),
            exporters: ids(planned.exporters),
            ack: Ack::Accepted,
            storage: None,
        };
        pipeline.storage = common_storage(settings, &pipeline, &planned.path, root, report);
        if planned.ack == Some(Ack::Persisted) && pipeline.storage.is_none() {
            let message = format!(
                "{0}.ack: persisted needs a queue on disk; set sending_queue.storage on an exporter of {0}",
                planned.path
            );
            let id = pipeline.id.to_string();
            report.error(place(root, &["service", "pipelines", &id, "ack"]), message);
        }
        pipeline.ack = planned.ack.unwrap_or_else(|| implied_ack(settings, &pipeline));
        settings.pipelines.push(pipeline);
    }
    warn_unheard_results(settings, root, report);
    settings.memory = smallest_limit(settings, root, report);
    let intervals = limiters(settings).map(|(_, limiter)| limiter.check_interval);
    settings.memory_check_interval = intervals.filter(|interval| !interval.is_zero()).min();
    authenticators::check(settings, root, report);
    authenticators::check_identities(settings, root, report);
    warn_unnamed_tenants(settings, root, report);
    check_storages(settings, root, report);
    check_addresses(settings, root, report);
}

/// Reports a reference to a component that is not there, or that is a connector.
fn check_defined(kind: Kind, id: &ComponentId, span: &Span, path: &str, root: &Node, report: &mut Report) {
    let entries = |section: &str| {
        root.get(section)
            .and_then(Node::as_mapping)
            .map(|m| m.entries())
            .unwrap_or_default()
    };
    let defined = |section: &str| {
        entries(section)
            .iter()
            .any(|e| ComponentId::parse(&e.key).as_ref() == Ok(id))
    };
    if defined(kind.section()) {
        return;
    }
    if matches!(kind, Kind::Receiver | Kind::Exporter) && defined(Kind::Connector.section()) {
        // The connector itself is reported, with advice, where it is defined.
        return;
    }
    let word = kind.singular();
    if let Some(advice) = catalogue::advice(kind, &id.kind) {
        report.error(span, format!("{path}: the {word} {id} is not here: {advice}"));
        return;
    }
    if catalogue::find(kind, &id.kind).is_none()
        && let Some(other) = Kind::ALL.into_iter().find(|other| defined(other.section()))
    {
        let (right, wrong) = (other.section(), kind.section());
        report.error(
            span,
            format!("{path}: {id} is one of the {right}; list it there, not under {wrong}"),
        );
        return;
    }
    let names: Vec<&str> = entries(kind.section())
        .iter()
        .map(|entry| entry.key.as_str())
        .collect();
    let guess = match nearest(&id.to_string(), names.iter().copied()) {
        Some(guess) => format!("; did you mean {guess}? Otherwise"),
        None => ";".to_owned(),
    };
    let defined = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    let section = kind.section();
    report.error(
        span,
        format!("{path}: the {word} {id} is not defined{guess} add it under {section}. Defined: {defined}"),
    );
}

fn implied_ack(settings: &Settings, pipeline: &Pipeline) -> Ack {
    let mut queues = pipeline
        .exporters
        .iter()
        .filter_map(|id| settings.exporters.get(id)?.queue())
        .peekable();
    if queues.peek().is_some() && queues.all(SendingQueue::confirms_delivery) {
        Ack::Delivered
    } else if pipeline.storage.is_some() {
        Ack::Persisted
    } else {
        Ack::Accepted
    }
}

/// The storage of a pipeline: what one of its exporters names, they all have, for data is written once.
fn common_storage(
    settings: &Settings,
    pipeline: &Pipeline,
    path: &str,
    root: &Node,
    report: &mut Report,
) -> Option<ComponentId> {
    let mut common: Option<(&ComponentId, &ComponentId)> = None;
    for exporter in &pipeline.exporters {
        let queue = settings.exporters.get(exporter).and_then(Exporter::queue);
        let Some(storage) = queue.and_then(SendingQueue::durable) else {
            continue;
        };
        match common {
            Some((other, before)) if before != storage => {
                let keys = ["exporters", &exporter.to_string(), "sending_queue", "storage"];
                let message = format!(
                    "{}: {exporter} and {other} are both in {path}, which is stored once; name the same storage, {before} or {storage}",
                    keys.join(".")
                );
                report.error(place(root, &keys), message);
            }
            _ => common = Some((exporter, storage)),
        }
    }
    common.map(|(_, storage)| storage.clone())
}

/// Every `sending_queue.storage` must name an enabled `file_storage`.
fn check_storages(settings: &Settings, root: &Node, report: &mut Report) {
    for (exporter, of) in &settings.exporters {
        let Some(id) = of.queue().and_then(|queue| queue.storage.as_ref()) else {
            continue;
        };
        let keys = ["exporters", &exporter.to_string(), "sending_queue", "storage"];
        let message = match settings.extensions.get(id) {
            Some(Extension::FileStorage(_)) => continue,
            Some(_) => format!("{id} does not store anything; use a file_storage"),
            // What is wrong with one that is there and enabled has been said where it is defined.
            None if is_enabled(root, id) && root.at(&["extensions", &id.to_string()]).is_some() => continue,
            None if root.at(&["extensions", &id.to_string()]).is_some() => {
                format!("add {id} to service.extensions, or it will not run")
            }
            None => format!("the extension {id} is not defined; add it under extensions"),
        };
        report.error(place(root, &keys), format!("{}: {message}", keys.join(".")));
    }
}

fn is_enabled(root: &Node, id: &ComponentId) -> bool {
    let listed = root.at(&["service", "extensions"]).and_then(Node::as_sequence);
    listed.is_some_and(|list| {
        list.iter().any(|item| {
            item.as_text()
                .is_some_and(|text| ComponentId::parse(text).as_ref() == Ok(id))
        })
    })
}

/// `wait_for_result` means something only when every queued exporter of a pipeline has it.
fn warn_unheard_results(settings: &Settings, root: &Node, report: &mut Report) {
    for (id, exporter) in &settings.exporters {
        let waits = exporter
            .queue()
            .is_some_and(|queue| queue.enabled && queue.wait_for_result);
        let mut pipelines = settings
            .pipelines
            .iter()
            .filter(|pipeline| pipeline.exporters.contains(id));
        if waits && pipelines.all(|pipeline| pipeline.ack != Ack::Delivered) {
            let path = ["exporters", &id.to_string(), "sending_queue", "wait_for_result"];
            let message = "has no effect: other exporters of the pipeline do not wait; set it on all of them";
            report.warn(place(root, &path), format!("{}: {message}", path.join(".")));
        }
    }
}

fn limiters(settings: &Settings) -> impl Iterator<Item = (&ComponentId, &MemoryLimiter)> {
    settings
        .processors
        .iter()
        .filter_map(|(id, processor)| match processor {
            Processor::MemoryLimiter(limiter) => Some((id, limiter)),
            Processor::Batch(_) => None,
        })
}

/// The process has one budget; of several limiters the smallest counts.
fn smallest_limit(settings: &Settings, root: &Node, report: &mut Report) -> Option<MemoryLimit> {
    let limits = limiters(settings).filter_map(|(id, limiter)| Some((id, limiter.limit()?)));
    let mut smallest: Option<(&ComponentId, MemoryLimit)> = None;
    for (id, limit) in limits {
        let Some((known_id, known)) = smallest else {
            smallest = Some((id, limit));
            continue;
        };
        if known == limit {
            continue;
        }
        let smaller = match (known, limit) {
            (MemoryLimit::Bytes { limit: a, .. }, MemoryLimit::Bytes { limit: b, .. }) => b < a,
            (MemoryLimit::Percentage { limit: a, .. }, MemoryLimit::Percentage { limit: b, .. }) => b < a,
            // How much a percentage is depends on the machine; what is certain wins.
            (MemoryLimit::Percentage { .. }, MemoryLimit::Bytes { .. }) => true,
            (MemoryLimit::Bytes { .. }, MemoryLimit::Percentage { .. }) => false,
        };
        let (winner, loser) = if smaller { (id, known_id) } else { (known_id, id) };
        let path = ["processors", &loser.to_string()];
        let message = format!(
            "{}: has no effect: the process has one memory budget, and {winner} sets it",
            path.join(".")
        );
        report.warn(place(root, &path), message);
        if smaller {
            smallest = Some((id, limit));
        }
    }
    smallest.map(|(_, limit)| limit)
}

/// `tenant_header` means something only where receivers tell tenants apart.
fn warn_unnamed_tenants(settings: &Settings, root: &Node, report: &mut Report) {
    if settings
        .receivers
        .values()
        .any(|receiver| receiver.tenant().is_some())
    {
        return;
    }
    for (id, exporter) in &settings.exporters {
        if let Exporter::RemoteWrite(exporter) = exporter
            && exporter.tenant_header.is_some()
        {
            let path = ["exporters", &id.to_string(), "tenant_header"];
            let message = format!(
                "no receiver tells tenants apart, so all data is {}'s; set the receivers' tenant",
                exporter.default_tenant
            );
            report.warn(place(root, &path), format!("{}: {message}", path.join(".")));
        }
    }
}

/// Two listeners cannot share an address.
fn check_addresses(settings: &Settings, root: &Node, report: &mut Report) {
    let mut listeners: Vec<(Vec<String>, &ListenAddress)> = Vec::new();
    let path = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    for (id, receiver) in &settings.receivers {
        if let Receiver::RemoteWrite(receiver) = receiver {
            listeners.push((
                path(&["receivers", &id.to_string(), "endpoint"]),
                &receiver.endpoint,
            ));
        }
        let Receiver::Otlp(otlp) = receiver else { continue };
        if let Some(grpc) = &otlp.grpc {
            listeners.push((
                path(&["receivers", &id.to_string(), "protocols", "grpc", "endpoint"]),
                &grpc.endpoint,
            ));
        }
        if let Some(http) = &otlp.http {
            listeners.push((
                path(&["receivers", &id.to_string(), "protocols", "http", "endpoint"]),
                &http.endpoint,
            ));
        }
    }
    for (id, extension) in &settings.extensions {
        let endpoint = match extension {
            Extension::HealthCheck(health) => &health.endpoint,
            Extension::Zpages(zpages) => &zpages.endpoint,
            _ => continue,
        };
        listeners.push((path(&["extensions", &id.to_string(), "endpoint"]), endpoint));
    }
    if let Some(address) = &settings.telemetry.metrics.listen {
        listeners.push((path(&["service", "telemetry", "metrics"]), address));
    }
    for (index, (keys, address)) in listeners.iter().enumerate() {
        let clash = listeners[..index]
            .iter()
            .find(|(_, other)| other == address && address.port != 0);
        if let Some((other, _)) = clash {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let message = format!(
                "{}: {address} is also the address of {}; choose another port",
                keys.join("."),
                other.join(".")
            );
            report.error(place(root, &keys), message);
        }
    }
}

/// The place of the deepest key of a path that was written.
fn place<'a>(root: &'a Node, path: &[&str]) -> &'a Span {
    let mut node = root;
    let mut span = &root.span;
    for key in path {
        let Some(entry) = node.as_mapping().and_then(|mapping| mapping.entry(key)) else {
            break;
        };
        span = &entry.value.span;
        node = &entry.value;
    }
    span
}
