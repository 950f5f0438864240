//! From settings to a running gateway: exporters, journals, deliveries, receivers, pages.

mod endpoints;
mod exporters;
#[cfg(feature = "parquet")]
mod parquet;
mod pressure;
mod receivers;
#[cfg(feature = "remote-write")]
mod remote_write;
mod storage;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pressure::{Destination, Pressure};
use sluice_admission::{Budget, Tracker};
use sluice_client::EgressPool;
use sluice_journal::{CursorSpec, Journal, Limits, OnFull};
use sluice_memory::{Machine, Plan, Sampler, Sampling};
use sluice_otlp::receiver::OtlpService;
use sluice_payload::{Signal, Tenants, WireFormat};
use sluice_pipeline::{
    AckLevel, BatchSettings, DeliverySettings, Exporter, Intake, RetrySettings, Route, deliver,
};
#[cfg(feature = "remote-write")]
use sluice_remote_write::RemoteWriteService;
use sluice_server::{ConnectionSettings, Gate, Listener, Serve, ServerTls, WAITING_PART};
use sluice_telemetry::{Registry, Sample};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{HEALTH_BODIES, Page, Pages, Readiness};
use crate::ledger::{Ledger, LedgerLine};
use crate::settings::{self, Ack, ComponentId, Extension, Pipeline, Receiver, Settings};

/// How long a request waits for memory and for room in queues, all of its waits together, before it is
/// refused: shorter than the 10 s that SDK exporters wait for an answer, long enough to ride out a slow batch.
const ADMISSION_WAIT: Duration = Duration::from_secs(5);

/// How long a payload waits for room in the queues of a pipeline with `block_on_overflow`: as long as any client does.
const BLOCKING_WAIT: Duration = Duration::from_secs(600);

/// What a journal on disk has at least to be put in order for the next start, after whatever drained until the deadline: a footer, positions and a
/// sync of each, which take milliseconds unless the disk is hardly able to answer.
const JOURNAL_ENDS: Duration = Duration::from_secs(2);

/// Requests under way at once to one destination, when `num_consumers` does not say.
const DEFAULT_IN_FLIGHT: usize = 10;

/// Without limits in the configuration, an exporter that shares its pipeline may retain this part
/// of the budget before it is cut loose; the rest keeps the others going.
const LAGGARD_SHARE: u64 = 2;

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A component cannot be made from its settings.
    #[error("{component}: {cause}")]
    Component {
        /// Where in the configuration.
        component: String,
        /// What is wrong.
        cause: String,
    },
}

impl StartError {
    fn new(component: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        StartError::Component {
            component: component.to_string(),
            cause: cause.to_string(),
        }
    }
}

/// Where a component listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The component and protocol: `otlp/grpc`, `health_check`, `metrics`.
    pub name: String,
    /// The address.
    pub address: SocketAddr,
}

/// A running gateway.
pub struct Gateway {
    bound: Vec<Bound>,
    ledger: Ledger,
    registry: Registry,
    readiness: Readiness,
    budget: Budget,
    journals: Vec<Journal>,
    deliveries: Vec<JoinHandle<()>>,
    receivers: Vec<JoinHandle<()>>,
    stop_receivers: watch::Sender<bool>,
    stop_pages: watch::Sender<bool>,
    _sampling: Sampling,
}

/// What came of stopping.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// The final accounts.
    pub lines: Vec<LedgerLine>,
    /// Items that were still queued at some exporter when the deadline passed, dropped and counted.
    pub left: u64,
    /// Items that wait in journals on disk for the next start.
    pub kept: u64,
}

impl Gateway {
    /// Makes every component and serves. When it returns, every listener is bound.
    ///
    /// # Errors
    /// [`StartError`] names the component and what to do; nothing keeps running.
    pub async fn start(settings: &Settings) -> Result<Gateway, StartError> {
        let registry = Registry::default();
        let readiness = Readiness::default();
        let machine = Machine::detect();
        let mut plan = Plan::new(settings.memory, &machine, WAITING_PART);
        let shares = storage::Shares::of(plan.ceiling, settings);
        #[cfg(feature = "parquet")]
        let open_files = parquet::OpenFiles::of(plan.ceiling, settings);
        plan.ceiling -= shares.reserved_bytes;
        #[cfg(feature = "parquet")]
        open_files.take_from(&mut plan);
        let budget = Budget::new(plan.ceiling);
        let egress = EgressPool::new(plan.egress);
        let interval = settings.memory_check_interval;
        let sampler = Sampler::new(plan, machine, interval, give_back_contexts, &registry);
        let seed = u64::from(std::process::id());
        let gate = Gate::new(budget.clone(), ADMISSION_WAIT, &registry, seed);
        if settings.receivers.values().any(Receiver::has_shares) {
            budget.keep_room_for_tenants();
        }

        let tenants = Tenants::default();
        let mut built: BTreeMap<&ComponentId, Arc<dyn Exporter>> = BTreeMap::new();
        #[cfg(feature = "parquet")]
        let mut tables: BTreeMap<&ComponentId, sluice_parquet::ParquetExporter> = BTreeMap::new();
        for (id, exporter) in &settings.exporters {
            #[cfg(feature = "parquet")]
            if let settings::Exporter::Parquet(exporter) = exporter {
                let exporter = parquet::exporter(id, exporter, open_files, &registry)
                    .map_err(|cause| StartError::new(format_args!("exporters.{id}"), cause))?;
                tables.insert(id, exporter);
                continue;
            }
            let exporter = exporters::build(id, exporter, settings, &egress, &tenants, &registry)
                .map_err(|cause| StartError::new(format_args!("exporters.{id}"), cause))?;
            built.insert(id, exporter);
        }

        pressure::weigh(&settings.admission, &tenants, &gate);
        let shedder = pressure::shedder(&settings.admission, &tenants, &registry, seed);
        let mut pressure = Pressure::default();

        let mut routes: Vec<(&Pipeline, Route)> = Vec::new();
        let mut deliveries = Vec::new();
        for pipeline in &settings.pipelines {
            let specs: Vec<_> = pipeline
                .exporters
                .iter()
                .map(|id| cursor_spec(settings, pipeline, id, &budget))
                .collect();
            pressure.destinations.extend(specs.iter().map(|spec| Destination {
                exporter: spec.exporter.clone(),
                pipeline: pipeline.id.to_string(),
                is_coupled: spec.on_full == OnFull::Refuse,
                latency: pressure::tracker(&settings.admission),
            }));
            let latencies = pressure.destinations[pressure.destinations.len() - specs.len()..].iter();
            let latencies: Vec<_> = latencies.map(|destination| destination.latency.clone()).collect();
            let frames = pipeline
                .exporters
                .iter()
                .filter_map(|id| built.get(id)?.passes_through());
            let limits: Vec<Limits> = specs.iter().map(|spec| spec.limits).collect();
            let opened = storage::open(settings, pipeline, specs, shares, frames.collect(), &tenants);
            let storage::Opened {
                journal,
                cursors,
                dead_letters,
            } = opened.map_err(|cause| StartError::new(format_args!("pipeline {}", pipeline.id), cause))?;
            pressure.journals.push(journal.clone());
            if let Some(letters) = &dead_letters {
                crate::ledger::export_dead_letters(journal.pipeline(), letters, &registry);
            }
            let places = pipeline.exporters.iter().zip(cursors).zip(latencies);
            for (((id, cursor), latency), limits) in places.zip(limits) {
                #[cfg(feature = "parquet")]
                if let Some(exporter) = tables.get(id) {
                    let capacity = budget.usage().capacity;
                    let delivery = parquet::open(
                        exporter,
                        settings,
                        pipeline,
                        id,
                        limits,
                        capacity,
                        (cursor, &tenants, &registry),
                    )
                    .map_err(|cause| StartError::new(format_args!("exporters.{id}"), cause))?;
                    deliveries.push(tokio::spawn(delivery.run()));
                    continue;
                }
                #[cfg(not(feature = "parquet"))]
                let _ = limits;
                let Some(exporter) = built.get(id) else { continue };
                let delivery = DeliverySettings {
                    dead_letters: dead_letters.clone(),
                    ..delivery_settings(settings, pipeline, id, latency)
                };
                let task = deliver(
                    cursor,
                    pipeline.signal,
                    exporter.clone(),
                    delivery,
                    registry.clone(),
                );
                deliveries.push(tokio::spawn(task));
            }
            let passing_through = (pipeline.exporters.iter())
                .filter_map(|id| {
                    built
                        .get(id)
                        .filter(|exporter| exporter.passes_through().is_some())
                        .cloned()
                })
                .collect();
            let straight = pipeline.exporters.iter().all(|id| {
                built
                    .get(id)
                    .is_some_and(|exporter| exporter.takes(WireFormat::RemoteWrite1))
            });
            routes.push((
                pipeline,
                Route {
                    journal,
                    ack: ack_level(pipeline.ack),
                    passing_through,
                    block_for: block_for(settings, pipeline),
                    straight,
                },
            ));
        }
        storage::tell_unread(settings, &registry);
        let ledger = Ledger::new(
            routes
                .iter()
                .map(|(pipeline, route)| (route.journal.clone(), pipeline.signal))
                .collect(),
            tenants.clone(),
        );
        ledger.export_to(&registry);
        export_process(&registry, &budget, &egress);
        export_tenants(&registry, &gate, &tenants);

        let (stop_receivers, stopping) = watch::channel(false);
        let (stop_pages, pages_stopping) = watch::channel(false);
        let pressure = Arc::new(pressure);
        pressure.export_to(&registry);
        if let Some(shedder) = &shedder {
            // It ends with the pages, and is not waited for either.
            drop(tokio::spawn(pressure.watch(
                budget.clone(),
                shedder.clone(),
                pages_stopping.clone(),
            )));
        }
        let mut gateway = Gateway {
            bound: Vec::new(),
            ledger,
            registry: registry.clone(),
            readiness,
            budget: budget.clone(),
            journals: routes.iter().map(|(_, route)| route.journal.clone()).collect(),
            deliveries,
            receivers: Vec::new(),
            stop_receivers,
            stop_pages,
            _sampling: sampler.start(budget),
        };
        gateway.serve_pages(settings, &pages_stopping).await?;
        for (id, receiver) in &settings.receivers {
            let fed = routes
                .iter()
                .filter(|(pipeline, _)| pipeline.receivers.contains(id));
            let intake = Intake::new(fed.map(|(pipeline, route)| (pipeline.signal, route.clone())));
            let component = format!("receivers.{id}");
            #[cfg(feature = "remote-write")]
            if let Receiver::RemoteWrite(receiver) = receiver {
                let listening = receivers::tenancy(id, receiver.tenant.as_ref(), &tenants, &registry)
                    .and_then(|tenancy| {
                        remote_write::listening(id, receiver, tenancy, shedder.as_ref(), settings)
                    })
                    .map_err(|cause| StartError::new(&component, cause))?;
                let service = RemoteWriteService::new(listening.service, gate.clone(), intake, &registry);
                let task = gateway
                    .listen(
                        &component,
                        &receiver.endpoint.to_string(),
                        listening.tls,
                        listening.connection,
                        service,
                        &stopping,
                    )
                    .await?;
                gateway.receivers.push(task);
                continue;
            }
            let Receiver::Otlp(otlp) = receiver else { continue };
            let fail = |cause| StartError::new(&component, cause);
            let tenancy = receivers::tenancy(id, otlp.tenant.as_ref(), &tenants, &registry).map_err(fail)?;
            for (name, listening) in
                receivers::listeners(id, otlp, tenancy.as_ref(), shedder.as_ref(), settings).map_err(fail)?
            {
                let service = OtlpService::new(
                    listening.service,
                    gate.clone(),
                    intake.clone(),
                    &registry,
                    stopping.clone(),
                );
                let task = gateway
                    .listen(
                        &name,
                        &listening.endpoint,
                        listening.tls,
                        listening.connection,
                        service,
                        &stopping,
                    )
                    .await?;
                gateway.receivers.push(task);
            }
        }
        let listening = gateway.receivers.iter().map(JoinHandle::abort_handle);
        gateway
            .readiness
            .ready(listening.collect(), gateway.journals.clone());
        Ok(gateway)
    }

    async fn listen<S: Serve>(
        &mut self,
        name: &str,
        endpoint: &str,
        tls: Option<ServerTls>,
        connection: ConnectionSettings,
        service: S,
        stop: &watch::Receiver<bool>,
    ) -> Result<JoinHandle<()>, StartError> {
        let fail = |cause: &dyn std::fmt::Display| StartError::new(name, cause);
        let listener = Listener::bind(endpoint, tls, connection)
            .await
            .map_err(|error| fail(&error))?;
        let address = listener.local_addr().map_err(|error| fail(&error))?;
        let serving = listener
            .serve(service, stop.clone())
            .map_err(|error| fail(&error))?;
        self.bound.push(Bound {
            name: name.to_owned(),
            address,
        });
        Ok(tokio::spawn(serving))
    }

    async fn serve_pages(
        &mut self,
        settings: &Settings,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), StartError> {
        let mut pages: Vec<(String, String, Option<ServerTls>, Page)> = Vec::new();
        if let Some(listen) = &settings.telemetry.metrics.listen {
            pages.push(("metrics".to_owned(), listen.to_string(), None, Page::Metrics));
        }
        for (id, extension) in &settings.extensions {
            match extension {
                Extension::HealthCheck(health) => {
                    let tls = health
                        .tls
                        .as_ref()
                        .map(|tls| receivers::server_tls(tls, &[b"http/1.1"]))
                        .transpose()
                        .map_err(|cause| StartError::new(format_args!("extensions.{id}"), cause))?;
                    let bodies = match &health.response_body {
                        Some(bodies) => [bodies.healthy.clone(), bodies.unhealthy.clone()],
                        None => HEALTH_BODIES.map(str::to_owned),
                    };
                    let headers = receivers::response_headers(&health.response_headers)
                        .map_err(|cause| StartError::new(format_args!("extensions.{id}"), cause))?;
                    let page = Page::Health {
                        path: health.path.clone(),
                        bodies,
                        headers,
                    };
                    pages.push((id.to_string(), health.endpoint.to_string(), tls, page));
                }
                Extension::Zpages(zpages) => {
                    pages.push((id.to_string(), zpages.endpoint.to_string(), None, Page::Zpages));
                }
                _ => {}
            }
        }
        for (name, endpoint, tls, page) in pages {
            let service = Pages::new(
                page,
                self.readiness.clone(),
                self.registry.clone(),
                self.ledger.clone(),
            );
            let connection = ConnectionSettings {
                max_connections: 64,
                idle_timeout: Some(Duration::from_secs(60)),
                ..Default::default()
            };
            // Pages are served until the process ends: their tasks are not waited for.
            drop(
                self.listen(&name, &endpoint, tls, connection, service, stop)
                    .await?,
            );
        }
        Ok(())
    }

    /// Where it listens.
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// The account.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The memory budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Stops: no new connections at once, requests under way finish, queues drain until `deadline`;
    /// what is left then is dropped, counted and told.
    pub async fn stop(self, deadline: Duration) -> Stopped {
        let end = tokio::time::Instant::now() + deadline;
        self.readiness.stopping();
        // An error means that no receiver listens, which is what is wanted.
        let _ = self.stop_receivers.send(true);
        // Requests that wait for delivery need the journals open; half the time is theirs.
        let quiet = async {
            for receiver in self.receivers {
                let _ = receiver.await;
            }
        };
        if tokio::time::timeout(deadline / 2, quiet).await.is_err() {
            tracing::warn!("some clients keep their connections open; their requests are cut off");
        }
        self.journals.iter().for_each(Journal::close);
        let aborts: Vec<_> = self.deliveries.iter().map(JoinHandle::abort_handle).collect();
        let drained = async {
            for delivery in self.deliveries {
                let _ = delivery.await;
            }
        };
        if tokio::time::timeout_at(end, drained).await.is_err() {
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
        // Nothing, when all is well; whatever a delivery did not settle, however it ended, is told. Side by side: none waits for another's disk.
        let end = end.max(tokio::time::Instant::now() + JOURNAL_ENDS).into_std();
        let ending: Vec<_> = (self.journals.into_iter())
            .map(|journal| tokio::task::spawn_blocking(move || journal.abandon_by(end)))
            .collect();
        let mut left = 0;
        for ended in ending {
            match ended.await {
                Ok(Ok(items)) => left += items,
                Ok(Err(error)) => tracing::error!("{error}"),
                Err(error) => {
                    tracing::error!(%error, "ending a journal panicked; please report the panic message above")
                }
            }
        }
        let lines = self.ledger.lines();
        let kept = lines.iter().map(|line| line.total.queued).sum();
        let _ = self.stop_pages.send(true);
        Stopped { lines, left, kept }
    }
}

/// What codecs keep for the next body.
fn give_back_contexts() {
    sluice_client::give_back_contexts();
    sluice_server::give_back_contexts();
}

fn ack_level(ack: Ack) -> AckLevel {
    match ack {
        Ack::Accepted => AckLevel::Accepted,
        Ack::Persisted => AckLevel::Persisted,
        Ack::Delivered => AckLevel::Delivered,
    }
}

/// How long a payload waits for room in a pipeline's queues beyond its own patience.
fn block_for(settings: &Settings, pipeline: &Pipeline) -> Duration {
    let queue_of = |id| settings.exporters.get(id).and_then(settings::Exporter::queue);
    let mut queues = pipeline.exporters.iter().filter_map(queue_of);
    match queues.any(|queue| queue.block_on_overflow) {
        true => BLOCKING_WAIT,
        false => Duration::ZERO,
    }
}

fn cursor_spec(settings: &Settings, pipeline: &Pipeline, id: &ComponentId, budget: &Budget) -> CursorSpec {
    let queue = settings.exporters.get(id).and_then(settings::Exporter::queue);
    let shared = pipeline.exporters.len() > 1;
    let mut limits = Limits::default();
    if let Some(queue) = queue.filter(|queue| queue.enabled) {
        let size = queue.queue_size;
        match queue.sizer {
            settings::Sizer::Requests => limits.requests = size,
            settings::Sizer::Items => limits.items = size,
            settings::Sizer::Bytes => limits.bytes = size,
        }
    }
    let coupled =
        !shared || queue.is_some_and(|queue| queue.block_on_overflow) || pipeline.ack == Ack::Delivered;
    if !coupled && limits.bytes.is_none() && pipeline.storage.is_none() {
        limits.bytes = Some(budget.usage().capacity / LAGGARD_SHARE / pipeline.exporters.len() as u64);
    }
    let on_full = if coupled {
        OnFull::Refuse
    } else {
        OnFull::DropOldest
    };
    CursorSpec {
        exporter: id.to_string(),
        limits,
        on_full,
    }
}

fn delivery_settings(
    settings: &Settings,
    pipeline: &Pipeline,
    id: &ComponentId,
    latency: Arc<Tracker>,
) -> DeliverySettings {
    let exporter = settings.exporters.get(id);
    let batching = settings.batching(pipeline, id);
    let retry = match exporter {
        Some(settings::Exporter::OtlpGrpc(otlp)) => Some(&otlp.retry_on_failure),
        Some(settings::Exporter::OtlpHttp(otlp)) => Some(&otlp.retry_on_failure),
        Some(settings::Exporter::RemoteWrite(exporter)) => Some(&exporter.retry_on_failure),
        _ => None,
    };
    let retry = retry.map_or_else(RetrySettings::default, exporters::retry);
    // Files and terminals are written in order, one batch at a time.
    let queue = exporter.and_then(settings::Exporter::queue);
    let max_in_flight = queue.map_or(1, |queue| queue.num_consumers.unwrap_or(DEFAULT_IN_FLIGHT));
    let sizer = match batching.sizer {
        settings::Sizer::Requests => sluice_pipeline::Sizer::Requests,
        settings::Sizer::Items => sluice_pipeline::Sizer::Items,
        settings::Sizer::Bytes => sluice_pipeline::Sizer::Bytes,
    };
    DeliverySettings {
        exporter: id.to_string(),
        batch: BatchSettings {
            min_size: batching.min_size,
            max_size: batching.max_size,
            sizer,
            flush_timeout: batching.flush_timeout,
        },
        retry,
        max_in_flight,
        latency,
        dead_letters: None,
    }
}

fn export_process(registry: &Registry, budget: &Budget, egress: &EgressPool) {
    let (budget, egress) = (budget.clone(), egress.clone());
    registry.collect_with(move |out| {
        let usage = budget.usage();
        let mut add = |name, help, value: f64| {
            out.push(Sample {
                name,
                help,
                labels: vec![],
                value,
            })
        };
        add(
            "sluice_memory_budget_bytes",
            "Capacity of the memory budget for received payloads, as it is now.",
            usage.capacity as f64,
        );
        add(
            "sluice_memory_budget_ceiling_bytes",
            "The most it can be: the limit less what the process needs by itself.",
            budget.ceiling() as f64,
        );
        add(
            "sluice_memory_reserved_bytes",
            "Bytes of the budget that are reserved.",
            usage.used as f64,
        );
        add(
            "sluice_memory_egress_bytes",
            "Memory reserved for compressed bodies that are being written or sent.",
            egress.used() as f64,
        );
        add(
            "sluice_admission_gave_way_total",
            "Requests refused because an older one needed the memory they held.",
            usage.gave_way as f64,
        );
        add(
            "sluice_admission_waiting_requests",
            "Requests that wait for memory.",
            usage.waiting as f64,
        );
        add(
            "sluice_admission_waiting_bytes",
            "Bytes that waiting requests ask for.",
            usage.waiting_bytes as f64,
        );
        if let Some(resident) = sluice_memory::resident_bytes() {
            add(
                "process_resident_memory_bytes",
                "Resident memory.",
                resident as f64,
            );
        }
        if let Some(cpu) = sluice_memory::cpu_seconds() {
            add("process_cpu_seconds_total", "CPU time used.", cpu);
        }
    });
}

/// What each tenant holds of the budget; nothing where there are no tenants.
fn export_tenants(registry: &Registry, gate: &Gate, tenants: &Tenants) {
    let (gate, tenants) = (gate.clone(), tenants.clone());
    registry.collect_with(move |out| {
        let count = tenants.count();
        let named = (0..count).filter(|_| count > Tenants::default().count());
        out.extend(named.map(|index| Sample {
            name: "sluice_tenant_reserved_bytes",
            help: "Bytes of the memory budget that are reserved for a tenant.",
            labels: vec![("tenant", tenants.name_at(index).to_string())],
            value: gate.held_by(index) as f64,
        }));
        if count > Tenants::default().count() {
            out.push(Sample {
                name: "sluice_tenant_unread_bytes",
                help: "Bytes of the memory budget that are reserved for requests whose tenants are not known yet.",
                labels: vec![],
                value: gate.held_unread() as f64,
            });
        }
    });
}

/// Signals by name, for messages.
pub(crate) fn signals(settings: &Settings) -> Vec<Signal> {
    let mut signals: Vec<_> = settings
        .pipelines
        .iter()
        .map(|pipeline| pipeline.signal)
        .collect();
    signals.sort_unstable();
    signals.dedup();
    signals
}

#[cfg(test)]
mod tests;
