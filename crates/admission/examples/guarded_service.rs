//! A guard in front of a tower service: `cargo run -p sluice-admission --features tower --example guarded_service`.
//!
//! The service is healthy, then slow, then healthy again. Once it is slow, requests are answered with 503 and
//! `Retry-After` without reaching it, but for a trickle; by the trickle the guard sees it recover. The same layer
//! goes in front of an axum router or a tonic server: see `axum_server.rs` and `tonic_server.rs`.
#![allow(clippy::print_stdout, reason = "its output is the demonstration")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use sluice_admission::{
    Guard, GuardLayer, GuardSettings, Hooks, LatencyThresholds, LevelChange, Origin, Outcome, Refusal,
    Signals,
};
use tower::{Layer as _, ServiceExt as _, service_fn};

/// Tells what changes; a real one would log and count.
struct Told;

impl Hooks for Told {
    fn level_changed(&self, method: Option<&str>, change: LevelChange) {
        let of = method.unwrap_or("the process");
        println!(
            "level of {of}: {} -> {}, by {}",
            change.from, change.to, change.cause
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A service that usually takes a millisecond: 5 ms is late, 20 ms is an emergency.
    let milliseconds = |count: u64| count * 1_000_000;
    let settings = GuardSettings {
        latency: LatencyThresholds {
            p99_emergency: milliseconds(20),
            p95_moderate: milliseconds(5),
            ..LatencyThresholds::default()
        },
        trickle: Duration::from_millis(100),
        ..GuardSettings::low_latency()
    };
    let guard = Arc::new(Guard::new(settings, Told, 1));
    let layer = GuardLayer::new(
        guard.clone(),
        |request: &Request<String>| request.uri().path(),
        |refusal: &Refusal| {
            let mut answer = Response::new(refusal.to_string());
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            if let Some(seconds) = refusal.retry_after_seconds() {
                answer.headers_mut().insert(RETRY_AFTER, seconds.into());
            }
            answer
        },
    )
    .with_outcomes(|response: &Response<String>| {
        if response.status().is_server_error() {
            Outcome::Failure
        } else {
            Outcome::Success
        }
    });

    let takes_ms = Arc::new(AtomicU64::new(1));
    let service = layer.layer(service_fn({
        let takes_ms = takes_ms.clone();
        move |request: Request<String>| {
            let takes = Duration::from_millis(takes_ms.load(Ordering::Relaxed));
            async move {
                tokio::time::sleep(takes).await;
                Ok::<_, Infallible>(Response::new(request.into_body()))
            }
        }
    }));

    for (phase, takes) in [("healthy", 1), ("slow", 30), ("healthy again", 1)] {
        takes_ms.store(takes, Ordering::Relaxed);
        let (mut answered, mut refused) = (0, 0);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            // What else the process feels; a real one would ask its queue and its disk, every 100 ms or so.
            guard.observe(&Signals::default(), Origin::process().now());
            let request = Request::post("/orders").body(String::from("one order"))?;
            if service.clone().oneshot(request).await?.status().is_success() {
                answered += 1;
            } else {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        println!("{phase}: {answered} answered, {refused} refused");
    }
    for method in guard.methods(Origin::process().now()) {
        println!(
            "{}: {}, p99 {} us",
            method.name,
            method.level,
            method.stats.p99 / 1_000
        );
    }
    Ok(())
}
