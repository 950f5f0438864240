//! Exporters with several endpoints.

use sluice_tests::{Answer, Config, Gateway, Kind, Sink};

use crate::{ITEMS, send};

/// Scenario: three endpoints in turn; one is down, one says that it is overloaded, later all are well.
/// Guarantees: everything arrives, once, at those that work, without a failure in the account; each endpoint has its
/// share once it is back.
#[tokio::test(flavor = "multi_thread")]
async fn the_others_take_what_one_cannot() {
    let (well, down, busy) = (Sink::start().await, Sink::down().await, Sink::start().await);
    busy.answer(|_| Answer::Http(503, None));
    let more = format!(
        "more_endpoints: [\"http://{}\", \"http://{}\"]",
        down.address(),
        busy.address()
    );
    let config = Config::new().http_exporter("sink", &well, &more);
    let gateway = Gateway::start(&config).await;
    let sent = send(&gateway, Kind::Logs, 0..20).await;
    well.wait_for_same(Kind::Logs, &sent).await;
    gateway.settled().await;
    down.up().await;
    busy.answer(|_| Answer::Take);
    let mut next = 20;
    while down.taken().is_empty() || busy.taken().is_empty() {
        send(&gateway, Kind::Logs, next..next + 1).await;
        gateway.settled().await;
        next += 1;
    }
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(
        (account.delivered, account.dropped.len()),
        (next * ITEMS as u64, 0),
        "{account:?}"
    );
    let arrived: usize = [&well, &down, &busy]
        .iter()
        .flat_map(|sink| sink.taken())
        .map(|arrived| arrived.items().iter().count())
        .sum();
    assert_eq!(arrived, next as usize * ITEMS, "nothing came twice");
    gateway.stop().await;
}
