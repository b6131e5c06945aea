//! Outputs: ports, floods, controllers. NORMAL is in `normal`.

use super::budget::cost;
use super::freeze::Why;
use super::look_up::LookUp;
use super::packet::Owner;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::{ForController, TABLES, TableMiss};
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::Egress;
use dp::{Action, DropCause, PortNo};
use flow::{Field, MatchField, MatchPrerequisite};
use openflow::model::{self, Controller, Port, Subfield};

/// The bits of the DSCP in the type of service.
const DSCP: u128 = 0xfc;

/// Packet-in reasons of an output to a controller, by the owner of the action.
const ACTION: u8 = 1;
const ACTION_SET: u8 = 3;
const GROUP: u8 = 4;
const PACKET_OUT: u8 = 5;

impl Pipeline<'_> {
    /// The output action.
    pub(super) fn output(&mut self, port: Port, max_len: u16) {
        let in_port = self.in_port();
        match port {
            Port::NORMAL => self.normal(),
            Port::FLOOD => self.flood(in_port, false),
            Port::ALL => self.flood(in_port, true),
            Port::CONTROLLER => self.hand_over(
                &Controller {
                    max_len,
                    reason: self.why_output(),
                    ..Controller::default()
                },
                None,
            ),
            // The tables may look at anything.
            Port::TABLE if self.packet.hidden => {
                self.freeze(Why::Recirculate);
                self.leave(&[model::Action::Output { port, max_len }], None);
            }
            Port::TABLE => {
                self.resubmit(0, LookUp::default());
            }
            Port::IN_PORT => self.output_to(in_port),
            Port(number) if number == in_port => {
                self.warning(|_| String::from("skipping output to input port"));
                self.dropped(DropCause::Loop);
            }
            Port(number) => self.output_to(number),
        }
    }

    /// Sends the packet to the port that a field names.
    pub(super) fn output_reg(&mut self, src: &Subfield, max_len: u16) {
        let bits = self.read_bits(src);
        self.detail(|_| format!("output port is {bits}"));
        // As in Open vSwitch: ports have the numbers of OpenFlow 1.0 here.
        match u16::try_from(bits) {
            Ok(port) => self.output(Port(flow::port_from_of10(port)), max_len),
            Err(_) => self.dropped(DropCause::NoDestination),
        }
    }

    /// The packet-in reason of an output to a controller.
    fn why_output(&self) -> u8 {
        match self.packet.place.of {
            _ if self.packet_out => PACKET_OUT,
            Owner::Group => GROUP,
            Owner::Set => ACTION_SET,
            Owner::Rule => ACTION,
        }
    }

    /// The packet-in reason that the message gives: an output of a table-miss rule counts as a miss
    /// (OpenFlow 1.3.5 §5.4).
    pub(super) fn packet_in_reason(&self, reason: u8) -> u8 {
        let is_miss = || {
            let at = self.packet.place.rule?.rule;
            let entry = self.packet.place.bridge?.tables.table(at.table)?.rules.entry(at.id)?;
            Some(entry.priority == 0 && entry.matching() == classifier::Match::ANY)
        };
        if reason == ACTION && is_miss() == Some(true) {
            ForController::TABLE_MISS
        } else {
            reason
        }
    }

    /// The action `output_trunc`: sends the first `max_len` bytes.
    pub(super) fn output_cut(&mut self, port: Port, max_len: u32) {
        if matches!(
            port,
            Port::TABLE | Port::NORMAL | Port::FLOOD | Port::ALL | Port::CONTROLLER | Port::ANY
        ) {
            self.warning(|p| format!("output_trunc does not support port: {}", p.text_of_port(port)));
            return;
        }
        self.aside(|cut| {
            let limit = cut.packet.limit.map_or(max_len, |limit| limit.min(max_len));
            cut.packet.limit = Some(limit);
            cut.output(port, 0);
        });
    }

    /// Sends the packet through a queue of a port.
    pub(super) fn enqueue(&mut self, port: Port, queue: u32) {
        let in_port = self.in_port();
        let number = if port == Port::IN_PORT { in_port } else { port.0 };
        if number == in_port && port != Port::IN_PORT {
            return self.dropped(DropCause::Loop);
        }
        self.aside(|queued| {
            queued.set_queue(queue);
            queued.output_to(number);
        });
    }

    pub(super) fn in_port(&self) -> u32 {
        self.packet.state.get(MatchField::InPortOxm) as u32
    }

    fn output_to(&mut self, number: u32) {
        let Some(bridge) = self.packet.place.bridge else { return };
        let Some((port, interface)) = bridge.of_ports.get(&number).copied() else {
            self.depend(Read::Flood(bridge.id));
            self.warning(|_| String::from("Nonexistent output port"));
            return self.dropped(DropCause::NoDestination);
        };
        self.depend(Read::Port(bridge.id, port));
        if bridge.flags_of(number).no_fwd {
            self.warning(|_| String::from("OFPPC_NO_FWD set, skipping output"));
            return self.dropped(DropCause::PortDown);
        }
        let member = bridge.ports.get(&port).and_then(|port| port.members.get(interface));
        self.send(member.map_or(Egress::None, |member| member.egress));
    }

    /// Under in-band control, sends replies of DHCP servers to the local port too, unless the rules
    /// do so.
    pub(super) fn output_in_band(&mut self) {
        const IPV4: u128 = 0x0800;
        const UDP: u128 = 17;
        const SERVER: u128 = 67;
        const CLIENT: u128 = 68;
        let Some(bridge) = self.packet.place.bridge.filter(|bridge| bridge.hidden.is_in_band()) else {
            return;
        };
        let local = Port::LOCAL.0;
        if self.failed || self.freezing.is_some() || self.in_port() == local {
            return;
        }
        if self.read(Field::EthType) != IPV4 || self.read(Field::IpProto) != UDP {
            return;
        }
        // Later fragments have no ports.
        self.consult(Field::IpFrag, u128::MAX);
        if (self.read(Field::TpSrc), self.read(Field::TpDst)) != (SERVER, CLIENT) {
            return;
        }
        let Some((port, interface)) = bridge.of_ports.get(&local).copied() else {
            return self.depend(Read::Flood(bridge.id));
        };
        self.depend(Read::Port(bridge.id, port));
        let member = bridge.ports.get(&port).and_then(|port| port.members.get(interface));
        self.spend(self.actions.len() / 64);
        if let Some(Egress::Device(device)) = member.map(|member| member.egress)
            && !self.actions.contains(&Action::Output(device))
        {
            self.detail(|_| String::from("outputting DHCP packet to local port for in-band control"));
            self.output_to(local);
        }
    }

    fn flood(&mut self, in_port: u32, all: bool) {
        let Some(bridge) = self.packet.place.bridge else { return };
        self.flooded();
        self.depend(Read::Flood(bridge.id));
        let ports = bridge.ports.values().filter(|port| all || !port.no_flood);
        for member in ports.flat_map(|port| &port.members) {
            if !self.spend(cost::PORT) {
                return;
            }
            let flags = bridge.flags_of(member.number);
            let wanted = member.number != in_port && !flags.no_fwd && (all || !flags.no_flood);
            if wanted && member.egress != Egress::None && !self.failed {
                self.send(member.egress);
            }
        }
    }

    /// Sends the packet as it is at this point.
    pub(super) fn send(&mut self, egress: Egress) {
        if self.is_isolated_from(egress) {
            return self.isolated();
        }
        if !self.may_leave(egress) {
            self.warning(|p| p.not_forwarding().to_owned());
            return self.dropped(DropCause::Blocked);
        }
        if !matches!(egress, Egress::None | Egress::Tunnel(_)) && !self.is_ethernet() {
            return;
        }
        match egress {
            Egress::None => self.dropped(DropCause::PortDown),
            Egress::Device(device) if self.end_tunnel(device) => {}
            Egress::Device(device) | Egress::Bond { member: device, .. } => self.send_to(egress, device),
            Egress::Tunnel(at) => self.send_through_tunnel(at),
            Egress::Patch(peer) if self.packet.hidden => {
                self.credit_patch(peer);
                self.mirror_sent(egress);
                self.enter_again(peer);
            }
            Egress::Patch(peer) => {
                self.credit_patch(peer);
                self.mirror_sent(egress);
                let key = self.packet.state.key;
                self.enter(peer, key);
            }
        }
    }

    /// Notes that the packet would go from a protected port to another.
    pub(super) fn isolated(&mut self) {
        self.warning(|_| String::from("Flow is between protected ports, skipping output."));
    }

    /// Whether both the ingress port and this one are protected.
    fn is_isolated_from(&self, egress: Egress) -> bool {
        let Some(bridge) = self.packet.place.bridge else {
            return false;
        };
        let is_protected = |port: u32| bridge.ports.get(&port).is_some_and(|port| port.protected);
        let from = bridge.of_ports.get(&self.in_port()).map(|(port, _)| *port);
        from.is_some_and(is_protected) && self.port_of(bridge, egress).is_some_and(is_protected)
    }

    /// The port of a bridge through which packets leave there.
    pub(super) fn port_of(&self, bridge: &Bridge, egress: Egress) -> Option<u32> {
        let at = match egress {
            Egress::Device(device) | Egress::Bond { member: device, .. } => self.switch.attachments.get(&device),
            Egress::Patch(peer) => self.switch.peer_of(peer),
            Egress::Tunnel(ref own) => Some(own),
            Egress::None => None,
        };
        at.filter(|at| at.bridge == bridge.id).map(|at| at.port)
    }

    /// Sends the packet to a device, or to a bond with this member.
    fn send_to(&mut self, egress: Egress, device: PortNo) {
        match self.mark_of(device) {
            None => self.send_as_it_is(egress),
            Some(dscp) if self.packet.hidden => self.send_marked_copy(egress, dscp),
            Some(dscp) => self.aside(|marked| {
                marked.write(MatchField::NwTos, u128::from(dscp) << 2, DSCP);
                marked.send_as_it_is(egress);
            }),
        }
    }

    /// Marks and sends a packet whose DSCP the key does not show: writes the DSCP in any case, and
    /// on a copy.
    fn send_marked_copy(&mut self, egress: Egress, dscp: u8) {
        let Some(saved) = self.begin_copy() else { return };
        let start = self.packet.own_steps;
        if self.meets(MatchPrerequisite::Ip) {
            let mark = u128::from(dscp) << 2;
            self.packet.base.key.set(Field::IpTos, !mark & DSCP);
            self.write(MatchField::NwTos, mark, DSCP);
        }
        self.send_as_it_is(egress);
        self.clone_steps(start);
        self.packet = *saved;
    }

    /// The DSCP that the chosen queue of a port sets.
    fn mark_of(&mut self, device: PortNo) -> Option<u8> {
        let marks = self.switch.marks.get(&device)?;
        let queue = self.read(Field::SkbPriority) as u32;
        let chosen = queue != 0 || self.packet.default_queue;
        marks.get(&queue).copied().filter(|_| chosen)
    }

    pub(super) fn send_as_it_is(&mut self, egress: Egress) {
        let (Some(device), Some(action)) = (egress.device(), egress.action()) else {
            return;
        };
        if !self.another_output() {
            return;
        }
        self.commit_all();
        if let Some(limit) = self.packet.limit {
            self.actions.push(Action::Trunc(limit));
        }
        self.export_sent(device, None);
        self.actions.push(action);
        self.mirror_sent(egress);
    }

    /// Whether a bridge accepts packets from a port (`OFPPC_NO_RECV`).
    pub(super) fn receives(&mut self, bridge: &Bridge, number: u32) -> bool {
        const BRIDGE_GROUP: u64 = 0x0180_c200_0000;
        let flags = bridge.flags_of(number);
        if !flags.no_recv && !flags.no_recv_stp {
            return true;
        }
        let refuses = if flags.no_recv == flags.no_recv_stp {
            true
        } else if self.read(Field::EthDst) as u64 == BRIDGE_GROUP {
            flags.no_recv_stp
        } else {
            flags.no_recv
        };
        if refuses {
            self.dropped(DropCause::PortDown);
        }
        !refuses
    }

    /// Runs the miss behaviour of a table. Whether the lookup continues in the next table.
    pub(super) fn miss(&mut self, table: u8) -> bool {
        let Some(bridge) = self.packet.place.bridge else {
            return false;
        };
        let to_controller = match bridge.tables.miss(table) {
            TableMiss::Continue if table + 1 < TABLES => return true,
            TableMiss::Continue | TableMiss::Drop => false,
            TableMiss::Controller => true,
            TableMiss::Default => bridge.misses_to_controller,
        };
        let in_port = self.in_port();
        if let Some((port, _)) = bridge.of_ports.get(&in_port) {
            self.depend(Read::Port(bridge.id, *port));
        }
        if !to_controller || bridge.flags_of(in_port).no_packet_in {
            self.line(Kind::Action, |_| String::from("drop"));
            self.dropped(DropCause::NoRule);
            return false;
        }
        self.line(Kind::Action, |_| String::from("CONTROLLER:65535"));
        self.go_to((table, 0, None));
        self.hand_over(
            &Controller {
                reason: ForController::MISS,
                ..Controller::default()
            },
            None,
        );
        false
    }
}
