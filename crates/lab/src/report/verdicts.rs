//! Findings of the studies, judged by their printed results and by the measured ones.

use super::looks;
use super::printed::Printed;
use super::summary::At;
use crate::findings::{Evidence, Finding, Findings, Judgement, Outcome, Verdict};
use crate::results::Sample;
use crate::scenario::{Fed, Scenario, Statistic};
use crate::stats::Series;
use crate::table::{Cell, Table};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A finding with its verdicts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// As `S1.3`.
    pub id: String,
    /// The claim.
    pub says: String,
    /// Why no table can tell, or with tables: why the study's own cannot.
    pub why: String,
    /// Names of the tables that it is judged by; none if nothing is judged.
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
/// The dimension of switches in tables.
const SWITCH: &str = "switch";
/// The one that it is compared with.
const BRIDGE: &str = "bridge";
/// The other one that it is compared with, where a table has a place for it.
const USERSPACE: &str = "ovs-tso";

/// All findings, judged for each system.
pub(crate) fn rows(findings: &Findings, printed: &Printed, scenarios: &[Scenario], samples: &[Sample]) -> Vec<Row> {
    let systems = looks::in_order(samples.iter().map(|sample| sample.system.as_str()));
    let measured = systems
        .into_iter()
        .map(|system| Measured::new(system, findings, scenarios, samples));
    let measured: Vec<Measured> = measured.collect();
    let row = |finding: &Finding| Row {
        id: finding.id.clone(),
        says: finding.says.clone(),
        why: finding.why.clone().unwrap_or_default(),
        tables: finding.tables().map(str::to_owned).collect(),
        own: mark("", finding.judge(printed.tables()), &BTreeSet::new()),
        here: measured.iter().map(|measured| measured.judge(finding)).collect(),
    };
    findings.finding.iter().map(row).collect()
}

/// The measured results, with one system in place of Open vSwitch.
struct Measured<'a> {
    system: &'a str,
    /// Its own results, and those of the bridge if it replaces something else, such as a baseline's
    /// hardware.
    alone: BTreeMap<String, Table>,
    /// The others too, if switches are compared.
    beside: BTreeMap<String, Table>,
    /// Its names in tables, in another system's place.
    names: BTreeSet<String>,
}

impl<'a> Measured<'a> {
    fn new(system: &'a str, findings: &Findings, scenarios: &[Scenario], samples: &[Sample]) -> Measured<'a> {
        let mut groups: BTreeMap<(usize, &At, &str), Vec<&Sample>> = BTreeMap::new();
        for sample in samples
            .iter()
            .filter(|sample| sample.decides())
            .filter(|sample| [system, BRIDGE, USERSPACE].contains(&sample.system.as_str()))
        {
            if let Some(scenario) = scenarios.iter().position(|scenario| scenario.id == sample.scenario) {
                let group = groups.entry((scenario, &sample.at, &sample.system));
                group.or_default().push(sample);
            }
        }
        let mut measured = Measured {
            system,
            alone: BTreeMap::new(),
            beside: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        for ((scenario, at, of), samples) in groups {
            let scenario = &scenarios[scenario];
            let place = match of {
                BRIDGE => BRIDGE,
                _ if of == system => PLACE,
                other => other,
            };
            // The others' results do not enter a cell that both would fill; the bridge's enter
            // tables that compare no switches too.
            let others = if of == system {
                Vec::new()
            } else {
                scenario.feeds(at, PLACE).unwrap_or_default()
            };
            for fed in scenario.feeds(at, place).unwrap_or_default() {
                let same = others
                    .iter()
                    .any(|other| (&other.table, &other.keys) == (&fed.table, &fed.keys));
                let switch = fed.keys.get(SWITCH);
                // A table has a place for a switch if it gives it another name than the laboratory.
                let no_place = switch.is_none_or(|switch| switch == of);
                let left_out = same || of != system && of != BRIDGE && no_place;
                let Some(cell) = cell(&fed, &samples).filter(|_| !left_out) else {
                    continue;
                };
                if of == system && of != BRIDGE {
                    measured.names.extend(switch.cloned());
                }
                let unit = findings.tables.get(&fed.table).map_or("", |layout| &layout.unit);
                if of == system || switch.is_none() {
                    add(&mut measured.alone, &fed.table, unit, cell.clone());
                }
                add(&mut measured.beside, &fed.table, unit, cell);
            }
        }
        measured
    }

    fn judge(&self, finding: &Finding) -> Mark {
        let judgement = finding.judge_by(|check| if check.names(SWITCH) { &self.beside } else { &self.alone });
        mark(self.system, judgement, &self.names)
    }
}

fn add(tables: &mut BTreeMap<String, Table>, name: &str, unit: &str, cell: Cell) {
    let table = tables.entry(name.to_owned()).or_insert_with(|| Table {
        unit: unit.to_owned(),
        cells: Vec::new(),
    });
    table.cells.push(cell);
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

/// A verdict of a system's results, or without one of the study's own. `names` stand for the system
/// in the evidence.
fn mark(system: &str, judgement: Judgement, names: &BTreeSet<String>) -> Mark {
    let (class, sign, text) = match (judgement.verdict, system) {
        (Verdict::Reproduced, "") => ("reproduced", "✓", "borne out"),
        (Verdict::Reproduced, _) => ("reproduced", "✓", "reproduced"),
        (Verdict::NotReproduced, "") => ("not-reproduced", "✗", "contradicted"),
        (Verdict::NotReproduced, _) => ("not-reproduced", "✗", "not reproduced"),
        (Verdict::Undecided, _) => ("undecided", "?", "undecided"),
        (Verdict::NotTestable, "") => ("not-testable", "–", "no table"),
        (Verdict::NotTestable, _) => ("not-testable", "–", "not testable here"),
    };
    let title = looks::title(system).to_owned();
    let line = |evidence: &Evidence| Line {
        sign: match evidence.outcome {
            Outcome::Holds => "✓",
            Outcome::Fails => "✗",
            Outcome::Undecided => "?",
            Outcome::Missing => "–",
        },
        text: names
            .iter()
            .fold(evidence.text.clone(), |text, name| renamed(&text, name, &title)),
    };
    Mark {
        evidence: judgement.evidence.iter().take(SHOWN).map(line).collect(),
        more: judgement.evidence.len().saturating_sub(SHOWN),
        system: title,
        class,
        sign,
        text,
    }
}

/// A text with another word in the place of a word.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from).filter(|_| !from.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let whole =
            !is_part(before.chars().next_back().or_else(|| done.chars().next_back())) && !is_part(after.chars().next());
        done.push_str(before);
        done.push_str(if whole { to } else { from });
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_renamed() {
        assert_eq!(
            renamed("vm, ovs: CODEL 3, ovs-dpdk, novs", "ovs", "oxvs"),
            "vm, oxvs: CODEL 3, ovs-dpdk, novs"
        );
        assert_eq!(
            renamed("Open vSwitch: a", "Open vSwitch", "Open vSwitch, userspace"),
            "Open vSwitch, userspace: a"
        );
    }
}
