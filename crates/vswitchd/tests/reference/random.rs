//! Random rules, packets, and what happens between them.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;
use testkit::{Packet, mac};
use wire::MacAddr;

/// Ports 1 to this.
pub(super) const PORTS: u32 = 4;

/// Tables 0 to one less than this.
const TABLES: u8 = 4;

/// A condition on packets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    InPort(u32),
    Dst([u8; 6]),
    Src([u8; 6]),
    /// The last byte of the source address, with a mask.
    SrcEnd(u8, u8),
    Vid(Option<u16>),
    Kind(u16),
    Label(u32),
    Protocol(u8),
    From(u32, u32),
    To(u32, u32),
    SrcPort(u16, u16),
    DstPort(u16, u16),
    Register(u32, u32),
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Output(u32),
    InPort,
    All,
    Normal,
    Controller,
    Resubmit(u8),
    Clone(Vec<Action>),
    Load(u32),
    SetDst([u8; 6]),
    SetSrc([u8; 6]),
    SetVid(u16),
    Strip,
    PopLabel,
    SetFrom(u32),
    SetTo(u32),
    Hop,
    SetSrcPort(u16),
    SetDstPort(u16),
}

/// What a rule's packets are, as far as its actions ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Any,
    Labelled,
    Ip,
    Transport,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) table: u8,
    pub(super) priority: u16,
    pub(super) tests: Vec<Test>,
    class: Class,
    pub(super) actions: Vec<Action>,
    pub(super) goto: Option<u8>,
}

/// A packet.
#[derive(Clone, Debug)]
pub(super) struct Shot {
    src: u32,
    dst: u32,
    tci: Option<u16>,
    label: Option<u32>,
    body: Body,
    /// Cut off behind so many bytes.
    cut: Option<usize>,
}

#[derive(Clone, Debug)]
enum Body {
    Other,
    Ip {
        from: u32,
        to: u32,
        protocol: u8,
        ports: (u16, u16),
        /// Not the first fragment.
        later: bool,
        /// A UDP packet without a checksum.
        unsummed: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Receive(u32, Vec<Shot>),
    /// A rule, in place of one of its table and priority.
    Add(Rule),
    /// The actions of another rule for one that is there.
    Modify(usize, Rule),
    Delete(usize),
    /// All stations are forgotten.
    Forget,
    Wait(u64),
    /// The counters of all rules are compared.
    Count,
    /// The bridge has this mirror, and no other.
    Mirror(Option<Mirror>),
}

/// A mirror of the bridge.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub(super) src: BTreeSet<u32>,
    pub(super) dst: BTreeSet<u32>,
    /// The VLAN that it selects, 0 without a tag.
    pub(super) vlan: Option<u16>,
    /// The Ethernet type that it selects.
    pub(super) kind: Option<u16>,
    pub(super) output: u32,
    /// The length of copies.
    pub(super) snaplen: Option<usize>,
}

impl Shot {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut packet = Packet::new(mac(self.src), mac(self.dst));
        if let Some(tci) = self.tci {
            packet = packet.tag(0x8100, tci);
        }
        let inner = self.body.bytes();
        let (kind, payload) = match self.label {
            Some(label) => (0x8847, [&(label << 12 | 0x140).to_be_bytes(), &inner[14..]].concat()),
            None => (u16::from_be_bytes([inner[12], inner[13]]), inner[14..].to_vec()),
        };
        let mut bytes = packet.payload(kind, &payload).padded().bytes();
        if let Some(cut) = self.cut {
            bytes.truncate(cut);
        }
        bytes
    }
}

impl Body {
    /// With an Ethernet header.
    fn bytes(&self) -> Vec<u8> {
        let packet = Packet::new([0; 6], [0; 6]);
        let Body::Ip {
            from,
            to,
            protocol,
            ports,
            later,
            unsummed,
        } = *self
        else {
            return packet.payload(0x88b5, b"data").bytes();
        };
        let packet = packet.ipv4(Ipv4Addr::from_bits(from), Ipv4Addr::from_bits(to));
        let packet = match protocol {
            6 => packet.tcp(ports.0, ports.1, 2, b"data"),
            17 => packet.udp(ports.0, ports.1, b"odd"),
            _ => packet.echo(1, 2, b"data"),
        };
        let mut bytes = packet.bytes();
        if unsummed && protocol == 17 {
            bytes[40..42].copy_from_slice(&[0, 0]);
        }
        if later {
            bytes[20..22].copy_from_slice(&[0, 10]);
            bytes[24..26].copy_from_slice(&[0, 0]);
            let sum = testkit::checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }
}

impl Rule {
    /// Its table, priority and match, as `ovs-ofctl` takes them.
    pub(super) fn key_text(&self) -> String {
        let mut text = format!("table={},priority={}", self.table, self.priority);
        for test in &self.tests {
            let address =
                |value: u32, mask: u32| format!("{}/{}", Ipv4Addr::from_bits(value & mask), mask.count_ones());
            let _ = match *test {
                Test::InPort(port) => write!(text, ",in_port={port}"),
                Test::Dst(mac) => write!(text, ",dl_dst={}", MacAddr(mac)),
                Test::Src(mac) => write!(text, ",dl_src={}", MacAddr(mac)),
                Test::SrcEnd(value, mask) => {
                    write!(
                        text,
                        ",dl_src=00:00:00:00:00:{:02x}/00:00:00:00:00:{mask:02x}",
                        value & mask
                    )
                }
                Test::Vid(Some(vid)) => write!(text, ",dl_vlan={vid}"),
                Test::Vid(None) => write!(text, ",vlan_tci=0x0000"),
                Test::Kind(kind) => write!(text, ",dl_type=0x{kind:04x}"),
                Test::Label(label) => write!(text, ",mpls_label={label}"),
                Test::Protocol(protocol) => write!(text, ",nw_proto={protocol}"),
                Test::From(value, mask) => write!(text, ",nw_src={}", address(value, mask)),
                Test::To(value, mask) => write!(text, ",nw_dst={}", address(value, mask)),
                Test::SrcPort(value, mask) => write!(text, ",tp_src={}/0x{mask:x}", value & mask),
                Test::DstPort(value, mask) => write!(text, ",tp_dst={}/0x{mask:x}", value & mask),
                Test::Register(value, mask) => write!(text, ",reg0=0x{:x}/0x{mask:x}", value & mask),
            };
        }
        text
    }

    /// All of it.
    pub(super) fn text(&self) -> String {
        let mut words = words(&self.actions);
        if let Some(table) = self.goto {
            words.push(format!("goto_table:{table}"));
        }
        if words.is_empty() {
            words.push("drop".to_owned());
        }
        format!("{},actions={}", self.key_text(), words.join(","))
    }

    /// Takes what another rule does, as far as it may.
    pub(super) fn take_actions(&mut self, from: &Rule) {
        self.actions.clone_from(&from.actions);
        self.goto = from.goto;
        self.tidy();
    }

    /// Leaves out what its packets or its table do not let it do.
    fn tidy(&mut self) {
        let (class, table) = (self.class, self.table);
        tidy(&mut self.actions, class, table);
        self.goto = self.goto.filter(|goto| *goto > table);
    }
}

fn tidy(actions: &mut Vec<Action>, class: Class, table: u8) {
    let mut class = class;
    actions.retain_mut(|action| match action {
        Action::Resubmit(to) => *to > table,
        Action::Clone(inner) => {
            // Output of a recirculated copy comes after the rest of the packet's output: also
            // right, but in another order.
            inner.retain(|action| !matches!(action, Action::PopLabel));
            tidy(inner, class, table);
            !inner.is_empty()
        }
        Action::PopLabel => {
            let labelled = class == Class::Labelled;
            // What is behind it is for the next table.
            class = Class::Any;
            labelled
        }
        Action::SetFrom(_) | Action::SetTo(_) | Action::Hop => matches!(class, Class::Ip | Class::Transport),
        Action::SetSrcPort(_) | Action::SetDstPort(_) => class == Class::Transport,
        _ => true,
    });
}

fn words(actions: &[Action]) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Output(port) => format!("output:{port}"),
        Action::InPort => "in_port".to_owned(),
        Action::All => "all".to_owned(),
        Action::Normal => "normal".to_owned(),
        Action::Controller => "controller".to_owned(),
        Action::Resubmit(table) => format!("resubmit(,{table})"),
        Action::Clone(actions) => format!("clone({})", words(actions).join(",")),
        Action::Load(value) => format!("load:{value}->NXM_NX_REG0[]"),
        Action::SetDst(mac) => format!("mod_dl_dst:{}", MacAddr(*mac)),
        Action::SetSrc(mac) => format!("mod_dl_src:{}", MacAddr(*mac)),
        Action::SetVid(vid) => format!("mod_vlan_vid:{vid}"),
        Action::Strip => "strip_vlan".to_owned(),
        Action::PopLabel => "pop_mpls:0x0800".to_owned(),
        Action::SetFrom(address) => format!("mod_nw_src:{}", Ipv4Addr::from_bits(*address)),
        Action::SetTo(address) => format!("mod_nw_dst:{}", Ipv4Addr::from_bits(*address)),
        Action::Hop => "dec_ttl".to_owned(),
        Action::SetSrcPort(port) => format!("mod_tp_src:{port}"),
        Action::SetDstPort(port) => format!("mod_tp_dst:{port}"),
    };
    actions.iter().map(word).collect()
}

fn station() -> impl Strategy<Value = u32> {
    1..6_u32
}

fn address() -> impl Strategy<Value = u32> {
    (0..2_u32, 0..4_u32).prop_map(|(net, host)| 0x0a00_0000 | net << 8 | host)
}

fn prefix() -> impl Strategy<Value = u32> {
    prop_oneof![Just(8), Just(16), Just(24), Just(30), Just(31), Just(32)].prop_map(|len| u32::MAX << (32 - len))
}

fn port() -> impl Strategy<Value = u16> {
    80..84_u16
}

fn port_mask() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(0xffff), 1 => Just(0xfffe), 1 => Just(1)]
}

fn vid() -> impl Strategy<Value = u16> {
    prop_oneof![Just(10), Just(20)]
}

fn any_action() -> impl Strategy<Value = Action> {
    let leaf = prop_oneof![
        4 => (1..=PORTS).prop_map(Action::Output),
        1 => Just(Action::InPort),
        1 => Just(Action::All),
        2 => Just(Action::Normal),
        1 => Just(Action::Controller),
        4 => (1..TABLES).prop_map(Action::Resubmit),
        2 => (0..4_u32).prop_map(Action::Load),
        1 => station().prop_map(|n| Action::SetDst(mac(n))),
        1 => station().prop_map(|n| Action::SetSrc(mac(n))),
        1 => vid().prop_map(Action::SetVid),
        1 => Just(Action::Strip),
        1 => Just(Action::PopLabel),
        1 => address().prop_map(Action::SetFrom),
        1 => address().prop_map(Action::SetTo),
        1 => Just(Action::Hop),
        1 => port().prop_map(Action::SetSrcPort),
        1 => port().prop_map(Action::SetDstPort),
    ];
    leaf.prop_recursive(1, 4, 3, |inner| vec(inner, 1..4).prop_map(Action::Clone))
}

fn any_class() -> impl Strategy<Value = (Class, Vec<Test>)> {
    let addresses = (option::of((address(), prefix())), option::of((address(), prefix())));
    let ip = addresses.prop_map(|(from, to)| {
        let from = from.map(|(value, mask)| Test::From(value, mask));
        let to = to.map(|(value, mask)| Test::To(value, mask));
        let tests: Vec<_> = [Some(Test::Kind(0x0800)), from, to].into_iter().flatten().collect();
        tests
    });
    let ip = ip.boxed();
    let ports = (
        prop_oneof![Just(6_u8), Just(17)],
        option::of((port(), port_mask())),
        option::of((port(), port_mask())),
    );
    let transport = (ip.clone(), ports).prop_map(|(mut tests, (protocol, src, dst))| {
        tests.push(Test::Protocol(protocol));
        tests.extend(src.map(|(value, mask)| Test::SrcPort(value, mask)));
        tests.extend(dst.map(|(value, mask)| Test::DstPort(value, mask)));
        tests
    });
    let labelled = option::of(4..6_u32).prop_map(|label| {
        let label = label.map(Test::Label);
        [Some(Test::Kind(0x8847)), label]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    });
    prop_oneof![
        4 => Just((Class::Any, Vec::new())),
        3 => ip.prop_map(|tests| (Class::Ip, tests)),
        4 => transport.prop_map(|tests| (Class::Transport, tests)),
        1 => labelled.prop_map(|tests| (Class::Labelled, tests)),
    ]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let tests = (
        option::weighted(0.2, (1..=PORTS).prop_map(Test::InPort)),
        option::weighted(0.2, station().prop_map(|n| Test::Dst(mac(n)))),
        option::weighted(
            0.25,
            prop_oneof![
                station().prop_map(|n| Test::Src(mac(n))),
                (any::<u8>(), prop_oneof![Just(1_u8), Just(2), Just(6)]).prop_map(|(v, mask)| Test::SrcEnd(v, mask)),
            ],
        ),
        option::weighted(0.2, option::of(vid()).prop_map(Test::Vid)),
        option::weighted(
            0.15,
            (0..4_u32, prop_oneof![Just(u32::MAX), Just(1)]).prop_map(|(value, mask)| Test::Register(value, mask)),
        ),
    );
    let head = (prop_oneof![3 => Just(0), 2 => 1..TABLES], 1..40_u16);
    let tail = (vec(any_action(), 0..5), option::weighted(0.15, 1..TABLES));
    (head, tests, any_class(), tail).prop_map(
        |((table, priority), (port, dst, src, vid, register), (class, more), (actions, goto))| {
            let mut rule = Rule {
                table,
                priority,
                tests: [port, dst, src, vid, register]
                    .into_iter()
                    .flatten()
                    .chain(more)
                    .collect(),
                class,
                actions,
                goto,
            };
            rule.tidy();
            rule
        },
    )
}

fn any_shot() -> impl Strategy<Value = Shot> {
    let ip = (
        address(),
        address(),
        prop_oneof![3 => Just(6_u8), 3 => Just(17), 1 => Just(1)],
        (port(), port()),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.1),
    );
    let ip = ip.prop_map(|(from, to, protocol, ports, later, unsummed)| Body::Ip {
        from,
        to,
        protocol,
        ports,
        later,
        unsummed,
    });
    let tci = (vid(), 0..3_u16).prop_map(|(vid, priority)| vid | priority << 13);
    (
        station(),
        station(),
        option::weighted(0.3, tci),
        option::weighted(0.1, 4..7_u32),
        prop_oneof![1 => Just(Body::Other), 9 => ip],
        option::weighted(0.05, 22..60_usize),
    )
        .prop_map(|(src, dst, tci, label, body, cut)| Shot {
            src,
            dst,
            tci,
            label,
            body,
            cut,
        })
}

/// Packets; many are alike.
fn any_packets() -> impl Strategy<Value = Vec<Shot>> {
    (vec(any_shot(), 1..12), vec(any::<prop::sample::Index>(), 1..90))
        .prop_map(|(shots, order)| order.iter().map(|at| at.get(&shots).clone()).collect())
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (1..=PORTS, any_packets()).prop_map(|(port, shots)| Step::Receive(port, shots)),
        2 => any_rule().prop_map(Step::Add),
        2 => (any::<usize>(), any_rule()).prop_map(|(at, rule)| Step::Modify(at, rule)),
        2 => any::<usize>().prop_map(Step::Delete),
        1 => Just(Step::Forget),
        2 => (0..12_u64).prop_map(Step::Wait),
        1 => Just(Step::Count),
        2 => option::weighted(0.8, any_mirror()).prop_map(Step::Mirror),
    ]
}

fn any_mirror() -> impl Strategy<Value = Mirror> {
    let ports = || btree_set(1..=PORTS, 0..=PORTS as usize);
    let (vlan, snaplen) = (option::weighted(0.3, 0..3_u16), option::weighted(0.3, 14..100_usize));
    let kind = option::weighted(0.3, prop_oneof![Just(0x0800), Just(0x0806), Just(0x8847), Just(0x88b5)]);
    let ports = (ports(), ports(), 1..=PORTS);
    (ports, vlan, kind, snaplen).prop_map(|((src, dst, output), vlan, kind, snaplen)| Mirror {
        src,
        dst,
        vlan,
        kind,
        output,
        snaplen,
    })
}

/// Rules, what happens, and how many megaflows there may be.
pub(super) fn cases() -> impl Strategy<Value = (Vec<Rule>, Vec<Step>, usize)> {
    let limit = prop_oneof![1 => Just(3_usize), 1 => Just(40), 3 => Just(100_000)];
    (vec(any_rule(), 4..40), vec(any_step(), 4..30), limit)
}
