//! What packets of an offloaded flow have in common.

use super::InnerKind;
use flow::{Field, Key};
use wire::headers::{self, Frag, Ipv6};
use wire::{EtherType, VlanTag};

/// The kind of a packet: its ingress port, its tag, and its headers without the fields that differ
/// between packets of a flow. `flow::extract` reads the same of all packets of one kind, except
/// TCP's flags.
///
/// It is made of
/// - bytes 0 to 3: the kernel's number of the device that it came in by, in the machine's order;
/// - bytes 4 to 7, in the machine's order: its VLAN tag, the TCI in the low half and the TPID in
///   network order in the high half; 0 without one;
/// - from byte 8 on: its other headers up to the ports, or up to the ICMP type and code, with zeros
///   in the place of lengths, of an IPv4 header's identification and checksum, and of an ICMP
///   checksum; zeros behind them.
///
/// A packet of a tunnel that ends here has an [`InnerKind`] too: these are its outer headers then,
/// and the byte behind their ports is 1 if UDP has a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketKind {
    bytes: [u8; SIZE],
    inner: Option<InnerKind>,
}

/// Where the headers begin.
const HEADERS: usize = 8;
/// Bytes of the headers: Ethernet, IPv6, ports, and some that are zero.
pub(super) const READ: usize = 64;
const SIZE: usize = HEADERS + READ;
/// Where an IP header begins in the headers.
const IP: usize = 14;
/// Bytes of a VLAN tag.
const TAG: u32 = 4;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

impl PacketKind {
    /// Bytes of a kind.
    pub const SIZE: usize = SIZE;

    /// The kind of a packet with at most one tag that is TCP, UDP or ICMP over IPv4 without options
    /// or IPv6 without extension headers, whole, and not neighbour discovery; `None` for others.
    pub fn of(device: u32, packet: &[u8]) -> Option<PacketKind> {
        let mut key = [0; SIZE];
        key[..4].copy_from_slice(&device.to_ne_bytes());
        let (kind, at) = headers::behind_tags(packet, 1)?;
        if let [tpid_high, tpid_low, tci_high, tci_low] = packet[12..at - 2] {
            let tci = u16::from_be_bytes([tci_high, tci_low]);
            let tag = u32::from(tci) | u32::from(u16::from_ne_bytes([tpid_high, tpid_low])) << 16;
            key[4..HEADERS].copy_from_slice(&tag.to_ne_bytes());
        }
        read(key[HEADERS..].first_chunk_mut()?, packet, kind, at)?;
        Some(PacketKind {
            bytes: key,
            inner: None,
        })
    }

    /// The kind of a packet of a tunnel: these are its outer headers.
    pub(super) fn with(self, inner: InnerKind) -> PacketKind {
        PacketKind {
            inner: Some(inner),
            ..self
        }
    }

    /// Says that UDP has a checksum, of a tunnel's packet.
    pub(super) fn set_checksum(&mut self) {
        self.bytes[self.outer_ports() + 4] = 1;
    }

    /// Where the ports of the headers in its bytes are.
    fn outer_ports(&self) -> usize {
        match self.bytes[HEADERS + IP] >> 4 {
            4 => HEADERS + IP + 20,
            _ => HEADERS + IP + 40,
        }
    }

    /// What is inside, of a tunnel's packets.
    pub fn inner(&self) -> Option<&InnerKind> {
        self.inner.as_ref()
    }

    /// Whether what is inside of a tunnel's packets is of another version of IP.
    pub fn is_mixed(&self) -> bool {
        self.inner.is_some() && self.headers()[12..IP] != self.bytes[HEADERS + 12..HEADERS + IP]
    }

    /// The VLAN tag of its packets. What is inside of a tunnel's packets has none.
    pub fn tag(&self) -> Option<VlanTag> {
        self.outer_tag().filter(|_| self.inner.is_none())
    }

    /// The number of bytes before what is inside, of a tunnel's packets; 0 of others.
    pub fn outer_len(&self) -> u32 {
        let tag = if self.outer_tag().is_some() { TAG } else { 0 };
        self.inner.map_or(0, |inner| inner.start() + tag)
    }

    /// The UDP port that a tunnel's packets are sent to, in network order.
    pub fn outer_port(&self) -> [u8; 2] {
        let port = self.outer_ports() + 2;
        [self.bytes[port], self.bytes[port + 1]]
    }

    fn outer_tag(&self) -> Option<VlanTag> {
        let [a, b, c, d, ..] = self.bytes[4..] else { return None };
        let tag = u32::from_ne_bytes([a, b, c, d]);
        (tag != 0).then(|| VlanTag {
            tpid: u16::from_be((tag >> 16) as u16),
            tci: tag as u16,
        })
    }

    /// The headers that decide where its packets leave, without a tag: the inner ones of a tunnel's
    /// packets.
    pub fn headers(&self) -> &[u8; READ] {
        match &self.inner {
            Some(inner) => inner.headers(),
            None => self.bytes[HEADERS..].first_chunk().unwrap_or(&[0; READ]),
        }
    }

    /// The fields of its packets that identify a flow: addresses, EtherType, protocol, ports; the
    /// inner ones of a tunnel's packets.
    pub fn flow_key(&self) -> Key {
        let headers = self.headers();
        let number = |from: usize, len: usize| {
            let bytes = &headers[from..from + len];
            bytes.iter().fold(0u128, |number, byte| number << 8 | u128::from(*byte))
        };
        let mut key = Key::ZERO;
        key.set(Field::EthDst, number(0, 6));
        key.set(Field::EthSrc, number(6, 6));
        key.set(Field::EthType, number(12, 2));
        let ports = match headers[IP] >> 4 {
            4 => {
                key.set(Field::IpProto, number(IP + 9, 1));
                key.set(Field::Ipv4Src, number(IP + 12, 4));
                key.set(Field::Ipv4Dst, number(IP + 16, 4));
                IP + 20
            }
            _ => {
                key.set(Field::IpProto, number(IP + 6, 1));
                key.set(Field::Ipv6Src, number(IP + 8, 16));
                key.set(Field::Ipv6Dst, number(IP + 24, 16));
                IP + 40
            }
        };
        if matches!(key.get(Field::IpProto) as u8, TCP | UDP) {
            key.set(Field::TpSrc, number(ports, 2));
            key.set(Field::TpDst, number(ports + 2, 2));
        }
        key
    }

    /// Its bytes, without what is inside.
    pub fn bytes(&self) -> &[u8; SIZE] {
        &self.bytes
    }
}

/// Reads the headers of a packet, whose EtherType is `kind`, and which goes on at `at`.
pub(super) fn read(place: &mut [u8; READ], packet: &[u8], kind: EtherType, at: usize) -> Option<()> {
    place[..12].copy_from_slice(packet.get(..12)?);
    place[12..IP].copy_from_slice(&kind.0.to_be_bytes());
    match kind {
        EtherType::IPV4 => ipv4(&mut place[IP..], packet.get(at..)?),
        EtherType::IPV6 => ipv6(&mut place[IP..], packet.get(at..)?),
        _ => None,
    }
}

fn ipv4(headers: &mut [u8], packet: &[u8]) -> Option<()> {
    let (header, ip) = headers::ipv4(packet)?;
    if header[0] != 0x45 || ip.frag != Frag::No {
        return None;
    }
    let (place, rest) = headers.split_first_chunk_mut::<20>()?;
    *place = *header;
    place[2..8].fill(0);
    place[10..12].fill(0);
    transport(rest, ip.protocol, false, &packet[ip.start..ip.end])
}

fn ipv6(headers: &mut [u8], packet: &[u8]) -> Option<()> {
    let (header, Ipv6::Whole(ip)) = headers::ipv6(packet)? else {
        return None;
    };
    if ip.start != header.len() {
        return None;
    }
    let (place, rest) = headers.split_first_chunk_mut::<40>()?;
    *place = *header;
    place[4..6].fill(0);
    transport(rest, ip.protocol, true, &packet[ip.start..ip.end])
}

/// Ports, or the type and code of ICMP; of ICMPv6 only those of echo requests and replies.
fn transport(place: &mut [u8], protocol: u8, ipv6: bool, data: &[u8]) -> Option<()> {
    let len = match protocol {
        TCP | UDP => 4,
        ICMP if !ipv6 => 2,
        ICMPV6 if ipv6 && data.first()? & 0xfe == 128 => 2,
        _ => return None,
    };
    if !headers::is_whole(protocol, ipv6, data) {
        return None;
    }
    place[..len].copy_from_slice(&data[..len]);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BondTable;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use testkit::{Packet, mac};

    fn v4() -> Packet {
        Packet::new(mac(1), mac(2)).ipv4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }

    fn v6() -> Packet {
        let address = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
        Packet::new(mac(1), mac(2)).ipv6(address(1), address(2))
    }

    /// One packet of each protocol that can be offloaded.
    fn packets() -> Vec<Vec<u8>> {
        [v4, v6]
            .into_iter()
            .flat_map(|ip| {
                [
                    ip().udp(1000, 2000, b"some payload"),
                    ip().tcp(1000, 2000, 0x10, b"some payload"),
                    ip().echo(7, 1, b"some payload"),
                ]
            })
            .map(Packet::bytes)
            .collect()
    }

    #[test]
    fn what_cannot_be_offloaded_has_no_kind() {
        let fragment = |mut packet: Vec<u8>, at: usize, bits: u8| {
            packet[at] |= bits;
            packet
        };
        for packet in packets() {
            assert!(PacketKind::of(1, &packet).is_some(), "{packet:02x?}");
            assert!(PacketKind::of(1, &packet[..packet.len() - 1]).is_none(), "cut short");
        }
        let udp = packets().remove(0);
        assert!(PacketKind::of(1, &fragment(udp.clone(), 20, 0x20)).is_none());
        assert!(PacketKind::of(1, &fragment(udp.clone(), 21, 1)).is_none());
        assert!(
            PacketKind::of(1, &fragment(udp.clone(), 20, 0x40)).is_some(),
            "not to be cut is no fragment"
        );
        let twice = Packet::new(mac(1), mac(2)).tag(0x88a8, 5).vlan(6);
        let twice = twice.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).udp(1, 2, b"");
        assert!(PacketKind::of(1, &twice.bytes()).is_none());
        let mut solicitation = v6().echo(0, 0, &[0; 24]).bytes();
        solicitation[54] = 135;
        assert!(PacketKind::of(1, &solicitation).is_none());
    }

    #[test]
    fn a_kind_selects_the_member_of_a_bond_that_its_packets_select() {
        let table = BondTable {
            basis: 3,
            members: [None; crate::BOND_BUCKETS],
        };
        let mut buckets = std::collections::BTreeSet::new();
        for packet in packets() {
            let kind = PacketKind::of(1, &packet).unwrap();
            let key = flow::extract(&packet, &flow::PortNo(1).into()).unwrap();
            assert_eq!(table.bucket(&kind.flow_key()), table.bucket(&key), "{packet:02x?}");
            buckets.insert(table.bucket(&key));
        }
        assert!(buckets.len() > 3);
    }

    #[test]
    fn a_kind_has_the_device_and_the_tag_and_not_what_differs_within_a_flow() {
        let udp = v4().udp(1000, 2000, b"x").bytes();
        let longer = v4().udp(1000, 2000, b"another length and checksum").bytes();
        assert_eq!(PacketKind::of(1, &udp), PacketKind::of(1, &longer));
        assert_ne!(PacketKind::of(1, &udp), PacketKind::of(2, &udp));
        let tagged = |tpid, tci| {
            let packet = Packet::new(mac(1), mac(2)).tag(tpid, tci);
            let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let kind = PacketKind::of(1, &packet.udp(1000, 2000, b"x").bytes());
            assert_eq!(kind.and_then(|kind| kind.tag()), Some(VlanTag { tpid, tci }));
            kind
        };
        assert_eq!(PacketKind::of(1, &udp).and_then(|kind| kind.tag()), None);
        let keys = [(0x8100, 0), (0x8100, 5), (0x88a8, 5), (0x8100, 0x2005)].map(|(tpid, tci)| tagged(tpid, tci));
        for (n, key) in keys.iter().enumerate() {
            assert!(key.is_some() && *key != PacketKind::of(1, &udp));
            assert!(!keys[..n].contains(key));
        }
    }
}
