//! The pools against servers that answer, stall, cut and go away as told.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod dns;
mod http1;
mod http2;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::uri::PathAndQuery;
use sluice_client::{Answer, Client, ClientSettings, Destination, Protocol, SendError, Slices};

/// Far beyond what any step takes; tests that wait for a time-out set their own.
const AMPLE: Duration = Duration::from_secs(20);

fn settings(url: &str, protocol: Protocol) -> ClientSettings {
    ClientSettings::new(Destination::parse(url, false, 80).unwrap(), protocol)
}

fn client(url: &str, protocol: Protocol) -> Arc<Client> {
    Arc::new(Client::new(settings(url, protocol)).unwrap())
}

async fn post_within(
    client: &Client,
    body: impl Into<Bytes>,
    timeout: Duration,
) -> Result<Answer, SendError> {
    let path = PathAndQuery::from_static("/v1/logs");
    client
        .post(&path, HeaderMap::new(), &Slices::from(body.into()), timeout)
        .await
}

async fn post(client: &Client, body: impl Into<Bytes>) -> Result<Answer, SendError> {
    post_within(client, body, AMPLE).await
}
