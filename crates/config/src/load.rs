//! From the command line to one document: sources in order, `--set`, expansion.

use std::io::{self, Read};

use crate::error::{Problem, Problems, Report};
use crate::expand::expand;
use crate::merge::{merge, parse_set, unfold};
use crate::node::{Mapping, Node, Source, Span, Value};
use crate::parse::{MAX_DEPTH, depth, parse_yaml};

/// How large a configuration file may be; the largest real ones are under 1 MiB.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// What lies outside the configuration: environment variables and files. Tests bring their own.
pub trait Environment {
    /// The value of an environment variable, if it is set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file.
    fn read_file(&self, path: &str) -> io::Result<String>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn read_file(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(io::Error::other(format!(
                "larger than {} MiB",
                MAX_FILE_BYTES >> 20
            )));
        }
        Ok(text)
    }
}

/// A loaded configuration: merged, overridden, expanded, not yet understood.
#[derive(Clone, Debug)]
pub struct Document {
    /// The top-level map.
    pub root: Node,
    /// What was noticed on the way, such as variables that are not set.
    pub warnings: Vec<Problem>,
}

enum Input {
    Location(String),
    Text { name: String, text: String },
}

/// Collects sources in the order of the command line, then loads them into one [`Document`].
#[derive(Default)]
pub struct Loader {
    inputs: Vec<Input>,
    sets: Vec<String>,
}

impl Loader {
    /// A loader without sources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one `--config`: a path, `file:path`, `env:VARIABLE` or `yaml:text`. Later ones override earlier ones.
    pub fn config(mut self, location: impl Into<String>) -> Self {
        self.inputs.push(Input::Location(location.into()));
        self
    }

    /// Adds a text under a name, such as the configuration compiled in.
    pub fn text(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.inputs.push(Input::Text {
            name: name.into(),
            text: text.into(),
        });
        self
    }

    /// Adds one `--set key.path=value`, applied after every source.
    pub fn set(mut self, assignment: impl Into<String>) -> Self {
        self.sets.push(assignment.into());
        self
    }

    /// Loads everything from this process's environment.
    ///
    /// # Errors
    /// Every source that cannot be read or parsed, and every reference that cannot be expanded, each with its place.
    pub fn load(&self) -> Result<Document, Problems> {
        self.load_from(&ProcessEnvironment)
    }

    /// Loads everything from the given environment; see [`Loader::load`].
    pub fn load_from(&self, environment: &dyn Environment) -> Result<Document, Problems> {
        let mut report = Report::default();
        let mut root: Option<Node> = None;
        let trees = self.inputs.iter().map(|input| read(input, environment));
        let sets = self
            .sets
            .iter()
            .zip(1..)
            .map(|(assignment, number)| parse_set(assignment, number));
        for tree in trees.chain(sets) {
            match (tree, &mut root) {
                (Ok(tree), Some(root)) => merge(root, tree),
                (Ok(tree), None) => root = Some(tree),
                (Err(problem), _) => report.push_error(problem),
            }
        }
        let nowhere = || {
            Node::new(
                Value::Mapping(Mapping::default()),
                Span::whole(Source::new("(no configuration)")),
            )
        };
        let mut root = root.unwrap_or_else(nowhere);
        if depth(&root) > MAX_DEPTH {
            report.error(
                &root.span.clone(),
                format!("maps and lists nest deeper than {MAX_DEPTH}"),
            );
        } else {
            expand(&mut root, environment, &mut report);
        }
        Ok(Document {
            warnings: report.finish()?,
            root,
        })
    }
}

/// Reads one source into a tree whose root is a map.
fn read(input: &Input, environment: &dyn Environment) -> Result<Node, Problem> {
    let (name, text) = match input {
        Input::Text { name, text } => (name.clone(), text.clone()),
        Input::Location(location) => locate(location, environment)?,
    };
    let source = Source::new(name);
    let mut root = parse_yaml(&text, &source)?;
    if root.is_null() {
        root.value = Value::Mapping(Mapping::default());
    }
    if root.as_mapping().is_none() {
        return Err(Problem::at(
            &root.span,
            format!(
                "a configuration is a map (receivers:, exporters:, service:, ...); found {}",
                root.value.kind()
            ),
        ));
    }
    Ok(unfold(root))
}

/// The name and text of a `--config` location.
fn locate(location: &str, environment: &dyn Environment) -> Result<(String, String), Problem> {
    let file = |path: &str| match environment.read_file(path) {
        Ok(text) => Ok((path.to_owned(), text)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(Problem::at(
            &Span::whole(Source::new(path)),
            "cannot be read: it is not UTF-8 text",
        )),
        Err(error) => {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => {
                    "; check the path given to --config, and in a container that the file is mounted there"
                }
                io::ErrorKind::IsADirectory => "; name the file in it",
                io::ErrorKind::PermissionDenied => "; let the user that sluice runs as read it",
                _ => "",
            };
            Err(Problem::at(
                &Span::whole(Source::new(path)),
                format!("cannot be read: {error}{advice}"),
            ))
        }
    };
    match location.split_once(':') {
        Some(("file", path)) => file(path),
        Some(("yaml", text)) => Ok(("yaml:".to_owned(), text.to_owned())),
        Some(("env", variable)) => match environment.variable(variable) {
            Some(text) => Ok((location.to_owned(), text)),
            None => Err(Problem::at(
                &Span::whole(Source::new(location)),
                format!(
                    "the environment variable {variable} is not set; it should hold the configuration as YAML"
                ),
            )),
        },
        Some((scheme @ ("http" | "https" | "s3" | "googlesecretmanager"), _)) => Err(Problem::at(
            &Span::whole(Source::new(location)),
            format!("configurations are not fetched over {scheme}; download it and pass the file's path"),
        )),
        _ => file(location),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Default)]
    struct Fake {
        variables: HashMap<&'static str, &'static str>,
        files: HashMap<&'static str, &'static str>,
    }

    impl Environment for Fake {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).map(|v| (*v).to_owned())
        }

        fn read_file(&self, path: &str) -> io::Result<String> {
            let found = self.files.get(path).map(|v| (*v).to_owned());
            found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }
    }

    fn fake() -> Fake {
        Fake {
            variables: HashMap::from([("CONF", "a: {z: 9}\n"), ("PORT", "1234")]),
            files: HashMap::from([
                ("base.yaml", "a:\n  x: 1\n  y: ${env:PORT}\nlist: [1, 2]\n"),
                ("over.yaml", "a:\n  x: 2\nlist: [3]\n"),
                ("list.yaml", "- 1\n"),
                ("empty.yaml", "# nothing\n"),
            ]),
        }
    }

    /// Scenario: files, a variable, inline YAML and `--set`, in order.
    /// Guarantees: later ones win, maps merge, references are expanded after the merge, every value knows its source.
    #[test]
    fn sources_merge_in_order() {
        let document = Loader::new()
            .config("base.yaml")
            .config("file:over.yaml")
            .config("env:CONF")
            .config("yaml:a::w: 5")
            .config("empty.yaml")
            .set("a.x=${env:PORT}")
            .load_from(&fake())
            .unwrap();
        let expected = "a: {x: 1234, y: 1234, z: 9, w: 5}\nlist: [3]\n";
        assert_eq!(document.root, parse_yaml(expected, &Source::new("t")).unwrap());
        let place = |path: &[&str]| document.root.at(path).unwrap().span.to_string();
        assert_eq!(place(&["a", "x"]), "--set #1");
        assert_eq!(place(&["a", "y"]), "base.yaml:3:6");
        assert_eq!(place(&["a", "z"]), "env:CONF:1:8");
        assert_eq!(place(&["a", "w"]), "yaml::1:7");
        assert_eq!(place(&["list"]), "over.yaml:2:7".replace(":2:", ":3:"));
    }

    /// Scenario: a missing file, a missing variable, a list at the top, a URL and a bad `--set` at once.
    /// Guarantees: all of them are reported, each with its source.
    #[test]
    fn every_bad_source_is_reported() {
        let problems = Loader::new()
            .config("missing.yaml")
            .config("env:NONE")
            .config("list.yaml")
            .config("https://example.com/c.yaml")
            .set("oops")
            .load_from(&fake())
            .unwrap_err();
        let text = problems.to_string();
        assert_eq!(problems.len(), 5, "{text}");
        for start in [
            "missing.yaml: cannot be read: entity not found; check the path given to --config",
            "env:NONE: the environment",
            "list.yaml:1:1: ",
            "https:",
            "--set #1: ",
        ] {
            assert!(
                text.lines().any(|line| line.starts_with(start)),
                "{start}: {text}"
            );
        }
    }

    /// Scenario: no source at all.
    /// Guarantees: an empty map, not an error; what is missing is for the reader of the document to say.
    #[test]
    fn no_source_is_an_empty_map() {
        let document = Loader::new().load_from(&fake()).unwrap();
        assert!(document.root.as_mapping().unwrap().is_empty());
    }
}
