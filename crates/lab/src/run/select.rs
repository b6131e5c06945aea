//! Which systems run which cells.

use super::plan::{Candidate, Job};
use crate::results::Skipped;
use crate::scenario::{Cell, Profile, Scenario};
use crate::systems::System;
use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};

/// The cells to run, and those that cannot run.
pub(crate) struct Chosen {
    /// In the order of the scenarios.
    pub(crate) jobs: Vec<Job>,
    /// Names of all systems that run something, or would if they could.
    pub(crate) systems: Vec<String>,
    /// With reasons.
    pub(crate) skipped: Vec<Skipped>,
}

/// The system that every profile begins with.
const OURS: &str = "oxvs";

/// Peers of the quick profile: the first that can run most of a scenario is its peer. The studies
/// compare with the first two.
const PEERS: &[&str] = &["ovs-kernel", "bridge", "ovs-tso", "ovs-userspace"];

/// Chooses systems: those named, or all, or in the quick profile oxvs and for each scenario the
/// first peer that can run it.
pub(crate) fn choose(
    scenarios: &[Scenario],
    systems: &[Box<dyn System>],
    named: &[String],
    profile: Profile,
) -> Result<Chosen> {
    for name in named {
        if !systems.iter().any(|system| system.name() == name) {
            let names: Vec<&str> = systems.iter().map(|system| system.name()).collect();
            bail!("there is no switch '{name}'; there are {}", names.join(", "));
        }
    }
    let mut chosen = Chosen {
        jobs: Vec::new(),
        systems: Vec::new(),
        skipped: Vec::new(),
    };
    for scenario in scenarios {
        let cells = scenario.cells(profile).to_vec();
        let mut job = Job {
            id: scenario.id.clone(),
            repetitions: scenario.pace(profile).repetitions,
            repeated: BTreeMap::new(),
            rebuilds: profile.rebuilds(),
            systems: Vec::new(),
            cells,
        };
        let candidates: Vec<Considered> = systems
            .iter()
            .map(|system| consider(scenario, system.as_ref(), &job.cells))
            .collect();
        let wanted: Vec<Considered> = match (named, profile) {
            ([], Profile::Full) => candidates,
            ([], Profile::Quick) => quick(&candidates, &bound(&job.cells)),
            _ => candidates
                .into_iter()
                .filter(|one| named.contains(&one.candidate.name))
                .collect(),
        };
        for considered in wanted {
            chosen.skipped.extend(considered.skipped.iter().cloned());
            let name = &considered.candidate.name;
            if !chosen.systems.contains(name) {
                chosen.systems.push(name.clone());
            }
            if !considered.candidate.cells.is_empty() {
                job.systems.push(considered.candidate.clone());
            }
        }
        chosen.jobs.push(job);
    }
    Ok(chosen)
}

/// The systems that some cells are for and that are no peers.
fn bound(cells: &[Cell]) -> BTreeSet<String> {
    let named = cells.iter().flat_map(|cell| cell.setup.systems.iter().cloned());
    named
        .filter(|name| name != OURS && !PEERS.contains(&name.as_str()))
        .collect()
}

/// oxvs, the systems that cells are `bound` to, and peers in order of preference until every cell
/// has one.
fn quick(candidates: &[Considered], bound: &BTreeSet<String>) -> Vec<Considered> {
    let of = |name: &str| candidates.iter().find(|one| one.candidate.name == name);
    let mut wanted: Vec<Considered> = of(OURS).into_iter().cloned().collect();
    let mut left: BTreeSet<usize> = candidates.iter().flat_map(|one| one.candidate.cells.clone()).collect();
    for candidate in candidates.iter().filter(|one| bound.contains(&one.candidate.name)) {
        left.retain(|cell| !candidate.candidate.cells.contains(cell));
        wanted.push(candidate.clone());
    }
    if left.is_empty() && wanted.len() > 1 {
        return wanted;
    }
    for peer in PEERS.iter().filter_map(|name| of(name)) {
        let mut peer = peer.clone();
        peer.candidate.cells.retain(|cell| left.remove(cell));
        wanted.push(peer);
        if left.is_empty() {
            break;
        }
    }
    wanted
}

#[derive(Clone)]
struct Considered {
    candidate: Candidate,
    skipped: Vec<Skipped>,
}

/// Which cells a system can run, and why not the others.
fn consider(scenario: &Scenario, system: &dyn System, cells: &[Cell]) -> Considered {
    let mut considered = Considered {
        candidate: Candidate {
            name: system.name().to_owned(),
            cells: Vec::new(),
        },
        skipped: Vec::new(),
    };
    let mut known: Vec<(&crate::topology::Topology, Option<String>)> = Vec::new();
    let mut reasons: Vec<Option<String>> = Vec::new();
    for cell in cells {
        let topology = &cell.setup.topology;
        if !cell.setup.is_for(system.name()) {
            reasons.push(Some(format!("this is not an experiment for {}", system.name())));
            continue;
        }
        let reason = match known.iter().find(|(other, _)| *other == topology) {
            Some((_, reason)) => reason.clone(),
            None => {
                let reason = system.missing(topology).or_else(|| crate::bed::missing(topology));
                known.push((topology, reason.clone()));
                reason
            }
        };
        let reason = reason.or_else(|| super::observe::missing(&cell.setup));
        reasons.push(reason.or_else(|| system.cannot_observe(&cell.setup)));
    }
    let skip = |at, reason: &str| Skipped {
        scenario: scenario.id.clone(),
        system: system.name().to_owned(),
        at,
        reason: reason.to_owned(),
        failed: false,
    };
    match reasons.first() {
        Some(Some(first)) if reasons.iter().all(|reason| reason.as_ref() == Some(first)) => {
            considered.skipped.push(skip(Default::default(), first));
        }
        _ => {
            for ((number, cell), reason) in cells.iter().enumerate().zip(&reasons) {
                match reason {
                    Some(reason) => considered.skipped.push(skip(cell.at.clone(), reason)),
                    None => considered.candidate.cells.push(number),
                }
            }
        }
    }
    considered
}
