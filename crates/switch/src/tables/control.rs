//! The part of control protocols in a translation: frames that they take, and ports that they keep
//! from forwarding.
//!
//! A frame of a control protocol goes to the protocol and no further, before any rule sees it, as
//! in Open vSwitch. Mirrors copy it. A port that learns and does not forward yet
//! (IEEE 802.1D-2004 §7.4) lets NORMAL and `learn` see the packet, and nothing is sent.

use super::pipeline::Pipeline;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Member};
use crate::{BfdFrames, LinkState, Punts};
use dp::{Action, DropCause, PuntReason};
use flow::Field;
use wire::{EtherType, MacAddr};

/// The bridge group address (IEEE 802.1D-2004 table 7-10).
const BRIDGE_GROUP: u64 = 0x0180_c200_0000;
/// The address of slow protocols (IEEE 802.3 annex 57A), and their EtherType.
const SLOW_PROTOCOLS: u64 = 0x0180_c200_0002;
const SLOW_TYPE: u128 = 0x8809;
/// The EtherType of a key whose frame has a length in its place.
const LLC_TYPE: u128 = 0x05ff;
const LLDP_TYPE: u128 = 0x88cc;
const CFM_TYPE: u128 = 0x8902;
/// The UDP port of BFD control packets (RFC 5881 §4).
const BFD_PORT: u128 = 3784;
const UDP: u128 = 17;

/// The port at which a frame of a control protocol has come in: a device's, or one end of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ControlPort {
    /// The last 16 bits of the bridge's number in the switch.
    pub bridge: u16,
    /// The port's number in OpenFlow 1.0.
    pub ofport: u16,
}

impl ControlPort {
    /// For a port of a bridge, by its number in OpenFlow 1.1 and later.
    pub fn new(bridge: u32, number: u32) -> ControlPort {
        ControlPort {
            bridge: bridge as u16,
            ofport: flow::port_to_of10(number),
        }
    }

    /// The port of a handle of [`Action::Punt`].
    pub fn of(handle: u32) -> ControlPort {
        ControlPort {
            bridge: (handle >> 16) as u16,
            ofport: handle as u16,
        }
    }

    pub(super) fn handle(self) -> u32 {
        u32::from(self.bridge) << 16 | u32::from(self.ofport)
    }
}

/// What control protocols let a received packet do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Everything.
    Forward,
    /// It teaches where it comes from, and goes nowhere.
    Learn,
    /// Nothing: it is dropped, or a control protocol has it.
    Nothing,
}

impl Pipeline<'_> {
    /// Hands a received frame to its control protocol, or says what its port lets it do.
    pub(super) fn admit(&mut self, bridge: &Bridge, number: u32) -> Admission {
        if !bridge.controlled {
            return Admission::Forward;
        }
        let Some((port, interface)) = bridge.of_ports.get(&number).copied() else {
            return Admission::Forward;
        };
        self.depend(Read::Port(bridge.id, port));
        let port = bridge.ports.get(&port);
        // What a controller sends is not refused for what a host may not send.
        let guarded = port.filter(|_| !self.packet_out);
        if guarded.is_some_and(|port| port.shut.is_some()) {
            self.dropped(DropCause::MacLimit);
            return Admission::Nothing;
        }
        if guarded.is_some_and(|port| self.is_refused(&port.guard)) {
            if self.mirror_received() {
                self.dropped(DropCause::PortSecurity);
            }
            return Admission::Nothing;
        }
        let member = port.and_then(|port| port.members.get(interface));
        let Some(&Member { link, punts, .. }) = member else {
            return Admission::Forward;
        };
        if let Some(reason) = self.protocol_of(&punts) {
            if self.mirror_received() {
                self.actions.push(Action::Punt {
                    reason,
                    handle: ControlPort::new(bridge.id, number).handle(),
                    max_len: u16::MAX,
                });
            }
            return Admission::Nothing;
        }
        match link {
            LinkState { forward: true, .. } => Admission::Forward,
            LinkState { learn: true, .. } => Admission::Learn,
            _ => {
                self.dropped(DropCause::Blocked);
                Admission::Nothing
            }
        }
    }

    /// The control protocol that takes the packet.
    fn protocol_of(&mut self, punts: &Punts) -> Option<PuntReason> {
        if *punts == Punts::default() {
            return None;
        }
        if let Some(mac) = punts.cfm
            && self.read(Field::EthType) == CFM_TYPE
            && self.read(Field::EthDst) as u64 == mac.to_u64()
        {
            return Some(PuntReason::Cfm);
        }
        if let Some(frames) = punts.bfd
            && self.is_bfd(&frames)
        {
            return Some(PuntReason::Bfd);
        }
        if punts.lldp && self.read(Field::EthType) == LLDP_TYPE {
            let dst = MacAddr::from_u64(self.read(Field::EthDst) as u64);
            if dst.is_reserved() {
                return Some(PuntReason::Lldp);
            }
        }
        if punts.lacp || punts.stp {
            let dst = self.read(Field::EthDst) as u64;
            if punts.lacp && dst == SLOW_PROTOCOLS && self.read(Field::EthType) == SLOW_TYPE {
                return Some(PuntReason::Lacp);
            }
            if punts.stp && dst == BRIDGE_GROUP && self.read(Field::EthType) == LLC_TYPE {
                return Some(PuntReason::Stp);
            }
        }
        None
    }

    fn is_bfd(&mut self, frames: &BfdFrames) -> bool {
        if let Some(mac) = frames.dst_mac
            && self.read(Field::EthDst) as u64 != mac.to_u64()
        {
            return false;
        }
        if self.read(Field::EthType) != u128::from(EtherType::IPV4.0) || self.read(Field::IpProto) != UDP {
            return false;
        }
        // Fragments have no ports: BFD packets are never fragmented.
        if self.read(Field::IpFrag) != 0 || self.read(Field::TpDst) != BFD_PORT {
            return false;
        }
        if let Some(dst) = frames.dst
            && self.read(Field::Ipv4Dst) != u128::from(dst.to_bits())
        {
            return false;
        }
        !frames.without_key || self.read(Field::TunId) == 0
    }

    /// Takes back all that the tables wanted to do with a packet whose port only learns. `before`
    /// has the numbers of actions and of packets to controllers at its start.
    pub(super) fn take_back(&mut self, before: (usize, usize)) {
        self.actions.truncate(before.0);
        self.controllers.truncate(before.1);
        self.freezing = None;
        self.dropped(DropCause::Blocked);
    }

    /// Whether packets may leave there. Control protocols speak at ports that do not forward, too.
    pub(super) fn may_leave(&mut self, egress: Egress) -> bool {
        let Some(bridge) = self.packet.place.bridge.filter(|bridge| bridge.controlled) else {
            return true;
        };
        let port = self.port_of(bridge, egress).and_then(|port| bridge.ports.get(&port));
        if port.is_some_and(|port| port.shut.is_some()) {
            return false;
        }
        let mut members = port.into_iter().flat_map(|port| &port.members);
        members.all(|member| member.wired != egress || member.link.forward) || self.packet_out && self.is_control()
    }

    /// Whether the packet belongs to a protocol of links or bridges.
    fn is_control(&mut self) -> bool {
        let dst = MacAddr::from_u64(self.read(Field::EthDst) as u64);
        dst.is_reserved() || self.read(Field::EthType) == CFM_TYPE || self.is_bfd(&BfdFrames::default())
    }

    /// Why a packet does not leave through a port that does not forward, in Open vSwitch's words.
    pub(super) fn not_forwarding(&self) -> &'static str {
        match self.packet.place.bridge.is_some_and(|bridge| bridge.settings.rstp) {
            true => "RSTP not in forwarding state, skipping output",
            false => "STP not in forwarding state, skipping output",
        }
    }
}
