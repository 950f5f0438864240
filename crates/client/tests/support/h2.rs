//! An HTTP/2 server with its frames in hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio_rustls::TlsAcceptor;

use super::{Script, Seen};

/// What to do with one request.
#[derive(Debug, Clone)]
pub enum Step {
    /// Read it all and answer.
    Answer(Reply),
    /// Answer without reading the body, then RST_STREAM(NO_ERROR).
    AnswerEarly(Reply),
    /// Send headers and data, then RST_STREAM(INTERNAL_ERROR) instead of the trailers.
    CutInAnswer(Reply),
    /// RST_STREAM with this reason, at once.
    Reset(Reason),
    /// Read it all and close the socket.
    CutConnection,
    /// Read it all and say nothing, for ever.
    Stall,
}

#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// None ends the stream with the body, or with the headers when there is no body either.
    pub trailers: Option<HeaderMap>,
}

/// What to do with connections.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// GOAWAY(NO_ERROR); requests in flight go on.
    GoAway,
    /// Close the sockets.
    Cut,
}

pub struct Server {
    pub addr: SocketAddr,
    pub seen: mpsc::UnboundedReceiver<Seen>,
    connections: Arc<AtomicUsize>,
    orders: broadcast::Sender<Order>,
}

impl Server {
    pub async fn start(steps: impl IntoIterator<Item = Step>, then: Step) -> Self {
        Self::start_tls(steps, then, None).await
    }

    pub async fn start_tls(
        steps: impl IntoIterator<Item = Step>,
        then: Step,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let (orders, _) = broadcast::channel(8);
        let obey = orders.clone();
        let script = Script::new(steps, then);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = counted.fetch_add(1, Ordering::SeqCst);
                let (script, tell, tls, orders) =
                    (script.clone(), tell.clone(), tls.clone(), obey.subscribe());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, connection, script, tell, orders).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, connection, script, tell, orders).await;
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
            orders,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    script: Arc<Script<Step>>,
    tell: mpsc::UnboundedSender<Seen>,
    mut orders: broadcast::Receiver<Order>,
) {
    let handshake = h2::server::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake::<_, Bytes>(stream);
    let Ok(mut h2) = handshake.await else { return };
    let (cut, mut to_cut) = mpsc::unbounded_channel::<()>();
    loop {
        tokio::select! {
            accepted = h2.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let step = script.next();
                    tokio::spawn(act(step, request, respond, connection, tell.clone(), cut.clone()));
                }
                _ => return,
            },
            _ = to_cut.recv() => return,
            Ok(order) = orders.recv() => match order {
                Order::GoAway => h2.graceful_shutdown(),
                Order::Cut => return,
            },
        }
    }
}

async fn act(
    step: Step,
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    connection: usize,
    tell: mpsc::UnboundedSender<Seen>,
    cut: mpsc::UnboundedSender<()>,
) {
    let (head, mut incoming) = request.into_parts();
    match &step {
        Step::Reset(reason) => return respond.send_reset(*reason),
        Step::AnswerEarly(reply) => {
            send(&mut respond, reply);
            // Dropping what was not read makes h2 send the RST_STREAM once the answer is out.
            return;
        }
        _ => {}
    }
    let mut body = Vec::new();
    while let Some(Ok(data)) = incoming.data().await {
        let _ = incoming.flow_control().release_capacity(data.len());
        body.extend_from_slice(&data);
    }
    let path = head.uri.path_and_query().unwrap().to_string();
    let _ = tell.send(Seen {
        connection,
        path,
        headers: head.headers,
        body,
    });
    match step {
        Step::Answer(reply) => send(&mut respond, &reply),
        Step::CutInAnswer(reply) => {
            let response = response(&reply);
            if let Ok(mut stream) = respond.send_response(response, false) {
                let _ = stream.send_data(reply.body.clone().into(), false);
                stream.send_reset(Reason::INTERNAL_ERROR);
            }
        }
        Step::CutConnection => {
            let _ = cut.send(());
        }
        Step::Stall => std::future::pending().await,
        _ => {}
    }
}

fn response(reply: &Reply) -> Response<()> {
    let mut response = Response::builder()
        .status(reply.status.max(200))
        .body(())
        .unwrap();
    *response.headers_mut() = reply.headers.clone();
    response
}

/// Sends all of it, or nothing more once the stream is gone.
fn send(respond: &mut SendResponse<Bytes>, reply: &Reply) {
    let only_headers = reply.body.is_empty() && reply.trailers.is_none();
    let Ok(mut stream) = respond.send_response(response(reply), only_headers) else {
        return;
    };
    if !reply.body.is_empty() {
        let _ = stream.send_data(reply.body.clone().into(), reply.trailers.is_none());
    }
    if let Some(trailers) = &reply.trailers {
        let _ = stream.send_trailers(trailers.clone());
    }
}
