//! Programs, done on the bytes of packets: one action after the other, each copy a copy.

use super::program::{Bridge, DEVICES, Op, PATCH_IN, PATCH_OUT, Rule, Test};
use flow::{Field, Key, PortNo};
use openflow::model::GroupType;
use std::net::Ipv4Addr;
use wire::{EtherType, VlanTag};

/// An Ethernet frame: its addresses, its tags, and its type with what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    addresses: [u8; 12],
    tags: Vec<VlanTag>,
    rest: Vec<u8>,
}

/// A packet in a bridge.
#[derive(Clone)]
struct Way {
    packet: Packet,
    bridge: usize,
    in_port: u32,
    register: u32,
    limit: Option<usize>,
    /// Something took off what may hide the rest of the packet.
    bared: bool,
    /// An IPv4 packet has got another type with a label that was taken off.
    lies: bool,
    /// The port to which the action set sends it.
    set: Option<u32>,
}

/// What leaves, by ports of the datapath.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) sent: Vec<(u32, Vec<u8>)>,
    /// Something took off what may hide the rest of the packet.
    pub(super) bared: bool,
    /// A packet had more tags than a key shows.
    pub(super) deep: bool,
    /// Something happened that the switch refuses or does otherwise by intent.
    pub(super) odd: Option<&'static str>,
}

impl Packet {
    pub(super) fn new(tags: Vec<VlanTag>, labels: &[u32], tos: u8, is_other: bool, backbone: bool) -> Packet {
        let packet = testkit::Packet::new(testkit::mac(1), testkit::mac(2));
        let mut inner = match is_other {
            true => packet.payload(0x88b5, &[7; 90]).bytes(),
            false => {
                let packet = packet.ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
                packet.udp(5, 6, &[7; 90]).bytes()
            }
        };
        if !is_other {
            inner[15] = tos;
            inner[22] = 33;
            put_sum(&mut inner[14..34]);
        }
        if backbone {
            let header = [&testkit::mac(2)[..], &testkit::mac(1), &[0x88, 0xe7, 0x20, 0, 0, 9]].concat();
            inner.splice(..0, header);
        }
        let mut stack = Vec::new();
        for (at, label) in labels.iter().enumerate() {
            let bottom = u32::from(at + 1 == labels.len()) << 8;
            stack.extend((label | bottom).to_be_bytes());
        }
        if !labels.is_empty() {
            inner.splice(12..14, [&[0x88, 0x47][..], &stack].concat());
        }
        let mut packet = Packet::read(&inner);
        packet.tags = tags;
        packet
    }

    fn read(bytes: &[u8]) -> Packet {
        let mut packet = Packet {
            addresses: *bytes.first_chunk().unwrap(),
            tags: Vec::new(),
            rest: bytes[12..].to_vec(),
        };
        packet.take_tags();
        packet
    }

    /// Makes tags of what are tags.
    fn take_tags(&mut self) {
        while EtherType(self.kind()).is_vlan() && self.rest.len() >= 6 {
            let tag: Vec<u8> = self.rest.drain(..4).collect();
            self.tags.push(VlanTag::from_bytes(*tag.first_chunk().unwrap()));
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let tags = self.tags.iter().flat_map(|tag| tag.to_bytes());
        self.addresses
            .into_iter()
            .chain(tags)
            .chain(self.rest.iter().copied())
            .collect()
    }

    fn kind(&self) -> u16 {
        u16::from_be_bytes([self.rest[0], self.rest[1]])
    }

    fn set_kind(&mut self, kind: u16) {
        self.rest[..2].copy_from_slice(&kind.to_be_bytes());
    }

    fn is_labelled(&self) -> bool {
        matches!(self.kind(), 0x8847 | 0x8848)
    }

    /// What is behind the tags.
    fn key(&self) -> Key {
        let untagged = [&self.addresses[..], &self.rest].concat();
        flow::extract(&untagged, &PortNo(1).into()).unwrap()
    }

    fn label(&self) -> u32 {
        u32::from_be_bytes(*self.rest[2..].first_chunk().unwrap())
    }

    fn set_label(&mut self, lse: u32) {
        self.rest[2..6].copy_from_slice(&lse.to_be_bytes());
    }

    /// How many labels there are, up to three.
    fn depth(&self) -> usize {
        if !self.is_labelled() {
            return 0;
        }
        let bottom = (0..3).position(|at| self.rest.get(4 + 4 * at).is_none_or(|byte| byte & 1 != 0));
        bottom.map_or(3, |at| at + 1)
    }

    /// Whether it has the type of IPv4 and no header of it that can be read.
    fn is_no_ip(&self) -> bool {
        self.kind() == 0x0800 && self.ip().is_none()
    }

    /// Where an IPv4 header is.
    fn ip(&self) -> Option<std::ops::Range<usize>> {
        (self.kind() == 0x0800 && self.key().get(Field::Ipv4Src) != 0).then_some(2..22)
    }

    /// Where the time to live of the header behind the outermost label is, and that header, if it
    /// is of IPv4.
    fn next_ttl(&self) -> Option<(usize, Option<std::ops::Range<usize>>)> {
        if !self.is_labelled() {
            None
        } else if self.label() & 0x100 == 0 {
            Some((9, None))
        } else {
            let is_ip = self.rest[6] == 0x45 && testkit::checksum(&self.rest[6..26]) == 0;
            is_ip.then_some((14, Some(6..26)))
        }
    }
}

fn put_sum(header: &mut [u8]) {
    header[10..12].copy_from_slice(&[0, 0]);
    let sum = testkit::checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// What becomes of a packet that comes into a port of the first bridge.
pub(super) fn receive(bridges: &[Bridge], port: u32, packet: &Packet) -> Outcome {
    let way = Way {
        packet: packet.clone(),
        bridge: 0,
        in_port: port,
        register: 0,
        limit: None,
        bared: false,
        lies: false,
        set: None,
    };
    let mut outcome = Outcome::default();
    way.enter(bridges, &mut outcome);
    outcome
}

impl Way {
    /// Comes into its bridge, and to an end there.
    fn enter(mut self, bridges: &[Bridge], outcome: &mut Outcome) {
        self.table(0, bridges, outcome);
        self.settle(bridges, outcome);
    }

    /// The action set.
    fn settle(mut self, bridges: &[Bridge], outcome: &mut Outcome) {
        if let Some(port) = self.set.take() {
            self.output(port, bridges, outcome);
        }
    }

    fn table(&mut self, table: u8, bridges: &[Bridge], outcome: &mut Outcome) {
        let rules = &bridges[self.bridge].tables[usize::from(table)];
        let Some(rule) = rules.iter().find(|rule| self.passes(rule)) else {
            return;
        };
        self.run(&rule.ops, bridges, outcome);
        self.set = rule.write.or(self.set);
        if let Some(next) = rule.goto {
            self.table(next, bridges, outcome);
        }
    }

    fn passes(&self, rule: &Rule) -> bool {
        let packet = &self.packet;
        match rule.test {
            Test::Any => true,
            Test::Kind(kind) => packet.kind() == kind,
            Test::Tos(tos) => packet.kind() == 0x0800 && packet.key().get(Field::IpTos) & 0xfc == tos.into(),
            Test::Label(label) => packet.kind() == 0x8847 && packet.label() >> 12 == label,
            Test::Tagged => !packet.tags.is_empty(),
            Test::Register(value) => self.register == value,
        }
    }

    fn output(&self, port: u32, bridges: &[Bridge], outcome: &mut Outcome) {
        let devices = DEVICES[self.bridge];
        if port == self.in_port {
            return;
        }
        if port == PATCH_OUT && self.bridge + 1 < bridges.len() {
            let next = Way {
                bridge: self.bridge + 1,
                in_port: PATCH_IN,
                register: 0,
                set: None,
                ..self.clone()
            };
            next.enter(bridges, outcome);
        } else if port <= devices {
            let mut bytes = self.packet.bytes();
            bytes.truncate(self.limit.map_or(usize::MAX, |limit| limit.max(14)));
            let before: u32 = DEVICES[..self.bridge].iter().sum();
            outcome.sent.push((before + port, bytes));
        }
    }

    fn run(&mut self, ops: &[Op], bridges: &[Bridge], outcome: &mut Outcome) {
        for op in ops {
            let is_bared = match op {
                Op::PopLabel(_) | Op::CopyTtlOut => self.packet.is_labelled(),
                Op::PopBackbone => self.packet.kind() == 0x88e7,
                _ => false,
            };
            match op {
                Op::Output(port) => self.output(*port, bridges, outcome),
                Op::Cut(port, len) => {
                    let mut cut = self.clone();
                    let len = *len as usize;
                    cut.limit = Some(self.limit.map_or(len, |limit| limit.min(len)));
                    cut.output(*port, bridges, outcome);
                }
                Op::All => {
                    let ports = (1..=DEVICES[self.bridge]).chain([PATCH_OUT]);
                    ports.for_each(|port| self.output(port, bridges, outcome));
                }
                Op::Clone(ops) => {
                    let mut copy = self.clone();
                    copy.run(ops, bridges, outcome);
                    copy.settle(bridges, outcome);
                }
                Op::Group(group) => {
                    let group = &bridges[self.bridge].groups[*group as usize - 1];
                    if group.kind == GroupType::Select && self.packet.tags.len() > 2 {
                        // The datapath chooses, and reads the packet again for the bucket: with
                        // more than two tags it finds no header of IP.
                        outcome.odd = Some("tags");
                    }
                    for ops in group.acting() {
                        let mut copy = self.clone();
                        copy.set = None;
                        copy.run(ops, bridges, outcome);
                    }
                }
                Op::Resubmit(table) => self.table(*table, bridges, outcome),
                Op::SetRegister(value) => self.register = *value,
                op => change(&mut self.packet, op, outcome),
            }
            let deep = self.packet.tags.len() > 2;
            self.bared |= is_bared;
            outcome.deep |= deep;
            outcome.bared |= self.bared;
            let kind = self.packet.kind();
            self.lies |= matches!(op, Op::PopLabel(_)) && kind != 0x0800 && self.packet.rest[2] == 0x45;
            if self.lies && matches!(op, Op::CopyTtlOut | Op::CopyTtlIn) {
                outcome.odd = Some("lie");
            } else if self.bared && deep {
                // Of more than two, tags that were put on are known until the packet is read again.
                outcome.odd = Some("tags");
            } else if self.packet.rest.len() < 40 || !matches!(kind, 0x0800 | 0x8847 | 0x88b5 | 0x88e7) {
                outcome.odd = Some("type");
            } else if outcome.sent.len() > 300 {
                outcome.odd = Some("size");
            }
            if outcome.odd.is_some() {
                return;
            }
        }
    }
}

fn change(packet: &mut Packet, op: &Op, outcome: &mut Outcome) {
    let is_labelled = packet.is_labelled();
    match op {
        Op::PushTag(tpid) => packet.tags.insert(0, VlanTag { tpid: *tpid, tci: 0 }),
        Op::PopTag if !packet.tags.is_empty() => drop(packet.tags.remove(0)),
        Op::SetVid(vid) => match packet.tags.first_mut() {
            Some(tag) => tag.tci = tag.tci & !0xfff | vid,
            None => packet.tags.push(VlanTag {
                tpid: 0x8100,
                tci: *vid,
            }),
        },
        Op::PushLabel => {
            if packet.depth() == 3 || packet.is_no_ip() {
                outcome.odd = Some("label");
            }
            let key = packet.key();
            let lse = match (is_labelled, packet.ip()) {
                (true, _) => packet.label() & !0x100,
                (false, Some(_)) => (key.get(Field::IpTos) as u32 >> 2 & 7) << 9 | 0x100 | key.get(Field::IpTtl) as u32,
                (false, None) => 0x140,
            };
            packet
                .rest
                .splice(..2, [&[0x88, 0x47][..], &lse.to_be_bytes()].concat());
        }
        Op::PopLabel(kind) if is_labelled => {
            // To another type than that of labels, all labels go, if there are at most three.
            let last = packet.rest[2..]
                .chunks(4)
                .take(3)
                .position(|entry| entry.get(2).is_some_and(|byte| byte & 1 != 0));
            let labels = match last {
                Some(last) if !matches!(kind, 0x8847 | 0x8848) => last + 1,
                _ => 1,
            };
            packet.rest.drain(2..2 + 4 * labels);
            packet.set_kind(*kind);
            packet.take_tags();
        }
        Op::SetLabel(label) if is_labelled => packet.set_label(packet.label() & 0xfff | label << 12),
        Op::SetLabelTtl(ttl) if is_labelled => packet.set_label(packet.label() & !0xff | u32::from(*ttl)),
        Op::CopyTtlOut => {
            if let Some((at, _)) = packet.next_ttl() {
                packet.rest[5] = packet.rest[at];
            }
        }
        Op::CopyTtlIn => {
            if let Some((at, ip)) = packet.next_ttl() {
                packet.rest[at] = packet.rest[5];
                ip.into_iter().for_each(|ip| put_sum(&mut packet.rest[ip]));
            }
        }
        Op::PushBackbone => {
            let pcp = packet.tags.first().map_or(0, |tag| u32::from(tag.pcp()));
            let isid = packet.key().get(Field::PbbIsid) as u32;
            let header = [&[0x88, 0xe7][..], &(pcp << 29 | isid).to_be_bytes()].concat();
            packet.rest = [header, packet.bytes()].concat();
            packet.tags.clear();
        }
        Op::PopBackbone if packet.kind() == 0x88e7 => {
            let inner = Packet::read(&packet.rest[6..]);
            packet.tags.extend(inner.tags);
            (packet.addresses, packet.rest) = (inner.addresses, inner.rest);
        }
        Op::SetSrc(n) => packet.addresses[6..].copy_from_slice(&testkit::mac((*n).into())),
        Op::SetTos(_) if packet.is_no_ip() => outcome.odd = Some("header"),
        Op::SetTos(tos) => {
            if let Some(ip) = packet.ip() {
                packet.rest[3] = packet.rest[3] & 3 | tos;
                put_sum(&mut packet.rest[ip]);
            }
        }
        _ => {}
    }
}
