//! Frames for tests, written independently of the product's own codec.
//!
//! A frame is built from the outside in:
//! `Packet::new(src, dst).vlan(10).ipv4(a, b).udp(1, 2, b"x").bytes()`. Lengths and checksums are
//! filled in as layers are added.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A frame under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    bytes: Vec<u8>,
    /// Where the EtherType of the next layer goes.
    ether_type: usize,
    ip: Option<Ip>,
}

/// Where the IP header lies, and the sum of its pseudo header's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ip {
    V4 { at: usize },
    V6 { at: usize },
}

/// ARP operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArpOp {
    /// Who has this address?
    Request,
    /// I have.
    Reply,
}

impl Packet {
    /// An Ethernet header; its EtherType is 0 until a layer follows.
    pub fn new(src: [u8; 6], dst: [u8; 6]) -> Packet {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(dst);
        bytes.extend(src);
        bytes.extend([0, 0]);
        Packet {
            bytes,
            ether_type: 12,
            ip: None,
        }
    }

    /// An 802.1Q tag of `vid`, priority 0.
    pub fn vlan(self, vid: u16) -> Packet {
        self.tag(0x8100, vid)
    }

    /// A tag: `tpid` 0x8100 or 0x88a8, `tci` priority (3 bits), DEI, VLAN id (12 bits).
    pub fn tag(mut self, tpid: u16, tci: u16) -> Packet {
        self.set_ether_type(tpid);
        self.bytes.extend(tci.to_be_bytes());
        self.ether_type = self.bytes.len();
        self.bytes.extend([0, 0]);
        self
    }

    /// Any EtherType (or 802.3 length) and what follows it.
    pub fn payload(mut self, ether_type: u16, payload: &[u8]) -> Packet {
        self.set_ether_type(ether_type);
        self.bytes.extend(payload);
        self
    }

    /// ARP for IPv4 over Ethernet; the sender's MAC address is the frame's source, the target's its
    /// destination (zero when broadcast).
    pub fn arp(mut self, op: ArpOp, sender: Ipv4Addr, target: Ipv4Addr) -> Packet {
        self.set_ether_type(0x0806);
        let (dst, src): ([u8; 6], [u8; 6]) = match self.bytes.first_chunk::<12>() {
            Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) => ([a, b, c, d, e, f], [g, h, i, j, k, l]),
            None => ([0; 6], [0; 6]),
        };
        let target_mac = if dst == [0xff; 6] { [0; 6] } else { dst };
        self.bytes.extend([0, 1, 8, 0, 6, 4, 0]);
        self.bytes.push(if op == ArpOp::Request { 1 } else { 2 });
        self.bytes.extend(src);
        self.bytes.extend(sender.octets());
        self.bytes.extend(target_mac);
        self.bytes.extend(target.octets());
        self
    }

    /// An IPv4 header, TTL 64, protocol 0 until a transport follows.
    pub fn ipv4(mut self, src: Ipv4Addr, dst: Ipv4Addr) -> Packet {
        self.set_ether_type(0x0800);
        self.ip = Some(Ip::V4 { at: self.bytes.len() });
        self.bytes.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 0, 0, 0]);
        self.bytes.extend(src.octets());
        self.bytes.extend(dst.octets());
        self.finish_ip(0);
        self
    }

    /// An IPv6 header, hop limit 64, next header 59 (none) until a transport follows.
    pub fn ipv6(mut self, src: Ipv6Addr, dst: Ipv6Addr) -> Packet {
        self.set_ether_type(0x86dd);
        self.ip = Some(Ip::V6 { at: self.bytes.len() });
        self.bytes.extend([0x60, 0, 0, 0, 0, 0, 59, 64]);
        self.bytes.extend(src.octets());
        self.bytes.extend(dst.octets());
        self
    }

    /// UDP.
    pub fn udp(self, sport: u16, dport: u16, payload: &[u8]) -> Packet {
        let len = 8 + payload.len() as u16;
        let mut l4 = Vec::with_capacity(usize::from(len));
        l4.extend(sport.to_be_bytes());
        l4.extend(dport.to_be_bytes());
        l4.extend(len.to_be_bytes());
        l4.extend([0, 0]);
        l4.extend(payload);
        self.transport(17, l4, Some(6))
    }

    /// TCP without options; `flags` as in the header's byte 13 (SYN 2, ACK 16, …).
    pub fn tcp(self, sport: u16, dport: u16, flags: u8, payload: &[u8]) -> Packet {
        self.tcp_at(sport, dport, flags, (1, 0), payload)
    }

    /// The same with a sequence number and an acknowledged one.
    pub fn tcp_at(self, sport: u16, dport: u16, flags: u8, (seq, ack): (u32, u32), payload: &[u8]) -> Packet {
        let mut l4 = Vec::with_capacity(20 + payload.len());
        l4.extend(sport.to_be_bytes());
        l4.extend(dport.to_be_bytes());
        l4.extend(seq.to_be_bytes());
        l4.extend(ack.to_be_bytes());
        l4.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        l4.extend(payload);
        self.transport(6, l4, Some(16))
    }

    /// SCTP; its checksum, a CRC32c, is 0.
    pub fn sctp(self, sport: u16, dport: u16, payload: &[u8]) -> Packet {
        let mut l4 = Vec::with_capacity(12 + payload.len());
        l4.extend(sport.to_be_bytes());
        l4.extend(dport.to_be_bytes());
        l4.extend([0; 8]);
        l4.extend(payload);
        self.transport(132, l4, None)
    }

    /// Any protocol behind the IP header.
    pub fn protocol(self, protocol: u8, payload: &[u8]) -> Packet {
        self.transport(protocol, payload.to_vec(), None)
    }

    /// An ICMP or ICMPv6 echo request.
    pub fn echo(self, id: u16, seq: u16, payload: &[u8]) -> Packet {
        let v6 = matches!(self.ip, Some(Ip::V6 { .. }));
        let mut l4 = vec![if v6 { 128 } else { 8 }, 0, 0, 0];
        l4.extend(id.to_be_bytes());
        l4.extend(seq.to_be_bytes());
        l4.extend(payload);
        self.transport(if v6 { 58 } else { 1 }, l4, Some(2))
    }

    /// Zeroes up to the 60 bytes that an Ethernet frame has at least (without its check sequence).
    pub fn padded(mut self) -> Packet {
        if self.bytes.len() < 60 {
            self.bytes.resize(60, 0);
        }
        self
    }

    /// The frame.
    pub fn bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The frame as hexadecimal digits, as `netdev-dummy/receive` takes it.
    pub fn hex(&self) -> String {
        to_hex(&self.bytes)
    }

    fn set_ether_type(&mut self, ether_type: u16) {
        self.bytes[self.ether_type..self.ether_type + 2].copy_from_slice(&ether_type.to_be_bytes());
    }

    /// Adds a transport's bytes, with its checksum at `sum_at`.
    fn transport(mut self, protocol: u8, mut l4: Vec<u8>, sum_at: Option<usize>) -> Packet {
        let ip = self.ip.expect("a transport needs an IP header before it");
        let mut pseudo = match ip {
            Ip::V4 { at } => self.bytes[at + 12..at + 20].to_vec(),
            Ip::V6 { at } => self.bytes[at + 8..at + 40].to_vec(),
        };
        pseudo.extend([0, protocol]);
        pseudo.extend((l4.len() as u16).to_be_bytes());
        if matches!(ip, Ip::V4 { .. }) && protocol == 1 {
            pseudo.clear();
        }
        if let Some(at) = sum_at {
            pseudo.extend(&l4);
            let sum = match checksum(&pseudo) {
                0 if protocol == 17 => 0xffff,
                sum => sum,
            };
            l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        self.bytes.extend(l4);
        self.finish_ip(protocol);
        self
    }

    /// Fills in the IP header's protocol, length and checksum.
    fn finish_ip(&mut self, protocol: u8) {
        match self.ip {
            Some(Ip::V4 { at }) => {
                let len = (self.bytes.len() - at) as u16;
                let header = &mut self.bytes[at..at + 20];
                header[9] = protocol;
                header[2..4].copy_from_slice(&len.to_be_bytes());
                header[10..12].fill(0);
                let sum = checksum(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Some(Ip::V6 { at }) => {
                let len = (self.bytes.len() - at - 40) as u16;
                self.bytes[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
                self.bytes[at + 6] = protocol;
            }
            None => {}
        }
    }
}

/// The Internet checksum of `bytes` (RFC 1071).
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A locally administered MAC address, the same for the same number.
pub fn mac(n: u32) -> [u8; 6] {
    let [a, b, c, d] = n.to_be_bytes();
    [0x02, 0x00, a, b, c, d]
}

/// The source address of a frame, as `ip` prints addresses.
pub fn source_of(frame: &[u8]) -> String {
    frame[6..12]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(":")
}

/// Bytes as hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Hexadecimal digits as bytes; blanks and colons between them are passed over.
///
/// # Panics
/// On anything else, or half a byte.
#[track_caller]
pub fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).unwrap_or_else(|| panic!("'{c}' in {text}")))
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte in {text}");
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagged_datagram_has_lengths_and_checksums_that_add_up() {
        let a = Ipv4Addr::new(10, 0, 0, 1);
        let b = Ipv4Addr::new(10, 0, 0, 2);
        let frame = Packet::new(mac(1), mac(2))
            .vlan(10)
            .ipv4(a, b)
            .udp(1000, 2000, b"hello")
            .bytes();
        assert_eq!(to_hex(&frame[12..18]), "8100000a0800");
        assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
        assert_eq!(checksum(&frame[18..38]), 0);
        let mut pseudo = frame[30..38].to_vec();
        pseudo.extend([0, 17, 0, 13]);
        pseudo.extend(&frame[38..]);
        assert_eq!(checksum(&pseudo), 0);
    }

    #[test]
    fn an_arp_request_asks_for_an_address_nobody_is_known_to_have() {
        let a = Ipv4Addr::new(192, 168, 0, 150);
        let b = Ipv4Addr::new(192, 168, 0, 152);
        let frame = Packet::new(mac(1), [0xff; 6]).arp(ArpOp::Request, a, b).padded();
        assert_eq!(
            frame.hex()[..84],
            *"ffffffffffff020000000001080600010800060400010200\
              00000001c0a80096000000000000c0a80098"
        );
        assert_eq!(from_hex(&frame.hex()), frame.bytes());
    }
}
