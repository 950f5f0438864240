//! Object stores: one conditional PUT a file, and a comparison where its name is taken, over sluice's own HTTP client. How each is
//! reached, and as whom, is in `s3`, `gcs` and `azure` beside this.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use object_store::aws::AwsCredentialProvider;
use object_store::azure::{AzureCredential, AzureCredentialProvider};
use object_store::gcp::GcpCredentialProvider;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use sluice_aws::{Connector, check_credential};
use sluice_client::ClientTls;

use super::spool::Finished;
use super::store::Sent;

/// Pieces a file is read in, so that no large block of memory has to be found, and an object: no answer may have more than
/// [`sluice_client::MAX_ANSWER_BYTES`].
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// As whom requests are made. It is looked at before each file: credentials come from anywhere, and may be others the next time.
#[derive(Debug, Clone)]
pub(super) enum Identity {
    /// Nothing is signed.
    Nobody,
    Aws {
        credentials: AwsCredentialProvider,
        region: String,
    },
    Google(GcpCredentialProvider),
    Azure(AzureCredentialProvider),
}

impl Identity {
    /// Whether requests can be signed now. Whatever the reason, where there are no credentials nothing is wrong with the file.
    async fn check(&self) -> Result<(), Sent> {
        match self {
            Self::Nobody => Ok(()),
            Self::Aws { credentials, region } => {
                let credential = found(credentials.get_credential().await)?;
                check_credential(&credential, "s3", region).map_err(Sent::Refused)
            }
            Self::Google(credentials) => check_token(&found(credentials.get_credential().await)?.bearer),
            Self::Azure(credentials) => match &*found(credentials.get_credential().await)? {
                AzureCredential::BearerToken(token) => check_token(token),
                // What keys and signatures become is fit for headers and URLs.
                AzureCredential::AccessKey(_) | AzureCredential::SASToken(_) => Ok(()),
            },
        }
    }
}

fn found<T>(credential: object_store::Result<T>) -> Result<T, Sent> {
    credential.map_err(|error| Sent::Refused(format!("there are no credentials: {}", text(&error))))
}

/// Whether a header carries the token: `object_store` would panic over it.
fn check_token(token: &str) -> Result<(), Sent> {
    match HeaderValue::from_str(token) {
        Ok(_) => Ok(()),
        Err(_) => Err(Sent::Refused(
            "the access token holds a line break or another character that headers do not carry; remove it"
                .to_owned(),
        )),
    }
}

/// A bucket, or container, that can be written.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) identity: Identity,
    /// Put before every object's name.
    pub(super) prefix: String,
    /// The key that says so.
    pub(super) prefix_key: &'static str,
    /// The name of the metadata that says which file an object is.
    pub(super) crc_metadata: &'static str,
    pub(super) storage_class: Option<String>,
    /// How long a request may take, and all requests together that compare an object.
    pub(super) timeout: Duration,
}

impl Bucket {
    /// Sends a file once.
    pub async fn put(&self, file: &Finished) -> Sent {
        let name = format!("{}/{}", file.directory(), file.cut.name);
        let location = match self.prefix.as_str() {
            "" => name,
            prefix => format!("{prefix}/{name}"),
        };
        // Not `Path::from`, which would escape the `=` of partitions.
        let location = match Path::parse(&location) {
            Ok(location) => location,
            Err(error) => return Sent::Refused(format!("{}: {error}", self.prefix_key)),
        };
        if let Err(reason) = self.identity.check().await {
            return reason;
        }
        let path = file.path.clone();
        let payload = match tokio::task::spawn_blocking(move || read(&path)).await {
            Ok(Ok(payload)) => payload,
            Ok(Err(error)) => return Sent::Retry(format!("{}: {error}", file.path.display())),
            Err(error) => return Sent::Retry(error.to_string()),
        };
        let crc = format!("{:08x}", file.cut.crc);
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, "application/vnd.apache.parquet".into());
        attributes.insert(Attribute::Metadata(self.crc_metadata.into()), crc.clone().into());
        if let Some(class) = &self.storage_class {
            attributes.insert(Attribute::StorageClass, class.clone().into());
        }
        let options = PutOptions {
            mode: PutMode::Create,
            attributes,
            ..Default::default()
        };
        match self.store.put_opts(&location, payload, options).await {
            Ok(_) => Sent::There,
            // Ours, if an answer was lost; 409, if two of ours were under way at once.
            Err(Error::AlreadyExists { .. }) => self.compare(&location, file, &crc).await,
            Err(error) => said(&error),
        }
    }

    /// What is to be said of a file whose name is taken.
    async fn compare(&self, location: &Path, file: &Finished, crc: &str) -> Sent {
        let unknown = |reason: &str| {
            Sent::Unknown(format!(
                "{location} is there already, and could not be compared with the file: {reason}"
            ))
        };
        match tokio::time::timeout(self.timeout, self.is_file(location, file, crc)).await {
            Ok(Ok(true)) => Sent::There,
            Ok(Ok(false)) => Sent::Refused(format!(
                "{location} is there already and is another file; move it away"
            )),
            Ok(Err(Error::NotFound { .. })) => Sent::Retry("the store reports a conflict".to_owned()),
            Ok(Err(error)) => match said(&error) {
                Sent::Retry(reason) => unknown(&reason),
                other => other,
            },
            Err(_) => unknown(&format!("it was not read within {:?} (timeout)", self.timeout)),
        }
    }

    /// Whether the object of this name is the file. Where the store has dropped what it was told about the object, the object is
    /// read.
    async fn is_file(&self, location: &Path, file: &Finished, crc: &str) -> object_store::Result<bool> {
        let head = GetOptions {
            head: true,
            ..Default::default()
        };
        let found = self.store.get_opts(location, head).await?;
        if found.meta.size != file.cut.bytes {
            return Ok(false);
        }
        if let Some(its) = found
            .attributes
            .get(&Attribute::Metadata(self.crc_metadata.into()))
        {
            return Ok(&**its == crc);
        }
        let (mut start, mut its) = (0, 0);
        while start < file.cut.bytes {
            let end = file.cut.bytes.min(start + PIECE_BYTES as u64);
            let piece = GetOptions {
                range: Some(GetRange::Bounded(start..end)),
                ..Default::default()
            };
            let piece = self.store.get_opts(location, piece).await?.bytes().await?;
            its = crc32c::crc32c_append(its, &piece);
            start = end;
        }
        Ok(its == file.cut.crc)
    }
}

/// sluice's HTTP client for a store, and for whoever gives out its credentials.
pub(super) fn connector(timeout: Duration, tls: &ClientTls) -> Connector {
    Connector {
        timeout,
        tls: tls.clone(),
    }
}

/// The exporter retries, and says so.
pub(super) fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: 1,
        ..Default::default()
    }
}

/// The prefix of objects, which `key` says, with no `/` at its ends.
pub(super) fn prefix(key: &str, configured: &str) -> Result<String, String> {
    let prefix = configured.trim_matches('/');
    // Nothing could be sent with it, ever.
    Path::parse(prefix).map_err(|error| {
        format!("{key}: {error}; write names with one / between them, of which none is . or ..")
    })?;
    Ok(prefix.to_owned())
}

/// Whether what is configured can be in URLs and headers, each text after its key.
pub(super) fn check_texts(texts: &[(&str, &str)]) -> Result<(), String> {
    let broken = texts.iter().find(|(_, text)| text.chars().any(char::is_control));
    match broken {
        Some((key, _)) => Err(format!(
            "{key} holds a line break or another control character, which no name has; remove it"
        )),
        None => Ok(()),
    }
}

/// Whether the library takes this for "yes".
pub(super) fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"]
        .iter()
        .any(|yes| text.eq_ignore_ascii_case(yes))
}

/// What S3 says with other statuses, and somebody has to mend: temporary credentials that are over, a bucket of another region, a storage class
/// that is none (Amazon S3 API reference, "Error responses"); and of stores that speak its protocol, that they know no conditional PUT.
const TO_BE_MENDED: [&str; 9] = [
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "InvalidBucketName",
    "InvalidStorageClass",
    "NotImplemented",
];

/// What the library says of a redirect that says nowhere to go, as S3 answers for buckets of other regions: the body is not read.
const BARE_REDIRECT: &str = "redirect without LOCATION";

fn said(error: &Error) -> Sent {
    let text = text(error);
    let is_to_be_mended = text.contains(BARE_REDIRECT)
        || TO_BE_MENDED
            .iter()
            .any(|code| text.contains(&format!("<Code>{code}</Code>")));
    match error {
        _ if is_to_be_mended => Sent::Refused(text),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::NotFound { .. } => {
            Sent::Refused(text)
        }
        _ => Sent::Retry(text),
    }
}

/// What went wrong: what the store said is below what that means.
fn text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(below) = source {
        let below_text = below.to_string();
        if !text.contains(&below_text) {
            text = format!("{text}: {below_text}");
        }
        source = below.source();
    }
    text
}

fn read(path: &std::path::Path) -> std::io::Result<PutPayload> {
    use std::io::Read;
    let mut file = std::fs::File::open(path)?;
    let mut pieces = Vec::new();
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        if (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece)? == 0 {
            return Ok(pieces.into_iter().collect());
        }
        pieces.push(bytes::Bytes::from(piece));
    }
}
