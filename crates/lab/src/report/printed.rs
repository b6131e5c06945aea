//! The studies' printed results beside the measured ones.

use super::summary::Summary;
use crate::findings::{Findings, FindingsError};
use crate::scenario::Fed;
use crate::stats::Estimate;
use crate::table::Table;
use std::collections::BTreeMap;

/// The studies' own tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed {
    tables: BTreeMap<String, Table>,
}

/// A value that a study printed for a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The switch it is of, where the study compared switches.
    pub switch: Option<String>,
    /// As printed.
    pub estimate: Estimate,
    /// The factor to the unit of a sample's metric.
    pub scale: f64,
}

impl Value {
    /// For a legend.
    pub(crate) fn label(&self) -> String {
        match &self.switch {
            Some(switch) => format!("study: {}", switch.replace('_', " ")),
            None => "study".into(),
        }
    }
}

/// Names by which the studies call what can be tested here, in figures beside ours.
const SOFTWARE: &[&str] = &["Open vSwitch", "ovs", "linux_bridge"];
/// The dimension of switches in the studies' tables.
const SWITCH: &str = "switch";

impl Printed {
    /// Those of some findings.
    ///
    /// # Errors
    /// As [`Findings::printed`].
    pub(crate) fn new(findings: &Findings) -> Result<Printed, FindingsError> {
        Ok(Printed {
            tables: findings.printed()?,
        })
    }

    /// By name.
    pub(crate) fn tables(&self) -> &BTreeMap<String, Table> {
        &self.tables
    }

    /// The study's printed values of a metric for a cell, for all its switches.
    pub(crate) fn all(&self, summary: &Summary, cell: usize, metric: &str) -> Vec<Value> {
        let fed = summary.fed(cell).iter();
        let means = fed.filter(|fed| fed.metric == metric);
        let mut values: Vec<Value> = Vec::new();
        for value in means.flat_map(|fed| self.values(fed)) {
            if !values.iter().any(|known| known.switch == value.switch) {
                values.push(value);
            }
        }
        values
    }

    /// The same, but of hardware that cannot be tested here.
    pub(crate) fn alike(&self, summary: &Summary, cell: usize, metric: &str) -> Vec<Value> {
        let all = self.all(summary, cell, metric).into_iter();
        let known = |value: &Value| value.switch.as_deref().is_none_or(|switch| SOFTWARE.contains(&switch));
        all.filter(known).collect()
    }

    fn values(&self, fed: &Fed) -> Vec<Value> {
        let cells = self
            .tables
            .get(&fed.table)
            .map_or(&[][..], |table| table.cells.as_slice());
        let same = cells.iter().filter(|cell| {
            let mut dimensions = cell.at.iter().filter(|(name, _)| *name != SWITCH);
            dimensions.all(|(name, value)| fed.keys.get(name) == Some(value))
        });
        same.map(|cell| Value {
            switch: cell.at.get(SWITCH).cloned(),
            estimate: cell.value.estimate,
            scale: 1.0 / fed.scale,
        })
        .collect()
    }
}
