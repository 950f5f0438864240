//! From a name to addresses, asked anew for every connection.
//!
//! The system's resolver (`getaddrinfo`, off the reactor) is used rather than one of our own: it
//! honours /etc/hosts, search domains and whatever the host is configured with, and a cache of our
//! own would be one more place for a stale address. It tells no TTL, so freshness comes from the
//! age limit of connections instead: see `ConnectSettings::max_connection_age`.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A future of a name's addresses.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, each with `port`.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Every name is at this address: one of several that a name has, chosen before.
#[derive(Debug, Clone, Copy)]
pub struct FixedAddress(pub SocketAddr);

impl Resolve for FixedAddress {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolving<'a> {
        Box::pin(async { Ok(vec![self.0]) })
    }
}

/// An answer is used again for this long, so that a burst of new connections asks once.
const ANSWER_REUSED: Duration = Duration::from_secs(1);

/// The last answer for the one name of a destination, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    last: Mutex<Option<Known>>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// Until when they are used without asking.
    fresh_until: Option<Instant>,
}

impl Rotation {
    /// The addresses of `host`, in the order to try them: the next connection starts at the next
    /// address; the families alternate, the resolver's favourite first (RFC 8305, section 4).
    pub(crate) async fn next(
        &self,
        resolver: &dyn Resolve,
        host: &str,
        port: u16,
    ) -> std::io::Result<Vec<SocketAddr>> {
        let fresh = {
            let last = self.last.lock();
            let known = last
                .as_ref()
                .filter(|known| known.fresh_until.is_some_and(|until| Instant::now() < until));
            known.map(|known| known.addresses.clone())
        };
        let addresses = match fresh {
            Some(addresses) => addresses,
            None => self.ask(resolver, host, port).await?,
        };
        Ok(alternate(&addresses, self.turn.fetch_add(1, Ordering::Relaxed)))
    }

    async fn ask(&self, resolver: &dyn Resolve, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let mut found: Vec<SocketAddr> = Vec::new();
        match resolver.resolve(host, port).await {
            Ok(addresses) => {
                for address in addresses {
                    if !found.contains(&address) {
                        found.push(address);
                    }
                }
            }
            // A resolver that is down must not stop deliveries to addresses that still answer (RFC 8767).
            Err(error) => match &*self.last.lock() {
                Some(known) => {
                    tracing::warn!(host, %error, "cannot resolve; the addresses known before are used");
                    return Ok(known.addresses.clone());
                }
                None => return Err(error),
            },
        }
        if found.is_empty() {
            return Err(std::io::Error::other("the name has no addresses"));
        }
        let fresh_until = Some(Instant::now() + ANSWER_REUSED);
        *self.last.lock() = Some(Known {
            addresses: found.clone(),
            fresh_until,
        });
        Ok(found)
    }

    /// Asks anew next time: none of the addresses took a connection.
    pub(crate) fn doubt(&self) {
        if let Some(known) = &mut *self.last.lock() {
            known.fresh_until = None;
        }
    }
}

/// Rotates each family by `turn` and lets them alternate, the family of the first address first.
fn alternate(addresses: &[SocketAddr], turn: usize) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = addresses
        .iter()
        .copied()
        .partition(|address| address.is_ipv6() == first_is_v6);
    for family in [&mut first, &mut second] {
        let len = family.len();
        if len > 0 {
            family.rotate_left(turn % len);
        }
    }
    let mut second = second.into_iter();
    let mut order = Vec::with_capacity(addresses.len());
    for address in first {
        order.push(address);
        order.extend(second.next());
    }
    order.extend(second);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: three IPv4 and two IPv6 addresses, four connections in turn.
    /// Guarantees: each starts at the next address of the favourite family, and families alternate.
    #[test]
    fn connections_start_at_the_next_address() {
        let addresses: Vec<SocketAddr> = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]
            .map(|a| a.parse().unwrap())
            .into();
        let first: Vec<String> = (0..4)
            .map(|turn| alternate(&addresses, turn)[0].to_string())
            .collect();
        assert_eq!(first, ["[::1]:1", "[::2]:1", "[::1]:1", "[::2]:1"]);
        let order: Vec<String> = alternate(&addresses, 1).iter().map(ToString::to_string).collect();
        assert_eq!(
            order,
            ["[::2]:1", "2.2.2.2:1", "[::1]:1", "3.3.3.3:1", "1.1.1.1:1"]
        );
    }
}
