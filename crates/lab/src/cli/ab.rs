//! `oxvs lab ab`.

use super::compare::{Gate, MUCH};
use super::run::{fresh_name, scenarios};
use crate::compare::{Compared, Comparison, Criterion, builds, compare, inconclusive};
use crate::results::load;
use crate::run::{Builds, End, Options, Repeat, Stop, run_turns};
use crate::scenario::Profile;
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Each repetition has a testbed of its own, on which both builds run in a random order, so that whatever changes on the machine
affects both alike. A build is known by the hash of its file. Cells that do not tell whether B is --factor times worse are repeated,
up to eight times as often, which can take several times as long: --budget bounds it. Exit status 3: B is worse in some cell by more
than --threshold.

Examples:
  oxvs lab ab old/oxvs new/oxvs S0.rtt.l3 --threshold 5
  oxvs lab ab old/oxvs new/oxvs --budget 60 --junit junit.xml
  oxvs lab ab old/oxvs new/oxvs S3 S4 --repetitions 12 --factor none";

/// Two builds, and the experiments.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Ab {
    /// An `oxvs` program, the reference
    a: PathBuf,
    /// An `oxvs` program, compared with it
    b: PathBuf,
    /// Names of experiments, as for `run`; without one all of them
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Every point, with the durations of the study
    #[arg(long)]
    full: bool,
    /// How often each cell is measured on each build, at least
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    repetitions: u32,
    /// Repeat the cells in which B may be so many times worse and is not called worse, twice as
    /// often each time, up to eight times as often; `none` repeats nothing
    #[arg(long, value_name = "FACTOR", default_value_t = Factor(Some(MUCH)), value_parser = factor)]
    factor: Factor,
    /// Directory for the results; an existing run is continued [default: lab-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop before a repetition that would end after this time
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    #[command(flatten)]
    gate: Gate,
}

/// How many times worse B must be to be found; `None`: no cell is repeated.
#[derive(Clone, Copy, Debug)]
struct Factor(Option<f64>);

fn factor(text: &str) -> Result<Factor, String> {
    if text == "none" {
        return Ok(Factor(None));
    }
    let factor = text.parse().ok().filter(|factor| (1.1..=1000.0).contains(factor));
    let factor: f64 = factor.ok_or("1.1 to 1000, or 'none'")?;
    Ok(Factor(Some(factor)))
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(factor) => write!(f, "{factor}"),
            None => f.write_str("none"),
        }
    }
}

/// Most comparisons that are named.
const SHOWN: usize = 20;

/// Names the comparisons by which B may be so many times worse, those that tell least first.
fn tell_inconclusive(compared: &Compared, factor: f64) {
    let bound = |one: &Comparison| one.worst.unwrap_or(f64::INFINITY);
    let mut all: Vec<&Comparison> = inconclusive(compared, factor).collect();
    all.sort_by(|one, other| bound(other).total_cmp(&bound(one)));
    for one in all.iter().take(SHOWN) {
        let place = if one.at.is_empty() {
            String::new()
        } else {
            format!(" ({})", one.place())
        };
        let times = match bound(one) {
            bound if bound < 1000.0 => format!("{bound:.1} times worse"),
            _ => "worse by any factor".to_owned(),
        };
        eprintln!("undecided: {}{place}: {} may be {times} in B", one.scenario, one.metric);
    }
    if all.len() > SHOWN {
        eprintln!("undecided: {} more", all.len() - SHOWN);
    }
}

impl Ab {
    /// Runs both, compares them, and says by its exit status whether B is worse.
    ///
    /// # Errors
    /// A program that is not oxvs, an unknown experiment, a failed run.
    pub(super) fn run(&self) -> Result<ExitCode> {
        self.gate.check()?;
        ensure!(
            self.budget.is_none_or(|minutes| minutes.is_finite() && minutes > 0.0),
            "--budget wants minutes, more than 0"
        );
        if let Factor(Some(factor)) = self.factor {
            ensure!(
                factor > 1.0 + self.gate.threshold(),
                "--factor {factor} must be more than {}, 1 and --threshold",
                1.0 + self.gate.threshold()
            );
        }
        let programs = Builds::open(&self.a, &self.b)?;
        let scenarios = scenarios(&self.scenarios)?;
        ensure!(
            rustix::process::geteuid().is_root(),
            "a run needs root: it makes network namespaces and devices"
        );
        let out = self.out.clone().unwrap_or_else(fresh_name);
        for (name, description) in programs.describe()? {
            eprintln!("{name}: {description}");
        }
        let stop = Stop::on_signals()?;
        let options = Options {
            scenarios,
            switches: Vec::new(),
            profile: if self.full { Profile::Full } else { Profile::Quick },
            out: out.clone(),
            budget: self.budget.map(|minutes| minutes * 60.0),
            repeat: match self.factor {
                Factor(None) => Repeat::No,
                Factor(Some(factor)) => Repeat::Inconclusive {
                    factor,
                    threshold: self.gate.threshold(),
                },
            },
            in_guest: false,
            remote: None,
        };
        let outcome = run_turns(&options, programs, self.repetitions, &stop)?;
        ensure!(outcome.wanted > 0, "nothing of this can be run here");
        if outcome.end == End::Interrupted {
            bail!("interrupted; the same command with --out {} continues", out.display());
        }
        if outcome.end == End::Budget {
            eprintln!(
                "the budget is spent after {} of {} samples; the same command with --out {} continues",
                outcome.samples,
                outcome.wanted,
                out.display()
            );
        }
        let (a, b) = builds(&load(&out)?)?;
        let compared = compare(&[a], &b, Criterion::of(&b.run, self.gate.threshold()));
        if outcome.void > 0 {
            eprintln!(
                "{} samples do not count; the same command with --out {} takes them again",
                outcome.void,
                out.display()
            );
        }
        if let Factor(Some(factor)) = self.factor {
            tell_inconclusive(&compared, factor);
        }
        let told = self.gate.tell(&compared)?;
        ensure!(
            outcome.failed == 0,
            "{} repetitions failed; the same command with --out {} tries them again",
            outcome.failed,
            out.display()
        );
        Ok(told)
    }
}
