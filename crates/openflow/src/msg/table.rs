//! Tables: table-mods, statistics, features, descriptions.

use super::Codec;
use super::property::{Properties, put, put_all};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};

const EVICTION: u16 = 2;
const VACANCY: u16 = 3;
const EXPERIMENTER: u16 = 0xffff;

pub(super) fn decode_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<TableMod, OfError> {
    let table = data.u8()?;
    data.skip(3)?;
    let config = data.u32()?;
    let mut desc = TableDesc {
        table,
        config,
        ..TableDesc::default()
    };
    match codec.version {
        Version::V14 | Version::V15 => {
            if config & !(table_config::EVICTION | table_config::VACANCY) != 0 {
                return Err(OfError::TmfcBadConfig);
            }
            decode_settings(data, &mut desc)?;
            if let Some(vacancy) = desc.vacancy
                && (vacancy.now != 0 || vacancy.down > vacancy.up || vacancy.up > 100)
            {
                return Err(OfError::BpcBadValue);
            }
        }
        // OpenFlow 1.3 has no setting left.
        Version::V13 if config & !table_config::MISS_MASK != 0 => return Err(OfError::TmfcBadConfig),
        _ if config > table_config::MISS_DROP => return Err(OfError::TmfcBadConfig),
        _ => {}
    }
    Ok(TableMod {
        table,
        config,
        eviction: desc.eviction,
        vacancy: desc.vacancy,
    })
}

/// Properties of how a table is set.
fn decode_settings(data: &mut Reader<'_>, desc: &mut TableDesc) -> Result<(), OfError> {
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        match kind {
            EVICTION => {
                let flags = value.u32()?;
                if flags & !(eviction::OTHER | eviction::IMPORTANCE | eviction::LIFETIME) != 0 {
                    return Err(OfError::BpcBadValue);
                }
                desc.eviction = Some(flags);
            }
            VACANCY => {
                desc.vacancy = Some(Vacancy {
                    down: value.u8()?,
                    up: value.u8()?,
                    now: value.u8()?,
                });
                value.skip(1)?;
            }
            EXPERIMENTER => return Err(OfError::BpcBadExperimenter),
            _ => return Err(OfError::BpcBadType),
        }
        value.end()?;
    }
    Ok(())
}

fn encode_settings(out: &mut Writer, eviction: Option<u32>, vacancy: Option<Vacancy>) {
    if let Some(flags) = eviction {
        put(out, EVICTION, |out| out.u32(flags));
    }
    if let Some(vacancy) = vacancy {
        put(out, VACANCY, |out| {
            out.bytes(&[vacancy.down, vacancy.up, vacancy.now, 0])
        });
    }
}

pub(super) fn encode_mod(codec: &Codec, out: &mut Writer, m: &TableMod) {
    out.u8(m.table);
    out.zeros(3);
    out.u32(m.config);
    if codec.version >= Version::V14 {
        encode_settings(out, m.eviction, m.vacancy);
    }
}

pub(super) fn decode_desc(data: &mut Reader<'_>) -> Result<TableDesc, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let table = data.u8()?;
    data.skip(1)?;
    let mut desc = TableDesc {
        table,
        config: data.u32()?,
        ..TableDesc::default()
    };
    decode_settings(&mut data, &mut desc)?;
    Ok(desc)
}

pub(super) fn encode_desc(out: &mut Writer, desc: &TableDesc) {
    let start = out.len();
    out.u16(0);
    out.u8(desc.table);
    out.u8(0);
    out.u32(desc.config);
    encode_settings(out, desc.eviction, desc.vacancy);
    out.patch_len(start, start);
}

pub(super) fn decode_status(data: &mut Reader<'_>) -> Result<TableStatus, OfError> {
    let reason = data.u8()?;
    data.skip(7)?;
    match reason {
        3 | 4 => Ok(TableStatus {
            reason,
            desc: decode_desc(data)?,
        }),
        _ => Err(OfError::BpcBadValue),
    }
}

pub(super) fn encode_status(out: &mut Writer, status: &TableStatus) {
    out.u8(status.reason);
    out.zeros(7);
    encode_desc(out, &status.desc);
}

const NAME: usize = 32;

/// The fields of OpenFlow 1.1's match, by its own numbers (`OFPFMF_*`): all except the number of
/// the match's type.
const FIELDS_11: u32 = 0xffff & !(1 << 10);

/// The fields that rules can match in OpenFlow 1.2, by their OXM numbers: all but the physical
/// port.
const FIELDS_12: u64 = u64::MAX >> 24 & !(1 << 1);

pub(super) fn decode_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<TableStats, OfError> {
    let mut stats = TableStats {
        table: data.u8()?,
        ..TableStats::default()
    };
    match codec.version {
        Version::V10 => {
            data.skip(3)?;
            stats.name = data.text(NAME)?;
            (stats.wildcards, stats.max_entries) = (data.u32()?, data.u32()?);
        }
        Version::V11 => {
            data.skip(7)?;
            stats.name = data.text(NAME)?;
            data.skip(20)?;
            (stats.miss, stats.max_entries) = (data.u32()?, data.u32()?);
        }
        Version::V12 => {
            data.skip(7)?;
            stats.name = data.text(NAME)?;
            data.skip(60)?;
            (stats.miss, stats.max_entries) = (data.u32()?, data.u32()?);
        }
        _ => data.skip(3)?,
    }
    stats.active = data.u32()?;
    (stats.lookups, stats.matched) = (data.u64()?, data.u64()?);
    Ok(stats)
}

pub(super) fn encode_stats(codec: &Codec, out: &mut Writer, s: &TableStats) {
    out.u8(s.table);
    match codec.version {
        Version::V10 => {
            out.zeros(3);
            out.text(&s.name, NAME);
            out.u32(s.wildcards);
            out.u32(s.max_entries);
        }
        Version::V11 => {
            out.zeros(7);
            out.text(&s.name, NAME);
            // Wildcards, match, instructions, write and apply actions as bits of OpenFlow 1.1, and
            // the treatment of misses.
            for bits in [FIELDS_11, FIELDS_11, 0x3e, 0x01ff_ffff, 0x01ff_ffff, s.miss] {
                out.u32(bits);
            }
            out.u32(s.max_entries);
        }
        Version::V12 => {
            out.zeros(7);
            out.text(&s.name, NAME);
            // Fields matched and wildcarded, actions written and applied, fields set by either,
            // metadata matched and written, instructions, and the treatment of misses.
            out.u64(FIELDS_12);
            out.u64(FIELDS_12);
            out.u32(0x03ff_9801);
            out.u32(0x03ff_9801);
            // Actions can set neither fields that select the packet's type nor fields that follow
            // from its headers.
            let sets = FIELDS_12 & !(1 << 5 | 1 << 10 | 1 << 36 | 1 << 39);
            out.u64(sets);
            out.u64(sets);
            out.u64(u64::MAX);
            out.u64(u64::MAX);
            out.u32(0x3e);
            out.u32(s.miss);
            out.u32(s.max_entries);
        }
        _ => out.zeros(3),
    }
    out.u32(s.active);
    out.u64(s.lookups);
    out.u64(s.matched);
}

/// Length of the fixed part of table features.
const FEATURES: usize = 64;

pub(super) fn decode_features(codec: &Codec, data: &mut Reader<'_>) -> Result<TableFeatures, OfError> {
    // The specification has no word for a wrong length here but that for properties.
    const BAD_LEN: OfError = OfError::BpcBadLen;
    let len = match data.peek().first_chunk() {
        Some([a, b]) => usize::from(u16::from_be_bytes([*a, *b])),
        None => 0,
    };
    if len < FEATURES || len % 8 != 0 || len > data.len() {
        return Err(BAD_LEN);
    }
    let mut data = data.sub(len, BAD_LEN)?;
    data.skip(2)?;
    let new = codec.version >= Version::V15;
    let mut features = TableFeatures {
        table: data.u8()?,
        ..TableFeatures::default()
    };
    match new {
        true => {
            features.command = data.u8()?;
            if features.command > 3 {
                return Err(OfError::TffcBadCommand);
            }
            features.features = data.u32()?;
        }
        false => data.skip(5)?,
    }
    features.name = data.text(NAME)?;
    features.metadata_match = data.u64()?;
    features.metadata_write = data.u64()?;
    features.config = data.u32()?;
    features.max_entries = data.u32()?;
    features.properties = super::table_property::decode(codec.version, &mut data)?;
    Ok(features)
}

pub(super) fn encode_features(codec: &Codec, out: &mut Writer, f: &TableFeatures) {
    let start = out.len();
    out.u16(0);
    out.u8(f.table);
    match codec.version >= Version::V15 {
        true => {
            out.u8(f.command);
            out.u32(f.features);
        }
        false => out.zeros(5),
    }
    out.text(&f.name, NAME);
    out.u64(f.metadata_match);
    out.u64(f.metadata_write);
    out.u32(f.config);
    out.u32(f.max_entries);
    put_all(out, &super::table_property::encode(codec.version, &f.properties));
    out.patch_len(start, start);
}
