//! The addresses behind names, as the endpoints of an exporter that routes by key: looked up now and then.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sluice_client::Resolve;
use sluice_pipeline::{Exporter, Routed};

use super::ExporterError;

/// A resolver that has not answered after this long is asked again next time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Makes the exporter that sends to one address of a name.
pub type ConnectTo = Box<dyn Fn(SocketAddr) -> Result<Arc<dyn Exporter>, ExporterError> + Send + Sync>;

/// A name whose addresses are endpoints.
pub struct EndpointName {
    /// The host, as the resolver wants it.
    pub host: String,
    /// The port of each address.
    pub port: u16,
    /// What sends to one of them.
    pub connect: ConnectTo,
}

/// Keeps the endpoints of `routed` what the names resolve to, asking each time `interval` has passed, until nobody has `routed` any
/// more. A name that cannot be resolved, or to nothing, keeps the addresses it had: a resolver that is down moves no key.
///
/// An endpoint's name is its address and port, so that gateways with the same answers agree about keys.
pub async fn follow_addresses(
    routed: Weak<Routed>,
    names: Vec<EndpointName>,
    resolver: Arc<dyn Resolve>,
    interval: Duration,
) {
    let mut known: Vec<Vec<SocketAddr>> = vec![Vec::new(); names.len()];
    let mut failing = vec![false; names.len()];
    let mut due = tokio::time::interval(interval);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        for (index, name) in names.iter().enumerate() {
            let answer = tokio::time::timeout(ANSWERS_WITHIN, resolver.resolve(&name.host, name.port)).await;
            let reason = match answer {
                Ok(Ok(addresses)) if !addresses.is_empty() => {
                    known[index] = addresses;
                    failing[index] = false;
                    continue;
                }
                Ok(Ok(_)) => "it has no addresses".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {ANSWERS_WITHIN:?}"),
            };
            // Once: the rest of an outage says nothing new.
            if !std::mem::replace(&mut failing[index], true) {
                let (host, kept) = (&name.host, known[index].len());
                tracing::warn!(
                    host,
                    reason,
                    kept,
                    "cannot resolve; the addresses known before are kept"
                );
            }
        }
        let Some(routed) = routed.upgrade() else {
            return;
        };
        let mut endpoints: Vec<(String, SocketAddr, &EndpointName)> = (names.iter().zip(&known))
            .flat_map(|(name, addresses)| addresses.iter().map(move |one| (one.to_string(), *one, name)))
            .collect();
        endpoints.sort_by(|one, other| one.0.cmp(&other.0));
        let all: Vec<String> = endpoints.iter().map(|(endpoint, ..)| endpoint.clone()).collect();
        routed.set_endpoints(&all, |wanted| {
            // Found: it is one of those the names were taken from.
            let found = endpoints.iter().find(|(endpoint, ..)| endpoint == wanted);
            found.map_or(Err(ExporterError::NoEndpoint), |(_, address, name)| {
                (name.connect)(*address)
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;
    use sluice_client::Resolving;
    use sluice_payload::{Signal, WireFormat};
    use sluice_pipeline::{Batch, Export, Part};
    use sluice_telemetry::Registry;
    use sluice_wire::RoutingKey;

    use super::*;

    /// What the name resolves to; `None`: the resolver is down.
    #[derive(Default)]
    struct Answer(Mutex<Option<Vec<SocketAddr>>>);

    impl Resolve for Answer {
        fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
            assert_eq!((host, port), ("backend", 4317));
            let answer = self.0.lock().clone();
            Box::pin(async { answer.ok_or_else(|| io::Error::other("SERVFAIL")) })
        }
    }

    struct To;

    impl Exporter for To {
        fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
            Box::pin(async { panic!("nothing is sent") })
        }

        fn max_request_bytes(&self) -> usize {
            usize::MAX
        }
    }

    /// How many endpoints have keys, of many resources.
    fn owners(routed: &Routed) -> usize {
        let resource = |n: u8| {
            vec![
                0x0a, 0x0b, 0x0a, 0x05, 0x0a, 0x03, 0x0a, 0x01, n, 0x12, 0x02, 0x12, 0x00,
            ]
        };
        let body: Vec<u8> = (0..100).flat_map(resource).collect();
        let batch = Batch {
            signal: Signal::Logs,
            parts: vec![Part {
                body: body.into(),
                items: 100,
                wire_format: WireFormat::Otlp,
                frame: None,
            }],
        };
        routed.route(&batch).unwrap().len()
    }

    /// Scenario: a name that cannot be resolved at first, then has two addresses, then three, one of them new twice; then the resolver is
    /// down, and the exporter goes.
    /// Guarantees: the endpoints follow within the interval, each is made once, a resolver that is down changes nothing, and the
    /// watch ends with its exporter.
    #[tokio::test(start_paused = true)]
    async fn endpoints_follow_the_answers() {
        let answer = Arc::new(Answer::default());
        let made = Arc::new(Mutex::new(Vec::new()));
        let registry = Registry::default();
        let routed = Routed::new(Some(RoutingKey::Resource), Arc::new(To), "x", &registry);
        let routed = Arc::new(routed);
        let connect: ConnectTo = {
            let made = made.clone();
            Box::new(move |address| {
                made.lock().push(address);
                Ok(Arc::new(To))
            })
        };
        let name = EndpointName {
            host: "backend".into(),
            port: 4317,
            connect,
        };
        let interval = Duration::from_secs(5);
        let watch = follow_addresses(Arc::downgrade(&routed), vec![name], answer.clone(), interval);
        let watch = tokio::spawn(watch);
        let at = |last: u8| SocketAddr::from(([10, 0, 0, last], 4317));
        let passes = || tokio::time::sleep(interval + Duration::from_millis(1));
        passes().await;
        assert_eq!(owners(&routed), 1, "nobody's so far");
        for (addresses, count) in [
            (vec![at(1), at(2)], 2),
            (vec![at(3), at(2), at(1), at(3)], 3),
            (vec![at(2)], 1),
        ] {
            *answer.0.lock() = Some(addresses);
            passes().await;
            assert_eq!(owners(&routed), count);
        }
        *answer.0.lock() = Some(vec![at(1), at(2)]);
        passes().await;
        for unheard in [None, Some(vec![])] {
            *answer.0.lock() = unheard;
            passes().await;
            assert_eq!(owners(&routed), 2, "kept");
        }
        assert_eq!(*made.lock(), [at(1), at(2), at(3), at(1)]);
        drop(routed);
        watch.await.unwrap();
    }
}
