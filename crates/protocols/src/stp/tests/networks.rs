//! Bridges that speak STP in simulated networks.

use super::lab::{self, Bridge, LAN, diameter, fault, longest_loop, random};
use crate::stp::wire::Times;
use crate::stp::{Role, State};
use nanos::Nanos;
use std::time::Duration;
use testkit::Rng;
use testkit::network::Network;

const SECOND: Duration = Duration::from_secs(1);
/// The time in which a network with the default timers settles: a failure that is far away is
/// noticed after the maximum age, then two forward delays pass; the rest is for hold and hello
/// times along the way.
const SETTLE: Duration = Duration::from_secs(20 + 2 * 15 + 10);

/// The bridges in a row, at most, for which the default timers are (IEEE 802.1D-1998 §8.10.2).
const MOST_IN_A_ROW: u32 = 7;

/// Runs a random network whose links flap, and never has a loop; returns in how many of its states
/// it was not settled because more bridges are in a row than the timers are for.
pub(super) fn flap(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let bridges = 2 + rng.below(31);
    let extra = rng.below(bridges * 2);
    let mut network = random(seed, bridges, extra, LAN, Bridge::stp);
    network.run_for(SETTLE);
    assert_eq!(fault(&network), None, "seed {seed}: at the start");
    let mut too_far = 0;
    for _ in 0..3 {
        let start = network.now();
        for _ in 0..1 + rng.below(6) {
            let link = rng.below(network.links());
            let at = start + Duration::from_millis(rng.below(30_000) as u64);
            network.set_up_at(at, link, !network.is_up(link));
        }
        let looped = longest_loop(&mut network, start + SECOND * 30 + SETTLE);
        assert_eq!(looped, Duration::ZERO, "seed {seed}");
        let fault = fault(&network);
        if fault.is_some() && diameter(&network) > MOST_IN_A_ROW {
            too_far += 1;
            continue;
        }
        assert_eq!(fault, None, "seed {seed}: {}", network.now());
    }
    too_far
}

#[test]
fn random_networks_settle_to_trees_within_the_standards_bound_and_have_no_loops() {
    for seed in 0..100 {
        assert_eq!(flap(seed), 0, "seed {seed}");
    }
}

#[test]
fn ten_thousand_random_networks_settle_to_trees() {
    testkit::skip!(unless long);
    let too_far: usize = (100..10_000).map(flap).sum();
    assert!(too_far < 10, "{too_far}");
}

/// A triangle of bridges 1, 2 and 3: bridge n has port 1 to the next one and port 2 to the one
/// before.
fn triangle() -> Network<Bridge> {
    let mut network = Network::new(1);
    for bridge in 1..=3 {
        network.add(Bridge::stp(bridge));
    }
    for bridge in 0..3 {
        network.connect(&[(bridge, 1), ((bridge + 1) % 3, 2)], LAN);
    }
    network
}

#[test]
fn a_triangle_blocks_the_port_that_is_farthest_from_the_root() {
    let mut network = triangle();
    network.run_for(SECOND * 2);
    let port = |network: &Network<Bridge>, bridge: usize, port| network.node(bridge).stp_port(port, network.now());
    assert_eq!(port(&network, 0, 1).state, State::Listening);
    network.run_for(SECOND * 15);
    assert_eq!(port(&network, 0, 1).state, State::Learning);
    network.run_for(SECOND * 15);
    let roles: Vec<(Role, State)> = (0..3)
        .flat_map(|bridge| [1, 2].map(|n| port(&network, bridge, n)))
        .map(|status| (status.role, status.state))
        .collect();
    let designated = (Role::Designated, State::Forwarding);
    let root = (Role::Root, State::Forwarding);
    let alternate = (Role::Alternate, State::Blocking);
    assert_eq!(roles, [designated, designated, designated, root, root, alternate]);
}

#[test]
fn a_topology_change_is_told_to_the_root_and_by_it_to_all_and_flushes_addresses() {
    let mut network = triangle();
    network.run_for(SECOND * 100);
    let change = |network: &Network<Bridge>, bridge: usize| match &network.node(bridge).machine {
        lab::Machine::Stp(machine, _) => machine.status().topology_change,
        lab::Machine::Rstp(..) => unreachable!(),
    };
    assert!((0..3).all(|bridge| !change(&network, bridge)));
    let before = network.node(1).flushed.clone();
    // The link of bridge 3 to the root fails: its port to bridge 2 takes over.
    network.set_up(2, false);
    network.run_for(SECOND * 32);
    assert!((0..3).all(|bridge| change(&network, bridge)));
    assert!(network.node(1).flushed[&1] > before[&1] && network.node(1).flushed[&2] > before[&2]);
    network.run_for(SECOND * 40);
    assert!((0..3).all(|bridge| !change(&network, bridge)));
}

#[test]
fn bridges_take_over_the_roots_timers_and_their_own_when_it_is_gone() {
    let mut network = triangle();
    network.with(0, |bridge, now| {
        bridge.stp_config(now, |config| {
            config.times.hello_time = 1;
            config.times.max_age = 10;
            config.times.forward_delay = 6;
        });
    });
    network.run_for(SECOND * 30);
    let times = |network: &Network<Bridge>| match &network.node(1).machine {
        lab::Machine::Stp(machine, _) => machine.status().times,
        lab::Machine::Rstp(..) => unreachable!(),
    };
    assert_eq!(times(&network).max_age, Times::seconds(10));
    assert_eq!(times(&network).forward_delay, Times::seconds(6));
    network.set_up(0, false);
    network.set_up(2, false);
    network.run_for(SECOND * 60);
    assert_eq!(times(&network).max_age, Times::seconds(20));
    assert_eq!(network.node(2).root(), (lab::id(2), 19));
}

#[test]
fn a_bridge_joined_to_itself_blocks_one_of_the_two_ports() {
    let mut network = Network::new(1);
    let bridge = network.add(Bridge::stp(1));
    network.connect(&[(bridge, 1), (bridge, 2)], LAN);
    network.run_for(SECOND * 40);
    assert_eq!(network.node(bridge).forward.iter().collect::<Vec<_>>(), [&1]);
    assert_eq!(network.node(bridge).stp_port(2, network.now()).state, State::Blocking);
}

#[test]
fn a_lossy_network_settles_once_the_loss_ends() {
    for seed in 0..20 {
        assert_eq!(lab::fault_after_loss(seed, SETTLE, Bridge::stp), None, "seed {seed}");
    }
}

#[test]
fn a_change_of_the_bridges_priority_moves_the_root() {
    let mut network = triangle();
    network.run_for(SECOND * 60);
    network.with(2, |bridge, now| {
        bridge.stp_config(now, |config| {
            config.id = crate::stp::wire::BridgeId::new(0x1000, config.id.mac())
        });
    });
    network.run_for(SETTLE);
    assert_eq!(fault(&network), None);
    assert_eq!(network.node(0).root().0.priority(), 0x1000);
    assert!(network.now() > Nanos::ZERO);
}
