//! Errors of a scenario's file.

use super::node::Fault;
use std::fmt::{Display, Formatter};

/// The errors of a scenario's file, each with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// Name of the file.
    pub file: String,
    /// At least one, in the order of the file.
    pub problems: Vec<Problem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The rule that is broken.
    pub message: String,
}

impl ScenarioError {
    pub(super) fn new(file: &str, text: &str, faults: &[Fault]) -> ScenarioError {
        let mut problems: Vec<Problem> = faults.iter().map(|fault| Problem::new(text, fault)).collect();
        problems.sort();
        problems.dedup();
        ScenarioError {
            file: file.to_owned(),
            problems,
        }
    }
}

impl Problem {
    fn new(text: &str, fault: &Fault) -> Problem {
        let end = (0..=fault.span.start.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        let before = &text[..end.unwrap_or(0)];
        let line_starts = before.rfind('\n').map_or(0, |at| at + 1);
        Problem {
            line: before.matches('\n').count() + 1,
            column: before[line_starts..].chars().count() + 1,
            message: fault.message.clone(),
        }
    }
}

impl Display for ScenarioError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            let end = if n == 0 { "" } else { "\n" };
            write!(
                f,
                "{end}{}:{}:{}: {}",
                self.file, problem.line, problem.column, problem.message
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}
