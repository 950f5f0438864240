//! One hot path at a time, a fixed number of times, for callgrind to count its instructions.
//!
//! `benches/instructions.sh` runs it. `sluice-instructions --list` names the workloads; `sluice-instructions NAME` runs
//! one and prints how many items went through [`counted_by_callgrind`]. Setting up, and one round before so that pools
//! and thread-locals are filled, happen outside of it.
#![allow(clippy::print_stdout, reason = "its output is for the script")]

mod admission;
mod json;
mod path;
mod remote_write;
mod wire;

use std::process::ExitCode;

use sluice_loadgen::{Signal, Spec};
use sluice_workloads::SHAPES;

/// The allocator that ships, so that what allocation costs here is what it costs there. The script sets it so that it
/// never looks at the clock.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Rounds that are counted: most take exactly the same instructions each, and what is done now and then (a vector of
/// the allocator's that fills up) has its share.
const ROUNDS: u64 = 8;

/// Something that is done again and again.
struct Workload {
    /// Items that one round handles.
    items: u64,
    /// One round.
    round: Box<dyn FnMut()>,
}

impl Workload {
    fn new(items: u64, round: impl FnMut() + 'static) -> Self {
        Self {
            items,
            round: Box::new(round),
        }
    }
}

/// A workload's name, and how to set it up.
type Entry = (String, Box<dyn Fn() -> Workload>);

/// The same workload for every shape and signal: `OPERATION/SHAPE/SIGNAL`.
fn each_request(entries: &mut Vec<Entry>, operation: &str, make: fn(Signal, Spec) -> Workload) {
    for (shape, spec) in SHAPES {
        for signal in Signal::ALL {
            let name = format!("{operation}/{shape}/{}", signal.name());
            entries.push((name, Box::new(move || make(signal, spec(signal)))));
        }
    }
}

fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    wire::entries(&mut entries);
    json::entries(&mut entries);
    path::entries(&mut entries);
    remote_write::entries(&mut entries);
    admission::entries(&mut entries);
    entries
}

/// What callgrind counts: it is told this name. Not generic, so that there is one of it.
#[inline(never)]
fn counted_by_callgrind(round: &mut dyn FnMut()) {
    for _ in 0..ROUNDS {
        round();
    }
}

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let entries = entries();
    if asked == "--list" {
        entries.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let Some((_, set_up)) = entries.iter().find(|(name, _)| *name == asked) else {
        eprintln!("there is no workload {asked:?}; --list names them");
        return ExitCode::FAILURE;
    };
    let mut workload = set_up();
    (workload.round)();
    counted_by_callgrind(&mut workload.round);
    println!("{}", workload.items * ROUNDS);
    ExitCode::SUCCESS
}
