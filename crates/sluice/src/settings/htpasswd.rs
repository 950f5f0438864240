//! The users of `basicauth`: Apache's htpasswd format.
//!
//! Understood: bcrypt (`$2y$`, `$2b$`, `$2a$`), `{SHA}`, `$apr1$` (what `htpasswd` writes by default), and plain text.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::Md5;
use sha1::{Digest, Sha1};
use sluice_server::Verify;

/// Users and the digests of their passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Htpasswd {
    users: Vec<(String, String)>,
}

impl Htpasswd {
    /// Reads lines of `user:digest`; empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// A sentence that names the line but never its content.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut users = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((user, digest)) = line.split_once(':') else {
                return Err(format!(
                    "line {number} is not user:password-digest, as the htpasswd program writes it"
                ));
            };
            if digest.starts_with("$5$") || digest.starts_with("$6$") || digest.starts_with("$1$") {
                return Err(format!(
                    "line {number} has a crypt digest that is not supported; use bcrypt (htpasswd -B)"
                ));
            }
            if digest.starts_with("$2") && digest.parse::<bcrypt::HashParts>().is_err() {
                return Err(format!(
                    "line {number} has a bcrypt digest that is cut short or misspelt"
                ));
            }
            users.push((user.to_owned(), digest.to_owned()));
        }
        Ok(Self { users })
    }

    /// Adds the users of `other` that are not here yet.
    pub fn extend(&mut self, other: Htpasswd) {
        for (user, digest) in other.users {
            if !self.users.iter().any(|(known, _)| *known == user) {
                self.users.push((user, digest));
            }
        }
    }

    /// One function a user that says whether a password is the user's; see [`Htpasswd::verify`].
    pub fn into_verifiers(self) -> HashMap<String, Verify> {
        let mut verifiers: HashMap<String, Verify> = HashMap::new();
        for (user, digest) in self.users {
            // Of several lines for one user the first counts, as in `verify`.
            verifiers
                .entry(user)
                .or_insert_with(|| Box::new(move |password| matches(&digest, password)));
        }
        verifiers
    }

    /// Whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether the password is the user's.
    ///
    /// A bcrypt digest takes tens of milliseconds of CPU by design: call it off the request path's threads and
    /// remember the answer.
    pub fn verify(&self, user: &str, password: &str) -> bool {
        let found = self.users.iter().find(|(known, _)| known == user);
        found.is_some_and(|(_, digest)| matches(digest, password))
    }
}

/// Users are named, digests are not shown.
impl fmt::Debug for Htpasswd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.users.iter().map(|(user, _)| user))
            .finish()
    }
}

fn matches(digest: &str, password: &str) -> bool {
    if digest.starts_with("$2") {
        bcrypt::verify(password, digest).unwrap_or(false)
    } else if let Some(encoded) = digest.strip_prefix("{SHA}") {
        same(encoded, &BASE64.encode(Sha1::digest(password.as_bytes())))
    } else if let Some(rest) = digest.strip_prefix("$apr1$") {
        let salt = rest.split('$').next().unwrap_or_default();
        same(digest, &apr1(password.as_bytes(), salt))
    } else {
        same(digest, password)
    }
}

/// Equality in a time that depends on the length only.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0, |differences, (x, y)| differences | (x ^ y))
            == 0
}

/// Apache's MD5 crypt (apr_md5.c): 1000 rounds over password and salt, in an encoding of its own.
fn apr1(password: &[u8], salt: &str) -> String {
    const ROUNDS: usize = 1000;
    const MAX_SALT: usize = 8;
    let salt_text: String = salt.chars().take(MAX_SALT).collect();
    let salt = salt_text.as_bytes();
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut first = Md5::new()
        .chain_update(password)
        .chain_update(b"$apr1$")
        .chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        first.update(&inner[..left.min(inner.len())]);
        left = left.saturating_sub(inner.len());
    }
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut sum = first.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(sum)
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(sum)
        } else {
            next.update(password)
        }
        sum = next.finalize();
    }
    let mut out = format!("$apr1${salt_text}$");
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        encode(
            &mut out,
            u32::from(sum[a]) << 16 | u32::from(sum[b]) << 8 | u32::from(sum[c]),
            4,
        );
    }
    encode(&mut out, u32::from(sum[11]), 2);
    out
}

fn encode(out: &mut String, mut value: u32, chars: usize) {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for _ in 0..chars {
        out.push(char::from(ALPHABET[(value & 0x3f) as usize]));
        value >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: one user for each kind of digest, made with `htpasswd` and `openssl passwd`.
    /// Guarantees: the right password is taken, a wrong one and an unknown user are not.
    #[test]
    fn passwords_are_verified() {
        let users = Htpasswd::parse(
            "# users\n\nplain:secret\nsha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
             apr:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0\nbc:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n",
        )
        .unwrap();
        for user in ["plain", "sha", "apr", "bc"] {
            assert!(users.verify(user, "secret"), "{user}");
            assert!(!users.verify(user, "Secret"), "{user}");
            assert!(!users.verify(user, ""), "{user}");
        }
        assert!(!users.verify("nobody", "secret"));
        let verifiers = users.clone().into_verifiers();
        assert!(verifiers["apr"]("secret") && !verifiers["apr"]("other"));
        assert!(!format!("{users:?}").contains("secret"));
    }

    /// Scenario: lines that are no user and digest, or whose digest is unknown or broken.
    /// Guarantees: an error that names the line and shows none of it.
    #[test]
    fn bad_lines_are_named_and_not_shown() {
        for text in ["a:b\nhunter2", "a:$6$x$hunter2", "a:$2y$10$hunter2"] {
            let error = Htpasswd::parse(text).unwrap_err();
            assert!(error.contains("line ") && !error.contains("hunter2"), "{error}");
        }
    }
}
