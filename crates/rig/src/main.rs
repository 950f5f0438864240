//! The `sluice-rig` executable: the allocator, and a call of the library.

use std::process::ExitCode;

/// The floor is measured beside gateways that run on jemalloc.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    sluice_rig::run(std::env::args_os())
}
