//! Mirroring: copies of what a port receives and sends ("Mirror Table" in
//! ovs-vswitchd.conf.db(5)).
//!
//! A received packet is copied before the actions of the first rule, a sent one as it is sent. A
//! copy has the tag of the VLAN that the packet has in the bridge: the VLAN settings of the port
//! give it, as if the port had received the packet. Then the VLAN settings of the output apply, but
//! for the set of VLANs that it carries. A packet goes to each output once. As in Open vSwitch,
//! copies that are cut do not go to patch ports; unlike there, packets of patch ports are mirrored.

use super::Credited;
use super::budget::{Patience, cost};
use super::pipeline::Pipeline;
use super::tags::Tags;
use super::words;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::mirror::{Mirror, Output};
use crate::port::{Egress, Port};
use crate::reserved::is_reserved;
use crate::switch::Switch;
use dp::{DropCause, PortNo};
use flow::{Field, FlowState, Key};
use wire::{MacAddr, Vid};

/// A packet that is mirrored, and its tags in the bridge.
struct Mirrored<'a> {
    bridge: &'a Bridge,
    key: Key,
    tags: Tags,
}

impl<'a> Pipeline<'a> {
    /// Translates the copies of a packet that a device of a bridge sends, and nothing else.
    pub(crate) fn copies_of_sent(
        switch: &'a Switch,
        state: &'a FlowState,
        (bridge, device): (&'a Bridge, PortNo),
        patience: Patience<'a>,
    ) -> Pipeline<'a> {
        let mut pipeline = Pipeline::packet_of(switch, state, patience);
        pipeline.depend(Read::Bridge(bridge.id));
        pipeline.packet.place.bridge = Some(bridge);
        pipeline.mirror_sent(Egress::Device(device));
        pipeline
    }

    /// Copies a packet that the bridge has received. Whether the bridge accepts it: it does not
    /// accept packets from a mirror's output.
    pub(super) fn mirror_received(&mut self) -> bool {
        let Some(bridge) = self.packet.place.bridge.filter(|bridge| !bridge.mirrors.is_empty()) else {
            return true;
        };
        let in_port = self.in_port();
        let Some((port, _)) = bridge.of_ports.get(&in_port).copied() else {
            return true;
        };
        self.depend(Read::Port(bridge.id, port));
        if bridge.mirrors.is_output(port) {
            let name = bridge.ports.get(&port).map_or("", |port| &port.name);
            self.error(|_| {
                format!("dropping packet received on port {name}, which is reserved exclusively for mirroring")
            });
            self.dropped(DropCause::MirrorOutput);
            return false;
        }
        self.mirror(bridge, port, bridge.mirrors.of_source(port));
        true
    }

    /// Copies a packet that is sent, as it is at this point.
    pub(super) fn mirror_sent(&mut self, egress: Egress) {
        let Some(bridge) = self.packet.place.bridge.filter(|bridge| !bridge.mirrors.is_empty()) else {
            return;
        };
        if let Some(port) = self.port_of(bridge, egress) {
            self.capture_sent(bridge, port, egress);
            self.mirror(bridge, port, bridge.mirrors.of_destination(port));
        }
    }

    /// Copies a packet of a port to these mirrors, but for those whose output already has it.
    fn mirror(&mut self, bridge: &'a Bridge, port: u32, selected: u32) {
        let selected = selected & !bridge.mirrors.captures();
        let Some(port) = bridge.ports.get(&port).filter(|_| selected != 0) else {
            return;
        };
        let key = self.key_with_own_tags();
        let mut tags = Tags::default();
        let Some(vlan) = self.unshown(|p| port.vlans.ingress(&mut tags, &mut p.reader(&key))) else {
            let vid = key.get(Field::VlanTci0) as u16 & 0xfff;
            return self.error(|_| port.refusal(vid));
        };
        let packet = Mirrored { bridge, key, tags };
        let mut left = selected;
        loop {
            // Copies may have been mirrored themselves.
            left &= !self.mirrored;
            let Some(mirror) = bridge.mirrors.get(left.trailing_zeros()) else {
                return;
            };
            left &= left - 1;
            if self.spend(cost::COPY) && mirror.selects(vlan) && self.passes(mirror) {
                self.mirrored |= mirror.same_output;
                self.mirror_to(&packet, mirror, vlan);
            }
        }
    }

    pub(super) fn passes(&mut self, mirror: &Mirror) -> bool {
        let Some(filter) = &mirror.filter else { return true };
        for (read, mask) in self.consulted.iter_mut().zip(filter.mask()) {
            *read |= mask;
        }
        filter.matches(&words::words_of(&self.packet.state))
    }

    fn mirror_to(&mut self, packet: &Mirrored<'a>, mirror: &Mirror, vlan: Vid) {
        let bridge = packet.bridge;
        let credited = Credited::Mirror {
            bridge: bridge.id,
            mirror: mirror.number,
        };
        self.credits.push(credited.credit());
        match mirror.output {
            Output::Port(port) => {
                self.depend(Read::Port(bridge.id, port));
                if let Some(port) = bridge.ports.get(&port) {
                    let tags = self.unshown(|p| port.vlans.leave(vlan, &packet.tags, &mut p.reader(&packet.key)));
                    self.send_mirrored(packet, mirror, port, &tags);
                }
            }
            Output::Vlan(out) if out != vlan => self.mirror_into(packet, mirror, out),
            Output::Vlan(_) | Output::Capture(_) => {}
        }
    }

    /// Floods a copy into a VLAN. Reserved addresses would be taken for the switch's own packets.
    fn mirror_into(&mut self, packet: &Mirrored<'a>, mirror: &Mirror, vlan: Vid) {
        if is_reserved(MacAddr::from_u64(self.unshown(|p| p.read(Field::EthDst)) as u64)) {
            return;
        }
        let bridge = packet.bridge;
        self.depend(Read::Flood(bridge.id));
        let mut tags = packet.tags.clone();
        self.unshown(|p| tags.set_vid(vlan, &mut p.reader(&packet.key)));
        for (id, port) in &bridge.ports {
            if !self.spend(cost::PORT) {
                return;
            }
            let out = self.unshown(|p| port.vlans.egress(vlan, &tags, &mut p.reader(&packet.key)));
            if let Some(out) = out.filter(|_| !bridge.mirrors.is_output(*id)) {
                self.send_mirrored(packet, mirror, port, &out);
            }
        }
    }

    fn send_mirrored(&mut self, packet: &Mirrored<'_>, mirror: &Mirror, port: &Port, tags: &Tags) {
        if port.egress == Egress::None {
            return;
        }
        if packet.bridge.is_flagged(port, |flags| flags.no_fwd) {
            return self.detail(|_| String::from("OFPPC_NO_FWD set, skipping output"));
        }
        let limit = mirror.snaplen;
        if limit.is_some() && matches!(port.egress, Egress::Patch(_)) {
            return self.detail(|_| String::from("Mirror truncate to ODPP_NONE, skipping output"));
        }
        self.send_with(&packet.key, tags, |copy| {
            copy.packet.is_mirrored = true;
            if let Some(limit) = limit {
                copy.packet.limit = Some(copy.packet.limit.map_or(limit, |own| own.min(limit)));
            }
            copy.send(port.egress);
        });
    }
}
