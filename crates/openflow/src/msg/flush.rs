//! Nicira's message that has connections forgotten.

use super::property::{Properties, put};
use crate::OfError;
use crate::buf::{Reader, Writer};
use crate::model::{CtFlush, CtTuple};

const ORIG: u16 = 0;
const REPLY: u16 = 1;
const ZONE: u16 = 2;
const MARK: u16 = 3;
const MARK_MASK: u16 = 4;
const LABEL: u16 = 5;
const LABEL_MASK: u16 = 6;

const SRC: u16 = 0;
const DST: u16 = 1;
const SRC_PORT: u16 = 2;
const DST_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;

/// Reads it from behind the vendor's header.
pub(super) fn decode(data: &mut Reader<'_>) -> Result<CtFlush, OfError> {
    let mut flush = CtFlush {
        proto: data.u8()?,
        ..CtFlush::default()
    };
    data.zeros(7, OfError::NxBrcMustBeZero)?;
    let (mut mark, mut label) = ((None, None), (None, None));
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        match kind {
            ORIG => decode_tuple(&mut value, flush.proto, &mut flush.orig)?,
            REPLY => decode_tuple(&mut value, flush.proto, &mut flush.reply)?,
            ZONE => flush.zone = Some(value.u16()?),
            MARK => mark.0 = Some(value.u32()?),
            MARK_MASK => mark.1 = Some(value.u32()?),
            LABEL => label.0 = Some(u128::from_be_bytes(value.array()?)),
            LABEL_MASK => label.1 = Some(u128::from_be_bytes(value.array()?)),
            _ => {}
        }
    }
    // A value alone is exact, and a mask alone is about a value of 0.
    flush.mark = masked(mark, u32::MAX);
    flush.label = masked(label, u128::MAX);
    Ok(flush)
}

fn masked<T: Default>(given: (Option<T>, Option<T>), exact: T) -> Option<(T, T)> {
    match given {
        (None, None) => None,
        (value, mask) => Some((value.unwrap_or_default(), mask.unwrap_or(exact))),
    }
}

fn decode_tuple(data: &mut Reader<'_>, proto: u8, tuple: &mut CtTuple) -> Result<(), OfError> {
    // Addresses begin at a multiple of 8 bytes.
    data.skip(data.len().min(4))?;
    let icmp = matches!(proto, 1 | 58);
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        // As Open vSwitch does, ignore fields that are unknown, and bytes behind a field.
        match kind {
            SRC => tuple.src = Some(value.array::<16>()?.into()),
            DST => tuple.dst = Some(value.array::<16>()?.into()),
            SRC_PORT => tuple.src_port = Some(value.u16()?),
            DST_PORT => tuple.dst_port = Some(value.u16()?),
            ICMP_ID if icmp => tuple.icmp_id = Some(value.u16()?),
            ICMP_TYPE if icmp => tuple.icmp_type = Some(value.u8()?),
            ICMP_CODE if icmp => tuple.icmp_code = Some(value.u8()?),
            _ => {}
        }
    }
    let old = |addr: Option<std::net::Ipv6Addr>| addr.map(|a| a.to_ipv4_mapped().is_some());
    match (old(tuple.src), old(tuple.dst)) {
        (Some(a), Some(b)) if a != b => Err(OfError::BpcBadValue),
        _ => Ok(()),
    }
}

pub(super) fn encode(out: &mut Writer, flush: &CtFlush) {
    out.u8(flush.proto);
    out.zeros(7);
    for (kind, tuple) in [(ORIG, &flush.orig), (REPLY, &flush.reply)] {
        if *tuple != CtTuple::default() {
            put(out, kind, |out| encode_tuple(out, tuple));
        }
    }
    if let Some(zone) = flush.zone {
        put(out, ZONE, |out| short(out, zone));
    }
    if let Some((value, mask)) = flush.mark {
        put(out, MARK, |out| out.u32(value));
        put(out, MARK_MASK, |out| out.u32(mask));
    }
    if let Some((value, mask)) = flush.label {
        put(out, LABEL, |out| out.bytes(&value.to_be_bytes()));
        put(out, LABEL_MASK, |out| out.bytes(&mask.to_be_bytes()));
    }
}

/// A number in four bytes, at their beginning.
fn short(out: &mut Writer, number: u16) {
    out.u16(number);
    out.zeros(2);
}

fn encode_tuple(out: &mut Writer, tuple: &CtTuple) {
    out.zeros(4);
    for (kind, addr) in [(SRC, tuple.src), (DST, tuple.dst)] {
        if let Some(addr) = addr {
            put(out, kind, |out| out.bytes(&addr.octets()));
        }
    }
    for (kind, number) in [
        (SRC_PORT, tuple.src_port),
        (DST_PORT, tuple.dst_port),
        (ICMP_ID, tuple.icmp_id),
    ] {
        if let Some(number) = number {
            put(out, kind, |out| short(out, number));
        }
    }
    for (kind, number) in [(ICMP_TYPE, tuple.icmp_type), (ICMP_CODE, tuple.icmp_code)] {
        if let Some(number) = number {
            put(out, kind, |out| out.bytes(&[number, 0, 0, 0]));
        }
    }
}
