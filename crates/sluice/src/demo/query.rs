//! A query on the tables that a run wrote, and its answer where there is an engine to ask.

use std::path::Path;
use std::process::{Command, Stdio};

/// What a newcomer would ask first.
pub(super) fn query(directory: &Path) -> String {
    // Quotes of SQL are doubled.
    let directory = directory.display().to_string().replace('\'', "''");
    format!(
        "SELECT service_name, severity_text, count(*) AS records, max(timestamp) AS latest \
         FROM read_parquet('{directory}/logs/**/*.parquet') GROUP BY ALL ORDER BY records DESC LIMIT 5"
    )
}

/// What DuckDB answers, if it is installed.
pub(super) fn answer(query: &str) -> Option<String> {
    let asked = Command::new("duckdb")
        .args(["-c", query])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    asked
        .status
        .success()
        .then(|| String::from_utf8_lossy(&asked.stdout).trim_end().to_owned())
}
