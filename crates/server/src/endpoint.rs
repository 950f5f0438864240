//! Binding listeners.

use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections the kernel queues before they are accepted: a burst of reconnecting clients fits.
const BACKLOG: i32 = 1024;

/// Linux: "address family not supported", what a host without IPv6 answers.
const EAFNOSUPPORT: i32 = 97;

/// A listener that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {endpoint}: {cause}{hint}")]
pub struct BindError {
    endpoint: String,
    cause: std::io::Error,
    hint: &'static str,
}

impl BindError {
    fn new(endpoint: &str, cause: std::io::Error) -> Self {
        let hint = match cause.kind() {
            std::io::ErrorKind::AddrInUse => {
                "; another process listens there: stop it, or choose another endpoint"
            }
            std::io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
            std::io::ErrorKind::AddrNotAvailable => "; the address belongs to no interface of this host",
            _ => "",
        };
        Self {
            endpoint: endpoint.to_owned(),
            cause,
            hint,
        }
    }
}

/// Binds `endpoint` (`host:port`, `:port` for all interfaces). Of several addresses, IPv4 comes
/// first, as Go does.
///
/// # Errors
/// [`BindError`] names the endpoint and what to do.
pub async fn bind(endpoint: &str) -> Result<TcpListener, BindError> {
    let fail = |cause| BindError::new(endpoint, cause);
    let target = match endpoint.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => endpoint.to_owned(),
    };
    let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host(&target).await.map_err(fail)?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if endpoint.starts_with(':') {
        // A host without IPv6 still has all interfaces.
        addresses.extend(
            addresses
                .first()
                .map(|a| SocketAddr::from(([0, 0, 0, 0], a.port()))),
        );
    }
    let mut last = std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, "no address");
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            // Only an address family that this host lacks is a reason to try the next one: a taken
            // port must not quietly become the same port of another address.
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => last = error,
            Err(error) if error.raw_os_error() == Some(EAFNOSUPPORT) => last = error,
            Err(error) => return Err(fail(error)),
        }
    }
    Err(fail(last))
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the port of 127.0.0.1 is taken; `localhost` also has ::1, where it is free.
    /// Guarantees: the start fails and says so, instead of listening where nobody sends.
    #[tokio::test]
    async fn a_taken_port_is_an_error() {
        let first = bind("localhost:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let error = bind(&format!("localhost:{port}")).await.unwrap_err();
        assert!(
            error.to_string().contains("another process listens there"),
            "{error}"
        );
        bind(":0").await.unwrap();
        assert!(
            bind("192.0.2.1:0")
                .await
                .unwrap_err()
                .to_string()
                .contains("no interface")
        );
    }
}
