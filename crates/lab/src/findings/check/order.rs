//! Checks of several results along a dimension: their order, and whether they are alike.

use super::cells::{Where, groups, prefix, show};
use super::claim::{Claim, Quantity};
use super::{NOTICEABLE, Tables};
use crate::stats::Ratio;
use crate::table::Cell;
use serde::Deserialize;

/// See [`super::Check::Trend`]. No step goes the other way by more than a noticeable difference,
/// and the last is noticeably beyond the first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrendCheck {
    pub(super) table: String,
    pub(super) along: String,
    direction: Direction,
    #[serde(default)]
    pub(super) at: Where,
    /// The values that matter, in their order; all without it.
    #[serde(default)]
    pub(super) over: Vec<String>,
}

/// Upwards or downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Direction {
    /// Later ones are larger.
    Rising,
    /// Later ones are smaller.
    Falling,
}

/// See [`super::Check::Extreme`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtremeCheck {
    pub(super) table: String,
    pub(super) among: String,
    /// The one, or those that are beyond all others.
    is: Vec<String>,
    end: End,
    #[serde(default)]
    pub(super) at: Where,
}

/// Which of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// The largest.
    Highest,
    /// The smallest.
    Lowest,
}

/// See [`super::Check::Alike`]: no two differ by more than the tolerance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlikeCheck {
    pub(super) table: String,
    pub(super) among: String,
    tolerance: f64,
    #[serde(default)]
    pub(super) at: Where,
}

impl TrendCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let values = if self.over.is_empty() {
            table.values_of(&self.along)
        } else {
            self.over.clone()
        };
        let mut claims = Vec::new();
        for (group, cells) in groups(table, &self.at, &[&self.along]) {
            let points: Vec<(&String, &Cell)> = values
                .iter()
                .filter_map(|value| Some((value, with(&cells, &self.along, value)?)))
                .collect();
            let mut claim = |from: (&String, &Cell), to: (&String, &Cell), least: f64| {
                let (over, under) = match self.direction {
                    Direction::Rising => (to, from),
                    Direction::Falling => (from, to),
                };
                claims.extend(
                    Ratio::new(over.1.value.clone(), under.1.value.clone()).map(|ratio| Claim {
                        name: format!("{}{} over {}: ", prefix(&group), show(&self.along, over.0), under.0),
                        quantity: Quantity::Ratio(ratio),
                        at_least: Some(least),
                        at_most: None,
                    }),
                );
            };
            let (Some(first), Some(last)) = (points.first(), points.last()) else {
                continue;
            };
            if points.len() > 2 {
                for step in points.windows(2) {
                    claim(step[0], step[1], 1.0 - NOTICEABLE);
                }
            }
            if points.len() > 1 {
                claim(*first, *last, 1.0 + NOTICEABLE);
            }
        }
        claims
    }
}

impl ExtremeCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let mut claims = Vec::new();
        for (group, cells) in groups(table, &self.at, &[&self.among]) {
            let is_best = |cell: &&&Cell| cell.at.get(&self.among).is_some_and(|value| self.is.contains(value));
            for best in cells.iter().filter(is_best) {
                for other in cells.iter().filter(|cell| !is_best(cell)) {
                    let (over, under) = match self.end {
                        End::Highest => (best, other),
                        End::Lowest => (other, best),
                    };
                    let bounds = (Some(1.0 + NOTICEABLE), None);
                    claims.extend(pair(&prefix(&group), &self.among, over, under, bounds));
                }
            }
        }
        claims
    }
}

impl AlikeCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let mut claims = Vec::new();
        for (group, cells) in groups(table, &self.at, &[&self.among]) {
            for (n, one) in cells.iter().enumerate() {
                for other in &cells[n + 1..] {
                    // The larger over the smaller, for the reader.
                    let (over, under) = if one.value.mean() >= other.value.mean() {
                        (one, other)
                    } else {
                        (other, one)
                    };
                    let most = 1.0 + self.tolerance;
                    let bounds = (Some(1.0 / most), Some(most));
                    claims.extend(pair(&prefix(&group), &self.among, over, under, bounds));
                }
            }
        }
        claims
    }
}

/// The claim that the ratio of two cells lies within bounds.
fn pair(
    prefix: &str,
    dimension: &str,
    over: &Cell,
    under: &Cell,
    (at_least, at_most): (Option<f64>, Option<f64>),
) -> Option<Claim> {
    let value = |cell: &Cell| {
        cell.at
            .get(dimension)
            .map_or_else(String::new, |value| show(dimension, value))
    };
    Some(Claim {
        name: format!("{prefix}{} over {}: ", value(over), value(under)),
        quantity: Quantity::Ratio(Ratio::new(over.value.clone(), under.value.clone())?),
        at_least,
        at_most,
    })
}

/// The cell with this value of a dimension.
fn with<'a>(cells: &[&'a Cell], dimension: &str, value: &str) -> Option<&'a Cell> {
    let mut own = cells
        .iter()
        .filter(|cell| cell.at.get(dimension).is_some_and(|own| own == value));
    own.next().copied()
}
