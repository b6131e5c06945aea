//! A datapath and its tables, slow and plain.

use super::random::{Action, Mirror, PORTS, Rule, Test};
use std::collections::{BTreeMap, BTreeSet};

/// Where a bridge believes a station to be, by VLAN (0 without a tag) and address.
type Stations = BTreeMap<(u16, [u8; 6]), u32>;

/// Packets and bytes of a rule, by table and priority.
type Counter<'a> = (&'a (u8, u16), &'a (u64, u64));

#[derive(Default)]
pub(super) struct Plain {
    rules: Vec<Rule>,
    pub(super) stations: Stations,
    /// Packets and bytes by table and priority.
    counters: BTreeMap<(u8, u16), (u64, u64)>,
    /// Rules that counted packets without the label that they came with: with it or without it is
    /// both right.
    vague: BTreeSet<(u8, u16)>,
    /// Packets and bytes received and sent.
    ports: BTreeMap<u32, [u64; 4]>,
    /// Packets that went nowhere.
    pub(super) dropped: u64,
    /// How often a label was taken off: what is behind it may go its way by itself, and nowhere.
    pub(super) bared: u64,
    /// What went to controllers.
    pub(super) copies: Vec<Vec<u8>>,
    mirror: Option<Mirror>,
    /// The packet has not met a rule.
    new: bool,
}

/// A packet on its way.
#[derive(Clone)]
struct Packet {
    bytes: Vec<u8>,
    in_port: u32,
    register: u32,
    /// Its length when it came.
    counted: usize,
    /// It has lost a label.
    shorter: bool,
    /// It has lost one by the last action.
    bared: bool,
}

/// What is in a packet.
struct Seen {
    vid: Option<u16>,
    kind: u16,
    label: Option<u32>,
    ip: Option<Ip>,
}

struct Ip {
    at: usize,
    protocol: u8,
    src: u32,
    dst: u32,
    /// Where ports are, where they are.
    ports: Option<usize>,
    end: usize,
}

/// The packets that leave, and whether a controller gets one.
#[derive(Default)]
struct Outcome {
    sent: Vec<(u32, Vec<u8>)>,
    told: bool,
    /// The mirror has the packet.
    mirrored: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn see(bytes: &[u8]) -> Seen {
    let tagged = u16_at(bytes, 12) == 0x8100;
    let kind_at = if tagged { 16 } else { 12 };
    let kind = u16_at(bytes, kind_at);
    let body = kind_at + 2;
    let label = (kind == 0x8847 && bytes.len() >= body + 4).then(|| u32_at(bytes, body) >> 12);
    Seen {
        vid: tagged.then(|| u16_at(bytes, 14) & 0xfff),
        kind,
        label,
        ip: (kind == 0x0800).then(|| see_ip(bytes, body)).flatten(),
    }
}

fn see_ip(bytes: &[u8], at: usize) -> Option<Ip> {
    if bytes.len() < at + 20 {
        return None;
    }
    let end = at + usize::from(u16_at(bytes, at + 2));
    if end > bytes.len() {
        return None;
    }
    let protocol = bytes[at + 9];
    let header = match protocol {
        6 => 20,
        17 => 8,
        _ => usize::MAX,
    };
    let is_first = u16_at(bytes, at + 6) & 0x1fff == 0;
    Some(Ip {
        at,
        protocol,
        src: u32_at(bytes, at + 12),
        dst: u32_at(bytes, at + 16),
        ports: (is_first && end - at - 20 >= header).then_some(at + 20),
        end,
    })
}

impl Plain {
    pub(super) fn add(&mut self, rule: Rule) {
        self.counters.insert((rule.table, rule.priority), (0, 0));
        self.rules.push(rule);
        self.rules.sort_by_key(|rule| (rule.table, u16::MAX - rule.priority));
    }

    pub(super) fn remove(&mut self, table: u8, priority: u16) -> Option<Rule> {
        let at = self
            .rules
            .iter()
            .position(|rule| (rule.table, rule.priority) == (table, priority))?;
        self.counters.remove(&(table, priority));
        self.vague.remove(&(table, priority));
        Some(self.rules.remove(at))
    }

    pub(super) fn remove_nth(&mut self, number: usize) -> Option<Rule> {
        let at = number.checked_rem(self.rules.len())?;
        let (table, priority) = (self.rules[at].table, self.rules[at].priority);
        self.remove(table, priority)
    }

    /// Gives a rule the actions of another, as far as its match and table let it have them.
    pub(super) fn change(&mut self, number: usize, from: &Rule) -> Option<Rule> {
        let at = number.checked_rem(self.rules.len())?;
        let rule = &mut self.rules[at];
        rule.take_actions(from);
        Some(rule.clone())
    }

    /// Whether others have counted packets and bytes as this has.
    pub(super) fn counted_as(&self, others: &BTreeMap<(u8, u16), (u64, u64)>) -> bool {
        let alike = |((at, own), (other_at, other)): (Counter<'_>, Counter<'_>)| {
            at == other_at && own.0 == other.0 && (own.1 == other.1 || self.vague.contains(at))
        };
        self.counters.len() == others.len() && self.counters.iter().zip(others).all(alike)
    }

    pub(super) fn counters(&self) -> &BTreeMap<(u8, u16), (u64, u64)> {
        &self.counters
    }

    pub(super) fn port(&self, port: u32) -> [u64; 4] {
        self.ports.get(&port).copied().unwrap_or_default()
    }

    /// What a packet becomes.
    pub(super) fn receive(&mut self, in_port: u32, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.count(in_port, 0, bytes.len());
        let mut packet = Packet {
            bytes: bytes.to_vec(),
            in_port,
            register: 0,
            counted: bytes.len(),
            shorter: false,
            bared: false,
        };
        let mut outcome = Outcome::default();
        self.new = true;
        self.table(0, &mut packet, &mut outcome);
        for (port, bytes) in &outcome.sent {
            self.count(*port, 2, bytes.len());
        }
        self.dropped += u64::from(outcome.sent.is_empty() && !outcome.told);
        outcome.sent
    }

    fn count(&mut self, port: u32, at: usize, bytes: usize) {
        let counters = self.ports.entry(port).or_default();
        counters[at] += 1;
        counters[at + 1] += bytes as u64;
    }

    fn table(&mut self, table: u8, packet: &mut Packet, outcome: &mut Outcome) {
        let seen = see(&packet.bytes);
        let fits = |rule: &&Rule| rule.table == table && rule.tests.iter().all(|test| passes(test, packet, &seen));
        let rule = self.rules.iter().find(fits).cloned();
        let is_new = std::mem::take(&mut self.new);
        let accepted = !is_new || self.enter(packet, outcome);
        let Some(rule) = rule else { return };
        let counter = self.counters.entry((rule.table, rule.priority)).or_default();
        counter.0 += 1;
        counter.1 += packet.counted as u64;
        if packet.shorter {
            self.vague.insert((rule.table, rule.priority));
        }
        if !accepted {
            return;
        }
        let done = self.run(&rule.actions, packet, outcome);
        if let Some(table) = rule.goto.filter(|_| done) {
            self.table(table, packet, outcome);
        }
    }

    /// Returns whether it came to the end of the list.
    fn run(&mut self, actions: &[Action], packet: &mut Packet, outcome: &mut Outcome) -> bool {
        for action in actions {
            let in_port = packet.in_port;
            match action {
                Action::Output(port) if *port == in_port => {}
                Action::Output(port) => self.send(*port, packet, outcome),
                Action::InPort => self.send(in_port, packet, outcome),
                Action::All => {
                    let others = (1..=PORTS).filter(|port| *port != in_port);
                    others.for_each(|port| self.send(port, packet, outcome));
                }
                Action::Normal => self.normal(packet, outcome),
                Action::Controller => {
                    outcome.told = true;
                    self.copies.push(packet.bytes.clone());
                }
                Action::Resubmit(table) => self.table(*table, packet, outcome),
                Action::Clone(actions) => {
                    self.run(actions, &mut packet.clone(), outcome);
                }
                Action::Hop if packet.is_spent() => {
                    outcome.told = true;
                    self.copies.push(packet.bytes.clone());
                    return false;
                }
                Action::Load(value) => packet.register = *value,
                _ => {
                    packet.change(action);
                    self.bared += u64::from(std::mem::take(&mut packet.bared));
                }
            }
        }
        true
    }

    fn normal(&mut self, packet: &Packet, outcome: &mut Outcome) {
        let vlan = see(&packet.bytes).vid.unwrap_or(0);
        let (dst, src) = (&packet.bytes[..6], &packet.bytes[6..12]);
        let address = |bytes: &[u8]| -> [u8; 6] { bytes.try_into().unwrap() };
        self.stations.insert((vlan, address(src)), packet.in_port);
        match self.stations.get(&(vlan, address(dst))) {
            Some(port) if *port == packet.in_port || self.is_output(*port) => {}
            Some(port) => self.send(*port, packet, outcome),
            None => {
                let others = (1..=PORTS).filter(|port| *port != packet.in_port && !self.is_output(*port));
                others.for_each(|port| self.send(port, packet, outcome));
            }
        }
    }

    /// Has this mirror from now on.
    pub(super) fn mirror(&mut self, mirror: Option<Mirror>) {
        let output = mirror.as_ref().map(|mirror| mirror.output);
        let is_new = output != self.mirror.as_ref().map(|mirror| mirror.output);
        self.stations.retain(|_, port| !is_new || Some(*port) != output);
        self.mirror = mirror;
    }

    fn is_output(&self, port: u32) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.output == port)
    }

    /// Whether a packet that comes in is accepted.
    fn enter(&self, packet: &Packet, outcome: &mut Outcome) -> bool {
        self.copy(
            |mirror| mirror.src.contains(&packet.in_port) && mirror.output != packet.in_port,
            packet,
            outcome,
        );
        !self.is_output(packet.in_port)
    }

    fn send(&self, port: u32, packet: &Packet, outcome: &mut Outcome) {
        outcome.sent.push((port, packet.bytes.clone()));
        self.copy(|mirror| mirror.dst.contains(&port), packet, outcome);
    }

    /// Copies a packet to the mirror, if it selects it and does not have it.
    fn copy(&self, selects: impl Fn(&Mirror) -> bool, packet: &Packet, outcome: &mut Outcome) {
        let seen = see(&packet.bytes);
        let fits = |mirror: &&Mirror| {
            selects(mirror)
                && mirror.vlan.is_none_or(|own| own == seen.vid.unwrap_or(0))
                && mirror.kind.is_none_or(|own| own == seen.kind)
        };
        if let Some(mirror) = self.mirror.as_ref().filter(fits).filter(|_| !outcome.mirrored) {
            outcome.mirrored = true;
            let len = packet.bytes.len().min(mirror.snaplen.unwrap_or(usize::MAX));
            outcome.sent.push((mirror.output, packet.bytes[..len].to_vec()));
        }
    }
}

fn passes(test: &Test, packet: &Packet, seen: &Seen) -> bool {
    let ip = seen.ip.as_ref();
    let port = |at: usize| {
        let ports = ip.and_then(|ip| ip.ports);
        ports.map_or(0, |ports| u16_at(&packet.bytes, ports + at))
    };
    match *test {
        Test::InPort(port) => packet.in_port == port,
        Test::Dst(mac) => packet.bytes[..6] == mac,
        Test::Src(mac) => packet.bytes[6..12] == mac,
        Test::SrcEnd(value, mask) => packet.bytes[11] & mask == value & mask,
        Test::Vid(vid) => seen.vid == vid,
        Test::Kind(kind) => seen.kind == kind,
        Test::Label(label) => seen.label == Some(label),
        Test::Protocol(protocol) => ip.is_some_and(|ip| ip.protocol == protocol),
        Test::From(value, mask) => ip.map_or(0, |ip| ip.src) & mask == value & mask,
        Test::To(value, mask) => ip.map_or(0, |ip| ip.dst) & mask == value & mask,
        Test::SrcPort(value, mask) => port(0) & mask == value & mask,
        Test::DstPort(value, mask) => port(2) & mask == value & mask,
        Test::Register(value, mask) => packet.register & mask == value & mask,
    }
}

impl Packet {
    /// Whether it is of IPv4 and has no hop left; one whose header cannot be read has none.
    fn is_spent(&self) -> bool {
        let seen = see(&self.bytes);
        seen.kind == 0x0800 && seen.ip.is_none_or(|ip| self.bytes[ip.at + 8] <= 1)
    }

    fn change(&mut self, action: &Action) {
        let seen = see(&self.bytes);
        match *action {
            Action::SetDst(mac) => self.bytes[..6].copy_from_slice(&mac),
            Action::SetSrc(mac) => self.bytes[6..12].copy_from_slice(&mac),
            Action::SetVid(vid) => {
                if seen.vid.is_none() {
                    self.bytes.splice(12..12, [0x81, 0, 0, 0]);
                }
                let tci = u16_at(&self.bytes, 14) & 0xf000 | vid;
                self.bytes[14..16].copy_from_slice(&tci.to_be_bytes());
            }
            Action::Strip if seen.vid.is_some() => drop(self.bytes.drain(12..16)),
            Action::PopLabel if seen.label.is_some() => {
                let kind_at = if seen.vid.is_some() { 16 } else { 12 };
                self.bytes.drain(kind_at + 2..kind_at + 6);
                self.bytes[kind_at..kind_at + 2].copy_from_slice(&[8, 0]);
                (self.bared, self.shorter) = (true, true);
            }
            Action::SetFrom(address) => self.set_in_ip(|bytes, ip| put_u32(bytes, ip.at + 12, address)),
            Action::SetTo(address) => self.set_in_ip(|bytes, ip| put_u32(bytes, ip.at + 16, address)),
            Action::Hop => self.set_in_ip(|bytes, ip| bytes[ip.at + 8] -= 1),
            Action::SetSrcPort(port) => self.set_port(0, port),
            Action::SetDstPort(port) => self.set_port(2, port),
            _ => {}
        }
    }

    fn set_port(&mut self, at: usize, port: u16) {
        self.set_in_ip(|bytes, ip| {
            if let Some(ports) = ip.ports {
                bytes[ports + at..ports + at + 2].copy_from_slice(&port.to_be_bytes());
            }
        });
    }

    /// Changes an IPv4 packet and recomputes its checksums.
    fn set_in_ip(&mut self, change: impl FnOnce(&mut [u8], &Ip)) {
        let Some(ip) = see(&self.bytes).ip else { return };
        change(&mut self.bytes, &ip);
        put_sum(&mut self.bytes, ip.at + 10, 0, ip.at..ip.at + 20);
        let sum_at = match ip.protocol {
            6 => 16,
            17 => 6,
            _ => return,
        };
        let Some(at) = ip.ports else { return };
        if ip.protocol == 17 && u16_at(&self.bytes, at + 6) == 0 {
            return;
        }
        let addresses: u32 = (0..4).map(|n| u32::from(u16_at(&self.bytes, ip.at + 12 + 2 * n))).sum();
        let pseudo = addresses + u32::from(ip.protocol) + (ip.end - at) as u32;
        put_sum(&mut self.bytes, at + sum_at, pseudo, at..ip.end);
        if ip.protocol == 17 && u16_at(&self.bytes, at + 6) == 0 {
            self.bytes[at + 6..at + 8].copy_from_slice(&[0xff, 0xff]);
        }
    }
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Computes a checksum (RFC 1071) over bytes and what else is in it.
fn put_sum(bytes: &mut [u8], at: usize, besides: u32, over: std::ops::Range<usize>) {
    bytes[at..at + 2].copy_from_slice(&[0, 0]);
    let mut sum = besides;
    for pair in bytes[over].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
