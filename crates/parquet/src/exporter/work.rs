//! Work on files, on threads that may block; and what is done when it fails.
//!
//! An error may leave a file half-written, or cut and not noted. So nothing of what was open is used any more: the open files are
//! thrown away, and what was in them is read from the journal again, which keeps it until it is settled. What was cut before stays
//! and is known by its marks. That is done again, ever less often, until it works; nothing is read from the queue meanwhile, so
//! that the receivers refuse once it is full.
//!
//! What is no error of the disk's may be one payload's fault, and come again with it each time. So from the second such failure on
//! each payload is cut by itself when it is laid out anew, and one at which it goes on failing is given up ([`Stumbling`]).

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use sluice_journal::{Again, Entry};
use sluice_telemetry::DropReason;

use super::layout::{Laid, Layout, ReadyFile};
use super::{Delivery, TURN_BYTES};
use crate::encode::EncodeError;

/// The spool's file system must have this much free space before more is written: what is open may still grow by as much.
const FREE_BYTES: u64 = 256 << 20;

/// How long to wait before looking again whether there is free space.
const FREE_PAUSE: Duration = Duration::from_secs(1);

/// A payload that fails so often in a row, by anything but the disk, is given up: once may be chance, and each time costs a delay.
const WRITE_ATTEMPTS: u32 = 3;

/// A payload that cannot be read again so often in a row is taken for damaged: some four minutes with the delays that are the
/// default, in which a path fails over, or a disk is there again.
const READ_ATTEMPTS: u32 = 10;

/// Why a payload is not in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It cannot be read again.
    Unreadable,
    /// Laying it out fails, or the thread that does it panics.
    Unwritable,
}

/// Failures in a row that may be the fault of one payload.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Stumbling {
    /// Those that were no errors of the disk's.
    faults: u32,
    /// The payload of the last one, what it was, and how often in a row.
    at: Option<(u64, Fault, u32)>,
}

impl Stumbling {
    fn failed(&mut self, at: Option<(u64, Fault)>, of_disk: bool) {
        let fault = match at {
            Some((_, Fault::Unreadable)) => at,
            _ if of_disk => return,
            _ => {
                self.faults += 1;
                at
            }
        };
        let before = self.at.take();
        self.at = fault.map(|(number, fault)| match before {
            Some((same, of, times)) if (same, of) == (number, fault) => (number, fault, times + 1),
            _ => (number, fault, 1),
        });
    }

    /// Whether each payload is to be cut by itself, so that it is known whose fault it is.
    fn one_by_one(&self) -> bool {
        self.faults > 1
    }

    fn is_at(&self, number: u64) -> bool {
        self.at.is_some_and(|(at, _, _)| at == number)
    }

    fn gives_up(&self, number: u64) -> Option<Fault> {
        let (_, fault, times) = self.at.filter(|(at, _, _)| *at == number)?;
        let most = match fault {
            Fault::Unreadable => READ_ATTEMPTS,
            Fault::Unwritable => WRITE_ATTEMPTS,
        };
        (times >= most).then_some(fault)
    }
}

/// What another thread is to do with the files.
pub(crate) enum Work {
    /// Lay payloads out; and cut all files then.
    Lay(Vec<Entry>, bool),
    CutAged,
    CutAll,
    /// Throw the open files away.
    Recover,
    /// Lay payloads out that were in them, until a turn's bytes are done.
    LayAgain(Box<Unwritten>),
}

/// Numbers of payloads that are in no file that will be sent, and a way to read them.
pub(crate) struct Unwritten {
    numbers: VecDeque<u64>,
    again: Again,
}

/// What came of it, up to where it failed.
#[derive(Default)]
struct Done {
    ready: Vec<ReadyFile>,
    /// Payloads that were laid out: number, items, and what came of each.
    laid: Vec<(u64, u64, Laid)>,
    /// Payloads that the journal does not have any more.
    gone: Vec<u64>,
    given_up: Vec<(u64, Fault)>,
    /// The payload at hand, and what it is if that fails.
    at: Option<(u64, Fault)>,
    unwritten: Option<Box<Unwritten>>,
}

impl Delivery {
    /// Does a piece of work, and whatever it takes for it to be done. False: the queue was closed meanwhile, and keeps what is not.
    pub(crate) async fn work(&mut self, mut work: Work) -> bool {
        if let Work::Lay(_, all) = &mut work
            && !self.has_free_bytes(FREE_BYTES)
        {
            // The journal may be on the same disk, and gives space back for what is settled: so nothing is kept open.
            *all = true;
            if !self.done(Work::CutAll).await {
                return false;
            }
        }
        self.done(work).await
    }

    async fn done(&mut self, work: Work) -> bool {
        if !self.has_space(&work).await {
            return false;
        }
        self.shared.metrics.failing.set(0);
        let Err(mut error) = self.turn(work).await else {
            return true;
        };
        let ending = self.cursor.clone();
        self.shared.metrics.failing.set(1);
        for attempt in 0.. {
            self.shared.metrics.failures.add(1);
            let inner = &self.shared.exporter.0;
            let delay = inner.options.retry.delay(attempt, inner.jitter.draw());
            tracing::error!(
                exporter = inner.id,
                pipeline = self.shared.pipeline,
                directory = %self.feed.spool.display(),
                %error,
                ?delay,
                "files cannot be written; what was in them is written anew, nothing is dropped"
            );
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = ending.kept_for_later() => return false,
            }
            error = match self.begin_anew().await {
                Ok(true) => break,
                Ok(false) => return false,
                Err(error) => error,
            };
        }
        self.stumbling = Stumbling::default();
        let inner = &self.shared.exporter.0;
        self.shared.metrics.failing.set(0);
        tracing::info!(
            exporter = inner.id,
            pipeline = self.shared.pipeline,
            "files can be written again"
        );
        true
    }

    /// Lays out anew what was in open files, and cuts it. False: the queue was closed meanwhile. Nothing that was read later may be
    /// laid out before all of that is.
    async fn begin_anew(&mut self) -> Result<bool, EncodeError> {
        self.turn(Work::Recover).await?;
        let mut left = Some(Box::new(Unwritten {
            numbers: self.shared.settlement.unwritten(),
            again: self.cursor.again(),
        }));
        while let Some(unwritten) = left.take().filter(|unwritten| !unwritten.numbers.is_empty()) {
            let work = Work::LayAgain(unwritten);
            if !self.has_space(&work).await {
                return Ok(false);
            }
            left = self.turn(work).await?;
        }
        self.turn(Work::CutAll).await?;
        Ok(true)
    }

    /// Does a piece of work on a thread that may block, as far as it goes; what it leaves of [`Work::LayAgain`].
    async fn turn(&mut self, work: Work) -> Result<Option<Box<Unwritten>>, EncodeError> {
        const LOST: EncodeError = EncodeError::Internal("the files are lost to another thread");
        let mut layout = self.layout.take().ok_or(LOST)?;
        let floor = self.shared.settlement.floor();
        let stumbling = self.stumbling;
        let worked = tokio::task::spawn_blocking(move || {
            let mut done = Done::default();
            let result = catch_unwind(AssertUnwindSafe(|| done.by(&mut layout, work, floor, &stumbling)));
            (layout, done, result)
        });
        let Ok((mut layout, done, result)) = worked.await else {
            return Err(LOST);
        };
        self.shared.metrics.open_files.set(layout.open_files() as i64);
        let repairs = layout.take_repairs();
        let metrics = &self.shared.exporter.0.metrics;
        metrics.duplicate_keys.add(repairs.duplicate_keys);
        metrics.invalid_texts.add(repairs.invalid_texts);
        metrics.deep_values.add(repairs.deep_values);
        self.layout = Some(layout);
        let settlement = &self.shared.settlement;
        for (number, items, laid) in done.laid {
            settlement.laid(number, items, laid.rows, &laid.known);
        }
        for number in done.gone {
            settlement.lost(number, DropReason::Damaged);
        }
        done.ready.iter().for_each(|file| settlement.cut(&file.shares));
        for (number, fault) in done.given_up {
            self.give_up_at(number, fault);
        }
        self.ready.extend(done.ready);
        self.send_ready();
        let result = result.unwrap_or(Err(EncodeError::Internal(
            "the thread that writes files panicked, see the message above",
        )));
        if let Err(error) = &result {
            self.stumbling.failed(done.at, is_of_disk(error));
        }
        result.map(|()| done.unwritten)
    }

    /// Settles a payload that goes into no file.
    fn give_up_at(&mut self, number: u64, fault: Fault) {
        let (reason, why) = match fault {
            Fault::Unreadable => (DropReason::Damaged, "it cannot be read again from the queue"),
            Fault::Unwritable => (
                DropReason::PayloadFault,
                "writing it fails each time, see the messages above; please report this",
            ),
        };
        tracing::error!(
            exporter = self.shared.exporter.0.id,
            pipeline = self.shared.pipeline,
            number,
            reason = reason.as_str(),
            "gave up a payload: {why}"
        );
        if fault == Fault::Unreadable {
            self.cursor.again().give_up(number);
        }
        self.shared.settlement.lost(number, reason);
        self.stumbling = Stumbling::default();
    }

    /// Bytes that must be free for a piece of work: for new rows what is open may grow by; for what is open, what it has in memory.
    fn needed_bytes(&self, work: &Work) -> u64 {
        let layout = self.layout.as_ref();
        let open = || layout.map_or(0, |layout| layout.memory_bytes());
        let most = self.shared.exporter.0.options.layout.max_open_bytes;
        let bytes = match work {
            // Space comes back when a file is sent, so there is something to wait for.
            Work::Lay(..) if self.shared.spooled.load(Ordering::Acquire) > 0 => return FREE_BYTES,
            Work::Lay(..) | Work::LayAgain(_) => most,
            Work::CutAged | Work::CutAll => open(),
            Work::Recover => 0,
        };
        FREE_BYTES.min(bytes as u64)
    }

    fn has_free_bytes(&self, bytes: u64) -> bool {
        let free = self.filesystem.free_bytes(&self.feed.spool);
        free.map_or(true, |free| free >= bytes)
    }

    /// Waits while the disk is nearly full. False: the queue was closed meanwhile.
    async fn has_space(&mut self, work: &Work) -> bool {
        let ending = self.cursor.clone();
        let mut told = false;
        while !self.has_free_bytes(self.needed_bytes(work)) {
            self.shared.metrics.failing.set(1);
            if !std::mem::replace(&mut told, true) {
                tracing::error!(
                    exporter = self.shared.exporter.0.id,
                    directory = %self.feed.spool.display(),
                    needed_bytes = self.needed_bytes(work),
                    "the disk is nearly full; no more files are written until there is space"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(FREE_PAUSE) => {}
                () = ending.kept_for_later() => return false,
            }
        }
        true
    }
}

/// Whether a file could not be read or written, whatever is in it.
fn is_of_disk(error: &EncodeError) -> bool {
    match error {
        EncodeError::Io(_) | EncodeError::Arrow(ArrowError::IoError(..)) => true,
        EncodeError::Parquet(ParquetError::External(error)) => error.is::<std::io::Error>(),
        EncodeError::Parquet(_) | EncodeError::Arrow(_) | EncodeError::Internal(_) => false,
    }
}

impl Done {
    fn by(
        &mut self,
        layout: &mut Layout,
        work: Work,
        floor: u64,
        stumbling: &Stumbling,
    ) -> Result<(), EncodeError> {
        let now = Instant::now();
        match work {
            Work::Lay(entries, all) => {
                for Entry { seq, payload, .. } in entries {
                    self.at = Some((seq, Fault::Unwritable));
                    let laid = layout.lay(seq, &payload, now)?;
                    self.laid.push((seq, payload.items, laid));
                    layout.cut_full(seq, floor, &mut self.ready)?;
                }
                self.at = None;
                if all {
                    layout.cut_all(floor, &mut self.ready)?;
                }
            }
            Work::CutAged => layout.cut_aged(floor, now, &mut self.ready)?,
            Work::CutAll => layout.cut_all(floor, &mut self.ready)?,
            Work::Recover => layout.recover()?,
            Work::LayAgain(mut unwritten) => {
                let mut bytes = 0;
                while let Some(number) = unwritten.numbers.front().copied().filter(|_| bytes < TURN_BYTES) {
                    if stumbling.is_at(number) {
                        // However often this one fails: what is before it is not written anew each time.
                        layout.cut_all(floor, &mut self.ready)?;
                    }
                    if let Some(fault) = stumbling.gives_up(number) {
                        self.given_up.push((number, fault));
                        unwritten.numbers.pop_front();
                        continue;
                    }
                    self.at = Some((number, Fault::Unreadable));
                    let read = unwritten.again.read(number).inspect_err(|error| {
                        // A segment that cannot be opened is there all the same.
                        self.at = self.at.filter(|_| error.kind() == ErrorKind::InvalidData);
                    });
                    match read? {
                        Some(payload) => {
                            self.at = Some((number, Fault::Unwritable));
                            bytes += payload.body.len();
                            let laid = layout.lay(number, &payload, now)?;
                            self.laid.push((number, payload.items, laid));
                            layout.cut_full(number, floor, &mut self.ready)?;
                            if stumbling.one_by_one() {
                                layout.cut_all(floor, &mut self.ready)?;
                            }
                        }
                        None => self.gone.push(number),
                    }
                    self.at = None;
                    unwritten.numbers.pop_front();
                }
                self.unwritten = Some(unwritten);
            }
        }
        Ok(())
    }
}
