//! Something to be done by every worker of the runtime: what a thread keeps for itself, nobody else can give back.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// How long a worker waits for the others, at most. They take some 100 us to wake up and come, and one that does not come has a task of its own to
/// do: what waits behind this must not notice.
pub(crate) const MEETING: Duration = Duration::from_millis(10);

/// Has each worker of this runtime do `work`. The runtime does not say which worker takes a task: so there are as many tasks as workers, and each
/// holds its worker until all have come or `meeting` is over. A worker that was busy so long is left out.
pub(crate) fn each(work: impl Fn() + Send + Sync + 'static, meeting: Duration) -> Vec<JoinHandle<()>> {
    let runtime = Handle::current();
    let workers = runtime.metrics().num_workers();
    let shared = Arc::new((work, Mutex::new(workers), Condvar::new()));
    let task = |_| {
        let shared = shared.clone();
        runtime.spawn(async move {
            let (work, missing, all_here) = &*shared;
            work();
            let mut missing = missing.lock();
            *missing -= 1;
            all_here.notify_all();
            all_here.wait_while_for(&mut missing, |missing| *missing > 0, meeting);
        })
    };
    (0..workers).map(task).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::HashMap;
    use std::thread::{ThreadId, current};

    use super::*;

    /// Nobody is to come too late on a machine that is busy.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn threads() -> HashMap<ThreadId, u32> {
        let seen = Arc::new(Mutex::new(HashMap::new()));
        let sees = seen.clone();
        let work = move || *sees.lock().entry(current().id()).or_default() += 1;
        for task in each(work, PATIENCE) {
            task.await.unwrap();
        }
        let seen = seen.lock();
        seen.clone()
    }

    /// Scenario: a runtime of four workers that sleep, asked by one of them, ten times.
    /// Guarantees: each of four threads has done it once, every time.
    #[test]
    fn every_worker_does_it_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .build()
            .unwrap();
        for _ in 0..10 {
            let seen = runtime.block_on(async { tokio::spawn(threads()).await.unwrap() });
            assert_eq!(seen.into_values().collect::<Vec<_>>(), [1; 4]);
        }
    }

    /// Scenario: a runtime of one thread.
    /// Guarantees: it does it once, and waits for nobody.
    #[tokio::test]
    async fn one_thread_waits_for_nobody() {
        assert_eq!(threads().await, HashMap::from([(current().id(), 1)]));
    }
}
