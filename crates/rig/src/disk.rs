//! What the disk under a queue can do by itself: the reference for acknowledgements that wait for it, and for a
//! backlog that is read back.

use std::fs::{File, OpenOptions, remove_file};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;

use crate::histogram::{Histogram, Quantiles};
use crate::random::Random;
use crate::units;

/// Read and written at a time where the speed counts.
const BLOCK_BYTES: usize = 1 << 20;

#[derive(Args, Debug)]
pub(crate) struct DiskArgs {
    /// Where to measure; the file there is removed afterwards.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Written before each sync.
    #[arg(long, value_parser = units::bytes, default_value = "8KiB")]
    sync_bytes: u64,
    /// Writes and syncs per second; late ones follow at once.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long to write and sync.
    #[arg(long, value_parser = units::duration, default_value = "5s")]
    duration: Duration,
    /// Size of the file that is written, dropped from the page cache and read from one end to the other; 0: none.
    #[arg(long, value_parser = units::bytes, default_value = "1GiB")]
    read_bytes: u64,
}

#[derive(Debug, Serialize)]
struct DiskReport {
    /// From when a write was due to the end of its sync, in microseconds.
    sync_us: Quantiles,
    write_mib_per_second: f64,
    read_mib_per_second: f64,
}

#[allow(clippy::print_stdout, reason = "the report is the output")]
pub(crate) fn run(args: &DiskArgs) -> Result<(), String> {
    let path = args
        .directory
        .join(format!("sluice-rig-disk-{}", std::process::id()));
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(wrong)?;
    let report = measure(args, &file).map_err(wrong);
    remove_file(&path).map_err(wrong)?;
    println!(
        "{}",
        serde_json::to_string(&report?).map_err(|error| error.to_string())?
    );
    Ok(())
}

fn measure(args: &DiskArgs, file: &File) -> std::io::Result<DiskReport> {
    // Nothing a file system could leave out or compress.
    let mut random = Random::new(1);
    let mut block = vec![0; BLOCK_BYTES.max(args.sync_bytes as usize)];
    block.fill_with(|| (random.unit() * 256.0) as u8);
    let sync_us = sync(args, file, &block[..args.sync_bytes as usize])?;
    let blocks = args.read_bytes / BLOCK_BYTES as u64;
    let began = Instant::now();
    let mut sequential = file;
    for _ in 0..blocks {
        sequential.write_all(&block[..BLOCK_BYTES])?;
    }
    file.sync_data()?;
    let write = began.elapsed();
    fadvise(file, 0, None, Advice::DontNeed)?;
    let began = Instant::now();
    let mut at = 0;
    while at < blocks * BLOCK_BYTES as u64 {
        at += match file.read_at(&mut block[..BLOCK_BYTES], at)? {
            0 => break,
            count => count as u64,
        };
    }
    let mib_per_second =
        |time: Duration| blocks as f64 * BLOCK_BYTES as f64 / 1_048_576.0 / time.as_secs_f64();
    Ok(DiskReport {
        sync_us,
        write_mib_per_second: mib_per_second(write),
        read_mib_per_second: mib_per_second(began.elapsed()),
    })
}

fn sync(args: &DiskArgs, file: &File, block: &[u8]) -> std::io::Result<Quantiles> {
    let mut latency = Histogram::default();
    let pause = Duration::from_secs(1) / args.rate.max(1);
    let began = Instant::now();
    let mut due = Duration::ZERO;
    let mut offset = 0;
    while due < args.duration {
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        file.write_all_at(block, offset)?;
        file.sync_data()?;
        latency.record(u64::try_from((began.elapsed() - due).as_micros()).unwrap_or(u64::MAX));
        offset += block.len() as u64;
        due += pause;
    }
    Ok(latency.quantiles())
}
