//! Compares two runs: the differences, their significance and their size.
//!
//! Every metric that a scenario shows is compared in every cell and on every system that both runs
//! have. Many comparisons find differences by chance, so Holm's method corrects their
//! probabilities: less than one in twenty pairs of equal runs reports any difference.

use crate::results::{Results, Sample};
use crate::scenario::{Better, Metric, Scenario};
use crate::stats::{Series, compare as judge};
use serde::Serialize;
use std::collections::BTreeMap;

/// Two runs compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// In the order of scenarios, systems, cells and metrics.
    pub comparisons: Vec<Comparison>,
    /// Why the comparison should be taken with care.
    pub remarks: Vec<String>,
}

/// A metric of a cell on a system, in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Id of the scenario.
    pub scenario: String,
    /// Name of the system.
    pub system: String,
    /// The cell.
    pub at: BTreeMap<String, String>,
    /// Name of the metric.
    pub metric: String,
    /// Of the values that follow.
    pub unit: String,
    /// The first run, the reference.
    pub a: Summary,
    /// The second.
    pub b: Summary,
    /// Mean of the second over mean of the first, and its 95 % interval; none where one is not
    /// positive.
    pub ratio: Option<[f64; 3]>,
    /// Probability of such a difference by chance, of this comparison alone.
    pub p: f64,
    /// The same, corrected for the number of comparisons.
    pub corrected: f64,
    /// Cliff's delta: -1 (all values of the second are smaller) to 1.
    pub delta: f64,
    /// The size of the effect.
    pub size: Size,
    /// It is no chance: `corrected` is under [`LEVEL`].
    pub different: bool,
    /// Which way the difference goes; none where neither is better, or there is none.
    pub verdict: Option<Verdict>,
}

/// Repetitions in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

/// Size of a difference, by Cliff's delta (Romano et al. 2006).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Up to 0.147.
    Negligible,
    /// Up to 0.33.
    Small,
    /// Up to 0.474.
    Medium,
    /// Above.
    Large,
}

/// The verdict on the second run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better than the first.
    Better,
    /// Worse than the first.
    Worse,
}

/// A corrected probability below this is no chance.
pub const LEVEL: f64 = 0.05;

/// Compares the second run with the first.
pub fn compare(a: &Results, b: &Results) -> Compared {
    let mut comparisons = Vec::new();
    let mut remarks = remarks(a, b);
    let (in_a, in_b) = (cells(a), cells(b));
    for (id, experiment) in &a.run.scenarios {
        if !b.run.scenarios.contains_key(id) {
            continue;
        }
        let Ok(scenario) = Scenario::parse(&experiment.file, &experiment.text) else {
            remarks.push(format!(
                "{id}: its file cannot be read by this oxvs; it is not compared"
            ));
            continue;
        };
        let here = in_a.iter().filter(|((of, _, _), _)| of == id);
        let both = here.filter_map(|(cell, first)| Some((cell, first, in_b.get(cell)?)));
        for ((_, system, at), first, second) in both {
            for metric in &scenario.metrics {
                let (first, second) = (series(first, metric), series(second, metric));
                if first.n() > 0 && second.n() > 0 {
                    comparisons.push(comparison((id, system, at), metric, &first, &second));
                }
            }
        }
    }
    correct(&mut comparisons);
    Compared { comparisons, remarks }
}

fn comparison(
    (scenario, system, at): (&str, &str, &BTreeMap<String, String>),
    metric: &Metric,
    a: &Series,
    b: &Series,
) -> Comparison {
    let found = judge(b, a);
    let size = match found.delta.abs() {
        ..=0.147 => Size::Negligible,
        ..=0.33 => Size::Small,
        ..=0.474 => Size::Medium,
        _ => Size::Large,
    };
    let up = b.mean() > a.mean();
    let verdict = metric.better.map(|better| match (better, up) {
        (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
        (Better::Higher, false) | (Better::Lower, true) => Verdict::Worse,
    });
    Comparison {
        scenario: scenario.to_owned(),
        system: system.to_owned(),
        at: at.clone(),
        metric: metric.name.clone(),
        unit: metric.unit.clone(),
        a: summary(a),
        b: summary(b),
        ratio: found.ratio.map(|ratio| {
            let interval = ratio.interval(0.95);
            [ratio.value, interval.low, interval.high]
        }),
        p: probability(a, b, found.welch),
        corrected: 1.0,
        delta: found.delta,
        size,
        different: false,
        verdict,
    }
}

/// By Welch's test; without variance, which that test takes for certainty, by the number of
/// permutations of the values.
fn probability(a: &Series, b: &Series, welch: f64) -> f64 {
    if a.deviation() > 0.0 || b.deviation() > 0.0 || a.mean() == b.mean() {
        return welch;
    }
    let (n, m) = (a.n() as f64, b.n() as f64);
    let mut ways = 1.0;
    let mut k = 1.0;
    while k <= m {
        ways *= (n + k) / k;
        k += 1.0;
    }
    (2.0 / ways).min(1.0)
}

/// Holm's method: the smallest probability counts as often as there are comparisons, the next once
/// less, and none less than the one before.
fn correct(comparisons: &mut [Comparison]) {
    let mut order: Vec<usize> = (0..comparisons.len()).collect();
    order.sort_by(|a, b| comparisons[*a].p.total_cmp(&comparisons[*b].p));
    let (mut least, all) = (0.0_f64, comparisons.len());
    for (place, number) in order.into_iter().enumerate() {
        let one = &mut comparisons[number];
        least = least.max((one.p * (all - place) as f64).min(1.0));
        one.corrected = least;
        one.different = least < LEVEL;
        if !one.different {
            one.verdict = None;
        }
    }
}

fn summary(series: &Series) -> Summary {
    Summary {
        n: series.n(),
        mean: series.mean(),
        deviation: series.deviation(),
    }
}

/// A scenario, a system and a cell.
type Cell<'a> = (&'a str, &'a str, &'a BTreeMap<String, String>);

fn cells(results: &Results) -> BTreeMap<Cell<'_>, Vec<&Sample>> {
    let mut cells: BTreeMap<Cell<'_>, Vec<&Sample>> = BTreeMap::new();
    for sample in &results.samples {
        let cell = (sample.scenario.as_str(), sample.system.as_str(), &sample.at);
        cells.entry(cell).or_default().push(sample);
    }
    cells
}

fn series(samples: &[&Sample], metric: &Metric) -> Series {
    let values = samples.iter().filter_map(|sample| sample.metrics.get(&metric.name));
    Series::new(values.map(|value| value * metric.scale))
}

fn remarks(a: &Results, b: &Results) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(difference) = b.run.machine.differs(&a.run.machine) {
        remarks.push(format!("the second run was made on another machine: {difference}"));
    }
    if a.run.profile != b.run.profile {
        remarks.push(
            "one run is quick and the other is full: durations differ, and with them what can be reached".to_owned(),
        );
    }
    if a.run.in_guest != b.run.in_guest {
        remarks.push("one run was made in a virtual machine".to_owned());
    }
    for (id, experiment) in &a.run.scenarios {
        match b.run.scenarios.get(id) {
            None => remarks.push(format!("{id}: only in the first run")),
            Some(other) if other.hash != experiment.hash => {
                remarks.push(format!(
                    "{id}: its file is not the same in both runs; the first's is used"
                ));
            }
            Some(_) => {}
        }
    }
    remarks.extend(
        b.run
            .scenarios
            .keys()
            .filter(|id| !a.run.scenarios.contains_key(*id))
            .map(|id| format!("{id}: only in the second run")),
    );
    for (name, description) in &a.run.systems {
        if let Some(other) = b.run.systems.get(name).filter(|other| *other != description) {
            remarks.push(format!("{name}: {description}; in the second run {other}"));
        }
    }
    remarks
}

#[cfg(test)]
mod tests;
