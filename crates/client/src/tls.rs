//! TLS towards a destination.
//!
//! Certificates, keys and roots named as files are read again for a new connection when any of
//! them has changed; connections that exist keep what they began with, and end by their age. A
//! half-written file in the middle of a rotation leaves the last good set in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// PEM text, or the file it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pem {
    /// A file, read again when it changes.
    File(PathBuf),
    /// The text itself.
    Text(String),
}

/// The lowest TLS version to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TlsVersion {
    /// TLS 1.2, the lowest there is here: 1.0 and 1.1 are withdrawn (RFC 8996).
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// How to speak TLS to a destination. The default: the system's roots, names verified, TLS 1.2 or later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// No TLS even where the endpoint does not say `http`.
    pub insecure: bool,
    /// Take any certificate. The connection is then open to whoever sits in the middle.
    pub insecure_skip_verify: bool,
    /// The only roots to trust; without it the system's, and Mozilla's if the system has none.
    pub ca: Option<Pem>,
    /// Trust the system's roots beside `ca`.
    pub include_system_ca_certs_pool: bool,
    /// Our certificate chain, for mutual TLS; needs `key`.
    pub cert: Option<Pem>,
    /// The private key of `cert`.
    pub key: Option<Pem>,
    /// The name to send as SNI and to verify, instead of the endpoint's host.
    pub server_name_override: Option<String>,
    /// The lowest version to speak.
    pub min_version: TlsVersion,
    /// The highest version to speak, if not all.
    pub max_version: Option<TlsVersion>,
}

/// TLS settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub(crate) String);

/// What a file looked like when it was read.
type Stamp = Option<(SystemTime, u64)>;

struct Loaded {
    config: Arc<ClientConfig>,
    stamps: Vec<Stamp>,
}

/// [`ClientTls`] made ready for connections.
pub(crate) struct TlsSource {
    settings: ClientTls,
    alpn: Vec<Vec<u8>>,
    loaded: Mutex<Loaded>,
}

impl TlsSource {
    /// Reads everything once, so that a wrong path is an error at start-up.
    pub(crate) fn new(settings: ClientTls, alpn: &[&[u8]]) -> Result<Self, TlsError> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.to_vec()).collect();
        let stamps = stamps(&settings);
        let config = build(&settings, &alpn)?;
        Ok(Self {
            settings,
            alpn,
            loaded: Mutex::new(Loaded { config, stamps }),
        })
    }

    /// The configuration for a new connection. Reads the files again if one has changed.
    pub(crate) fn current(&self) -> Arc<ClientConfig> {
        let now = stamps(&self.settings);
        let mut loaded = self.loaded.lock();
        if now != loaded.stamps {
            match build(&self.settings, &self.alpn) {
                Ok(config) => *loaded = Loaded { config, stamps: now },
                Err(error) => {
                    tracing::warn!(%error, "the changed TLS files cannot be used; the last good ones stay");
                }
            }
        }
        loaded.config.clone()
    }

    /// The name to verify for `host`.
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = self.settings.server_name_override.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError(format!("{name:?} is neither a DNS name nor an address")))
    }
}

fn files(settings: &ClientTls) -> impl Iterator<Item = &Path> {
    [&settings.ca, &settings.cert, &settings.key]
        .into_iter()
        .filter_map(|pem| match pem {
            Some(Pem::File(path)) => Some(path.as_path()),
            _ => None,
        })
}

fn stamps(settings: &ClientTls) -> Vec<Stamp> {
    files(settings)
        .map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}

fn build(settings: &ClientTls, alpn: &[Vec<u8>]) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let highest = settings.max_version.unwrap_or(TlsVersion::V1_3);
    if highest < settings.min_version {
        return Err(TlsError("max_version is below min_version".to_owned()));
    }
    let versions: Vec<&rustls::SupportedProtocolVersion> = [
        (TlsVersion::V1_2, &rustls::version::TLS12),
        (TlsVersion::V1_3, &rustls::version::TLS13),
    ]
    .into_iter()
    .filter(|(version, _)| (settings.min_version..=highest).contains(version))
    .map(|(_, supported)| supported)
    .collect();
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| TlsError(e.to_string()))?;
    let builder = if settings.insecure_skip_verify {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        builder.with_root_certificates(roots(settings)?)
    };
    let mut config = match (&settings.cert, &settings.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let chain = certificates("cert", cert)?;
            let key = private_key(key)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| TlsError(format!("the client certificate and key cannot be used: {e}")))?
        }
        _ => {
            return Err(TlsError(
                "a client certificate needs both cert and key".to_owned(),
            ));
        }
    };
    config.alpn_protocols = alpn.to_vec();
    Ok(Arc::new(config))
}

fn roots(settings: &ClientTls) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(ca) = &settings.ca {
        for certificate in certificates("ca", ca)? {
            store
                .add(certificate)
                .map_err(|e| TlsError(format!("a root in {} : {e}", shown(ca))))?;
        }
    }
    if settings.ca.is_none() || settings.include_system_ca_certs_pool {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            // A `FROM scratch` image has no system roots.
            store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
    }
    Ok(store)
}

fn shown(pem: &Pem) -> String {
    match pem {
        Pem::File(path) => path.display().to_string(),
        Pem::Text(_) => "the configured PEM text".to_owned(),
    }
}

fn text(what: &str, pem: &Pem) -> Result<Vec<u8>, TlsError> {
    match pem {
        Pem::Text(text) => Ok(text.clone().into_bytes()),
        Pem::File(path) => std::fs::read(path)
            .map_err(|e| TlsError(format!("cannot read {what} file {}: {e}", path.display()))),
    }
}

fn certificates(what: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text(what, pem)?)
        .collect::<Result<_, _>>()
        .map_err(|e| TlsError(format!("{what}: {} is not PEM: {e}", shown(pem))))?;
    if read.is_empty() {
        return Err(TlsError(format!("{what}: {} holds no certificate", shown(pem))));
    }
    Ok(read)
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&text("key", pem)?)
        .map_err(|e| TlsError(format!("key: {} holds no usable private key: {e}", shown(pem))))
}

/// Whether an error comes of something a person has to mend: a certificate that does not verify, or
/// an alert that says ours does not. In TLS 1.3 that alert follows the handshake, so it may turn up
/// while a request waits for its answer.
pub(crate) fn needs_mending(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        // An io::Error's source is the source of what it wraps, not that itself.
        let wrapped = current
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        let found = match wrapped {
            Some(wrapped) => wrapped.downcast_ref::<rustls::Error>(),
            None => current.downcast_ref::<rustls::Error>(),
        };
        if let Some(found) = found {
            return is_configuration(found);
        }
        cause = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => current.source(),
        };
    }
    false
}

fn is_configuration(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription, Error};
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented | Error::PeerIncompatible(_) => true,
        Error::AlertReceived(alert) => matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                // What a server says of a certificate whose signature is not its authority's.
                | AlertDescription::DecryptError
                | AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::UnrecognisedName
                | AlertDescription::NoApplicationProtocol
        ),
        _ => false,
    }
}

/// `insecure_skip_verify`: any certificate will do; the handshake's signatures are still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
