//! Exporter settings to exporters.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use sluice_client as client;
use sluice_journal::{Disk, File, Filesystem, OpenMode};
use sluice_otlp::exporter::{
    self as otlp, DebugExporter, DebugExporterOptions, FileExporter, FileExporterOptions,
    GrpcExporterOptions, HttpExporterOptions,
};
use sluice_payload::{Signal, Tenants};
use sluice_pipeline::{Batch, Export, Exporter, RetrySettings, Verdict};
use sluice_telemetry::Registry;

use super::endpoints;
use crate::settings::{self, ComponentId, Extension, Settings};

pub(super) fn build(
    id: &ComponentId,
    exporter: &settings::Exporter,
    settings: &Settings,
    egress: &client::EgressPool,
    #[cfg_attr(not(feature = "remote-write"), expect(unused_variables))] tenants: &Tenants,
    registry: &Registry,
) -> Result<Arc<dyn Exporter>, String> {
    match exporter {
        settings::Exporter::OtlpGrpc(grpc) => {
            let all = grpc.by_endpoint();
            let all = all.iter().map(|one| grpc_options(one, settings, egress));
            let all = all.collect::<Result<_, _>>()?;
            endpoints::over(
                id,
                all,
                grpc.balance,
                grpc.routing_key,
                grpc.resolve_interval,
                registry,
            )
        }
        settings::Exporter::OtlpHttp(http) => {
            let all = http.by_endpoint();
            let all = all.iter().map(|one| http_options(one, settings, egress));
            let all = all.collect::<Result<_, _>>()?;
            endpoints::over(
                id,
                all,
                http.balance,
                http.routing_key,
                http.resolve_interval,
                registry,
            )
        }
        #[cfg(feature = "remote-write")]
        settings::Exporter::RemoteWrite(exporter) => {
            super::remote_write::exporter(&id.to_string(), exporter, settings, egress, tenants, registry)
        }
        // The catalogue has no such component then.
        #[cfg(not(feature = "remote-write"))]
        settings::Exporter::RemoteWrite(_) => {
            Err(format!("{id}: build sluice with the feature remote-write"))
        }
        // It is no exporter of batches: see `parquet.rs` beside this.
        settings::Exporter::Parquet(_) => Err(format!("{id}: build sluice with the feature parquet")),
        settings::Exporter::File(file) => Ok(Arc::new(open_file(file)?)),
        settings::Exporter::Debug(debug) => Ok(Arc::new(open_debug(debug)?)),
        settings::Exporter::Nop => Ok(Arc::new(Nop)),
    }
}

fn grpc_options(
    grpc: &settings::OtlpGrpcExporter,
    settings: &Settings,
    egress: &client::EgressPool,
) -> Result<GrpcExporterOptions, String> {
    Ok(GrpcExporterOptions {
        endpoint: grpc.endpoint.clone(),
        tls: client_tls(&grpc.tls),
        headers: headers(&grpc.headers, grpc.authority.as_deref()),
        auth: credentials(grpc.auth.as_ref(), settings)?,
        compression: compression(grpc.compression, true),
        compression_level: level(grpc.compression_params),
        pass_through: pass_through(grpc.passthrough),
        egress: egress.clone(),
        timeout: timeout(grpc.timeout),
        http2: http2(grpc.keepalive.as_ref(), grpc.connections),
        ..Default::default()
    })
}

fn http_options(
    http: &settings::OtlpHttpExporter,
    settings: &Settings,
    egress: &client::EgressPool,
) -> Result<HttpExporterOptions, String> {
    let mut http1 = client::Http1Settings {
        idle_timeout: http.idle_conn_timeout,
        ..Default::default()
    };
    if let Some(most) = http
        .max_conns_per_host
        .or(http.connections)
        .filter(|most| *most > 0)
    {
        http1.max_connections = most;
    }
    if http.disable_keep_alives {
        http1.max_idle_connections = 0;
    }
    Ok(HttpExporterOptions {
        endpoint: http.endpoint.clone(),
        metrics_endpoint: http.url(Signal::Metrics),
        logs_endpoint: http.url(Signal::Logs),
        traces_endpoint: http.url(Signal::Traces),
        profiles_endpoint: http.url(Signal::Profiles),
        tls: client_tls(&http.tls),
        headers: headers(&http.headers, None),
        auth: credentials(http.auth.as_ref(), settings)?,
        compression: compression(http.compression, false),
        compression_level: level(http.compression_params),
        pass_through: pass_through(http.passthrough),
        egress: egress.clone(),
        encoding: match http.encoding {
            settings::BodyEncoding::Proto => otlp::BodyEncoding::Protobuf,
            settings::BodyEncoding::Json => otlp::BodyEncoding::Json,
        },
        protocol: match http.protocol {
            Some(settings::HttpProtocol::H2) => client::Protocol::Http2,
            Some(settings::HttpProtocol::Http1) | None => client::Protocol::Http1,
        },
        timeout: timeout(http.timeout),
        http1,
        http2: http2_of_http(http),
        ..Default::default()
    })
}

fn open_file(file: &settings::FileExporter) -> Result<FileExporter, String> {
    let options = FileExporterOptions {
        path: file.path.clone(),
        format: match file.format {
            settings::FileFormat::Json => otlp::FileFormat::Json,
            settings::FileFormat::Proto => otlp::FileFormat::Proto,
        },
        zstd: file.compression == settings::FileCompression::Zstd,
        rotation: file.rotation.map(|rotation| otlp::Rotation {
            // lumberjack's megabytes, and so the Collector's, are of 2^20 bytes.
            max_bytes: rotation.max_megabytes.saturating_mul(1 << 20),
            max_days: rotation.max_days,
            max_backups: rotation.max_backups,
        }),
        append: file.append,
        create_directory: file.create_directory,
    };
    FileExporter::open(options).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "; make the directory, or set create_directory: true",
            _ => "",
        };
        not_opened(&file.path.to_string_lossy(), &error) + remedy
    })
}

fn not_opened(path: &str, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; allow this user to write there, or choose another path",
        std::io::ErrorKind::NotConnected => "; start its reader first, or choose another path",
        _ => "",
    };
    format!("cannot write {path}: {error}{remedy}")
}

pub(super) fn open_debug(debug: &settings::DebugExporter) -> Result<DebugExporter, String> {
    let options = DebugExporterOptions {
        verbosity: match debug.verbosity {
            settings::Verbosity::Basic => otlp::Verbosity::Basic,
            settings::Verbosity::Normal => otlp::Verbosity::Normal,
            settings::Verbosity::Detailed => otlp::Verbosity::Detailed,
        },
        sampling_initial: debug.sampling_initial,
        sampling_thereafter: debug.sampling_thereafter,
    };
    // Our own log goes to stderr.
    let stderr = ["stderr".to_owned()];
    let paths = if debug.use_internal_logger {
        &stderr[..]
    } else {
        &debug.output_paths[..]
    };
    let mut outputs: Vec<Box<dyn Write + Send>> = Vec::new();
    for path in paths {
        outputs.push(match path.as_str() {
            "stdout" => Box::new(std::io::stdout()),
            "stderr" => Box::new(std::io::stderr()),
            path => {
                // Opening a pipe that nobody reads would wait for a reader.
                let file = Disk.open(path.as_ref(), OpenMode::Append);
                Box::new(Appended(file.map_err(|error| {
                    format!("output_paths: {}", not_opened(path, &error))
                })?))
            }
        });
    }
    Ok(DebugExporter::new(options, Box::new(Outputs(outputs))))
}

struct Appended(Box<dyn File>);

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.append(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything written goes to each of them.
struct Outputs(Vec<Box<dyn Write + Send>>);

impl Write for Outputs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.iter_mut().try_for_each(|output| output.write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.iter_mut().try_for_each(|output| output.flush())
    }
}

/// Takes everything and keeps nothing, as the configuration asks.
struct Nop;

impl Exporter for Nop {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        Box::pin(async {
            Verdict::Delivered {
                rejected: 0,
                message: None,
            }
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

pub(super) fn retry(retry: &settings::Retry) -> RetrySettings {
    RetrySettings {
        enabled: retry.enabled,
        initial_interval: retry.initial_interval,
        randomization_factor: retry.randomization_factor,
        multiplier: retry.multiplier,
        max_interval: retry.max_interval,
        max_elapsed_time: retry.max_elapsed_time,
    }
}

/// 0 means "no time-out" to the Collector; an export that never ends would hold its place for ever.
pub(super) fn timeout(configured: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(600);
    if configured.is_zero() { LONGEST } else { configured }
}

fn level(params: settings::CompressionParams) -> Option<i32> {
    params.level.filter(|level| *level != 0)
}

fn pass_through(passthrough: settings::Passthrough) -> otlp::PassThroughMode {
    match passthrough {
        settings::Passthrough::Never => otlp::PassThroughMode::Never,
        settings::Passthrough::Probe => otlp::PassThroughMode::Probe,
        settings::Passthrough::Always => otlp::PassThroughMode::Always,
    }
}

fn compression(compression: settings::Compression, grpc: bool) -> client::Compression {
    match compression {
        settings::Compression::None => client::Compression::None,
        settings::Compression::Gzip => client::Compression::Gzip,
        settings::Compression::Zstd => client::Compression::Zstd,
        settings::Compression::Snappy if grpc => client::Compression::SnappyFramed,
        settings::Compression::Snappy => client::Compression::Snappy,
        settings::Compression::Deflate | settings::Compression::Zlib => client::Compression::Deflate,
        settings::Compression::Lz4 => client::Compression::Lz4,
    }
}

pub(super) fn headers(headers: &settings::Headers, authority: Option<&str>) -> Vec<(String, String)> {
    let own = headers
        .0
        .iter()
        .map(|(name, value)| (name.clone(), value.expose().to_owned()));
    own.chain(authority.map(|authority| (":authority".to_owned(), authority.to_owned())))
        .collect()
}

fn http2_of_http(http: &settings::OtlpHttpExporter) -> client::Http2Settings {
    let given = |time: Option<Duration>| time.filter(|time| !time.is_zero());
    let defaults = client::Http2Settings::default();
    client::Http2Settings {
        connections: http.connections.unwrap_or(defaults.connections).max(1),
        keepalive_interval: given(http.http2_read_idle_timeout).or(defaults.keepalive_interval),
        keepalive_timeout: given(http.http2_ping_timeout).unwrap_or(defaults.keepalive_timeout),
        ..defaults
    }
}

fn http2(keepalive: Option<&settings::ClientKeepalive>, connections: Option<usize>) -> client::Http2Settings {
    let mut http2 = client::Http2Settings::default();
    if let Some(keepalive) = keepalive {
        http2.keepalive_interval = Some(keepalive.time).filter(|time| !time.is_zero());
        if !keepalive.timeout.is_zero() {
            http2.keepalive_timeout = keepalive.timeout;
        }
        http2.keepalive_while_idle = keepalive.permit_without_stream;
    }
    http2.connections = connections.unwrap_or(http2.connections).max(1);
    http2
}

pub(super) fn client_tls(tls: &settings::ClientTls) -> client::ClientTls {
    let pem = |file: &Option<std::path::PathBuf>, text: &Option<sluice_config::Secret>| match (file, text) {
        (Some(file), _) => Some(client::Pem::File(file.clone())),
        (None, Some(text)) => Some(client::Pem::Text(text.expose().to_owned())),
        (None, None) => None,
    };
    let version = |version: settings::TlsVersion| match version {
        settings::TlsVersion::V1_3 => client::TlsVersion::V1_3,
        _ => client::TlsVersion::V1_2,
    };
    client::ClientTls {
        insecure: tls.insecure,
        insecure_skip_verify: tls.insecure_skip_verify,
        ca: pem(&tls.ca_file, &tls.ca_pem),
        include_system_ca_certs_pool: tls.include_system_ca_certs_pool,
        cert: pem(&tls.cert_file, &tls.cert_pem),
        key: pem(&tls.key_file, &tls.key_pem),
        server_name_override: tls.server_name_override.clone(),
        min_version: tls.min_version.map_or(client::TlsVersion::V1_2, version),
        max_version: tls.max_version.map(version),
    }
}

pub(super) fn credentials(
    auth: Option<&settings::Auth>,
    settings: &Settings,
) -> Result<client::Auth, String> {
    let Some(auth) = auth else {
        return Ok(client::Auth::None);
    };
    match settings.extensions.get(&auth.authenticator) {
        Some(Extension::BasicAuth(settings::BasicAuth::Client(user))) => {
            let value = |text: &str, file: &Option<std::path::PathBuf>| match file {
                Some(file) => std::fs::read_to_string(file)
                    .map(|text| text.trim().to_owned())
                    .map_err(|error| format!("cannot read {}: {error}", file.display())),
                None => Ok(text.to_owned()),
            };
            Ok(client::Auth::Basic {
                username: value(&user.username, &user.username_file)?,
                password: value(user.password.expose(), &user.password_file)?,
            })
        }
        Some(Extension::BearerTokenAuth(bearer)) => {
            if let Some(file) = &bearer.filename {
                return Ok(client::Auth::BearerFile {
                    scheme: bearer.scheme.clone(),
                    file: file.clone(),
                });
            }
            // An empty one is a variable that is not set, and no token.
            let first = bearer
                .all_tokens()
                .map(|token| token.expose().trim())
                .find(|token| !token.is_empty());
            match first {
                Some(token) => Ok(client::Auth::Bearer {
                    scheme: bearer.scheme.clone(),
                    token: token.to_owned(),
                }),
                None => Err(format!("{}: there is no token to send", auth.authenticator)),
            }
        }
        // It makes a header for each request, which is not one of these.
        Some(Extension::SigV4Auth(_)) => Ok(client::Auth::None),
        _ => Err(format!(
            "auth.authenticator: {} cannot authenticate requests",
            auth.authenticator
        )),
    }
}
