//! Random losses and reorderings between two systems.

use super::lab::{System, config};
use crate::lacp::timers;
use std::time::Duration;
use testkit::network::{Network, Quality};

/// Who is at the other end of the first system's members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    /// One aggregation has them all.
    One,
    /// Two aggregations share them.
    Two,
    /// No system answers.
    Silent,
}

fn run(seed: u64) {
    let mut network: Network<System> = Network::new(seed);
    let members = 2 + (network.rng().number() % 3) as u32;
    let other = match network.rng().number() % 4 {
        0 => Other::Two,
        1 => Other::Silent,
        _ => Other::One,
    };
    let (active, peer_active) = [(true, true), (true, false), (false, true)][(network.rng().number() % 3) as usize];
    let mut wanted = config(10, active, members);
    wanted.fast = network.rng().chance(50);
    let here = network.add(System::new(&[wanted]));
    let mut peer = config(60, peer_active, members);
    peer.fast = network.rng().chance(50);
    let fast = peer.fast;
    let mut second = peer.clone();
    match other {
        Other::One => second.members.clear(),
        Other::Two => {
            peer.members.remove(&0);
            second.members.retain(|number, _| *number == 0);
        }
        Other::Silent => {
            peer.members.clear();
            second.members.clear();
        }
    }
    let there = network.add(System::new(&[peer, second]));
    let rough = Quality {
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(20),
        loss: network.rng().number() % 60,
        duplication: 5,
        reordering: (network.rng().number() % 40, Duration::from_secs(3)),
    };
    let links: Vec<usize> = (0..members as usize)
        .map(|port| network.connect(&[(here, port), (there, port)], rough))
        .collect();
    for _ in 0..8 {
        let link = links[(network.rng().number() % u64::from(members)) as usize];
        let up = network.is_up(link);
        network.set_up(link, !up);
        let time = Duration::from_millis(network.rng().number() % 20_000);
        network.run_for(time);
    }
    for link in &links {
        network.set_up(*link, true);
        network.set_quality(*link, Quality::delay(Duration::from_millis(1)));
    }
    // All that was late has come, the longest timeouts are over, and a periodic LACPDU has come.
    network.run_for(timers::timeout(false) + timers::timeout(true) + timers::interval(false) * 2);
    let (enabled, peers) = (network.node(here).enabled(), network.node(there).enabled());
    let all: Vec<u32> = (0..members).collect();
    match other {
        Other::One => assert_eq!((&enabled, &peers), (&all, &all), "seed {seed}, fast {fast}"),
        Other::Two => {
            // Never members of both aggregations; the other system sees that as well.
            assert!(enabled == [0] || enabled == all[1..], "seed {seed}: {enabled:?}");
        }
        Other::Silent => assert!(enabled.is_empty(), "seed {seed}: {enabled:?}"),
    }
}

#[test]
fn random_losses_reorderings_and_flaps_end_aggregated_or_apart_as_the_standard_says() {
    (0..500).for_each(run);
}

#[test]
fn ten_thousand_random_networks_end_aggregated_or_apart_as_the_standard_says() {
    testkit::skip!(unless long);
    (500..10_000).for_each(run);
}
