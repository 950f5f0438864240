//! sluice's HTTP client behind the interface of `object_store`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpService,
};
use parking_lot::Mutex;
use sluice_client::{Client, ClientSettings, ClientTls, Destination, Phase, Protocol, SendError, Slices};

/// Makes clients of the store, and of whoever gives out credentials.
#[derive(Debug)]
pub struct Connector {
    /// How long one request may take.
    pub timeout: Duration,
    /// TLS of all of them.
    pub tls: ClientTls,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Http {
            timeout: self.timeout,
            tls: self.tls.clone(),
            clients: Mutex::default(),
        }))
    }
}

/// sluice's client behind the interface of `object_store`, one for each origin that is asked.
#[derive(Debug)]
struct Http {
    timeout: Duration,
    tls: ClientTls,
    clients: Mutex<HashMap<String, Arc<Client>>>,
}

impl Http {
    fn client(&self, uri: &http::Uri) -> Result<Arc<Client>, HttpError> {
        let origin = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or("https"),
            uri.authority().map_or("", |authority| authority.as_str())
        );
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&origin) {
            return Ok(client.clone());
        }
        let destination = Destination::parse(&origin, true, 443)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut settings = ClientSettings::new(destination, Protocol::Http1);
        settings.tls = self.tls.clone();
        let client = Client::new(settings).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        Ok(clients.entry(origin).or_insert(Arc::new(client)).clone())
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let client = self.client(request.uri())?;
        let path = match request.uri().path_and_query() {
            Some(path) => path.clone(),
            None => PathAndQuery::from_static("/"),
        };
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        // Both are the client's to say.
        headers.remove(http::header::HOST);
        headers.remove(http::header::CONTENT_LENGTH);
        let body = Slices::new(frames(body).await);
        let answer = client
            .send(head.method, &path, headers, &body, self.timeout)
            .await
            .map_err(|error| HttpError::new(kind_of(&error), error))?;
        let mut response = HttpResponse::new(answer.body.into());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

/// The pieces of a body; all of them are there already.
async fn frames(body: HttpRequestBody) -> Vec<bytes::Bytes> {
    let mut body = body;
    let mut pieces = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        pieces.extend(frame.into_data());
    }
    pieces
}

fn kind_of(error: &SendError) -> HttpErrorKind {
    match error {
        SendError::Timeout {
            phase: Phase::Connecting,
            ..
        } => HttpErrorKind::Connect,
        SendError::Timeout { .. } => HttpErrorKind::Timeout,
        SendError::Lost(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Connect,
    }
}
