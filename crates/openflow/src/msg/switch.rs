//! The switch itself: features, configuration, description.

use super::{Codec, port};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};

pub(super) fn decode_features(codec: &Codec, data: &mut Reader<'_>) -> Result<Features, OfError> {
    let version = codec.version;
    let (datapath_id, n_buffers, n_tables, auxiliary_id) = (data.u64()?, data.u32()?, data.u8()?, data.u8()?);
    data.skip(2)?;
    let (capabilities, actions) = (data.u32()?, data.u32()?);
    let mut ports = Vec::new();
    while version < Version::V13 && !data.is_empty() {
        ports.push(port::decode_desc(codec, data)?);
    }
    Ok(Features {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: if version >= Version::V13 { auxiliary_id } else { 0 },
        capabilities,
        actions: if version == Version::V10 { actions } else { 0 },
        ports,
    })
}

pub(super) fn encode_features(codec: &Codec, out: &mut Writer, f: &Features) {
    let version = codec.version;
    out.u64(f.datapath_id);
    out.u32(f.n_buffers);
    out.u8(f.n_tables);
    out.u8(if version >= Version::V13 { f.auxiliary_id } else { 0 });
    out.zeros(2);
    out.u32(f.capabilities);
    out.u32(if version == Version::V10 { f.actions } else { 0 });
    if version < Version::V13 {
        f.ports.iter().for_each(|p| port::encode_desc(codec, out, p));
    }
}

pub(super) fn decode_config(data: &mut Reader<'_>) -> Result<Config, OfError> {
    Ok(Config {
        flags: data.u16()?,
        miss_send_len: data.u16()?,
    })
}

/// Reads how a switch shall be set.
pub(super) fn decode_set_config(codec: &Codec, data: &mut Reader<'_>) -> Result<Config, OfError> {
    const FRAGMENTS: u16 = 3;
    /// Packets whose time to live ends go to controllers; OpenFlow 1.1 and 1.2, and Open vSwitch's
    /// tool says it in 1.0 too.
    const INVALID_TTL: u16 = 4;
    let config = decode_config(data)?;
    let known = match codec.version {
        Version::V10 | Version::V11 | Version::V12 => FRAGMENTS | INVALID_TTL,
        _ => FRAGMENTS,
    };
    match config.flags & !known {
        0 => Ok(config),
        _ => Err(OfError::ScfcBadFlags),
    }
}

pub(super) fn encode_config(out: &mut Writer, config: &Config) {
    out.u16(config.flags);
    out.u16(config.miss_send_len);
}

const MANUFACTURER: usize = 256;
const SERIAL: usize = 32;

pub(super) fn decode_desc(data: &mut Reader<'_>) -> Result<SwitchDesc, OfError> {
    Ok(SwitchDesc {
        manufacturer: data.text(MANUFACTURER)?,
        hardware: data.text(MANUFACTURER)?,
        software: data.text(MANUFACTURER)?,
        serial: data.text(SERIAL)?,
        datapath: data.text(MANUFACTURER)?,
    })
}

pub(super) fn encode_desc(out: &mut Writer, desc: &SwitchDesc) {
    out.text(&desc.manufacturer, MANUFACTURER);
    out.text(&desc.hardware, MANUFACTURER);
    out.text(&desc.software, MANUFACTURER);
    out.text(&desc.serial, SERIAL);
    out.text(&desc.datapath, MANUFACTURER);
}
