//! Requests for the Ethernet address of a neighbour.

use super::name::BridgeName;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::checksum::pseudo_ipv6;
use wire::{EtherType, MacAddr};

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
/// The option with the sender's Ethernet address (RFC 4861 §4.6.1).
const SOURCE_LINK_LAYER: u8 = 1;

/// A request to send out of a bridge's LOCAL port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The bridge.
    pub bridge: BridgeName,
    /// The neighbour to ask for.
    pub address: IpAddr,
}

impl Request {
    /// The frame: an ARP request (RFC 826) or a neighbour solicitation (RFC 4861 §4.3).
    ///
    /// `mac` and `source` are the bridge's own addresses. `None` if `source` is not of the
    /// neighbour's family.
    pub fn frame(&self, mac: MacAddr, source: IpAddr) -> Option<Vec<u8>> {
        match (source, self.address) {
            (IpAddr::V4(source), IpAddr::V4(target)) => Some(arp(mac, source, target)),
            (IpAddr::V6(source), IpAddr::V6(target)) => Some(solicitation(mac, source, target)),
            _ => None,
        }
    }
}

fn arp(mac: MacAddr, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    [
        &ethernet(MacAddr::BROADCAST, mac, EtherType::ARP)[..],
        // Ethernet, IPv4, their lengths, and a request.
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &mac.0,
        &source.octets(),
        &MacAddr::ZERO.0,
        &target.octets(),
    ]
    .concat()
}

fn solicitation(mac: MacAddr, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target);
    let [.., a, b, c, d] = group.octets();
    let mut message = [
        &[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..],
        &target.octets(),
        &[SOURCE_LINK_LAYER, 1],
        &mac.0,
    ]
    .concat();
    let len = message.len() as u16;
    let sum = pseudo_ipv6(source, group, ICMPV6, len.into()).bytes(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    [
        // The Ethernet address of a group (RFC 2464 §7).
        &ethernet(MacAddr([0x33, 0x33, a, b, c, d]), mac, EtherType::IPV6)[..],
        // The hop limit says that no router has passed the packet on.
        &[0x60, 0, 0, 0, 0, len as u8, ICMPV6, 255],
        &source.octets(),
        &group.octets(),
        &message,
    ]
    .concat()
}

/// The group that a node with this address listens to (RFC 4291 §2.7.1).
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let prefix = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0);
    Ipv6Addr::from_bits(prefix.to_bits() | address.to_bits() & 0xff_ffff)
}

fn ethernet(destination: MacAddr, source: MacAddr, kind: EtherType) -> [u8; 14] {
    let mut header = [0; 14];
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    header[12..].copy_from_slice(&kind.0.to_be_bytes());
    header
}
