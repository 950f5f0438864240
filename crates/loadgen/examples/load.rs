//! A client that drives an OTLP receiver: at a fixed rate on an exact schedule, or as fast as it is answered.
//!
//! HTTP is written by hand on blocking threads, one for each connection, from requests encoded in advance:
//! the generator must never be what limits a gateway. gRPC runs on hyper. Prints what happened as one line
//! of JSON. Latencies count from the moment the schedule wanted the request sent.
#![allow(clippy::print_stdout)]

mod args;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use args::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluice_loadgen::{Generator, Signal, Spec};

/// When each request is due.
struct Schedule {
    start: Instant,
    end: Instant,
    /// Time between requests; zero for as fast as possible.
    interval_nanos: f64,
    taken: AtomicU64,
}

impl Schedule {
    /// The moment of the next request, or nothing when the time is over.
    fn next(&self) -> Option<Instant> {
        let due = if self.interval_nanos > 0.0 {
            let number = self.taken.fetch_add(1, Relaxed);
            self.start + Duration::from_nanos((number as f64 * self.interval_nanos) as u64)
        } else {
            Instant::now()
        };
        (due < self.end).then_some(due)
    }
}

/// What one sender saw.
#[derive(Default)]
struct Outcome {
    requests: u64,
    accepted_items: u64,
    refused_items: u64,
    /// Sizes of the accepted requests' messages before compression.
    accepted_bytes: u64,
    hinted: u64,
    errors: u64,
    statuses: BTreeMap<u16, u64>,
    latency_micros: Vec<u32>,
}

impl Outcome {
    fn answered(&mut self, status: u16, ok: bool, items: u64, message_bytes: u64, due: Instant) {
        self.requests += 1;
        *self.statuses.entry(status).or_default() += 1;
        if ok {
            self.accepted_items += items;
            self.accepted_bytes += message_bytes;
        } else {
            self.refused_items += items;
        }
        self.latency_micros
            .push(due.elapsed().as_micros().min(u32::MAX.into()) as u32);
    }

    fn merge(&mut self, other: Outcome) {
        self.requests += other.requests;
        self.accepted_items += other.accepted_items;
        self.refused_items += other.refused_items;
        self.accepted_bytes += other.accepted_bytes;
        self.hinted += other.hinted;
        self.errors += other.errors;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.latency_micros.extend(other.latency_micros);
    }
}

fn compress(encoding: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    match encoding {
        "identity" => Ok(body.to_vec()),
        "zstd" => zstd::bulk::compress(body, 1),
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(body)?;
            encoder.finish()
        }
        other => Err(io::Error::other(format!(
            "unknown encoding {other}: use identity, gzip or zstd"
        ))),
    }
}

/// Where a sender's requests come from.
struct Source {
    generator: Generator,
    encoding: String,
    /// New ids for each request; otherwise the same few requests are sent over and over.
    unique: bool,
    /// Requests as they are sent, with the size of the message in them before compression.
    prepared: Vec<(Bytes, u64)>,
    used: usize,
    frame: fn(&Source, Vec<u8>) -> Vec<u8>,
    head: String,
}

impl Source {
    fn new(
        args: &Args,
        lane: u32,
        frame: fn(&Source, Vec<u8>) -> Vec<u8>,
        head: String,
    ) -> io::Result<Source> {
        let signal: Signal = args.value("signal");
        let mut spec = if args.on("mixed") {
            Spec::mixed(signal)
        } else {
            Spec::gateway(signal)
        }
        .lane(lane);
        // Senders must differ in content as well, or a batch of several requests would compress too well.
        spec = spec.seed(1 + u64::from(lane));
        if !args.text("items").is_empty() {
            spec = spec.items(args.value("items"));
        }
        let variants = spec.variants;
        let mut source = Source {
            generator: Generator::new(spec),
            encoding: args.text("encoding").into(),
            unique: args.on("unique"),
            prepared: Vec::new(),
            used: 0,
            frame,
            head,
        };
        for _ in 0..if source.unique { 0 } else { variants } {
            let request = source.build()?;
            source.prepared.push(request);
        }
        Ok(source)
    }

    fn items(&self) -> u64 {
        u64::from(self.generator.spec().items_per_request)
    }

    fn build(&mut self) -> io::Result<(Bytes, u64)> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(io::Error::other)?;
        let request = self.generator.next_request_at(now.as_nanos() as u64);
        let body = compress(&self.encoding, &request.body)?;
        Ok(((self.frame)(self, body).into(), request.body.len() as u64))
    }

    fn next(&mut self) -> io::Result<(Bytes, u64)> {
        if self.unique {
            return self.build();
        }
        self.used += 1;
        Ok(self.prepared[self.used % self.prepared.len()].clone())
    }
}

fn http_frame(source: &Source, body: Vec<u8>) -> Vec<u8> {
    let mut request = format!("{}Content-Length: {}\r\n\r\n", source.head, body.len()).into_bytes();
    request.extend_from_slice(&body);
    request
}

fn grpc_frame(source: &Source, body: Vec<u8>) -> Vec<u8> {
    let mut message = vec![u8::from(source.encoding != "identity")];
    message.extend_from_slice(&(body.len() as u32).to_be_bytes());
    message.extend_from_slice(&body);
    message
}

/// Reads one answer and returns its status, whether it says when to retry, and whether the connection stays.
fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<(u16, bool, bool)> {
    buffer.clear();
    let mut chunk = [0; 4096];
    let head_len = loop {
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(&chunk[..len]);
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_len]).to_ascii_lowercase();
    let status = head
        .get(9..12)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body_len: usize = head
        .split("content-length:")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next()?.trim().parse().ok())
        .unwrap_or(0);
    let mut left = (head_len + body_len).saturating_sub(buffer.len());
    while left > 0 {
        let want = left.min(chunk.len());
        stream.read_exact(&mut chunk[..want])?;
        left -= want;
    }
    let stays = !head.contains("connection: close") && !head.contains("transfer-encoding: chunked");
    Ok((status, head.contains("retry-after:"), stays))
}

fn drive_http(schedule: &Schedule, mut source: Source, target: &str) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut buffer = Vec::new();
    let mut connection = None;
    let items = source.items();
    std::thread::sleep(schedule.start.saturating_duration_since(Instant::now()));
    while let Some(due) = schedule.next() {
        let (request, message_bytes) = source.next()?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut exchange = || {
            let mut stream = match connection.take() {
                Some(stream) => stream,
                None => TcpStream::connect(target)?,
            };
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            stream.write_all(&request)?;
            let (status, hinted, stays) = read_answer(&mut stream, &mut buffer)?;
            connection = stays.then_some(stream);
            Ok::<_, io::Error>((status, hinted))
        };
        match exchange() {
            Ok((status, hinted)) => {
                outcome.hinted += u64::from(hinted);
                outcome.answered(status, (200..300).contains(&status), items, message_bytes, due);
            }
            Err(error) => {
                if outcome.errors == 0 {
                    eprintln!("{target}: {error}");
                }
                outcome.errors += 1;
                outcome.refused_items += items;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(outcome)
}

async fn connect(target: &str) -> io::Result<http2::SendRequest<Full<Bytes>>> {
    let stream = tokio::net::TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_send_buf_size(1 << 20)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn drive_grpc(
    schedule: Arc<Schedule>,
    mut source: Source,
    mut sender: http2::SendRequest<Full<Bytes>>,
    uri: String,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let items = source.items();
    tokio::time::sleep_until(schedule.start.into()).await;
    while let Some(due) = schedule.next() {
        let (message, message_bytes) = source.next()?;
        if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        let mut request = hyper::Request::post(&uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(message))
            .map_err(io::Error::other)?;
        if source.encoding != "identity" {
            let encoding = source.encoding.parse().map_err(io::Error::other)?;
            request.headers_mut().insert("grpc-encoding", encoding);
        }
        let answer = async {
            let mut response = sender.send_request(request).await?;
            let mut status = response.headers().get("grpc-status").cloned();
            let mut hinted = response.headers().contains_key("grpc-status-details-bin");
            while let Some(frame) = response.body_mut().frame().await {
                if let Some(trailers) = frame?.trailers_ref() {
                    status = trailers.get("grpc-status").cloned().or(status);
                    hinted |= trailers.contains_key("grpc-status-details-bin");
                }
            }
            Ok::<_, hyper::Error>((status, hinted))
        };
        match answer.await {
            Ok((status, hinted)) => {
                let status = status
                    .and_then(|status| status.to_str().ok()?.parse().ok())
                    .unwrap_or(2);
                outcome.hinted += u64::from(hinted);
                outcome.answered(status, status == 0, items, message_bytes, due);
            }
            Err(error) => {
                if outcome.errors == 0 {
                    eprintln!("{uri}: {error}");
                }
                outcome.errors += 1;
                outcome.refused_items += items;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    Ok(outcome)
}

fn print(mut outcome: Outcome, elapsed: Duration) {
    outcome.latency_micros.sort_unstable();
    let quantile = |share: f64| {
        let at = (outcome.latency_micros.len() as f64 * share) as usize;
        outcome
            .latency_micros
            .get(at)
            .or(outcome.latency_micros.last())
            .copied()
            .unwrap_or(0)
    };
    let seconds = elapsed.as_secs_f64();
    let statuses: Vec<_> = outcome
        .statuses
        .iter()
        .map(|(status, count)| format!("\"{status}\":{count}"))
        .collect();
    let offered = outcome.accepted_items + outcome.refused_items;
    println!(
        "{{\"seconds\":{seconds:.3},\"requests\":{},\"sent_items\":{offered},\"accepted_items\":{},\
         \"refused_items\":{},\"refused_percent\":{:.2},\"items_per_second\":{:.0},\"accepted_bytes\":{},\
         \"hinted\":{},\"errors\":{},\"p50_us\":{},\"p99_us\":{},\"max_us\":{},\"statuses\":{{{}}}}}",
        outcome.requests,
        outcome.accepted_items,
        outcome.refused_items,
        100.0 * outcome.refused_items as f64 / offered.max(1) as f64,
        outcome.accepted_items as f64 / seconds,
        outcome.accepted_bytes,
        outcome.hinted,
        outcome.errors,
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        statuses.join(",")
    );
}

fn main() -> io::Result<()> {
    let args = Args::read(
        "load: send OTLP requests and print what became of them",
        &[
            ("target", "127.0.0.1:4318", "host and port"),
            ("protocol", "http", "http or grpc"),
            ("signal", "metrics", "metrics, logs or traces"),
            (
                "mixed",
                "",
                "the mixed payload of several services instead of the uniform one",
            ),
            ("items", "", "items in each request"),
            ("encoding", "identity", "identity, gzip or zstd"),
            ("connections", "8", "number of connections"),
            ("concurrent", "16", "gRPC: calls at a time, over all connections"),
            ("rate", "0", "items per second; 0 is as fast as the answers come"),
            ("seconds", "10", "how long to send"),
            (
                "unique",
                "",
                "give every item its own id; needs time to build, so not for saturation",
            ),
            ("lane", "0", "first id lane; each connection or call takes one"),
        ],
    );
    let target = args.text("target").to_string();
    let signal: Signal = args.value("signal");
    let senders: u32 = match args.text("protocol") {
        "http" => args.value("connections"),
        "grpc" => args.value("concurrent"),
        other => {
            return Err(io::Error::other(format!(
                "unknown protocol {other}: use http or grpc"
            )));
        }
    };
    let encoding = match args.text("encoding") {
        "identity" => String::new(),
        encoding => format!("Content-Encoding: {encoding}\r\n"),
    };
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/x-protobuf\r\n{encoding}",
        signal.http_path()
    );
    let frame = if args.text("protocol") == "http" {
        http_frame
    } else {
        grpc_frame
    };
    let lane: u32 = args.value("lane");
    let sources: Vec<Source> = (0..senders)
        .map(|at| Source::new(&args, lane + at, frame, head.clone()))
        .collect::<io::Result<_>>()?;

    let start = Instant::now() + Duration::from_millis(50);
    let rate: f64 = args.value("rate");
    let items = sources.first().map_or(1, Source::items) as f64;
    let schedule = Arc::new(Schedule {
        start,
        end: start + Duration::from_secs_f64(args.value("seconds")),
        interval_nanos: if rate > 0.0 { 1e9 * items / rate } else { 0.0 },
        taken: AtomicU64::new(0),
    });
    let mut total = Outcome::default();
    if args.text("protocol") == "http" {
        let threads: Vec<_> = sources
            .into_iter()
            .map(|source| {
                let (schedule, target) = (schedule.clone(), target.clone());
                std::thread::spawn(move || drive_http(&schedule, source, &target))
            })
            .collect();
        for thread in threads {
            total.merge(
                thread
                    .join()
                    .map_err(|_| io::Error::other("a sender panicked"))??,
            );
        }
    } else {
        let connections: usize = args.value("connections");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        total = runtime.block_on(async {
            let mut opened = Vec::new();
            for _ in 0..connections.max(1) {
                opened.push(connect(&target).await?);
            }
            let uri = format!("http://{target}{}", signal.grpc_path());
            let calls: Vec<_> = sources
                .into_iter()
                .enumerate()
                .map(|(at, source)| {
                    let sender = opened[at % opened.len()].clone();
                    tokio::spawn(drive_grpc(schedule.clone(), source, sender, uri.clone()))
                })
                .collect();
            let mut total = Outcome::default();
            for call in calls {
                total.merge(call.await.map_err(io::Error::other)??);
            }
            Ok::<_, io::Error>(total)
        })?;
    }
    print(total, start.elapsed());
    Ok(())
}
