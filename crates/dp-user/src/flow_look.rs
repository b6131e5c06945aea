//! Header fields that a scheduler uses: a hash of the packet's flow, and its priority.
//!
//! Addresses, protocol and ports identify a flow. Behind VLAN tags, MPLS labels and backbone
//! headers, they are those of the packet inside; in IP in IP and GRE the outer and the inner
//! addresses count. VXLAN and Geneve have a hash of the flow in the outer source port. The ports of
//! fragments are ignored, the first fragment's too, so that fragments stay in order.
//!
//! This walk is not that of `wire::headers`, which stops at labels and at tunnels, and refuses a
//! packet with a wrong length. A scheduler has to send such packets too, and their flows must share
//! its queues fairly.

use qos::Priority;
use std::hash::{BuildHasher, RandomState};
use wire::EtherType;

/// Secrets of one port, so that no sender can predict which flows share a queue.
pub(crate) struct FlowSecret([u64; 4]);

/// See the module's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) hash: u64,
    /// From 802.1p if the outermost tag has a priority other than 0, else from DSCP.
    pub(crate) priority: Priority,
}

impl FlowSecret {
    pub(crate) fn new() -> FlowSecret {
        let random = RandomState::new();
        // Odd, so that a multiplication loses no bits.
        FlowSecret(std::array::from_fn(|n| random.hash_one(n) | 1))
    }

    /// Reads the headers of a packet.
    pub(crate) fn look(&self, data: &[u8]) -> Look {
        let mut walk = Walk {
            data,
            secret: self,
            hash: self.0[3],
            turn: 0,
            pcp: 0,
            tos: 0,
        };
        if walk.ethernet(12).is_none() {
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
    data: &'a [u8],
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

    /// From an EtherType on.
    fn ethernet(&mut self, mut at: usize) -> Option<()> {
        let mut addresses = 0;
        let mut outermost = true;
        loop {
            let kind = self.word(at)?;
            let tag = *self.data.get(at + 2)?;
            match kind {
                tpid if EtherType(tpid).is_vlan() => at += 4,
                0x88e7 => {
                    addresses = at + 6;
                    at += 18;
                }
                0x8847 | 0x8848 => return self.labels(at + 2, addresses),
                0x0800 => return self.ipv4(at + 2, true, true),
                0x86dd => return self.ipv6(at + 2, true, true),
                _ => {
                    self.add(kind.into());
                    return self.stations(addresses);
                }
            }
            if std::mem::take(&mut outermost) {
                self.pcp = tag >> 5;
            }
        }
    }

    fn stations(&mut self, at: usize) -> Option<()> {
        let addresses: &[u8; 12] = self.data.get(at..)?.first_chunk()?;
        let part = |n: usize| u32::from_be_bytes([addresses[n], addresses[n + 1], addresses[n + 2], addresses[n + 3]]);
        self.add(u64::from(part(0)) << 32 | u64::from(part(4)));
        self.add(part(8).into());
        Some(())
    }

    fn labels(&mut self, mut at: usize, addresses: usize) -> Option<()> {
        loop {
            let entry = self.long(at)?;
            self.add(u64::from(entry >> 12));
            at += 4;
            if entry & 0x100 != 0 {
                break;
            }
        }
        match *self.data.get(at)? >> 4 {
            4 => self.ipv4(at, true, true),
            6 => self.ipv6(at, true, true),
            _ => self.stations(addresses),
        }
    }

    fn ipv4(&mut self, at: usize, outer: bool, tunnels: bool) -> Option<()> {
        let header: &[u8; 20] = self.data.get(at..)?.first_chunk()?;
        let (first, tos, protocol) = (header[0], header[1], header[9]);
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        if outer {
            self.tos = tos;
        }
        let addresses = u64::from(self.long(at + 12)?) << 32 | u64::from(self.long(at + 16)?);
        self.add(addresses);
        self.transport(protocol, at + usize::from(first & 0xf) * 4, fragment, tunnels)
    }

    fn ipv6(&mut self, at: usize, outer: bool, tunnels: bool) -> Option<()> {
        let header: &[u8; 40] = self.data.get(at..)?.first_chunk()?;
        if outer {
            self.tos = header[0] << 4 | header[1] >> 4;
        }
        let (mut protocol, mut next, mut fragment) = (header[6], at + 40, false);
        for word in 0..4 {
            let half = u64::from(self.long(at + 8 + word * 8)?) << 32 | u64::from(self.long(at + 12 + word * 8)?);
            self.add(half);
        }
        while matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            let (following, len) = (*self.data.get(next)?, usize::from(*self.data.get(next + 1)?));
            fragment |= protocol == 44;
            next += match protocol {
                44 => 8,
                51 => (len + 2) * 4,
                _ => (len + 1) * 8,
            };
            protocol = following;
            if fragment {
                break;
            }
        }
        self.transport(protocol, next, fragment, tunnels)
    }

    fn transport(&mut self, protocol: u8, at: usize, fragment: bool, tunnels: bool) -> Option<()> {
        self.add(protocol.into());
        match protocol {
            _ if fragment => {}
            // TCP, UDP, DCCP, SCTP, UDP-Lite: two ports. ESP: the number of the association.
            6 | 17 | 33 | 132 | 136 | 50 => {
                let ports = self.long(at)?;
                self.add(ports.into());
            }
            4 if tunnels => return self.ipv4(at, false, false),
            41 if tunnels => return self.ipv6(at, false, false),
            47 if tunnels => {
                let (flags, kind) = (self.word(at)?, self.word(at + 2)?);
                let options = [0x8000, 0x2000, 0x1000]
                    .iter()
                    .filter(|flag| flags & **flag != 0)
                    .count();
                let at = at + 4 + 4 * options;
                match kind {
                    0x0800 => return self.ipv4(at, false, false),
                    0x86dd => return self.ipv6(at, false, false),
                    _ => {}
                }
            }
            _ => {}
        }
        Some(())
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    #[inline]
    fn long(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.data.get(at..)?.first_chunk()?))
    }
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
        let secret = FlowSecret::new();
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
            FlowSecret::new().look(&udp([1, 2], (3, 4), 0, b"")),
            secret.look(&udp([1, 2], (3, 4), 0, b""))
        );
    }

    #[test]
    fn a_header_of_type_0x9100_is_no_vlan_tag() {
        let secret = FlowSecret::new();
        let look = |port| secret.look(&inside(&udp([1, 2], (port, 80), 0, b""), &[0x91, 0, 0xe0, 5]));
        assert_eq!(look(1), look(2), "what follows is not known to be IP");
        assert_eq!(look(1).priority, Priority::BEST_EFFORT);
    }

    #[test]
    fn tags_labels_and_backbone_headers_are_looked_through() {
        let secret = FlowSecret::new();
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
        let secret = FlowSecret::new();
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
        let secret = FlowSecret::new();
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
        fn no_packet_makes_it_panic(mut data in prop::collection::vec(any::<u8>(), 0..100), kind in 0..6usize) {
            let kinds: [u16; 6] = [0x0800, 0x86dd, 0x8100, 0x8847, 0x88e7, 0];
            if data.len() > 13 && kinds[kind] != 0 {
                data[12..14].copy_from_slice(&kinds[kind].to_be_bytes());
            }
            FlowSecret::new().look(&data);
        }
    }
}
