//! Members that leave an aggregation.

use super::lab::{System, config};
use crate::lacp::Config;
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Quality};

/// Takes the first member out of an end's aggregation.
fn leave(network: &mut Network<System>, end: usize) {
    network.with(end, |system, now| {
        let mut config = system.groups[0].config().clone();
        config.members.pop_first();
        system.groups[0].configure(&config, now);
    });
}

#[test]
fn a_member_that_leaves_interrupts_no_other_and_the_key_stays() {
    let mut network: Network<System> = Network::new(1);
    let here = network.add(System::new(&[config(10, true, 3)]));
    let there = network.add(System::new(&[config(60, true, 3)]));
    for port in 0..3 {
        network.connect(&[(here, port), (there, port)], Quality::delay(Duration::from_millis(1)));
    }
    network.run_for(Duration::from_secs(5));
    assert_eq!(network.node(here).enabled(), [0, 1, 2]);
    for end in [here, there] {
        leave(&mut network, end);
        for _ in 0..60 {
            for end in [here, there] {
                assert!(network.node(end).enabled().ends_with(&[1, 2]));
            }
            network.run_for(Duration::from_millis(1));
        }
    }
    assert_eq!(network.node(here).groups[0].key(), Some(1));
}

#[test]
fn the_key_follows_the_configuration_and_ends_with_the_last_member() {
    let mut system = System::new(&[config(10, true, 3)]);
    let group = &mut system.groups[0];
    let mut configure = |change: &dyn Fn(&mut Config)| {
        let mut config = group.config().clone();
        change(&mut config);
        group.configure(&config, Nanos::ZERO);
        group.key()
    };
    assert_eq!(configure(&|config| _ = config.members.pop_first()), Some(1));
    let named = |config: &mut Config| config.members.values_mut().for_each(|member| member.key = 7);
    assert_eq!(configure(&named), Some(7));
    assert_eq!(configure(&|config| _ = config.members.pop_first()), Some(7));
    assert_eq!(configure(&|config| config.members.clear()), None);
}
