//! Table features: lists of instructions, tables, actions and fields (OpenFlow 1.3.1 §7.3.5.5.2,
//! 1.5 §7.3.5.18.2).

use super::property::{Properties, raw};
use crate::buf::{Reader, Writer};
use crate::model::{FeatureId, FieldId, Property, TableProperty};
use crate::{OfError, Version, oxm};
use TableProperty as P;

/// In place of a type: an experimenter's.
const EXPERIMENTER: u16 = 0xffff;
/// A property's type for misses is its type for rules plus one, if both exist.
const MISS: u16 = 1;

const INSTRUCTIONS: u16 = 0;
const NEXT_TABLES: u16 = 2;
const WRITE_ACTIONS: u16 = 4;
const APPLY_ACTIONS: u16 = 6;
const MATCH: u16 = 8;
const WILDCARDS: u16 = 10;
const WRITE_SET_FIELD: u16 = 12;
const APPLY_SET_FIELD: u16 = 14;
const SYNC_FROM: u16 = 16;
const WRITE_COPY_FIELD: u16 = 18;
const APPLY_COPY_FIELD: u16 = 20;
const PACKET_TYPES: u16 = 22;

/// Required properties of a table with any, as bits of types.
const REQUIRED: u32 = 1 << INSTRUCTIONS
    | 1 << NEXT_TABLES
    | 1 << WRITE_ACTIONS
    | 1 << APPLY_ACTIONS
    | 1 << MATCH
    | 1 << WILDCARDS
    | 1 << WRITE_SET_FIELD
    | 1 << APPLY_SET_FIELD;

pub(super) fn decode(version: Version, data: &mut Reader<'_>) -> Result<Vec<TableProperty>, OfError> {
    let mut result = Vec::new();
    let mut seen = 0u32;
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        if kind < 32 {
            if seen & 1 << kind != 0 {
                return Err(OfError::BpcDupType);
            }
            seen |= 1 << kind;
        }
        let miss = kind & MISS != 0;
        result.push(match kind {
            0..=1 => P::Instructions {
                miss,
                ids: ids(&mut value)?,
            },
            2..=3 => P::NextTables {
                miss,
                tables: value.rest().to_vec(),
            },
            4..=5 => P::WriteActions {
                miss,
                ids: ids(&mut value)?,
            },
            6..=7 => P::ApplyActions {
                miss,
                ids: ids(&mut value)?,
            },
            MATCH => P::Match(fields(&mut value, true)?),
            WILDCARDS => P::Wildcards(fields(&mut value, false)?),
            12..=13 => P::WriteSetField {
                miss,
                fields: fields(&mut value, false)?,
            },
            14..=15 => P::ApplySetField {
                miss,
                fields: fields(&mut value, false)?,
            },
            SYNC_FROM if version >= Version::V14 => P::SyncFrom(value.rest().to_vec()),
            18..=19 if version >= Version::V15 => P::WriteCopyField {
                miss,
                fields: fields(&mut value, false)?,
            },
            20..=21 if version >= Version::V15 => P::ApplyCopyField {
                miss,
                fields: fields(&mut value, false)?,
            },
            PACKET_TYPES if version >= Version::V15 => {
                let mut types = Vec::new();
                while !value.is_empty() {
                    types.push(value.u32()?);
                }
                P::PacketTypes(types)
            }
            0xfffe | EXPERIMENTER => P::Other(raw(kind, value)),
            _ => return Err(OfError::BpcBadType),
        });
    }
    match result.is_empty() || seen & REQUIRED == REQUIRED {
        true => Ok(result),
        // Older versions have no error of its own for this.
        false if version < Version::V15 => Err(OfError::BpcBadValue),
        false => Err(OfError::TffcBadFeatures),
    }
}

/// Instructions or actions: their headers.
fn ids(data: &mut Reader<'_>) -> Result<Vec<FeatureId>, OfError> {
    const HEADER: usize = 4;
    let mut ids = Vec::new();
    while !data.is_empty() {
        let (kind, len) = (data.u16()?, usize::from(data.u16()?));
        let rest = len.checked_sub(HEADER).ok_or(OfError::BpcBadLen)?;
        let rest = match kind {
            EXPERIMENTER => data.take(rest)?,
            // The lengths of some versions are those of the whole action; only the header follows.
            _ if rest == 0 || rest == 4 && data.peek().first_chunk() == Some(&[0; 4]) => data.take(rest)?,
            _ => return Err(OfError::BpcBadLen),
        };
        ids.push(FeatureId {
            kind,
            data: rest.to_vec(),
        });
    }
    Ok(ids)
}

/// Fields: their headers. Those that are not known here are additions of the other side, and left
/// out. Only of matches is it said whether they may be masked.
fn fields(data: &mut Reader<'_>, masks: bool) -> Result<Vec<FieldId>, OfError> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        if let Some((field, masked)) = oxm::decode_id(data)? {
            if masked && !masks {
                return Err(OfError::BmcBadMask);
            }
            fields.push(FieldId { field, masked });
        }
    }
    Ok(fields)
}

pub(super) fn encode(version: Version, properties: &[TableProperty]) -> Vec<Property> {
    let kind = |kind, miss: &bool| kind + if *miss { MISS } else { 0 };
    let put_ids = |ids: &[FeatureId]| {
        let mut out = Writer::new();
        for id in ids {
            let start = out.len();
            out.u16(id.kind);
            out.u16(0);
            out.bytes(&id.data);
            out.patch_len(start + 2, start);
        }
        out.0
    };
    let put_fields = |fields: &[FieldId]| {
        let mut out = Writer::new();
        for id in fields {
            let parts = if id.masked { 2 } else { 1 };
            // A header's length is one byte; that of the widest fields has no room for a mask.
            let bytes = id.field.bytes().min(124 / parts * 2);
            oxm::encode_header(&mut out, id.field, version, id.masked, bytes);
        }
        out.0
    };
    let encoded = properties.iter().map(|property| {
        let (kind, data) = match property {
            P::Instructions { miss, ids } => (kind(INSTRUCTIONS, miss), put_ids(ids)),
            P::NextTables { miss, tables } => (kind(NEXT_TABLES, miss), tables.clone()),
            P::WriteActions { miss, ids } => (kind(WRITE_ACTIONS, miss), put_ids(ids)),
            P::ApplyActions { miss, ids } => (kind(APPLY_ACTIONS, miss), put_ids(ids)),
            P::Match(fields) => (MATCH, put_fields(fields)),
            P::Wildcards(fields) => (WILDCARDS, put_fields(fields)),
            P::WriteSetField { miss, fields } => (kind(WRITE_SET_FIELD, miss), put_fields(fields)),
            P::ApplySetField { miss, fields } => (kind(APPLY_SET_FIELD, miss), put_fields(fields)),
            P::SyncFrom(tables) => (SYNC_FROM, tables.clone()),
            P::WriteCopyField { miss, fields } => (kind(WRITE_COPY_FIELD, miss), put_fields(fields)),
            P::ApplyCopyField { miss, fields } => (kind(APPLY_COPY_FIELD, miss), put_fields(fields)),
            P::PacketTypes(types) => (PACKET_TYPES, types.iter().flat_map(|t| t.to_be_bytes()).collect()),
            P::Other(property) => (property.kind, property.data.clone()),
        };
        Property { kind, data }
    });
    encoded.collect()
}
