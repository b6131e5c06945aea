//! Port security: packets that a port's hosts must not send. They are dropped before any rule sees
//! them.

use super::normal::Visit;
use super::pipeline::Pipeline;
use crate::PortGuard;
use crate::dep::Read;
use dp::Effect;
use flow::Field;
use std::net::Ipv4Addr;
use wire::{EtherType, MacAddr};

const UDP: u128 = 17;
/// The ports of servers (RFC 2131 §4.1, RFC 8415 §7.2).
const DHCP_SERVER: u128 = 67;
const DHCPV6_SERVER: u128 = 547;

impl Pipeline<'_> {
    /// Whether a port's guard refuses the packet.
    pub(super) fn is_refused(&mut self, guard: &PortGuard) -> bool {
        if *guard == PortGuard::default() {
            return false;
        }
        match EtherType(self.read(Field::EthType) as u16) {
            EtherType::ARP => guard.arp.is_some() && self.has_forged_sender(guard),
            EtherType::IPV4 => guard.no_dhcp_server && self.is_from(DHCP_SERVER),
            EtherType::IPV6 => guard.no_dhcp_server && self.is_from(DHCPV6_SERVER),
            _ => false,
        }
    }

    /// Whether the source of a packet may be at its ingress port. If not, its packets report the
    /// source all the same, so that the bridge learns it as soon as there is room.
    pub(super) fn admits_station(&mut self, visit: &Visit<'_>, mac: MacAddr) -> bool {
        let Some((at, port)) = visit.from.filter(|_| !mac.is_multicast()) else {
            return true;
        };
        let vlan = visit.vlan;
        if visit.bridge.fdb.admits(vlan, mac, at.port) {
            return true;
        }
        self.depend(Read::Station(at.bridge, vlan, mac));
        self.detail(|_| {
            format!(
                "port {} has no room for {mac} in VLAN {}, dropping",
                port.name,
                vlan.get()
            )
        });
        self.effects.push(Effect::Learn {
            bridge: at.bridge,
            vlan,
            mac,
            port: at.port,
        });
        false
    }

    fn is_from(&mut self, port: u128) -> bool {
        self.read(Field::IpProto) == UDP && self.read(Field::TpSrc) == port
    }

    /// Whether an ARP packet names another sender than its frame, or an address that is not the
    /// port's. Probes (RFC 5227 §2.1.1) have no address.
    fn has_forged_sender(&mut self, guard: &PortGuard) -> bool {
        if self.read(Field::ArpSha) != self.read(Field::EthSrc) {
            return true;
        }
        let addresses = guard.arp.iter().flatten();
        if addresses.clone().next().is_none() {
            return false;
        }
        let sender = Ipv4Addr::from(self.read(Field::ArpSpa) as u32);
        !sender.is_unspecified() && !addresses.into_iter().any(|known| *known == sender)
    }
}
