//! Tables of an experiment: results beside the printed ones, reachability, and losses.

use super::looks;
use super::printed::Printed;
use super::summary::{Summary, value_of};
use super::svg::{number, rough};
use crate::scenario::{Better, Figure as Form, Metric, Profile};
use crate::stats::{Estimate, Repeated, Series};
use crate::topology::Link;
use serde::Serialize;
use std::collections::BTreeMap;

/// A table as a page shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct View {
    /// Above it.
    pub title: String,
    /// Of what was varied, then of results.
    pub head: Vec<Cell>,
    /// From above.
    pub rows: Vec<Vec<Cell>>,
    /// Below it.
    pub notes: Vec<String>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cell {
    /// Its text.
    pub text: String,
    /// Beside it, smaller.
    pub small: String,
    /// `key`, `number`, `print`, `best` and the like.
    pub class: String,
    /// Its tooltip.
    pub title: String,
    /// Its link.
    pub link: String,
    /// The switch whose result it is, if it is one's.
    pub of: String,
}

impl Cell {
    fn new(class: &str, text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            class: class.into(),
            ..Cell::default()
        }
    }

    /// The same, of a switch.
    pub(crate) fn of(self, switch: &str) -> Cell {
        Cell {
            of: switch.to_owned(),
            ..self
        }
    }
}

/// A metric by cell and system, with what the study printed.
pub(crate) fn results(summary: &Summary, printed: &Printed, metric: &Metric) -> View {
    let all: Vec<_> = (0..summary.cells.len())
        .map(|cell| printed.all(summary, cell, &metric.name))
        .collect();
    let mut labels: Vec<String> = Vec::new();
    for value in all.iter().flatten() {
        if !labels.contains(&value.label()) {
            labels.push(value.label());
        }
    }
    let dimensions = &summary.scenario.varied;
    let shown: Vec<_> = dimensions
        .iter()
        .filter(|d| summary.cells.iter().any(|at| at.contains_key(&d.name)))
        .collect();
    let mut head: Vec<Cell> = shown.iter().map(|d| Cell::new("key", d.title.clone())).collect();
    head.extend(
        summary
            .systems
            .iter()
            .map(|system| Cell::new("number", looks::title(system)).of(system)),
    );
    head.extend(labels.iter().map(|label| Cell::new("number print", label.clone())));
    let (mut outliers, mut repeated) = (false, false);
    let mut rows = Vec::new();
    for (cell, at) in summary.cells.iter().enumerate() {
        let mut row: Vec<Cell> = shown
            .iter()
            .map(|d| {
                Cell::new(
                    "key",
                    at.get(&d.name).map_or_else(String::new, |value| value_of(d, value)),
                )
            })
            .collect();
        let values: Vec<Repeated> = summary
            .systems
            .iter()
            .map(|system| summary.repeated(system, cell, &metric.name, metric.scale))
            .collect();
        if values.iter().all(|series| series.all.n() == 0) {
            continue;
        }
        let best = best(&values, metric);
        for (n, series) in values.iter().enumerate() {
            repeated |= series.beds.n() > 1;
            outliers |= !series.all.outliers().is_empty();
            row.push(result(series, best == Some(n), &metric.unit).of(summary.systems[n]));
        }
        for label in &labels {
            let value = all[cell].iter().find(|value| value.label() == *label);
            let estimate = value.map(|value| value.estimate.times(value.scale * metric.scale));
            row.push(estimate.map_or_else(|| Cell::new("number print", "–"), print));
        }
        rows.push(row);
    }
    let mut notes = vec![String::from(if repeated {
        "Mean ± half the 95 % confidence interval of the mean, or its ends if it would reach below zero."
    } else {
        "One testbed each: how far the mean of others would be from it is not known, and it decides no comparison."
    })];
    if outliers {
        notes.push("†: single results far from the others (Tukey's fences); they are in the mean.".into());
    }
    if rows.iter().flatten().any(|cell| cell.class.contains("best")) {
        notes.push("Bold: better than all other switches, by the 95 % intervals.".into());
    }
    View {
        title: match metric.unit.as_str() {
            "" => metric.title.clone(),
            unit => format!("{} ({unit})", metric.title),
        },
        head,
        rows,
        notes,
    }
}

fn result(series: &Repeated, best: bool, unit: &str) -> Cell {
    let (all, mean) = (&series.all, series.beds.mean());
    if all.n() == 0 {
        return Cell::new("number", "–");
    }
    let mark = if all.outliers().is_empty() { "" } else { " †" };
    let values: Vec<String> = all.values().iter().take(40).map(|value| number(*value)).collect();
    Cell {
        text: number(mean),
        small: half(series.beds.estimate(), all.values().iter().all(|value| *value >= 0.0)) + mark,
        class: if best { "number best".into() } else { "number".into() },
        title: format!(
            "{} {unit}, {} of {} repetitions: {}",
            number(mean),
            "mean",
            all.n(),
            values.join(", ")
        ),
        ..Cell::default()
    }
}

fn print(estimate: Estimate) -> Cell {
    Cell {
        text: number(estimate.mean()),
        small: half(estimate, estimate.mean() >= 0.0),
        class: "number print".into(),
        ..Cell::default()
    }
}

/// The interval of a mean: half of it, or of what is never negative its ends, if it would be below
/// zero.
fn half(estimate: Estimate, is_never_negative: bool) -> String {
    let interval = estimate.interval(0.95);
    if is_never_negative && interval.low < 0.0 {
        format!("0 to {}", rough(interval.high))
    } else if interval.high > interval.low {
        format!("± {}", rough((interval.high - interval.low) / 2.0))
    } else {
        String::new()
    }
}

/// The one whose interval lies on the good side of all others'.
fn best(values: &[Repeated], metric: &Metric) -> Option<usize> {
    let better = metric.better?;
    let intervals: Vec<_> = values
        .iter()
        .map(|series| (series.beds.n() > 1).then(|| series.beds.interval(0.95)))
        .collect();
    let alone = intervals.iter().flatten().count() < 2;
    let ahead = |n: &usize| {
        let Some(own) = intervals[*n] else { return false };
        let others = intervals
            .iter()
            .enumerate()
            .filter(|(m, _)| m != n)
            .filter_map(|(_, other)| *other);
        let beats = |other: crate::stats::Interval| match better {
            Better::Higher => own.low > other.high,
            Better::Lower => own.high < other.low,
        };
        others.into_iter().all(beats)
    };
    (0..values.len()).find(ahead).filter(|_| !alone)
}

/// Reachability for each matrix of the scenario, each cell and system: metrics `NAME.FROM-TO`.
pub(crate) fn matrices(summary: &Summary) -> Vec<View> {
    let asked = summary.scenario.figures.iter().filter_map(|form| match form {
        Form::Matrix { of } => Some(of),
        _ => None,
    });
    let mut views = Vec::new();
    for of in asked {
        for (cell, at) in summary.cells.iter().enumerate() {
            for system in &summary.systems {
                views.extend(matrix(summary, of, cell, system).map(|view| {
                    View {
                        title: [looks::title(system).to_owned(), summary.name(at)]
                            .join(" ")
                            .trim()
                            .to_owned(),
                        ..view
                    }
                }));
            }
        }
    }
    views
}

fn matrix(summary: &Summary, of: &str, cell: usize, system: &str) -> Option<View> {
    let prefix = format!("{of}.");
    let mut reached: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for sample in summary.samples(system, cell) {
        for (name, value) in &sample.metrics {
            let pair = name.strip_prefix(&prefix).and_then(|pair| pair.split_once('-'));
            let Some((from, to)) = pair.filter(|(from, _)| !from.contains('.')) else {
                continue;
            };
            let least = reached.entry((from, to)).or_insert(*value);
            *least = least.min(*value);
        }
    }
    let mut hosts: Vec<&str> = reached.keys().flat_map(|(from, to)| [*from, *to]).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts.is_empty() {
        return None;
    }
    let row = |from: &&str| {
        let cell = |to: &&str| match reached.get(&(*from, *to)) {
            Some(value) if *value > 0.0 => Cell::new("yes", "✓ reached"),
            Some(_) => Cell::new("no", "✗ not reached"),
            None => Cell::new("", "·"),
        };
        let name = Cell::new("key", *from);
        std::iter::once(name).chain(hosts.iter().map(cell)).collect()
    };
    let head = std::iter::once(Cell::new("key", "from \\ to")).chain(hosts.iter().map(|host| Cell::new("", *host)));
    Some(View {
        head: head.collect(),
        rows: hosts.iter().map(row).collect(),
        ..View::default()
    })
}

/// Whether ports of a cell's testbed are policed.
pub(crate) fn is_policed(summary: &Summary, at: &BTreeMap<String, String>) -> bool {
    let cells = [Profile::Full, Profile::Quick].map(|profile| summary.scenario.cells(profile));
    let cell = cells.into_iter().flatten().find(|cell| cell.at == *at);
    let is_policed = |link: &Link| link.a.port.policing.is_some() || link.b.port.policing.is_some();
    cell.is_some_and(|cell| cell.setup.topology.links.iter().any(is_policed))
}

/// Where packets were lost: means of a sample, by cause and place; those of cells with policed
/// ports apart from the others. None without losses.
pub(crate) fn losses(summary: &Summary) -> Option<View> {
    let mut by: BTreeMap<(bool, &str, &str), BTreeMap<&str, f64>> = BTreeMap::new();
    let mut count: BTreeMap<(bool, &str), f64> = BTreeMap::new();
    for (cell, sample) in summary.all() {
        let policed = summary.cells.get(cell).is_some_and(|at| is_policed(summary, at));
        *count.entry((policed, &sample.system)).or_default() += 1.0;
        for loss in &sample.losses {
            *by.entry((policed, &loss.cause, &loss.place))
                .or_default()
                .entry(&sample.system)
                .or_default() += loss.packets as f64;
        }
    }
    by.retain(|_, of| of.values().any(|packets| *packets > 0.0));
    if by.is_empty() {
        return None;
    }
    let both = [true, false].map(|policed| count.keys().any(|(of, _)| *of == policed)) == [true; 2];
    let head = [Cell::new("key", "cause"), Cell::new("key", "place")].into_iter();
    let head = head.chain(
        summary
            .systems
            .iter()
            .map(|system| Cell::new("number", looks::title(system)).of(system)),
    );
    let rows = by.iter().map(|((policed, cause, place), of)| {
        let class = if *cause == "unexplained" { "key warn" } else { "key" };
        let cells = match (both, policed) {
            (false, _) => "",
            (true, true) => ", policed ports",
            (true, false) => ", unpoliced ports",
        };
        let names = [Cell::new(class, format!("{cause}{cells}")), Cell::new("key", *place)].into_iter();
        let cell = |system: &&str| {
            let mean = of
                .get(system)
                .map(|packets| packets / count.get(&(*policed, *system)).copied().unwrap_or(1.0));
            Cell::new("number", mean.map_or_else(|| "0".into(), number)).of(system)
        };
        names.chain(summary.systems.iter().map(cell)).collect()
    });
    Some(View {
        title: "Where packets were lost (packets a sample, mean over all cells)".into(),
        head: head.collect(),
        rows: rows.collect(),
        notes: Vec::new(),
    })
}

/// Processors busy for the switch and for everything else, mean over all samples.
pub(crate) fn cost(summary: &Summary) -> Option<View> {
    let mean = |system: &str, of: &dyn Fn(&crate::results::Sample) -> Option<f64>| {
        let own = summary.all().filter(|(_, sample)| sample.system == system);
        let series = Series::new(own.filter_map(|(_, sample)| of(sample)));
        Cell::new(
            "number",
            if series.n() == 0 {
                "–".into()
            } else {
                number(series.mean())
            },
        )
    };
    let used = |who: &'static str| {
        move |sample: &crate::results::Sample| {
            let seconds = sample
                .cpu
                .get(who)
                .or_else(|| sample.cpu.get(&sample.system).filter(|_| who == "system"))?;
            (sample.seconds > 0.0).then(|| seconds / sample.seconds)
        }
    };
    type Of = Box<dyn Fn(&crate::results::Sample) -> Option<f64>>;
    let kinds: [(&str, Of); 4] = [
        ("the switch", Box::new(used("system"))),
        ("the laboratory's hosts and cables", Box::new(used("lab"))),
        ("of these, reading counters over time", Box::new(used("series"))),
        ("anything else (should be near 0)", Box::new(|sample| Some(sample.load))),
    ];
    if summary.systems.is_empty() {
        return None;
    }
    let head = std::iter::once(Cell::new("key", "used by"));
    let head = head.chain(
        summary
            .systems
            .iter()
            .map(|system| Cell::new("number", looks::title(system)).of(system)),
    );
    let rows = kinds.iter().map(|(name, of)| {
        let cells = summary.systems.iter().map(|system| mean(system, of).of(system));
        std::iter::once(Cell::new("key", *name)).chain(cells).collect()
    });
    Some(View {
        title: "Processors busy (mean over all samples)".into(),
        head: head.collect(),
        rows: rows.collect(),
        notes: Vec::new(),
    })
}
