//! Compares a run with a reference: the differences, their significance and their size.
//!
//! Every metric that a scenario shows is compared in every cell and on every system that both
//! have. Many comparisons find differences by chance, so Holm's method corrects their
//! probabilities: where repetitions have testbeds of their own, less than one in twenty pairs of
//! equal runs reports any difference. A page of verdicts may have a wrong one in twenty; an alarm
//! that stops a change may not. Quick runs differ by more than their one testbed tells;
//! docs/lab.md says how often they are called different wrongly.

mod difference;
mod itself;
mod junit;
mod yardstick;

use crate::results::{Remote, Results, Run, Sample};
use crate::scenario::{Better, Metric, Scenario};
use crate::stats::{Repeated, Series};
use difference::{Difference, delta, means};
pub use itself::itself;
pub use junit::junit;
use serde::Serialize;
use std::collections::BTreeMap;
use yardstick::yardsticks;

/// A run compared with a reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// In the order of scenarios, systems, cells and metrics.
    pub comparisons: Vec<Comparison>,
    /// Why the comparison should be taken with care.
    pub remarks: Vec<String>,
    /// A corrected probability below this is no chance.
    pub level: f64,
}

/// A metric of a cell on a system, in the reference and in the run.
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
    /// The reference.
    pub a: Summary,
    /// The run.
    pub b: Summary,
    /// Mean of the run over mean of the reference, and its 95 % interval; none where one is not
    /// positive, or nothing is known of the spread.
    pub ratio: Option<[f64; 3]>,
    /// Probability of such a difference by chance, of this comparison alone.
    pub p: f64,
    /// The same, corrected for the number of comparisons.
    pub corrected: f64,
    /// Cliff's delta: -1 (all values of the second are smaller) to 1.
    pub delta: f64,
    /// The size of the effect.
    pub size: Size,
    /// How many times worse the run may be: the confidence bound of the ratio on the side that is
    /// worse, corrected for the number of comparisons. Values without spread are taken for certain.
    /// None (in JSON also where there is no bound) where neither direction is better, a mean is not
    /// positive, or nothing is known of the spread.
    pub worst: Option<f64>,
    /// It is no chance: `corrected` is under the level.
    pub different: bool,
    /// Which values of the metric are better; none where neither are.
    #[serde(skip)]
    pub better: Option<Better>,
    /// Which way the difference goes; none where neither is better, or there is none.
    pub verdict: Option<Verdict>,
}

/// Repetitions in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub n: usize,
    /// Their mean: the geometric one of the testbeds, if all values compared with each other are
    /// positive.
    pub mean: f64,
    /// The standard deviation of all values.
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

/// The probability that equal runs are called different, by one or more of their comparisons.
pub const LEVEL: f64 = 0.05;

impl Comparison {
    /// Its cell in words.
    pub fn place(&self) -> String {
        let values = self.at.iter().map(|(key, value)| format!("{key} {value}"));
        values.collect::<Vec<_>>().join(", ")
    }

    /// What the metric measures, of whichever flow: the last part of its name.
    fn kind(&self) -> &str {
        self.metric.rsplit('.').next().unwrap_or_default()
    }

    /// Its numbers in words.
    pub fn in_words(&self) -> String {
        let ratio = self.ratio.map_or_else(String::new, |[value, low, high]| {
            format!(", {value:.3} times ({low:.3} to {high:.3})")
        });
        format!(
            "{} {} instead of {} {}{ratio}, p {:.2e}",
            self.b.mean, self.unit, self.a.mean, self.unit, self.corrected
        )
    }
}

/// Splits a run of two builds in turns into a run of each.
///
/// # Errors
/// It is no such run.
pub fn builds(both: &Results) -> anyhow::Result<(Results, Results)> {
    const SWITCH: &str = "oxvs";
    let one = |name: &str| {
        let mut one = both.clone();
        one.samples.retain(|sample| sample.system == name);
        one.samples
            .iter_mut()
            .for_each(|sample| sample.system = SWITCH.to_owned());
        let description = both.run.systems.get(name).cloned();
        let description =
            description.ok_or_else(|| anyhow::anyhow!("it is no run of two builds: it has no '{name}'"))?;
        one.run.systems = [(SWITCH.to_owned(), description)].into();
        Ok::<_, anyhow::Error>(one)
    };
    Ok((one("A")?, one("B")?))
}

/// How often two builds are compared at most. The repetitions of a cell double after each of the
/// looks but the last.
pub const MOST_LOOKS: u32 = 4;

/// What makes a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// Up to a factor of `1 + threshold` there is none.
    pub threshold: f64,
    /// See [`LEVEL`], which it is where a run is compared once.
    pub level: f64,
}

impl Criterion {
    /// Of runs that are compared once.
    pub fn once(threshold: f64) -> Criterion {
        Criterion {
            threshold,
            level: LEVEL,
        }
    }

    /// Of two builds in turns. Who looks several times to decide whether to go on has several
    /// chances to err, so each look has its part of the level.
    pub fn of(run: &Run, threshold: f64) -> Criterion {
        let looks = if run.looks == 0 { 1 } else { MOST_LOOKS };
        Criterion {
            threshold,
            level: LEVEL / f64::from(looks),
        }
    }
}

/// Compares a run with the runs of a reference, one or more, each other than the rest.
pub fn compare(reference: &[Results], b: &Results, criterion: Criterion) -> Compared {
    let mut comparisons = Vec::new();
    let mut differences = Vec::new();
    let mut remarks = Vec::new();
    let level = criterion.level;
    let Some((a, others)) = reference.split_first() else {
        return Compared {
            comparisons,
            remarks,
            level,
        };
    };
    for (number, other) in (2..).zip(others) {
        remarks.extend(unlike(a, other, &format!("run {number} of the reference")));
    }
    remarks.extend(unlike(a, b, "the compared run"));
    let is_alone = |id: &&String| !reference.iter().any(|run| run.run.scenarios.contains_key(*id));
    let alone = b.run.scenarios.keys().filter(is_alone);
    remarks.extend(alone.map(|id| format!("{id}: only in the compared run")));
    let (in_a, in_b) = (cells(reference), cells(std::slice::from_ref(b)));
    let mut experiments = BTreeMap::new();
    for run in reference.iter().rev() {
        experiments.extend(&run.run.scenarios);
    }
    for (id, experiment) in experiments {
        if !b.run.scenarios.contains_key(id) {
            continue;
        }
        let Ok(scenario) = Scenario::parse(&experiment.file, &experiment.text) else {
            remarks.push(format!(
                "{id}: its file cannot be read by this oxvs; it is not compared"
            ));
            continue;
        };
        // Other files' samples would be taken for noise.
        let is_same = |run: usize| {
            let other = reference[run].run.scenarios.get(id);
            other.is_some_and(|other| other.hash == experiment.hash)
        };
        let here = in_a.iter().filter(|((of, _, _), _)| of == id);
        let both = here.filter_map(|(cell, first)| Some((cell, first, in_b.get(cell)?)));
        for ((_, system, at), first, second) in both {
            let first: Vec<_> = first.iter().copied().filter(|(run, _)| is_same(*run)).collect();
            for metric in &scenario.metrics {
                let (first, second) = (repeated(&first, metric), repeated(second, metric));
                if first.all.n() > 0 && second.all.n() > 0 {
                    differences.push(Difference::new(&first, &second, criterion.threshold));
                    comparisons.push(comparison((id, system, at), metric, &first, &second));
                }
            }
        }
    }
    judge(&mut comparisons, &differences, criterion);
    correct(&mut comparisons, level);
    Compared {
        comparisons,
        remarks,
        level,
    }
}

fn repeated(samples: &[(usize, &Sample)], metric: &Metric) -> Repeated {
    let value = |(run, sample): &(usize, &Sample)| {
        let value = sample.metrics.get(&metric.name)? * metric.scale;
        Some(((*run, sample.testbed), value))
    };
    Repeated::new(samples.iter().filter_map(value))
}

fn comparison(
    (scenario, system, at): (&str, &str, &BTreeMap<String, String>),
    metric: &Metric,
    a: &Repeated,
    b: &Repeated,
) -> Comparison {
    let delta = delta(&a.all, &b.all);
    let [first, second] = means(a, b);
    let size = match delta.abs() {
        ..=0.147 => Size::Negligible,
        ..=0.33 => Size::Small,
        ..=0.474 => Size::Medium,
        _ => Size::Large,
    };
    let verdict = metric.better.map(|better| match (better, second > first) {
        (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
        (Better::Higher, false) | (Better::Lower, true) => Verdict::Worse,
    });
    Comparison {
        scenario: scenario.to_owned(),
        system: system.to_owned(),
        at: at.clone(),
        metric: metric.name.clone(),
        unit: metric.unit.clone(),
        a: summary(&a.all, first),
        b: summary(&b.all, second),
        ratio: None,
        p: 1.0,
        corrected: 1.0,
        delta,
        size,
        worst: None,
        different: false,
        better: metric.better,
        verdict,
    }
}

/// Probabilities and intervals.
fn judge(comparisons: &mut [Comparison], differences: &[Difference], criterion: Criterion) {
    let yardsticks = yardsticks(comparisons, differences);
    let all = comparisons.len() as f64;
    for ((one, difference), yardstick) in comparisons.iter_mut().zip(differences).zip(yardsticks) {
        one.p = difference.chance(yardstick, criterion.threshold);
        one.ratio = difference
            .interval(yardstick, 0.95)
            .filter(|_| one.a.mean > 0.0)
            .map(|[low, high]| [one.b.mean / one.a.mean, low, high]);
        // A bound on one side has all of the level.
        let widest = difference.interval(yardstick, 1.0 - 2.0 * criterion.level / all);
        one.worst = widest.zip(one.better).map(|([low, high], better)| match better {
            Better::Lower => high,
            Better::Higher => 1.0 / low,
        });
    }
}

/// The comparisons by which the run may be `factor` times worse and is not called worse. Those with
/// a mean of 0 are none: it has no ratio.
pub fn inconclusive(compared: &Compared, factor: f64) -> impl Iterator<Item = &Comparison> {
    let is_open = move |one: &&Comparison| {
        let has_worse = one.better.is_some() && one.a.mean > 0.0 && one.b.mean > 0.0;
        has_worse && one.verdict != Some(Verdict::Worse) && one.worst.is_none_or(|worst| worst >= factor)
    };
    compared.comparisons.iter().filter(is_open)
}

/// Holm's method: the smallest probability counts as often as there are comparisons, the next once
/// less, and none less than the one before.
fn correct(comparisons: &mut [Comparison], level: f64) {
    let mut order: Vec<usize> = (0..comparisons.len()).collect();
    order.sort_by(|a, b| comparisons[*a].p.total_cmp(&comparisons[*b].p));
    let (mut least, all) = (0.0_f64, comparisons.len());
    for (place, number) in order.into_iter().enumerate() {
        let one = &mut comparisons[number];
        least = least.max((one.p * (all - place) as f64).min(1.0));
        one.corrected = least;
        one.different = least < level;
        if !one.different {
            one.verdict = None;
        }
    }
}

fn summary(series: &Series, mean: f64) -> Summary {
    Summary {
        n: series.n(),
        mean,
        deviation: series.deviation(),
    }
}

/// A scenario, a system and a cell.
type Cell<'a> = (&'a str, &'a str, &'a BTreeMap<String, String>);

/// The samples of each cell, with the numbers of their runs.
fn cells(runs: &[Results]) -> BTreeMap<Cell<'_>, Vec<(usize, &Sample)>> {
    let mut cells: BTreeMap<Cell<'_>, Vec<(usize, &Sample)>> = BTreeMap::new();
    for (run, results) in runs.iter().enumerate() {
        for sample in &results.samples {
            let cell = (sample.scenario.as_str(), sample.system.as_str(), &sample.at);
            cells.entry(cell).or_default().push((run, sample));
        }
    }
    cells
}

/// What makes a run, the `other`, unlike the first of the reference.
fn unlike(a: &Results, b: &Results, other: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(difference) = b.run.machine.differs(&a.run.machine) {
        remarks.push(format!("{other} was made on another machine: {difference}"));
    }
    if let Some(difference) = Remote::differ(b.run.remote.as_ref(), a.run.remote.as_ref()) {
        remarks.push(format!(
            "{other} was made with another machine for the switch: {difference}"
        ));
    }
    if a.run.profile != b.run.profile {
        remarks.push(format!(
            "{other} is not of the same profile, quick or full: durations differ, and with them what can be reached"
        ));
    }
    if a.run.in_guest != b.run.in_guest {
        remarks.push(format!("either the reference or {other} was made in a virtual machine"));
    }
    for (id, experiment) in &a.run.scenarios {
        match b.run.scenarios.get(id) {
            None => remarks.push(format!("{id}: not in {other}")),
            Some(same) if same.hash != experiment.hash => {
                remarks.push(format!(
                    "{id}: its file in {other} is not the reference's, which is used"
                ));
            }
            Some(_) => {}
        }
    }
    for (name, description) in &a.run.systems {
        if let Some(differs) = b.run.systems.get(name).filter(|differs| *differs != description) {
            remarks.push(format!("{name}: {description}; in {other} {differs}"));
        }
    }
    remarks
}

#[cfg(test)]
mod tests;
