//! How many findings the full profile decides, if the truth is what the studies printed.

use super::measured::{judge, tables};
use super::simulate::normal;
use super::{Findings, FindingsError, Verdict, published};
use crate::results::{Results, Run, Sample};
use crate::scenario::{Fed, Profile, Scenario};
use crate::stats::{Series, SplitMix};
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What the full profile decides of the findings that an experiment feeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decides {
    /// The experiment's id; empty: all of them.
    pub experiment: String,
    /// Findings whose cells the study printed.
    pub findings: u32,
    /// By the standard deviation of a repetition, as a share of the mean: the share of the findings
    /// that are decided, on average over the simulated runs.
    pub decided: Vec<(f64, f64)>,
    /// The same with the noise of a run.
    #[serde(default)]
    pub measured: Option<f64>,
    /// Findings of which the study printed too little to simulate them.
    pub unknown: u32,
}

/// Standard deviations of a repetition.
const NOISES: [f64; 3] = [0.03, 0.1, 0.3];
/// The switch in Open vSwitch's place, and the one that it is compared with.
const SYSTEMS: [&str; 2] = ["ovs-kernel", "bridge"];

/// The standard deviations of repetitions, as shares of the mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Noise {
    /// Of everything.
    All(f64),
    /// By experiment and metric: of the measured cells of all switches. A cell that was not
    /// measured gets the noise of the measured cells that agree with it in most dimensions.
    Measured(BTreeMap<(String, String), Vec<Deviation>>),
}

/// The spread between the testbeds of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    at: BTreeMap<String, String>,
    /// The standard deviation, as a share of the mean.
    deviation: f64,
    /// Degrees of freedom: testbeds less one.
    freedom: f64,
}

/// The noise of a metric of which nothing was measured.
const UNKNOWN: f64 = 0.1;

impl Noise {
    /// The spread between the testbeds of each cell of a run. Cells with one testbed, or with a
    /// mean of 0, do not count as measured.
    pub fn of(results: &Results) -> Noise {
        type Cell<'a> = (&'a str, &'a str, &'a BTreeMap<String, String>, &'a str);
        let mut cells: BTreeMap<Cell<'_>, Vec<(u32, f64)>> = BTreeMap::new();
        for sample in &results.samples {
            for (metric, value) in &sample.metrics {
                let cell = (
                    sample.scenario.as_str(),
                    sample.system.as_str(),
                    &sample.at,
                    metric.as_str(),
                );
                cells.entry(cell).or_default().push((sample.testbed, *value));
            }
        }
        let mut all: BTreeMap<(String, String), Vec<Deviation>> = BTreeMap::new();
        for ((scenario, _, at, metric), values) in cells {
            let beds = Series::of_testbeds(values);
            if beds.n() > 1 && beds.mean() != 0.0 {
                let own = Deviation {
                    at: at.clone(),
                    deviation: beds.deviation() / beds.mean().abs(),
                    freedom: (beds.n() - 1) as f64,
                };
                all.entry((scenario.to_owned(), metric.to_owned()))
                    .or_default()
                    .push(own);
            }
        }
        Noise::Measured(all)
    }

    fn of_metric(&self, scenario: &str, at: &BTreeMap<String, String>, metric: &str) -> f64 {
        let cells = match self {
            Noise::All(noise) => return *noise,
            Noise::Measured(all) => all.get(&(scenario.to_owned(), metric.to_owned())),
        };
        let shared = |cell: &Deviation| {
            cell.at
                .iter()
                .filter(|(key, value)| at.get(*key) == Some(value))
                .count()
        };
        let cells = cells.map_or(&[][..], Vec::as_slice);
        let most = cells.iter().map(shared).max();
        let (mut squares, mut freedom) = (0.0, 0.0);
        for cell in cells.iter().filter(|cell| Some(shared(cell)) == most) {
            squares += cell.freedom * cell.deviation.powi(2);
            freedom += cell.freedom;
        }
        if freedom > 0.0 {
            (squares / freedom).sqrt()
        } else {
            UNKNOWN
        }
    }
}

/// Simulates `runs` full runs for each noise, and for that of a run if there is one, and judges
/// them as a page does. The same seed gives the same shares.
///
/// # Errors
/// None, unless a file in the program is wrong.
pub fn decides(
    scenarios: &[Scenario],
    runs: u32,
    seed: u64,
    measured: Option<Noise>,
) -> Result<Vec<Decides>, FindingsError> {
    let findings = published()?;
    let design = Design::new(&findings, scenarios)?;
    // Of each finding the decided share; none if it is not simulated.
    let shares = |noise: &Noise| -> Vec<Option<f64>> {
        let mut random = SplitMix(seed);
        let mut decided = vec![None; findings.finding.len()];
        for _ in 0..runs {
            let results = design.run(noise, &mut random);
            let columns = judge(&findings, scenarios, &results, [SYSTEMS[0]]);
            for column in &columns {
                for (n, judgement) in column.judgements.iter().enumerate() {
                    if column.can_be_decided[n] {
                        let is_decided = judgement.verdict != Verdict::Undecided;
                        *decided[n].get_or_insert(0.0) += f64::from(u8::from(is_decided)) / f64::from(runs);
                    }
                }
            }
        }
        decided
    };
    let shares = &shares;
    let all: Vec<Vec<Option<f64>>> = std::thread::scope(|scope| {
        let noises = NOISES.map(Noise::All).into_iter().chain(measured.clone());
        let threads: Vec<_> = noises.map(|noise| scope.spawn(move || shares(&noise))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|shares| shares.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let row = |experiment: &str, own: &dyn Fn(usize) -> bool| {
        let (known, unknown): (Vec<usize>, Vec<usize>) = (0..findings.finding.len())
            .filter(|n| !findings.finding[*n].checks.is_empty() && own(*n))
            .partition(|n| all[0][*n].is_some());
        let share = |shares: &Vec<Option<f64>>| {
            let sum: f64 = known.iter().filter_map(|n| shares[*n]).sum();
            sum / known.len().max(1) as f64
        };
        Decides {
            experiment: experiment.to_owned(),
            findings: known.len() as u32,
            decided: NOISES.into_iter().zip(all.iter().map(share)).collect(),
            measured: measured.as_ref().and(all.last()).map(share),
            unknown: unknown.len() as u32,
        }
    };
    let rows = scenarios.iter().map(|scenario| {
        let fed = tables(scenario);
        row(&scenario.id, &|n| {
            findings.finding[n].tables().any(|table| fed.contains(table))
        })
    });
    let rows = rows.filter(|row| row.findings + row.unknown > 0);
    Ok(rows.chain([row("", &|_| true)]).collect())
}

/// The shares for a terminal.
pub fn decides_table(rows: &[Decides]) -> String {
    let mut out = String::from("What --full decides, if the truth is what the study printed:\n");
    out += &format!("{:14}  findings", "experiment");
    for noise in NOISES {
        out += &format!("  noise {:2.0} %", 100.0 * noise);
    }
    let is_measured = rows.iter().any(|row| row.measured.is_some());
    out += if is_measured { "  noise of run" } else { "" };
    out += "  without numbers\n";
    for row in rows {
        let name = if row.experiment.is_empty() {
            "all"
        } else {
            &row.experiment
        };
        // Writing to a string does not fail.
        let _ = write!(out, "{name:14}  {:8}", row.findings);
        for share in row.decided.iter().map(|(_, share)| share).chain(&row.measured) {
            let text = match row.findings {
                0 => "–".to_owned(),
                _ => format!("{:.0} %", 100.0 * share),
            };
            let _ = write!(out, "  {text:>10}");
        }
        let _ = writeln!(out, "  {:15}", row.unknown);
    }
    out
}

/// The cells of the full profile with true values.
struct Design {
    cells: Vec<Planned>,
}

/// A cell on a switch.
struct Planned {
    scenario: String,
    system: &'static str,
    at: BTreeMap<String, String>,
    repetitions: u32,
    /// Number of the testbed in the first repetition.
    testbed: u32,
    /// By metric.
    truth: BTreeMap<String, f64>,
}

impl Design {
    fn new(findings: &Findings, scenarios: &[Scenario]) -> Result<Design, FindingsError> {
        let printed = findings.printed()?;
        let needed: BTreeSet<&str> = findings.finding.iter().flat_map(|finding| finding.tables()).collect();
        let (mut cells, mut testbeds) = (Vec::new(), 1);
        for scenario in scenarios {
            let repetitions = scenario.pace(Profile::Full).repetitions;
            let all = scenario.cells(Profile::Full);
            for system in SYSTEMS {
                for cell in all.iter().filter(|cell| cell.setup.is_for(system)) {
                    let fed = scenario.feeds(&cell.at, system).unwrap_or_default();
                    let fed = fed.iter().filter(|fed| needed.contains(fed.table.as_str()));
                    let truth = fed.filter_map(|fed| Some((fed.metric.clone(), value(&printed, fed)?)));
                    let truth: BTreeMap<String, f64> = truth.collect();
                    let bed = all.iter().position(|one| one.setup.topology == cell.setup.topology);
                    if !truth.is_empty() {
                        cells.push(Planned {
                            scenario: scenario.id.clone(),
                            system,
                            at: cell.at.clone(),
                            repetitions,
                            testbed: testbeds + bed.unwrap_or(0) as u32 * repetitions,
                            truth,
                        });
                    }
                }
                testbeds += all.len() as u32 * repetitions;
            }
        }
        Ok(Design { cells })
    }

    fn run(&self, noise: &Noise, random: &mut SplitMix) -> Results {
        let mut samples = Vec::new();
        for cell in &self.cells {
            let truth = cell.truth.iter();
            let truth: Vec<(&String, f64, f64)> = truth
                .map(|(name, mean)| (name, *mean, noise.of_metric(&cell.scenario, &cell.at, name)))
                .collect();
            for repetition in 0..cell.repetitions {
                let mut metric = |(name, mean, noise): &(&String, f64, f64)| {
                    ((*name).clone(), (mean * (1.0 + noise * normal(random))).max(0.0))
                };
                samples.push(Sample {
                    scenario: cell.scenario.clone(),
                    system: cell.system.to_owned(),
                    at: cell.at.clone(),
                    repetition,
                    testbed: cell.testbed + repetition,
                    metrics: truth.iter().map(&mut metric).collect(),
                    ..Sample::default()
                });
            }
        }
        Results {
            run: Run::new(Profile::Full, 0),
            samples,
            skipped: Vec::new(),
            configurations: Vec::new(),
        }
    }
}

/// What a study printed for a cell, in the unit of a sample's metric.
fn value(printed: &BTreeMap<String, Table>, fed: &Fed) -> Option<f64> {
    let same = |at: &BTreeMap<String, String>| at.iter().all(|(name, value)| fed.keys.get(name) == Some(value));
    let cell = printed.get(&fed.table)?.cells.iter().find(|cell| same(&cell.at))?;
    Some(cell.value.mean() / fed.scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::built_in;

    #[test]
    fn the_full_profile_decides_three_quarters_of_what_the_studies_numbers_let_it() {
        let quiet = Noise::Measured(BTreeMap::new());
        let rows = decides(&built_in().unwrap(), 1, 27, Some(quiet)).unwrap();
        assert!(decides_table(&rows).contains("noise of run"));
        let all = rows.last().unwrap();
        assert!(all.experiment.is_empty() && all.findings >= 20, "{all:?}");
        assert!(
            all.decided[0].1 >= 0.75 && all.decided[0].1 >= all.decided[2].1,
            "{all:?}"
        );
        assert_eq!(all.measured, Some(all.decided[1].1), "what is not measured has 10 %");
    }

    /// Values of some of a cell's dimensions.
    type At = &'static [(&'static str, &'static str)];
    const ONE_LIGHT: At = &[("rules", "one"), ("load", "light")];
    const ONE_HEAVY: At = &[("rules", "one"), ("load", "heavy")];
    const FULL_LIGHT: At = &[("rules", "full"), ("load", "light")];
    const FULL_HEAVY: At = &[("rules", "full"), ("load", "heavy")];

    /// Experiment, metric, values of the cells, and the standard deviation of repetitions as a
    /// share of the mean.
    type Row = (&'static str, &'static str, At, f64);
    /// Measured with the full profile's durations on a machine with two cores: oxvs, and the bridge
    /// in S1.transfer's baseline. Guests were not measured, and only UDP lost streams.
    const MEASURED: [Row; 22] = [
        ("S1.transfer", "tcp.total", &[("setup", "baseline")], 0.050),
        ("S1.transfer", "tcp.total", &[("setup", "bridged")], 0.013),
        ("S1.transfer", "tcp.total", &[("setup", "sdn")], 0.079),
        ("S2.stress", "net.throughput", &[("test", "TCP_STREAM")], 0.006),
        ("S2.stress", "net.throughput", &[("test", "UDP_STREAM")], 0.30),
        ("S2.stress", "net.rate", &[("test", "TCP_CRR")], 0.015),
        ("S2.stress", "net.rate", &[("test", "UDP_RR")], 0.62),
        ("S2.stress", "net.lost", &[("test", "UDP_STREAM")], 1.23),
        ("S3.match", "probe.rtt", &[], 0.028),
        ("S3.capacity", "table.rules", &[], 0.0),
        ("S3.many", "probe.rtt", &[], 0.071),
        ("S3.flowstats", "statistics.delay", ONE_LIGHT, 0.12),
        ("S3.flowstats", "statistics.delay", ONE_HEAVY, 0.35),
        ("S3.flowstats", "statistics.delay", FULL_LIGHT, 0.044),
        ("S3.flowstats", "statistics.delay", FULL_HEAVY, 0.012),
        ("S3.portstats", "statistics.delay", ONE_LIGHT, 0.076),
        ("S3.portstats", "statistics.delay", ONE_HEAVY, 0.53),
        ("S3.portstats", "statistics.delay", FULL_LIGHT, 0.094),
        ("S3.portstats", "statistics.delay", FULL_HEAVY, 0.18),
        ("S4.schedulers", "tcp.total", &[], 0.004),
        ("S4.schedulers", "rr.latency", &[], 0.086),
        ("S4.schedulers", "udp.jitter", &[], 0.098),
    ];

    #[test]
    fn the_full_profile_decides_three_quarters_with_the_noise_that_was_measured() {
        let known = built_in().unwrap();
        let design = Design::new(&published().unwrap(), &known).unwrap();
        let mut all: BTreeMap<_, Vec<Deviation>> = BTreeMap::new();
        for (scenario, metric, at, deviation) in MEASURED {
            let has = |cell: &Planned| {
                at.iter()
                    .all(|(key, value)| cell.at.get(*key).is_some_and(|own| own == value))
            };
            let mut cells = design
                .cells
                .iter()
                .filter(|cell| cell.scenario == scenario && has(cell));
            assert!(
                cells.any(|cell| cell.truth.contains_key(metric)),
                "no cell of {scenario} has {metric} at {at:?}"
            );
            let cell = Deviation {
                at: at
                    .iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
                deviation,
                freedom: 1.0,
            };
            all.entry((scenario.to_owned(), metric.to_owned()))
                .or_default()
                .push(cell);
        }
        let rows = decides(&known, 3, 27, Some(Noise::Measured(all))).unwrap();
        let all = rows.last().unwrap();
        assert!(all.measured.unwrap() >= 0.75, "{all:?}");
    }

    #[test]
    fn the_noise_of_a_run_is_what_its_testbeds_differ_by() {
        let at = |(size, speed): (&str, &str)| {
            BTreeMap::from([
                ("size".to_owned(), size.to_owned()),
                ("speed".to_owned(), speed.to_owned()),
            ])
        };
        let sample = |cell: (&str, &str), testbed: u32, value: f64| Sample {
            scenario: "S0.x".to_owned(),
            system: "oxvs".to_owned(),
            at: at(cell),
            testbed,
            metrics: [("flow.rtt".to_owned(), value)].into(),
            ..Sample::default()
        };
        // Means of 10, 100 and 10; testbeds are 1, 20 and 3 below and above. The third cell has
        // three testbeds. Repetitions on one testbed count as one.
        let samples = vec![
            sample(("small", "low"), 1, 8.0),
            sample(("small", "low"), 1, 10.0),
            sample(("small", "low"), 2, 11.0),
            sample(("small", "high"), 3, 80.0),
            sample(("small", "high"), 4, 120.0),
            sample(("large", "low"), 5, 7.0),
            sample(("large", "low"), 6, 10.0),
            sample(("large", "low"), 7, 13.0),
            sample(("large", "high"), 8, 1.0),
        ];
        let results = Results {
            run: Run::new(Profile::Quick, 0),
            samples,
            skipped: Vec::new(),
            configurations: Vec::new(),
        };
        let noise = Noise::of(&results);
        for (cell, square) in [
            (("small", "low"), 0.02),
            (("small", "high"), 0.08),
            (("large", "low"), 0.09),
            // One testbed: those with its size or its speed, which have three degrees of freedom.
            (("large", "high"), (0.08 + 2.0 * 0.09) / 3.0),
            (("huge", "high"), 0.08),
            // Nothing in common with any: all, which have four.
            (("huge", "none"), (0.02 + 0.08 + 2.0 * 0.09) / 4.0),
        ] {
            let found = noise.of_metric("S0.x", &at(cell), "flow.rtt");
            assert!((found.powi(2) - square).abs() < 1e-12, "{cell:?}: {found}");
        }
        assert_eq!(noise.of_metric("S0.y", &at(("small", "low")), "flow.rtt"), UNKNOWN);
    }
}
