//! What is kept of the series that a destination refuses.

use sluice_payload::WireFormat;
use sluice_pipeline::Refused;

use super::lane::Lane;
use crate::body::Body;
use crate::decode::Version;
use crate::rewrite::joined;

/// Bytes of refused series that are kept of a batch, before compression: no permit covers them. They are a few series, or a destination that refuses nearly
/// everything; what is beyond is logged and counted only.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// The series that were refused in these lanes: one request of each version, since each is a record that is synced by itself. The log has
/// what was said of each series; here it is what was said of the first.
pub(super) fn refused(lanes: &[Lane]) -> Vec<Refused> {
    let all: Vec<&(Body, String)> = lanes.iter().flat_map(Lane::refused).collect();
    let of = |version: Version| {
        let bodies = || {
            all.iter()
                .filter(move |(body, _)| body.format.version() == version)
        };
        let (_, first) = bodies().next()?;
        let others = bodies().filter(|(_, reason)| reason != first).count();
        let reason = match others {
            0 => first.clone(),
            _ => format!("{first} (and {others} for other reasons, which the log has)"),
        };
        let (body, items) = joined(version, bodies().map(|(body, _)| body), MAX_KEPT_BYTES)?;
        // What has exemplars only is no payload.
        (items > 0).then_some(Refused {
            body,
            wire_format: match version {
                Version::V1 => WireFormat::RemoteWrite1,
                Version::V2 => WireFormat::RemoteWrite2,
            },
            items,
            reason,
        })
    };
    [Version::V1, Version::V2].into_iter().filter_map(of).collect()
}
