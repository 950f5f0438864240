//! Waiting for events.

use std::future::Future;
use std::time::Duration;

/// No event takes this long, not even on two busy cores; reaching it is a failure, never a pace.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How often something that sends no events (a page of another process) is asked again.
const POLL: Duration = Duration::from_millis(20);

/// The outcome of `future`, which must come before the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("not within {DEADLINE:?}: {what}"),
    }
}

/// Asks until `ask` has an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}
