//! The `parquet` exporter: reads a journal's cursor, lays rows out in files, sends the files, settles what is in them.
//!
//! It takes the place of the pipeline's `deliver`: a batch here is a file of many payloads, and a payload may be in many
//! files. In the order of a row's way: [`run`] reads the cursor, `layout` puts rows into the open file of their
//! partition and cuts files, `spool` keeps what was cut, `store` sends it, and [`Settlement`] tells the cursor. `work` does that on
//! threads that may block, and begins anew where it fails.
//!
//! A payload is settled when all files with rows of it are at the destination: what the gateway acknowledged stays in the
//! journal until then. `spool` says how a crash at any moment leaves each row in one file.

#[cfg(feature = "object-stores")]
mod azure;
#[cfg(feature = "object-stores")]
mod bucket;
#[cfg(feature = "object-stores")]
mod gcs;
mod layout;
mod metrics;
mod partition;
#[cfg(feature = "object-stores")]
mod s3;
mod settlement;
mod spool;
mod store;
mod waiting;
mod work;

#[cfg(test)]
mod failures;
#[cfg(test)]
mod lost_end;
#[cfg(test)]
#[cfg(feature = "object-stores")]
mod outages;
#[cfg(test)]
#[cfg(feature = "object-stores")]
mod stores;
#[cfg(test)]
#[cfg(feature = "object-stores")]
mod stub;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_admission::Jitter;
use sluice_journal::{Cursor, Disk, Entry, Filesystem, Settled};
use sluice_payload::{Tenants, WireFormat};
use sluice_pipeline::RetrySettings;
use sluice_telemetry::{DropReason, Registry};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

#[cfg(feature = "object-stores")]
pub use azure::{AzureIdentity, AzureSettings};
#[cfg(feature = "object-stores")]
pub use gcs::GcsSettings;
pub use layout::LayoutSettings;
use layout::{Layout, ReadyFile};
use metrics::{FeedMetrics, Metrics, Refused};
pub use partition::PartitionBy;
#[cfg(feature = "object-stores")]
pub use s3::S3Settings;
use settlement::Settlement;
pub use spool::SpoolError;
use spool::{Finished, Spool};
use store::{Sent, Store};
use waiting::Waiting;
use work::{Stumbling, Work};

/// Payloads that are laid out in one go, in bytes: long enough to be worth another thread, short enough to stop soon.
const TURN_BYTES: usize = 4 << 20;

/// Files that wait for the store, before the queue is left to wait: each has a task and a few kilobytes that no budget knows of, and with a
/// directory for each tenant they may be small.
const MAX_WAITING_FILES: usize = 10_000;

/// How long uploads may take when the gateway stops and the queue is on disk: longer than a store that works needs for a
/// file, and far shorter than the time orchestrators give.
const LAST_UPLOADS: Duration = Duration::from_secs(5);

/// Where files go.
#[derive(Debug, Clone)]
pub enum Target {
    /// A local directory.
    Directory(PathBuf),
    /// A bucket of S3, or of a store that speaks its protocol.
    #[cfg(feature = "object-stores")]
    S3(Box<S3Settings>),
    /// A bucket of Google Cloud Storage.
    #[cfg(feature = "object-stores")]
    Gcs(Box<GcsSettings>),
    /// A container of Azure Blob Storage.
    #[cfg(feature = "object-stores")]
    Azure(Box<AzureSettings>),
}

impl Target {
    /// Eight digits, which differ where files go elsewhere: what one left in a directory that is everybody's, another does not send.
    pub fn digits(&self) -> String {
        let place = match self {
            Self::Directory(path) => format!("{path:?}"),
            #[cfg(feature = "object-stores")]
            Self::S3(s3) => format!("s3 {:?} {:?} {:?}", s3.endpoint, s3.bucket, s3.prefix),
            #[cfg(feature = "object-stores")]
            Self::Gcs(gcs) => format!("gcs {:?} {:?} {:?}", gcs.endpoint, gcs.bucket, gcs.prefix),
            #[cfg(feature = "object-stores")]
            Self::Azure(azure) => format!(
                "azure {:?} {:?} {:?} {:?}",
                azure.endpoint, azure.account, azure.container, azure.prefix
            ),
        };
        format!("{:08x}", crc32c::crc32c(place.as_bytes()))
    }
}

/// What an exporter is made from.
#[derive(Debug, Clone)]
pub struct ParquetExporterOptions {
    /// Where files go.
    pub target: Target,
    /// How rows become files.
    pub layout: LayoutSettings,
    /// Files sent at once.
    pub max_uploads: usize,
    /// Bytes of files that wait to be sent; beyond, nothing more is read from the journal.
    pub max_spool_bytes: u64,
    /// How failures are retried.
    pub retry: RetrySettings,
}

/// How one pipeline uses the exporter.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The directory of its spool: nobody else's.
    pub spool: PathBuf,
    /// The names of the tenants that payloads are of.
    pub tenants: Tenants,
    /// The journal is on disk, and its numbers go on after a restart.
    pub numbers_go_on: bool,
    /// Cut all files when payloads of so many bytes are in them and not settled: what the queue holds until then.
    pub max_bytes: u64,
    /// The same in items.
    pub max_items: u64,
    /// The same in payloads.
    pub max_requests: u64,
}

/// Writes tables. Cloning shares it.
#[derive(Debug, Clone)]
pub struct ParquetExporter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    store: Store,
    options: ParquetExporterOptions,
    uploads: Semaphore,
    jitter: Jitter,
    metrics: Metrics,
}

/// The exporter cannot be made from its settings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidTarget(String);

impl ParquetExporter {
    /// Reads the settings; sends nothing yet.
    ///
    /// # Errors
    /// When the bucket cannot be used as configured.
    pub fn new(
        id: &str,
        options: ParquetExporterOptions,
        registry: &Registry,
    ) -> Result<Self, InvalidTarget> {
        let store = match &options.target {
            Target::Directory(path) => Store::Directory(path.clone()),
            #[cfg(feature = "object-stores")]
            Target::S3(settings) => Store::Bucket(s3::bucket(settings).map_err(InvalidTarget)?),
            #[cfg(feature = "object-stores")]
            Target::Gcs(settings) => Store::Bucket(gcs::bucket(settings).map_err(InvalidTarget)?),
            #[cfg(feature = "object-stores")]
            Target::Azure(settings) => Store::Bucket(azure::bucket(settings).map_err(InvalidTarget)?),
        };
        Ok(Self(Arc::new(Inner {
            id: id.to_owned(),
            store,
            uploads: Semaphore::new(options.max_uploads.max(1)),
            options,
            jitter: Jitter::new(RandomState::new().build_hasher().finish()),
            metrics: Metrics::new(registry, id),
        })))
    }

    /// Opens what a pipeline needs of it. Blocks while it looks at the spool.
    ///
    /// # Errors
    /// When the spool cannot be used.
    pub fn open(&self, cursor: Cursor, feed: Feed, registry: &Registry) -> Result<Delivery, SpoolError> {
        let goes_on_at = feed.numbers_go_on.then(|| cursor.end());
        let (spool, waiting) = Spool::open(&feed.spool, goes_on_at, &feed.tenants)?;
        cursor.hand_out_up_to(feed.max_bytes);
        let pipeline = cursor.pipeline().to_owned();
        let shared = Arc::new(Shared {
            exporter: self.clone(),
            settlement: Settlement::new(cursor.clone()),
            spooled: AtomicU64::new(0),
            waiting: Waiting::default(),
            sent: Notify::new(),
            metrics: FeedMetrics::new(registry, &self.0.id, &pipeline),
            pipeline,
        });
        let shown = Arc::downgrade(&shared);
        registry.collect_with(move |out| {
            if let Some(shared) = shown.upgrade() {
                shared.samples(std::time::Instant::now(), out);
            }
        });
        let mut delivery = Delivery {
            cursor,
            layout: Some(Box::new(Layout::new(self.0.options.layout.clone(), spool))),
            feed,
            taken: Taken::default(),
            ready: Vec::new(),
            uploads: JoinSet::new(),
            filesystem: Arc::new(Disk),
            stumbling: Stumbling::default(),
            shared,
        };
        if !waiting.is_empty() {
            tracing::info!(
                exporter = self.0.id,
                files = waiting.len(),
                "found files that an earlier process did not send; they are sent now"
            );
        }
        for finished in waiting {
            delivery.shared.settlement.resumed(&finished);
            delivery.ready.push(ReadyFile {
                cut_at: waiting::cut_at(&finished.path),
                finished,
                shares: Vec::new(),
            });
        }
        Ok(delivery)
    }
}

/// What the files that are open have of the queue.
#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    items: u64,
    requests: u64,
}

/// What the tasks that send files share.
#[derive(Debug)]
struct Shared {
    exporter: ParquetExporter,
    pipeline: String,
    settlement: Settlement,
    /// Bytes of files that are not at the destination.
    spooled: AtomicU64,
    waiting: Waiting,
    /// A file is there.
    sent: Notify,
    metrics: FeedMetrics,
}

/// One pipeline's way into the exporter.
#[derive(Debug)]
pub struct Delivery {
    cursor: Cursor,
    /// `None` while another thread has it.
    layout: Option<Box<Layout>>,
    feed: Feed,
    taken: Taken,
    ready: Vec<ReadyFile>,
    /// Files on their way.
    uploads: JoinSet<()>,
    /// Where the spool is, for its free space.
    filesystem: Arc<dyn Filesystem>,
    stumbling: Stumbling,
    shared: Arc<Shared>,
}

impl Delivery {
    /// Runs until the journal is closed and everything read from it is settled.
    pub async fn run(mut self) {
        let mut closed = false;
        let ending = self.cursor.clone();
        self.send_ready();
        while !closed {
            let deadline = self.layout.as_ref().and_then(|layout| layout.deadline());
            let inner = &self.shared.exporter.0;
            let has_room = self.shared.spooled.load(Ordering::Acquire) < inner.options.max_spool_bytes
                && self.shared.waiting.len() < MAX_WAITING_FILES;
            let work = tokio::select! {
                entry = self.cursor.next(), if has_room => match entry {
                    Some(entry) => {
                        let (entries, all) = self.gather(entry).await;
                        Some(Work::Lay(entries, all))
                    }
                    None => {
                        closed = true;
                        Some(Work::CutAll)
                    }
                },
                () = sleep_until(deadline.map_or_else(Instant::now, Into::into)), if deadline.is_some() => {
                    Some(Work::CutAged)
                }
                () = self.shared.sent.notified() => None,
                // What is not read yet is the next process's.
                () = ending.kept_for_later() => {
                    closed = true;
                    Some(Work::CutAll)
                }
            };
            while self.uploads.try_join_next().is_some() {}
            if let Some(work) = work {
                closed |= !self.work(work).await;
            }
        }
        let arrived = async { while self.uploads.join_next().await.is_some() {} };
        tokio::select! {
            () = arrived => {}
            // What is cut short is in the spool, and sent by the next process.
            () = async {
                ending.kept_for_later().await;
                tokio::time::sleep(LAST_UPLOADS).await;
            } => {}
        }
    }

    /// An entry and what is there behind it; whether the queue wants all of it settled.
    async fn gather(&mut self, first: Entry) -> (Vec<Entry>, bool) {
        let mut entries = Vec::new();
        let mut next = Some(first);
        let (mut bytes, mut all) = (0, false);
        while let Some(entry) = next.take() {
            if entry.payload.wire_format != WireFormat::Otlp {
                self.give_up(&entry);
                next = self.next_at_once().await;
                continue;
            }
            bytes += entry.payload.body.len();
            self.taken.bytes += entry.payload.body.len() as u64;
            self.taken.items += entry.payload.items;
            self.taken.requests += 1;
            all = entry.full
                || self.taken.bytes >= self.feed.max_bytes
                || self.taken.items >= self.feed.max_items
                || self.taken.requests >= self.feed.max_requests;
            let payload = &entry.payload;
            let settlement = &self.shared.settlement;
            settlement.taken(entry.seq, payload.items, payload.received_at);
            entries.push(entry);
            if all || bytes >= TURN_BYTES {
                break;
            }
            next = self.next_at_once().await;
        }
        if all {
            self.taken = Taken::default();
        }
        (entries, all)
    }

    /// What is in the queue already.
    async fn next_at_once(&mut self) -> Option<Entry> {
        tokio::select! {
            biased;
            entry = self.cursor.next() => entry,
            () = std::future::ready(()) => None,
        }
    }

    /// Gives up a payload of remote write. Receivers put none into this queue; but one on disk may have some that were there before
    /// the exporter, and where its position in it is lost, it begins with those.
    fn give_up(&self, entry: &Entry) {
        let items = entry.payload.items;
        tracing::error!(
            exporter = self.shared.exporter.0.id,
            items,
            "dropped a payload of remote write that was meant for the exporters this pipeline had before"
        );
        self.cursor.settle(&[Settled {
            seq: entry.seq,
            delivered: 0,
            dropped: Some((DropReason::PayloadFault, items)),
        }]);
    }

    fn send_ready(&mut self) {
        for file in self.ready.drain(..) {
            self.shared
                .spooled
                .fetch_add(file.finished.cut.bytes, Ordering::AcqRel);
            let place = self.shared.waiting.enter(file.cut_at);
            self.uploads.spawn(send(self.shared.clone(), file, place));
        }
    }
}

/// Sends a file once, as a task of its own: a panic is a failed attempt like others.
async fn attempt_to_send(shared: &Arc<Shared>, file: &Finished) -> Sent {
    let (shared, file) = (shared.clone(), file.clone());
    let mut attempt = JoinSet::new();
    attempt.spawn(async move { shared.exporter.0.store.send(&file).await });
    match attempt.join_next().await {
        Some(Ok(sent)) => sent,
        Some(Err(error)) => Sent::Retry(error.to_string()),
        None => Sent::Retry("it was not sent".to_owned()),
    }
}

/// Sends a file until it is there, or it is given up; it waits at `place`.
async fn send(shared: Arc<Shared>, file: ReadyFile, place: u64) {
    let inner = &shared.exporter.0;
    let cut = &file.finished.cut;
    let began = Instant::now();
    let mut attempt = 0;
    // What was said last, told once until it is something else.
    let mut told = None;
    let mut counted = Refused::no(&inner.metrics);
    let delivered = loop {
        // The semaphore is never closed.
        let turn = inner.uploads.acquire().await;
        let sent = attempt_to_send(&shared, &file.finished).await;
        drop(turn);
        let (refused, is_kept, reason) = match sent {
            Sent::There => break true,
            Sent::Retry(reason) => (false, false, reason),
            // It waits as long as it takes: see `Verdict::EndpointFault`.
            Sent::Refused(reason) => (true, true, reason),
            // So does what most likely is there.
            #[cfg(feature = "object-stores")]
            Sent::Unknown(reason) => (false, true, reason),
        };
        inner.metrics.failed.add(1);
        counted.set(refused);
        let retry = &inner.options.retry;
        let delay = retry.delay(attempt, inner.jitter.draw());
        let over = retry
            .max_elapsed_time
            .is_some_and(|most| began.elapsed() + delay > most);
        if !is_kept && (!retry.enabled || over) {
            tracing::error!(
                exporter = inner.id,
                file = cut.name,
                rows = cut.rows,
                reason,
                "gave up a file: retry_on_failure.max_elapsed_time has passed (set it to 0 to retry for ever)"
            );
            break false;
        }
        if told.replace((refused, is_kept)) != Some((refused, is_kept)) {
            tracing::warn!(
                exporter = inner.id,
                file = cut.name,
                ?delay,
                reason,
                "a file could not be sent; it is tried again"
            );
        }
        attempt = attempt.saturating_add(1);
        tokio::time::sleep(delay).await;
    };
    drop(counted);
    if delivered {
        inner.metrics.rows.add(cut.rows);
        inner.metrics.bytes.add(cut.bytes);
        inner.metrics.files.add(1);
    }
    let path = file.finished.path.clone();
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_file(path)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(exporter = inner.id, file = cut.name, %error, "a file that was sent stays in the spool");
    }
    let dropped = (!delivered).then_some(DropReason::RetryExhausted);
    shared.settlement.arrived(&file, dropped);
    shared.spooled.fetch_sub(cut.bytes, Ordering::AcqRel);
    shared.waiting.leave(place);
    shared.sent.notify_one();
}
