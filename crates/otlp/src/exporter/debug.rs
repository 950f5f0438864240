//! The debug exporter: what passes through, as text on a terminal.
//!
//! | `verbosity` | text per batch |
//! |---|---|
//! | `basic` | one line of counts |
//! | `normal` | that, one line per resource, scope and item |
//! | `detailed` | that, and every field of the request as it is on the wire, unknown ones included |
//!
//! Text from telemetry is escaped, so that it cannot command a terminal or fake a line. A batch that cannot be written
//! (a closed pipe) is counted as delivered all the same: a debug output must not hold up a pipeline. So is what an output
//! does not take in time (a pipe whose reader stands still), and what comes until it does is not written.

mod dump;
mod lines;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_payload::Signal;
use sluice_pipeline::{Batch, Export, Exporter, Verdict, kind};
use sluice_wire::schema::{self, FieldKind, MessageDesc};

use super::MAX_REQUEST_BYTES;
use crate::json::records::{Records, Value};
use crate::json::request_schema;

/// A terminal writes megabytes in this time, and a pipeline can wait so long once.
const LONGEST_WRITE: Duration = Duration::from_secs(1);

/// How much the debug exporter says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verbosity {
    /// One line of counts per batch.
    #[default]
    Basic,
    /// One line per item.
    Normal,
    /// Every field.
    Detailed,
}

/// What the debug exporter says and how often.
#[derive(Debug, Clone, Copy)]
pub struct DebugExporterOptions {
    /// How much is said of a batch.
    pub verbosity: Verbosity,
    /// So many batches are written in each second.
    pub sampling_initial: u64,
    /// Beyond those, each so-many-th one is; 0: none.
    pub sampling_thereafter: u64,
}

/// Writes batches as text.
pub struct DebugExporter {
    shared: Arc<Shared>,
}

struct Shared {
    verbosity: Verbosity,
    sampler: Mutex<Sampler>,
    out: Mutex<Box<dyn Write + Send>>,
    has_failed: AtomicBool,
    /// A write has taken too long. It may have ended just before this was set, so that it says nothing when none is under way.
    is_stalled: AtomicBool,
}

impl DebugExporter {
    /// Writes to `out`: standard output, standard error, a test's buffer.
    pub fn new(options: DebugExporterOptions, out: Box<dyn Write + Send>) -> Self {
        let DebugExporterOptions {
            verbosity,
            sampling_initial,
            sampling_thereafter,
        } = options;
        let sampler = Sampler {
            initial: sampling_initial,
            thereafter: sampling_thereafter,
            second: None,
        };
        Self {
            shared: Arc::new(Shared {
                verbosity,
                sampler: Mutex::new(sampler),
                out: Mutex::new(out),
                has_failed: AtomicBool::new(false),
                is_stalled: AtomicBool::new(false),
            }),
        }
    }
}

impl Exporter for DebugExporter {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        let is_stalled = self.shared.is_stalled.load(Ordering::Relaxed) && self.shared.out.is_locked();
        let is_written = self.shared.sampler.lock().takes(Instant::now()) && !is_stalled;
        let work = is_written.then(|| (Arc::clone(&self.shared), batch.clone()));
        Box::pin(async move {
            if let Some((shared, batch)) = work {
                // A terminal can be slow and a pipe full: not on a thread that serves connections.
                let written = tokio::task::spawn_blocking(move || shared.write(&batch));
                if tokio::time::timeout(LONGEST_WRITE, written).await.is_err()
                    && !self.shared.is_stalled.swap(true, Ordering::Relaxed)
                {
                    tracing::warn!(
                        "debug exporter: its output takes nothing; what comes until it does is not written"
                    );
                }
            }
            Verdict::Delivered {
                rejected: 0,
                message: None,
            }
        })
    }

    fn max_request_bytes(&self) -> usize {
        MAX_REQUEST_BYTES
    }
}

impl Shared {
    fn write(&self, batch: &Batch) {
        let mut text = Vec::new();
        describe(batch, self.verbosity, &mut text);
        let mut out = self.out.lock();
        let written = out.write_all(&text).and_then(|()| out.flush());
        self.is_stalled.store(false, Ordering::Relaxed);
        if let Err(error) = written
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "debug exporter: cannot write; going on in silence");
        }
    }
}

/// Appends what is said of a batch.
fn describe(batch: &Batch, verbosity: Verbosity, out: &mut Vec<u8>) {
    let root = request_schema(kind(batch.signal));
    let parts: Vec<&[u8]> = batch.parts.iter().map(|part| &part.body[..]).collect();
    out.extend_from_slice(summary(batch, root, &parts).as_bytes());
    match verbosity {
        Verbosity::Basic => {}
        Verbosity::Normal => lines::request(root, &parts, out),
        Verbosity::Detailed => dump::message(root, &parts, 0, out),
    }
}

/// The line of counts, named as the Collector names them.
fn summary(batch: &Batch, root: &'static MessageDesc, parts: &[&[u8]]) -> String {
    let resources = Records::new(parts).by_number(1).count();
    let items = batch.items();
    match batch.signal {
        Signal::Metrics => {
            let metrics = Records::new(parts)
                .by_number(1)
                .flat_map(|resource| Records::new(&[resource]).by_number(2).collect::<Vec<_>>())
                .map(|scope| Records::new(&[scope]).by_number(2).count())
                .sum::<usize>();
            format!(
                "Metrics\t{{\"resource metrics\": {resources}, \"metrics\": {metrics}, \"data points\": {items}}}\n"
            )
        }
        Signal::Logs => format!("Logs\t{{\"resource logs\": {resources}, \"log records\": {items}}}\n"),
        Signal::Traces => format!("Traces\t{{\"resource spans\": {resources}, \"spans\": {items}}}\n"),
        Signal::Profiles => {
            debug_assert!(std::ptr::eq(root, &schema::EXPORT_PROFILES_SERVICE_REQUEST));
            format!("Profiles\t{{\"resource profiles\": {resources}, \"sample records\": {items}}}\n")
        }
    }
}

/// Lets so many through in each second, then each so-many-th.
#[derive(Debug)]
struct Sampler {
    initial: u64,
    thereafter: u64,
    /// When the current second began and how many asked in it.
    second: Option<(Instant, u64)>,
}

impl Sampler {
    fn takes(&mut self, now: Instant) -> bool {
        let (began, asked) = match self.second {
            Some((began, asked)) if now.saturating_duration_since(began) < Duration::from_secs(1) => {
                (began, asked + 1)
            }
            _ => (now, 1),
        };
        self.second = Some((began, asked));
        let Some(beyond) = asked.checked_sub(self.initial).filter(|&beyond| beyond > 0) else {
            return true;
        };
        self.thereafter > 0 && beyond.is_multiple_of(self.thereafter)
    }
}

/// Appends an attribute value or a log body on one line: strings as `quote` has them, lists and maps like JSON.
fn any_value(body: &[u8], depth: usize, quote: fn(&str, &mut Vec<u8>), out: &mut Vec<u8>) {
    let message = &schema::ANY_VALUE;
    let (mut records, pieces) = (None, [body]);
    let mut all = Records::new(&pieces);
    // The last arm counts.
    while let Ok(Some((number, value))) = all.next() {
        records = message.field(number).map(|field| (field, value)).or(records);
    }
    match records {
        None => {}
        Some((_, Value::Len(text))) if depth > MAX_VALUE_DEPTH => {
            out.extend_from_slice(format!("({} bytes)", text.len()).as_bytes());
        }
        Some((field, Value::Len(text))) => match field.kind {
            FieldKind::String => quote(&String::from_utf8_lossy(text), out),
            FieldKind::Message(list) if std::ptr::eq(list, &schema::ARRAY_VALUE) => {
                out.push(b'[');
                for (position, element) in Records::new(&[text]).by_number(1).enumerate() {
                    out.extend_from_slice(if position > 0 { b", " } else { b"" });
                    any_value(element, depth + 1, json_string, out);
                }
                out.push(b']');
            }
            FieldKind::Message(_) => {
                out.push(b'{');
                for (position, entry) in Records::new(&[text]).by_number(1).enumerate() {
                    out.extend_from_slice(if position > 0 { b", " } else { b"" });
                    let (key, value) = key_value(entry);
                    json_string(&key, out);
                    out.extend_from_slice(b": ");
                    any_value(value, depth + 1, json_string, out);
                }
                out.push(b'}');
            }
            _ => {
                crate::json::append_scalar(message, field, Value::Len(text), out);
            }
        },
        Some((field, value)) => match (field.kind, value) {
            (FieldKind::Int64, Value::Varint(value)) => {
                out.extend_from_slice((value as i64).to_string().as_bytes());
            }
            _ => {
                crate::json::append_scalar(message, field, value, out);
            }
        },
    }
}

/// Deeper values are told by their length.
const MAX_VALUE_DEPTH: usize = 16;

/// The key of a `KeyValue` and the bytes of its value.
fn key_value(entry: &[u8]) -> (std::borrow::Cow<'_, str>, &[u8]) {
    let pieces = [entry];
    let key = Records::new(&pieces).by_number(1).last().unwrap_or_default();
    let value = Records::new(&pieces).by_number(2).last().unwrap_or_default();
    (String::from_utf8_lossy(key), value)
}

/// A string in quotes, escaped.
fn json_string(text: &str, out: &mut Vec<u8>) {
    // JSON escapes what is below space; what follows ASCII can command a terminal too.
    let is_command = |character: char| matches!(character, '\u{7f}'..='\u{9f}');
    if text.contains(is_command) {
        crate::json::append_string(out, &text.replace(is_command, "\u{fffd}"));
    } else {
        crate::json::append_string(out, text);
    }
}

/// A string as it is if it cannot be taken for anything else on the line, else in quotes.
fn bare_string(text: &str, out: &mut Vec<u8>) {
    let is_odd = |character: char| {
        character.is_control() || character.is_whitespace() || "\"'={},".contains(character)
    };
    if text.is_empty() || text.contains(is_odd) {
        json_string(text, out);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
