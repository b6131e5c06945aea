//! Outer headers to send: a template for a flow, written before each packet.
//!
//! What differs between packets of a flow is written by [`Encapsulation::write`]: lengths, the
//! identification of IPv4, checksums, the source port, sequence numbers, the time of ERSPAN.

use super::erspan::{self, Erspan};
use super::inner::{Inner, inner_ip};
use super::ip::{IPV4_LEN, IPV6_LEN};
use super::vxlan::{self, Gbp};
use super::{Payload, be16, geneve, gre, gtpu, srv6, udp};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use wire::checksum::Sum;
use wire::{EtherType, MacAddr};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// The longest outer headers: Ethernet, IPv6, UDP and Geneve with all its options. Packets need as
/// much headroom.
pub const MAX_HEADER: usize = ETHERNET + IPV6_LEN + udp::LEN + geneve::LEN + geneve::MAX_OPTIONS;

/// The outer Ethernet and IP headers of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Destination and source of an Ethernet header; `None` if the packet begins with IP.
    pub ethernet: Option<(MacAddr, MacAddr)>,
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// Type of service or traffic class, with the mark of [`ecn`](super::ecn).
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The bit "don't fragment"; IPv6 has none.
    pub df: bool,
    /// The flow label; IPv4 has none.
    pub label: FlowLabel,
    /// UDP source ports to choose from; formats without UDP ignore them.
    pub ports: SourcePorts,
}

/// The outer flow label of IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowLabel {
    /// Zero.
    #[default]
    Zero,
    /// From the hash of the inner packet (RFC 6438 §3).
    Hash,
    /// The one of the inner packet if it is IPv6, or else zero.
    Copy,
}

/// A range of UDP source ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourcePorts {
    first: u16,
    last: u16,
}

impl SourcePorts {
    /// Both ends belong to the range; `None` if `last` is less than `first`.
    pub const fn new(first: u16, last: u16) -> Option<SourcePorts> {
        if first <= last {
            Some(SourcePorts { first, last })
        } else {
            None
        }
    }

    /// The lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether a port belongs to the range.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// The port of packets with this hash: flows spread over the range (RFC 7348 §5).
    const fn of(self, hash: u32) -> u16 {
        let ports = (self.last - self.first) as u64 + 1;
        self.first + ((hash as u64 * ports) >> 32) as u16
    }
}

/// The range of Open vSwitch (`tnl/egress_port_range`).
impl Default for SourcePorts {
    fn default() -> SourcePorts {
        SourcePorts {
            first: 32_768,
            last: 61_000,
        }
    }
}

/// The header behind the outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// VXLAN.
    Vxlan {
        /// UDP destination port.
        port: u16,
        /// A UDP checksum over IPv4. Over IPv6 there is always one.
        csum: bool,
        /// The VNI, 24 bits.
        id: u64,
        /// The group policy of a port with that extension.
        gbp: Option<Gbp>,
        /// The header says what it carries.
        gpe: bool,
    },
    /// Geneve.
    Geneve {
        /// UDP destination port.
        port: u16,
        /// A UDP checksum over IPv4. Over IPv6 there is always one.
        csum: bool,
        /// The VNI, 24 bits.
        id: u64,
        /// A control packet.
        oam: bool,
        /// Options.
        options: geneve::Options<'a>,
    },
    /// GRE.
    Gre {
        /// The key, 32 bits.
        id: Option<u64>,
        /// A checksum.
        csum: bool,
        /// A sequence number.
        sequence: bool,
    },
    /// ERSPAN.
    Erspan {
        /// The session, 10 bits.
        id: u64,
        /// The version and its fields.
        fields: Erspan,
    },
    /// GTP-U.
    Gtpu {
        /// UDP destination port.
        port: u16,
        /// The tunnel endpoint id, 32 bits.
        id: u64,
        /// A sequence number.
        sequence: bool,
    },
    /// UDP alone.
    Bareudp {
        /// UDP destination port.
        port: u16,
        /// A UDP checksum over IPv4. Over IPv6 there is always one.
        csum: bool,
        /// What the tunnel carries.
        payload: Payload,
    },
    /// Segment routing over IPv6.
    Srv6 {
        /// The segments, one to [`MAX_SEGMENTS`](super::MAX_SEGMENTS). The first is the outer
        /// destination.
        segments: &'a [Ipv6Addr],
    },
}

/// Why a flow's packets cannot be encapsulated. The flow drops them and counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncapsulateError {
    /// The source and the destination are of different families, or the family is not one of the
    /// format.
    Family,
    /// `tun_id` has more bits than the header.
    Id,
    /// The format does not carry such packets.
    Inner,
    /// Geneve options that are not whole, or too many.
    Options,
    /// A field of ERSPAN has more bits than the header.
    Erspan,
    /// No segments, too many, or the first is not the outer destination.
    Segments,
}

impl fmt::Display for EncapsulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncapsulateError::Family => "the outer addresses are of the wrong family",
            EncapsulateError::Id => "the tunnel id has more bits than the header",
            EncapsulateError::Inner => "the tunnel does not carry such packets",
            EncapsulateError::Options => "malformed or too many Geneve options",
            EncapsulateError::Erspan => "a field of ERSPAN has too many bits",
            EncapsulateError::Segments => "malformed segment list",
        })
    }
}

impl std::error::Error for EncapsulateError {}

/// The packet with its outer headers is longer than an IP packet can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("longer than an IP packet")
    }
}

impl std::error::Error for TooLong {}

/// What differs between the packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// A hash of the inner packet's flow, for the source port and the flow label.
    pub hash: u32,
    /// The identification of IPv4. Packets with "don't fragment" may all have the same (RFC 6864
    /// §4.1).
    pub identification: u16,
    /// The sequence number, of formats that have one.
    pub sequence: u32,
    /// The time in units of 100 µs, of ERSPAN version 2.
    pub time: u32,
    /// The sum of the inner packet's bytes if it is known, as for one whose checksum a device is
    /// still to fill in.
    pub sum: Option<Sum>,
}

/// The outer headers of a flow's packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Encapsulation {
    bytes: [u8; MAX_HEADER],
    len: u16,
    /// Where the IP header is, and what follows it.
    ip: u8,
    transport: u16,
    ipv6: bool,
    label: FlowLabel,
    inner: Inner,
    fix: Fix,
}

/// What to fill in behind the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fix {
    Udp {
        ports: SourcePorts,
        csum: bool,
        gtpu: Option<GtpuFix>,
    },
    Gre {
        csum: bool,
        /// Where the sequence number and the time are, from the GRE header on.
        sequence: Option<u8>,
        time: Option<u8>,
    },
    Nothing,
}

/// GTP-U has a length, and may have a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GtpuFix {
    sequence: bool,
}

impl Encapsulation {
    /// The template of the packets of a flow, which are of type `inner`.
    ///
    /// # Errors
    /// [`EncapsulateError`].
    pub fn new(outer: &Outer, body: &Body<'_>, inner: Inner) -> Result<Encapsulation, EncapsulateError> {
        let ipv6 = outer.dst.is_ipv6();
        if outer.src.is_ipv6() != ipv6 {
            return Err(EncapsulateError::Family);
        }
        let mut template = Encapsulation {
            bytes: [0; MAX_HEADER],
            len: 0,
            ip: 0,
            transport: 0,
            ipv6,
            label: outer.label,
            inner,
            fix: Fix::Nothing,
        };
        if let Some((dst, src)) = outer.ethernet {
            let kind = if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
            template.push(&dst.0);
            template.push(&src.0);
            template.push(&kind.0.to_be_bytes());
        }
        template.push_ip(outer, protocol(body));
        template.push_body(outer, body)?;
        template.finish_ip();
        Ok(template)
    }

    /// The length of the headers.
    #[expect(clippy::len_without_is_empty, reason = "there is always an IP header")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// What the inner packet is.
    pub const fn inner(&self) -> Inner {
        self.inner
    }

    /// Whether the flow's packets have a checksum over the inner packet.
    pub const fn has_checksum(&self) -> bool {
        match self.fix {
            Fix::Udp { csum, .. } | Fix::Gre { csum, .. } => csum,
            Fix::Nothing => false,
        }
    }

    /// The headers with zeros where packets differ: what a datapath prints of the flow.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Writes the headers. The first [`len`](Encapsulation::len) bytes of the frame are the
    /// headroom to write to, the others are the inner packet.
    ///
    /// # Errors
    /// [`TooLong`] if the packet does not fit into an IP packet. The headroom has changed.
    ///
    /// # Panics
    /// If the frame is shorter than the headers.
    #[inline]
    pub fn write(&self, frame: &mut [u8], packet: &Packet) -> Result<(), TooLong> {
        let len = self.len();
        frame[..len].copy_from_slice(self.bytes());
        self.write_ip(frame, packet)?;
        self.write_transport(frame, packet);
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = self.len();
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u16;
    }

    fn push_ip(&mut self, outer: &Outer, protocol: u8) {
        self.ip = self.len as u8;
        match (outer.src, outer.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let fragment = if outer.df { 0x40 } else { 0 };
                let (tos, ttl) = (outer.tos, outer.ttl);
                self.push(&[0x45, tos, 0, 0, 0, 0, fragment, 0, ttl, protocol, 0, 0]);
                self.push(&src.octets());
                self.push(&dst.octets());
            }
            (src, dst) => {
                let word = 6 << 28 | u32::from(outer.tos) << 20;
                self.push(&word.to_be_bytes());
                self.push(&[0, 0, protocol, outer.ttl]);
                // `new` refuses two families.
                for address in [src, dst] {
                    if let IpAddr::V6(address) = address {
                        self.push(&address.octets());
                    }
                }
            }
        }
        self.transport = self.len;
    }

    fn push_body(&mut self, outer: &Outer, body: &Body<'_>) -> Result<(), EncapsulateError> {
        let inner = self.inner;
        match *body {
            Body::Vxlan {
                port,
                csum,
                id,
                gbp,
                gpe,
            } => {
                self.push_udp(outer, port, csum, None);
                self.push(&vxlan::build(bits(id, 24)?, gbp, gpe, inner)?);
            }
            Body::Geneve {
                port,
                csum,
                id,
                oam,
                options,
            } => {
                self.push_udp(outer, port, csum, None);
                self.push(&geneve::build(bits(id, 24)?, oam, options, inner)?);
                self.push(options.bytes());
            }
            Body::Bareudp { port, csum, payload } => {
                payload.check(inner)?;
                self.push_udp(outer, port, csum, None);
            }
            Body::Gtpu { port, id, sequence } => {
                if !matches!(inner, Inner::Packet(EtherType::IPV4 | EtherType::IPV6)) {
                    return Err(EncapsulateError::Inner);
                }
                self.push_udp(outer, port, true, Some(GtpuFix { sequence }));
                let flags = gtpu::VERSION | if sequence { gtpu::S } else { 0 };
                self.push(&[flags, gtpu::G_PDU, 0, 0]);
                self.push(&bits(id, 32)?.to_be_bytes());
                if sequence {
                    self.push(&[0; gtpu::OPTIONAL]);
                }
            }
            Body::Gre { id, csum, sequence } => self.push_gre(id, csum, sequence)?,
            Body::Erspan { id, fields } => {
                if inner != Inner::Ethernet {
                    return Err(EncapsulateError::Inner);
                }
                let (header, len) = erspan::build(id, fields)?;
                self.push(&header[..len]);
                self.fix = Fix::Gre {
                    csum: false,
                    sequence: Some(erspan::SEQUENCE as u8),
                    time: matches!(fields, Erspan::V2(_)).then_some(erspan::TIMESTAMP as u8),
                };
            }
            Body::Srv6 { segments } => {
                if !self.ipv6 {
                    return Err(EncapsulateError::Family);
                }
                if segments.first().map(|first| IpAddr::V6(*first)) != Some(outer.dst) {
                    return Err(EncapsulateError::Segments);
                }
                let (header, len) = srv6::build(segments, inner)?;
                self.push(&header[..len]);
            }
        }
        Ok(())
    }

    fn push_udp(&mut self, outer: &Outer, port: u16, csum: bool, gtpu: Option<GtpuFix>) {
        let [high, low] = port.to_be_bytes();
        self.push(&[0, 0, high, low, 0, 0, 0, 0]);
        self.fix = Fix::Udp {
            ports: outer.ports,
            csum: csum || self.ipv6,
            gtpu,
        };
    }

    fn push_gre(&mut self, id: Option<u64>, csum: bool, sequence: bool) -> Result<(), EncapsulateError> {
        let mut flags = 0;
        for (field, flag) in [(csum, gre::C), (id.is_some(), gre::K), (sequence, gre::S)] {
            flags |= if field { flag } else { 0 };
        }
        let kind = self.inner.protocol_type().ok_or(EncapsulateError::Inner)?;
        self.push(&flags.to_be_bytes());
        self.push(&kind.to_be_bytes());
        if csum {
            self.push(&[0; 4]);
        }
        if let Some(id) = id {
            self.push(&bits(id, 32)?.to_be_bytes());
        }
        if sequence {
            self.push(&[0; 4]);
        }
        self.fix = Fix::Gre {
            csum,
            sequence: sequence.then_some((gre::header_len(flags) - 4) as u8),
            time: None,
        };
        Ok(())
    }

    /// Sums up the IPv4 header, with zeros where packets differ.
    fn finish_ip(&mut self) {
        if !self.ipv6 {
            let at = usize::from(self.ip);
            let header = &mut self.bytes[at..at + IPV4_LEN];
            let sum = Sum::ZERO.bytes(header).fold();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    #[inline]
    fn write_ip(&self, frame: &mut [u8], packet: &Packet) -> Result<(), TooLong> {
        let len = self.len();
        let (header, payload) = frame.split_at_mut(len);
        let total = len - usize::from(self.ip) + payload.len();
        let header = &mut header[usize::from(self.ip)..];
        if self.ipv6 {
            let total = u16::try_from(total - IPV6_LEN).map_err(|_| TooLong)?;
            header[4..6].copy_from_slice(&total.to_be_bytes());
            let label = match self.label {
                FlowLabel::Zero => 0,
                FlowLabel::Hash => packet.hash & 0xf_ffff,
                FlowLabel::Copy => inner_ip(payload, self.inner).and_then(|ip| ip.label).unwrap_or(0),
            };
            if label != 0 {
                header[1] |= (label >> 16) as u8;
                header[2..4].copy_from_slice(&(label as u16).to_be_bytes());
            }
        } else {
            let total = u16::try_from(total).map_err(|_| TooLong)?;
            let sum = Sum::ZERO.word(be16(header, 10)).word(total).word(packet.identification);
            header[2..4].copy_from_slice(&total.to_be_bytes());
            header[4..6].copy_from_slice(&packet.identification.to_be_bytes());
            header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
        }
        Ok(())
    }

    #[inline]
    fn write_transport(&self, frame: &mut [u8], packet: &Packet) {
        let start = usize::from(self.transport);
        let headers = self.len() - start;
        let frame = &mut frame[start..];
        match self.fix {
            Fix::Udp { ports, csum, gtpu } => {
                let len = frame.len() as u16;
                frame[..2].copy_from_slice(&ports.of(packet.hash).to_be_bytes());
                frame[4..6].copy_from_slice(&len.to_be_bytes());
                if let Some(gtpu) = gtpu {
                    let len = frame.len() - udp::LEN - gtpu::LEN;
                    let header = &mut frame[udp::LEN..];
                    header[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                    if gtpu.sequence {
                        header[8..10].copy_from_slice(&(packet.sequence as u16).to_be_bytes());
                    }
                }
                if csum {
                    let pseudo = self.pseudo(udp::PROTOCOL, frame.len());
                    let sum = pseudo.and(sum(frame, headers, packet));
                    frame[6..8].copy_from_slice(&sum.finish_udp().to_be_bytes());
                }
            }
            Fix::Gre { csum, sequence, time } => {
                for (at, value) in [(sequence, packet.sequence), (time, packet.time)] {
                    if let Some(at) = at {
                        let at = usize::from(at);
                        frame[at..at + 4].copy_from_slice(&value.to_be_bytes());
                    }
                }
                if csum {
                    let sum = sum(frame, headers, packet);
                    frame[4..6].copy_from_slice(&sum.finish().to_be_bytes());
                }
            }
            Fix::Nothing => {}
        }
    }

    /// The pseudo header, of addresses that are in the template.
    fn pseudo(&self, protocol: u8, len: usize) -> Sum {
        let (at, width) = if self.ipv6 { (8, 32) } else { (12, 8) };
        let at = usize::from(self.ip) + at;
        let addresses = Sum::ZERO.bytes(&self.bytes[at..at + width]);
        // The length is that of an IP packet at most.
        addresses.word(protocol.into()).word(len as u16)
    }
}

/// The sum of what lies behind the IP header: `headers` bytes of headers and the inner packet.
fn sum(bytes: &[u8], headers: usize, packet: &Packet) -> Sum {
    match packet.sum {
        Some(inner) => Sum::ZERO.bytes(&bytes[..headers]).and(inner),
        None => Sum::ZERO.bytes(bytes),
    }
}

/// A tunnel id that the header has room for.
fn bits(id: u64, bits: u32) -> Result<u32, EncapsulateError> {
    if id >> bits == 0 {
        Ok(id as u32)
    } else {
        Err(EncapsulateError::Id)
    }
}

fn protocol(body: &Body<'_>) -> u8 {
    match body {
        Body::Gre { .. } | Body::Erspan { .. } => gre::PROTOCOL,
        Body::Srv6 { .. } => srv6::ROUTING,
        _ => udp::PROTOCOL,
    }
}
