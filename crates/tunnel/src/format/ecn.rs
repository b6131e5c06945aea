//! Congestion marks of outer and inner headers (RFC 6040).

use super::inner::{Inner, locate};
use super::{Refusal, be16};
use wire::EtherType;
use wire::checksum::update;

/// The bits of the type of service that are the mark.
pub const MASK: u8 = 3;

/// Codepoints (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not support marks.
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// A router on the way is congested.
    Ce = 3,
}

impl Ecn {
    /// The mark in a type of service or traffic class.
    pub const fn of_tos(tos: u8) -> Ecn {
        match tos & MASK {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// The outer type of service of a packet: these six bits, and the mark of the inner header (RFC
/// 6040 §4.1, normal mode).
pub const fn encapsulate(dscp: u8, inner: Ecn) -> u8 {
    dscp & !MASK | inner as u8
}

/// The mark that an inner packet has after decapsulation (RFC 6040 §4.2).
///
/// # Errors
/// [`Refusal::Ecn`] if the packet must be dropped.
pub const fn decapsulate(outer: Ecn, inner: Ecn) -> Result<Ecn, Refusal> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => Err(Refusal::Ecn),
        (Ecn::Ect0, Ecn::Ect1) => Ok(Ecn::Ect1),
        (Ecn::Ect0 | Ecn::Ect1, Ecn::Ce) => Ok(Ecn::Ce),
        (inner, _) => Ok(inner),
    }
}

/// Joins the outer mark into the IP header of an inner packet, if it has one; an IPv4 checksum
/// follows the change.
///
/// # Errors
/// [`Refusal::Ecn`] if the packet must be dropped.
#[inline]
pub fn apply(packet: &mut [u8], inner: Inner, outer_tos: u8) -> Result<(), Refusal> {
    match Ecn::of_tos(outer_tos) {
        Ecn::NotEct => Ok(()),
        outer => join(packet, inner, outer),
    }
}

fn join(packet: &mut [u8], inner: Inner, outer: Ecn) -> Result<(), Refusal> {
    let Some((kind, at)) = locate(packet, inner) else {
        return Ok(());
    };
    let header = &mut packet[at..];
    if kind == EtherType::IPV4 {
        let old = Ecn::of_tos(header[1]);
        let new = decapsulate(outer, old)?;
        if new != old {
            let before = be16(header, 0);
            header[1] = header[1] & !MASK | new as u8;
            let sum = update(be16(header, 10), before, be16(header, 0));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    } else {
        // The traffic class lies across two bytes.
        let old = Ecn::of_tos(header[1] >> 4);
        let new = decapsulate(outer, old)?;
        header[1] = header[1] & !(MASK << 4) | (new as u8) << 4;
    }
    Ok(())
}
