//! Roles of controllers, and asynchronous configuration.

use super::Codec;
use super::property::{Properties, put};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};

fn role(number: u32) -> Result<Role, OfError> {
    Ok(match number {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Master,
        3 => Role::Slave,
        _ => return Err(OfError::RrfcBadRole),
    })
}

pub(super) fn decode_role(codec: &Codec, data: &mut Reader<'_>) -> Result<RoleMsg, OfError> {
    let role = role(data.u32()?)?;
    let short_id = data.u16()?;
    data.skip(2)?;
    let generation = data.u64()?;
    let elected = matches!(role, Role::Master | Role::Slave);
    Ok(RoleMsg {
        role,
        generation: (elected || generation != u64::MAX).then_some(generation),
        nicira: false,
        short_id: if codec.version >= Version::V15 { short_id } else { 0 },
    })
}

pub(super) fn encode_role(codec: &Codec, out: &mut Writer, m: &RoleMsg) {
    out.u32(m.role as u32);
    out.u16(if codec.version >= Version::V15 { m.short_id } else { 0 });
    out.zeros(2);
    out.u64(m.generation.unwrap_or(u64::MAX));
}

pub(super) fn decode_role_status(data: &mut Reader<'_>) -> Result<RoleStatus, OfError> {
    let role = role(data.u32()?)?;
    let reason = data.u8()?;
    data.skip(3)?;
    let generation = data.u64()?;
    if reason > 2 {
        return Err(OfError::NxBrcBadReason);
    }
    let mut properties = Properties::new(data);
    // Only experimenters have properties here, to explain their reasons.
    while properties.next()?.is_some() {}
    Ok(RoleStatus {
        role,
        reason,
        generation: (generation != u64::MAX).then_some(generation),
    })
}

pub(super) fn encode_role_status(out: &mut Writer, status: &RoleStatus) {
    out.u32(status.role as u32);
    out.u8(status.reason);
    out.zeros(3);
    out.u64(status.generation.unwrap_or(u64::MAX));
}

const URI: u16 = 0;

pub(super) fn decode_controller(data: &mut Reader<'_>) -> Result<ControllerStatus, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let (short_id, role) = (data.u16()?, role(data.u32()?)?);
    let (reason, channel) = (data.u8()?, data.u8()?);
    data.skip(6)?;
    if reason > 6 || channel > 1 {
        return Err(OfError::NxBrcBadReason);
    }
    let mut uris = Vec::new();
    let mut properties = Properties::new(&mut data);
    while let Some((kind, mut value)) = properties.next()? {
        if kind == URI {
            let len = value.len();
            uris.push(value.text(len)?);
        }
    }
    Ok(ControllerStatus {
        short_id,
        role,
        reason,
        up: channel == 0,
        uris,
    })
}

pub(super) fn encode_controller(out: &mut Writer, status: &ControllerStatus) {
    let start = out.len();
    out.u16(0);
    out.u16(status.short_id);
    out.u32(status.role as u32);
    out.u8(status.reason);
    out.u8((!status.up).into());
    out.zeros(6);
    for uri in &status.uris {
        put(out, URI, |out| out.bytes(uri.as_bytes()));
    }
    out.patch_len(start, start);
}

pub(super) fn decode_async(data: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
    let mut pair = || Ok::<_, OfError>([data.u32()?, data.u32()?]);
    Ok(AsyncConfig {
        given: AsyncConfig::GIVEN_OLD,
        packet_in: pair()?,
        port_status: pair()?,
        flow_removed: pair()?,
        ..AsyncConfig::default()
    })
}

/// The highest property type of a version.
fn last(version: Version) -> u16 {
    if version >= Version::V15 { 15 } else { 11 }
}

/// The defined reasons of a kind of event, by its place in [`AsyncConfig::masks`]: bits that a mask
/// may set.
pub(crate) fn reasons(version: Version, kind: usize) -> u32 {
    match kind {
        // Packet-ins, with the reasons that OpenFlow 1.4 added.
        0 if version >= Version::V14 => 0x3f,
        0 => 0x7,
        1 => 0x7,
        2 => 0x3f,
        3 => 0x7,
        4 => 0x18,
        5 => 0x3,
        6 => 0x3,
        _ => 0x7f,
    }
}

/// Reads masks as properties. Unknown properties are accepted in replies and refused in requests.
pub(super) fn decode_async14(codec: &Codec, data: &mut Reader<'_>, request: bool) -> Result<AsyncConfig, OfError> {
    let mut masks = [[0; 2]; 8];
    let mut given = 0;
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        match kind {
            _ if kind <= last(codec.version) => {
                let mask = value.u32()?;
                value.end()?;
                if request && mask & !reasons(codec.version, usize::from(kind / 2)) != 0 {
                    return Err(OfError::AcfcInvalid);
                }
                masks[usize::from(kind / 2)][usize::from(kind % 2 == 0)] = mask;
                given |= 1 << kind;
            }
            _ if !request => {}
            0xfffe | 0xffff => return Err(OfError::BpcBadExperimenter),
            _ => return Err(OfError::AcfcUnsupported),
        }
    }
    Ok(AsyncConfig {
        given,
        ..AsyncConfig::from_masks(masks)
    })
}

pub(super) fn encode_async(codec: &Codec, out: &mut Writer, config: &AsyncConfig) {
    let masks = config.masks();
    if codec.version < Version::V14 {
        masks[..3].as_flattened().iter().for_each(|m| out.u32(*m));
        return;
    }
    encode_async14(codec, out, config);
}

/// Writes the present masks as properties, without undefined reasons.
pub(super) fn encode_async14(codec: &Codec, out: &mut Writer, config: &AsyncConfig) {
    let masks = config.masks();
    for kind in 0..=last(codec.version) {
        if config.given & 1 << kind != 0 {
            put(out, kind, |out| {
                let event = usize::from(kind / 2);
                out.u32(masks[event][usize::from(kind % 2 == 0)] & reasons(codec.version, event));
            });
        }
    }
}
