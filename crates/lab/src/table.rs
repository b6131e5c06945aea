//! Results by the values of the dimensions.

use crate::stats::{Estimate, Interval, Observed};
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// Results of one experiment: each cell has a value for every dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Of all cells.
    pub unit: String,
    /// In the order of the source.
    pub cells: Vec<Cell>,
    /// Cells that belong to it and have no result.
    pub absent: Vec<Absent>,
}

/// A cell without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Absent {
    /// The dimensions' values.
    pub at: BTreeMap<String, String>,
    /// Why there is none.
    pub why: String,
    /// It can be measured here, so that a claim about it needs it.
    pub possible: bool,
}

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The dimensions' values.
    pub at: BTreeMap<String, String>,
    /// The result.
    pub value: Observed,
}

/// How a published table is read from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Name of the file, comma-separated, the first line its columns.
    pub file: String,
    /// Of the values.
    pub unit: String,
    /// Columns of the dimensions.
    pub keys: Vec<String>,
    /// Columns with a result.
    pub value: Columns,
    /// Dimensions that lie across the columns, if any.
    pub across: Option<Across>,
    /// Why its numbers are to be taken with care, for a reader.
    pub caution: Option<String>,
    /// Only rows with these values.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
}

/// The columns of a result. `*` in a name stands for the value of [`Across`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub enum Columns {
    /// Mean and standard deviation of a number of repetitions.
    Mean {
        /// Column of the mean.
        mean: String,
        /// Column of the standard deviation.
        deviation: String,
        /// Repetitions.
        n: u64,
    },
    /// The ends of an interval.
    Interval {
        /// Column of the lower end.
        low: String,
        /// Column of the upper end.
        high: String,
        /// Probability that the mean lies in it.
        level: f64,
    },
    /// A number alone.
    Point {
        /// Its column.
        mean: String,
    },
}

/// Dimensions whose values are part of the columns' names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Across {
    /// Their names.
    pub dimensions: Vec<String>,
    /// What `*` stands for: a value of each dimension, `_` between them.
    pub values: Vec<String>,
}

/// Errors of a table's file.
#[derive(Debug, Error)]
pub enum TableError {
    /// It is not a table.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// A column that the layout names is not there.
    #[error("no column '{0}'")]
    Column(String),
    /// A cell that should be a number is not.
    #[error("line {line}, column '{column}': '{text}' is not a number")]
    Number {
        /// Counted from 1.
        line: u64,
        /// Its name.
        column: String,
        /// What is there.
        text: String,
    },
}

impl Table {
    /// Reads a table. A cell without text is left out.
    ///
    /// # Errors
    /// A column that is not there, a cell that is no number.
    pub fn read(text: &str, layout: &Layout) -> Result<Table, TableError> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns: BTreeMap<String, usize> = reader.headers()?.iter().map(str::to_owned).zip(0..).collect();
        let mut table = Table {
            unit: layout.unit.clone(),
            ..Table::default()
        };
        for record in reader.records() {
            let row = Row {
                columns: &columns,
                record: record?,
            };
            if !row.is(&layout.only)? {
                continue;
            }
            let keys = layout
                .keys
                .iter()
                .map(|key| Ok((key.clone(), row.text(key)?.to_owned())));
            let keys: BTreeMap<String, String> = keys.collect::<Result<_, TableError>>()?;
            match &layout.across {
                None => table.cells.extend(row.cell(keys, &layout.value, "")?),
                Some(across) => {
                    for value in &across.values {
                        let parts = value.splitn(across.dimensions.len(), '_').map(str::to_owned);
                        let mut at = keys.clone();
                        at.extend(across.dimensions.iter().cloned().zip(parts));
                        table.cells.extend(row.cell(at, &layout.value, value)?);
                    }
                }
            }
        }
        Ok(table)
    }

    /// The values of a dimension, numbers in their order, others in that of the table.
    pub fn values_of(&self, dimension: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for value in self.cells.iter().filter_map(|cell| cell.at.get(dimension)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        let number = |value: &String| value.parse::<f64>().ok();
        if values.iter().all(|value| number(value).is_some()) {
            values.sort_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(std::cmp::Ordering::Equal));
        }
        values
    }
}

struct Row<'a> {
    columns: &'a BTreeMap<String, usize>,
    record: csv::StringRecord,
}

impl Row<'_> {
    fn text(&self, column: &str) -> Result<&str, TableError> {
        let place = self.columns.get(column);
        let text = place.and_then(|place| self.record.get(*place));
        text.map(str::trim).ok_or_else(|| TableError::Column(column.to_owned()))
    }

    fn is(&self, only: &BTreeMap<String, String>) -> Result<bool, TableError> {
        for (column, value) in only {
            if self.text(column)? != value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `None` if the cell is empty.
    fn number(&self, column: &str, across: &str) -> Result<Option<f64>, TableError> {
        let column = column.replace('*', across);
        let text = self.text(&column)?;
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.map(Some).ok_or_else(|| TableError::Number {
            line: self.record.position().map_or(0, csv::Position::line),
            text: text.to_owned(),
            column,
        })
    }

    fn cell(&self, at: BTreeMap<String, String>, columns: &Columns, across: &str) -> Result<Option<Cell>, TableError> {
        let value = match columns {
            Columns::Mean { mean, deviation, n } => match (self.number(mean, across)?, self.number(deviation, across)?)
            {
                (Some(mean), Some(deviation)) => Some(Estimate::Mean {
                    mean,
                    deviation,
                    n: *n,
                    skew: 0.0,
                }),
                (mean, _) => mean.map(Estimate::Point),
            },
            Columns::Interval { low, high, level } => match (self.number(low, across)?, self.number(high, across)?) {
                (Some(low), Some(high)) => Some(Estimate::Interval {
                    interval: Interval { low, high },
                    level: *level,
                }),
                _ => None,
            },
            Columns::Point { mean } => self.number(mean, across)?.map(Estimate::Point),
        };
        Ok(value.map(|value| Cell {
            at,
            value: value.into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn columns_of_two_dimensions_become_cells() {
        let layout = layout(
            "file = 'x'\nunit = 'ms'\nkeys = ['switch']\nvalue = { low = '*_lo', high = '*_hi', level = 0.99 }\n\
             across = { dimensions = ['rules', 'load'], values = ['one_light', 'full_heavy'] }",
        );
        let table = Table::read(
            "switch,one_light_lo,one_light_hi,full_heavy_lo,full_heavy_hi\nA,1,2,3,4\nB,,,5,6\n",
            &layout,
        )
        .unwrap();
        assert_eq!(table.cells.len(), 3);
        assert_eq!(table.cells[1].at["rules"], "full");
        assert_eq!(table.cells[1].at["load"], "heavy");
        assert_eq!(table.cells[1].value.mean(), 3.5);
        assert_eq!(table.values_of("switch"), ["A", "B"]);
    }

    #[test]
    fn numbers_are_put_in_order_and_rows_chosen() {
        let layout = layout("file = 'x'\nunit = ''\nkeys = ['n']\nvalue = { mean = 'v' }\nonly = { test = 'a' }");
        let table = Table::read("test,n,v\na,100,1\nb,5,1\na,20,2\n", &layout).unwrap();
        assert_eq!(table.values_of("n"), ["20", "100"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let layout = layout("file = 'x'\nunit = ''\nkeys = ['n']\nvalue = { mean = 'v' }");
        let error = Table::read("n,v\n1,2\n2,x\n", &layout).unwrap_err().to_string();
        assert_eq!(error, "line 3, column 'v': 'x' is not a number");
        assert_eq!(
            Table::read("n,w\n1,2\n", &layout).unwrap_err().to_string(),
            "no column 'v'"
        );
        assert!(Table::read("n,v\n1\n", &layout).is_err());
    }
}
