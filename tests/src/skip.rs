//! Tests that need what not every machine gives them.

/// Says what a test cannot do here. Where the machine has to have it (`SLUICE_NO_SKIP`, as `.ci/run` sets it for root) that is a failure.
#[allow(clippy::print_stdout, reason = "a test that does nothing says so")]
#[track_caller]
pub fn skipped(what: &str, reason: &str) {
    assert!(
        std::env::var_os("SLUICE_NO_SKIP").is_none(),
        "{what} is needed, and nothing may be skipped (SLUICE_NO_SKIP): {reason}"
    );
    println!("skipped: {what} is needed: {reason}");
}
