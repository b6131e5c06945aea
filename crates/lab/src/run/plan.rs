//! The order of repetitions.
//!
//! Cells that share a testbed and the switch on it are run one after the other in a block. The
//! blocks of a repetition run in a random order, all before the next repetition, so that changes on
//! the machine affect all systems alike; those with the same hosts and cables follow each other. In
//! the quick profile a block has all repetitions. The order depends only on the seed, so a
//! continued run keeps it.

use crate::scenario::Cell;
use crate::stats::SplitMix;
use crate::topology::Topology;
use std::collections::BTreeMap;

/// A scenario as it is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Its id.
    pub(crate) id: String,
    /// All cells of the profile.
    pub(crate) cells: Vec<Cell>,
    /// How often each.
    pub(crate) repetitions: u32,
    /// How often those cells that are measured more often; only with `rebuilds`.
    pub(crate) repeated: BTreeMap<usize, u32>,
    /// Each repetition has a testbed of its own.
    pub(crate) rebuilds: bool,
    /// Names of the systems, with those cells that each cannot run.
    pub(crate) systems: Vec<Candidate>,
}

/// A system that a scenario is run on.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) name: String,
    /// The cells that it can run.
    pub(crate) cells: Vec<usize>,
}

/// Cells that are run one after the other on one testbed with one switch on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Which job.
    pub(crate) job: usize,
    /// Name of the system.
    pub(crate) system: String,
    /// Which testbed, by its first cell.
    pub(crate) bed: usize,
    /// Cells and their repetitions, counted from 0, in this order.
    pub(crate) cells: Vec<(usize, u32)>,
}

impl Job {
    /// For each cell the first cell with an equal testbed.
    pub(crate) fn beds(&self) -> Vec<usize> {
        let first = |cell: &Cell| {
            self.cells
                .iter()
                .position(|other| other.setup.topology == cell.setup.topology)
        };
        self.cells.iter().map(|cell| first(cell).unwrap_or(0)).collect()
    }

    /// For each cell the first cell with equal hosts and cables.
    fn cablings(&self) -> Vec<usize> {
        let all: Vec<Topology> = self.cells.iter().map(|cell| cell.setup.topology.cabling()).collect();
        all.iter()
            .map(|cabling| all.iter().position(|other| other == cabling).unwrap_or(0))
            .collect()
    }

    /// How often a cell.
    pub(crate) fn repetitions_of(&self, cell: usize) -> u32 {
        let repeated = self.repeated.get(&cell).copied().unwrap_or(0);
        repeated.max(self.repetitions)
    }

    /// How many samples of each system, at most.
    pub(crate) fn samples(&self) -> u64 {
        self.samples_of(0..self.cells.len())
    }

    /// How many samples of a system that runs these cells.
    pub(crate) fn samples_of(&self, cells: impl IntoIterator<Item = usize>) -> u64 {
        cells.into_iter().map(|cell| u64::from(self.repetitions_of(cell))).sum()
    }
}

/// All blocks in the order to run them.
pub(crate) fn blocks(jobs: &[Job], seed: u64) -> Vec<Block> {
    let mut all = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let beds = job.beds();
        let step = if job.rebuilds { 1 } else { job.repetitions.max(1) };
        let most = job.repeated.values().copied().fold(job.repetitions, u32::max);
        for first in (0..most).step_by(step as usize) {
            let mut random = SplitMix(seed ^ mix(&job.id, first));
            let mut blocks: Vec<Block> = Vec::new();
            for system in &job.systems {
                for cell in system.cells.iter().filter(|cell| first < job.repetitions_of(**cell)) {
                    let (bed, name) = (beds[*cell], &system.name);
                    match blocks
                        .iter_mut()
                        .find(|block| block.bed == bed && block.system == *name)
                    {
                        Some(block) => block.cells.push((*cell, first)),
                        None => blocks.push(Block {
                            job: number,
                            system: name.clone(),
                            bed,
                            cells: vec![(*cell, first)],
                        }),
                    }
                }
            }
            shuffle(&mut blocks, &mut random);
            let cablings = job.cablings();
            let places: Vec<usize> = blocks.iter().map(|block| cablings[block.bed]).collect();
            blocks.sort_by_key(|block| places.iter().position(|place| *place == cablings[block.bed]));
            for block in &mut blocks {
                let cells = std::mem::take(&mut block.cells);
                for repetition in first..first + step {
                    let mut cells: Vec<_> = cells.iter().map(|(cell, _)| (*cell, repetition)).collect();
                    shuffle(&mut cells, &mut random);
                    block.cells.append(&mut cells);
                }
            }
            all.append(&mut blocks);
        }
    }
    all
}

/// By Fisher and Yates.
fn shuffle<T>(items: &mut [T], random: &mut SplitMix) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last + 1));
    }
}

fn mix(id: &str, repetition: u32) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    id.bytes()
        .chain(repetition.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, fnv)
}
