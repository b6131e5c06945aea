//! Ports.

use super::property::{Properties, put, put_all, raw};
use super::{Codec, encode_port};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};
use wire::MacAddr;

const NAME: usize = 16;
/// Types of properties.
pub(super) const ETHERNET: u16 = 0;
pub(super) const OPTICAL: u16 = 1;
pub(super) const EXPERIMENTER: u16 = 0xffff;
/// Bits of a port's configuration that OpenFlow 1.0 has, and that later versions have.
const CONFIG10: u32 = 0x7f;
const CONFIG11: u32 = 0x65;
/// Bits of a port's state that OpenFlow 1.0 has, and that later versions have.
const STATE10: u32 = 0x301;
const STATE11: u32 = 0x7;
/// All features.
const FEATURES: u32 = 0xffff;
/// The features up to 10 Gbit/s, which have the same numbers in all versions.
const SPEEDS: u32 = 0x7f;

/// Features as OpenFlow 1.0 numbers them: without the higher speeds.
fn features10(features: u32) -> u32 {
    features & SPEEDS | (features >> 11 & 0x1f) << 7
}

/// And back.
fn features11(features: u32) -> u32 {
    features & SPEEDS | (features >> 7 & 0x1f) << 11
}

fn mac(data: &mut Reader<'_>) -> Result<MacAddr, OfError> {
    data.array().map(MacAddr)
}

pub(super) fn decode_desc(codec: &Codec, data: &mut Reader<'_>) -> Result<PortDesc, OfError> {
    let version = codec.version;
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => crate::action::port11(data.u32()?, OfError::BacBadOutPort)?,
    };
    let mut desc = PortDesc {
        port,
        ..PortDesc::default()
    };
    let mut properties = None;
    if version >= Version::V14 {
        const FIXED: usize = 40;
        let len = usize::from(data.u16()?);
        data.skip(2)?;
        properties = Some(len.checked_sub(FIXED).ok_or(OfError::BrcBadLen)?);
    } else if version > Version::V10 {
        data.skip(4)?;
    }
    desc.hw_addr = mac(data)?;
    if version > Version::V10 {
        data.skip(2)?;
    }
    desc.name = data.text(NAME)?;
    let old = version == Version::V10;
    desc.config = data.u32()? & if old { CONFIG10 } else { CONFIG11 };
    desc.state = data.u32()? & if old { STATE10 } else { STATE11 };
    match properties {
        None => ethernet(version, data, &mut desc)?,
        Some(len) => {
            let mut data = data.sub(len, OfError::BpcBadLen)?;
            let mut properties = Properties::new(&mut data);
            while let Some((kind, mut value)) = properties.next()? {
                match kind {
                    ETHERNET => {
                        value.skip(4)?;
                        ethernet(version, &mut value, &mut desc)?;
                        value.end()?;
                    }
                    OPTICAL => {
                        value.skip(4)?;
                        desc.optical = Some(optical(&mut value)?);
                        value.end()?;
                    }
                    _ => desc.others.push(raw(kind, value)),
                }
            }
        }
    }
    Ok(desc)
}

fn ethernet(version: Version, data: &mut Reader<'_>, desc: &mut PortDesc) -> Result<(), OfError> {
    let known = |features| match version {
        Version::V10 => features11(features),
        _ => features & FEATURES,
    };
    desc.current = known(data.u32()?);
    desc.advertised = known(data.u32()?);
    desc.supported = known(data.u32()?);
    desc.peer = known(data.u32()?);
    if version > Version::V10 {
        (desc.current_speed, desc.max_speed) = (data.u32()?, data.u32()?);
    }
    Ok(())
}

fn optical(data: &mut Reader<'_>) -> Result<OpticalPort, OfError> {
    Ok(OpticalPort {
        supported: data.u32()?,
        tx: three(data)?,
        rx: three(data)?,
        power: [data.u16()?, data.u16()?],
    })
}

pub(super) fn three(data: &mut Reader<'_>) -> Result<[u32; 3], OfError> {
    Ok([data.u32()?, data.u32()?, data.u32()?])
}

fn put_optical(out: &mut Writer, optical: &OpticalPort) {
    out.zeros(4);
    out.u32(optical.supported);
    optical.tx.iter().chain(&optical.rx).for_each(|n| out.u32(*n));
    optical.power.iter().for_each(|n| out.u16(*n));
}

pub(super) fn encode_desc(codec: &Codec, out: &mut Writer, desc: &PortDesc) {
    let version = codec.version;
    let start = out.len();
    encode_port(version, out, desc.port);
    if version > Version::V10 {
        out.zeros(4);
    }
    out.bytes(&desc.hw_addr.0);
    if version > Version::V10 {
        out.zeros(2);
    }
    out.text(&desc.name, NAME);
    let old = version == Version::V10;
    out.u32(desc.config & if old { CONFIG10 } else { CONFIG11 });
    out.u32(desc.state & if old { STATE10 } else { STATE11 });
    if version >= Version::V14 {
        out.u16(ETHERNET);
        out.u16(32);
        out.zeros(4);
    }
    for features in [desc.current, desc.advertised, desc.supported, desc.peer] {
        out.u32(if old { features10(features) } else { features });
    }
    if !old {
        out.u32(desc.current_speed);
        out.u32(desc.max_speed);
    }
    if version >= Version::V14 {
        if let Some(optical) = &desc.optical {
            put(out, OPTICAL, |out| put_optical(out, optical));
        }
        put_all(out, &desc.others);
        out.patch_len(start + 4, start);
    }
}

pub(super) fn decode_status(codec: &Codec, data: &mut Reader<'_>) -> Result<PortStatus, OfError> {
    let reason = data.u8()?;
    data.skip(7)?;
    if reason > 2 {
        return Err(OfError::NxBrcBadReason);
    }
    Ok(PortStatus {
        reason,
        desc: decode_desc(codec, data)?,
    })
}

pub(super) fn encode_status(codec: &Codec, out: &mut Writer, status: &PortStatus) {
    out.u8(status.reason);
    out.zeros(7);
    encode_desc(codec, out, &status.desc);
}

pub(super) fn decode_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<PortMod, OfError> {
    let version = codec.version;
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => crate::action::port11(data.u32()?, OfError::BacBadOutPort)?,
    };
    if version > Version::V10 {
        data.skip(4)?;
    }
    let hw_addr = mac(data)?;
    if version > Version::V10 {
        data.skip(2)?;
    }
    let (config, mask) = (data.u32()?, data.u32()?);
    let mut advertise = 0;
    match version {
        Version::V10 | Version::V11 | Version::V12 | Version::V13 => {
            advertise = data.u32()?;
            data.skip(4)?;
        }
        _ => {
            let mut properties = Properties::new(data);
            while let Some((kind, mut value)) = properties.next()? {
                match kind {
                    ETHERNET => {
                        advertise = value.u32()?;
                        value.end()?;
                    }
                    EXPERIMENTER => return Err(OfError::BpcBadExperimenter),
                    // There are no optical ports to be set.
                    _ => return Err(OfError::BpcBadType),
                }
            }
        }
    }
    let known = if version == Version::V10 { CONFIG10 } else { CONFIG11 };
    if config & !known != 0 || mask & !known != 0 {
        return Err(OfError::PmfcBadConfig);
    }
    Ok(PortMod {
        port,
        hw_addr,
        config,
        mask,
        advertise: match version {
            Version::V10 => features11(advertise),
            _ => advertise & FEATURES,
        },
    })
}

pub(super) fn encode_mod(codec: &Codec, out: &mut Writer, m: &PortMod) {
    let version = codec.version;
    encode_port(version, out, m.port);
    if version > Version::V10 {
        out.zeros(4);
    }
    out.bytes(&m.hw_addr.0);
    if version > Version::V10 {
        out.zeros(2);
    }
    let known = if version == Version::V10 { CONFIG10 } else { CONFIG11 };
    out.u32(m.config & known);
    out.u32(m.mask & known);
    match version {
        Version::V10 => out.u32(features10(m.advertise)),
        Version::V11 | Version::V12 | Version::V13 => out.u32(m.advertise),
        _ => {
            if m.advertise != 0 {
                out.u16(0);
                out.u16(8);
                out.u32(m.advertise);
            }
            return;
        }
    }
    out.zeros(4);
}
