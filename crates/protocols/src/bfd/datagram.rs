//! The frame around a control packet: UDP over IPv4 over Ethernet (RFC 5881 §4, §5).
//!
//! Only a frame whose time to live is 255 is accepted: a router in between would have lowered it,
//! so no one farther away can forge one (§5).

use super::wire::{LENGTH, Malformed, Packet};
use core::net::Ipv4Addr;
use wire::checksum::{checksum, pseudo_ipv4};
use wire::headers::{self, Frag};
use wire::{EtherType, MacAddr};

/// The UDP port of control packets over one hop (§4).
pub const PORT: u16 = 3784;
/// The addresses that Open vSwitch uses where nothing else is configured.
pub const DEFAULT_SOURCE: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// See [`DEFAULT_SOURCE`].
pub const DEFAULT_DESTINATION: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);
/// See [`DEFAULT_SOURCE`].
pub const DEFAULT_DESTINATION_MAC: MacAddr = MacAddr([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]);

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const TIME_TO_LIVE: u8 = 255;
/// Class selector 6, for network control (RFC 4594 §3.1).
const TRAFFIC_CLASS: u8 = 0xc0;
/// VLAN tags that a frame may have.
const TAGS: usize = 2;

/// Where a frame comes from and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Ethernet source.
    pub src_mac: MacAddr,
    /// Ethernet destination.
    pub dst_mac: MacAddr,
    /// IP source.
    pub src: Ipv4Addr,
    /// IP destination.
    pub dst: Ipv4Addr,
    /// UDP source port: 49152 to 65535 (§4).
    pub src_port: u16,
}

/// Why a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Cut short, a fragment, or not UDP over IPv4 to [`PORT`].
    NotBfd,
    /// A checksum is wrong.
    Checksum,
    /// It may come from behind a router.
    TimeToLive,
    /// The control packet is not well-formed.
    Packet(Malformed),
}

/// Reads a frame, from the Ethernet header on.
///
/// # Errors
/// Says which check failed.
pub fn parse(frame: &[u8]) -> Result<Packet, Refused> {
    let (kind, at) = headers::behind_tags(frame, TAGS).ok_or(Refused::NotBfd)?;
    let data = &frame[at..];
    let (header, ip) = headers::ipv4(data)
        .filter(|_| kind == EtherType::IPV4)
        .ok_or(Refused::NotBfd)?;
    if header[0] >> 4 != 4 || ip.protocol != UDP_PROTOCOL || ip.frag != Frag::No {
        return Err(Refused::NotBfd);
    }
    let body = &data[ip.start..ip.end];
    let &[_, _, dst_high, dst_low, len_high, len_low, sum_high, sum_low] =
        body.first_chunk::<UDP>().ok_or(Refused::NotBfd)?;
    let len = u16::from_be_bytes([len_high, len_low]);
    let datagram = body.get(..usize::from(len)).ok_or(Refused::NotBfd)?;
    if datagram.len() < UDP || u16::from_be_bytes([dst_high, dst_low]) != PORT {
        return Err(Refused::NotBfd);
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let (src, dst) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
    let sum = pseudo_ipv4(src, dst, UDP_PROTOCOL, len.into()).bytes(datagram);
    let has_sum = [sum_high, sum_low] != [0, 0];
    if checksum(&data[..ip.start]) != 0 || (has_sum && sum.finish() != 0) {
        return Err(Refused::Checksum);
    }
    if header[8] != TIME_TO_LIVE {
        return Err(Refused::TimeToLive);
    }
    Packet::parse(&datagram[UDP..]).map_err(Refused::Packet)
}

/// Writes a frame.
#[must_use]
pub fn emit(addresses: &Addresses, packet: &Packet) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + IPV4 + UDP + LENGTH);
    frame.extend(addresses.dst_mac.0);
    frame.extend(addresses.src_mac.0);
    frame.extend(EtherType::IPV4.0.to_be_bytes());

    let udp_len = (UDP + LENGTH) as u16;
    let mut ip = [0; IPV4];
    ip[0] = 0x45;
    ip[1] = TRAFFIC_CLASS;
    ip[2..4].copy_from_slice(&(IPV4 as u16 + udp_len).to_be_bytes());
    ip[8] = TIME_TO_LIVE;
    ip[9] = UDP_PROTOCOL;
    ip[12..16].copy_from_slice(&addresses.src.octets());
    ip[16..].copy_from_slice(&addresses.dst.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);

    let mut udp = [0; UDP];
    udp[..2].copy_from_slice(&addresses.src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    let payload = packet.to_bytes();
    let sum = pseudo_ipv4(addresses.src, addresses.dst, UDP_PROTOCOL, udp_len.into());
    let sum = sum.bytes(&udp).bytes(&payload).finish_udp();
    udp[6..].copy_from_slice(&sum.to_be_bytes());
    frame.extend(udp);
    frame.extend(payload);
    frame
}
