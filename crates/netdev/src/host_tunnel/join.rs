//! Packets inside of tunnels: segments of one TCP connection become one large segment, and packets
//! that a tunnel device on this machine has left unfinished become frames with pending work.
//!
//! Only what can be undone is joined, by the rules of the kernel's receive offload: the segments
//! have the same headers but for sequence numbers, lengths and identifications, they follow each
//! other without a gap, are of the same size but for the last, and their checksums are right.

use super::rx::ETHERNET;
use crate::{Csum, Frame, Gso};
use std::ops::Range;
use tunnel::format::{Checksums, Format, Inner, decapsulate};
use wire::EtherType;
use wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};
use wire::headers::behind_tags;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Flags of TCP.
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
/// VLAN tags behind which an IP header is looked for.
const TAGS: usize = 2;

/// The size of packets that every link carries (RFC 8200 §5). A segment that came whole from a
/// device on this machine does not tell the size of its parts.
const EVERY_LINK: usize = 1280;

/// Where the headers inside a datagram are, from the datagram's data on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    ip: usize,
    ipv6: bool,
    protocol: u8,
    transport: usize,
    /// Where the tunnel's header has the length of what is behind it, and how long it is: GTP-U's.
    length: Option<(Range<usize>, usize)>,
}

/// GTP-U's (3GPP TS 29.281 §5.1).
const GTPU_LENGTH: (Range<usize>, usize) = (2..4, 8);

impl Layout {
    /// Reads a packet with its outer headers, of which `before` bytes are not the datagram's data.
    /// `None` where it does not carry TCP or UDP directly behind IP, in a whole packet.
    pub(super) fn find(format: Format, packet: &[u8], before: usize) -> Option<Layout> {
        let outer = decapsulate(format, packet, Checksums::Good).ok()?;
        let start = outer.start.checked_sub(before)?;
        let inner = packet.get(outer.start..outer.end)?;
        let (kind, ip) = match outer.inner {
            Inner::Ethernet => behind_tags(inner, TAGS)?,
            Inner::Packet(kind) => (kind, 0),
            Inner::Message => return None,
        };
        let header = inner.get(ip..)?;
        let (ipv6, protocol, len, total) = match kind {
            EtherType::IPV4 if *header.first()? == 0x45 => {
                // No fragments.
                if be16(header, 6)? & 0x3fff != 0 {
                    return None;
                }
                (false, *header.get(9)?, 20, usize::from(be16(header, 2)?))
            }
            EtherType::IPV6 if header.first()? >> 4 == 6 => {
                (true, *header.get(6)?, 40, 40 + usize::from(be16(header, 4)?))
            }
            _ => return None,
        };
        let least = match protocol {
            TCP => 20,
            UDP => 8,
            _ => return None,
        };
        if total != header.len() || total < len + least || outer.end != packet.len() {
            return None;
        }
        Some(Layout {
            ip: start + ip,
            ipv6,
            protocol,
            transport: start + ip + len,
            length: (format == Format::Gtpu).then_some(GTPU_LENGTH),
        })
    }

    /// The sum of the pseudo header of a packet.
    fn pseudo(&self, packet: &[u8]) -> Option<Sum> {
        let len = u32::try_from(packet.len() - self.transport).ok()?;
        let header = packet.get(self.ip..)?;
        Some(if self.ipv6 {
            let address = |at: usize| header.get(at..)?.first_chunk::<16>();
            pseudo_ipv6((*address(8)?).into(), (*address(24)?).into(), self.protocol, len)
        } else {
            let address = |at: usize| header.get(at..)?.first_chunk::<4>();
            pseudo_ipv4((*address(12)?).into(), (*address(16)?).into(), self.protocol, len)
        })
    }

    /// Where the checksum is, from the transport header on.
    fn checksum_at(&self) -> usize {
        if self.protocol == TCP { 16 } else { 6 }
    }

    /// The segment of TCP in a datagram, if it may be joined with others.
    fn segment(&self, datagram: &[u8]) -> Option<Segment> {
        if self.protocol != TCP {
            return None;
        }
        let tcp = datagram.get(self.transport..)?;
        let header = usize::from(*tcp.get(12)? >> 4) * 4;
        if header < 20 || tcp.len() <= header || tcp[13] & !PSH != ACK {
            return None;
        }
        let ip = datagram.get(self.ip..self.transport)?;
        let total = match self.ipv6 {
            false => usize::from(be16(ip, 2)?),
            true => 40 + usize::from(be16(ip, 4)?),
        };
        if total != datagram.len() - self.ip || !self.ipv6 && checksum(ip) != 0 {
            return None;
        }
        if self.pseudo(datagram)?.bytes(tcp).finish() != 0 {
            return None;
        }
        Some(Segment {
            headers: self.transport + header,
            sequence: u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?),
            payload: tcp.len() - header,
            push: tcp[13] & PSH != 0,
        })
    }

    /// Whether two datagrams have the same headers, but for what differs between the segments of a
    /// connection.
    fn alike(&self, one: &[u8], other: &[u8], headers: usize) -> bool {
        let same = |range: Range<usize>| one.get(range.clone()).is_some_and(|a| other.get(range) == Some(a));
        let (ip, tcp) = (self.ip, self.transport);
        let ip_same = if self.ipv6 {
            // All but the length.
            same(ip..ip + 4) && same(ip + 6..tcp)
        } else {
            // All but the length, the identification and the checksum.
            same(ip..ip + 2) && same(ip + 6..ip + 10) && same(ip + 12..tcp)
        };
        // Ports; acknowledgement and length of the header; window; urgent pointer and options.
        let tcp_same =
            same(tcp..tcp + 4) && same(tcp + 8..tcp + 13) && same(tcp + 14..tcp + 16) && same(tcp + 18..headers);
        let outer_same = match &self.length {
            Some((length, _)) => same(0..length.start) && same(length.end..ip),
            None => same(0..ip),
        };
        outer_same && ip_same && tcp_same
    }

    /// The datagrams of `size` bytes at the beginning of `data` that can be joined, two at least.
    pub(super) fn run(&self, data: &[u8], size: usize) -> Option<Run> {
        let mut datagrams = data.chunks(size);
        let first = datagrams.next()?;
        let head = self.segment(first)?;
        let mut run = Run {
            layout: self.clone(),
            headers: head.headers,
            size: head.payload,
            payload: head.payload,
            len: first.len(),
            count: 1,
            push: head.push,
        };
        for datagram in datagrams {
            let next = head.sequence.wrapping_add(run.payload as u32);
            let Some(segment) = self.segment(datagram) else { break };
            let fits = segment.sequence == next && segment.payload <= run.size && !run.push;
            if !fits || segment.headers != run.headers || !self.alike(first, datagram, run.headers) {
                break;
            }
            run.payload += segment.payload;
            run.len += datagram.len();
            run.count += 1;
            run.push = segment.push;
            if segment.payload < run.size {
                break;
            }
        }
        (run.count > 1).then_some(run)
    }
}

/// What of a segment matters for joining.
struct Segment {
    /// Length of all headers, from the datagram's data on.
    headers: usize,
    sequence: u32,
    payload: usize,
    push: bool,
}

/// Datagrams that can be joined.
pub(super) struct Run {
    layout: Layout,
    headers: usize,
    /// Payload of each but the last.
    size: usize,
    /// Payload of all.
    payload: usize,
    /// Bytes of all datagrams.
    pub(super) len: usize,
    count: usize,
    push: bool,
}

impl Run {
    pub(super) fn joined_len(&self) -> usize {
        self.headers + self.payload
    }

    /// The pieces of the joined datagram.
    pub(super) fn pieces<'a>(&self, datagrams: &'a [u8], size: usize) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers;
        let each = datagrams.chunks(size).enumerate();
        each.map(move |(at, datagram)| {
            if at == 0 {
                datagram
            } else {
                datagram.get(headers..).unwrap_or_default()
            }
        })
    }

    /// Makes the joined datagram, which begins `before` bytes into the frame, a large segment.
    pub(super) fn finish(&self, frame: &mut Frame, before: usize) {
        let layout = &self.layout;
        if self.push {
            frame.data_mut()[before + layout.transport + 13] |= PSH;
        }
        let total = self.joined_len() - layout.ip;
        let packet = &mut frame.data_mut()[before..];
        if let Some((length, header)) = layout.length.clone() {
            packet[length].copy_from_slice(&((self.joined_len() - header) as u16).to_be_bytes());
        }
        let ip = &mut packet[layout.ip..layout.transport];
        // The whole is no longer than what was received.
        if layout.ipv6 {
            ip[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        } else {
            ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            ip[10..12].fill(0);
            let sum = checksum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let sum = layout.pseudo(packet).unwrap_or_default().fold();
        packet[layout.transport + 16..][..2].copy_from_slice(&sum.to_be_bytes());
        leave_pending(frame, before, layout, Some((self.size, self.headers)));
    }
}

/// Notes that the checksum of the packet inside is to be filled in, and with the size of segments
/// and the length of headers that it is to be cut.
fn leave_pending(frame: &mut Frame, before: usize, layout: &Layout, cut: Option<(usize, usize)>) {
    frame.offload.csum = Csum::Partial {
        start: (before + layout.transport) as u16,
        offset: layout.checksum_at() as u16,
    };
    if let Some((size, headers)) = cut {
        frame.offload.gso = if layout.ipv6 { Gso::Tcp6 } else { Gso::Tcp4 };
        frame.offload.gso_size = size as u16;
        frame.offload.hdr_len = (before + headers) as u16;
    }
}

/// Notes what is pending in the packet inside. A tunnel device of the kernel leaves checksums and
/// segmentation to the device below; where that is a cable within the machine, nobody does it, and
/// a socket does not say so.
pub(super) fn complete(frame: &mut Frame, format: Format) {
    let Some(packet) = frame.data().get(ETHERNET..) else {
        return;
    };
    let Some(layout) = Layout::find(format, packet, 0) else {
        return;
    };
    let field = be16(packet, layout.transport + layout.checksum_at());
    let Some(pseudo) = layout.pseudo(packet) else { return };
    // The field of a packet to be completed has the sum of the pseudo header. By chance it is that
    // of a right packet too.
    if field != Some(pseudo.fold()) || pseudo.bytes(&packet[layout.transport..]).finish() == 0 {
        return;
    }
    let large = packet.len() - layout.ip > EVERY_LINK && layout.protocol == TCP;
    let header = packet
        .get(layout.transport + 12)
        .map_or(0, |offset| usize::from(offset >> 4) * 4);
    let headers = layout.transport + header;
    let room = EVERY_LINK.saturating_sub(headers - layout.ip);
    let is_cut = large && header >= 20 && room > 0 && packet.len() > headers;
    leave_pending(frame, ETHERNET, &layout, is_cut.then_some((room, headers)));
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];
    const FORMAT: Format = Format::Vxlan { gbp: false, gpe: false };
    /// Outer IPv4 and UDP headers.
    const OUTER: usize = 28;

    /// The data of a datagram with a segment of TCP.
    fn datagram(sequence: u32, payload: &[u8], ack: u32, push: bool) -> Vec<u8> {
        let tcp = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, sequence, 1000)
            .ack(ack);
        let tcp = if push { tcp.psh() } else { tcp };
        let mut inner = Vec::new();
        tcp.write(&mut inner, payload).unwrap();
        [&VXLAN[..], &inner].concat()
    }

    /// The datagram with outer headers.
    fn packet(datagram: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        let outer = PacketBuilder::ipv4([1, 1, 1, 1], [1, 1, 1, 2], 64).udp(5, 4789);
        outer.write(&mut packet, datagram).unwrap();
        packet
    }

    fn layout(datagram: &[u8]) -> Option<Layout> {
        Layout::find(FORMAT, &packet(datagram), OUTER)
    }

    #[test]
    fn segments_in_order_are_joined_and_cut_again_to_what_they_were() {
        let parts = [&[1_u8; 100][..], &[2; 100], &[3; 40]];
        let datagrams: Vec<Vec<u8>> = (0..3)
            .map(|n| datagram(7 + 100 * n, parts[n as usize], 9, n == 2))
            .collect();
        let size = datagrams[0].len();
        let data = datagrams.concat();
        let layout = layout(&datagrams[0]).unwrap();
        let run = layout.run(&data, size).unwrap();
        assert_eq!((run.len, run.count), (data.len(), 3));
        let len = run.joined_len();
        let mut frame = Frame::of_pieces(0, len, run.pieces(&data, size), |_| {});
        run.finish(&mut frame, 0);
        frame.advance(VXLAN.len()).unwrap();
        let segments = crate::gso::segment(frame).unwrap();
        assert_eq!(segments.len(), 3);
        for (segment, datagram) in segments.iter().zip(&datagrams) {
            let mut expected = datagram[VXLAN.len()..].to_vec();
            // Identifications count up.
            let id = &segment.data()[18..20];
            expected[18..20].copy_from_slice(id);
            expected[24..26].fill(0);
            let sum = checksum(&expected[14..34]);
            expected[24..26].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(segment.data(), expected);
        }
    }

    #[test]
    fn a_joined_packet_of_gtp_has_the_length_of_the_whole() {
        let datagram = |sequence: u32, payload: &[u8]| {
            let ip = datagram(sequence, payload, 9, false)[VXLAN.len() + 14..].to_vec();
            [&[0x30, 255, 0, ip.len() as u8, 0, 0, 0, 5][..], &ip].concat()
        };
        let (one, other) = (datagram(7, &[1; 100]), datagram(107, &[2; 40]));
        let layout = Layout::find(Format::Gtpu, &packet(&one), OUTER).unwrap();
        let data = [one.clone(), other].concat();
        let run = layout.run(&data, one.len()).unwrap();
        assert_eq!(run.count, 2, "the last one is shorter");
        let mut frame = Frame::of_pieces(0, run.joined_len(), run.pieces(&data, one.len()), |_| {});
        run.finish(&mut frame, 0);
        let joined = packet(frame.data());
        let read = decapsulate(Format::Gtpu, &joined, Checksums::Good).unwrap();
        assert_eq!(read.end, joined.len());
        // Another tunnel's are not joined.
        let mut foreign = data;
        foreign[one.len() + 7] = 6;
        assert!(layout.run(&foreign, one.len()).is_none());
    }

    proptest! {
        #[test]
        fn no_datagram_makes_it_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<prop::sample::Index>(), size in 1..200_usize, payload in 0..120_usize,
        ) {
            let mut data = [datagram(7, &vec![1; payload], 9, false), datagram(7 + payload as u32, &[2; 40], 9, true)].concat();
            for (at, value) in changes {
                let at = at.index(data.len());
                data[at] = value;
            }
            data.truncate(cut.index(data.len()) + 1);
            let first = &data[..size.min(data.len())];
            if let Some(layout) = layout(first)
                && let Some(run) = layout.run(&data, first.len())
            {
                let (len, pieces) = (run.joined_len(), run.pieces(&data[..run.len], first.len()));
                let mut frame = Frame::of_pieces(0, len, pieces, |_| {});
                run.finish(&mut frame, 0);
                frame.advance(VXLAN.len()).unwrap();
                prop_assert_eq!(crate::gso::segment(frame).unwrap().len(), run.count);
            }
            let mut frame = Frame::from_slice(&[&[0_u8; 12][..], &[8, 0], &packet(&data)].concat());
            complete(&mut frame, FORMAT);
        }
    }

    #[test]
    fn what_is_not_one_piece_of_a_connection_stays_apart() {
        let first = datagram(7, &[1; 100], 9, false);
        let size = first.len();
        let layout = layout(&first).unwrap();
        let count = |second: Vec<u8>| {
            let data = [first.clone(), second].concat();
            layout.run(&data, size).map_or(1, |run| run.count)
        };
        let next = || datagram(107, &[2; 100], 9, false);
        assert_eq!(count(next()), 2);
        assert_eq!(count(datagram(108, &[2; 100], 9, false)), 1, "a gap");
        assert_eq!(count(datagram(107, &[2; 100], 10, false)), 1, "another acknowledgement");
        for (at, what) in [
            (5, "another network"),
            (8, "another address"),
            (8 + 15, "another type of service"),
            (8 + 14 + 20, "another port"),
            (8 + 14 + 20 + 14, "another window"),
            (size - 1, "a wrong checksum"),
        ] {
            let mut second = next();
            second[at] ^= 1;
            assert_eq!(count(second), 1, "{what}");
        }
        let mut pushed = datagram(7, &[1; 100], 9, true);
        pushed.extend(next());
        assert!(layout.run(&pushed, size).is_none(), "behind the end of a message");
    }

    #[test]
    fn a_checksum_that_nobody_has_filled_in_is_pending() {
        for (payload, gso) in [(100, Gso::None), (4000, Gso::Tcp4)] {
            let whole = packet(&datagram(7, &vec![5; payload], 9, false));
            let framed = |packet: &[u8]| Frame::from_slice(&[&[0_u8; 12][..], &[8, 0], packet].concat());
            let mut frame = framed(&whole);
            complete(&mut frame, FORMAT);
            assert_eq!(frame.offload, crate::Offload::default(), "it is right");
            let mut unfilled = whole;
            let tcp = OUTER + VXLAN.len() + 14 + 20;
            let pseudo = pseudo_ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 6, 20 + payload as u32);
            unfilled[tcp + 16..tcp + 18].copy_from_slice(&pseudo.fold().to_be_bytes());
            let mut frame = framed(&unfilled);
            complete(&mut frame, FORMAT);
            let start = (ETHERNET + tcp) as u16;
            assert_eq!(frame.offload.csum, Csum::Partial { start, offset: 16 });
            assert_eq!(frame.offload.gso, gso);
            if gso != Gso::None {
                frame.advance(ETHERNET + OUTER + VXLAN.len()).unwrap();
                let segments = crate::gso::segment(frame).unwrap();
                assert!(segments.iter().all(|segment| segment.len() - 14 <= EVERY_LINK));
            }
        }
    }
}
