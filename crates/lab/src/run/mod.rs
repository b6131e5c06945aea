//! A run: cells × systems × repetitions, in a random order, each on its testbed, and the results.
//!
//! `plan` is the order, `engine` goes through it and records, `stage` is the machine with its
//! testbeds; `cpu` and `ledger` attribute processor time and losses; `observe` measures everything
//! except flows.

mod controls;
mod cpu;
mod engine;
mod ledger;
mod observe;
mod plan;
mod progress;
mod select;
mod stage;
mod stop;
mod validity;

pub use engine::{End, Outcome};
pub(crate) use progress::span;
pub use stop::Stop;

use crate::awake::Awake;
use crate::results::{Experiment, FORMAT, Invocation, Machine, Record, Run, Skipped, Store};
use crate::scenario::{Profile, Scenario};
use crate::systems::System;
use anyhow::{Context, Result};
use engine::Engine;
use progress::Progress;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

/// The options of a run.
pub struct Options {
    /// Which experiments.
    pub scenarios: Vec<Scenario>,
    /// The switches chosen by name; none: those of the profile.
    pub switches: Vec<String>,
    /// Two points or all.
    pub profile: Profile,
    /// The output directory.
    pub out: PathBuf,
    /// Seconds.
    pub budget: Option<f64>,
    /// This is a virtual machine of the laboratory's own.
    pub in_guest: bool,
}

/// Runs everything without a sample.
///
/// # Errors
/// A switch that does not exist, a directory that cannot be used, results that cannot be
/// written. Recorded results are kept.
pub fn run(options: &Options, stop: &Stop) -> Result<Outcome> {
    let began = Instant::now();
    let systems = crate::systems::all();
    let chosen = select::choose(&options.scenarios, &systems, &options.switches, options.profile)?;
    let mut machine = Machine::here();
    machine.offloads = crate::bed::offloads();
    let load = machine.load;
    let fresh = Run {
        format: FORMAT,
        profile: options.profile,
        seed: seed(),
        in_guest: options.in_guest,
        machine,
        systems: BTreeMap::new(),
        scenarios: BTreeMap::new(),
        invocations: Vec::new(),
    };
    let mut store = Store::open(&options.out, fresh)?;
    enter(&mut store, options, &systems, &chosen)?;
    store.change(|run| {
        run.invocations.push(Invocation {
            began: epoch(),
            seconds: None,
            version: crate::VERSION.to_owned(),
            load,
            end: None,
        });
    })?;
    for skipped in &chosen.skipped {
        store.append(Record::Skipped(skipped.clone()))?;
    }
    let awake = Awake::begin().context("the processors cannot be kept awake")?;
    let mut stage = stage::Here::new(systems, options.profile);
    let mut progress = Progress::new();
    let outcome = Engine {
        jobs: &chosen.jobs,
        store: &mut store,
        stage: &mut stage,
        stop,
        budget: options.budget,
        now: &|| began.elapsed().as_secs_f64(),
        progress: &mut progress,
    }
    .run();
    drop(stage);
    drop(awake);
    let end = match &outcome {
        Ok(outcome) => match outcome.end {
            End::Complete => "complete".to_owned(),
            End::Budget => "budget".to_owned(),
            End::Interrupted => "interrupted".to_owned(),
        },
        Err(error) => format!("{error:#}"),
    };
    let ended = store.change(|run| {
        if let Some(last) = run.invocations.last_mut() {
            last.seconds = Some(began.elapsed().as_secs_f64());
            last.end = Some(end);
        }
    });
    // An error in writing results is more important than this one.
    let outcome = outcome?;
    ended?;
    Ok(outcome)
}

/// Enters experiments and systems; a directory that holds others of that name is left as it is.
fn enter(store: &mut Store, options: &Options, systems: &[Box<dyn System>], chosen: &select::Chosen) -> Result<()> {
    for (scenario, job) in options.scenarios.iter().zip(&chosen.jobs) {
        store.enter(
            &job.id,
            Experiment::new(&scenario.file, &scenario.source, job.samples()),
        )?;
    }
    for name in &chosen.systems {
        let system = systems
            .iter()
            .find(|system| system.name() == name)
            .context("a system that was chosen")?;
        store.enter_system(name, &system.describe())?;
    }
    Ok(())
}

fn epoch() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Drawn by the standard library from the system.
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Skipped cells by reason.
pub fn reasons(skipped: &[Skipped]) -> Vec<(String, String)> {
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for one in skipped {
        let who = format!("{} on {}", one.scenario, one.system);
        match by_reason.iter_mut().find(|(reason, _)| *reason == one.reason) {
            Some((_, all)) if all.contains(&who) => {}
            Some((_, all)) => all.push(who),
            None => by_reason.push((one.reason.clone(), vec![who])),
        }
    }
    by_reason
        .into_iter()
        .map(|(reason, who)| (who.join(", "), reason))
        .collect()
}
