//! Exporters and pipelines that get other names, or go and come back, while something waits for them.

use sluice_tests::{Answer, Gateway, Kind, Sink};

use crate::{durable, send};

/// Scenario: a destination is down; its exporter gets another name, and a request comes and is delivered; then it has its old name again, by a roll-back,
/// and the destination is up. The first process ends by SIGTERM, or SIGKILL.
/// Guarantees: what was acknowledged under the old name is set aside, said at each start and in the metrics, not dropped; under the old name again, it arrives
/// once, and what came meanwhile does not come a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_exporter_loses_nothing() {
    for is_killed in [false, true] {
        let sink = Sink::start().await;
        sink.answer(|_| Answer::Http(503, None));
        let spool = tempfile::tempdir().unwrap();
        let named = |name| durable(&[(name, &sink)], spool.path());
        let end = async |gateway: Gateway| {
            gateway.terminate();
            assert_eq!(gateway.ended().await.code, Some(0));
        };
        let gateway = Gateway::start(&named("old")).await;
        let mut sent = send(&gateway, 0..10).await;
        match is_killed {
            true => gateway.kill().await,
            false => end(gateway).await,
        }

        sink.answer(|_| Answer::Take);
        let gateway = Gateway::start(&named("new")).await;
        gateway.says("what waited for it is set aside").await;
        let meanwhile = send(&gateway, 10..11).await;
        gateway.settled().await;
        sink.wait_for_same(Kind::Logs, &meanwhile).await;
        end(gateway).await;

        let gateway = Gateway::start(&named("new")).await;
        gateway.says("no pipeline delivers what is in this journal").await;
        assert!(gateway.metrics().await.sum("sluice_journal_unread_bytes", &[]) > 0.0);
        end(gateway).await;

        let gateway = Gateway::start(&named("old")).await;
        gateway.says("this exporter is back").await;
        gateway.settled().await;
        sent.extend(meanwhile);
        sink.wait_for_same(Kind::Logs, &sent).await;
        assert_eq!(
            gateway.metrics().await.sum("sluice_journal_unread_bytes", &[]),
            0.0
        );
        gateway.stop().await;
    }
}

/// Scenario: a destination is down; its pipeline gets another name; then the queue is taken out of the configuration, and the storage stays in it.
/// Guarantees: each start says that there is something which nobody delivers, and how much; with the old name it arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_pipeline_is_told_of() {
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let spool = tempfile::tempdir().unwrap();
    let config = durable(&[("sink", &sink)], spool.path());
    let gateway = Gateway::start(&config).await;
    let sent = send(&gateway, 0..10).await;
    gateway.kill().await;
    let yaml = config.yaml();
    for (what, with) in [
        ("    logs:", "    logs/renamed:"),
        ("storage: file_storage, ", ""),
    ] {
        let changed = yaml.replace(what, with);
        assert_ne!(yaml, changed);
        let gateway = Gateway::start(&sluice_tests::Config::of_text(changed)).await;
        gateway.says("no pipeline delivers what is in this journal").await;
        gateway.says("logs.journal").await;
        assert!(gateway.metrics().await.sum("sluice_journal_unread_bytes", &[]) > 0.0);
        gateway.stop().await;
    }
    sink.answer(|_| Answer::Take);
    let gateway = Gateway::start(&config).await;
    gateway.settled().await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
}
