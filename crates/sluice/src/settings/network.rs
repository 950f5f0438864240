//! What listeners and clients share: addresses, TLS, headers, authentication, compression.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sluice_config::Secret;

use super::ComponentId;
use super::scope::Scope;

/// Where to listen: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// A name or address, without the brackets of IPv6; empty means every interface.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

impl ListenAddress {
    /// An address from its parts.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Reads `host:port`, `:port`, `[v6]:port`.
    ///
    /// # Errors
    /// A sentence saying what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("expected host:port, such as \"localhost:4317\" or \"0.0.0.0:4317\"; found {text:?}");
        if text.contains("://") {
            return Err(format!("{}; a listener has no scheme", wrong()));
        }
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']').ok_or_else(wrong)?,
            None if host.contains([':', '/', ' ']) => return Err(wrong()),
            None => host,
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// A TLS version. The withdrawn 1.0 and 1.1 (RFC 8996) are read, and refused or raised by the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.0, withdrawn.
    #[serde(rename = "1.0")]
    V1_0,
    /// TLS 1.1, withdrawn.
    #[serde(rename = "1.1")]
    V1_1,
    /// TLS 1.2.
    #[serde(rename = "1.2")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V1_3,
}

/// A listener's TLS (`tls:`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServerTls {
    /// The certificate chain, PEM.
    pub cert_file: Option<PathBuf>,
    /// The private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The certificate chain itself, instead of a file.
    pub cert_pem: Option<Secret>,
    /// The private key itself, instead of a file.
    pub key_pem: Option<Secret>,
    /// Read for the Collector's sake; a listener trusts clients by `client_ca_file`.
    pub ca_file: Option<PathBuf>,
    /// See `ca_file`.
    pub ca_pem: Option<Secret>,
    /// See `ca_file`.
    pub include_system_ca_certs_pool: bool,
    /// Require a client certificate signed by one of these (mutual TLS).
    pub client_ca_file: Option<PathBuf>,
    /// Read `client_ca_file` again when it changes. Certificates and keys are always watched.
    pub client_ca_file_reload: bool,
    /// How often to look for changed files; absent: our default.
    pub reload_interval: Option<Duration>,
    /// The lowest version to speak; absent: 1.2.
    pub min_version: Option<TlsVersion>,
    /// The highest version to speak; absent: all.
    pub max_version: Option<TlsVersion>,
    /// Read for the Collector's sake; only suites without known weakness exist here.
    pub cipher_suites: Vec<String>,
    /// See `cipher_suites`.
    pub curve_preferences: Vec<String>,
    /// See `cipher_suites`.
    include_insecure_cipher_suites: bool,
    tpm: Option<Tpm>,
}

/// An empty path is what an optional variable leaves behind: it counts as absent.
fn drop_empty_paths<const N: usize>(paths: [&mut Option<PathBuf>; N]) {
    for path in paths {
        if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            *path = None;
        }
    }
}

/// See [`drop_empty_paths`].
fn drop_empty_pems<const N: usize>(pems: [&mut Option<Secret>; N]) {
    for pem in pems {
        if pem.as_ref().is_some_and(|pem| pem.expose().trim().is_empty()) {
            *pem = None;
        }
    }
}

impl ServerTls {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>, at: &[&str]) {
        drop_empty_paths([
            &mut self.cert_file,
            &mut self.key_file,
            &mut self.ca_file,
            &mut self.client_ca_file,
        ]);
        drop_empty_pems([&mut self.cert_pem, &mut self.key_pem, &mut self.ca_pem]);
        let key = |name| [at, &[name]].concat();
        if self.cert_file.is_none() && self.cert_pem.is_none() {
            scope.error(
                at,
                "a listener needs a certificate; set cert_file and key_file, or remove tls",
            );
        } else if self.key_file.is_none() && self.key_pem.is_none() {
            scope.error(at, "the certificate needs its private key; set key_file");
        }
        both(
            scope,
            at,
            ["cert_file", "cert_pem"],
            self.cert_file.is_some() && self.cert_pem.is_some(),
        );
        both(
            scope,
            at,
            ["key_file", "key_pem"],
            self.key_file.is_some() && self.key_pem.is_some(),
        );
        check_versions(scope, at, &mut self.min_version, self.max_version);
        scope.without_effect(&[
            (&key("ca_file"), "clients are verified by client_ca_file"),
            (&key("ca_pem"), "clients are verified by client_ca_file"),
            (
                &key("cipher_suites"),
                "only suites without known weakness are offered",
            ),
            (
                &key("curve_preferences"),
                "only curves without known weakness are offered",
            ),
            (
                &key("include_insecure_cipher_suites"),
                "only suites without known weakness are offered",
            ),
        ]);
        check_tpm(scope, at, self.tpm.as_ref());
    }
}

/// An exporter's TLS (`tls:`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClientTls {
    /// Plain text, where the endpoint has no scheme that says otherwise.
    pub insecure: bool,
    /// TLS that takes any certificate.
    pub insecure_skip_verify: bool,
    /// The roots to trust, PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The roots themselves, instead of a file.
    pub ca_pem: Option<Secret>,
    /// Trust the system's roots beside `ca_file`.
    pub include_system_ca_certs_pool: bool,
    /// Our certificate chain for mutual TLS, PEM.
    pub cert_file: Option<PathBuf>,
    /// Our private key for mutual TLS, PEM.
    pub key_file: Option<PathBuf>,
    /// Our certificate chain itself, instead of a file.
    pub cert_pem: Option<Secret>,
    /// Our private key itself, instead of a file.
    pub key_pem: Option<Secret>,
    /// The name to ask for and verify, instead of the endpoint's host.
    #[serde(alias = "server_name")]
    pub server_name_override: Option<String>,
    /// How often to look for changed files; absent: our default.
    pub reload_interval: Option<Duration>,
    /// The lowest version to speak; absent: 1.2.
    pub min_version: Option<TlsVersion>,
    /// The highest version to speak; absent: all.
    pub max_version: Option<TlsVersion>,
    /// Read for the Collector's sake; only suites without known weakness exist here.
    pub cipher_suites: Vec<String>,
    /// See `cipher_suites`.
    pub curve_preferences: Vec<String>,
    /// See `cipher_suites`.
    include_insecure_cipher_suites: bool,
    tpm: Option<Tpm>,
}

impl ClientTls {
    pub(super) fn check(&mut self, scope: &mut Scope<'_>, at: &[&str]) {
        drop_empty_paths([&mut self.ca_file, &mut self.cert_file, &mut self.key_file]);
        drop_empty_pems([&mut self.ca_pem, &mut self.cert_pem, &mut self.key_pem]);
        self.server_name_override = self.server_name_override.take().filter(|name| !name.is_empty());
        let key = |name| [at, &[name]].concat();
        let cert = self.cert_file.is_some() || self.cert_pem.is_some();
        let private_key = self.key_file.is_some() || self.key_pem.is_some();
        if cert != private_key {
            scope.error(at, "a client certificate and its private key go together; set both cert_file and key_file, or neither");
        }
        both(
            scope,
            at,
            ["ca_file", "ca_pem"],
            self.ca_file.is_some() && self.ca_pem.is_some(),
        );
        both(
            scope,
            at,
            ["cert_file", "cert_pem"],
            self.cert_file.is_some() && self.cert_pem.is_some(),
        );
        both(
            scope,
            at,
            ["key_file", "key_pem"],
            self.key_file.is_some() && self.key_pem.is_some(),
        );
        check_versions(scope, at, &mut self.min_version, self.max_version);
        if self.insecure_skip_verify {
            scope.warn(
                &key("insecure_skip_verify"),
                "any certificate is taken, so that whoever sits in between can read and change the data; set ca_file instead",
            );
        }
        scope.without_effect(&[
            (
                &key("cipher_suites"),
                "only suites without known weakness are offered",
            ),
            (
                &key("curve_preferences"),
                "only curves without known weakness are offered",
            ),
            (
                &key("include_insecure_cipher_suites"),
                "only suites without known weakness are offered",
            ),
        ]);
        check_tpm(scope, at, self.tpm.as_ref());
    }
}

/// `tpm` of TLS: where private keys are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Tpm {
    enabled: bool,
    #[serde(rename = "auth")]
    _auth: Option<IgnoredAny>,
    #[serde(rename = "owner_auth")]
    _owner_auth: Option<IgnoredAny>,
    #[serde(rename = "path")]
    _path: Option<IgnoredAny>,
}

fn check_tpm(scope: &mut Scope<'_>, at: &[&str], tpm: Option<&Tpm>) {
    if tpm.is_some_and(|tpm| tpm.enabled) {
        scope.error(
            &[at, &["tpm"]].concat(),
            "keys in a TPM are not supported; set key_file to a key in PEM",
        );
    }
}

fn both(scope: &mut Scope<'_>, at: &[&str], names: [&str; 2], both_set: bool) {
    if both_set {
        scope.error(
            &[at, &[names[1]]].concat(),
            format!("set either {} or {}, not both", names[0], names[1]),
        );
    }
}

fn check_versions(scope: &mut Scope<'_>, at: &[&str], min: &mut Option<TlsVersion>, max: Option<TlsVersion>) {
    if let Some(version) = min.filter(|version| *version < TlsVersion::V1_2) {
        let name = if version == TlsVersion::V1_0 { "1.0" } else { "1.1" };
        let keys = [at, &["min_version"]].concat();
        scope.warn(
            &keys,
            format!("TLS {name} is withdrawn (RFC 8996) and not spoken; 1.2 is the lowest"),
        );
        *min = Some(TlsVersion::V1_2);
    }
    let keys = [at, &["max_version"]].concat();
    match (*min, max) {
        (_, Some(max)) if max < TlsVersion::V1_2 => {
            scope.error(
                &keys,
                "TLS 1.0 and 1.1 are withdrawn (RFC 8996) and not spoken; use \"1.2\" or \"1.3\"",
            );
        }
        (Some(min), Some(max)) if max < min => scope.error(&keys, "max_version is lower than min_version"),
        _ => {}
    }
}

/// Header names and values, in the order written: a map, or a list of `{name, value}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Headers(pub Vec<(String, Secret)>);

impl Headers {
    /// Adds a header that is not there yet, in whatever case.
    pub(super) fn add_absent(&mut self, name: &str, value: String) {
        if !self.0.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            self.0.push((name.to_owned(), Secret::new(value)));
        }
    }

    /// Refuses names and values that HTTP does not carry.
    pub(super) fn check(&self, scope: &mut Scope<'_>, at: &[&str]) {
        for (name, value) in &self.0 {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            let keys = [at, &[name]].concat();
            if name.is_empty() || !name.bytes().all(token) {
                scope.error(&keys, format!("{name:?} is not a header name (RFC 9110, 5.1)"));
            } else if value
                .expose()
                .bytes()
                .any(|b| b < 0x20 && b != b'\t' || b == 0x7f)
            {
                scope.error(
                    &keys,
                    "the value has a line break or another control character; remove it",
                );
            }
        }
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeadersVisitor;

        #[derive(Deserialize)]
        struct Pair {
            name: String,
            value: Secret,
        }

        impl<'de> Visitor<'de> for HeadersVisitor {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of header names to values")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Headers, E> {
                Ok(Headers::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(header) = map.next_entry()? {
                    headers.push(header);
                }
                Ok(Headers(headers))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(Pair { name, value }) = seq.next_element()? {
                    headers.push((name, value));
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_any(HeadersVisitor)
    }
}

/// `auth:`: which extension authenticates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Auth {
    /// The id of a basicauth or bearertokenauth extension.
    pub authenticator: ComponentId,
    /// Read for the Collector's sake: request parameters passed to the authenticator.
    #[serde(default)]
    pub request_params: Vec<String>,
}

impl<'de> Deserialize<'de> for ComponentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        ComponentId::parse(&text).map_err(de::Error::custom)
    }
}

/// How an exporter compresses its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[serde(alias = "")]
    None,
    /// gzip, which every backend reads.
    #[default]
    Gzip,
    /// zstd: smaller and cheaper, where the destination reads it.
    Zstd,
    /// snappy.
    #[serde(alias = "x-snappy-framed")]
    Snappy,
    /// deflate (zlib format, RFC 1950); HTTP only.
    Deflate,
    /// The Collector's other name for deflate; HTTP only.
    Zlib,
    /// lz4; HTTP only.
    Lz4,
}

/// `compression_params:`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CompressionParams {
    /// The level; absent or 0: the codec's default here.
    pub level: Option<i32>,
}

/// `passthrough:`, our own key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passthrough {
    /// Everything is compressed here.
    #[default]
    Never,
    /// Frames are passed through once the destination has shown that it reads all of a body's.
    Probe,
    /// Frames are passed through: the operator knows that the destination reads them all.
    Always,
}

/// What can be laid end to end.
pub(super) fn check_passthrough(scope: &mut Scope<'_>, compression: Compression, passthrough: Passthrough) {
    if passthrough != Passthrough::Never && !matches!(compression, Compression::Gzip | Compression::Zstd) {
        scope.warn(
            &["passthrough"],
            "has no effect here: only zstd and gzip bodies can be laid end to end",
        );
    }
}

/// The levels the codecs take.
pub(super) fn check_level(scope: &mut Scope<'_>, compression: Compression, params: CompressionParams) {
    let Some(level) = params.level.filter(|level| *level != 0) else {
        return;
    };
    let range = match compression {
        Compression::Gzip | Compression::Deflate | Compression::Zlib => -1..=9,
        Compression::Zstd => 1..=22,
        Compression::None | Compression::Snappy | Compression::Lz4 => {
            return scope.warn(
                &["compression_params", "level"],
                "has no effect here: this compression has no levels",
            );
        }
    };
    if !range.contains(&level) {
        let (low, high) = (range.start(), range.end());
        scope.error(
            &["compression_params", "level"],
            format!("the level must be from {low} to {high}; found {level}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: addresses to listen on as Collector files write them, and mistakes.
    /// Guarantees: host and port are told apart, IPv6 loses its brackets and prints with them.
    #[test]
    fn listen_addresses_are_host_and_port() {
        let cases = [
            ("localhost:4317", "localhost", 4317),
            ("0.0.0.0:4318", "0.0.0.0", 4318),
            (":8888", "", 8888),
            ("[::1]:0", "::1", 0),
        ];
        for (text, host, port) in cases {
            let address = ListenAddress::parse(text).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
        for text in [
            "",
            "localhost",
            "localhost:x",
            "::1:4317",
            "http://localhost:4317",
            "localhost:99999",
            "[::1:4317",
        ] {
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
    }
}
