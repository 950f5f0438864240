//! From an answer to what follows: the table of the remote-write specifications, and what they leave open.
//!
//! | HTTP | what follows | why |
//! |---|---|---|
//! | 2xx | taken | in 2.0 less what the `*-Written` headers say was not written, which is counted |
//! | 2xx without those headers, to 2.0 | send as 1.0 | the receiver read the body as 1.0 and found nothing in it (2.0 specification) |
//! | 415, to 2.0 or zstd | send as 1.0 | the specification; VictoriaMetrics |
//! | 400, to zstd that was never taken | send as 1.0 | receivers that look at the body before its encoding |
//! | 429, 5xx | retry | the specifications; `Retry-After` is obeyed |
//! | 408 | retry | speaks of the connection, not of the data (RFC 9110, 15.5.9); proxies send it |
//! | 413 | halve | |
//! | 3xx, 401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 431 | hold | every request would get the same: wrong address, credentials, or a receiver that speaks something else |
//! | other 4xx, to 2.0, with some `*-Written` | taken in part | the receiver has found what is wrong itself |
//! | other 4xx, which says that samples are too old | give those up | they get no younger, and what is behind them is to arrive |
//! | other 4xx | bisect what was not written all the same | never retried: the specifications |

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use sluice_client::{Answer, Phase, SendError, retry_after, words};

use super::concurrency::Came;
use crate::body::{Format, Written};

/// Samples, histograms and exemplars that a receiver of 2.0 has written.
pub(crate) const WRITTEN: [HeaderName; 3] = [
    HeaderName::from_static("x-prometheus-remote-write-samples-written"),
    HeaderName::from_static("x-prometheus-remote-write-histograms-written"),
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written"),
];

/// What follows from the answer to one body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    Taken,
    /// So much was written, and the rest never will be.
    InPart {
        written: Written,
        reason: String,
    },
    Retry {
        after: Option<Duration>,
        reason: String,
    },
    TooLarge {
        reason: String,
    },
    Refused {
        reason: String,
    },
    /// Some of its samples are older than the destination takes, of whatever series.
    TooOld {
        reason: String,
    },
    /// The destination does not read this format.
    OtherFormat {
        reason: String,
    },
    Hold {
        reason: String,
    },
}

/// What an answer says of how busy the destination is: a refusal of what is in a body comes fast, whatever else is under way.
pub(super) fn came(answer: &Result<Answer, SendError>) -> Came {
    match answer {
        Ok(answer) if answer.status.is_success() => Came::Answer,
        Ok(answer) if matches!(answer.status.as_u16(), 408 | 429 | 500..) => Came::Failure,
        Ok(_) => Came::Nothing,
        Err(SendError::Timeout {
            phase: Phase::Signing,
            ..
        }) => Came::Nothing,
        Err(error) if error.needs_mending() => Came::Nothing,
        Err(_) => Came::Failure,
    }
}

/// What a receiver of 2.0 says it has written; `None` when it says nothing of the kind.
fn written(headers: &HeaderMap) -> Option<Written> {
    let [samples, histograms, exemplars] =
        WRITTEN.map(|name| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok());
    samples.or(histograms).or(exemplars)?;
    Some(Written {
        series: 0,
        samples: samples.unwrap_or(0),
        histograms: histograms.unwrap_or(0),
        exemplars: exemplars.unwrap_or(0),
    })
}

/// What destinations call samples that are older than the oldest they take: Prometheus and Thanos, Cortex, Mimir.
const TOO_OLD: [&str; 5] = [
    "out of bounds",
    "too old",
    "too-old",
    "too far in the past",
    "too-far-in-past",
];

/// Whether an answer says that. Of a sample that is older than another one of its series it is not said: others in the request may be taken.
fn is_too_old(said: &str) -> bool {
    let said = said.to_lowercase();
    let is_of_a_program = said.contains("index out of bounds");
    !is_of_a_program && TOO_OLD.iter().any(|words| said.contains(words))
}

/// `sent` is what the body held; `proven` says that a body of its format has been taken before.
pub(super) fn settled(
    answer: Result<Answer, SendError>,
    format: Format,
    sent: Written,
    proven: bool,
) -> Settled {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.needs_mending() => {
            return Settled::Hold {
                reason: error.to_string(),
            };
        }
        Err(error) => {
            return Settled::Retry {
                after: None,
                reason: error.to_string(),
            };
        }
    };
    let status = answer.status;
    let told = (format == Format::V2).then(|| written(&answer.headers)).flatten();
    if status.is_success() {
        return match told {
            None if format == Format::V2 => Settled::OtherFormat {
                reason: format!("HTTP {status} without any X-Prometheus-Remote-Write-*-Written header"),
            },
            Some(written) if written.points() < sent.points() || written.exemplars < sent.exemplars => {
                Settled::InPart {
                    written,
                    reason: format!("HTTP {status}, but not all of it was written"),
                }
            }
            _ => Settled::Taken,
        };
    }
    let said = words(&String::from_utf8_lossy(&answer.body));
    let reason = if said.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {said}")
    };
    let nothing_written = told.is_none_or(|written| written.points() == 0);
    match status.as_u16() {
        400 | 409 | 422 if nothing_written && is_too_old(&said) => Settled::TooOld { reason },
        408 | 429 | 500.. => Settled::Retry {
            // A delay of nothing is no hint: our own backoff applies.
            after: retry_after(&answer.headers, SystemTime::now()).filter(|delay| !delay.is_zero()),
            reason,
        },
        413 => Settled::TooLarge { reason },
        415 if format != Format::V1 => Settled::OtherFormat { reason },
        400 if format == Format::V1Zstd && !proven => Settled::OtherFormat { reason },
        300..=399 => Settled::Hold {
            reason: format!("{reason}: redirects are not followed; correct the endpoint"),
        },
        401..=407 | 410 | 415 | 421 | 426 | 431 => Settled::Hold { reason },
        _ => match told.filter(|written| written.points() > 0) {
            Some(written) => Settled::InPart { written, reason },
            None => Settled::Refused { reason },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_v1(answer: Result<Answer, SendError>) -> Settled {
        settled(answer, Format::V1, Written::default(), false)
    }

    fn answer(status: u16, retry_after: &str) -> Result<Answer, SendError> {
        let mut headers = http::HeaderMap::new();
        if !retry_after.is_empty() {
            headers.insert("retry-after", retry_after.parse().unwrap());
        }
        Ok(Answer {
            status: http::StatusCode::from_u16(status).unwrap(),
            headers,
            body: "out of order sample".into(),
            cut: false,
            trailers: None,
        })
    }

    /// Scenario: every status from 200 to 599.
    /// Guarantees: 429 and 5xx (and 408) are retried, no other; nothing that is not a success counts as taken.
    #[test]
    fn every_status() {
        for status in 200..600 {
            let settled = of_v1(answer(status, ""));
            match status {
                200..=299 => assert_eq!(settled, Settled::Taken),
                408 | 429 | 500.. => {
                    assert!(matches!(settled, Settled::Retry { after: None, .. }), "{status}")
                }
                413 => assert!(matches!(settled, Settled::TooLarge { .. })),
                300..=399 | 401..=407 | 410 | 415 | 421 | 426 | 431 => {
                    assert!(matches!(settled, Settled::Hold { .. }), "{status}");
                }
                _ => assert!(matches!(settled, Settled::Refused { .. }), "{status}"),
            }
        }
    }

    /// Scenario: a destination says when to come back, and why it refuses.
    /// Guarantees: both are passed on; a delay of 0 is none.
    #[test]
    fn delays_and_words() {
        let two = Some(Duration::from_secs(2));
        assert!(matches!(of_v1(answer(503, "2")), Settled::Retry { after, .. } if after == two));
        assert!(matches!(
            of_v1(answer(429, "0")),
            Settled::Retry { after: None, .. }
        ));
        let Settled::Refused { reason } = of_v1(answer(400, "")) else {
            panic!()
        };
        assert_eq!(reason, "HTTP 400 Bad Request: out of order sample");
    }

    /// Scenario: answers to 2.0 and to zstd, with and without the headers that say what was written.
    /// Guarantees: a receiver that does not read the format is told from one that refuses the data; what it says it has
    /// written is believed.
    #[test]
    fn formats() {
        let sent = Written {
            series: 3,
            samples: 2,
            histograms: 1,
            exemplars: 0,
        };
        let told = |status, samples: &str| {
            let mut answer = answer(status, "").unwrap();
            if !samples.is_empty() {
                answer.headers.insert(&WRITTEN[0], samples.parse().unwrap());
                answer.headers.insert(&WRITTEN[1], "1".parse().unwrap());
            }
            settled(Ok(answer), Format::V2, sent, true)
        };
        assert_eq!(told(204, "2"), Settled::Taken);
        for (status, samples) in [(204, "1"), (204, "0"), (400, "1")] {
            let in_part = told(status, samples);
            assert!(
                matches!(in_part, Settled::InPart { written, .. } if written.histograms == 1),
                "{in_part:?}"
            );
        }
        for status in [200, 204, 415] {
            assert!(
                matches!(told(status, ""), Settled::OtherFormat { .. }),
                "{status}"
            );
        }
        assert!(matches!(told(400, ""), Settled::Refused { .. }));
        assert!(matches!(told(500, "2"), Settled::Retry { .. }));
        let zstd = |status, proven| settled(answer(status, ""), Format::V1Zstd, sent, proven);
        assert_eq!(zstd(204, false), Settled::Taken);
        for proven in [false, true] {
            assert!(matches!(zstd(415, proven), Settled::OtherFormat { .. }));
        }
        assert!(matches!(zstd(400, false), Settled::OtherFormat { .. }));
        assert!(matches!(zstd(400, true), Settled::Refused { .. }));
    }
}
