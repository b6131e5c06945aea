//! Findings of the studies, judged by what they printed and by what was measured here.

use super::looks;
use super::printed::Printed;
use super::summary::At;
use crate::findings::{Evidence, Finding, Findings, Judgement, Outcome, Verdict};
use crate::results::Sample;
use crate::scenario::{Fed, Scenario, Statistic};
use crate::stats::Series;
use crate::table::{Cell, Table};
use serde::Serialize;
use std::collections::BTreeMap;

/// A finding with its verdicts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// As `S1.3`.
    pub id: String,
    /// The claim.
    pub says: String,
    /// Why no table can tell.
    pub why: String,
    /// Names of the tables that it is judged by.
    pub tables: Vec<String>,
    /// By the study's own table.
    pub own: Mark,
    /// By what was measured, for each system.
    pub here: Vec<Mark>,
}

/// A verdict as a page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mark {
    /// Whose results; of the study's own: empty.
    pub system: String,
    /// `reproduced`, `not-reproduced`, `undecided`, `not-testable`.
    pub class: &'static str,
    /// A sign that needs no colour.
    pub sign: &'static str,
    /// In words.
    pub text: &'static str,
    /// The numbers that decide, those against it first.
    pub evidence: Vec<Line>,
    /// How many more there are.
    pub more: usize,
}

/// A line of evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Line {
    /// `✓`, `✗`, `?` or `–`.
    pub sign: &'static str,
    /// The numbers.
    pub text: String,
}

/// Most lines of evidence that a page shows for a verdict.
const SHOWN: usize = 8;
/// The system in whose place others are judged, for findings about Open vSwitch.
const PLACE: &str = "ovs-kernel";
/// The one that it is compared with.
const BRIDGE: &str = "bridge";

/// All findings, judged for each system.
pub(crate) fn rows(findings: &Findings, printed: &Printed, scenarios: &[Scenario], samples: &[Sample]) -> Vec<Row> {
    let systems = looks::in_order(samples.iter().map(|sample| sample.system.as_str()));
    let tables: Vec<(&str, BTreeMap<String, Table>)> = systems
        .into_iter()
        .map(|system| (system, measured(system, findings, scenarios, samples)))
        .collect();
    let row = |finding: &Finding| Row {
        id: finding.id.clone(),
        says: finding.says.clone(),
        why: finding.why.clone().unwrap_or_default(),
        tables: finding.tables().map(str::to_owned).collect(),
        own: mark("", finding.judge(printed.tables()), true),
        here: tables
            .iter()
            .map(|(system, tables)| mark(system, finding.judge(tables), false))
            .collect(),
    };
    findings.finding.iter().map(row).collect()
}

/// Tables of what was measured, with a system in the place of Open vSwitch, and the bridge where it stands for something else: for itself in tables
/// that compare switches, or for the hardware of a baseline.
pub(crate) fn measured(
    system: &str,
    findings: &Findings,
    scenarios: &[Scenario],
    samples: &[Sample],
) -> BTreeMap<String, Table> {
    let mut groups: BTreeMap<(usize, &At, &str), Vec<&Sample>> = BTreeMap::new();
    for sample in samples
        .iter()
        .filter(|sample| sample.system == system || sample.system == BRIDGE)
    {
        if let Some(scenario) = scenarios.iter().position(|scenario| scenario.id == sample.scenario) {
            groups
                .entry((scenario, &sample.at, &sample.system))
                .or_default()
                .push(sample);
        }
    }
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for ((scenario, at, of), samples) in groups {
        let scenario = &scenarios[scenario];
        let (name, own) = if of == BRIDGE {
            (BRIDGE, of == system)
        } else {
            (PLACE, true)
        };
        // What the bridge stands for beside another: the side of a comparison that the other has no part in.
        let others = if own {
            Vec::new()
        } else {
            scenario.feeds(at, PLACE).unwrap_or_default()
        };
        for fed in scenario.feeds(at, name).unwrap_or_default() {
            if others
                .iter()
                .any(|other| (&other.table, &other.keys) == (&fed.table, &fed.keys))
            {
                continue;
            }
            if let Some(cell) = cell(&fed, &samples) {
                let table = tables.entry(fed.table.clone()).or_insert_with(|| Table {
                    unit: findings
                        .tables
                        .get(&fed.table)
                        .map_or_else(String::new, |layout| layout.unit.clone()),
                    cells: Vec::new(),
                });
                table.cells.push(cell);
            }
        }
    }
    tables
}

fn cell(fed: &Fed, samples: &[&Sample]) -> Option<Cell> {
    let values = samples.iter().filter_map(|sample| sample.metrics.get(&fed.metric));
    let series = Series::new(values.map(|value| value * fed.scale));
    let value = match fed.statistic {
        _ if series.n() == 0 => return None,
        Statistic::Mean => series.estimate(),
        Statistic::Deviation if series.n() < 2 => return None,
        Statistic::Deviation => crate::stats::Estimate::Point(series.deviation()),
    };
    Some(Cell {
        at: fed.keys.clone(),
        value,
    })
}

fn mark(system: &str, judgement: Judgement, own: bool) -> Mark {
    let (class, sign, text) = match (judgement.verdict, own) {
        (Verdict::Reproduced, false) => ("reproduced", "✓", "reproduced"),
        (Verdict::Reproduced, true) => ("reproduced", "✓", "borne out"),
        (Verdict::NotReproduced, false) => ("not-reproduced", "✗", "not reproduced"),
        (Verdict::NotReproduced, true) => ("not-reproduced", "✗", "contradicted"),
        (Verdict::Undecided, _) => ("undecided", "?", "undecided"),
        (Verdict::NotTestable, false) => ("not-testable", "–", "not testable here"),
        (Verdict::NotTestable, true) => ("not-testable", "–", "no table"),
    };
    let line = |evidence: &Evidence| Line {
        sign: match evidence.outcome {
            Outcome::Holds => "✓",
            Outcome::Fails => "✗",
            Outcome::Undecided => "?",
            Outcome::Missing => "–",
        },
        text: evidence.text.clone(),
    };
    Mark {
        system: looks::title(system).to_owned(),
        class,
        sign,
        text,
        evidence: judgement.evidence.iter().take(SHOWN).map(line).collect(),
        more: judgement.evidence.len().saturating_sub(SHOWN),
    }
}
