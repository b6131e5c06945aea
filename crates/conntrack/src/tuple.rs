//! Tuples: what identifies a direction of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol numbers (IANA).
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// Addresses, protocol and ports of a direction of a connection. Both addresses are of one family.
///
/// ICMP has an identifier in place of the source port, and type and code in place of the
/// destination port. Protocols other than TCP, UDP, SCTP and ICMP have ports of 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// IPv4: both addresses in the first word. IPv6: two words of each address, source first.
    addresses: [u64; 4],
    /// Source port in the high half, destination port in the low half.
    ports: u32,
    protocol: u8,
    v6: bool,
}

impl Tuple {
    /// A tuple; `None` if the addresses are of different families.
    pub fn new(src: IpAddr, dst: IpAddr, protocol: u8, src_port: u16, dst_port: u16) -> Option<Tuple> {
        let ports = u32::from(src_port) << 16 | u32::from(dst_port);
        let (addresses, v6) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (pack_v4(src.to_bits(), dst.to_bits()), false),
            (IpAddr::V6(src), IpAddr::V6(dst)) => (pack_v6(src.to_bits(), dst.to_bits()), true),
            _ => return None,
        };
        Some(Tuple {
            addresses,
            ports,
            protocol,
            v6,
        })
    }

    /// A tuple of ICMP or ICMPv6 by the family of the addresses; `None` if they differ in it.
    pub fn icmp(src: IpAddr, dst: IpAddr, id: u16, kind: u8, code: u8) -> Option<Tuple> {
        let protocol = if src.is_ipv6() { ICMPV6 } else { ICMP };
        Tuple::new(src, dst, protocol, id, u16::from_be_bytes([kind, code]))
    }

    /// A tuple of words as [`Tuple::addresses`] has them.
    #[inline]
    pub(crate) const fn from_words(addresses: [u64; 4], ports: u32, protocol: u8, v6: bool) -> Tuple {
        Tuple {
            addresses,
            ports,
            protocol,
            v6,
        }
    }

    /// Source address.
    pub fn src(&self) -> IpAddr {
        match self.v6 {
            false => Ipv4Addr::from_bits((self.addresses[0] >> 32) as u32).into(),
            true => Ipv6Addr::from_bits(join(self.addresses[0], self.addresses[1])).into(),
        }
    }

    /// Destination address.
    pub fn dst(&self) -> IpAddr {
        match self.v6 {
            false => Ipv4Addr::from_bits(self.addresses[0] as u32).into(),
            true => Ipv6Addr::from_bits(join(self.addresses[2], self.addresses[3])).into(),
        }
    }

    /// IP protocol.
    #[inline]
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Source port, or the identifier of ICMP.
    #[inline]
    pub const fn src_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// Destination port, or type and code of ICMP.
    #[inline]
    pub const fn dst_port(&self) -> u16 {
        self.ports as u16
    }

    /// Whether it is of IPv6.
    #[inline]
    pub const fn is_ipv6(&self) -> bool {
        self.v6
    }

    /// Whether it is of ICMP or ICMPv6.
    #[inline]
    pub const fn is_icmp(&self) -> bool {
        matches!((self.protocol, self.v6), (ICMP, false) | (ICMPV6, true))
    }

    /// Type and code of ICMP.
    pub const fn icmp_type_code(&self) -> (u8, u8) {
        ((self.ports >> 8) as u8, self.ports as u8)
    }

    /// The tuple of packets in the other direction.
    #[inline]
    #[must_use]
    pub const fn reverse(&self) -> Tuple {
        let [a, b, c, d] = self.addresses;
        let addresses = if self.v6 {
            [c, d, a, b]
        } else {
            [a.rotate_left(32), 0, 0, 0]
        };
        let ports = match self.is_icmp() {
            false => self.ports.rotate_left(16),
            true => {
                let (kind, _) = self.icmp_type_code();
                let other = other_type(self.v6, kind);
                self.ports & 0xffff_00ff | (other as u32) << 8
            }
        };
        Tuple {
            addresses,
            ports,
            protocol: self.protocol,
            v6: self.v6,
        }
    }

    /// The same with another source; `None` if the address is of the other family.
    pub(crate) fn with_src(&self, src: IpAddr, port: u16) -> Option<Tuple> {
        Tuple::new(src, self.dst(), self.protocol, port, self.dst_port())
    }

    /// The same with another destination; ICMP keeps type and code.
    pub(crate) fn with_dst(&self, dst: IpAddr, port: u16) -> Option<Tuple> {
        let port = if self.is_icmp() { self.dst_port() } else { port };
        Tuple::new(self.src(), dst, self.protocol, self.src_port(), port)
    }

    #[inline]
    pub(crate) const fn words(&self) -> (&[u64; 4], u32) {
        (&self.addresses, self.ports)
    }

    /// A hash that both directions of an untranslated connection share. The seeds are secret, since
    /// senders choose the tuples.
    #[inline]
    pub(crate) fn hash(&self, zone: u16, seeds: &[u64; 3]) -> u64 {
        let (src_port, dst_port) = match self.is_icmp() {
            false => (self.ports >> 16, self.ports & 0xffff),
            true => (self.ports >> 16, self.ports >> 16),
        };
        let [a, b, c, d] = self.addresses;
        let (src, dst) = match self.v6 {
            false => (
                (a >> 32) << 16 | u64::from(src_port),
                (a & 0xffff_ffff) << 16 | u64::from(dst_port),
            ),
            true => (
                fold(a ^ seeds[0], b ^ seeds[2] ^ u64::from(src_port)),
                fold(c ^ seeds[0], d ^ seeds[2] ^ u64::from(dst_port)),
            ),
        };
        let (low, high) = if src <= dst { (src, dst) } else { (dst, src) };
        let rest = u64::from(zone) << 8 | u64::from(self.protocol);
        let first = fold(low ^ seeds[0], high ^ seeds[1]);
        fold(first ^ seeds[2], rest ^ seeds[1].rotate_left(32))
    }
}

/// Type of the reply to a request of this type, and the reverse; other types are their own.
pub(crate) const fn other_type(v6: bool, kind: u8) -> u8 {
    match (v6, kind) {
        // Echo (RFC 792, RFC 4443 §4), timestamp, information.
        (false, 8) => 0,
        (false, 0) => 8,
        (false, 13) => 14,
        (false, 14) => 13,
        (false, 15) => 16,
        (false, 16) => 15,
        (true, 128) => 129,
        (true, 129) => 128,
        (_, kind) => kind,
    }
}

#[inline]
pub(crate) const fn pack_v4(src: u32, dst: u32) -> [u64; 4] {
    [(src as u64) << 32 | dst as u64, 0, 0, 0]
}

#[inline]
pub(crate) const fn pack_v6(src: u128, dst: u128) -> [u64; 4] {
    [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64]
}

const fn join(high: u64, low: u64) -> u128 {
    (high as u128) << 64 | low as u128
}

/// The two halves of a product, folded.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl fmt::Debug for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}:{}->{}:{}",
            self.protocol,
            self.src(),
            self.src_port(),
            self.dst(),
            self.dst_port()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_tuple() -> impl Strategy<Value = Tuple> {
        let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let protocol = prop_oneof![Just(TCP), Just(UDP), Just(SCTP), Just(ICMP), Just(ICMPV6), any::<u8>()];
        (prop_oneof![v4, v6], protocol, any::<u16>(), any::<u16>())
            .prop_map(|((src, dst), protocol, a, b)| Tuple::new(src, dst, protocol, a, b).unwrap())
    }

    proptest! {
        #[test]
        fn the_reverse_of_the_reverse_is_the_tuple_and_both_have_one_hash(tuple in any_tuple(), zone: u16, seeds: [u64; 3]) {
            prop_assert_eq!(tuple.reverse().reverse(), tuple);
            prop_assert_eq!(tuple.reverse().hash(zone, &seeds), tuple.hash(zone, &seeds));
            prop_assert_eq!((tuple.reverse().src(), tuple.reverse().dst()), (tuple.dst(), tuple.src()));
        }
    }

    #[test]
    fn hashes_of_neighbouring_tuples_spread_over_all_bits() {
        let seeds = [0x1234_5678_9abc_def1, 0x2468_ace0_1357_9bdf, 0x0f1e_2d3c_4b5a_6978];
        let mut ones = [0u32; 64];
        for n in 0..4096u32 {
            let src = Ipv4Addr::from_bits(0x0a00_0000 | n);
            let tuple = Tuple::new(src.into(), Ipv4Addr::LOCALHOST.into(), UDP, 1, 2).unwrap();
            let hash = tuple.hash(0, &seeds);
            ones.iter_mut()
                .enumerate()
                .for_each(|(bit, count)| *count += (hash >> bit & 1) as u32);
        }
        assert!(ones.iter().all(|count| (1700..2400).contains(count)), "{ones:?}");
    }
}
