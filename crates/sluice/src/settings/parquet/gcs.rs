//! Google Cloud Storage.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::endpoint;
use crate::settings::scope::Scope;

/// `gcs`: the keys of `bucket` in the Collector's googlecloudstorage exporter mean the same here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Gcs {
    /// The bucket.
    #[serde(alias = "name")]
    pub bucket: String,
    /// Put before every object's name.
    pub prefix: String,
    /// The URL of a store that is not Google's.
    pub endpoint: Option<String>,
    /// A file with credentials; absent: application default credentials, else the metadata server.
    pub credentials_file: Option<PathBuf>,
    partition: Partition,
    project_id: Option<IgnoredAny>,
    region: Option<IgnoredAny>,
    reuse_if_exists: Option<IgnoredAny>,
    file_prefix: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Partition {
    prefix: String,
    format: Option<IgnoredAny>,
}

impl Gcs {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>) {
        const AT: &str = "gcs";
        if self.bucket.trim().is_empty() {
            scope.error(&[AT, "bucket"], "is required; name the bucket");
        }
        endpoint(&mut self.endpoint, false, AT, scope);
        self.credentials_file = self
            .credentials_file
            .take()
            .filter(|path| !path.as_os_str().is_empty());
        let base = std::mem::take(&mut self.partition.prefix);
        if !base.is_empty() {
            self.prefix = format!("{}/{}", base.trim_matches('/'), self.prefix);
        }
        let names = "directories and names follow from the data; see prefix and partition_by";
        let there = "the bucket has to be there already";
        scope.without_effect(&[
            (&[AT, "partition", "format"], names),
            (&[AT, "file_prefix"], names),
            (&[AT, "project_id"], there),
            (&[AT, "region"], there),
            (&[AT, "reuse_if_exists"], there),
        ]);
    }
}
