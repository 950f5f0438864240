//! Reading a request body under a permit.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use sluice_admission::Permit;
use sluice_payload::{Encoding, Frame};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::conversation::READ_AHEAD_BYTES;
use crate::streams::leave_connection;
use crate::{InflateError, Refusal, Visit, counted_size, inflate, inflated_size, is_portable};

/// A body up to this size is reserved at once, a longer one in steps that start here and double: the largest
/// request an SDK sends by default, and little enough that a thousand stalled senders hold 500 MiB with what their connections may hold besides
/// ([`READ_AHEAD_BYTES`]), not 64 GiB.
const FIRST_STEP_BYTES: u64 = 256 << 10;

/// The first step of a body of unknown length.
const FIRST_STEP_OF_UNKNOWN_BYTES: u64 = 64 << 10;

/// How often a reader that waits for data looks whether others wait for memory.
const STALL_INTERVAL: Duration = Duration::from_millis(250);

/// A sender has this long to get going before it is called slow.
const STALL_GRACE: Duration = Duration::from_secs(1);

/// While others wait for memory, a body has to come at this rate: what a mobile line does, and a 64 MiB
/// body is through in four minutes, which nobody else should wait for.
const PRESSED_BYTES_PER_SEC: u64 = 256 << 10;

/// A body that inflates to an unknown size is first given this multiple of its compressed size, and one that inflates to more than it was given
/// that multiple of the larger of both.
const GUESSED_RATIO: u64 = 8;

/// The largest guess after the first, also as a part of the budget. Beyond, and while others wait for memory, the content is counted: guesses that
/// are too large take the budget from others, or never fit, and most of the time of inflating goes into touching the memory. Ordinary
/// requests of a Collector are below.
const LARGEST_GUESS: u64 = 8 << 20;
const LARGEST_GUESS_PART: u64 = 16;

/// Inflating a body, and counting what it holds, has so long, however little of its patience the request has left: it is work, and no wait.
const LEAST_COUNTING: Duration = Duration::from_secs(1);

/// Spare capacity above one part in this many of a body is given back rather than kept and charged.
const SPARE_CAPACITY: usize = 4;

/// A body has to come at a rate that completes what it holds of the budget, at most twice what came, within
/// this time.
const LONGEST_BODY: Duration = Duration::from_secs(60);

/// Bodies from this size on are inflated and scanned off the reactor where there is another core.
const HEAVY_BYTES: usize = 1 << 20;

/// What a body may be.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Largest body, before and after inflation.
    pub max_bytes: u64,
    /// A body that sends nothing for this long is given up.
    pub idle_timeout: Duration,
    /// After the idle time-out, a body slower than this on average is given up; a large body has to be
    /// faster, see [`LONGEST_BODY`].
    pub min_bytes_per_sec: u64,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            idle_timeout: Duration::from_secs(10),
            min_bytes_per_sec: 1024,
        }
    }
}

/// How a body is compressed, and what becomes of its compressed form.
#[derive(Debug, Clone, Copy)]
pub struct Coding {
    /// What it is compressed with.
    pub encoding: Encoding,
    /// Whether the compressed form is of use to anybody once the body is inflated. If not, its memory is given back
    /// then.
    pub keep_frame: bool,
}

/// A whole body, inflated.
#[derive(Debug)]
pub struct Received {
    /// The content.
    pub body: Bytes,
    /// Bytes that came over the wire.
    pub wire_bytes: u64,
    /// What it is charged.
    pub permit: Permit,
    /// What it came in, if it was compressed, [kept](Coding::keep_frame), and can be sent on as it is.
    pub compressed: Option<Compressed>,
}

/// A body as it came over the wire.
#[derive(Debug)]
pub struct Compressed {
    /// The frames.
    pub frame: Frame,
    /// What they are charged.
    pub permit: Permit,
}

impl BodyLimits {
    fn too_large(&self, what: &str) -> Refusal {
        Refusal::TooLarge(format!(
            "the request body {what} is larger than the limit of {} bytes; send smaller batches, or raise \
             max_request_body_size (HTTP) or max_recv_msg_size_mib (gRPC)",
            self.max_bytes
        ))
    }
}

/// Reads a whole HTTP body: reserved before it is read, inflated within the limit.
///
/// # Errors
/// [`Refusal`]; everything reserved is given back.
pub async fn receive<B>(
    body: &mut B,
    content_length: Option<u64>,
    coding: Coding,
    visit: &mut Visit<'_>,
    limits: &BodyLimits,
) -> Result<Received, Refusal>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    if content_length.is_some_and(|length| length > limits.max_bytes) {
        return Err(limits.too_large("as announced"));
    }
    let mut reader = Reader::new(body, *limits);
    let (raw, permit) = reader.read_all(content_length, visit).await?;
    finish(raw, permit, coding, visit, limits).await
}

/// Reads one gRPC message: five bytes of prefix, then the message. The encoding of `coding` is that of
/// `grpc-encoding`; the prefix says whether this message uses it.
///
/// # Errors
/// [`Refusal`]; everything reserved is given back.
pub async fn collect_framed<B>(
    body: &mut B,
    mut coding: Coding,
    visit: &mut Visit<'_>,
    limits: &BodyLimits,
) -> Result<Received, Refusal>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    let mut reader = Reader::new(body, *limits);
    let prefix = reader.read_prefix(visit).await?;
    let length = u64::from(u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]));
    if length > limits.max_bytes {
        return Err(limits.too_large("as announced by its gRPC frame"));
    }
    match prefix[0] {
        0 => coding.encoding = Encoding::Identity,
        1 if coding.encoding == Encoding::Identity => {
            return Err(Refusal::Broken(
                "the gRPC frame is marked compressed, but there is no grpc-encoding".into(),
            ));
        }
        1 => {}
        flag => {
            return Err(Refusal::Broken(format!(
                "the gRPC frame's compressed flag is {flag}; it must be 0 or 1"
            )));
        }
    }
    let (raw, permit) = reader.read_exact(length, visit).await?;
    finish(raw, permit, coding, visit, limits).await
}

async fn finish(
    raw: Bytes,
    mut permit: Permit,
    coding: Coding,
    visit: &mut Visit<'_>,
    limits: &BodyLimits,
) -> Result<Received, Refusal> {
    let Coding { encoding, keep_frame } = coding;
    let wire_bytes = raw.len() as u64;
    if encoding == Encoding::Identity || raw.is_empty() {
        permit.shrink_to(raw.len() as u64);
        return Ok(Received {
            body: raw,
            wire_bytes,
            permit,
            compressed: None,
        });
    }
    let too_long = |visit: &Visit<'_>| {
        let message = "inflating the body took too long; retry later, or send it in fewer members or frames";
        visit.gate().busy(wire_bytes, message.into(), "memory")
    };
    let time = visit.patience().max(LEAST_COUNTING);
    let declared = heavy(raw.len(), || inflated_size(encoding, &raw, &until_over(time))).await;
    let declared = declared.map_err(|error| match error {
        InflateError::OutOfTime => too_long(visit),
        error => Refusal::Broken(error.to_string()),
    })?;
    if declared.is_some_and(|size| size > limits.max_bytes) {
        return Err(limits.too_large("after decompression"));
    }
    let guess = declared
        .unwrap_or(wire_bytes.saturating_mul(GUESSED_RATIO))
        .min(limits.max_bytes);
    visit.take_turn(guess.max(wire_bytes)).await;
    let mut room = visit.reserve(guess).await?;
    let mut cap = guess;
    let mut is_counted = false;
    loop {
        let time = visit.patience().max(LEAST_COUNTING);
        let work = || {
            let may_go_on = until_over(time);
            let body = inflate(encoding, &raw, cap, cap, &may_go_on)?;
            Ok((body, keep_frame && is_portable(encoding, &raw, &may_go_on)))
        };
        match heavy(work_bytes(encoding, raw.len().max(cap as usize)), work).await {
            Ok((mut body, kept)) => {
                // What is not kept goes here, with its permit.
                let compressed = kept.then(|| Compressed {
                    frame: Frame { encoding, bytes: raw },
                    permit,
                });
                // What is kept is charged, spare capacity included; too much of it is not kept.
                if body.capacity() - body.len() > body.len() / SPARE_CAPACITY {
                    body.shrink_to_fit();
                }
                room.shrink_to(body.capacity() as u64);
                return Ok(Received {
                    body: body.into(),
                    wire_bytes,
                    permit: room,
                    compressed,
                });
            }
            Err(error @ InflateError::Larger(_)) if is_counted => {
                return Err(Refusal::Broken(format!("{error}, which it was counted to be")));
            }
            Err(InflateError::Larger(_)) => {
                // More than it declared, or nothing was declared: once more with more, after what was
                // reserved is given back, so that no two such bodies wait for each other.
                visit.give_back(&mut room, 0);
                drop(room);
                let budget = visit.gate().budget();
                let most = limits.max_bytes.min(budget.largest());
                let too_large = |visit: &Visit<'_>| match most < limits.max_bytes {
                    true => visit.gate().never_fits(most + 1),
                    false => limits.too_large("after decompression"),
                };
                if cap >= most {
                    return Err(too_large(visit));
                }
                let next = cap.max(wire_bytes).saturating_mul(GUESSED_RATIO).clamp(1, most);
                let largest_guess = LARGEST_GUESS.min(budget.usage().capacity / LARGEST_GUESS_PART);
                is_counted = budget.is_contended() || next > largest_guess;
                cap = match is_counted {
                    false => next,
                    true => match count(encoding, &raw, most, LEAST_COUNTING, visit).await? {
                        Ok(size) => size,
                        Err(InflateError::Larger(_)) => return Err(too_large(visit)),
                        Err(error) => return Err(Refusal::Broken(error.to_string())),
                    },
                };
                visit.take_turn(cap).await;
                room = visit.reserve(cap).await?;
            }
            Err(InflateError::OutOfTime) => return Err(too_long(visit)),
            Err(error) => return Err(Refusal::Broken(error.to_string())),
        }
    }
}

/// What inflating `bytes` bytes is as work: each LZ4 frame has its decoder zero megabytes, however small it is.
fn work_bytes(encoding: Encoding, bytes: usize) -> usize {
    match encoding {
        Encoding::Lz4 => bytes.max(HEAVY_BYTES),
        _ => bytes,
    }
}

/// Whether `time` is not over, which begins now.
fn until_over(time: Duration) -> impl Fn() -> bool {
    let give_up = Instant::now() + time;
    move || Instant::now() < give_up
}

/// Counts what a body holds, in its turn, and refuses it when it would wait too long for that, or take longer than the request's patience and `least`:
/// any number of bodies may want to be counted that inflate to as much as there may be, and nothing is reserved for it.
async fn count(
    encoding: Encoding,
    raw: &[u8],
    most: u64,
    least: Duration,
    visit: &mut Visit<'_>,
) -> Result<Result<u64, InflateError>, Refusal> {
    visit.take_turn(most).await;
    let time = visit.patience().max(least);
    // Its time begins with its work, not while it waits for a place.
    let counted = heavy(work_bytes(encoding, most as usize), || {
        counted_size(encoding, raw, most, &until_over(time))
    });
    let message = match visit.within_patience(counted).await {
        Some(Err(InflateError::OutOfTime)) => {
            "the body does not say how large it is, and counting took too long; retry later, or send its size"
        }
        Some(counted) => return Ok(counted),
        None => "too many bodies that do not say how large they are wait to be inflated; retry later",
    };
    Err(visit.gate().busy(raw.len() as u64, message.into(), "memory"))
}

/// Runs work over `bytes` bytes, aside when it is much. As much of that goes on at once as there are cores: more
/// would not end sooner, and each needs memory of its own beside the budget (a zstd window is up to 8 MiB).
pub async fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    static TURNS: LazyLock<Semaphore> =
        LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)));
    if bytes < HEAVY_BYTES {
        return work();
    }
    leave_connection().await;
    // Never closed; without a turn the work would still be right.
    let _turn = TURNS.acquire().await;
    aside(work)
}

/// Runs work that would hold up a reactor; moves the reactor's other tasks away where it can.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let multi_thread = tokio::runtime::Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    match multi_thread {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

type NextFrame<B> = Option<Result<http_body::Frame<<B as Body>::Data>, <B as Body>::Error>>;

struct Reader<'a, B: Body> {
    body: &'a mut B,
    limits: BodyLimits,
    started: Instant,
    received: u64,
    /// Bytes of the budget it holds.
    reserved: u64,
    /// What a frame held beyond what was asked for.
    rest: Option<B::Data>,
}

impl<'a, B> Reader<'a, B>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    fn new(body: &'a mut B, limits: BodyLimits) -> Self {
        Self {
            body,
            limits,
            started: Instant::now(),
            received: 0,
            reserved: 0,
            rest: None,
        }
    }

    /// The next piece of data; `None` at the end.
    async fn frame(&mut self, visit: &mut Visit<'_>) -> Result<Option<B::Data>, Refusal> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        loop {
            let next = match self.body.frame().now_or_pending().await {
                Some(next) => next,
                None => self.awaited_frame(visit).await?,
            };
            let Some(frame) = next else { return Ok(None) };
            let frame = frame.map_err(|error| Refusal::Disconnected(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                self.received += data.remaining() as u64;
                let now = Instant::now();
                visit.reads_on(now);
                let elapsed = now.saturating_duration_since(self.started);
                if elapsed > self.limits.idle_timeout
                    && (self.received as f64) < self.least_bytes_per_sec() as f64 * elapsed.as_secs_f64()
                {
                    return Err(self.too_slow());
                }
                if data.has_remaining() {
                    return Ok(Some(data));
                }
            }
        }
    }

    /// Waits for a frame. While others wait for memory, a sender that stalls is not waited for.
    async fn awaited_frame(&mut self, visit: &mut Visit<'_>) -> Result<NextFrame<B>, Refusal> {
        let give_up = Instant::now() + self.limits.idle_timeout;
        loop {
            let look = (Instant::now() + STALL_INTERVAL).min(give_up);
            if let Ok(next) = tokio::time::timeout_at(look, self.body.frame()).await {
                return Ok(next);
            }
            if look == give_up {
                return Err(self.too_slow());
            }
            let now = Instant::now();
            visit.reads_on(now);
            let elapsed = now.saturating_duration_since(self.started);
            let gate = visit.gate();
            let stalls = (self.received as f64) < PRESSED_BYTES_PER_SEC as f64 * elapsed.as_secs_f64();
            if self.reserved > 0 && stalls && elapsed >= STALL_GRACE && gate.budget().is_contended() {
                let message = format!(
                    "the memory budget is used up and this body comes slowly ({} bytes in {elapsed:?}); retry later",
                    self.received
                );
                return Err(gate.busy(self.reserved, message, "stalled"));
            }
        }
    }

    fn too_slow(&self) -> Refusal {
        Refusal::TooSlow(format!(
            "the request body comes too slowly: {} bytes in {:?}; at least {} bytes a second are expected",
            self.received,
            self.started.elapsed(),
            self.least_bytes_per_sec()
        ))
    }

    /// The more of the budget a body holds, the faster it has to come.
    fn least_bytes_per_sec(&self) -> u64 {
        self.limits
            .min_bytes_per_sec
            .max(self.reserved / LONGEST_BODY.as_secs())
    }

    /// Reserves memory for `bytes` of the body, and for `ahead` of them once more; what is spent waiting is not the
    /// sender's time.
    async fn reserve(&mut self, bytes: u64, ahead: u64, visit: &mut Visit<'_>) -> Result<Permit, Refusal> {
        let asked = Instant::now();
        let permit = visit.reserve(bytes + ahead).await?;
        self.started += asked.elapsed();
        self.reserved += bytes;
        Ok(permit)
    }

    async fn read_prefix(&mut self, visit: &mut Visit<'_>) -> Result<[u8; 5], Refusal> {
        let mut prefix = [0; 5];
        let mut have = 0;
        while have < prefix.len() {
            let Some(mut data) = self.frame(visit).await? else {
                return Err(match have {
                    0 => Refusal::Cardinality("the gRPC request ends without a message".into()),
                    _ => Refusal::Broken(format!(
                        "the gRPC request ends after {have} bytes of its frame's prefix"
                    )),
                });
            };
            let take = data.remaining().min(prefix.len() - have);
            data.copy_to_slice(&mut prefix[have..have + take]);
            have += take;
            if data.has_remaining() {
                self.rest = Some(data);
            }
        }
        Ok(prefix)
    }

    /// Exactly `length` bytes, and then the end.
    async fn read_exact(&mut self, length: u64, visit: &mut Visit<'_>) -> Result<(Bytes, Permit), Refusal> {
        let (buffer, permit) = self
            .gather(Some(length), length, visit, |_| {
                Refusal::Cardinality("more than one message in a unary gRPC request".into())
            })
            .await?;
        if buffer.len() as u64 != length {
            return Err(Refusal::Broken(format!(
                "the gRPC frame announces {length} bytes, {} came before the end",
                buffer.len()
            )));
        }
        Ok((buffer.into(), permit))
    }

    /// All there is.
    async fn read_all(
        &mut self,
        length: Option<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<(Bytes, Permit), Refusal> {
        let too_large = |limits: &BodyLimits| limits.too_large("as received");
        let (mut buffer, permit) = self
            .gather(length, self.limits.max_bytes, visit, too_large)
            .await?;
        if buffer.len() < buffer.capacity() {
            buffer.shrink_to_fit();
        }
        Ok((buffer.into(), permit))
    }

    /// Everything up to the end, at most `most` bytes. Memory is reserved as they come, in steps that double: what is
    /// announced and not sent holds nothing.
    async fn gather(
        &mut self,
        length: Option<u64>,
        most: u64,
        visit: &mut Visit<'_>,
        beyond: impl Fn(&BodyLimits) -> Refusal,
    ) -> Result<(Vec<u8>, Permit), Refusal> {
        let largest = visit.gate().budget().largest();
        if let Some(length) = length.filter(|length| *length > largest) {
            return Err(visit.gate().never_fits(length));
        }
        let whole = length.unwrap_or(most);
        let first = match length {
            Some(length) => length.min(FIRST_STEP_BYTES),
            None => FIRST_STEP_OF_UNKNOWN_BYTES.min(most),
        };
        // What the connection holds of it besides is charged as long as it is read.
        let ahead = first.min(READ_AHEAD_BYTES).min(largest.saturating_sub(whole));
        visit.expect(length.map_or(0, |length| length + ahead));
        // One of unknown length has no turn: nobody knows whether it is large before it is here.
        self.started += visit.take_turn(length.unwrap_or_default()).await;
        let mut permit = self.reserve(first, ahead, visit).await?;
        let mut buffer = Vec::with_capacity(first as usize);
        while let Some(data) = self.frame(visit).await? {
            let needed = (buffer.len() + data.remaining()) as u64;
            if needed > most {
                return Err(beyond(&self.limits));
            }
            let capacity = buffer.capacity() as u64;
            if needed > capacity {
                let target = (capacity * 2)
                    .min(length.unwrap_or(most))
                    .min(largest)
                    .max(needed);
                let more = (target + ahead).saturating_sub(permit.bytes());
                permit.absorb(self.reserve(more, 0, visit).await?);
                buffer.reserve_exact(target as usize - buffer.len());
            }
            append(&mut buffer, data);
        }
        visit.give_back(&mut permit, buffer.capacity() as u64);
        Ok((buffer, permit))
    }
}

fn append(buffer: &mut Vec<u8>, mut data: impl Buf) {
    while data.has_remaining() {
        let chunk = data.chunk();
        buffer.extend_from_slice(chunk);
        let len = chunk.len();
        data.advance(len);
    }
}

/// Polls a future once: a frame that is already there costs no timer.
trait NowOrPending: Future + Sized {
    fn now_or_pending(self) -> impl Future<Output = Option<Self::Output>>;
}

impl<F: Future + Unpin> NowOrPending for F {
    async fn now_or_pending(mut self) -> Option<F::Output> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut self).poll(cx) {
            std::task::Poll::Ready(out) => std::task::Poll::Ready(Some(out)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}

#[cfg(test)]
mod tests;
