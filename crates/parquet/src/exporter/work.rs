//! Work on files, on threads that may block; and what is done when it fails.
//!
//! An error may leave a file half-written, or cut and not noted. So nothing of what was open is used any more: the open files are
//! thrown away, and what was in them is read from the journal again, which keeps it until it is settled. What was cut before stays
//! and is known by its marks. That is done again, ever less often, until it works; nothing is read from the queue meanwhile, so
//! that the receivers refuse once it is full.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_journal::{Again, Disk, Entry, Filesystem};

use super::layout::{Laid, Layout, ReadyFile};
use super::{Delivery, TURN_BYTES};
use crate::encode::EncodeError;

/// The spool's file system must have this much free space before more is written: what is open may still grow by as much.
const FREE_BYTES: u64 = 256 << 20;

/// How long to wait before looking again whether there is free space.
const FREE_PAUSE: Duration = Duration::from_secs(1);

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
    /// Payloads that cannot be read again.
    lost: Vec<u64>,
    unwritten: Option<Box<Unwritten>>,
}

impl Delivery {
    /// Does a piece of work, and whatever it takes for it to be done. False: the queue was closed meanwhile, and keeps what is not.
    pub(crate) async fn work(&mut self, work: Work) -> bool {
        if !self.has_space().await {
            return false;
        }
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
            if !self.has_space().await {
                return Ok(false);
            }
            left = self.turn(Work::LayAgain(unwritten)).await?;
        }
        self.turn(Work::CutAll).await?;
        Ok(true)
    }

    /// Does a piece of work on a thread that may block, as far as it goes; what it leaves of [`Work::LayAgain`].
    async fn turn(&mut self, work: Work) -> Result<Option<Box<Unwritten>>, EncodeError> {
        const LOST: EncodeError = EncodeError::Internal("the files are lost to another thread");
        let mut layout = self.layout.take().ok_or(LOST)?;
        let floor = self.shared.settlement.floor();
        let worked = tokio::task::spawn_blocking(move || {
            let mut done = Done::default();
            let result = catch_unwind(AssertUnwindSafe(|| done.by(&mut layout, work, floor)));
            (layout, done, result)
        });
        let Ok((mut layout, done, result)) = worked.await else {
            return Err(LOST);
        };
        let repairs = layout.take_repairs();
        let metrics = &self.shared.exporter.0.metrics;
        metrics.duplicate_keys.add(repairs.duplicate_keys);
        metrics.invalid_texts.add(repairs.invalid_texts);
        self.layout = Some(layout);
        let settlement = &self.shared.settlement;
        for (number, items, laid) in done.laid {
            settlement.laid(number, items, laid.rows, &laid.known);
        }
        done.lost.into_iter().for_each(|number| settlement.lost(number));
        done.ready.iter().for_each(|file| settlement.cut(&file.shares));
        self.ready.extend(done.ready);
        self.send_ready();
        match result {
            Ok(result) => result.map(|()| done.unwritten),
            Err(_) => Err(EncodeError::Internal(
                "the thread that writes files panicked, see the message above",
            )),
        }
    }

    /// Waits while the disk is nearly full. False: the queue was closed meanwhile.
    async fn has_space(&mut self) -> bool {
        let ending = self.cursor.clone();
        let mut told = false;
        while !has_free_space(&self.feed.spool) {
            if !std::mem::replace(&mut told, true) {
                tracing::error!(
                    exporter = self.shared.exporter.0.id,
                    directory = %self.feed.spool.display(),
                    "less than 256 MiB are free for the files that are being written; nothing more is written until there are"
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

fn has_free_space(spool: &Path) -> bool {
    Disk.free_bytes(spool).map_or(true, |free| free >= FREE_BYTES)
}

impl Done {
    fn by(&mut self, layout: &mut Layout, work: Work, floor: u64) -> Result<(), EncodeError> {
        let now = Instant::now();
        match work {
            Work::Lay(entries, all) => {
                for Entry { seq, payload, .. } in entries {
                    let laid = layout.lay(seq, &payload, now)?;
                    self.laid.push((seq, payload.items, laid));
                    layout.cut_full(seq, floor, &mut self.ready)?;
                }
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
                    match unwritten.again.read(number)? {
                        Some(payload) => {
                            bytes += payload.body.len();
                            let laid = layout.lay(number, &payload, now)?;
                            self.laid.push((number, payload.items, laid));
                            layout.cut_full(number, floor, &mut self.ready)?;
                        }
                        None => self.lost.push(number),
                    }
                    unwritten.numbers.pop_front();
                }
                self.unwritten = Some(unwritten);
            }
        }
        Ok(())
    }
}
