//! IP packets, written independently of the crate's reader.

use conntrack::{Conntrack, Nanos, Outcome, Packet, Request, State, Tracker};
use std::net::IpAddr;
use testkit::checksum;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

pub(crate) const NEW: State = State::from_bits(0x21);
pub(crate) const EST: State = State::from_bits(0x22);
pub(crate) const EST_REPLY: State = State::from_bits(0x2a);
pub(crate) const INVALID: State = State::from_bits(0x30);

/// An address: the n-th of 10.0.0.0/8 or of fd00::/64.
pub(crate) fn host(v6: bool, n: u16) -> IpAddr {
    let [a, b] = n.to_be_bytes();
    match v6 {
        false => [10, 0, a, b].into(),
        true => [0xfd00, 0, 0, 0, 0, 0, 0, n].into(),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// An IP packet around a transport packet whose checksum, at this offset, is still zero.
pub(crate) fn ip(src: IpAddr, dst: IpAddr, protocol: u8, mut body: Vec<u8>, sum_at: Option<usize>) -> Vec<u8> {
    if let Some(at) = sum_at {
        let mut pseudo = [octets(src), octets(dst)].concat();
        pseudo.extend((body.len() as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, protocol]);
        // ICMP over IPv4 has no pseudo header.
        let pseudo = if protocol == 1 { Vec::new() } else { pseudo };
        let sum = checksum(&[&pseudo[..], &body].concat());
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let mut packet = match src {
        IpAddr::V4(_) => {
            let mut header = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
            header[2..4].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
            header.extend(octets(src));
            header.extend(octets(dst));
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        IpAddr::V6(_) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            header[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
            header.extend(octets(src));
            header.extend(octets(dst));
            header
        }
    };
    packet.extend(body);
    packet
}

/// TCP's variable fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) len: usize,
    pub(crate) shift: Option<u8>,
}

impl Tcp {
    pub(crate) fn new(flags: u8, seq: u32, ack: u32) -> Tcp {
        Tcp {
            flags,
            seq,
            ack,
            window: 1000,
            len: 0,
            shift: None,
        }
    }
}

pub(crate) fn tcp(src: (IpAddr, u16), dst: (IpAddr, u16), fields: Tcp) -> Vec<u8> {
    tcp_with(src, dst, fields, &vec![0x55; fields.len])
}

pub(crate) fn tcp_with(src: (IpAddr, u16), dst: (IpAddr, u16), fields: Tcp, payload: &[u8]) -> Vec<u8> {
    let options = fields.shift.map_or(vec![], |shift| vec![1, 3, 3, shift]);
    let mut body = [src.1.to_be_bytes(), dst.1.to_be_bytes()].concat();
    body.extend(fields.seq.to_be_bytes());
    body.extend(fields.ack.to_be_bytes());
    body.extend([(5 + options.len() as u8 / 4) << 4, fields.flags]);
    body.extend(fields.window.to_be_bytes());
    body.extend([0; 4]);
    body.extend(options);
    body.extend(payload);
    ip(src.0, dst.0, 6, body, Some(16))
}

pub(crate) fn udp(src: (IpAddr, u16), dst: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let mut body = [src.1.to_be_bytes(), dst.1.to_be_bytes()].concat();
    body.extend((8 + payload.len() as u16).to_be_bytes());
    body.extend([0; 2]);
    body.extend(payload);
    ip(src.0, dst.0, 17, body, Some(6))
}

/// ICMP or ICMPv6 with this type, code and second word.
pub(crate) fn icmp(src: IpAddr, dst: IpAddr, kind: u8, code: u8, word: u32, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![kind, code, 0, 0];
    body.extend(word.to_be_bytes());
    body.extend(payload);
    ip(src, dst, if src.is_ipv4() { 1 } else { 58 }, body, Some(2))
}

/// An echo request or reply.
pub(crate) fn echo(src: IpAddr, dst: IpAddr, reply: bool, id: u16) -> Vec<u8> {
    let kind = match (src.is_ipv6(), reply) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    icmp(src, dst, kind, 0, u32::from(id) << 16 | 1, b"data")
}

/// A tracker and its clock.
pub(crate) struct Bench {
    pub(crate) tracker: Tracker,
    pub(crate) now: Nanos,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench {
            tracker: Conntrack::new(1).tracker(),
            now: Nanos::from_secs(1000),
        }
    }

    /// Tracks a packet, which the tracker may rewrite.
    pub(crate) fn pass(&mut self, request: &Request, packet: &mut [u8]) -> Outcome {
        let v6 = packet[0] >> 4 == 6;
        self.tracker.track(request, &mut Packet::new(packet, v6), self.now)
    }

    pub(crate) fn state(&mut self, request: &Request, mut packet: Vec<u8>) -> State {
        self.pass(request, &mut packet).state
    }

    pub(crate) fn all(&mut self) -> Vec<conntrack::Connection> {
        let (mut found, mut next) = (Vec::new(), Some(conntrack::Cursor::default()));
        while let Some(from) = next {
            next = self.tracker.connections(from, 100, self.now, &mut found);
        }
        found
    }

    /// Sweeps the whole table.
    pub(crate) fn sweep(&mut self) -> usize {
        let mut expired = 0;
        loop {
            let swept = self.tracker.sweep(64, self.now);
            expired += swept.expired;
            if swept.finished {
                return expired;
            }
        }
    }
}

pub(crate) fn commit(zone: u16) -> Request {
    Request {
        zone,
        commit: true,
        ..Request::default()
    }
}

pub(crate) fn look(zone: u16) -> Request {
    Request {
        zone,
        ..Request::default()
    }
}

/// An SCTP packet with one chunk.
pub(crate) fn sctp(src: (IpAddr, u16), dst: (IpAddr, u16), tag: u32, kind: u8, initiate: u32) -> Vec<u8> {
    let mut body = [src.1.to_be_bytes(), dst.1.to_be_bytes()].concat();
    body.extend(tag.to_be_bytes());
    body.extend([0; 4]);
    body.extend([kind, 0, 0, 20]);
    body.extend(initiate.to_be_bytes());
    body.extend([0; 12]);
    let sum = wire::crc32c::sctp(&body).unwrap().to_le_bytes();
    body[8..12].copy_from_slice(&sum);
    ip(src.0, dst.0, 132, body, None)
}

/// Addresses and ports of a packet with ports, as it says.
pub(crate) fn ends(packet: &[u8]) -> ((IpAddr, u16), (IpAddr, u16)) {
    let v6 = packet[0] >> 4 == 6;
    let (src, dst, l4): (IpAddr, IpAddr, usize) = match v6 {
        false => (
            <[u8; 4]>::try_from(&packet[12..16]).unwrap().into(),
            <[u8; 4]>::try_from(&packet[16..20]).unwrap().into(),
            20,
        ),
        true => (
            <[u8; 16]>::try_from(&packet[8..24]).unwrap().into(),
            <[u8; 16]>::try_from(&packet[24..40]).unwrap().into(),
            40,
        ),
    };
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    ((src, port(l4)), (dst, port(l4 + 2)))
}

/// Whether all checksums of a packet are right.
pub(crate) fn is_sound(packet: &[u8]) -> bool {
    let v6 = packet[0] >> 4 == 6;
    let (l4, protocol) = if v6 { (40, packet[6]) } else { (20, packet[9]) };
    let body = &packet[l4..];
    let (src, dst) = if v6 {
        (&packet[8..24], &packet[24..40])
    } else {
        (&packet[12..16], &packet[16..20])
    };
    let mut pseudo = [src, dst].concat();
    pseudo.extend((body.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    let header = v6 || checksum(&packet[..20]) == 0;
    header
        && match protocol {
            1 => checksum(body) == 0,
            132 => wire::crc32c::sctp(body).unwrap().to_le_bytes() == body[8..12],
            6 | 17 | 58 => checksum(&[&pseudo[..], body].concat()) == 0,
            _ => true,
        }
}
