//! What is wrong with a JSON body, where, and what to do about it.

use std::fmt;

/// Why JSON was not taken. Its `Display` names the place, the field and the remedy, fit for a 400 body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct JsonError {
    line: usize,
    column: usize,
    path: String,
    problem: String,
    too_large: bool,
}

impl JsonError {
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The field the problem is in, for example `resourceSpans[0].scopeSpans[1].spans[2].traceId`; empty at the top.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong and what to do.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Whether the body is well-formed as far as it was read but its protobuf form exceeds the limit: 413, not 400.
    pub fn is_too_large(&self) -> bool {
        self.too_large
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JSON line {}, column {}", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, ", {}", self.path)?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// One step of a field path.
#[derive(Debug)]
pub(super) enum Step {
    Field(&'static str),
    Index(usize),
}

/// An error under way to the top: the path is collected from the inside out while the stack unwinds, so that a body
/// without errors pays nothing for it.
#[derive(Debug)]
pub(super) struct Failure {
    at: usize,
    problem: String,
    steps: Vec<Step>,
    too_large: bool,
}

/// The result of a decoding step.
pub(super) type Outcome<T> = Result<T, Box<Failure>>;

impl Failure {
    /// A problem at a byte offset of the input.
    #[cold]
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            at,
            problem: problem.into(),
            steps: Vec::new(),
            too_large: false,
        })
    }

    /// The output has outgrown its limit.
    #[cold]
    pub(super) fn too_large(at: usize, limit_bytes: usize) -> Box<Self> {
        let mut failure = Self::new(
            at,
            format!(
                "the request is larger than {limit_bytes} bytes as protobuf; send smaller batches or raise the limit"
            ),
        );
        failure.too_large = true;
        failure
    }

    /// Adds the enclosing step.
    #[cold]
    pub(super) fn within(mut self: Box<Self>, step: Step) -> Box<Self> {
        self.steps.push(step);
        self
    }

    /// Finds line and column in the input and writes the path out.
    #[cold]
    pub(super) fn locate(self, input: &[u8]) -> JsonError {
        let before = &input[..self.at.min(input.len())];
        let line_start = before
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let is_char_start = |byte: &&u8| **byte & 0xC0 != 0x80;
        let mut path = String::new();
        for step in self.steps.iter().rev() {
            match step {
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        JsonError {
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
            column: before[line_start..].iter().filter(is_char_start).count() + 1,
            path,
            problem: self.problem,
            too_large: self.too_large,
        }
    }
}
