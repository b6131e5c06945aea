//! Random programs of three bridges in a row, and random packets for the first.

use super::bytes::Packet;
use flow::MatchField as F;
use openflow::model::{
    ANY_GROUP, Action, Bucket, FlowMod, GroupCommand, GroupMod, GroupType, Instructions, Port, Subfield,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fmt;
use wire::{MacAddr, VlanTag};

pub(super) const BRIDGES: usize = 3;
pub(super) const TABLES: u8 = 3;
pub(super) const GROUPS: u32 = 3;
/// The port of a bridge by which packets of the bridge before it come in.
pub(super) const PATCH_IN: u32 = 8;
/// The port of a bridge that leads to the next.
pub(super) const PATCH_OUT: u32 = 9;

/// How many devices each bridge has; their ports are 1 and up.
pub(super) const DEVICES: [u32; BRIDGES] = [3, 2, 2];

/// An action.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Output(u32),
    /// Sends the first bytes.
    Cut(u32, u32),
    All,
    Clone(Vec<Op>),
    Group(u32),
    Resubmit(u8),
    PushTag(u16),
    PopTag,
    SetVid(u16),
    PushLabel,
    PopLabel(u16),
    SetLabel(u32),
    SetLabelTtl(u8),
    CopyTtlOut,
    CopyTtlIn,
    PushBackbone,
    PopBackbone,
    SetSrc(u8),
    SetTos(u8),
    SetRegister(u32),
}

/// Which packets a rule is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    Any,
    Kind(u16),
    Tos(u8),
    Label(u32),
    Tagged,
    Register(u32),
}

/// A rule; those of a table are tried in order.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) test: Test,
    pub(super) ops: Vec<Op>,
    /// The port to which the action set sends the packet from here on.
    pub(super) write: Option<u32>,
    pub(super) goto: Option<u8>,
}

/// A group: its kind, and its buckets with whether they are live.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) kind: GroupType,
    pub(super) buckets: Vec<(bool, Vec<Op>)>,
}

/// What a bridge does.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) tables: Vec<Vec<Rule>>,
    pub(super) groups: Vec<Group>,
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (table, rules) in self.tables.iter().enumerate() {
            for Rule { test, ops, write, goto } in rules {
                writeln!(f, "  table {table}: {test:?}: {ops:?} write {write:?} goto {goto:?}")?;
            }
        }
        for (number, Group { kind, buckets }) in (1..).zip(&self.groups) {
            writeln!(f, "  group {number}: {kind:?} {buckets:?}")?;
        }
        Ok(())
    }
}

impl Op {
    fn action(&self) -> Action {
        match self {
            Op::Output(port) => output(Port(*port)),
            Op::Cut(port, max_len) => Action::OutputTrunc {
                port: Port(*port),
                max_len: *max_len,
            },
            Op::All => output(Port::ALL),
            Op::Clone(ops) => Action::Clone(actions(ops)),
            Op::Group(group) => Action::Group(*group),
            Op::Resubmit(table) => Action::Resubmit {
                in_port: Port::IN_PORT,
                table: *table,
                ct: false,
            },
            Op::PushTag(tpid) => Action::PushVlan(*tpid),
            Op::PopTag => Action::PopVlan,
            Op::SetVid(vid) => Action::SetVlanVid(*vid),
            Op::PushLabel => Action::PushMpls(0x8847),
            Op::PopLabel(kind) => Action::PopMpls(*kind),
            Op::SetLabel(label) => Action::SetMplsLabel(*label),
            Op::SetLabelTtl(ttl) => Action::SetMplsTtl(*ttl),
            Op::CopyTtlOut => Action::CopyTtlOut,
            Op::CopyTtlIn => Action::CopyTtlIn,
            Op::PushBackbone => Action::PushPbb(0x88e7),
            Op::PopBackbone => Action::PopPbb,
            Op::SetSrc(n) => Action::SetEthSrc(MacAddr(testkit::mac((*n).into()))),
            Op::SetTos(tos) => Action::SetTos(*tos),
            Op::SetRegister(value) => Action::Load {
                dst: Subfield::whole(F::Reg0),
                value: (*value).into(),
            },
        }
    }
}

fn output(port: Port) -> Action {
    Action::Output { port, max_len: 0 }
}

fn actions(ops: &[Op]) -> Vec<Action> {
    ops.iter().map(Op::action).collect()
}

impl Rule {
    /// The rule, as the one of this number of a table.
    pub(super) fn change(&self, table: u8, at: usize) -> FlowMod {
        let mut change = FlowMod {
            table: Some(table),
            priority: 100 - at as u16,
            ..FlowMod::default()
        };
        let mut kind = |kind: u16| change.matching.set(F::EthType, kind.into(), 0xffff);
        match self.test {
            Test::Any => {}
            Test::Kind(number) => kind(number),
            Test::Tos(tos) => {
                kind(0x0800);
                change.matching.set(F::NwTos, tos.into(), 0xfc);
            }
            Test::Label(label) => {
                kind(0x8847);
                change.matching.set(F::MplsLabel, label.into(), 0xf_ffff);
            }
            Test::Tagged => change.matching.set(F::VlanTci, 0x1000, 0x1000),
            Test::Register(value) => change.matching.set(F::Reg0, value.into(), 0xffff_ffff),
        }
        change.instructions = Instructions {
            apply: actions(&self.ops),
            write: self.write.map(|port| output(Port(port))).into_iter().collect(),
            goto: self.goto,
            ..Instructions::default()
        };
        change
    }
}

impl Group {
    pub(super) fn change(&self, group: u32) -> GroupMod {
        let bucket = |(id, (live, ops)): (u32, &(bool, Vec<Op>))| Bucket {
            id,
            weight: u16::from(self.kind == GroupType::Select),
            // Nobody has seen the port of the others.
            watch_port: match (live, self.kind) {
                (_, GroupType::All | GroupType::Indirect) => Port::ANY,
                (true, _) => Port(1),
                (false, _) => Port(77),
            },
            watch_group: ANY_GROUP,
            actions: actions(ops),
        };
        GroupMod {
            command: GroupCommand::Add,
            kind: self.kind,
            group,
            bucket_id: 0,
            buckets: (0..).zip(&self.buckets).map(bucket).collect(),
            selection: None,
        }
    }

    /// The buckets that act on a packet.
    pub(super) fn acting(&self) -> impl Iterator<Item = &Vec<Op>> {
        let one = matches!(self.kind, GroupType::Select | GroupType::FastFailover);
        let acts = move |(live, _): &&(bool, Vec<Op>)| *live || !one;
        let count = if one { 1 } else { usize::MAX };
        self.buckets.iter().filter(acts).map(|(_, ops)| ops).take(count)
    }
}

fn port() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1..4_u32, 1 => Just(PATCH_OUT)]
}

fn tpid() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0x8100_u16), Just(0x88a8)]
}

/// What a label is taken for that comes off.
fn kind() -> impl Strategy<Value = u16> {
    prop_oneof![12 => Just(0x0800_u16), 4 => Just(0x8847), 1 => Just(0x88e7), 1 => Just(0x8100)]
}

fn tos() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0_u8), Just(32), Just(64)]
}

/// A part of a group's bucket, or nothing.
fn maybe(op: impl Strategy<Value = Op> + 'static, weight: f64) -> BoxedStrategy<Option<Op>> {
    option::weighted(weight, op).boxed()
}

fn set() -> impl Strategy<Value = Op> {
    prop_oneof![
        (5..8_u16).prop_map(Op::SetVid),
        (1..4_u32).prop_map(Op::SetLabel),
        (1..200_u8).prop_map(Op::SetLabelTtl),
        (10..13_u8).prop_map(Op::SetSrc),
        tos().prop_map(Op::SetTos),
        (0..3_u32).prop_map(Op::SetRegister),
    ]
}

/// Actions of a bucket, in the order in which an action set is run.
fn bucket(group: u32) -> impl Strategy<Value = Vec<Op>> {
    let end = prop_oneof![
        4 => port().prop_map(Op::Output),
        2 => Just(Op::Resubmit(TABLES - 1)),
        2 => (1..=GROUPS).prop_map(Op::Group),
    ];
    let end = end.prop_map(move |op| match op {
        Op::Group(other) if other <= group => Op::Output(other),
        op => op,
    });
    let off = (
        maybe(Just(Op::CopyTtlIn), 0.15),
        maybe(Just(Op::PopTag), 0.25),
        maybe(kind().prop_map(Op::PopLabel), 0.15),
        maybe(Just(Op::PopBackbone), 0.1),
    );
    let on = (
        maybe(Just(Op::PushLabel), 0.25),
        maybe(Just(Op::PushBackbone), 0.1),
        maybe(tpid().prop_map(Op::PushTag), 0.15),
        maybe(Just(Op::CopyTtlOut), 0.05),
    );
    (off, on, vec(set(), 0..3), end).prop_map(|(off, on, sets, end)| {
        let off = [off.0, off.1, off.2, off.3].into_iter().flatten();
        let on = [on.0, on.1, on.2, on.3].into_iter().flatten();
        off.chain(on).chain(sets).chain([end]).collect()
    })
}

fn any_group(group: u32) -> impl Strategy<Value = Group> {
    let kind = prop_oneof![
        Just(GroupType::All),
        Just(GroupType::Select),
        Just(GroupType::Indirect),
        Just(GroupType::FastFailover),
    ];
    (kind, vec((prop::bool::weighted(0.6), bucket(group)), 1..4)).prop_map(|(kind, mut buckets)| {
        match kind {
            GroupType::Indirect => buckets.truncate(1),
            // Which of several is nobody's promise.
            GroupType::Select => {
                let mut seen = false;
                for (live, _) in &mut buckets {
                    *live &= !seen;
                    seen |= *live;
                }
            }
            _ => {}
        }
        Group { kind, buckets }
    })
}

fn any_op(table: u8) -> impl Strategy<Value = Op> {
    let last = table + 1 == TABLES;
    let leaf = prop_oneof![
        8 => port().prop_map(Op::Output),
        1 => (port(), 14..80_u32).prop_map(|(port, len)| Op::Cut(port, len)),
        1 => Just(Op::All),
        // The groups' own way to tables ends in the last, which asks none.
        2 => (1..=GROUPS).prop_map(move |group| if last { Op::PopTag } else { Op::Group(group) }),
        2 => Just(if last { Op::SetVid(5) } else { Op::Resubmit(table + 1) }),
        3 => tpid().prop_map(Op::PushTag),
        3 => Just(Op::PopTag),
        2 => Just(Op::PushLabel),
        1 => kind().prop_map(Op::PopLabel),
        1 => Just(Op::CopyTtlOut),
        1 => Just(Op::CopyTtlIn),
        1 => Just(Op::PushBackbone),
        1 => Just(Op::PopBackbone),
        4 => set(),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| vec(inner, 1..5).prop_map(Op::Clone))
}

fn any_test() -> impl Strategy<Value = Test> {
    prop_oneof![
        2 => Just(Test::Kind(0x0800)),
        1 => Just(Test::Kind(0x8847)),
        1 => Just(Test::Kind(0x88e7)),
        2 => tos().prop_map(Test::Tos),
        1 => (0..4_u32).prop_map(Test::Label),
        1 => Just(Test::Tagged),
        1 => (0..3_u32).prop_map(Test::Register),
    ]
}

fn any_rule(table: u8, test: impl Strategy<Value = Test> + 'static) -> impl Strategy<Value = Rule> {
    let last = table + 1 == TABLES;
    (
        test,
        vec(any_op(table), 1..5),
        option::weighted(0.2, port()),
        prop::bool::weighted(0.2),
    )
        .prop_map(move |(test, ops, write, goes_on)| Rule {
            test,
            ops,
            // What a bucket's packet has in its action set is not run.
            write: write.filter(|_| !last),
            goto: (goes_on && !last).then_some(table + 1),
        })
}

fn any_table(table: u8) -> impl Strategy<Value = Vec<Rule>> {
    (vec(any_rule(table, any_test()), 0..3), any_rule(table, Just(Test::Any))).prop_map(|(mut rules, rest)| {
        rules.push(rest);
        rules
    })
}

fn any_bridge() -> impl Strategy<Value = Bridge> {
    let groups = (1..=GROUPS).map(|group| any_group(group).boxed()).collect::<Vec<_>>();
    let tables = (0..TABLES).map(|table| any_table(table).boxed()).collect::<Vec<_>>();
    (tables, groups).prop_map(|(tables, groups)| Bridge { tables, groups })
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let tag = (tpid(), 5..8_u16, 0..3_u16).prop_map(|(tpid, vid, pcp)| VlanTag {
        tpid,
        tci: vid | pcp << 13,
    });
    let tag = tag.boxed();
    let label = (1..4_u32, 1..200_u8).prop_map(|(label, ttl)| label << 12 | 0x600 | u32::from(ttl));
    (
        prop_oneof![4 => vec(tag.clone(), 0), 3 => vec(tag.clone(), 1), 1 => vec(tag, 2)],
        prop_oneof![3 => vec(label.clone(), 0..1), 3 => vec(label.clone(), 1), 1 => vec(label, 2)],
        tos(),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.15),
    )
        .prop_map(|(tags, labels, tos, is_other, backbone)| Packet::new(tags, &labels, tos, is_other, backbone))
}

/// Bridges, and packets into ports of the first.
pub(super) fn cases() -> impl Strategy<Value = (Vec<Bridge>, Vec<(u32, Packet)>)> {
    (vec(any_bridge(), BRIDGES), vec((1..=DEVICES[0], any_packet()), 1..6))
}
