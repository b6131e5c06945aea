//! Statistics of ports.

use super::port::{ETHERNET, EXPERIMENTER, OPTICAL, three};
use super::property::{Properties, put};
use super::{Codec, encode_port, flow};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};

const INTEL: u32 = 0x0000_aa01;
/// Types of its extensions.
const INTEL_RFC2819: u32 = 1;
const INTEL_CUSTOM: u32 = 2;

pub(super) fn decode(codec: &Codec, data: &mut Reader<'_>) -> Result<PortStats, OfError> {
    let version = codec.version;
    let (mut duration, mut properties, mut stats) = (Duration::default(), 0, PortStats::default());
    if version >= Version::V14 {
        const FIXED: usize = 80;
        properties = usize::from(data.u16()?).checked_sub(FIXED).ok_or(OfError::BrcBadLen)?;
        data.skip(2)?;
    }
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => crate::action::port11(data.u32()?, OfError::BacBadOutPort)?,
    };
    match version {
        Version::V10 => data.skip(6)?,
        Version::V14 | Version::V15 => duration = flow::duration(data)?,
        _ => data.skip(4)?,
    }
    // Later versions have some counters in a property that may be absent.
    let mut counters = [u64::MAX; 12];
    let ethernet = if version >= Version::V14 { 8 } else { 12 };
    for counter in &mut counters[..ethernet] {
        *counter = data.u64()?;
    }
    if version >= Version::V14 {
        let mut data = data.sub(properties, OfError::BpcBadLen)?;
        let mut properties = Properties::new(&mut data);
        while let Some((kind, mut value)) = properties.next()? {
            match kind {
                ETHERNET => {
                    value.skip(4)?;
                    for counter in &mut counters[8..] {
                        *counter = value.u64()?;
                    }
                }
                OPTICAL => {
                    value.skip(4)?;
                    stats.optical = Some(optical(&mut value)?);
                }
                EXPERIMENTER => extension(&mut value, &mut stats)?,
                // Additions of the other side.
                _ => continue,
            }
            value.end()?;
        }
    } else if version == Version::V13 {
        duration = flow::duration(data)?;
    }
    let [
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
        rx_errors,
        tx_errors,
        frame,
        over,
        crc,
        coll,
    ] = counters;
    Ok(PortStats {
        port,
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
        rx_errors,
        tx_errors,
        rx_frame_errors: frame,
        rx_over_errors: over,
        rx_crc_errors: crc,
        collisions: coll,
        duration,
        ..stats
    })
}

/// Counters of Intel's, behind the experimenter's header.
fn extension(data: &mut Reader<'_>, stats: &mut PortStats) -> Result<(), OfError> {
    if data.u32()? != INTEL {
        data.rest();
        return Ok(());
    }
    match data.u32()? {
        INTEL_RFC2819 => {
            data.skip(4)?;
            let mut counters = [0; RFC2819.len()];
            for counter in &mut counters {
                *counter = data.u64()?;
            }
            stats.rfc2819 = Some(Box::new(counters));
        }
        INTEL_CUSTOM => {
            data.skip(2)?;
            for _ in 0..data.u16()? {
                let len = data.u8()?;
                let name = data.text(len.into())?;
                stats.custom.push((name, data.u64()?));
            }
        }
        _ => {}
    }
    // Some pad to more than 8 bytes.
    data.rest();
    Ok(())
}

fn optical(data: &mut Reader<'_>) -> Result<OpticalStats, OfError> {
    Ok(OpticalStats {
        flags: data.u32()?,
        tx: three(data)?,
        rx: three(data)?,
        power: [data.u16()?, data.u16()?],
        bias: data.u16()?,
        temperature: data.u16()?,
    })
}

fn put_optical(out: &mut Writer, optical: &OpticalStats) {
    out.zeros(4);
    out.u32(optical.flags);
    optical.tx.iter().chain(&optical.rx).for_each(|n| out.u32(*n));
    optical.power.iter().for_each(|n| out.u16(*n));
    out.u16(optical.bias);
    out.u16(optical.temperature);
}

pub(super) fn encode(codec: &Codec, out: &mut Writer, s: &PortStats) {
    let version = codec.version;
    let start = out.len();
    if version >= Version::V14 {
        out.zeros(4);
    }
    encode_port(version, out, s.port);
    match version {
        Version::V10 => out.zeros(6),
        Version::V14 | Version::V15 => flow::put_duration(out, s.duration),
        _ => out.zeros(4),
    }
    for counter in [
        s.rx_packets,
        s.tx_packets,
        s.rx_bytes,
        s.tx_bytes,
        s.rx_dropped,
        s.tx_dropped,
        s.rx_errors,
        s.tx_errors,
    ] {
        out.u64(counter);
    }
    if version >= Version::V14 {
        out.u16(ETHERNET);
        out.u16(40);
        out.zeros(4);
    }
    for counter in [s.rx_frame_errors, s.rx_over_errors, s.rx_crc_errors, s.collisions] {
        out.u64(counter);
    }
    if version == Version::V13 {
        flow::put_duration(out, s.duration);
    }
    if version >= Version::V14 {
        if let Some(optical) = &s.optical {
            put(out, OPTICAL, |out| put_optical(out, optical));
        }
        if let Some(counters) = &s.rfc2819 {
            put(out, EXPERIMENTER, |out| {
                out.u32(INTEL);
                out.u32(INTEL_RFC2819);
                out.zeros(4);
                counters.iter().for_each(|n| out.u64(*n));
            });
        }
        if !s.custom.is_empty() {
            put(out, EXPERIMENTER, |out| put_custom(out, &s.custom));
        }
        out.patch_len(start, start);
    }
}

fn put_custom(out: &mut Writer, counters: &[(String, u64)]) {
    out.u32(INTEL);
    out.u32(INTEL_CUSTOM);
    out.zeros(2);
    out.u16(counters.len() as u16);
    for (name, count) in counters {
        let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
        out.u8(name.len() as u8);
        out.bytes(name);
        out.u64(*count);
    }
}
