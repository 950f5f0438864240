//! Binding listeners.

use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections the kernel queues before they are accepted: a burst of reconnecting clients fits.
const BACKLOG: i32 = 1024;

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
        Self { endpoint: endpoint.to_owned(), cause, hint }
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
        addresses.extend(addresses.first().map(|a| SocketAddr::from(([0, 0, 0, 0], a.port()))));
    }
    let mut last = std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, "no address");
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
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
