//! The tables of the findings, filled with what was measured, and the verdicts of a run.

use super::{Check, Finding, Findings, Judgement, Verdict, Weighed, level};
use crate::results::{Results, Sample, Skipped};
use crate::scenario::{Fed, Profile, Scenario};
use crate::stats::Observed;
use crate::table::{Absent, Cell, Table};
use std::collections::{BTreeMap, BTreeSet};

/// The verdicts on one system's results.
#[derive(Debug)]
pub(crate) struct Column<'a> {
    /// The system.
    pub(crate) system: &'a str,
    /// Its names in tables, in another system's place.
    pub(crate) names: BTreeSet<String>,
    /// In the order of the findings.
    pub(crate) judgements: Vec<Judgement>,
    /// Whether more repetitions of what was run can decide the finding.
    pub(crate) can_be_decided: Vec<bool>,
}

/// The system in whose place others are judged, for findings about Open vSwitch.
const PLACE: &str = "ovs-kernel";
/// The dimension of switches in tables.
const SWITCH: &str = "switch";
/// The one that it is compared with.
const BRIDGE: &str = "bridge";
/// The other one that it is compared with, where a table has a place for it.
const USERSPACE: &str = "ovs-tso";

/// Judges all findings for each of some systems, at the level of a page with all of them.
pub(crate) fn judge<'a>(
    findings: &Findings,
    scenarios: &[Scenario],
    results: &Results,
    systems: impl IntoIterator<Item = &'a str>,
) -> Vec<Column<'a>> {
    let looks = looks(scenarios, results);
    let weigh = |system: &'a str| {
        let measured = Measured::new(system, findings, scenarios, results);
        let weighed: Vec<Weighed> = findings
            .finding
            .iter()
            .map(|finding| measured.weigh(finding, &looks))
            .collect();
        (system, measured.names, weighed)
    };
    let all: Vec<(&str, BTreeSet<String>, Vec<Weighed>)> = systems.into_iter().map(weigh).collect();
    let testable = all
        .iter()
        .flat_map(|(_, _, weighed)| weighed)
        .filter(|one| one.is_testable());
    let level = level(&testable.map(Weighed::weighted).collect::<Vec<_>>());
    let column = |(system, names, weighed): (&'a str, BTreeSet<String>, Vec<Weighed>)| {
        let judgements: Vec<Judgement> = weighed.iter().map(|one| one.judge(level)).collect();
        let both = weighed.iter().zip(&judgements);
        let can_be_decided =
            both.map(|(one, judgement)| one.is_complete() && judgement.verdict != Verdict::NotTestable);
        Column {
            system,
            names,
            can_be_decided: can_be_decided.collect(),
            judgements,
        }
    };
    all.into_iter().map(column).collect()
}

/// How often the results of each table were looked at to decide whether to go on.
fn looks(scenarios: &[Scenario], results: &Results) -> BTreeMap<String, u32> {
    let mut looks: BTreeMap<String, u32> = BTreeMap::new();
    for scenario in scenarios {
        let Some(experiment) = results.run.scenarios.get(&scenario.id).filter(|one| one.looks > 0) else {
            continue;
        };
        for table in tables(scenario) {
            let most = looks.entry(table).or_default();
            *most = (*most).max(experiment.looks);
        }
    }
    looks
}

/// The tables that a scenario's results feed.
pub(crate) fn tables(scenario: &Scenario) -> BTreeSet<String> {
    let cells = scenario
        .cells(Profile::Full)
        .iter()
        .chain(scenario.cells(Profile::Quick));
    let fed = cells.flat_map(|cell| scenario.feeds(&cell.at, PLACE).unwrap_or_default());
    fed.map(|fed| fed.table).collect()
}

/// The measured results, with one system in place of Open vSwitch.
struct Measured {
    /// Its own results, and those of the bridge if it replaces something else, such as a baseline's
    /// hardware.
    alone: BTreeMap<String, Table>,
    /// The others too, if switches are compared.
    beside: BTreeMap<String, Table>,
    /// Its names in tables, in another system's place.
    names: BTreeSet<String>,
}

type At = BTreeMap<String, String>;

impl Measured {
    fn new(system: &str, findings: &Findings, scenarios: &[Scenario], results: &Results) -> Measured {
        let mut measured = Measured {
            alone: BTreeMap::new(),
            beside: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        let mut groups: BTreeMap<(&str, &str, &At), Vec<&Sample>> = BTreeMap::new();
        for sample in &results.samples {
            let group = groups.entry((&sample.scenario, &sample.system, &sample.at));
            group.or_default().push(sample);
        }
        let first = At::new();
        let others = [BRIDGE, USERSPACE].into_iter().filter(|other| *other != system);
        for of in std::iter::once(system).chain(others) {
            for scenario in scenarios {
                let own = groups.range((scenario.id.as_str(), of, &first)..);
                let own = own.take_while(|((id, by, _), _)| *id == scenario.id && *by == of);
                let own: Vec<(&At, &Vec<&Sample>)> = own.map(|((_, _, at), samples)| (*at, samples)).collect();
                if own.is_empty() {
                    continue;
                }
                let decide = |samples: &[&Sample]| samples.iter().any(|sample| sample.decides());
                for (at, samples) in own.iter().filter(|(_, samples)| decide(samples)) {
                    measured.enter((system, of), findings, scenario, at, &mut |fed| {
                        cell(fed, samples).map(Ok)
                    });
                }
                let skipped: Vec<&Skipped> = results
                    .skipped
                    .iter()
                    .filter(|one| one.scenario == scenario.id && one.system == of)
                    .collect();
                let design = scenario
                    .cells(Profile::Full)
                    .iter()
                    .filter(|cell| cell.setup.is_for(of));
                for cell in design {
                    let samples = own.iter().find(|(at, _)| **at == cell.at).map(|(_, samples)| *samples);
                    if samples.is_some_and(|samples| decide(samples)) {
                        continue;
                    }
                    let reason = skipped
                        .iter()
                        .find(|one| one.at.iter().all(|(key, value)| cell.at.get(key) == Some(value)));
                    let (why, possible) = match (samples, reason) {
                        (Some(_), _) => ("measured under emulation, which decides nothing".to_owned(), false),
                        (None, Some(one)) => (format!("not measured: {}", one.reason), one.failed),
                        (None, None) => ("not measured".to_owned(), true),
                    };
                    let absent = |fed: &Fed| Absent {
                        at: fed.keys.clone(),
                        why: why.clone(),
                        possible,
                    };
                    measured.enter((system, of), findings, scenario, &cell.at, &mut |fed| {
                        Some(Err(absent(fed)))
                    });
                }
            }
        }
        measured.finish();
        measured
    }

    /// Enters a cell's results, or that there are none, where they belong.
    fn enter(
        &mut self,
        (system, of): (&str, &str),
        findings: &Findings,
        scenario: &Scenario,
        at: &At,
        result: &mut dyn FnMut(&Fed) -> Option<Result<Cell, Absent>>,
    ) {
        let place = match of {
            BRIDGE => BRIDGE,
            _ if of == system => PLACE,
            other => other,
        };
        // The others' results do not enter a cell that both would fill; the bridge's enter tables
        // that compare no switches too.
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
            let Some(result) = result(&fed).filter(|_| !left_out) else {
                continue;
            };
            if of == system && of != BRIDGE {
                self.names.extend(switch.cloned());
            }
            let unit = findings.tables.get(&fed.table).map_or("", |layout| &layout.unit);
            if of == system || switch.is_none() {
                add(&mut self.alone, &fed.table, unit, result.clone());
            }
            add(&mut self.beside, &fed.table, unit, result);
        }
    }

    /// Of a cell that two experiments feed the first one counts, and nothing lacks if one has a
    /// result.
    fn finish(&mut self) {
        for table in self.alone.values_mut().chain(self.beside.values_mut()) {
            let mut there: BTreeSet<At> = BTreeSet::new();
            table.cells.retain(|cell| there.insert(cell.at.clone()));
            table.absent.retain(|absent| !there.contains(&absent.at));
        }
    }

    fn weigh(&self, finding: &Finding, looks: &BTreeMap<String, u32>) -> Weighed {
        let looks = finding.tables().filter_map(|table| looks.get(table)).max();
        let tables = |check: &Check| if check.names(SWITCH) { &self.beside } else { &self.alone };
        finding.weigh(tables, looks.copied().unwrap_or(0))
    }
}

fn add(tables: &mut BTreeMap<String, Table>, name: &str, unit: &str, result: Result<Cell, Absent>) {
    let table = tables.entry(name.to_owned()).or_insert_with(|| Table {
        unit: unit.to_owned(),
        ..Table::default()
    });
    match result {
        Ok(cell) => table.cells.push(cell),
        Err(absent) => table.absent.push(absent),
    }
}

fn cell(fed: &Fed, samples: &[&Sample]) -> Option<Cell> {
    let deciding = samples.iter().filter(|sample| sample.decides());
    let values = deciding.filter_map(|sample| Some((sample.testbed, value(sample, &fed.metric)? * fed.scale)));
    Some(Cell {
        at: fed.keys.clone(),
        value: Observed::new(values)?,
    })
}

/// A metric of a sample; `losses.CAUSE` is the share of the lost packets that were lost so.
fn value(sample: &Sample, metric: &str) -> Option<f64> {
    let Some(cause) = metric.strip_prefix("losses.") else {
        return sample.metrics.get(metric).copied();
    };
    let packets = |wanted: &dyn Fn(&str) -> bool| {
        let losses = sample.losses.iter().filter(|loss| wanted(&loss.cause));
        losses.map(|loss| loss.packets as f64).sum::<f64>()
    };
    Some(packets(&|own| own == cause) / packets(&|_| true).max(1.0))
}
