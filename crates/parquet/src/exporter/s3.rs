//! S3 and stores that speak its protocol: one conditional PUT a file, over sluice's own HTTP client.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use sluice_aws::{Connector, check_credential, check_url};
use sluice_client::ClientTls;

use super::spool::Finished;
use super::store::Sent;

/// The name of the metadata that says which file an object is.
const CRC_METADATA: &str = "sluice-crc32c";

/// Pieces a file is read in, so that no large block of memory has to be found, and an object: no answer may have more than
/// [`sluice_client::MAX_ANSWER_BYTES`].
const PIECE_BYTES: usize = 1 << 20;

/// Where objects go, and as whom. What is not said is found as the SDKs find it: environment, web identity, container,
/// instance.
#[derive(Debug, Clone, Default)]
pub struct S3Settings {
    /// The region; empty: `AWS_REGION`, or `us-east-1`.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// Put before every object's name, with `/` between them.
    pub prefix: String,
    /// The URL of a store that is not Amazon's.
    pub endpoint: Option<String>,
    /// `https://host/bucket` rather than `https://bucket.host`.
    pub force_path_style: bool,
    /// A static key; the secret goes with it.
    pub access_key_id: Option<String>,
    /// The secret of the static key.
    pub secret_access_key: Option<String>,
    /// The session of a temporary key.
    pub session_token: Option<String>,
    /// The role to take with a web identity.
    pub role_arn: Option<String>,
    /// `STANDARD_IA` and the like; absent: as the bucket has it.
    pub storage_class: Option<String>,
    /// How long one upload may take.
    pub timeout: Duration,
    /// TLS.
    pub tls: ClientTls,
}

/// A bucket that can be written.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    store: Arc<AmazonS3>,
    region: String,
    /// Whether requests are signed.
    signs: bool,
    prefix: String,
    storage_class: Option<String>,
}

impl Bucket {
    pub fn new(settings: &S3Settings) -> Result<Self, String> {
        for (key, text) in [
            ("s3_bucket", settings.bucket.as_str()),
            ("s3_prefix", &settings.prefix),
            ("region", &settings.region),
            (
                "storage_class",
                settings.storage_class.as_deref().unwrap_or_default(),
            ),
        ] {
            if text.chars().any(char::is_control) {
                return Err(format!(
                    "s3uploader.{key} holds a line break or another control character, which no name has; remove it"
                ));
            }
        }
        Self::from_builder(AmazonS3Builder::from_env(), settings)
    }

    /// One of what the environment says and what is configured.
    fn from_builder(from_env: AmazonS3Builder, settings: &S3Settings) -> Result<Self, String> {
        let mut builder = from_env
            .with_bucket_name(&settings.bucket)
            .with_virtual_hosted_style_request(!settings.force_path_style)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_http_connector(Connector {
                timeout: settings.timeout,
                tls: settings.tls.clone(),
            })
            // The exporter retries, and says so.
            .with_retry(RetryConfig {
                max_retries: 1,
                ..Default::default()
            });
        let options = [
            (
                AmazonS3ConfigKey::Region,
                Some(&settings.region).filter(|region| !region.is_empty()),
            ),
            (AmazonS3ConfigKey::Endpoint, settings.endpoint.as_ref()),
            // The library prefers this one, which may come from the environment.
            (AmazonS3ConfigKey::S3Endpoint, settings.endpoint.as_ref()),
            (AmazonS3ConfigKey::AccessKeyId, settings.access_key_id.as_ref()),
            (
                AmazonS3ConfigKey::SecretAccessKey,
                settings.secret_access_key.as_ref(),
            ),
            (AmazonS3ConfigKey::Token, settings.session_token.as_ref()),
            (AmazonS3ConfigKey::RoleArn, settings.role_arn.as_ref()),
        ];
        for (key, value) in options {
            if let Some(value) = value {
                builder = builder.with_config(key, value);
            }
        }
        if settings
            .endpoint
            .as_ref()
            .is_some_and(|url| url.starts_with("http://"))
        {
            builder = builder.with_allow_http(true);
        }
        for key in [
            AmazonS3ConfigKey::Endpoint,
            AmazonS3ConfigKey::S3Endpoint,
            AmazonS3ConfigKey::StsEndpoint,
            AmazonS3ConfigKey::MetadataEndpoint,
        ] {
            let url = builder.get_config_value(&key);
            url.as_deref().map_or(Ok(()), check_url)?;
        }
        let configured = |key| builder.get_config_value(&key).unwrap_or_default();
        Ok(Self {
            region: configured(AmazonS3ConfigKey::Region),
            signs: !is_true(&configured(AmazonS3ConfigKey::SkipSignature)),
            store: Arc::new(builder.build().map_err(|error| error.to_string())?),
            prefix: settings.prefix.trim_matches('/').to_owned(),
            storage_class: settings.storage_class.clone(),
        })
    }

    /// Sends a file once.
    pub async fn put(&self, file: &Finished) -> Sent {
        let location = match self.prefix.as_str() {
            "" => format!("{}/{}", file.partition.path(), file.cut.name),
            prefix => format!("{prefix}/{}/{}", file.partition.path(), file.cut.name),
        };
        // Not `Path::from`, which would escape the `=` of partitions.
        let location = match Path::parse(&location) {
            Ok(location) => location,
            Err(error) => return Sent::Refused(format!("s3_prefix: {error}")),
        };
        if let Err(reason) = self.check_credential().await {
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
        attributes.insert(Attribute::Metadata(CRC_METADATA.into()), crc.clone().into());
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
            Err(Error::AlreadyExists { .. }) => {
                let compared = self.is_file(&location, file, &crc).await;
                match compared {
                    Ok(true) => Sent::There,
                    Ok(false) => Sent::Refused(format!(
                        "{location} is there already and is another file; move it away"
                    )),
                    Err(Error::NotFound { .. }) => Sent::Retry("the store reports a conflict".to_owned()),
                    Err(error) => said(&error),
                }
            }
            Err(error) => said(&error),
        }
    }

    /// Whether requests can be signed now; credentials come from anywhere, and may be others the next time.
    async fn check_credential(&self) -> Result<(), Sent> {
        if !self.signs {
            return Ok(());
        }
        let credential = self.store.credentials().get_credential().await;
        let credential = credential.map_err(|error| said(&error))?;
        check_credential(&credential, "s3", &self.region).map_err(Sent::Refused)
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
        if let Some(its) = found.attributes.get(&Attribute::Metadata(CRC_METADATA.into())) {
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

/// Whether the library takes this for "yes".
fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"]
        .iter()
        .any(|yes| text.eq_ignore_ascii_case(yes))
}

fn said(error: &Error) -> Sent {
    let mut text = error.to_string();
    // What the store said is below what that means.
    let mut source = std::error::Error::source(error);
    while let Some(below) = source {
        let below_text = below.to_string();
        if !text.contains(&below_text) {
            text = format!("{text}: {below_text}");
        }
        source = below.source();
    }
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::NotFound { .. } => {
            Sent::Refused(text)
        }
        _ => Sent::Retry(text),
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Table;
    use crate::exporter::partition::{Partition, PartitionBy};
    use crate::exporter::spool::Cut;
    use crate::exporter::stub::Stub;

    pub(in crate::exporter) fn settings() -> S3Settings {
        S3Settings {
            region: "us-east-1".to_owned(),
            bucket: "bucket".to_owned(),
            // Nobody answers there.
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            force_path_style: true,
            access_key_id: Some("key".to_owned()),
            secret_access_key: Some("secret".to_owned()),
            timeout: Duration::from_secs(1),
            ..S3Settings::default()
        }
    }

    fn file() -> Finished {
        Finished {
            cut: Cut {
                table: "logs".to_owned(),
                by: PartitionBy::None,
                hour: 0,
                first: 0,
                last: 0,
                rows: 1,
                bytes: 1,
                crc: 0,
                name: "name.parquet".to_owned(),
            },
            partition: Partition {
                table: Table::Logs,
                by: PartitionBy::None,
                hour: 0,
            },
            path: "/nowhere".into(),
        }
    }

    /// Scenario: the store has an object of the file's name, of more bytes than are read at once, and has dropped its metadata: it is the
    /// file; it is another one of the same size; it is shorter.
    /// Guarantees: only the file itself is taken for sent; another one is left alone and told about.
    #[tokio::test]
    async fn an_object_without_metadata_is_read() {
        let ours = vec![7; PIECE_BYTES + 5];
        let mut other = ours.clone();
        other[PIECE_BYTES] = 8;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, &ours).unwrap();
        let mut file = Finished { path, ..file() };
        (file.cut.bytes, file.cut.crc) = (ours.len() as u64, crc32c::crc32c(&ours));
        let shorter = ours[1..].to_vec();
        for (object, is_ours) in [(ours, true), (other, false), (shorter, false)] {
            let store = Stub::start(object, 412).await;
            let settings = S3Settings {
                endpoint: Some(store.endpoint()),
                timeout: Duration::from_secs(10),
                ..settings()
            };
            match Bucket::new(&settings).unwrap().put(&file).await {
                Sent::There => assert!(is_ours),
                Sent::Refused(reason) => assert!(!is_ours && reason.contains("another file"), "{reason}"),
                Sent::Retry(reason) => panic!("{reason}"),
            }
        }
    }

    /// Scenario: a line break in the bucket, the prefix, the region or the storage class; an endpoint that is no host.
    /// Guarantees: the exporter is not made, and the error names the key or the URL.
    #[test]
    fn names_with_line_breaks_are_refused() {
        let broken = || "a\nb".to_owned();
        let mut named: [(S3Settings, &str); 5] = std::array::from_fn(|_| (settings(), ""));
        (named[0].0.bucket, named[0].1) = (broken(), "s3_bucket");
        (named[1].0.prefix, named[1].1) = (broken(), "s3_prefix");
        (named[2].0.region, named[2].1) = (broken(), "region");
        (named[3].0.storage_class, named[3].1) = (Some(broken()), "storage_class");
        (named[4].0.endpoint, named[4].1) = (Some("http://1.2.3.4.5".to_owned()), "1.2.3.4.5");
        for (settings, blamed) in named {
            let error = Bucket::new(&settings).unwrap_err();
            assert!(error.contains(blamed) && !error.contains('\n'), "{error}");
        }
    }

    /// Scenario: the environment has an endpoint that is no host, by any of its names.
    /// Guarantees: the exporter is not made, and the error names the URL; a configured endpoint comes before any from the environment.
    #[test]
    fn endpoints_of_the_environment_are_checked() {
        let of_env = |name: &str, url: &str| {
            let key = name.to_ascii_lowercase().parse().unwrap();
            AmazonS3Builder::new().with_config(key, url)
        };
        let nothing_configured = S3Settings {
            endpoint: None,
            ..settings()
        };
        for name in [
            "AWS_ENDPOINT",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL_STS",
            "AWS_METADATA_ENDPOINT",
        ] {
            let error =
                Bucket::from_builder(of_env(name, "http://1.2.3.4.5"), &nothing_configured).unwrap_err();
            assert!(error.contains("1.2.3.4.5"), "{name}: {error}");
        }
        let bucket =
            Bucket::from_builder(of_env("AWS_ENDPOINT_URL_S3", "http://other"), &settings()).unwrap();
        let store = format!("{:?}", bucket.store);
        assert!(
            store.contains("127.0.0.1:1") && !store.contains("http://other"),
            "{store}"
        );
    }

    /// Scenario: signing is switched off by any word that the library takes for "yes".
    /// Guarantees: no credential is looked for, which would take the exporter to places that may not be there.
    #[test]
    fn signing_is_switched_off_by_any_yes() {
        for (word, signs) in [
            ("1", false),
            ("TRUE", false),
            ("on", false),
            ("Yes", false),
            ("y", false),
            ("0", true),
            ("no", true),
        ] {
            let of_env = AmazonS3Builder::new().with_config(AmazonS3ConfigKey::SkipSignature, word);
            let bucket = Bucket::from_builder(of_env, &settings()).unwrap();
            assert_eq!(bucket.signs, signs, "{word}");
        }
    }

    /// Scenario: a key and a session token that end with a line break, as files read into the environment leave them.
    /// Guarantees: sending a file does not panic; it is refused until somebody mends that, and the reason shows nothing of either.
    #[tokio::test]
    async fn keys_with_line_breaks_are_refused() {
        for (key, token, blamed) in [
            ("mine\n", None, "access key id"),
            ("mine", Some("temporary\n".to_owned()), "session token"),
        ] {
            let settings = S3Settings {
                access_key_id: Some(key.to_owned()),
                session_token: token,
                ..settings()
            };
            let sent = Bucket::new(&settings).unwrap().put(&file()).await;
            let Sent::Refused(reason) = sent else {
                panic!("{sent:?}")
            };
            assert!(reason.contains(blamed), "{reason}");
            assert!(
                !reason.contains("mine") && !reason.contains("temporary"),
                "{reason}"
            );
        }
    }
}
