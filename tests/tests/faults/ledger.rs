//! The promise: accepted + recovered = delivered + dropped + queued, in items, at all times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluice_tests::{Answer, Config, Gateway, Kind, Sink};

use crate::{ITEMS, send};

/// Scenario: load of three signals on both transports, to one destination that takes half of the requests
/// and refuses the others in every way there is, and one that is slow; the ledger is read all the time.
/// Guarantees: every account balances whenever it is read, only grows, and in the end equals what the
/// senders and the sink counted.
#[tokio::test(flavor = "multi_thread")]
async fn the_account_balances_under_load() {
    let (fickle, steady) = (Sink::start().await, Sink::start().await);
    let count = AtomicU64::new(0);
    fickle.answer(move |_| match count.fetch_add(1, Ordering::Relaxed) % 8 {
        1 => Answer::Http(503, None),
        3 => Answer::Http(429, Some(0)),
        5 => Answer::Partial(2, "too old"),
        7 => Answer::Http(400, None),
        _ => Answer::Take,
    });
    let config = Config::new()
        .http_exporter("fickle", &fickle, "")
        .grpc_exporter("steady", &steady, "");
    let gateway = Arc::new(Gateway::start(&config).await);
    let done = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn({
        let (gateway, done) = (gateway.clone(), done.clone());
        async move {
            let (mut last, mut reads) = (Vec::new(), 0);
            while !done.load(Ordering::Relaxed) {
                // Reading asserts that every line balances.
                let ledger = gateway.ledger().await;
                for (old, new) in std::mem::replace(&mut last, ledger.clone()).iter().zip(&ledger) {
                    assert!(
                        new.accepted >= old.accepted && new.delivered >= old.delivered,
                        "{old:?} {new:?}"
                    );
                }
                reads += 1;
            }
            reads
        }
    });
    let senders: Vec<_> = Kind::STABLE
        .into_iter()
        .flat_map(|kind| (0..3).map(move |lane| (kind, lane)))
        .map(|(kind, lane)| {
            let gateway = gateway.clone();
            tokio::spawn(async move { send(&gateway, kind, lane * 1000..lane * 1000 + 40).await })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    gateway.settled().await;
    done.store(true, Ordering::Relaxed);
    assert!(watcher.await.unwrap() > 0);
    let sent = (3 * 3 * 40 * ITEMS) as u64;
    for exporter in ["otlphttp/fickle", "otlp/steady"] {
        let account = gateway.account(exporter).await;
        assert_eq!(account.accepted, sent, "{account:?}");
        let metrics = gateway.metrics().await;
        let label = format!("exporter=\"{exporter}\"");
        assert_eq!(
            metrics.sum("sluice_exporter_sent_items_total", &[&label]),
            account.delivered as f64
        );
        assert_eq!(
            metrics.sum("sluice_exporter_dropped_items_total", &[&label]),
            account.dropped.values().sum::<u64>() as f64
        );
    }
    let arrived: usize = Kind::STABLE.iter().map(|kind| steady.items(*kind).len()).sum();
    assert_eq!(arrived as u64, sent);
    let accepted = gateway
        .metrics()
        .await
        .sum("sluice_receiver_accepted_items_total", &[]);
    assert_eq!(accepted, sent as f64);
    Arc::into_inner(gateway).unwrap().stop().await;
}
