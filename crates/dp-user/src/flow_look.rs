//! Header fields that schedulers use, and tunnels: a hash of the packet's flow, and its priority.
//!
//! Addresses, protocol and ports identify a flow. Behind VLAN tags, MPLS labels and backbone
//! headers, they are those of the packet inside; in IP in IP and GRE the outer and the inner
//! addresses count. VXLAN and Geneve have a hash of the flow in the outer source port. The ports of
//! fragments are ignored, the first fragment's too, so that fragments stay in order.
//!
//! The steps are those of [`wire::headers`], without its checks of lengths: a scheduler also sends
//! packets whose headers are wrong, and their flows must share its queues fairly.

use qos::Priority;
use std::hash::{BuildHasher, RandomState};
use wire::EtherType;
use wire::headers::{self, Frag, Ip, Ipv6};

/// A backbone service tag (802.1ah).
const BACKBONE: EtherType = EtherType(0x88e7);
/// The IPv6 fragment header.
const FRAGMENT: u8 = 44;

/// Secrets of one port, or of all tunnels, so that no sender can predict which flows share a queue.
pub(crate) struct FlowSecret([u64; 4]);

/// See the module's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) hash: u64,
    /// From 802.1p if the outermost tag has a priority other than 0, else from DSCP.
    pub(crate) priority: Priority,
}

impl Default for FlowSecret {
    fn default() -> FlowSecret {
        let random = RandomState::new();
        // Odd, so that a multiplication loses no bits.
        FlowSecret(std::array::from_fn(|n| random.hash_one(n) | 1))
    }
}

impl FlowSecret {
    /// Reads the headers of a packet.
    #[inline]
    pub(crate) fn look(&self, data: &[u8]) -> Look {
        self.look_plain(data).unwrap_or_else(|| self.walk(data))
    }

    /// The same of TCP or UDP over IPv4 without tags, options and fragments, whose fields have
    /// fixed places.
    #[inline]
    fn look_plain(&self, data: &[u8]) -> Option<Look> {
        let header: &[u8; 38] = data.first_chunk()?;
        // EtherType, version and header length, type of service; then the fragment's place, the
        // time to live and the protocol.
        let (front, back) = (word(header, 12)?, word(header, 20)?);
        let protocol = back & 0xff;
        if front >> 8 != 0x08_0045 || back >> 16 & 0x3fff != 0 || !matches!(protocol, 6 | 17) {
            return None;
        }
        let fields = [long(header, 26)?, protocol.into(), word(header, 34)?.into()];
        let steps = fields.into_iter().zip(self.0);
        let hash = steps.fold(self.0[3], |hash, (field, secret)| fold(hash ^ field, secret));
        Some(Look {
            hash: fold(hash, self.0[0]),
            priority: Priority::of_dscp(front as u8 >> 2),
        })
    }

    /// The same of any packet.
    fn walk(&self, data: &[u8]) -> Look {
        let mut walk = Walk {
            secret: self,
            hash: self.0[3],
            turn: 0,
            pcp: 0,
            tos: 0,
        };
        if walk.frame(data).is_none() {
            // The headers are cut short: the length goes into the hash instead.
            walk.add(data.len() as u64);
        }
        let priority = match walk.pcp {
            0 => Priority::of_dscp(walk.tos >> 2),
            pcp => Priority::of_pcp(pcp),
        };
        Look {
            hash: fold(walk.hash, self.0[0]),
            priority,
        }
    }
}

struct Walk<'a> {
    secret: &'a FlowSecret,
    hash: u64,
    turn: usize,
    pcp: u8,
    tos: u8,
}

impl Walk<'_> {
    #[inline]
    fn add(&mut self, value: u64) {
        self.hash = fold(self.hash ^ value, self.secret.0[self.turn % 4]);
        self.turn += 1;
    }

    fn frame(&mut self, mut data: &[u8]) -> Option<()> {
        let (mut kind, mut start) = headers::behind_tags(data, usize::MAX)?;
        if start > 14 || kind == BACKBONE {
            self.pcp = data.get(14)? >> 5;
        }
        while kind == BACKBONE {
            // The service's tag, and the customer's frame (802.1ah).
            data = data.get(start + 4..)?;
            (kind, start) = headers::behind_tags(data, usize::MAX)?;
        }
        let rest = data.get(start..)?;
        match kind {
            EtherType::MPLS | EtherType::MPLS_MULTICAST => self.labels(data, rest),
            EtherType::IPV4 => self.ipv4(rest, true),
            EtherType::IPV6 => self.ipv6(rest, true),
            _ => {
                self.add(kind.0.into());
                self.stations(data)
            }
        }
    }

    fn stations(&mut self, data: &[u8]) -> Option<()> {
        self.add(long(data, 0)?);
        self.add(word(data, 8)?.into());
        Some(())
    }

    fn labels(&mut self, data: &[u8], mut rest: &[u8]) -> Option<()> {
        loop {
            let entry = word(rest, 0)?;
            self.add(u64::from(entry >> 12));
            rest = &rest[4..];
            if entry & 0x100 != 0 {
                break;
            }
        }
        match rest.first()? >> 4 {
            4 => self.ipv4(rest, true),
            6 => self.ipv6(rest, true),
            _ => self.stations(data),
        }
    }

    /// `outer`: not inside another IP packet.
    fn ipv4(&mut self, data: &[u8], outer: bool) -> Option<()> {
        let (header, ip) = headers::ipv4_header(data)?;
        if outer {
            self.tos = header[1];
        }
        self.add(long(header, 12)?);
        self.transport(ip.protocol, ip, data, outer)
    }

    fn ipv6(&mut self, data: &[u8], outer: bool) -> Option<()> {
        let (header, ip) = headers::ipv6_header(data)?;
        if outer {
            self.tos = header[0] << 4 | header[1] >> 4;
        }
        for at in [8, 16, 24, 32] {
            self.add(long(header, at)?);
        }
        match ip {
            // Only the first fragment says what follows the other extension headers.
            Ipv6::Whole(ip) if ip.frag != Frag::No => self.transport(FRAGMENT, ip, data, outer),
            Ipv6::Whole(ip) => self.transport(ip.protocol, ip, data, outer),
            Ipv6::Cut => None,
        }
    }

    fn transport(&mut self, protocol: u8, ip: Ip, data: &[u8], outer: bool) -> Option<()> {
        self.add(protocol.into());
        if ip.frag != Frag::No {
            return Some(());
        }
        let rest = data.get(ip.start..);
        match protocol {
            // TCP, UDP, DCCP, SCTP, UDP-Lite: two ports. ESP: the number of the association.
            6 | 17 | 33 | 132 | 136 | 50 => self.add(word(rest?, 0)?.into()),
            4 if outer => return self.ipv4(rest?, false),
            41 if outer => return self.ipv6(rest?, false),
            47 if outer => {
                let header = word(rest?, 0)?;
                // The checksum, the key, the sequence number (RFC 2890 §2).
                let options = (header >> 16 & 0xb000).count_ones() as usize;
                let inner = rest?.get(4 + 4 * options..);
                match EtherType(header as u16) {
                    EtherType::IPV4 => return self.ipv4(inner?, false),
                    EtherType::IPV6 => return self.ipv6(inner?, false),
                    _ => {}
                }
            }
            _ => {}
        }
        Some(())
    }
}

#[inline]
fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn long(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

#[inline]
fn fold(value: u64, secret: u64) -> u64 {
    let product = u128::from(value ^ 0x9e37_79b9_7f4a_7c15) * u128::from(secret);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn udp(addresses: [u8; 2], ports: (u16, u16), tos: u8, payload: &[u8]) -> Vec<u8> {
        let ip = etherparse::Ipv4Header {
            source: [10, 0, 0, addresses[0]],
            destination: [10, 0, 0, addresses[1]],
            time_to_live: 64,
            dscp: etherparse::IpDscp::try_new(tos >> 2).unwrap(),
            protocol: etherparse::IpNumber::UDP,
            ..Default::default()
        };
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .udp(ports.0, ports.1);
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        packet
    }

    fn inside(packet: &[u8], header: &[u8]) -> Vec<u8> {
        [&packet[..12], header, &packet[12..]].concat()
    }

    #[test]
    fn packets_of_one_flow_have_one_hash_and_flows_have_their_own() {
        let secret = FlowSecret::default();
        let mut hashes = HashSet::new();
        for address in 0..20 {
            for port in 0..50 {
                let one = secret.look(&udp([address, 9], (port, 80), 0, b"first"));
                assert_eq!(
                    one.hash,
                    secret.look(&udp([address, 9], (port, 80), 0, b"another one")).hash
                );
                hashes.insert(one.hash);
            }
        }
        assert_eq!(hashes.len(), 1000);
        assert_ne!(
            FlowSecret::default().look(&udp([1, 2], (3, 4), 0, b"")),
            secret.look(&udp([1, 2], (3, 4), 0, b""))
        );
    }

    #[test]
    fn a_header_of_type_0x9100_is_no_vlan_tag() {
        let secret = FlowSecret::default();
        let look = |port| secret.look(&inside(&udp([1, 2], (port, 80), 0, b""), &[0x91, 0, 0xe0, 5]));
        assert_eq!(look(1), look(2), "what follows is not known to be IP");
        assert_eq!(look(1).priority, Priority::BEST_EFFORT);
    }

    #[test]
    fn tags_labels_and_backbone_headers_are_looked_through() {
        let secret = FlowSecret::default();
        let flow = |port| udp([1, 2], (port, 80), 0, b"payload");
        let backbone = [&[0x88, 0xe7, 0, 0, 0, 7][..], &[6; 12]].concat();
        for header in [&[0x81, 0, 0, 5][..], &[0x88, 0xa8, 0, 6, 0x81, 0, 0, 5], &backbone] {
            assert_eq!(secret.look(&inside(&flow(1), header)).hash, secret.look(&flow(1)).hash);
        }
        // The type of the packet is not there behind labels.
        let labelled = |port| {
            let packet = flow(port);
            [&packet[..12], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 0x11, 64], &packet[14..]].concat()
        };
        assert_eq!(secret.look(&labelled(1)), secret.look(&labelled(1)));
        assert_ne!(secret.look(&labelled(1)).hash, secret.look(&labelled(2)).hash);
    }

    #[test]
    fn a_tunnel_has_the_flows_that_are_in_it_and_fragments_stay_together() {
        let secret = FlowSecret::default();
        let tunnel = |port: u16, protocol: u8, gre: &[u8]| {
            let inner = udp([1, 2], (port, 80), 0, b"");
            let mut outer = udp([7, 8], (0, 0), 0, &[&inner[14..], &[0; 8]].concat());
            outer[23] = protocol;
            outer.truncate(34);
            [&outer[..], gre, &inner[14..]].concat()
        };
        for (protocol, gre) in [
            (4, &[][..]),
            (47, &[0, 0, 8, 0]),
            (47, &[0xa0, 0, 8, 0, 1, 2, 3, 4, 0, 0, 0, 9]),
        ] {
            assert_ne!(
                secret.look(&tunnel(1, protocol, gre)).hash,
                secret.look(&tunnel(2, protocol, gre)).hash
            );
        }
        let fragment = |port, offset: u16| {
            let mut packet = udp([1, 2], (port, 80), 0, b"");
            packet[20..22].copy_from_slice(&offset.to_be_bytes());
            secret.look(&packet).hash
        };
        assert_eq!(fragment(1, 0x2000), fragment(999, 100));
    }

    #[test]
    fn a_priority_is_the_outermost_tags_or_else_the_dscps() {
        let secret = FlowSecret::default();
        let priority = |packet: &[u8]| secret.look(packet).priority;
        let voice = udp([1, 2], (3, 4), 46 << 2, b"");
        assert_eq!(priority(&voice), Priority::INTERACTIVE);
        assert_eq!(priority(&inside(&voice, &[0x81, 0, 0, 5])), Priority::INTERACTIVE);
        assert_eq!(
            priority(&inside(&voice, &[0x88, 0xa8, 0x20, 5, 0x81, 0, 0xe0, 5])),
            Priority::BULK
        );
        assert_eq!(priority(&[0; 60]), Priority::BEST_EFFORT);
    }

    proptest! {
        #[test]
        fn plain_packets_are_what_the_walk_over_their_headers_says(
            ports in any::<(u16, u16)>(),
            tos: u8,
            damage in prop::collection::vec((12usize..42, any::<u8>()), 0..3),
            cut in prop::option::weighted(0.2, 0usize..50),
        ) {
            let mut data = udp([1, 2], ports, tos, b"payload");
            for (at, byte) in damage {
                data[at] = byte;
            }
            data.truncate(cut.unwrap_or(usize::MAX));
            let secret = FlowSecret::default();
            prop_assert_eq!(secret.look(&data), secret.walk(&data));
        }

        #[test]
        fn no_packet_makes_it_panic(mut data in prop::collection::vec(any::<u8>(), 0..100), kind in 0..6usize) {
            let kinds: [u16; 6] = [0x0800, 0x86dd, 0x8100, 0x8847, 0x88e7, 0];
            if data.len() > 13 && kinds[kind] != 0 {
                data[12..14].copy_from_slice(&kinds[kind].to_be_bytes());
            }
            FlowSecret::default().look(&data);
        }
    }
}
