//! What was wrong, where, and what to do: one line per problem.

use std::fmt;

use crate::node::{Source, Span};

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

/// The problems that keep a configuration from being used; there is at least one. Displays one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Problems {
    /// The problems, by source and place.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.errors.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// Whether there are none; never true for a value this crate returns.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// What else was noticed; a variable that is not set may explain a value that is missing.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self {
            errors: vec![problem],
            warnings: Vec::new(),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.errors.iter().enumerate() {
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

    /// The warnings when there was no error, else all errors, ordered by source and place.
    pub fn finish(mut self) -> Result<Vec<Problem>, Problems> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        let mut sources: Vec<Source> = Vec::new();
        for span in self.errors.iter().filter_map(|problem| problem.span.as_ref()) {
            if !sources.contains(&span.source) {
                sources.push(span.source.clone());
            }
        }
        self.errors.sort_by_key(|problem| match &problem.span {
            // Sources in the order met; what has no place comes last.
            Some(span) => (
                sources.iter().position(|source| *source == span.source),
                span.line,
                span.column,
            ),
            None => (Some(sources.len()), 0, 0),
        });
        Err(Problems {
            errors: self.errors,
            warnings: self.warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: errors of two sources and one without a place, found in a mixed order, and a warning.
    /// Guarantees: they are ordered by source and place, said once, and the warning is kept.
    #[test]
    fn errors_are_ordered_by_place() {
        let span = |source: &str, line| Span::new(Source::new(source), line, 1);
        let mut report = Report::default();
        report.push_error(Problem::general("nowhere"));
        for (source, line) in [("b", 9), ("a", 5), ("b", 2), ("a", 1), ("a", 5)] {
            report.error(&span(source, line), "wrong");
        }
        report.warn(&span("a", 3), "odd");
        let problems = report.finish().unwrap_err();
        assert_eq!(
            problems.to_string(),
            "b:2:1: wrong\nb:9:1: wrong\na:1:1: wrong\na:5:1: wrong\nnowhere"
        );
        assert_eq!(problems.warnings().len(), 1);
        assert_eq!(problems.len(), 5);
    }
}
