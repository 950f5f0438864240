//! OTLP/HTTP and Prometheus remote write by hand on blocking threads: bytes that nobody looks at are discarded in the kernel without
//! being copied (`MSG_TRUNC`), so that a sink on the generator's core costs next to nothing.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use sluice_loadgen::{RemoteWrite, Signal, Written};
use socket2::SockRef;

use super::fault::{Transport, Treatment};
use super::intake::{Format, Intake, Received, pace};
use super::recognise::Stream;
use super::{remote_write, response};

/// `recv` flags of Linux: wait until the buffer is full, and discard instead of copying (tcp(7)).
const MSG_WAITALL: i32 = 0x100;
const MSG_TRUNC: i32 = 0x20;
const DISCARD_BYTES: usize = 1 << 20;

/// How much is read between two pauses when a fault limits the bandwidth.
const PACED_BYTES: u64 = 16 * 1024;

/// Takes connections until the process ends.
pub(super) fn accept(listener: &TcpListener, intake: &Arc<Intake>) {
    for stream in listener.incoming().flatten() {
        let intake = intake.clone();
        let thread = std::thread::Builder::new().name("sink-connection".into());
        let serve = move || match serve(&intake, stream) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => intake.malformed(error.to_string()),
            // A connection that breaks is the gateway's affair; what was lost with it shows in the account.
            _ => {}
        };
        if let Err(error) = thread.spawn(serve) {
            eprintln!("sink: cannot start a thread for a connection: {error}");
        }
    }
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

/// A connection being read.
struct Reader {
    stream: TcpStream,
    buffer: Vec<u8>,
    scratch: Vec<MaybeUninit<u8>>,
    bandwidth: Option<u64>,
}

impl Reader {
    /// The bytes up to and with the first `end`; nothing if the connection has ended before any of them.
    fn until(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(Some(self.buffer.drain(..at + end.len()).collect()));
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk)? {
                0 if self.buffer.is_empty() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.buffer.extend_from_slice(&chunk[..len]),
            }
        }
    }

    fn line(&mut self, end: &[u8]) -> io::Result<String> {
        let line = self.until(end)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Calls `step` for pieces of `len` bytes that a limited bandwidth lets through at a time.
    fn paced(&mut self, len: u64, mut step: impl FnMut(&mut Self, u64) -> io::Result<()>) -> io::Result<()> {
        let Some(bandwidth) = self.bandwidth else {
            return step(self, len);
        };
        let mut left = len;
        while left > 0 {
            let now = left.min(PACED_BYTES);
            step(self, now)?;
            std::thread::sleep(pace(bandwidth, now));
            left -= now;
        }
        Ok(())
    }
}

impl Stream for Reader {
    fn read(&mut self, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
        self.paced(len, |reader, len| {
            let buffered = len.min(reader.buffer.len() as u64);
            out.extend(reader.buffer.drain(..buffered as usize));
            let left = len - buffered;
            if (&reader.stream).take(left).read_to_end(out)? as u64 != left {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(())
        })
    }

    fn discard(&mut self, len: u64) -> io::Result<()> {
        self.paced(len, |reader, len| {
            let buffered = len.min(reader.buffer.len() as u64);
            reader.buffer.drain(..buffered as usize);
            let mut left = len - buffered;
            while left > 0 {
                let want = left.min(DISCARD_BYTES as u64) as usize;
                let socket = SockRef::from(&reader.stream);
                match socket.recv_with_flags(&mut reader.scratch[..want], MSG_WAITALL | MSG_TRUNC)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    len => left -= len as u64,
                }
            }
            Ok(())
        })
    }
}

/// The head of a request.
struct Head {
    signal: Option<Signal>,
    encoding: String,
    format: Format,
    /// Why no body of this kind is taken, whatever is in it.
    unsupported: Option<String>,
    /// Length of the body; nothing if it comes in chunks.
    len: Option<u64>,
    expects_continue: bool,
    closes: bool,
}

impl Head {
    fn parse(text: &str) -> io::Result<Head> {
        let mut line = text.split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        if method != "POST" {
            return Err(invalid(format!("{method} {path}: exporters POST")));
        }
        let header = |name: &str| {
            let mut lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
            let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map_or("", |(_, value)| value.trim())
        };
        let chunked = header("transfer-encoding").eq_ignore_ascii_case("chunked");
        let len = header("content-length");
        let mut encoding = header("content-encoding").to_ascii_lowercase();
        let media_type = header("content-type");
        let path = path.split('?').next().unwrap_or_default();
        let (signal, mut format) = match Signal::of_path(path) {
            Some(signal) if media_type.starts_with("application/json") => (Some(signal), Format::Json),
            None if path == RemoteWrite::PATH => {
                (Some(Signal::Metrics), Format::RemoteWrite(RemoteWrite::V1))
            }
            signal => (signal, Format::Protobuf),
        };
        let mut unsupported = None;
        if let Format::RemoteWrite(version) = &mut format {
            let understood = remote_write::version(media_type).and_then(|found| {
                *version = found;
                remote_write::encoding(&encoding)
            });
            match understood {
                Ok(found) => encoding = found.to_string(),
                Err(error) => unsupported = Some(error),
            }
        }
        Ok(Head {
            signal,
            encoding,
            format,
            unsupported,
            len: if chunked {
                None
            } else {
                Some(
                    len.parse()
                        .map_err(|_| invalid(format!("Content-Length {len:?}")))?,
                )
            },
            expects_continue: header("expect").eq_ignore_ascii_case("100-continue"),
            closes: header("connection").eq_ignore_ascii_case("close"),
        })
    }
}

fn serve(intake: &Intake, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = Reader {
        stream,
        buffer: Vec::new(),
        scratch: vec![MaybeUninit::uninit(); DISCARD_BYTES],
        bandwidth: None,
    };
    loop {
        let Some(head) = reader.until(b"\r\n\r\n")? else {
            return Ok(());
        };
        let head = Head::parse(&String::from_utf8_lossy(&head))?;
        let treatment = intake.treat(head.signal, Transport::Http);
        if head.expects_continue {
            reader.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        std::thread::sleep(treatment.stall);
        reader.bandwidth = treatment.bandwidth;
        let taken = receive(intake, &mut reader, &head, &treatment)?;
        if treatment.reset {
            // Closing with a linger time of zero sends RST (socket(7)).
            return SockRef::from(&reader.stream).set_linger(Some(Duration::ZERO));
        }
        reader.stream.write_all(&answer(&head, &treatment, taken))?;
        if head.closes {
            return Ok(());
        }
    }
}

/// Reads the body, waits if it has to, and accounts for it if it is to be counted. What it says of the body is
/// for the answer; an error of the outer kind is the connection's.
fn receive(
    intake: &Intake,
    reader: &mut Reader,
    head: &Head,
    treatment: &Treatment,
) -> io::Result<Result<Written, String>> {
    let counts = treatment.counts() && intake.wants_body(head.format) && head.unsupported.is_none();
    if let (Some(len), true, 0) = (head.len, counts, treatment.partial)
        && let Some(recogniser) = intake.recogniser(head.signal, &head.encoding)
        && let (Some(signal), Format::Protobuf) = (head.signal, head.format)
    {
        let found = recogniser.scan(signal, len, reader)?;
        std::thread::sleep(treatment.delay);
        intake.arrived(len, treatment);
        match found {
            Ok(arrivals) => intake.settle(signal, arrivals),
            Err(error) => intake.malformed(format!("{len} bytes of {signal}: {error}")),
        }
        return Ok(Ok(Written::default()));
    }
    let mut body = Vec::new();
    let mut body_bytes = 0;
    match head.len {
        Some(len) => {
            body_bytes = len;
            take(reader, len, counts.then_some(&mut body))?;
        }
        None => loop {
            let line = reader.line(b"\r\n")?;
            let size = line.trim().split(';').next().unwrap_or_default();
            let len =
                u64::from_str_radix(size, 16).map_err(|_| invalid(format!("chunk of size {size:?}")))?;
            take(reader, len, counts.then_some(&mut body))?;
            reader.discard(2)?;
            body_bytes += len;
            if len == 0 {
                break;
            }
        },
    }
    std::thread::sleep(treatment.delay);
    intake.arrived(body_bytes, treatment);
    if counts {
        let received = Received {
            signal: head.signal,
            encoding: &head.encoding,
            format: head.format,
            body,
        };
        return Ok(intake.take(received, treatment.partial));
    }
    if let Some(error) = &head.unsupported {
        intake.malformed(error.clone());
    }
    Ok(Ok(Written::default()))
}

fn take(reader: &mut Reader, len: u64, body: Option<&mut Vec<u8>>) -> io::Result<()> {
    match body {
        Some(body) => reader.read(len, body),
        None => reader.discard(len),
    }
}

fn answer(head: &Head, treatment: &Treatment, taken: Result<Written, String>) -> Vec<u8> {
    if let Some((status, _)) = treatment.refusal {
        // Retry-After has whole seconds; less than one is rounded up, as 0 would mean at once.
        let retry_after = treatment.retry_after.map_or_else(String::new, |delay| {
            format!("Retry-After: {}\r\n", delay.as_secs_f64().ceil() as u64)
        });
        let written = match head.format {
            Format::RemoteWrite(version) => remote_write::written(version, Written::default()),
            _ => String::new(),
        };
        return format!("HTTP/1.1 {status} Fault\r\n{retry_after}{written}Content-Length: 0\r\n\r\n")
            .into_bytes();
    }
    let (media_type, body) = match head.format {
        Format::RemoteWrite(version) => {
            return match &head.unsupported {
                Some(error) => remote_write::unsupported(version, error),
                None => remote_write::answer(version, taken, treatment.partial),
            };
        }
        Format::Json => {
            let signal = head.signal.map_or("", Signal::name);
            ("application/json", response::json(treatment.partial, signal))
        }
        // A body that cannot be read is counted, and answered like the rest: the account is what tells.
        Format::Protobuf => ("application/x-protobuf", response::protobuf(treatment.partial)),
    };
    let mut answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(&body);
    answer
}
