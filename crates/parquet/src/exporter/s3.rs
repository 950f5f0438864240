//! S3 and stores that speak its protocol.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use sluice_aws::check_url;
use sluice_client::ClientTls;

use super::bucket::{Bucket, Identity, check_texts, connector, is_true, prefix, retries};

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

/// The bucket, as configured; what is not said is the environment's.
pub(super) fn bucket(settings: &S3Settings) -> Result<Bucket, String> {
    check_texts(&[
        ("s3uploader.s3_bucket", &settings.bucket),
        ("s3uploader.s3_prefix", &settings.prefix),
        ("s3uploader.region", &settings.region),
        (
            "s3uploader.storage_class",
            settings.storage_class.as_deref().unwrap_or_default(),
        ),
    ])?;
    from_builder(AmazonS3Builder::from_env(), settings)
}

/// One of what the environment says and what is configured.
fn from_builder(from_env: AmazonS3Builder, settings: &S3Settings) -> Result<Bucket, String> {
    let mut builder = from_env
        .with_bucket_name(&settings.bucket)
        .with_virtual_hosted_style_request(!settings.force_path_style)
        .with_checksum_algorithm(Checksum::SHA256)
        .with_http_connector(connector(settings.timeout, &settings.tls))
        .with_retry(retries());
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
    let region = configured(AmazonS3ConfigKey::Region);
    let signs = !is_true(&configured(AmazonS3ConfigKey::SkipSignature));
    let store = builder.build().map_err(|error| error.to_string())?;
    let identity = match signs {
        true => Identity::Aws {
            credentials: store.credentials().clone(),
            region,
        },
        false => Identity::Nobody,
    };
    Ok(Bucket {
        store: Arc::new(store),
        identity,
        prefix: prefix("s3uploader.s3_prefix", &settings.prefix)?,
        prefix_key: "s3_prefix",
        crc_metadata: "sluice-crc32c",
        storage_class: settings.storage_class.clone(),
        timeout: settings.timeout,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::exporter::store::Sent;
    use crate::exporter::store::tests::file;

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
            let error = bucket(&settings).unwrap_err();
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
            let error = from_builder(of_env(name, "http://1.2.3.4.5"), &nothing_configured).unwrap_err();
            assert!(error.contains("1.2.3.4.5"), "{name}: {error}");
        }
        let bucket = from_builder(of_env("AWS_ENDPOINT_URL_S3", "http://other"), &settings()).unwrap();
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
            let bucket = from_builder(of_env, &settings()).unwrap();
            let is_signed = matches!(bucket.identity, Identity::Aws { .. });
            assert_eq!(is_signed, signs, "{word}");
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
            let directory = tempfile::tempdir().unwrap();
            let sent = bucket(&settings)
                .unwrap()
                .put(&file(directory.path(), b"rows"))
                .await;
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
