//! Members that leave an aggregation, and its key.

use super::lab::{config, pair};
use crate::lacp::{Config, Lacp};
use nanos::Nanos;
use std::time::Duration;

/// The first of so many members leaves at one end, then at the other one.
fn leave(members: u32) {
    let mut network = pair(members);
    let rest: Vec<u32> = (1..members).collect();
    for leaves in 0..2 {
        network.with(leaves, |system, now| {
            change(&mut system.groups[0], now, |config| _ = config.members.pop_first());
        });
        for _ in 0..60 {
            for end in network.nodes() {
                assert!(end.enabled().ends_with(&rest));
            }
            network.run_for(Duration::from_millis(1));
        }
    }
    network.run_for(Duration::from_secs(10));
    for end in network.nodes() {
        assert_eq!(end.enabled(), rest);
        assert_eq!(end.groups[0].key(), Some(1));
    }
}

#[test]
fn a_member_that_leaves_interrupts_no_other_and_the_key_stays() {
    leave(3);
    leave(2);
}

/// Changes the configuration; the key then.
fn change(lacp: &mut Lacp, now: Nanos, change: impl FnOnce(&mut Config)) -> Option<u16> {
    let mut config = lacp.config().clone();
    change(&mut config);
    lacp.configure(&config, now);
    lacp.key()
}

#[test]
fn the_key_follows_the_configuration_and_ends_with_the_last_member() {
    let mut lacp = Lacp::new(&config(10, true, 3), Nanos::ZERO);
    let first = lacp.config().members[&0].clone();
    assert_eq!(
        change(&mut lacp, Nanos::ZERO, |config| _ = config.members.remove(&0)),
        Some(1)
    );
    // A member that comes back does not provide the key again.
    assert_eq!(
        change(&mut lacp, Nanos::ZERO, |config| _ = config.members.insert(0, first)),
        Some(1)
    );
    // A key that is configured later counts, though its member did not come first.
    let set = |number: u32, key: u16| {
        move |config: &mut Config| {
            config.members.entry(number).and_modify(|member| member.key = key);
        }
    };
    assert_eq!(change(&mut lacp, Nanos::ZERO, set(2, 8)), Some(8));
    assert_eq!(
        change(&mut lacp, Nanos::ZERO, set(1, 7)),
        Some(8),
        "another member provides it"
    );
    assert_eq!(
        change(&mut lacp, Nanos::ZERO, |config| _ = config.members.remove(&2)),
        Some(7)
    );
    assert_eq!(change(&mut lacp, Nanos::ZERO, set(1, 0)), Some(2));
    assert_eq!(change(&mut lacp, Nanos::ZERO, |config| config.members.clear()), None);
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
    assert_eq!(
        change(&mut old, Nanos::ZERO, others),
        Some(u16::MAX),
        "it was there before"
    );
    for member in config.members.values_mut() {
        member.key = 1;
    }
    assert_eq!(Lacp::new(&config, Nanos::ZERO).key(), Some(1), "configured");
}
