//! Two builds of the switch in turns, on the same testbeds.

use super::engine::{Outcome, Stage, Standing};
use super::plan::{Candidate, Job};
use super::{Options, select, stage};
use crate::bed::{Build, use_switch};
use crate::results::{Experiment, Record};
use crate::run::Stop;
use crate::scenario::Setup;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Instant;

/// The two builds.
#[derive(Debug)]
pub struct Builds([Build; 2]);

/// How results call them.
const NAMES: [&str; 2] = ["A", "B"];

/// The switch that both are.
const SWITCH: &str = "oxvs";

impl Builds {
    /// Opens two programs; they may have any version.
    ///
    /// # Errors
    /// One cannot be read, or is not oxvs.
    pub fn open(a: &Path, b: &Path) -> Result<Builds> {
        let open = |path: &Path| -> Result<Build> {
            let build = Build::open(path)?;
            build.version().with_context(|| path.display().to_string())?;
            Ok(build)
        };
        Ok(Builds([open(a)?, open(b)?]))
    }

    /// The installed switch, twice.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn of_one() -> Result<Builds> {
        let switch = crate::bed::switch_program()?;
        Builds::open(&switch, &switch)
    }

    /// Name and description of each.
    ///
    /// # Errors
    /// One cannot be run.
    pub fn describe(&self) -> Result<[(&'static str, String); 2]> {
        let one = |n: usize| -> Result<_> {
            let build = &self.0[n];
            Ok((
                NAMES[n],
                format!("oxvs {}, build {}", build.version()?, super::short(build.hash())),
            ))
        };
        Ok([one(0)?, one(1)?])
    }
}

/// Runs everything without a sample, each repetition of both builds on one testbed that is made
/// for it, in a random order.
///
/// # Errors
/// As [`super::run`].
pub fn run_turns(options: &Options, builds: Builds, repetitions: u32, stop: &Stop) -> Result<Outcome> {
    let began = Instant::now();
    let systems = crate::systems::all();
    let chosen = select::choose(&options.scenarios, &systems, &[SWITCH.to_owned()], options.profile)?;
    let mut store = super::open(options, None)?;
    let mut jobs: Vec<Job> = chosen.jobs;
    for (scenario, job) in options.scenarios.iter().zip(&mut jobs) {
        job.rebuilds = true;
        job.repetitions = repetitions;
        let own = job.systems.iter().find(|candidate| candidate.name == SWITCH);
        let cells = own.map(|candidate| candidate.cells.clone()).unwrap_or_default();
        let candidate = |name: &str| Candidate {
            name: name.to_owned(),
            cells: cells.clone(),
        };
        job.systems = NAMES.map(candidate).into();
        store.enter(
            &job.id,
            Experiment::new(&scenario.file, &scenario.source, job.samples()),
        )?;
    }
    for (name, description) in builds.describe()? {
        store.enter_system(name, &description)?;
    }
    super::begin(&mut store)?;
    for skipped in chosen.skipped {
        store.append(Record::Skipped(skipped))?;
    }
    let mut stage = Turns {
        here: stage::Here::new(systems, options.profile, None),
        builds,
    };
    super::go(options, jobs, &mut store, &mut stage, stop, began)
}

/// This machine, with a build in place of a system.
struct Turns {
    here: stage::Here,
    builds: Builds,
}

impl Stage for Turns {
    fn stand(&mut self, name: &str, setup: &Setup) -> Result<Box<dyn Standing>> {
        let at = NAMES
            .iter()
            .position(|known| *known == name)
            .context("there is no such build")?;
        use_switch(self.builds.0[at].again()?);
        self.here.stand(SWITCH, setup)
    }

    fn clear(&mut self) {
        self.here.clear();
    }
}
