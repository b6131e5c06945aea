//! `oxvs lab calibrate --verdicts`.

use super::run::scenarios;
use crate::compare::{Criterion, builds, compare, itself};
use crate::findings::{Noise, Rates, decides, decides_table, rates_table, simulate};
use crate::report::{POWER, RATES};
use crate::results::load;
use crate::run::{Builds, End, Options, Repeat, Stop, run_turns};
use crate::scenario::Profile;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// Rates of wrong verdicts must not depend on the day.
const SEED: u64 = 27;
/// Full runs that are simulated for each noise: each is judged as a whole.
const PAGES: u32 = 10;
/// What is measured to compare the switch with itself: it has metrics of all kinds of noise.
const EXPERIMENT: &str = "S0.rtt.l3";
/// As many as the full profile has.
const REPETITIONS: u32 = 10;

/// Simulates results, runs the switch against itself, prints how often verdicts were wrong, and
/// keeps that for a run's report.
///
/// # Errors
/// A budget that is none, a failed run, a `noise` that is no run, files that cannot be written.
pub(super) fn run(out: Option<&Path>, runs: u32, budget: f64, noise: Option<&Path>) -> Result<()> {
    ensure!(budget.is_finite() && budget >= 0.0, "--budget wants minutes, 0 or more");
    let noise = noise.map(load).transpose()?.map(|results| Noise::of(&results));
    let mut rates = simulate(runs, SEED);
    if budget > 0.0 && !rustix::process::geteuid().is_root() {
        eprintln!("A against A is left out: a run needs root");
    } else if budget > 0.0 {
        rates.push(against_itself(budget)?);
    }
    mgmt::out!("{}\n", rates_table(&rates));
    let power = decides(&scenarios(&[])?, PAGES, SEED, noise)?;
    mgmt::out!("{}", decides_table(&power));
    if let Some(dir) = out {
        keep(&dir.join(RATES), &serde_json::to_string_pretty(&rates)?)?;
        keep(&dir.join(POWER), &serde_json::to_string_pretty(&power)?)?;
    }
    Ok(())
}

fn keep(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, format!("{text}\n")).with_context(|| path.display().to_string())
}

/// Runs the installed switch in turns with itself for so many minutes.
fn against_itself(budget: f64) -> Result<Rates> {
    let dir = tempfile::tempdir().context("a directory for A against A")?;
    let options = Options {
        scenarios: scenarios(&[EXPERIMENT.to_owned()])?,
        switches: Vec::new(),
        profile: Profile::Quick,
        out: dir.path().join("run"),
        budget: Some(60.0 * budget),
        repeat: Repeat::No,
        in_guest: false,
        remote: None,
    };
    eprintln!("A against A: {EXPERIMENT}, at most {budget} minutes");
    let outcome = run_turns(&options, Builds::of_one()?, REPETITIONS, &Stop::on_signals()?)?;
    if outcome.end == End::Interrupted {
        bail!("interrupted");
    }
    let (a, b) = builds(&load(&options.out)?)?;
    itself(&compare(&[a], &b, Criterion::once(0.0)), EXPERIMENT)
        .with_context(|| format!("{budget} minutes are too short for two repetitions of {EXPERIMENT}"))
}
