//! Where the `parquet` exporter writes to: one directory, or one of three kinds of store.

#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use sluice::settings::{Azure, AzureAuthType, Exporter, ParquetExporter, Settings, print_config};
use sluice_config::{Loader, Secret};

fn text(exporter: &str) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: }}}}}}\n\
         exporters:\n  parquet: {{{exporter}}}\n\
         service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [parquet]}}}}}}\n"
    )
}

/// The exporter, and what is warned about.
fn read(exporter: &str) -> Result<(ParquetExporter, String), String> {
    let document = Loader::new().text("tables.yaml", text(exporter)).load().unwrap();
    let settings = Settings::from_document(&document).map_err(|problems| problems.to_string())?;
    let warnings: Vec<String> = settings.warnings.iter().map(ToString::to_string).collect();
    let Some(Exporter::Parquet(exporter)) = settings.exporters.into_values().next() else {
        panic!("a parquet exporter")
    };
    Ok((*exporter, warnings.join("\n")))
}

fn azure(text: &str) -> Azure {
    let (exporter, warnings) = read(&format!("azure: {{{text}}}")).unwrap();
    assert_eq!(warnings, "", "{text}");
    exporter.azure.unwrap()
}

fn shown(secret: &Option<Secret>) -> Option<&str> {
    secret.as_ref().map(Secret::expose)
}

/// Scenario: a bucket of Google's with our keys, and as the Collector's googlecloudstorage exporter has it.
/// Guarantees: what is written is what is read; what has no effect here is told, key by key.
#[test]
fn gcs_is_read() {
    let (exporter, warnings) =
        read("gcs: {bucket: telemetry, prefix: otel, endpoint: \"localhost:4443\", credentials_file: /etc/key.json}").unwrap();
    let gcs = exporter.gcs.unwrap();
    assert_eq!(
        (&*gcs.bucket, &*gcs.prefix, &*warnings),
        ("telemetry", "otel", "")
    );
    assert_eq!(gcs.endpoint.as_deref(), Some("https://localhost:4443"));
    assert_eq!(gcs.credentials_file.unwrap().to_str(), Some("/etc/key.json"));
    assert!(!exporter.tenant_prefix);

    let (exporter, warnings) = read(
        "gcs: {name: telemetry, project_id: p, region: r, reuse_if_exists: true, file_prefix: logs, \
         partition: {prefix: archive/, format: \"%Y\"}}, tenant_prefix: true",
    )
    .unwrap();
    let gcs = exporter.gcs.unwrap();
    assert_eq!((&*gcs.bucket, &*gcs.prefix), ("telemetry", "archive/"));
    assert_eq!(gcs.credentials_file, None);
    assert!(exporter.tenant_prefix);
    for key in [
        "project_id",
        "region",
        "reuse_if_exists",
        "file_prefix",
        "partition.format",
    ] {
        assert!(
            warnings.contains(&format!("gcs.{key}: has no effect")),
            "{key}: {warnings}"
        );
    }
}

/// Scenario: a container named by account, by the Collector's `url`, by an emulator's, and by connection strings of both kinds.
/// Guarantees: account and URL are found; a connection string comes before `url`, and becomes the kind of key that it holds.
#[test]
fn azure_is_read() {
    let plain = azure("account: acct, container: tables");
    assert_eq!(
        (&*plain.account, &*plain.container, plain.url, plain.auth.kind),
        ("acct", "tables", None, None)
    );
    let by_url = azure("url: \"https://acct.z01.blob.storage.azure.net/\", container: tables");
    assert_eq!(by_url.account, "acct");
    let emulator = azure("endpoint: \"http://127.0.0.1:10000/devstoreaccount1\", container: tables");
    assert_eq!(emulator.account, "devstoreaccount1");

    let by_string = |string: &str| {
        azure(&format!(
            "container: tables, url: \"https://other.blob.core.windows.net\", auth: {{type: connection_string, connection_string: \"{string}\"}}"
        ))
    };
    let key = by_string(
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=c2Vj==;EndpointSuffix=core.chinacloudapi.cn",
    );
    assert_eq!(key.account, "acct");
    assert_eq!(
        key.url.as_deref(),
        Some("https://acct.blob.core.chinacloudapi.cn")
    );
    assert_eq!(key.auth.kind, Some(AzureAuthType::AccountKey));
    assert_eq!(shown(&key.auth.account_key), Some("c2Vj=="));
    let signature = by_string(
        "BlobEndpoint=https://acct.blob.core.windows.net/;QueueEndpoint=x;SharedAccessSignature=sv=1&sig=s%3D",
    );
    assert_eq!(signature.account, "acct");
    assert_eq!(
        signature.url.as_deref(),
        Some("https://acct.blob.core.windows.net/")
    );
    assert_eq!(signature.auth.kind, Some(AzureAuthType::SasToken));
    assert_eq!(shown(&signature.auth.sas_token), Some("sv=1&sig=s%3D"));

    let workload =
        azure("account: acct, container: tables, auth: {type: workload_identity, tenant_id: \"\"}");
    assert_eq!(
        (workload.auth.kind, workload.auth.tenant_id),
        (Some(AzureAuthType::WorkloadIdentity), None)
    );
}

/// Scenario: rows sorted by a column of every table, one of some tables and a promoted one; by what is no column, by a map, and twice by the same.
/// Guarantees: the first are read in their order, the others are errors that name what is wrong.
#[test]
fn what_rows_are_sorted_by_is_a_column() {
    let promote = "path: /a, promote: [{attribute: k8s.namespace.name}]";
    let (exporter, warnings) = read(&format!(
        "{promote}, sort_by: [service_name, metric_name, k8s_namespace_name, timestamp]"
    ))
    .unwrap();
    assert_eq!(
        exporter.sort_by,
        ["service_name", "metric_name", "k8s_namespace_name", "timestamp"]
    );
    assert_eq!(warnings, "");
    for (columns, expected) in [
        ("service.name", "service.name is no column of single values"),
        ("attributes", "attributes is no column of single values"),
        ("timestamp, timestamp", "sort_by: names a column twice"),
    ] {
        let error = read(&format!("path: /a, sort_by: [{columns}]")).unwrap_err();
        assert!(error.contains(expected), "{columns}: {error}");
    }
}

/// Scenario: promoted columns with the name of one that the table has, of a directory, and of each other, as they are and in another case; and the
/// names of directories that this configuration does not have.
/// Guarantees: what engines would take for one column is an error that says so; what they would not is read.
#[test]
fn promoted_columns_have_names_of_their_own() {
    let promoted = |names: &[&str], more: &str| {
        let promote: Vec<_> = names
            .iter()
            .map(|name| format!("{{attribute: {name}}}"))
            .collect();
        read(&format!("path: /a, promote: [{}]{more}", promote.join(", ")))
    };
    for (names, more, expected) in [
        (&["body"][..], "", "body is a column of the table logs already"),
        (&["Body"], "", "Body is a column of the table logs already"),
        (&["a.b", "a_b"], "", "two columns are called a_b"),
        (
            &["host.name", "Host.Name"],
            "",
            "host_name and Host_Name are one name to most engines",
        ),
        (
            &["hour"],
            "",
            "engines read the column hour from the names of directories",
        ),
        (&["DT"], ", partition_by: day", "engines read the column DT"),
        (
            &["tenant"],
            ", tenant_prefix: true",
            "engines read the column tenant",
        ),
    ] {
        let error = promoted(names, more).unwrap_err();
        assert!(error.contains(expected), "{names:?}: {error}");
    }
    for (names, more) in [
        (&["tenant", "host.name"][..], ""),
        (&["hour"], ", partition_by: day"),
        (&["hour", "dt"], ", partition_by: none"),
    ] {
        let (exporter, warnings) = promoted(names, more).unwrap();
        assert_eq!((exporter.promote.len(), &*warnings), (names.len(), ""));
    }
}

/// Scenario: no place and two; stores without names; keys of Azure that go with nothing, that are missing, or that are for another type; a
/// signature in a URL; texts that are no connection strings.
/// Guarantees: each is an error, or a warning where it changes nothing, that names the key and says what to do, and shows no secret.
#[test]
fn mistakes_are_told() {
    let container = "azure: {account: acct, container: c, auth: ";
    for (text, expected) in [
        (
            "",
            "parquet: says nowhere to write to; write path: DIRECTORY, s3uploader:",
        ),
        (
            "path: /a, gcs: {bucket: b}",
            "parquet.path: files go to one place; remove path or gcs",
        ),
        (
            "gcs: {bucket: b}, azure: {account: a, container: c}",
            "parquet.gcs: files go to one place; remove gcs or azure",
        ),
        (
            "gcs: {prefix: x}",
            "parquet.gcs.bucket: is required; name the bucket",
        ),
        (
            "gcs: {bucket: b, endpoint: \"ftp://x\"}",
            "parquet.gcs: \"ftp://x\" is not an endpoint",
        ),
        ("gcs: {buckets: b}", "did you mean \"bucket\"?"),
        (
            "azure: {account: acct}",
            "azure.container: is required; name the container",
        ),
        (
            "azure: {container: c}",
            "azure.account: is required; name the storage account",
        ),
        (
            "azure: {account: acct.blob.core.windows.net, container: c}",
            "azure.account: is the name of the storage account alone",
        ),
        (
            "azure: {url: \"https://acct.blob.core.windows.net/?sig=s3cret\", container: c}",
            "azure.url: a signature does not belong in it",
        ),
        (
            "azure: {url: \"https://acct.blob.core.windows.net/tables\", container: tables}",
            "azure.url: is the URL of the account alone",
        ),
        (
            "azure: {account: acct, container: c, compression: gzip}",
            "azure.compression: the pages of Parquet files are zstd already",
        ),
        (
            &format!("{container} {{account_key: s3cret}}}}"),
            "azure.auth: has account_key and no type; write type:",
        ),
        (
            &format!("{container} {{type: service_principal, tenant_id: t, client_id: c}}}}"),
            "azure.auth.client_secret: is required with this type",
        ),
        (
            &format!("{container} {{type: user_managed_identity}}}}"),
            "azure.auth.client_id: is required with this type",
        ),
        (
            &format!("{container} {{type: connection_string, connection_string: s3cret}}}}"),
            "azure.auth.connection_string: has neither AccountKey nor",
        ),
        (
            &format!("{container} {{type: connection_string, connection_string: AccountKey=s3cret}}}}"),
            "connection_string: has neither AccountName nor",
        ),
        (
            &format!("{container} {{type: managed}}}}"),
            "system_managed_identity",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    let (_, warnings) = read(&format!(
        "{container} {{type: sas_token, sas_token: s3cret, client_id: c}}}}"
    ))
    .unwrap();
    assert!(
        warnings.contains("azure.auth.client_id: has no effect with this type; remove it"),
        "{warnings}"
    );
    assert!(!warnings.contains("s3cret"));
}

/// Scenario: keys, signatures, secrets and connection strings of Azure.
/// Guarantees: none is printed.
#[test]
fn secrets_of_azure_are_not_printed() {
    let secrets = "account_key: s3cret, sas_token: s3cret, client_secret: s3cret, connection_string: s3cret";
    let text = text(&format!(
        "azure: {{account: acct, auth: {{{secrets}, federated_token_file: /token}}}}"
    ));
    let printed = print_config(&Loader::new().text("tables.yaml", text).load().unwrap());
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(
        printed.contains("acct") && printed.contains("/token"),
        "{printed}"
    );
}
