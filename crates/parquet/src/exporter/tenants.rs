//! Tenants with directories of their own.

use std::path::Path;
use std::time::Instant;

use sluice_payload::{MAX_TENANTS, Payload, TenantId, Tenants};

use super::layout::{Layout, LayoutSettings, ReadyFile};
use super::spool::{Finished, Spool, SpoolError};
use super::store::{Sent, Store};
use super::tests::{ALL, all, bodies, payload};

/// Tenants whose ids are in the order of these names.
fn tenants(names: &[&str]) -> Tenants {
    let tenants = Tenants::default();
    names.iter().for_each(|name| {
        tenants.intern(name);
    });
    tenants
}

fn open(directory: &Path, tenants: &Tenants, by_tenant: bool) -> (Layout, Vec<Finished>) {
    let (spool, waiting) = Spool::open(directory, ALL, tenants).unwrap();
    let settings = LayoutSettings {
        by_tenant,
        max_open_files: 10,
        ..LayoutSettings::default()
    };
    (Layout::new(settings, spool), waiting)
}

/// Payload `number` of a tenant: a record in each of two hours.
fn of(tenant: TenantId, number: u64) -> Payload {
    Payload {
        tenant,
        ..payload(number, 2)
    }
}

/// Lays payloads out, each with its number, and cuts: what is ready.
fn cut<'a>(
    layout: &mut Layout,
    tenants: &Tenants,
    payloads: impl IntoIterator<Item = (u64, &'a str)>,
) -> Vec<ReadyFile> {
    let mut ready = Vec::new();
    for (number, tenant) in payloads {
        let payload = of(tenants.intern(tenant), number);
        layout
            .push(number, &payload, 0, Instant::now(), &mut ready)
            .unwrap();
    }
    layout.cut_all(0, &mut ready).unwrap();
    ready
}

/// The directory of a file and the rows in it, in the order of directories.
fn contents(ready: &[ReadyFile]) -> Vec<(String, Vec<String>)> {
    let content = |file: &ReadyFile| (file.finished.directory(), bodies(&file.finished.path));
    let mut contents: Vec<_> = ready.iter().map(content).collect();
    contents.sort();
    contents
}

/// Scenario: payloads of three tenants, one of them with a name like a path, by turns in the same hours; sent to a directory.
/// Guarantees: each tenant's rows are in files of its own, below a directory of its name that leads nowhere else; with `by_tenant` off they
/// are together, and in no such directory.
#[tokio::test]
async fn tenants_have_files_of_their_own() {
    let tenants = tenants(&[]);
    let payloads = [(1, "a"), (2, "../b"), (3, "a"), (4, "default")];
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(&directory.path().join("spool"), &tenants, true);
    let ready = cut(&mut layout, &tenants, payloads);
    let rows = |numbers: &[u64], hour: u64| {
        numbers
            .iter()
            .map(|number| format!("{number}.{hour}"))
            .collect::<Vec<_>>()
    };
    let mut expected = Vec::new();
    for (name, numbers) in [("..%2Fb", &[2][..]), ("a", &[1, 3]), ("default", &[4])] {
        for hour in [0, 1] {
            let place = format!("tenant={name}/logs/dt=2025-11-21/hour={}", 21 + hour);
            expected.push((place, rows(numbers, hour)));
        }
    }
    assert_eq!(contents(&ready), expected);
    let out = directory.path().join("out");
    for file in &ready {
        let sent = Store::Directory(out.clone()).send(&file.finished).await;
        assert!(matches!(sent, Sent::There), "{sent:?}");
        assert!(
            out.join(file.finished.directory())
                .join(&file.finished.cut.name)
                .is_file()
        );
    }
    let entries = std::fs::read_dir(directory.path()).unwrap();
    assert_eq!(
        entries.count(),
        2,
        "nothing is beside the spool and the destination"
    );

    let together = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(together.path(), &tenants, false);
    let ready = cut(&mut layout, &tenants, payloads);
    let place = |hour| format!("logs/dt=2025-11-21/hour={hour}");
    assert_eq!(
        contents(&ready),
        [
            (place(21), rows(&[1, 2, 3, 4], 0)),
            (place(22), rows(&[1, 2, 3, 4], 1))
        ]
    );
}

/// Scenario: files of two tenants are cut, then rows of both are laid out that are in none; crash. The next process has seen the tenants in
/// another order, and the journal hands everything out again. All of that arrives, and there is a third process.
/// Guarantees: what was cut waits to be sent, under the same name in the same tenant's directory, and is not written again; what was not,
/// is, once; what has arrived is known still, by its tenant.
#[test]
fn after_a_crash_tenants_are_who_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let before = tenants(&["a", "b"]);
    let (mut layout, _) = open(directory.path(), &before, true);
    let ready = cut(&mut layout, &before, [(1, "a"), (2, "b")]);
    let names = |files: Vec<&Finished>| {
        let mut names: Vec<_> = files
            .iter()
            .map(|file| (file.directory(), file.cut.name.clone()))
            .collect();
        names.sort();
        names
    };
    let sent = names(ready.iter().map(|file| &file.finished).collect());
    assert_eq!(sent.len(), 4);
    layout.lay(3, &of(before.intern("a"), 3), Instant::now()).unwrap();
    layout.lay(4, &of(before.intern("b"), 4), Instant::now()).unwrap();
    drop(layout);

    let after = tenants(&["c", "b", "a"]);
    let (mut layout, waiting) = open(directory.path(), &after, true);
    assert_eq!(names(waiting.iter().collect()), sent);
    let again = cut(
        &mut layout,
        &after,
        [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c")],
    );
    assert_eq!(all(&again), ["3.0", "3.1", "4.0", "4.1", "5.0", "5.1"]);
    assert!(contents(&again)[0].0.starts_with("tenant=a/"));
    drop(layout);

    for arrived in waiting.iter().chain(again.iter().map(|file| &file.finished)) {
        std::fs::remove_file(&arrived.path).unwrap();
    }
    for names in [&["b"][..], &["c", "a"]] {
        let tenants = tenants(names);
        let (mut layout, waiting) = open(directory.path(), &tenants, true);
        assert!(waiting.is_empty());
        let again = cut(&mut layout, &tenants, [(1, "a"), (3, "a"), (4, "b"), (5, "c")]);
        assert_eq!(all(&again), [""; 0]);
    }
}

/// Scenario: files are cut with tenants together, or divided; then that is changed, and the journal hands the same payloads out again.
/// Guarantees: rows that are in a file are not written again, and of payloads that are in none, nothing is missing.
#[test]
fn dividing_tenants_later_does_not_write_rows_again() {
    for by_tenant in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let tenants = tenants(&["a", "b"]);
        let (mut layout, _) = open(directory.path(), &tenants, by_tenant);
        cut(&mut layout, &tenants, [(1, "a"), (2, "b")]);
        drop(layout);
        let (mut layout, _) = open(directory.path(), &tenants, !by_tenant);
        let again = cut(&mut layout, &tenants, [(1, "a"), (2, "b"), (3, "a")]);
        assert_eq!(all(&again), ["3.0", "3.1"], "{by_tenant}");
    }
}

/// Scenario: thirty tenants, by turns, with room for ten open files.
/// Guarantees: after each payload open files are within the limit, and no row is lost.
#[test]
fn many_tenants_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = tenants(&[]);
    let (mut layout, _) = open(directory.path(), &tenants, true);
    let mut ready = Vec::new();
    for number in 0..60 {
        let payload = of(tenants.intern(&format!("tenant {}", number % 30)), number);
        layout
            .push(number, &payload, 0, Instant::now(), &mut ready)
            .unwrap();
        assert!(layout.open_files() <= 10);
    }
    layout.cut_all(0, &mut ready).unwrap();
    assert_eq!(all(&ready).len(), 120);
}

/// Scenario: files of a tenant are cut; then a process has as many others as are told apart before it opens the spool.
/// Guarantees: that is an error: what is known of one tenant's rows is never taken for another's, which would lose them.
#[test]
fn marks_of_more_tenants_than_are_told_apart_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let before = tenants(&["a"]);
    let (mut layout, _) = open(directory.path(), &before, true);
    cut(&mut layout, &before, [(1, "a"), (2, "overflow")]);
    drop(layout);
    let full = tenants(&[]);
    (0..MAX_TENANTS).for_each(|number| {
        full.intern(&format!("other {number}"));
    });
    let opened = Spool::open(directory.path(), ALL, &full);
    assert!(matches!(opened, Err(SpoolError::Tenants { .. })));
    drop(opened);
    open(directory.path(), &before, true);
}
