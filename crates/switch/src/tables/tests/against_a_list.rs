//! Random changes, one by one and in bundles, of tables and of a list that is gone through from end
//! to end.

use super::*;
use crate::tables::update::Log;
use openflow::model::{ALL_GROUPS, Bucket, GroupCommand, GroupMod, GroupType};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    Flow(FlowMod),
    Group(GroupMod),
}

/// A rule as both sides show it: table, priority, match, cookie, instructions, packets.
type Shown = (u8, u16, String, u64, String, u64);

#[derive(Clone, Debug, Default)]
struct List {
    rules: Vec<(u8, u16, Match<WORDS>, FlowMod, u64)>,
    groups: BTreeMap<u32, Vec<Action>>,
}

impl List {
    fn apply(&mut self, op: &Op) -> Result<(), OfError> {
        match op {
            Op::Flow(change) => self.flow(change),
            Op::Group(change) => self.group(change),
        }
    }

    fn group(&mut self, change: &GroupMod) -> Result<(), OfError> {
        let actions: Vec<Action> = change
            .buckets
            .iter()
            .flat_map(|bucket| bucket.actions.clone())
            .collect();
        match change.command {
            GroupCommand::Add if self.groups.contains_key(&change.group) => return Err(OfError::GmfcGroupExists),
            GroupCommand::Modify if !self.groups.contains_key(&change.group) => return Err(OfError::GmfcUnknownGroup),
            GroupCommand::Delete => {
                let all = change.group == ALL_GROUPS;
                self.groups.retain(|id, _| !all && *id != change.group);
                self.rules.retain(|(.., rule, _)| {
                    let sends = |action: &Action| matches!(action, Action::Group(id) if all || *id == change.group);
                    !rule.instructions.apply.iter().any(sends)
                });
                return Ok(());
            }
            _ => {}
        }
        if self.reaches(&actions, change.group, 0) {
            return Err(OfError::GmfcLoop);
        }
        self.groups.insert(change.group, actions);
        Ok(())
    }

    fn reaches(&self, actions: &[Action], to: u32, depth: u32) -> bool {
        actions.iter().any(|action| match action {
            Action::Group(id) if *id == to => true,
            Action::Group(id) if depth < 10 => self
                .groups
                .get(id)
                .is_some_and(|actions| self.reaches(actions, to, depth + 1)),
            _ => false,
        })
    }

    fn flow(&mut self, change: &FlowMod) -> Result<(), OfError> {
        use FlowCommand as C;
        let matching = crate::tables::condition::accepted(&change.matching, &crate::tables::TunnelOptions::default())?;
        let strict = matches!(change.command, C::ModifyStrict | C::DeleteStrict);
        let meant = |(table, priority, own, rule, _): &(u8, u16, Match<WORDS>, FlowMod, u64)| {
            change.table.is_none_or(|wanted| wanted == *table)
                && (rule.new_cookie.unwrap() ^ change.cookie) & change.cookie_mask == 0
                && if strict {
                    *own == matching && *priority == change.priority
                } else {
                    matching.covers(own)
                }
        };
        let unknown = |instructions: &Instructions| {
            let unknown = |a: &Action| matches!(a, Action::Group(id) if !self.groups.contains_key(id));
            instructions.apply.iter().any(unknown)
        };
        match change.command {
            C::Delete | C::DeleteStrict => self.rules.retain(|rule| !meant(rule)),
            _ if unknown(&change.instructions) => return Err(OfError::BacBadOutGroup),
            C::Modify | C::ModifyStrict if self.rules.iter().any(meant) => {
                for rule in self.rules.iter_mut().filter(|rule| meant(rule)) {
                    rule.3.instructions = change.instructions.clone();
                    rule.3.new_cookie = change.new_cookie.or(rule.3.new_cookie);
                    if change.flags.has(FlowFlags::RESET_COUNTS) {
                        rule.4 = 0;
                    }
                }
            }
            C::Modify | C::ModifyStrict if change.new_cookie.is_none() || change.cookie_mask != 0 => {}
            _ => {
                let table = change.table.unwrap_or(0);
                let overlaps = self
                    .rules
                    .iter()
                    .any(|rule| rule.0 == table && rule.1 == change.priority && rule.2.overlaps(&matching));
                if change.flags.has(FlowFlags::CHECK_OVERLAP) && overlaps {
                    return Err(OfError::FmfcOverlap);
                }
                let same =
                    |r: &(u8, u16, Match<WORDS>, FlowMod, u64)| (r.0, r.1, r.2) == (table, change.priority, matching);
                let keep = !change.flags.has(FlowFlags::RESET_COUNTS);
                let packets = self
                    .rules
                    .iter()
                    .find(|r| same(r))
                    .map_or(0, |r| if keep { r.4 } else { 0 });
                self.rules.retain(|r| !same(r));
                self.rules
                    .push((table, change.priority, matching, change.clone(), packets));
            }
        }
        Ok(())
    }

    fn shown(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> = self
            .rules
            .iter()
            .map(|(table, priority, matching, rule, packets)| {
                let matching = format!("{:?}", words::match_of(matching));
                let cookie = rule.new_cookie.unwrap_or(0);
                (
                    *table,
                    *priority,
                    matching,
                    cookie,
                    format!("{:?}", rule.instructions),
                    *packets,
                )
            })
            .collect();
        all.sort();
        all
    }

    fn lookup(&self, table: u8, key: &[u64; WORDS]) -> Option<u16> {
        let found = self.rules.iter().filter(|rule| rule.0 == table && rule.2.matches(key));
        found.map(|rule| rule.1).max()
    }
}

fn shown(tables: &FlowTables) -> Vec<Shown> {
    let mut all = Vec::new();
    tables.for_each(None, &Condition::ANY, |at, priority, rule| {
        let (_, matching) = tables.describe(at).unwrap();
        let matching = format!("{matching:?}");
        all.push((
            at.table,
            priority,
            matching,
            rule.cookie,
            format!("{:?}", *rule.instructions),
            rule.packets,
        ));
    });
    all.sort();
    assert_eq!(all.len(), tables.len());
    all
}

#[track_caller]
fn compare(tables: &FlowTables, list: &List) {
    assert_eq!(shown(tables), list.shown());
    let ids: Vec<u32> = tables.groups().iter().map(|group| group.id).collect();
    assert_eq!(ids, list.groups.keys().copied().collect::<Vec<_>>());
    for port in 0..4 {
        for mac in 0..3 {
            for table in 0..2 {
                let key = key(port, mac);
                let mut consulted = [0; WORDS];
                let there = tables.table(table);
                let found = there.and_then(|table| table.rules.lookup_where(&key, &mut consulted, |_, _| true));
                assert_eq!(found.map(|found| found.priority as u16), list.lookup(table, &key));
            }
        }
    }
}

fn key(port: u128, mac: u128) -> [u64; WORDS] {
    let mut state = flow::FlowState::ZERO;
    state.set(F::InPortOxm, port);
    state.set(F::EthSrc, mac);
    words::words_of(&state)
}

fn any_flow() -> impl Strategy<Value = Op> {
    let command = prop_oneof![
        6 => Just(FlowCommand::Add),
        2 => Just(FlowCommand::Modify),
        2 => Just(FlowCommand::ModifyStrict),
        1 => Just(FlowCommand::Delete),
        2 => Just(FlowCommand::DeleteStrict),
    ];
    let matching = (
        prop::option::of(0u128..4),
        prop::option::of((0u128..3, prop_oneof![Just(3u128), Just(1), Just(2)])),
    );
    let rest = (
        0u64..4,
        prop_oneof![3 => Just(0u64), 1 => 0u64..4],
        1u32..6,
        prop::option::weighted(0.8, 0u64..4),
    );
    (
        command,
        0u8..2,
        0u16..3,
        matching,
        rest,
        prop_oneof![4 => Just(0u16), 1 => Just(2), 1 => Just(4)],
    )
        .prop_map(
            |(command, table, priority, (port, mac), (cookie, cookie_mask, to, new_cookie), flags)| {
                let mut change = FlowMod {
                    command,
                    table: Some(table),
                    priority,
                    cookie,
                    cookie_mask,
                    new_cookie: if command == FlowCommand::Add {
                        new_cookie.or(Some(0))
                    } else {
                        new_cookie
                    },
                    flags: FlowFlags(flags),
                    instructions: match to {
                        5 => Instructions::apply(vec![Action::Group(1)]),
                        4 => Instructions::apply(vec![Action::Group(2)]),
                        port => output(port),
                    },
                    ..FlowMod::default()
                };
                if command == FlowCommand::Delete && cookie == 3 {
                    change.table = None;
                }
                if let Some(port) = port {
                    change.matching.set(F::InPortOxm, port, 0xffff_ffff);
                }
                if let Some((mac, mask)) = mac {
                    change.matching.set(F::EthSrc, mac & mask, mask);
                }
                Op::Flow(change)
            },
        )
}

fn any_group() -> impl Strategy<Value = Op> {
    let command = prop_oneof![
        3 => Just(GroupCommand::Add),
        2 => Just(GroupCommand::Modify),
        1 => Just(GroupCommand::AddOrMod),
        2 => Just(GroupCommand::Delete),
    ];
    (
        command,
        prop_oneof![9 => 1u32..4, 1 => Just(ALL_GROUPS)],
        prop::collection::vec(1u32..6, 0..3),
    )
        .prop_map(|(command, group, to)| {
            let group = if group == ALL_GROUPS && command != GroupCommand::Delete {
                1
            } else {
                group
            };
            let bucket = |(id, to): (u32, &u32)| Bucket {
                id,
                weight: 0,
                watch_port: Port::ANY,
                watch_group: openflow::model::ANY_GROUP,
                actions: match to {
                    1..4 => vec![Action::Group(*to)],
                    port => vec![Action::Output {
                        port: Port(*port),
                        max_len: 0,
                    }],
                },
            };
            Op::Group(GroupMod {
                command,
                kind: GroupType::All,
                group,
                bucket_id: u32::MAX,
                buckets: (0..).zip(&to).map(bucket).collect(),
                selection: None,
            })
        })
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![8 => any_flow(), 2 => any_group()]
}

fn apply(tables: &mut FlowTables, op: &Op, log: &mut Log) -> Result<(), OfError> {
    match op {
        Op::Flow(change) => tables.change(change, T1, log),
        Op::Group(change) => tables.group_mod(change, T1, log).map(drop),
    }
}

/// The same, with rules that are to be added kept small first.
fn apply_kept(tables: &mut FlowTables, op: &Op, log: &mut Log) -> Result<(), OfError> {
    let mut additions = Additions::default();
    match op {
        Op::Flow(change) if additions.push(Box::new(change.clone())).is_ok() => {
            let added = tables.add_all(&additions, 0..1, T1, log);
            added.map_err(|(_, error)| error)
        }
        _ => apply(tables, op, log),
    }
}

/// Gives each rule packets, so that it is seen whether they are kept.
fn count(tables: &mut FlowTables, list: &mut List) {
    let mut all = Vec::new();
    tables.for_each(None, &Condition::ANY, |at, priority, _| all.push((at, priority)));
    for (at, priority) in all {
        let matching = tables.table(at.table).unwrap().rules.entry(at.id).unwrap().matching();
        tables.credit(at, 7, 70, T1);
        let rule = list
            .rules
            .iter_mut()
            .find(|r| (r.0, r.1, r.2) == (at.table, priority, matching))
            .unwrap();
        rule.4 += 7;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 2))]

    #[test]
    fn changes_do_to_tables_what_they_do_to_a_list(ops in prop::collection::vec(any_op(), 1..40)) {
        let (mut tables, mut list) = (tables(), List::default());
        for op in &ops {
            let mut log = Log::default();
            let before = shown(&tables);
            let result = apply(&mut tables, op, &mut log);
            prop_assert_eq!(result, list.apply(op), "{:?}", op);
            compare(&tables, &list);
            if log.stale.is_empty() {
                prop_assert_eq!(before, shown(&tables), "a change that says that it is none");
            }
            count(&mut tables, &mut list);
        }
    }

    #[test]
    fn a_bundle_is_seen_as_a_whole_or_not_at_all(
        bundles in prop::collection::vec((prop::collection::vec(any_op(), 0..12), any::<bool>()), 1..6),
        step in 1usize..4,
    ) {
        let (mut tables, mut list) = (tables(), List::default());
        for (ops, give_up) in &bundles {
            let mut after = list.clone();
            let mut log = tables.log();
            tables.open(&mut log, T1);
            let mut failed = *give_up;
            for op in ops {
                tables.in_bundle(true);
                let result = apply_kept(&mut tables, op, &mut log);
                tables.in_bundle(false);
                prop_assert_eq!(result, after.apply(op), "{:?}", op);
                compare(&tables, &list);
                if result.is_err() {
                    failed = true;
                    break;
                }
            }
            // The packets of the rules that a bundle replaces meanwhile are not lost.
            if failed {
                tables.abort();
            } else {
                tables.commit(&mut log);
                list = after;
            }
            while !tables.settle(step, &mut log, T1) {}
            compare(&tables, &list);
            count(&mut tables, &mut list);
        }
    }
}
