//! The report of a run: one self-contained page, and every sample beside it.
//!
//! - [`Input`]: a run's directory, read. [`write`]: the report, as files of `report/` in it.
//!   [`serve`]: the same, over HTTP.
//! - `summary`: samples by cell and system; `printed`: what a study printed for a cell; `verdicts`:
//!   findings, judged by tables made of samples.
//! - `exhibits`: the figures and tables of the studies, and what of ours stands beside each.
//! - `figure` and `svg`, `mininet`, `tables`, `words`, `studies`: the parts of a page; `page`
//!   assembles them for its template.
//! - `export`: the samples as JSON and CSV; `latex`: figures and tables for a paper. [`watch`]:
//!   the run in a terminal.
//!
//! Invariants
//! - The page loads nothing, and shows everything without its script, which only filters, links and
//!   tells values. The template escapes all text of a run; only drawings are exempt, which escape
//!   theirs.
//! - A system has the same colour and shape in every figure, and every scenario of the laboratory
//!   has a section, even if it was not run.

mod exhibits;
mod export;
mod figure;
mod latex;
mod looks;
mod mininet;
mod page;
mod printed;
mod serve;
mod studies;
mod summary;
mod svg;
mod tables;
#[cfg(test)]
mod tests;
mod verdicts;
mod watch;
mod words;
mod write;

pub use exhibits::exhibits;
pub use latex::latex;
pub use serve::{Server, serve};
pub(crate) use svg::escape;
pub use watch::{frame, watch};
pub use write::{figures, render, write};

use crate::calibration::Check;
use crate::findings::{Decides, Rates};
use crate::results::{self, Results};
use crate::scenario::{self, Scenario};
use anyhow::{Context, Result};
use std::path::Path;

/// The input of a report.
#[derive(Debug)]
pub struct Input {
    /// The run.
    pub results: Results,
    /// The laboratory's scenarios, in the version that was run; then the user's own.
    pub scenarios: Vec<Scenario>,
    /// Of the instruments.
    pub calibration: Option<Vec<Check>>,
    /// Of the verdicts.
    pub rates: Option<Vec<Rates>>,
    /// Of the full profile.
    pub power: Option<Vec<Decides>>,
}

/// In a run's directory: what `oxvs lab calibrate` measured, a list of [`Check`].
pub const CALIBRATION: &str = "calibration.json";
/// In a run's directory: what `oxvs lab calibrate --verdicts` found, a list of [`Rates`].
pub const RATES: &str = "verdicts-calibration.json";
/// The same, of what the full profile decides, a list of [`Decides`].
pub const POWER: &str = "verdicts-power.json";

impl Input {
    /// Reads a run's directory.
    ///
    /// # Errors
    /// It is none, or a file of it is damaged: which, and where.
    pub fn read(dir: &Path) -> Result<Input> {
        let results = results::load(dir)?;
        let mut input = Input::new(results, optional(&dir.join(CALIBRATION))?)?;
        input.rates = optional(&dir.join(RATES))?;
        input.power = optional(&dir.join(POWER))?;
        Ok(input)
    }

    /// Of results.
    ///
    /// # Errors
    /// A scenario of the run that cannot be read.
    pub fn new(results: Results, calibration: Option<Vec<Check>>) -> Result<Input> {
        let mut scenarios = Vec::new();
        let mut own = results.run.scenarios.clone();
        for built_in in scenario::built_in()? {
            scenarios.push(match own.remove(&built_in.id) {
                Some(run) if run.text != built_in.source => parse(&run)?,
                _ => built_in,
            });
        }
        for run in own.values() {
            scenarios.push(parse(run)?);
        }
        Ok(Input {
            results,
            scenarios,
            calibration,
            rates: None,
            power: None,
        })
    }
}

/// A file of JSON; none if it does not exist.
fn optional<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn parse(run: &results::Experiment) -> Result<Scenario> {
    Scenario::parse(&run.file, &run.text).with_context(|| format!("the scenario {} of the run", run.file))
}
