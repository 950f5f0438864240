//! Who may send.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use http::HeaderMap;
use http::header::AUTHORIZATION;

mod token_file;
pub use token_file::TokenFile;

/// No or wrong credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unauthorized {
    /// What is wrong with them; never the credentials.
    pub message: String,
    /// The `WWW-Authenticate` value that tells the client what is expected.
    pub challenge: &'static str,
}

/// Checks a request's headers before its body is looked at.
pub trait Authenticator: Send + Sync + std::fmt::Debug {
    /// Whether the request may come in, and the name of who sends it, where the credentials have one.
    ///
    /// # Errors
    /// [`Unauthorized`].
    fn check(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Unauthorized>;
}

/// A function that compares a password with what an htpasswd line stores for the user.
pub type Verify = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// HTTP basic authentication against a table of users (RFC 7617).
pub struct BasicAuth {
    users: HashMap<Arc<str>, Verify>,
}

impl std::fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BasicAuth({} users)", self.users.len())
    }
}

impl BasicAuth {
    /// Users and how their passwords are verified.
    pub fn new(users: HashMap<String, Verify>) -> Self {
        Self {
            users: users
                .into_iter()
                .map(|(user, verify)| (user.into(), verify))
                .collect(),
        }
    }
}

const BASIC: &str = "Basic realm=\"sluice\"";

impl Authenticator for BasicAuth {
    fn check(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Unauthorized> {
        let deny = |message: &str| Unauthorized {
            message: message.to_owned(),
            challenge: BASIC,
        };
        let value = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| deny("no Authorization header; send basic credentials"))?;
        let encoded =
            strip_scheme(value, "basic").ok_or_else(|| deny("the Authorization scheme is not Basic"))?;
        let decoded = base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| deny("the basic credentials are not base64 of user:password"))?;
        let (user, password) = decoded
            .split_once(':')
            .ok_or_else(|| deny("the basic credentials are not user:password"))?;
        match self.users.get_key_value(user) {
            Some((name, verify)) if verify(password) => Ok(Some(name.clone())),
            _ => Err(deny("unknown user or wrong password")),
        }
    }
}

/// A token, and the name of who has it, if it has one.
type NamedToken = (String, Option<Arc<str>>);

/// Bearer tokens (RFC 6750).
pub struct BearerAuth {
    header: http::HeaderName,
    scheme: String,
    tokens: Vec<NamedToken>,
    file: Option<TokenFile>,
}

impl std::fmt::Debug for BearerAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BearerAuth({} tokens)", self.tokens.len())
    }
}

impl BearerAuth {
    /// Any of `tokens` in `header` after `scheme`.
    pub fn new(header: http::HeaderName, scheme: &str, tokens: Vec<String>) -> Self {
        Self {
            header,
            scheme: scheme.to_ascii_lowercase(),
            tokens: tokens.into_iter().map(|token| (token, None)).collect(),
            file: None,
        }
    }

    /// The same, and the tokens in `file` too.
    pub fn with_file(mut self, file: TokenFile) -> Self {
        self.file = Some(file);
        self
    }

    /// The same, and these tokens too, each with the name of who has it.
    pub fn with_named(mut self, named: impl IntoIterator<Item = (String, String)>) -> Self {
        let named = named.into_iter().map(|(name, token)| (token, Some(name.into())));
        self.tokens.extend(named);
        self
    }
}

impl Authenticator for BearerAuth {
    fn check(&self, headers: &HeaderMap) -> Result<Option<Arc<str>>, Unauthorized> {
        let deny = |message: String| Unauthorized {
            message,
            challenge: "Bearer realm=\"sluice\"",
        };
        let value = headers
            .get(&self.header)
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| deny(format!("no {} header; send a token", self.header)))?;
        let token = match self.scheme.is_empty() {
            true => value,
            false => strip_scheme(value, &self.scheme)
                .ok_or_else(|| deny(format!("the {} scheme is not {}", self.header, self.scheme)))?,
        };
        let is_it = |(known, _): &&NamedToken| same(known.as_bytes(), token.as_bytes());
        match self.tokens.iter().find(is_it) {
            Some((_, name)) => Ok(name.clone()),
            None if self.file.as_ref().is_some_and(|file| file.has(token)) => Ok(None),
            None => Err(deny("the token is not known".into())),
        }
    }
}

fn strip_scheme<'a>(value: &'a str, scheme: &str) -> Option<&'a str> {
    let (found, rest) = value.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| rest.trim())
}

/// Compares without telling by its duration where the first difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    /// Scenario: right, wrong, missing and malformed credentials.
    /// Guarantees: only the right ones pass, with their names where they have one; messages never contain the secret.
    #[test]
    fn only_right_credentials_pass() {
        let verify: Verify = Box::new(|password| password == "s:ecret");
        let basic = BasicAuth::new(HashMap::from([("ann".to_owned(), verify)]));
        // ann:s:ecret
        let name = basic.check(&headers("basic YW5uOnM6ZWNyZXQ=")).unwrap();
        assert_eq!(name.as_deref(), Some("ann"));
        for bad in [
            "Basic YW5uOndyb25n",
            "Basic ???",
            "Bearer x",
            "Basic",
            "Basic YW5u",
        ] {
            let error = basic.check(&headers(bad)).unwrap_err();
            assert!(!error.message.contains("wrong:"), "{error:?}");
        }
        basic.check(&HeaderMap::new()).unwrap_err();

        let bearer = BearerAuth::new(AUTHORIZATION, "Bearer", vec!["t0k".into(), "other".into()])
            .with_named([("team-a".to_owned(), "t0ken-a".to_owned())]);
        assert_eq!(bearer.check(&headers("Bearer other")), Ok(None));
        bearer.check(&headers("bearer t0k")).unwrap();
        let name = bearer.check(&headers("Bearer t0ken-a")).unwrap();
        assert_eq!(name.as_deref(), Some("team-a"));
        for bad in ["Bearer t0", "Bearer t0k2", "t0k", "Basic t0k", "Bearer team-a"] {
            bearer.check(&headers(bad)).unwrap_err();
        }
    }
}
