//! ICMP errors about packets that are too big, and the packets that they quote.

use super::table::{MIN_IPV4, MIN_IPV6};
use crate::format::SourcePorts;
use crate::vport::{Config, Endpoint, Key, Local, Type};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::checksum::{checksum, pseudo_ipv6};
use wire::headers::{Frag, Ipv6, ipv4, ipv6};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Length of the header of an ICMP error, before the quoted packet.
const HEADER: usize = 8;
/// Destination unreachable, fragmentation needed (RFC 792, RFC 1191 §4).
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
/// Packet too big (RFC 4443 §3.2).
const PACKET_TOO_BIG: u8 = 2;

/// Sizes that routers which do not say one are likely to have (RFC 1191 §7.1), down to the minimum.
const PLATEAUS: [u16; 9] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, MIN_IPV4];

/// An ICMP error which says that a packet was too big for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig<'a> {
    /// The largest packet that the link takes, in bytes from the IP header on: for IPv4 576 or
    /// more, for IPv6 1280 or more.
    pub mtu: u16,
    /// The packet, which is larger.
    pub quoted: Quoted<'a>,
}

/// The beginning of a packet that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Its source, to which the error was sent.
    pub src: IpAddr,
    /// Its destination.
    pub dst: IpAddr,
    /// The number of the protocol directly behind the IP header.
    pub protocol: u8,
    /// Its length, from the IP header on.
    pub len: u32,
    /// What the error has of the bytes behind the IP header. For IPv4 at least 8.
    pub data: &'a [u8],
}

/// Why a packet is no error to learn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotTooBig {
    /// A packet of another kind.
    Other,
    /// A header is cut short or contradicts itself.
    Malformed,
    /// A checksum is wrong.
    Checksum,
    /// The packet that it quotes did not come from the address that it was sent to.
    NotOurs,
    /// The quoted packet is not larger than the size in the error, or could have been fragmented.
    Contradiction,
    /// The size is smaller than that of any link (RFC 8201 §4).
    TooSmall,
}

impl fmt::Display for NotTooBig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotTooBig::Other => "not about a packet that is too big",
            NotTooBig::Malformed => "malformed ICMP error",
            NotTooBig::Checksum => "the checksum of the ICMP error is wrong",
            NotTooBig::NotOurs => "the ICMP error quotes a packet of another host",
            NotTooBig::Contradiction => "the quoted packet was not too big",
            NotTooBig::TooSmall => "a size below the minimum",
        })
    }
}

impl std::error::Error for NotTooBig {}

impl<'a> TooBig<'a> {
    /// Reads an error, from its IP header on.
    ///
    /// # Errors
    /// [`NotTooBig`]; the packet is for somebody else, or to be ignored.
    pub fn parse(packet: &'a [u8]) -> Result<TooBig<'a>, NotTooBig> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => of_icmp(packet),
            Some(6) => of_icmpv6(packet),
            _ => Err(NotTooBig::Other),
        }
    }
}

/// The outer destination of the packets of this tunnel port that an error is about; `None` if the
/// port cannot have sent the quoted packet. `ports` are the source ports of its UDP packets.
pub fn sent(config: &Config, ports: SourcePorts, quoted: &Quoted<'_>) -> Option<IpAddr> {
    let local = match config.local {
        Local::Address(local) => local == quoted.src,
        Local::Any | Local::Flow => true,
    };
    let segments = config.segments.as_slice();
    let destination = match config.remote {
        // Routers on the way of an SRv6 packet see its segments as destinations, one after another.
        _ if segments.iter().any(|segment| quoted.dst == *segment) => IpAddr::V6(segments[0]),
        Endpoint::Address(remote) if remote == quoted.dst => remote,
        Endpoint::Flow if segments.is_empty() => quoted.dst,
        _ => return None,
    };
    let family = match config.kind {
        Type::Gre | Type::Erspan => quoted.dst.is_ipv4(),
        Type::Ip6gre | Type::Ip6erspan | Type::Srv6 => quoted.dst.is_ipv6(),
        _ => true,
    };
    let key = match (config.out_key, quoted.key(config.kind)) {
        (Key::Value(key), Some(quoted)) => key == quoted,
        _ => true,
    };
    let same = local && family && key && quoted.protocol == config.kind.protocol();
    let udp = config.kind.default_port().is_none() || quoted.has_ports(ports, config.dst_port);
    (same && udp).then_some(destination)
}

impl Quoted<'_> {
    fn has_ports(&self, src: SourcePorts, dst: u16) -> bool {
        matches!(self.data, [a, b, c, d, ..]
            if src.contains(u16::from_be_bytes([*a, *b])) && u16::from_be_bytes([*c, *d]) == dst)
    }

    /// The key in the header of a tunnel, if the error has so much of it.
    fn key(&self, kind: Type) -> Option<u64> {
        let word = |at: usize| Some(u64::from(u32::from_be_bytes(*self.data.get(at..)?.first_chunk()?)));
        match kind {
            // Behind UDP (8 bytes) and the first word of the header.
            Type::Vxlan | Type::Geneve => word(12).map(|word| word >> 8),
            Type::Gtpu => word(12),
            // Behind the flags, and a checksum if there is one.
            Type::Gre | Type::Ip6gre => match self.data {
                [flags, ..] if flags & 0x20 == 0 => None,
                [flags, ..] => word(if flags & 0x80 == 0 { 4 } else { 8 }),
                [] => None,
            },
            Type::Erspan | Type::Ip6erspan => word(8).map(|word| word & 0x3ff),
            Type::Bareudp | Type::Srv6 => None,
        }
    }
}

fn of_icmp(packet: &[u8]) -> Result<TooBig<'_>, NotTooBig> {
    let (header, ip) = ipv4(packet).ok_or(NotTooBig::Malformed)?;
    let message = &packet[ip.start..ip.end];
    if ip.protocol != ICMP || ip.frag != Frag::No || message.get(..2) != Some(&FRAGMENTATION_NEEDED) {
        return Err(NotTooBig::Other);
    }
    if checksum(&packet[..ip.start]) != 0 || checksum(message) != 0 {
        return Err(NotTooBig::Checksum);
    }
    let (head, quoted) = message.split_first_chunk::<HEADER>().ok_or(NotTooBig::Malformed)?;
    let inner: &[u8; 20] = quoted.first_chunk().ok_or(NotTooBig::Malformed)?;
    let options = usize::from(inner[0] & 0xf) * 4;
    let data = quoted
        .get(options..)
        .filter(|_| inner[0] >> 4 == 4 && options >= inner.len());
    let data = data.filter(|data| data.len() >= 8).ok_or(NotTooBig::Malformed)?;
    let len = be16(inner, 2);
    let quoted = Quoted {
        src: ipv4_address(inner, 12).into(),
        dst: ipv4_address(inner, 16).into(),
        protocol: inner[9],
        len: len.into(),
        data,
    };
    if quoted.src != ipv4_address(header, 16) {
        return Err(NotTooBig::NotOurs);
    }
    let mtu = match be16(head, 6) {
        0 => PLATEAUS
            .into_iter()
            .find(|size| *size < len)
            .ok_or(NotTooBig::TooSmall)?,
        mtu => mtu.max(MIN_IPV4),
    };
    // Only a packet that must not be fragmented is too big, and no fragment is.
    let whole = be16(inner, 6) & 0x7fff == 0x4000;
    if mtu >= len || !whole {
        return Err(NotTooBig::Contradiction);
    }
    Ok(TooBig { mtu, quoted })
}

fn of_icmpv6(packet: &[u8]) -> Result<TooBig<'_>, NotTooBig> {
    let (header, chain) = ipv6(packet).ok_or(NotTooBig::Malformed)?;
    let Ipv6::Whole(ip) = chain else {
        return Err(NotTooBig::Malformed);
    };
    let message = packet.get(ip.start..ip.end).ok_or(NotTooBig::Malformed)?;
    if ip.protocol != ICMPV6 || ip.frag != Frag::No || message.first() != Some(&PACKET_TOO_BIG) {
        return Err(NotTooBig::Other);
    }
    let (source, destination) = (ipv6_address(header, 8), ipv6_address(header, 24));
    let pseudo = pseudo_ipv6(source, destination, ICMPV6, message.len() as u32);
    if pseudo.bytes(message).finish() != 0 {
        return Err(NotTooBig::Checksum);
    }
    let (head, quoted) = message.split_first_chunk::<HEADER>().ok_or(NotTooBig::Malformed)?;
    let (inner, data) = quoted.split_first_chunk::<40>().ok_or(NotTooBig::Malformed)?;
    if inner[0] >> 4 != 6 {
        return Err(NotTooBig::Malformed);
    }
    let quoted = Quoted {
        src: ipv6_address(inner, 8).into(),
        dst: ipv6_address(inner, 24).into(),
        protocol: inner[6],
        len: 40 + u32::from(be16(inner, 4)),
        data,
    };
    if quoted.src != destination {
        return Err(NotTooBig::NotOurs);
    }
    let [_, _, _, _, mtu @ ..] = *head;
    let mtu = u32::from_be_bytes(mtu);
    if mtu < u32::from(MIN_IPV6) {
        return Err(NotTooBig::TooSmall);
    }
    match u16::try_from(mtu) {
        Ok(mtu) if u32::from(mtu) < quoted.len => Ok(TooBig { mtu, quoted }),
        _ => Err(NotTooBig::Contradiction),
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

fn ipv4_address(header: &[u8; 20], at: usize) -> Ipv4Addr {
    let octets: [u8; 4] = header[at..].first_chunk().copied().unwrap_or_default();
    octets.into()
}

fn ipv6_address(header: &[u8; 40], at: usize) -> Ipv6Addr {
    let octets: [u8; 16] = header[at..].first_chunk().copied().unwrap_or_default();
    octets.into()
}
