//! Random groups, nested, of all types, that watch ports and groups; random packets through them.
//!
//! [`Plain`] runs them as the specification explains them: recursively, bucket by bucket, on the
//! packet's addresses. The same packets must leave the bridge in the same order, unless the budget
//! is spent; then only its bounds are checked.
//!
//! `OXVS_SOAK` in the environment multiplies the number of groups, `OXVS_SEED` selects others.

use crate::ask::Ask;
use crate::frozen::bridge;
use dp::{Action as Step, DropCause, Key, PortNo};
use flow::{Field, extract};
use openflow::model::{FlowCommand, GroupCommand};
use openflow::text::{Names, parse_flow, parse_group_mod};
use std::collections::{BTreeMap, BTreeSet};
use switch::Switch;
use testkit::{Packet, Rng, mac};

/// The budget, and the most that one step can exceed it by.
const MOST_WORK: u32 = (1 << 20) + (1 << 17);
/// Datapath actions that 64 kB have room for, and those of one more group.
const MOST_ACTIONS: usize = 8192 + 1500;

/// Ports that exist.
const PORTS: u32 = 4;
/// A port that does not exist.
const NO_PORT: u32 = 50;

#[derive(Clone, Debug)]
enum Action {
    Output(u32),
    Group(u32),
    /// Look up table 1.
    Resubmit,
    SetDst(u8),
    SetSrc(u8),
}

impl Action {
    fn random(rng: &mut Rng, groups: usize) -> Action {
        match rng.below(10) {
            0..4 => Action::Output(match rng.chance(10) {
                true => NO_PORT,
                false => 1 + rng.below(PORTS as usize) as u32,
            }),
            4..7 => Action::Group(1 + rng.below(groups + 1) as u32),
            7 if rng.chance(30) => Action::Resubmit,
            8 => Action::SetSrc(rng.below(200) as u8),
            _ => Action::SetDst(rng.below(200) as u8),
        }
    }

    fn text(&self) -> String {
        match self {
            Action::Output(port) => format!("output:{port}"),
            Action::Group(group) => format!("group:{group}"),
            Action::Resubmit => "resubmit(,1)".to_owned(),
            Action::SetDst(n) => format!("set_field:02:00:00:00:00:{n:02x}->eth_dst"),
            Action::SetSrc(n) => format!("set_field:02:00:00:00:01:{n:02x}->eth_src"),
        }
    }
}

fn text(actions: &[Action]) -> String {
    let texts: Vec<String> = actions.iter().map(Action::text).collect();
    if texts.is_empty() {
        "drop".to_owned()
    } else {
        texts.join(",")
    }
}

#[derive(Clone, Debug)]
struct Bucket {
    weight: u16,
    port: Option<u32>,
    group: Option<u32>,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
struct Group {
    kind: &'static str,
    buckets: Vec<Bucket>,
}

impl Group {
    fn random(rng: &mut Rng, groups: usize) -> Group {
        let kind = ["all", "indirect", "select", "ff"][rng.below(4)];
        let watches = matches!(kind, "select" | "ff");
        let count = match kind {
            "indirect" => 1,
            _ if rng.chance(8) => 200 + rng.below(400),
            _ => rng.below(5),
        };
        let mut buckets: Vec<Bucket> = (0..count)
            .map(|_| {
                let port = (watches && rng.chance(50)).then(|| [1, 2, 3, 4, NO_PORT][rng.below(5)]);
                let group = (watches && rng.chance(40)).then(|| 1 + rng.below(groups + 1) as u32);
                Bucket {
                    weight: if kind == "select" { rng.below(4) as u16 } else { 0 },
                    port: port.or((kind == "ff" && group.is_none()).then_some(NO_PORT)),
                    group,
                    actions: (0..rng.below(4)).map(|_| Action::random(rng, groups)).collect(),
                }
            })
            .collect();
        if kind == "select" {
            // Which one is chosen is the switch's own business; all that can be do the same.
            let actions: Vec<Action> = (0..2).map(|_| Action::random(rng, groups)).collect();
            buckets.iter_mut().for_each(|bucket| bucket.actions = actions.clone());
        }
        Group { kind, buckets }
    }

    fn text(&self, id: u32) -> String {
        let mut text = format!("group_id={id},type={}", self.kind);
        for bucket in &self.buckets {
            text += ",bucket=";
            if self.kind == "select" {
                text += &format!("weight:{},", bucket.weight);
            }
            if let Some(port) = bucket.port {
                text += &format!("watch_port:{port},");
            }
            if let Some(group) = bucket.group {
                text += &format!("watch_group:{group},");
            }
            text += &format!("actions={}", self::text(&bucket.actions));
        }
        text
    }
}

/// A packet, as far as it is looked at.
type Addresses = (u8, u8);

struct Plain<'a> {
    groups: &'a BTreeMap<u32, Group>,
    second: &'a [Action],
    live: BTreeSet<u32>,
    in_port: u32,
    sent: Vec<(u32, Addresses)>,
    steps: usize,
}

impl Plain<'_> {
    fn is_live(live: &BTreeSet<u32>, bucket: &Bucket) -> bool {
        match (bucket.port, bucket.group) {
            (None, None) => true,
            (port, group) => port.is_some_and(|port| port <= PORTS) || group.is_some_and(|group| live.contains(&group)),
        }
    }

    fn find_live(&mut self) {
        loop {
            let before = self.live.len();
            for (id, group) in self.groups {
                if group.buckets.iter().any(|bucket| Self::is_live(&self.live, bucket)) {
                    self.live.insert(*id);
                }
            }
            if self.live.len() == before {
                return;
            }
        }
    }

    /// Runs actions in order. `false` if they exceed the budget.
    fn run(&mut self, actions: &[Action], packet: &mut Addresses, depth: u32) -> bool {
        self.steps += 1;
        if depth > 60 || self.steps > 20_000 {
            return false;
        }
        for action in actions {
            let goes_on = match action {
                Action::SetDst(n) => {
                    packet.0 = *n;
                    true
                }
                Action::SetSrc(n) => {
                    packet.1 = *n;
                    true
                }
                Action::Output(port) => {
                    if *port != self.in_port && *port <= PORTS {
                        self.sent.push((*port, *packet));
                    }
                    true
                }
                Action::Resubmit => self.run(self.second, packet, depth + 1),
                Action::Group(id) => self.group(*id, packet, depth + 1),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn group(&mut self, id: u32, packet: &Addresses, depth: u32) -> bool {
        let Some(group) = self.groups.get(&id) else { return true };
        let live = |bucket: &&Bucket| Self::is_live(&self.live, bucket);
        let chosen: Vec<&Bucket> = match group.kind {
            "ff" => group.buckets.iter().find(live).into_iter().collect(),
            "select" => {
                let mut usable = group.buckets.iter().filter(|bucket| bucket.weight > 0).filter(live);
                usable.next().into_iter().collect()
            }
            _ => group.buckets.iter().collect(),
        };
        chosen.into_iter().all(|bucket| {
            let mut copy = *packet;
            self.run(&set(&bucket.actions), &mut copy, depth)
        })
    }
}

/// The actions of a bucket as an action set: set-fields in order, then the last group, otherwise
/// output, otherwise lookup.
fn set(actions: &[Action]) -> Vec<Action> {
    let last = |is: fn(&Action) -> bool| actions.iter().rev().find(|action| is(action));
    let end = last(|action| matches!(action, Action::Group(_)))
        .or(last(|action| matches!(action, Action::Output(_))))
        .or(last(|action| matches!(action, Action::Resubmit)));
    let Some(end) = end else { return Vec::new() };
    let sets = actions
        .iter()
        .filter(|action| matches!(action, Action::SetDst(_) | Action::SetSrc(_)));
    sets.chain([end]).cloned().collect()
}

/// In place of a number of recirculations: a translation was at a limit.
const LIMITED: u32 = u32::MAX;

/// The packets that a datapath sends. `again` becomes how often one recirculates at most.
fn sent(switch: &mut Switch, steps: &[Step], key: &Key, again: &mut u32) -> Vec<(u32, Addresses)> {
    let mut packet = *key;
    let mut sent = Vec::new();
    for step in steps {
        match step {
            Step::SetField(set) => {
                let value = packet.get(set.field()) & !set.mask() | set.value() & set.mask();
                packet.set(set.field(), value);
            }
            Step::Output(port) => {
                let byte = |field| packet.get(field) as u8;
                sent.push((port.0, (byte(Field::EthDst), byte(Field::EthSrc))));
            }
            Step::RecircByHash { id, hash } => {
                let mut next = packet;
                next.set(Field::RecircId, id.with_hash(hash.short(&packet)).0.into());
                let translated = switch.ask(&next);
                switch.accept(&translated, nanos::Nanos::ZERO).unwrap();
                let mut deeper = if translated.ran_out.is_some() { LIMITED } else { 0 };
                sent.extend(self::sent(switch, &translated.translation.actions, &next, &mut deeper));
                *again = (*again).max(deeper.saturating_add(1));
            }
            other => panic!("{other:?}"),
        }
    }
    sent
}

#[test]
fn random_groups_translate_within_the_budget_and_as_a_plain_reading_of_them() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let (times, seed) = (number("OXVS_SOAK").unwrap_or(1), number("OXVS_SEED").unwrap_or(1));
    let (mut made, mut compared, mut went, mut limited, mut most) = (0, 0, 0, 0, 0);
    let mut round = 0;
    while made < 1000 * times {
        round += 1;
        let mut rng = Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let count = 1 + rng.below(14);
        let wanted: Vec<Group> = (0..count).map(|_| Group::random(&mut rng, count)).collect();
        let mut lists: Vec<Vec<Action>> = (0..2)
            .map(|_| (0..1 + rng.below(4)).map(|_| Action::random(&mut rng, count)).collect())
            .collect();
        let mut switch = bridge(&[], &[]);
        // Those that would send to themselves are refused.
        let mut groups = BTreeMap::new();
        for (id, group) in (1..).zip(wanted) {
            let text = group.text(id);
            let (change, _) = parse_group_mod(GroupCommand::Add, &text, &Names::default())
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            if switch.group_mod("br0", &change, nanos::Nanos::ZERO).is_ok() {
                groups.insert(id, group);
            }
        }
        made += groups.len() as u64;
        // A rule must not refer to a group that does not exist.
        for list in &mut lists {
            list.retain(|action| !matches!(action, Action::Group(group) if !groups.contains_key(group)));
        }
        let rules = [0, 1].map(|table| format!("table={table},actions={}", text(&lists[table])));
        for rule in &rules {
            let change = parse_flow(FlowCommand::Add, rule, &Names::default()).unwrap();
            switch.flow_mod("br0", &change, nanos::Nanos::ZERO).unwrap();
        }
        for _ in 0..3 {
            let in_port = 1 + rng.below(PORTS as usize) as u32;
            let packet = Packet::new(mac(rng.below(200) as u32), mac(rng.below(200) as u32))
                .ipv4([10, 0, 0, 1].into(), [10, 0, 0, rng.below(200) as u8].into())
                .udp(rng.below(60_000) as u16, 80, b"data");
            let key = extract(&packet.bytes(), &PortNo(in_port).into()).unwrap();
            let translated = switch.ask(&key);
            switch.accept(&translated, nanos::Nanos::ZERO).unwrap();
            let steps = &translated.translation.actions;
            most = most.max(translated.work);
            assert!(
                translated.work <= MOST_WORK && steps.len() <= MOST_ACTIONS,
                "round {round}"
            );
            if translated.ran_out.is_some() {
                limited += 1;
                let drop = translated.translation.drop;
                assert!(
                    !steps.is_empty() || drop == Some(DropCause::TranslationLimit),
                    "round {round}: {drop:?}"
                );
                continue;
            }
            let mut plain = Plain {
                groups: &groups,
                second: &lists[1],
                live: BTreeSet::new(),
                in_port,
                sent: Vec::new(),
                steps: 0,
            };
            plain.find_live();
            let byte = |field| key.get(field) as u8;
            let mut packet = (byte(Field::EthDst), byte(Field::EthSrc));
            if !plain.run(&lists[0], &mut packet, 0) {
                limited += 1;
                continue;
            }
            let texts: Vec<String> = groups.iter().map(|(id, group)| group.text(*id)).collect();
            let mut again = 0;
            let mut ours = sent(&mut switch, steps, &key, &mut again);
            if again == LIMITED {
                limited += 1;
                continue;
            }
            // All select groups on the way have one hash.
            assert!(again <= 1, "round {round}: {again}");
            if again > 0 {
                // A recirculated packet leaves behind what the actions after it send.
                ours.sort_unstable();
                plain.sent.sort_unstable();
            }
            assert_eq!(
                ours,
                plain.sent,
                "round {round}:\n{}\n{}",
                rules.join("\n"),
                texts.join("\n")
            );
            compared += 1;
            went += u64::from(!plain.sent.is_empty());
        }
    }
    println!(
        "{made} groups, {compared} packets compared, {went} sent, {limited} at a limit, at most {most} units of work"
    );
    assert!(limited > 0 && limited < compared, "{limited} of {compared}");
    assert!(went * 3 > compared, "{went} of {compared}");
}
