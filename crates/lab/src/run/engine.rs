//! Runs the repetitions: skips those done before, records failures and goes on.

use super::plan::{Block, Job, blocks};
use super::progress::Progress;
use super::stop::Stop;
use crate::results::{Distribution, Loss, Record, Sample, Skipped, Store, Validity};
use crate::scenario::{Setup, bed_seconds, repetition_seconds};
use crate::topology::Topology;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The place of testbeds: this machine, or a test's fake.
pub(crate) trait Stage {
    /// Makes a testbed and sets a system up on it.
    ///
    /// # Errors
    /// What could not be made, for the report. All set-up is undone.
    fn stand(&mut self, system: &str, setup: &Setup) -> Result<Box<dyn Standing>>;

    /// Something went wrong on the testbed, or it is not as it was: the next one is to be a new
    /// one.
    fn clear(&mut self);
}

/// A testbed with a system on it. Dropping it removes the system.
pub(crate) trait Standing {
    /// The commands that set the system up.
    fn configuration(&self) -> Vec<String>;

    /// Runs a cell: warm-up, then the measurement.
    ///
    /// # Errors
    /// The failure, with the last log lines of a system that died.
    fn measure(&mut self, setup: &Setup, stop: &Stop) -> Result<Measurement>;
}

/// The result of a repetition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurement {
    /// Seconds since 1970.
    pub(crate) started: f64,
    /// How long was measured.
    pub(crate) seconds: f64,
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) distributions: BTreeMap<String, Distribution>,
    pub(crate) series: BTreeMap<String, Vec<(f64, f64)>>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) cpu: BTreeMap<String, f64>,
    pub(crate) load: f64,
    pub(crate) remarks: Vec<String>,
    pub(crate) validity: Validity,
    /// The testbed is no longer clean; the next repetition needs a new one.
    pub(crate) spent: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything that can be run here was.
    Complete,
    /// The next repetition did not fit into the budget.
    Budget,
    /// A user interrupted it.
    Interrupted,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Samples that are there and count, of this profile and these systems.
    pub samples: u64,
    /// Number of wanted samples.
    pub wanted: u64,
    /// Repetitions that failed in this invocation.
    pub failed: u64,
    /// Samples of this invocation that do not count.
    pub void: u64,
}

/// A cell that failed so often in one invocation is left alone.
const MOST_FAILURES: u32 = 2;

pub(crate) struct Engine<'a> {
    pub(crate) jobs: &'a [Job],
    pub(crate) store: &'a mut Store,
    pub(crate) stage: &'a mut dyn Stage,
    pub(crate) stop: &'a Stop,
    /// Seconds, by `now`.
    pub(crate) budget: Option<f64>,
    /// Seconds since the invocation began.
    pub(crate) now: &'a dyn Fn() -> f64,
    pub(crate) progress: &'a mut Progress,
}

/// The remaining work and the speed.
struct Course {
    /// Each with the seconds that its testbed and the switch on it should take.
    blocks: Vec<(Block, f64)>,
    /// Estimated seconds of the remaining work.
    left: f64,
    /// Estimated and real seconds of the finished work.
    should: f64,
    did: f64,
    /// The number of the last testbed.
    testbeds: u32,
    /// Job and repetition of the last block.
    last: Option<(usize, u32)>,
    /// How often a cell failed on a system, and how it did last.
    failures: HashMap<(usize, String, usize), (u32, String)>,
}

impl Course {
    /// How much longer things take than they should.
    fn pace(&self) -> f64 {
        // A little should not tell much.
        (self.did + 20.0) / (self.should + 20.0)
    }
}

impl Engine<'_> {
    /// Runs everything without a sample.
    ///
    /// # Errors
    /// Results cannot be written. Written results are kept.
    pub(crate) fn run(&mut self) -> Result<Outcome> {
        let wanted: u64 = self
            .jobs
            .iter()
            .map(|job| {
                job.systems
                    .iter()
                    .map(|s| job.samples_of(s.cells.iter().copied()))
                    .sum::<u64>()
            })
            .sum();
        let mut course = self.course();
        let mut outcome = Outcome {
            end: End::Complete,
            samples: 0,
            wanted,
            failed: 0,
            void: 0,
        };
        let left: u64 = course.blocks.iter().map(|(block, _)| block.cells.len() as u64).sum();
        outcome.samples = wanted - left;
        self.progress.begin(wanted, outcome.samples, course.left);
        for (block, bed) in std::mem::take(&mut course.blocks) {
            if let Some(end) = self.block(&block, bed, &mut course, &mut outcome)? {
                outcome.end = end;
                break;
            }
        }
        self.progress.end();
        Ok(outcome)
    }

    /// The blocks without finished repetitions.
    fn course(&self) -> Course {
        let samples = self.store.records().iter().filter_map(|record| match record {
            Record::Sample(sample) if sample.is_valid() => {
                Some((&sample.scenario, &sample.system, &sample.at, sample.repetition))
            }
            Record::Sample(_) | Record::Skipped(_) => None,
        });
        let done: HashSet<_> = samples.collect();
        let mut blocks = blocks(self.jobs, self.store.run().seed);
        let mut left = 0.0;
        for block in &mut blocks {
            let job = &self.jobs[block.job];
            block.cells.retain(|(cell, repetition)| {
                !done.contains(&(&job.id, &block.system, &job.cells[*cell].at, *repetition))
            });
            left += block
                .cells
                .iter()
                .map(|(cell, _)| repetition_seconds(&job.cells[*cell].setup))
                .sum::<f64>();
        }
        blocks.retain(|block| !block.cells.is_empty());
        let testbeds = self.store.records().iter().filter_map(|record| match record {
            Record::Sample(sample) => Some(sample.testbed),
            Record::Skipped(_) => None,
        });
        let testbeds = testbeds.max().unwrap_or(0);
        // A testbed stays for the next block with the same hosts and cables, unless each repetition
        // has its own.
        let mut stands: Option<Topology> = None;
        let mut last = None;
        let with_bed = |block: Block| {
            let turn = self.turn(&block);
            if turn.is_some() && last != turn {
                stands = None;
            }
            last = turn;
            let topology = &self.jobs[block.job].cells[block.bed].setup.topology;
            let cabling = topology.cabling();
            let seconds = bed_seconds(topology, stands.as_ref() != Some(&cabling));
            stands = Some(cabling);
            (block, seconds)
        };
        let blocks: Vec<(Block, f64)> = blocks.into_iter().map(with_bed).collect();
        left += blocks.iter().map(|(_, bed)| bed).sum::<f64>();
        Course {
            blocks,
            left,
            should: 0.0,
            did: 0.0,
            testbeds,
            last: None,
            failures: HashMap::new(),
        }
    }

    /// `bed` is the estimated set-up time of testbed and switch, in seconds.
    fn block(&mut self, block: &Block, bed: f64, course: &mut Course, outcome: &mut Outcome) -> Result<Option<End>> {
        let job = &self.jobs[block.job];
        let turn = self.turn(block);
        if turn.is_some() && course.last != turn {
            self.stage.clear();
        }
        course.last = turn;
        let mut stood: Option<Box<dyn Standing>> = None;
        let mut owed = bed;
        for (cell, repetition) in &block.cells {
            let setup = &job.cells[*cell].setup;
            let should = repetition_seconds(setup) + if stood.is_none() { owed } else { 0.0 };
            if self.stop.is_requested() {
                return Ok(Some(End::Interrupted));
            }
            if self
                .budget
                .is_some_and(|budget| (self.now)() + should * course.pace().max(1.0) > budget)
            {
                return Ok(Some(End::Budget));
            }
            let key = (block.job, block.system.clone(), *cell);
            let began = (self.now)();
            if let Some((_, reason)) = course.failures.get(&key).filter(|(times, _)| *times >= MOST_FAILURES) {
                let reason = reason.clone();
                self.skip(block, *cell, reason)?;
            } else {
                self.progress
                    .at(&job.id, &block.system, &job.cells[*cell].at, *repetition);
                match self.cell(block, *cell, &mut stood) {
                    Ok((measurement, is_new)) => {
                        course.testbeds += u32::from(is_new);
                        if measurement.spent {
                            stood = None;
                            self.stage.clear();
                        }
                        let mut sample = sample(job, block, (*cell, *repetition), measurement);
                        sample.testbed = course.testbeds;
                        if sample.is_valid() {
                            outcome.samples += 1;
                        } else {
                            outcome.void += 1;
                            let why = sample.validity.void.join("; ");
                            self.progress
                                .say(&format!("{} on {}: void: {why}", job.id, block.system));
                        }
                        self.store.append(Record::Sample(Box::new(sample)))?;
                    }
                    Err(_) if self.stop.is_requested() => return Ok(Some(End::Interrupted)),
                    Err(error) => {
                        let reason = format!("{error:#}");
                        self.progress.say(&format!("{} on {}: {reason}", job.id, block.system));
                        // If set-up fails for one cell, it fails for all cells of the testbed.
                        let all = block.cells.iter().map(|(cell, _)| *cell);
                        let failed: BTreeSet<usize> = if stood.is_none() { all.collect() } else { [*cell].into() };
                        for cell in failed {
                            let failures = course
                                .failures
                                .entry((block.job, block.system.clone(), cell))
                                .or_default();
                            *failures = (failures.0 + 1, reason.clone());
                        }
                        stood = None;
                        self.stage.clear();
                        outcome.failed += 1;
                        self.skip(block, *cell, reason)?;
                    }
                }
                course.should += should;
                course.did += (self.now)() - began;
            }
            course.left -= repetition_seconds(setup) + owed;
            owed = 0.0;
            self.progress.advance(course.left * course.pace());
        }
        Ok(None)
    }

    fn skip(&mut self, block: &Block, cell: usize, reason: String) -> Result<()> {
        let job = &self.jobs[block.job];
        self.store.append(Record::Skipped(Skipped {
            scenario: job.id.clone(),
            system: block.system.clone(),
            at: job.cells[cell].at.clone(),
            reason,
            failed: true,
        }))
    }

    /// Job and repetition, if each repetition has a testbed of its own.
    fn turn(&self, block: &Block) -> Option<(usize, u32)> {
        let repetition = block.cells.first().map(|(_, repetition)| *repetition)?;
        self.jobs[block.job].rebuilds.then_some((block.job, repetition))
    }

    /// Also returns whether the switch was set up for it.
    fn cell(
        &mut self,
        block: &Block,
        cell: usize,
        stood: &mut Option<Box<dyn Standing>>,
    ) -> Result<(Measurement, bool)> {
        let job = &self.jobs[block.job];
        let setup = &job.cells[cell].setup;
        let is_new = stood.is_none();
        let standing = match stood {
            Some(standing) => standing,
            None => {
                let standing = self.stage.stand(&block.system, setup)?;
                self.store.configuration(
                    &job.id,
                    &block.system,
                    &heading(job, block.bed),
                    &standing.configuration(),
                )?;
                stood.insert(standing)
            }
        };
        Ok((standing.measure(setup, self.stop)?, is_new))
    }
}

fn sample(job: &Job, block: &Block, (cell, repetition): (usize, u32), measured: Measurement) -> Sample {
    Sample {
        scenario: job.id.clone(),
        system: block.system.clone(),
        at: job.cells[cell].at.clone(),
        repetition,
        testbed: 0,
        started: measured.started,
        seconds: measured.seconds,
        metrics: measured.metrics,
        distributions: measured.distributions,
        series: measured.series,
        losses: measured.losses,
        cpu: measured.cpu,
        load: measured.load,
        remarks: measured.remarks,
        validity: measured.validity,
    }
}

/// For which cells a testbed is: the values that all of its cells have in common and others have
/// not.
fn heading(job: &Job, bed: usize) -> String {
    let beds = job.beds();
    let (here, there): (Vec<_>, Vec<_>) = job.cells.iter().zip(&beds).partition(|(_, of)| **of == bed);
    let Some((first, _)) = here.first() else {
        return "all".to_owned();
    };
    let tells = |(key, value): &(&String, &String)| {
        let same = |cell: &crate::scenario::Cell| cell.at.get(*key) == Some(*value);
        here.iter().all(|(cell, _)| same(cell)) && !there.iter().all(|(cell, _)| same(cell))
    };
    let values: Vec<String> = first
        .at
        .iter()
        .filter(tells)
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    if values.is_empty() {
        "all".to_owned()
    } else {
        values.join(", ")
    }
}

#[cfg(test)]
mod tests;
