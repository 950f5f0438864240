//! tonic as the server: generated code that knows nothing of ours.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use sluice_client::Compression;
use sluice_otlp::exporter::{GrpcExporter, GrpcExporterOptions};
use tokio::sync::mpsc;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service;
use tonic::{Code, Request, Response, Status};

use super::*;

/// Tells what came, and answers by the name of the first span.
struct Receiver(mpsc::UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let request = request.into_inner();
        let name = request.resource_spans[0].scope_spans[0].spans[0].name.clone();
        let _ = self.0.send(request);
        let partial = |rejected_spans, words: &str| {
            let partial_success = Some(ExportTracePartialSuccess {
                rejected_spans,
                error_message: words.into(),
            });
            Ok(Response::new(ExportTraceServiceResponse { partial_success }))
        };
        match name.as_str() {
            "span 1" => Ok(Response::new(ExportTraceServiceResponse::default())),
            "span 2" => partial(1, "one of them"),
            "span 3" => Err(Status::with_details(
                Code::Unavailable,
                "wär schön, später",
                answers::status(14, "later", Some(std::time::Duration::from_secs(4))).into(),
            )),
            _ => Err(Status::invalid_argument("no")),
        }
    }
}

async fn server(
    set_up: impl Fn(TraceServiceServer<Receiver>) -> TraceServiceServer<Receiver>,
) -> (String, mpsc::UnboundedReceiver<ExportTraceServiceRequest>) {
    let (tell, told) = mpsc::unbounded_channel();
    let service = set_up(TraceServiceServer::from_arc(Arc::new(Receiver(tell))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            tokio::spawn(async move {
                let calls =
                    service_fn(move |request: hyper::Request<Incoming>| service.clone().call(request));
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), calls)
                    .await;
            });
        }
    });
    (url, told)
}

fn exporter(url: &str, compression: Compression) -> GrpcExporter {
    GrpcExporter::new(GrpcExporterOptions {
        endpoint: url.into(),
        compression,
        ..Default::default()
    })
    .unwrap()
}

/// Scenario: a batch in each compression tonic reads; its answers compressed.
/// Guarantees: tonic decodes the tree that was sent.
#[tokio::test]
async fn tonic_reads_every_compression() {
    let (url, mut told) = server(|service| {
        service
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .send_compressed(CompressionEncoding::Gzip)
    })
    .await;
    let (batch, tree) = traces(100);
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        assert_eq!(export(&exporter(&url, compression), &batch).await, delivered());
        assert_eq!(told.recv().await.unwrap(), tree, "{compression:?}");
    }
}

/// Scenario: tonic answers with partial success, UNAVAILABLE and RetryInfo, INVALID_ARGUMENT.
/// Guarantees: each is classified as it says.
#[tokio::test]
async fn tonic_answers_are_understood() {
    let (url, _told) = server(|service| service.send_compressed(CompressionEncoding::Gzip)).await;
    let exporter = exporter(&url, Compression::None);
    let one = |n| Batch {
        signal: Signal::Traces,
        parts: vec![part(trace(n).encode_to_vec(), 1)],
    };
    let partial = Verdict::Delivered {
        rejected: 1,
        message: Some("one of them".into()),
    };
    assert_eq!(export(&exporter, &one(2)).await, partial);
    let later = export(&exporter, &one(3)).await;
    assert!(
        matches!(later, Verdict::Retry { after: Some(after), .. } if after.as_secs() == 4),
        "{later:?}"
    );
    assert!(reason(&later).contains("wär schön, später"), "{later:?}");
    assert!(matches!(
        export(&exporter, &one(4)).await,
        Verdict::PayloadFault { .. }
    ));
}

/// Scenario: tonic without compression support, with its default message limit, and another service.
/// Guarantees: fallback to none; a size; an endpoint fault.
#[tokio::test]
async fn tonic_refusals_are_understood() {
    let (url, _told) = server(|service| service.max_decoding_message_size(1000)).await;
    let compressing = exporter(&url, Compression::Zstd);
    let small = Batch {
        signal: Signal::Traces,
        parts: vec![part(trace(1).encode_to_vec()[..0].to_vec(), 0)],
    };
    assert_eq!(export(&compressing, &small).await, delivered());
    let (batch, _) = traces(100);
    let first = export(&compressing, &batch).await;
    assert!(
        matches!(first, Verdict::Retry { after: Some(_), .. }),
        "{first:?}"
    );
    let second = export(&compressing, &batch).await;
    assert!(matches!(second, Verdict::TooLarge { .. }), "{second:?}");
    let (unknown, _told) = server(|service| service).await;
    let other = export(&exporter(&unknown, Compression::None), &logs(10)).await;
    assert!(matches!(other, Verdict::EndpointFault { .. }), "{other:?}");
}
