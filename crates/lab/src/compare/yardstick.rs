//! What a difference is measured by where a cell has one testbed, as those of quick runs have.

use super::Comparison;
use super::difference::{Difference, Standing};
use crate::stats::Series;
use std::collections::BTreeMap;

/// What differences of cells with one testbed are measured by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Yardstick {
    /// The standard deviation of the differences of cells between two runs. Most pairs of cells
    /// differ by nothing but their testbeds, so the median deviation of all shows it, whatever a
    /// few cells that really differ do (Efron's empirical null).
    Cells { spread: f64 },
    /// The standard deviation of logarithms between equal runs, with its degrees of freedom: by
    /// the runs of the reference, pooled over the cells of an experiment and metric, and drawn
    /// towards what is usual (Smyth 2004, the moderated t statistic).
    Runs { deviation: f64, freedom: f64 },
}

/// Fewer of a system's cells show no spread.
const LEAST: usize = 8;
/// The same of cells that are alike, whose spread only replaces a smaller one.
const LEAST_ALIKE: usize = 2;
/// The standard deviation of a normal distribution, in median deviations.
const NORMAL: f64 = 1.4826;
/// The degrees of freedom that what is usual counts for. Fewer find less; with more, a metric that
/// varies by nature is taken for a difference.
const USUAL: f64 = 4.0;

/// Of each comparison; none where it has several testbeds, or too little is known.
pub(super) fn yardsticks(comparisons: &[Comparison], differences: &[Difference]) -> Vec<Option<Yardstick>> {
    let standing: Vec<(&Comparison, Standing)> = comparisons
        .iter()
        .zip(differences)
        .filter_map(|(one, difference)| Some((one, difference.standing()?)))
        .collect();
    let (several, single) = standing
        .into_iter()
        .partition::<Vec<_>, _>(|(_, standing)| standing.testbeds > 1.0);
    let (of_runs, of_cells) = (Runs::new(&several), Cells(single));
    let of = |(one, difference): (&Comparison, &Difference)| match difference.standing()?.testbeds > 1.0 {
        true => of_runs.yardstick(one),
        false => of_cells.yardstick(one),
    };
    comparisons.iter().zip(differences).map(of).collect()
}

/// Cells whose noise is taken for equal: of a system, an experiment and a metric.
type Group<'a> = (&'a str, &'a str, &'a str);

fn group(one: &Comparison) -> Group<'_> {
    (&one.system, &one.scenario, &one.metric)
}

/// Cells with several runs of the reference.
struct Runs<'a> {
    /// The squares of the deviations from the cells' means, summed, and their degrees of freedom.
    groups: BTreeMap<Group<'a>, (f64, f64)>,
}

impl<'a> Runs<'a> {
    fn new(cells: &[(&'a Comparison, Standing)]) -> Runs<'a> {
        let mut groups: BTreeMap<Group<'_>, (f64, f64)> = BTreeMap::new();
        for (one, standing) in cells {
            let (squares, freedom) = groups.entry(group(one)).or_default();
            *squares += standing.squares;
            *freedom += standing.testbeds - 1.0;
        }
        Runs { groups }
    }

    fn yardstick(&self, one: &Comparison) -> Option<Yardstick> {
        let (squares, freedom) = self.groups.get(&group(one))?;
        let own = self.groups.iter().filter(|((system, _, _), _)| *system == one.system);
        let usual = Series::new(own.map(|(_, (squares, freedom))| squares / freedom)).quantile(0.5);
        let freedom = freedom + USUAL;
        Some(Yardstick::Runs {
            deviation: ((squares + USUAL * usual) / freedom).sqrt(),
            freedom,
        })
    }
}

/// Cells with one run of the reference.
struct Cells<'a>(Vec<(&'a Comparison, Standing)>);

impl Cells<'_> {
    /// The spread of all the system's cells, and no less than that of their own experiment's, and
    /// than that of all cells with their kind of metric: jitter and the longest of many delays
    /// differ more between equal testbeds than throughput does.
    fn yardstick(&self, one: &Comparison) -> Option<Yardstick> {
        let all = self.spread(LEAST, |other| other.system == one.system)?;
        let own = self.spread(LEAST_ALIKE, |other| {
            other.system == one.system && other.scenario == one.scenario
        });
        let alike = self.spread(LEAST_ALIKE, |other| {
            other.system == one.system && other.kind() == one.kind()
        });
        let spread = all.max(own.unwrap_or(0.0)).max(alike.unwrap_or(0.0));
        Some(Yardstick::Cells { spread })
    }

    /// None if there are fewer than `least`.
    fn spread(&self, least: usize, wanted: impl Fn(&Comparison) -> bool) -> Option<f64> {
        let wanted = self.0.iter().filter(|(one, _)| wanted(one));
        let differences = Series::new(wanted.map(|(_, standing)| standing.difference));
        let middle = differences.quantile(0.5);
        let deviations = Series::new(differences.values().iter().map(|value| (value - middle).abs()));
        (differences.n() >= least).then(|| NORMAL * deviations.quantile(0.5))
    }
}
