//! What all transports of the sink share: counters, accounts, faults.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use sluice_loadgen::{RemoteWrite, Signal, Written};
use sluice_otlp::json::{self, JsonOptions};

use super::fault::{Faults, Script, Transport, Treatment};
use super::recognise::Recogniser;
use crate::account::{Account, AccountReport, Arrivals, Outlines, SentIds};
use crate::load::kind;

/// How closely the sink looks at what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Check {
    /// Every item of every request, as it arrives.
    Now,
    /// For saturation: compressed bodies are kept, and every item in them is checked when the account is
    /// asked for. Of uncompressed ones, resources that are as long as the load sent them are recognised by
    /// their first and last id, and the rest of them is not read; everything else is checked item by item.
    Later,
    /// Nothing: bytes are counted.
    Bytes,
}

/// What has arrived, without looking into it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that a fault script refused, reset or cut short.
    pub faults: u64,
    /// Requests whose body could not be read as what it should be.
    pub malformed: u64,
    /// The first of them, and why.
    pub first_malformed: Option<String>,
    /// Bytes of all bodies as they arrived.
    pub body_bytes: u64,
    /// Items found so far; of compressed bodies that are kept, after they have been checked.
    pub items: u64,
    /// When the last request arrived, in milliseconds since the sink started.
    pub last_arrival_millis: u64,
    /// Now, by the same clock.
    pub now_millis: u64,
}

/// What is in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// An `Export*ServiceRequest` as protobuf.
    Protobuf,
    /// The same as JSON.
    Json,
    /// A request of remote write.
    RemoteWrite(RemoteWrite),
}

impl Format {
    /// Whether the answer has to say how many samples were written, so that it cannot wait for a later look.
    fn answer_counts(self) -> bool {
        self == Format::RemoteWrite(RemoteWrite::V2)
    }
}

/// A body as it arrived.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) signal: Option<Signal>,
    pub(crate) encoding: &'a str,
    pub(crate) format: Format,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    signal: Option<Signal>,
    encoding: String,
    format: Format,
    body: Vec<u8>,
}

struct FaultState {
    faults: Faults,
    since: Instant,
}

/// The sink behind its transports.
pub(crate) struct Intake {
    pub(crate) check: Check,
    started: Instant,
    requests: AtomicU64,
    faulted: AtomicU64,
    malformed: AtomicU64,
    body_bytes: AtomicU64,
    last_arrival_millis: AtomicU64,
    first_malformed: Mutex<Option<String>>,
    accounts: Mutex<[Account; 3]>,
    kept: Mutex<Vec<Kept>>,
    recognisers: RwLock<[Arc<Recogniser>; 3]>,
    faults: Mutex<Option<FaultState>>,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake")
            .field("check", &self.check)
            .finish_non_exhaustive()
    }
}

impl Intake {
    pub(crate) fn new(check: Check, script: Script) -> Intake {
        let intake = Intake {
            check,
            started: Instant::now(),
            requests: AtomicU64::new(0),
            faulted: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            last_arrival_millis: AtomicU64::new(0),
            first_malformed: Mutex::default(),
            accounts: Mutex::default(),
            kept: Mutex::default(),
            recognisers: RwLock::default(),
            faults: Mutex::default(),
        };
        intake.set_faults(script);
        intake
    }

    /// Replaces the script; its time and counts begin anew.
    pub(crate) fn set_faults(&self, script: Script) {
        let since = Instant::now();
        *self.faults.lock() = (script != Script::default()).then(|| FaultState {
            faults: Faults::new(script),
            since,
        });
    }

    /// What to do to a request, once its head has arrived.
    pub(crate) fn treat(&self, signal: Option<Signal>, transport: Transport) -> Treatment {
        match &mut *self.faults.lock() {
            Some(state) => state.faults.treat(state.since.elapsed(), signal, transport),
            None => Treatment::default(),
        }
    }

    /// Whether the bytes of a request are looked at.
    pub(crate) fn wants_body(&self, format: Format) -> bool {
        self.check != Check::Bytes || format.answer_counts()
    }

    /// The outlines by which resources may be recognised without reading them, if there are any.
    pub(crate) fn recogniser(&self, signal: Option<Signal>, encoding: &str) -> Option<Arc<Recogniser>> {
        if self.check != Check::Later || !is_identity(encoding) {
            return None;
        }
        let recognisers = self.recognisers.read();
        let recogniser = &recognisers[signal?.index()];
        (!recogniser.is_empty()).then(|| recogniser.clone())
    }

    pub(crate) fn set_outlines(&self, outlines: &Outlines) -> Result<(), String> {
        let (signal, outlines) = outlines.read()?;
        Arc::make_mut(&mut self.recognisers.write()[signal.index()]).add(&outlines);
        Ok(())
    }

    /// Counts a request that has been read to its end.
    pub(crate) fn arrived(&self, body_bytes: u64, treatment: &Treatment) {
        self.requests.fetch_add(1, Relaxed);
        self.body_bytes.fetch_add(body_bytes, Relaxed);
        let fault = treatment.refusal.is_some() || treatment.reset || treatment.partial > 0;
        self.faulted.fetch_add(u64::from(fault), Relaxed);
        self.last_arrival_millis.store(self.millis(), Relaxed);
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Accounts for what was recognised while it was read.
    pub(crate) fn settle(&self, signal: Signal, arrivals: Arrivals) {
        arrivals.settle(&mut self.accounts.lock()[signal.index()]);
    }

    /// Accounts for a body; without its first `rejected_items`, which are told to the sender. Of remote write
    /// it says how much was written, as far as it has looked. An error says why the body cannot be read; it is
    /// counted.
    pub(crate) fn take(&self, received: Received<'_>, rejected_items: u64) -> Result<Written, String> {
        let later = self.check == Check::Later && !is_identity(received.encoding) && rejected_items == 0;
        if later && !received.format.answer_counts() {
            self.kept.lock().push(Kept {
                signal: received.signal,
                encoding: received.encoding.to_string(),
                format: received.format,
                body: received.body,
            });
            Ok(Written::default())
        } else {
            self.look(received, rejected_items)
        }
    }

    fn look(&self, received: Received<'_>, rejected_items: u64) -> Result<Written, String> {
        match read(&received) {
            Ok((signal, mut arrivals, mut written)) => {
                arrivals.skip(rejected_items);
                if self.check != Check::Bytes {
                    self.settle(signal, arrivals);
                }
                // Exact for requests of one sample for each item, such as gauges and counters.
                written.samples = written.samples.saturating_sub(rejected_items);
                Ok(written)
            }
            Err(error) => {
                self.malformed(format!(
                    "{} bytes, encoding {:?}: {error}",
                    received.body.len(),
                    received.encoding
                ));
                Err(error)
            }
        }
    }

    /// Counts a request that could not be read.
    pub(crate) fn malformed(&self, error: String) {
        self.malformed.fetch_add(1, Relaxed);
        self.first_malformed.lock().get_or_insert(error);
    }

    pub(crate) fn sent(&self, sent: &SentIds) -> Result<(), String> {
        let signal: Signal = sent.signal.parse()?;
        self.accounts.lock()[signal.index()].sent(sent);
        Ok(())
    }

    fn check_kept(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        for kept in kept {
            let received = Received {
                signal: kept.signal,
                encoding: &kept.encoding,
                format: kept.format,
                body: kept.body,
            };
            // It was answered long ago; what cannot be read has been counted.
            let _ = self.look(received, 0);
        }
    }

    pub(crate) fn account(&self, signal: Signal) -> AccountReport {
        self.check_kept();
        self.accounts.lock()[signal.index()].report()
    }

    pub(crate) fn accounts(&self) -> BTreeMap<String, AccountReport> {
        self.check_kept();
        let accounts = self.accounts.lock();
        let report = |signal: Signal| (signal.to_string(), accounts[signal.index()].report());
        Signal::ALL.into_iter().map(report).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            requests: self.requests.load(Relaxed),
            faults: self.faulted.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            first_malformed: self.first_malformed.lock().clone(),
            body_bytes: self.body_bytes.load(Relaxed),
            items: self.accounts.lock().iter().map(Account::items).sum(),
            last_arrival_millis: self.last_arrival_millis.load(Relaxed),
            now_millis: self.millis(),
        }
    }
}

/// Sleeps so long that `bytes` more have taken as long as they should at this rate.
pub(crate) fn pace(bandwidth: u64, bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bandwidth.max(1) as f64)
}

fn is_identity(encoding: &str) -> bool {
    matches!(encoding, "" | "identity")
}

/// Finds the ids of a body.
fn read(received: &Received<'_>) -> Result<(Signal, Arrivals, Written), String> {
    let signal = received.signal.ok_or("unknown path")?;
    let inflated;
    let mut body = received.body.as_slice();
    if !is_identity(received.encoding) {
        inflated = inflate(received.encoding, body).map_err(|error| error.to_string())?;
        body = &inflated;
    }
    let decoded;
    match received.format {
        Format::Protobuf => {}
        Format::Json => {
            decoded = json::decode(json::request_schema(kind(signal)), body, JsonOptions::default())
                .map_err(|error| error.to_string())?;
            body = &decoded;
        }
        Format::RemoteWrite(version) => {
            let (arrivals, written) = Arrivals::find_remote_write(version, body)?;
            return Ok((signal, arrivals, written));
        }
    }
    Ok((signal, Arrivals::find(signal, body)?, Written::default()))
}

/// A snappy block says in its first bytes how much memory it wants; a broken one may want 4 GiB.
const SNAPPY_LIMIT: usize = 256 << 20;

fn inflate(encoding: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut inflated = Vec::new();
    match encoding {
        "gzip" => drop(flate2::read::MultiGzDecoder::new(body).read_to_end(&mut inflated)?),
        "snappy" => match snap::raw::decompress_len(body)? {
            len if len > SNAPPY_LIMIT => {
                return Err(io::Error::other(format!("snappy: {len} bytes are no request")));
            }
            _ => inflated = snap::raw::Decoder::new().decompress_vec(body)?,
        },
        "zstd" => zstd::stream::copy_decode(body, &mut inflated)?,
        other => return Err(io::Error::other(format!("unknown encoding {other:?}"))),
    }
    Ok(inflated)
}
