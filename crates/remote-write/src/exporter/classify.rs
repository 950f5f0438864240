//! From an answer to what follows: the table of the remote-write specifications, and what they leave open.
//!
//! | HTTP | what follows | why |
//! |---|---|---|
//! | 2xx | taken | |
//! | 429, 5xx | retry | the specifications; `Retry-After` is obeyed |
//! | 408 | retry | speaks of the connection, not of the data (RFC 9110, 15.5.9); proxies send it |
//! | 413 | halve | |
//! | 3xx, 401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 431 | hold | every request would get the same: wrong address, credentials, or a receiver that speaks something else |
//! | other 4xx | bisect | never retried: the specifications |

use std::time::{Duration, SystemTime};

use sluice_client::{Answer, SendError, retry_after, words};

/// What follows from the answer to one body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    Taken,
    Retry { after: Option<Duration>, reason: String },
    TooLarge { reason: String },
    Refused { reason: String },
    Hold { reason: String },
}

pub(super) fn settled(answer: Result<Answer, SendError>) -> Settled {
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
    if status.is_success() {
        return Settled::Taken;
    }
    let said = words(&String::from_utf8_lossy(&answer.body));
    let reason = if said.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {said}")
    };
    match status.as_u16() {
        408 | 429 | 500.. => Settled::Retry {
            // A delay of nothing is no hint: our own backoff applies.
            after: retry_after(&answer.headers, SystemTime::now()).filter(|delay| !delay.is_zero()),
            reason,
        },
        413 => Settled::TooLarge { reason },
        300..=399 => Settled::Hold {
            reason: format!("{reason}: redirects are not followed; correct the endpoint"),
        },
        401..=407 | 410 | 415 | 421 | 426 | 431 => Settled::Hold { reason },
        _ => Settled::Refused { reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let settled = settled(answer(status, ""));
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
        assert!(matches!(settled(answer(503, "2")), Settled::Retry { after, .. } if after == two));
        assert!(matches!(
            settled(answer(429, "0")),
            Settled::Retry { after: None, .. }
        ));
        let Settled::Refused { reason } = settled(answer(400, "")) else {
            panic!()
        };
        assert_eq!(reason, "HTTP 400 Bad Request: out of order sample");
    }
}
