//! What was wrong, where, and what to do: one line per problem.

use std::fmt;

use crate::node::Span;

/// One thing to say about a configuration, and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place; `None` when it is about no text in particular.
    pub span: Option<Span>,
    /// The whole sentence: what, the key path, what to do.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    pub fn at(span: &Span, message: impl Into<String>) -> Self {
        Self {
            span: Some(span.clone()),
            message: message.into(),
        }
    }

    /// A problem of the configuration as a whole.
    pub fn general(message: impl Into<String>) -> Self {
        Self {
            span: None,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.span {
            Some(span) => write!(f, "{span}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The problems that keep a configuration from being used; never empty. Displays one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The problems in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none; never true for a value this crate returns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What has been found so far: errors, which end in refusal, and warnings, which are only said.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Reasons to refuse the configuration.
    pub errors: Vec<Problem>,
    /// Things the operator should know.
    pub warnings: Vec<Problem>,
}

impl Report {
    /// Notes an error at a place, once.
    pub fn error(&mut self, span: &Span, message: impl Into<String>) {
        self.push_error(Problem::at(span, message));
    }

    /// Notes an error, once.
    pub fn push_error(&mut self, problem: Problem) {
        if !self.errors.contains(&problem) {
            self.errors.push(problem);
        }
    }

    /// Notes a warning at a place, once.
    pub fn warn(&mut self, span: &Span, message: impl Into<String>) {
        let problem = Problem::at(span, message);
        if !self.warnings.contains(&problem) {
            self.warnings.push(problem);
        }
    }

    /// The warnings when there was no error, else all errors, ordered by where they were written.
    pub fn finish(mut self) -> Result<Vec<Problem>, Problems> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        self.errors.sort_by(|a, b| match (&a.span, &b.span) {
            (Some(a), Some(b)) if a.source == b.source => (a.line, a.column).cmp(&(b.line, b.column)),
            _ => std::cmp::Ordering::Equal,
        });
        Err(Problems(self.errors))
    }
}
