//! Cutting a large segment in software, for a device that does not.
//!
//! The result is that of a network card with TCP or UDP segmentation: each part has the headers
//! before it, with its own lengths, sequence number, IPv4 identification, flags and checksums. The
//! kernel's tunnels leave it to a device to cut the inner packet: then each part has the outer
//! headers too, with lengths and checksums of its own.

use crate::checksum::{self, ChecksumError};
use crate::{Csum, Frame, Gso, Offload};
use wire::EtherType;
use wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};
use wire::headers::behind_tags;

/// Why a frame could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The headers do not match the requested segmentation.
    #[error("the packet's headers do not match its segmentation")]
    Headers,
    /// The pending checksum lies outside of the packet.
    #[error(transparent)]
    Checksum(#[from] ChecksumError),
}

/// Cuts a frame into packets on which no work is pending. A frame without GSO gives itself, its
/// checksum filled in.
///
/// # Errors
/// See [`SegmentError`].
pub fn segment(frame: Frame) -> Result<Vec<Frame>, SegmentError> {
    let mut segments = Vec::with_capacity(segment_count(&frame));
    segment_into(frame, &mut segments)?;
    Ok(segments)
}

/// As [`segment`], but appends the packets to a vector.
///
/// # Errors
/// See [`SegmentError`]; nothing is appended then.
pub fn segment_into(mut frame: Frame, segments: &mut Vec<Frame>) -> Result<(), SegmentError> {
    if frame.offload.gso == Gso::None {
        checksum::fill(&mut frame)?;
        segments.push(frame);
        return Ok(());
    }
    let headers = Headers::find(frame.data(), &frame.offload).ok_or(SegmentError::Headers)?;
    let (head, payload) = frame.data().split_at(headers.payload);
    let size = usize::from(frame.offload.gso_size);
    let count = payload.len().div_ceil(size).max(1);
    for index in 0..count {
        let part = &payload[(index * size).min(payload.len())..((index + 1) * size).min(payload.len())];
        let mut segment = Frame::with_len(head.len() + part.len());
        let data = segment.data_mut();
        data[..head.len()].copy_from_slice(head);
        data[head.len()..].copy_from_slice(part);
        headers.rewrite(
            data,
            Place {
                index,
                size,
                last: index + 1 == count,
            },
        );
        segment.offload.csum = Csum::Valid;
        segment.meta = frame.meta.clone();
        segments.push(segment);
    }
    Ok(())
}

/// Number of packets a frame becomes on the wire.
pub fn segment_count(frame: &Frame) -> usize {
    if frame.offload.gso == Gso::None {
        return 1;
    }
    frame
        .len()
        .saturating_sub(header_len(frame))
        .div_ceil(usize::from(frame.offload.gso_size).max(1))
        .max(1)
}

/// The lengths of the longest and of the last packet that a frame makes on the wire.
pub fn wire_lengths(frame: &Frame) -> (usize, usize) {
    if frame.offload.gso == Gso::None {
        return (frame.len(), frame.len());
    }
    let headers = header_len(frame);
    let payload = frame.len().saturating_sub(headers);
    let size = usize::from(frame.offload.gso_size).max(1);
    let before_last = (segment_count(frame) - 1) * size;
    (headers + payload.min(size), headers + payload - before_last)
}

/// The length of the headers of each packet of a segment. The kernel's value is a hint that may be
/// too long.
pub fn header_len(frame: &Frame) -> usize {
    let hint = usize::from(frame.offload.hdr_len);
    let Csum::Partial { start, .. } = frame.offload.csum else {
        return hint;
    };
    let start = usize::from(start);
    match frame.offload.gso {
        Gso::Udp => start + 8,
        _ => match frame.data().get(start + 12) {
            Some(offset) if offset >> 4 >= 5 => start + usize::from(offset >> 4) * 4,
            _ => hint,
        },
    }
}

/// Offsets of a frame's headers. All were checked against the frame's length.
struct Headers {
    outer: Option<Outer>,
    ip: usize,
    version: Version,
    transport: usize,
    protocol: Protocol,
    payload: usize,
}

/// Outer headers of a tunnel.
#[derive(Clone, Copy)]
struct Outer {
    ip: usize,
    version: Version,
    /// Behind the IP header.
    end: usize,
    /// UDP is there, and not GRE or an inner IP header.
    udp: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

/// Which part of the whole a segment is.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    /// Payload bytes of each segment but the last.
    size: usize,
    last: bool,
}

const UDP: u8 = 17;
const GRE: u8 = 47;
/// IPv4 and IPv6 in IP.
const IP_IN_IP: [u8; 2] = [4, 41];
/// A GRE header with a checksum or a sequence number, which differ between packets.
const GRE_CHECKSUM_OR_SEQUENCE: u8 = 0x90;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

impl Headers {
    fn find(data: &[u8], offload: &Offload) -> Option<Headers> {
        if offload.gso_size == 0 {
            return None;
        }
        let (kind, first) = behind_tags(data, usize::MAX)?;
        let is_ip = match kind {
            EtherType::IPV4 => data.get(first)? >> 4 == 4,
            EtherType::IPV6 => data.get(first)? >> 4 == 6,
            _ => false,
        };
        let (version, plain, carries) = network(data, first).filter(|_| is_ip)?;
        // A pending checksum gives the offset of the transport header, behind any extension
        // headers.
        let transport = match offload.csum {
            Csum::Partial { start, .. } => usize::from(start),
            _ => plain,
        };
        let is_whole = version == Version::V6 || plain >= first + 20;
        let is_tunnel = is_whole
            && match carries {
                UDP => transport > plain,
                GRE => data.get(plain)? & GRE_CHECKSUM_OR_SEQUENCE == 0,
                carries => IP_IN_IP.contains(&carries),
            };
        let outer = is_tunnel.then_some(Outer {
            ip: first,
            version,
            end: plain,
            udp: carries == UDP,
        });
        let (ip, version) = match outer {
            Some(outer) => inner_network(data, outer, transport)?,
            None => (first, version),
        };
        let smallest = ip + if version == Version::V4 { 20 } else { 40 };
        if transport < smallest {
            return None;
        }
        let (protocol, payload) = match (offload.gso, version) {
            (Gso::Tcp4, Version::V4) | (Gso::Tcp6, Version::V6) => {
                let len = usize::from(data.get(transport + 12)? >> 4) * 4;
                (Protocol::Tcp, if len >= 20 { transport + len } else { return None })
            }
            (Gso::Udp, _) => (Protocol::Udp, transport + 8),
            _ => return None,
        };
        (payload <= data.len()).then_some(Headers {
            outer,
            ip,
            version,
            transport,
            protocol,
            payload,
        })
    }

    /// Changes the headers of the whole to those of one part.
    fn rewrite(&self, data: &mut [u8], place: Place) {
        let total = data.len();
        let len16 = |from: usize| ((total - from) as u16).to_be_bytes();
        rewrite_network(data, (self.ip, self.transport), self.version, place.index);
        let transport = &mut data[self.transport..];
        let field = match self.protocol {
            Protocol::Tcp => {
                let sequence = u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
                let sequence = sequence.wrapping_add((place.index * place.size) as u32);
                transport[4..8].copy_from_slice(&sequence.to_be_bytes());
                if place.index > 0 {
                    transport[13] &= !TCP_CWR;
                }
                if !place.last {
                    transport[13] &= !(TCP_FIN | TCP_PSH);
                }
                16..18
            }
            Protocol::Udp => {
                transport[4..6].copy_from_slice(&len16(self.transport));
                6..8
            }
        };
        transport[field.clone()].fill(0);
        let number = if self.protocol == Protocol::Tcp { 6 } else { UDP };
        let sum = pseudo_header(data, (self.ip, self.transport), self.version, number);
        let sum = sum.bytes(&data[self.transport..]);
        let sum = if self.protocol == Protocol::Udp {
            sum.finish_udp()
        } else {
            sum.finish()
        };
        data[self.transport..][field].copy_from_slice(&sum.to_be_bytes());
        if let Some(outer) = self.outer {
            outer.rewrite(data, place);
        }
    }
}

impl Outer {
    /// Changes the outer headers of the whole to those of one part, which is right inside.
    fn rewrite(&self, data: &mut [u8], place: Place) {
        let at = (self.ip, self.end);
        rewrite_network(data, at, self.version, place.index);
        if !self.udp {
            return;
        }
        let len = ((data.len() - self.end) as u16).to_be_bytes();
        let udp = &mut data[self.end..];
        udp[4..6].copy_from_slice(&len);
        // Zero is none.
        if udp[6..8] != [0; 2] {
            udp[6..8].fill(0);
            let sum = pseudo_header(data, at, self.version, UDP).bytes(&data[self.end..]);
            data[self.end..][6..8].copy_from_slice(&sum.finish_udp().to_be_bytes());
        }
    }
}

/// The version of the IP header at an offset, where it ends, and the protocol behind it.
fn network(data: &[u8], ip: usize) -> Option<(Version, usize, u8)> {
    let header = data.get(ip..)?;
    match header.first()? >> 4 {
        4 => Some((Version::V4, ip + usize::from(header[0] & 0xf) * 4, *header.get(9)?)),
        6 => Some((Version::V6, ip + 40, *header.get(6)?)),
        _ => None,
    }
}

/// The IP header before the transport header of a tunnel's inner packet, which ends with the whole.
/// How long the headers of the tunnel are is not known.
fn inner_network(data: &[u8], outer: Outer, transport: usize) -> Option<(usize, Version)> {
    let begins = outer.end + if outer.udp { 8 } else { 0 };
    let places = (20..=60).step_by(4).filter_map(|len| transport.checked_sub(len));
    let mut places = places.filter(|ip| *ip >= begins);
    places.find_map(|ip| {
        let (version, end, carries) = network(data, ip)?;
        let word = |at: usize| Some(usize::from(u16::from_be_bytes(*data.get(ip + at..)?.first_chunk()?)));
        let len = match version {
            Version::V4 => word(2)?,
            Version::V6 => 40 + word(4)?,
        };
        let is_here = end == transport && matches!(carries, 6 | UDP) && ip + len == data.len();
        is_here.then_some((ip, version))
    })
}

/// Changes the IP header between two offsets to that of one part.
fn rewrite_network(data: &mut [u8], (ip, end): (usize, usize), version: Version, index: usize) {
    let total = data.len();
    let len16 = |from: usize| ((total - from) as u16).to_be_bytes();
    let network = &mut data[ip..end];
    match version {
        Version::V4 => {
            network[2..4].copy_from_slice(&len16(ip));
            let id = u16::from_be_bytes([network[4], network[5]]).wrapping_add(index as u16);
            network[4..6].copy_from_slice(&id.to_be_bytes());
            network[10..12].fill(0);
            let sum = checksum(network);
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Version::V6 => network[4..6].copy_from_slice(&len16(ip + 40)),
    }
}

/// The pseudo header of what is behind the IP header between two offsets.
fn pseudo_header(data: &[u8], (ip, end): (usize, usize), version: Version, protocol: u8) -> Sum {
    let len = (data.len() - end) as u32;
    let network = &data[ip..];
    match version {
        Version::V4 => {
            let address = |at: usize| [network[at], network[at + 1], network[at + 2], network[at + 3]].into();
            pseudo_ipv4(address(12), address(16), protocol, len)
        }
        Version::V6 => {
            let mut addresses = [[0; 16]; 2];
            addresses[0].copy_from_slice(&network[8..24]);
            addresses[1].copy_from_slice(&network[24..40]);
            pseudo_ipv6(addresses[0].into(), addresses[1].into(), protocol, len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    struct Whole {
        v6: bool,
        tcp: bool,
        tags: usize,
        pending: bool,
        sequence: u32,
        payload: Vec<u8>,
        size: u16,
    }

    fn whole() -> impl Strategy<Value = Whole> {
        let payload = proptest::collection::vec(any::<u8>(), 0..9000);
        (
            any::<bool>(),
            any::<bool>(),
            0..3_usize,
            any::<bool>(),
            any::<u32>(),
            payload,
            1..3000_u16,
        )
            .prop_map(|(v6, tcp, tags, pending, sequence, payload, size)| Whole {
                v6,
                tcp,
                tags,
                pending,
                sequence,
                payload,
                size,
            })
    }

    /// The frame as a kernel hands it over.
    fn frame(whole: &Whole) -> Frame {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if whole.v6 {
            link.ipv6([1; 16], [9; 16], 64)
        } else {
            link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut packet = Vec::new();
        if whole.tcp {
            let tcp = ip.tcp(1, 2, whole.sequence, 1000).ack(7).psh().fin().cwr();
            tcp.write(&mut packet, &whole.payload).unwrap();
        } else {
            ip.udp(1, 2).write(&mut packet, &whole.payload).unwrap();
        }
        let transport = 14 + if whole.v6 { 40 } else { 20 };
        let header = if whole.tcp { 20 } else { 8 };
        let mut frame = Frame::from_slice(&packet);
        frame.offload = Offload {
            csum: if whole.pending {
                Csum::Partial {
                    start: transport,
                    offset: if whole.tcp { 16 } else { 6 },
                }
            } else {
                Csum::Unknown
            },
            gso: match (whole.tcp, whole.v6) {
                (true, false) => Gso::Tcp4,
                (true, true) => Gso::Tcp6,
                (false, _) => Gso::Udp,
            },
            ecn: true,
            gso_size: whole.size,
            hdr_len: transport + header,
            ..Offload::default()
        };
        for _ in 0..whole.tags {
            frame.push_vlan(wire::VlanTag { tpid: 0x8100, tci: 5 }).unwrap();
        }
        frame
    }

    proptest! {
        #[test]
        fn segments_have_right_headers_and_join_to_the_whole(whole in whole()) {
            let frame = frame(&whole);
            let expected = segment_count(&frame);
            let segments = segment(frame).unwrap();
            prop_assert_eq!(segments.len(), expected);
            let mut joined = Vec::new();
            for (index, segment) in segments.iter().enumerate() {
                let last = index + 1 == segments.len();
                let packet = SlicedPacket::from_ethernet(segment.data()).unwrap();
                prop_assert_eq!(packet.link_exts.len(), whole.tags);
                prop_assert_eq!(segment.offload, Offload { csum: Csum::Valid, ..Offload::default() });
                let payload = match (&packet.net, &packet.transport) {
                    (Some(NetSlice::Ipv4(ip)), Some(transport)) => {
                        let header = ip.header().to_header();
                        prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                        prop_assert_eq!(usize::from(header.identification), index);
                        match transport {
                            TransportSlice::Tcp(tcp) => {
                                let sum = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).unwrap();
                                prop_assert_eq!(tcp.checksum(), sum);
                                tcp.payload()
                            }
                            TransportSlice::Udp(udp) => {
                                let sum = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
                                prop_assert_eq!(udp.checksum(), sum);
                                prop_assert_eq!(usize::from(udp.length()), 8 + udp.payload().len());
                                udp.payload()
                            }
                            _ => panic!("neither TCP nor UDP"),
                        }
                    }
                    (Some(NetSlice::Ipv6(ip)), Some(transport)) => {
                        let header = ip.header().to_header();
                        match transport {
                            TransportSlice::Tcp(tcp) => {
                                let sum = tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()).unwrap();
                                prop_assert_eq!(tcp.checksum(), sum);
                                tcp.payload()
                            }
                            TransportSlice::Udp(udp) => {
                                let sum = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
                                prop_assert_eq!(udp.checksum(), sum);
                                udp.payload()
                            }
                            _ => panic!("neither TCP nor UDP"),
                        }
                    }
                    _ => panic!("no IP packet"),
                };
                if let Some(TransportSlice::Tcp(tcp)) = &packet.transport {
                    prop_assert_eq!(tcp.sequence_number(), whole.sequence.wrapping_add(joined.len() as u32));
                    prop_assert_eq!((tcp.fin(), tcp.psh(), tcp.cwr(), tcp.ack()), (last, last, index == 0, true));
                }
                prop_assert!(payload.len() == usize::from(whole.size) || last);
                joined.extend_from_slice(payload);
            }
            prop_assert_eq!(joined, whole.payload);
        }

        #[test]
        fn parts_of_an_inner_packet_have_outer_headers_of_their_own(
            mut whole in whole(),
            outer_v6: bool,
            tunnel in 0..4,
        ) {
            (whole.tags, whole.pending) = (0, true);
            let inner = frame(&whole);
            // VXLAN with and without a checksum of UDP, GRE with a key, and IP in IP.
            let (protocol, between) = match tunnel {
                0 | 1 => (UDP, 16),
                2 => (GRE, 8),
                _ => (if whole.v6 { 41 } else { 4 }, 0),
            };
            let inside = if tunnel < 3 { 0 } else { 14 };
            let inside = &inner.data()[inside..];
            let link = PacketBuilder::ethernet2([6; 6], [8; 6]);
            let ip = match outer_v6 {
                false => link.ipv4([172, 16, 0, 1], [172, 16, 0, 2], 64),
                true => link.ipv6([3; 16], [5; 16], 64),
            };
            let mut packet = Vec::new();
            let payload = [&vec![0; between][..], inside].concat();
            ip.write(&mut packet, etherparse::IpNumber(protocol), &payload).unwrap();
            let end = 14 + if outer_v6 { 40 } else { 20 };
            match tunnel {
                0 => packet[end..end + 8].copy_from_slice(&[1, 2, 3, 4, 0, 0, 9, 9]),
                1 => packet[end..end + 8].copy_from_slice(&[1, 2, 3, 4, 0, 0, 0, 0]),
                2 => packet[end..end + 8].copy_from_slice(&[0x20, 0, 0x65, 0x58, 1, 2, 3, 4]),
                _ => {}
            }
            let mut all = Frame::from_slice(&packet);
            all.offload = inner.offload;
            let moved = (packet.len() - inner.len()) as u16;
            if let Csum::Partial { start, .. } = &mut all.offload.csum {
                *start += moved;
            }
            all.offload.hdr_len += moved;
            let (expected, segments) = (segment(inner).unwrap(), segment(all).unwrap());
            prop_assert_eq!(segments.len(), expected.len());
            for (index, (inner, segment)) in expected.iter().zip(&segments).enumerate() {
                let data = segment.data();
                prop_assert_eq!(&data[end + between..], &inner.data()[if tunnel < 3 { 0 } else { 14 }..]);
                let word = |at: usize| usize::from(u16::from_be_bytes([data[at], data[at + 1]]));
                if outer_v6 {
                    prop_assert_eq!(word(18), data.len() - end);
                } else {
                    prop_assert_eq!((word(16), word(18)), (data.len() - 14, index));
                    prop_assert_eq!(checksum(&data[14..34]), 0);
                }
                if tunnel < 2 {
                    prop_assert_eq!(word(end + 4), data.len() - end);
                    let version = if outer_v6 { Version::V6 } else { Version::V4 };
                    let sum = pseudo_header(data, (14, end), version, UDP).bytes(&data[end..]).finish();
                    prop_assert_eq!(if tunnel == 0 { usize::from(sum) } else { word(end + 6) }, 0);
                }
            }
        }

        #[test]
        fn a_pending_checksum_is_filled_in_as_the_whole_packet_has_it(mut whole in whole()) {
            whole.tags = 1;
            let mut frame = frame(&whole);
            let right = frame.data().to_vec();
            frame.offload.gso = Gso::None;
            let transport = if whole.v6 { 58 } else { 38 };
            let offset = if whole.tcp { 16 } else { 6 };
            frame.offload.csum = Csum::Partial { start: transport, offset };
            let at = usize::from(transport + offset);
            let number = if whole.tcp { 6 } else { 17 };
            let len = (right.len() - usize::from(transport)) as u32;
            let pseudo = if whole.v6 {
                pseudo_ipv6([1; 16].into(), [9; 16].into(), number, len)
            } else {
                pseudo_ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), number, len)
            };
            frame.data_mut()[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
            let segments = segment(frame).unwrap();
            prop_assert_eq!(segments.len(), 1);
            prop_assert_eq!(segments[0].data(), &right[..]);
        }

        #[test]
        fn no_frame_makes_it_panic(
            packet in proptest::collection::vec(any::<u8>(), 0..120),
            start: u16, kind in 0..3, pending: bool, gso_size: u16,
            outer in prop::option::of((0..16_u8, prop::sample::select(vec![UDP, GRE, 4, 41]))),
        ) {
            let mut packet = packet;
            if packet.len() > 14 {
                packet[12..14].copy_from_slice(if kind == 0 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
                packet[14] = if kind == 0 { 0x60 } else { 0x45 };
            }
            if let Some((words, protocol)) = outer
                && packet.len() > 23
            {
                (packet[14], packet[20], packet[23]) = (packet[14] & 0xf0 | words, protocol, protocol);
            }
            let mut frame = Frame::from_slice(&packet);
            frame.offload.csum =
                if pending { Csum::Partial { start: start % 128, offset: 16 } } else { Csum::Unknown };
            frame.offload.gso = [Gso::Tcp6, Gso::Tcp4, Gso::Udp][kind as usize];
            frame.offload.gso_size = gso_size;
            let _ = segment(frame);
        }
    }

    #[test]
    fn a_segmentation_that_does_not_fit_the_headers_is_refused() {
        let whole = Whole {
            v6: false,
            tcp: true,
            tags: 0,
            pending: true,
            sequence: 0,
            payload: vec![0; 3000],
            size: 1000,
        };
        for change in [
            |frame: &mut Frame| frame.offload.gso = Gso::Tcp6,
            |frame: &mut Frame| frame.offload.gso_size = 0,
            // Not a known VLAN tag, and so the header behind it is unknown.
            |frame: &mut Frame| frame.push_vlan(wire::VlanTag { tpid: 0x9100, tci: 5 }).unwrap(),
        ] {
            let mut frame = frame(&whole);
            change(&mut frame);
            assert_eq!(segment(frame).err(), Some(SegmentError::Headers));
        }
    }
}
