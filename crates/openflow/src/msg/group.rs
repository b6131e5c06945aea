//! Groups and meters.

use super::{Codec, flow};
use crate::action::{self, Encoder, port11};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, oxm};
use std::collections::HashSet;

/// Bits of properties of buckets and groups in OpenFlow 1.5.
mod property {
    pub(super) const WEIGHT: u16 = 0;
    pub(super) const WATCH_PORT: u16 = 1;
    pub(super) const WATCH_GROUP: u16 = 2;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
    /// Nicira's: the selection method.
    pub(super) const NTR: u32 = 0x0000_154d;
}

fn kind(number: u8) -> Result<GroupType, OfError> {
    let found = GroupType::ALL.into_iter().find(|(k, _)| *k as u8 == number);
    found.map(|(k, _)| k).ok_or(OfError::GmfcBadType)
}

pub(super) fn decode_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<GroupMod, OfError> {
    decode(codec.version, codec.version >= Version::V15, data)
}

/// Nicira's group-mod, for older versions: as OpenFlow 1.5 has it, with their actions.
pub(super) fn decode_mod_nx(codec: &Codec, data: &mut Reader<'_>) -> Result<GroupMod, OfError> {
    decode(codec.version, true, data)
}

fn decode(version: Version, new: bool, data: &mut Reader<'_>) -> Result<GroupMod, OfError> {
    let command = match data.u16()? {
        0 => GroupCommand::Add,
        1 => GroupCommand::Modify,
        2 => GroupCommand::Delete,
        3 if new => GroupCommand::InsertBucket,
        5 if new => GroupCommand::RemoveBucket,
        0x8000 => GroupCommand::AddOrMod,
        _ => return Err(OfError::GmfcBadCommand),
    };
    let number = data.u8()?;
    data.skip(1)?;
    let group = data.u32()?;
    let mut m = GroupMod {
        command,
        kind: kind(number)?,
        group,
        bucket_id: u32::MAX,
        buckets: Vec::new(),
        selection: None,
    };
    match new {
        true => {
            let len = usize::from(data.u16()?);
            data.skip(2)?;
            m.bucket_id = data.u32()?;
            m.buckets = decode_buckets15(version, &mut data.sub(len, OfError::GmfcBadBucket)?)?;
            m.selection = decode_selection(data)?;
        }
        false => m.buckets = decode_buckets(version, data)?,
    }
    check(&m, new)?;
    Ok(m)
}

/// Checks that need no other group.
fn check(m: &GroupMod, new: bool) -> Result<(), OfError> {
    use bucket_ids::{ALL, FIRST, LAST, MAX};
    let one = matches!(m.bucket_id, FIRST | LAST | 0..=MAX);
    let named = match m.command {
        GroupCommand::InsertBucket => one,
        GroupCommand::RemoveBucket => one || m.bucket_id == ALL,
        _ => m.bucket_id == ALL,
    };
    if new && (!named || m.buckets.iter().any(|b| b.id > MAX)) {
        return Err(OfError::GmfcBadBucket);
    }
    if let Some(selection) = &m.selection {
        let sets = matches!(
            m.command,
            GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrMod
        );
        let known = matches!(selection.method.as_str(), "hash" | "dp_hash");
        if !sets || !known || m.kind != GroupType::Select {
            return Err(OfError::BpcBadValue);
        }
    }
    let adds = !matches!(m.command, GroupCommand::Delete | GroupCommand::RemoveBucket);
    if adds && m.group > 0xffff_ff00 {
        return Err(OfError::GmfcInvalidGroup);
    }
    let failover = m.kind == GroupType::FastFailover;
    for bucket in &m.buckets {
        let watches = bucket.watch_port != Port::ANY || bucket.watch_group != ANY_GROUP;
        if watches && matches!(m.kind, GroupType::All | GroupType::Indirect) {
            return Err(OfError::GmfcWatchUnsupported);
        }
        // Buckets to insert come without the group's type.
        if bucket.weight > 1 && m.kind != GroupType::Select && m.command != GroupCommand::InsertBucket {
            return Err(OfError::GmfcInvalidGroup);
        }
        if failover && adds && bucket.watch_port == Port::ANY && bucket.watch_group == ANY_GROUP {
            return Err(OfError::GmfcInvalidGroup);
        }
    }
    match m.kind {
        GroupType::Indirect if adds && m.buckets.len() != 1 => Err(OfError::GmfcInvalidGroup),
        _ => Ok(()),
    }
}

/// The next bucket, behind its length.
fn bucket<'a>(data: &mut Reader<'a>, header: usize) -> Result<Reader<'a>, OfError> {
    let len = match data.peek().first_chunk() {
        Some([a, b]) => usize::from(u16::from_be_bytes([*a, *b])),
        None => 0,
    };
    if len < header || len % 8 != 0 || len > data.len() {
        return Err(OfError::GmfcBadBucket);
    }
    let mut bucket = data.sub(len, OfError::GmfcBadBucket)?;
    bucket.skip(2)?;
    Ok(bucket)
}

fn decode_buckets(version: Version, data: &mut Reader<'_>) -> Result<Vec<Bucket>, OfError> {
    const HEADER: usize = 16;
    let mut buckets = Vec::new();
    while !data.is_empty() {
        let mut bucket = bucket(data, HEADER)?;
        let weight = bucket.u16()?;
        let watch_port = port11(bucket.u32()?, OfError::GmfcBadWatch)?;
        let watch_group = bucket.u32()?;
        bucket.skip(4)?;
        buckets.push(Bucket {
            id: buckets.len() as u32,
            weight,
            watch_port,
            watch_group,
            actions: action::decode(version, bucket.rest())?,
        });
    }
    Ok(buckets)
}

fn decode_buckets15(version: Version, data: &mut Reader<'_>) -> Result<Vec<Bucket>, OfError> {
    let mut buckets: Vec<Bucket> = Vec::new();
    const HEADER: usize = 8;
    // As many as a message holds: too many to look through for each.
    let mut ids = HashSet::new();
    while !data.is_empty() {
        let mut bucket = bucket(data, HEADER)?;
        let actions_len = usize::from(bucket.u16()?);
        let id = bucket.u32()?;
        let actions = action::decode(version, bucket.take(actions_len)?)?;
        let mut next = Bucket {
            id,
            weight: 0,
            watch_port: Port::ANY,
            watch_group: ANY_GROUP,
            actions,
        };
        while !bucket.is_empty() {
            let (kind, mut value) = super::property::next(&mut bucket)?;
            match kind {
                property::WEIGHT => {
                    next.weight = value.u16()?;
                    value.skip(2)?;
                }
                property::WATCH_PORT => next.watch_port = port11(value.u32()?, OfError::GmfcBadWatch)?,
                property::WATCH_GROUP => next.watch_group = value.u32()?,
                _ => return Err(OfError::BpcBadType),
            }
            value.end()?;
        }
        if !ids.insert(id) {
            return Err(OfError::GmfcBucketExists);
        }
        buckets.push(next);
    }
    Ok(buckets)
}

fn decode_selection(data: &mut Reader<'_>) -> Result<Option<Selection>, OfError> {
    let mut selection = None;
    while !data.is_empty() {
        let (kind, mut value) = super::property::next(data)?;
        if kind != property::EXPERIMENTER {
            return Err(OfError::BpcBadType);
        }
        if value.u32()? != property::NTR {
            return Err(OfError::BpcBadExperimenter);
        }
        if value.u32()? != 1 {
            return Err(OfError::BpcBadExpType);
        }
        value.skip(4)?;
        let mut next = Selection {
            method: value.text(16)?,
            param: value.u64()?,
            fields: oxm::decode_values(value.rest())?,
        };
        next.sort();
        selection = Some(next);
    }
    Ok(selection)
}

/// Whether a version has OpenFlow 1.5's buckets; OpenFlow 1.0 has them in Nicira's messages only.
fn new_buckets(codec: &Codec) -> bool {
    matches!(codec.version, Version::V10 | Version::V15)
}

/// Whether a group-mod needs Nicira's message.
pub(super) fn needs_nx(codec: &Codec, m: &GroupMod) -> bool {
    let new = matches!(m.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket) || m.selection.is_some();
    codec.version == Version::V10 || new && codec.version < Version::V15
}

pub(super) fn encode_mod(codec: &Codec, out: &mut Writer, m: &GroupMod) {
    encode(codec.version, codec.version >= Version::V15, out, m);
}

pub(super) fn encode_mod_nx(codec: &Codec, out: &mut Writer, m: &GroupMod) {
    encode(codec.version, true, out, m);
}

fn encode(version: Version, new: bool, out: &mut Writer, m: &GroupMod) {
    out.u16(m.command as u16);
    out.u8(m.kind as u8);
    out.u8(0);
    out.u32(m.group);
    if !new {
        encode_buckets(version, out, &m.buckets);
        return;
    }
    let len_at = out.len();
    out.zeros(4);
    out.u32(m.bucket_id);
    let start = out.len();
    encode_buckets15(version, out, &m.buckets, m.kind);
    out.patch_len(len_at, start);
    encode_selection(version, out, m.selection.as_ref());
}

fn encode_selection(version: Version, out: &mut Writer, selection: Option<&Selection>) {
    let Some(selection) = selection else { return };
    let start = out.len();
    out.u16(property::EXPERIMENTER);
    out.u16(0);
    out.u32(property::NTR);
    out.u32(1);
    out.zeros(4);
    out.text(&selection.method, 16);
    out.u64(selection.param);
    for (field, value) in &selection.fields {
        oxm::encode_set(out, *field, version, value, None);
    }
    out.patch_len(start + 2, start);
    out.pad8(start);
}

fn encode_buckets(version: Version, out: &mut Writer, buckets: &[Bucket]) {
    for bucket in buckets {
        let start = out.len();
        out.u16(0);
        out.u16(bucket.weight);
        out.u32(bucket.watch_port.0);
        out.u32(bucket.watch_group);
        out.zeros(4);
        Encoder::new(version, &Match::ANY).encode(out, &bucket.actions);
        out.patch_len(start, start);
    }
}

fn encode_buckets15(version: Version, out: &mut Writer, buckets: &[Bucket], kind: GroupType) {
    for bucket in buckets {
        let start = out.len();
        out.zeros(4);
        out.u32(bucket.id);
        let actions = out.len();
        Encoder::new(version, &Match::ANY).encode(out, &bucket.actions);
        out.patch_len(start + 2, actions);
        if kind == GroupType::Select || bucket.weight != 0 {
            out.u16(property::WEIGHT);
            out.u16(8);
            out.u16(bucket.weight);
            out.zeros(2);
        }
        for (property, value, none) in [
            (property::WATCH_PORT, bucket.watch_port.0, Port::ANY.0),
            (property::WATCH_GROUP, bucket.watch_group, ANY_GROUP),
        ] {
            if value != none {
                out.u16(property);
                out.u16(8);
                out.u32(value);
            }
        }
        out.patch_len(start, start);
    }
}

pub(super) fn decode_desc(codec: &Codec, data: &mut Reader<'_>) -> Result<GroupDesc, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let kind = kind(data.u8()?)?;
    data.skip(1)?;
    let group = data.u32()?;
    let mut selection = None;
    let buckets = match new_buckets(codec) {
        true => {
            let len = usize::from(data.u16()?);
            data.skip(6)?;
            let buckets = decode_buckets15(codec.version, &mut data.sub(len, OfError::BrcBadLen)?)?;
            selection = decode_selection(&mut data)?;
            buckets
        }
        false => decode_buckets(codec.version, &mut data)?,
    };
    Ok(GroupDesc {
        group,
        kind,
        buckets,
        selection,
    })
}

pub(super) fn encode_desc(codec: &Codec, out: &mut Writer, desc: &GroupDesc) {
    let start = out.len();
    out.u16(0);
    out.u8(desc.kind as u8);
    out.u8(0);
    out.u32(desc.group);
    match new_buckets(codec) {
        true => {
            let len_at = out.len();
            out.zeros(8);
            let buckets = out.len();
            encode_buckets15(codec.version, out, &desc.buckets, desc.kind);
            out.patch_len(len_at, buckets);
            encode_selection(codec.version, out, desc.selection.as_ref());
        }
        false => encode_buckets(codec.version, out, &desc.buckets),
    }
    out.patch_len(start, start);
}

pub(super) fn decode_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<GroupStats, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    data.skip(2)?;
    let (group, ref_count) = (data.u32()?, data.u32()?);
    data.skip(4)?;
    let (packets, bytes) = (data.u64()?, data.u64()?);
    let duration = match timed(codec) {
        true => flow::duration(&mut data)?,
        false => Duration::default(),
    };
    Ok(GroupStats {
        group,
        ref_count,
        packets,
        bytes,
        duration,
        buckets: counters(&mut data)?,
    })
}

/// Pairs of packets and bytes, to the end.
fn counters(data: &mut Reader<'_>) -> Result<Vec<(u64, u64)>, OfError> {
    let mut counters = Vec::new();
    while !data.is_empty() {
        counters.push((data.u64()?, data.u64()?));
    }
    Ok(counters)
}

fn put_counters(out: &mut Writer, counters: &[(u64, u64)]) {
    for (packets, bytes) in counters {
        out.u64(*packets);
        out.u64(*bytes);
    }
}

/// Whether the statistics of groups have durations.
fn timed(codec: &Codec) -> bool {
    !matches!(codec.version, Version::V11 | Version::V12)
}

pub(super) fn encode_stats(codec: &Codec, out: &mut Writer, s: &GroupStats) {
    let start = out.len();
    out.zeros(4);
    out.u32(s.group);
    out.u32(s.ref_count);
    out.zeros(4);
    out.u64(s.packets);
    out.u64(s.bytes);
    if timed(codec) {
        flow::put_duration(out, s.duration);
    }
    put_counters(out, &s.buckets);
    out.patch_len(start, start);
}

pub(super) fn decode_features(data: &mut Reader<'_>) -> Result<GroupFeatures, OfError> {
    let mut features = GroupFeatures {
        types: data.u32()?,
        capabilities: data.u32()?,
        ..GroupFeatures::default()
    };
    for n in features.max_groups.iter_mut().chain(&mut features.actions) {
        *n = data.u32()?;
    }
    Ok(features)
}

pub(super) fn encode_features(out: &mut Writer, f: &GroupFeatures) {
    out.u32(f.types);
    out.u32(f.capabilities);
    f.max_groups.iter().chain(&f.actions).for_each(|n| out.u32(*n));
}

pub(super) fn decode_meter_mod(data: &mut Reader<'_>) -> Result<MeterMod, OfError> {
    let command = match data.u16()? {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(OfError::MmfcBadCommand),
    };
    let (flags, meter) = (data.u16()?, data.u32()?);
    let virtual_meter = matches!(meter, 0xffff_fffd..=0xffff_ffff);
    let deletes = command == MeterCommand::Delete;
    let flags = if deletes { 0 } else { flags };
    if meter == 0 || meter > 0xffff_0000 && !virtual_meter || meter == ALL_METERS && !deletes {
        return Err(OfError::MmfcInvalidMeter);
    }
    use meter_flags::{BURST, KBPS, PKTPS, STATS};
    let both = KBPS | PKTPS;
    if flags & !(both | BURST | STATS) != 0 || !deletes && (flags & both == 0 || flags & both == both) {
        return Err(OfError::MmfcBadFlags);
    }
    let bands = match deletes {
        true => {
            data.rest();
            Vec::new()
        }
        false => decode_bands(data)?,
    };
    Ok(MeterMod {
        command,
        config: MeterConfig { meter, flags, bands },
    })
}

fn decode_bands(data: &mut Reader<'_>) -> Result<Vec<MeterBand>, OfError> {
    const LEN: u16 = 16;
    let mut bands = Vec::new();
    while !data.is_empty() {
        let (kind, len) = (data.u16()?, data.u16()?);
        if len != LEN {
            return Err(OfError::BrcBadLen);
        }
        let (rate, burst) = (data.u32()?, data.u32()?);
        let kind = match kind {
            1 => {
                data.skip(4)?;
                BandKind::Drop
            }
            2 => {
                let level = data.u8()?;
                data.skip(3)?;
                BandKind::DscpRemark(level)
            }
            _ => return Err(OfError::MmfcBadBand),
        };
        bands.push(MeterBand { rate, burst, kind });
    }
    Ok(bands)
}

fn encode_bands(out: &mut Writer, bands: &[MeterBand]) {
    for band in bands {
        let (kind, level) = match band.kind {
            BandKind::Drop => (1, 0),
            BandKind::DscpRemark(level) => (2, level),
        };
        out.u16(kind);
        out.u16(16);
        out.u32(band.rate);
        out.u32(band.burst);
        out.u8(level);
        out.zeros(3);
    }
}

pub(super) fn encode_meter_mod(out: &mut Writer, m: &MeterMod) {
    out.u16(m.command as u16);
    out.u16(m.config.flags);
    out.u32(m.config.meter);
    encode_bands(out, &m.config.bands);
}

pub(super) fn decode_meter_config(data: &mut Reader<'_>) -> Result<MeterConfig, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    Ok(MeterConfig {
        flags: data.u16()?,
        meter: data.u32()?,
        bands: decode_bands(&mut data)?,
    })
}

pub(super) fn encode_meter_config(out: &mut Writer, config: &MeterConfig) {
    let start = out.len();
    out.u16(0);
    out.u16(config.flags);
    out.u32(config.meter);
    encode_bands(out, &config.bands);
    out.patch_len(start, start);
}

pub(super) fn decode_meter_stats(data: &mut Reader<'_>) -> Result<MeterStats, OfError> {
    let meter = data.u32()?;
    let len = usize::from(data.u16()?).checked_sub(6).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    data.skip(6)?;
    Ok(MeterStats {
        meter,
        flows: data.u32()?,
        packets: data.u64()?,
        bytes: data.u64()?,
        duration: flow::duration(&mut data)?,
        bands: counters(&mut data)?,
    })
}

pub(super) fn encode_meter_stats(out: &mut Writer, s: &MeterStats) {
    let start = out.len();
    out.u32(s.meter);
    out.zeros(8);
    out.u32(s.flows);
    out.u64(s.packets);
    out.u64(s.bytes);
    flow::put_duration(out, s.duration);
    put_counters(out, &s.bands);
    out.patch_len(start + 4, start);
}

pub(super) fn decode_meter_features(codec: &Codec, data: &mut Reader<'_>) -> Result<MeterFeatures, OfError> {
    let mut features = MeterFeatures {
        max_meters: data.u32()?,
        band_types: data.u32()?,
        capabilities: data.u32()?,
        max_bands: data.u8()?,
        max_color: data.u8()?,
        features: 0,
    };
    data.skip(2)?;
    // Open vSwitch's answer ends here in OpenFlow 1.5 too.
    if codec.version >= Version::V15 && !data.is_empty() {
        features.features = data.u32()?;
        data.skip(4)?;
    }
    Ok(features)
}

pub(super) fn encode_meter_features(codec: &Codec, out: &mut Writer, f: &MeterFeatures) {
    out.u32(f.max_meters);
    out.u32(f.band_types);
    out.u32(f.capabilities);
    out.u8(f.max_bands);
    out.u8(f.max_color);
    out.zeros(2);
    if codec.version >= Version::V15 && f.features != 0 {
        out.u32(f.features);
        out.zeros(4);
    }
}
