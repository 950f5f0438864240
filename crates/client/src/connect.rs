//! One new connection: DNS, TCP, TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::error::{Addresses, chain};
use crate::io::Io;
use crate::resolve::Rotation;
use crate::tls::{self, TlsError, TlsSource};
use crate::{ClientTls, Destination, Resolve, SendError, SystemResolver};

/// How connections are made and how long they live.
#[derive(Clone)]
pub struct ConnectSettings {
    /// DNS, TCP and TLS of one connection together.
    pub connect_timeout: Duration,
    /// A connection older than this takes no new request; the next one resolves the name anew. It
    /// bounds how long a changed DNS answer goes unnoticed while the old address still answers.
    pub max_connection_age: Duration,
    /// Interval of TCP keepalive probes; zero for none.
    pub tcp_keepalive: Duration,
    /// Where addresses come from.
    pub resolver: Arc<dyn Resolve>,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        Self {
            // Longer than one lost SYN and its retransmissions (1 s, then 2 s), shorter than a request's time.
            connect_timeout: Duration::from_secs(5),
            // A handshake a minute costs nothing; a DNS change is in use within a minute.
            max_connection_age: Duration::from_secs(60),
            // Below the idle limits of common NATs and balancers (AWS NLB 350 s, Azure 240 s).
            tcp_keepalive: Duration::from_secs(30),
            resolver: Arc::new(SystemResolver),
        }
    }
}

impl std::fmt::Debug for ConnectSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectSettings")
            .field("connect_timeout", &self.connect_timeout)
            .field("max_connection_age", &self.max_connection_age)
            .field("tcp_keepalive", &self.tcp_keepalive)
            .finish_non_exhaustive()
    }
}

/// The next address is tried beside one that has not answered for this long (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Makes connections to one destination.
pub(crate) struct Connector {
    destination: Destination,
    settings: ConnectSettings,
    rotation: Rotation,
    tls: Option<Arc<TlsSource>>,
}

impl Connector {
    /// `alpn` names the protocols offered on TLS.
    pub(crate) fn new(
        destination: Destination,
        tls: ClientTls,
        settings: ConnectSettings,
        alpn: &[&[u8]],
    ) -> Result<Self, TlsError> {
        let tls = if destination.tls {
            Some(Arc::new(TlsSource::new(tls, alpn)?))
        } else {
            None
        };
        if let Some(tls) = &tls {
            tls.server_name(&destination.host)?;
        }
        Ok(Self {
            destination,
            settings,
            rotation: Rotation::default(),
            tls,
        })
    }

    pub(crate) fn settings(&self) -> &ConnectSettings {
        &self.settings
    }

    /// A new connection, within the connect timeout.
    pub(crate) async fn connect(&self) -> Result<Io, SendError> {
        let timeout = self.settings.connect_timeout;
        let until = Instant::now() + timeout;
        let Destination { host, port, .. } = &self.destination;
        let resolved = timeout_at(until, self.rotation.next(&*self.settings.resolver, host, *port));
        let addresses = match resolved.await {
            Ok(resolved) => resolved.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {timeout:?}")),
        };
        let addresses = addresses.map_err(|reason| SendError::Resolve {
            host: host.clone(),
            reason,
        })?;
        let connected = match timeout_at(until, first_to_connect(&addresses)).await {
            Ok(connected) => connected.map_err(|error| error.to_string()),
            Err(_) => Err(format!("not connected within {timeout:?}")),
        };
        let tcp = connected.map_err(|reason| {
            self.rotation.doubt();
            SendError::Connect {
                host: self.destination.host_and_port(),
                addresses: Addresses(addresses),
                reason,
            }
        })?;
        self.prepare(&tcp);
        let Some(tls) = &self.tls else {
            return Ok(Io::Plain(tcp));
        };
        timeout_at(until, self.handshake(tls.clone(), tcp))
            .await
            .unwrap_or_else(|_| {
                self.rotation.doubt();
                Err(SendError::Tls {
                    host: self.destination.host_and_port(),
                    reason: format!(
                        "it took the connection and has not answered within {timeout:?}; does it speak TLS?"
                    ),
                })
            })
    }

    fn prepare(&self, tcp: &TcpStream) {
        // Requests are written whole; waiting to fill a segment would only add latency.
        let _ = tcp.set_nodelay(true);
        let interval = self.settings.tcp_keepalive;
        if !interval.is_zero() {
            let keepalive = socket2::TcpKeepalive::new()
                .with_time(interval)
                .with_interval(interval);
            let _ = socket2::SockRef::from(tcp).set_tcp_keepalive(&keepalive);
        }
    }

    async fn handshake(&self, tls: Arc<TlsSource>, tcp: TcpStream) -> Result<Io, SendError> {
        let host = self.destination.host_and_port();
        let impossible = |reason: String| SendError::TlsConfiguration {
            host: host.clone(),
            reason,
        };
        let name = tls
            .server_name(&self.destination.host)
            .map_err(|e| impossible(e.to_string()))?;
        // Files may have to be read again, and parsing the system's roots takes milliseconds.
        let config = tokio::task::spawn_blocking(move || tls.current())
            .await
            .map_err(|e| impossible(e.to_string()))?;
        match TlsConnector::from(config).connect(name, tcp).await {
            Ok(stream) => Ok(Io::encrypted(stream)),
            Err(error) => {
                let reason = chain(&error);
                if tls::needs_mending(&error) {
                    Err(SendError::TlsConfiguration { host, reason })
                } else {
                    Err(SendError::Tls { host, reason })
                }
            }
        }
    }
}

/// Tries the addresses in order, the next beside the last when that one is slow; the first to
/// connect wins and the others are dropped.
async fn first_to_connect(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last_error = std::io::Error::other("no address");
    let mut more = true;
    loop {
        if more {
            match waiting.next() {
                Some(address) => {
                    attempts.spawn(TcpStream::connect(address));
                }
                None => more = false,
            }
        }
        if attempts.is_empty() {
            return Err(last_error);
        }
        tokio::select! {
            Some(done) = attempts.join_next() => match done {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last_error = error,
                Err(error) => last_error = std::io::Error::other(error),
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if more => {}
        }
    }
}
