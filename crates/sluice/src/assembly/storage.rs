//! The journal of a pipeline: in memory, or on disk where `sending_queue.storage` says so.

use std::path::PathBuf;
use std::time::Duration;

use sluice_journal::{
    Cursor, CursorSpec, DeadLetters, Disk, DiskSettings, Journal, Left, Recovered, SyncPolicy, directory_of,
    unread,
};
use sluice_payload::{Encoding, Tenants};
use sluice_telemetry::Registry;

use crate::settings::{ComponentId, Exporter, Extension, FileStorage, Pipeline, Settings};

/// This part of the memory budget is kept for what exporters read back from disks, all of them together.
const READ_BACK_SHARE: u64 = 4;

/// One exporter needs no more than this to keep a fast link busy.
const MAX_IN_FLIGHT_BYTES: u64 = 64 << 20;

/// This part of the memory budget may hold payloads that are on disk already, for exporters that keep up.
const KEPT_SHARE: u64 = 8;

/// Beyond this an exporter does not keep up, and reads from the disk as fast.
const MAX_KEPT_BYTES: u64 = 32 << 20;

/// How the memory of journals on disk is divided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    in_flight_bytes: u64,
    kept_bytes: u64,
    /// Not available to receivers.
    pub reserved_bytes: u64,
}

impl Shares {
    /// Of a budget of so many bytes.
    pub fn of(capacity_bytes: u64, settings: &Settings) -> Self {
        let durable = || {
            settings
                .pipelines
                .iter()
                .filter(|pipeline| pipeline.storage.is_some())
        };
        // What is read back is in memory once, and once more where it may be cut into copies.
        let times: u64 = durable()
            .flat_map(|pipeline| pipeline.exporters.iter().map(move |id| (pipeline, id)))
            .map(|(pipeline, id)| 1 + u64::from(cuts(settings, pipeline, id)))
            .sum();
        let journals = durable().count() as u64;
        let in_flight_bytes = (capacity_bytes / READ_BACK_SHARE / times.max(1)).min(MAX_IN_FLIGHT_BYTES);
        Self {
            in_flight_bytes,
            kept_bytes: (capacity_bytes / KEPT_SHARE / journals.max(1)).min(MAX_KEPT_BYTES),
            reserved_bytes: in_flight_bytes * times,
        }
    }
}

/// Whether an exporter's batches may be cut: by size, by keys, or because the destination finds one too large, or something in it bad. Copies
/// of what was read back are in no budget.
fn cuts(settings: &Settings, pipeline: &Pipeline, id: &ComponentId) -> bool {
    match settings.exporters.get(id) {
        Some(Exporter::OtlpGrpc(_) | Exporter::OtlpHttp(_) | Exporter::RemoteWrite(_)) => true,
        _ => settings.batching(pipeline, id).max_size.is_some(),
    }
}

/// A pipeline's journal.
pub(super) struct Opened {
    pub journal: Journal,
    pub cursors: Vec<Cursor>,
    /// Where the journal is on disk.
    pub dead_letters: Option<DeadLetters>,
}

/// Opens the journal of a pipeline.
pub(super) fn open(
    settings: &Settings,
    pipeline: &Pipeline,
    specs: Vec<CursorSpec>,
    shares: Shares,
    frames: Vec<Encoding>,
    tenants: &Tenants,
) -> Result<Opened, String> {
    let id = pipeline.id.to_string();
    let Some(storage) = &pipeline.storage else {
        let (journal, cursors) = Journal::memory(&id, specs);
        return Ok(Opened {
            journal,
            cursors,
            dead_letters: None,
        });
    };
    let Some(Extension::FileStorage(storage)) = settings.extensions.get(storage) else {
        return Err(format!("the storage {storage} is not there"));
    };
    let disk = DiskSettings {
        create_directory: storage.create_directory,
        lock_timeout: match storage.timeout {
            Duration::ZERO => Duration::MAX,
            timeout => timeout,
        },
        sync: sync_policy(storage),
        kept_bytes: shares.kept_bytes,
        in_flight_bytes: shares.in_flight_bytes,
        frames,
        ..DiskSettings::new(&storage.directory, tenants.clone())
    };
    let dead_letters = Some(DeadLetters::new(&id, &disk));
    let (journal, cursors, recovered) = Journal::disk(&id, specs, disk).map_err(|error| error.to_string())?;
    tell(&id, &recovered);
    Ok(Opened {
        journal,
        cursors,
        dead_letters,
    })
}

pub(super) fn sync_policy(storage: &FileStorage) -> SyncPolicy {
    match (storage.fsync_interval, storage.fsync) {
        (Some(interval), _) => SyncPolicy::Interval(interval),
        (None, Some(false)) => SyncPolicy::Off,
        (None, _) => SyncPolicy::Group,
    }
}

fn tell(pipeline: &str, recovered: &Recovered) {
    if recovered.records > 0 {
        tracing::info!(
            pipeline,
            requests = recovered.records,
            "found undelivered data in the journal; it is delivered now"
        );
    }
    if recovered.damaged > 0 || recovered.lost > 0 {
        tracing::error!(
            pipeline,
            places = recovered.damaged,
            requests = recovered.lost,
            "the journal is damaged; what could not be read is lost, everything else is delivered. Check the disk"
        );
    }
    for Left {
        exporter,
        requests,
        directory,
    } in &recovered.left
    {
        if *requests > 0 {
            let directory = directory.display();
            tracing::warn!(
                pipeline,
                exporter,
                requests,
                %directory,
                "this exporter is not in the pipeline any more; what waited for it is set aside, and delivered when it is back under its id"
            );
        } else {
            tracing::info!(
                pipeline,
                exporter,
                "this exporter is not in the pipeline any more; nothing waited for it"
            );
        }
    }
    for exporter in &recovered.returned {
        tracing::info!(
            pipeline,
            exporter,
            "this exporter is back; what was set aside for it is delivered now"
        );
    }
    for exporter in &recovered.lost_positions {
        tracing::warn!(
            pipeline,
            exporter,
            "the exporter's position in the journal cannot be read; everything in it is delivered, some of it again"
        );
    }
}

/// Says what lies in the directories of file storages that no pipeline delivers: that of pipelines that have another name now, and what was
/// set aside. To be called when every pipeline has its journal.
pub(super) fn tell_unread(settings: &Settings, registry: &Registry) {
    let gauge = registry.gauge(
        "sluice_journal_unread_bytes",
        "Bytes in journals that no pipeline delivers, as found at the start.",
        vec![],
    );
    let mut total: u64 = 0;
    for (id, extension) in &settings.extensions {
        let Extension::FileStorage(storage) = extension else {
            continue;
        };
        let of_this = |pipeline: &&Pipeline| pipeline.storage.as_ref() == Some(id);
        let read: Vec<PathBuf> = (settings.pipelines.iter().filter(of_this))
            .map(|pipeline| directory_of(&storage.directory, &pipeline.id.to_string()))
            .collect();
        let found = match unread(&Disk, &storage.directory, &read) {
            // No pipeline uses it, and it was never made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                let directory = storage.directory.display();
                tracing::warn!(%directory, %error, "whether there are journals in it that no pipeline delivers could not be seen");
                continue;
            }
            Ok(found) => found,
        };
        for (journal, bytes) in found {
            total += bytes;
            tracing::warn!(
                journal = %journal.display(),
                bytes,
                "no pipeline delivers what is in this journal: give the pipeline or the exporter that it is named after its id back, or send it with \
                 `sluice journal export --to` and remove it"
            );
        }
    }
    gauge.set(total as i64);
}

#[cfg(test)]
mod tests {
    use sluice_config::Loader;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Pipelines with these parts each.
    fn settings(pipelines: &[&str]) -> Settings {
        let pipelines: Vec<_> = (pipelines.iter().enumerate())
            .map(|(number, parts)| format!("logs/{number}: {{receivers: [otlp], {parts}}}"))
            .collect();
        let yaml = format!(
            "receivers: {{otlp: {{protocols: {{http: }}}}}}\n\
             processors: {{batch: {{send_batch_max_size: 10000}}}}\n\
             exporters:\n  \
               otlphttp/memory: {{endpoint: \"http://localhost:1\"}}\n  \
               otlphttp/disk: {{endpoint: \"http://localhost:1\", sending_queue: {{storage: file_storage}}}}\n  \
               debug:\n\
             extensions: {{file_storage: {{directory: /spool}}}}\n\
             service: {{extensions: [file_storage], pipelines: {{{}}}}}\n",
            pipelines.join(", ")
        );
        let document = Loader::new().text("test.yaml", yaml).load().unwrap();
        Settings::from_document(&document).unwrap()
    }

    /// Scenario: pipelines with their queues in memory and on disk, alone and side by side; exporters that may cut batches into copies (by
    /// themselves, or as their pipeline says) and one that does not; a budget of 96 MiB, and one of 16 GiB.
    /// Guarantees: what is read back has a quarter of the budget at most, and each exporter of a queue on disk an equal part of it, once,
    /// and once more where there may be copies; what is kept has an eighth, a part for each journal; on a large budget both stay at what is
    /// of use; queues in memory count for nothing.
    #[test]
    fn journals_share_a_part_of_the_budget() {
        let (memory, disk) = ("exporters: [otlphttp/memory]", "exporters: [otlphttp/disk]");
        let two = "exporters: [otlphttp/disk, debug]";
        let cut = "processors: [batch], exporters: [otlphttp/disk, debug]";
        for (pipelines, capacity_mib, expected_mib) in [
            (&[memory][..], 96, (24, 12, 0)),
            (&[disk], 96, (12, 12, 24)),
            (&[disk, memory], 96, (12, 12, 24)),
            (&[two], 96, (8, 12, 24)),
            (&[cut], 96, (6, 12, 24)),
            (&[disk, cut], 96, (4, 6, 24)),
            (&[disk, cut], 16 << 10, (64, 32, 6 * 64)),
        ] {
            let shares = Shares::of(capacity_mib * MIB, &settings(pipelines));
            let found = (shares.in_flight_bytes, shares.kept_bytes, shares.reserved_bytes);
            let (in_flight, kept, reserved) = expected_mib;
            assert_eq!(
                found,
                (in_flight * MIB, kept * MIB, reserved * MIB),
                "{pipelines:?}"
            );
        }
    }
}
