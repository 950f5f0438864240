//! TLS and mutual TLS, with certificates that are read again while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// How often certificates are read again when the configuration does not say.
const DEFAULT_RELOAD: Duration = Duration::from_secs(300);

/// A certificate, key or CA that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read or holds no such PEM item.
    #[error("cannot read {what} from {path}: {cause}")]
    File {
        /// What was expected in it.
        what: &'static str,
        /// The file.
        path: String,
        /// What went wrong.
        cause: String,
    },
    /// The pieces do not fit together.
    #[error("the TLS settings cannot be used: {0}")]
    Config(String),
}

/// Where a PEM item comes from.
#[derive(Debug, Clone)]
pub enum Pem {
    /// A file, read again at every reload.
    File(PathBuf),
    /// Text in the configuration.
    Inline(String),
}

impl Pem {
    fn read(&self, what: &'static str) -> Result<(Vec<u8>, String), TlsError> {
        match self {
            Pem::Inline(text) => Ok((text.clone().into_bytes(), "the configuration".to_owned())),
            Pem::File(path) => std::fs::read(path)
                .map(|bytes| (bytes, show(path)))
                .map_err(|cause| TlsError::File {
                    what,
                    path: show(path),
                    cause: cause.to_string(),
                }),
        }
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// A listener's TLS settings.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Certificate chain.
    pub cert: Pem,
    /// Private key.
    pub key: Pem,
    /// CAs that clients' certificates must come from; makes it mutual TLS.
    pub client_ca: Option<Pem>,
    /// Only TLS 1.3.
    pub tls13_only: bool,
    /// Protocols offered by ALPN, in order.
    pub alpn: Vec<Vec<u8>>,
    /// How often the files are read again; `None` for the default of five minutes.
    pub reload_interval: Option<Duration>,
}

impl ServerTls {
    /// Reads everything once, and again at every reload interval while the process runs. A reload
    /// that fails keeps what works and logs why.
    ///
    /// # Errors
    /// [`TlsError`] at start.
    pub(crate) fn start(self) -> Result<Arc<ArcSwap<ServerConfig>>, TlsError> {
        let current = Arc::new(ArcSwap::from_pointee(self.load()?));
        let weak = Arc::downgrade(&current);
        let interval = self.reload_interval.unwrap_or(DEFAULT_RELOAD);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(current) = weak.upgrade() else { return };
                match self.load() {
                    Ok(config) => current.store(Arc::new(config)),
                    Err(error) => {
                        tracing::error!(%error, "TLS certificates were not reloaded; the old ones stay in use")
                    }
                }
            }
        });
        Ok(current)
    }

    fn load(&self) -> Result<ServerConfig, TlsError> {
        let certs = certificates(&self.cert, "a certificate")?;
        let (bytes, path) = self.key.read("a private key")?;
        let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|cause| TlsError::File {
            what: "a private key",
            path,
            cause: cause.to_string(),
        })?;
        let versions: &[&rustls::SupportedProtocolVersion] = match self.tls13_only {
            true => &[&rustls::version::TLS13],
            false => rustls::ALL_VERSIONS,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| TlsError::Config(error.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for cert in certificates(ca, "a client CA certificate")? {
                    roots
                        .add(cert)
                        .map_err(|error| TlsError::Config(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| TlsError::Config(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certs, key)
            .map_err(|error| TlsError::Config(format!("certificate and key: {error}")))?;
        config.alpn_protocols = self.alpn.clone();
        Ok(config)
    }
}

fn certificates(pem: &Pem, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (bytes, path) = pem.read(what)?;
    let fail = |cause: String| TlsError::File {
        what,
        path: path.clone(),
        cause,
    };
    let certs = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| fail(error.to_string()))?;
    if certs.is_empty() {
        Err(fail("it holds none".into()))
    } else {
        Ok(certs)
    }
}
