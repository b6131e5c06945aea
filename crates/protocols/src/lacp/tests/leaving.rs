//! Members that leave an aggregation, and its key.

use super::lab::{System, config};
use crate::lacp::{Config, Lacp};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Quality};

/// Two systems lose the first of so many members, one after the other: the rest carries on.
fn leave(members: u32) {
    let mut network: Network<System> = Network::new(1);
    let ends = [10, 60].map(|system| network.add(System::new(&[config(system, true, members)])));
    for port in 0..members as usize {
        network.connect(&ends.map(|end| (end, port)), Quality::delay(Duration::from_millis(1)));
    }
    network.run_for(Duration::from_secs(5));
    let rest: Vec<u32> = (1..members).collect();
    for leaves in ends {
        network.with(leaves, |system, now| {
            let mut config = system.groups[0].config().clone();
            config.members.pop_first();
            system.groups[0].configure(&config, now);
        });
        for _ in 0..60 {
            for end in ends {
                assert!(network.node(end).enabled().ends_with(&rest));
            }
            network.run_for(Duration::from_millis(1));
        }
    }
    network.run_for(Duration::from_secs(10));
    for end in ends {
        assert_eq!(network.node(end).enabled(), rest);
        assert_eq!(network.node(end).groups[0].key(), Some(1));
    }
}

#[test]
fn a_member_that_leaves_interrupts_no_other_and_the_key_stays() {
    leave(3);
    leave(2);
}

fn change(lacp: &mut Lacp, change: impl FnOnce(&mut Config)) -> Option<u16> {
    let mut config = lacp.config().clone();
    change(&mut config);
    lacp.configure(&config, Nanos::ZERO);
    lacp.key()
}

#[test]
fn the_key_follows_the_configuration_and_ends_with_the_last_member() {
    let mut lacp = Lacp::new(&config(10, true, 3), Nanos::ZERO);
    let first = lacp.config().members[&0].clone();
    assert_eq!(change(&mut lacp, |config| _ = config.members.remove(&0)), Some(1));
    // Its number may be the key of another aggregation now.
    assert_eq!(change(&mut lacp, |config| _ = config.members.insert(0, first)), Some(1));
    // A key that is configured later counts, though its member did not come first.
    let set = |number: u32, key: u16| {
        move |config: &mut Config| {
            config.members.entry(number).and_modify(|member| member.key = key);
        }
    };
    assert_eq!(change(&mut lacp, set(2, 8)), Some(8));
    assert_eq!(change(&mut lacp, set(1, 7)), Some(8), "another member provides it");
    assert_eq!(change(&mut lacp, |config| _ = config.members.remove(&2)), Some(7));
    assert_eq!(change(&mut lacp, set(1, 0)), Some(2));
    assert_eq!(change(&mut lacp, |config| config.members.clear()), None);
}

#[test]
fn a_key_that_is_not_configured_is_of_no_other_aggregation() {
    let mut config = config(10, true, 2);
    config.taken.insert(1);
    assert_eq!(Lacp::new(&config, Nanos::ZERO).key(), Some(2));
    config.taken.insert(2);
    assert_eq!(Lacp::new(&config, Nanos::ZERO).key(), Some(u16::MAX));
    let mut old = Lacp::new(&config, Nanos::ZERO);
    let others = |config: &mut Config| _ = config.taken.insert(u16::MAX);
    assert_eq!(change(&mut old, others), Some(u16::MAX), "it was there before");
    for member in config.members.values_mut() {
        member.key = 1;
    }
    assert_eq!(Lacp::new(&config, Nanos::ZERO).key(), Some(1), "as the user says");
}
