//! The floor: a bare hyper pass-through that counts, concatenates, and sends. What any gateway on this stack
//! must at least pay, and none of a gateway's duties: no validation, no account, no memory budget, no retry.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};

use crate::units;

/// How the floor works.
#[derive(Args, Clone, Debug)]
pub(crate) struct FloorArgs {
    /// Address to serve OTLP/HTTP on.
    #[arg(long, default_value = "127.0.0.1:14318")]
    listen: String,
    /// Destination for OTLP/HTTP, host and port.
    #[arg(long, default_value = "127.0.0.1:24318")]
    to: String,
    /// Compression of what is sent: none, or zstd at level 1.
    #[arg(long, value_enum, default_value = "none")]
    compression: Compression,
    /// Items that make a batch.
    #[arg(long, default_value_t = 1024)]
    min_items: usize,
    /// Longest wait for a batch.
    #[arg(long, value_parser = units::duration, default_value = "200ms")]
    timeout: Duration,
    /// Requests that wait at most; when they are so many, clients wait for their answers.
    #[arg(long, default_value_t = 64)]
    queue: usize,
    /// Batches being sent at a time.
    #[arg(long, default_value_t = 4)]
    senders: usize,
    /// Worker threads; 1 is a current-thread runtime.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Compression {
    None,
    Zstd,
}

/// Calls `visit` for every length-delimited field `wanted` of a message; malformed input just ends the walk.
fn each<'a>(mut rest: &'a [u8], wanted: u64, visit: &mut dyn FnMut(&'a [u8])) {
    fn varint(rest: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        while let Some((byte, left)) = rest.split_first() {
            *rest = left;
            value |= u64::from(byte & 0x7f) << (shift & 63);
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    }
    while !rest.is_empty() {
        let key = varint(&mut rest);
        let len = match key & 7 {
            0 => {
                varint(&mut rest);
                continue;
            }
            1 => 8,
            2 => varint(&mut rest) as usize,
            _ => 4,
        };
        let (value, left) = rest.split_at(len.min(rest.len()));
        if key == wanted << 3 | 2 {
            visit(value);
        }
        rest = left;
    }
}

fn count(path: &str, body: &[u8]) -> usize {
    let mut items = 0;
    each(body, 1, &mut |resource| {
        each(resource, 2, &mut |scope| {
            each(scope, 2, &mut |item| {
                if path != "/v1/metrics" {
                    items += 1;
                    return;
                }
                for data in [5, 7, 9, 10, 11] {
                    each(item, data, &mut |data| each(data, 1, &mut |_| items += 1));
                }
            })
        })
    });
    items
}

/// A request body made of several pieces, sent with one vectored write.
#[derive(Default)]
struct Pieces(VecDeque<Bytes>, usize);

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.1
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [io::IoSlice<'a>]) -> usize {
        self.0
            .iter()
            .zip(out)
            .map(|(piece, slice)| *slice = io::IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut len: usize) {
        self.1 -= len;
        while let Some(piece) = self.0.front_mut() {
            let step = len.min(piece.len());
            piece.advance(step);
            len -= step;
            if !piece.is_empty() {
                break;
            }
            self.0.pop_front();
        }
    }
}

impl Body for Pieces {
    type Data = Pieces;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, Infallible>>> {
        let all = std::mem::take(&mut *self);
        Poll::Ready((all.1 > 0).then_some(Ok(Frame::data(all))))
    }

    fn is_end_stream(&self) -> bool {
        self.1 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.1 as u64)
    }
}

type Payload = (String, usize, Bytes);

async fn receive(
    queue: mpsc::Sender<Payload>,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    let path = request.uri().path().to_string();
    let body = request.into_body().collect().await?.to_bytes();
    let items = count(&path, &body);
    // A full queue holds the client back; nothing is refused.
    let _ = queue.send((path, items, body)).await;
    Ok(Response::new(Empty::new()))
}

/// One connection to the destination, opened when needed.
struct Sender {
    destination: String,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    connection: Option<SendRequest<Pieces>>,
}

impl Sender {
    async fn send(&mut self, path: &str, mut pieces: Pieces) -> Result<(), Box<dyn std::error::Error>> {
        let mut request = Request::post(path).header("host", &self.destination);
        if let Some(zstd) = &mut self.zstd {
            let body = pieces.copy_to_bytes(pieces.remaining());
            let compressed = Bytes::from(zstd.compress(&body)?);
            pieces = Pieces(VecDeque::from([compressed.clone()]), compressed.len());
            request = request.header("content-encoding", "zstd");
        }
        let request = request
            .header("content-type", "application/x-protobuf")
            .body(pieces)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(&self.destination).await?;
                stream.set_nodelay(true)?;
                let (sender, connection) = handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                sender
            }
        };
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        if !response.status().is_success() {
            eprintln!("lost a batch: {}", response.status());
        }
        response.into_body().collect().await?;
        self.connection = Some(connection);
        Ok(())
    }
}

/// Gathers `min_items` items or waits for `timeout`, then sends; several of these run side by side.
async fn export(
    queue: Arc<Mutex<mpsc::Receiver<Payload>>>,
    mut sender: Sender,
    min_items: usize,
    timeout: Duration,
) {
    loop {
        let (mut pieces, mut items) = (Pieces::default(), 0);
        let mut path = String::new();
        let mut receiver = queue.lock().await;
        let Some(mut next) = receiver.recv().await else {
            return;
        };
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            path = if path.is_empty() { next.0 } else { path };
            items += next.1;
            pieces.1 += next.2.len();
            pieces.0.push_back(next.2);
            if items >= min_items {
                break;
            }
            match tokio::time::timeout_at(deadline, receiver.recv()).await {
                Ok(Some(payload)) => next = payload,
                _ => break,
            }
        }
        drop(receiver);
        if let Err(error) = sender.send(&path, pieces).await {
            eprintln!("lost {items} items: {error}");
        }
    }
}

async fn serve(args: FloorArgs) -> io::Result<()> {
    let (queue, receiver) = mpsc::channel(args.queue);
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..args.senders {
        let sender = Sender {
            destination: args.to.clone(),
            zstd: match args.compression {
                Compression::None => None,
                Compression::Zstd => Some(zstd::bulk::Compressor::new(1)?),
            },
            connection: None,
        };
        tokio::spawn(export(receiver.clone(), sender, args.min_items, args.timeout));
    }
    let listener = TcpListener::bind(&args.listen).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let queue = queue.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| receive(queue.clone(), request));
            let builder = hyper::server::conn::http1::Builder::new();
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("connection: {error}");
            }
        });
    }
}

/// Serves until the process ends.
pub(crate) fn run(args: FloorArgs) -> Result<(), String> {
    let mut builder = match args.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime = builder.enable_all().build().map_err(|error| error.to_string())?;
    let listen = args.listen.clone();
    runtime
        .block_on(serve(args))
        .map_err(|error| format!("floor on {listen}: {error}"))
}
