//! Packets, and what actions make of them.

use crate::model::Topology;
use dp::{Action, SetField};
use flow::{Field, Key};
use std::net::Ipv4Addr;
use testkit::{Packet, Rng, mac};
use wire::{MacAddr, VlanTag};

/// A packet on its way out: its tags, the outermost first, and the rest of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    tags: Vec<VlanTag>,
    key: Key,
}

impl Copy {
    pub(crate) fn new(key: &Key) -> Copy {
        let tags = [key.tag(0), key.tag(1)].into_iter().flatten().collect();
        let mut key = *key;
        key.set_tag(0, None);
        key.set_tag(1, None);
        Copy { tags, key }
    }

    fn set(&mut self, set: &SetField) {
        let old = self.key.get(set.field());
        self.key.set(set.field(), old & !set.mask() | set.value());
    }
}

/// What comes out of which port, sorted.
pub(crate) fn run(actions: &[Action], packet: &Copy) -> Vec<(u32, String)> {
    let mut packet = packet.clone();
    let mut out = Vec::new();
    for action in actions {
        match action {
            Action::Output(port) => out.push((port.0, show(&packet))),
            Action::PushVlan(tag) => packet.tags.insert(0, *tag),
            Action::PopVlan => drop(packet.tags.remove(0)),
            Action::SetField(set) => packet.set(set),
            Action::Controller { .. } => {}
            other => panic!("no rule asks for {other}"),
        }
    }
    out.sort();
    out
}

fn show(packet: &Copy) -> String {
    format!("{:?} {}", packet.tags, packet.key.display(&flow::Mask::full()))
}

/// The same of what Open vSwitch prints.
pub(crate) fn run_text(text: &str, packet: &Copy) -> Vec<(u32, String)> {
    let mut actions = Vec::new();
    for action in split(text.trim()).filter(|action| *action != "drop") {
        let inner = |name: &str| action.strip_prefix(name).and_then(|rest| rest.strip_suffix(')'));
        if let Some(tag) = inner("push_vlan(") {
            let mut made = VlanTag { tpid: 0x8100, tci: 0 };
            for part in split(tag) {
                match part.split_once('=').unwrap() {
                    ("tpid", tpid) => made.tpid = number(tpid) as u16,
                    ("vid", vid) => made.tci |= number(vid) as u16,
                    ("pcp", pcp) => made.tci |= (number(pcp) as u16) << 13,
                    other => panic!("{other:?}"),
                }
            }
            actions.push(Action::PushVlan(made));
        } else if let Some(set) = inner("set(") {
            let (header, fields) = set.strip_suffix(')').unwrap().split_once('(').unwrap();
            for part in split(fields) {
                let (name, value) = part.split_once('=').unwrap();
                let field = match (header, name) {
                    ("eth", "src") => Field::EthSrc,
                    ("eth", "dst") => Field::EthDst,
                    ("ipv4", "src") => Field::Ipv4Src,
                    ("ipv4", "dst") => Field::Ipv4Dst,
                    ("ipv4", "tos") => Field::IpTos,
                    ("ipv4", "ttl") => Field::IpTtl,
                    ("tcp" | "udp", "src") => Field::TpSrc,
                    ("tcp" | "udp", "dst") => Field::TpDst,
                    other => panic!("{other:?} in {text}"),
                };
                let (value, mask) = match value.split_once('/') {
                    Some((value, mask)) => (number(value), number(mask)),
                    None => (number(value), u128::MAX),
                };
                actions.push(Action::SetField(SetField::new(field, value, mask).unwrap()));
            }
        } else if action == "pop_vlan" {
            actions.push(Action::PopVlan);
        } else if !action.starts_with("userspace(") {
            let port = action.parse().unwrap_or_else(|_| panic!("{action} in {text}"));
            actions.push(Action::Output(flow::PortNo(port)));
        }
    }
    run(&actions, packet)
}

/// The parts between commas that are in no brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
    .filter(|part| !part.is_empty())
}

fn number(text: &str) -> u128 {
    if let Some(hex) = text.strip_prefix("0x") {
        u128::from_str_radix(hex, 16).unwrap()
    } else if let Ok(mac) = text.parse::<MacAddr>() {
        mac.to_u64().into()
    } else if let Ok(ip) = text.parse::<Ipv4Addr>() {
        ip.to_bits().into()
    } else {
        text.parse().unwrap()
    }
}

pub(crate) fn random(rng: &mut Rng, topology: &Topology) -> (u32, Vec<u8>) {
    let port = *rng.pick(&topology.inputs());
    let mut packet = Packet::new(mac(1 + rng.below(4) as u32), mac(1 + rng.below(5) as u32));
    if rng.chance(40) {
        // What is under a priority tag, Open vSwitch takes for the packet's VLAN; that is the other oracle's matter.
        let outer = *rng.pick(&[0, 10, 20]);
        packet = packet.tag(0x8100, outer | (rng.below(3) as u16) << 13);
        if outer != 0 && rng.chance(20) {
            packet = packet.tag(0x8100, 30);
        }
    }
    let ip = |n: usize| Ipv4Addr::new(10, 0, (n / 4) as u8, (n % 4) as u8);
    let (sport, dport) = (80 + rng.below(3) as u16, 80 + rng.below(3) as u16);
    if rng.chance(15) {
        packet = packet.payload(0x88b5, b"data");
        return (port, packet.bytes());
    }
    packet = packet.ipv4(ip(rng.below(8)), ip(rng.below(8)));
    packet = match rng.below(3) {
        0 => packet.tcp(sport, dport, 2, b"data"),
        1 => packet.udp(sport, dport, b"data"),
        _ => packet.echo(1, 2, b"data"),
    };
    (port, packet.bytes())
}
