//! `oxvs lab ab`.

use super::compare::Gate;
use super::run::{fresh_name, scenarios};
use crate::compare::builds;
use crate::results::load;
use crate::run::{Builds, End, Options, Stop, run_turns};
use crate::scenario::Profile;
use anyhow::{Result, bail, ensure};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Each repetition has a testbed of its own, on which both builds run in a random order, so that whatever changes on the machine
affects both alike. A build is known by the hash of its file. Exit status 3: B is worse in some cell by more than --threshold.

Examples:
  oxvs lab ab old/oxvs new/oxvs S0.rtt.l3 --threshold 5
  oxvs lab ab old/oxvs new/oxvs S3 S4 --repetitions 12 --budget 60 --junit junit.xml";

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
    /// How often each cell is measured on each build
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    repetitions: u32,
    /// Directory for the results; an existing run is continued [default: lab-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop before a repetition that would end after this time
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    #[command(flatten)]
    gate: Gate,
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
            until_decided: false,
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
        let told = self.gate.tell(&[a], &b)?;
        ensure!(
            outcome.failed == 0,
            "{} repetitions failed; the same command with --out {} tries them again",
            outcome.failed,
            out.display()
        );
        Ok(told)
    }
}
