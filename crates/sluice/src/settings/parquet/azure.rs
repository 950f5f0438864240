//! Azure Blob Storage.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::Secret;

use super::{check_compression, endpoint};
use crate::settings::scope::Scope;

const AT: &str = "azure";

/// `azure`: `url`, `container` and `auth` are those of the Collector's azureblob exporter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Azure {
    /// The storage account; absent: as `url` or the connection string says.
    pub account: String,
    /// The container.
    pub container: String,
    /// Put before every object's name.
    pub prefix: String,
    /// The URL of the account; absent: `https://ACCOUNT.blob.core.windows.net`.
    #[serde(alias = "endpoint")]
    pub url: Option<String>,
    /// As whom; absent: as the environment says.
    pub auth: AzureAuth,
    compression: Option<String>,
    blob_name_format: Option<IgnoredAny>,
    append_blob: Option<IgnoredAny>,
    format: Option<IgnoredAny>,
    encodings: Option<IgnoredAny>,
}

/// As whom a container is used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AzureAuth {
    /// Which of the ways; absent: as the environment says. There is no connection string any more once it is understood.
    #[serde(rename = "type")]
    pub kind: Option<AzureAuthType>,
    /// The directory of an application.
    pub tenant_id: Option<String>,
    /// The application, or which of the machine's identities.
    pub client_id: Option<String>,
    /// The application's secret.
    pub client_secret: Option<Secret>,
    /// A file with the token of a Kubernetes cluster.
    pub federated_token_file: Option<PathBuf>,
    /// The account's key.
    pub account_key: Option<Secret>,
    /// A shared access signature.
    pub sas_token: Option<Secret>,
    connection_string: Option<Secret>,
}

/// The ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AzureAuthType {
    /// A text that says all of it.
    ConnectionString,
    /// The account's key. Ours.
    AccountKey,
    /// A shared access signature. Ours.
    SasToken,
    /// An application with a secret.
    ServicePrincipal,
    /// The machine's own identity.
    SystemManagedIdentity,
    /// One that the machine was given.
    UserManagedIdentity,
    /// An application that trusts the tokens of a Kubernetes cluster.
    WorkloadIdentity,
}

impl AzureAuthType {
    /// The keys it needs, and those that it may have besides.
    fn keys(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::ConnectionString => (&["connection_string"], &[]),
            Self::AccountKey => (&["account_key"], &[]),
            Self::SasToken => (&["sas_token"], &[]),
            Self::ServicePrincipal => (&["tenant_id", "client_id", "client_secret"], &[]),
            Self::SystemManagedIdentity => (&[], &[]),
            Self::UserManagedIdentity => (&["client_id"], &[]),
            Self::WorkloadIdentity => (&[], &["tenant_id", "client_id", "federated_token_file"]),
        }
    }
}

impl Azure {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>) {
        self.auth.check(scope);
        let connection = self.auth.connection_string.take();
        if let Some(text) = connection.filter(|_| self.auth.kind == Some(AzureAuthType::ConnectionString)) {
            match Connection::parse(text.expose()) {
                Ok(connection) => self.take(connection),
                Err(reason) => scope.error(&[AT, "auth", "connection_string"], reason),
            }
        }
        if self.container.trim().is_empty() {
            scope.error(&[AT, "container"], "is required; name the container");
        }
        if self.account.is_empty() {
            self.account = self.url.as_deref().and_then(account_of).unwrap_or_default();
        }
        // Taken away, so that nothing tells it on.
        if self.url.take_if(|url| url.contains('?')).is_some() {
            scope.error(
                &[AT, "url"],
                "a signature does not belong in it; write auth: {type: sas_token, sas_token: SIGNATURE}",
            );
        }
        endpoint(&mut self.url, false, AT, scope);
        if self.url.as_deref().is_some_and(names_a_container) {
            scope.error(
                &[AT, "url"],
                "is the URL of the account alone; remove what follows the host, and write the container as container",
            );
        }
        let plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if self.account.is_empty() {
            scope.error(&[AT, "account"], "is required; name the storage account");
        } else if self.url.is_none() && !plain(&self.account) {
            scope.error(
                &[AT, "account"],
                "is the name of the storage account alone, of small letters and digits; write other places as url",
            );
        }
        check_compression(self.compression.as_deref(), AT, scope);
        let format = "files are Parquet";
        scope.without_effect(&[
            (
                &[AT, "blob_name_format"],
                "directories and names follow from the data; see prefix and partition_by",
            ),
            (&[AT, "append_blob"], "a file is written once"),
            (&[AT, "format"], format),
            (&[AT, "encodings"], format),
        ]);
    }

    /// Takes over what a connection string says, which comes before `url`.
    fn take(&mut self, connection: Connection) {
        if !connection.account.is_empty() {
            self.account = connection.account;
        }
        self.url = connection.url.or(self.url.take());
        let auth = &mut self.auth;
        (auth.kind, auth.account_key, auth.sas_token) = match connection.key {
            Key::Account(key) => (Some(AzureAuthType::AccountKey), Some(key), None),
            Key::Signature(token) => (Some(AzureAuthType::SasToken), None, Some(token)),
        };
    }
}

impl AzureAuth {
    /// Whether what is written is what the type needs. What is written as nothing is not there.
    fn check(&mut self, scope: &mut Scope<'_>) {
        for text in [&mut self.tenant_id, &mut self.client_id] {
            *text = text.take().filter(|text| !text.trim().is_empty());
        }
        for secret in [
            &mut self.client_secret,
            &mut self.account_key,
            &mut self.sas_token,
            &mut self.connection_string,
        ] {
            *secret = secret.take().filter(|secret| !secret.expose().trim().is_empty());
        }
        self.federated_token_file = self
            .federated_token_file
            .take()
            .filter(|path| !path.as_os_str().is_empty());
        let keys = [
            ("tenant_id", self.tenant_id.is_some()),
            ("client_id", self.client_id.is_some()),
            ("client_secret", self.client_secret.is_some()),
            ("federated_token_file", self.federated_token_file.is_some()),
            ("account_key", self.account_key.is_some()),
            ("sas_token", self.sas_token.is_some()),
            ("connection_string", self.connection_string.is_some()),
        ];
        let Some(kind) = self.kind else {
            if let Some((key, _)) = keys.iter().find(|(_, is_written)| *is_written) {
                scope.error(
                    &[AT, "auth"],
                    format!(
                        "has {key} and no type; write type: connection_string, account_key, sas_token, service_principal, \
                         system_managed_identity, user_managed_identity or workload_identity"
                    ),
                );
            }
            return;
        };
        let (needed, allowed) = kind.keys();
        for (key, is_written) in keys {
            match (is_written, needed.contains(&key) || allowed.contains(&key)) {
                (false, _) if needed.contains(&key) => {
                    scope.error(&[AT, "auth", key], "is required with this type");
                }
                (true, false) => scope.warn(&[AT, "auth", key], "has no effect with this type; remove it"),
                _ => {}
            }
        }
    }
}

/// What a connection string says.
struct Connection {
    account: String,
    url: Option<String>,
    key: Key,
}

enum Key {
    Account(Secret),
    Signature(Secret),
}

impl Connection {
    /// Reads `AccountName=...;AccountKey=...` and so on (Microsoft's "Configure Azure Storage connection strings"). The error shows
    /// nothing of it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let part = |name: &str| {
            let pairs = text.split(';').filter_map(|pair| pair.trim().split_once('='));
            let mut values = pairs
                .filter(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value);
            values.next().filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let secret = |name: &str| part(name).map(Secret::new);
        let key = match (secret("AccountKey"), secret("SharedAccessSignature")) {
            (Some(key), _) => Key::Account(key),
            (None, Some(token)) => Key::Signature(token),
            (None, None) => {
                return Err(
                    "has neither AccountKey nor SharedAccessSignature; copy the whole string from the account's access keys",
                );
            }
        };
        let account = part("AccountName");
        let scheme = part("DefaultEndpointsProtocol").unwrap_or_else(|| "https".to_owned());
        let suffix = part("EndpointSuffix").unwrap_or_else(|| "core.windows.net".to_owned());
        let of_account = || Some(format!("{scheme}://{}.blob.{suffix}", account.as_deref()?));
        let url = part("BlobEndpoint").or_else(of_account);
        if url.is_none() {
            return Err(
                "has neither AccountName nor BlobEndpoint; copy the whole string from the account's access keys",
            );
        }
        Ok(Self {
            account: account.unwrap_or_default(),
            url,
            key,
        })
    }
}

/// Whether something follows the host of an account, as in what the portal copies.
fn names_a_container(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Elsewhere (Azurite, by address) the account is the path.
    rest.split_once('/')
        .is_some_and(|(host, path)| host.contains(".blob.") && !path.trim_end_matches('/').is_empty())
}

/// The account whose URL this is: the first name of the host, or of the path where the host is an emulator's.
fn account_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let account = match host.split_once(".blob.") {
        Some((account, _)) => account,
        None => path.split('/').next()?,
    };
    // What comes before `.blob.` may be a zone, too.
    let account = account.split('.').next()?;
    (!account.is_empty()).then(|| account.to_owned())
}
