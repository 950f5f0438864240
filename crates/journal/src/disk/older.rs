//! A journal that an older binary wrote (`tests/fixtures/older`): a writer and a reader that change together would agree with each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sluice_payload::Tenants;

use crate::{
    CursorSpec, Disk, DiskSettings, Entry, Journal, Limits, OnFull, Settled, Which, export, inspect,
};

const EXPORTER: &str = "otlphttp/sink";
const RECORDS: u64 = 5;

fn text(request: u64, record: u64) -> String {
    format!(
        "record {record} of request {request}, {}",
        "as it was ".repeat(40)
    )
}

/// A field of a protobuf message, below 16 KiB.
fn field(tag: u8, inside: &[u8]) -> Vec<u8> {
    let length = match inside.len() {
        short @ ..128 => vec![short as u8],
        long => vec![long as u8 | 0x80, (long >> 7) as u8],
    };
    [&[tag], &length[..], inside].concat()
}

/// A request as it was sent.
fn request(number: u64, records: impl Iterator<Item = u64>) -> Vec<u8> {
    let record = |record| field(0x12, &field(0x2a, &field(0x0a, text(number, record).as_bytes())));
    let records: Vec<u8> = records.flat_map(record).collect();
    field(0x0a, &field(0x12, &records))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/older")
        .join(name)
}

/// Scenario: the directory of an older binary that was killed.
/// Guarantees: nothing is wrong with it; what was refused is there with the destination's words; what waited is handed out, once, byte by
/// byte as it was sent, and what was settled is not.
#[tokio::test]
async fn an_older_journal_is_read() {
    let found = inspect(&Disk, &fixture("logs.journal"), true).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    let sealed: Vec<bool> = found.segments.iter().map(|segment| segment.sealed).collect();
    assert_eq!(sealed, [true, false]);

    let mut dead = BTreeSet::new();
    let damaged = export(&Disk, &fixture("logs.dead"), &Which::All, &mut |letter| {
        let refusal = letter.refusal.unwrap();
        assert_eq!(
            (&*refusal.exporter, &*refusal.reason),
            (EXPORTER, "HTTP 400 Bad Request")
        );
        dead.insert(letter.body.to_vec());
        Ok(())
    });
    assert_eq!(damaged.unwrap(), 0);
    let refused = (0..RECORDS).map(|record| request(1, std::iter::once(record)));
    assert_eq!(dead, refused.collect());

    let spool = tempfile::tempdir().unwrap();
    let copy = spool.path().join("logs.journal");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(fixture("logs.journal")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let spec = CursorSpec {
        exporter: EXPORTER.to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let settings = DiskSettings::new(spool.path(), Tenants::default());
    let (journal, mut cursors, _) = Journal::disk("logs", vec![spec], settings).unwrap();
    for number in 2..6 {
        let Entry { seq, payload, .. } = cursors[0].next().await.unwrap();
        assert_eq!(payload.body, request(number, 0..RECORDS));
        cursors[0].settle(&[Settled {
            seq,
            delivered: payload.items,
            dropped: None,
        }]);
    }
    let account = journal.reports(std::time::Instant::now())[0].total();
    assert_eq!(
        (account.recovered, account.delivered, account.queued),
        (20, 20, 0)
    );
    assert_eq!(journal.abandon(), 0);
}
