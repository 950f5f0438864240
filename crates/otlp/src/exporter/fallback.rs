//! The compression in use, which a destination can talk us out of.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_client::Compression;

/// The configured compression, until the destination says it cannot read it; then the fallback,
/// for as long as this process lives: destinations rarely learn a compression without a restart
/// of everything around them, and asking again would cost a refused request each time.
#[derive(Debug)]
pub(crate) struct Negotiated {
    configured: Compression,
    /// Configured is refused, gzip is offered.
    to_gzip: AtomicBool,
    /// Nothing we write is offered.
    to_none: AtomicBool,
}

impl Negotiated {
    pub(crate) fn new(configured: Compression) -> Self {
        Self {
            configured,
            to_gzip: AtomicBool::new(false),
            to_none: AtomicBool::new(false),
        }
    }

    pub(crate) fn current(&self) -> Compression {
        if self.to_none.load(Ordering::Relaxed) {
            Compression::None
        } else if self.to_gzip.load(Ordering::Relaxed) {
            Compression::Gzip
        } else {
            self.configured
        }
    }

    /// Takes up the destination's refusal of `refused`, which lists what it reads in `accepted`.
    /// True when there is something else to try.
    pub(crate) fn refuse(&self, refused: Compression, accepted: Option<&str>) -> bool {
        if refused == Compression::None {
            return false;
        }
        let reads_gzip = accepted.is_some_and(|list| {
            list.split(',')
                .any(|name| name.split(';').next().unwrap_or("").trim() == "gzip")
        });
        let (flag, to) = if reads_gzip && refused != Compression::Gzip {
            (&self.to_gzip, Compression::Gzip)
        } else {
            (&self.to_none, Compression::None)
        };
        if !flag.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?refused,
                ?to,
                "the destination does not read the configured compression; falling back"
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: zstd is refused by one who reads gzip; then gzip is refused as well.
    /// Guarantees: gzip, then none; nothing is left to try after that.
    #[test]
    fn falls_back_step_by_step() {
        let negotiated = Negotiated::new(Compression::Zstd);
        assert!(negotiated.refuse(Compression::Zstd, Some("identity, gzip;q=0.5")));
        assert_eq!(negotiated.current(), Compression::Gzip);
        assert!(negotiated.refuse(Compression::Gzip, Some("identity")));
        assert_eq!(negotiated.current(), Compression::None);
        assert!(!negotiated.refuse(Compression::None, None));
    }
}
