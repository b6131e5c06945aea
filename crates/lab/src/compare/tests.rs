use super::*;
use crate::results::{Experiment, Run};
use crate::scenario::{Profile, built_in};
use std::sync::OnceLock;
use testkit::Rng;

fn pair(a: &Results, b: &Results, threshold: f64) -> Compared {
    compare(std::slice::from_ref(a), b, Criterion::once(threshold))
}

/// Close to a normal distribution: a sum of twelve.
fn value(random: &mut Rng, mean: f64) -> f64 {
    mean + (0..12).map(|_| random.below(1000) as f64 / 1000.0).sum::<f64>() - 6.0
}

/// Reading all of them takes its time.
fn first() -> &'static Scenario {
    static FIRST: OnceLock<Scenario> = OnceLock::new();
    FIRST.get_or_init(|| built_in().unwrap().swap_remove(0))
}

/// A run of the first built-in scenario, `repetitions` values of its first metric in each cell.
fn results(repetitions: u32, mut of: impl FnMut(&Sample) -> f64) -> Results {
    let scenario = first();
    let mut samples = Vec::new();
    for system in ["bridge", "oxvs"] {
        for cell in scenario.cells(Profile::Full) {
            for repetition in 0..repetitions {
                let mut sample = Sample {
                    scenario: scenario.id.clone(),
                    system: system.to_owned(),
                    at: cell.at.clone(),
                    repetition,
                    testbed: repetition + 1,
                    seconds: 1.0,
                    ..Sample::default()
                };
                sample.metrics.insert(scenario.metrics[0].name.clone(), of(&sample));
                samples.push(sample);
            }
        }
    }
    let experiment = Experiment::new(&scenario.file, &scenario.source, 1);
    let run = Run {
        systems: ["bridge", "oxvs"]
            .map(|name| (name.to_owned(), format!("{name} 1")))
            .into(),
        scenarios: [(scenario.id.clone(), experiment)].into(),
        ..Run::new(Profile::Full, 1)
    };
    Results {
        run,
        samples,
        skipped: Vec::new(),
        configurations: Vec::new(),
    }
}

#[test]
fn two_runs_of_the_same_thing_are_called_different_in_at_most_one_comparison_in_twenty() {
    let mut random = Rng::new(11);
    for repetitions in [2, 3, 10] {
        let (mut all, mut different, mut unlikely) = (0, 0, 0);
        for _ in 0..10 {
            let mut run = || results(repetitions, |_| value(&mut random, 100.0));
            let compared = pair(&run(), &run(), 0.0);
            all += compared.comparisons.len();
            different += compared.comparisons.iter().filter(|one| one.different).count();
            unlikely += compared.comparisons.iter().filter(|one| one.p < LEVEL).count();
        }
        assert!(all >= 1000, "{all}");
        assert!(
            different * 100 <= all,
            "{different} of {all} with {repetitions} repetitions: even one in a hundred is much after Holm"
        );
        assert!(
            unlikely * 100 <= all * 6,
            "{unlikely} of {all} uncorrected with {repetitions} repetitions"
        );
    }
}

#[test]
fn counts_that_never_vary_are_no_certainty_when_there_are_two_of_them() {
    let mut random = Rng::new(5);
    let mut run = || results(2, |_| random.below(2) as f64);
    let compared = pair(&run(), &run(), 0.0);
    assert!(compared.comparisons.iter().all(|one| !one.different));
    let (zero, one) = (results(10, |_| 0.0), results(10, |_| 1.0));
    assert!(
        pair(&zero, &one, 0.0)
            .comparisons
            .iter()
            .all(|one| one.different && one.ratio.is_none())
    );
    assert!(
        pair(&zero, &zero, 0.0)
            .comparisons
            .iter()
            .all(|one| one.p == 1.0 && one.size == Size::Negligible)
    );
}

#[test]
fn equal_values_do_not_differ_because_one_run_has_more_of_them() {
    for value in [7.0, 10.0, 0.1] {
        for (first, second) in [(12, 11), (5, 6), (11, 12)] {
            let compared = pair(&results(first, |_| value), &results(second, |_| value), 0.0);
            assert!(
                compared.comparisons.iter().all(|one| one.p == 1.0),
                "{value} {first} {second}"
            );
        }
    }
}

#[test]
fn one_testbed_tells_nothing_of_a_factor_and_a_mean_of_0_has_none() {
    let alone = pair(&results(1, |_| 5.0), &results(1, |_| 5.0), 0.0);
    assert_eq!(inconclusive(&alone, 3.0).count(), alone.comparisons.len());
    let zeros = pair(&results(1, |_| 0.0), &results(1, |_| 0.0), 0.0);
    assert_eq!(inconclusive(&zeros, 3.0).count(), 0);
}

#[test]
fn a_difference_is_found_where_it_is_with_its_direction_and_size() {
    let mut random = Rng::new(3);
    let a = results(10, |_| value(&mut random, 100.0));
    let b = results(10, |sample| {
        value(&mut random, if sample.system == "oxvs" { 110.0 } else { 100.0 })
    });
    let compared = pair(&a, &b, 0.0);
    for one in &compared.comparisons {
        assert_eq!(one.different, one.system == "oxvs", "{one:?}");
        if one.different {
            let [ratio, low, high] = one.ratio.unwrap();
            assert!(low < ratio && ratio < high && (ratio - 1.1).abs() < 0.03, "{one:?}");
            assert_eq!(
                (one.size, one.verdict),
                (Size::Large, Some(Verdict::Worse)),
                "a longer round trip is worse"
            );
        }
    }
    let back = pair(&b, &a, 0.0);
    assert!(
        back.comparisons
            .iter()
            .filter(|one| one.different)
            .all(|one| one.verdict == Some(Verdict::Better) && one.delta < 0.0)
    );
}

#[test]
fn holms_corrections_grow_with_the_probabilities_and_their_number() {
    let a = results(3, |_| 1.0);
    let mut compared = pair(&a, &a, 0.0).comparisons;
    compared.truncate(4);
    for (one, p) in compared.iter_mut().zip([0.01, 0.04, 0.03, 0.005]) {
        one.p = p;
    }
    correct(&mut compared, LEVEL);
    let corrected: Vec<f64> = compared.iter().map(|one| one.corrected).collect();
    assert_eq!(corrected, [0.03, 0.06, 0.06, 0.02]);
}

#[test]
fn what_makes_runs_unlike_is_said() {
    let a = results(2, |_| 1.0);
    let mut b = a.clone();
    b.run.machine.kernel = "other".to_owned();
    b.run.profile = Profile::Quick;
    b.run.systems.insert("oxvs".to_owned(), "oxvs 2".to_owned());
    b.run
        .scenarios
        .insert("S9.new".to_owned(), Experiment::new("x.toml", "", 1));
    let remarks = pair(&a, &b, 0.0).remarks.join("\n");
    for part in [
        "another machine: kernel 'other'",
        "not of the same profile",
        "oxvs: oxvs 1; in the compared run oxvs 2",
        "S9.new: only in the compared run",
    ] {
        assert!(remarks.contains(part), "{part}: {remarks}");
    }
}

/// A quick run: two repetitions on one testbed, whose share of the noise is the larger.
fn quick(random: &mut Rng, of: impl Fn(&Sample) -> f64) -> Results {
    let mut bed = 0.0;
    let mut run = results(2, |sample| {
        if sample.repetition == 0 {
            bed = value(random, 0.0);
        }
        of(sample) * (1.0 + 0.05 * bed + 0.01 * value(random, 0.0))
    });
    run.samples.iter_mut().for_each(|sample| sample.testbed = 1);
    run
}

#[test]
fn a_switch_three_times_slower_in_one_cell_is_found_in_a_quick_run_and_nothing_else_is() {
    let mut random = Rng::new(4);
    let cell = first().cells(Profile::Full)[3].at.clone();
    for _ in 0..20 {
        let a = quick(&mut random, |_| 100.0);
        let slow = |sample: &Sample| sample.system == "oxvs" && sample.at == cell;
        let b = quick(&mut random, |sample| if slow(sample) { 300.0 } else { 100.0 });
        let compared = pair(&a, &b, 0.05);
        for one in &compared.comparisons {
            assert_eq!(
                one.verdict == Some(Verdict::Worse),
                one.system == "oxvs" && one.at == cell,
                "{one:?}"
            );
        }
    }
}

/// As [`quick`], with a second metric that differs between equal testbeds by factors.
fn quick_with_noise(random: &mut Rng, of: impl Fn(&Sample) -> f64) -> Results {
    let mut run = quick(random, of);
    let mut factor = 1.0;
    for sample in &mut run.samples {
        if sample.repetition == 0 {
            factor = value(random, 0.0).exp();
        }
        sample.metrics.insert(first().metrics[1].name.clone(), factor);
    }
    run
}

#[test]
fn of_quick_runs_of_one_build_at_most_one_comparison_in_a_hundred_differs_whatever_the_metric() {
    let mut random = Rng::new(6);
    let (mut all, mut wrong) = (0, 0);
    for _ in 0..40 {
        let a = quick_with_noise(&mut random, |_| 100.0);
        let b = quick_with_noise(&mut random, |_| 100.0);
        let compared = pair(&a, &b, 0.0);
        all += compared.comparisons.len();
        wrong += compared.comparisons.iter().filter(|one| one.different).count();
    }
    assert!(wrong * 100 <= all, "{wrong} of {all}");
}

/// A quick run of some built-in scenarios whose metrics vary by 2 % to 170 %, half of that alike in
/// all cells. One cell of the first is `factor` times as large as the others.
fn noisy(random: &mut Rng, factor: f64) -> Results {
    static SCENARIOS: OnceLock<Vec<Scenario>> = OnceLock::new();
    let scenarios = SCENARIOS.get_or_init(|| built_in().unwrap().drain(..12).collect());
    let deviations = [0.02, 0.05, 0.1, 0.3, 1.0];
    let mut run = results(0, |_| 0.0);
    run.run.profile = Profile::Quick;
    let mut all = deviations.iter().cycle();
    for scenario in scenarios {
        let experiment = Experiment::new(&scenario.file, &scenario.source, 1);
        run.run.scenarios.insert(scenario.id.clone(), experiment);
        let mut half = |deviation: f64| deviation * value(random, 0.0) / 2.0_f64.sqrt();
        let metrics: Vec<(&str, f64, f64)> = scenario
            .metrics
            .iter()
            .zip(&mut all)
            .map(|(metric, deviation)| (metric.name.as_str(), *deviation, half(*deviation)))
            .collect();
        for (number, cell) in scenario.cells(Profile::Quick).iter().enumerate() {
            let factor = if scenario.id == first().id && number == 1 {
                factor
            } else {
                1.0
            };
            let value = |(name, deviation, shared): &(&str, f64, f64)| {
                ((*name).to_owned(), 100.0 * factor * (shared + half(*deviation)).exp())
            };
            run.samples.push(Sample {
                scenario: scenario.id.clone(),
                system: "oxvs".to_owned(),
                at: cell.at.clone(),
                testbed: 1,
                metrics: metrics.iter().map(value).collect(),
                ..Sample::default()
            });
        }
    }
    run
}

/// In how many of 20 runs beside so many of the reference a steady metric that is three times as
/// large in one cell is found, and how many comparisons of 20 equal runs differ, of how many.
fn found(references: usize) -> (usize, usize, usize) {
    let mut random = Rng::new(8);
    let (mut found, mut wrong, mut all) = (0, 0, 0);
    for _ in 0..20 {
        let reference: Vec<Results> = (0..references).map(|_| noisy(&mut random, 1.0)).collect();
        let slow = compare(&reference, &noisy(&mut random, 3.0), Criterion::once(0.0)).comparisons;
        let is_hit = |one: &Comparison| one.scenario == first().id && one.verdict == Some(Verdict::Worse);
        found += usize::from(slow.iter().any(is_hit));
        let equal = compare(&reference, &noisy(&mut random, 1.0), Criterion::once(0.0)).comparisons;
        wrong += equal.iter().filter(|one| one.different).count();
        all += equal.len();
    }
    (found, wrong, all)
}

#[test]
fn several_runs_of_the_reference_tell_steady_metrics_from_those_that_vary_by_factors() {
    for references in [3, 4, 8] {
        let (found, wrong, all) = found(references);
        assert_eq!(found, 20, "beside {references} runs");
        assert!(wrong * 200 <= all, "{wrong} of {all} beside {references} runs");
    }
}

#[test]
fn the_ratio_to_several_runs_is_to_their_geometric_mean() {
    let of = |value: f64| {
        let mut run = results(1, |_| value);
        run.samples.iter_mut().for_each(|sample| sample.testbed = 1);
        run
    };
    let compared = compare(&[of(50.0), of(200.0)], &of(200.0), Criterion::once(0.0));
    for one in &compared.comparisons {
        let [ratio, low, high] = one.ratio.unwrap();
        assert!((ratio - 2.0).abs() < 1e-9 && low < 1.0 && high > 4.0, "{one:?}");
        assert!((one.a.mean - 100.0).abs() < 1e-9 && !one.different, "{one:?}");
    }
    let with_zero = compare(&[of(0.0), of(200.0)], &of(200.0), Criterion::once(0.0));
    assert!(
        with_zero
            .comparisons
            .iter()
            .all(|one| one.ratio.is_none() && one.p == 1.0)
    );
}

#[test]
fn runs_of_the_reference_that_are_unlike_are_named() {
    let a = results(2, |_| 1.0);
    let mut other = a.clone();
    other.run.machine.kernel = "other".to_owned();
    let remarks = compare(&[a.clone(), other], &a, Criterion::once(0.0)).remarks;
    assert!(
        remarks.len() == 1 && remarks[0].starts_with("run 2 of the reference was made on another machine"),
        "{remarks:?}"
    );
    assert_eq!(compare(&[], &a, Criterion::once(0.0)).comparisons, []);
}

/// `repetitions` values whose logarithms vary by 0.7, with the median 100 or thrice that.
fn heavy(random: &mut Rng, repetitions: u32, factor: f64) -> Results {
    results(repetitions, |sample| {
        let factor = if sample.system == "oxvs" { factor } else { 1.0 };
        100.0 * factor * (0.7 * value(random, 0.0)).exp()
    })
}

#[test]
fn noise_that_is_a_factor_does_not_hide_a_factor_from_many_repetitions() {
    let mut random = Rng::new(12);
    let (mut found, mut wrong, mut all) = (0, 0, 0);
    for _ in 0..4 {
        let a = heavy(&mut random, 32, 1.0);
        let compared = pair(&a, &heavy(&mut random, 32, 3.0), 0.0);
        for one in &compared.comparisons {
            let is_worse = one.verdict == Some(Verdict::Worse);
            if one.system == "oxvs" {
                all += 1;
                found += usize::from(is_worse);
            } else {
                wrong += usize::from(one.different);
            }
        }
    }
    assert!(found * 100 >= all * 95, "{found} of {all}");
    assert!(wrong <= 1, "{wrong} of {all}");
}

#[test]
fn what_neither_finds_nor_excludes_a_factor_is_inconclusive() {
    let mut random = Rng::new(13);
    for (repetitions, is_open) in [(4, true), (64, false)] {
        let a = heavy(&mut random, repetitions, 1.0);
        let compared = pair(&a, &heavy(&mut random, repetitions, 1.0), 0.0);
        let all = compared.comparisons.len();
        let open = inconclusive(&compared, 3.0).count();
        assert!(if is_open { open * 10 > all * 9 } else { open == 0 }, "{open} of {all}");
        // None is better for certain.
        assert!(compared.comparisons.iter().all(|one| one.worst.unwrap() > 1.0));
        let found = pair(&a, &heavy(&mut random, repetitions, 1e9), 0.0);
        let oxvs = inconclusive(&found, 3.0).filter(|one| one.system == "oxvs");
        assert_eq!(oxvs.count(), 0, "it is found");
    }
}

#[test]
fn the_worst_that_may_be_is_the_end_of_the_interval_where_values_are_not_good() {
    let testbeds = |factor: f64| Repeated::new((0..4).map(|bed| (bed, factor * 1.1_f64.powi(bed))));
    let difference = Difference::new(&testbeds(1.0), &testbeds(2.0), 0.0);
    let [low, high] = difference.interval(None, 1.0 - 2.0 * LEVEL).unwrap();
    assert!(
        (low * high).sqrt() > 1.999 && (low * high).sqrt() < 2.001,
        "{low} {high}"
    );
    let mut one = pair(&results(1, |_| 1.0), &results(1, |_| 1.0), 0.0)
        .comparisons
        .swap_remove(0);
    for (better, worst) in [(Better::Lower, high), (Better::Higher, 1.0 / low)] {
        one.better = Some(better);
        judge(
            std::slice::from_mut(&mut one),
            std::slice::from_ref(&difference),
            Criterion::once(0.0),
        );
        assert_eq!(one.worst, Some(worst));
    }
}

#[test]
fn what_is_within_the_threshold_is_no_difference() {
    let mut random = Rng::new(9);
    let a = results(10, |_| value(&mut random, 100.0));
    let b = results(10, |sample| {
        value(&mut random, if sample.system == "oxvs" { 104.0 } else { 120.0 })
    });
    let different = |threshold: f64| {
        let compared = pair(&a, &b, threshold);
        let all = compared.comparisons.into_iter().filter(|one| one.different);
        all.map(|one| one.system)
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    };
    assert_eq!(different(0.0), ["bridge", "oxvs"]);
    assert_eq!(different(0.08), ["bridge"]);
}

#[test]
fn a_report_for_junit_has_a_case_for_each_comparison_and_fails_what_is_worse() {
    let (a, b) = (
        results(10, |_| 1.0),
        results(10, |sample| if sample.system == "oxvs" { 2.0 } else { 1.0 }),
    );
    let compared = pair(&a, &b, 0.0);
    let text = junit(&compared);
    let n = compared.comparisons.len();
    assert!(
        text.contains(&format!("tests=\"{n}\" failures=\"{}\"", n / 2)),
        "{text}"
    );
    assert_eq!(text.matches("<testcase ").count(), n);
    assert_eq!(text.matches("<failure message=\"worse\">").count(), n / 2);
}

#[test]
fn a_run_of_two_builds_in_turns_is_two_runs_of_one_switch() {
    let mut both = results(3, |sample| if sample.system == "oxvs" { 2.0 } else { 1.0 });
    for sample in &mut both.samples {
        sample.system = if sample.system == "oxvs" { "B" } else { "A" }.to_owned();
    }
    assert!(builds(&both).is_err(), "its systems are not those builds");
    both.run.systems = ["A", "B"].map(|name| (name.to_owned(), format!("build {name}"))).into();
    let (a, b) = builds(&both).unwrap();
    assert_eq!(a.samples.len(), b.samples.len());
    let compared = pair(&a, &b, 0.0);
    assert!(
        compared
            .comparisons
            .iter()
            .all(|one| one.system == "oxvs" && one.b.mean > one.a.mean)
    );
    assert!(
        compared
            .remarks
            .contains(&"oxvs: build A; in the compared run build B".to_owned())
    );
}

#[test]
fn a_build_against_itself_is_called_different_as_seldom_as_said() {
    let mut random = Rng::new(5);
    let (mut comparisons, mut wrong, mut different) = (0.0, 0.0, 0);
    for _ in 0..20 {
        let mut run = || results(10, |_| value(&mut random, 20.0));
        let (a, b) = (run(), run());
        let compared = pair(&a, &b, 0.0);
        let rates = itself(&compared, "X").unwrap();
        assert!(rates.kind.starts_with("A against A here, X: "), "{}", rates.kind);
        assert_eq!(
            (rates.repetitions, rates.runs as usize),
            (10, compared.comparisons.len())
        );
        comparisons += f64::from(rates.runs);
        wrong += (rates.false_holds + rates.false_refuted) * f64::from(rates.runs);
        different += usize::from(compared.comparisons.iter().any(|one| one.different));
    }
    // Five percent on each side.
    assert!(
        (0.07..0.13).contains(&(wrong / comparisons)),
        "{wrong} of {comparisons}"
    );
    assert!(different <= 4, "{different}");
    let same = results(10, |_| 20.0);
    assert_eq!(itself(&pair(&same, &same, 0.0), "X"), None, "nothing varies");
}
