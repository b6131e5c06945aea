//! A study's conclusions as checks on a table, and the verdicts.
//!
//! A finding is a sentence of the study and checks of it. The same checks run on the study's
//! printed table and on the measured results; claims that the study's own table contradicts are
//! marked.

mod check;
mod file;

pub use check::{
    AlikeCheck, BoundsCheck, Change, Check, Direction, EffectCheck, End, Evidence, ExtremeCheck, OneOrMany, Outcome,
    RatioCheck, TrendCheck, Where,
};
pub use file::{Findings, FindingsError, published};

use crate::table::Table;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A sentence of a study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Study and number, as `S1.3`.
    pub id: String,
    /// The study's claim in our words.
    pub says: String,
    /// The study's own table contradicts it.
    #[serde(default)]
    pub contradicted: bool,
    /// All must hold. None: no table can tell, and `why` says so.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// Why there is no check, or why only what is measured here is checked.
    pub why: Option<String>,
}

/// Whether results bear out a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every check holds.
    Reproduced,
    /// One does not.
    NotReproduced,
    /// None fails, but the numbers do not decide all.
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

impl Finding {
    /// Names of the tables that it is judged by.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().flat_map(Check::tables)
    }

    /// Judges it by results, by the names of their tables.
    pub fn judge(&self, tables: &BTreeMap<String, Table>) -> Judgement {
        self.judge_by(|_| tables)
    }

    /// The same, with tables chosen for each check.
    pub(crate) fn judge_by<'a>(&self, tables: impl Fn(&Check) -> &'a BTreeMap<String, Table>) -> Judgement {
        let mut evidence: Vec<Evidence> = self.checks.iter().flat_map(|check| check.run(tables(check))).collect();
        evidence.sort_by_key(|evidence| evidence.outcome);
        let has = |outcome| evidence.iter().any(|evidence| evidence.outcome == outcome);
        let verdict = if has(Outcome::Fails) {
            Verdict::NotReproduced
        } else if has(Outcome::Missing) || evidence.is_empty() {
            Verdict::NotTestable
        } else if has(Outcome::Undecided) {
            Verdict::Undecided
        } else {
            Verdict::Reproduced
        };
        Judgement { verdict, evidence }
    }
}
