//! The generator: requests at an exact rate, or from virtual users, and what became of them.

mod drive;
mod grpc;
mod http;
mod outcome;
mod plan;
mod schedule;
mod source;
mod timer;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::account::{Outlines, SentIds};
use crate::control;
use drive::{ThreadClock, drive};
use grpc::GrpcExchange;
use http::HttpExchange;
pub use outcome::LoadReport;
use outcome::Outcome;
pub use plan::{Bodies, Encoding, Plan, Protocol};
pub use schedule::Pace;
use schedule::Schedule;
use source::Source;
pub(crate) use source::kind;
use timer::ExactClock;

/// From the moment everything is prepared to the first request: the senders get to their starting places.
const LEAD: Duration = Duration::from_millis(50);

/// Sends what the plan says, and tells the sink's account about it if there is one.
///
/// An error means that the load could not be carried out at all; requests that fail are in the report.
pub fn run(plan: &Plan) -> Result<LoadReport, String> {
    plan.check()?;
    let plan = Arc::new(plan.clone());
    if let Some(account) = &plan.account {
        control::put_outlines(account, &outlines(&plan))?;
    }
    let senders = plan.senders.max(1);
    let sources = (0..senders)
        .map(|sender| Source::new(&plan, sender))
        .collect::<Result<Vec<_>, _>>()?;
    let schedule = Arc::new(Schedule::new(
        plan.pace,
        plan.spec.items_per_request.max(1),
        plan.duration,
    ));
    let (outcome, elapsed) = match plan.protocol {
        Protocol::Http | Protocol::Json | Protocol::RemoteWrite | Protocol::RemoteWrite2 => {
            run_http(&plan, &schedule, sources)?
        }
        Protocol::Grpc => run_grpc(&plan, &schedule, sources)?,
    };
    if let Some(account) = &plan.account {
        control::post_sent(account, &sent_ids(&plan, &outcome))?;
    }
    Ok(outcome.report(elapsed.as_secs_f64(), plan.spec.items_per_request))
}

/// How the sink recognises what all senders send.
fn outlines(plan: &Plan) -> Outlines {
    let mut all = Vec::new();
    for sender in 0..plan.senders.max(1) {
        all.extend(plan.generator(sender).outlines());
    }
    Outlines::new(plan.spec.signal, &all)
}

fn sent_ids(plan: &Plan, outcome: &Outcome) -> SentIds {
    let unique = plan.bodies == Bodies::Fresh;
    let pairs = |runs: &outcome::Runs| {
        let pair = |run: &std::ops::Range<u64>| (run.start, run.end - run.start);
        runs.iter().map(pair).collect()
    };
    SentIds {
        signal: plan.spec.signal.to_string(),
        accepted: if unique {
            pairs(&outcome.accepted)
        } else {
            Vec::new()
        },
        unsure: if unique {
            pairs(&outcome.unsure)
        } else {
            Vec::new()
        },
        repeated: if unique { 0 } else { outcome.accepted_items },
    }
}

/// A thread for each sender.
fn run_http(
    plan: &Arc<Plan>,
    schedule: &Arc<Schedule>,
    sources: Vec<Source>,
) -> Result<(Outcome, Duration), String> {
    let start = Instant::now() + LEAD;
    let threads: Vec<_> = (0..)
        .zip(sources)
        .map(|(sender, source)| {
            let (plan, schedule) = (plan.clone(), schedule.clone());
            std::thread::Builder::new()
                .name(format!("sender-{sender}"))
                .spawn(move || {
                    let mut exchange = HttpExchange::new(&plan);
                    block(drive(
                        &schedule,
                        &ThreadClock(start),
                        source,
                        &mut exchange,
                        sender,
                    ))
                })
                .map_err(|error| format!("cannot start the thread of sender {sender}: {error}"))
        })
        .collect::<Result<_, _>>()?;
    let mut total = Outcome::default();
    for thread in threads {
        total.merge(thread.join().map_err(|_| "a sender panicked")?);
    }
    Ok((total, start.elapsed()))
}

/// Runs a future that blocks its thread where others wait, and so is ready when it is first polled.
fn block<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

/// One thread for all calls: they wait for each other's answers more than they work.
fn run_grpc(
    plan: &Arc<Plan>,
    schedule: &Arc<Schedule>,
    sources: Vec<Source>,
) -> Result<(Outcome, Duration), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut connections = Vec::new();
        for _ in 0..plan.connections.max(1) {
            connections.push(grpc::connect(&plan.target).await?);
        }
        let start = Instant::now() + LEAD;
        let mut calls = Vec::new();
        for (sender, source) in (0..).zip(sources) {
            let connection = connections[sender as usize % connections.len()].clone();
            let (plan, schedule) = (plan.clone(), schedule.clone());
            let clock = ExactClock::new(start).map_err(|error| format!("cannot make a timer: {error}"))?;
            calls.push(tokio::task::spawn_local(async move {
                let mut exchange = GrpcExchange::new(&plan, connection);
                drive(&schedule, &clock, source, &mut exchange, sender).await
            }));
        }
        let mut total = Outcome::default();
        for call in calls {
            total.merge(call.await.map_err(|error| format!("a sender failed: {error}"))?);
        }
        Ok((total, start.elapsed()))
    })
}
