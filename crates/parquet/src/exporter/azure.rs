//! Azure Blob Storage.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use sluice_aws::check_url;
use sluice_client::ClientTls;

use super::bucket::{Bucket, Identity, check_texts, connector, is_true, prefix, retries};

/// Where objects go, and as whom.
#[derive(Debug, Clone, Default)]
pub struct AzureSettings {
    /// The storage account.
    pub account: String,
    /// The container.
    pub container: String,
    /// Put before every object's name, with `/` between them.
    pub prefix: String,
    /// The URL of the account; absent: `https://{account}.blob.core.windows.net`.
    pub endpoint: Option<String>,
    /// As whom.
    pub identity: AzureIdentity,
    /// How long one upload may take.
    pub timeout: Duration,
    /// TLS.
    pub tls: ClientTls,
}

/// As whom an account is used.
#[derive(Clone, Default)]
pub enum AzureIdentity {
    /// What the environment says (`AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_CLIENT_ID` and so on), else whoever the machine is.
    #[default]
    Environment,
    /// The account's own key, in base64.
    AccountKey(String),
    /// A shared access signature.
    SasToken(String),
    /// An application with a secret.
    ServicePrincipal {
        /// The directory it is in.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// Its secret.
        client_secret: String,
    },
    /// Whoever the machine is.
    ManagedIdentity {
        /// Which of its identities; absent: its own.
        client_id: Option<String>,
    },
    /// An application that trusts the tokens of a Kubernetes cluster; what is absent is in the environment of its pods.
    WorkloadIdentity {
        /// `AZURE_TENANT_ID`
        tenant_id: Option<String>,
        /// `AZURE_CLIENT_ID`
        client_id: Option<String>,
        /// `AZURE_FEDERATED_TOKEN_FILE`
        federated_token_file: Option<PathBuf>,
    },
}

impl fmt::Debug for AzureIdentity {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "Environment",
            Self::AccountKey(_) => "AccountKey",
            Self::SasToken(_) => "SasToken",
            Self::ServicePrincipal { .. } => "ServicePrincipal",
            Self::ManagedIdentity { .. } => "ManagedIdentity",
            Self::WorkloadIdentity { .. } => "WorkloadIdentity",
        })
    }
}

/// The container, as configured.
pub(super) fn bucket(settings: &AzureSettings) -> Result<Bucket, String> {
    from_builder(MicrosoftAzureBuilder::from_env(), settings)
}

/// One of what the environment says and what is configured.
fn from_builder(from_env: MicrosoftAzureBuilder, settings: &AzureSettings) -> Result<Bucket, String> {
    check_texts(&[
        ("azure.account", &settings.account),
        ("azure.container", &settings.container),
        ("azure.prefix", &settings.prefix),
    ])?;
    let mut builder = identified(from_env, &settings.identity)
        .with_account(&settings.account)
        .with_container_name(&settings.container)
        // Names that the environment may have for another account.
        .with_config(AzureConfigKey::UseEmulator, "false")
        .with_config(AzureConfigKey::UseFabricEndpoint, "false")
        .with_http_connector(connector(settings.timeout, &settings.tls))
        .with_retry(retries());
    let endpoint = match &settings.endpoint {
        Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
        None => format!("https://{}.blob.core.windows.net", settings.account),
    };
    check_url(&endpoint)?;
    builder = builder
        .with_allow_http(endpoint.starts_with("http://"))
        .with_endpoint(endpoint);
    let skips = builder.get_config_value(&AzureConfigKey::SkipSignature);
    let signs = !is_true(&skips.unwrap_or_default());
    let store = builder.build().map_err(|error| error.to_string())?;
    Ok(Bucket {
        identity: match signs {
            true => Identity::Azure(store.credentials().clone()),
            false => Identity::Nobody,
        },
        store: Arc::new(store),
        prefix: prefix("azure.prefix", &settings.prefix)?,
        prefix_key: "azure.prefix",
        // The names of metadata are those of C#, which has no hyphens in them.
        crc_metadata: "sluice_crc32c",
        storage_class: None,
        timeout: settings.timeout,
    })
}

/// A builder that knows as whom. Where that is configured, nothing of what the environment says of somebody else is left.
fn identified(from_env: MicrosoftAzureBuilder, identity: &AzureIdentity) -> MicrosoftAzureBuilder {
    use AzureConfigKey::*;
    let of_env = |key: AzureConfigKey| from_env.get_config_value(&key);
    // In clusters it ends with a slash, and another one would follow it.
    let authority = of_env(AuthorityHost).map(|host| host.trim_end_matches('/').to_owned());
    let text = |text: &String| Some(text.clone());
    let (kind, parts) = match identity {
        AzureIdentity::Environment => {
            return match authority {
                Some(host) => from_env.with_authority_host(host),
                None => from_env,
            };
        }
        AzureIdentity::AccountKey(key) => ("access_key", vec![(AccessKey, text(key))]),
        AzureIdentity::SasToken(token) => ("sas_token", vec![(SasKey, text(token))]),
        AzureIdentity::ServicePrincipal {
            tenant_id,
            client_id,
            client_secret,
        } => {
            let parts = vec![
                (AuthorityId, text(tenant_id)),
                (ClientId, text(client_id)),
                (ClientSecret, text(client_secret)),
            ];
            ("client_secret", parts)
        }
        AzureIdentity::ManagedIdentity { client_id } => {
            let parts = vec![(ClientId, client_id.clone()), (MsiEndpoint, of_env(MsiEndpoint))];
            ("managed_identity", parts)
        }
        AzureIdentity::WorkloadIdentity {
            tenant_id,
            client_id,
            federated_token_file,
        } => {
            let file = federated_token_file.as_ref();
            let file = file.map(|path| path.to_string_lossy().into_owned());
            let or_env = |key, configured: Option<String>| (key, configured.or_else(|| of_env(key)));
            let parts = vec![
                or_env(AuthorityId, tenant_id.clone()),
                or_env(ClientId, client_id.clone()),
                or_env(FederatedTokenFile, file),
            ];
            ("workload_identity", parts)
        }
    };
    let builder = MicrosoftAzureBuilder::new().with_credential_type(kind);
    let parts = parts.into_iter().chain([(AuthorityHost, authority)]);
    parts.fold(builder, |builder, (key, value)| match value {
        Some(value) => builder.with_config(key, value),
        None => builder,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What an account key looks like.
    const KEY: &str = "c2VjcmV0";

    pub(in crate::exporter) fn settings() -> AzureSettings {
        AzureSettings {
            account: "account".to_owned(),
            container: "container".to_owned(),
            // Nobody answers there.
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            identity: AzureIdentity::AccountKey(KEY.to_owned()),
            timeout: Duration::from_secs(10),
            ..AzureSettings::default()
        }
    }

    fn of_env(pairs: &[(AzureConfigKey, &str)]) -> MicrosoftAzureBuilder {
        let builder = MicrosoftAzureBuilder::new();
        pairs
            .iter()
            .fold(builder, |builder, (key, value)| builder.with_config(*key, *value))
    }

    /// The container of somebody who has this token.
    pub(in crate::exporter) fn bucket_as(token: &str) -> Result<Bucket, String> {
        let settings = AzureSettings {
            identity: AzureIdentity::Environment,
            ..settings()
        };
        from_builder(of_env(&[(AzureConfigKey::Token, token)]), &settings)
    }

    /// The container at this URL, of this identity; whoever gives out tokens is there, too.
    pub(in crate::exporter) fn bucket_at(endpoint: &str, identity: AzureIdentity) -> Bucket {
        let environment = of_env(&[
            (AzureConfigKey::AuthorityHost, &format!("{endpoint}/")),
            (AzureConfigKey::MsiEndpoint, &format!("{endpoint}/msi/token")),
        ]);
        let settings = AzureSettings {
            endpoint: Some(endpoint.to_owned()),
            identity,
            ..settings()
        };
        from_builder(environment, &settings).unwrap()
    }

    /// Scenario: a line break in account, container or prefix; an endpoint that is no host; a key that is no base64; a signature that
    /// is none; a workload identity of which the environment says nothing.
    /// Guarantees: the exporter is not made, and the error says what it is about, and shows no secret.
    #[test]
    fn what_cannot_be_used_is_refused() {
        let mut settings: [(AzureSettings, &str); 7] = std::array::from_fn(|_| (settings(), ""));
        (settings[0].0.account, settings[0].1) = ("a\nb".to_owned(), "azure.account");
        (settings[1].0.container, settings[1].1) = ("a\nb".to_owned(), "azure.container");
        (settings[2].0.prefix, settings[2].1) = ("a\nb".to_owned(), "azure.prefix");
        (settings[3].0.endpoint, settings[3].1) = (Some("http://1.2.3.4.5".to_owned()), "1.2.3.4.5");
        (settings[4].0.identity, settings[4].1) =
            (AzureIdentity::AccountKey("s3cret?".to_owned()), "Access Key");
        (settings[5].0.identity, settings[5].1) = (AzureIdentity::SasToken("s3cret".to_owned()), "SAS");
        let workload = AzureIdentity::WorkloadIdentity {
            tenant_id: None,
            client_id: None,
            federated_token_file: None,
        };
        (settings[6].0.identity, settings[6].1) = (workload, "workload_identity");
        for (settings, blamed) in settings {
            let error = from_builder(of_env(&[]), &settings).unwrap_err();
            assert!(error.contains(blamed) && !error.contains('\n'), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
            assert!(!format!("{settings:?}").contains("s3cret"));
        }
    }

    /// Scenario: the environment says of an application, a token file, a key and an emulator; what is configured is each kind of identity.
    /// Guarantees: what is configured is taken, and of the environment what is meant for it alone; the emulator is left alone; the
    /// authority's slash goes.
    #[test]
    fn what_is_configured_comes_before_the_environment() {
        use AzureConfigKey::*;
        let environment = || {
            of_env(&[
                (ClientId, "env-client"),
                (AuthorityId, "env-tenant"),
                (FederatedTokenFile, "/env/token"),
                (AccessKey, KEY),
                (UseEmulator, "true"),
                (AuthorityHost, "https://login.example.com/"),
            ])
        };
        let mine = || Some("my-client".to_owned());
        let workload = AzureIdentity::WorkloadIdentity {
            tenant_id: None,
            client_id: mine(),
            federated_token_file: None,
        };
        for (identity, client, tenant, key) in [
            (
                AzureIdentity::Environment,
                Some("env-client"),
                Some("env-tenant"),
                true,
            ),
            (AzureIdentity::SasToken("sig=x".to_owned()), None, None, false),
            (
                AzureIdentity::ManagedIdentity { client_id: None },
                None,
                None,
                false,
            ),
            (
                AzureIdentity::ManagedIdentity { client_id: mine() },
                Some("my-client"),
                None,
                false,
            ),
            (workload, Some("my-client"), Some("env-tenant"), false),
        ] {
            let builder = identified(environment(), &identity);
            let value = |key| builder.get_config_value(&key);
            assert_eq!(value(ClientId).as_deref(), client, "{identity:?}");
            assert_eq!(value(AuthorityId).as_deref(), tenant, "{identity:?}");
            assert_eq!(value(AccessKey).is_some(), key, "{identity:?}");
            assert_eq!(value(AuthorityHost).as_deref(), Some("https://login.example.com"));
            let settings = AzureSettings {
                identity,
                ..settings()
            };
            let bucket = from_builder(environment(), &settings).unwrap();
            assert!(format!("{:?}", bucket.store).contains("is_emulator: false"));
        }
    }
}
