use std::sync::Arc;

use sluice_admission::Budget;
use sluice_payload::{Payload, Tenants};

use super::*;

/// A logs request with `n` empty log records in one resource and scope.
fn logs(n: usize) -> Bytes {
    let records: Vec<u8> = std::iter::repeat_n([0x12, 0x00], n).flatten().collect();
    let wrap = |inner: Vec<u8>, tag: u8| {
        let mut out = vec![tag];
        let mut len = inner.len();
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend(inner);
        out
    };
    wrap(wrap(records, 0x12), 0x0a).into()
}

fn entry(seq: u64, items: usize) -> Entry {
    let payload = Payload::uncharged(Signal::Logs, logs(items), items as u64);
    Entry {
        seq,
        payload: Arc::new(payload),
        full: false,
    }
}

fn items(batches: &[Tracked]) -> Vec<Vec<(u64, u64)>> {
    batches
        .iter()
        .map(|b| {
            b.sources
                .iter()
                .zip(&b.batch.parts)
                .map(|(s, p)| (s.seq, p.items))
                .collect()
        })
        .collect()
}

/// Scenario: payloads of 3 items, `min_size` 5, `max_size` 7; one of 20.
/// Guarantees: a batch goes when full, never above the maximum, a large payload is cut, order
/// and every item are kept, and the deadline starts with the oldest payload.
#[test]
fn batches_by_items() {
    let settings = BatchSettings {
        min_size: 5,
        max_size: Some(7),
        ..Default::default()
    };
    let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
    let start = Instant::now();
    let mut ready = Vec::new();
    assert_eq!(batcher.deadline(), None);
    batcher.push(entry(0, 3), start, &mut ready);
    assert_eq!(batcher.deadline(), Some(start + settings.flush_timeout));
    batcher.push(entry(1, 3), start, &mut ready);
    batcher.push(entry(2, 3), start, &mut ready);
    batcher.push(entry(3, 20), start, &mut ready);
    batcher.flush(&mut ready);
    let got = items(&ready);
    assert_eq!(got[0], [(0, 3), (1, 3)]);
    assert!(
        got.iter()
            .all(|batch| batch.iter().map(|(_, n)| n).sum::<u64>() <= 7),
        "{got:?}"
    );
    assert_eq!(got.iter().flatten().map(|(_, n)| n).sum::<u64>(), 29);
    assert!(got.iter().flatten().map(|(seq, _)| seq).is_sorted());
    for tracked in &ready {
        assert_eq!(
            sluice_wire::count(Kind::Logs, &contiguous(&tracked.batch)).unwrap(),
            tracked.batch.items()
        );
    }
}

/// Scenario: a payload that is cut because it is too large, the pieces halved down to single items, and settled one by one.
/// Guarantees: what is copied for it is charged beside the payload as long as it is there, and given back.
#[test]
fn copies_are_charged() {
    const PAYLOAD_BYTES: u64 = 400;
    let budget = Budget::new(10_000);
    let settings = BatchSettings {
        max_size: Some(7),
        ..Default::default()
    };
    let mut whole = entry(0, 40);
    Arc::get_mut(&mut whole.payload).unwrap().permit = budget.try_reserve(PAYLOAD_BYTES);
    let body = whole.payload.body.clone();
    let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
    let mut ready = Vec::new();
    batcher.push(whole, Instant::now(), &mut ready);
    batcher.flush(&mut ready);
    let copied = |ready: &[Tracked]| -> u64 {
        let parts = ready.iter().flat_map(|tracked| &tracked.batch.parts);
        let copies = parts.filter(|part| !body.as_ptr_range().contains(&part.body.as_ptr()));
        copies.map(|part| part.body.len() as u64).sum()
    };
    assert!(
        copied(&ready) > 40,
        "one item after the other is no slice of the payload"
    );
    while let Some(tracked) = ready.pop() {
        if let Ok((head, tail)) = tracked.halve() {
            ready.extend([head, tail]);
        }
        let left = if ready.is_empty() { 0 } else { PAYLOAD_BYTES };
        assert_eq!(budget.usage().used, left + copied(&ready));
    }
}

/// Scenario: a payload of two resources that is cut between them.
/// Guarantees: its pieces are slices of it, and cost nothing beside it.
#[test]
fn slices_are_not_charged() {
    let budget = Budget::new(10_000);
    let settings = BatchSettings {
        max_size: Some(7),
        ..Default::default()
    };
    let mut whole = entry(0, 7);
    let payload = Arc::get_mut(&mut whole.payload).unwrap();
    payload.body = [logs(7), logs(7)].concat().into();
    payload.items = 14;
    payload.permit = budget.try_reserve(100);
    let body = payload.body.as_ptr_range();
    let mut ready = Vec::new();
    let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
    batcher.push(whole, Instant::now(), &mut ready);
    batcher.flush(&mut ready);
    let parts = ready.iter().flat_map(|tracked| &tracked.batch.parts);
    let slices = parts.filter(|part| body.contains(&part.body.as_ptr()));
    assert_eq!((slices.count(), budget.usage().used), (2, 100));
}

/// Scenario: the destination takes 30 bytes at most; the settings count items.
/// Guarantees: no batch is larger in bytes.
#[test]
fn bytes_are_capped_whatever_the_sizer() {
    let mut batcher = Batcher::new(Signal::Logs, BatchSettings::default(), 30);
    let mut ready = Vec::new();
    for seq in 0..5 {
        batcher.push(entry(seq, 6 + 20 * seq as usize), Instant::now(), &mut ready);
    }
    batcher.flush(&mut ready);
    assert!(ready.iter().all(|b| b.batch.bytes() <= 30));
    assert_eq!(ready.iter().map(|b| b.batch.items()).sum::<u64>(), 5 * 6 + 200);
}

/// Scenario: profiles, whose requests cannot be laid end to end.
/// Guarantees: one payload a batch.
#[test]
fn profiles_are_never_merged() {
    let mut batcher = Batcher::new(Signal::Profiles, BatchSettings::default(), usize::MAX);
    let mut ready = Vec::new();
    batcher.push(entry(0, 1), Instant::now(), &mut ready);
    batcher.push(entry(1, 1), Instant::now(), &mut ready);
    assert_eq!(items(&ready), [[(0, 1)], [(1, 1)]]);
}

/// Scenario: a request of remote write with nine series, of both versions, where a batch may have three items, or ten bytes alone; it is
/// halved again and again.
/// Guarantees: it is one batch, since its exporter knows how much to send at once; halves are of the same format and end at one series.
#[test]
fn remote_write_is_halved_and_not_cut() {
    let of_1 = b"\x0a\x02\x12\x00".repeat(9);
    let of_2 = [&b"\x22\x00"[..], &b"\x2a\x02\x12\x00".repeat(9)].concat();
    for (wire_format, body, max_size) in [
        (WireFormat::RemoteWrite1, of_1.clone(), Some(3)),
        (WireFormat::RemoteWrite1, of_1, None),
        (WireFormat::RemoteWrite2, of_2, Some(3)),
    ] {
        let settings = BatchSettings {
            max_size,
            ..Default::default()
        };
        let mut batcher = Batcher::new(Signal::Metrics, settings, 10);
        let mut ready = Vec::new();
        let payload = Payload {
            signal: Signal::Metrics,
            wire_format,
            body: body.into(),
            items: 9,
            ..Arc::into_inner(entry(0, 0).payload).unwrap()
        };
        let entry = Entry {
            seq: 0,
            payload: Arc::new(payload),
            full: false,
        };
        batcher.push(entry, Instant::now(), &mut ready);
        batcher.flush(&mut ready);
        assert_eq!(items(&ready), [[(0, 9)]]);
        let mut singles = 0;
        while let Some(tracked) = ready.pop() {
            assert_eq!(tracked.batch.parts[0].wire_format, wire_format);
            match tracked.halve() {
                Ok((head, tail)) => ready.extend([head, tail]),
                Err(single) => {
                    assert_eq!(single.batch.items(), 1);
                    singles += 1;
                }
            }
        }
        assert_eq!(singles, 9);
    }
}

/// Scenario: halving again and again.
/// Guarantees: first between payloads, then between items, down to one item, losing none.
#[test]
fn halving_ends_at_one_item() {
    let mut batcher = Batcher::new(Signal::Logs, BatchSettings::default(), usize::MAX);
    let mut ready = Vec::new();
    batcher.push(entry(0, 3), Instant::now(), &mut ready);
    batcher.push(entry(1, 5), Instant::now(), &mut ready);
    batcher.flush(&mut ready);
    let mut singles = 0;
    while let Some(tracked) = ready.pop() {
        match tracked.halve() {
            Ok((head, tail)) => {
                assert!(head.batch.items() > 0 && tail.batch.items() > 0);
                ready.extend([head, tail]);
            }
            Err(single) => {
                assert_eq!(single.batch.items(), 1);
                singles += 1;
            }
        }
    }
    assert_eq!(singles, 8);
}

/// Scenario: payloads of three tenants in turn, where batches are of one tenant; batches full at six items; the time passes between them.
/// Guarantees: no batch has two tenants; each is full by itself, in order; what has waited for its time goes, and no other; the deadline is the oldest one's.
#[test]
fn batches_of_one_tenant_each() {
    let tenants = [
        TenantId::DEFAULT,
        TenantId::OVERFLOW,
        Tenants::default().intern("a"),
    ];
    let of = |seq: u64, tenant: usize| {
        let mut entry = entry(seq, 3);
        Arc::get_mut(&mut entry.payload).unwrap().tenant = tenants[tenant];
        entry
    };
    let settings = BatchSettings {
        min_size: 6,
        ..Default::default()
    };
    let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX).by_tenant(true);
    let start = Instant::now();
    let at = |seq: u64| start + Duration::from_millis(seq);
    let mut ready = Vec::new();
    for (seq, tenant) in (0..).zip([0, 1, 2, 1, 0, 1]) {
        batcher.push(of(seq, tenant), at(seq), &mut ready);
    }
    assert_eq!(items(&ready), [[(1, 3), (3, 3)], [(0, 3), (4, 3)]]);
    ready.clear();
    let due = at(2) + settings.flush_timeout;
    assert_eq!(batcher.deadline(), Some(due));
    batcher.flush_due(due - Duration::from_millis(1), &mut ready);
    assert!(ready.is_empty());
    batcher.flush_due(due, &mut ready);
    assert_eq!(items(&ready), [[(2, 3)]]);
    assert_eq!(batcher.deadline(), Some(at(5) + settings.flush_timeout));
    batcher.flush(&mut ready);
    assert_eq!(items(&ready), [[(2, 3)], [(5, 3)]]);
    assert_eq!(batcher.deadline(), None);
}

/// Scenario: a payload of each of more tenants than batches may be gathered for.
/// Guarantees: the oldest goes before its time, by itself.
#[test]
fn there_is_an_end_to_the_tenants_that_are_gathered_for() {
    let tenants = Tenants::default();
    let mut batcher = Batcher::new(Signal::Logs, BatchSettings::default(), usize::MAX).by_tenant(true);
    let mut ready = Vec::new();
    for seq in 0..MAX_OPEN as u64 + 2 {
        let mut entry = entry(seq, 3);
        Arc::get_mut(&mut entry.payload).unwrap().tenant = tenants.intern(&seq.to_string());
        batcher.push(entry, Instant::now(), &mut ready);
    }
    assert_eq!(items(&ready), [[(0, 3)], [(1, 3)]]);
}
