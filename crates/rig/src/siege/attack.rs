//! Clients that a gateway must survive: bodies that inflate, bodies that never come, connections without
//! requests.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_loadgen::{Generator, Signal, Spec};

/// Longer than any gateway holds a request on purpose.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A client that was turned away comes again after this long, or when it was told to, but no later than
/// [`LONGEST_PAUSE`], so that a phase of minutes sees many attempts.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What an inflation inflates to, and a bomb.
pub(crate) const INFLATED_BYTES: usize = 60 << 20;
const BOMB_BYTES: usize = 1 << 30;

/// Inflations are ordinary log records: about this many to a request that is then repeated in the body.
const RECORDS: u32 = 5000;

/// What a slow client declares, and how often it sends a byte of it.
const DECLARED_BYTES: usize = 1 << 20;
const DRIP: Duration = Duration::from_secs(1);

/// How often somebody looks whether an idle connection was closed.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// A compressed body and how it is compressed.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    bytes: Arc<Vec<u8>>,
    encoding: &'static str,
    /// Records in it. Of a bomb none: it is nothing that can be taken.
    items: u64,
    /// What else it may be told than success and to come again.
    may_be_told: &'static [u16],
}

/// No gateway needs to take so much at once.
const TOO_LARGE: u16 = 413;

/// What a slow client may be told.
const TIMEOUT: u16 = 408;

/// The bodies of a siege, made once.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    pub(crate) inflation: Body,
    pub(crate) bombs: [Body; 2],
}

impl Bodies {
    pub(crate) fn make() -> io::Result<Bodies> {
        let mut generator = Generator::new(Spec::mixed(Signal::Logs).items(RECORDS));
        let (mut message, mut items) = (Vec::with_capacity(INFLATED_BYTES), 0);
        while message.len() < INFLATED_BYTES {
            let request = generator.next_request();
            if message.len() + request.body.len() > INFLATED_BYTES {
                break;
            }
            // Export requests are repeated fields: one after the other is one.
            message.extend_from_slice(&request.body);
            items += u64::from(request.items);
        }
        let gzip = |source: &mut dyn Read, items, may_be_told| -> io::Result<Body> {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::copy(source, &mut encoder)?;
            Ok(Body {
                bytes: Arc::new(encoder.finish()?),
                encoding: "gzip",
                items,
                may_be_told,
            })
        };
        let mut zeros = io::repeat(0).take(BOMB_BYTES as u64);
        let zstd = Body {
            bytes: Arc::new(zstd::stream::encode_all(
                io::repeat(0).take(BOMB_BYTES as u64),
                1,
            )?),
            encoding: "zstd",
            items: 0,
            may_be_told: &[TOO_LARGE],
        };
        Ok(Bodies {
            inflation: gzip(&mut message.as_slice(), items, &[])?,
            bombs: [gzip(&mut zeros, 0, &[TOO_LARGE])?, zstd],
        })
    }
}

/// What came of the attackers' requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// By HTTP status; 0 for none.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// The connection was closed before an answer was read. The gateway may have answered: what a client writes to a socket that is closed
    /// is reset, and the answer with it. Nobody is judged by these.
    pub(crate) closed: u64,
    /// Items of bodies that were accepted, and of those whose answer was not read.
    pub(crate) accepted_items: u64,
    pub(crate) unsure_items: u64,
    /// Of those that are to be tried again, how many said when.
    pub(crate) hinted: u64,
    pub(crate) retryable: u64,
    /// Answers, by status, that are neither success, nor to be tried again, nor what such a request deserves.
    pub(crate) wrong: BTreeMap<u16, u64>,
    pub(crate) first_error: Option<String>,
}

impl Answers {
    /// Notes what became of the items of a body.
    fn account(&mut self, answer: &io::Result<Answer>, items: u64) {
        match answer {
            Ok(answer) if answer.status == 200 => self.accepted_items += items,
            Ok(_) => {}
            Err(_) => self.unsure_items += items,
        }
    }

    fn note(&mut self, answer: &io::Result<Answer>, may_be_told: &[u16]) {
        if answer.as_ref().is_err_and(is_closed) {
            self.closed += 1;
            return;
        }
        let status = answer.as_ref().map_or(0, |answer| answer.status);
        *self.statuses.entry(status).or_default() += 1;
        if !(status == 200 || is_retryable(status) || may_be_told.contains(&status)) {
            *self.wrong.entry(status).or_default() += 1;
        }
        match answer {
            Ok(answer) => {
                if is_retryable(answer.status) {
                    self.retryable += 1;
                    self.hinted += u64::from(answer.retry_after.is_some());
                }
            }
            Err(error) => {
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// The other end closed, which is neither a time-out nor a refused connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof
    )
}

/// What OTLP/HTTP says may be tried again.
pub(crate) fn is_retryable(status: u16) -> bool {
    matches!(status, 429 | 502 | 503 | 504)
}

struct Answer {
    status: u16,
    retry_after: Option<Duration>,
}

/// Clients at work until they are told to stop.
pub(crate) struct Attack {
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Answers>>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    pub(crate) fn none() -> Attack {
        Attack {
            stop: Arc::default(),
            answers: Arc::default(),
            threads: Vec::new(),
        }
    }

    fn client(&mut self, work: impl FnOnce(&AtomicBool, &Mutex<Answers>) + Send + 'static) {
        let (stop, answers) = (self.stop.clone(), self.answers.clone());
        self.threads.push(thread::spawn(move || work(&stop, &answers)));
    }

    /// So many clients that each send this body again and again.
    pub(crate) fn bodies(&mut self, number: usize, address: &str, body: &Body) {
        for _ in 0..number {
            let (address, body) = (address.to_string(), body.clone());
            self.client(move |stop, answers| {
                while !stop.load(Relaxed) {
                    let answer = post(&address, &body);
                    {
                        let mut answers = answers.lock();
                        answers.note(&answer, body.may_be_told);
                        answers.account(&answer, body.items);
                    }
                    let pause = match answer {
                        Ok(answer) if answer.status == 200 => Duration::ZERO,
                        Ok(answer) => answer.retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE),
                        Err(_) => PAUSE,
                    };
                    wait(stop, pause);
                }
            });
        }
    }

    /// So many clients that declare a body and send one byte of it a second.
    pub(crate) fn drips(&mut self, number: usize, address: &str) {
        for _ in 0..number {
            let address = address.to_string();
            self.client(move |stop, answers| {
                while !stop.load(Relaxed) {
                    let answer = drip(&address, stop);
                    if let Some(answer) = answer.transpose() {
                        answers.lock().note(&answer, &[TIMEOUT]);
                        wait(stop, PAUSE);
                    }
                }
            });
        }
    }

    /// So many connections on which nothing is ever sent; what the gateway closes is opened again.
    pub(crate) fn idle(&mut self, number: usize, address: &str) {
        let address = address.to_string();
        self.client(move |stop, answers| {
            let mut open: Vec<TcpStream> = Vec::with_capacity(number);
            while !stop.load(Relaxed) {
                open.retain(|stream| {
                    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
                });
                while open.len() < number && !stop.load(Relaxed) {
                    match TcpStream::connect(&address).and_then(|stream| {
                        stream.set_nonblocking(true)?;
                        Ok(stream)
                    }) {
                        Ok(stream) => open.push(stream),
                        Err(error) => {
                            answers.lock().note(&Err(error), &[]);
                            break;
                        }
                    }
                }
                wait(stop, IDLE_LOOK);
            }
        });
    }

    /// Tells them to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// All have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Ends them, and says what they were told.
    pub(crate) fn end(self) -> Answers {
        self.stop();
        for thread in self.threads {
            // A client that panicked has nothing more to say; what it noted stands.
            let _ = thread.join();
        }
        self.answers.lock().clone()
    }
}

/// Waits, but not after the end.
fn wait(stop: &AtomicBool, pause: Duration) {
    const STEP: Duration = Duration::from_millis(100);
    let mut left = pause;
    while !left.is_zero() && !stop.load(Relaxed) {
        let step = left.min(STEP);
        thread::sleep(step);
        left -= step;
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

fn head(encoding: &str, len: usize) -> String {
    let encoding = match encoding {
        "" => String::new(),
        encoding => format!("Content-Encoding: {encoding}\r\n"),
    };
    format!(
        "POST {} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/x-protobuf\r\n{encoding}Content-Length: {len}\r\n\
         Connection: close\r\n\r\n",
        Signal::Logs.http_path()
    )
}

/// One request on a connection of its own. A gateway may answer before it has read the body, and close.
fn post(address: &str, body: &Body) -> io::Result<Answer> {
    let mut stream = connect(address)?;
    let written = stream
        .write_all(head(body.encoding, body.bytes.len()).as_bytes())
        .and_then(|()| stream.write_all(&body.bytes));
    match (read_answer(&mut stream), written) {
        (Ok(answer), _) => Ok(answer),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
    }
}

/// None if the siege ended first.
fn drip(address: &str, stop: &AtomicBool) -> io::Result<Option<Answer>> {
    let mut stream = connect(address)?;
    stream.write_all(head("", DECLARED_BYTES).as_bytes())?;
    while !stop.load(Relaxed) {
        stream.set_read_timeout(Some(DRIP))?;
        match stream.peek(&mut [0]) {
            // It has answered, or closed.
            Ok(_) => return read_answer(&mut stream).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        if let Err(error) = stream.write_all(&[0]) {
            // It may have answered and closed since the look.
            return read_answer(&mut stream).map(Some).map_err(|_| error);
        }
    }
    Ok(None)
}

fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    const HEAD_LIMIT: u64 = 16 << 10;
    let mut text = Vec::new();
    let mut byte = [0; 512];
    let mut source = stream.take(HEAD_LIMIT);
    while !text.windows(4).any(|window| window == b"\r\n\r\n") {
        match source.read(&mut byte)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => text.extend_from_slice(&byte[..len]),
        }
    }
    let head = String::from_utf8_lossy(&text).to_ascii_lowercase();
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not an HTTP/1.1 answer: {head:?}")))?;
    let retry_after = head.lines().find_map(|line| line.strip_prefix("retry-after:"));
    Ok(Answer {
        status,
        retry_after: retry_after
            .and_then(|seconds| seconds.trim().parse().ok())
            .map(Duration::from_secs),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers every connection with `answer` as soon as a request begins, and closes it.
    fn gateway(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 16]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    fn until(attack: &Attack, done: impl Fn(&Answers) -> bool) {
        while !done(&attack.answers.lock()) {
            thread::yield_now();
        }
    }

    /// Scenario: bodies and slow bodies against a gateway that answers 503, with a hint and without, before it has read them.
    /// Guarantees: the answer is read although the gateway closes in the middle of the body, and its hint counted.
    #[test]
    fn early_refusals_are_read() {
        let body = Body {
            bytes: Arc::new(vec![0; 1 << 20]),
            encoding: "gzip",
            items: 0,
            may_be_told: &[],
        };
        for (answer, hinted) in [
            ("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\n", false),
        ] {
            let address = gateway(answer);
            let mut attack = Attack::none();
            attack.drips(1, &address);
            until(&attack, |answers| answers.retryable > 0);
            let answers = attack.end();
            assert_eq!(answers.hinted > 0, hinted, "{answers:?}");
            let answer = post(&address, &body);
            if let Ok(answer) = answer {
                assert_eq!((answer.status, answer.retry_after.is_some()), (503, hinted));
            }
        }
    }

    /// Scenario: nobody listens.
    /// Guarantees: that is an answer of its own, with the reason.
    #[test]
    fn no_answer_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut attack = Attack::none();
        attack.idle(1, &address);
        until(&attack, |answers| answers.statuses.contains_key(&0));
        let answers = attack.end();
        assert!(answers.first_error.is_some());
        assert!(answers.wrong.contains_key(&0));
    }

    /// Scenario: every way in which a connection ends that was closed by the other end; a time-out, and a refused connection.
    /// Guarantees: the first are counted apart and are not wrong, the others are wrong.
    #[test]
    fn a_closed_connection_is_not_a_wrong_answer() {
        let mut answers = Answers::default();
        let closed = [
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
            ErrorKind::UnexpectedEof,
        ];
        for kind in closed {
            answers.note(&Err(kind.into()), &[TIMEOUT]);
        }
        assert_eq!((answers.closed, answers.wrong.len()), (3, 0), "{answers:?}");
        assert!(
            answers.statuses.is_empty() && answers.first_error.is_none(),
            "{answers:?}"
        );
        for kind in [ErrorKind::WouldBlock, ErrorKind::ConnectionRefused] {
            answers.note(&Err(kind.into()), &[TIMEOUT]);
        }
        assert_eq!(
            (answers.closed, answers.wrong.get(&0)),
            (3, Some(&2)),
            "{answers:?}"
        );
    }

    /// Scenario: a gateway says 413 to a body that it has to take, and to one that nobody needs to take.
    /// Guarantees: the first is wrong, the second is not; both are counted.
    #[test]
    fn a_final_answer_is_wrong_where_it_is_not_deserved() {
        let address = gateway("HTTP/1.1 413 Payload Too Large\r\n\r\n");
        for may_be_told in [&[][..], &[TOO_LARGE]] {
            let body = Body {
                bytes: Arc::new(vec![0; 16]),
                encoding: "gzip",
                items: 1,
                may_be_told,
            };
            let mut attack = Attack::none();
            attack.bodies(1, &address, &body);
            until(&attack, |answers| answers.statuses.contains_key(&413));
            let answers = attack.end();
            assert_eq!(
                answers.wrong.contains_key(&413),
                may_be_told.is_empty(),
                "{answers:?}"
            );
        }
    }
}
