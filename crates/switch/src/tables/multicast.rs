//! Multicast packets in a bridge that snoops (RFC 4541), as a part of NORMAL.
//!
//! A message of IGMP or MLD goes to the control plane too: queries are flooded, reports go where
//! routers are. Data goes to the members of its group, which may want some sources only.

use super::normal::{Copies, Visit};
use super::pipeline::Pipeline;
use crate::dep::Read;
use crate::port::Port;
use crate::tables::ControlPort;
use flow::{Field, Key};
use smallvec::SmallVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{EtherType, MacAddr};

const IGMP: u128 = 2;
const ICMPV6: u128 = 58;
const MLD_QUERY: u128 = 130;

/// The ports that get a copy. One copy each.
type Ports = SmallVec<[u32; 8]>;

impl<'a> Pipeline<'a> {
    /// Forwards an IP multicast packet; `false` if it is another packet, or the bridge does not
    /// snoop.
    pub(super) fn forward_multicast(&mut self, copies: &mut Copies<'_>, visit: &Visit<'a>, dst: MacAddr) -> bool {
        let Some(snooping) = visit.bridge.settings.snooping else {
            return false;
        };
        if !dst.is_multicast() || dst == MacAddr::BROADCAST || self.packet.hidden || self.has_uncounted_tag() {
            return false;
        }
        let key = copies.key;
        let Some(is_v4) = self.ip_version(key) else {
            return false;
        };
        if let Some(is_report) = self.membership_message(copies, visit, is_v4) {
            if is_report && snooping.proxy_reports && visit.from.is_some() {
                self.detail(|_| String::from("report for the proxy, not forwarding"));
            } else if is_report {
                let mut ports = Ports::new();
                self.router_ports(visit, &mut ports);
                self.report_ports(visit, &mut ports);
                self.copy_to_all(copies, visit, &ports);
            } else {
                let text = if is_v4 {
                    "multicast traffic, flooding"
                } else {
                    "MLD query, flooding"
                };
                self.detail(|_| String::from(text));
                self.flood_vlan(copies, visit);
            }
            return true;
        }
        let group = self.address_of(key, is_v4, Field::Ipv4Dst, Field::Ipv6Dst);
        if is_local(group) {
            self.detail(|_| String::from("RFC4541: section 2.1.2, item 2, flooding"));
            self.flood_vlan(copies, visit);
            return true;
        }
        let mut ports = Ports::new();
        self.depend(Read::Members(visit.bridge.id, visit.vlan, group));
        let members = visit.bridge.multicast.members(visit.vlan, group);
        match members {
            Some(members) => {
                for (port, filter) in members {
                    let wanted = !filter.reads_source() || {
                        let source = self.address_of(key, is_v4, Field::Ipv4Src, Field::Ipv6Src);
                        filter.accepts(source)
                    };
                    if wanted {
                        self.add_port(visit, *port, &mut ports, "mcast group port", "dropping");
                    } else {
                        self.detail(|_| String::from("mcast group port does not want this source, dropping"));
                    }
                }
                self.flood_ports(visit, &mut ports);
                self.router_ports(visit, &mut ports);
            }
            None if snooping.flood_unregistered => {
                self.detail(|_| String::from("unregistered multicast, flooding"));
                self.flood_vlan(copies, visit);
                return true;
            }
            None => {
                self.router_ports(visit, &mut ports);
                self.flood_ports(visit, &mut ports);
            }
        }
        self.copy_to_all(copies, visit, &ports);
        true
    }

    /// Whether the packet is IPv4, or IPv6; `None` if neither.
    fn ip_version(&mut self, key: &Key) -> Option<bool> {
        match EtherType(self.reader(key).read(Field::EthType) as u16) {
            EtherType::IPV4 => Some(true),
            EtherType::IPV6 => Some(false),
            _ => None,
        }
    }

    /// Whether a message of IGMP or MLD is a report or leave message; `None` for other packets.
    /// Hands it to the control plane.
    fn membership_message(&mut self, copies: &mut Copies<'_>, visit: &Visit<'_>, is_v4: bool) -> Option<bool> {
        let key = copies.key;
        let protocol = self.reader(key).read(Field::IpProto);
        let is_report = match (is_v4, protocol) {
            (true, IGMP) => {
                let kind = self.reader(key).read(Field::TpSrc);
                matches!(kind, 0x12 | 0x16 | 0x17 | 0x22)
            }
            (false, ICMPV6) => {
                let kind = self.reader(key).read(Field::IcmpType);
                if !matches!(kind, 130..=132 | 143) {
                    return None;
                }
                kind != MLD_QUERY
            }
            _ => return None,
        };
        if let Some((at, _)) = visit.from
            && let Some(number) = visit.bridge.number_of(at)
        {
            copies.punt(
                visit.received.clone(),
                ControlPort::new(visit.bridge.id, number).handle(),
            );
        }
        Some(is_report)
    }

    fn address_of(&mut self, key: &Key, is_v4: bool, v4: Field, v6: Field) -> IpAddr {
        match is_v4 {
            true => Ipv4Addr::from(self.reader(key).read(v4) as u32).into(),
            false => Ipv6Addr::from(self.reader(key).read(v6)).into(),
        }
    }

    /// Adds the ports behind which routers are.
    fn router_ports(&mut self, visit: &Visit<'_>, ports: &mut Ports) {
        self.depend(Read::Routers(visit.bridge.id, visit.vlan));
        for port in visit.bridge.multicast.routers(visit.vlan) {
            self.add_port(visit, *port, ports, "mcast router port", "dropping");
        }
    }

    /// Adds the ports that get all multicast packets.
    fn flood_ports(&mut self, visit: &Visit<'_>, ports: &mut Ports) {
        self.depend(Read::Flood(visit.bridge.id));
        for (port, _) in visit.bridge.ports.iter().filter(|(_, port)| port.mcast_flood) {
            self.add_port(visit, *port, ports, "mcast flood port", "dropping");
        }
    }

    /// Adds the ports that get all reports.
    fn report_ports(&mut self, visit: &Visit<'_>, ports: &mut Ports) {
        self.depend(Read::Flood(visit.bridge.id));
        for (id, _) in visit.bridge.ports.iter().filter(|(_, port)| port.mcast_flood_reports) {
            if visit.from.is_some_and(|(at, _)| at.port == *id) {
                self.detail(|_| String::from("mcast port is input port, dropping the Report"));
            } else {
                self.detail(|_| String::from("forwarding report to mcast flagged port"));
                push(ports, *id);
            }
        }
    }

    fn add_port(&mut self, visit: &Visit<'_>, port: u32, ports: &mut Ports, name: &str, otherwise: &str) {
        if visit.from.is_some_and(|(at, _)| at.port == port) {
            self.detail(|_| format!("{name} is input port, {otherwise}"));
        } else {
            self.detail(|_| format!("forwarding to {name}"));
            push(ports, port);
        }
    }

    fn copy_to_all(&mut self, copies: &mut Copies<'_>, visit: &Visit<'a>, ports: &[u32]) {
        for id in ports {
            self.depend(Read::Port(visit.bridge.id, *id));
            let port: Option<&Port> = visit.bridge.ports.get(id);
            if let Some(port) = port.filter(|_| !visit.bridge.mirrors.is_output(*id)) {
                self.copy_to(copies, visit, port);
            }
        }
        if copies.is_empty() {
            self.dropped(dp::DropCause::NoDestination);
        }
    }
}

fn push(ports: &mut Ports, port: u32) {
    if !ports.contains(&port) {
        ports.push(port);
    }
}

/// Groups whose packets go to all ports (RFC 4541 §2.1.2, §3): 224.0.0.x, and ff02::1 as in Open
/// vSwitch. Hosts report the other link-local groups of IPv6.
fn is_local(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group == Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    }
}
