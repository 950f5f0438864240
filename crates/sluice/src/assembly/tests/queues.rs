//! What the configuration says of queues, as journals, cursors and receivers get it.

use sluice_journal::SyncPolicy;

use super::super::storage::sync_policy;
use super::super::*;
use crate::settings::FileStorage;

/// Pipelines with these parts each, and a storage with these keys.
fn settings(pipelines: &[&str], storage: &str) -> Settings {
    let pipelines: Vec<_> = (pipelines.iter().enumerate())
        .map(|(number, parts)| format!("logs/{number}: {{receivers: [otlp], {parts}}}"))
        .collect();
    let exporter = |name: &str, queue: &str| {
        format!("  otlphttp/{name}: {{endpoint: \"http://localhost:1\", sending_queue: {{{queue}}}}}\n")
    };
    let exporters: String = [
        ("plain", ""),
        ("requests", "queue_size: 7"),
        ("items", "queue_size: 8, sizer: items"),
        ("bytes", "queue_size: 9, sizer: bytes"),
        ("off", "enabled: false, queue_size: 10"),
        ("blocks", "block_on_overflow: true"),
        ("disk", "storage: file_storage, queue_size: 11"),
        ("disk2", "storage: file_storage, sizer: bytes, queue_size: 12"),
    ]
    .map(|(name, queue)| exporter(name, queue))
    .concat();
    let yaml = format!(
        "receivers: {{otlp: {{protocols: {{http: }}}}}}\n\
         exporters:\n{exporters}  debug:\n\
         extensions: {{file_storage: {{directory: /spool{storage}}}}}\n\
         service: {{extensions: [file_storage], pipelines: {{{}}}}}\n",
        pipelines.join(", ")
    );
    let document = sluice_config::Loader::new()
        .text("test.yaml", yaml)
        .load()
        .unwrap();
    Settings::from_document(&document).unwrap()
}

/// Scenario: `fsync` and `fsync_interval` of a storage, in all ways to set them that are no error, and not to.
/// Guarantees: an interval counts, whatever `fsync` says; without one `fsync: false` leaves it to the system, and everything else syncs each
/// group before it is acknowledged.
#[test]
fn a_storage_says_when_to_sync() {
    let interval = SyncPolicy::Interval(Duration::from_millis(250));
    for (keys, policy) in [
        ("", SyncPolicy::Group),
        (", fsync: true", SyncPolicy::Group),
        (", fsync: false", SyncPolicy::Off),
        (", fsync_interval: 250ms", interval),
        (", fsync_interval: 250ms, fsync: false", interval),
    ] {
        let settings = settings(&["exporters: [otlphttp/disk]"], keys);
        let storages: Vec<&FileStorage> = (settings.extensions.values())
            .filter_map(|extension| match extension {
                Extension::FileStorage(storage) => Some(storage),
                _ => None,
            })
            .collect();
        assert_eq!(storages.len(), 1);
        assert_eq!(sync_policy(storages[0]), policy, "{keys}");
    }
}

/// Scenario: each `ack` there is, and none, on a queue in memory and on disk, and without a queue.
/// Guarantees: receivers get the level that is named; without a name they wait for the disk where there is one, for delivery where there is
/// no queue, and for nothing else.
#[test]
fn receivers_answer_when_the_pipeline_says_so() {
    let (disk, memory, off) = (
        "exporters: [otlphttp/disk]",
        "exporters: [otlphttp/plain]",
        "exporters: [otlphttp/off]",
    );
    for (exporters, ack, level) in [
        (disk, "", AckLevel::Persisted),
        (disk, ", ack: accepted", AckLevel::Accepted),
        (disk, ", ack: persisted", AckLevel::Persisted),
        (disk, ", ack: delivered", AckLevel::Delivered),
        (memory, "", AckLevel::Accepted),
        (memory, ", ack: delivered", AckLevel::Delivered),
        (off, "", AckLevel::Delivered),
        (off, ", ack: accepted", AckLevel::Accepted),
    ] {
        let settings = settings(&[&format!("{exporters}{ack}")], "");
        assert_eq!(ack_level(settings.pipelines[0].ack), level, "{exporters}{ack}");
    }
}

/// Scenario: pipelines of one exporter and of two, with and without `queue_size`, `block_on_overflow`, `ack: delivered`, and queues on disk.
/// Guarantees: a cursor has the limit that is configured, in what the sizer counts, and none where the queue is off; it is coupled to receivers
/// where it is alone, where it blocks, and where the answer waits for its delivery; else it is cut loose: in memory, at its part of half the
/// budget unless a limit in bytes is configured, and on disk at what the volume allows, which is not known here.
#[test]
fn a_cursor_is_limited_and_coupled_as_configured() {
    const CAPACITY: u64 = 96 << 20;
    let (refuse, drop) = (OnFull::Refuse, OnFull::DropOldest);
    let share = CAPACITY / 2 / 2;
    let none = Limits::default();
    let bytes = |bytes| Limits {
        bytes: Some(bytes),
        ..none
    };
    let requests = |requests| Limits {
        requests: Some(requests),
        ..none
    };
    let items = Limits {
        items: Some(8),
        ..none
    };
    let with_share = |limits: Limits| Limits {
        bytes: Some(share),
        ..limits
    };
    for (parts, specs) in [
        ("exporters: [otlphttp/plain]", vec![(none, refuse)]),
        ("exporters: [debug]", vec![(none, refuse)]),
        ("exporters: [otlphttp/requests]", vec![(requests(7), refuse)]),
        ("exporters: [otlphttp/items]", vec![(items, refuse)]),
        ("exporters: [otlphttp/bytes]", vec![(bytes(9), refuse)]),
        ("exporters: [otlphttp/off]", vec![(none, refuse)]),
        (
            "exporters: [otlphttp/plain, debug]",
            vec![(bytes(share), drop), (bytes(share), drop)],
        ),
        (
            "exporters: [otlphttp/requests, otlphttp/bytes]",
            vec![(with_share(requests(7)), drop), (bytes(9), drop)],
        ),
        (
            "exporters: [otlphttp/blocks, otlphttp/items]",
            vec![(none, refuse), (with_share(items), drop)],
        ),
        (
            "exporters: [otlphttp/plain, otlphttp/requests], ack: delivered",
            vec![(none, refuse), (requests(7), refuse)],
        ),
        (
            "exporters: [otlphttp/disk, otlphttp/disk2]",
            vec![(requests(11), drop), (bytes(12), drop)],
        ),
    ] {
        let settings = settings(&[parts], "");
        let pipeline = &settings.pipelines[0];
        let budget = Budget::new(CAPACITY);
        let found: Vec<_> = (pipeline.exporters.iter())
            .map(|id| cursor_spec(&settings, pipeline, id, &budget))
            .collect();
        let names: Vec<_> = found.iter().map(|spec| spec.exporter.clone()).collect();
        let ids: Vec<_> = pipeline.exporters.iter().map(ToString::to_string).collect();
        assert_eq!(names, ids);
        let found: Vec<_> = found
            .into_iter()
            .map(|spec| (spec.limits, spec.on_full))
            .collect();
        assert_eq!(found, specs, "{parts}");
    }
}

/// Scenario: a pipeline without `block_on_overflow`, one with it, and one of which one exporter of two has it.
/// Guarantees: payloads wait for room, long, where one exporter asks for it, and nowhere else.
#[test]
fn one_exporter_that_blocks_blocks_its_pipeline() {
    let parts = [
        "exporters: [otlphttp/plain, debug]",
        "exporters: [otlphttp/blocks]",
        "exporters: [otlphttp/plain, otlphttp/blocks]",
    ];
    let settings = settings(&parts, "");
    let waits: Vec<_> = (settings.pipelines.iter())
        .map(|pipeline| block_for(&settings, pipeline))
        .collect();
    assert_eq!(waits, [Duration::ZERO, BLOCKING_WAIT, BLOCKING_WAIT]);
}
