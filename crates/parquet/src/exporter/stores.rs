//! S3, Google Cloud Storage and Azure Blob Storage: the same promises by three protocols.

use std::time::Duration;

use super::azure::{self, AzureIdentity, AzureSettings};
use super::bucket::{Bucket, PIECE_BYTES};
use super::gcs::{self, GcsSettings};
use super::s3::{self, S3Settings};
use super::store::Sent;
use super::store::tests::file;
use super::stub::{Stub, header};

/// The kinds, each with the answer to a PUT of a name that is taken.
const KINDS: [(&str, u16); 3] = [("s3", 412), ("gcs", 412), ("azure", 409)];

/// Longer than anything here takes on a slow machine.
const LONG: Duration = Duration::from_secs(60);

/// A bucket of this kind in the store.
fn bucket(kind: &str, store: &Stub, timeout: Duration) -> Bucket {
    let endpoint = Some(store.endpoint());
    match kind {
        "s3" => s3::bucket(&S3Settings {
            endpoint,
            prefix: "otel/".to_owned(),
            timeout,
            ..s3::tests::settings()
        }),
        "gcs" => {
            let settings = GcsSettings {
                endpoint,
                prefix: "/otel".to_owned(),
                timeout,
                ..gcs::tests::settings()
            };
            gcs::tests::bucket_as("token", &settings)
        }
        _ => azure::bucket(&AzureSettings {
            endpoint,
            prefix: "otel".to_owned(),
            timeout,
            ..azure::tests::settings()
        }),
    }
    .unwrap()
}

/// Scenario: a file is sent twice to an empty store of each kind, as after an answer that got lost; then another one of the same size
/// under its name.
/// Guarantees: it is there once, under its directory's name, by one conditional PUT each time that says which file it is; the second time
/// is as good as the first; the other file changes nothing, and is told about.
#[tokio::test]
async fn a_file_is_there_once() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (ours, other) = (
        file(directories[0].path(), b"rows"),
        file(directories[1].path(), b"else"),
    );
    for (kind, taken) in KINDS {
        let store = Stub::keeping(taken).await;
        let bucket = bucket(kind, &store, LONG);
        for _ in 0..2 {
            let sent = bucket.put(&ours).await;
            assert!(matches!(sent, Sent::There), "{kind}: {sent:?}");
        }
        let Sent::Refused(reason) = bucket.put(&other).await else {
            panic!("{kind}")
        };
        assert!(
            reason.contains("otel/logs/name.parquet is there already and is another file"),
            "{kind}: {reason}"
        );
        let path = match kind {
            "s3" => "/bucket/otel/logs/name.parquet",
            "gcs" => "/bucket/otel%2Flogs%2Fname%2Eparquet",
            _ => "/container/otel/logs/name.parquet",
        };
        let kept = store.kept();
        assert_eq!(
            kept.into_iter().collect::<Vec<_>>(),
            [(path.to_owned(), b"rows".to_vec())]
        );
        let puts = store.requests("PUT");
        assert_eq!(puts.len(), 3, "{kind}");
        let head = &puts[0].head;
        let (condition, crc, authorization) = match kind {
            "s3" => (
                ("if-none-match", "*"),
                "x-amz-meta-sluice-crc32c",
                "AWS4-HMAC-SHA256 ",
            ),
            "gcs" => (
                ("x-goog-if-generation-match", "0"),
                "x-goog-meta-sluice-crc32c",
                "Bearer token",
            ),
            // Azure takes no hyphens in names of metadata.
            _ => (
                ("if-none-match", "*"),
                "x-ms-meta-sluice_crc32c",
                "SharedKey account:",
            ),
        };
        assert_eq!(header(head, condition.0), Some(condition.1), "{head}");
        assert_eq!(
            header(head, crc),
            Some(&*format!("{:08x}", ours.cut.crc)),
            "{head}"
        );
        assert!(
            header(head, "authorization").unwrap().starts_with(authorization),
            "{head}"
        );
        assert!(
            store.requests("GET").is_empty(),
            "{kind}: what it is told is enough"
        );
    }
}

/// Scenario: the store has an object of the file's name, of more bytes than are read at once, and has dropped its metadata: it is the
/// file; it is another one of the same size; it is shorter.
/// Guarantees: only the file itself is taken for sent; another one is left alone and told about.
#[tokio::test]
async fn an_object_without_metadata_is_read() {
    let ours = vec![7; PIECE_BYTES + 5];
    let mut other = ours.clone();
    other[PIECE_BYTES] = 8;
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), &ours);
    let shorter = ours[1..].to_vec();
    for (kind, taken) in KINDS {
        for (object, is_ours) in [
            (ours.clone(), true),
            (other.clone(), false),
            (shorter.clone(), false),
        ] {
            let store = Stub::start(object, taken).await;
            match bucket(kind, &store, LONG).put(&file).await {
                Sent::There => assert!(is_ours, "{kind}"),
                Sent::Refused(reason) => {
                    assert!(!is_ours && reason.contains("another file"), "{kind}: {reason}")
                }
                other => panic!("{kind}: {other:?}"),
            }
        }
    }
}

/// Scenario: answers that somebody has to mend something for, and others that pass.
/// Guarantees: the former hold what waits; the latter are tried again.
#[tokio::test]
async fn what_has_to_be_mended_holds() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), b"rows");
    for (kind, _) in KINDS {
        for (status, holds) in [(401, true), (403, true), (404, true), (400, false), (503, false)] {
            let store = Stub::start(Vec::new(), status).await;
            match bucket(kind, &store, LONG).put(&file).await {
                Sent::Refused(_) => assert!(holds, "{kind}: {status}"),
                Sent::Retry(_) => assert!(!holds, "{kind}: {status}"),
                other => panic!("{kind}: {status}: {other:?}"),
            }
        }
    }
}

/// Scenario: prefixes as people write them, and such that no object can have.
/// Guarantees: the former are what objects begin with, without `/` at the ends; the latter are told about before anything is sent.
#[test]
fn prefixes_are_fit_for_names() {
    for written in ["a/b=c%d", "/a/b=c%d/", "a/b=c%d//"] {
        assert_eq!(super::bucket::prefix("key", written).unwrap(), "a/b=c%d");
    }
    assert_eq!(super::bucket::prefix("key", "").unwrap(), "");
    for written in ["a//b", "a/../b", "./a"] {
        let settings = S3Settings {
            prefix: written.to_owned(),
            ..super::s3::tests::settings()
        };
        let error = super::s3::bucket(&settings).unwrap_err();
        assert!(error.starts_with("s3uploader.s3_prefix: "), "{error}");
    }
}

/// Scenario: S3 answers with statuses that say nothing, and codes that do: temporary credentials that are over, a bucket that is elsewhere, a condition
/// that the store does not know; a connection that was idle, and a request that was slow.
/// Guarantees: the former hold what waits, so that nothing is given up before somebody has mended it; the latter are tried again.
#[tokio::test]
async fn codes_say_what_has_to_be_mended() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), b"rows");
    for (status, code, holds) in [
        (400, "ExpiredToken", true),
        (400, "AuthorizationHeaderMalformed", true),
        (301, "PermanentRedirect", true),
        (501, "NotImplemented", true),
        (400, "RequestTimeout", false),
        (400, "BadDigest", false),
    ] {
        let store = Stub::start(Vec::new(), status).await;
        store.explain_puts(code);
        match bucket(KINDS[0].0, &store, LONG).put(&file).await {
            Sent::Refused(_) => assert!(holds, "{code}"),
            Sent::Retry(reason) => assert!(!holds && reason.contains(code), "{code}: {reason}"),
            other => panic!("{code}: {other:?}"),
        }
    }
}

/// Scenario: the name of a file is taken, and the object cannot be looked at, or is read so slowly that all of it takes longer than an upload
/// may, each piece being quick enough.
/// Guarantees: that ends, and is no failure for which a file is given up.
#[tokio::test]
async fn a_comparison_that_fails_decides_nothing() {
    let content = vec![7; 8 * PIECE_BYTES];
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), &content);
    for (kind, taken) in KINDS {
        let store = Stub::start(content.clone(), taken).await;
        store.answer_gets(503);
        let sent = bucket(kind, &store, LONG).put(&file).await;
        assert!(matches!(sent, Sent::Unknown(_)), "{kind}: {sent:?}");

        store.answer_gets(200);
        store.slow_down(Duration::from_millis(100));
        let sent = Bucket {
            timeout: Duration::from_millis(400),
            ..bucket(kind, &store, LONG)
        }
        .put(&file)
        .await;
        let Sent::Unknown(reason) = sent else {
            panic!("{kind}: {sent:?}")
        };
        assert!(
            reason.contains("not read within 400ms (timeout)"),
            "{kind}: {reason}"
        );
    }
}

/// Scenario: tokens that end with a line break, as files read into the environment leave them.
/// Guarantees: sending a file does not panic; it is refused until somebody mends that, and the reason shows nothing of it.
#[tokio::test]
async fn tokens_with_line_breaks_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), b"rows");
    let google = gcs::tests::bucket_as("mine\n", &gcs::tests::settings());
    for bucket in [google, azure::tests::bucket_as("mine\n")] {
        let Sent::Refused(reason) = bucket.unwrap().put(&file).await else {
            panic!("a token with a line break")
        };
        assert!(
            reason.contains("access token") && !reason.contains("mine"),
            "{reason}"
        );
    }
}

/// Scenario: an application with a secret, one that a cluster vouches for, and a machine, each of which has to get a token first.
/// Guarantees: they ask for it as who they are, and send it; where none is given, nothing is sent and what waits is held.
#[tokio::test]
async fn identities_of_azure_get_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), b"rows");
    let token_file = directory.path().join("token");
    std::fs::write(&token_file, "of-the-cluster").unwrap();
    let (tenant_id, client_id) = ("the-tenant".to_owned(), "the-client".to_owned());
    let principal = AzureIdentity::ServicePrincipal {
        tenant_id: tenant_id.clone(),
        client_id: client_id.clone(),
        client_secret: "the-secret".to_owned(),
    };
    let workload = AzureIdentity::WorkloadIdentity {
        tenant_id: Some(tenant_id),
        client_id: Some(client_id.clone()),
        federated_token_file: Some(token_file),
    };
    let machine = AzureIdentity::ManagedIdentity {
        client_id: Some(client_id),
    };
    for (identity, method, said) in [
        (
            principal,
            "POST /the-tenant/oauth2/v2.0/token",
            "client_secret=the-secret",
        ),
        (
            workload,
            "POST /the-tenant/oauth2/v2.0/token",
            "client_assertion=of-the-cluster",
        ),
        (machine, "GET /msi/token", "client_id=the-client"),
    ] {
        let store = Stub::keeping(409).await;
        let bucket = azure::tests::bucket_at(&store.endpoint(), identity.clone());
        store.answer_gets(401);
        let Sent::Refused(reason) = bucket.put(&file).await else {
            panic!("{identity:?}")
        };
        assert!(reason.contains("there are no credentials"), "{reason}");
        assert!(!reason.contains("the-secret") && store.requests("PUT").is_empty());

        store.answer_gets(200);
        let sent = bucket.put(&file).await;
        assert!(matches!(sent, Sent::There), "{sent:?}");
        let asked = store.requests(method).pop().unwrap();
        let all = asked.head + &String::from_utf8(asked.body).unwrap();
        assert!(all.contains(said), "{all}");
        let put = &store.requests("PUT")[0].head;
        assert_eq!(header(put, "authorization"), Some("Bearer given"), "{put}");
    }
}

/// Scenario: a shared access signature, which is in the URL, and a store that takes it, then does not.
/// Guarantees: it is sent; what is told of the failure does not show it.
#[tokio::test]
async fn a_signature_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(directory.path(), b"rows");
    for status in [200, 403, 503] {
        let store = Stub::start(Vec::new(), status).await;
        let identity = AzureIdentity::SasToken("?sv=2024-11-04&sig=s3cret%3D".to_owned());
        let sent = azure::tests::bucket_at(&store.endpoint(), identity)
            .put(&file)
            .await;
        let put = &store.requests("PUT")[0].head;
        assert!(put.contains("sv=2024-11-04&sig=s3cret%3D"), "{put}");
        assert!(header(put, "authorization").is_none());
        assert!(!format!("{sent:?}").contains("s3cret"), "{sent:?}");
        assert_eq!(matches!(sent, Sent::There), status == 200, "{sent:?}");
    }
}

/// Scenario: Azurite, where `tests/object_stores.sh` has started it: a file of several pieces in the directory of a tenant with a strange name
/// is sent twice; another one under its name; the same where the server was told nothing that says which file it is; and a container that is
/// not there.
/// Guarantees: it is there once, and known again by its metadata and by its bytes; the other one is told about; what has no container is
/// held.
#[tokio::test]
async fn azurite_keeps_files_once() {
    let told = |name| std::env::var(name).ok();
    let Some((endpoint, key)) = told("SLUICE_AZURE").zip(told("SLUICE_AZURE_KEY")) else {
        return;
    };
    let container = |name: &str| {
        let settings = AzureSettings {
            account: "devstoreaccount1".to_owned(),
            container: name.to_owned(),
            endpoint: Some(endpoint.clone()),
            identity: AzureIdentity::AccountKey(key.clone()),
            timeout: LONG,
            ..azure::tests::settings()
        };
        azure::bucket(&settings).unwrap()
    };
    let content = vec![7; 3 * PIECE_BYTES + 1];
    let mut different = content.clone();
    different[2 * PIECE_BYTES] = 8;
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut ours = file(directories[0].path(), &content);
    let mut other = file(directories[1].path(), &different);
    for file in [&mut ours, &mut other] {
        file.cut.tenant = Some("team/a b%=~".to_owned());
    }
    let sent = container("missing").put(&ours).await;
    assert!(matches!(sent, Sent::Refused(_)), "{sent:?}");
    let told = container("container");
    let as_other = Bucket {
        crc_metadata: "another",
        prefix: "untold".to_owned(),
        ..told.clone()
    };
    let sent = as_other.put(&ours).await;
    assert!(matches!(sent, Sent::There), "{sent:?}");
    // What was written under another key says nothing to the reader of this one.
    let untold = Bucket {
        crc_metadata: told.crc_metadata,
        ..as_other
    };
    for bucket in [told, untold] {
        for _ in 0..2 {
            let sent = bucket.put(&ours).await;
            assert!(matches!(sent, Sent::There), "{sent:?}");
        }
        let sent = bucket.put(&other).await;
        let Sent::Refused(reason) = sent else {
            panic!("{sent:?}")
        };
        assert!(reason.contains("another file"), "{reason}");
    }
}
