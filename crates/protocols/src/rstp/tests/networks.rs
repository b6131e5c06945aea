//! Bridges that speak RSTP in simulated networks.

use crate::stp::tests::lab::{self, Bridge, LAN, fault, longest_loop, random};
use nanos::Nanos;
use std::time::Duration;
use testkit::Rng;
use testkit::network::Quality;

const SECOND: Duration = Duration::from_secs(1);
/// The time in which a network settles after its last change. A port may have sent as much as it
/// may in a second, and information about a root that is gone can go round until its age is the
/// maximum age.
const SETTLE: Duration = Duration::from_secs(40);

/// A loop of this length ends with the frames that are on their way.
const MOMENT: Duration = Duration::from_millis(5);

/// Runs a random network whose links flap.
fn flap(seed: u64) {
    let mut rng = Rng::new(seed);
    let bridges = 2 + rng.below(31);
    let extra = rng.below(bridges * 2);
    let mut network = random(seed, bridges, extra, LAN, Bridge::rstp);
    network.run_for(SETTLE);
    assert_eq!(fault(&network), None, "seed {seed}: at the start");
    for _ in 0..3 {
        let start = network.now();
        for _ in 0..1 + rng.below(6) {
            let link = rng.below(network.links());
            let at = start + Duration::from_millis(rng.below(10_000) as u64);
            network.set_up_at(at, link, !network.is_up(link));
        }
        let longest = longest_loop(&mut network, start + SECOND * 10 + SETTLE);
        assert!(longest <= MOMENT, "seed {seed}: a loop of {longest:?}");
        assert_eq!(fault(&network), None, "seed {seed}: {} s", network.now());
    }
}

#[test]
fn random_networks_settle_to_trees_and_have_no_loop_that_lasts() {
    for seed in 0..100 {
        flap(seed);
    }
}

#[test]
fn ten_thousand_random_networks_settle_to_trees() {
    testkit::skip!(unless long);
    for seed in 100..10_000 {
        flap(seed);
    }
}

/// Bridges that may send ten BPDUs a second: the hold count is the only thing that takes time in a
/// network without delays.
fn quick(bridge: usize) -> Bridge {
    let mut bridge = Bridge::rstp(bridge);
    bridge.rstp_config(Nanos::ZERO, |config| config.transmit_hold_count = 10);
    bridge
}

#[test]
fn a_network_without_delays_settles_within_50_ms() {
    let moment = Duration::from_millis(50);
    let (mut changes, mut slow) = (0, 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let bridges = 2 + rng.below(31);
        let extra = rng.below(bridges * 2);
        let mut network = random(seed, bridges, extra, Quality::default(), quick);
        network.run_for(moment);
        assert_eq!(fault(&network), None, "seed {seed}: at the start");
        for _ in 0..5 {
            network.run_for(SECOND * 60);
            let link = rng.below(network.links());
            let up = !network.is_up(link);
            network.set_up(link, up);
            network.run_for(moment);
            let fault = fault(&network);
            assert!(!up || fault.is_none(), "seed {seed}: {fault:?}");
            changes += 1;
            slow += usize::from(fault.is_some());
        }
    }
    // After a failure, what is known of a root that is gone can go round for a while
    // (802.1D-2004 §17.11): in few networks.
    assert!(slow * 50 < changes, "{slow} of {changes}");
}

#[test]
fn a_lossy_network_settles_once_the_loss_ends() {
    for seed in 0..20 {
        assert_eq!(lab::fault_after_loss(seed, SETTLE, Bridge::rstp), None, "seed {seed}");
    }
}

#[test]
fn a_network_in_which_half_the_bridges_speak_stp_settles_to_a_tree() {
    for seed in 0..30 {
        let make = |bridge: usize| {
            let mut new = Bridge::rstp(bridge);
            new.rstp_config(Nanos::ZERO, |config| config.force_stp = bridge.is_multiple_of(2));
            new
        };
        let mut network = random(seed, 10, 10, LAN, make);
        let longest = longest_loop(&mut network, Nanos::from_secs(100));
        assert!(longest <= MOMENT, "seed {seed}: {longest:?}");
        assert_eq!(fault(&network), None, "seed {seed}");
        let link = seed as usize % network.links();
        network.set_up(link, false);
        network.run_for(SECOND * 100);
        assert_eq!(fault(&network), None, "seed {seed}");
    }
}
