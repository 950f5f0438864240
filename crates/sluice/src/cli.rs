//! The command line.

mod surroundings;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sluice_config::{Document, Loader, Problems};

use crate::journal::JournalCommand;
use crate::settings::{self, Settings};
use crate::{DEFAULT_CONFIG, demo, journal, serve};

/// A telemetry gateway: OTLP and Prometheus remote write in; OTLP, remote write and Parquet out. Without a subcommand it serves until stopped;
/// without --config it serves the built-in default: OTLP on localhost:4317 and 4318 into files
/// below ./sluice-data.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    config: ConfigArgs,
    /// How long SIGTERM lets the queues drain before what is left is dropped and told.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    shutdown_timeout: Duration,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// Configuration: a file, `env:VARIABLE` or `yaml:text`; given several times, later ones win.
    #[arg(long, value_name = "FILE", global = true)]
    config: Vec<String>,
    /// One value over the configuration, as in `--set receivers.otlp.protocols.grpc.endpoint=0.0.0.0:4317`.
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    set: Vec<String>,
    /// Read so that a Collector's arguments are understood.
    #[arg(long, value_name = "GATES", global = true, hide = true)]
    feature_gates: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the configuration: print what is wrong and what invites loss, start nothing.
    Validate,
    /// List the components this binary has.
    Components,
    /// Print the configuration as merged, with secrets hidden.
    PrintConfig,
    /// Look into a journal on disk.
    #[command(subcommand)]
    Journal(JournalCommand),
    /// Serve the built-in default on free ports into a fresh directory, drive it over its real sockets, and check that
    /// every item that was sent is in the files exactly once. Exits non-zero if not.
    Demo(demo::DemoArgs),
}

/// As in the configuration; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => sluice_config::parse_duration(text),
    }
}

/// Runs the command line `args`, program name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do when even stderr is gone.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.command {
        None => with_settings(&cli.config, |settings, _| {
            serve::serve(&settings, cli.shutdown_timeout)
        }),
        Some(Command::Validate) => with_settings(&cli.config, |settings, _| {
            for warning in &settings.warnings {
                complain(format_args!("warning: {warning}"));
            }
            say(format_args!(
                "the configuration is good: {} pipelines, {} warnings",
                settings.pipelines.len(),
                settings.warnings.len()
            ))
        }),
        Some(Command::Components) => components(),
        Some(Command::Journal(command)) => journal::run(&command),
        Some(Command::PrintConfig) => match load(&cli.config) {
            Ok(document) => say(format_args!("{}", settings::print_config(&document).trim_end())),
            Err(problems) => report(&problems),
        },
        Some(Command::Demo(_)) if !cli.config.config.is_empty() => {
            complain(format_args!(
                "sluice demo runs the built-in default: remove --config; --set may change single values"
            ));
            ExitCode::from(2)
        }
        Some(Command::Demo(args)) => with_settings(&cli.config, |settings, _| demo::run(settings, &args)),
    }
}

fn load(args: &ConfigArgs) -> Result<Document, Problems> {
    let mut loader = Loader::new();
    if args.config.is_empty() {
        loader = loader.text("the built-in default", DEFAULT_CONFIG);
    }
    for location in &args.config {
        loader = loader.config(location);
    }
    for assignment in &args.set {
        loader = loader.set(assignment);
    }
    loader.load()
}

fn with_settings(args: &ConfigArgs, then: impl FnOnce(Settings, Document) -> ExitCode) -> ExitCode {
    let document = match load(args) {
        Ok(document) => document,
        Err(problems) => return report(&problems),
    };
    match Settings::from_document(&document) {
        Ok(mut settings) => {
            let unread = surroundings::unread(&settings, &args.feature_gates, |name| {
                std::env::var_os(name).is_some_and(|value| !value.is_empty())
            });
            let absent = surroundings::absent_files(&settings, &document);
            settings.warnings.extend(unread.into_iter().chain(absent));
            then(settings, document)
        }
        Err(problems) => report(&problems),
    }
}

fn report(problems: &Problems) -> ExitCode {
    complain(format_args!("{}", told(problems)));
    ExitCode::FAILURE
}

/// Warnings first: a variable that is not set, or a part that nobody uses, may be the cause of what is wrong.
fn told(problems: &Problems) -> String {
    let warnings = problems.warnings().iter();
    let mut text: String = warnings.map(|warning| format!("warning: {warning}\n")).collect();
    text.push_str(&problems.to_string());
    text
}

fn components() -> ExitCode {
    let mut text = String::new();
    for component in settings::components() {
        let signals: Vec<_> = component.signals.iter().map(|signal| signal.as_str()).collect();
        let mut names = vec![component.name];
        names.extend(component.aliases);
        text.push_str(&format!(
            "{:<10} {:<24} {:<11} {:<30} {}\n",
            component.kind.singular(),
            names.join(", "),
            component.stability.as_str(),
            signals.join(","),
            component.summary
        ));
    }
    say(format_args!("{}", text.trim_end()))
}

/// Prints a line to stdout; a closed pipe is no error of ours.
pub(crate) fn say(line: std::fmt::Arguments<'_>) -> ExitCode {
    match writeln!(std::io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints a line to stderr.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    // There is nowhere left to say that stderr is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the shutdown time-out as people write it.
    /// Guarantees: a unit as in the configuration, or a bare number of seconds; anything else is an error that says what
    /// is expected.
    #[test]
    fn time_outs_are_read_with_and_without_a_unit() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["-1", "2 s", "soon", ""] {
            assert!(
                duration(text).is_err_and(|error| error.contains("duration")),
                "{text}"
            );
        }
    }

    fn document(yaml: &str) -> Document {
        Loader::new().text("t.yaml", yaml).load().unwrap()
    }

    const PIPELINE: &str = "service: {pipelines: {logs: {receivers: [otlp], exporters: [otlphttp]}}}\n\
                            receivers: {otlp: {protocols: {grpc: }}}\n";

    /// Scenario: an endpoint from a variable that is not set.
    /// Guarantees: what is wrong is told, after why: that the variable is not set.
    #[test]
    fn a_refusal_tells_the_warnings_too() {
        let document = document(&format!(
            "{PIPELINE}exporters: {{otlphttp: {{endpoint: \"${{env:SLUICE_NOT_SET_ANYWHERE}}\"}}}}\n"
        ));
        let text = told(&Settings::from_document(&document).unwrap_err());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with(
                "warning: t.yaml:3:34: the environment variable SLUICE_NOT_SET_ANYWHERE is not set"
            ),
            "{text}"
        );
        assert!(
            lines.len() == 2 && lines[1].starts_with("t.yaml:3:23: exporters.otlphttp: the key \"endpoint\""),
            "{text}"
        );
    }

    /// Scenario: the arguments of a Collector's container: its file and feature gates.
    /// Guarantees: they are taken.
    #[test]
    fn a_collectors_arguments_are_taken() {
        let cli =
            Cli::try_parse_from(["otelcol", "--config=/etc/x.yaml", "--feature-gates=+a.b,-c"]).unwrap();
        assert_eq!(cli.config.config, ["/etc/x.yaml"]);
        assert_eq!(cli.config.feature_gates, ["+a.b,-c"]);
    }
}
