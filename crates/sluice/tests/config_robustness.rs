//! Whatever a file holds, it is accepted or refused: reading it never panics, and never takes long.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use proptest::prelude::*;
use sluice::settings::{Settings, print_config};
use sluice_config::Loader;

/// Every file of the corpus, one after the other.
fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/collector");
    let folders = ["accepted", "refused"].map(|folder| root.join(folder));
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|f| std::fs::read_dir(f).unwrap())
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect()
}

/// What a slip of the hand may put in the place of a value.
const ODD_VALUES: &[&str] = &[
    "",
    "null",
    "true",
    "-1",
    "0",
    "99999999999999999999",
    "1.5",
    "\"\"",
    "[]",
    "{}",
    "[1, {a: b}]",
    "{a: {b: c}}",
    "text",
    "0s",
    "1h",
    "-5s",
    "5",
    "${env:NOT_SET}",
    "${env:NOT_SET:-[a, b]}",
    "localhost:4317",
    "otlp",
    "http://h:1/p",
    "é\u{0}",
    "*x",
    "&x y",
    "!!int 5",
    "| \n  a\n  b",
];

/// One change to a text: (what, where, with what), each taken modulo what there is.
fn changed(text: &str, changes: &[(u8, usize, usize)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (what, at, with) in changes {
        let at = at % lines.len().max(1);
        let Some(line) = lines.get(at).cloned() else {
            continue;
        };
        let odd = ODD_VALUES[with % ODD_VALUES.len()];
        match what % 5 {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, line),
            2 => {
                let key = line.split_once(':').map_or(line.as_str(), |(key, _)| key);
                lines[at] = format!("{key}: {odd}");
            }
            3 => {
                let keep = with % (line.chars().count() + 1);
                lines[at] = line.chars().take(keep).collect();
            }
            _ => {
                let other = lines[with % lines.len()].clone();
                lines[at] = other;
            }
        }
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Scenario: a file of the corpus with a few lines removed, doubled, moved, cut or given odd values.
    /// Guarantees: it is accepted or refused with at least one message; what is accepted prints and is accepted again.
    #[test]
    fn damaged_files_never_panic(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec(any::<(u8, usize, usize)>(), 1..6),
    ) {
        let files = corpus();
        let text = changed(&files[file.index(files.len())], &changes);
        let document = match Loader::new().text("t.yaml", text.clone()).load() {
            Ok(document) => document,
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                return Ok(());
            }
        };
        match Settings::from_document(&document) {
            Ok(settings) => {
                prop_assert!(!settings.pipelines.is_empty());
                let printed = print_config(&document);
                let again = Loader::new().text("printed.yaml", printed.clone()).load();
                prop_assert!(again.is_ok(), "{}\n{printed}", again.unwrap_err());
            }
            Err(problems) => prop_assert!(!problems.is_empty() && !problems.to_string().is_empty()),
        }
    }

    /// Scenario: an odd value set with `--set` at any key path of a full file.
    /// Guarantees: it is accepted or refused, and a refusal names the `--set`, the file, or what is missing.
    #[test]
    fn odd_values_never_panic(which in any::<prop::sample::Index>(), odd in prop::sample::select(ODD_VALUES)) {
        let text = &corpus()[0];
        let all = Loader::new().text("t.yaml", text.clone()).load().unwrap();
        let mut paths = Vec::new();
        collect(&all.root, String::new(), &mut paths);
        let path = which.get(&paths);
        if let Ok(document) = Loader::new().text("t.yaml", text.clone()).set(format!("{path}={odd}")).load()
            && let Err(problems) = Settings::from_document(&document)
        {
            prop_assert!(!problems.is_empty());
        }
    }
}

fn collect(node: &sluice_config::Node, path: String, paths: &mut Vec<String>) {
    if !path.is_empty() {
        paths.push(path.clone());
    }
    for entry in node
        .as_mapping()
        .into_iter()
        .flat_map(|mapping| mapping.entries())
    {
        let separator = if path.is_empty() { "" } else { "." };
        collect(&entry.value, format!("{path}{separator}{}", entry.key), paths);
    }
}
