//! Where each exporter goes on, and what waits for it.

use std::collections::BTreeMap;
use std::io;

use super::super::lost::{Missing, unsettled};
use super::super::position::Position;
use super::super::reader::{Source, cost};
use super::super::record::Header;
use super::super::segment::{HEADER_BYTES, Tally, tenant_id};
use super::super::spill::{Lag, Place, Segment};
use super::scan;
use crate::OpenMode;
use crate::state::State;

/// What an exporter has settled of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Nothing,
    /// Which records that are is known from the segment alone.
    Part,
    All,
}

/// Takes what each cursor has not settled into its account, and finds its place.
pub(super) fn place(
    source: &Source,
    state: &mut State,
    segments: &mut BTreeMap<u64, Segment>,
    positions: &[Position],
    missing: &mut Missing,
) -> io::Result<Vec<Lag>> {
    let mut lags: Vec<Lag> = (positions.iter())
        .map(|position| Lag {
            place: Place {
                segment: state.end,
                offset: HEADER_BYTES,
            },
            settled_before: position.settled.iter().cloned().collect(),
            moved: true,
            ..Lag::default()
        })
        .collect();
    for segment in segments.values_mut() {
        let first = segment.id.first;
        let in_part = |position| settled_of(segment, position) == Settled::Part;
        let records = match positions.iter().any(in_part) {
            true => read_through(source, segment, missing)?,
            false => Vec::new(),
        };
        for (index, position) in positions.iter().enumerate() {
            if segment.contents.is_empty() || segment.contents.last < position.floor {
                continue;
            }
            let (lag, settled) = (&mut lags[index], settled_of(segment, position));
            if settled == Settled::All {
                lag.settled_segments.insert(first);
                continue;
            }
            let is_first = lag.place.segment == state.end;
            if is_first {
                lag.place.segment = first;
            }
            let mut waiting = Tally::default();
            if settled == Settled::Part {
                for (header, offset) in &records {
                    let tenant = tenant_id(&source.tenants, &header.tenant);
                    if !position.is_settled(header.seq) {
                        waiting.add(tenant, cost(header));
                    }
                    if header.seq < position.floor && is_first {
                        lag.passed.add(tenant, cost(header));
                        lag.place.offset = *offset;
                    } else if position.is_settled(header.seq) {
                        lag.found_settled.insert(header.seq, (tenant, cost(header)));
                    }
                }
            } else {
                waiting = segment.contents.tally.clone();
            }
            let cursor = &mut state.cursors[index];
            for (tenant, cost) in waiting.iter() {
                cursor.backlog.add(cost);
                let account = cursor.account(tenant);
                account.recovered += cost.items;
                account.queued += cost.items;
            }
        }
    }
    for (index, position) in positions.iter().enumerate() {
        state.cursors[index].next = position.floor.min(state.end);
    }
    Ok(lags)
}

/// What an exporter has settled of a segment, by its first number and its last: a record has the number behind the segment's own, or a later
/// one.
fn settled_of(segment: &Segment, position: &Position) -> Settled {
    let numbers = segment.id.first + 1..segment.contents.last + 1;
    let all = numbers.end.saturating_sub(numbers.start);
    match unsettled(&numbers, position) {
        0 => Settled::All,
        none if none == all => Settled::Nothing,
        _ => Settled::Part,
    }
}

/// The records of a segment, which from now on holds no others.
fn read_through(
    source: &Source,
    segment: &mut Segment,
    missing: &mut Missing,
) -> io::Result<Vec<(Header, u64)>> {
    let path = source.directory.join(segment.id.file_name());
    let file = source.filesystem.open(&path, OpenMode::Read)?;
    let Ok(scanned) = scan(source, file.into(), segment.id, segment.end, true, true) else {
        return Ok(Vec::new());
    };
    if scanned.contents.tally != segment.contents.tally {
        // What is missing was settled by some, or it was not: nobody knows.
        let found = match scanned.contents.is_empty() {
            true => segment.id.first,
            false => scanned.contents.last,
        };
        missing.extend(scanned.missing);
        missing.add(found + 1..segment.contents.last + 1);
        segment.contents.tally = scanned.contents.tally;
        segment.damaged = true;
        segment.unreadable.extend(match scanned.damaged.is_empty() {
            true => vec![scanned.end],
            false => scanned.damaged,
        });
    }
    Ok(scanned.records)
}
