//! S3 and compatible stores.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::Secret;

use super::{check_compression, endpoint};
use crate::settings::scope::Scope;

/// `s3uploader`, as in the Collector's awss3 exporter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct S3Uploader {
    /// The region; absent: `AWS_REGION`, or us-east-1.
    pub region: String,
    /// The bucket.
    pub s3_bucket: String,
    /// Put before every object's name.
    pub s3_prefix: String,
    /// The URL of a store that is not Amazon's.
    pub endpoint: Option<String>,
    /// `https://host/bucket` rather than `https://bucket.host`.
    pub s3_force_path_style: bool,
    /// Plain HTTP, where the endpoint does not say.
    pub disable_ssl: bool,
    /// A static key; absent: environment, web identity, container or instance.
    pub access_key_id: Option<Secret>,
    /// Its secret.
    pub secret_access_key: Option<Secret>,
    /// The session of a temporary key.
    pub session_token: Option<Secret>,
    /// The role to take with a web identity.
    pub role_arn: Option<String>,
    /// The storage class of objects; absent: as the bucket has it.
    pub storage_class: Option<String>,
    s3_partition_format: Option<IgnoredAny>,
    s3_partition: Option<IgnoredAny>,
    s3_base_prefix: Option<String>,
    file_prefix: Option<IgnoredAny>,
    compression: Option<String>,
    acl: Option<IgnoredAny>,
    retry_mode: Option<IgnoredAny>,
    retry_max_attempts: Option<IgnoredAny>,
    retry_max_backoff: Option<IgnoredAny>,
    unique_key_func_name: Option<IgnoredAny>,
}

impl S3Uploader {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>) {
        const AT: &str = "s3uploader";
        if self.s3_bucket.trim().is_empty() {
            scope.error(&[AT, "s3_bucket"], "is required; name the bucket");
        }
        endpoint(&mut self.endpoint, self.disable_ssl, AT, scope);
        if self.access_key_id.is_some() != self.secret_access_key.is_some() {
            scope.error(
                &[AT],
                "access_key_id and secret_access_key go together; write both, or none to use the environment's",
            );
        }
        if let Some(base) = self.s3_base_prefix.take() {
            self.s3_prefix = format!("{}/{}", base.trim_matches('/'), self.s3_prefix);
        }
        check_compression(self.compression.as_deref(), AT, scope);
        let names = "directories and names follow from the data; see partition_by";
        let retried = "failures are retried as retry_on_failure says";
        scope.without_effect(&[
            (&[AT, "s3_partition_format"], names),
            (&[AT, "s3_partition"], names),
            (&[AT, "file_prefix"], names),
            (&[AT, "unique_key_func_name"], names),
            (&[AT, "acl"], "objects belong to the bucket's owner"),
            (&[AT, "retry_mode"], retried),
            (&[AT, "retry_max_attempts"], retried),
            (&[AT, "retry_max_backoff"], retried),
        ]);
    }
}
