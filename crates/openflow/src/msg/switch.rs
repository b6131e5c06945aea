//! The switch itself: features, configuration, tables, roles, events, bundles.

use super::{Codec, port};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{HEADER_LEN, OfError, Version};

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

pub(super) fn encode_config(out: &mut Writer, config: &Config) {
    out.u16(config.flags);
    out.u16(config.miss_send_len);
}

pub(super) fn decode_table_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<TableMod, OfError> {
    let table = data.u8()?;
    data.skip(3)?;
    let config = data.u32()?;
    let mut properties = Vec::new();
    if codec.version >= Version::V14 {
        properties = decode_properties(data)?;
    } else if config & !3 != 0 || config == 3 {
        return Err(OfError::TmfcBadConfig);
    }
    Ok(TableMod {
        table,
        config,
        properties,
    })
}

pub(super) fn encode_table_mod(codec: &Codec, out: &mut Writer, m: &TableMod) {
    out.u8(m.table);
    out.zeros(3);
    out.u32(m.config);
    if codec.version >= Version::V14 {
        encode_properties(out, &m.properties);
    }
}

fn decode_properties(data: &mut Reader<'_>) -> Result<Vec<Property>, OfError> {
    let mut properties = Vec::new();
    while !data.is_empty() {
        let (kind, mut value) = port::property(data)?;
        properties.push(Property {
            kind,
            data: value.rest().to_vec(),
        });
    }
    Ok(properties)
}

fn encode_properties(out: &mut Writer, properties: &[Property]) {
    for property in properties {
        let start = out.len();
        out.u16(property.kind);
        out.u16(0);
        out.bytes(&property.data);
        out.patch_len(start + 2, start);
        out.pad8(start);
    }
}

pub(super) fn decode_role(data: &mut Reader<'_>) -> Result<RoleMsg, OfError> {
    let role = match data.u32()? {
        0 => Role::NoChange,
        1 => Role::Equal,
        2 => Role::Master,
        3 => Role::Slave,
        _ => return Err(OfError::RrfcBadRole),
    };
    data.skip(4)?;
    let generation = data.u64()?;
    let elected = matches!(role, Role::Master | Role::Slave);
    Ok(RoleMsg {
        role,
        generation: (elected || generation != u64::MAX).then_some(generation),
        nicira: false,
    })
}

pub(super) fn encode_role(out: &mut Writer, m: &RoleMsg) {
    out.u32(m.role as u32);
    out.zeros(4);
    out.u64(m.generation.unwrap_or(u64::MAX));
}

pub(super) fn decode_async(data: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
    let mut pair = || Ok::<_, OfError>([data.u32()?, data.u32()?]);
    Ok(AsyncConfig {
        packet_in: pair()?,
        port_status: pair()?,
        flow_removed: pair()?,
    })
}

/// Which member of the configuration a property is, and whether it is for slaves.
fn async_property(kind: u16) -> Option<(usize, usize)> {
    match kind {
        0..=5 => Some((usize::from(kind / 2), usize::from(kind + 1) % 2)),
        _ => None,
    }
}

pub(super) fn decode_async14(data: &mut Reader<'_>) -> Result<AsyncConfig, OfError> {
    let mut config = AsyncConfig::default();
    while !data.is_empty() {
        let (kind, mut value) = port::property(data)?;
        // Properties of roles, tables and requests of others are known, but of no consequence here.
        let Some((member, slave)) = async_property(kind) else {
            match kind {
                6..=11 => continue,
                0xfffe | 0xffff => return Err(OfError::BpcBadExperimenter),
                _ => return Err(OfError::BpcBadType),
            }
        };
        let members = [&mut config.packet_in, &mut config.port_status, &mut config.flow_removed];
        for (n, m) in members.into_iter().enumerate() {
            if n == member {
                m[slave] = value.u32()?;
            }
        }
    }
    Ok(config)
}

pub(super) fn encode_async(codec: &Codec, out: &mut Writer, config: &AsyncConfig) {
    let members = [config.packet_in, config.port_status, config.flow_removed];
    if codec.version < Version::V14 {
        members.as_flattened().iter().for_each(|m| out.u32(*m));
        return;
    }
    for kind in 0..6 {
        if let Some((member, slave)) = async_property(kind) {
            out.u16(kind);
            out.u16(8);
            out.u32(members[member][slave]);
        }
    }
}

pub(super) fn decode_bundle_control(data: &mut Reader<'_>) -> Result<BundleControl, OfError> {
    let (bundle, kind, flags) = (data.u32()?, data.u16()?, data.u16()?);
    bundle_rest(flags, data)?;
    match kind {
        0..=7 => Ok(BundleControl { bundle, kind, flags }),
        _ => Err(OfError::BfcBadType),
    }
}

/// Flags that are known, and properties, none of which is.
fn bundle_rest(flags: u16, data: &mut Reader<'_>) -> Result<(), OfError> {
    if flags & !3 != 0 {
        return Err(OfError::BfcBadFlags);
    }
    match decode_properties(data)?.is_empty() {
        true => Ok(()),
        false => Err(OfError::BpcBadType),
    }
}

pub(super) fn encode_bundle_control(out: &mut Writer, m: &BundleControl) {
    out.u32(m.bundle);
    out.u16(m.kind);
    out.u16(m.flags);
}

pub(super) fn decode_bundle_add(data: &mut Reader<'_>) -> Result<BundleAdd, OfError> {
    let bundle = data.u32()?;
    data.skip(2)?;
    let flags = data.u16()?;
    let Some([_, _, a, b, ..]) = data.peek().first_chunk::<HEADER_LEN>() else {
        return Err(OfError::BfcMsgBadLen);
    };
    let len = usize::from(u16::from_be_bytes([*a, *b]));
    if len < HEADER_LEN || len > data.len() {
        return Err(OfError::BfcMsgBadLen);
    }
    let message = data.take(len)?.to_vec();
    // Properties are aligned; without any, the message may end the bundle's.
    data.skip((len.next_multiple_of(8) - len).min(data.len()))?;
    bundle_rest(flags, data)?;
    Ok(BundleAdd { bundle, flags, message })
}

pub(super) fn encode_bundle_add(out: &mut Writer, m: &BundleAdd) {
    out.u32(m.bundle);
    out.zeros(2);
    out.u16(m.flags);
    out.bytes(&m.message);
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

const TABLE_NAME: usize = 32;

pub(super) fn decode_table_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<TableStats, OfError> {
    let mut stats = TableStats {
        table: data.u8()?,
        name: String::new(),
        wildcards: 0,
        max_entries: 0,
        active: 0,
        lookups: 0,
        matched: 0,
    };
    match codec.version {
        Version::V10 => {
            data.skip(3)?;
            stats.name = data.text(TABLE_NAME)?;
            (stats.wildcards, stats.max_entries) = (data.u32()?, data.u32()?);
        }
        Version::V11 => {
            data.skip(7)?;
            stats.name = data.text(TABLE_NAME)?;
            data.skip(24)?;
            stats.max_entries = data.u32()?;
        }
        Version::V12 => {
            data.skip(7)?;
            stats.name = data.text(TABLE_NAME)?;
            data.skip(64)?;
            stats.max_entries = data.u32()?;
        }
        _ => data.skip(3)?,
    }
    stats.active = data.u32()?;
    (stats.lookups, stats.matched) = (data.u64()?, data.u64()?);
    Ok(stats)
}

pub(super) fn encode_table_stats(codec: &Codec, out: &mut Writer, s: &TableStats) {
    out.u8(s.table);
    match codec.version {
        Version::V10 => {
            out.zeros(3);
            out.text(&s.name, TABLE_NAME);
            out.u32(s.wildcards);
            out.u32(s.max_entries);
        }
        Version::V11 => {
            out.zeros(7);
            out.text(&s.name, TABLE_NAME);
            // Wildcards, match, instructions, write and apply actions as bits of OpenFlow 1.1, and the treatment of misses.
            for bits in [0x3ff, 0x3ff, 0x3e, 0x01f8_ffff, 0x01f8_ffff, 0] {
                out.u32(bits);
            }
            out.u32(s.max_entries);
        }
        Version::V12 => {
            out.zeros(7);
            out.text(&s.name, TABLE_NAME);
            let fields = u64::MAX >> 24;
            out.u64(fields);
            out.u64(fields);
            out.u32(0x03f9_f801);
            out.u32(0x03f9_f801);
            out.u64(fields);
            out.u64(fields);
            out.u64(u64::MAX);
            out.u64(u64::MAX);
            out.u32(0x3e);
            out.u32(0);
            out.u32(s.max_entries);
        }
        _ => out.zeros(3),
    }
    out.u32(s.active);
    out.u64(s.lookups);
    out.u64(s.matched);
}

pub(super) fn decode_table_features(data: &mut Reader<'_>) -> Result<TableFeatures, OfError> {
    const FIXED: usize = 64;
    let len = usize::from(data.u16()?);
    if len < FIXED || len % 8 != 0 {
        return Err(OfError::BrcBadLen);
    }
    let mut data = data.sub(len - 2, OfError::BrcBadLen)?;
    let table = data.u8()?;
    data.skip(5)?;
    Ok(TableFeatures {
        table,
        name: data.text(TABLE_NAME)?,
        metadata_match: data.u64()?,
        metadata_write: data.u64()?,
        config: data.u32()?,
        max_entries: data.u32()?,
        properties: decode_properties(&mut data)?,
    })
}

pub(super) fn encode_table_features(out: &mut Writer, f: &TableFeatures) {
    let start = out.len();
    out.u16(0);
    out.u8(f.table);
    out.zeros(5);
    out.text(&f.name, TABLE_NAME);
    out.u64(f.metadata_match);
    out.u64(f.metadata_write);
    out.u32(f.config);
    out.u32(f.max_entries);
    encode_properties(out, &f.properties);
    out.patch_len(start, start);
}
