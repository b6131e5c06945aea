//! The last part of the page: how it was measured, and each experiment's testbed, tables and
//! samples.

use super::{FigureView, cell};
use crate::report::figure;
use crate::report::printed::Printed;
use crate::report::summary::Summary;
use crate::report::svg::{self, Leak};
use crate::report::tables::{self, Cell, View};
use crate::report::verdicts::Row;
use crate::report::{looks, mininet, words};
use crate::results::{Results, Skipped};
use crate::scenario::{Cell as Combination, Observe, Profile, Scenario, Setup};
use crate::topology::Topology;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// An experiment, as the page tells of it.
#[derive(Debug, Serialize)]
pub(super) struct ExperimentView {
    id: String,
    anchor: String,
    title: String,
    about: Vec<String>,
    effort: String,
    varied: bool,
    skipped: Vec<SkippedView>,
    /// Samples that do not count: how many, and why.
    void: Vec<String>,
    testbeds: Vec<String>,
    /// The kind of rates in them.
    rates: &'static str,
    configurations: Vec<Configuration>,
    matrices: Vec<View>,
    tables: Vec<View>,
    /// What happened inside repetitions.
    series: Vec<FigureView>,
    /// Where packets were lost, by switch.
    losses: Vec<Loss>,
    loss_table: Option<View>,
    cost: Option<View>,
    remarks: Vec<String>,
    bears: Vec<Row>,
    source: String,
}

#[derive(Debug, Serialize)]
struct SkippedView {
    who: String,
    cells: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Configuration {
    system: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Loss {
    of: String,
    svg: String,
}

/// Most remarks that are shown of an experiment.
const REMARKS: usize = 40;

impl ExperimentView {
    pub(super) fn new(scenario: &Scenario, results: &Results, printed: &Printed, rows: &[Row]) -> ExperimentView {
        let summary = Summary::new(scenario, &results.samples, &results.skipped);
        let metrics = scenario
            .metrics
            .iter()
            .map(|metric| tables::results(&summary, printed, metric));
        let configurations = results.configurations.iter().filter(|(id, ..)| *id == scenario.id);
        let fed = fed_tables(scenario);
        let bears = rows
            .iter()
            .filter(|row| row.tables.iter().any(|table| fed.contains(table)));
        let networks = networks(scenario, results);
        let testbeds = shapes(&networks).into_iter().map(|all| svg::testbed(&all));
        ExperimentView {
            id: scenario.id.clone(),
            anchor: anchor(&scenario.id),
            title: scenario.title.clone(),
            about: words::paragraphs(&scenario.about),
            effort: words::effort(scenario, results, &summary),
            varied: !scenario.varied.is_empty(),
            skipped: skipped(&summary),
            void: void(scenario, results),
            testbeds: testbeds
                .filter(|drawing| !drawing.shapes.is_empty())
                .map(|drawing| drawing.inline())
                .collect(),
            rates: if scenario.cells(results.run.profile).iter().any(is_mininets) {
                "Rates are those that Mininet is asked to give its links, at their ends"
            } else {
                "Rates are of the cables, outside every switch, in each direction"
            },
            configurations: configurations
                .map(|(_, system, text)| Configuration {
                    system: looks::title(system).to_owned(),
                    text: text.clone(),
                })
                .collect(),
            matrices: tables::matrices(&summary),
            tables: metrics.filter(|view| !view.rows.is_empty()).collect(),
            series: figure::over_time(&summary).into_iter().map(FigureView::new).collect(),
            losses: losses(&summary),
            loss_table: tables::losses(&summary),
            cost: tables::cost(&summary),
            remarks: words::remarks(&summary, REMARKS),
            bears: bears.cloned().collect(),
            source: scenario.source.clone(),
        }
    }
}

fn void(scenario: &Scenario, results: &Results) -> Vec<String> {
    let mut by: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in results.samples.iter().filter(|sample| sample.scenario == scenario.id) {
        if let Some(reason) = sample.validity.void.first() {
            *by.entry(reason).or_default() += 1;
        }
    }
    let told = |(reason, n): (&str, usize)| match n {
        1 => format!("1 sample does not count: {reason}"),
        n => format!("{n} samples do not count: {reason}"),
    };
    by.into_iter().map(told).collect()
}

/// The way of the packets with what left it, for each switch that lost any: means of its samples,
/// those of cells with policed ports apart from the others.
fn losses(summary: &Summary) -> Vec<Loss> {
    const WAY: [&str; 9] = [
        "sender",
        "arp",
        "port",
        "policer",
        "upcall",
        "queue",
        "cable",
        "receiver",
        "unexplained",
    ];
    let policed: Vec<bool> = summary.cells.iter().map(|at| tables::is_policed(summary, at)).collect();
    let both = policed.contains(&true) && policed.contains(&false);
    let mut all = Vec::new();
    for (system, kind) in summary
        .systems
        .iter()
        .flat_map(|system| [(*system, true), (*system, false)])
    {
        let own = summary
            .all()
            .filter(|(cell, sample)| sample.system == system && policed[*cell] == kind);
        let samples: Vec<_> = own.map(|(_, sample)| sample).collect();
        let mut by: BTreeMap<(usize, &str), BTreeMap<&str, f64>> = BTreeMap::new();
        for loss in samples
            .iter()
            .flat_map(|sample| &sample.losses)
            .filter(|loss| loss.packets > 0)
        {
            let place = WAY.iter().position(|cause| *cause == loss.cause).unwrap_or(WAY.len());
            let places = by.entry((place, &loss.cause)).or_default();
            *places.entry(&loss.place).or_default() += loss.packets as f64 / samples.len() as f64;
        }
        if by.is_empty() {
            continue;
        }
        let leak = |((_, cause), places): ((usize, &str), BTreeMap<&str, f64>)| {
            let mut places: Vec<(String, f64)> = places.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
            places.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            Leak {
                cause: cause.to_owned(),
                places,
            }
        };
        let leaks: Vec<Leak> = by.into_iter().map(leak).collect();
        let ports = match (both, kind) {
            (false, _) => "",
            (true, true) => ", policed ports",
            (true, false) => ", unpoliced ports",
        };
        all.push(Loss {
            of: system.to_owned(),
            svg: svg::losses(&format!("{}{ports}", looks::title(system)), &leaks).inline(),
        });
    }
    all
}

/// Names of the tables of findings that a scenario has results for.
fn fed_tables(scenario: &Scenario) -> BTreeSet<String> {
    let cells = [Profile::Quick, Profile::Full]
        .into_iter()
        .flat_map(|profile| scenario.cells(profile));
    let fed = cells.flat_map(|cell| scenario.feeds(&cell.at, "ovs-kernel").unwrap_or_default());
    fed.map(|fed| fed.table).collect()
}

/// The place of an experiment on the page.
pub(super) fn anchor(id: &str) -> String {
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    format!("e-{}", id.chars().map(legal).collect::<String>())
}

/// The testbed of each of a scenario's cells, or Mininet's network.
fn networks(scenario: &Scenario, results: &Results) -> Vec<Topology> {
    let cells = scenario.cells(results.run.profile);
    let network = |setup: &Setup| mininet::network(setup).unwrap_or_else(|| setup.topology.clone());
    cells.iter().map(|cell| network(&cell.setup)).collect()
}

fn is_mininets(cell: &Combination) -> bool {
    let mut observed = cell.setup.observed.iter();
    observed.any(|one| matches!(one.what, Observe::Mininet { .. }))
}

/// Testbeds of one shape together: four shapes at most.
fn shapes(networks: &[Topology]) -> Vec<Vec<&Topology>> {
    let mut shapes: Vec<Vec<&Topology>> = Vec::new();
    for network in networks {
        match shapes.iter_mut().find(|all| shape(all[0]) == shape(network)) {
            Some(all) => all.push(network),
            None => shapes.push(vec![network]),
        }
    }
    shapes.truncate(4);
    shapes
}

/// Names of hosts and of bridges, and what cables join.
type Shape<'a> = (Vec<&'a str>, Vec<&'a str>, Vec<(&'a str, &'a str)>);

fn shape(topology: &Topology) -> Shape<'_> {
    (
        topology.hosts.iter().map(|host| host.name.as_str()).collect(),
        topology.bridges.iter().map(|bridge| bridge.name.as_str()).collect(),
        topology
            .links
            .iter()
            .map(|link| (link.a.at.as_str(), link.b.at.as_str()))
            .collect(),
    )
}

/// Skipped cells: a line for each reason, with the cells.
fn skipped(summary: &Summary) -> Vec<SkippedView> {
    let mut by: BTreeMap<&str, Vec<&Skipped>> = BTreeMap::new();
    for skipped in &summary.skipped {
        by.entry(&skipped.reason).or_default().push(skipped);
    }
    let view = |(reason, all): (&str, Vec<&Skipped>)| {
        let who: Vec<&str> = looks::in_order(all.iter().map(|skipped| skipped.system.as_str()));
        let who: Vec<&str> = who
            .into_iter()
            .map(|name| {
                if name.is_empty() {
                    "This experiment"
                } else {
                    looks::title(name)
                }
            })
            .collect();
        let cells: BTreeSet<String> = all
            .iter()
            .filter(|s| !s.at.is_empty())
            .map(|s| summary.name(&s.at))
            .collect();
        let cells: Vec<String> = cells.into_iter().collect();
        SkippedView {
            who: who.join(", "),
            cells: match cells.len() {
                0 => String::new(),
                1..=6 => format!(" ({})", cells.join("; ")),
                n => format!(" ({}; and {} more cells)", cells[..5].join("; "), n - 5),
            },
            reason: reason.to_owned(),
        }
    };
    by.into_iter().map(view).collect()
}

/// Samples taken of each experiment and switch, out of those requested.
pub(super) fn coverage(results: &Results, scenarios: &[Scenario]) -> View {
    let names = results
        .samples
        .iter()
        .map(|s| s.system.as_str())
        .chain(results.skipped.iter().map(|s| s.system.as_str()));
    let names = names
        .chain(results.run.systems.keys().map(String::as_str))
        .filter(|name| !name.is_empty());
    let systems = looks::in_order(names);
    let head = systems.iter().map(|name| cell("number", looks::title(name)).of(name));
    let head = std::iter::once(cell("key", "experiment")).chain(head);
    let last = results.run.invocations.last().and_then(|last| last.end.as_deref());
    let is_complete = last == Some("complete");
    let row = |scenario: &Scenario| {
        let name = Cell {
            link: format!("#{}", anchor(&scenario.id)),
            title: scenario.title.clone(),
            ..cell("key", scenario.id.clone())
        };
        let wanted = results
            .run
            .scenarios
            .get(&scenario.id)
            .map(|experiment| experiment.samples);
        let chosen = results
            .run
            .scenarios
            .get(&scenario.id)
            .map(|experiment| &experiment.chosen);
        let is_chosen = |system: &str| match chosen {
            Some(chosen) if !chosen.is_empty() => chosen.contains_key(system),
            // Not recorded: a complete run has samples of all that were chosen.
            _ => !is_complete,
        };
        let of = |system: &&str| {
            let mine = results
                .samples
                .iter()
                .filter(|s| s.scenario == scenario.id && s.system == **system)
                .count();
            let skipped = results
                .skipped
                .iter()
                .find(|s| s.scenario == scenario.id && (s.system == **system || s.system.is_empty()));
            match (mine, wanted, skipped) {
                (0, _, Some(skipped)) => Cell {
                    title: skipped.reason.clone(),
                    ..cell("number not-testable", "– not here")
                },
                (0, None, None) => cell("number not-testable", "not asked for"),
                (0, Some(_), None) if !is_chosen(system) => cell("number not-testable", "not chosen"),
                (0, Some(_), None) => cell("number not-testable", "none yet"),
                (n, Some(wanted), _) => Cell {
                    small: format!("of {wanted}"),
                    ..cell("number", n.to_string())
                },
                (n, None, _) => cell("number", n.to_string()),
            }
        };
        let cells = systems.iter().map(|system| of(system).of(system));
        std::iter::once(name).chain(cells).collect()
    };
    View {
        title: "Samples taken, of those that the profile asks for".into(),
        head: head.collect(),
        rows: scenarios.iter().map(row).collect(),
        notes: vec!["“Not here”: the experiment's section says why. “Not chosen”: neither the profile nor the command line chose the switch for it.".into()],
    }
}

pub(super) fn calibration(checks: &[crate::calibration::Check]) -> View {
    let head = ["what", "known", "measured", "error", "allowed", ""].iter().enumerate();
    let row = |check: &crate::calibration::Check| {
        let number = |number: f64| cell("number", format!("{} {}", svg::number(number), check.unit));
        let maybe = |value: Option<f64>| value.map_or_else(|| cell("number", "–"), number);
        let error = check.known.map(|known| check.measured - known);
        let verdict = match check.passed() {
            Some(true) => cell("mark holds", "✓ within"),
            Some(false) => cell("mark refuted", "✗ outside"),
            None => cell("not-testable", "for the record"),
        };
        vec![
            cell("", check.what.clone()),
            maybe(check.known),
            number(check.measured),
            maybe(error),
            maybe(check.tolerance),
            verdict,
        ]
    };
    View {
        head: head
            .map(|(n, text)| cell(if (1..5).contains(&n) { "number" } else { "" }, *text))
            .collect(),
        rows: checks.iter().map(row).collect(),
        ..View::default()
    }
}

pub(super) fn invocations(results: &Results) -> View {
    let head = ["began (UTC)", "minutes", "load before", "version", "ended"]
        .iter()
        .enumerate();
    let row = |invocation: &crate::results::Invocation| {
        let minutes = invocation
            .seconds
            .map_or_else(|| "–".into(), |seconds| svg::number((seconds / 6.0).round() / 10.0));
        vec![
            cell("key", words::date(invocation.began)),
            cell("number", minutes),
            cell("number", svg::number(invocation.load)),
            cell("key", invocation.version.clone()),
            cell(
                "",
                invocation.end.clone().unwrap_or_else(|| "at work, or killed".into()),
            ),
        ]
    };
    View {
        head: head
            .map(|(n, text)| cell(if n == 1 || n == 2 { "number" } else { "key" }, *text))
            .collect(),
        rows: results.run.invocations.iter().map(row).collect(),
        ..View::default()
    }
}

/// How often verdicts are wrong.
pub(super) fn wrong(rates: &[crate::findings::Rates]) -> View {
    let head = [
        "claim",
        "noise",
        "runs",
        "wrong: holds",
        "wrong: refuted",
        "power: holds",
        "power: refuted",
    ];
    let row = |one: &crate::findings::Rates| {
        let shares = [
            Some(one.false_holds),
            Some(one.false_refuted),
            one.power_holds,
            one.power_refuted,
        ];
        let text = |share: f64| format!("{:.1} %", 100.0 * share);
        let shares = shares.map(|share| cell("number", share.map_or_else(|| "–".to_owned(), text)));
        let first = [
            cell("", one.kind.clone()),
            cell("", one.noise.clone()),
            cell("number", one.runs.to_string()),
        ];
        first.into_iter().chain(shares).collect()
    };
    View {
        head: head
            .iter()
            .enumerate()
            .map(|(n, text)| cell(if n > 1 { "number" } else { "" }, *text))
            .collect(),
        rows: rates.iter().map(row).collect(),
        ..View::default()
    }
}

/// What the full profile decides, by experiment.
pub(super) fn decides(rows: &[crate::findings::Decides]) -> View {
    let noises = rows.first().map_or(&[][..], |row| &row.decided);
    let noises = noises
        .iter()
        .map(|(noise, _)| cell("number", format!("decided at noise of {:.0} %", 100.0 * noise)));
    let row = |row: &crate::findings::Decides| {
        let name = if row.experiment.is_empty() {
            "all"
        } else {
            &row.experiment
        };
        let share = |(_, share): &(f64, f64)| match row.findings {
            0 => cell("number", "–"),
            _ => cell("number", format!("{:.0} %", 100.0 * share)),
        };
        let first = [cell("", name), cell("number", row.findings.to_string())].into_iter();
        let last = cell("number", row.unknown.to_string());
        let measured = row.measured.map(|measured| share(&(0.0, measured)));
        first
            .chain(row.decided.iter().map(share))
            .chain(measured)
            .chain([last])
            .collect()
    };
    let measured = rows.iter().any(|row| row.measured.is_some());
    let measured = measured.then(|| cell("number", "decided at the noise of a run here"));
    let first = [cell("", "experiment"), cell("number", "findings")].into_iter();
    View {
        head: first
            .chain(noises)
            .chain(measured)
            .chain([cell("number", "without numbers")])
            .collect(),
        rows: rows.iter().map(row).collect(),
        ..View::default()
    }
}
