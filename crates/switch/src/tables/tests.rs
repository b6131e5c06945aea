mod against_a_list;
mod bulk;
mod bundles;
mod eviction;
mod groups;
mod handles;
mod meters;
mod options;

use super::*;
use flow::MatchField as F;
use openflow::OfError;
use openflow::model::{Action, FlowCommand, FlowFlags, FlowMod, Instructions, Port};

fn output(port: u32) -> Instructions {
    let port = Port(port);
    Instructions::apply(vec![Action::Output { port, max_len: 0 }])
}

fn tables() -> FlowTables {
    FlowTables::new(FailMode::Secure, 1, Nanos::ZERO)
}

fn add(priority: u16, fields: &[(F, u128, u128)], port: u32) -> FlowMod {
    let mut change = FlowMod {
        priority,
        instructions: output(port),
        new_cookie: Some(0),
        ..FlowMod::default()
    };
    for (field, value, mask) in fields {
        change.matching.set(*field, *value, *mask);
    }
    change
}

fn to(command: FlowCommand, change: &FlowMod) -> FlowMod {
    FlowMod {
        command,
        ..change.clone()
    }
}

fn in_port(port: u128) -> (F, u128, u128) {
    (F::InPortOxm, port, 0xffff_ffff)
}

fn ports(tables: &FlowTables) -> Vec<u32> {
    let mut ports = Vec::new();
    tables.for_each(None, &Condition::ANY, |_, _, rule| match rule.instructions.apply[..] {
        [Action::Output { port, .. }] => ports.push(port.0),
        _ => ports.push(0),
    });
    ports.sort_unstable();
    ports
}

const T1: Nanos = Nanos::from_secs(1);

#[test]
fn a_standalone_bridge_has_one_rule_until_somebody_changes_it() {
    let mut tables = FlowTables::new(FailMode::Standalone, 1, Nanos::ZERO);
    assert!(tables.is_builtin());
    assert_eq!(ports(&tables), [Port::NORMAL.0]);
    tables.flow_mod(&to(FlowCommand::Delete, &add(0, &[], 1)), T1).unwrap();
    assert!(tables.is_empty() && !tables.is_builtin());
}

#[test]
fn adding_the_same_match_and_priority_replaces_and_keeps_counts_unless_told() {
    let mut tables = tables();
    let rule = add(5, &[in_port(1)], 2);
    let at = tables.flow_mod(&rule, T1).unwrap().added[0];
    tables.credit(at, 3, 300, T1);
    let again = tables.flow_mod(&add(5, &[in_port(1)], 7), Nanos::from_secs(2)).unwrap();
    assert!(again.removed.is_empty());
    let there = tables.rule(again.added[0]).unwrap();
    assert_eq!(
        (there.packets, there.bytes, there.created),
        (3, 300, Nanos::from_secs(2))
    );
    assert!(tables.rule(at).is_none());
    let mut reset = rule.clone();
    reset.flags = FlowFlags::RESET_COUNTS;
    let at = tables.flow_mod(&reset, T1).unwrap().added[0];
    assert_eq!(tables.rule(at).unwrap().packets, 0);
    tables.flow_mod(&add(6, &[in_port(1)], 3), T1).unwrap();
    assert_eq!(ports(&tables), [2, 3]);
}

#[test]
fn modify_changes_what_is_covered_and_adds_only_where_it_may() {
    let mut tables = tables();
    tables.flow_mod(&add(5, &[in_port(1)], 2), T1).unwrap();
    tables
        .flow_mod(&add(6, &[in_port(1), (F::EthSrc, 7, 0xff)], 2), T1)
        .unwrap();
    tables.flow_mod(&add(5, &[in_port(3)], 2), T1).unwrap();

    let loose = tables
        .flow_mod(&to(FlowCommand::Modify, &add(9, &[in_port(1)], 8)), T1)
        .unwrap();
    assert_eq!(loose.modified.len(), 2);
    assert_eq!(ports(&tables), [2, 8, 8]);
    let strict = tables
        .flow_mod(&to(FlowCommand::ModifyStrict, &add(5, &[in_port(1)], 9)), T1)
        .unwrap();
    assert_eq!(strict.modified.len(), 1);
    assert_eq!(ports(&tables), [2, 8, 9]);

    let mut other = to(FlowCommand::ModifyStrict, &add(1, &[in_port(4)], 4));
    other.new_cookie = None;
    assert!(tables.flow_mod(&other, T1).unwrap().added.is_empty());
    other.new_cookie = Some(4);
    other.cookie_mask = 1;
    assert!(tables.flow_mod(&other, T1).unwrap().added.is_empty());
    other.cookie_mask = 0;
    assert_eq!(tables.flow_mod(&other, T1).unwrap().added.len(), 1);
}

#[test]
fn deletion_asks_for_match_cookie_port_and_table() {
    let filled = || {
        let mut tables = tables();
        for port in 1..=3 {
            let mut rule = add(5, &[in_port(u128::from(port))], port + 10);
            rule.new_cookie = Some(u64::from(port));
            rule.table = Some(port as u8 - 1);
            tables.flow_mod(&rule, T1).unwrap();
        }
        tables
    };
    let delete = to(FlowCommand::Delete, &add(0, &[], 0));
    let cases: [(&str, FlowMod, &[u32]); 6] = [
        ("all", delete.clone(), &[]),
        (
            "cookie",
            FlowMod {
                cookie: 2,
                cookie_mask: u64::MAX,
                ..delete.clone()
            },
            &[11, 13],
        ),
        (
            "cookie bits",
            FlowMod {
                cookie: 1,
                cookie_mask: 1,
                ..delete.clone()
            },
            &[12],
        ),
        (
            "port",
            FlowMod {
                out_port: Port(13),
                ..delete.clone()
            },
            &[11, 12],
        ),
        (
            "group",
            FlowMod {
                out_group: 1,
                ..delete.clone()
            },
            &[11, 12, 13],
        ),
        (
            "table",
            FlowMod {
                table: Some(1),
                ..delete.clone()
            },
            &[11, 13],
        ),
    ];
    for (name, change, left) in cases {
        let mut tables = filled();
        let changed = tables.flow_mod(&change, T1).unwrap();
        assert_eq!(ports(&tables), left, "{name}");
        assert_eq!(changed.removed.len(), 3 - left.len(), "{name}");
    }
    let mut tables = filled();
    tables
        .flow_mod(&to(FlowCommand::DeleteStrict, &add(4, &[in_port(1)], 0)), T1)
        .unwrap();
    assert_eq!(tables.len(), 3);
    let mut strict = to(FlowCommand::DeleteStrict, &add(5, &[in_port(1)], 0));
    strict.flags = FlowFlags::default();
    let changed = tables.flow_mod(&strict, T1).unwrap();
    assert_eq!((changed.tables, tables.len()), (vec![0], 2));
    assert_eq!(changed.removed[0].message(), None);
}

#[test]
fn overlaps_are_refused_where_asked_for() {
    let mut tables = tables();
    tables.flow_mod(&add(5, &[in_port(1)], 2), T1).unwrap();
    let mut other = add(5, &[(F::EthSrc, 7, 0xff)], 2);
    other.flags = FlowFlags::CHECK_OVERLAP;
    assert_eq!(tables.flow_mod(&other, T1).unwrap_err(), OfError::FmfcOverlap);
    other.priority = 6;
    tables.flow_mod(&other, T1).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let mut tables = tables();
    let mut goto = add(1, &[], 1);
    goto.table = Some(4);
    goto.instructions.goto = Some(4);
    assert_eq!(tables.flow_mod(&goto, T1).unwrap_err(), OfError::BicBadTableId);
    let mut table = add(1, &[], 1);
    table.table = Some(254);
    assert_eq!(tables.flow_mod(&table, T1).unwrap_err(), OfError::BrcEperm);
    let hashed = add(1, &[(F::DpHash, 1, 0xffff_ffff)], 1);
    assert_eq!(tables.flow_mod(&hashed, T1).unwrap_err(), OfError::BmcBadField);
    let mut action = add(1, &[], 1);
    action.instructions.apply.push(Action::Encap {
        packet_type: 0x1_0800,
        hdr_size: 0,
        properties: Vec::new(),
    });
    assert_eq!(tables.flow_mod(&action, T1).unwrap_err(), OfError::BacBadType);
    assert!(tables.is_empty() && tables.is_builtin());
}

#[test]
fn rules_end_when_idle_or_old_and_say_so() {
    let mut tables = tables();
    let mut rule = add(5, &[in_port(1)], 2);
    rule.idle_timeout = 10;
    rule.hard_timeout = 25;
    rule.flags = FlowFlags::SEND_FLOW_REM;
    let at = tables.flow_mod(&rule, Nanos::ZERO).unwrap().added[0];
    let mut forever = rule.clone();
    forever.priority = 6;
    forever.hard_timeout = 0;
    tables.flow_mod(&forever, Nanos::ZERO).unwrap();
    assert_eq!(tables.next_event(), Some(Nanos::from_secs(10)));
    tables.credit(at, 1, 60, Nanos::from_secs(9));

    let ended = tables.tick(Nanos::from_secs(10));
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].priority, ended[0].reason), (6, Reason::IdleTimeout));
    assert_eq!(tables.next_event(), Some(Nanos::from_secs(19)));
    tables.credit(at, 1, 60, Nanos::from_secs(18));
    assert!(tables.tick(Nanos::from_secs(19)).is_empty());
    assert_eq!(tables.next_event(), Some(Nanos::from_secs(25)));
    let ended = tables.tick(Nanos::from_secs(25));
    let message = ended[0].message().unwrap();
    assert_eq!(
        (message.reason, message.packets, message.bytes, message.duration.sec),
        (1, 2, 120, 25)
    );
    assert_eq!(message.matching, rule.matching);
    assert_eq!((tables.next_event(), tables.len()), (None, 0));
}

#[test]
fn a_full_table_refuses_or_evicts_the_least_important() {
    let mut tables = tables();
    tables.set_limit(0, Some(2), Overflow::Refuse);
    for port in 1..=2 {
        tables.flow_mod(&add(5, &[in_port(port)], port as u32), T1).unwrap();
    }
    let third = add(5, &[in_port(3)], 3);
    assert_eq!(tables.flow_mod(&third, T1).unwrap_err(), OfError::FmfcTableFull);
    tables.flow_mod(&add(5, &[in_port(2)], 22), T1).unwrap();

    tables.set_limit(0, Some(2), Overflow::Evict);
    // A rule that never ends by itself is never evicted.
    assert_eq!(tables.flow_mod(&third, T1).unwrap_err(), OfError::FmfcTableFull);
    for (port, importance) in [(1, 9), (2, 0)] {
        let mut important = add(5, &[in_port(port)], port as u32);
        (important.importance, important.idle_timeout) = (importance, 60);
        tables.flow_mod(&important, T1).unwrap();
    }
    let changed = tables.flow_mod(&third, T1).unwrap();
    assert_eq!(changed.removed[0].reason, Reason::Eviction);
    assert_eq!(ports(&tables), [1, 3]);
}
