//! The gateway's own pages: health, metrics, the ledger.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use sluice_journal::Journal;
use sluice_server::{Peer, ReplyBody, Serve};
use sluice_telemetry::Registry;
use tokio::task::AbortHandle;

use crate::ledger::Ledger;

/// Whether the gateway can admit. Cloning shares it.
///
/// It can from [`Readiness::ready`] to [`Readiness::stopping`], as long as every receiver listens and every journal takes
/// payloads. That it is full, or that a destination is dead, does not count: another gateway would not be better off, and
/// clients are told when to come back.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Option<Needed>>>);

/// What admitting needs.
#[derive(Debug)]
struct Needed {
    /// The tasks of the receivers' listeners: one that has ended listens no more.
    listening: Vec<AbortHandle>,
    journals: Vec<Journal>,
}

impl Readiness {
    /// Everything is there: `listening` are the tasks of the receivers.
    pub fn ready(&self, listening: Vec<AbortHandle>, journals: Vec<Journal>) {
        *self.0.lock() = Some(Needed { listening, journals });
    }

    /// Nothing is admitted from now on.
    pub fn stopping(&self) {
        *self.0.lock() = None;
    }

    /// Whether it can admit now.
    pub fn get(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|needed| {
            needed.listening.iter().all(|task| !task.is_finished())
                && needed.journals.iter().all(Journal::is_writable)
        })
    }
}

/// What a page server shows.
#[derive(Debug, Clone)]
pub enum Page {
    /// `/live`, `/ready`, and the health check's own path.
    Health {
        /// The configured path, `/` by default.
        path: String,
        /// The bodies of 200 and 503.
        bodies: [String; 2],
        /// Added to every answer.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
    /// `/metrics` and `/ledger`.
    Metrics,
    /// `/debug/tracez` and its like: the same facts as text.
    Zpages,
}

/// What a health check answers unless it is told otherwise: up, and not.
pub const HEALTH_BODIES: [&str; 2] = [
    "{\"status\":\"Server available\"}\n",
    "{\"status\":\"Server not available\"}\n",
];

/// Serves one kind of page. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Pages {
    page: Page,
    readiness: Readiness,
    registry: Registry,
    ledger: Ledger,
}

impl Pages {
    /// Pages about this gateway.
    pub fn new(page: Page, readiness: Readiness, registry: Registry, ledger: Ledger) -> Self {
        Self {
            page,
            readiness,
            registry,
            ledger,
        }
    }

    fn answer(&self, path: &str) -> Option<(StatusCode, &'static str, String)> {
        const TEXT: &str = "text/plain; charset=utf-8";
        const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
        const JSON: &str = "application/json";
        match &self.page {
            Page::Health { .. } if path == "/live" => Some((StatusCode::OK, TEXT, "alive\n".into())),
            Page::Health {
                path: own, bodies, ..
            } if path == own || path == "/ready" => Some(match self.readiness.get() {
                true => (StatusCode::OK, JSON, bodies[0].clone()),
                false => (StatusCode::SERVICE_UNAVAILABLE, JSON, bodies[1].clone()),
            }),
            Page::Metrics if path == "/metrics" => Some((StatusCode::OK, PROMETHEUS, self.registry.render())),
            Page::Metrics | Page::Zpages if path == "/ledger" => {
                Some((StatusCode::OK, JSON, self.ledger.json()))
            }
            Page::Zpages if path.starts_with("/debug/") => Some((
                StatusCode::OK,
                TEXT,
                format!("{}\n{}\n", crate::VERSION, self.ledger.json()),
            )),
            _ => None,
        }
    }

    fn paths(&self) -> String {
        match &self.page {
            Page::Health { path, .. } => format!("{path}, /live and /ready"),
            Page::Metrics => "/metrics and /ledger".to_owned(),
            Page::Zpages => "/debug/servicez and /ledger".to_owned(),
        }
    }
}

impl Serve for Pages {
    async fn serve(&self, request: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
        let get = request.method() == Method::GET || request.method() == Method::HEAD;
        let (status, content_type, text) = match self.answer(request.uri().path()) {
            Some(answer) if get => answer,
            Some(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "text/plain",
                "GET only\n".to_owned(),
            ),
            None => (
                StatusCode::NOT_FOUND,
                "text/plain",
                format!("no such page; there is {}\n", self.paths()),
            ),
        };
        let body = if request.method() == Method::HEAD {
            Bytes::new()
        } else {
            Bytes::from(text)
        };
        let mut response = Response::new(ReplyBody::data(body));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Page::Health { headers, .. } = &self.page {
            response.headers_mut().extend(headers.iter().cloned());
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: before the listeners are bound, then bound, then one of them ends; a journal that is closed; stopping.
    /// Guarantees: ready is said exactly while everything is there.
    #[tokio::test]
    async fn ready_is_said_while_everything_is_there() {
        let journal = || Journal::memory("logs", Vec::new()).0;
        let readiness = Readiness::default();
        assert!(!readiness.get());
        let listener = tokio::spawn(std::future::pending::<()>());
        readiness.ready(vec![listener.abort_handle()], vec![journal()]);
        assert!(readiness.get());
        listener.abort();
        assert!(listener.await.is_err());
        assert!(!readiness.get());

        let closing = journal();
        readiness.ready(Vec::new(), vec![journal(), closing.clone()]);
        assert!(readiness.get());
        closing.close();
        assert!(!readiness.get());

        readiness.ready(Vec::new(), vec![journal()]);
        assert!(readiness.get());
        readiness.stopping();
        assert!(!readiness.get());
    }
}
