//! Connections of offloaded flows, and the headers that their packets get.
//!
//! Packets of an established connection bypass the tracker ([`conntrack::Bypass`]). The flows of
//! both directions share the connection's number, and depend on its epoch. An offload
//! - gives packets with SYN, FIN or RST to the worker, whatever their numbers are;
//! - gives packets of TCP to the worker that the tracker would not take for ones of the connection
//!   by their numbers, unless that is switched off. It knows the same bounds as the tracker,
//!   advances them in the same way, and is told of those that the tracker sees;
//! - counts the others, and when the last one passed.
//!
//! It does not verify checksums of IPv4, TCP and UDP, as the tracker does: a packet with a wrong
//! one leaves with a wrong one, since they change by the difference, and its receiver drops it.

use super::kind::{PacketKind, READ};
use super::{MAX_CONNECTIONS, MAX_PORTS, OffloadTable, Refused};
use crate::SetField;
use conntrack::{Bypass, Checks, Numbers, Passed, Tuple};
use flow::Field;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// A connection of an offloaded flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConnection {
    /// Its number, below [`MAX_CONNECTIONS`].
    pub number: u32,
    /// Whether packets of the flow go in its reply direction.
    pub reply: bool,
    /// Of TCP, how the numbers of packets are checked.
    pub tcp: Option<Checks>,
}

impl FlowConnection {
    /// The epoch that the flow depends on.
    pub fn epoch(&self) -> u32 {
        epoch(self.number)
    }
}

/// The epoch of a connection.
pub const fn epoch(number: u32) -> u32 {
    MAX_PORTS + number
}

/// The first epoch that is not one of all flows, of a port or of a connection.
pub(super) const FREE_EPOCHS: u32 = epoch(MAX_CONNECTIONS);

impl OffloadTable {
    /// A number for a connection; `None` if there are too many.
    pub fn connection(&self) -> Option<u32> {
        let number = self.free_connections.lock().pop()?;
        self.offload.reset_connection(number);
        Some(number)
    }

    /// The value of a connection's epoch. It advances when the connection changes.
    pub fn connection_epoch(&self, number: u32) -> u64 {
        self.offload.epoch(epoch(number))
    }
}

impl Bypass for OffloadTable {
    fn passed(&self, number: u32) -> Passed {
        self.offload.passed(number)
    }

    fn note(&self, number: u32, numbers: [Numbers; 2]) {
        self.offload.note(number, numbers);
    }

    fn suspend(&self, number: u32) {
        self.offload.advance(epoch(number));
    }

    fn free(&self, number: u32) {
        let mut free = self.free_connections.lock();
        // A flow that was left to another process goes on with its number.
        if !self.is_left.load(Relaxed) {
            free.push(number);
        }
    }
}

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The headers that packets of a flow come with and those that they leave with, up to the ports, as
/// [`PacketKind::headers`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewHeaders {
    old: [u8; READ],
    new: [u8; READ],
    v6: bool,
}

impl NewHeaders {
    /// Those that packets of a kind come with.
    pub fn of(kind: &PacketKind) -> NewHeaders {
        let headers = *kind.headers();
        let v6 = headers[ETHERNET] >> 4 == 6;
        NewHeaders {
            old: headers,
            new: headers,
            v6,
        }
    }

    /// Whether they are of TCP or UDP: others do not change, and belong to no connection here.
    fn has_ports(&self) -> bool {
        matches!(self.protocol(), TCP | UDP)
    }

    /// Whether packets leave with others than they come with.
    pub fn differ(&self) -> bool {
        self.old != self.new
    }

    /// Those that packets come with.
    pub fn before(&self) -> &[u8; READ] {
        &self.old
    }

    /// Those that packets leave with.
    pub fn after(&self) -> &[u8; READ] {
        &self.new
    }

    /// Whether they are of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.v6
    }

    /// The IP protocol that packets leave with.
    pub fn protocol(&self) -> u8 {
        self.new[if self.v6 { ETHERNET + 6 } else { ETHERNET + 9 }]
    }

    /// Where both addresses are in the headers, the source first.
    pub fn addresses(&self) -> Range<usize> {
        match self.v6 {
            false => ETHERNET + 12..ETHERNET + 20,
            true => ETHERNET + 8..ETHERNET + 40,
        }
    }

    /// Where both ports are in the headers, the source first: they follow the addresses.
    pub fn ports(&self) -> Range<usize> {
        let start = self.addresses().end;
        start..start + 4
    }

    /// Where each address begins.
    fn each_address(&self) -> (usize, usize) {
        let both = self.addresses();
        (both.start, both.start + both.len() / 2)
    }

    /// The tuple that the tracker sees; `None` if they are not of TCP or UDP.
    pub fn tuple(&self) -> Option<Tuple> {
        if !self.has_ports() {
            return None;
        }
        let (src, dst) = self.each_address();
        let address = |at: usize| -> Option<IpAddr> {
            Some(match self.v6 {
                false => IpAddr::from(*self.new[at..].first_chunk::<4>()?),
                true => IpAddr::from(*self.new[at..].first_chunk::<16>()?),
            })
        };
        let ports = self.ports().start;
        let port = |at: usize| u16::from_be_bytes([self.new[at], self.new[at + 1]]);
        Tuple::new(
            address(src)?,
            address(dst)?,
            self.protocol(),
            port(ports),
            port(ports + 2),
        )
    }

    /// Sets addresses and ports.
    pub fn set_tuple(&mut self, tuple: &Tuple) {
        let (src, dst) = self.each_address();
        for (at, address) in [(src, tuple.src()), (dst, tuple.dst())] {
            match address {
                IpAddr::V4(address) => self.new[at..at + 4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => self.new[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        let ports = self.ports().start;
        self.new[ports..ports + 2].copy_from_slice(&tuple.src_port().to_be_bytes());
        self.new[ports + 2..ports + 4].copy_from_slice(&tuple.dst_port().to_be_bytes());
    }

    /// Sets a field: addresses of Ethernet and IP, ports, TTL, and the TOS of IPv4.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub fn set(&mut self, set: &SetField) -> Result<(), Refused> {
        if !self.has_ports() {
            return Err(Refused::Unsupported("set_field of another protocol"));
        }
        let (src, dst) = self.each_address();
        let ports = self.ports().start;
        let (at, len) = match (set.field(), self.v6) {
            (Field::EthDst, _) => (0, 6),
            (Field::EthSrc, _) => (6, 6),
            (Field::IpTos, false) => (ETHERNET + 1, 1),
            (Field::IpTtl, v6) => (ETHERNET + if v6 { 7 } else { 8 }, 1),
            (Field::Ipv4Src, false) => (src, 4),
            (Field::Ipv4Dst, false) => (dst, 4),
            (Field::Ipv6Src, true) => (src, 16),
            (Field::Ipv6Dst, true) => (dst, 16),
            (Field::TpSrc, _) => (ports, 2),
            (Field::TpDst, _) => (ports + 2, 2),
            _ => return Err(Refused::Unsupported("set_field of this field")),
        };
        let (value, mask) = (set.value(), set.mask());
        for n in 0..len {
            let shift = 8 * (len - 1 - n);
            let byte = &mut self.new[at + n];
            *byte = *byte & !((mask >> shift) as u8) | (value >> shift) as u8;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Key;
    use testkit::{Packet, mac};

    fn packets() -> [(Vec<u8>, bool); 2] {
        let v4 = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let v6 = Packet::new(mac(1), mac(2)).ipv6(1.into(), 2.into());
        [(v4, false), (v6, true)].map(|(packet, v6)| (packet.tcp(1000, 80, 0x10, b"x").bytes(), v6))
    }

    fn headers(packet: &[u8]) -> NewHeaders {
        NewHeaders::of(&PacketKind::of(1, packet).unwrap())
    }

    #[test]
    fn a_tuple_that_is_set_is_the_one_that_is_read() {
        for (packet, v6) in packets() {
            let mut headers = headers(&packet);
            let address = |n: u8| match v6 {
                false => IpAddr::from([10, 0, 0, n]),
                true => IpAddr::from([0, 0, 0, 0, 0, 0, 0, u16::from(n)]),
            };
            let tuple = |src, dst, port| Tuple::new(address(src), address(dst), 6, port, 80).unwrap();
            assert_eq!(headers.tuple(), Some(tuple(1, 2, 1000)));
            assert!(!headers.differ());
            headers.set_tuple(&tuple(3, 4, 7));
            assert_eq!(headers.tuple(), Some(tuple(3, 4, 7)));
            assert!(headers.differ());
            headers.set_tuple(&tuple(1, 2, 1000));
            assert!(!headers.differ());
        }
    }

    #[test]
    fn fields_are_set_where_a_key_reads_them() {
        for (packet, v6) in packets() {
            let key = |headers: &NewHeaders| -> Key {
                let mut packet = packet.clone();
                let changed = headers.old.iter().zip(&headers.new).enumerate();
                for (at, (_, new)) in changed.filter(|(_, (old, new))| old != new) {
                    packet[at] = *new;
                }
                flow::extract(&packet, &flow::PortNo(1).into()).unwrap()
            };
            for (field, value, mask) in [
                (Field::EthDst, 0x0203_0405_0607, u128::MAX),
                (Field::EthSrc, 0x0a, 0xff),
                (Field::IpTos, 0x4c, 0xfc),
                (Field::IpTtl, 63, 0xff),
                (Field::Ipv4Src, 0x0a01_0000, 0xffff_0000),
                (Field::Ipv6Dst, 7 << 64 | 9, u128::MAX),
                (Field::TpSrc, 7000, 0xffff),
                (Field::TpDst, 0x1200, 0xff00),
            ] {
                let mut headers = headers(&packet);
                let set = SetField::new(field, value, mask).unwrap();
                let fits = match field {
                    Field::Ipv4Src | Field::IpTos => !v6,
                    Field::Ipv6Dst => v6,
                    _ => true,
                };
                let mut expected = key(&headers);
                assert_eq!(headers.set(&set).is_ok(), fits, "{field:?}");
                if fits {
                    expected.set(field, expected.get(field) & !set.mask() | set.value());
                }
                assert_eq!(key(&headers).get(field), expected.get(field), "{field:?}");
            }
        }
    }
}
