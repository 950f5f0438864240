//! What makes a request's head wrong for every service, beyond what hyper refuses by itself.

use http::header::{HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Version};

/// What is wrong with a request's head. Whoever sent it may mean another end of the request than we do: it is
/// answered, and over HTTP/1.1 its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// Not exactly one valid `Host` in HTTP/1.1, neither that nor `:authority` in HTTP/2 (RFC 9112, 3.2;
    /// RFC 9113, 8.3.1).
    #[error(
        "a request names its host: exactly one Host header (HTTP/1.1) or :authority (HTTP/2), a name or address and perhaps a port"
    )]
    Host,
    /// A transfer coding that is not read here: another one than `chunked`, or `chunked` twice (RFC 9112, 6.1).
    #[error("Transfer-Encoding: the only transfer coding that is read is chunked, once")]
    TransferCoding,
}

/// Checks a request's head.
///
/// # Errors
/// [`HeadFault`].
pub fn check_head(head: &Parts) -> Result<(), HeadFault> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let authority = head
        .uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let named = match host {
        Some(host) => is_host(host.as_bytes()),
        None => match head.version {
            Version::HTTP_11 => false,
            Version::HTTP_2 => authority.is_some(),
            _ => true,
        },
    };
    if !named || another.is_some() || !authority.is_none_or(is_host) {
        return Err(HeadFault::Host);
    }
    // HTTP/2 has no transfer codings, and h2 refuses the header.
    let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|first| !chunked(first)) || codings.next().is_some() {
        return Err(HeadFault::TransferCoding);
    }
    Ok(())
}

/// `uri-host [ ":" port ]` of RFC 9110, 7.2; empty for a target without an authority.
fn is_host(value: &[u8]) -> bool {
    let (name_is_right, rest) = match value {
        [b'[', inside @ ..] => match inside.iter().position(|&byte| byte == b']') {
            Some(end) => (
                inside[..end].iter().all(|&byte| in_address(byte)),
                &inside[end + 1..],
            ),
            None => (false, &[][..]),
        },
        _ => {
            let end = value.iter().position(|&byte| byte == b':').unwrap_or(value.len());
            (value[..end].iter().all(|&byte| in_name(byte)), &value[end..])
        }
    };
    let port_is_right = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    name_is_right && port_is_right
}

/// `reg-name` and `IPv4address` of RFC 3986, 3.2.2.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

/// `IP-literal` between its brackets, a zone of RFC 6874 included.
fn in_address(byte: u8) -> bool {
    in_name(byte) || byte == b':'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, target: &str, headers: &[(&str, &str)]) -> Result<(), HeadFault> {
        let mut request = http::Request::builder().version(version).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check_head(&request.body(()).unwrap().into_parts().0)
    }

    /// Scenario: hosts as RFC 3986 has them, and such as it does not.
    /// Guarantees: the former are served, the latter are faults.
    #[test]
    fn hosts() {
        for host in [
            "",
            "a",
            "a:4318",
            "a:",
            "a.example.",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:4318",
            "[fe80::1%25eth0]:1",
            "my_host",
            "b%C3%BCro",
            "xn--bcher-kva.example",
        ] {
            assert_eq!(check(Version::HTTP_11, "/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "a b", "a/b", "user@a", "a:b", "a:1:2", "::1", "[::1", "[::1]x", "[::1]:x", "a?b", "a#b", "a\\b",
            "\"a\"", "a, b", "<a>",
        ] {
            let wrong = check(Version::HTTP_11, "/", &[("host", host)]);
            assert_eq!(wrong, Err(HeadFault::Host), "{host}");
        }
    }

    /// Scenario: no host, two hosts, an authority instead of a host, in each version.
    /// Guarantees: HTTP/1.1 has exactly one `Host`, HTTP/2 an authority or a `Host`, HTTP/1.0 may have neither.
    #[test]
    fn one_host() {
        let (one, two) = ([("host", "a")], [("host", "a"), ("host", "a")]);
        for (version, target, headers, right) in [
            (Version::HTTP_10, "/", &[][..], true),
            (Version::HTTP_10, "/", &two, false),
            (Version::HTTP_11, "/", &[], false),
            (Version::HTTP_11, "/", &one, true),
            (Version::HTTP_11, "/", &two, false),
            (Version::HTTP_11, "http://a/", &[], false),
            (Version::HTTP_11, "http://a/", &one, true),
            (Version::HTTP_2, "/", &[], false),
            (Version::HTTP_2, "/", &one, true),
            (Version::HTTP_2, "http://a/", &[], true),
            (Version::HTTP_2, "http://u@a/", &[], false),
            (Version::HTTP_2, "http://a/", &two, false),
        ] {
            let found = check(version, target, headers);
            assert_eq!(found.is_ok(), right, "{version:?} {target} {headers:?}");
        }
    }

    /// Scenario: transfer codings, in one header and in several.
    /// Guarantees: `chunked`, once, in any case, is the only one.
    #[test]
    fn transfer_codings() {
        let check = |codings: &[&str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(codings.iter().map(|coding| ("transfer-encoding", *coding)));
            check(Version::HTTP_11, "/", &headers)
        };
        for right in [&[][..], &["chunked"], &["Chunked"]] {
            assert_eq!(check(right), Ok(()), "{right:?}");
        }
        for wrong in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["chunked", "chunked"],
            &["chunked, chunked"],
            &["identity"],
            &[""],
        ] {
            assert_eq!(check(wrong), Err(HeadFault::TransferCoding), "{wrong:?}");
        }
    }
}
