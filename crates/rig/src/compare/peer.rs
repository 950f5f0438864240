//! The gateways: what is known of how to start them (deploy/compare/peers.txt), and where they are.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::scenario::Scenario;
use crate::load::{Encoding, Protocol};

/// Where gateways are looked for before PATH, from the directory the rig is started in.
const BUILT_HERE: [&str; 2] = ["target/release", "target/peers"];

/// The extension of configurations that are command lines, for gateways without configuration files.
const COMMAND_LINE: &str = "args";

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: String,
    executable: String,
    configured: String,
    /// Where it takes OTLP over HTTP, if it takes one signal only; else empty.
    pub(crate) path: String,
    arguments: Vec<String>,
    pub(crate) remark: String,
}

impl Kind {
    /// The extension of its configuration files, and how their names begin: the first that is there is taken.
    fn files(&self) -> (&str, Vec<&str>) {
        let mut words = self.configured.split_whitespace();
        let extension = words.next().unwrap_or_default();
        (
            extension,
            std::iter::once(self.name.as_str()).chain(words).collect(),
        )
    }
}

/// A gateway that can be started.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) executable: PathBuf,
    /// Of its command line, beyond those of its kind.
    pub(crate) arguments: Vec<String>,
}

/// The gateways that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) peers: Vec<Peer>,
    /// Names, and why they could not be found.
    pub(crate) absent: Vec<(String, String)>,
}

/// Where everything listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) gateway_http: u16,
    pub(crate) gateway_grpc: u16,
    pub(crate) sink_http: u16,
    pub(crate) sink_grpc: u16,
    pub(crate) sink_control: u16,
}

impl Ports {
    /// As the configurations read them.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("GATEWAY_HTTP", self.gateway_http.to_string()),
            ("GATEWAY_GRPC", self.gateway_grpc.to_string()),
            ("SINK_HTTP", self.sink_http.to_string()),
            ("SINK_GRPC", self.sink_grpc.to_string()),
        ]
    }
}

/// Reads the table of kinds.
pub(crate) fn read_kinds(text: &str) -> Result<Vec<Kind>, String> {
    let mut kinds = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let [name, executable, configured, path, arguments, remark] = columns[..] else {
            return Err(format!(
                "peers.txt, line {number}: {} columns instead of 6",
                columns.len()
            ));
        };
        kinds.push(Kind {
            name: name.into(),
            executable: executable.into(),
            configured: configured.into(),
            path: path.into(),
            arguments: arguments.split_whitespace().map(String::from).collect(),
            remark: remark.into(),
        });
    }
    Ok(kinds)
}

/// Splits what a gateway was asked for with into `NAME` or `NAME=PATH` and the arguments that follow it, which begin
/// with a dash.
pub(crate) fn split_arguments(asked: &str) -> (&str, &str) {
    let end = asked.find(" -").unwrap_or(asked.len());
    (&asked[..end], asked[end..].trim())
}

/// The gateways that were asked for as `NAME` or `NAME=PATH`, with arguments behind it if there are any, or else all
/// that are known; those that cannot be found come with what was tried.
pub(crate) fn find(kinds: &[Kind], asked: &[String]) -> Result<Found, String> {
    let all: Vec<String> = kinds.iter().map(|kind| kind.name.clone()).collect();
    let mut all_found = Found::default();
    for asked in if asked.is_empty() { &all } else { asked } {
        let (asked, arguments) = split_arguments(asked);
        let (name, path) = match asked.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (asked, None),
        };
        let known = |kind: &&Kind| {
            name.strip_prefix(&kind.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let kind = kinds.iter().find(known).ok_or_else(|| {
            format!(
                "nothing is known of a gateway {name:?}: use a name that begins with one of {}, or add it to peers.txt",
                all.join(", ")
            )
        })?;
        match locate(kind, path) {
            Ok(executable) => all_found.peers.push(Peer {
                name: name.into(),
                kind: kind.clone(),
                executable,
                arguments: arguments.split_whitespace().map(String::from).collect(),
            }),
            Err(error) => all_found.absent.push((name.into(), error)),
        }
    }
    Ok(all_found)
}

fn locate(kind: &Kind, path: Option<&str>) -> Result<PathBuf, String> {
    if let Some(path) = path {
        let path = PathBuf::from(path);
        return path
            .is_file()
            .then_some(path.clone())
            .ok_or_else(|| format!("{} is no file", path.display()));
    }
    if kind.executable == "self" {
        return std::env::current_exe().map_err(|error| format!("cannot find the rig itself: {error}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let built = BUILT_HERE.iter().map(PathBuf::from);
    built
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(&kind.executable))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            format!(
                "no {} in {} or PATH; name it with --peer {}=PATH",
                kind.executable,
                BUILT_HERE.join(", "),
                kind.name
            )
        })
}

/// Why there is no command.
#[derive(Debug, PartialEq)]
pub(crate) enum NoCommand {
    /// The gateway does not do this work, and why: no fault of it.
    NotItsWork(String),
    /// It does, and something is wrong here.
    Failed(String),
}

impl Peer {
    /// The command line for a scenario, with the configuration written to `out`.
    pub(crate) fn command(
        &self,
        scenario: &Scenario,
        ports: Ports,
        threads: usize,
        configurations: &Path,
        out: &Path,
    ) -> Result<Vec<String>, NoCommand> {
        let not_its_work = |why| Err(NoCommand::NotItsWork(why));
        let Kind {
            configured,
            path,
            arguments,
            ..
        } = &self.kind;
        let works = scenario.configurations();
        let signal = scenario.signal;
        if !path.is_empty() && !path.ends_with(signal.http_path()) {
            return not_its_work(format!("{} does not take {signal}", self.name));
        }
        let scratch = out.join(format!("{}-scratch", self.name));
        let values = Values {
            ports,
            threads,
            scenario,
            out,
            scratch: &scratch,
        };
        let mut arguments = arguments.clone();
        let mut config = String::new();
        let mut needs_scratch = false;
        let (extension, names) = self.kind.files();
        if extension.contains('-') {
            if !configured
                .split(',')
                .any(|can| works.iter().any(|work| can == work))
            {
                return not_its_work(format!("{} does only {configured}", self.name));
            }
            // It sends on what it is sent: compressed again, that is nothing a destination reads.
            if scenario.encoding != Encoding::Identity || scenario.protocol == Protocol::Json {
                return not_its_work(format!("{} takes plain protobuf only", self.name));
            }
        } else {
            let mut candidates = Vec::new();
            for work in &works {
                for name in &names {
                    candidates.push(configurations.join(format!("{name}-{work}.{extension}")));
                }
            }
            let Some(source) = candidates.iter().find(|path| path.is_file()) else {
                return not_its_work(format!("no configuration {}", candidates[0].display()));
            };
            let text = std::fs::read_to_string(source)
                .map_err(|error| NoCommand::Failed(format!("cannot read {}: {error}", source.display())))?;
            if extension == COMMAND_LINE {
                arguments.extend(command_line(&text));
            } else {
                needs_scratch = text.contains("@SCRATCH@");
                let target = out.join(format!("{}-{}.{extension}", self.name, works[0]));
                std::fs::write(&target, values.put_into_file(&text)).map_err(|error| {
                    NoCommand::Failed(format!("cannot write {}: {error}", target.display()))
                })?;
                config = target.display().to_string();
            }
        }
        arguments.extend(self.arguments.iter().cloned());
        if needs_scratch || arguments.iter().any(|argument| argument.contains("{scratch}")) {
            make_empty(&scratch).map_err(NoCommand::Failed)?;
        }
        let arguments = arguments.iter();
        let arguments = arguments.map(|argument| values.put_into(argument).replace("{config}", &config));
        Ok(std::iter::once(self.executable.display().to_string())
            .chain(arguments)
            .collect())
    }
}

/// The arguments in a file of them: separated by white space, without the comments from `#` on.
fn command_line(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace())
        .map(String::from)
}

/// What a gateway left there must not be sent again in the next measurement.
fn make_empty(directory: &Path) -> Result<(), String> {
    let wrong = |error| format!("cannot make an empty {}: {error}", directory.display());
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    std::fs::create_dir_all(directory).map_err(wrong)
}

/// What is put into arguments and configuration files.
struct Values<'a> {
    ports: Ports,
    threads: usize,
    scenario: &'a Scenario,
    out: &'a Path,
    scratch: &'a Path,
}

impl Values<'_> {
    fn put_into(&self, text: &str) -> String {
        text.replace("{gateway_http}", &self.ports.gateway_http.to_string())
            .replace("{gateway_grpc}", &self.ports.gateway_grpc.to_string())
            .replace("{sink_http}", &self.ports.sink_http.to_string())
            .replace("{sink_grpc}", &self.ports.sink_grpc.to_string())
            .replace("{compression}", self.scenario.compression)
            .replace("{threads}", &self.threads.to_string())
            .replace("{scratch}", &self.scratch.display().to_string())
    }

    fn put_into_file(&self, text: &str) -> String {
        text.replace("@OUT@", &self.out.display().to_string())
            .replace("@SINK@", &self.ports.sink_http.to_string())
            .replace("@GATEWAY@", &self.ports.gateway_http.to_string())
            .replace("@SCRATCH@", &self.scratch.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use sluice_loadgen::Signal;

    use super::*;
    use crate::compare::scenario::SCENARIOS;

    const PORTS: Ports = Ports {
        gateway_http: 1,
        gateway_grpc: 2,
        sink_http: 3,
        sink_grpc: 4,
        sink_control: 5,
    };

    fn shipped() -> (Vec<Kind>, PathBuf) {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compare");
        let text = std::fs::read_to_string(directory.join("peers.txt")).unwrap();
        (read_kinds(&text).unwrap(), directory)
    }

    /// Scenario: the shipped table; a gateway under a name of its own, with arguments of its own, one that cannot
    /// be found, one nobody knows.
    /// Guarantees: each finds its line, what is absent says what was tried, an unknown name is an error that
    /// lists names; arguments are part of neither name nor path.
    #[test]
    fn gateways_are_found() {
        let (kinds, _) = shipped();
        let asked = [
            "floor --threads 1".into(),
            "sluice-old=/nowhere/sluice --set a=b".into(),
        ];
        let Found { peers, absent } = find(&kinds, &asked).unwrap();
        assert_eq!(peers.len(), 1);
        assert_eq!(peers[0].kind.name, "floor");
        assert_eq!(peers[0].name, "floor");
        assert_eq!(peers[0].arguments, ["--threads", "1"]);
        assert_eq!(
            absent,
            [("sluice-old".into(), "/nowhere/sluice is no file".into())]
        );
        let error = find(&kinds, &["sluicegate".into()]).unwrap_err();
        assert!(
            error.contains("sluicegate") && error.contains("collector, sluice"),
            "{error}"
        );
        assert!(read_kinds("one | two").unwrap_err().contains("line 1: 2 columns"));
    }

    /// Scenario: the commands of every shipped gateway for every scenario.
    /// Guarantees: each gateway does the work that is listed for it and says of all other why not; values are
    /// put in everywhere, comments are no arguments, and its own arguments come last.
    #[test]
    fn commands_are_complete() {
        const OTLP: &[&str] = &["http-none", "http-zstd", "grpc-zstd"];
        const OTLP_AND_SNAPPY: &[&str] = &[
            "http-none",
            "http-zstd",
            "http-zstd-disk",
            "grpc-zstd",
            "remote-write-snappy",
        ];
        const HTTP: &[&str] = &["http-none", "http-zstd"];
        const OTLP_AND_REMOTE_WRITE: &[&str] = &[
            "http-none",
            "http-zstd",
            "http-zstd-disk",
            "grpc-zstd",
            "remote-write-snappy",
            "remote-write-zstd",
            "through-snappy",
        ];
        const REMOTE_WRITE: &[&str] = &["remote-write-snappy", "remote-write-zstd", "through-snappy"];
        let does = |name: &str| match name {
            "collector" => (OTLP_AND_SNAPPY, &Signal::ALL[..]),
            "sluice" => (OTLP_AND_REMOTE_WRITE, &Signal::ALL[..]),
            "rotel" => (OTLP, &Signal::ALL[..]),
            "metrics-governor" => (HTTP, &[Signal::Metrics][..]),
            "vmagent" => (REMOTE_WRITE, &[Signal::Metrics][..]),
            "floor" => (HTTP, &Signal::ALL[..]),
            "nginx" => (&HTTP[..1], &Signal::ALL[..]),
            name => panic!("what does {name} do?"),
        };
        let (kinds, directory) = shipped();
        let out = scratch("commands");
        for kind in kinds {
            let peer = Peer {
                name: kind.name.clone(),
                kind,
                executable: "/bin/gateway".into(),
                arguments: vec!["--set".into(), "a=b".into()],
            };
            let (works, signals) = does(&peer.name);
            let is_plain = |scenario: &Scenario| {
                scenario.encoding == Encoding::Identity && scenario.protocol != Protocol::Json
            };
            for scenario in SCENARIOS {
                let configurations = scenario.configurations();
                let expected = works
                    .iter()
                    .any(|work| configurations.iter().any(|name| name == work))
                    && signals.contains(&scenario.signal)
                    && (peer.name != "floor" || is_plain(scenario));
                let command = peer.command(scenario, PORTS, 2, &directory, &out);
                assert_eq!(
                    command.is_ok(),
                    expected,
                    "{} {}: {command:?}",
                    peer.name,
                    scenario.name
                );
                let Ok(command) = command else { continue };
                assert_eq!(command[0], "/bin/gateway");
                assert_eq!(command[command.len() - 2..], ["--set", "a=b"]);
                assert!(
                    !command.iter().any(|argument| argument.contains(['{', '#'])),
                    "{command:?}"
                );
            }
        }
        std::fs::remove_dir_all(&out).unwrap();
    }

    /// Scenario: a gateway that is given its command line by a file, and leaves something in its directory.
    /// Guarantees: its arguments follow those of the table, without comments; its directory is empty when it
    /// is started again, and where that cannot be made, it is no work that it does not do; a signal that it does not take is named.
    #[test]
    fn a_command_line_comes_from_a_file() {
        let out = scratch("command-line");
        std::fs::write(
            out.join("agent-http-none.args"),
            "# why\n-a={sink_http} -b # and why\n-data={scratch}\n",
        )
        .unwrap();
        let line = "agent | agent | args | /otlp/v1/metrics | start --on {gateway_http} |";
        let peer = Peer {
            name: "agent-new".into(),
            kind: read_kinds(line).unwrap().remove(0),
            executable: "/bin/agent".into(),
            arguments: Vec::new(),
        };
        let scenario = |name: &str| SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
        let command = || peer.command(scenario("metrics-none"), PORTS, 2, &out, &out);
        let data = out.join("agent-new-scratch");
        let expected = ["/bin/agent", "start", "--on", "1", "-a=3", "-b"].map(String::from);
        let expected = [&expected[..], &[format!("-data={}", data.display())]].concat();
        assert_eq!(command().unwrap(), expected);
        std::fs::write(data.join("unsent"), "a block").unwrap();
        assert_eq!(command().unwrap(), expected);
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0);
        assert_eq!(
            peer.command(scenario("logs-none"), PORTS, 2, &out, &out)
                .unwrap_err(),
            NoCommand::NotItsWork("agent-new does not take logs".into())
        );
        // What is wrong here is not taken for work that it does not do.
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::write(&data, "not a directory").unwrap();
        assert!(matches!(command(), Err(NoCommand::Failed(_))));
        std::fs::remove_dir_all(&out).unwrap();
    }

    /// Scenario: sluice and the Collector, with and without passing through, without a file and with one of its own.
    /// Guarantees: sluice reads the Collector's file where it has none of its own; who cannot pass through has the
    /// configuration for zstd.
    #[test]
    fn files_are_shared() {
        let (kinds, directory) = shipped();
        let out = scratch("shared");
        let found = find(&kinds, &["sluice=/bin/sh".into(), "collector=/bin/sh".into()]).unwrap();
        let configuration = |gateway: usize, scenario: &str| {
            let scenario = SCENARIOS.iter().find(|found| found.name == scenario).unwrap();
            let command = found.peers[gateway]
                .command(scenario, PORTS, 2, &directory, &out)
                .unwrap();
            std::fs::read_to_string(&command[2]).unwrap()
        };
        let shipped = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap();
        let zstd = shipped("collector-http-zstd.yaml");
        assert_eq!(configuration(0, "metrics-zstd"), zstd);
        assert_eq!(configuration(1, "metrics-zstd-frames"), zstd);
        assert_eq!(configuration(1, "metrics-gzip-members"), zstd);
        for (scenario, file) in [
            ("metrics-zstd-frames", "sluice-http-zstd-frames.yaml"),
            ("metrics-gzip-members", "sluice-http-gzip-members.yaml"),
        ] {
            let text = configuration(0, scenario);
            assert!(
                text == shipped(file) && text.contains("passthrough: always"),
                "{file}"
            );
        }
        std::fs::remove_dir_all(&out).unwrap();
    }

    fn scratch(test: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("sluice-rig-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }
}
