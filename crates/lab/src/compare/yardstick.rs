//! The noise that a difference is tested against where a cell has one testbed, as those of quick
//! runs have.

use super::Comparison;
use super::difference::{Difference, Standing};
use crate::stats::Series;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The noise of a difference of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Yardstick {
    /// Its standard deviation.
    pub error: f64,
    /// The degrees of freedom of Student's distribution.
    pub freedom: f64,
}

/// Fewer of a system's cells, or metrics, show no spread.
const LEAST: usize = 8;
/// The same of cells that are alike, whose spread only replaces a smaller one.
const LEAST_ALIKE: usize = 2;
/// The standard deviation of a normal distribution, in median deviations.
const NORMAL: f64 = 1.4826;
/// The degrees of freedom that what other cells tell counts for. It is no normal distribution's:
/// noise differs between cells. More find smaller differences, and more of them wrongly; of equal
/// quick runs this many find one in a tenth of the runs (docs/lab.md has the figures).
const FREEDOM: f64 = 6.0;

/// Of each comparison; none where both runs have several testbeds, or too little is known.
pub(super) fn yardsticks(comparisons: &[Comparison], differences: &[Difference]) -> Vec<Option<Yardstick>> {
    let standing = || {
        let cells = comparisons.iter().zip(differences);
        cells.filter_map(|(one, difference)| Some((one, difference.standing()?)))
    };
    let testbeds = Testbeds::new(standing().filter(|(_, standing)| standing.testbeds > 1.0));
    let cells = Cells::new(standing().filter(|(_, standing)| standing.testbeds <= 1.0).collect());
    let of = |(one, difference): (&Comparison, &Difference)| {
        let standing = difference.standing()?;
        let yardstick = testbeds
            .yardstick(one, standing.testbeds)
            .or_else(|| cells.yardstick(one))?;
        (yardstick.error > 0.0).then_some(yardstick)
    };
    comparisons.iter().zip(differences).map(of).collect()
}

/// Cells whose noise is taken for equal: of a system, an experiment and a metric.
type Group<'a> = (&'a str, &'a str, &'a str);

fn group(one: &Comparison) -> Group<'_> {
    (&one.system, &one.scenario, &one.metric)
}

/// The same, but of a kind of metric.
fn kind(one: &Comparison) -> Group<'_> {
    (&one.system, &one.scenario, one.kind())
}

/// What the testbeds of the reference differ by, in each group.
///
/// After Smyth (2004, the moderated t statistic): the variance of a group is drawn towards what is
/// usual for the system. The cells of a run share their testbed, so they add no degrees of freedom.
struct Testbeds<'a>(BTreeMap<Group<'a>, Noise>);

/// Of a group.
struct Noise {
    /// The variance of a logarithm between testbeds.
    variance: f64,
    /// The degrees of freedom of what is usual; 0 if that is not known.
    usual: f64,
}

impl<'a> Testbeds<'a> {
    fn new(cells: impl Iterator<Item = (&'a Comparison, Standing)>) -> Testbeds<'a> {
        // Variances times their degrees of freedom, summed, and these.
        let mut groups: BTreeMap<Group<'_>, (f64, f64)> = BTreeMap::new();
        for (one, standing) in cells {
            let (squares, freedom) = groups.entry(group(one)).or_default();
            *squares += standing.variance * (standing.testbeds - 1.0);
            *freedom += standing.testbeds - 1.0;
        }
        let noise = |(group, (squares, freedom)): (&Group<'a>, &(f64, f64))| {
            let others = groups.iter().filter(|(other, (squares, _))| {
                *other != group && other.0 == group.0 && *squares > 0.0 // What is counted may not vary.
            });
            let others = Series::new(others.map(|(_, (squares, freedom))| squares / freedom / median(*freedom)));
            let usual = if others.n() < LEAST { 0.0 } else { FREEDOM };
            let variance = (squares + usual * others.quantile(0.5)) / (freedom + usual);
            (*group, Noise { variance, usual })
        };
        Testbeds(groups.iter().map(noise).collect())
    }

    /// None without a group that has several testbeds.
    fn yardstick(&self, one: &Comparison, testbeds: f64) -> Option<Yardstick> {
        let noise = self.0.get(&group(one))?;
        let freedom = testbeds - 1.0 + noise.usual;
        (freedom > 0.0).then(|| Yardstick {
            error: (noise.variance * (1.0 + 1.0 / testbeds)).sqrt(),
            freedom,
        })
    }
}

/// The median of a variance's estimates by so many degrees of freedom, in variances (Wilson and
/// Hilferty 1931).
fn median(freedom: f64) -> f64 {
    (1.0 - 2.0 / (9.0 * freedom)).powi(3)
}

/// What cells differ by between two runs, by system, experiment and kind of metric.
///
/// Most pairs of cells differ by nothing but their testbeds, so the median deviation of all shows
/// that, whatever a few cells that really differ do (Efron's empirical null).
struct Cells<'a>(BTreeMap<Group<'a>, f64>);

impl<'a> Cells<'a> {
    /// The spread of all the system's cells, and no less than that of their own experiment's, and
    /// than that of all cells with their kind of metric: jitter and the longest of many delays
    /// differ more between equal testbeds than throughput does.
    fn new(cells: Vec<(&'a Comparison, Standing)>) -> Cells<'a> {
        let mut spreads = BTreeMap::new();
        let of = |least: usize, wanted: &dyn Fn(&Comparison) -> bool| {
            let wanted = cells.iter().filter(|(one, _)| wanted(one));
            spread(Series::new(wanted.map(|(_, standing)| standing.difference)), least)
        };
        for (one, _) in &cells {
            let is_here = |other: &Comparison| other.system == one.system;
            let Entry::Vacant(place) = spreads.entry(kind(one)) else {
                continue;
            };
            let Some(all) = of(LEAST, &is_here) else {
                continue;
            };
            let own = of(LEAST_ALIKE, &|other| is_here(other) && other.scenario == one.scenario);
            let alike = of(LEAST_ALIKE, &|other| is_here(other) && other.kind() == one.kind());
            place.insert(all.max(own.unwrap_or(0.0)).max(alike.unwrap_or(0.0)));
        }
        Cells(spreads)
    }

    fn yardstick(&self, one: &Comparison) -> Option<Yardstick> {
        let freedom = FREEDOM;
        let error = *self.0.get(&kind(one))?;
        Some(Yardstick { error, freedom })
    }
}

/// None of fewer than `least`.
fn spread(differences: Series, least: usize) -> Option<f64> {
    let middle = differences.quantile(0.5);
    let deviations = Series::new(differences.values().iter().map(|value| (value - middle).abs()));
    (differences.n() >= least).then(|| NORMAL * deviations.quantile(0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Size, Summary};

    fn cell(metric: &str, testbeds: f64, variance: f64) -> (Comparison, Difference) {
        let nothing = Summary {
            n: 1,
            mean: 1.0,
            deviation: 0.0,
        };
        let one = Comparison {
            scenario: "X.x".to_owned(),
            system: "oxvs".to_owned(),
            at: BTreeMap::new(),
            metric: metric.to_owned(),
            unit: String::new(),
            a: nothing,
            b: nothing,
            ratio: None,
            p: 1.0,
            corrected: 1.0,
            delta: 0.0,
            size: Size::Large,
            worst: None,
            different: false,
            better: None,
            verdict: None,
        };
        let standing = Standing {
            difference: 1.0,
            variance,
            testbeds,
        };
        (one, Difference::Standing(Some(standing)))
    }

    fn of(cells: impl IntoIterator<Item = (Comparison, Difference)>) -> Vec<Option<Yardstick>> {
        let (comparisons, differences): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
        yardsticks(&comparisons, &differences)
    }

    /// Eight metrics with a variance of 0.01 by four testbeds.
    fn usual() -> impl Iterator<Item = (Comparison, Difference)> {
        (0..8).map(|number| cell(&format!("flow{number}.rate"), 4.0, 0.01))
    }

    fn assert_is(yardstick: Option<Yardstick>, variance: f64, freedom: f64) {
        let yardstick = yardstick.unwrap();
        assert!((yardstick.error.powi(2) - variance).abs() < 1e-9, "{yardstick:?}");
        assert_eq!(yardstick.freedom, freedom);
    }

    #[test]
    fn a_variance_is_drawn_towards_the_usual_one_of_the_other_metrics() {
        // The median of estimates by three degrees of freedom is 0.7938 of the variance.
        let usual_variance = 0.01 / 0.793_832_241;
        let all = of(noisy(0.09).into_iter().chain(usual()));
        let variance = (3.0 * 0.09 + 6.0 * usual_variance) / 9.0;
        assert_is(all[0], variance * 1.25, 9.0);
        // Cells of one metric share it, and its testbeds.
        let more = [cell("probe.rtt", 4.0, 0.09), cell("probe.rtt", 4.0, 0.01)];
        let all = of(more.into_iter().chain(usual()));
        let variance = (3.0 * 0.1 + 6.0 * usual_variance) / 12.0;
        assert_is(all[0], variance * 1.25, 9.0);
        assert_eq!(all[0], all[1]);
        // What never varies is no noise of others.
        let constant = (0..20).map(|number| cell(&format!("count{number}.lost"), 4.0, 0.0));
        let all = of(noisy(0.09).into_iter().chain(usual()).chain(constant));
        assert_is(all[0], (3.0 * 0.09 + 6.0 * usual_variance) / 9.0 * 1.25, 9.0);
    }

    fn noisy(variance: f64) -> [(Comparison, Difference); 1] {
        [cell("probe.rtt", 4.0, variance)]
    }

    #[test]
    fn too_few_metrics_tell_nothing_usual() {
        let all = of(noisy(0.09).into_iter().chain(usual().take(7)));
        assert_is(all[0], 0.09 * 1.25, 3.0);
        let constant = of(noisy(0.0));
        assert_eq!(constant, [None]);
    }

    #[test]
    fn a_cell_that_one_run_of_several_has_takes_the_noise_of_its_metrics_others() {
        let cells = [cell("probe.rtt", 4.0, 0.09), cell("probe.rtt", 1.0, 0.0)];
        let all = of(cells.into_iter().chain(usual()));
        let variance = (3.0 * 0.09 + 6.0 * 0.01 / 0.793_832_241) / 9.0;
        assert_is(all[1], variance * 2.0, 6.0);
        assert_eq!(of([cell("probe.rtt", 1.0, 0.0)]), [None], "nothing is known of it");
    }
}
