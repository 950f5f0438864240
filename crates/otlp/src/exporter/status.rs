//! What an answer's body says: partial success, or an error with a delay.

use std::time::Duration;

pub(crate) use sluice_client::{MAX_DELAY, words};
use sluice_pipeline::Verdict;

use super::protobuf;

/// `partial_success` of an `Export*ServiceResponse`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartialSuccess {
    pub(crate) rejected: u64,
    pub(crate) message: String,
}

/// A `google.rpc.Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ErrorStatus {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// The delay of its `RetryInfo`; present means the destination says the request is retryable.
    pub(crate) retry_delay: Option<Duration>,
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    Protobuf,
    Json,
    /// Whatever the destination, or something before it, answers in.
    Other,
}

impl BodyFormat {
    /// By `Content-Type`; parameters and case do not matter.
    pub(crate) fn of(content_type: Option<&http::HeaderValue>) -> Self {
        let name = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let name = name.split(';').next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("application/x-protobuf")
            || name.eq_ignore_ascii_case("application/protobuf")
        {
            BodyFormat::Protobuf
        } else if name.eq_ignore_ascii_case("application/json") {
            BodyFormat::Json
        } else {
            BodyFormat::Other
        }
    }
}

/// The verdict on an answer that says success. What it rejected is never sent again (C4); a body
/// nobody can read is a success all the same, with a warning, since the destination has the data.
pub(crate) fn delivered(format: BodyFormat, body: &[u8], items: u64) -> Verdict {
    if body.is_empty() {
        return Verdict::Delivered {
            rejected: 0,
            message: None,
        };
    }
    let partial = match format {
        BodyFormat::Protobuf => protobuf::partial_success(body).map_err(|e| e.to_string()),
        BodyFormat::Json => json::partial_success(body),
        BodyFormat::Other if is_page(body) => {
            return Verdict::EndpointFault {
                reason: "it answers with success and a web page, which no OTLP destination does; correct the endpoint"
                    .to_owned(),
            };
        }
        // A plain "OK" of some gateway before the destination.
        BodyFormat::Other => Ok(PartialSuccess::default()),
    };
    match partial {
        Ok(PartialSuccess { rejected, message }) => {
            let message = (!message.is_empty()).then(|| words(&message));
            Verdict::Delivered {
                rejected: rejected.min(items),
                message,
            }
        }
        Err(error) => warned(format!("delivered, but the answer cannot be read: {error}")),
    }
}

/// Markup: what a web server or a login page says in the place of a destination.
fn is_page(body: &[u8]) -> bool {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    body.trim_ascii_start().starts_with(b"<")
}

/// Delivered, with something the operator may want to know.
pub(crate) fn warned(message: String) -> Verdict {
    Verdict::Delivered {
        rejected: 0,
        message: Some(message),
    }
}

/// What the body of an error says, as far as it can be read.
pub(crate) fn error_words(format: BodyFormat, body: &[u8]) -> ErrorStatus {
    let status = match format {
        BodyFormat::Protobuf => protobuf::error_status(body).ok(),
        BodyFormat::Json => json::error_status(body),
        BodyFormat::Other => None,
    };
    let mut status = status.unwrap_or_else(|| {
        let plain = std::str::from_utf8(body).unwrap_or_default();
        ErrorStatus {
            message: plain.to_owned(),
            ..ErrorStatus::default()
        }
    });
    status.message = words(&status.message);
    status.retry_delay = status.retry_delay.map(|delay| delay.min(MAX_DELAY));
    status
}

mod json {
    //! The same two messages in the proto3 JSON mapping.

    use std::time::Duration;

    use serde_json::Value;

    use super::{ErrorStatus, PartialSuccess};

    fn member<'a>(object: &'a Value, camel: &str, snake: &str) -> Option<&'a Value> {
        object
            .get(camel)
            .or_else(|| object.get(snake))
            .filter(|value| !value.is_null())
    }

    /// An int64: a string of digits, or a number.
    fn integer(value: &Value) -> Option<u64> {
        match value {
            Value::String(text) => text.trim().parse::<i64>().ok(),
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|n| n as i64)),
            _ => None,
        }
        .map(|n| n.max(0) as u64)
    }

    fn text(value: Option<&Value>) -> String {
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(super) fn partial_success(body: &[u8]) -> Result<PartialSuccess, String> {
        let answer: Value = serde_json::from_slice(body).map_err(|e| format!("it is not JSON: {e}"))?;
        let Some(partial) = member(&answer, "partialSuccess", "partial_success") else {
            return Ok(PartialSuccess::default());
        };
        let rejected = [
            ("rejectedDataPoints", "rejected_data_points"),
            ("rejectedLogRecords", "rejected_log_records"),
            ("rejectedSpans", "rejected_spans"),
            ("rejectedProfiles", "rejected_profiles"),
        ]
        .into_iter()
        .find_map(|(camel, snake)| member(partial, camel, snake))
        .and_then(integer)
        .unwrap_or(0);
        Ok(PartialSuccess {
            rejected,
            message: text(member(partial, "errorMessage", "error_message")),
        })
    }

    pub(super) fn error_status(body: &[u8]) -> Option<ErrorStatus> {
        let status: Value = serde_json::from_slice(body).ok()?;
        let object = status.as_object()?;
        // Not everybody writes a Status; most write one of these.
        let message = ["message", "error", "detail", "title"]
            .iter()
            .find_map(|name| object.get(*name)?.as_str())
            .map(str::to_owned)
            .unwrap_or_else(|| status.to_string());
        let retry_delay = object
            .get("details")
            .and_then(Value::as_array)
            .and_then(|details| {
                details.iter().find_map(|any| {
                    any.get("@type")?
                        .as_str()?
                        .ends_with("/google.rpc.RetryInfo")
                        .then_some(())?;
                    Some(
                        any.get("retryDelay")
                            .and_then(Value::as_str)
                            .and_then(duration)
                            .unwrap_or_default(),
                    )
                })
            });
        let code = object
            .get("code")
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok())
            .unwrap_or(0);
        Some(ErrorStatus {
            code,
            message,
            retry_delay,
        })
    }

    /// `"1.5s"`.
    fn duration(text: &str) -> Option<Duration> {
        let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the endpoint is wrong, and a web server or a login page answers 200 with a page; or a
    /// gateway answers with a few words, or with nothing, under the same type.
    /// Guarantees: a page is no receipt: the backlog is held. Words and nothing are one.
    #[test]
    fn a_web_page_is_no_receipt() {
        for page in [
            "<html><body>Welcome</body></html>",
            "\u{feff}\r\n <!DOCTYPE html>",
            "<!-- x -->",
        ] {
            let verdict = delivered(BodyFormat::Other, page.as_bytes(), 1);
            assert!(
                matches!(&verdict, Verdict::EndpointFault { reason } if reason.contains("correct the endpoint")),
                "{page}: {verdict:?}"
            );
        }
        for receipt in ["", "OK", "1 < 2"] {
            let verdict = delivered(BodyFormat::Other, receipt.as_bytes(), 1);
            assert!(
                matches!(verdict, Verdict::Delivered { .. }),
                "{receipt}: {verdict:?}"
            );
        }
    }

    /// Scenario: partial successes in JSON as different writers spell them.
    /// Guarantees: count (string or number) and message are read; the count never exceeds the batch.
    #[test]
    fn json_partial_success() {
        for body in [
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"late"}}"#,
            r#"{"partialSuccess":{"rejectedLogRecords":3,"errorMessage":"late"}}"#,
            r#"{"partial_success":{"rejected_data_points":"3","error_message":"late"}}"#,
        ] {
            let verdict = delivered(BodyFormat::Json, body.as_bytes(), 10);
            assert_eq!(
                verdict,
                Verdict::Delivered {
                    rejected: 3,
                    message: Some("late".into())
                },
                "{body}"
            );
        }
        let body = br#"{"partialSuccess":{"rejectedSpans":"30"}}"#;
        assert_eq!(
            delivered(BodyFormat::Json, body, 10),
            Verdict::Delivered {
                rejected: 10,
                message: None
            }
        );
        assert_eq!(
            delivered(BodyFormat::Json, b"{}", 1),
            Verdict::Delivered {
                rejected: 0,
                message: None
            }
        );
    }

    /// Scenario: success answers nobody can read.
    /// Guarantees: delivered, with a warning rather than a second sending.
    #[test]
    fn unreadable_success_is_success() {
        for (format, body) in [
            (BodyFormat::Json, &b"<html>"[..]),
            (BodyFormat::Protobuf, b"\x0a\xff"),
        ] {
            let verdict = delivered(format, body, 1);
            assert!(
                matches!(&verdict, Verdict::Delivered { rejected: 0, message: Some(m) } if m.contains("cannot be read")),
                "{verdict:?}"
            );
        }
        let plain = delivered(BodyFormat::Other, b"OK", 1);
        assert_eq!(
            plain,
            Verdict::Delivered {
                rejected: 0,
                message: None
            }
        );
    }

    /// Scenario: error bodies as JSON status with RetryInfo, plain text, and a page of HTML.
    /// Guarantees: the message is one bounded line; the delay is read and bounded.
    #[test]
    fn words_of_errors() {
        let body = br#"{"code":14,"message":"busy","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.500s"}]}"#;
        let status = error_words(BodyFormat::Json, body);
        assert_eq!(status.message, "busy");
        assert_eq!(status.retry_delay, Some(Duration::from_millis(1500)));
        assert_eq!(
            error_words(BodyFormat::Other, b"no\r\n way\t.").message,
            "no way ."
        );
        let page = "\u{e9}".repeat(10_000);
        let cut = error_words(BodyFormat::Other, page.as_bytes()).message;
        assert!(
            cut.len() <= sluice_client::MAX_WORDS_BYTES + 3 && cut.ends_with("..."),
            "{}",
            cut.len()
        );
    }
}
