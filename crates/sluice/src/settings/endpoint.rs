//! Where exporters send: whether an endpoint can be one, and what is likely to be a slip.

use sluice_payload::Signal;

use super::exporters::signal_path;
use super::scope::Scope;

/// The ports of OTLP (specification, "OTLP/gRPC default port", "OTLP/HTTP default port").
const GRPC_PORT: u16 = 4317;
const HTTP_PORT: u16 = 4318;

/// The destination of an exporter as written, if it can be one.
///
/// gRPC: `host:port`, `http://host:port`, `https://host:port`, `dns:///host:port`. HTTP: `http://` or `https://` only.
pub(super) fn check_endpoint(scope: &mut Scope<'_>, key: &str, endpoint: &str, grpc: bool) {
    let example = if grpc {
        "host:4317 or https://host:4317"
    } else {
        "https://host:4318"
    };
    let endpoint = endpoint.trim();
    if endpoint.is_empty() {
        return scope.error(&[key], format!("is empty; write {example}"));
    }
    // First, so that no message shows them.
    if endpoint.contains('@') {
        return scope.error(
            &[key],
            "credentials do not belong in an endpoint; use headers or an auth extension",
        );
    }
    let (scheme, rest) = match endpoint.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", endpoint.strip_prefix("dns:").unwrap_or(endpoint)),
    };
    let scheme_ok = match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => true,
        "dns" | "passthrough" | "" => grpc,
        _ => false,
    };
    if !scheme_ok {
        return scope.error(
            &[key],
            format!("{endpoint:?} is not an endpoint this exporter can reach; write {example}"),
        );
    }
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if grpc && path.len() > 1 {
        scope.warn(
            &[key],
            "the path of a gRPC endpoint has no effect; did you mean the otlphttp exporter?",
        );
    }
    let (host, port) = match authority
        .strip_prefix('[')
        .and_then(|bracketed| bracketed.split_once(']'))
    {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => authority
            .rsplit_once(':')
            .map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains([' ', '\t']) {
        return scope.error(&[key], format!("{endpoint:?} has no host; write {example}"));
    }
    // Placeholders and variables that were never filled in. Letters beyond ASCII are left to the resolver.
    if host.contains(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._:%".contains(c)) {
        let variable = if host.contains('$') {
            "; a variable is written ${env:NAME}"
        } else {
            ""
        };
        return scope.error(
            &[key],
            format!("{host:?} is no name of a host; write the destination's in its place{variable}"),
        );
    }
    let Some(port) = port else { return };
    match (port.parse::<u16>().unwrap_or(0), grpc) {
        (0, _) => scope.error(
            &[key],
            format!("the port {port:?} is not a number from 1 to 65535"),
        ),
        (HTTP_PORT, true) => scope.warn(
            &[key],
            "4318 is where most destinations speak OTLP over HTTP, and this exporter speaks gRPC; write port 4317, or use the otlphttp exporter",
        ),
        (GRPC_PORT, false) => scope.warn(
            &[key],
            "4317 is where most destinations speak OTLP over gRPC, and this exporter speaks HTTP; write port 4318, or use the otlp exporter",
        ),
        _ => {}
    }
}

/// The base URL of `otlphttp` gets the path of each signal; one that ends with it would have it twice.
pub(super) fn warn_of_signal_path(scope: &mut Scope<'_>, endpoint: &str) {
    let written = endpoint.trim().trim_end_matches('/');
    for signal in Signal::ALL {
        let path = signal_path(signal);
        if written.ends_with(path) {
            scope.warn(
                &["endpoint"],
                format!("{path} is appended to this, which ends with it already; remove it here, or write {signal}_endpoint"),
            );
        }
    }
}
