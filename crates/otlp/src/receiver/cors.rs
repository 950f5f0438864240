//! Cross-origin requests from browsers.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method};

/// Which origins may send (`cors` of an HTTP receiver).
#[derive(Debug, Clone, Default)]
pub struct Cors {
    /// Exact origins, or patterns with one `*` (`https://*.example.com`, `*`).
    pub allowed_origins: Vec<String>,
    /// Request headers allowed besides the simple ones; `*` allows all.
    pub allowed_headers: Vec<String>,
    /// How long a browser may remember a preflight, in seconds; 0 leaves it to the browser.
    pub max_age: u64,
}

impl Cors {
    /// Whether this is a preflight, which is answered without looking further.
    pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
        method == Method::OPTIONS
            && headers.contains_key(ORIGIN)
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    fn allowed<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.allowed_origins
            .iter()
            .any(|pattern| matches(pattern, text))
            .then_some(origin)
    }

    /// Headers for any answer to this request.
    pub(super) fn answer(&self, request: &HeaderMap, response: &mut HeaderMap) {
        response.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.allowed(request) {
            response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
    }

    /// Headers for the answer to a preflight.
    pub(super) fn preflight(&self, request: &HeaderMap, response: &mut HeaderMap) {
        self.answer(request, response);
        if !response.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        response.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
        if let Some(asked) = request.get(ACCESS_CONTROL_REQUEST_HEADERS)
            && asked
                .to_str()
                .is_ok_and(|asked| asked.split(',').all(|header| self.header_allowed(header.trim())))
        {
            response.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
        }
        if self.max_age > 0 {
            response.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(self.max_age));
        }
    }

    fn header_allowed(&self, header: &str) -> bool {
        // What an OTLP exporter in a browser always sends.
        const ALWAYS: [&str; 4] = ["accept", "content-type", "content-encoding", "origin"];
        ALWAYS.iter().any(|known| header.eq_ignore_ascii_case(known))
            || self
                .allowed_headers
                .iter()
                .any(|known| known == "*" || header.eq_ignore_ascii_case(known))
    }
}

fn matches(pattern: &str, origin: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(origin),
        Some((head, tail)) => {
            origin.len() >= head.len() + tail.len() && origin.starts_with(head) && origin.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: origins against exact names and patterns.
    /// Guarantees: only what is allowed is echoed, and never a suffix trick.
    #[test]
    fn only_allowed_origins_are_echoed() {
        let cors = Cors {
            allowed_origins: vec!["https://a.test".into(), "https://*.b.test".into()],
            allowed_headers: vec!["x-key".into()],
            max_age: 5,
        };
        for (origin, allowed) in [
            ("https://a.test", true),
            ("https://x.b.test", true),
            ("https://a.test.evil", false),
            ("https://b.test", false),
            ("null", false),
        ] {
            let request = HeaderMap::from_iter([
                (ORIGIN, origin.parse().unwrap()),
                (
                    ACCESS_CONTROL_REQUEST_HEADERS,
                    "content-type, X-Key".parse().unwrap(),
                ),
            ]);
            let mut response = HeaderMap::new();
            cors.preflight(&request, &mut response);
            assert_eq!(
                response.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN),
                allowed,
                "{origin}"
            );
            assert_eq!(
                response.contains_key(ACCESS_CONTROL_ALLOW_HEADERS),
                allowed,
                "{origin}"
            );
        }
    }
}
