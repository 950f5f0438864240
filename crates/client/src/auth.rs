//! What a request says to be let in.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::SendError;

/// Where the `Authorization` header comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// There is none.
    #[default]
    None,
    /// RFC 7617.
    Basic {
        /// User name; holds no colon.
        username: String,
        /// Password.
        password: String,
    },
    /// `<scheme> <token>`.
    Bearer {
        /// Usually `Bearer`; nothing precedes the token when empty.
        scheme: String,
        /// The token.
        token: String,
    },
    /// As [`Auth::Bearer`], with the token in a file that is read again when it changes.
    BearerFile {
        /// Usually `Bearer`.
        scheme: String,
        /// The file; its first line that is not blank is the token.
        file: PathBuf,
    },
}

/// How often a token file is looked at.
const FILE_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// [`Auth`] made ready for requests.
#[derive(Debug)]
pub struct Credentials {
    auth: Auth,
    fixed: Option<HeaderValue>,
    read: Mutex<Option<TokenRead>>,
}

#[derive(Debug)]
struct TokenRead {
    value: HeaderValue,
    stamp: (SystemTime, u64),
    looked_at: Instant,
}

impl Credentials {
    /// Prepares what does not change.
    ///
    /// # Errors
    /// When user name, password or token hold what a header cannot.
    pub fn new(auth: Auth) -> Result<Self, SendError> {
        let fixed = match &auth {
            Auth::None | Auth::BearerFile { .. } => None,
            Auth::Basic { username, password } => {
                if username.contains(':') {
                    return Err(SendError::Credentials(
                        "a basic-auth user name cannot hold a colon".to_owned(),
                    ));
                }
                Some(sensitive(&format!(
                    "Basic {}",
                    STANDARD.encode(format!("{username}:{password}"))
                ))?)
            }
            Auth::Bearer { scheme, token } => Some(with_scheme(scheme, token)?),
        };
        Ok(Self {
            auth,
            fixed,
            read: Mutex::default(),
        })
    }

    /// The header to send now.
    ///
    /// # Errors
    /// When the token file cannot be read and never could.
    pub fn header(&self) -> Result<Option<HeaderValue>, SendError> {
        match &self.auth {
            Auth::BearerFile { scheme, file } => {
                let mut read = self.read.lock();
                if let Some(known) = &*read
                    && known.looked_at.elapsed() < FILE_LOOKED_AT_EVERY
                {
                    return Ok(Some(known.value.clone()));
                }
                // A stat, and rarely a read of a few hundred bytes: not worth another thread.
                let stamp = std::fs::metadata(file).and_then(|meta| Ok((meta.modified()?, meta.len())));
                if let (Some(known), Ok(stamp)) = (&mut *read, &stamp)
                    && known.stamp == *stamp
                {
                    known.looked_at = Instant::now();
                    return Ok(Some(known.value.clone()));
                }
                let fresh = stamp.and_then(|stamp| Ok((stamp, first_line(&std::fs::read_to_string(file)?))));
                match fresh {
                    Ok((stamp, Some(token))) => {
                        let value = with_scheme(scheme, &token)?;
                        *read = Some(TokenRead {
                            value: value.clone(),
                            stamp,
                            looked_at: Instant::now(),
                        });
                        Ok(Some(value))
                    }
                    // In the middle of a rotation the last token may still be good; if not, the
                    // destination says so.
                    failed => match &mut *read {
                        Some(known) => {
                            known.looked_at = Instant::now();
                            Ok(Some(known.value.clone()))
                        }
                        None => {
                            let reason = match failed {
                                Err(error) => error.to_string(),
                                Ok(_) => "it is empty".to_owned(),
                            };
                            Err(SendError::Credentials(format!(
                                "token file {}: {reason}",
                                file.display()
                            )))
                        }
                    },
                }
            }
            _ => Ok(self.fixed.clone()),
        }
    }

    /// Looks at the token file before the next request: the destination did not take the last token.
    pub fn refresh(&self) {
        if let Some(known) = &mut *self.read.lock()
            && let Some(past) = Instant::now().checked_sub(FILE_LOOKED_AT_EVERY)
        {
            known.looked_at = past;
        }
    }
}

fn first_line(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_owned)
}

fn with_scheme(scheme: &str, token: &str) -> Result<HeaderValue, SendError> {
    if scheme.is_empty() {
        sensitive(token)
    } else {
        sensitive(&format!("{scheme} {token}"))
    }
}

fn sensitive(text: &str) -> Result<HeaderValue, SendError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| SendError::Credentials("they hold characters that a header cannot".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(credentials: &Credentials) -> String {
        credentials
            .header()
            .unwrap()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// Scenario: basic and bearer credentials.
    /// Guarantees: the header is RFC 7617's, or scheme and token; its value is kept out of logs.
    #[test]
    fn headers_of_fixed_credentials() {
        let basic = Auth::Basic {
            username: "Aladdin".into(),
            password: "open sesame".into(),
        };
        let basic = Credentials::new(basic).unwrap();
        assert_eq!(shown(&basic), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(!format!("{:?}", basic.header()).contains("QWxh"));
        let bearer = Auth::Bearer {
            scheme: "Bearer".into(),
            token: "abc".into(),
        };
        assert_eq!(shown(&Credentials::new(bearer).unwrap()), "Bearer abc");
    }

    /// Scenario: a token file is rotated, then disappears.
    /// Guarantees: the new token is sent within a second, and the last good one stays in use.
    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_read_again_when_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let auth = Auth::BearerFile {
            scheme: "Bearer".into(),
            file: file.clone(),
        };
        let credentials = Credentials::new(auth).unwrap();
        assert!(
            credentials
                .header()
                .unwrap_err()
                .to_string()
                .contains("token file")
        );
        std::fs::write(&file, "one\n").unwrap();
        assert_eq!(shown(&credentials), "Bearer one");
        std::fs::write(&file, "another\n").unwrap();
        assert_eq!(shown(&credentials), "Bearer one");
        tokio::time::advance(FILE_LOOKED_AT_EVERY).await;
        assert_eq!(shown(&credentials), "Bearer another");
        std::fs::remove_file(&file).unwrap();
        tokio::time::advance(FILE_LOOKED_AT_EVERY).await;
        assert_eq!(shown(&credentials), "Bearer another");
    }

    /// Scenario: a token file that is empty, blank, or holds several lines; one that is emptied in a rotation.
    /// Guarantees: without a token nothing is sent but an error that names the file; of several the first is sent; an
    /// emptied file does not replace the last good token.
    #[tokio::test(start_paused = true)]
    async fn an_empty_token_file_is_no_token() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let auth = Auth::BearerFile {
            scheme: "Bearer".into(),
            file: file.clone(),
        };
        let credentials = Credentials::new(auth).unwrap();
        for text in ["", "\n \n\t"] {
            std::fs::write(&file, text).unwrap();
            let error = credentials.header().unwrap_err().to_string();
            assert!(error.contains("token: it is empty"), "{error}");
        }
        std::fs::write(&file, "\n one \ntwo\n").unwrap();
        assert_eq!(shown(&credentials), "Bearer one");
        std::fs::write(&file, "").unwrap();
        tokio::time::advance(FILE_LOOKED_AT_EVERY).await;
        assert_eq!(shown(&credentials), "Bearer one");
    }
}
