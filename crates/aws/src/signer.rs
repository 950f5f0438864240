//! Signature Version 4 of requests that are no objects of a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Method, Request};
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential};
use sluice_client::{ClientTls, SendError, Sign, Signing};

use crate::Connector;
use crate::fit::{check_credential, check_url};

/// What a signature adds to a request.
const ADDED: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
];

/// How long asking for credentials may take: whoever gives them out is next door.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(10);

/// Whose requests, and what they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignerSettings {
    /// The region that the service is in; empty: `AWS_REGION`, else `AWS_DEFAULT_REGION`, else `us-east-1`.
    pub region: String,
    /// The service as signatures name it: `aps` for Amazon Managed Service for Prometheus.
    pub service: String,
}

/// Signs requests.
#[derive(Debug)]
pub struct Signer {
    region: String,
    service: String,
    credentials: Arc<dyn CredentialProvider<Credential = AwsCredential>>,
}

impl Signer {
    /// Finds out where credentials are to be had; asks for none yet.
    ///
    /// # Errors
    /// When what the environment says cannot be used.
    pub fn new(settings: SignerSettings) -> Result<Self, String> {
        let region = region(settings.region, |name| std::env::var(name).ok());
        // The store is never used: what is wanted is how it finds its credentials.
        let store = AmazonS3Builder::from_env()
            .with_bucket_name("none")
            .with_region(&region)
            .with_http_connector(Connector {
                timeout: CREDENTIALS_TIMEOUT,
                tls: ClientTls::default(),
            })
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            region,
            service: settings.service,
            credentials: store.credentials().clone(),
        })
    }
}

/// The first that says anything: a variable that is set to nothing is as good as absent.
fn region(configured: String, variable: impl Fn(&str) -> Option<String>) -> String {
    let named = || {
        ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .into_iter()
            .filter_map(variable)
    };
    std::iter::once(configured)
        .chain(named())
        .find(|region| !region.trim().is_empty())
        .unwrap_or_else(|| "us-east-1".to_owned())
}

impl Sign for Signer {
    fn sign<'a>(&'a self, url: &'a str, headers: &'a mut HeaderMap, body: Bytes) -> Signing<'a> {
        Box::pin(async move {
            let credential = self
                .credentials
                .get_credential()
                .await
                .map_err(|error| SendError::Credentials(format!("AWS gives none: {error}")))?;
            add_signature(&credential, &self.service, &self.region, url, headers, body)
        })
    }
}

/// Signs a POST. Of the headers only those that the signature itself adds are signed: others may be changed on the way.
fn add_signature(
    credential: &AwsCredential,
    service: &str,
    region: &str,
    url: &str,
    headers: &mut HeaderMap,
    body: Bytes,
) -> Result<(), SendError> {
    check_credential(credential, service, region).map_err(SendError::Credentials)?;
    check_url(url).map_err(SendError::Credentials)?;
    let unusable =
        |error: &dyn std::fmt::Display| SendError::Credentials(format!("{url} cannot be signed: {error}"));
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .body(body.into())
        .map_err(|error| unusable(&error))?;
    AwsAuthorizer::new(credential, service, region)
        .try_authorize(&mut request, None)
        .map_err(|error| unusable(&error))?;
    for name in ADDED {
        match request.headers().get(&name) {
            Some(value) => {
                let mut value = value.clone();
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            None => {
                headers.remove(name);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://aps-workspaces.eu-central-1.amazonaws.com/workspaces/ws-1/api/v1/remote_write";

    fn signed(token: Option<&str>, body: &'static [u8]) -> HeaderMap {
        let credential = AwsCredential {
            key_id: "AKIDEXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: token.map(str::to_owned),
        };
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", "snappy".parse().expect("a header"));
        headers.insert(
            "x-amz-security-token",
            "of another session".parse().expect("a header"),
        );
        add_signature(&credential, "aps", "eu-central-1", URL, &mut headers, body.into())
            .expect("it can be signed");
        headers
    }

    /// Scenario: a key and a session token with a line break at the end, as files read into the environment leave them; a region too.
    /// Guarantees: none panics; the error says which it is, and shows none of it.
    #[test]
    fn what_no_header_carries_is_refused() {
        for (key, token, region, blamed) in [
            ("AKID\n", None, "eu-central-1", "AWS_ACCESS_KEY_ID"),
            ("AKID", Some("session\n"), "eu-central-1", "AWS_SESSION_TOKEN"),
            ("AKID", None, "eu-central-1\n", "AWS_REGION"),
        ] {
            let credential = AwsCredential {
                key_id: key.to_owned(),
                secret_key: "secret".to_owned(),
                token: token.map(str::to_owned),
            };
            let refused = add_signature(
                &credential,
                "aps",
                region,
                URL,
                &mut HeaderMap::new(),
                Bytes::new(),
            );
            let Err(SendError::Credentials(reason)) = refused else {
                panic!("{refused:?}");
            };
            assert!(reason.contains(blamed) && !reason.contains('\n'), "{reason}");
        }
    }

    /// Scenario: a host of numbers that is no address, which `http` takes for a name.
    /// Guarantees: no panic; the error says which URL it is.
    #[test]
    fn a_host_that_cannot_be_signed_is_refused() {
        let credential = AwsCredential {
            key_id: "AKID".to_owned(),
            secret_key: "secret".to_owned(),
            token: None,
        };
        let url = "http://1.2.3.4.5/api/v1/write";
        let headers = &mut HeaderMap::new();
        let refused = add_signature(&credential, "aps", "eu-central-1", url, headers, Bytes::new());
        let Err(SendError::Credentials(reason)) = refused else {
            panic!("{refused:?}");
        };
        assert!(reason.contains(url), "{reason}");
    }

    /// Scenario: a region that is configured, and ones of the environment, some of them set to nothing.
    /// Guarantees: the first that says anything is taken.
    #[test]
    fn a_region_is_the_first_that_says_anything() {
        let of = |configured: &str, region: Option<&str>, fallback: Option<&str>| {
            super::region(configured.to_owned(), |name| match name {
                "AWS_REGION" => region.map(str::to_owned),
                _ => fallback.map(str::to_owned),
            })
        };
        assert_eq!(of("a", Some("b"), Some("c")), "a");
        assert_eq!(of("", Some("b"), Some("c")), "b");
        assert_eq!(of("", Some(""), Some("c")), "c");
        assert_eq!(of("", None, Some("c")), "c");
        assert_eq!(of("", Some(" "), None), "us-east-1");
    }

    /// Scenario: requests with and without a session, with two bodies.
    /// Guarantees: key, region, service and the signed headers are named; the hash is the body's; what was there of another session
    /// is gone; nothing that other headers say is touched.
    #[test]
    fn a_request_says_who_sent_it() {
        let headers = signed(None, b"");
        let authorization = headers[AUTHORIZATION].to_str().expect("text");
        assert!(
            authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"),
            "{authorization}"
        );
        assert!(
            authorization.contains("/eu-central-1/aps/aws4_request"),
            "{authorization}"
        );
        assert!(
            authorization.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date,"),
            "{authorization}"
        );
        assert!(!headers.contains_key("x-amz-security-token"));
        assert_eq!(headers["content-encoding"], "snappy");
        // SHA-256 of nothing, and of "abc" (FIPS 180-2).
        let hash = |headers: &HeaderMap| headers["x-amz-content-sha256"].to_str().expect("text").to_owned();
        assert_eq!(
            hash(&headers),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let headers = signed(Some("session"), b"abc");
        assert_eq!(
            hash(&headers),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(headers["x-amz-security-token"], "session");
    }
}
