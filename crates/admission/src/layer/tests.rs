use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::{Budget, GuardSettings, Hooks, Level, NoHooks, Permit, Reason, Signals};

type Request = http::Request<&'static str>;
type Response = http::Response<&'static str>;

fn layer(
    guard: &Arc<Guard>,
) -> GuardLayer<impl Fn(&Request) -> &str + Clone, impl Fn(&Refusal) -> Response + Clone> {
    GuardLayer::new(
        guard.clone(),
        |request: &Request| request.uri().path(),
        |refusal: &Refusal| {
            let response = http::Response::builder();
            let response = match refusal.retry_after_seconds() {
                Some(seconds) => response.status(503).header("retry-after", seconds),
                None => response.status(413),
            };
            response.body("later").unwrap()
        },
    )
}

fn get(path: &'static str) -> Request {
    http::Request::get(path).body("").unwrap()
}

async fn ok(_: Request) -> Result<Response, Infallible> {
    Ok(http::Response::new("done"))
}

/// Scenario: a guarded service at normal, then at emergency.
/// Guarantees: requests reach the service and are counted; refused ones do not reach it, and their answer is the
/// closure's, with when to come back.
#[tokio::test]
async fn admits_and_refuses() {
    let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
    let service = layer(&guard).layer(service_fn(ok));
    assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 200);
    let now = Origin::process().now();
    assert!(
        guard
            .methods(now)
            .any(|method| method.name == "/a" && method.stats.weight == 1.0)
    );
    guard.observe(
        &Signals {
            disk: 1.0,
            ..Signals::default()
        },
        now,
    );
    assert_eq!(guard.level(), Level::Emergency);
    // The trickle.
    assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 200);
    let refused = service.oneshot(get("/a")).await.unwrap();
    assert_eq!(
        (refused.status(), *refused.body()),
        (http::StatusCode::SERVICE_UNAVAILABLE, "later")
    );
    let seconds: u64 = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((8..=13).contains(&seconds), "{seconds}");
}

/// Scenario: five responses that the classifier calls failures.
/// Guarantees: they open the method's breaker, once it was closed for a while.
#[tokio::test]
async fn responses_count_as_classified() {
    let mut settings = GuardSettings::default();
    settings.breaker.as_mut().unwrap().min_closed = Duration::ZERO;
    let guard = Arc::new(Guard::new(settings, NoHooks, 1));
    let failed = |response: &Response| {
        if response.status().is_server_error() {
            Outcome::Failure
        } else {
            Outcome::Success
        }
    };
    let service = layer(&guard)
        .with_outcomes(failed)
        .layer(service_fn(async |_: Request| {
            Ok::<_, Infallible>(http::Response::builder().status(500).body("broken").unwrap())
        }));
    let mut statuses = Vec::new();
    // The breaker's clock has steps of a millisecond: it needs to have been closed for one.
    while statuses.last() != Some(&503) {
        statuses.push(
            service
                .clone()
                .oneshot(get("/a"))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert!(statuses.len() > 3 && statuses[..3] == [500; 3], "{statuses:?}");
    assert_eq!(
        layer(&guard)
            .layer(service_fn(ok))
            .oneshot(get("/b"))
            .await
            .unwrap()
            .status(),
        200
    );
}

/// Scenario: one permit; a request under way, a second one; the first is given up, a third one.
/// Guarantees: the second is refused, the third admitted: a permit is held until the future resolves or is
/// dropped, and what was given up counts for the latency.
#[tokio::test]
async fn permits_are_held_while_under_way() {
    let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
    let free = Arc::new(AtomicUsize::new(1));
    struct Place(Arc<AtomicUsize>);
    impl Drop for Place {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let places = {
        let free = free.clone();
        move |_: &Request| {
            free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1))
                .map(|_| Place(free.clone()))
                .map_err(|_| Refusal {
                    reason: Reason::NoRoom,
                    retry_after: Some(Duration::from_secs(1)),
                })
        }
    };
    let service = layer(&guard)
        .with_permits(places)
        .layer(service_fn(async |request: Request| {
            if request.uri().path() == "/stuck" {
                std::future::pending::<()>().await;
            }
            ok(request).await
        }));
    let mut stuck = Box::pin(service.clone().oneshot(get("/stuck")));
    assert!(polled_once(&mut stuck).await.is_pending());
    assert_eq!(free.load(Ordering::Relaxed), 0);
    assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 503);
    drop(stuck);
    assert_eq!(service.oneshot(get("/a")).await.unwrap().status(), 200);
    assert_eq!(free.load(Ordering::Relaxed), 1);
    let now = Origin::process().now();
    assert!(
        guard
            .methods(now)
            .any(|method| method.name == "/stuck" && method.stats.weight == 1.0)
    );
    assert!(
        guard
            .methods(now)
            .any(|method| method.name == "/a" && method.stats.weight == 1.0)
    );
}

const MIB: u64 = 1 << 20;

/// What a request will hold: its body says so.
fn bytes(request: &Request) -> u64 {
    request.body().parse().unwrap_or(10 * MIB)
}

const PATIENCE: Duration = Duration::from_secs(5);

fn budgeted(budget: &Budget) -> impl Reserve<Request, Permit = Permit> + Clone {
    Budgeted::new(budget.clone(), bytes, PATIENCE, tokio::time::sleep, 1)
}

fn weight(guard: &Guard, name: &str) -> f64 {
    let mut methods = guard.methods(Origin::process().now());
    methods
        .find(|method| method.name == name)
        .map_or(0.0, |method| method.stats.weight)
}

/// Scenario: requests that hold ten of fifteen MiB each: one is under way, the second waits for it, the third waits and is given up.
/// Guarantees: the second reaches the service when the first has ended, and not before; the third never does, and nothing is learnt
/// from it; all bytes come back.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_permit() {
    let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
    let budget = Budget::new(16 * MIB);
    let (begun, open) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(tokio::sync::Notify::new()),
    );
    let service = {
        let (begun, open) = (begun.clone(), open.clone());
        layer(&guard)
            .with_permits(budgeted(&budget))
            .layer(service_fn(move |request: Request| {
                begun.fetch_add(1, Ordering::Relaxed);
                let open = open.clone();
                async move {
                    open.notified().await;
                    ok(request).await
                }
            }))
    };
    let mut first = Box::pin(service.clone().oneshot(get("/a")));
    let mut second = Box::pin(service.clone().oneshot(get("/a")));
    let mut third = Box::pin(service.oneshot(get("/b")));
    assert!(polled_once(&mut first).await.is_pending());
    assert!(polled_once(&mut second).await.is_pending());
    assert!(polled_once(&mut third).await.is_pending());
    assert_eq!((begun.load(Ordering::Relaxed), budget.usage().waiting), (1, 2));
    drop(third);
    assert_eq!((budget.usage().waiting, weight(&guard, "/b")), (1, 0.0));
    open.notify_one();
    assert_eq!(first.await.unwrap().status(), 200);
    assert!(polled_once(&mut second).await.is_pending());
    assert_eq!((begun.load(Ordering::Relaxed), budget.usage().waiting), (2, 0));
    open.notify_one();
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(budget.usage().used, 0);
    assert!(weight(&guard, "/a") > 1.9);
}

/// Scenario: a request that waits for what nobody gives back; one that can never fit; one that comes while the line is as long as it may be.
/// Guarantees: the first is refused when its time is over, and the others at once; who may come back is told when, who may not is not;
/// none reaches the service, and the hooks hear of each.
#[tokio::test(start_paused = true)]
async fn a_wait_is_bounded() {
    #[derive(Clone, Default)]
    struct Told(Arc<parking_lot::Mutex<Vec<Reason>>>);
    impl Hooks for Told {
        fn refused(&self, _: &str, refusal: &Refusal) {
            self.0.lock().push(refusal.reason);
        }
    }
    let told = Told::default();
    let guard = Arc::new(Guard::new(GuardSettings::default(), told.clone(), 1));
    let budget = Budget::new(16 * MIB);
    let _held = budget.try_reserve(10 * MIB).unwrap();
    let service = layer(&guard).with_permits(budgeted(&budget)).layer(service_fn(
        async |_: Request| -> Result<Response, Infallible> { panic!("refused requests do not come here") },
    ));
    let send = |body: &'static str| {
        service
            .clone()
            .oneshot(http::Request::get("/a").body(body).unwrap())
    };
    let began = tokio::time::Instant::now();
    let refused = send("").await.unwrap();
    assert_eq!((refused.status().as_u16(), began.elapsed()), (503, PATIENCE));
    assert!(refused.headers().contains_key("retry-after"));
    let rejected = send("16000000").await.unwrap();
    assert_eq!((rejected.status().as_u16(), began.elapsed()), (413, PATIENCE));
    assert!(!rejected.headers().contains_key("retry-after"));
    let mut line = Vec::new();
    for _ in 0..LONGEST_LINE {
        let mut waiting = Box::pin(send(""));
        assert!(polled_once(&mut waiting).await.is_pending());
        line.push(waiting);
    }
    assert_eq!(send("").await.unwrap().status(), 503);
    assert_eq!(
        (began.elapsed(), budget.usage().waiting),
        (PATIENCE, LONGEST_LINE)
    );
    drop(line);
    assert_eq!((budget.usage().used, budget.usage().waiting), (10 * MIB, 0));
    let reasons = told.0.lock().clone();
    assert!(
        matches!(
            reasons[..],
            [Reason::NoRoom, Reason::NeverFits(_), Reason::NoRoom]
        ),
        "{reasons:?}"
    );
}

/// Polls once.
async fn polled_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}
