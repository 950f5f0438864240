//! A remote-write destination that answers as it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, StatusCode, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// `prometheus.WriteRequest`, as far as these tests look.
#[derive(Clone, PartialEq, Message)]
pub(super) struct First {
    #[prost(message, repeated, tag = "1")]
    pub series: Vec<FirstSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FirstSeries {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<FirstLabel>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FirstLabel {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    #[prost(int64, tag = "2")]
    pub timestamp_ms: i64,
    /// 2.0's.
    #[prost(int64, tag = "3")]
    pub start_ms: i64,
}

/// `io.prometheus.write.v2.Request`, as far as these tests look.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Second {
    #[prost(string, repeated, tag = "4")]
    pub symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub series: Vec<SecondSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SecondSeries {
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub histograms: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(uint32, tag = "3")]
    pub help_ref: u32,
    #[prost(uint32, tag = "4")]
    pub unit_ref: u32,
}

/// A request, and when it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub head: request::Parts,
    pub wire: Bytes,
    pub at: Instant,
    /// What it was answered with.
    pub status: u16,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
        self.head
            .headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The message, of a snappy block or a zstd frame.
    fn plain(&self) -> Vec<u8> {
        match self.header("content-encoding") {
            "zstd" => zstd::decode_all(&self.wire[..]).unwrap(),
            _ => snap::raw::Decoder::new().decompress_vec(&self.wire).unwrap(),
        }
    }

    pub fn first(&self) -> First {
        First::decode(&self.plain()[..]).unwrap()
    }

    pub fn second(&self) -> Second {
        Second::decode(&self.plain()[..]).unwrap()
    }
}

/// A status, headers and a body.
pub(super) fn answer(status: u16, headers: &[(&'static str, &str)], body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

/// Taken, whatever the version: 2.0 is told that more was written than it has.
pub(super) fn taken() -> Response<Full<Bytes>> {
    let most = "1000000000";
    let headers = [
        ("x-prometheus-remote-write-samples-written", most),
        ("x-prometheus-remote-write-histograms-written", most),
        ("x-prometheus-remote-write-exemplars-written", most),
    ];
    answer(204, &headers, "")
}

type Judge = dyn Fn(&Asked) -> Response<Full<Bytes>> + Send + Sync;

struct Shared {
    judge: Mutex<Arc<Judge>>,
    asked: Mutex<Vec<Asked>>,
    came: watch::Sender<usize>,
}

/// Listens on a free port; takes everything until told otherwise.
pub(super) struct Destination {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

impl Destination {
    pub async fn start() -> Self {
        Self::start_on(None).await
    }

    /// With TLS.
    pub async fn start_on(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            judge: Mutex::new(Arc::new(|_| taken())),
            asked: Mutex::default(),
            came: watch::Sender::new(0),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, tls) = (serving.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, shared).await,
                        // Who is not let in has no request.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}/api/v1/write", self.address)
    }

    /// From now on every request is answered as `judge` says.
    pub fn answer(&self, judge: impl Fn(&Asked) -> Response<Full<Bytes>> + Send + Sync + 'static) {
        *self.shared.judge.lock().unwrap() = Arc::new(judge);
    }

    /// The requests that came, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    pub async fn wait_for(&self, requests: usize) {
        let mut came = self.shared.came.subscribe();
        let came = came.wait_for(|came| *came >= requests);
        sluice_tests::within(&format!("{requests} requests come"), came)
            .await
            .unwrap();
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(|request: Request<Incoming>| {
        let shared = shared.clone();
        async move {
            let (head, body) = request.into_parts();
            let mut asked = Asked {
                head,
                wire: body.collect().await?.to_bytes(),
                at: Instant::now(),
                status: 0,
            };
            let judge = shared.judge.lock().unwrap().clone();
            let response = judge(&asked);
            asked.status = response.status().as_u16();
            shared.asked.lock().unwrap().push(asked);
            shared.came.send_modify(|came| *came += 1);
            Ok::<_, hyper::Error>(response)
        }
    });
    // A connection that breaks is the other side's business.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
