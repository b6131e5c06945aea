//! What OpenFlow actions do to a packet under translation.

use super::pipeline::{MAX_NESTED, Pipeline};
use crate::dep::Read;
use crate::port::Egress;
use dp::DropCause;
use flow::{Field, Home, MatchField, MatchPrerequisite, TAG_PRESENT};
use openflow::model::{Action, Port, Subfield};
use wire::{EtherType, VlanTag};

/// Why a controller gets a packet whose time to live is over.
const INVALID_TTL: u8 = 2;

impl Pipeline<'_> {
    /// Runs actions in order. Whether the rule goes on behind them.
    pub(super) fn run_list(&mut self, list: &[Action]) -> bool {
        for action in list {
            if !self.act(action) {
                return false;
            }
            if self.exit || self.failed {
                return true;
            }
        }
        true
    }

    /// Keeps actions for the end of the pipeline.
    pub(super) fn write_actions(&mut self, list: &[Action]) {
        for action in list {
            if let Action::Output { port, .. } = action {
                self.state.set(MatchField::ActsetOutput, port.0.into());
            }
            self.place.action_set.push(action.clone());
        }
    }

    /// Runs the action set in the order of OpenFlow 1.3.5 §5.10: tags off, tags on, time to live, writes as they came, the last output. A set
    /// that sends the packet nowhere has no effect.
    pub(super) fn run_action_set(&mut self) {
        let set = std::mem::take(&mut self.place.action_set);
        let last = |is: fn(&Action) -> bool| set.iter().rev().find(|action| is(action));
        let is_output = |action: &Action| matches!(action, Action::Output { .. } | Action::Controller(_));
        let Some(output) = last(is_output).or(last(|action| matches!(action, Action::Resubmit { .. }))) else {
            return;
        };
        let first = [
            last(|action| matches!(action, Action::PopVlan)),
            last(|action| matches!(action, Action::PushVlan(_))),
            last(|action| matches!(action, Action::DecTtl(_))),
        ];
        let writes = set.iter().filter(|action| is_write(action));
        for action in first.into_iter().flatten().chain(writes).chain([output]) {
            if self.failed || !self.act(action) {
                return;
            }
        }
    }

    /// Does one action. Whether the list goes on behind it.
    fn act(&mut self, action: &Action) -> bool {
        match action {
            Action::Output { port, max_len } => self.output(*port, *max_len),
            Action::OutputReg { src, max_len } => {
                let bits = self.read_bits(src);
                let wide = src.field() != MatchField::InPort && src.n_bits() > 16;
                let port = if wide {
                    bits as u32
                } else {
                    flow::port_from_of10(bits as u16)
                };
                self.output(Port(port), *max_len);
            }
            Action::Controller(to) => self.send_to_controllers(to.id, to.reason, to.max_len, &to.userdata),
            Action::SetVlanVid(vid) => self.set_tci((*vid & 0xfff) | TAG_PRESENT, 0xfff | TAG_PRESENT),
            Action::SetVlanPcp(pcp) => self.set_tci(u16::from(*pcp) << 13 | TAG_PRESENT, 0xe000 | TAG_PRESENT),
            Action::PopVlan => self.pop_vlan(),
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::SetEthSrc(mac) => self.write(MatchField::EthSrc, mac.to_u64().into(), u128::MAX),
            Action::SetEthDst(mac) => self.write(MatchField::EthDst, mac.to_u64().into(), u128::MAX),
            Action::SetIpv4Src(addr) => self.write(MatchField::IpSrc, addr.to_bits().into(), u128::MAX),
            Action::SetIpv4Dst(addr) => self.write(MatchField::IpDst, addr.to_bits().into(), u128::MAX),
            Action::SetTos(tos) => self.write(MatchField::NwTos, (*tos).into(), 0xfc),
            Action::SetEcn(ecn) => self.write(MatchField::NwEcn, (*ecn).into(), 3),
            Action::SetTtl(ttl) => self.write(MatchField::NwTtl, (*ttl).into(), u128::MAX),
            Action::SetTpSrc(port) => self.write_port(Field::TpSrc, *port),
            Action::SetTpDst(port) => self.write_port(Field::TpDst, *port),
            Action::Move { src, dst } => self.move_bits(src, dst),
            Action::Load { dst, value } => self.write_bits(dst, (*value).into()),
            Action::SetField { field, value, mask } => {
                let mask = mask.as_ref().map_or(u128::MAX, |mask| mask.low());
                self.write(*field, value.low(), mask);
            }
            Action::Push(src) => {
                let bits = self.read_bits(src);
                self.stack.push(bits);
            }
            Action::Pop(dst) => {
                if let Some(bits) = self.stack.pop() {
                    self.write_bits(dst, bits);
                }
            }
            Action::DecTtl(controllers) => return self.dec_ttl(controllers),
            Action::Resubmit { in_port, table, .. } => {
                let table = if *table == 255 { self.place.table } else { *table };
                self.resubmit(table, (*in_port != Port::IN_PORT).then_some(in_port.0));
            }
            Action::Clone(list) => self.act_on_copy(list),
            Action::Exit => self.exit = true,
            Action::WriteMetadata { value, mask } => self.write(MatchField::Metadata, (*value).into(), (*mask).into()),
            // What a rule may not have is refused when it comes; a note means nothing.
            _ => {}
        }
        true
    }

    fn output(&mut self, port: Port, max_len: u16) {
        let in_port = self.state.get(MatchField::InPortOxm) as u32;
        match port {
            Port::NORMAL => self.normal(),
            Port::FLOOD => self.flood(in_port, false),
            Port::ALL => self.flood(in_port, true),
            Port::CONTROLLER => self.send_to_controllers(0, 1, max_len, &[]),
            Port::IN_PORT => self.output_to(in_port),
            Port(number) if number == in_port => self.dropped(DropCause::Loop),
            Port(number) => self.output_to(number),
        }
    }

    fn output_to(&mut self, number: u32) {
        let Some(bridge) = self.place.bridge else { return };
        let Some((port, interface)) = bridge.of_ports.get(&number).copied() else {
            self.depend(Read::Flood(bridge.id));
            return self.dropped(DropCause::NoDestination);
        };
        self.depend(Read::Port(bridge.id, port));
        let member = bridge.ports.get(&port).and_then(|port| port.members.get(interface));
        self.send(member.map_or(Egress::None, |(_, egress)| *egress));
    }

    fn flood(&mut self, in_port: u32, all: bool) {
        let Some(bridge) = self.place.bridge else { return };
        self.depend(Read::Flood(bridge.id));
        let ports = bridge.ports.values().filter(|port| all || !port.no_flood);
        for (number, egress) in ports.flat_map(|port| &port.members) {
            if *number != in_port && *egress != Egress::None && !self.failed {
                self.send(*egress);
            }
        }
    }

    fn act_on_copy(&mut self, list: &[Action]) {
        if self.nested == MAX_NESTED {
            return self.fail();
        }
        self.nested += 1;
        let state = Box::new(self.state);
        let place = Box::new(self.place.clone());
        let (stack, own_tags) = (self.stack.clone(), self.own_tags);
        self.run_list(list);
        self.nested -= 1;
        self.exit = false;
        self.own_tags = own_tags;
        self.stack = stack;
        self.place = *place;
        self.state = *state;
    }

    /// Takes one from the time to live; a packet that has none left goes no further on this list.
    fn dec_ttl(&mut self, controllers: &[u16]) -> bool {
        if !self.meets(MatchPrerequisite::Ip) {
            return true;
        }
        let ttl = self.read(Field::IpTtl);
        if ttl > 1 {
            self.state.key.set(Field::IpTtl, ttl - 1);
            return true;
        }
        for controller in controllers {
            self.send_to_controllers(*controller, INVALID_TTL, u16::MAX, &[]);
        }
        false
    }

    fn push_vlan(&mut self, tpid: u16) {
        self.touch_tags();
        // The new tag has the outermost one's VLAN and priority (OpenFlow 1.3.5 §5.12.1).
        let tci = self.state.key.tag(0).map_or(0, |tag| tag.tci);
        self.push_tag(VlanTag { tpid, tci });
    }

    fn pop_vlan(&mut self) {
        if self.meets(MatchPrerequisite::VlanVid) {
            self.pop_tag();
        }
    }

    /// Writes to the outermost tag's control information; a tag comes or goes with the bit that says that there is one.
    fn set_tci(&mut self, value: u16, mask: u16) {
        self.touch_tags();
        let old = self.state.key.get(Field::VlanTci0) as u16;
        let new = old & !mask | value & mask;
        match (old & TAG_PRESENT != 0, new & TAG_PRESENT != 0) {
            (true, true) => self.state.key.set(Field::VlanTci0, new.into()),
            (false, true) => self.push_tag(VlanTag {
                tpid: EtherType::VLAN.0,
                tci: new & !TAG_PRESENT,
            }),
            (true, false) => self.pop_tag(),
            (false, false) => {}
        }
    }

    /// Writes a transport port, of whichever protocol.
    fn write_port(&mut self, field: Field, port: u16) {
        use MatchPrerequisite as P;
        if self.meets(P::Tcp) || self.meets(P::Udp) || self.meets(P::Sctp) {
            self.read(field);
            self.state.key.set(field, port.into());
        }
    }

    fn move_bits(&mut self, src: &Subfield, dst: &Subfield) {
        if self.meets(src.field().info().prerequisite) && self.meets(dst.field().info().prerequisite) {
            let bits = self.read_bits(src);
            self.write_bits(dst, bits);
        }
    }

    fn read_bits(&mut self, src: &Subfield) -> u128 {
        let mask = u128::MAX >> (128 - u32::from(src.n_bits()).min(128));
        if let Home::Key { field, shift } = src.field().info().home {
            self.consult(field, mask << src.ofs() << shift);
        }
        self.state.get(src.field()) >> src.ofs() & mask
    }

    fn write_bits(&mut self, dst: &Subfield, value: u128) {
        let mask = u128::MAX >> (128 - u32::from(dst.n_bits()).min(128));
        self.write(dst.field(), (value & mask) << dst.ofs(), mask << dst.ofs());
    }

    /// Writes some bits of a field, if the packet has it.
    fn write(&mut self, to: MatchField, value: u128, mask: u128) {
        let info = to.info();
        let mask = mask & info.valid;
        if !self.meets(info.prerequisite) {
            return;
        }
        match info.home {
            Home::Key {
                field: Field::VlanTci0,
                shift,
            } => {
                let (value, mask) = ((value & mask) << shift, mask << shift);
                // Who writes a tag's identifier does not mean to take it off.
                let keep = if to == MatchField::VlanTci { 0 } else { TAG_PRESENT };
                return self.set_tci(value as u16 | keep, mask as u16 & !keep);
            }
            Home::Key { field, shift } => self.consult(field, mask << shift),
            _ => {}
        }
        let kept = self.state.get(to) & !mask;
        self.state.set(to, kept | value & mask);
    }

    /// Whether the packet has the fields that need this.
    fn meets(&mut self, prerequisite: MatchPrerequisite) -> bool {
        use MatchPrerequisite as P;
        match prerequisite {
            P::None | P::Ethernet => true,
            P::VlanVid => {
                self.consult(Field::VlanTci0, TAG_PRESENT.into());
                self.state.key.get(Field::VlanTci0) as u16 & TAG_PRESENT != 0
            }
            P::Arp => matches!(self.read(Field::EthType), 0x0806 | 0x8035),
            P::Ipv4 => self.read(Field::EthType) == 0x0800,
            P::Ipv6 => self.read(Field::EthType) == 0x86dd,
            P::Ip => matches!(self.read(Field::EthType), 0x0800 | 0x86dd),
            P::Tcp => self.transport(P::Ip, 6),
            P::Udp => self.transport(P::Ip, 17),
            P::Sctp => self.transport(P::Ip, 132),
            P::Icmpv4 => self.transport(P::Ipv4, 1),
            P::Icmpv6 => self.transport(P::Ipv6, 58),
            P::Nd => self.discovery(&[135, 136]),
            P::NdSolicit => self.discovery(&[135]),
            P::NdAdvert => self.discovery(&[136]),
            _ => false,
        }
    }

    fn transport(&mut self, ip: MatchPrerequisite, protocol: u128) -> bool {
        self.meets(ip) && self.read(Field::IpProto) == protocol && self.read(Field::IpFrag) & 2 == 0
    }

    fn discovery(&mut self, kinds: &[u128]) -> bool {
        self.meets(MatchPrerequisite::Icmpv6)
            && kinds.contains(&self.read(Field::IcmpType))
            && self.read(Field::IcmpCode) == 0
    }
}

/// Whether an action of an action set changes the packet.
fn is_write(action: &Action) -> bool {
    matches!(
        action,
        Action::SetVlanVid(_)
            | Action::SetVlanPcp(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::SetIpv4Src(_)
            | Action::SetIpv4Dst(_)
            | Action::SetTos(_)
            | Action::SetEcn(_)
            | Action::SetTtl(_)
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::Move { .. }
            | Action::Load { .. }
            | Action::SetField { .. }
    )
}
