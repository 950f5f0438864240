//! The promises of the crate as checks on one body; the property tests and the fuzz targets call them alike.
#![allow(dead_code)]

use bytes::{Buf as _, Bytes};
use sluice_wire::{
    Chain, Depth, Edits, Fault, Kind, Limit, Request, RoutingKey, count, range_of, share_out, split, validate,
};

use crate::support::Decoded;

/// Deep validation accepts what prost decodes, less wrong id lengths, and all counts agree.
pub fn validate_as_prost(kind: Kind, body: &[u8]) {
    let decoded = Decoded::of(kind, body);
    match validate(kind, Depth::Deep, body) {
        Ok(scan) => {
            let decoded = decoded.unwrap_or_else(|| panic!("{kind:?}: prost refuses what validate accepts"));
            assert_eq!(scan.items, decoded.items(), "{kind:?}: items");
            assert_eq!(count(kind, body), Ok(scan.items), "{kind:?}: count");
            let shallow = validate(kind, Depth::Shallow, body).expect("deep implies shallow");
            assert_eq!(shallow.items, scan.items);
        }
        Err(error) => {
            assert!(error.offset <= body.len(), "{error}");
            if !matches!(error.fault, Fault::IdLength { .. }) {
                assert!(
                    decoded.is_none(),
                    "{kind:?}: prost decodes what validate refuses: {error}"
                );
            }
            // Whatever it answers, it answers.
            let _ = count(kind, body);
        }
    }
}

/// Pieces hold the same items in the same order, are valid, and keep the limit.
pub fn split_as_prost(kind: Kind, body: &[u8], limit: Limit) {
    let input = Bytes::copy_from_slice(body);
    let Ok(pieces) = split(kind, &input, limit) else {
        return;
    };
    let Ok(scan) = validate(kind, Depth::Deep, body) else {
        return;
    };
    let whole = Decoded::of(kind, body).expect("valid");
    let mut singles = Vec::new();
    let mut items = 0;
    for piece in &pieces {
        let bytes = piece.chain.to_bytes();
        assert_eq!(bytes.len(), piece.bytes());
        let scan = validate(kind, Depth::Deep, &bytes).expect("a piece of a valid body is valid");
        assert_eq!(scan.items, piece.items);
        items += scan.items;
        match limit {
            Limit::Items(max) => assert!(piece.items <= max.max(1)),
            Limit::Bytes(max) => assert!(
                piece.bytes() <= max || piece.items <= 1,
                "{} > {max}",
                piece.bytes()
            ),
        }
        singles.extend(Decoded::of(kind, &bytes).expect("valid").singles());
    }
    assert_eq!(items, scan.items);
    // Encoded, since NaN is not equal to itself.
    let encode = |all: Vec<Decoded>| all.iter().map(Decoded::encode).collect::<Vec<_>>();
    assert_eq!(encode(singles), encode(whole.singles()));

    if kind != Kind::Profiles {
        let mut again = Chain::concat(pieces.into_iter().map(|piece| piece.chain));
        let all = again.copy_to_bytes(again.remaining());
        assert_eq!(count(kind, &all), Ok(scan.items));
    }
}

/// Shares hold all items; those of a body as prost writes it, each where it would be if it came alone, in the order they came.
pub fn shares_as_prost(kind: Kind, body: &[u8], takers: usize) {
    let keys = [RoutingKey::TraceId, RoutingKey::Service, RoutingKey::Resource];
    let owner = |hash: u64| hash as usize % takers;
    let Ok(_) = validate(kind, Depth::Deep, body) else {
        for key in keys {
            let shared = share_out(kind, &Bytes::copy_from_slice(body), key, owner);
            assert_eq!(shared.is_ok(), count(kind, body).is_ok(), "{kind:?}");
        }
        return;
    };
    let whole = Decoded::of(kind, body).expect("valid");
    let singles: Vec<Vec<u8>> = whole.singles().iter().map(Decoded::encode).collect();
    for key in keys {
        let owner_of = |body: Vec<u8>| share_out(kind, &body.into(), key, owner).expect("valid")[0].to;
        let held_of = |body: Vec<u8>| {
            let shares = share_out(kind, &body.into(), key, owner).expect("valid");
            let mut held = vec![Vec::new(); takers];
            for share in &shares {
                let scan =
                    validate(kind, Depth::Deep, &share.body).expect("a share of a valid body is valid");
                assert_eq!(scan.items, share.items);
                assert!(shares.len() == 1 || share.items > 0, "an empty share");
                assert!(held[share.to].is_empty(), "two shares for one");
                let singles = Decoded::of(kind, &share.body).expect("valid").singles();
                held[share.to] = singles.iter().map(Decoded::encode).collect();
            }
            held
        };
        let mut wanted = vec![Vec::new(); takers];
        for single in &singles {
            // Profiles are never cut.
            let judged = if kind == Kind::Profiles {
                whole.encode()
            } else {
                single.clone()
            };
            wanted[owner_of(judged)].push(single.clone());
        }
        assert_eq!(held_of(whole.encode()), wanted, "{kind:?} {key:?}");
        let mut held: Vec<_> = held_of(body.to_vec()).into_iter().flatten().collect();
        let mut all = singles.clone();
        held.sort();
        all.sort();
        assert_eq!(held, all, "{kind:?} {key:?}");
    }
}

/// Dropping, inserting and replacing fields leaves a valid body with the expected items.
pub fn edit_keeps_framing(kind: Kind, body: &[u8], choices: &[u8]) {
    if validate(kind, Depth::Deep, body).is_err() {
        return;
    }
    let mut edits = Edits::new();
    for pair in choices.chunks_exact(4).take(6) {
        let at = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % (body.len() + 1);
        let len = usize::from(pair[2]);
        match pair[3] % 3 {
            0 => edits.drop(at..at + len),
            1 => edits.insert(at, Bytes::from_static(&[0xc2, 0x3e, 1, b'x'])),
            _ => edits.append(at..at + len, Bytes::from_static(&[0xc2, 0x3e, 1, b'x'])),
        }
    }
    // Arbitrary edits are mostly refused; what is accepted must be framed well.
    if let Ok(edited) = edits.apply(kind, body) {
        validate(kind, Depth::Deep, &edited).expect("an edited body is framed well");
    }
    assert_eq!(Edits::new().apply(kind, body).as_deref(), Ok(body));
}

/// Dropping every item the choices name leaves exactly the others, and no empty envelope that was not empty before.
pub fn edit_drops_items(kind: Kind, body: &[u8], choices: &[u8]) {
    let Ok(scan) = validate(kind, Depth::Deep, body) else {
        return;
    };
    let mut items: Vec<&[u8]> = Vec::new();
    let request = Request::new(kind, body);
    for scope in request.resources().flat_map(|resource| resource.scopes()) {
        items.extend(
            scope
                .metrics()
                .flat_map(|metric| metric.points())
                .map(|point| point.framed()),
        );
        items.extend(scope.log_records().map(|record| record.framed()));
        items.extend(scope.spans().map(|span| span.framed()));
    }
    if kind == Kind::Profiles {
        return;
    }
    assert_eq!(items.len() as u64, scan.items);
    let dropped = |index: usize| {
        let choice = choices
            .get(index / 8 % choices.len().max(1))
            .copied()
            .unwrap_or(0xff);
        choice >> (index % 8) & 1 == 1
    };
    let mut edits = Edits::new();
    let mut kept = Vec::new();
    let singles = Decoded::of(kind, body).expect("valid").singles();
    for (index, item) in items.iter().enumerate() {
        if dropped(index) {
            edits.drop(range_of(body, item).expect("a view lies in its body"));
        } else {
            kept.push(singles[index].encode());
        }
    }
    // A note for every resource that stays, behind its last field.
    let note = Bytes::from_static(&[0xc2, 0x3e, 1, b'x']);
    let mut resources = 0;
    for resource in request.resources() {
        if resource.items() > 0 && choices.first().is_some_and(|choice| choice % 2 == 0) {
            edits.append(
                range_of(body, resource.raw()).expect("a view lies in its body"),
                note.clone(),
            );
            resources += 1;
        }
    }
    let after = edits.apply(kind, body).expect("every range is a field");
    validate(kind, Depth::Deep, &after).expect("valid as before");
    let left: Vec<_> = Decoded::of(kind, &after)
        .expect("valid")
        .singles()
        .iter()
        .map(Decoded::encode)
        .collect();
    assert_eq!(left, kept);
    if resources > 0 {
        assert!(after.windows(4).filter(|window| *window == &note[..]).count() >= resources);
    }
    if kept.is_empty() && resources == 0 {
        assert_eq!(
            Request::new(kind, &after)
                .resources()
                .filter(|left| left.items() > 0)
                .count(),
            0
        );
    }
}
