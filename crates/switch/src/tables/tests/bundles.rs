use super::*;
use crate::tables::TableEvent;
use crate::{BridgeConfig, BundleItem, Switch, SwitchConfig};

fn switch() -> Switch {
    let mut switch = Switch::new(1);
    let mut config = SwitchConfig::default();
    let bridge = BridgeConfig {
        fail_mode: FailMode::Secure,
        ..BridgeConfig::default()
    };
    config.bridges.insert("br0".into(), bridge);
    switch.configure(config, Nanos::ZERO);
    switch
}

#[test]
fn a_bundle_that_fails_says_where_and_leaves_no_trace() {
    let mut switch = switch();
    switch.flow_mod("br0", &add(1, &[in_port(1)], 1), T1).unwrap();
    let mut old = add(1, &[in_port(1)], 9);
    old.flags = FlowFlags::SEND_FLOW_REM;
    switch.flow_mod("br0", &old, T1).unwrap();
    switch.take_events("br0");
    let all = to(FlowCommand::Delete, &add(0, &[], 0));
    let fine = add(1, &[in_port(2)], 2);
    let mut bad = add(1, &[in_port(3)], 3);
    bad.table = Some(254);
    let items = [BundleItem::Flow(&all), BundleItem::Flow(&fine), BundleItem::Flow(&bad)];
    let error = switch.bundle("br0", &items, T1).unwrap_err();
    assert_eq!((error.at, error.error), (2, OfError::BrcEperm));
    let tables = switch.bridge("br0").unwrap().tables();
    assert_eq!(ports(tables), [9]);
    assert!(switch.take_events("br0").is_empty());

    let changes = switch.bundle("br0", &items[..2], T1).unwrap();
    assert!(!changes.is_empty());
    let events = switch.take_events("br0");
    assert!(matches!(&events[..], [TableEvent::Removed(gone)] if gone.reason == Reason::Delete));
    assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [2]);
}

#[test]
fn a_bundle_that_changes_a_rule_twice_and_then_resets_it_loses_its_counts() {
    let mut switch = switch();
    let change = to(FlowCommand::Modify, &add(0, &[], 2));
    let mut reset = change.clone();
    reset.flags = FlowFlags::RESET_COUNTS;
    let packets = |switch: &mut Switch, items: &[BundleItem<'_>]| {
        let mut first = add(1, &[in_port(1)], 1);
        first.flags = FlowFlags::RESET_COUNTS;
        switch.flow_mod("br0", &first, T1).unwrap();
        let tables = &mut switch.bridge_mut("br0").unwrap().tables;
        let mut rules = Vec::new();
        tables.for_each(None, &Condition::ANY, |at, _, _| rules.push(at));
        tables.credit(rules[0], 7, 420, T1);
        switch.bundle("br0", items, T1).unwrap();
        let mut packets = Vec::new();
        let tables = switch.bridge("br0").unwrap().tables();
        tables.for_each(None, &Condition::ANY, |_, _, rule| packets.push(rule.packets));
        packets
    };
    let (change, reset) = (BundleItem::Flow(&change), BundleItem::Flow(&reset));
    assert_eq!(packets(&mut switch, &[change, reset]), [0]);
    assert_eq!(packets(&mut switch, &[reset, change]), [0]);
    assert_eq!(packets(&mut switch, &[change, change]), [7]);
    let again = add(1, &[in_port(1)], 3);
    let mut anew = again.clone();
    anew.flags = FlowFlags::RESET_COUNTS;
    let (again, anew) = (BundleItem::Flow(&again), BundleItem::Flow(&anew));
    assert_eq!(packets(&mut switch, &[change, again]), [7]);
    assert_eq!(packets(&mut switch, &[again, again, again]), [7]);
    assert_eq!(packets(&mut switch, &[again, change, anew, again]), [0]);
    assert_eq!(packets(&mut switch, &[reset, again]), [0]);
}

#[test]
fn a_rule_that_a_bundle_changes_and_then_removes_is_told_of() {
    let mut switch = switch();
    let mut rule = add(1, &[in_port(1)], 1);
    rule.flags = FlowFlags::SEND_FLOW_REM;
    switch.flow_mod("br0", &rule, T1).unwrap();
    switch.take_events("br0");
    let (change, gone) = (to(FlowCommand::Modify, &rule), to(FlowCommand::Delete, &rule));
    let items = [BundleItem::Flow(&change), BundleItem::Flow(&gone)];
    switch.bundle("br0", &items, T1).unwrap();
    let events = switch.take_events("br0");
    assert!(
        matches!(&events[..], [TableEvent::Removed(gone)] if gone.reason == Reason::Delete),
        "{events:?}"
    );
    assert!(switch.bridge("br0").unwrap().tables().is_empty());
}

#[test]
fn nothing_of_a_bundle_is_seen_before_its_commit_and_all_of_it_before_it_is_settled() {
    let mut switch = switch();
    let port = |n: u32| add(1, &[in_port(n.into())], n);
    for n in 1..=4 {
        switch.flow_mod("br0", &port(n), T1).unwrap();
    }
    switch.bundle_open("br0", T1).unwrap();
    assert_eq!(switch.bundle_open("br0", T1), Err(OfError::BfcBundleInProgress));
    let gone = to(FlowCommand::Delete, &add(0, &[in_port(2)], 0));
    let mut other = port(3);
    other.instructions = output(33);
    let new = port(5);
    let items = [
        BundleItem::Flow(&gone),
        BundleItem::Flow(&other),
        BundleItem::Flow(&new),
    ];
    switch.bundle_apply("br0", &items, T1).unwrap();
    assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [1, 2, 3, 4]);
    // A rule that is removed outside the bundle meanwhile stays removed.
    switch
        .flow_mod("br0", &to(FlowCommand::Delete, &add(0, &[in_port(4)], 0)), T1)
        .unwrap();
    assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [1, 2, 3]);
    assert!(!switch.bundle_commit("br0").is_empty());
    assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [1, 5, 33]);
    while !switch.bundle_settle("br0", 1, T1) {
        assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [1, 5, 33]);
    }
    assert_eq!(ports(switch.bridge("br0").unwrap().tables()), [1, 5, 33]);
    assert_eq!(
        switch.bundle_apply("br0", &items, T1).unwrap_err().error,
        OfError::BfcBadId
    );
}

#[test]
fn a_rule_that_goes_on_in_a_bundle_keeps_what_it_counted_until_the_end_of_it() {
    let mut tables = tables();
    let at = tables.flow_mod(&add(1, &[in_port(1)], 1), T1).unwrap().added[0];
    let mut log = tables.log();
    tables.open(&mut log, T1);
    tables.in_bundle(true);
    let again = add(1, &[in_port(1)], 2);
    tables.change(&again, T1, &mut log).unwrap();
    tables.in_bundle(false);
    tables.credit(at, 5, 500, T1);
    tables.commit(&mut log);
    while !tables.settle(1, &mut log, T1) {}
    let mut counts = Vec::new();
    tables.for_each(None, &Condition::ANY, |_, _, rule| {
        counts.push((rule.packets, rule.bytes))
    });
    assert_eq!(counts, [(5, 500)]);
}

#[test]
fn rules_end_while_a_bundle_is_under_way() {
    let mut tables = tables();
    let mut short = add(1, &[in_port(1)], 1);
    short.hard_timeout = 1;
    tables.flow_mod(&short, Nanos::ZERO).unwrap();
    for commits in [false, true] {
        let mut log = tables.log();
        tables.open(&mut log, T1);
        tables.in_bundle(true);
        tables
            .change(&to(FlowCommand::Delete, &add(0, &[], 0)), Nanos::ZERO, &mut log)
            .unwrap();
        tables.in_bundle(false);
        assert_eq!(tables.tick(T1).len(), usize::from(!commits));
        if commits {
            tables.commit(&mut log);
        } else {
            tables.abort();
        }
        while !tables.settle(1, &mut log, T1) {}
        assert!(tables.is_empty());
    }
    assert_eq!(tables.next_event(), None);
}

#[test]
fn monitors_hear_of_each_change_once_with_what_the_rule_was() {
    use crate::tables::RuleUpdate as U;
    let mut switch = switch();
    switch.set_monitored("br0", true);
    let rule = add(1, &[in_port(1)], 1);
    let mut other = to(FlowCommand::Modify, &rule);
    other.instructions = output(2);
    other.new_cookie = None;
    let same = other.clone();
    let gone = to(FlowCommand::Delete, &add(0, &[], 0));
    let mut kinds = String::new();
    for change in [&rule, &other, &same, &rule, &gone] {
        switch.flow_mod("br0", change, T1).unwrap();
        for event in switch.take_events("br0") {
            let TableEvent::Update(update) = event else { continue };
            assert_eq!(update.image().matching, rule.matching);
            kinds.push(match update {
                U::Added(_) => 'a',
                U::Modified(image) => {
                    assert_eq!(*image.instructions, output(2));
                    'm'
                }
                U::Removed(_, reason) => {
                    assert_eq!(reason, Reason::Delete);
                    'r'
                }
            });
        }
    }
    assert_eq!(kinds, "amar");
    switch
        .bundle("br0", &[BundleItem::Flow(&rule), BundleItem::Flow(&other)], T1)
        .unwrap();
    let events = switch.take_events("br0");
    assert!(
        matches!(&events[..], [TableEvent::Update(U::Added(_)), ..]),
        "{events:?}"
    );
}

#[test]
fn rules_that_are_kept_small_come_in_their_order_and_are_as_they_were_asked_for() {
    let mut wanted: Vec<FlowMod> = (0..40u16)
        .map(|n| {
            let mut change = add(n % 3, &[in_port(u128::from(n) % 5)], 7);
            change.new_cookie = Some(n.into());
            change.idle_timeout = n / 20;
            change.matching.set(F::EthType, 0x0800, 0xffff);
            change
                .matching
                .set(F::IpSrc, u128::from(n), 0xffff_ff00 | u128::from(n & 1));
            change
        })
        .collect();
    wanted[11].table = Some(3);
    wanted[12].instructions = output(8);
    let mut additions = Additions::default();
    for change in &wanted {
        assert_eq!(additions.push(Box::new(change.clone())), Ok(()));
    }
    for (at, change) in wanted.iter().enumerate() {
        assert_eq!(additions.flow_mod(at).as_ref(), Some(change));
    }
    let shown = |switch: &Switch| {
        let mut rules = Vec::new();
        let tables = switch.bridge("br0").unwrap().tables();
        tables.for_each(None, &Condition::ANY, |at, priority, rule| {
            rules.push((
                at.table,
                priority,
                rule.cookie,
                rule.idle_timeout,
                rule.instructions.clone(),
            ));
        });
        rules.sort_by_key(|rule| rule.2);
        rules
    };
    let (mut one, mut other) = (switch(), switch());
    let items: Vec<_> = wanted.iter().map(BundleItem::Flow).collect();
    one.bundle("br0", &items, T1).unwrap();
    other.bundle_open("br0", T1).unwrap();
    other.bundle_add("br0", &additions, 0..17, T1).unwrap();
    other.bundle_add("br0", &additions, 17..additions.len(), T1).unwrap();
    assert_eq!(shown(&other), []);
    other.bundle_commit("br0");
    while !other.bundle_settle("br0", 1, T1) {}
    assert_eq!(shown(&one), shown(&other));
    assert!(shown(&one).len() > 10);
}

#[test]
fn of_rules_that_are_kept_small_it_is_said_which_one_cannot_come() {
    let mut additions = Additions::default();
    for n in 0..20 {
        let mut change = add(1, &[in_port(n)], 1);
        if n == 13 {
            change.table = Some(254);
        }
        additions.push(Box::new(change)).unwrap();
    }
    let mut switch = switch();
    let error = switch.bundle_add("br0", &additions, 0..20, T1).unwrap_err();
    assert_eq!((error.at, error.error), (0, OfError::BfcBadId));
    switch.bundle_open("br0", T1).unwrap();
    let error = switch.bundle_add("br0", &additions, 10..20, T1).unwrap_err();
    assert_eq!((error.at, error.error), (3, OfError::BrcEperm));
}

#[test]
fn what_cannot_be_kept_small_comes_back_as_it_was() {
    let mut additions = Additions::default();
    let mut changes = vec![
        to(FlowCommand::ModifyStrict, &add(1, &[in_port(1)], 1)),
        add(1, &[in_port(1)], 1),
    ];
    changes[1].matching.add_tun_metadata(0, &[1], None).unwrap();
    for change in changes {
        let back = additions.push(Box::new(change.clone()));
        assert_eq!(back, Err(Box::new(change)));
    }
    // Rules without a common part.
    let unlike = |n: u32| add(1, &[in_port(1)], n);
    let first = (1..).find(|n| additions.push(Box::new(unlike(*n))).is_err()).unwrap();
    assert_eq!(additions.len() as u32, first - 1);
    assert_eq!(additions.push(Box::new(unlike(first))), Err(Box::new(unlike(first))));
    assert_eq!(additions.push(Box::new(unlike(1))), Ok(()));
}
