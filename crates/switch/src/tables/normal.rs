//! NORMAL: what a switch without rules does with a packet (IEEE 802.1Q, "The OVS Normal Pipeline"
//! in ovs-actions(7)).
//!
//! Stages in order: ingress VLAN, reserved addresses, learning, lookup or flood, egress VLAN,
//! output. The copies that leave are collected with the tags that each needs, and sent at the end,
//! so that the tags change as rarely as possible. A trace lists them in the order of ports, as Open
//! vSwitch does.
//!
//! A bridge without rules runs NORMAL on what it receives. Where such bridges are patched together,
//! the copies of all of them are collected before the first is sent. A bridge with rules gets its
//! copy when the others are sent.

use super::Credited;
use super::budget::cost;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::tags::{Reader, Tags};
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Ingress, Port};
use crate::reserved::is_reserved;
use dp::{Action, DropCause, Effect, PuntReason};
use flow::{Field, FlowState, Key};
use openflow::model;
use smallvec::SmallVec;
use std::mem;
use wire::{EtherType, MacAddr, Vid};

/// The copies of a packet that NORMAL sends.
pub(super) struct Copies<'k> {
    /// The key of the packet that NORMAL forwards.
    pub(super) key: &'k Key,
    /// Whether this is the packet as received: only bridges without rules have seen it.
    received: bool,
    /// The different tags of copies.
    tags: SmallVec<[Tags; 4]>,
    /// Where copies go, each with the index of its tags.
    outputs: SmallVec<[(usize, Egress); 16]>,
    /// Copies for control protocols, by handle, each with the index of its tags.
    punts: SmallVec<[(usize, u32); 1]>,
    /// The meter that all copies pass first.
    pub(super) meter: Option<u32>,
}

impl<'k> Copies<'k> {
    pub(super) fn of(key: &'k Key, received: bool) -> Copies<'k> {
        Copies {
            key,
            received,
            tags: SmallVec::new(),
            outputs: SmallVec::new(),
            punts: SmallVec::new(),
            meter: None,
        }
    }

    fn add(&mut self, tags: Tags, egress: Egress) {
        let at = self.index_of(tags);
        self.outputs.push((at, egress));
    }

    /// Adds a copy for multicast snooping.
    pub(super) fn punt(&mut self, tags: Tags, handle: u32) {
        let at = self.index_of(tags);
        self.punts.push((at, handle));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.punts.is_empty()
    }

    fn index_of(&mut self, tags: Tags) -> usize {
        let at = self.tags.iter().position(|known| *known == tags);
        at.unwrap_or_else(|| {
            self.tags.push(tags);
            self.tags.len() - 1
        })
    }

    /// Groups copies by their tags; in a group, copies into other bridges come last.
    fn sort(&mut self) {
        let tags = &self.tags;
        let is_patch = |egress: &Egress| matches!(egress, Egress::Patch(_));
        if tags.len() > 1 || self.outputs.iter().any(|(_, egress)| is_patch(egress)) {
            self.outputs
                .sort_by_key(|(at, egress)| (tags[*at].rank(), *at, is_patch(egress)));
        }
    }

    /// Whether no copy has a tag of the packet that a copy before it has lost.
    fn keeps_rank(&self) -> bool {
        self.outputs.is_sorted_by_key(|(at, _)| self.tags[*at].rank())
    }
}

/// A copy of the packet inside a bridge.
pub(super) struct Visit<'a> {
    pub(super) bridge: &'a Bridge,
    /// The ingress port; `None` for a packet that a controller made without one.
    pub(super) from: Option<(Ingress, &'a Port)>,
    pub(super) vlan: Vid,
    tags: Tags,
    /// The tags with which the packet entered the bridge.
    pub(super) received: Tags,
}

impl<'a> Pipeline<'a> {
    /// The action NORMAL.
    pub(super) fn normal(&mut self) {
        let Some(bridge) = self.packet.place.bridge else { return };
        let in_port = self.in_port();
        self.show_normal();
        let at = match bridge.of_ports.get(&in_port).copied() {
            Some((port, interface)) => Some(Ingress {
                bridge: bridge.id,
                port,
                interface,
            }),
            None if [model::Port::ANY, model::Port::CONTROLLER].contains(&model::Port(in_port)) => None,
            None => {
                self.depend(Read::Flood(bridge.id));
                return self.no_input_bundle(in_port);
            }
        };
        let key = self.key_with_own_tags();
        let mut copies = Copies::of(&key, false);
        self.forward(&mut copies, bridge, at, Tags::default());
        self.sort(&mut copies);
        self.send_policed(copies);
    }

    /// Drops a packet that comes from no port of NORMAL.
    fn no_input_bundle(&mut self, in_port: u32) {
        self.error(|_| format!("received packet on unknown port {in_port}"));
        self.warning(|_| String::from("no input bundle, dropping"));
        self.dropped(DropCause::NoDestination);
    }

    /// The packet as received enters a bridge without rules, which follows its fail mode.
    /// `has_state` says whether `packet` is set up already.
    pub(super) fn receive(&mut self, bridge: &'a Bridge, at: Ingress, has_state: bool) {
        let mut copies = Copies::of(self.original, true);
        self.run_builtin(&mut copies, bridge, at, Tags::default());
        if self.failed {
            // Most likely a loop: the packet must not teach where its source is.
            self.effects.clear();
            return;
        }
        self.sort(&mut copies);
        if copies.punts.is_empty()
            && copies.keeps_rank()
            && copies.outputs.iter().all(|(_, egress)| self.leaves_unmarked(egress))
        {
            return self.send_received(&copies);
        }
        self.packet.place.bridge = Some(bridge);
        if !has_state {
            let key = self.visible(self.original);
            self.packet.base.key = key;
            self.packet.state = FlowState::new(key, bridge.number_of(at).unwrap_or_default());
        }
        self.send_copies(copies);
    }

    fn sort(&self, copies: &mut Copies<'_>) {
        if self.report.is_none() {
            copies.sort();
        }
    }

    /// A packet as received leaves by a patch port.
    fn pass(&mut self, copies: &mut Copies<'_>, peer: Ingress, tags: Tags) {
        let Some(bridge) = self.switch.bridges.get(&peer.bridge) else {
            return;
        };
        if bridge.needs_tables() {
            return copies.add(tags, Egress::Patch(peer));
        }
        if !self.deeper(1) {
            return;
        }
        self.credit_patch(peer);
        self.open(Kind::Bridge, |p| p.text_of_bridge(bridge));
        let outer = self.packet.place.bridge;
        self.run_builtin(copies, bridge, peer, tags);
        self.packet.place.bridge = outer;
        self.close(1);
        self.shallower(1);
    }

    /// Runs a bridge without rules, and counts that as a lookup in its first table.
    fn run_builtin(&mut self, copies: &mut Copies<'_>, bridge: &'a Bridge, at: Ingress, tags: Tags) {
        self.packet.place.bridge = Some(bridge);
        if !self.count_lookup() || !self.spend(cost::COPY) {
            return;
        }
        self.depend(Read::Bridge(bridge.id));
        let rule = bridge.tables.builtin_rule();
        let lookup = Credited::Lookup {
            bridge: bridge.id,
            table: 0,
            matched: rule.is_some(),
        };
        self.credits.push(lookup.credit());
        let Some(rule) = rule else {
            self.open(Kind::Table, |_| String::from(" 0. No match."));
            self.line(Kind::Action, |_| String::from("drop"));
            self.close(1);
            return self.dropped(DropCause::NoRule);
        };
        let credited = Credited::Rule {
            bridge: bridge.id,
            rule,
        };
        self.credits.push(credited.credit());
        self.open(Kind::Table, |p| p.text_of_table(bridge, rule, 0));
        self.line(Kind::Action, |_| String::from("NORMAL"));
        self.show_normal();
        self.forward(copies, bridge, Some(at), tags);
        self.close(1);
    }

    /// Collects the copies that a bridge forwards.
    fn forward(&mut self, copies: &mut Copies<'_>, bridge: &'a Bridge, at: Option<Ingress>, mut tags: Tags) {
        let from = at.and_then(|at| Some((at, bridge.ports.get(&at.port)?)));
        let received = tags.clone();
        let vlan = match from {
            Some((at, port)) => {
                self.depend(Read::Port(at.bridge, at.port));
                if port.no_normal {
                    return self.no_input_bundle(bridge.number_of(at).unwrap_or_default());
                }
                port.vlans.ingress(&mut tags, &mut self.reader(copies.key))
            }
            None if at.is_some() => return,
            // As from a trunk.
            None => Some(tags.vid(0, &mut self.reader(copies.key)).unwrap_or_default()),
        };
        let Some(vlan) = vlan else {
            let vid = copies.key.get(Field::VlanTci0) as u16 & 0xfff;
            if let Some((_, port)) = from {
                self.error(|_| port.refusal(vid));
            }
            self.warning(|_| String::from("disallowed VLAN VID for this input port, dropping"));
            return self.dropped(DropCause::VlanFiltered);
        };
        let dst = MacAddr::from_u64(self.reader(copies.key).read(Field::EthDst) as u64);
        // A controller may send what a port may not forward.
        if from.is_some() && !bridge.settings.forward_bpdu && is_reserved(dst) {
            self.detail(|_| String::from("packet has reserved destination MAC, dropping"));
            return self.dropped(DropCause::ReservedMulticast);
        }
        if let Some((at, port)) = from
            && port.interfaces > 1
            && !self.bond_admits(copies.key, (bridge, vlan), at, port)
        {
            return self.dropped(DropCause::Loop);
        }
        let visit = Visit {
            bridge,
            from,
            vlan,
            tags,
            received,
        };
        let learns = !bridge.settings.flood_vlans.contains(vlan);
        if learns && !self.is_own_error() {
            let src = MacAddr::from_u64(self.reader(copies.key).read(Field::EthSrc) as u64);
            if visit.bridge.fdb.has_security() && !self.admits_station(&visit, src) {
                return self.dropped(DropCause::MacLimit);
            }
            self.learn_station(&visit, src);
            self.show_gratuitous_arp(copies.key, dst);
        }
        if self.forward_multicast(copies, &visit, dst) {
            return;
        }
        if learns
            && !dst.is_multicast()
            && let Some(learned) = self.station(bridge, vlan, dst)
        {
            return self.forward_to(copies, &visit, learned);
        }
        if !dst.is_multicast() {
            copies.meter = visit.unknown_unicast();
        }
        self.detail(|_| String::from("no learned MAC for destination, flooding"));
        self.flood_vlan(copies, &visit);
    }

    /// Shows what Open vSwitch looks at to find gratuitous ARP, which moves stations of bonds.
    fn show_gratuitous_arp(&mut self, key: &Key, dst: MacAddr) {
        const REQUEST: u128 = 1;
        if dst == MacAddr::BROADCAST && key.get(Field::EthType) == u128::from(EtherType::ARP.0) {
            self.show(Field::ArpOp, u128::MAX);
            if key.get(Field::ArpOp) == REQUEST {
                self.show(Field::ArpSpa, u128::MAX);
                self.show(Field::ArpTpa, u128::MAX);
            }
        }
    }

    fn learn_station(&mut self, visit: &Visit<'_>, mac: MacAddr) {
        let Some((at, port)) = visit.from.filter(|_| !mac.is_multicast()) else {
            return;
        };
        let vlan = visit.vlan;
        self.depend(Read::Source(at.bridge, vlan, mac));
        if self.report.is_some() && !self.suppressed() {
            let known = || visit.bridge.fdb.lookup(vlan, mac).map(|(port, _)| port);
            if self.taught(at.bridge, vlan, mac).or_else(known) != Some(at.port) {
                let (name, vid) = (&port.name, vlan.get());
                self.detail(|_| format!("learned that {mac} is on port {name} in VLAN {vid}"));
            }
        }
        // A copy that comes back moves the station: its last port counts.
        self.effects.retain(|effect| !is_about(effect, at.bridge, vlan, mac));
        self.effects.push(Effect::Learn {
            bridge: at.bridge,
            vlan,
            mac,
            port: at.port,
        });
    }

    /// The port of a station as this packet has taught it.
    fn taught(&self, bridge: u32, vlan: Vid, mac: MacAddr) -> Option<u32> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Learn { port, .. } if is_about(effect, bridge, vlan, mac) => Some(*port),
            _ => None,
        })
    }

    /// The port of a station, as it is once this packet's effects are applied, if they will be.
    fn station(&mut self, bridge: &Bridge, vlan: Vid, mac: MacAddr) -> Option<u32> {
        self.depend(Read::Station(bridge.id, vlan, mac));
        match bridge.fdb.lookup(vlan, mac) {
            Some((port, true)) => Some(port),
            known if self.suppressed() => known.map(|(port, _)| port),
            known => self.taught(bridge.id, vlan, mac).or(known.map(|(port, _)| port)),
        }
    }

    fn forward_to(&mut self, copies: &mut Copies<'_>, visit: &Visit<'a>, to: u32) {
        if visit.from.is_some_and(|(at, _)| to == at.port) {
            self.detail(|_| String::from("learned port is input port, dropping"));
            return self.dropped(DropCause::Loop);
        }
        if visit.bridge.mirrors.is_output(to) {
            self.detail(|_| String::from("learned port is a mirror port, dropping"));
            return self.dropped(DropCause::MirrorOutput);
        }
        self.detail(|_| String::from("forwarding to learned port"));
        self.depend(Read::Port(visit.bridge.id, to));
        if let Some(port) = visit.bridge.ports.get(&to) {
            self.copy_to(copies, visit, port);
        }
    }

    pub(super) fn flood_vlan(&mut self, copies: &mut Copies<'_>, visit: &Visit<'a>) {
        self.flooded();
        self.depend(Read::Flood(visit.bridge.id));
        let own = visit.from.map(|(at, _)| at.port);
        for (id, port) in &visit.bridge.ports {
            if !self.spend(cost::PORT) {
                return;
            }
            let floods = Some(*id) != own && !port.no_flood && !visit.bridge.mirrors.is_output(*id);
            if floods && visit.bridge.settings.rstp && !self.may_leave(port.egress) {
                self.dropped(DropCause::Blocked);
            } else if floods && !visit.bridge.is_flagged(port, |flags| flags.no_flood) {
                self.copy_to(copies, visit, port);
                if self.failed {
                    return;
                }
            }
        }
    }

    /// A copy leaves by a port, if that port carries the VLAN.
    pub(super) fn copy_to(&mut self, copies: &mut Copies<'_>, visit: &Visit<'_>, port: &Port) {
        if port.no_normal {
            return;
        }
        let silenced = visit.bridge.is_flagged(port, |flags| flags.no_fwd);
        let leaves = match &port.bond {
            Some(bond) => self.bond_egress(copies.key, visit.vlan, visit.bridge.id, port, bond),
            None => port.egress,
        };
        if leaves == Egress::None || silenced || port.shut.is_some() {
            return;
        }
        let reader = &mut self.reader(copies.key);
        let Some(tags) = port.vlans.egress(visit.vlan, &visit.tags, reader) else {
            return;
        };
        if port.protected && visit.from.is_some_and(|(_, from)| from.protected) {
            return self.isolated();
        }
        match leaves {
            Egress::Patch(peer) if copies.received => self.pass(copies, peer, tags),
            Egress::Device(device) if copies.received && device == self.original.in_port() => {
                self.dropped(DropCause::Loop);
            }
            egress => copies.add(tags, egress),
        }
    }

    /// Sends the collected copies, each by way of the packet that tables see.
    pub(super) fn send_copies(&mut self, copies: Copies<'_>) {
        for (at, handle) in copies.punts {
            self.send_with(copies.key, &copies.tags[at], |copy| {
                copy.commit_all();
                copy.actions.push(Action::Punt {
                    reason: PuntReason::Igmp,
                    handle,
                    max_len: u16::MAX,
                });
            });
        }
        for (at, egress) in copies.outputs {
            if self.failed {
                break;
            }
            self.send_with(copies.key, &copies.tags[at], |copy| copy.send(egress));
        }
    }

    /// Whether a copy goes to a device that has no queues that mark.
    fn leaves_unmarked(&self, egress: &Egress) -> bool {
        let marks = &self.switch.marks;
        egress.device().is_some_and(|device| {
            (marks.is_empty() || !marks.contains_key(&device)) && self.switch.tunnels.ends_at(device).is_none()
        })
    }

    /// Sends copies of the packet as received to devices. Only tags change, and the mask has only
    /// the parts of tags that an action spells out.
    fn send_received(&mut self, copies: &Copies<'_>) {
        let mut actions = mem::take(&mut self.actions);
        let mut now = &Tags::default();
        for (at, egress) in &copies.outputs {
            let tags = &copies.tags[*at];
            if tags.rank().0 > 0 {
                // The datapath of Open vSwitch compares all of a tag that goes.
                self.show(Field::VlanTci0, u128::MAX);
            }
            now.change_to(tags, &mut self.reader(copies.key), &mut actions);
            now = tags;
            actions.extend(egress.action());
        }
        self.actions = actions;
    }

    /// A reader of the packet that adds what it reads to the mask.
    pub(super) fn reader<'r>(&'r mut self, key: &'r Key) -> Reader<'r> {
        Reader::new(key, &mut self.consulted, self.switch.vlan_limit)
    }
}

/// Whether an effect is about a station.
fn is_about(effect: &Effect, bridge: u32, vlan: Vid, mac: MacAddr) -> bool {
    let station = (bridge, vlan, mac);
    matches!(effect, Effect::Learn { bridge, vlan, mac, .. } if (*bridge, *vlan, *mac) == station)
}
