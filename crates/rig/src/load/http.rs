//! OTLP/HTTP and Prometheus remote write by hand on a blocking connection: the generator must never be what limits a gateway.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sluice_loadgen::{RemoteWrite, Signal};

use super::drive::Exchange;
use super::outcome::Answer;
use super::plan::{Encoding, Plan, Protocol};
use super::source::Outgoing;

/// Longer than any gateway holds a request on purpose.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A response larger than this is not one to an export request.
const RESPONSE_LIMIT: usize = 1 << 20;

/// One connection, opened when it is needed.
pub(crate) struct HttpExchange {
    target: String,
    head: String,
    protocol: Protocol,
    connection: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl HttpExchange {
    pub(crate) fn new(plan: &Plan) -> HttpExchange {
        let signal: Signal = plan.spec.signal;
        let (path, headers) = match (plan.protocol, plan.protocol.remote_write()) {
            (_, Some(version)) => (RemoteWrite::PATH, remote_write_headers(version, plan.encoding)),
            (Protocol::Json, None) => (signal.http_path(), "Content-Type: application/json\r\n".into()),
            (_, None) => (
                signal.http_path(),
                "Content-Type: application/x-protobuf\r\n".into(),
            ),
        };
        let encoding = match plan.encoding {
            Encoding::Identity => String::new(),
            encoding => format!("Content-Encoding: {}\r\n", encoding.name()),
        };
        let more = plan
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let more: String = more.collect();
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\n{headers}{encoding}{more}Content-Length: ",
            plan.path.as_deref().unwrap_or(path),
            plan.target
        );
        HttpExchange {
            target: plan.target.clone(),
            head,
            protocol: plan.protocol,
            connection: None,
            buffer: Vec::new(),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.target)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(stream)
    }

    fn send(&mut self, request: &Outgoing<'_>) -> io::Result<Answer> {
        let body = request.body;
        // Taken out, so that a connection that failed is not used again.
        let mut stream = match self.connection.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let head = format!("{}{}\r\n\r\n", self.head, body.len());
        write_both(&mut stream, head.as_bytes(), body)?;
        let response = Response::read(&mut stream, &mut self.buffer)?;
        let answer = match self.protocol.remote_write() {
            Some(version) => response.of_remote_write(version, request.sent.ids.end - request.sent.ids.start),
            None => self.of_otlp(&response),
        };
        if response.stays {
            self.connection = Some(stream);
        }
        Ok(answer)
    }

    fn of_otlp(&self, response: &Response) -> Answer {
        let accepted = is_success(response.status);
        let body = self.buffer.get(response.body_at..).unwrap_or_default();
        let rejected_items = match (accepted, self.protocol) {
            (false, _) => 0,
            (true, Protocol::Json) => partial_success_json(body),
            (true, _) => partial_success(body),
        };
        Answer {
            status: response.status,
            accepted,
            hinted: response.hinted,
            rejected_items,
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// What the specifications of remote write want in front of a body, but for its encoding.
fn remote_write_headers(version: RemoteWrite, encoding: Encoding) -> String {
    let (parameter, number) = match version {
        RemoteWrite::V1 => (String::new(), "0.1.0"),
        RemoteWrite::V2 => (format!(";proto={}", version.message()), "2.0.0"),
    };
    // What VictoriaMetrics' own senders say when they use zstd.
    let victoria = match (version, encoding) {
        (RemoteWrite::V1, Encoding::Zstd) => "X-VictoriaMetrics-Remote-Write-Version: 1\r\n",
        _ => "",
    };
    format!(
        "Content-Type: application/x-protobuf{parameter}\r\nX-Prometheus-Remote-Write-Version: {number}\r\n{victoria}\
         User-Agent: sluice-rig\r\n"
    )
}

impl Exchange for HttpExchange {
    async fn exchange(&mut self, request: Outgoing<'_>) -> Result<Answer, String> {
        self.send(&request)
            .map_err(|error| format!("{}: {error}", self.target))
    }
}

/// Head and body in as few writes as the socket takes them.
fn write_both(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < head.len() {
        match stream.write_vectored(&[IoSlice::new(&head[written..]), IoSlice::new(body)])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            len => written += len,
        }
    }
    stream.write_all(&body[written - head.len()..])
}

/// What has been read of an answer; its body is in the buffer.
struct Response {
    status: u16,
    hinted: bool,
    stays: bool,
    /// How many samples a receiver of remote write 2.0 says to have written.
    samples_written: Option<u64>,
    body_at: usize,
}

impl Response {
    fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Response> {
        buffer.clear();
        let body_at = read_until(stream, buffer, 0, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&buffer[..body_at]).to_ascii_lowercase();
        let status = head
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| io::Error::other(format!("not an HTTP/1.1 answer: {head:?}")))?;
        let value = |name: &str| {
            let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
            lines
                .map(|(key, value)| (key, value.trim()))
                .find(|(key, _)| *key == name)
        };
        if value("transfer-encoding").is_some_and(|(_, value)| value == "chunked") {
            let body = read_chunks(stream, buffer, body_at)?;
            buffer.truncate(body_at);
            buffer.extend_from_slice(&body);
        } else if let Some((_, len)) = value("content-length") {
            let len: usize = len.parse().map_err(io::Error::other)?;
            fill(stream, buffer, body_at + len)?;
        }
        Ok(Response {
            status,
            hinted: value("retry-after").is_some(),
            stays: value("connection").is_none_or(|(_, value)| value != "close"),
            samples_written: value("x-prometheus-remote-write-samples-written")
                .and_then(|(_, number)| number.parse().ok()),
            body_at,
        })
    }

    /// The verdict on a request of so many samples, as the specifications have it. 2xx is success, 5xx and 429
    /// are to be tried again as they are, and everything else is not. Of 2.0 the headers say what was written;
    /// without them nobody confirmed it, and a success is as good as a 415.
    fn of_remote_write(&self, version: RemoteWrite, items: u64) -> Answer {
        let written = match version {
            RemoteWrite::V1 if is_success(self.status) => items,
            RemoteWrite::V1 => 0,
            RemoteWrite::V2 => self.samples_written.unwrap_or(0).min(items),
        };
        let is_retryable = self.status == 429 || self.status >= 500;
        Answer {
            status: self.status,
            accepted: written > 0 && !is_retryable,
            hinted: self.hinted,
            rejected_items: if is_retryable { 0 } else { items - written },
        }
    }
}

/// Reads until the buffer holds `end`, and returns where what follows it begins.
fn read_until(stream: &mut TcpStream, buffer: &mut Vec<u8>, from: usize, end: &[u8]) -> io::Result<usize> {
    loop {
        let found = buffer[from..].windows(end.len()).position(|window| window == end);
        if let Some(at) = found {
            return Ok(from + at + end.len());
        }
        let len = buffer.len();
        fill(stream, buffer, len + 1)?;
    }
}

/// Reads until the buffer holds `len` bytes, or more.
fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>, len: usize) -> io::Result<()> {
    if len > RESPONSE_LIMIT {
        return Err(io::Error::other("the answer is larger than 1 MiB"));
    }
    let mut chunk = [0; 4096];
    while buffer.len() < len {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => buffer.extend_from_slice(&chunk[..len]),
        }
    }
    Ok(())
}

fn read_chunks(stream: &mut TcpStream, buffer: &mut Vec<u8>, mut at: usize) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = read_until(stream, buffer, at, b"\r\n")?;
        let line = String::from_utf8_lossy(&buffer[at..line_end]);
        let size = line.split(';').next().unwrap_or_default().trim();
        let len = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        let data_end = line_end.saturating_add(len);
        fill(stream, buffer, data_end.saturating_add(2))?;
        body.extend_from_slice(&buffer[line_end..data_end]);
        at = data_end + 2;
        if len == 0 {
            return Ok(body);
        }
    }
}

/// The number of rejected items in an `Export*ServiceResponse`: field 1 of its field 1, for all signals.
pub(crate) fn partial_success(response: &[u8]) -> u64 {
    let Some((&0x0a, rest)) = response.split_first() else {
        return 0;
    };
    let mut rest = rest;
    let _len = varint(&mut rest);
    match rest.split_first() {
        Some((&0x08, mut value)) => varint(&mut value),
        _ => 0,
    }
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let Some((byte, left)) = rest.split_first() else {
            break;
        };
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn partial_success_json(response: &[u8]) -> u64 {
    let Ok(response) = serde_json::from_slice::<serde_json::Value>(response) else {
        return 0;
    };
    let Some(partial) = response
        .get("partialSuccess")
        .and_then(|partial| partial.as_object())
    else {
        return 0;
    };
    let rejected = partial.iter().find(|(key, _)| key.starts_with("rejected"));
    rejected.map_or(0, |(_, count)| {
        count
            .as_u64()
            .or_else(|| count.as_str()?.parse().ok())
            .unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Scenario: a server answers with a length, then in chunks with a partial success, then refuses and
    /// closes.
    /// Guarantees: each answer is read to its end and no further, and its status, hint, rejected items and
    /// whether the connection stays are told.
    #[test]
    fn answers_of_every_framing_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut buffer = Vec::new();

        server
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd")
            .unwrap();
        let response = Response::read(&mut stream, &mut buffer).unwrap();
        assert_eq!(
            (response.status, response.stays, response.hinted),
            (200, true, false)
        );
        assert_eq!(&buffer[response.body_at..], b"abcd");

        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\x0a\x02\r\n2;x\r\n\x08\x07\r\n0\r\n\r\n";
        server.write_all(chunked).unwrap();
        let response = Response::read(&mut stream, &mut buffer).unwrap();
        assert_eq!(partial_success(&buffer[response.body_at..]), 7);

        let refusal =
            b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        server.write_all(refusal).unwrap();
        let response = Response::read(&mut stream, &mut buffer).unwrap();
        assert_eq!(
            (response.status, response.stays, response.hinted),
            (503, false, true)
        );
    }

    /// Scenario: answers to remote write: 204, partial writes, refusals of both kinds, 2.0 with and without the
    /// headers that say what was written.
    /// Guarantees: what was written is accepted; of the rest, what may be sent again is refused and what may not
    /// is rejected; 2.0 believes no success that names no number.
    #[test]
    fn remote_write_answers_are_judged() {
        use RemoteWrite::{V1, V2};
        let judge = |version, status, samples_written| {
            let response = Response {
                status,
                hinted: false,
                stays: true,
                samples_written,
                body_at: 0,
            };
            let answer = response.of_remote_write(version, 10);
            (answer.accepted, answer.rejected_items)
        };
        assert_eq!(judge(V1, 204, None), (true, 0));
        assert_eq!(judge(V1, 400, None), (false, 10));
        assert_eq!(judge(V1, 429, None), (false, 0));
        assert_eq!(judge(V1, 503, None), (false, 0));
        assert_eq!(judge(V2, 204, Some(10)), (true, 0));
        assert_eq!(judge(V2, 200, None), (false, 10));
        assert_eq!(judge(V2, 400, Some(7)), (true, 3));
        assert_eq!(judge(V2, 415, Some(0)), (false, 10));
        assert_eq!(judge(V2, 500, Some(7)), (false, 0));
    }

    /// Scenario: partial successes in both formats, and answers without one.
    /// Guarantees: the rejected items are read, and zero where there are none.
    #[test]
    fn partial_successes_are_read() {
        assert_eq!(partial_success(&[]), 0);
        assert_eq!(partial_success(&[0x0a, 0x00]), 0);
        assert_eq!(
            partial_success(&[0x0a, 0x06, 0x08, 0xf4, 0x03, 0x12, 0x01, b'x']),
            500
        );
        assert_eq!(partial_success_json(b"{}"), 0);
        assert_eq!(
            partial_success_json(br#"{"partialSuccess":{"rejectedSpans":"12"}}"#),
            12
        );
        assert_eq!(
            partial_success_json(br#"{"partialSuccess":{"rejectedLogRecords":3}}"#),
            3
        );
    }
}
