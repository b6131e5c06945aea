//! A study's conclusions as checks on a table, and the verdicts.
//!
//! A finding is a sentence of the study and checks of it. The same checks run on the study's
//! printed table and on the measured results; claims that the study's own table contradicts are
//! marked.
//!
//! How a verdict comes about
//! - A check makes claims: that a number lies within bounds. Each has two probabilities of error,
//!   if it is said to hold and if it is said to be refuted ([`Claim`]). Both are at most 5 % if the
//!   claim's 90 % interval lies within the bounds, or outside of them. An interval that contains a
//!   bound decides nothing, so a lack of repetitions never confirms anything.
//! - A finding holds if all of its claims do: the largest probability counts (an
//!   intersection-union test, which needs no correction). It is refuted if one is: the smallest
//!   counts as often as there are claims (Bonferroni). For a finding about most cells both are
//!   those of partial conjunctions (Benjamini and Heller 2008).
//! - A page has many verdicts. [`level`] is the level for each of them at which, on average, at
//!   most one in twenty of those that decide is wrong (Benjamini and Hochberg 1995). A page is read
//!   verdict by verdict, and nothing follows from all of them together, so that the share of wrong
//!   ones matters; Holm's method would ask that not a single one is wrong, and leave most of the
//!   true ones undecided.
//! - Who repeats until it is decided has looked several times: the k-th look counts 2^k-fold, so
//!   that all looks together err as seldom as one ([`Weighed::weighted`]).

mod check;
mod file;
mod measured;
mod power;
mod simulate;

pub use check::{Check, Claim, Claims, Effect, Evidence, Outcome};
pub use file::{Findings, FindingsError, published};
pub(crate) use measured::{judge, tables};
pub use power::{Decides, Deviation, Noise, decides, decides_table};
pub use simulate::{Rates, simulate, table as rates_table};

use crate::table::Table;
use serde::Deserialize;
use std::collections::BTreeMap;

/// How many of a page's verdicts may be wrong, of those that decide.
pub const LEVEL: f64 = 0.05;

/// A sentence of a study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Study and number, as `S1.3`.
    pub id: String,
    /// The study's claim in our words.
    pub says: String,
    /// The study's own sentence; none if it is our claim.
    #[serde(default)]
    pub quote: String,
    /// The figure, table or section of the study that has it.
    #[serde(default)]
    pub place: String,
    /// The study's own table contradicts it.
    #[serde(default)]
    pub contradicted: bool,
    /// All must hold. None: no table can tell, and `why` says so.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Checks of the study's own table alone: of systems that are not here.
    #[serde(default)]
    pub printed: Vec<Check>,
    /// Why there is no check, or why only what is measured here is checked.
    pub why: Option<String>,
}

/// Whether results bear out a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every claim holds.
    Holds,
    /// One is refuted.
    Refuted,
    /// None is refuted, but the numbers do not decide all.
    Undecided,
    /// The results needed are not there.
    NotTestable,
}

/// A verdict with its evidence.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers, those that speak against it first.
    pub evidence: Vec<Evidence>,
}

/// The claims of a finding, before the level is known at which they are judged.
#[derive(Clone, Debug)]
pub struct Weighed {
    checks: Vec<Claims>,
    /// Checks without any result, in words.
    missing: Vec<String>,
    /// How often the results were looked at before, to decide whether to go on.
    looks: u32,
}

impl Finding {
    /// Names of the tables that it is judged by.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().flat_map(Check::tables)
    }

    /// Judges it alone, by results, by the names of their tables.
    pub fn judge(&self, tables: &BTreeMap<String, Table>) -> Judgement {
        self.weigh(|_| tables, 0).judge(LEVEL)
    }

    /// Judges it by the study's own tables.
    pub fn judge_printed(&self, tables: &BTreeMap<String, Table>) -> Judgement {
        weigh(self.checks.iter().chain(&self.printed), |_| tables, 0).judge(LEVEL)
    }

    /// Its claims about results, with tables chosen for each check.
    pub(crate) fn weigh<'a>(&self, tables: impl Fn(&Check) -> &'a BTreeMap<String, Table>, looks: u32) -> Weighed {
        weigh(&self.checks, tables, looks)
    }
}

fn weigh<'a, 'b>(
    checks: impl IntoIterator<Item = &'b Check>,
    tables: impl Fn(&Check) -> &'a BTreeMap<String, Table>,
    looks: u32,
) -> Weighed {
    let mut weighed = Weighed {
        checks: Vec::new(),
        missing: Vec::new(),
        looks,
    };
    for check in checks {
        let claims = check.claims(tables(check));
        if claims.claims.is_empty() && claims.absent.is_empty() {
            let names = check.tables().join("', '");
            weighed.missing.push(format!("no results in '{names}' that this needs"));
        }
        weighed.checks.push(claims);
    }
    weighed
}

impl Weighed {
    /// Whether there is anything to judge.
    pub(crate) fn is_testable(&self) -> bool {
        self.checks.iter().any(|check| !check.claims.is_empty())
    }

    /// Whether more repetitions of the same cells can decide it.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_testable() && self.missing.is_empty() && self.checks.iter().all(|check| check.absent.is_empty())
    }

    /// The probability of error of the verdict that the numbers are closest to, weighted by the
    /// looks at them.
    pub(crate) fn weighted(&self) -> f64 {
        (self.holds().min(self.refuted()) / self.share()).min(1.0)
    }

    /// The share of the level that the last look has.
    fn share(&self) -> f64 {
        0.5f64.powi(i32::try_from(self.looks).unwrap_or(i32::MAX))
    }

    /// Every claim, those without a result too.
    fn total(&self) -> usize {
        self.checks.iter().map(Claims::len).sum()
    }

    fn holds(&self) -> f64 {
        if self.cannot_hold() || self.checks.is_empty() {
            return 1.0;
        }
        let each = self
            .checks
            .iter()
            .map(|check| check.conjunction(check.need, Claim::holds));
        each.fold(0.0, f64::max)
    }

    fn refuted(&self) -> f64 {
        let each = self.checks.iter().filter(|check| check.len() > 0).map(|check| {
            // Not as many as needed hold, if so many do not.
            let against = check.len() + 1 - check.need;
            check.conjunction(against, Claim::refuted) * self.weight(check)
        });
        each.fold(1.0, f64::min)
    }

    /// How much a check's probability of error counts, so that all checks together keep the level.
    fn weight(&self, check: &Claims) -> f64 {
        self.total() as f64 / check.len().max(1) as f64
    }

    /// Whether more repetitions can refute it, but not bear it out: a check has no result, or only
    /// one of several cells that it is about can be measured here.
    fn cannot_hold(&self) -> bool {
        let alone = |check: &Claims| check.claims.len() == 1 && !check.impossible.is_empty();
        !self.missing.is_empty() || self.checks.iter().any(alone)
    }

    /// The verdict and its evidence, if all of a page are given at this level.
    pub fn judge(&self, level: f64) -> Judgement {
        let verdict = self.verdict(level);
        let level = level * self.share();
        let mut evidence: Vec<Evidence> = self.missing.iter().cloned().map(missing).collect();
        for check in &self.checks {
            let holds = level / (check.len() + 1 - check.need) as f64;
            let refutes = level / (check.need as f64 * self.weight(check));
            evidence.extend(check.claims.iter().map(|claim| claim.evidence(holds, refutes)));
            evidence.extend(check.absent.iter().chain(&check.impossible).cloned().map(missing));
        }
        evidence.sort_by_key(|evidence| evidence.outcome);
        Judgement { verdict, evidence }
    }

    /// The verdict alone, as [`Weighed::judge`] has it.
    fn verdict(&self, level: f64) -> Verdict {
        let level = level * self.share();
        if !self.is_testable() {
            Verdict::NotTestable
        } else if self.refuted() <= level {
            Verdict::Refuted
        } else if self.cannot_hold() {
            Verdict::NotTestable
        } else if self.holds() <= level {
            Verdict::Holds
        } else {
            Verdict::Undecided
        }
    }
}

fn missing(text: String) -> Evidence {
    Evidence {
        text,
        outcome: Outcome::Missing,
        needs: None,
        effect: None,
    }
}

/// The level for each verdict of a page, by Benjamini and Hochberg, from the probabilities of error
/// of all of them.
pub(crate) fn level(probabilities: &[f64]) -> f64 {
    if probabilities.is_empty() {
        return LEVEL;
    }
    let mut sorted = probabilities.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |k: usize| LEVEL * k as f64 / sorted.len() as f64;
    let decided = (1..=sorted.len()).rev().find(|k| sorted[k - 1] <= share(*k));
    share(decided.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Observed;
    use crate::table::{Absent, Cell};

    #[test]
    fn the_only_one_of_several_cells_that_is_here_refutes_a_claim_but_does_not_bear_it_out() {
        let text = "id = 'X.1'\nsays = ''\nchecks = [{ bounds = { table = 't', at_most = 1.0 } }]\n";
        let finding: Finding = toml::from_str(text).unwrap();
        let at = |host: &str| BTreeMap::from([("host".to_owned(), host.to_owned())]);
        let verdict = |value: f64, possible: bool| {
            let cell = Cell {
                at: at("container"),
                value: Observed::new((1..=20).map(|bed| (bed, value))).unwrap(),
            };
            let absent = Absent {
                at: at("guest"),
                why: "no guests here".to_owned(),
                possible,
            };
            let table = Table {
                cells: vec![cell],
                absent: vec![absent],
                ..Table::default()
            };
            finding.judge(&BTreeMap::from([("t".to_owned(), table)])).verdict
        };
        assert_eq!(verdict(0.0, false), Verdict::NotTestable);
        assert_eq!(verdict(0.0, true), Verdict::Undecided);
        assert_eq!(verdict(2.0, false), Verdict::Refuted);
    }

    #[test]
    fn the_level_of_a_page_is_that_of_benjamini_and_hochberg() {
        assert_eq!(level(&[0.04]), 0.05);
        assert_eq!(level(&[0.01, 0.02, 0.03, 0.04]), 0.05);
        assert_eq!(level(&[0.01, 0.9, 0.9, 0.9]), 0.0125);
        assert_eq!(level(&[0.9, 0.9]), 0.025);
        assert_eq!(level(&[]), 0.05);
    }
}
