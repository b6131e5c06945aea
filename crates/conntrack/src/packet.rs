//! What the tracker reads of a packet: the tuple, and what the protocol's machine needs. An ICMP
//! error is read twice: its own header, and the packet inside.

use crate::checksum::{self, Checksum};
use crate::sctp::Chunk;
use crate::state::State;
use crate::tcp::Segment;
use crate::tracker::ConnectionId;
use crate::tuple::{ICMP, ICMPV6, SCTP, TCP, Tuple, UDP, pack_v4, pack_v6};
use wire::checksum::is_ipv4_header_right;
use wire::headers::{self, Frag, Ip, Ipv6};

/// A packet to track.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The bytes from the IP header on. Padding may follow the packet.
    pub data: &'a mut [u8],
    /// Whether it is an IPv6 packet: what the EtherType says.
    pub v6: bool,
    /// What is known of the transport checksum.
    pub checksum: Checksum,
    /// The port of the switch that it came in on.
    pub in_port: u32,
    /// What the tracker said about it before, if it has been here. A packet that was translated in
    /// a zone is known there by its original tuple, and is not translated again.
    pub before: Option<Before>,
}

/// A packet's connection, as an earlier pass left it in the packet's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// `ct_state`.
    pub state: State,
    /// `ct_zone`.
    pub zone: u16,
    /// The connection, if the metadata has kept it.
    pub connection: Option<ConnectionId>,
    /// The connection's original tuple.
    pub original: Tuple,
}

/// Why a packet belongs to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invalid {
    /// It is cut short, or contradicts itself.
    Malformed,
    /// A checksum is wrong.
    Checksum,
    /// It is a fragment. Reassembly comes before tracking.
    Fragment,
    /// ICMP that is neither a query nor an error.
    Icmp,
    /// An ICMP error about no known connection.
    Unrelated,
    /// No connection begins with such a packet.
    Beginning,
    /// Its numbers or flags do not fit its connection.
    OutOfState,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Tcp(Segment),
    Sctp(Chunk),
    /// UDP and protocols without a machine of their own.
    Datagram,
    /// An ICMP query or its answer.
    Echo {
        request: bool,
    },
    /// An ICMP error; the tuple is that of a packet in the error's direction.
    Error(Inner),
}

/// Where the packet inside an ICMP error is. Offsets are from the outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub(crate) ip: usize,
    pub(crate) l4: usize,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) tuple: Tuple,
    pub(crate) content: Content,
    /// Where the transport header begins, and where the packet ends.
    pub(crate) l4: usize,
    pub(crate) end: usize,
}

impl Parsed {
    /// To be overwritten.
    pub(crate) const BLANK: Parsed = Parsed {
        tuple: Tuple::from_words([0; 4], 0, 0, false),
        content: Content::Datagram,
        l4: 0,
        end: 0,
    };
}

impl Packet<'_> {
    /// A packet from outside: nothing is known of its checksum.
    pub fn new(data: &mut [u8], v6: bool) -> Packet<'_> {
        Packet {
            data,
            v6,
            checksum: Checksum::Verify,
            in_port: 0,
            before: None,
        }
    }
}

/// Reads a packet into `parsed`, and verifies its checksums. Written in place: a value that is
/// moved is read before its parts have left the processor's store buffer.
#[inline(always)]
pub(crate) fn parse(data: &[u8], v6: bool, sum: Checksum, parsed: &mut Parsed) -> Result<(), Invalid> {
    let (addresses, ip) = network(data, v6)?;
    if ip.frag != Frag::No {
        return Err(Invalid::Fragment);
    }
    let body = data.get(ip.start..ip.end).ok_or(Invalid::Malformed)?;
    if !v6 && !is_ipv4_header_right(data, ip.start) {
        return Err(Invalid::Checksum);
    }
    let (ports, content) = transport(body, ip.protocol, v6)?;
    if sum == Checksum::Verify && !checksum::is_right(data, v6, ip.protocol, ip.start, ip.end) {
        return Err(Invalid::Checksum);
    }
    parsed.tuple = Tuple::from_words(addresses, ports, ip.protocol, v6);
    parsed.content = content;
    (parsed.l4, parsed.end) = (ip.start, ip.end);
    match is_error(v6, ip.protocol, body.first().copied()) {
        false => Ok(()),
        true => error(data, parsed),
    }
}

/// The addresses and the walk of an IP header.
#[inline(always)]
fn network(data: &[u8], v6: bool) -> Result<([u64; 4], Ip), Invalid> {
    match v6 {
        false => {
            let (header, ip) = headers::ipv4(data).ok_or(Invalid::Malformed)?;
            if header[0] >> 4 != 4 {
                return Err(Invalid::Malformed);
            }
            Ok((v4_addresses(header), ip))
        }
        true => match headers::ipv6(data).ok_or(Invalid::Malformed)? {
            (header, Ipv6::Whole(ip)) if header[0] >> 4 == 6 => Ok((v6_addresses(header), ip)),
            _ => Err(Invalid::Malformed),
        },
    }
}

fn v4_addresses(header: &[u8; 20]) -> [u64; 4] {
    let [.., a, b, c, d, e, f, g, h] = *header;
    pack_v4(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
}

fn v6_addresses(header: &[u8; 40]) -> [u64; 4] {
    let word = |at: usize| {
        header[at..]
            .first_chunk()
            .map_or(0, |bytes| u128::from_be_bytes(*bytes))
    };
    pack_v6(word(8), word(24))
}

/// The ports, as a tuple has them, and the content. Of an error the content is not read yet.
#[inline(always)]
fn transport(body: &[u8], protocol: u8, v6: bool) -> Result<(u32, Content), Invalid> {
    let word = |at: usize| body[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    match (protocol, v6) {
        (TCP, _) if headers::is_whole(TCP, v6, body) => Ok((word(0), Content::Tcp(segment(body)))),
        (UDP, _) if body.len() >= 8 => {
            // A shorter packet is what RFC 768 allows and nobody sends; a longer one is cut.
            let len = usize::from(u16::from_be_bytes([body[4], body[5]]));
            match (8..=body.len()).contains(&len) {
                true => Ok((word(0), Content::Datagram)),
                false => Err(Invalid::Malformed),
            }
        }
        (SCTP, _) if body.len() >= 16 => Ok((word(0), Content::Sctp(chunk(body)))),
        (ICMP, false) | (ICMPV6, true) if body.len() >= 8 => {
            let (kind, code) = (body[0], body[1]);
            let id = word(4) & 0xffff_0000;
            match query(v6, kind) {
                Some(request) if code == 0 => Ok((id | u32::from(kind) << 8, Content::Echo { request })),
                None if is_error(v6, protocol, Some(kind)) => Ok((0, Content::Datagram)),
                _ => Err(Invalid::Icmp),
            }
        }
        (TCP | UDP | SCTP, _) | (ICMP, false) | (ICMPV6, true) => Err(Invalid::Malformed),
        _ => Ok((0, Content::Datagram)),
    }
}

/// Whether an ICMP type is that of a query: `Some(true)`, or of its answer: `Some(false)`.
fn query(v6: bool, kind: u8) -> Option<bool> {
    match (v6, kind) {
        (false, 8 | 13 | 15) | (true, 128) => Some(true),
        (false, 0 | 14 | 16) | (true, 129) => Some(false),
        _ => None,
    }
}

/// Whether it is an ICMP error (RFC 792, RFC 1122 §3.2.2, RFC 4443 §2.1).
fn is_error(v6: bool, protocol: u8, kind: Option<u8>) -> bool {
    matches!(
        (v6, protocol, kind),
        (false, ICMP, Some(3 | 4 | 5 | 11 | 12)) | (true, ICMPV6, Some(1..=4))
    )
}

/// The packet inside an error. A router may have cut it behind 8 bytes of the transport header
/// (RFC 792), and its checksums may be wrong or missing.
#[cold]
fn error(data: &[u8], outer: &mut Parsed) -> Result<(), Invalid> {
    let (v6, start) = (outer.tuple.is_ipv6(), outer.l4 + 8);
    let inside = data.get(start..outer.end).ok_or(Invalid::Malformed)?;
    let (addresses, ip) = match v6 {
        false => {
            let (header, ip) = headers::ipv4_header(inside).ok_or(Invalid::Malformed)?;
            if header[0] >> 4 != 4 || ip.start < 20 || ip.end < ip.start {
                return Err(Invalid::Malformed);
            }
            (v4_addresses(header), ip)
        }
        true => match headers::ipv6_header(inside).ok_or(Invalid::Malformed)? {
            (header, Ipv6::Whole(ip)) if header[0] >> 4 == 6 => (v6_addresses(header), ip),
            _ => return Err(Invalid::Malformed),
        },
    };
    if ip.frag == Frag::Later {
        return Err(Invalid::Fragment);
    }
    let body = inside.get(ip.start..).ok_or(Invalid::Malformed)?;
    let word = |at: usize| {
        body.get(at..)
            .and_then(|rest| rest.first_chunk())
            .map(|bytes| u32::from_be_bytes(*bytes))
    };
    let ports = match (ip.protocol, v6) {
        (TCP | UDP | SCTP, _) => word(0).filter(|_| body.len() >= 8).ok_or(Invalid::Malformed)?,
        (ICMP, false) | (ICMPV6, true) => {
            let id = word(4).ok_or(Invalid::Malformed)? & 0xffff_0000;
            // No error answers an error (RFC 1122 §3.2.2).
            query(v6, body[0]).ok_or(Invalid::Icmp)?;
            id | u32::from(body[0]) << 8
        }
        _ => 0,
    };
    let inner = Tuple::from_words(addresses, ports, ip.protocol, v6);
    // The sender of the packet inside gets the error.
    if inner.src() != outer.tuple.dst() {
        return Err(Invalid::Unrelated);
    }
    outer.tuple = inner.reverse();
    outer.content = Content::Error(Inner {
        ip: start,
        l4: start + ip.start,
    });
    Ok(())
}

/// A whole TCP header.
fn segment(body: &[u8]) -> Segment {
    let word = |at: usize| body[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let header = usize::from(body[12] >> 4) * 4;
    Segment {
        seq: word(4),
        ack: word(8),
        flags: body[13],
        window: u16::from_be_bytes([body[14], body[15]]),
        len: (body.len() - header) as u32,
        shift: match body[13] & crate::tcp::SYN {
            0 => None,
            _ => shift(&body[20..header]),
        },
    }
}

/// The window scale option (RFC 7323 §2).
fn shift(mut options: &[u8]) -> Option<u8> {
    loop {
        options = match *options {
            [] | [0, ..] => return None,
            [1, ref rest @ ..] => rest,
            [3, 3, shift, ..] => return Some(shift),
            [_, len @ 2..=255, ..] => options.get(usize::from(len)..)?,
            _ => return None,
        };
    }
}

/// A common header and the beginning of the first chunk.
fn chunk(body: &[u8]) -> Chunk {
    let word = |at: usize| {
        body.get(at..)
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    Chunk {
        tag: word(4),
        kind: body[12],
        reflected: body[13] & 1 != 0,
        initiate: word(16),
    }
}
