//! How long a run will take.

use super::{Profile, Scenario};
use crate::topology::{Attachment, Topology};
use std::time::Duration;

/// To make and remove a cable and the host at its end, a guest apart, in seconds.
pub const CABLE_SECONDS: f64 = 0.15;
/// To start and stop the guests of a testbed, in seconds.
pub const GUEST_SECONDS: f64 = 12.0;
/// To start, set up and stop a switch, in seconds.
pub const SWITCH_SECONDS: f64 = 0.8;
/// What a repetition takes beside its warm-up and what is measured, in seconds.
pub const REPETITION_SECONDS: f64 = 0.25;

/// How long these scenarios take on so many systems. Testbed and switch are made for each system and topology, in the full profile for each
/// repetition.
pub fn estimate<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>, profile: Profile, systems: usize) -> Duration {
    let all: f64 = scenarios
        .into_iter()
        .map(|scenario| scenario_seconds(scenario, profile, systems))
        .sum();
    Duration::try_from_secs_f64(all).unwrap_or(Duration::MAX)
}

fn scenario_seconds(scenario: &Scenario, profile: Profile, systems: usize) -> f64 {
    let repetitions = f64::from(scenario.pace(profile).repetitions);
    let mut topologies: Vec<&Topology> = Vec::new();
    let mut seconds = 0.0;
    for setup in scenario.cells(profile).iter().map(|cell| &cell.setup) {
        // What is for some systems only is not run on all.
        let bound = if setup.systems.is_empty() {
            systems
        } else {
            setup.systems.len()
        };
        let each = systems.min(bound) as f64;
        let topology = &setup.topology;
        if !topologies.contains(&topology) {
            let guests = topology
                .hosts
                .iter()
                .any(|host| host.attachment != Attachment::Container);
            let cables = CABLE_SECONDS * topology.links.len() as f64;
            let times = if profile.rebuilds() { repetitions } else { 1.0 };
            seconds += each * times * (SWITCH_SECONDS + cables + if guests { GUEST_SECONDS } else { 0.0 });
            topologies.push(topology);
        }
        seconds += each * repetitions * (setup.duration() + REPETITION_SECONDS);
    }
    seconds
}
