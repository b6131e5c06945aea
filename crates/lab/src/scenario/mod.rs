//! An experiment from a file, and its cells.
//!
//! A scenario is a TOML file that a reader of the study understands: the testbed
//! ([`crate::topology`]), the traffic ([`crate::traffic`]), the observations ([`Observe`]) and the
//! dimensions. A name with a `$` stands for a dimension's value, so that one description makes many
//! cells. Everything is checked when the file is read, for every cell: a scenario that was read can
//! be run. `docs/lab-scenarios.md` has every key.

mod application;
mod builtin;
mod check;
mod de;
mod during;
mod error;
mod estimate;
mod expand;
mod expression;
mod header;
mod node;
mod openflow;
mod read;
mod setup;

pub use application::Application;
pub use builtin::{built_in, find};
pub use during::During;
pub use error::{Problem, ScenarioError};
pub use estimate::estimate;
pub(crate) use estimate::{bed as bed_seconds, repetition as repetition_seconds};
pub use header::{Better, Combine, Dimension, Fed, Figure, Metric, Pace, Profile};
pub use openflow::{Fill, Matching, Mode, OpenFlow, Rewrite};
pub(crate) use setup::SETTLING;
pub use setup::{Cause, Cell, Observation, Observe, Setup, Watcher};

use expand::Names;
use node::{Node, Value};
use std::collections::BTreeMap;

/// An experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Study and name, as `S0.rtt.l3`.
    pub id: String,
    /// The study, as `S0`.
    pub study: String,
    /// One line.
    pub title: String,
    /// Its purpose, the study's method, and the differences.
    pub about: String,
    /// The dimensions, in the order of the file.
    pub varied: Vec<Dimension>,
    /// The metrics to show, the most important first.
    pub metrics: Vec<Metric>,
    /// How it is drawn.
    pub figures: Vec<Figure>,
    /// The file as it was read.
    pub source: String,
    /// The file's name.
    pub file: String,
    quick: (Pace, Vec<Cell>),
    full: (Pace, Vec<Cell>),
    derived: Option<Node>,
    feeds: Option<Node>,
    all: BTreeMap<String, Vec<String>>,
}

impl Scenario {
    /// Reads a scenario. `file` is its name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, with lines.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        read::scenario(file, text).map_err(|faults| ScenarioError::new(file, text, &faults))
    }

    /// Repetitions and durations.
    pub fn pace(&self, profile: Profile) -> &Pace {
        match profile {
            Profile::Quick => &self.quick.0,
            Profile::Full => &self.full.0,
        }
    }

    /// The cells of a profile, in the order of the dimensions' values, the last dimension fastest.
    pub fn cells(&self, profile: Profile) -> &[Cell] {
        match profile {
            Profile::Quick => &self.quick.1,
            Profile::Full => &self.full.1,
        }
    }

    /// Whether any cell of a profile runs on a system of this name.
    pub fn is_for(&self, profile: Profile, system: &str) -> bool {
        self.cells(profile).iter().any(|cell| cell.setup.is_for(system))
    }

    /// A metric that is shown.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// The cells of the findings' tables that a cell's results on a system feed. To judge a system
    /// in place of another, as oxvs for Open vSwitch, give the other's name.
    ///
    /// # Errors
    /// A name without a value, for a cell that the scenario does not have.
    pub fn feeds(&self, at: &BTreeMap<String, String>, system: &str) -> Result<Vec<Fed>, ScenarioError> {
        read::feeds(self, at, system).map_err(|fault| ScenarioError::new(&self.file, &self.source, &[fault]))
    }

    /// Names with the values of a cell.
    fn names(&self, at: &BTreeMap<String, String>) -> Names<'_> {
        let mut names = Names::new(&self.all).with("profile", read::name_of(Profile::Full));
        for (name, value) in at {
            let value = match value.parse::<i64>() {
                Ok(number) => Value::Integer(number),
                Err(_) => match value.parse::<f64>().ok().filter(|number| number.is_finite()) {
                    Some(number) => Value::Float(number),
                    None => Value::Text(value.clone()),
                },
            };
            names = names.with(name, Node { span: 0..0, value });
        }
        names
    }
}
