//! Samples of one experiment by cell and system.

use super::exhibits::Among;
use super::looks;
use crate::results::{Acceleration, Sample, Skipped};
use crate::scenario::{Dimension, Fed, Profile, Scenario};
use crate::stats::Repeated;
use crate::traffic::Test;
use std::collections::{BTreeMap, BTreeSet};

/// Dimensions and their values.
pub(crate) type At = BTreeMap<String, String>;

/// The samples and skipped cells of one experiment.
#[derive(Clone, Debug)]
pub(crate) struct Summary<'a> {
    /// The experiment.
    pub scenario: &'a Scenario,
    /// Systems with samples, in their order.
    pub systems: Vec<&'a str>,
    /// Cells with samples, in the order of the dimensions' values.
    pub cells: Vec<At>,
    /// By system and place of the cell.
    samples: BTreeMap<(String, usize), Vec<&'a Sample>>,
    /// What could not be run.
    pub skipped: Vec<&'a Skipped>,
    /// The cells of the findings' tables that each cell's results feed, for any system.
    fed: Vec<Vec<Fed>>,
}

impl<'a> Summary<'a> {
    /// Of one experiment, from all samples.
    pub(crate) fn new(scenario: &'a Scenario, samples: &'a [Sample], skipped: &'a [Skipped]) -> Summary<'a> {
        // Void samples count for nothing.
        let own = samples
            .iter()
            .filter(|sample| sample.scenario == scenario.id && sample.is_valid());
        let own: Vec<&Sample> = own.collect();
        let mut cells: Vec<At> = Vec::new();
        for sample in &own {
            if !cells.contains(&sample.at) {
                cells.push(sample.at.clone());
            }
        }
        let values: Vec<Vec<String>> = scenario.varied.iter().map(|d| ordered(&cells, d)).collect();
        let place = |at: &At| -> Vec<usize> {
            let dimensions = scenario.varied.iter().zip(&values);
            dimensions
                .map(|(d, values)| {
                    values
                        .iter()
                        .position(|value| at.get(&d.name) == Some(value))
                        .unwrap_or(usize::MAX)
                })
                .collect()
        };
        cells.sort_by_key(place);
        let mut by: BTreeMap<(String, usize), Vec<&Sample>> = BTreeMap::new();
        for sample in &own {
            if let Some(cell) = cells.iter().position(|at| *at == sample.at) {
                by.entry((sample.system.clone(), cell)).or_default().push(sample);
            }
        }
        let fed = |at: &At| {
            let systems = ["oxvs", "ovs-kernel", "bridge"].into_iter();
            systems
                .flat_map(|system| scenario.feeds(at, system).unwrap_or_default())
                .collect()
        };
        let fed = cells.iter().map(fed).collect();
        Summary {
            fed,
            scenario,
            systems: looks::in_order(own.iter().map(|sample| sample.system.as_str())),
            cells,
            samples: by,
            skipped: skipped
                .iter()
                .filter(|skipped| skipped.scenario == scenario.id)
                .collect(),
        }
    }

    /// Only the cells with these values.
    pub(crate) fn only(&self, at: &Among) -> Summary<'a> {
        let is = |cell: &At| {
            let mut wanted = at.iter();
            wanted.all(|(name, values)| cell.get(name).is_some_and(|value| values.contains(value)))
        };
        let kept: Vec<usize> = (0..self.cells.len()).filter(|cell| is(&self.cells[*cell])).collect();
        let place = |cell: usize| kept.iter().position(|known| *known == cell);
        let samples = self.samples.iter();
        let samples: BTreeMap<(String, usize), Vec<&Sample>> = samples
            .filter_map(|((system, cell), samples)| Some(((system.clone(), place(*cell)?), samples.clone())))
            .collect();
        Summary {
            scenario: self.scenario,
            systems: looks::in_order(samples.values().flatten().map(|sample| sample.system.as_str())),
            cells: kept.iter().map(|cell| self.cells[*cell].clone()).collect(),
            samples,
            skipped: self.skipped.clone(),
            fed: kept.iter().map(|cell| self.fed[*cell].clone()).collect(),
        }
    }

    /// Samples of a system at a cell.
    pub(crate) fn samples(&self, system: &str, cell: usize) -> &[&'a Sample] {
        self.samples.get(&(system.to_owned(), cell)).map_or(&[], Vec::as_slice)
    }

    /// The cells of the findings' tables that a cell's results feed, for any system.
    pub(crate) fn fed(&self, cell: usize) -> &[Fed] {
        self.fed.get(cell).map_or(&[], Vec::as_slice)
    }

    /// All samples, with the place of their cell.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &'a Sample)> + '_ {
        let each = self.samples.iter();
        each.flat_map(|((_, cell), samples)| samples.iter().map(|sample| (*cell, *sample)))
    }

    /// What the hosts of its samples are, where it is not the machine itself.
    pub(crate) fn guests(&self) -> BTreeSet<Acceleration> {
        let all = self.all().filter_map(|(_, sample)| sample.validity.acceleration);
        all.filter(|kind| *kind != Acceleration::Namespaces).collect()
    }

    /// A metric at a cell, in the unit it is shown in.
    pub(crate) fn repeated(&self, system: &str, cell: usize, metric: &str, factor: f64) -> Repeated {
        Repeated::new(self.values(system, cell, metric, factor))
    }

    /// The same, of each repetition with the number of its testbed.
    pub(crate) fn values(&self, system: &str, cell: usize, metric: &str, factor: f64) -> Vec<(u32, f64)> {
        let value = |sample: &&Sample| Some((sample.testbed, sample.metrics.get(metric)? * factor));
        self.samples(system, cell).iter().filter_map(value).collect()
    }

    /// A distribution at a cell: shares and values, averaged over the repetitions.
    pub(crate) fn distribution(&self, system: &str, cell: usize, metric: &str, factor: f64) -> Vec<(f64, f64)> {
        let samples = self.samples(system, cell).iter();
        let all: Vec<&[(f64, f64)]> = samples
            .filter_map(|sample| sample.distributions.get(metric))
            .map(|distribution| distribution.quantiles.as_slice())
            .filter(|quantiles| !quantiles.is_empty())
            .collect();
        if all.is_empty() {
            return Vec::new();
        }
        let shares = (0..=100).map(|n| f64::from(n) / 100.0).chain([0.995, 0.999]);
        let mut shares: Vec<f64> = shares.collect();
        shares.sort_by(f64::total_cmp);
        let value = |share: f64| all.iter().map(|quantiles| at_share(quantiles, share)).sum::<f64>() / all.len() as f64;
        shares.into_iter().map(|share| (share, value(share) * factor)).collect()
    }

    /// The offered load of a cell in bit/s; the metric `flow.…` has the received part.
    pub(crate) fn offered(&self, cell: usize, metric: &str) -> Option<f64> {
        let at = self.cells.get(cell)?;
        let flow = metric.split('.').next()?;
        let cells = [Profile::Quick, Profile::Full]
            .into_iter()
            .flat_map(|profile| self.scenario.cells(profile));
        let setup = &cells.into_iter().find(|cell| cell.at == *at)?.setup;
        let flow = setup.measured.iter().find(|known| known.name == flow)?;
        match flow.test {
            Test::Cbr { rate, .. } => Some(rate as f64),
            _ => None,
        }
    }

    /// The values that a dimension has here: numbers in their order, others after them in that of
    /// the scenario.
    pub(crate) fn values_of(&self, dimension: &str) -> Vec<String> {
        let known = self.scenario.varied.iter().find(|known| known.name == dimension);
        known.map_or_else(Vec::new, |known| ordered(&self.cells, known))
    }

    /// A cell or a panel in words; empty without dimensions.
    pub(crate) fn name(&self, at: &At) -> String {
        let dimensions = self.scenario.varied.iter();
        let said = dimensions.filter_map(|dimension| Some(named(dimension, at.get(&dimension.name)?)));
        // Dimensions that the scenario does not describe are shown as they are.
        let unsaid = at
            .iter()
            .filter(|(name, _)| !self.scenario.varied.iter().any(|d| d.name == **name));
        let unsaid = unsaid.map(|(name, value)| format!("{name} {value}"));
        said.chain(unsaid).collect::<Vec<_>>().join(", ")
    }
}

/// A dimension's value without the dimension's name.
pub(crate) fn value_of(dimension: &Dimension, value: &str) -> String {
    match value.parse::<f64>() {
        Ok(_) if !dimension.unit.is_empty() => format!("{value} {}", dimension.unit),
        _ => value.replace('_', " "),
    }
}

/// A title within a sentence: without its capital, unless it is an abbreviation.
pub(crate) fn within(title: &str) -> String {
    if title.chars().nth(1).is_some_and(|second| !second.is_lowercase()) {
        return title.to_owned();
    }
    let first = title.chars().take(1).flat_map(char::to_lowercase);
    first.chain(title.chars().skip(1)).collect()
}

/// A dimension's value with the dimension's name, unless it has a unit.
pub(crate) fn named(dimension: &Dimension, value: &str) -> String {
    if value.parse::<f64>().is_ok() && !dimension.unit.is_empty() {
        return value_of(dimension, value);
    }
    let title = within(&dimension.title);
    format!("{title} {}", value_of(dimension, value))
}

fn ordered(cells: &[At], dimension: &Dimension) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in cells.iter().filter_map(|at| at.get(&dimension.name)) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    let number = |value: &String| value.parse::<f64>().unwrap_or(f64::INFINITY);
    let place = |value: &String| {
        dimension
            .full
            .iter()
            .chain(&dimension.quick)
            .position(|known| known == value)
    };
    values.sort_by(|a, b| number(a).total_cmp(&number(b)).then_with(|| place(a).cmp(&place(b))));
    values
}

/// The value that a share does not exceed, between neighbours in proportion.
fn at_share(quantiles: &[(f64, f64)], share: f64) -> f64 {
    let after = quantiles.partition_point(|(s, _)| *s < share);
    match (
        after.checked_sub(1).and_then(|n| quantiles.get(n)),
        quantiles.get(after),
    ) {
        (Some((s0, v0)), Some((s1, v1))) if s1 > s0 => v0 + (v1 - v0) * (share - s0) / (s1 - s0),
        (_, Some((_, value))) | (Some((_, value)), None) => *value,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: &str, system: &str, rtt: f64) -> Sample {
        let json = format!(
            r#"{{"scenario":"S0.x","system":"{system}","at":{{"payload":"{payload}"}},"repetition":0,"started":0,"seconds":1,"load":0,
                "metrics":{{"probe.rtt":{rtt}}},"distributions":{{"probe.rtt":{{"count":3,"quantiles":[[0.0,{rtt}],[1.0,{}]]}}}}}}"#,
            rtt * 2.0
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn samples_are_put_together_by_cell_in_the_order_of_values() {
        let scenario = crate::report::tests::scenario();
        let samples = [
            sample("1440", "bridge", 100.0),
            sample("100", "oxvs", 10.0),
            sample("auto", "oxvs", 10.0),
            sample("100", "oxvs", 14.0),
        ];
        let summary = Summary::new(&scenario, &samples, &[]);
        assert_eq!(summary.values_of("payload"), ["100", "1440", "auto"]);
        assert_eq!(summary.systems, ["oxvs", "bridge"]);
        assert_eq!(summary.repeated("oxvs", 0, "probe.rtt", 0.5).all.values(), [5.0, 7.0]);
        assert_eq!(summary.name(&summary.cells[0]), "100 B");
        let only = summary.only(&Among::from([("payload".into(), vec!["1440".into()])]));
        assert_eq!((only.cells.len(), only.systems.clone()), (1, vec!["bridge"]));
        assert_eq!(only.repeated("bridge", 0, "probe.rtt", 1.0).all.values(), [100.0]);
        let middle = summary.distribution("oxvs", 0, "probe.rtt", 1.0);
        assert_eq!(middle.iter().find(|(share, _)| *share == 0.5), Some(&(0.5, 18.0)));
    }
}
