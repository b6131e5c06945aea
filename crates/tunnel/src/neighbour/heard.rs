//! What a packet says of a neighbour: ARP (RFC 826, RFC 5227) and neighbour advertisements
//! (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::checksum::pseudo_ipv6;
use wire::headers::{Frag, Ipv6, behind_tags, ipv6, is_arp};
use wire::{EtherType, MacAddr};

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

const ICMPV6: u8 = 58;
const ADVERTISEMENT: u8 = 136;
/// Length of an advertisement without options (RFC 4861 §4.4).
const ADVERTISEMENT_LEN: usize = 24;
/// An advertisement that answers a solicitation.
const SOLICITED: u8 = 0x40;
/// An advertisement that may replace the address that was known before.
const OVERRIDE: u8 = 0x20;
/// The option with the neighbour's Ethernet address (RFC 4861 §4.6.1).
const TARGET_LINK_LAYER: u8 = 2;

/// The Ethernet address of a neighbour, as a packet says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heard {
    /// The neighbour.
    pub address: IpAddr,
    /// Its Ethernet address, a unicast address.
    pub mac: MacAddr,
    /// Who the packet is for.
    pub by: HeardBy,
    /// The packet may replace another Ethernet address that was known before.
    pub replaces: bool,
}

/// Who a packet about a neighbour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeardBy {
    /// The host with this address, which may be another one than ours.
    Host(IpAddr),
    /// Everybody on the network: a gratuitous ARP packet or an unsolicited advertisement.
    All,
}

impl Heard {
    /// What an ARP packet says; `None` if it is neither a request nor a reply, or its sender has no
    /// unicast addresses. A request says as much of its sender as a reply (RFC 826).
    pub fn from_arp(operation: u16, sender: Ipv4Addr, mac: MacAddr, target: Ipv4Addr) -> Option<Heard> {
        let by = match (operation, sender == target) {
            (REQUEST | REPLY, true) => HeardBy::All,
            (REQUEST | REPLY, false) => HeardBy::Host(target.into()),
            _ => return None,
        };
        Heard::new(sender.into(), mac, by, true)
    }

    /// What a neighbour advertisement to `destination` says.
    ///
    /// `mac` is zero if the packet does not have it. `replaces` is the flag "override"; datapaths
    /// whose keys lack it say `true`.
    pub fn from_advertisement(target: Ipv6Addr, mac: MacAddr, destination: Ipv6Addr, replaces: bool) -> Option<Heard> {
        let by = match destination.is_multicast() {
            true => HeardBy::All,
            false => HeardBy::Host(destination.into()),
        };
        Heard::new(target.into(), mac, by, replaces)
    }

    /// What a neighbour solicitation from `source`, for the address `target`, says (RFC 4861
    /// §7.2.3).
    ///
    /// `mac` is zero if the packet does not have it.
    pub fn from_solicitation(source: Ipv6Addr, mac: MacAddr, target: Ipv6Addr) -> Option<Heard> {
        Heard::new(source.into(), mac, HeardBy::Host(target.into()), true)
    }

    /// What a frame without VLAN tags says; `None` if it is nothing that a neighbour can be learned
    /// from. An advertisement must be valid by RFC 4861 §7.1.2.
    pub fn from_frame(frame: &[u8]) -> Option<Heard> {
        let (kind, start) = behind_tags(frame, 0)?;
        let packet = &frame[start..];
        match kind {
            EtherType::ARP => arp(packet),
            EtherType::IPV6 => advertisement(packet),
            _ => None,
        }
    }

    fn new(address: IpAddr, mac: MacAddr, by: HeardBy, replaces: bool) -> Option<Heard> {
        let legal = !mac.is_zero() && !mac.is_multicast() && is_host(address);
        legal.then_some(Heard {
            address,
            mac,
            by,
            replaces,
        })
    }
}

/// Whether one host on a network can have this address.
pub(super) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !(address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback())
        }
        IpAddr::V6(address) => !(address.is_unspecified() || address.is_multicast() || address.is_loopback()),
    }
}

fn arp(packet: &[u8]) -> Option<Heard> {
    if !is_arp(packet) {
        return None;
    }
    let header: &[u8; 28] = packet.first_chunk()?;
    let [_, _, _, _, _, _, op @ .., a, b, c, d, e, f, s0, s1, s2, s3] = *header.first_chunk::<18>()?;
    let [t0, t1, t2, t3] = *header.last_chunk()?;
    let (sender, target) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(t0, t1, t2, t3));
    Heard::from_arp(u16::from_be_bytes(op), sender, MacAddr([a, b, c, d, e, f]), target)
}

fn advertisement(packet: &[u8]) -> Option<Heard> {
    let (header, Ipv6::Whole(ip)) = ipv6(packet)? else {
        return None;
    };
    let from_this_network = header[7] == 255;
    if header[0] >> 4 != 6 || ip.protocol != ICMPV6 || ip.frag != Frag::No || !from_this_network {
        return None;
    }
    let message = packet.get(ip.start..ip.end)?;
    if message.len() < ADVERTISEMENT_LEN || message[..2] != [ADVERTISEMENT, 0] {
        return None;
    }
    let (source, destination) = (address(header, 8)?, address(header, 24)?);
    let sum = pseudo_ipv6(source, destination, ICMPV6, message.len() as u32);
    let flags = message[4];
    if sum.bytes(message).finish() != 0 || destination.is_multicast() && flags & SOLICITED != 0 {
        return None;
    }
    let mac = link_layer(&message[ADVERTISEMENT_LEN..])?;
    Heard::from_advertisement(address(message, 8)?, mac, destination, flags & OVERRIDE != 0)
}

/// The Ethernet address in the options; `None` if it is missing or an option is malformed.
fn link_layer(mut options: &[u8]) -> Option<MacAddr> {
    let mut found = None;
    while let [_, units, ..] = *options {
        let (option, rest) = options.split_at_checked(usize::from(units) * 8)?;
        if option.is_empty() {
            return None;
        }
        if let ([TARGET_LINK_LAYER, 1, mac @ ..], None) = (option, found) {
            found = mac.first_chunk().copied().map(MacAddr);
        }
        options = rest;
    }
    options.is_empty().then_some(found).flatten()
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    Some(octets.into())
}
