use super::*;
use crate::results::{Experiment, Run};
use crate::scenario::{Profile, built_in};
use std::sync::OnceLock;
use testkit::Rng;

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
            let compared = compare(&run(), &run(), 0.0);
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
    let compared = compare(&run(), &run(), 0.0);
    assert!(compared.comparisons.iter().all(|one| !one.different));
    let (zero, one) = (results(10, |_| 0.0), results(10, |_| 1.0));
    assert!(
        compare(&zero, &one, 0.0)
            .comparisons
            .iter()
            .all(|one| one.different && one.ratio.is_none())
    );
    assert!(
        compare(&zero, &zero, 0.0)
            .comparisons
            .iter()
            .all(|one| one.p == 1.0 && one.size == Size::Negligible)
    );
}

#[test]
fn a_difference_is_found_where_it_is_with_its_direction_and_size() {
    let mut random = Rng::new(3);
    let a = results(10, |_| value(&mut random, 100.0));
    let b = results(10, |sample| {
        value(&mut random, if sample.system == "oxvs" { 110.0 } else { 100.0 })
    });
    let compared = compare(&a, &b, 0.0);
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
    let back = compare(&b, &a, 0.0);
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
    let mut compared = compare(&a, &a, 0.0).comparisons;
    compared.truncate(4);
    for (one, p) in compared.iter_mut().zip([0.01, 0.04, 0.03, 0.005]) {
        one.p = p;
    }
    correct(&mut compared);
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
    let remarks = compare(&a, &b, 0.0).remarks.join("\n");
    for part in [
        "another machine: kernel 'other'",
        "one run is quick",
        "oxvs: oxvs 1; in the second run oxvs 2",
        "S9.new: only in the second run",
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
        let compared = compare(&a, &b, 0.05);
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
        let compared = compare(&a, &b, 0.0);
        all += compared.comparisons.len();
        wrong += compared.comparisons.iter().filter(|one| one.different).count();
    }
    assert!(wrong * 100 <= all, "{wrong} of {all}");
}

#[test]
fn what_is_within_the_threshold_is_no_difference() {
    let mut random = Rng::new(9);
    let a = results(10, |_| value(&mut random, 100.0));
    let b = results(10, |sample| {
        value(&mut random, if sample.system == "oxvs" { 104.0 } else { 120.0 })
    });
    let different = |threshold: f64| {
        let compared = compare(&a, &b, threshold);
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
    let compared = compare(&a, &b, 0.0);
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
    let compared = compare(&a, &b, 0.0);
    assert!(
        compared
            .comparisons
            .iter()
            .all(|one| one.system == "oxvs" && one.b.mean > one.a.mean)
    );
    assert!(
        compared
            .remarks
            .contains(&"oxvs: build A; in the second run build B".to_owned())
    );
}

#[test]
fn a_build_against_itself_is_called_different_as_seldom_as_said() {
    let mut random = Rng::new(5);
    let (mut comparisons, mut wrong, mut different) = (0.0, 0.0, 0);
    for _ in 0..20 {
        let mut run = || results(10, |_| value(&mut random, 20.0));
        let (a, b) = (run(), run());
        let compared = compare(&a, &b, 0.0);
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
    assert_eq!(itself(&compare(&same, &same, 0.0), "X"), None, "nothing varies");
}
