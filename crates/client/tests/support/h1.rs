//! An HTTP/1.1 server on bare sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::{Script, Seen};

/// What to do with one request.
#[derive(Debug, Clone)]
pub enum Step {
    /// Read it all and answer.
    Answer(Reply),
    /// Read it all, answer, close the connection without having said so.
    AnswerThenClose(Reply),
    /// Answer after the head, read no body, close.
    AnswerEarly(Reply),
    /// Close after the head, the body unread.
    CutInRequest,
    /// Read it all and close.
    CutBeforeAnswer,
    /// Send half an answer and close.
    CutInAnswer,
    /// Read it all, send the answer but for its last bytes, and close.
    CutBody(Reply),
    /// Read it all, send the answer but for its last bytes, and say nothing more.
    StallBody(Reply),
    /// Read it all and say nothing, for ever.
    Stall,
}

#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    fn write(&self) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {} whatever\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        out.extend_from_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
        out.extend_from_slice(&self.body);
        out
    }

    fn all_but_the_end(&self) -> Vec<u8> {
        let mut out = self.write();
        out.truncate(out.len() - self.body.len().div_ceil(2));
        out
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    pub connections: Arc<AtomicUsize>,
}

impl Server {
    /// Listens on localhost; `then` is what to do after `steps`.
    pub async fn start(steps: impl IntoIterator<Item = Step>, then: Step) -> Self {
        Self::start_on("127.0.0.1:0", steps, then, None).await
    }

    pub async fn start_on(
        at: &str,
        steps: impl IntoIterator<Item = Step>,
        then: Step,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind(at).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let script = Script::new(steps, then);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = counted.fetch_add(1, Ordering::SeqCst);
                let (script, tell, tls) = (script.clone(), tell.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, connection, &script, &tell).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, connection, &script, &tell).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            addr,
            seen,
            connections,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    script: &Script<Step>,
    tell: &mpsc::UnboundedSender<Seen>,
) {
    let mut read = Vec::new();
    loop {
        let Some(head_len) = head(&mut stream, &mut read).await else {
            return;
        };
        let (mut seen, content_length) = parse(&read[..head_len], connection);
        let step = script.next();
        match &step {
            Step::CutInRequest => return,
            Step::AnswerEarly(reply) => {
                let _ = stream.write_all(&reply.write()).await;
                let _ = stream.shutdown().await;
                // Lingering close: what still comes is read away, or a reset would overtake the answer.
                let mut sink = vec![0; 64 * 1024];
                while stream.read(&mut sink).await.is_ok_and(|n| n > 0) {}
                return;
            }
            _ => {}
        }
        while read.len() < head_len + content_length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        seen.body = read[head_len..head_len + content_length].to_vec();
        read.drain(..head_len + content_length);
        let _ = tell.send(seen);
        match step {
            Step::Answer(reply) => stream.write_all(&reply.write()).await.unwrap_or(()),
            Step::AnswerThenClose(reply) => {
                let _ = stream.write_all(&reply.write()).await;
                return;
            }
            Step::CutInAnswer => {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                    .await;
                return;
            }
            Step::CutBody(reply) => {
                let _ = stream.write_all(&reply.all_but_the_end()).await;
                return;
            }
            Step::StallBody(reply) => {
                let _ = stream.write_all(&reply.all_but_the_end()).await;
                std::future::pending().await
            }
            Step::Stall => std::future::pending().await,
            _ => return,
        }
    }
}

/// Reads until the blank line; the length of the head.
async fn head(stream: &mut (impl AsyncRead + Unpin), read: &mut Vec<u8>) -> Option<usize> {
    loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            return Some(at + 4);
        }
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn parse(head: &[u8], connection: usize) -> (Seen, usize) {
    let text = std::str::from_utf8(head).unwrap();
    let mut lines = text.split("\r\n");
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let mut headers = http::HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let name: http::HeaderName = name.parse().unwrap();
        headers.append(name, value.trim().parse().unwrap());
    }
    let content_length = headers
        .get("content-length")
        .map_or(0, |v| v.to_str().unwrap().parse().unwrap());
    (
        Seen {
            connection,
            path,
            headers,
            body: Vec::new(),
        },
        content_length,
    )
}
