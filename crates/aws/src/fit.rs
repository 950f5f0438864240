//! What `object_store` takes for granted of what it is given, and panics without.

use http::HeaderValue;
use object_store::aws::AwsCredential;

/// Whether requests can be signed with a credential: what goes into headers as it is has to be fit for that.
///
/// # Errors
/// Which part is not, and shows none of it.
pub fn check_credential(credential: &AwsCredential, service: &str, region: &str) -> Result<(), String> {
    let token = credential.token.as_deref().unwrap_or_default();
    for (what, text) in [
        (
            "the access key id (AWS_ACCESS_KEY_ID)",
            credential.key_id.as_str(),
        ),
        ("the session token (AWS_SESSION_TOKEN)", token),
        ("the region (region, AWS_REGION)", region),
        ("the service (service)", service),
    ] {
        if HeaderValue::from_str(text).is_err() {
            return Err(format!(
                "{what} holds a line break or another character that headers do not carry; remove it"
            ));
        }
    }
    Ok(())
}

/// Whether requests to a URL can be signed: 1.2.3.4.5 is a host to `http`, and none to `url`.
///
/// # Errors
/// What is wrong with it.
pub fn check_url(url: &str) -> Result<(), String> {
    match url::Url::parse(url) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{url} cannot be signed: {error}")),
    }
}
