//! A guarded tonic server, of OTLP logs here: `cargo run -p sluice-admission --features tower --example tonic_server`.
//!
//! Calls hold what is reserved for a message of a budget of 64 MiB, wait two seconds for it at most, and are refused with `UNAVAILABLE` and `RetryInfo`:
//! clients of OTLP retry after that, and give up data that is refused without it (the OTLP specification, "OTLP/gRPC Throttling").
//! `cargo test -p sluice-admission --example tonic_server` shows it with tonic's client.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use sluice_admission::{
    Budget, Budgeted, Classify, Guard, GuardLayer, GuardSettings, NoHooks, Origin, Outcome, Permit, Refusal,
    Reserve, Signals,
};
use tonic::body::Body;
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

const BUDGET_BYTES: u64 = 64 << 20;

/// What clients wait for without being told anything.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call does not say how long its message is before it has begun: tonic's own limit of one.
const MESSAGE_BYTES: u64 = 4 << 20;

/// The refusal in gRPC's words.
fn status(refusal: &Refusal) -> Status {
    match refusal.retry_after {
        Some(delay) => {
            let details = ErrorDetails::with_retry_info(Some(delay));
            Status::with_error_details(Code::Unavailable, refusal.to_string(), details)
        }
        // Without RetryInfo: it would be refused again.
        None => Status::resource_exhausted(refusal.to_string()),
    }
}

/// Calls that failed in the service say so in their trailers alone, where they have no messages.
fn outcome(response: &Response<Body>) -> Outcome {
    let status = Status::from_header_map(response.headers());
    match status.map(|status| status.code()) {
        Some(Code::Internal | Code::Unknown | Code::Unavailable | Code::DataLoss) => Outcome::Failure,
        _ => Outcome::Success,
    }
}

/// The names of methods are those of the services, and what is not served shares one.
fn method(request: &Request<Body>) -> &str {
    const KNOWN: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
    match request.uri().path() {
        KNOWN => KNOWN,
        _ => "none",
    }
}

/// The layer, which goes in front of one service as well as of a whole server.
#[allow(
    clippy::type_complexity,
    reason = "its four parts; no name is needed where the layer is used at once"
)]
fn layer(
    guard: Arc<Guard>,
    budget: Budget,
) -> GuardLayer<
    impl Fn(&Request<Body>) -> &str + Clone,
    impl Fn(&Refusal) -> Response<Body> + Clone,
    impl Classify<Response<Body>> + Clone,
    impl Reserve<Request<Body>, Permit = Permit, Wait: Send> + Clone,
> {
    let bytes = |_: &Request<Body>| MESSAGE_BYTES;
    GuardLayer::new(guard, method, |refusal: &Refusal| status(refusal).into_http())
        .with_outcomes(outcome)
        .with_permits(Budgeted::new(budget, bytes, PATIENCE, tokio::time::sleep, 1))
}

/// Takes everything.
struct Logs;

#[tonic::async_trait]
impl LogsService for Logs {
    async fn export(
        &self,
        _: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, Status> {
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
    let budget = Budget::new(BUDGET_BYTES);
    let (watched, watching) = (guard.clone(), budget.clone());
    tokio::spawn(async move {
        loop {
            // What the process feels; a real one would look at its queue and its disk too.
            let usage = watching.usage();
            let signals = Signals {
                budget: usage.used as f64 / usage.capacity as f64,
                ..Signals::default()
            };
            watched.observe(&signals, Origin::process().now());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let address = "127.0.0.1:4317".parse()?;
    println!("listening on http://{address}");
    Server::builder()
        .layer(layer(guard, budget))
        .add_service(LogsServiceServer::new(Logs))
        .serve(address)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
    use tower::Layer as _;

    use super::*;

    /// Scenario: tonic's client calls a service that fits; then one that has to wait for what is never given back; then one whose messages
    /// are larger than the budget; then at emergency.
    /// Guarantees: it is answered; refused after the wait with when to come back, in the status details; rejected without; refused at once.
    #[tokio::test(start_paused = true)]
    async fn refusals_are_retryable() {
        let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
        let budget = Budget::new(BUDGET_BYTES);
        let export = async |budget: &Budget| {
            let layer = layer(guard.clone(), budget.clone());
            let mut client = LogsServiceClient::new(layer.layer(LogsServiceServer::new(Logs)));
            client.export(ExportLogsServiceRequest::default()).await
        };
        export(&budget).await.unwrap();

        let held = budget.try_reserve(BUDGET_BYTES / 16 * 15).unwrap();
        let began = tokio::time::Instant::now();
        let refused = export(&budget).await.unwrap_err();
        assert_eq!((refused.code(), began.elapsed()), (Code::Unavailable, PATIENCE));
        let delay = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert!((1..=30).contains(&delay.as_secs()), "{delay:?}");
        drop(held);

        let rejected = export(&Budget::new(MESSAGE_BYTES / 2)).await.unwrap_err();
        assert_eq!(rejected.code(), Code::ResourceExhausted);
        assert!(rejected.get_details_retry_info().is_none());

        let disk_is_full = Signals {
            disk: 1.0,
            ..Signals::default()
        };
        guard.observe(&disk_is_full, Origin::process().now());
        // The trickle passes.
        export(&budget).await.unwrap();
        let refused = export(&budget).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());
    }
}
