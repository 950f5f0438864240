//! The control port: the account, and the faults.
//!
//! | request | what |
//! |---|---|
//! | `GET /stats` | what has arrived, without looking into it |
//! | `GET /account` | the account of every signal, after everything that was kept has been checked |
//! | `PUT /outlines`, `POST /sent` | what a load tells before and after |
//! | `PUT /faults` | a new fault script (an empty one ends all faults) |

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;

use super::intake::Intake;

/// The ids of a load whose every second request was refused are large; a hundred million requests are beyond
/// a rig.
const BODY_LIMIT: usize = 1 << 30;

pub(super) async fn serve(listener: TcpListener, intake: Arc<Intake>) {
    let listener = match super::grpc::to_tokio(listener) {
        Ok(listener) => listener,
        Err(error) => return eprintln!("sink: control port: {error}"),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let intake = intake.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| answer(intake.clone(), request));
            let connection = hyper::server::conn::http1::Builder::new();
            // A client that leaves early is none of the sink's business.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    intake: Arc<Intake>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let outcome = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            // Checking what was kept takes seconds; transports must go on meanwhile.
            let work = move || act(&intake, &parts.method, parts.uri.path(), &body);
            tokio::task::spawn_blocking(work)
                .await
                .unwrap_or_else(|error| Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
        }
        Err(error) => Err((StatusCode::BAD_REQUEST, error.to_string())),
    };
    let (status, text) = match outcome {
        Ok(text) => (StatusCode::OK, text),
        Err((status, error)) => (status, error),
    };
    let mut response = Response::new(Full::from(text + "\n"));
    *response.status_mut() = status;
    Ok(response)
}

fn act(intake: &Intake, method: &Method, path: &str, body: &[u8]) -> Result<String, (StatusCode, String)> {
    let bad = |error: String| (StatusCode::BAD_REQUEST, error);
    let json = |value: serde_json::Result<String>| {
        value.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    };
    match (method, path) {
        (&Method::GET, "/stats") => json(serde_json::to_string(&intake.stats())),
        (&Method::GET, "/account") => json(serde_json::to_string(&intake.accounts())),
        (&Method::PUT, "/outlines") => {
            intake.set_outlines(&read(body)?).map_err(bad)?;
            Ok("ok".into())
        }
        (&Method::POST, "/sent") => {
            intake.sent(&read(body)?).map_err(bad)?;
            Ok("ok".into())
        }
        (&Method::PUT, "/faults") => {
            let script = String::from_utf8_lossy(body).parse().map_err(bad)?;
            intake.set_faults(script);
            Ok("ok".into())
        }
        _ => Err((
            StatusCode::NOT_FOUND,
            "use GET /stats, GET /account, PUT /outlines, POST /sent or PUT /faults".into(),
        )),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}
