//! Extensions: authentication and storage; health and debug pages are in `pages`.

mod pages;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Node, Report, Secret};

use super::htpasswd::Htpasswd;
use super::network::ListenAddress;
use super::scope::Scope;

pub use pages::{HealthBodies, HealthCheck, Zpages};
pub(super) use pages::{health_check, zpages};

/// An extension's settings.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a handful are made, once")]
pub enum Extension {
    /// `health_check`: is the gateway up?
    HealthCheck(HealthCheck),
    /// `zpages`: pages for people.
    Zpages(Zpages),
    /// `pprof`: read, and without effect: it profiles Go.
    Pprof,
    /// `memory_ballast`: left unread, and without effect: it was for Go's garbage collector.
    MemoryBallast,
    /// `basicauth`: user and password.
    BasicAuth(BasicAuth),
    /// `bearertokenauth`: a token.
    BearerTokenAuth(BearerTokenAuth),
    /// `sigv4auth`: signatures for AWS.
    SigV4Auth(SigV4Auth),
    /// `file_storage`: queues on disk.
    FileStorage(FileStorage),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pprof {
    endpoint: Option<ListenAddress>,
    block_profile_fraction: Option<i64>,
    mutex_profile_fraction: Option<i64>,
    save_to_file: Option<String>,
    dialer: Option<IgnoredAny>,
}

/// Reads a `pprof` extension.
pub(super) fn pprof(node: &Node, path: &str, report: &mut Report) -> Option<()> {
    let mut scope = Scope { node, path, report };
    let _: Pprof = scope.decode()?;
    scope.warn(&[], "has no effect here: it profiles Go programs");
    Some(())
}

/// Passes over a `memory_ballast` extension, which old Collectors had.
pub(super) fn memory_ballast(node: &Node, path: &str, report: &mut Report) {
    let mut scope = Scope { node, path, report };
    scope.warn(
        &[],
        "has no effect here: there is no garbage collector; remove it",
    );
}

/// The `basicauth` extension: a list of users for receivers, or one user for exporters.
#[derive(Clone, Debug, PartialEq)]
pub enum BasicAuth {
    /// For receivers: who may come in.
    Server {
        /// The users of `htpasswd.inline`, which win over those of the file.
        inline: Htpasswd,
        /// `htpasswd.file`: more users; read it at start.
        file: Option<PathBuf>,
    },
    /// For exporters: who we are.
    Client(BasicClient),
}

/// `client_auth` of `basicauth`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct BasicClient {
    /// The user.
    pub username: String,
    /// The password.
    pub password: Secret,
    /// A file with the user, instead.
    pub username_file: Option<PathBuf>,
    /// A file with the password, instead.
    pub password_file: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawBasicAuth {
    htpasswd: Option<RawHtpasswd>,
    client_auth: Option<BasicClient>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawHtpasswd {
    file: Option<PathBuf>,
    inline: Option<Secret>,
}

/// Reads a `basicauth` extension.
pub(super) fn basicauth(node: &Node, path: &str, report: &mut Report) -> Option<BasicAuth> {
    let mut scope = Scope { node, path, report };
    let raw: RawBasicAuth = scope.decode()?;
    match (raw.htpasswd, raw.client_auth) {
        (Some(_), Some(_)) => {
            scope.error(
                &["client_auth"],
                "an authenticator is for receivers (htpasswd) or for exporters (client_auth); make two",
            );
            None
        }
        (None, None) => {
            scope.error(&[], "set htpasswd (for receivers) or client_auth (for exporters)");
            None
        }
        (Some(htpasswd), None) => {
            let file = htpasswd.file.filter(|file| !file.as_os_str().is_empty());
            let text = htpasswd.inline.unwrap_or_default();
            if file.is_none() && text.expose().trim().is_empty() {
                scope.error(&["htpasswd"], "names no users; set inline or file");
            }
            match Htpasswd::parse(text.expose()) {
                Ok(inline) => Some(BasicAuth::Server { inline, file }),
                Err(message) => {
                    scope.error(&["htpasswd", "inline"], message);
                    None
                }
            }
        }
        (None, Some(client)) => {
            if client.username.is_empty() && client.username_file.is_none() {
                scope.error(&["client_auth", "username"], "is required");
            }
            Some(BasicAuth::Client(client))
        }
    }
}

/// The `bearertokenauth` extension, for receivers and for exporters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct BearerTokenAuth {
    /// What stands before the token; absent: `Bearer`.
    pub scheme: String,
    /// The token to send or to require.
    pub token: Option<Secret>,
    /// Tokens to require, any of them; exporters send the first.
    pub tokens: Vec<Secret>,
    /// Tokens to require, by the name of who has them, which a receiver's `tenant.from_auth` goes by. Our own key.
    pub named_tokens: BTreeMap<String, Secret>,
    /// A file with one token a line, instead: receivers read it at start, exporters send its first and look for
    /// changes.
    pub filename: Option<PathBuf>,
    /// The header that carries the token; absent: `Authorization`.
    pub header: String,
}

impl Default for BearerTokenAuth {
    fn default() -> Self {
        Self {
            scheme: "Bearer".to_owned(),
            token: None,
            tokens: Vec::new(),
            named_tokens: BTreeMap::new(),
            filename: None,
            header: "Authorization".to_owned(),
        }
    }
}

impl BearerTokenAuth {
    /// The tokens written in the configuration; empty when they are in `filename`.
    pub fn all_tokens(&self) -> impl Iterator<Item = &Secret> {
        self.token.iter().chain(&self.tokens)
    }
}

/// Reads a `bearertokenauth` extension.
pub(super) fn bearertokenauth(node: &Node, path: &str, report: &mut Report) -> Option<BearerTokenAuth> {
    let mut scope = Scope { node, path, report };
    let mut auth: BearerTokenAuth = scope.decode()?;
    auth.filename = auth.filename.filter(|file| !file.as_os_str().is_empty());
    let has_text = auth.all_tokens().any(|token| !token.expose().trim().is_empty());
    if !has_text && auth.named_tokens.is_empty() && auth.filename.is_none() {
        scope.error(&[], "needs a token; set token, tokens or filename");
    }
    for (name, token) in &auth.named_tokens {
        if token.expose().trim().is_empty() {
            // Left out in silence, a variable that is not set would lock a tenant out.
            scope.error(&["named_tokens", name], "is empty; set it, or remove the name");
        }
    }
    if auth.token.is_some() && !auth.tokens.is_empty() {
        scope.error(&["tokens"], "set either token or tokens, not both");
    }
    if has_text && auth.filename.is_some() {
        scope.warn(&["filename"], "wins over token and tokens");
    }
    if auth
        .all_tokens()
        .chain(auth.named_tokens.values())
        .any(|token| token.expose().bytes().any(|b| !(0x20..0x7f).contains(&b)))
    {
        scope.error(
            &[],
            "a token has a line break or another character that headers do not carry",
        );
    }
    Some(auth)
}

/// The `sigv4auth` extension, for `prometheusremotewrite` exporters. Credentials come from the environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SigV4Auth {
    /// The region of the service; absent: `AWS_REGION`, else `AWS_DEFAULT_REGION`.
    pub region: String,
    /// The service, as signatures name it; absent: `aps`, Amazon's Prometheus.
    pub service: String,
    assume_role: Option<IgnoredAny>,
}

impl Default for SigV4Auth {
    fn default() -> Self {
        Self {
            region: String::new(),
            service: "aps".to_owned(),
            assume_role: None,
        }
    }
}

/// Reads a `sigv4auth` extension.
pub(super) fn sigv4auth(node: &Node, path: &str, report: &mut Report) -> Option<SigV4Auth> {
    let mut scope = Scope { node, path, report };
    let auth: SigV4Auth = scope.decode()?;
    if scope.has(&["assume_role"]) {
        scope.error(
            &["assume_role"],
            "no other role can be assumed; remove it and give sluice the role itself: AWS_ROLE_ARN with a web identity, or the \
             container's or the instance's role",
        );
    }
    if auth.service.is_empty() {
        scope.error(&["service"], "is empty; remove it to use aps");
    }
    Some(auth)
}

/// The `file_storage` extension: where queues are kept on disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct FileStorage {
    /// The directory; each pipeline has one of its own in it.
    pub directory: PathBuf,
    /// How long to wait for another process to let go of it; zero: until it does.
    pub timeout: Duration,
    /// Make the directory if it is not there.
    pub create_directory: bool,
    /// Whether clients are told that data is persisted only when it is synced; absent: yes.
    pub fsync: Option<bool>,
    /// Sync after this long instead, and tell clients when it is written. Our own key.
    pub fsync_interval: Option<Duration>,
    directory_permissions: Option<String>,
    compaction: Option<IgnoredAny>,
    recreate: Option<bool>,
    max_size: u64,
}

impl Default for FileStorage {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("/var/lib/sluice"),
            timeout: Duration::from_secs(1),
            create_directory: true,
            fsync: None,
            fsync_interval: None,
            directory_permissions: None,
            compaction: None,
            recreate: None,
            max_size: 0,
        }
    }
}

/// Reads a `file_storage` extension.
pub(super) fn file_storage(node: &Node, path: &str, report: &mut Report) -> Option<FileStorage> {
    let mut scope = Scope { node, path, report };
    let storage: FileStorage = scope.decode()?;
    if storage.directory.as_os_str().is_empty() {
        scope.error(&["directory"], "is empty; name a directory on a local disk");
    }
    match (storage.fsync, storage.fsync_interval) {
        (Some(true), Some(_)) => scope.error(
            &["fsync_interval"],
            "is instead of fsync: true; remove one of the two",
        ),
        (Some(false), None) => scope.warn(
            &["fsync"],
            "without fsync, a crash of the machine loses what was acknowledged; remove this line to sync before each \
             acknowledgement, many requests at once",
        ),
        (_, Some(interval)) if interval.is_zero() => scope.error(
            &["fsync_interval"],
            "must be longer than 0; remove it to sync before each acknowledgement",
        ),
        _ => {}
    }
    if storage.max_size > 0 {
        scope.error(
            &["max_size"],
            "files are not limited, queues are: set sending_queue.queue_size with sizer: bytes on each exporter instead, or remove it to \
             use what is free",
        );
    }
    scope.without_effect(&[
        (
            &["compaction"],
            "space is given back by itself, a segment at a time",
        ),
        (&["recreate"], "damage never keeps the gateway from starting"),
        (
            &["directory_permissions"],
            "directories are made as the umask says",
        ),
    ]);
    Some(storage)
}
