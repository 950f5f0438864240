//! The clients of the gateway: real OTLP over loopback, refusals honoured, every acknowledged id noted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sluice_loadgen::{Generator, Request, Signal, Tallies};
use sluice_otlp::exporter::{GrpcExporter, GrpcExporterOptions, HttpExporter, HttpExporterOptions};
use sluice_payload::WireFormat;
use sluice_pipeline::{Batch, Exporter, Part, Verdict};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::assembly::Gateway;

use super::GRACE;
use super::plan::{Plan, Sender, Way, signal_of};

/// Longer than the gateway ever lets a request wait, so that no answer is missed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The pause before a retry when the refusal names none.
const RETRY: Duration = Duration::from_millis(200);

/// When senders stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Not yet.
    No,
    /// No new requests; refused ones are retried for [`GRACE`].
    AtGrace,
    /// No new requests, no retries.
    Now,
}

/// What the senders did.
#[derive(Default)]
pub(super) struct Sent {
    /// The ids of acknowledged requests.
    pub tallies: Mutex<Tallies>,
    items: [AtomicU64; 3],
    refused: AtomicU64,
    given_up: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Sent {
    /// Acknowledged items, by [`Signal::index`].
    pub fn items(&self) -> [u64; 3] {
        [0, 1, 2].map(|signal: usize| self.items[signal].load(Ordering::Relaxed))
    }

    /// Refusals; each was followed by another attempt while there was time.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Requests that were still refused when the time was up, and so never sent.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// The first answer that no retry could have mended.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn acknowledged(&self, signal: Signal, request: &Request) {
        self.tallies
            .lock()
            .of(signal)
            .sent(request.first_id, u64::from(request.items));
        self.items[signal.index()].fetch_add(u64::from(request.items), Ordering::Relaxed);
    }

    fn failed(&self, sender: &Sender, reason: &str) {
        let message = || {
            format!(
                "the gateway turned {} over {:?} away for good: {reason}",
                sender.signal, sender.way
            )
        };
        self.failure.lock().get_or_insert_with(message);
    }
}

/// Starts every sender of the plan.
///
/// # Errors
/// When the gateway has no receiver for one, or a client cannot be made.
pub(super) fn start(
    plan: &Plan,
    gateway: &Gateway,
    sent: &Arc<Sent>,
    stop: &watch::Receiver<Stop>,
) -> Result<Vec<JoinHandle<()>>, String> {
    let started = Instant::now();
    let end = started + plan.duration;
    let mut tasks = Vec::new();
    for sender in &plan.senders {
        let client = client(sender, gateway)?;
        tasks.push(tokio::spawn(drive(
            sender.clone(),
            client,
            sent.clone(),
            stop.clone(),
            started,
            end,
        )));
    }
    Ok(tasks)
}

fn client(sender: &Sender, gateway: &Gateway) -> Result<Box<dyn Exporter>, String> {
    let suffix = match sender.way {
        Way::Grpc => ".protocols.grpc",
        Way::Http => ".protocols.http",
    };
    let bound = gateway.bound().iter().find(|bound| bound.name.ends_with(suffix));
    let address = bound
        .ok_or_else(|| format!("the configuration has no receiver on {suffix}"))?
        .address;
    let endpoint = format!("http://{}", reachable(address));
    let text = |error: sluice_otlp::exporter::ExporterError| error.to_string();
    Ok(match sender.way {
        Way::Grpc => Box::new(
            GrpcExporter::new(GrpcExporterOptions {
                endpoint,
                compression: sender.compression,
                timeout: TIMEOUT,
                ..Default::default()
            })
            .map_err(text)?,
        ),
        Way::Http => Box::new(
            HttpExporter::new(HttpExporterOptions {
                endpoint: Some(endpoint),
                compression: sender.compression,
                timeout: TIMEOUT,
                ..Default::default()
            })
            .map_err(text)?,
        ),
    })
}

/// A listener on all interfaces is reached over loopback.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Sends one request after another, each at its time; what falls behind the end of the run is not sent at all, so that
/// the bound on disk use holds.
async fn drive(
    sender: Sender,
    client: Box<dyn Exporter>,
    sent: Arc<Sent>,
    mut stop: watch::Receiver<Stop>,
    started: Instant,
    end: Instant,
) {
    let mut generator = Generator::new(sender.spec.clone());
    let mut due = started;
    for _ in 0..sender.requests {
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            _ = stop.wait_for(|stop| *stop != Stop::No) => break,
        }
        if Instant::now() >= end {
            break;
        }
        let request = generator.next_request_at(unix_nanos());
        if !deliver(&sender, &*client, &request, &sent, &mut stop, end + GRACE).await {
            break;
        }
        due += sender.interval;
    }
    client.shutdown().await;
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Sends one request until it is acknowledged, or `give_up` or a stop ends its retries; false when there is no point in
/// another one.
pub(super) async fn deliver(
    sender: &Sender,
    client: &dyn Exporter,
    request: &Request,
    sent: &Sent,
    stop: &mut watch::Receiver<Stop>,
    give_up: Instant,
) -> bool {
    let batch = Batch {
        signal: signal_of(sender.signal),
        parts: vec![Part {
            body: request.body.clone(),
            items: u64::from(request.items),
            wire_format: WireFormat::Otlp,
            frame: None,
        }],
    };
    loop {
        match client.export(&batch).await {
            Verdict::Delivered { rejected: 0, .. } => {
                sent.acknowledged(sender.signal, request);
                return true;
            }
            Verdict::Retry { after, .. } => {
                sent.refused.fetch_add(1, Ordering::Relaxed);
                let again = Instant::now() + after.unwrap_or(RETRY);
                if again < give_up {
                    tokio::select! {
                        () = tokio::time::sleep_until(again.into()) => continue,
                        _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
                    }
                }
                sent.given_up.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Verdict::Delivered { rejected, message } => {
                let message = message.unwrap_or_default();
                sent.failed(sender, &format!("{rejected} items rejected: {message}"));
                return false;
            }
            Verdict::InPart { rejected, .. } => {
                sent.failed(sender, &format!("{rejected} items rejected"));
                return false;
            }
            Verdict::TooLarge { reason }
            | Verdict::PayloadFault { reason }
            | Verdict::EndpointFault { reason }
            | Verdict::Exhausted { reason } => {
                sent.failed(sender, &reason);
                return false;
            }
        }
    }
}
