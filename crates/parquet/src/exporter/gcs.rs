//! Google Cloud Storage, by its XML interface.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::gcp::GoogleCloudStorageBuilder;
use sluice_aws::check_url;
use sluice_client::ClientTls;

use super::bucket::{Bucket, Identity, check_texts, connector, prefix, retries};

/// The variable by which Google's own clients are told of a file with credentials.
const CREDENTIALS_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Where objects go, and as whom.
#[derive(Debug, Clone, Default)]
pub struct GcsSettings {
    /// The bucket.
    pub bucket: String,
    /// Put before every object's name, with `/` between them.
    pub prefix: String,
    /// The URL of a store that is not Google's.
    pub endpoint: Option<String>,
    /// A service account's key, or a person's credentials as `gcloud` writes them. Absent: what `GOOGLE_APPLICATION_CREDENTIALS` names,
    /// else `gcloud`'s own file in the home directory, else whoever the machine is (metadata server).
    pub credentials_file: Option<PathBuf>,
    /// How long one upload may take.
    pub timeout: Duration,
    /// TLS.
    pub tls: ClientTls,
}

/// The bucket, as configured. Reads the file of credentials.
pub(super) fn bucket(settings: &GcsSettings) -> Result<Bucket, String> {
    let of_env = std::env::var_os(CREDENTIALS_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let mut builder = GoogleCloudStorageBuilder::new();
    // Not the library's own reading of the environment, which takes variables as common as `SERVICE_ACCOUNT` for its own.
    if let Some(path) = settings.credentials_file.clone().or(of_env) {
        builder = builder.with_application_credentials(path.to_string_lossy());
    }
    from_builder(builder, settings)
}

fn from_builder(builder: GoogleCloudStorageBuilder, settings: &GcsSettings) -> Result<Bucket, String> {
    check_texts(&[("gcs.bucket", &settings.bucket), ("gcs.prefix", &settings.prefix)])?;
    let mut builder = builder
        .with_bucket_name(&settings.bucket)
        .with_http_connector(connector(settings.timeout, &settings.tls))
        .with_retry(retries());
    if let Some(endpoint) = &settings.endpoint {
        check_url(endpoint)?;
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    let store = builder.build().map_err(|error| error.to_string())?;
    Ok(Bucket {
        identity: Identity::Google(store.credentials().clone()),
        store: Arc::new(store),
        prefix: prefix("gcs.prefix", &settings.prefix)?,
        prefix_key: "gcs.prefix",
        crc_metadata: "sluice-crc32c",
        storage_class: None,
        timeout: settings.timeout,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::exporter) fn settings() -> GcsSettings {
        GcsSettings {
            bucket: "bucket".to_owned(),
            // Nobody answers there.
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            timeout: Duration::from_secs(10),
            ..GcsSettings::default()
        }
    }

    /// The bucket of somebody who has this token.
    pub(in crate::exporter) fn bucket_as(token: &str, settings: &GcsSettings) -> Result<Bucket, String> {
        from_builder(
            GoogleCloudStorageBuilder::new().with_bearer_token(token),
            settings,
        )
    }

    /// Scenario: a line break in the bucket or the prefix; an endpoint that is no host; files of credentials that are not there, are
    /// no JSON, and are of a kind that is not known.
    /// Guarantees: the exporter is not made, and the error says what it is about.
    #[test]
    fn what_cannot_be_used_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [text, kind] =
            [("text", "key"), ("kind", "{\"type\": \"external_account\"}")].map(|(name, text)| {
                let path = directory.path().join(name);
                std::fs::write(&path, text).unwrap();
                path
            });
        let mut settings: [(GcsSettings, &str); 6] = std::array::from_fn(|_| (settings(), ""));
        (settings[0].0.bucket, settings[0].1) = ("a\nb".to_owned(), "gcs.bucket");
        (settings[1].0.prefix, settings[1].1) = ("a\nb".to_owned(), "gcs.prefix");
        (settings[2].0.endpoint, settings[2].1) = (Some("http://1.2.3.4.5".to_owned()), "1.2.3.4.5");
        (settings[3].0.credentials_file, settings[3].1) =
            (Some("/nowhere/key.json".into()), "/nowhere/key.json");
        (settings[4].0.credentials_file, settings[4].1) = (Some(text), "service account");
        (settings[5].0.credentials_file, settings[5].1) = (Some(kind), "external_account");
        for (settings, blamed) in settings {
            let error = bucket(&settings).unwrap_err();
            assert!(error.contains(blamed) && !error.contains('\n'), "{error}");
        }
    }
}
