//! The checks of a finding, as `lab/findings.toml` has them.
//!
//! A check makes its statement in every cell that it chooses: `at` chooses values of dimensions,
//! and a statement that compares values of a dimension is made for each combination of the other
//! dimensions. Nothing is averaged over cells. Each statement is a [`Claim`].

mod cells;
mod claim;
mod compare;
mod order;

use cells::Where;
pub use claim::{Claim, Effect, Evidence, Outcome};

use crate::table::Table;
use cells::chosen;
use compare::{BoundsCheck, EffectCheck, RatioCheck};
use order::{AlikeCheck, ExtremeCheck, TrendCheck};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The smallest difference that a study calls one: a quarter of a percent. That something is the
/// highest, or rises, means by more than this, so that equal ones can be told from it.
pub(super) const NOTICEABLE: f64 = 0.0025;

/// A statement about a table that holds, or does not.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The ratio of two results.
    Ratio(RatioCheck),
    /// Results rise or fall along a dimension.
    Trend(TrendCheck),
    /// One of several is the highest or the lowest.
    Extreme(ExtremeCheck),
    /// Several values are the same within a tolerance.
    Alike(AlikeCheck),
    /// Results lie within bounds.
    Bounds(BoundsCheck),
    /// One dimension matters more than another.
    Effect(EffectCheck),
}

/// The claims of a check.
#[derive(Clone, Debug)]
pub struct Claims {
    /// Each of them.
    pub claims: Vec<Claim>,
    /// How many of them have to hold.
    pub need: usize,
    /// What lacks a result, and why. None of it holds.
    pub absent: Vec<String>,
    /// What cannot have a result here, and why. The claims are about the rest.
    pub impossible: Vec<String>,
}

impl Claims {
    /// How many there are, those without a result too.
    pub(crate) fn len(&self) -> usize {
        self.claims.len() + self.absent.len()
    }

    /// The probability of error if at least `of` of the claims are said to be what `each` tests.
    pub(crate) fn conjunction(&self, of: usize, each: impl Fn(&Claim) -> f64) -> f64 {
        let mut all: Vec<f64> = self.claims.iter().map(each).collect();
        all.resize(self.len(), 1.0);
        all.sort_by(f64::total_cmp);
        let Some(last) = of.checked_sub(1).and_then(|last| all.get(last)) else {
            return 1.0;
        };
        (*last * (all.len() - of + 1) as f64).min(1.0)
    }
}

type Tables = BTreeMap<String, Table>;

impl Check {
    /// Its claims about some tables.
    pub fn claims(&self, tables: &Tables) -> Claims {
        let claims = match self {
            Check::Ratio(check) => check.claims(tables),
            Check::Trend(check) => check.claims(tables),
            Check::Extreme(check) => check.claims(tables),
            Check::Alike(check) => check.claims(tables),
            Check::Bounds(check) => check.claims(tables),
            Check::Effect(check) => check.claims(tables),
        };
        let (absent, impossible) = self.absent(tables);
        let all = claims.len() + absent.len();
        let most = matches!(self, Check::Ratio(check) if check.most);
        Claims {
            need: if most { all / 2 + 1 } else { all },
            claims,
            absent,
            impossible,
        }
    }

    /// The cells that it needs and that have no result: those that could have one, and the others.
    fn absent(&self, tables: &Tables) -> (Vec<String>, Vec<String>) {
        let (mut absent, mut impossible) = (Vec::new(), Vec::new());
        for name in self.tables() {
            let without = tables.get(name).map_or(&[][..], |table| &table.absent);
            for cell in without.iter().filter(|cell| self.chooses(&cell.at)) {
                let list = if cell.possible { &mut absent } else { &mut impossible };
                let text = format!("{}{}", cells::prefix(&cell.at), cell.why);
                if !list.contains(&text) {
                    list.push(text);
                }
            }
        }
        (absent, impossible)
    }

    fn chooses(&self, at: &BTreeMap<String, String>) -> bool {
        match self {
            Check::Ratio(check) => chosen(at, &check.at) && (chosen(at, &check.over) || chosen(at, &check.under)),
            Check::Trend(check) => {
                let own = at.get(&check.along);
                chosen(at, &check.at) && own.is_some_and(|own| check.over.is_empty() || check.over.contains(own))
            }
            Check::Extreme(check) => chosen(at, &check.at),
            Check::Alike(check) => chosen(at, &check.at),
            Check::Bounds(check) => chosen(at, &check.at),
            Check::Effect(check) => [&check.of, &check.exceeds].iter().any(|change| change.chooses(at)),
        }
    }

    /// Names of the tables that it looks at.
    pub fn tables(&self) -> Vec<&str> {
        match self {
            Check::Ratio(check) => vec![&check.table],
            Check::Trend(check) => vec![&check.table],
            Check::Extreme(check) => vec![&check.table],
            Check::Alike(check) => vec![&check.table],
            Check::Bounds(check) => vec![&check.table],
            Check::Effect(check) => {
                let mut both = vec![check.of.table.as_str(), &check.exceeds.table];
                both.dedup();
                both
            }
        }
    }

    /// Whether it chooses values of a dimension, or compares them; doing the same for each of them
    /// is neither.
    pub fn names(&self, dimension: &str) -> bool {
        let at = |wheres: &[&Where]| wheres.iter().any(|at| at.contains_key(dimension));
        match self {
            Check::Ratio(check) => at(&[&check.over, &check.under, &check.at]),
            Check::Trend(check) => check.along == dimension || at(&[&check.at]),
            Check::Extreme(check) => check.among == dimension || at(&[&check.at]),
            Check::Alike(check) => check.among == dimension || at(&[&check.at]),
            Check::Bounds(check) => at(&[&check.at]),
            Check::Effect(check) => [&check.of, &check.exceeds]
                .iter()
                .any(|change| change.dimension == dimension),
        }
    }
}
