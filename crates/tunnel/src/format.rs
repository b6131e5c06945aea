//! The encapsulations as wire formats.
//!
//! [`decapsulate`] reads the outer headers of a received packet. [`Encapsulation`] is a template of
//! the outer headers of packets to send; it is made once for a flow and written before each packet.
//! Neither allocates. Both work on the packet from the outer IP header on; a template may have an
//! outer Ethernet header too.
//!
//! Each format is a file with `parse` and `build`. [`ecn`] joins the congestion marks of the outer
//! and the inner header.
//!
//! Invariants
//! - No byte of a packet makes a parser panic. A packet is read as a whole or refused as a whole.
//! - Every [`Refusal`] belongs to one [`Cause`], which is counted.
//! - What a template writes, `decapsulate` reads.

mod bareudp;
pub mod ecn;
mod erspan;
pub mod geneve;
mod gre;
mod gtpu;
mod inner;
mod ip;
mod plain;
mod refusal;
mod srv6;
mod template;
mod udp;
mod vxlan;

pub use bareudp::Payload;
pub use erspan::{Erspan, ErspanV2};
pub use gtpu::Gtpu;
pub use inner::{Inner, InnerIp, inner_ip};
pub use refusal::{Cause, Refusal};
pub use template::{Body, EncapsulateError, Encapsulation, FlowLabel, MAX_HEADER, Outer, Packet, SourcePorts, TooLong};
pub use vxlan::Gbp;

use std::net::IpAddr;

/// Segments of an SRv6 tunnel at most, as in Open vSwitch.
pub const MAX_SEGMENTS: usize = 6;

/// What a receiving datapath port takes for an encapsulation. Ports differ in IP protocol and UDP
/// port, and all tunnel ports of a datapath port share its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// VXLAN (RFC 7348) and its extensions.
    Vxlan {
        /// Packets may have a group policy (draft-smith-vxlan-group-policy).
        gbp: bool,
        /// Packets may say what they carry (draft-ietf-nvo3-vxlan-gpe).
        gpe: bool,
    },
    /// Geneve (RFC 8926).
    Geneve,
    /// GRE (RFC 2784, RFC 2890), with ERSPAN.
    Gre,
    /// GTP-U (3GPP TS 29.281).
    Gtpu,
    /// A payload directly behind UDP.
    Bareudp(Payload),
    /// IPv4 and IPv6 behind a segment routing header (RFC 8754, RFC 8986 §4.4 to §4.6).
    Srv6,
}

/// The encapsulation of a packet. Received packets find their tunnel port by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GRE.
    Gre,
    /// ERSPAN.
    Erspan,
    /// GTP-U.
    Gtpu,
    /// UDP.
    Bareudp,
    /// SRv6.
    Srv6,
}

/// Whether checksums have been verified, by the device or by the peer on the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Verify those of the outer headers.
    Verify,
    /// They are known to be right, or are still to be filled in.
    Good,
}

/// The outer headers of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decapsulated<'a> {
    /// The encapsulation.
    pub kind: Kind,
    /// Outer source address, a unicast address.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// Outer type of service or traffic class.
    pub tos: u8,
    /// Outer time to live or hop limit.
    pub ttl: u8,
    /// Outer source port; 0 without UDP.
    pub tp_src: u16,
    /// Outer destination port; 0 without UDP.
    pub tp_dst: u16,
    /// `tun_id`: the VNI, key, session or tunnel endpoint id; `None` if the packet has none.
    pub id: Option<u64>,
    /// The packet has a checksum in its UDP or GRE header (`tun_flags=csum`).
    pub csum: bool,
    /// A control packet (`tun_flags=oam`).
    pub oam: bool,
    /// What only this encapsulation has.
    pub details: Details<'a>,
    /// Where the inner packet begins: the number of bytes to remove, from the outer IP header on.
    pub start: usize,
    /// Where the inner packet ends; what lies behind is padding.
    pub end: usize,
    /// What the inner packet is.
    pub inner: Inner,
}

/// What only some encapsulations have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Details<'a> {
    /// Nothing more.
    None,
    /// The group policy of VXLAN.
    Gbp(Gbp),
    /// The options of Geneve.
    Geneve(geneve::Options<'a>),
    /// The header of ERSPAN.
    Erspan(Erspan),
    /// The header of GTP-U.
    Gtpu(Gtpu),
}

/// Reads the outer headers of a packet, from the outer IP header on.
///
/// # Errors
/// [`Refusal`]: the packet has to be dropped and counted.
#[inline(always)]
pub fn decapsulate(format: Format, packet: &[u8], checksums: Checksums) -> Result<Decapsulated<'_>, Refusal> {
    match plain::parse(format, packet, checksums) {
        Some(found) => Ok(found),
        None => walk(format, packet, checksums),
    }
}

/// The same by a walk over all headers.
fn walk(format: Format, packet: &[u8], checksums: Checksums) -> Result<Decapsulated<'_>, Refusal> {
    let ip = ip::parse(packet, checksums)?;
    let (ports, found) = match format {
        Format::Gre => (None, gre::parse(&ip, checksums)?),
        Format::Srv6 => (None, srv6::parse(packet, &ip)?),
        Format::Vxlan { .. } | Format::Geneve | Format::Gtpu | Format::Bareudp(_) => {
            let datagram = udp::parse(&ip, checksums)?;
            let found = match format {
                Format::Vxlan { gbp, gpe } => vxlan::parse(datagram.data, gbp, gpe)?,
                Format::Geneve => geneve::parse(datagram.data)?,
                Format::Bareudp(payload) => bareudp::parse(payload, datagram.data, ip.dst)?,
                _ => gtpu::parse(datagram.data)?,
            };
            let csum = datagram.csum;
            let found = Found { csum, ..found }.behind(udp::LEN);
            (Some((datagram.src, datagram.dst)), found)
        }
    };
    let found = found.behind(ip.start);
    // A message for a control protocol keeps all its headers.
    let (start, end) = match found.inner {
        Inner::Message => (0, ip.end),
        _ => (found.start, found.end),
    };
    found.inner.check(&packet[start..end])?;
    let (tp_src, tp_dst) = ports.unwrap_or_default();
    Ok(Decapsulated {
        kind: found.kind,
        src: ip.src,
        dst: ip.dst,
        tos: ip.tos,
        ttl: ip.ttl,
        tp_src,
        tp_dst,
        id: found.id,
        csum: found.csum,
        oam: found.oam,
        details: found.details,
        start,
        end,
        inner: found.inner,
    })
}

/// What a format's parser found, at offsets in its own bytes.
struct Found<'a> {
    kind: Kind,
    id: Option<u64>,
    csum: bool,
    oam: bool,
    details: Details<'a>,
    start: usize,
    end: usize,
    inner: Inner,
}

impl<'a> Found<'a> {
    /// A packet of `kind` with nothing special.
    #[inline]
    fn new(kind: Kind, id: Option<u64>, inner: Inner, start: usize, end: usize) -> Found<'a> {
        Found {
            kind,
            id,
            csum: false,
            oam: false,
            details: Details::None,
            start,
            end,
            inner,
        }
    }

    /// The same at offsets that also count a header before it.
    #[inline]
    fn behind(self, header: usize) -> Found<'a> {
        Found {
            start: self.start + header,
            end: self.end + header,
            ..self
        }
    }
}

/// The 16-bit word at an offset.
///
/// # Panics
/// If the bytes end before.
#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The 32-bit word at an offset.
///
/// # Panics
/// If the bytes end before.
#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

#[cfg(test)]
mod tests;
