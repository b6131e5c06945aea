//! Reading and writing the fields of the packet under translation.

use super::TunnelOptions;
use super::pipeline::Pipeline;
use flow::{Field, Home, MatchField, MatchPrerequisite, TAG_PRESENT};
use openflow::model::{Subfield, Value};

impl<'a> Pipeline<'a> {
    /// Writes a transport port of any protocol.
    pub(super) fn write_port(&mut self, field: Field, port: u16) {
        use MatchPrerequisite as P;
        if self.meets(P::Tcp) || self.meets(P::Udp) || self.meets(P::Sctp) {
            self.read(field);
            self.packet.state.key.set(field, port.into());
        }
    }

    pub(super) fn move_bits(&mut self, src: &Subfield, dst: &Subfield) {
        if self.meets(src.field().info().prerequisite) && self.meets(dst.field().info().prerequisite) {
            // Of tunnels' options there may be more than fits at once.
            let parts: Vec<_> = chunks(src).zip(chunks(dst)).collect();
            let read: Vec<_> = parts.iter().map(|(from, to)| (self.read_bits(from), *to)).collect();
            for (bits, to) in read {
                self.write_bits(&to, bits);
            }
            self.detail_of_bits(dst);
        }
    }

    pub(super) fn read_bits(&mut self, src: &Subfield) -> u128 {
        let mask = u128::MAX >> (128 - u32::from(src.n_bits()).min(128));
        match src.field().info().home {
            Home::Key { field, shift } => self.consult(field, mask << src.ofs() << shift),
            Home::Meta { .. } => {}
            Home::Elsewhere => {
                let options = self.options();
                return options.map_or(0, |options| options.read_bits(&self.packet.state, src));
            }
        }
        self.packet.state.get(src.field()) >> src.ofs() & mask
    }

    pub(super) fn write_bits(&mut self, dst: &Subfield, value: u128) {
        if dst.field().info().home == Home::Elsewhere {
            if let Some(options) = self.options() {
                options.write_bits(&mut self.packet.state, dst, value);
            }
            return;
        }
        let mask = u128::MAX >> (128 - u32::from(dst.n_bits()).min(128));
        self.write(dst.field(), (value & mask) << dst.ofs(), mask << dst.ofs());
    }

    /// Which options of tunnels are which fields of the bridge that the packet is in.
    pub(super) fn options(&self) -> Option<&'a TunnelOptions> {
        self.packet.place.bridge.map(|bridge| bridge.tables.options())
    }

    /// Sets a field as an action asks.
    pub(super) fn set_field(&mut self, field: MatchField, value: &Value, mask: Option<&Value>) {
        match self.options() {
            Some(options) if field.info().home == Home::Elsewhere => {
                options.set(&mut self.packet.state, field, value, mask)
            }
            _ => self.write(field, value.low(), mask.map_or(u128::MAX, Value::low)),
        }
    }

    /// Takes a field away that an option of a tunnel is mapped to.
    pub(super) fn delete_field(&mut self, field: MatchField) {
        if let Some(options) = self.options() {
            options.remove(&mut self.packet.state, field);
            self.detail(|_| format!("delete {field}"));
        }
    }

    /// Writes some bits of a field, if the packet has it.
    pub(super) fn write(&mut self, to: MatchField, value: u128, mask: u128) {
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
        let kept = self.packet.state.get(to) & !mask;
        self.packet.state.set(to, kept | value & mask);
        if let Home::Key { field, .. } = to.info().home {
            self.packet.own_tunnel &= !field.is_of_tunnel();
        }
    }

    /// Whether the packet has the fields that need this.
    pub(super) fn meets(&mut self, prerequisite: MatchPrerequisite) -> bool {
        use MatchPrerequisite as P;
        match prerequisite {
            P::None => true,
            P::Ethernet => !self.is_bare(),
            P::Nsh => self.read(Field::EthType) == 0x894f,
            P::VlanVid => {
                self.consult(Field::VlanTci0, TAG_PRESENT.into());
                self.packet.state.key.get(Field::VlanTci0) as u16 & TAG_PRESENT != 0
            }
            P::Arp => matches!(self.read(Field::EthType), 0x0806 | 0x8035),
            P::Ipv4 => self.read(Field::EthType) == 0x0800,
            P::Ipv6 => self.read(Field::EthType) == 0x86dd,
            P::Ip => matches!(self.read(Field::EthType), 0x0800 | 0x86dd),
            P::Mpls => matches!(self.read(Field::EthType), 0x8847 | 0x8848),
            P::Pbb => self.read(Field::EthType) == 0x88e7,
            P::Tcp => self.transport(P::Ip, 6),
            P::Udp => self.transport(P::Ip, 17),
            P::Sctp => self.transport(P::Ip, 132),
            P::Icmpv4 => self.transport(P::Ipv4, 1),
            P::Icmpv6 => self.transport(P::Ipv6, 58),
            P::Nd => self.discovery(&[135, 136]),
            P::NdSolicit => self.discovery(&[135]),
            P::NdAdvert => self.discovery(&[136]),
            P::Ct => self.meets(P::Ip) && self.has_connection(),
            P::CtIpv4 => self.meets(P::Ipv4) && self.has_connection(),
            P::CtIpv6 => self.meets(P::Ipv6) && self.has_connection(),
            P::CtPorts => self.meets(P::Ct) && matches!(self.read(Field::CtProto), 6 | 17 | 132),
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

/// A part of a field in parts of 128 bits, and what is left.
fn chunks(part: &Subfield) -> impl Iterator<Item = Subfield> {
    let (field, end) = (part.field(), part.ofs() + part.n_bits());
    let starts = (part.ofs()..end).step_by(128);
    starts.filter_map(move |ofs| Subfield::new(field, ofs, (end - ofs).min(128)))
}
