#![allow(clippy::unwrap_used, reason = "tests")]

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use sluice_client as client;
use sluice_config::Loader;

use super::*;

mod queues;

/// A configuration with this `bearertokenauth`, used on both sides.
fn with_bearer(bearer: &str) -> Result<Settings, String> {
    let auth = "auth: {authenticator: bearertokenauth}";
    let yaml = format!(
        "receivers: {{otlp: {{protocols: {{http: {{{auth}}}}}}}}}\n\
         exporters: {{otlphttp: {{endpoint: \"http://localhost:1\", {auth}}}}}\n\
         extensions: {{bearertokenauth: {{{bearer}}}}}\n\
         service: {{extensions: [bearertokenauth], pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}}}\n"
    );
    let document = Loader::new().text("test.yaml", yaml).load().unwrap();
    Settings::from_document(&document).map_err(|problems| problems.to_string())
}

/// The receiver's `auth`, and the exporter's.
fn auths(settings: &Settings) -> (&settings::Auth, &settings::Auth) {
    let Some(Receiver::Otlp(receiver)) = settings.receivers.values().next() else {
        panic!("an otlp receiver")
    };
    let Some(settings::Exporter::OtlpHttp(exporter)) = settings.exporters.values().next() else {
        panic!("an otlphttp exporter")
    };
    let receiver = receiver.http.as_ref().and_then(|http| http.auth.as_ref());
    (receiver.unwrap(), exporter.auth.as_ref().unwrap())
}

/// What comes in of these `Authorization` values.
fn let_in<'a>(settings: &Settings, values: &[&'a str]) -> Vec<&'a str> {
    let authenticator = receivers::authenticator(Some(auths(settings).0), settings)
        .unwrap()
        .unwrap();
    let comes_in = |value: &&str| {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        authenticator.check(&headers).is_ok()
    };
    values.iter().copied().filter(comes_in).collect()
}

fn sent(settings: &Settings) -> client::Auth {
    exporters::credentials(Some(auths(settings).1), settings).unwrap()
}

const SCHEME: &str = "Bearer";

/// Scenario: bearer tokens that are empty or blank, as a variable that is not set leaves them.
/// Guarantees: where no token is left the configuration is an error that says what to set; beside others an empty one
/// lets nobody in and is not sent.
#[test]
fn an_empty_token_is_no_token() {
    for bearer in [
        "",
        "token: \"\"",
        "token: \" \"",
        "tokens: []",
        "tokens: [\"\", \" \"]",
        "filename: \"\"",
    ] {
        let problems = with_bearer(bearer).unwrap_err();
        assert!(
            problems.contains("set token, tokens or filename"),
            "{bearer}: {problems}"
        );
    }
    let settings = with_bearer("tokens: [\"\", \" \", good]").unwrap();
    let values = ["Bearer good", "Bearer ", "Bearer", "Bearer  ", ""];
    assert_eq!(let_in(&settings, &values), ["Bearer good"]);
    let token = "good".to_owned();
    assert_eq!(
        sent(&settings),
        client::Auth::Bearer {
            scheme: SCHEME.to_owned(),
            token
        }
    );

    // Without a scheme the header is the token alone, and an empty header would match an empty token.
    let settings = with_bearer("tokens: [\"\", good], scheme: \"\"").unwrap();
    assert_eq!(let_in(&settings, &["", " ", "good"]), ["good"]);
}

/// Scenario: a token file beside a token in the configuration; the file is empty, missing, then has tokens.
/// Guarantees: an empty or missing file is an error at the start of a receiver, and not a fall back on the token in the
/// configuration; the file's tokens are the only ones; exporters send from the file.
#[test]
fn a_token_file_wins() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    let settings = with_bearer(&format!("token: literal, filename: {}", file.display())).unwrap();
    let refused = || {
        let error = receivers::authenticator(Some(auths(&settings).0), &settings)
            .map(drop)
            .unwrap_err();
        assert!(!error.contains("literal"), "a secret in the error: {error}");
        error
    };
    assert!(refused().contains("cannot read"), "{}", refused());
    for empty in ["", "\n  \n"] {
        std::fs::write(&file, empty).unwrap();
        assert!(refused().contains("there is no token"), "{}", refused());
    }
    std::fs::write(&file, "one\n\n two \n").unwrap();
    let values = ["Bearer literal", "Bearer one", "Bearer two", "Bearer "];
    assert_eq!(let_in(&settings, &values), ["Bearer one", "Bearer two"]);
    assert_eq!(
        sent(&settings),
        client::Auth::BearerFile {
            scheme: SCHEME.to_owned(),
            file
        }
    );
}

/// Scenario: a receiver's token file gets other tokens, is emptied, goes, and comes back.
/// Guarantees: a second later the file's tokens are those that come in, and no others; where it has none, the last ones stay.
#[tokio::test(start_paused = true)]
async fn a_receiver_looks_at_its_token_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let settings = with_bearer(&format!("filename: {}", file.display())).unwrap();
    let authenticator = receivers::authenticator(Some(auths(&settings).0), &settings)
        .unwrap()
        .unwrap();
    let come_in = || {
        let comes_in = |token: &&str| {
            let value = HeaderValue::from_str(&format!("{SCHEME} {token}")).unwrap();
            authenticator
                .check(&HeaderMap::from_iter([(AUTHORIZATION, value)]))
                .is_ok()
        };
        ["one", "two", "three", "four", ""]
            .iter()
            .copied()
            .filter(comes_in)
            .collect::<Vec<_>>()
    };
    let later = || tokio::time::advance(Duration::from_secs(1));
    std::fs::write(&file, "three\n\n two\n").unwrap();
    assert_eq!(come_in(), ["one", "two"], "it is looked at once a second");
    later().await;
    assert_eq!(come_in(), ["two", "three"]);
    std::fs::write(&file, "").unwrap();
    later().await;
    assert_eq!(come_in(), ["two", "three"]);
    std::fs::remove_file(&file).unwrap();
    later().await;
    assert_eq!(come_in(), ["two", "three"]);
    std::fs::write(&file, "four").unwrap();
    later().await;
    assert_eq!(come_in(), ["four"]);
}

/// Scenario: the debug exporter is to write to a named pipe that nobody reads, and to one that somebody does.
/// Guarantees: the first is an error at once, which says what to do; nothing waits for a reader.
#[test]
fn a_debug_output_waits_for_no_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let mut debug = settings::DebugExporter::default();
    debug.use_internal_logger = false;
    debug.output_paths = vec![path.to_string_lossy().into_owned()];
    let error = exporters::open_debug(&debug).map(drop).unwrap_err();
    assert!(
        error.contains("output_paths") && error.contains("start its reader first"),
        "{error}"
    );
    // On Linux that waits for nobody, and counts as a reader.
    let _reader = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    exporters::open_debug(&debug).map(drop).unwrap();
}
