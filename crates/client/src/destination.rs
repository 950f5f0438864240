//! Where requests go.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// Where requests go: scheme, host, port, and the path requests start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Whether the connection is TLS.
    pub tls: bool,
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query, as written; `/` when there is none.
    pub path: String,
    /// What goes into `Host` and `:authority`.
    pub authority: String,
}

/// An endpoint that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {endpoint:?}: {reason}; write it as http://host:port, https://host:port or host:port")]
pub struct InvalidEndpoint {
    /// The endpoint as given.
    pub endpoint: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Destination {
    /// Reads `http://host[:port][/path]`, `https://...`, `dns:///host:port`, or a bare
    /// `host[:port]`, which takes `bare_tls` and `bare_port` (gRPC endpoints are written without a scheme).
    ///
    /// # Errors
    /// When there is no host, the scheme is another one, or the port is not a port.
    pub fn parse(endpoint: &str, bare_tls: bool, bare_port: u16) -> Result<Self, InvalidEndpoint> {
        let invalid = |reason: String| InvalidEndpoint {
            endpoint: endpoint.to_owned(),
            reason,
        };
        let trimmed = endpoint.trim();
        // gRPC's resolver syntax, as Collector files write it.
        let trimmed = trimmed
            .strip_prefix("dns:///")
            .or_else(|| trimmed.strip_prefix("dns:").filter(|rest| !rest.starts_with('/')))
            .or_else(|| trimmed.strip_prefix("passthrough:///"))
            .unwrap_or(trimmed);
        let bare = !trimmed.contains("://");
        let uri: Uri = if bare {
            format!("bare://{trimmed}").parse()
        } else {
            trimmed.parse()
        }
        .map_err(|e: http::uri::InvalidUri| invalid(e.to_string()))?;
        let (tls, default_port) = match uri.scheme() {
            _ if bare => (bare_tls, bare_port),
            Some(scheme) if *scheme == Scheme::HTTP => (false, 80),
            Some(scheme) if *scheme == Scheme::HTTPS => (true, 443),
            scheme => {
                let scheme = scheme.map_or("", Scheme::as_str);
                return Err(invalid(format!("scheme {scheme:?} is neither http nor https")));
            }
        };
        let written = uri
            .authority()
            .ok_or_else(|| invalid("there is no host".to_owned()))?;
        if written.as_str().contains('@') {
            return Err(invalid(
                "credentials do not belong in an endpoint, use an auth extension".to_owned(),
            ));
        }
        let host = written
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        if host.is_empty() {
            return Err(invalid("there is no host".to_owned()));
        }
        let port = match port_text(written) {
            None => default_port,
            Some(text) => text
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid(format!("port {text:?} is not a number from 1 to 65535")))?,
        };
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Ok(Self {
            tls,
            host,
            port,
            path: if path.is_empty() {
                "/".to_owned()
            } else {
                path.to_owned()
            },
            authority: written.as_str().to_owned(),
        })
    }

    /// The scheme's name.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// [`Destination::authority`] as URLs spell it: in lower case, without a port that is the scheme's own. Signatures are over this.
    pub fn normal_authority(&self) -> String {
        let authority = self.authority.to_ascii_lowercase();
        let Some((host, port)) = authority.rsplit_once(':') else {
            return authority;
        };
        let own = if self.tls { 443 } else { 80 };
        match port.parse::<u16>() {
            Ok(port) if port != own => format!("{host}:{port}"),
            Ok(_) => host.to_owned(),
            Err(_) if port.is_empty() => host.to_owned(),
            // Part of an address without a port.
            Err(_) => authority,
        }
    }

    /// The host and port as messages show them.
    pub fn host_and_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// The text after the host's colon, if any.
fn port_text(authority: &Authority) -> Option<&str> {
    authority
        .as_str()
        .strip_prefix(authority.host())?
        .strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: endpoints as people write them.
    /// Guarantees: scheme, host, port, path and authority are what they mean.
    #[test]
    fn endpoints_as_people_write_them() {
        let cases = [
            ("http://a:4318", false, "a", 4318, "/", "a:4318"),
            (
                "https://a.example/otlp/v1?x=1",
                true,
                "a.example",
                443,
                "/otlp/v1?x=1",
                "a.example",
            ),
            ("http://[::1]:4318/", false, "::1", 4318, "/", "[::1]:4318"),
            ("collector:4317", true, "collector", 4317, "/", "collector:4317"),
            ("collector", true, "collector", 4317, "/", "collector"),
            (
                "dns:///collector:4317",
                true,
                "collector",
                4317,
                "/",
                "collector:4317",
            ),
            ("127.0.0.1:4317", true, "127.0.0.1", 4317, "/", "127.0.0.1:4317"),
        ];
        for (endpoint, tls, host, port, path, authority) in cases {
            let read = Destination::parse(endpoint, true, 4317).unwrap();
            let want = Destination {
                tls,
                host: host.into(),
                port,
                path: path.into(),
                authority: authority.into(),
            };
            assert_eq!(read, want, "{endpoint}");
        }
    }

    /// Scenario: authorities with capitals, the scheme's own port, another port, none, of an IPv6 address.
    /// Guarantees: they are as a URL has them.
    #[test]
    fn authorities_as_urls_spell_them() {
        for (endpoint, authority) in [
            ("https://A.Example:443/x", "a.example"),
            ("https://a.example:80", "a.example:80"),
            ("http://a.example:080", "a.example"),
            ("http://a.example", "a.example"),
            ("http://a.example:443", "a.example:443"),
            ("https://[FD00::1]:443", "[fd00::1]"),
            ("https://[FD00::443]", "[fd00::443]"),
        ] {
            let read = Destination::parse(endpoint, false, 80).unwrap();
            assert_eq!(read.normal_authority(), authority, "{endpoint}");
        }
    }

    /// Scenario: endpoints nobody can connect to.
    /// Guarantees: each is refused with its own reason.
    #[test]
    fn endpoints_that_cannot_be_read() {
        for (endpoint, reason) in [
            ("ftp://a", "neither http nor https"),
            ("http://a:0", "port \"0\""),
            ("http://a:x", ""),
            ("", ""),
            ("http://user:secret@a", "credentials"),
        ] {
            let error = Destination::parse(endpoint, false, 80).unwrap_err().to_string();
            assert!(error.contains(reason), "{endpoint}: {error}");
        }
    }
}
