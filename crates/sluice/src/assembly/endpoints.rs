//! One OTLP exporter over one endpoint or several.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluice_client::{Destination, FixedAddress, Resolve, SystemResolver};
use sluice_otlp::exporter::{
    EndpointName, ExporterError, GrpcExporter, GrpcExporterOptions, HttpExporter, HttpExporterOptions,
    follow_addresses,
};
use sluice_pipeline::{Balance, Balanced, Exporter, Routed};
use sluice_telemetry::Registry;
use sluice_wire::RoutingKey;

use crate::settings::{self, ComponentId};

/// What an exporter for one endpoint is made from.
pub(super) trait Options: Clone + Send + Sync + 'static {
    /// The exporter.
    fn build(&self) -> Result<Arc<dyn Exporter>, ExporterError>;
    /// The endpoint as written: the name by which gateways agree about its keys.
    fn endpoint(&self) -> &str;
    /// The host and port of the endpoint.
    fn destination(&self) -> Result<Destination, ExporterError>;
    /// The same, at this address of the endpoint's host.
    fn at(&self, address: SocketAddr) -> Self;
}

impl Options for GrpcExporterOptions {
    fn build(&self) -> Result<Arc<dyn Exporter>, ExporterError> {
        Ok(Arc::new(GrpcExporter::new(self.clone())?))
    }

    fn endpoint(&self) -> &str {
        self.endpoint.trim()
    }

    fn destination(&self) -> Result<Destination, ExporterError> {
        Ok(Destination::parse(&self.endpoint, !self.tls.insecure, 4317)?)
    }

    fn at(&self, address: SocketAddr) -> Self {
        let mut at = self.clone();
        at.connect.resolver = Arc::new(FixedAddress(address));
        at
    }
}

impl Options for HttpExporterOptions {
    fn build(&self) -> Result<Arc<dyn Exporter>, ExporterError> {
        Ok(Arc::new(HttpExporter::new(self.clone())?))
    }

    fn endpoint(&self) -> &str {
        self.endpoint.as_deref().unwrap_or_default().trim()
    }

    fn destination(&self) -> Result<Destination, ExporterError> {
        Ok(Destination::parse(self.endpoint(), false, 4318)?)
    }

    fn at(&self, address: SocketAddr) -> Self {
        let mut at = self.clone();
        at.connect.resolver = Arc::new(FixedAddress(address));
        at
    }
}

/// One exporter for one endpoint; for several, one that chooses among them.
pub(super) fn over<O: Options>(
    id: &ComponentId,
    all: Vec<O>,
    balance: settings::Balance,
    key: Option<settings::RoutingKey>,
    resolve_interval: Option<Duration>,
    registry: &Registry,
) -> Result<Arc<dyn Exporter>, String> {
    let key = key.map(|key| match key {
        settings::RoutingKey::TraceId => RoutingKey::TraceId,
        settings::RoutingKey::Service => RoutingKey::Service,
        settings::RoutingKey::Resource => RoutingKey::Resource,
    });
    let id = id.to_string();
    let routed = |like| Routed::new(key, like, &id, registry);
    let balanced = |exporters, balance| Balanced::new(exporters, balance, &id, registry);
    build(all, balance, resolve_interval, routed, balanced).map_err(|error| error.to_string())
}

fn build<O: Options>(
    all: Vec<O>,
    balance: settings::Balance,
    resolve_interval: Option<Duration>,
    routed: impl FnOnce(Arc<dyn Exporter>) -> Routed,
    balanced: impl FnOnce(Vec<(String, Arc<dyn Exporter>)>, Balance) -> Balanced,
) -> Result<Arc<dyn Exporter>, ExporterError> {
    // Made in any case, so that what is wrong with them shows at the start.
    let mut exporters = all.iter().map(Options::build).collect::<Result<Vec<_>, _>>()?;
    if let Some(interval) = resolve_interval {
        let routed = Arc::new(routed(exporters.swap_remove(0)));
        let names = all.into_iter().map(name).collect::<Result<_, _>>()?;
        let resolver: Arc<dyn Resolve> = Arc::new(SystemResolver);
        // It ends with its exporter.
        drop(tokio::spawn(follow_addresses(
            Arc::downgrade(&routed),
            names,
            resolver,
            interval,
        )));
        return Ok(routed);
    }
    if exporters.len() == 1 {
        return Ok(exporters.swap_remove(0));
    }
    let names: Vec<String> = all.iter().map(|one| one.endpoint().to_owned()).collect();
    let balance = match balance {
        settings::Balance::RoundRobin => Balance::RoundRobin,
        settings::Balance::LeastLoaded => Balance::LeastLoaded,
        settings::Balance::Failover => Balance::Failover,
        settings::Balance::ConsistentHash => {
            let routed = routed(exporters[0].clone());
            let mut exporters = exporters.into_iter().zip(&names);
            routed.set_endpoints(&names, |name| {
                let found = exporters.find(|(_, own)| *own == name);
                found
                    .map(|(exporter, _)| exporter)
                    .ok_or(ExporterError::NoEndpoint)
            });
            return Ok(Arc::new(routed));
        }
    };
    let exporters = names.into_iter().zip(exporters).collect();
    Ok(Arc::new(balanced(exporters, balance)))
}

fn name<O: Options>(options: O) -> Result<EndpointName, ExporterError> {
    let Destination { host, port, .. } = options.destination()?;
    let connect = Box::new(move |address| options.at(address).build());
    Ok(EndpointName { host, port, connect })
}
