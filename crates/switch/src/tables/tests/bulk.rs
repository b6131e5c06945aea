//! Changes of very many rules, in steps.

use super::*;
use crate::{BridgeConfig, Switch, SwitchConfig};

const RULES: u32 = 5000;

fn switch() -> Switch {
    let mut switch = Switch::new(1);
    let mut config = SwitchConfig::default();
    let bridge = BridgeConfig {
        fail_mode: FailMode::Secure,
        ..BridgeConfig::default()
    };
    config.bridges.insert("br0".into(), bridge);
    switch.configure(config, Nanos::ZERO);
    for n in 0..RULES {
        let mut rule = add(1, &[in_port(n.into())], 1);
        rule.table = Some((n % 3) as u8);
        rule.new_cookie = Some(u64::from(n % 2));
        switch.flow_mod("br0", &rule, T1).unwrap();
    }
    switch
}

fn tables(switch: &Switch) -> &FlowTables {
    switch.bridge("br0").unwrap().tables()
}

/// Carries a change out in steps; shows the tables after each.
fn carry_out(switch: &mut Switch, change: &FlowMod, mut show: impl FnMut(&FlowTables)) -> usize {
    let (mut at, mut meant, mut steps) = (Some(Cursor::default()), Vec::new(), 0);
    while let Some(from) = at {
        at = switch.find_meant("br0", change, from, &mut meant).unwrap();
    }
    switch.bundle_open("br0", T1).unwrap();
    for part in meant.chunks(256) {
        let changes = switch.change_meant("br0", change, part, true, T1).unwrap();
        assert!(changes.is_empty());
        show(tables(switch));
        steps += 1;
    }
    assert!(!switch.bundle_commit("br0").is_empty());
    show(tables(switch));
    while !switch.bundle_settle("br0", 256, T1) {
        show(tables(switch));
    }
    steps
}

#[test]
fn a_deletion_of_very_many_rules_is_seen_as_a_whole() {
    let mut switch = switch();
    let mut odd = to(FlowCommand::Delete, &add(0, &[], 0));
    (odd.cookie, odd.cookie_mask) = (1, 1);
    let all = to(FlowCommand::Delete, &add(0, &[], 0));
    for (delete, left) in [(&odd, 2500), (&all, 0)] {
        let before = tables(&switch).len();
        assert!(switch.is_mass_change("br0", delete));
        let steps = carry_out(&mut switch, delete, |tables| {
            assert!([before, left].contains(&tables.len()));
        });
        assert!(steps > 1);
        assert_eq!(tables(&switch).len(), left);
    }
    assert_eq!(switch.take_removed("br0").len(), 0);
}

#[test]
fn a_modification_of_very_many_rules_is_seen_as_a_whole_and_keeps_their_counters() {
    let mut switch = switch();
    let mut change = to(FlowCommand::Modify, &add(0, &[], 7));
    change.table = Some(2);
    let mut first = None;
    tables(&switch).for_each(Some(2), &Condition::ANY, |at, _, _| first = first.or(Some(at)));
    let id = switch.bridge("br0").unwrap().id;
    let rule = crate::tables::BridgeRule {
        bridge: id,
        rule: first.unwrap(),
    };
    switch.credit(&[rule], 5, 500, T1);
    let of_table_2 = (RULES / 3) as usize;
    carry_out(&mut switch, &change, |tables| {
        let changed = ports(tables).iter().filter(|port| **port == 7).count();
        assert!(changed == 0 || changed == of_table_2, "{changed}");
        assert_eq!(tables.len(), RULES as usize);
    });
    let (mut packets, mut changed) = (0, 0);
    tables(&switch).for_each(Some(2), &Condition::ANY, |_, _, rule| {
        packets += rule.packets;
        changed += usize::from(*rule.instructions == output(7));
    });
    assert_eq!((packets, changed), (5, of_table_2));
}

#[test]
fn rules_that_went_since_they_were_found_are_left_alone() {
    let mut switch = switch();
    let all = to(FlowCommand::Delete, &add(0, &[], 0));
    let mut meant = Vec::new();
    let mut at = Some(Cursor::default());
    while let Some(from) = at {
        at = switch.find_meant("br0", &all, from, &mut meant).unwrap();
    }
    assert_eq!(meant.len(), RULES as usize);
    let one = to(FlowCommand::DeleteStrict, &add(1, &[in_port(3)], 0));
    switch.flow_mod("br0", &one, T1).unwrap();
    switch.flow_mod("br0", &add(9, &[], 9), T1).unwrap();
    switch.change_meant("br0", &all, &meant, false, T1).unwrap();
    assert_eq!(ports(tables(&switch)), [9]);
}

#[test]
fn what_a_hash_finds_and_small_tables_are_no_mass() {
    let mut switch = switch();
    let one = to(FlowCommand::Delete, &add(0, &[in_port(3)], 0));
    assert!(!switch.is_mass_change("br0", &one));
    assert!(!switch.is_mass_change("br0", &add(0, &[], 0)));
    assert!(!switch.is_mass_change("br9", &to(FlowCommand::Delete, &add(0, &[], 0))));
    switch
        .flow_mod("br0", &to(FlowCommand::Delete, &add(0, &[], 0)), T1)
        .unwrap();
    assert!(!switch.is_mass_change("br0", &to(FlowCommand::Modify, &add(0, &[], 0))));
    // A modify that covers no rule adds one.
    let modify = to(FlowCommand::Modify, &add(4, &[], 4));
    switch.change_meant("br0", &modify, &[], false, T1).unwrap();
    assert_eq!(ports(tables(&switch)), [4]);
}
