//! Packets to the local port of an underlay's bridge: those that end tunnels, and what the others
//! say of neighbours and paths.

use super::super::pipeline::Pipeline;
use crate::dep::Read;
use crate::port::Egress;
use crate::tunnel::UnderlayBridge;
use dp::{Action, DropCause, Effect, PuntReason};
use flow::{Field, PortNo};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tunnel::neighbour::Heard;
use wire::{EtherType, MacAddr};

const ICMP: u128 = 1;
/// Fragmentation needed (RFC 792): type and code.
const FRAGMENTATION_NEEDED: (u128, u128) = (3, 4);
/// ICMPv6, and its neighbour messages (RFC 4861 §4.3, §4.4) and packet too big (RFC 4443 §3.2).
const ICMPV6: u128 = 58;
const SOLICITATION: u128 = 135;
const ADVERTISEMENT: u128 = 136;
const PACKET_TOO_BIG: (u128, u128) = (2, 0);

impl Pipeline<'_> {
    /// Where a packet to the local port of a bridge ends a tunnel: takes its outer headers off.
    /// What it says of neighbours is learned. Returns whether it was a tunnel's packet.
    pub(in super::super) fn end_tunnel(&mut self, device: PortNo) -> bool {
        let Some(own) = self.switch.tunnels.ends_at(device) else {
            return false;
        };
        if self.packet.limit.is_some() {
            // A packet that was cut has no whole inner packet.
            return false;
        }
        self.depend(Read::Underlay);
        let Some(at) = self.switch.attachments.get(&device).copied() else {
            return false;
        };
        let kind = EtherType(self.read(Field::EthType) as u16);
        if kind == EtherType::ARP {
            self.hear_arp(at.bridge, own);
            return false;
        }
        let is_v4 = match kind {
            EtherType::IPV4 => true,
            EtherType::IPV6 => false,
            _ => return false,
        };
        let protocol = self.read(Field::IpProto) as u8;
        match (u128::from(protocol), is_v4) {
            (ICMPV6, false) => {
                self.hear_neighbour(at.bridge, own);
                self.hear_too_big(PACKET_TOO_BIG, own, is_v4);
                return false;
            }
            (ICMP, true) => {
                self.hear_too_big(FRAGMENTATION_NEEDED, own, is_v4);
                return false;
            }
            _ => {}
        }
        let Some(has_port) = self.switch.tunnels.receives_protocol(protocol) else {
            return false;
        };
        let mac = MacAddr::from_u64(self.read(Field::EthDst) as u64);
        if mac != own.mac || !self.is_for(own, is_v4) || self.read(Field::IpFrag) != 0 {
            return false;
        }
        let port = if has_port { self.read(Field::TpDst) as u16 } else { 0 };
        let Some((tunnel, format)) = self.switch.tunnels.listener(protocol, port) else {
            return false;
        };
        if self.switch.tunnels.have_ipsec() {
            let src: IpAddr = match is_v4 {
                true => Ipv4Addr::from_bits(self.read(Field::Ipv4Src) as u32).into(),
                false => Ipv6Addr::from_bits(self.read(Field::Ipv6Src)).into(),
            };
            if self.switch.tunnels.must_be_encrypted(src, protocol, port) {
                // What was encrypted comes from the host's stack.
                self.dropped(DropCause::TunnelNotEncrypted);
                return true;
            }
        }
        if !self.another_output() {
            return true;
        }
        self.commit_all();
        self.export_ended(device);
        self.actions.push(Action::TunnelPop { port: tunnel, format });
        self.mirror_sent(Egress::Device(device));
        true
    }

    fn hear_arp(&mut self, bridge: u32, own: &UnderlayBridge) {
        let operation = self.read(Field::ArpOp) as u16;
        if !matches!(operation, 1 | 2) {
            return;
        }
        let sender = Ipv4Addr::from_bits(self.read(Field::ArpSpa) as u32);
        let mac = MacAddr::from_u64(self.read(Field::ArpSha) as u64);
        let target = Ipv4Addr::from_bits(self.read(Field::ArpTpa) as u32);
        if operation == 1 && target != sender && !own.addresses.contains(&target.into()) {
            return;
        }
        self.hear(bridge, Heard::from_arp(operation, sender, mac, target));
    }

    fn hear_neighbour(&mut self, bridge: u32, own: &UnderlayBridge) {
        let kind = self.read(Field::IcmpType);
        if !matches!(kind, SOLICITATION | ADVERTISEMENT) || self.read(Field::IcmpCode) != 0 {
            return;
        }
        if kind == SOLICITATION {
            let target = Ipv6Addr::from_bits(self.read(Field::NdTarget));
            if !own.addresses.contains(&target.into()) {
                return;
            }
            let source = Ipv6Addr::from_bits(self.read(Field::Ipv6Src));
            let mac = MacAddr::from_u64(self.read(Field::NdSll) as u64);
            return self.hear(bridge, Heard::from_solicitation(source, mac, target));
        }
        let target = Ipv6Addr::from_bits(self.read(Field::NdTarget));
        let mac = MacAddr::from_u64(self.read(Field::NdTll) as u64);
        let destination = Ipv6Addr::from_bits(self.read(Field::Ipv6Dst));
        self.hear(bridge, Heard::from_advertisement(target, mac, destination, true));
    }

    /// Whether the packet's destination is an address of a bridge.
    fn is_for(&mut self, own: &UnderlayBridge, is_v4: bool) -> bool {
        let dst: IpAddr = match is_v4 {
            true => Ipv4Addr::from_bits(self.read(Field::Ipv4Dst) as u32).into(),
            false => Ipv6Addr::from_bits(self.read(Field::Ipv6Dst)).into(),
        };
        own.addresses.contains(&dst)
    }

    /// Hands a copy of an ICMP error of this type and code, to a bridge, to the path MTUs. A trace
    /// does not show it.
    fn hear_too_big(&mut self, (kind, code): (u128, u128), own: &UnderlayBridge, is_v4: bool) {
        if self.report.is_some() || self.read(Field::IcmpType) != kind || self.read(Field::IcmpCode) != code {
            return;
        }
        if self.is_for(own, is_v4) {
            self.commit_all();
            self.actions.push(Action::Punt {
                reason: PuntReason::PathMtu,
                handle: 0,
                max_len: u16::MAX,
            });
        }
    }

    fn hear(&mut self, bridge: u32, heard: Option<Heard>) {
        self.effects.extend(heard.map(|heard| Effect::Heard { bridge, heard }));
    }
}
