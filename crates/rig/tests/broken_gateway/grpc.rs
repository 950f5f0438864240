//! The broken gateway over gRPC, in and out.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{Defect, misbehave};

/// Before each message: whether it is compressed, and its length.
const PREFIX_LEN: usize = 5;

/// Answers one connection, and forwards what came when it ends.
pub fn serve(listener: TcpListener, to: SocketAddr, defect: Defect) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let bodies = receive(listener).await;
        forward(to, misbehave(bodies, defect)).await;
    });
}

async fn receive(listener: TcpListener) -> Vec<Vec<u8>> {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let received = bodies.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let received = received.clone();
        async move {
            let message = request.into_body().collect().await?.to_bytes();
            received.lock().unwrap().push(message[PREFIX_LEN..].to_vec());
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", 0_u16.into());
            let answer = Full::new(Bytes::from_static(&[0; PREFIX_LEN]));
            let answer = answer.with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
            Ok::<_, hyper::Error>(Response::new(answer))
        }
    });
    // It ends as the load ends it.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    std::mem::take(&mut *bodies.lock().unwrap())
}

async fn forward(to: SocketAddr, bodies: Vec<Vec<u8>>) {
    let stream = TcpStream::connect(to).await.unwrap();
    let connection = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = connection.await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{to}/opentelemetry.proto.collector.logs.v1.LogsService/Export");
    for body in bodies {
        let mut message = vec![0];
        message.extend((body.len() as u32).to_be_bytes());
        message.extend(body);
        let request = Request::post(&uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(message)))
            .unwrap();
        let answer = sender.send_request(request).await.unwrap();
        let answer = answer.into_body().collect().await.unwrap();
        assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    }
}
