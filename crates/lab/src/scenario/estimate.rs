//! How long a run will take, on a machine that has nothing else to do.

use super::{Profile, Scenario, Setup};
use crate::topology::{Attachment, Topology};
use crate::traffic::Test;
use std::time::Duration;

/// To make and remove a cable and the host at its end, a guest apart, in seconds.
const CABLE_SECONDS: f64 = 0.15;
/// To start and stop the guests of a testbed, all at the same time, in seconds; also under
/// emulation, on two processors.
const GUEST_SECONDS: f64 = 6.0;
/// To start and remove a container of Podman, in seconds.
const CONTAINER_SECONDS: f64 = 0.4;
/// To start, set up and stop a switch, in seconds.
const SWITCH_SECONDS: f64 = 0.6;
/// To start and stop OVN's daemons, and until they have told the switches, in seconds.
const CLUSTER_SECONDS: f64 = 6.0;
/// The overhead of a repetition beside warm-up and measurement, in seconds.
const REPETITION_SECONDS: f64 = 0.35;

/// To measure an instrument on a bare cable, in the quick profile and in the full one, in seconds.
const CONTROL_SECONDS: (f64, f64) = (0.4, 3.0);

/// The time of a repetition without set-up of testbed and switch, in seconds.
pub(crate) fn repetition(setup: &Setup) -> f64 {
    setup.duration() + REPETITION_SECONDS
}

/// The time to set up a switch, in seconds, with the testbed if that is new.
pub(crate) fn bed(topology: &Topology, new: bool) -> f64 {
    let switch = SWITCH_SECONDS + if topology.is_cluster() { CLUSTER_SECONDS } else { 0.0 };
    if !new {
        return switch;
    }
    let hosts = || topology.hosts.iter().map(|host| host.attachment);
    let containers = hosts().filter(|attachment| *attachment == Attachment::Podman).count();
    let guests = if hosts().any(Attachment::is_guest) {
        GUEST_SECONDS
    } else {
        0.0
    };
    switch + CABLE_SECONDS * topology.links.len() as f64 + CONTAINER_SECONDS * containers as f64 + guests
}

/// How long these scenarios take on this many systems. Each set-up starts a switch, and all
/// switches share a testbed; the full profile makes both for each repetition.
pub fn estimate<'a>(scenarios: impl IntoIterator<Item = &'a Scenario>, profile: Profile, systems: usize) -> Duration {
    let mut instruments: Vec<&Test> = Vec::new();
    let mut all = 0.0;
    for scenario in scenarios {
        all += scenario_seconds(scenario, profile, systems);
        let cells = scenario.cells(profile).iter();
        for flow in cells.flat_map(|cell| &cell.setup.measured) {
            let measured = profile == Profile::Full || flow.test.is_latency();
            if measured && !instruments.contains(&&flow.test) {
                instruments.push(&flow.test);
            }
        }
    }
    let (quick, full) = CONTROL_SECONDS;
    let each = if profile == Profile::Full { full } else { quick };
    all += each * instruments.len() as f64;
    Duration::try_from_secs_f64(all).unwrap_or(Duration::MAX)
}

fn scenario_seconds(scenario: &Scenario, profile: Profile, systems: usize) -> f64 {
    let repetitions = f64::from(scenario.pace(profile).repetitions);
    let times = if profile.rebuilds() { repetitions } else { 1.0 };
    let mut topologies: Vec<&Topology> = Vec::new();
    let mut cablings: Vec<Topology> = Vec::new();
    let mut seconds = 0.0;
    for setup in scenario.cells(profile).iter().map(|cell| &cell.setup) {
        // Cells for some systems are not run on all.
        let bound = if setup.systems.is_empty() {
            systems
        } else {
            setup.systems.len()
        };
        let each = systems.min(bound) as f64;
        let topology = &setup.topology;
        if !topologies.contains(&topology) {
            topologies.push(topology);
            let cabling = topology.cabling();
            let new = !cablings.contains(&cabling);
            seconds += times * (bed(topology, new) + (each - 1.0).max(0.0) * bed(topology, false));
            if new {
                cablings.push(cabling);
            }
        }
        seconds += each * repetitions * repetition(setup);
    }
    seconds
}
