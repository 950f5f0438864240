//! Whether each `auth.authenticator` is there, and of the side that names it.

use sluice_config::{Node, Report};

use super::{is_enabled, place};
use crate::settings::extensions::{BasicAuth, Extension};
use crate::settings::network::Auth;
use crate::settings::receivers::Receiver;
use crate::settings::{Exporter, Settings};

/// Who authenticates, or is authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Receiver,
    Exporter,
    /// An exporter of remote write, whose requests can be signed.
    RemoteWrite,
}

/// Every `auth.authenticator` must name an enabled extension of the right side.
pub(super) fn check(settings: &Settings, root: &Node, report: &mut Report) {
    let mut check = |path: &[&str], auth: &Auth, side: Side| {
        let (server, remote_write) = (side == Side::Receiver, side == Side::RemoteWrite);
        let id = &auth.authenticator;
        let text = path.join(".");
        let at = place(root, path);
        match settings.extensions.get(id) {
            Some(Extension::BearerTokenAuth(_)) => {}
            Some(Extension::SigV4Auth(_)) if remote_write => {}
            Some(Extension::SigV4Auth(_)) => report.error(
                at,
                format!("{text}: {id} signs the requests of prometheusremotewrite exporters only"),
            ),
            Some(Extension::BasicAuth(BasicAuth::Server { .. })) if server => {}
            Some(Extension::BasicAuth(BasicAuth::Client(_))) if !server => {}
            Some(Extension::BasicAuth(_)) => {
                let (needs, who) = if server {
                    ("htpasswd", "a receiver")
                } else {
                    ("client_auth", "an exporter")
                };
                report.error(
                    at,
                    format!("{text}: {who} needs a basicauth with {needs}, which {id} does not have"),
                );
            }
            Some(_) => report.error(
                at,
                format!("{text}: {id} does not authenticate; use a basicauth or bearertokenauth"),
            ),
            None => {
                let defined = root.at(&["extensions", &id.to_string()]).is_some();
                let enabled = is_enabled(root, id);
                match (defined, enabled) {
                    // What is wrong with it has been said where it is defined.
                    (true, true) => {}
                    (true, false) => report.error(
                        at,
                        format!("{text}: add {id} to service.extensions, or it will not run"),
                    ),
                    (false, _) => {
                        report.error(
                            at,
                            format!("{text}: the extension {id} is not defined; add it under extensions"),
                        );
                    }
                }
            }
        }
    };
    for (id, receiver) in &settings.receivers {
        let id = id.to_string();
        if let Receiver::RemoteWrite(receiver) = receiver
            && let Some(auth) = &receiver.auth
        {
            check(&["receivers", &id, "auth", "authenticator"], auth, Side::Receiver);
        }
        let Receiver::Otlp(otlp) = receiver else { continue };
        if let Some(auth) = otlp.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref()) {
            check(
                &["receivers", &id, "protocols", "grpc", "auth", "authenticator"],
                auth,
                Side::Receiver,
            );
        }
        if let Some(auth) = otlp.http.as_ref().and_then(|http| http.auth.as_ref()) {
            check(
                &["receivers", &id, "protocols", "http", "auth", "authenticator"],
                auth,
                Side::Receiver,
            );
        }
    }
    for (id, exporter) in &settings.exporters {
        let side = match exporter {
            Exporter::RemoteWrite(_) => Side::RemoteWrite,
            _ => Side::Exporter,
        };
        if let Some(auth) = exporter.auth() {
            check(
                &["exporters", &id.to_string(), "auth", "authenticator"],
                auth,
                side,
            );
        }
    }
}

/// `tenant.from_auth` needs credentials that have a name, on every protocol.
pub(super) fn check_identities(settings: &Settings, root: &Node, report: &mut Report) {
    for (id, receiver) in &settings.receivers {
        let (tenant, listeners) = match receiver {
            Receiver::Otlp(otlp) => {
                let grpc = otlp.grpc.as_ref().map(|grpc| grpc.auth.as_ref());
                let http = otlp.http.as_ref().map(|http| http.auth.as_ref());
                (
                    &otlp.tenant,
                    vec![("protocols.grpc", grpc), ("protocols.http", http)],
                )
            }
            Receiver::RemoteWrite(receiver) => (
                &receiver.tenant,
                vec![("the receiver", Some(receiver.auth.as_ref()))],
            ),
            Receiver::Nop => continue,
        };
        if !tenant.as_ref().is_some_and(|tenant| tenant.from_auth) {
            continue;
        }
        let id = id.to_string();
        let path = ["receivers", &id, "tenant", "from_auth"];
        for (listener, auth) in listeners {
            let Some(auth) = auth else { continue };
            let Some(auth) = auth else {
                let message = format!(
                    "{}: {listener} has no auth, so nobody there has a name; add auth.authenticator to it",
                    path.join(".")
                );
                report.error(place(root, &path), message);
                continue;
            };
            if let Some(Extension::BearerTokenAuth(bearer)) = settings.extensions.get(&auth.authenticator)
                && bearer.named_tokens.is_empty()
            {
                let message = format!(
                    "{}: the tokens of {} belong to nobody; give them names under its named_tokens",
                    path.join("."),
                    auth.authenticator
                );
                report.error(place(root, &path), message);
            }
        }
    }
}
