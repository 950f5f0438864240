//! The gateway as a child process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::http::get;
use crate::{Cgroup, Config, eventually, within};

/// A running gateway. Dropping it kills the process.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    log: Log,
    bound: BTreeMap<String, SocketAddr>,
    dir: TempDir,
}

/// How a gateway ended.
#[derive(Debug)]
pub struct Exit {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Everything it said on stdout and stderr.
    pub log: String,
}

/// One line of the ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The exporter's id.
    pub exporter: String,
    /// The pipeline's id.
    pub pipeline: String,
    /// Items taken in.
    pub accepted: u64,
    /// Items found at start.
    pub recovered: u64,
    /// Items confirmed.
    pub delivered: u64,
    /// Items given up, by reason; reasons without items are left out.
    pub dropped: BTreeMap<String, u64>,
    /// Items that wait.
    pub queued: u64,
}

impl Account {
    /// The promise, computed here and not believed.
    pub fn balanced(&self) -> bool {
        self.accepted + self.recovered == self.delivered + self.dropped.values().sum::<u64>() + self.queued
    }
}

/// Lines of a process, as they come.
#[derive(Debug, Clone)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    grew: watch::Sender<usize>,
}

impl Log {
    fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    async fn follow(self, stream: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            self.lines.lock().unwrap().push(line);
            self.grew.send_modify(|lines| *lines += 1);
        }
    }
}

impl Gateway {
    /// Starts it and waits until it is ready.
    pub async fn start(config: &Config) -> Self {
        Self::start_with(config, &[]).await
    }

    /// The same, with more arguments.
    pub async fn start_with(config: &Config, arguments: &[&str]) -> Self {
        Self::launch(config, arguments, Command::new(binary())).await
    }

    /// The same, with variables in its environment.
    pub async fn start_with_environment(config: &Config, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        command.envs(variables.iter().copied());
        Self::launch(config, &[], command).await
    }

    /// Starts it in a cgroup.
    pub async fn start_in(config: &Config, cgroup: &Cgroup) -> Self {
        // The shell moves itself, and becomes the gateway.
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(r#"echo 0 >"$0" && exec "$@""#)
            .arg(cgroup.members())
            .arg(binary());
        Self::launch(config, &[], shell).await
    }

    /// Starts it and sends SIGKILL after this long, however far it is by then.
    pub async fn kill_at_start(config: &Config, after: std::time::Duration) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, config.yaml()).unwrap();
        let mut child = Command::new(binary())
            .arg("--config")
            .arg(&file)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // What is tested is any moment: nothing is waited for.
        tokio::time::sleep(after).await;
        child.kill().await.unwrap();
    }

    /// Runs a subcommand to its end; the exit code, stdout and stderr.
    pub async fn command(arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = within(
            "the command ends",
            Command::new(binary()).args(arguments).output(),
        )
        .await;
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    async fn launch(config: &Config, arguments: &[&str], mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        let yaml = config.yaml();
        std::fs::write(&file, &yaml).unwrap();
        let mut child = command
            .arg("--config")
            .arg(&file)
            .args(arguments)
            .current_dir(dir.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} did not start: {error}", binary().display()));
        let log = Log {
            lines: Arc::default(),
            grew: watch::Sender::new(0),
        };
        tokio::spawn(log.clone().follow(child.stdout.take().unwrap()));
        tokio::spawn(log.clone().follow(child.stderr.take().unwrap()));

        // Every listener is named before the line that says "is ready".
        let mut grew = log.grew.subscribe();
        let ready = async {
            loop {
                if log.text().contains(" is ready") {
                    return true;
                }
                tokio::select! {
                    changed = grew.changed() => changed.unwrap(),
                    _ = child.wait() => return log.text().contains(" is ready"),
                }
            }
        };
        let ready = within("the gateway says that it is ready", ready).await;
        assert!(
            ready,
            "the gateway did not start with\n{yaml}\nit said\n{}",
            log.text()
        );
        let bound = log
            .text()
            .lines()
            .filter_map(|line| {
                let (before, after) = line.split_once(" listens on ")?;
                let name = before.split_whitespace().next_back()?;
                let address = after.split_whitespace().next()?.parse().ok()?;
                Some((name.to_owned(), address))
            })
            .collect();
        let gateway = Self {
            child,
            log,
            bound,
            dir,
        };
        eventually("/ready answers 200", || async {
            (get(gateway.bound("health_check"), "/ready").await?.status == 200).then_some(())
        })
        .await;
        gateway
    }

    /// Where the listener of that name listens.
    pub fn bound(&self, name: &str) -> SocketAddr {
        *self
            .bound
            .get(name)
            .unwrap_or_else(|| panic!("no listener {name}; there are {:?}", self.bound))
    }

    /// The OTLP/gRPC listener.
    pub fn grpc(&self) -> SocketAddr {
        self.bound("receivers.otlp.protocols.grpc")
    }

    /// The OTLP/HTTP listener.
    pub fn http(&self) -> SocketAddr {
        self.bound("receivers.otlp.protocols.http")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the gateway runs")
    }

    /// A directory of its own, where it was started.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until it has said `text`.
    pub async fn says(&self, text: &str) {
        let mut grew = self.log.grew.subscribe();
        let said = async {
            while !self.log.text().contains(text) {
                grew.changed().await.unwrap();
            }
        };
        within(&format!("the gateway says {text:?}"), said).await;
    }

    /// The status of a page of its health check.
    pub async fn probe(&self, path: &str) -> u16 {
        let reply = within(path, get(self.bound("health_check"), path)).await;
        reply.unwrap_or_else(|| panic!("{path} does not answer")).status
    }

    /// A page of its metrics server.
    async fn page(&self, path: &str) -> String {
        let reply = within(path, get(self.bound("metrics"), path)).await;
        let reply = reply.unwrap_or_else(|| panic!("{path} does not answer"));
        assert_eq!(reply.status, 200, "{path}");
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    /// The whole ledger; every line must balance, whenever one looks.
    pub async fn ledger(&self) -> Vec<Account> {
        let page: serde_json::Value = serde_json::from_str(&self.page("/ledger").await).unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let lines = page["exporters"].as_array().unwrap();
        let accounts = lines.iter().map(|line| {
            let total = &line["total"];
            let dropped = total["dropped"].as_object().unwrap().iter();
            let account = Account {
                exporter: text(&line["exporter"]),
                pipeline: text(&line["pipeline"]),
                accepted: number(&total["accepted"]),
                recovered: number(&total["recovered"]),
                delivered: number(&total["delivered"]),
                dropped: dropped
                    .map(|(reason, items)| (reason.clone(), number(items)))
                    .filter(|(_, items)| *items > 0)
                    .collect(),
                queued: number(&total["queued"]),
            };
            assert!(
                account.balanced(),
                "accepted + recovered != delivered + dropped + queued: {account:?}"
            );
            account
        });
        accounts.collect()
    }

    /// The account of one exporter over all pipelines.
    pub async fn account(&self, exporter: &str) -> Account {
        let mut sum = Account {
            exporter: exporter.to_owned(),
            ..Account::default()
        };
        for line in self
            .ledger()
            .await
            .into_iter()
            .filter(|line| line.exporter == exporter)
        {
            sum.accepted += line.accepted;
            sum.recovered += line.recovered;
            sum.delivered += line.delivered;
            sum.queued += line.queued;
            for (reason, items) in line.dropped {
                *sum.dropped.entry(reason).or_default() += items;
            }
        }
        sum
    }

    /// What each tenant had accepted and delivered at one exporter over all pipelines; every account must balance.
    pub async fn tenants(&self, exporter: &str) -> BTreeMap<String, (u64, u64)> {
        let page: serde_json::Value = serde_json::from_str(&self.page("/ledger").await).unwrap();
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let lines = page["exporters"].as_array().unwrap().iter();
        for line in lines.filter(|line| line["exporter"] == exporter) {
            for (tenant, account) in line["tenants"].as_object().unwrap() {
                assert_eq!(account["balanced"], true, "{tenant}: {account}");
                let sum = sums.entry(tenant.clone()).or_default();
                sum.0 += account["accepted"].as_u64().unwrap();
                sum.1 += account["delivered"].as_u64().unwrap();
            }
        }
        sums
    }

    /// Waits until nothing is queued and returns the accounts.
    pub async fn settled(&self) -> Vec<Account> {
        eventually("all queues are empty", || async {
            let ledger = self.ledger().await;
            ledger.iter().all(|account| account.queued == 0).then_some(ledger)
        })
        .await
    }

    /// Its metrics now.
    pub async fn metrics(&self) -> Metrics {
        Metrics(self.page("/metrics").await)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.signal("-HUP");
    }

    fn signal(&self, signal: &str) {
        let done = std::process::Command::new("kill")
            .arg(signal)
            .arg(self.pid().to_string())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "kill {signal} failed");
    }

    /// Sends SIGKILL and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(mut self) -> Exit {
        let status = within("the gateway ends", self.child.wait()).await.unwrap();
        // The pipes end with the process; what is still in them is read by then or soon after.
        let log = self.log.clone();
        let last = async {
            let mut grew = log.grew.subscribe();
            while status.code().is_some()
                && !(log.text().contains("stopped; nothing") || log.text().contains("they are lost"))
            {
                grew.changed().await.unwrap();
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), last).await;
        Exit {
            code: status.code(),
            log: self.log.text(),
        }
    }

    /// Stops it by SIGTERM: everything must be settled, balanced, and the exit code 0.
    pub async fn stop(self) {
        for account in self.settled().await {
            assert!(account.balanced());
        }
        self.terminate();
        let exit = self.ended().await;
        assert_eq!(exit.code, Some(0), "{}", exit.log);
        assert!(!exit.log.contains("panicked"), "{}", exit.log);
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the gateway said\n{}\n---", self.log.text());
        }
    }
}

/// The gateway that this package builds.
fn binary() -> &'static Path {
    static BINARY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    BINARY.get_or_init(|| {
        // Cargo says where it is when it runs a test. A test run by hand finds it above its own place,
        // target/PROFILE/deps.
        if let Some(path) = std::env::var_os("CARGO_BIN_EXE_sluice-under-test") {
            return path.into();
        }
        let mut path = std::env::current_exe().unwrap();
        path.pop();
        if path.ends_with("deps") {
            path.pop();
        }
        path.join("sluice-under-test")
    })
}

/// Metrics in the Prometheus text format.
#[derive(Debug, Clone)]
pub struct Metrics(String);

impl Metrics {
    /// The sum of all samples of `name` whose labels contain all of `labels` (`reason="memory"`).
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let samples = self
            .0
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                let (found, has) = series.split_once('{').unwrap_or((series, ""));
                (found == name && labels.iter().all(|label| has.contains(label)))
                    .then(|| value.parse::<f64>().unwrap())
            });
        samples.sum()
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }
}
