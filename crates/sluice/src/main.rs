//! The `sluice` executable: the allocator, and a call of the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: sluice_memory::Allocator = sluice_memory::Allocator;

/// Memory goes back to the kernel ten seconds after it was freed, by a thread of jemalloc's own, or when the sampler finds that little
/// is left. Allocations above 32 KiB are not jemalloc's (`sluice_memory::Allocator`), and where they must be, those of 1 MiB and more are kept apart
/// (`sluice_memory::prepare_allocator`). After a second already, a queue that grows and shrinks under overload has its pages zeroed by the kernel again and again
/// (docs/decisions.md). The number of arenas is not measured yet.
#[allow(
    unsafe_code,
    non_upper_case_globals,
    reason = "jemalloc reads its settings from this symbol at start"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static malloc_conf: &[u8] =
    b"background_thread:false,dirty_decay_ms:10000,muzzy_decay_ms:0,oversize_threshold:1048576,narenas:2\0";

fn main() -> ExitCode {
    sluice::run(std::env::args_os())
}
