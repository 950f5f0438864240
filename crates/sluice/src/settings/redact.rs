//! `print-config`: the configuration as loaded, without its secrets.

use super::admission;
use sluice_config::{Document, Node, REDACTED, Value, to_yaml};

/// The merged and expanded configuration as YAML, secrets replaced by `[REDACTED]`, and in `service.admission` what its preset stands for.
pub fn print_config(document: &Document) -> String {
    let mut root = document.root.clone();
    hide_credentials(&mut root);
    admission::fill_in(&mut root);
    to_yaml(&root, &is_secret)
}

/// Whether the value at a key path must not be shown: by the keys' names, in components known or not.
pub fn is_secret(path: &[&str]) -> bool {
    const EXACT: &[&str] = &[
        "inline",
        "token",
        "tokens",
        "named_tokens",
        "cookies",
        "credentials",
    ];
    const WITHIN: &[&str] = &[
        "password",
        "passwd",
        "secret",
        "api_key",
        "apikey",
        "api_token",
        "access_token",
        "auth_token",
        "license_key",
        "private_key",
        "key_pem",
        "access_key",
        "account_key",
        "sas_token",
        "connection_string",
        "bearer_token",
        "session_token",
    ];
    // A file that holds a secret is named, not shown; `token_url` and the like are no secrets either.
    const NOT: &[&str] = &["_file", "_url", "file"];
    path.iter().any(|key| {
        let key = key.to_ascii_lowercase();
        key == "headers"
            || EXACT.contains(&key.as_str())
            || WITHIN.iter().any(|part| key.contains(part)) && !NOT.iter().any(|end| key.ends_with(end))
    })
}

/// Replaces `user:password@` in URLs, and parameters that are secrets: keys and signatures, as in a shared access signature of Azure.
fn hide_credentials(node: &mut Node) {
    match &mut node.value {
        Value::Sequence(items) => items.iter_mut().for_each(hide_credentials),
        Value::Mapping(mapping) => mapping
            .entries_mut()
            .iter_mut()
            .for_each(|entry| hide_credentials(&mut entry.value)),
        Value::String(text) => {
            if let Some((scheme, rest)) = text.split_once("://") {
                let rest = without_secret_parameters(rest);
                let authority_len = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                *text = match rest[..authority_len].rfind('@') {
                    Some(at) => format!("{scheme}://{REDACTED}{}", &rest[at..]),
                    None => format!("{scheme}://{rest}"),
                };
            }
        }
        _ => {}
    }
}

/// The rest of a URL, values of parameters hidden whose names say that they are secrets.
fn without_secret_parameters(rest: &str) -> String {
    const SIGNATURES: &[&str] = &["sig", "signature", "x-amz-signature", "x-goog-signature", "key"];
    let Some((before, query)) = rest.split_once('?') else {
        return rest.to_owned();
    };
    let parameters: Vec<_> = (query.split('&'))
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if is_secret(&[name]) || SIGNATURES.contains(&&*name.to_ascii_lowercase()) => {
                format!("{name}={REDACTED}")
            }
            _ => parameter.to_owned(),
        })
        .collect();
    format!("{before}?{}", parameters.join("&"))
}
