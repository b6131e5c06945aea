//! The findings and the published tables that are part of the program.

use super::Finding;
use crate::table::{Layout, Table, TableError};
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// A file of findings: `lab/findings.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// How the published tables are read, by the names that checks use.
    #[serde(default)]
    pub tables: BTreeMap<String, Layout>,
    /// The findings, by study.
    pub finding: Vec<Finding>,
}

/// An error in a file of findings or in one of its tables.
#[derive(Debug, Error)]
pub enum FindingsError {
    /// The file says something else than findings; the message has line and column.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A published table.
    #[error("table '{name}', file '{file}': {error}")]
    Table {
        /// Its name.
        name: String,
        /// Its file.
        file: String,
        /// The error.
        error: TableError,
    },
    /// There is no such file.
    #[error("table '{name}': there is no published file '{file}'")]
    File {
        /// The table's name.
        name: String,
        /// The file it wants.
        file: String,
    },
    /// A finding that can never be judged.
    #[error("finding {0}: it has neither checks nor a reason for having none")]
    Empty(String),
}

macro_rules! publish {
    ($file:literal) => {
        ($file, include_str!(concat!("../../../../lab/published/", $file)))
    };
}
/// The files under `lab/published`.
const PUBLISHED: &[(&str, &str)] = &[
    publish!("001_table6_scenario_transfer_mb.csv"),
    publish!("001_transfer_mb_30s.csv"),
    publish!("002_netperf_concurrent_streams.csv"),
    publish!("003_table3_match_delay_ci99.csv"),
    publish!("003_table4_max_rules.csv"),
    publish!("003_table5_one_vs_many_rules_ci99.csv"),
    publish!("003_table6_rewrite_delay_ci99.csv"),
    publish!("003_table7_flowstats_delay_ci99.csv"),
    publish!("003_table8_portstats_delay_ci99.csv"),
    publish!("004_schedulers.csv"),
];

impl Findings {
    /// Reads a file of findings.
    ///
    /// # Errors
    /// The file is not valid.
    pub fn read(text: &str) -> Result<Findings, FindingsError> {
        let findings: Findings = toml::from_str(text)?;
        match findings
            .finding
            .iter()
            .find(|finding| finding.checks.is_empty() && finding.why.is_none())
        {
            Some(finding) => Err(FindingsError::Empty(finding.id.clone())),
            None => Ok(findings),
        }
    }

    /// The studies' own tables.
    ///
    /// # Errors
    /// One that is not there, or that does not have its layout.
    pub fn printed(&self) -> Result<BTreeMap<String, Table>, FindingsError> {
        let read = |(name, layout): (&String, &Layout)| {
            let file = PUBLISHED.iter().find(|(file, _)| *file == layout.file);
            let (_, text) = file.ok_or_else(|| FindingsError::File {
                name: name.clone(),
                file: layout.file.clone(),
            })?;
            let table = Table::read(text, layout).map_err(|error| FindingsError::Table {
                name: name.clone(),
                file: layout.file.clone(),
                error,
            })?;
            Ok((name.clone(), table))
        };
        self.tables.iter().map(read).collect()
    }
}

/// The findings of the five studies.
///
/// # Errors
/// None, unless the file in the program is wrong.
pub fn published() -> Result<Findings, FindingsError> {
    Findings::read(include_str!("../../../../lab/findings.toml"))
}
