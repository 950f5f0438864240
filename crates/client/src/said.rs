//! What a destination says in an answer that is no success.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

/// The longest piece of a destination's own words that goes into a reason, in bytes: enough for
/// a sentence and an identifier, not for an HTML page in every log line.
pub const MAX_WORDS_BYTES: usize = 400;

/// The longest delay a destination can ask for. A day of silence is a fault to be seen, and a larger
/// number is more likely a wrong unit than a wish.
pub const MAX_DELAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The delay of `Retry-After`: seconds, or the time until a date; a date past is no delay. Never more than [`MAX_DELAY`].
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a u64 holds are a long time.
        text.parse().map_or(MAX_DELAY, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        until.duration_since(now).unwrap_or_default()
    };
    Some(delay.min(MAX_DELAY))
}

/// One bounded line of somebody else's text.
pub fn words(text: &str) -> String {
    let mut line = String::new();
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
    {
        if !line.is_empty() {
            line.push(' ');
        }
        let room = MAX_WORDS_BYTES.saturating_sub(line.len());
        if word.len() > room {
            line.extend(
                word.char_indices()
                    .take_while(|(at, c)| at + c.len_utf8() <= room)
                    .map(|(_, c)| c),
            );
            line.push_str("...");
            break;
        }
        line.push_str(word);
    }
    line
}
