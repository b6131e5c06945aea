//! How often verdicts are wrong, and how often they decide: simulated results through the code that
//! judges real ones.

use super::check::NOTICEABLE;
use super::{Finding, LEVEL, Verdict, Weighed, level};
use crate::stats::{Observed, SplitMix};
use crate::table::{Cell, Table};
use distrs::Normal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often verdicts on one kind of claim are wrong or decide, as shares of the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The kind of claim.
    pub kind: String,
    /// The noise of a repetition.
    pub noise: String,
    /// Repetitions of each cell, each on a testbed of its own.
    pub repetitions: u32,
    /// Simulated runs of each truth.
    pub runs: u32,
    /// It is said to hold while the truth is at the bound.
    pub false_holds: f64,
    /// It is said to be refuted while the truth is at the bound.
    pub false_refuted: f64,
    /// It is said to hold where it is true; none if nothing else than the bound was tried.
    pub power_holds: Option<f64>,
    /// It is said to be refuted where the effect is twice the bound.
    pub power_refuted: Option<f64>,
}

/// A kind of claim, with what may be true.
struct Kind {
    name: &'static str,
    checks: &'static str,
    /// The true values of the table's cells.
    truth: fn(Truth) -> Vec<Value>,
}

/// A cell's coordinates.
type At = &'static [(&'static str, &'static str)];

/// A cell's coordinates and its true value.
type Value = (At, f64);

/// How the truth stands to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    /// One cell is at the bound, the others are well within.
    OneAtBound,
    /// All are at the bound.
    AllAtBound,
    /// All are well within.
    Within,
    /// An effect of twice the bound.
    Twice,
}

/// What makes repetitions differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// A normal distribution with this standard deviation, as a share of the mean. Each cell has
    /// testbeds of its own.
    Normal(f64),
    /// The same, of cells that share testbeds: half of the variance is the testbed's.
    Testbeds(f64),
    /// The logarithm is normal.
    Skewed(f64),
    /// The value is the probability that a repetition counts something.
    Counts,
}

/// Cells along one dimension.
const ALONG: [At; 4] = [&[("s", "a")], &[("s", "b")], &[("s", "c")], &[("s", "d")]];

const KINDS: &[Kind] = &[
    Kind {
        name: "ratio: costs at most 5 %",
        checks: "[{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, at_most = 1.05 } }]",
        truth: |truth| pair(truth, 1.0, 1.05, 1.1),
    },
    Kind {
        name: "ratio: at least 3.7 times",
        checks: "[{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, at_least = 3.7 } }]",
        truth: |truth| pair(truth, 4.5, 3.7, 3.0),
    },
    Kind {
        name: "ratio: similar within 10 %",
        checks: "[{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, similar = 0.1 } }]",
        truth: |truth| pair(truth, 1.0, 1.1, 1.2),
    },
    Kind {
        name: "ratio: in most of five cells",
        checks: "[{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, at_least = 1.1, most = true } }]",
        truth: |truth| {
            let ratios = match truth {
                Truth::OneAtBound => [1.4, 1.4, 1.1, 1.1, 1.1],
                Truth::AllAtBound => [1.1, 1.1, 1.1, 0.8, 0.8],
                Truth::Within => [1.2; 5],
                Truth::Twice => [1.0; 5],
            };
            let over: [At; 5] = [
                &[("s", "a"), ("n", "1")],
                &[("s", "a"), ("n", "2")],
                &[("s", "a"), ("n", "3")],
                &[("s", "a"), ("n", "4")],
                &[("s", "a"), ("n", "5")],
            ];
            let under: [At; 5] = [
                &[("s", "b"), ("n", "1")],
                &[("s", "b"), ("n", "2")],
                &[("s", "b"), ("n", "3")],
                &[("s", "b"), ("n", "4")],
                &[("s", "b"), ("n", "5")],
            ];
            let over = over.into_iter().zip(ratios);
            over.chain(under.map(|at| (at, 1.0))).collect()
        },
    },
    Kind {
        name: "ratio: of sums over cells",
        checks: "[{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, total = ['n'], at_least = 1.1 } }]",
        truth: |truth| {
            let ratio = match truth {
                Truth::Within => 1.2,
                Truth::Twice => 1.0,
                _ => 1.1,
            };
            vec![
                (&[("s", "a"), ("n", "1")], 1.0 * ratio),
                (&[("s", "a"), ("n", "2")], 5.0 * ratio),
                (&[("s", "b"), ("n", "1")], 2.0),
                (&[("s", "b"), ("n", "2")], 4.0),
            ]
        },
    },
    Kind {
        name: "bounds: at most, in three cells",
        checks: "[{ bounds = { table = 't', at_most = 1.05 } }]",
        truth: |truth| three(truth, 1.0, 1.05, 1.1),
    },
    Kind {
        name: "bounds: at least, in three cells",
        checks: "[{ bounds = { table = 't', at_least = 0.95 } }]",
        truth: |truth| three(truth, 1.0, 0.95, 0.9),
    },
    Kind {
        name: "bounds: within 5 %, in three cells",
        checks: "[{ bounds = { table = 't', at_least = 0.95, at_most = 1.05 } }]",
        truth: |truth| three(truth, 1.0, 1.05, 1.1),
    },
    Kind {
        name: "trend: rises over four points",
        checks: "[{ trend = { table = 't', along = 's', direction = 'rising' } }]",
        truth: |truth| {
            along(&match truth {
                Truth::OneAtBound => [1.0, 1.2, 1.2 * (1.0 - NOTICEABLE), 1.5],
                Truth::AllAtBound => [1.0, 1.01, 1.01 * (1.0 - NOTICEABLE), 1.01],
                Truth::Within => [1.0, 1.1, 1.2, 1.3],
                Truth::Twice => [1.0, 1.1, 1.0, 1.1],
            })
        },
    },
    Kind {
        name: "extreme: the highest of four",
        checks: "[{ extreme = { table = 't', among = 's', is = ['d'], end = 'highest' } }]",
        truth: |truth| {
            along(&match truth {
                Truth::OneAtBound => [0.8, 0.8, 1.0, 1.0 + NOTICEABLE],
                Truth::AllAtBound => [1.0, 1.0, 1.0, 1.0 + NOTICEABLE],
                Truth::Within => [0.8, 0.9, 0.9, 1.0],
                Truth::Twice => [0.8, 0.9, 1.1, 1.0],
            })
        },
    },
    Kind {
        name: "alike: four within 10 %",
        checks: "[{ alike = { table = 't', among = 's', tolerance = 0.1 } }]",
        truth: |truth| {
            along(&match truth {
                Truth::OneAtBound => [1.0, 1.05, 1.05, 1.1],
                Truth::AllAtBound => [1.0, 1.0, 1.1, 1.1],
                Truth::Within => [1.0; 4],
                Truth::Twice => [1.0, 1.0, 1.0, 1.2],
            })
        },
    },
    Kind {
        name: "effect: one dimension matters more",
        checks: "[{ effect = { of = { table = 't', dimension = 'x', from = '0', to = '1' }, exceeds = { table = 't', dimension = 'y', from = '0', to = '1' } } }]",
        truth: |truth| {
            let (x, y) = match truth {
                Truth::OneAtBound | Truth::AllAtBound => (1.5, 1.5),
                Truth::Within => (1.5, 1.2),
                Truth::Twice => (1.2, 1.5),
            };
            vec![
                (&[("x", "0"), ("y", "0")], 1.0),
                (&[("x", "1"), ("y", "0")], x),
                (&[("x", "0"), ("y", "1")], y),
                (&[("x", "1"), ("y", "1")], x * y),
            ]
        },
    },
];

/// No repetition counts anything: the bound is that fewer than one in three does.
const NEVER: Kind = Kind {
    name: "bounds: never, in three cells",
    checks: "[{ bounds = { table = 't', at_most = 0.0 } }]",
    truth: |truth| match truth {
        Truth::OneAtBound => three(truth, 0.0, 1.0 / 3.0, 1.0),
        Truth::AllAtBound | Truth::Within => three(Truth::Within, 0.0, 0.0, 0.0),
        Truth::Twice => three(truth, 0.0, 0.0, 2.0 / 3.0),
    },
};

fn pair(truth: Truth, within: f64, bound: f64, twice: f64) -> Vec<Value> {
    let ratio = match truth {
        Truth::OneAtBound | Truth::AllAtBound => bound,
        Truth::Within => within,
        Truth::Twice => twice,
    };
    along(&[ratio, 1.0])
}

fn three(truth: Truth, within: f64, bound: f64, twice: f64) -> Vec<Value> {
    let values = match truth {
        Truth::OneAtBound => [within, within, bound],
        Truth::AllAtBound => [bound; 3],
        Truth::Within => [within; 3],
        Truth::Twice => [within, within, twice],
    };
    along(&values)
}

fn along(values: &[f64]) -> Vec<Value> {
    ALONG.into_iter().zip(values.iter().copied()).collect()
}

/// Simulates `runs` runs of each kind of claim and each truth, of as many repetitions as the full
/// profile has, on all processors. The same seed gives the same rates.
pub fn simulate(runs: u32, seed: u64) -> Vec<Rates> {
    const REPETITIONS: u32 = 10;
    let noises = [
        Noise::Normal(0.03),
        Noise::Testbeds(0.03),
        Noise::Normal(0.3),
        Noise::Skewed(0.3),
    ];
    let mut tasks: Vec<Option<(&Kind, Noise)>> = noises
        .into_iter()
        .flat_map(|noise| KINDS.iter().map(move |kind| Some((kind, noise))))
        .collect();
    tasks.push(Some((&NEVER, Noise::Counts)));
    // A page.
    tasks.push(None);
    let task = |n: usize| {
        // Numbers of its own, so that it does not matter which thread has it.
        let mut random = SplitMix(SplitMix(seed.wrapping_add(n as u64)).below(usize::MAX) as u64);
        match tasks[n] {
            Some((kind, noise)) => kind.rates(noise, REPETITIONS, runs, &mut random),
            None => page(REPETITIONS, runs.div_ceil(20), &mut random),
        }
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let own = numbers.take_while(|n| *n < tasks.len());
        own.map(|n| (n, task(n))).collect::<Vec<_>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut all: Vec<(usize, Rates)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .flat_map(|own| own.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, rates)| rates).collect()
}

impl Kind {
    fn finding(&self) -> Finding {
        let text = format!("id = 'X.1'\nsays = ''\nchecks = {}\n", self.checks);
        toml::from_str(&text).expect("the simulation's own checks can be read")
    }

    fn rates(&self, noise: Noise, repetitions: u32, runs: u32, random: &mut SplitMix) -> Rates {
        let finding = self.finding();
        let mut share = |truth: Truth, verdict: Verdict| {
            let values = (self.truth)(truth);
            let hits = (0..runs).filter(|_| {
                let tables = tables(&values, noise, repetitions, random);
                finding.weigh(|_| &tables, 0).verdict(LEVEL) == verdict
            });
            hits.count() as f64 / f64::from(runs)
        };
        Rates {
            kind: self.name.to_owned(),
            noise: noise.to_string(),
            repetitions,
            runs,
            false_holds: share(Truth::OneAtBound, Verdict::Holds),
            false_refuted: share(Truth::AllAtBound, Verdict::Refuted),
            power_holds: Some(share(Truth::Within, Verdict::Holds)),
            power_refuted: Some(share(Truth::Twice, Verdict::Refuted)),
        }
    }
}

/// A page with a finding of every kind in five switches' columns, of every truth: the share of
/// wrong verdicts among those of a page that decide, on average.
fn page(repetitions: u32, runs: u32, random: &mut SplitMix) -> Rates {
    let noise = Noise::Normal(0.03);
    let findings: Vec<(Finding, &Kind)> = KINDS.iter().map(|kind| (kind.finding(), kind)).collect();
    let truths = [
        Truth::OneAtBound,
        Truth::AllAtBound,
        Truth::Within,
        Truth::Within,
        Truth::Twice,
    ];
    let (mut holds, mut refuted, mut right_holds, mut right_refuted) = (0.0, 0.0, 0.0, 0.0);
    for _ in 0..runs {
        let weighed: Vec<(Truth, Weighed)> = findings
            .iter()
            .flat_map(|one| truths.map(|truth| (truth, one)))
            .map(|(truth, (finding, kind))| {
                let tables = tables(&(kind.truth)(truth), noise, repetitions, random);
                (truth, finding.weigh(|_| &tables, 0))
            })
            .collect();
        let level = level(&weighed.iter().map(|(_, one)| one.weighted()).collect::<Vec<_>>());
        let verdicts: Vec<(Truth, Verdict)> = weighed
            .iter()
            .map(|(truth, one)| (*truth, one.verdict(level)))
            .collect();
        let count = |which: &dyn Fn(Truth, Verdict) -> bool| {
            verdicts
                .iter()
                .filter(|(truth, verdict)| which(*truth, *verdict))
                .count() as f64
        };
        let decided = count(&|_, verdict| matches!(verdict, Verdict::Holds | Verdict::Refuted)).max(1.0);
        let of = |wanted: Truth| verdicts.iter().filter(|(truth, _)| *truth == wanted).count() as f64;
        holds +=
            count(&|truth, verdict| verdict == Verdict::Holds && matches!(truth, Truth::OneAtBound | Truth::Twice))
                / decided;
        refuted +=
            count(&|truth, verdict| verdict == Verdict::Refuted && truth != Truth::Twice && truth != Truth::OneAtBound)
                / decided;
        right_holds += count(&|truth, verdict| truth == Truth::Within && verdict == Verdict::Holds) / of(Truth::Within);
        right_refuted +=
            count(&|truth, verdict| truth == Truth::Twice && verdict == Verdict::Refuted) / of(Truth::Twice);
    }
    let runs_all = f64::from(runs);
    Rates {
        kind: format!(
            "a page of {} verdicts (of those that decide)",
            findings.len() * truths.len()
        ),
        noise: noise.to_string(),
        repetitions,
        runs,
        false_holds: holds / runs_all,
        false_refuted: refuted / runs_all,
        power_holds: Some(right_holds / runs_all),
        power_refuted: Some(right_refuted / runs_all),
    }
}

fn tables(values: &[Value], noise: Noise, repetitions: u32, random: &mut SplitMix) -> BTreeMap<String, Table> {
    let shared: Vec<f64> = (0..repetitions).map(|_| normal(random)).collect();
    let mut cell = |(n, (at, value)): (u32, &Value)| {
        let first = if matches!(noise, Noise::Testbeds(_)) {
            1
        } else {
            n * repetitions + 1
        };
        let beds = (first..).zip(&shared);
        let values: Vec<(u32, f64)> = beds
            .map(|(bed, shared)| (bed, noise.sample(*value, *shared, random)))
            .collect();
        Cell {
            at: at
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            value: Observed::new(values).expect("finite values"),
        }
    };
    let table = Table {
        cells: (0..).zip(values).map(&mut cell).collect(),
        ..Table::default()
    };
    BTreeMap::from([("t".to_owned(), table)])
}

impl Noise {
    /// `testbed` is the peculiarity of the testbed, with a standard normal distribution.
    fn sample(self, mean: f64, testbed: f64, random: &mut SplitMix) -> f64 {
        let half = 0.5f64.sqrt();
        match self {
            Noise::Normal(share) => mean * (1.0 + share * normal(random)),
            Noise::Testbeds(share) => mean * (1.0 + share * half * (testbed + normal(random))),
            Noise::Skewed(share) => {
                let deviation = (1.0 + share * share).ln().sqrt();
                mean * (deviation * normal(random) - deviation * deviation / 2.0).exp()
            }
            Noise::Counts => f64::from(u8::from(uniform(random) < mean)),
        }
    }
}

impl std::fmt::Display for Noise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Noise::Normal(share) => write!(f, "{:.0} %", 100.0 * share),
            Noise::Testbeds(share) => write!(f, "{:.0} %, shared", 100.0 * share),
            Noise::Skewed(share) => write!(f, "{:.0} %, skewed", 100.0 * share),
            Noise::Counts => f.write_str("counts"),
        }
    }
}

/// More than 0 and less than 1.
fn uniform(random: &mut SplitMix) -> f64 {
    const PARTS: usize = 1 << 40;
    (random.below(PARTS) as f64 + 0.5) / PARTS as f64
}

pub(super) fn normal(random: &mut SplitMix) -> f64 {
    Normal::ppf(uniform(random), 0.0, 1.0)
}

/// The rates for a terminal.
pub fn table(rates: &[Rates]) -> String {
    let width = rates.iter().map(|one| one.kind.chars().count()).max().unwrap_or(0);
    let mut out = format!(
        "{:width$}  noise          n   runs  wrong: holds  refuted   power: holds  refuted\n",
        "claim"
    );
    for one in rates {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let power = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{:width$}  {:11}  {:3}  {:5}  {:>12}  {:>7}  {:>12}  {:>7}",
            one.kind,
            one.noise,
            one.repetitions,
            one.runs,
            percent(one.false_holds),
            percent(one.false_refuted),
            power(one.power_holds),
            power(one.power_refuted)
        );
    }
    out + &format!(
        "The level is {:.0} %. Wrong: the truth is at the claim's bound. Power: the truth is well within the bound, or twice as far away as the bound.\n",
        100.0 * LEVEL
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_wrong_at_most_as_often_as_said_and_decide_with_the_repetitions_of_the_full_profile() {
        // Rates of fewer runs are skewed: more of them lie far above their mean by chance.
        let (runs, errors) = if testkit::Tier::of_this_run() == testkit::Tier::Long {
            (10_000, 3.0)
        } else {
            (400, 4.0)
        };
        let rates = simulate(runs, 27);
        mgmt::outln!("{}", table(&rates));
        for one in &rates {
            // The standard error of a share of 5 %.
            let bound = LEVEL + errors * (LEVEL * (1.0 - LEVEL) / f64::from(one.runs)).sqrt();
            assert!(one.false_holds <= bound && one.false_refuted <= bound, "{one:?}");
            if one.noise.starts_with("3 %") || one.noise == "counts" {
                assert!(
                    one.power_holds >= Some(0.8) && one.power_refuted >= Some(0.8),
                    "{one:?}"
                );
            }
        }
    }

    #[test]
    fn a_true_cost_of_ten_percent_under_noise_is_never_taken_for_one_percent() {
        let kind = &KINDS[0];
        let finding: Finding = toml::from_str(
            "id = 'X.1'\nsays = ''\nchecks = [{ ratio = { table = 't', over = { s = 'a' }, under = { s = 'b' }, at_most = 1.01 } }]",
        )
        .unwrap();
        let mut random = SplitMix(1);
        let values = (kind.truth)(Truth::Twice);
        let holds = (0..500).filter(|_| {
            finding
                .judge(&tables(&values, Noise::Normal(0.3), 10, &mut random))
                .verdict
                == Verdict::Holds
        });
        assert!(holds.count() <= 25);
    }

    #[test]
    fn repetitions_on_one_testbed_decide_nothing() {
        let finding = KINDS[0].finding();
        let mut tables = tables(
            &(KINDS[0].truth)(Truth::Twice),
            Noise::Normal(0.001),
            10,
            &mut SplitMix(1),
        );
        assert_eq!(finding.judge(&tables).verdict, Verdict::Refuted);
        for cell in &mut tables.get_mut("t").unwrap().cells {
            cell.value = Observed::new([(1, 1.1), (1, 1.11), (1, 1.12)]).unwrap();
        }
        assert_eq!(finding.judge(&tables).verdict, Verdict::Undecided);
    }
}
