//! A destination that counts: OTLP/HTTP on blocking threads, OTLP/gRPC on hyper.
//!
//! Unless `--verify` is given, HTTP bodies with a content length are discarded in the kernel without being
//! copied (`MSG_TRUNC`), so that a sink on the generator's core costs next to nothing. With `--keep`, compressed
//! bodies are kept as they came, and their items are counted when the account is asked for: after the load.
//! `GET /stats` answers, and SIGTERM or SIGINT print, what arrived, as JSON.
#![allow(clippy::print_stdout)]

mod args;

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use args::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluice_loadgen::{Signal, Tallies, for_each_id};
use socket2::SockRef;

/// `recv` flags of Linux: wait until the buffer is full, and discard instead of copying (tcp(7)).
const MSG_WAITALL: i32 = 0x100;
const MSG_TRUNC: i32 = 0x20;
const DISCARD_BYTES: usize = 1 << 20;

struct Sink {
    verify: bool,
    keep: bool,
    delay: Duration,
    status: u16,
    grpc_status: u32,
    /// The fault hits every n-th request; 1 is all of them.
    every: u64,
    retry_after: String,
    started: Instant,
    requests: AtomicU64,
    faults: AtomicU64,
    body_bytes: AtomicU64,
    malformed: AtomicU64,
    /// Bytes of bodies that were accepted without being kept or checked.
    plain_bytes: AtomicU64,
    kept: Mutex<Vec<Kept>>,
    kept_items: AtomicU64,
    /// When the last request arrived, in milliseconds after the start.
    last_millis: AtomicU64,
    tallies: Mutex<Tallies>,
}

/// A compressed body with its path and encoding.
type Kept = (String, String, Vec<u8>);

impl Sink {
    /// Whether the body of a request with this encoding has to be read.
    fn wants(&self, encoding: &str) -> bool {
        self.verify || self.keep && !matches!(encoding, "" | "identity")
    }

    /// Accounts for a body that was accepted; `body` is empty if it was not wanted.
    fn accept(&self, path: &str, encoding: &str, body_bytes: u64, body: Vec<u8>) {
        if self.verify {
            self.check(path, encoding, &body);
        } else if self.wants(encoding) {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push((path.into(), encoding.into(), body));
        } else {
            self.plain_bytes.fetch_add(body_bytes, Relaxed);
        }
    }

    fn count_kept(&self) {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        for (path, encoding, body) in kept {
            let mut items = 0;
            let walked = inflate(&encoding, &body).and_then(|body| {
                let signal = Signal::of_path(&path).ok_or_else(|| io::Error::other("unknown path"))?;
                for_each_id(signal, &body, |_| items += 1).map_err(io::Error::other)
            });
            self.kept_items.fetch_add(items, Relaxed);
            self.malformed.fetch_add(u64::from(walked.is_err()), Relaxed);
        }
    }

    /// Counts a request that has been read; whether it is to be refused.
    fn count(&self, body_bytes: u64) -> bool {
        self.last_millis
            .store(self.started.elapsed().as_millis() as u64, Relaxed);
        self.body_bytes.fetch_add(body_bytes, Relaxed);
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        let fault = (self.status != 200 || self.grpc_status != 0) && number.is_multiple_of(self.every);
        self.faults.fetch_add(u64::from(fault), Relaxed);
        fault
    }

    fn check(&self, path: &str, encoding: &str, body: &[u8]) {
        let outcome = inflate(encoding, body).and_then(|body| {
            let signal = Signal::of_path(path).ok_or_else(|| io::Error::other("unknown path"))?;
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            tallies
                .of(signal)
                .delivered_body(signal, &body)
                .map_err(io::Error::other)
        });
        if let Err(error) = outcome {
            eprintln!("{path} ({encoding:?}, {} bytes): {error}", body.len());
            self.malformed.fetch_add(1, Relaxed);
        }
    }

    fn json(&self) -> String {
        let now_millis = self.started.elapsed().as_millis();
        self.count_kept();
        let mut json = format!(
            "{{\"requests\":{},\"body_bytes\":{},\"faults\":{},\"malformed\":{},\"plain_bytes\":{},\"kept_items\":{},\
             \"last_millis\":{},\"now_millis\":{now_millis}",
            self.requests.load(Relaxed),
            self.body_bytes.load(Relaxed),
            self.faults.load(Relaxed),
            self.malformed.load(Relaxed),
            self.plain_bytes.load(Relaxed),
            self.kept_items.load(Relaxed),
            self.last_millis.load(Relaxed),
        );
        if self.verify {
            let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            for signal in Signal::ALL {
                let report = tallies.report(signal);
                json += &format!(
                    ",\"{signal}_unique\":{},\"{signal}_duplicated\":{},\"{signal}_unmarked\":{}",
                    report.delivered, report.duplicated, report.unmarked
                );
            }
        }
        json + "}"
    }
}

fn inflate(encoding: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut inflated = Vec::new();
    match encoding {
        "" | "identity" => inflated.extend_from_slice(body),
        "gzip" => drop(flate2::read::MultiGzDecoder::new(body).read_to_end(&mut inflated)?),
        "zstd" => zstd::stream::copy_decode(body, &mut inflated)?,
        other => return Err(io::Error::other(format!("unknown encoding {other}"))),
    }
    Ok(inflated)
}

/// A connection being read.
struct Reader {
    stream: TcpStream,
    buffer: Vec<u8>,
    scratch: Vec<MaybeUninit<u8>>,
}

impl Reader {
    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            len => {
                self.buffer.extend_from_slice(&chunk[..len]);
                Ok(())
            }
        }
    }

    /// The bytes up to and with the first `end`.
    fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.drain(..at + end.len()).collect());
            }
            self.fill()?;
        }
    }

    /// Takes `len` bytes: into `body`, or nowhere.
    fn take(&mut self, len: u64, body: Option<&mut Vec<u8>>) -> io::Result<()> {
        let buffered = len.min(self.buffer.len() as u64);
        let head = self.buffer.drain(..buffered as usize);
        let mut left = len - buffered;
        if let Some(body) = body {
            body.extend(head);
            if (&self.stream).take(left).read_to_end(body)? as u64 != left {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return Ok(());
        }
        drop(head);
        while left > 0 {
            let want = left.min(DISCARD_BYTES as u64) as usize;
            let socket = SockRef::from(&self.stream);
            match socket.recv_with_flags(&mut self.scratch[..want], MSG_WAITALL | MSG_TRUNC)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => left -= len as u64,
            }
        }
        Ok(())
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
    lines
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map_or("", |(_, value)| value.trim())
}

fn serve_http(sink: &Sink, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = Reader {
        stream,
        buffer: Vec::new(),
        scratch: vec![MaybeUninit::uninit(); DISCARD_BYTES],
    };
    loop {
        let head = String::from_utf8_lossy(&reader.until(b"\r\n\r\n")?).into_owned();
        let mut line = head.split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        if method == "GET" {
            let json = sink.json();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{json}", json.len());
            reader.stream.write_all(answer.as_bytes())?;
            if header(&head, "connection").eq_ignore_ascii_case("close") {
                return Ok(());
            }
            continue;
        }
        if header(&head, "expect").eq_ignore_ascii_case("100-continue") {
            reader.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let encoding = header(&head, "content-encoding");
        let wanted = sink.wants(encoding);
        let mut body = Vec::new();
        let mut body_bytes = 0;
        if header(&head, "transfer-encoding").eq_ignore_ascii_case("chunked") {
            loop {
                let line = String::from_utf8_lossy(&reader.until(b"\r\n")?).into_owned();
                let len = u64::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)
                    .map_err(io::Error::other)?;
                reader.take(len, wanted.then_some(&mut body))?;
                reader.take(2, None)?;
                body_bytes += len;
                if len == 0 {
                    break;
                }
            }
        } else {
            body_bytes = header(&head, "content-length")
                .parse()
                .map_err(io::Error::other)?;
            reader.take(body_bytes, wanted.then_some(&mut body))?;
        }
        if !sink.delay.is_zero() {
            std::thread::sleep(sink.delay);
        }
        if sink.count(body_bytes) {
            let retry_after = match sink.retry_after.as_str() {
                "" => String::new(),
                seconds => format!("Retry-After: {seconds}\r\n"),
            };
            let answer = format!(
                "HTTP/1.1 {} Fault\r\n{retry_after}Content-Length: 0\r\n\r\n",
                sink.status
            );
            reader.stream.write_all(answer.as_bytes())?;
        } else {
            sink.accept(path, encoding, body_bytes, body);
            reader.stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n",
            )?;
        }
        if header(&head, "connection").eq_ignore_ascii_case("close") {
            return Ok(());
        }
    }
}

type GrpcBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

async fn serve_grpc(sink: Arc<Sink>, request: Request<Incoming>) -> Result<Response<GrpcBody>, hyper::Error> {
    let (parts, mut incoming) = request.into_parts();
    let encoding = parts
        .headers
        .get("grpc-encoding")
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let wanted = sink.wants(encoding);
    let mut body = Vec::new();
    let mut body_bytes = 0;
    while let Some(frame) = incoming.frame().await {
        if let Ok(data) = frame?.into_data() {
            body_bytes += data.len() as u64;
            if wanted {
                body.extend_from_slice(&data);
            }
        }
    }
    if !sink.delay.is_zero() {
        tokio::time::sleep(sink.delay).await;
    }
    let fault = sink.count(body_bytes);
    if !fault {
        // The prefix: one byte that says whether the message is compressed, four of length.
        let encoding = if body.first() == Some(&0) {
            "identity"
        } else {
            encoding
        };
        let message = body.get(5..).unwrap_or_default().to_vec();
        sink.accept(parts.uri.path(), encoding, body_bytes.saturating_sub(5), message);
    }
    let status = if fault { sink.grpc_status } else { 0 };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.into());
    let message = Bytes::from_static(if status == 0 { &[0; 5] } else { &[] });
    let body = Full::new(message)
        .with_trailers(async move { Some(Ok(trailers)) })
        .boxed();
    let mut response = Response::new(body);
    let content_type = hyper::header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", content_type);
    Ok(response)
}

async fn listen_grpc(sink: Arc<Sink>, address: String) -> io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let sink = sink.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| serve_grpc(sink.clone(), request));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(8 << 20)
                .initial_connection_window_size(32 << 20)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                eprintln!("gRPC connection: {error}");
            }
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = Args::read(
        "sink: count what OTLP exporters send",
        &[
            ("http", "127.0.0.1:24318", "address for OTLP/HTTP"),
            ("grpc", "", "address for OTLP/gRPC; none unless given"),
            ("verify", "", "inflate bodies and account for their item ids"),
            ("keep", "", "keep compressed bodies and count their items later"),
            ("delay-ms", "0", "wait before each answer"),
            ("status", "200", "HTTP status of faults"),
            ("grpc-status", "0", "gRPC status of faults"),
            ("every", "1", "let the fault hit every n-th request"),
            ("retry-after", "", "Retry-After of faults, in seconds"),
        ],
    );
    let sink = Arc::new(Sink {
        verify: args.on("verify"),
        keep: args.on("keep"),
        delay: Duration::from_millis(args.value("delay-ms")),
        status: args.value("status"),
        grpc_status: args.value("grpc-status"),
        every: args.value::<u64>("every").max(1),
        retry_after: args.text("retry-after").into(),
        started: Instant::now(),
        requests: AtomicU64::new(0),
        faults: AtomicU64::new(0),
        body_bytes: AtomicU64::new(0),
        malformed: AtomicU64::new(0),
        plain_bytes: AtomicU64::new(0),
        kept: Mutex::default(),
        kept_items: AtomicU64::new(0),
        last_millis: AtomicU64::new(0),
        tallies: Mutex::new(Tallies::new()),
    });
    let listener = TcpListener::bind(args.text("http"))?;
    let http = sink.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sink = http.clone();
            std::thread::spawn(move || match serve_http(&sink, stream) {
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => eprintln!("HTTP: {error}"),
                _ => {}
            });
        }
    });
    if !args.text("grpc").is_empty() {
        let (sink, address) = (sink.clone(), args.text("grpc").to_string());
        tokio::spawn(async move {
            if let Err(error) = listen_grpc(sink, address).await {
                eprintln!("gRPC listener: {error}");
                std::process::exit(1);
            }
        });
    }
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        outcome = tokio::signal::ctrl_c() => outcome?,
    }
    println!("{}", sink.json());
    Ok(())
}
