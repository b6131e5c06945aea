//! Packets of a tunnel with the same outer headers, which the kernel is given as one datagram with
//! UDP segmentation offload: the device cuts it, or the receiver where that is on this machine.
//!
//! The kernel makes the same packets of it, but each has a UDP checksum. Receivers accept that of
//! any tunnel over UDP (of VXLAN and Geneve by RFC 7348 §4.1 and RFC 8926 §3.3).

use crate::{Csum, Frame, Gso, Offload, vnet};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::EtherType;
use wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// Length of a UDP header.
const UDP: usize = 8;
/// The protocol number of UDP.
const PROTOCOL: u8 = 17;

/// Bytes of all payloads of one datagram at most.
const MOST: usize = 65_000;

/// The headers of a datagram that stands for several packets, behind its vnet header.
pub(super) struct Head {
    bytes: [u8; vnet::LEN + ETHERNET + 40 + UDP],
    len: usize,
}

impl Head {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Where the payload of each packet begins.
    pub(super) fn payload(&self) -> usize {
        self.len - vnet::LEN
    }

    /// The headers for so many packets like this one, of those that [`find`] has found.
    pub(super) fn of(packet: &[u8], count: usize) -> Option<Head> {
        let outer = Outer::find(packet)?;
        let (ip, udp) = (ETHERNET, outer.udp);
        let size = packet.len() - udp - UDP;
        let datagram = (UDP + size * count) as u16;
        let mut headers = [0; ETHERNET + 40 + UDP];
        let headers = &mut headers[..udp + UDP];
        headers.copy_from_slice(&packet[..udp + UDP]);
        let pseudo: Sum = if outer.ipv6 {
            headers[ip + 4..ip + 6].copy_from_slice(&datagram.to_be_bytes());
            let address = |at| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?));
            pseudo_ipv6(address(ip + 8)?, address(ip + 24)?, PROTOCOL, datagram.into())
        } else {
            headers[ip + 2..ip + 4].copy_from_slice(&((udp - ip) as u16 + datagram).to_be_bytes());
            headers[ip + 10..ip + 12].fill(0);
            let sum = checksum(&headers[ip..udp]);
            headers[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            let address = |at| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
            pseudo_ipv4(address(ip + 12)?, address(ip + 16)?, PROTOCOL, datagram.into())
        };
        headers[udp + 4..udp + 6].copy_from_slice(&datagram.to_be_bytes());
        headers[udp + 6..udp + 8].copy_from_slice(&pseudo.fold().to_be_bytes());
        let mut head = Head {
            bytes: [0; vnet::LEN + ETHERNET + 40 + UDP],
            len: vnet::LEN + headers.len(),
        };
        let work = Offload {
            csum: Csum::Partial {
                start: udp as u16,
                offset: 6,
            },
            gso: Gso::Udp,
            gso_size: size as u16,
            hdr_len: (udp + UDP) as u16,
            ..Offload::NONE
        };
        head.bytes[..vnet::LEN].copy_from_slice(&vnet::encode(&work));
        head.bytes[vnet::LEN..head.len].copy_from_slice(headers);
        Some(head)
    }
}

/// The outer headers of a packet.
#[derive(Clone, Copy)]
struct Outer {
    ipv6: bool,
    /// Where the UDP header begins.
    udp: usize,
}

impl Outer {
    /// `None` for other packets than whole datagrams with payload, right behind an IP header
    /// without options behind an Ethernet header without tags.
    fn find(packet: &[u8]) -> Option<Outer> {
        let kind = u16::from_be_bytes(*packet.get(12..)?.first_chunk()?);
        let ip = packet.get(ETHERNET..)?;
        let (ipv6, len, protocol) = match EtherType(kind) {
            EtherType::IPV4 if *ip.first()? == 0x45 && ip.get(6)? & 0x3f == 0 && *ip.get(7)? == 0 => {
                (false, 20, *ip.get(9)?)
            }
            EtherType::IPV6 => (true, 40, *ip.get(6)?),
            _ => return None,
        };
        let udp = ETHERNET + len;
        let datagram = u16::from_be_bytes(*packet.get(udp + 4..)?.first_chunk()?);
        let whole = protocol == PROTOCOL && usize::from(datagram) == packet.len() - udp;
        (whole && packet.len() > udp + UDP).then_some(Outer { ipv6, udp })
    }
}

/// The first packets of which at least three may be given to the kernel as one: which is the first,
/// and how many they are.
pub(super) fn find(frames: &[Frame]) -> Option<(usize, usize)> {
    let mut first = 0;
    while first + 2 < frames.len() {
        let run = run(&frames[first..]);
        if run > 2 {
            return Some((first, run));
        }
        first += run;
    }
    None
}

/// How many of the first packets the kernel may be given as one: encapsulated here, of the same
/// length, with the same outer headers and consecutive identifications of IPv4, as the kernel gives
/// them. Of any packet at least 1.
fn run(frames: &[Frame]) -> usize {
    let [first, rest @ ..] = frames else { return 0 };
    let data = first.data();
    if !first.offload.encapsulated {
        return 1;
    }
    let Some(outer) = Outer::find(data).filter(|_| first.offload == Offload::ENCAPSULATED) else {
        return 1;
    };
    let payload = data.len() - outer.udp - UDP;
    let id = |packet: &[u8]| u16::from_be_bytes([packet[ETHERNET + 4], packet[ETHERNET + 5]]);
    let next = |frame: &Frame, number: u16| {
        let other = frame.data();
        if frame.offload != Offload::ENCAPSULATED || other.len() != data.len() {
            return false;
        }
        // All but the checksum of UDP, and of IPv4 the identification and the checksum.
        let same = |from: usize, to: usize| other[from..to] == data[from..to];
        if outer.ipv6 {
            return same(0, outer.udp + 6);
        }
        same(0, ETHERNET + 4)
            && same(ETHERNET + 6, ETHERNET + 10)
            && same(ETHERNET + 12, outer.udp + 6)
            && id(other) == id(data).wrapping_add(number)
    };
    let most = (MOST / payload).saturating_sub(1);
    1 + rest
        .iter()
        .zip(1..)
        .take(most)
        .take_while(|(frame, number)| next(frame, *number))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso;
    use proptest::prelude::*;
    use testkit::{Packet, mac};

    /// A packet of a tunnel with this identification and payload.
    fn encapsulated(ipv6: bool, id: u16, payload: &[u8]) -> Frame {
        let packet = Packet::new(mac(1), mac(2));
        let packet = match ipv6 {
            false => packet.ipv4([172, 31, 0, 1].into(), [172, 31, 0, 2].into()),
            true => packet.ipv6(5.into(), 6.into()),
        };
        let mut bytes = packet.udp(0x8001, 4789, payload).bytes();
        if !ipv6 {
            bytes[18..20].copy_from_slice(&id.to_be_bytes());
            bytes[24..26].fill(0);
            let sum = testkit::checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let mut frame = Frame::from_slice(&bytes);
        frame.offload = Offload::ENCAPSULATED;
        frame
    }

    /// What the kernel makes of the first `count` packets.
    fn cut(frames: &[Frame], count: usize) -> Vec<Vec<u8>> {
        let head = Head::of(frames[0].data(), count).unwrap();
        let (vnet, headers) = head.as_bytes().split_at(vnet::LEN);
        let mut bytes = headers.to_vec();
        for frame in &frames[..count] {
            bytes.extend_from_slice(&frame.data()[head.payload()..]);
        }
        let mut long = Frame::from_slice(&bytes);
        long.offload = vnet::decode(vnet.first_chunk().unwrap()).unwrap();
        let parts = gso::segment(long).unwrap();
        parts.iter().map(|part| part.data().to_vec()).collect()
    }

    proptest! {
        #[test]
        fn the_kernel_makes_the_same_packets_of_it(
            ipv6 in any::<bool>(),
            id in any::<u16>(),
            sums in any::<bool>(),
            payloads in (1..1400_usize).prop_flat_map(|len| {
                prop::collection::vec(prop::collection::vec(any::<u8>(), len), 2..8)
            }),
        ) {
            let mut frames: Vec<Frame> = (0..).map(|n: u16| id.wrapping_add(n)).zip(&payloads)
                .map(|(id, payload)| encapsulated(ipv6, id, payload)).collect();
            let before: Vec<Vec<u8>> = frames.iter().map(|frame| frame.data().to_vec()).collect();
            let udp = if ipv6 { 54 } else { 34 };
            if !sums {
                for frame in &mut frames {
                    frame.data_mut()[udp + 6..udp + 8].fill(0);
                }
            }
            prop_assert_eq!(run(&frames), frames.len());
            prop_assert_eq!(cut(&frames, frames.len()), before);
        }

        /// Whatever changes in a packet, what leaves is still what was to leave.
        #[test]
        fn a_packet_that_is_not_alike_ends_the_run(
            ipv6 in any::<bool>(),
            at in 0..80_usize,
            value in any::<u8>(),
            cut_short in any::<bool>(),
        ) {
            let mut frames: Vec<Frame> = (7..11).map(|id| encapsulated(ipv6, id, &[9; 40])).collect();
            let data = frames[2].data_mut();
            let at = at.min(data.len() - 1);
            data[at] = value;
            if cut_short {
                frames[2].truncate(60);
            }
            let udp = if ipv6 { 54 } else { 34 };
            let count = run(&frames);
            let expected: Vec<Vec<u8>> = frames[..count].iter().map(|frame| frame.data().to_vec()).collect();
            if count > 1 {
                for (is, was) in cut(&frames, count).iter().zip(&expected) {
                    let apart = (0..was.len()).filter(|at| is[*at] != was[*at]);
                    let sums = |at: &usize| [udp + 6, udp + 7].contains(at) || !ipv6 && [24, 25].contains(at);
                    let apart: Vec<usize> = apart.filter(|at| !sums(at)).collect();
                    prop_assert_eq!(apart, Vec::<usize>::new());
                }
            }
        }
    }

    #[test]
    fn only_packets_that_were_encapsulated_here_are_joined() {
        let frames = || -> Vec<Frame> { (7..11).map(|id| encapsulated(false, id, &[9; 40])).collect() };
        assert_eq!(run(&frames()), 4);
        let mut other = frames();
        other[0].offload = Offload::NONE;
        assert_eq!(run(&other), 1);
        let mut other = frames();
        other[3].offload = Offload::NONE;
        assert_eq!(run(&other), 3);
        let mut other = frames();
        other.swap(1, 2);
        assert_eq!(run(&other), 1);
        assert_eq!(run(&[]), 0);
        let long: Vec<Frame> = (0..64).map(|id| encapsulated(false, id, &[9; 1400])).collect();
        assert_eq!(run(&long), MOST / 1400);
    }
}
