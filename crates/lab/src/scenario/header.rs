//! A scenario's header.

use serde::{Deserialize, Serialize};

/// Which values are visited, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// A look: few values of each dimension, short and seldom repeated.
    Quick,
    /// The study's own values, durations and repetitions.
    Full,
}

impl Profile {
    /// Its name, as a scenario says it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Full => "full",
        }
    }

    /// Whether testbed and switch are made again for each repetition; else all repetitions use the
    /// same.
    pub fn rebuilds(self) -> bool {
        self == Profile::Full
    }
}

/// How a profile is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// How often each cell is measured on each system, 1 to 10 000.
    pub repetitions: u32,
    /// How long is measured, more than 0 and at most 86 400 s.
    pub seconds: f64,
    /// How long traffic flows before that, 0 to 3600 s.
    #[serde(default)]
    pub warmup: f64,
    /// The combinations of values.
    #[serde(default)]
    pub combine: Combine,
}

/// Which combinations of the values of several dimensions are visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// Every one.
    #[default]
    All,
    /// The first value of each dimension; and each other value of each dimension while the others
    /// keep their first.
    OneByOne,
}

/// Something that is varied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    /// Its name in this file, in results, in tables.
    pub name: String,
    /// Its name for a reader.
    pub title: String,
    /// Of its values; empty: none.
    pub unit: String,
    /// Its values, in their order, at least one.
    pub quick: Vec<String>,
    /// Likewise.
    pub full: Vec<String>,
}

impl Dimension {
    /// Its values in a profile.
    pub fn values(&self, profile: Profile) -> &[String] {
        match profile {
            Profile::Quick => &self.quick,
            Profile::Full => &self.full,
        }
    }
}

/// A result that is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The flow or observation and its metric, as `probe.rtt`; the key in
    /// [`crate::results::Sample::metrics`].
    pub name: String,
    /// For a reader.
    pub title: String,
    /// After [`Metric::scale`].
    pub unit: String,
    /// The factor to that unit.
    #[serde(default = "one")]
    pub scale: f64,
    /// Which end is good; none: neither.
    pub better: Option<Better>,
}

fn one() -> f64 {
    1.0
}

/// Which end of a scale is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Little.
    Lower,
    /// Much.
    Higher,
}

/// A figure of the report. A series is a switch unless named; `panels` are dimensions with one
/// drawing for each value. Dimensions that are neither axis, series nor panel are panels too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case", deny_unknown_fields)]
pub enum Figure {
    /// A line for each series.
    Lines {
        /// The dimension along the axis.
        x: String,
        /// The metric's name.
        y: String,
        /// A metric in the same unit that is drawn as a dashed line: a bound that theory gives for
        /// `y`.
        bound: Option<String>,
        /// A dimension.
        series: Option<String>,
        /// Dimensions.
        #[serde(default)]
        panels: Vec<String>,
        /// Powers of two or ten on the axis at even distances.
        #[serde(default)]
        log: bool,
    },
    /// A group of bars for each value of a dimension, a bar for each series, with its confidence
    /// interval.
    Bars {
        /// The dimension of the groups; none: one group.
        groups: Option<String>,
        /// The metric's name.
        y: String,
        /// A dimension.
        series: Option<String>,
        /// Dimensions.
        #[serde(default)]
        panels: Vec<String>,
    },
    /// The received rate of several flows: a group for each combination of offered loads, with bars
    /// for each switch and flow.
    Shares {
        /// The dimension of the groups.
        groups: String,
        /// The metrics' names, one for each flow.
        flows: Vec<String>,
        /// Dimensions.
        #[serde(default)]
        panels: Vec<String>,
    },
    /// A line of each stream's rate and bars of lost streams, over the number of streams.
    Streams {
        /// The dimension of the number of streams.
        x: String,
        /// The metric of a stream's rate.
        y: String,
        /// The metric of how many were lost.
        lost: String,
        /// Dimensions.
        #[serde(default)]
        panels: Vec<String>,
    },
    /// The cumulative distribution.
    Cdf {
        /// The distribution's name, as `probe.rtt`; a metric of that name gives its title and unit.
        of: String,
        /// A dimension.
        series: Option<String>,
        /// Dimensions.
        #[serde(default)]
        panels: Vec<String>,
    },
    /// Reachability.
    Matrix {
        /// The observation's name.
        of: String,
    },
}

/// The cell of a table in `lab/findings.toml` that a result feeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Fed {
    /// The table.
    pub table: String,
    /// The metric's name.
    pub metric: String,
    /// What the metric, as it is in [`crate::results::Sample::metrics`], is multiplied with to get
    /// the table's unit.
    pub scale: f64,
    /// The table's dimensions and the values there.
    pub keys: std::collections::BTreeMap<String, String>,
}

/// The part of a file that needs no substitution.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) id: String,
    pub(super) study: String,
    pub(super) title: String,
    pub(super) about: String,
    pub(super) quick: Pace,
    pub(super) full: Pace,
    #[serde(default, rename = "metric")]
    pub(super) metrics: Vec<Metric>,
    #[serde(default, rename = "figure")]
    pub(super) figures: Vec<Figure>,
}
