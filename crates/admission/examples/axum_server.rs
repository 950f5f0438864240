//! A guarded axum server: `cargo run -p sluice-admission --features tower --example axum_server`, then
//! `curl -i --data-binary @some-file http://127.0.0.1:3000/orders`.
//!
//! Requests hold their `Content-Length` of a budget of 64 MiB, wait two seconds for it at most, and are refused with 503 and `Retry-After`, or
//! with 413 where they could never fit. `cargo test -p sluice-admission --example axum_server` shows each.
#![allow(clippy::print_stdout, reason = "it says where it listens")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{Request, StatusCode};
use sluice_admission::{
    Budget, Budgeted, Guard, GuardLayer, GuardSettings, NoHooks, Origin, Outcome, Refusal, Signals,
};

const BUDGET_BYTES: u64 = 64 << 20;

/// What clients wait for without being told anything.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request that does not say how long it is holds as much.
const UNKNOWN_BYTES: u64 = 1 << 20;

/// The refusal in HTTP's words.
fn answer(refusal: &Refusal) -> Response {
    let text = refusal.to_string();
    match refusal.retry_after_seconds() {
        Some(seconds) => {
            let header = [(RETRY_AFTER, seconds.to_string())];
            (StatusCode::SERVICE_UNAVAILABLE, header, text).into_response()
        }
        None => (StatusCode::PAYLOAD_TOO_LARGE, text).into_response(),
    }
}

/// The route, which is one of few, and not the path, which is the client's.
fn route(request: &Request<Body>) -> &str {
    let path = request.extensions().get::<MatchedPath>();
    path.map_or("none", MatchedPath::as_str)
}

fn bytes(request: &Request<Body>) -> u64 {
    let length = request.headers().get(CONTENT_LENGTH);
    length
        .and_then(|length| length.to_str().ok()?.parse().ok())
        .unwrap_or(UNKNOWN_BYTES)
}

fn outcome(response: &Response) -> Outcome {
    match response.status().is_server_error() {
        true => Outcome::Failure,
        false => Outcome::Success,
    }
}

fn app(guard: Arc<Guard>, budget: Budget) -> Router {
    let permits = Budgeted::new(budget, bytes, PATIENCE, tokio::time::sleep, 1);
    let layer = GuardLayer::new(guard, route, answer)
        .with_outcomes(outcome)
        .with_permits(permits);
    let order = async |body: String| format!("an order of {} bytes\n", body.len());
    Router::new().route("/orders", post(order)).layer(layer)
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
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app(guard, budget)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tower::ServiceExt as _;

    use super::*;

    async fn send(app: &Router, bytes: usize) -> Response {
        let request = Request::post("/orders")
            .header(CONTENT_LENGTH, bytes)
            .body(Body::from("x".repeat(bytes)))
            .unwrap();
        app.clone().oneshot(request).await.unwrap()
    }

    /// Scenario: a request that fits; one that has to wait for what is never given back; one larger than the budget; one at emergency.
    /// Guarantees: 200; 503 after the wait with when to come back; 413 without; 503 at once. What is refused is told apart by its route.
    #[tokio::test(start_paused = true)]
    async fn refusals_are_retryable() {
        let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
        let budget = Budget::new(BUDGET_BYTES);
        let app = app(guard.clone(), budget.clone());
        assert_eq!(send(&app, 3).await.status(), StatusCode::OK);
        let names: Vec<_> = guard.methods(0).map(|method| method.name.to_owned()).collect();
        assert!(names.contains(&"/orders".to_owned()), "{names:?}");

        let held = budget.try_reserve(BUDGET_BYTES / 16 * 15).unwrap();
        let began = tokio::time::Instant::now();
        let refused = send(&app, 2 << 20).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(began.elapsed(), PATIENCE);
        let seconds: u64 = refused.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=30).contains(&seconds), "{seconds}");
        drop(held);

        let rejected = send(&app, BUDGET_BYTES as usize + 1).await;
        assert_eq!(rejected.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert!(!rejected.headers().contains_key(RETRY_AFTER));

        let disk_is_full = Signals {
            disk: 1.0,
            ..Signals::default()
        };
        guard.observe(&disk_is_full, Origin::process().now());
        // The trickle passes.
        assert_eq!(send(&app, 3).await.status(), StatusCode::OK);
        let refused = send(&app, 3).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(RETRY_AFTER));
    }
}
