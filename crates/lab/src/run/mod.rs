//! A run: cells × systems × repetitions, in a random order, each on its testbed, and the results.
//!
//! `plan` is the order, `engine` goes through it and records, `stage` is the machine with its
//! testbeds; `cpu` and `ledger` attribute processor time and losses; `observe` measures
//! everything except flows, `series` what happens during them. `decide` says which experiments
//! need more repetitions, `turns` runs two builds of the switch in turns, `inconclusive`
//! says which of their cells need more.

mod controls;
mod cpu;
mod decide;
mod engine;
mod inconclusive;
mod ledger;
mod observe;
mod plan;
mod progress;
mod select;
mod series;
mod settle;
mod stage;
mod stolen;
mod stop;
mod turns;
mod validity;

pub(crate) use cpu::Usage;
pub use decide::decisions;
pub use engine::{End, Outcome};
pub(crate) use progress::span;
pub use stop::Stop;
pub use turns::{Builds, run_turns};

use crate::awake::Awake;
use crate::results::{Experiment, Invocation, Machine, Record, Run, Skipped, Store};
use crate::scenario::{Profile, Scenario};
use crate::systems::System;
use crate::systems::remote::{self, Peer};
use anyhow::{Context, Result};
use engine::{Engine, Stage};
use plan::Job;
use progress::Progress;
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
    /// What is repeated after all repetitions.
    pub repeat: Repeat,
    /// This is a virtual machine of the laboratory's own.
    pub in_guest: bool,
    /// The machine that the switches run on; none: this one.
    pub remote: Option<remote::Options>,
}

/// What is repeated after all repetitions, twice as often each time, each time on a testbed of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Repeat {
    /// Nothing.
    No,
    /// Experiments whose verdicts are undecided.
    Undecided,
    /// Cells of two builds in which the second may be so many times worse and is not called worse.
    Inconclusive {
        /// So many times.
        factor: f64,
        /// See [`Criterion`](crate::compare::Criterion).
        threshold: f64,
    },
}

/// Runs everything without a sample.
///
/// # Errors
/// A switch that does not exist, a directory that cannot be used, results that cannot be
/// written. Recorded results are kept.
pub fn run(options: &Options, stop: &Stop) -> Result<Outcome> {
    let began = Instant::now();
    let peer = options.remote.as_ref().map(Peer::connect).transpose()?;
    let systems = peer.as_ref().map_or_else(crate::systems::all, Peer::systems);
    let chosen = select::choose(&options.scenarios, &systems, &options.switches, options.profile)?;
    if let Some(peer) = &peer {
        // Without it nobody knows what there is to run.
        peer.check_connection()?;
    }
    let mut store = open(options, peer.as_deref())?;
    enter(&mut store, options, &systems, &chosen)?;
    begin(&mut store)?;
    for skipped in &chosen.skipped {
        store.append(Record::Skipped(skipped.clone()))?;
    }
    let mut stage = stage::Here::new(systems, options.profile, peer.as_ref().map(|peer| peer.wire().clone()));
    go(options, chosen.jobs, &mut store, &mut stage, stop, began)
}

/// The store of a run: a new one, or the one to go on with.
fn open(options: &Options, peer: Option<&Peer>) -> Result<Store> {
    let mut machine = Machine::here();
    machine.offloads = crate::bed::offloads();
    let fresh = Run {
        in_guest: options.in_guest,
        machine,
        remote: peer.map(Peer::described),
        ..Run::new(options.profile, seed())
    };
    Store::open(&options.out, fresh)
}

fn begin(store: &mut Store) -> Result<()> {
    let load = Machine::here().load;
    store.change(|run| {
        run.invocations.push(Invocation {
            began: epoch(),
            seconds: None,
            version: crate::VERSION.to_owned(),
            load,
            end: None,
        });
    })
}

/// Runs the jobs and records how that ended.
fn go(
    options: &Options,
    mut jobs: Vec<Job>,
    store: &mut Store,
    stage: &mut dyn Stage,
    stop: &Stop,
    began: Instant,
) -> Result<Outcome> {
    let awake = Awake::begin().context("the processors cannot be kept awake")?;
    let mut progress = Progress::new();
    match options.repeat {
        Repeat::No => {}
        Repeat::Undecided => decide::begin(&mut jobs, store)?,
        Repeat::Inconclusive { .. } => inconclusive::begin(&mut jobs, store)?,
    }
    let outcome = loop {
        let outcome = Engine {
            jobs: &jobs,
            store: &mut *store,
            stage: &mut *stage,
            stop,
            budget: options.budget,
            now: &|| began.elapsed().as_secs_f64(),
            progress: &mut progress,
        }
        .run();
        let complete = matches!(&outcome, Ok(outcome) if outcome.end == End::Complete);
        if !complete {
            break outcome;
        }
        let goes_on = match options.repeat {
            Repeat::No => false,
            Repeat::Undecided => decide::repeat(&mut jobs, &options.scenarios, store)?,
            Repeat::Inconclusive { factor, threshold } => inconclusive::repeat(&mut jobs, factor, threshold, store)?,
        };
        if !goes_on {
            break outcome;
        }
    };
    stage.clear();
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
        let mut experiment = Experiment::new(&scenario.file, &scenario.source, job.samples());
        let chosen = job
            .systems
            .iter()
            .map(|one| (one.name.clone(), job.samples_of(one.cells.iter().copied())));
        experiment.chosen = chosen.collect();
        store.enter(&job.id, experiment)?;
    }
    for name in &chosen.systems {
        let system = systems
            .iter()
            .find(|system| system.name() == name)
            .context("a system that was chosen")?;
        let mut description = system.describe();
        if system.is_ours()
            && let Ok(build) = crate::bed::switch_build()
        {
            description.push_str(&format!(", build {}", short(&build)));
        }
        store.enter_system(name, &description)?;
    }
    Ok(())
}

/// As much of a hash as tells builds apart.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
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
