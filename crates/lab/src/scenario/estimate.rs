//! How long a run will take.

use super::{Profile, Scenario};
use crate::topology::{Attachment, Topology};
use std::time::Duration;

/// To make and remove hosts and cables, guests apart, in seconds.
pub const CABLING_SECONDS: f64 = 1.2;
/// To start a guest, in seconds: guests of a testbed start together.
pub const GUEST_SECONDS: f64 = 12.0;
/// To start, set up and stop a switch, in seconds.
pub const SWITCH_SECONDS: f64 = 0.8;
/// What a repetition takes beside its warm-up and what is measured, in seconds.
pub const REPETITION_SECONDS: f64 = 0.25;

/// How long these scenarios take on so many systems, if each testbed is made once for each scenario and system that uses it and the switch set
/// up once for each way in which it is set up there.
pub fn estimate<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>, profile: Profile, systems: usize) -> Duration {
    let each: f64 = scenarios
        .into_iter()
        .map(|scenario| scenario_seconds(scenario, profile))
        .sum();
    Duration::try_from_secs_f64(each * systems as f64).unwrap_or(Duration::MAX)
}

fn scenario_seconds(scenario: &Scenario, profile: Profile) -> f64 {
    let pace = scenario.pace(profile);
    let mut cablings: Vec<Topology> = Vec::new();
    let mut switches: Vec<&Topology> = Vec::new();
    let mut seconds = 0.0;
    for cell in scenario.cells(profile) {
        let topology = &cell.setup.topology;
        let cabling = topology.cabling();
        if !cablings.contains(&cabling) {
            let guests = cabling
                .hosts
                .iter()
                .any(|host| host.attachment != Attachment::Container);
            seconds += CABLING_SECONDS + if guests { GUEST_SECONDS } else { 0.0 };
            cablings.push(cabling);
        }
        if !switches.contains(&topology) {
            seconds += SWITCH_SECONDS;
            switches.push(topology);
        }
        seconds += f64::from(pace.repetitions) * (cell.setup.warmup + cell.setup.seconds + REPETITION_SECONDS);
    }
    seconds
}
