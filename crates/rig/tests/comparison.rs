//! The comparison end to end: with the floor, and with gateways that do what they must not.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A gateway that answers and sends nothing on is a sink; and so is one that resets every connection.
const PEERS: &str = "\
floor | self | http-none | | floor --listen 127.0.0.1:{gateway_http} --to 127.0.0.1:{sink_http} --compression {compression} --threads {threads} |
sluice-forgetful | self | http-none | | sink --http 127.0.0.1:{gateway_http} --grpc 127.0.0.1:0 --control 127.0.0.1:0 |
closed | self | http-none | | sink --http 127.0.0.1:{gateway_http} --grpc 127.0.0.1:0 --control 127.0.0.1:0 --faults reset |
";

/// The first of five free ports, below those that the kernel gives to connections. Tests that run side by side have
/// a `place` each.
fn base_port(place: u16) -> u16 {
    let first = 20_000 + place * 5_000 + (std::process::id() % 900) as u16 * 5;
    let is_free = |base: &u16| (0..5).all(|next| TcpListener::bind(("127.0.0.1", base + next)).is_ok());
    (first..first + 500).step_by(5).find(is_free).unwrap()
}

struct Compared {
    output: Output,
    directory: PathBuf,
}

impl Compared {
    /// Compares gateways of [`PEERS`] for 300 ms a measurement, 20,000 points a second where the rate is fixed, without a
    /// warm-up: what is lost in one is waited for as well.
    fn run(name: &str, place: u16, arguments: &[&str]) -> Compared {
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("peers.txt"), PEERS).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_sluice-rig"))
            .args([
                "compare",
                "--scenario",
                "metrics-none",
                "--repeats",
                "1",
                "--no-cgroups",
            ])
            .args(["--duration", "300ms", "--warm-up", "0s", "--rate", "20000"])
            .args(["--base-port", &base_port(place).to_string()])
            .args(["--configurations", directory.to_str().unwrap()])
            .args(["--out", directory.to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap();
        Compared { output, directory }
    }

    /// What it said to who waits for it.
    fn said(&self) -> String {
        String::from_utf8(self.output.stderr.clone()).unwrap()
    }

    fn report(&self) -> String {
        fs::read_to_string(self.directory.join("report.md")).unwrap()
    }
}

impl Drop for Compared {
    fn drop(&mut self) {
        // What is left is below target/tmp.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Scenario: the floor, at a fixed rate and saturated.
/// Guarantees: the comparison succeeds, and its report says that every point was delivered once.
#[test]
fn the_floor_is_measured() {
    let compared = Compared::run("floor", 0, &["--peer", "floor", "--mode", "fixed,saturated"]);
    let (said, report) = (compared.said(), compared.report());
    assert!(compared.output.status.success(), "{said}");
    assert_eq!(report.matches("| all, once |").count(), 2, "{report}");
    assert!(
        report.contains("| points/s delivered | delivered / floor |"),
        "{report}"
    );
    let page = fs::read_to_string(compared.directory.join("report.html")).unwrap();
    assert!(page.contains("metrics-none, saturated"), "{page}");
}

/// Scenario: a gateway of our own that answers requests and sends nothing on, and one of others that resets all.
/// Guarantees: the comparison fails; it names the measurement and what was lost; of the others' it only tells.
#[test]
fn a_broken_gateway_fails_the_comparison() {
    let compared = Compared::run(
        "broken",
        1,
        &["--peer", "sluice-forgetful,closed", "--mode", "fixed"],
    );
    let said = compared.said();
    assert!(!compared.output.status.success(), "{said}");
    let failure = "the comparison fails, see --fail-on:\nmetrics-none, fixed, sluice-forgetful #1: ";
    let (_, failure) = said.split_once(failure).unwrap();
    assert!(failure.contains(" lost, nothing delivered"), "{said}");
    assert_eq!(failure.trim_end().lines().count(), 1, "{said}");
    assert!(
        said.contains("not a failure, by --fail-on: metrics-none, fixed, closed #1: nothing delivered"),
        "{said}"
    );
}
