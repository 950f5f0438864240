//! The header that says whose the data is, and what sends the data of one tenant.

use std::pin::Pin;
use std::sync::Arc;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_payload::{TenantId, Tenants, WireFormat};
use sluice_pipeline::{Batch, Export, Exporter, Turn};

use super::RemoteWriteExporter;
use super::formats::OWN_HEADERS;
use super::options::{ExporterError, header_name};

/// The header that tells the destination whose the data of a request is.
#[derive(Debug, Clone)]
pub struct TenantHeader {
    /// Its name.
    pub name: String,
    /// What it says of data that names no tenant.
    pub default: String,
    /// The names of tenants.
    pub tenants: Tenants,
}

/// The same, as it is sent.
#[derive(Debug)]
pub(super) struct Naming {
    name: HeaderName,
    default: HeaderValue,
    tenants: Tenants,
}

impl Naming {
    pub fn new(header: TenantHeader) -> Result<Self, ExporterError> {
        let invalid = |reason: String| ExporterError::Header {
            name: header.name.clone(),
            reason,
        };
        let name = header_name(&header.name)?;
        if OWN_HEADERS.contains(&name) || [USER_AGENT, AUTHORIZATION].contains(&name) {
            return Err(invalid(
                "has a meaning of its own; name tenants in another".to_owned(),
            ));
        }
        let default = HeaderValue::from_str(&header.default).map_err(|_| {
            invalid(format!(
                "{:?}, the default tenant, cannot be its value",
                header.default
            ))
        })?;
        Ok(Self {
            name,
            default,
            tenants: header.tenants,
        })
    }

    fn of(&self, tenant: TenantId) -> Tenant {
        let name = (tenant != TenantId::DEFAULT).then(|| self.tenants.name(tenant));
        let value = match &name {
            None => self.default.clone(),
            // Names are printable ASCII, made so when they came.
            Some(name) => {
                HeaderValue::from_str(name).unwrap_or_else(|_| HeaderValue::from_static("overflow"))
            }
        };
        // Whom the destination cannot tell from nobody has nobody's totals: they are the same series.
        let name = name.filter(|_| value != self.default);
        Tenant {
            header: (self.name.clone(), value),
            name,
        }
    }
}

/// Whose a batch is.
#[derive(Debug, Clone)]
pub(super) struct Tenant {
    header: (HeaderName, HeaderValue),
    /// What its series are told apart by from those of others; none: those of data that names no tenant.
    name: Option<Arc<str>>,
}

impl Tenant {
    pub fn put_header(&self, headers: &mut HeaderMap) {
        let (name, value) = &self.header;
        headers.insert(name, value.clone());
    }

    /// What the destination is told.
    pub fn value(&self) -> &[u8] {
        self.header.1.as_bytes()
    }

    pub fn name(&self) -> Option<Arc<str>> {
        self.name.clone()
    }
}

/// Sends the data of one tenant: the exporter itself, and whose batches are.
struct OfTenant {
    exporter: RemoteWriteExporter,
    tenant: Tenant,
}

pub(super) fn of_tenant(exporter: &RemoteWriteExporter, tenant: TenantId) -> Option<Arc<dyn Exporter>> {
    let naming = exporter.0.tenants.as_ref()?;
    Some(Arc::new(OfTenant {
        tenant: naming.of(tenant),
        exporter: exporter.clone(),
    }))
}

impl Exporter for OfTenant {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.exporter.send(batch, Some(&self.tenant)))
    }

    fn takes(&self, format: WireFormat) -> bool {
        self.exporter.takes(format)
    }

    fn prepare<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.exporter.0.encode_ahead(batch, turn, Some(&self.tenant)))
    }

    fn export_in_turn<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Export<'a> {
        Box::pin(self.exporter.send_in_turn(batch, turn, Some(&self.tenant)))
    }

    fn max_request_bytes(&self) -> usize {
        self.exporter.max_request_bytes()
    }
}
