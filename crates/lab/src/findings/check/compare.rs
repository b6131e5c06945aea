//! Checks of one result, of the ratio of two, and of two ratios.

use super::Tables;
use super::cells::{At, Where, chosen, groups, prefix, show, without};
use super::claim::{Claim, Quantity};
use crate::stats::{Contrast, Observed, Ratio};
use crate::table::Cell;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// See [`super::Check::Ratio`]. Every bound given must hold, in every pair of cells whose other
/// dimensions have the same values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioCheck {
    pub(super) table: String,
    pub(super) over: Where,
    pub(super) under: Where,
    #[serde(default)]
    pub(super) at: Where,
    /// Dimensions whose values are added up: the sum over the sum.
    #[serde(default)]
    total: Vec<String>,
    /// It is enough that more than half of the pairs bear it out.
    #[serde(default)]
    pub(super) most: bool,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// From 1 less this to 1 and this.
    similar: Option<f64>,
}

/// See [`super::Check::Bounds`], in the table's unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundsCheck {
    pub(super) table: String,
    #[serde(default)]
    pub(super) at: Where,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// See [`super::Check::Effect`]: the factor from one value of a dimension to another is further
/// from 1. On tables with both dimensions it is the geometric mean over the values of the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectCheck {
    pub(super) of: Change,
    pub(super) exceeds: Change,
}

/// From one value of a dimension to another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) table: String,
    pub(super) dimension: String,
    from: String,
    to: String,
}

impl RatioCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let named = self.over.keys().chain(self.under.keys()).chain(&self.total);
        let named: Vec<&str> = named.map(String::as_str).collect();
        let compared: BTreeSet<&str> = self.over.keys().chain(self.under.keys()).map(String::as_str).collect();
        let side = |cells: &[&Cell], side: &Where| -> BTreeMap<At, Vec<(At, Observed)>> {
            // By the values that tell several cells of a side apart, then by those that are added.
            let mut parts: BTreeMap<At, Vec<(At, Observed)>> = BTreeMap::new();
            for cell in cells.iter().filter(|cell| chosen(&cell.at, side)) {
                let own = cell.at.iter().filter(|(name, _)| compared.contains(name.as_str()));
                let own = own.map(|(name, value)| (name.clone(), value.clone())).collect();
                let added = cell.at.iter().filter(|(name, _)| self.total.contains(name));
                let added = added.map(|(name, value)| (name.clone(), value.clone())).collect();
                parts.entry(own).or_default().push((added, cell.value.clone()));
            }
            for values in parts.values_mut() {
                values.sort_by(|a, b| a.0.cmp(&b.0));
            }
            parts
        };
        let mut claims = Vec::new();
        for (group, cells) in groups(table, &self.at, &named) {
            let (overs, unders) = (side(&cells, &self.over), side(&cells, &self.under));
            for (over, tops) in &overs {
                for (under, bottoms) in &unders {
                    // Sums are of the same values.
                    if !tops.iter().map(|(at, _)| at).eq(bottoms.iter().map(|(at, _)| at)) {
                        continue;
                    }
                    let estimates = |all: &[(At, Observed)]| all.iter().map(|(_, value)| value.clone()).collect();
                    let Some(ratio) = Ratio::of_sums(estimates(tops), estimates(bottoms)) else {
                        continue;
                    };
                    let what = format!("{}{} over {}: ", prefix(&group), shown(over, under), shown(under, over));
                    claims.push(self.claim(what, ratio));
                }
            }
        }
        claims
    }

    fn claim(&self, name: String, ratio: Ratio) -> Claim {
        Claim {
            name,
            quantity: Quantity::Ratio(ratio),
            at_least: self.at_least.or(self.similar.map(|tolerance| 1.0 - tolerance)),
            at_most: self.at_most.or(self.similar.map(|tolerance| 1.0 + tolerance)),
        }
    }
}

/// The values of one side that the other side has not.
fn shown(at: &At, other: &At) -> String {
    let values = at.iter().filter(|(name, value)| other.get(*name) != Some(value));
    values
        .map(|(name, value)| show(name, value))
        .collect::<Vec<_>>()
        .join(", ")
}

impl BoundsCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let chosen = table.cells.iter().filter(|cell| chosen(&cell.at, &self.at));
        let claim = |cell: &Cell| Claim {
            name: prefix(&cell.at),
            quantity: Quantity::Mean(cell.value.estimate, table.unit.clone()),
            at_least: self.at_least,
            at_most: self.at_most,
        };
        chosen.map(claim).collect()
    }
}

impl EffectCheck {
    pub(super) fn claims(&self, tables: &Tables) -> Vec<Claim> {
        let (Some(one), Some(other)) = (tables.get(&self.of.table), tables.get(&self.exceeds.table)) else {
            return Vec::new();
        };
        let but: Vec<&str> = if self.of.table == self.exceeds.table {
            vec![&self.of.dimension, &self.exceeds.dimension]
        } else {
            vec![&self.of.dimension]
        };
        let but_other = if but.len() == 2 {
            but.clone()
        } else {
            vec![self.exceeds.dimension.as_str()]
        };
        let same = groups(other, &Where::new(), &but_other);
        let mut claims = Vec::new();
        for (group, cells) in groups(one, &Where::new(), &but) {
            let Some((_, others)) = same.iter().find(|(key, _)| *key == group) else {
                continue;
            };
            let (Some(of), Some(exceeds)) = (self.of.weights(&cells), self.exceeds.weights(others)) else {
                continue;
            };
            let is_one_table = self.of.table == self.exceeds.table;
            let contrast = |sign: f64| Contrast::logarithms(combined(&of, &exceeds, sign, is_one_table));
            let (Some(difference), Some(sum)) = (contrast(-1.0), contrast(1.0)) else {
                continue;
            };
            claims.push(Claim {
                name: format!(
                    "{}{} changes it more than {}: ",
                    prefix(&group),
                    self.of.dimension,
                    self.exceeds.dimension
                ),
                quantity: Quantity::Changes { difference, sum },
                at_least: Some(0.0),
                at_most: None,
            });
        }
        claims
    }
}

/// The weight of each cell in a sum.
type Weights = Vec<(At, f64, Observed)>;

/// One sum and `sign` times another; in one table a cell may be in both.
fn combined(of: &Weights, exceeds: &Weights, sign: f64, is_one_table: bool) -> Vec<(f64, Observed)> {
    let mut all = of.clone();
    for (at, weight, value) in exceeds {
        match all.iter_mut().find(|(known, _, _)| is_one_table && known == at) {
            Some((_, known, _)) => *known += sign * weight,
            None => all.push((at.clone(), sign * weight, value.clone())),
        }
    }
    all.into_iter().map(|(_, weight, value)| (weight, value)).collect()
}

impl Change {
    pub(super) fn chooses(&self, at: &At) -> bool {
        at.get(&self.dimension)
            .is_some_and(|value| [&self.from, &self.to].contains(&value))
    }

    /// The weights of cells in the mean logarithm of its factor; none if a cell has no partner.
    fn weights(&self, cells: &[&Cell]) -> Option<Weights> {
        let of = |wanted: &str| {
            let own = cells
                .iter()
                .filter(|cell| cell.at.get(&self.dimension).is_some_and(|value| value == wanted));
            own.map(|cell| (without(&cell.at, &[&self.dimension]), *cell))
                .collect::<BTreeMap<_, _>>()
        };
        let (from, to) = (of(&self.from), of(&self.to));
        if from.is_empty() || !from.keys().eq(to.keys()) {
            return None;
        }
        let weight = 1.0 / from.len() as f64;
        let signed = |cells: BTreeMap<At, &Cell>, weight: f64| {
            let one = move |cell: &Cell| (cell.at.clone(), weight, cell.value.clone());
            cells.into_values().map(one).collect::<Vec<_>>()
        };
        Some([signed(from, -weight), signed(to, weight)].concat())
    }
}
