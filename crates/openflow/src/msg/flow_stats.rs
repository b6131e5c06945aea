//! Statistics of rules, and what asks for them.

use super::flow::{ANY_TABLE, decode_nx_match, duration, encode_nx_match, put_duration, table};
use super::{Codec, decode_match, encode_match, fixed, oxs};
use crate::action::{port10, port11, to10};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, instruction, oxm};

/// Decodes the statistics of one rule, in any of the formats.
pub(super) fn decode_stats(codec: &Codec, nxm: bool, data: &mut Reader<'_>) -> Result<FlowStats, OfError> {
    if codec.version >= Version::V15 {
        return decode_desc15(data);
    }
    let len = match data.peek().first_chunk() {
        Some([a, b]) => usize::from(u16::from_be_bytes([*a, *b])),
        None => return Err(OfError::BrcBadLen),
    };
    // The match or the instructions report what a cut-off part lacks.
    let cut_off = len > data.len();
    let mut data = data.sub(len.min(data.len()), OfError::BrcBadLen)?;
    data.skip(2)?;
    let table = data.u8()?;
    data.skip(1)?;
    let version = codec.version;
    let old = version == Version::V10;
    let first = if old && !nxm {
        Some(fixed::decode10(&mut data)?)
    } else {
        None
    };
    let duration = duration(&mut data)?;
    let (priority, idle_timeout, hard_timeout) = (data.u16()?, data.u16()?, data.u16()?);
    let (mut flags, mut importance, mut match_len) = (FlowFlags::default(), 0, 0);
    let (mut idle_age, mut hard_age) = (None, None);
    if nxm {
        match_len = data.u16()?;
        idle_age = data.u16()?.checked_sub(1);
        hard_age = data.u16()?.checked_sub(1);
    } else if old {
        data.skip(6)?;
    } else {
        flags = FlowFlags(data.u16()?);
        importance = data.u16()?;
        data.skip(2)?;
    }
    let (cookie, packets, bytes) = (data.u64()?, data.u64()?, data.u64()?);
    let matching = match first {
        Some(matching) => matching,
        None if nxm => decode_nx_match(&mut data, match_len, oxm::Unknown::Refuse)?.0,
        None => decode_match(version, &mut data, oxm::Unknown::Refuse)?,
    };
    if cut_off {
        return Err(if old { OfError::BrcBadLen } else { OfError::BicBadLen });
    }
    Ok(FlowStats {
        table,
        duration,
        priority,
        idle_timeout,
        hard_timeout,
        idle_age,
        hard_age,
        flags,
        importance,
        cookie,
        packets,
        bytes,
        matching,
        instructions: instruction::decode(version, data.rest())?,
    })
}

pub(super) fn encode_stats(codec: &Codec, nxm: bool, out: &mut Writer, s: &FlowStats) {
    if codec.version >= Version::V15 {
        encode_desc15(out, s);
        return;
    }
    let start = out.len();
    let version = codec.version;
    let old = version == Version::V10;
    out.u16(0);
    out.u8(s.table);
    out.u8(0);
    if old && !nxm {
        fixed::encode10(out, &s.matching);
    }
    put_duration(out, s.duration);
    out.u16(s.priority);
    out.u16(s.idle_timeout);
    out.u16(s.hard_timeout);
    let len_at = out.len();
    if nxm {
        out.u16(0);
        out.u16(s.idle_age.map_or(0, |age| age.saturating_add(1)));
        out.u16(s.hard_age.map_or(0, |age| age.saturating_add(1)));
    } else if old {
        out.zeros(6);
    } else {
        out.u16(if version >= Version::V13 { s.flags.0 } else { 0 });
        out.u16(if version >= Version::V14 { s.importance } else { 0 });
        out.zeros(2);
    }
    out.u64(s.cookie);
    out.u64(s.packets);
    out.u64(s.bytes);
    if nxm {
        encode_nx_match(out, len_at, &s.matching, (0, 0));
    } else if !old {
        encode_match(version, out, &s.matching);
    }
    instruction::encode(out, version, &s.instructions, &s.matching);
    out.patch_len(start, start);
}

pub(super) fn decode_request(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowStatsRequest, OfError> {
    let version = codec.version;
    if version == Version::V10 {
        let matching = fixed::decode10(data)?;
        let table = table(data.u8()?);
        data.skip(1)?;
        return Ok(FlowStatsRequest {
            table,
            out_port: port10(data.u16()?),
            matching,
            ..FlowStatsRequest::default()
        });
    }
    let table = table(data.u8()?);
    data.skip(3)?;
    let out_port = port11(data.u32()?, OfError::BacBadOutPort)?;
    let out_group = data.u32()?;
    data.skip(4)?;
    let (cookie, cookie_mask) = (data.u64()?, data.u64()?);
    Ok(FlowStatsRequest {
        table,
        out_port,
        out_group,
        cookie: cookie & cookie_mask,
        cookie_mask,
        matching: decode_match(version, data, oxm::Unknown::Refuse)?,
        nxm: false,
    })
}

pub(super) fn decode_request_nx(data: &mut Reader<'_>) -> Result<FlowStatsRequest, OfError> {
    let (out_port, match_len) = (port10(data.u16()?), data.u16()?);
    let table = table(data.u8()?);
    data.skip(3)?;
    let (matching, cookie) = decode_nx_match(data, match_len, oxm::Unknown::Refuse)?;
    let (cookie, cookie_mask) = cookie.unwrap_or((0, 0));
    Ok(FlowStatsRequest {
        table,
        out_port,
        cookie,
        cookie_mask,
        matching,
        nxm: true,
        ..FlowStatsRequest::default()
    })
}

pub(super) fn encode_request(codec: &Codec, out: &mut Writer, r: &FlowStatsRequest) {
    let table = r.table.unwrap_or(ANY_TABLE);
    if r.nxm {
        out.u16(to10(r.out_port));
        let len_at = out.len();
        out.u16(0);
        out.u8(table);
        out.zeros(3);
        encode_nx_match(out, len_at, &r.matching, (r.cookie, r.cookie_mask));
    } else if codec.version == Version::V10 {
        fixed::encode10(out, &r.matching);
        out.u8(table);
        out.u8(0);
        out.u16(to10(r.out_port));
    } else {
        out.u8(table);
        out.zeros(3);
        out.u32(r.out_port.0);
        out.u32(r.out_group);
        out.zeros(4);
        out.u64(r.cookie);
        out.u64(r.cookie_mask);
        encode_match(codec.version, out, &r.matching);
    }
}

/// A part of a reply that begins with its length: the rest of it.
fn part<'a>(data: &mut Reader<'a>) -> Result<Reader<'a>, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    data.sub(len, OfError::BrcBadLen)
}

/// A rule's description (OpenFlow 1.5 §7.3.5.2), with its statistics.
fn decode_desc15(data: &mut Reader<'_>) -> Result<FlowStats, OfError> {
    let mut data = part(data)?;
    data.skip(2)?;
    let table = data.u8()?;
    data.skip(1)?;
    let (priority, idle_timeout, hard_timeout) = (data.u16()?, data.u16()?, data.u16()?);
    let (flags, importance, cookie) = (FlowFlags(data.u16()?), data.u16()?, data.u64()?);
    let matching = decode_match(Version::V15, &mut data, oxm::Unknown::Refuse)?;
    let stats = oxs::decode(&mut data)?;
    Ok(FlowStats {
        table,
        duration: stats.duration(),
        priority,
        idle_timeout,
        hard_timeout,
        idle_age: stats.idle,
        hard_age: None,
        flags,
        importance,
        cookie,
        packets: stats.packets(),
        bytes: stats.bytes(),
        matching,
        instructions: instruction::decode(Version::V15, data.rest())?,
    })
}

fn encode_desc15(out: &mut Writer, s: &FlowStats) {
    let start = out.len();
    out.zeros(4);
    out.u8(s.table);
    out.u8(0);
    for word in [s.priority, s.idle_timeout, s.hard_timeout, s.flags.0, s.importance] {
        out.u16(word);
    }
    out.u64(s.cookie);
    encode_match(Version::V15, out, &s.matching);
    oxs::encode(out, &oxs::Stats::of(s.duration, s.idle_age, s.packets, s.bytes));
    instruction::encode(out, Version::V15, &s.instructions, &s.matching);
    out.patch_len(start, start);
}

/// A rule's counters (OpenFlow 1.5 §7.3.5.3).
pub(super) fn decode_counters(data: &mut Reader<'_>) -> Result<FlowCounters, OfError> {
    let mut data = part(data)?;
    data.skip(2)?;
    let (table, reason, priority) = (data.u8()?, data.u8()?, data.u16()?);
    let matching = decode_match(Version::V15, &mut data, oxm::Unknown::Refuse)?;
    let stats = oxs::decode(&mut data)?;
    data.end()?;
    Ok(FlowCounters {
        table,
        reason,
        priority,
        duration: stats.duration(),
        idle_age: stats.idle,
        packets: stats.packets(),
        bytes: stats.bytes(),
        matching,
    })
}

pub(super) fn encode_counters(out: &mut Writer, s: &FlowCounters) {
    let start = out.len();
    out.zeros(4);
    out.u8(s.table);
    out.u8(s.reason);
    out.u16(s.priority);
    encode_match(Version::V15, out, &s.matching);
    oxs::encode(out, &oxs::Stats::of(s.duration, s.idle_age, s.packets, s.bytes));
    out.patch_len(start, start);
}

pub(super) fn decode_aggregate(version: Version, data: &mut Reader<'_>) -> Result<AggregateStats, OfError> {
    if version >= Version::V15 {
        let stats = oxs::decode(data)?;
        return Ok(AggregateStats {
            packets: stats.packets(),
            bytes: stats.bytes(),
            flows: stats.flows.unwrap_or(u32::MAX),
        });
    }
    let stats = AggregateStats {
        packets: data.u64()?,
        bytes: data.u64()?,
        flows: data.u32()?,
    };
    data.skip(4)?;
    Ok(stats)
}

pub(super) fn encode_aggregate(version: Version, out: &mut Writer, s: &AggregateStats) {
    if version >= Version::V15 {
        let stats = oxs::Stats {
            flows: Some(s.flows),
            packets: oxs::counted(s.packets),
            bytes: oxs::counted(s.bytes),
            ..oxs::Stats::default()
        };
        oxs::encode(out, &stats);
        return;
    }
    out.u64(s.packets);
    out.u64(s.bytes);
    out.u32(s.flows);
    out.zeros(4);
}
