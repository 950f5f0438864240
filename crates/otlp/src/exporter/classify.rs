//! From an answer to a verdict: the tables of the OTLP specification, and what it leaves open.
//!
//! | HTTP | verdict | why |
//! |---|---|---|
//! | 2xx | delivered | |
//! | 429, 502, 503, 504 | retry | the specification's list; `Retry-After` is obeyed |
//! | 408 | retry | not on the list, but it speaks of the connection, not of the data (RFC 9110, 15.5.9) |
//! | 413 | too large | |
//! | 3xx, 401, 402, 403, 404, 405, 406, 407, 410, 415, 421, 426, 431, 501, 505, 511 | endpoint fault | every request will get the same: wrong address, credentials, method, encoding or version |
//! | others | payload fault | the specification: "MUST NOT be retried" |
//!
//! | gRPC | verdict | why |
//! |---|---|---|
//! | OK | delivered | |
//! | CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS | retry | the specification's list |
//! | RESOURCE_EXHAUSTED with RetryInfo | retry | the specification |
//! | RESOURCE_EXHAUSTED, OUT_OF_RANGE about the size of the message | too large | what grpc-go, grpc-java, grpc-core and tonic say of a message above their limit |
//! | HTTP 413 instead of a gRPC answer | too large | a proxy's limit (nginx: 1 MiB unless told otherwise) |
//! | RESOURCE_EXHAUSTED otherwise | exhausted | a quota or a limiter that gives no time: held and probed, never dropped |
//! | UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED | endpoint fault | |
//! | others | payload fault | |

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use sluice_client::{SendError, retry_after};
use sluice_pipeline::Verdict;

use super::status::{ErrorStatus, MAX_DELAY};

/// The verdict on a body that could not be made; that is only for want of memory.
pub(crate) fn cannot_compress(error: std::io::Error) -> Verdict {
    Verdict::Retry {
        after: None,
        reason: format!("cannot compress: {error}"),
    }
}

/// The verdict on an HTTP answer that is not a success.
pub(crate) fn http_failure(status: StatusCode, headers: &HeaderMap, said: ErrorStatus) -> Verdict {
    let reason = if said.message.is_empty() {
        format!("HTTP {status}")
    } else {
        format!("HTTP {status}: {}", said.message)
    };
    match status.as_u16() {
        408 | 429 | 502 | 503 | 504 => {
            let after = retry_after(headers, SystemTime::now()).or(said.retry_delay);
            Verdict::Retry {
                after: hint(after),
                reason,
            }
        }
        413 => Verdict::TooLarge { reason },
        300..=399 => {
            let to = headers
                .get(http::header::LOCATION)
                .and_then(|value| value.to_str().ok());
            let to = to.map_or(String::new(), |to| format!(" to {}", super::status::words(to)));
            Verdict::EndpointFault {
                reason: format!("{reason}: redirects{to} are not followed; correct the endpoint"),
            }
        }
        401 | 402 | 403 | 404 | 405 | 406 | 407 | 410 | 415 | 421 | 426 | 431 | 501 | 505 | 511 => {
            Verdict::EndpointFault { reason }
        }
        _ => Verdict::PayloadFault { reason },
    }
}

/// A delay of nothing is no hint: our own backoff applies, or a destination that says 0 while it
/// is overloaded would be hammered.
fn hint(delay: Option<Duration>) -> Option<Duration> {
    delay.filter(|delay| !delay.is_zero())
}

/// The verdict on a request that got no answer.
pub(crate) fn unanswered(error: &SendError) -> Verdict {
    let reason = error.to_string();
    if error.needs_mending() {
        Verdict::EndpointFault { reason }
    } else {
        Verdict::Retry { after: None, reason }
    }
}

/// A gRPC status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const OK: Code = Code(0);
    pub(crate) const CANCELLED: Code = Code(1);
    pub(crate) const UNKNOWN: Code = Code(2);
    pub(crate) const INVALID_ARGUMENT: Code = Code(3);
    pub(crate) const DEADLINE_EXCEEDED: Code = Code(4);
    pub(crate) const PERMISSION_DENIED: Code = Code(7);
    pub(crate) const RESOURCE_EXHAUSTED: Code = Code(8);
    pub(crate) const ABORTED: Code = Code(10);
    pub(crate) const OUT_OF_RANGE: Code = Code(11);
    pub(crate) const UNIMPLEMENTED: Code = Code(12);
    pub(crate) const INTERNAL: Code = Code(13);
    pub(crate) const UNAVAILABLE: Code = Code(14);
    pub(crate) const DATA_LOSS: Code = Code(15);
    pub(crate) const UNAUTHENTICATED: Code = Code(16);

    /// The code that stands for an HTTP status without a `grpc-status`
    /// (grpc/grpc `doc/http-grpc-status-mapping.md`).
    pub(crate) fn of_http(status: StatusCode) -> Code {
        match status.as_u16() {
            400 => Code::INTERNAL,
            401 => Code::UNAUTHENTICATED,
            403 => Code::PERMISSION_DENIED,
            404 => Code::UNIMPLEMENTED,
            429 | 502 | 503 | 504 => Code::UNAVAILABLE,
            _ => Code::UNKNOWN,
        }
    }

    /// Its name in the gRPC documentation, if it has one.
    fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 17] = [
            "OK",
            "CANCELLED",
            "UNKNOWN",
            "INVALID_ARGUMENT",
            "DEADLINE_EXCEEDED",
            "NOT_FOUND",
            "ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "RESOURCE_EXHAUSTED",
            "FAILED_PRECONDITION",
            "ABORTED",
            "OUT_OF_RANGE",
            "UNIMPLEMENTED",
            "INTERNAL",
            "UNAVAILABLE",
            "DATA_LOSS",
            "UNAUTHENTICATED",
        ];
        usize::try_from(self.0).ok().and_then(|n| NAMES.get(n)).copied()
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// The verdict on a gRPC status that is not OK.
pub(crate) fn grpc_failure(code: Code, message: &str, retry_delay: Option<Duration>) -> Verdict {
    let reason = if message.is_empty() {
        format!("gRPC {code}")
    } else {
        format!("gRPC {code}: {message}")
    };
    let after = retry_delay.map(|delay| delay.min(MAX_DELAY));
    match code {
        Code::RESOURCE_EXHAUSTED | Code::OUT_OF_RANGE if after.is_none() && is_about_size(message) => {
            Verdict::TooLarge { reason }
        }
        Code::CANCELLED
        | Code::DEADLINE_EXCEEDED
        | Code::ABORTED
        | Code::OUT_OF_RANGE
        | Code::UNAVAILABLE
        | Code::DATA_LOSS => Verdict::Retry {
            after: hint(after),
            reason,
        },
        Code::RESOURCE_EXHAUSTED if after.is_some() => Verdict::Retry {
            after: hint(after),
            reason,
        },
        Code::RESOURCE_EXHAUSTED => Verdict::Exhausted { reason },
        Code::UNAUTHENTICATED | Code::PERMISSION_DENIED | Code::UNIMPLEMENTED => {
            Verdict::EndpointFault { reason }
        }
        _ => Verdict::PayloadFault { reason },
    }
}

/// Whether a message speaks of a size limit, in the words of the implementations there are.
fn is_about_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    [
        "larger than max",
        "too large",
        "exceeds maximum size",
        "exceeds the maximum",
        "exceeds max",
        "message size",
    ]
    .iter()
    .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(status: u16, headers: &[(&'static str, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        http_failure(
            StatusCode::from_u16(status).unwrap(),
            &map,
            ErrorStatus::default(),
        )
    }

    /// Scenario: every HTTP status that is not a success.
    /// Guarantees: exactly the listed ones are retried; 413 is a size; the rest is a fault of the
    /// endpoint or of the payload as the table says.
    #[test]
    fn c2_http_statuses() {
        for status in 300..600 {
            let verdict = http(status, &[]);
            match status {
                408 | 429 | 502 | 503 | 504 => {
                    assert!(matches!(verdict, Verdict::Retry { after: None, .. }), "{status}")
                }
                413 => assert!(matches!(verdict, Verdict::TooLarge { .. }), "{status}"),
                300..=399 | 401..=407 | 410 | 415 | 421 | 426 | 431 | 501 | 505 | 511 => {
                    assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{status}")
                }
                _ => assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{status}"),
            }
        }
    }

    /// Scenario: `Retry-After` as seconds, as a date in all three forms, and as nonsense.
    /// Guarantees: the delay is what it says, bounded; nonsense is no delay at all.
    #[test]
    fn c3_retry_after_forms() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:07 GMT").unwrap();
        for (text, want) in [
            ("0", Some(Duration::ZERO)),
            ("7", Some(Duration::from_secs(7))),
            (" 7 ", Some(Duration::from_secs(7))),
            ("99999999999999999999999", Some(MAX_DELAY)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(Duration::from_secs(30))),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(Duration::from_secs(30))),
            ("Sun Nov  6 08:49:37 1994", Some(Duration::from_secs(30))),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(Duration::ZERO)),
            ("soon", None),
            ("-3", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", text.parse().unwrap());
            assert_eq!(retry_after(&headers, now), want, "{text:?}");
        }
        assert!(matches!(
            http(503, &[("retry-after", "2")]),
            Verdict::Retry { after: Some(after), .. } if after == Duration::from_secs(2)
        ));
    }

    /// Scenario: a destination that asks for no delay at all, in each protocol.
    /// Guarantees: retried, but by our own backoff.
    #[test]
    fn c3_a_delay_of_zero_is_no_hint() {
        assert!(matches!(
            http(503, &[("retry-after", "0")]),
            Verdict::Retry { after: None, .. }
        ));
        let exhausted = grpc_failure(Code::RESOURCE_EXHAUSTED, "", Some(Duration::ZERO));
        assert!(matches!(exhausted, Verdict::Retry { after: None, .. }));
    }

    /// Scenario: every gRPC code, with and without RetryInfo.
    /// Guarantees: the specification's list is retried, RESOURCE_EXHAUSTED only with RetryInfo.
    #[test]
    fn c1_grpc_codes() {
        for code in 1..=20 {
            for delay in [None, Some(Duration::from_secs(3))] {
                let verdict = grpc_failure(Code(code), "x", delay);
                match code {
                    1 | 4 | 10 | 11 | 14 | 15 => {
                        assert!(
                            matches!(verdict, Verdict::Retry { after, .. } if after == delay),
                            "{code}"
                        )
                    }
                    8 if delay.is_some() => {
                        assert!(matches!(verdict, Verdict::Retry { after, .. } if after == delay))
                    }
                    8 => assert!(matches!(verdict, Verdict::Exhausted { .. })),
                    7 | 12 | 16 => assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{code}"),
                    _ => assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{code}"),
                }
            }
        }
    }

    /// Scenario: what the gRPC implementations say of a message above their limit.
    /// Guarantees: each is a size to be halved, not a quota and not a fault to retry.
    #[test]
    fn c1_messages_about_size() {
        for (code, message) in [
            (8, "grpc: received message larger than max (4194400 vs. 4194304)"),
            (
                8,
                "grpc: received message after decompression larger than max (5 vs. 4)",
            ),
            (8, "gRPC message exceeds maximum size 4194304: 5000000"),
            (
                8,
                "SERVER: Received message larger than max (5000000 vs. 4194304)",
            ),
            (
                11,
                "Error, decoded message length too large: found 5 bytes, the limit is: 4 bytes",
            ),
        ] {
            let verdict = grpc_failure(Code(code), message, None);
            assert!(
                matches!(verdict, Verdict::TooLarge { .. }),
                "{message}: {verdict:?}"
            );
        }
        let quota = grpc_failure(Code(8), "quota exceeded for project", None);
        assert!(matches!(quota, Verdict::Exhausted { .. }));
    }

    /// Scenario: HTTP statuses before a gRPC server, from proxies.
    /// Guarantees: gRPC's own mapping.
    #[test]
    fn c1_http_statuses_without_grpc_status() {
        for (status, code) in [
            (400, 13),
            (401, 16),
            (403, 7),
            (404, 12),
            (429, 14),
            (502, 14),
            (503, 14),
            (504, 14),
            (500, 2),
            (302, 2),
        ] {
            assert_eq!(
                Code::of_http(StatusCode::from_u16(status).unwrap()),
                Code(code),
                "{status}"
            );
        }
    }
}
