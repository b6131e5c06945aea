//! The content of the page, for the template.

use super::figure::{Figure, Key, figures};
use super::printed::Printed;
use super::studies::{OWN, STUDIES, Study};
use super::summary::Summary;
use super::svg::{self, Drawing};
use super::tables::{self, Cell, View};
use super::verdicts::{Mark, Row};
use super::{Input, looks, mininet, words};
use crate::results::{Results, Skipped};
use crate::scenario::{Cell as Combination, Observe, Profile, Scenario, Setup};
use crate::topology::Topology;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The whole page.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    title: String,
    style: &'static str,
    summary: Vec<String>,
    totals: View,
    overview: View,
    coverage: View,
    calibration: Option<View>,
    rates: Option<View>,
    studies: Vec<StudyView>,
    machine: Vec<(String, String)>,
    systems: Vec<(String, String)>,
    invocations: View,
    files: Vec<(&'static str, &'static str)>,
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct StudyView {
    id: &'static str,
    anchor: String,
    title: &'static str,
    about: &'static str,
    experiments: Vec<ExperimentView>,
    findings: Vec<FindingView>,
}

#[derive(Debug, Serialize)]
struct FindingView {
    #[serde(flatten)]
    row: Row,
    /// The study's own, then those of the systems.
    all: Vec<Mark>,
}

#[derive(Debug, Serialize)]
struct ExperimentView {
    id: String,
    anchor: String,
    title: String,
    about: Vec<String>,
    effort: String,
    varied: bool,
    skipped: Vec<SkippedView>,
    testbeds: Vec<String>,
    /// The kind of rates in them.
    rates: &'static str,
    configurations: Vec<Configuration>,
    figures: Vec<FigureView>,
    matrices: Vec<View>,
    tables: Vec<View>,
    losses: Option<View>,
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
struct FigureView {
    number: usize,
    caption: String,
    legend: Vec<KeyView>,
    panels: Vec<Panel>,
    rest: Vec<Panel>,
}

#[derive(Debug, Serialize)]
struct KeyView {
    svg: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Panel {
    svg: String,
    wide: bool,
}

/// Most panels of a figure that are not folded away.
const PANELS: usize = 8;
/// The widest panel that others stand beside.
const NARROW: f64 = 430.0;
/// Most remarks that are shown of an experiment.
const REMARKS: usize = 40;

/// Style of figures.
pub(crate) const FIGURES: &str = include_str!("style.css");
const STYLE: &str = concat!(include_str!("style.css"), include_str!("page.css"));

impl Page {
    /// Of a run. `rows` are its verdicts.
    pub(crate) fn new(input: &Input, printed: &Printed, rows: &[Row]) -> Page {
        let results = &input.results;
        let mut number = 0;
        let mut studies = Vec::new();
        for study in STUDIES.iter().chain([&OWN]) {
            let own = |scenario: &&Scenario| match study.id {
                "" => !STUDIES.iter().any(|study| study.id == scenario.study),
                id => scenario.study == id,
            };
            let experiments: Vec<ExperimentView> = input
                .scenarios
                .iter()
                .filter(own)
                .map(|scenario| experiment(scenario, results, printed, rows, &mut number))
                .collect();
            if study.id.is_empty() && experiments.is_empty() {
                continue;
            }
            studies.push(StudyView::new(study, experiments, rows));
        }
        let machine = &results.run.machine;
        Page {
            title: "Virtual switches, measured".into(),
            style: STYLE,
            summary: words::summary(results, &input.scenarios),
            totals: totals(rows),
            overview: overview(rows),
            coverage: coverage(results, &input.scenarios),
            calibration: input.calibration.as_ref().map(|checks| calibration(checks)),
            rates: input.rates.as_ref().map(|rates| wrong(rates)),
            studies,
            machine: words::machine(machine, results.run.in_guest),
            systems: results
                .run
                .systems
                .iter()
                .map(|(name, what)| (looks::title(name).to_owned(), what.clone()))
                .collect(),
            invocations: invocations(results),
            files: super::export::FILES.to_vec(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl StudyView {
    fn new(study: &'static Study, experiments: Vec<ExperimentView>, rows: &[Row]) -> StudyView {
        let prefix = format!("{}.", study.id);
        let own = rows
            .iter()
            .filter(|row| row.id.starts_with(&prefix))
            .map(|row| FindingView {
                all: std::iter::once(&row.own).chain(&row.here).cloned().collect(),
                row: row.clone(),
            });
        StudyView {
            id: study.id,
            anchor: if study.id.is_empty() {
                "own".into()
            } else {
                study.id.to_lowercase()
            },
            title: study.title,
            about: study.about,
            experiments,
            findings: own.collect(),
        }
    }
}

fn experiment(
    scenario: &Scenario,
    results: &Results,
    printed: &Printed,
    rows: &[Row],
    number: &mut usize,
) -> ExperimentView {
    let summary = Summary::new(scenario, &results.samples, &results.skipped);
    let figures = figures(&summary, printed).into_iter().map(|figure| {
        *number += 1;
        FigureView::new(figure, *number)
    });
    let figures: Vec<FigureView> = figures.collect();
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
        testbeds: testbeds
            .filter(|drawing| !drawing.body.is_empty())
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
        figures,
        matrices: tables::matrices(&summary),
        tables: metrics.filter(|view| !view.rows.is_empty()).collect(),
        losses: tables::losses(&summary),
        cost: tables::cost(&summary),
        remarks: words::remarks(&summary, REMARKS),
        bears: bears.cloned().collect(),
        source: scenario.source.clone(),
    }
}

/// Names of the tables of findings that a scenario has results for.
fn fed_tables(scenario: &Scenario) -> BTreeSet<String> {
    let cells = [Profile::Quick, Profile::Full]
        .into_iter()
        .flat_map(|profile| scenario.cells(profile));
    let fed = cells.flat_map(|cell| scenario.feeds(&cell.at, "ovs-kernel").unwrap_or_default());
    fed.map(|fed| fed.table).collect()
}

fn anchor(id: &str) -> String {
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

impl FigureView {
    fn new(figure: Figure, number: usize) -> FigureView {
        let key = |key: &Key| KeyView {
            svg: key.svg(),
            name: key.name.clone(),
        };
        let panel = |drawing: &Drawing| Panel {
            svg: drawing.inline(),
            wide: drawing.width > NARROW,
        };
        let mut panels: Vec<Panel> = figure.panels.iter().map(panel).collect();
        let rest = panels.split_off(panels.len().min(PANELS));
        FigureView {
            number,
            caption: figure.caption,
            legend: figure.legend.iter().map(key).collect(),
            panels,
            rest,
        }
    }
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

fn cell(class: &str, text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        class: class.into(),
        ..Cell::default()
    }
}

fn verdict_cell(mark: &Mark) -> Cell {
    Cell {
        title: mark
            .evidence
            .first()
            .map_or_else(String::new, |line| format!("{} {}", line.sign, line.text)),
        ..cell(&format!("mark {}", mark.class), format!("{} {}", mark.sign, mark.text))
    }
}

/// A line for every finding.
fn overview(rows: &[Row]) -> View {
    let mut head = vec![cell("key", "finding"), cell("", "claim"), cell("", "study's own table")];
    if let Some(row) = rows.first() {
        head.extend(row.here.iter().map(|mark| cell("", mark.system.clone())));
    }
    let line = |row: &Row| {
        let id = Cell {
            link: format!("#f-{}", row.id),
            ..cell("key", row.id.clone())
        };
        let marks = std::iter::once(&row.own).chain(&row.here).map(verdict_cell);
        [id, cell("claim", row.says.clone())].into_iter().chain(marks).collect()
    };
    View {
        head,
        rows: rows.iter().map(line).collect(),
        ..View::default()
    }
}

/// How many verdicts of each kind, by study.
fn totals(rows: &[Row]) -> View {
    const KINDS: [&str; 4] = ["holds", "refuted", "undecided", "not-testable"];
    let count = |marks: Vec<&Mark>| -> Vec<Cell> {
        let cell_of = |kind: &&str| {
            let n = marks.iter().filter(|mark| mark.class == *kind).count();
            cell(
                &format!("number {}", if n > 0 { kind } else { "not-testable" }),
                n.to_string(),
            )
        };
        KINDS.iter().map(cell_of).collect()
    };
    let head = ["results of", "✓ holds", "✗ refuted", "? undecided", "– not testable"];
    let head = head
        .iter()
        .enumerate()
        .map(|(n, text)| cell(if n == 0 { "key" } else { "number" }, *text));
    let mut lines = vec![(
        String::from("the studies' own tables"),
        rows.iter().map(|row| &row.own).collect::<Vec<_>>(),
    )];
    for n in 0..rows.first().map_or(0, |row| row.here.len()) {
        let marks: Vec<&Mark> = rows.iter().filter_map(|row| row.here.get(n)).collect();
        lines.push((
            marks.first().map_or_else(String::new, |mark| mark.system.clone()),
            marks,
        ));
    }
    let line = |(name, marks): (String, Vec<&Mark>)| std::iter::once(cell("key", name)).chain(count(marks)).collect();
    View {
        title: format!("{} findings, by whose results", rows.len()),
        head: head.collect(),
        rows: lines.into_iter().map(line).collect(),
        notes: Vec::new(),
    }
}

/// Samples taken of each experiment and switch, out of those requested.
fn coverage(results: &Results, scenarios: &[Scenario]) -> View {
    let names = results
        .samples
        .iter()
        .map(|s| s.system.as_str())
        .chain(results.skipped.iter().map(|s| s.system.as_str()));
    let names = names
        .chain(results.run.systems.keys().map(String::as_str))
        .filter(|name| !name.is_empty());
    let systems = looks::in_order(names);
    let head =
        std::iter::once(cell("key", "experiment")).chain(systems.iter().map(|name| cell("number", looks::title(name))));
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
                (n, Some(wanted), _) => Cell {
                    small: format!("of {wanted}"),
                    ..cell(if n == 0 { "number not-testable" } else { "number" }, n.to_string())
                },
                (n, None, _) => cell("number", n.to_string()),
            }
        };
        std::iter::once(name).chain(systems.iter().map(of)).collect()
    };
    View {
        title: "Samples taken, of those that the profile asks for".into(),
        head: head.collect(),
        rows: scenarios.iter().map(row).collect(),
        notes: vec!["“Not here”: the experiment's section says why.".into()],
    }
}

fn calibration(checks: &[crate::calibration::Check]) -> View {
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

/// How often verdicts are wrong.
fn wrong(rates: &[crate::findings::Rates]) -> View {
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
        let shares = [one.false_holds, one.false_refuted, one.power_holds, one.power_refuted];
        let shares = shares.map(|share| cell("number", format!("{:.1} %", 100.0 * share)));
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

fn invocations(results: &Results) -> View {
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
