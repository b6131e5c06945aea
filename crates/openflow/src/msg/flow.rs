//! Changes, statistics and ends of rules.

use super::{Codec, decode_match, encode_match, fixed, oxs};
use crate::action::{port10, port11, to10};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, instruction, oxm};
use flow::MatchField;

/// In place of a packet that the switch keeps: none.
const NO_BUFFER: u32 = 0xffff_ffff;
pub(super) const ANY_TABLE: u8 = 255;

pub(super) fn decode_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowMod, OfError> {
    match codec.version {
        Version::V10 => decode_mod10(codec, data),
        _ => decode_mod11(codec, data),
    }
}

pub(super) fn table(number: u8) -> Option<u8> {
    (number != ANY_TABLE).then_some(number)
}

pub(super) fn buffer(number: u32) -> Option<u32> {
    (number != NO_BUFFER).then_some(number)
}

fn command(number: u8) -> Result<FlowCommand, OfError> {
    let found = FlowCommand::ALL.into_iter().find(|c| *c as u8 == number);
    found.ok_or(OfError::FmfcBadCommand)
}

/// The command of OpenFlow 1.0; its high byte is the table if both sides agreed on that.
fn command10(codec: &Codec, number: u16) -> Result<(FlowCommand, Option<u8>), OfError> {
    let [high, low] = number.to_be_bytes();
    match (codec.table_id, high) {
        (true, _) => Ok((command(low)?, table(high))),
        (false, 0) => Ok((command(low)?, None)),
        (false, _) => Err(OfError::FmfcBadCommand),
    }
}

/// The flags of OpenFlow 1.0: flow-removed, and no overlap; emergency rules are not supported.
fn flags10(flags: u16) -> Result<FlowFlags, OfError> {
    match flags {
        0..=3 => Ok(FlowFlags(flags)),
        _ if flags & !7 == 0 => Err(OfError::FmfcTableFull),
        _ => Err(OfError::FmfcBadFlags),
    }
}

fn decode_mod10(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowMod, OfError> {
    let matching = fixed::decode10(data)?;
    let cookie = data.u64()?;
    let (command, table) = command10(codec, data.u16()?)?;
    let (idle_timeout, hard_timeout, priority) = (data.u16()?, data.u16()?, data.u16()?);
    let buffer_id = buffer(data.u32()?);
    let out_port = port10(data.u16()?);
    let flags = flags10(data.u16()?)?;
    let exact = exact_everywhere(&matching);
    Ok(FlowMod {
        command,
        table,
        new_cookie: (command as u8 <= 2).then_some(cookie),
        idle_timeout,
        hard_timeout,
        // Rules without wildcards have the highest priority (OpenFlow 1.0 §3.4).
        priority: if exact { 0xffff } else { priority },
        buffer_id,
        out_port,
        flags,
        matching,
        instructions: instruction::decode(Version::V10, data.rest())?,
        ..FlowMod::default()
    })
}

/// Whether an OpenFlow 1.0 match has no wildcards.
fn exact_everywhere(matching: &Match) -> bool {
    // Hardly any match does, and most have no port.
    if matching.exact(MatchField::InPortOxm).is_none() {
        return false;
    }
    let mut out = Writer::new();
    fixed::encode10(&mut out, matching);
    out.0[..4] == [0; 4]
}

/// Nicira's flow-mod, from behind the vendor's header.
pub(super) fn decode_mod_nx(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowMod, OfError> {
    let cookie = data.u64()?;
    let (command, table) = command10(codec, data.u16()?)?;
    let (idle_timeout, hard_timeout, priority) = (data.u16()?, data.u16()?, data.u16()?);
    let buffer_id = buffer(data.u32()?);
    let out_port = port10(data.u16()?);
    let flags = flags10(data.u16()?)?;
    let match_len = data.u16()?;
    data.skip(6)?;
    let (matching, filter) = decode_nx_match(data, match_len, oxm::Unknown::Refuse)?;
    let changes = command as u8 <= 2;
    if command == FlowCommand::Add && filter.is_some() {
        // A new rule has no cookie yet that could be asked for.
        return Err(OfError::NxBrcNxmInvalid);
    }
    let (filter, mask) = filter.unwrap_or((0, 0));
    let keeps = command != FlowCommand::Add && cookie == u64::MAX;
    Ok(FlowMod {
        command,
        table,
        cookie: filter,
        cookie_mask: mask,
        // Where rules are deleted it has no effect.
        new_cookie: (!keeps && (changes || cookie != 0)).then_some(cookie),
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        flags,
        matching,
        instructions: instruction::decode(Version::V10, data.rest())?,
        ..FlowMod::default()
    })
}

/// A match, and a condition on cookies.
type NxMatch = (Match, Option<(u64, u64)>);

/// Reads Nicira's match of a length, and its padding.
pub(super) fn decode_nx_match(data: &mut Reader<'_>, len: u16, unknown: oxm::Unknown) -> Result<NxMatch, OfError> {
    let len = usize::from(len);
    let padded = len.next_multiple_of(8);
    if padded > data.len() {
        return Err(OfError::BmcBadLen);
    }
    let bytes = data.take(padded)?;
    oxm::decode_match(&bytes[..len], unknown)
}

fn decode_mod11(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowMod, OfError> {
    let version = codec.version;
    let (cookie, cookie_mask) = (data.u64()?, data.u64()?);
    let table = table(data.u8()?);
    let command = command(data.u8()?)?;
    if table.is_none() && (command as u8) < 3 {
        return Err(OfError::FmfcBadTableId);
    }
    let (idle_timeout, hard_timeout, priority) = (data.u16()?, data.u16()?, data.u16()?);
    let buffer_id = buffer(data.u32()?);
    let deletes = command as u8 >= 3;
    let (out_port, out_group) = (port11(data.u32()?, OfError::BacBadOutPort)?, data.u32()?);
    let flags = FlowFlags(data.u16()?);
    if flags.0 & !flags_of(version) != 0 {
        return Err(OfError::FmfcBadFlags);
    }
    let importance = data.u16()?;
    let matching = decode_match(version, data, oxm::Unknown::Refuse)?;
    let adds = command == FlowCommand::Add;
    // Only in OpenFlow 1.1, a modification without a cookie mask may add a rule.
    let sets = adds || version == Version::V11 && !deletes && cookie_mask == 0;
    Ok(FlowMod {
        command,
        table,
        cookie: if adds { 0 } else { cookie },
        cookie_mask: if adds { 0 } else { cookie_mask },
        new_cookie: sets.then_some(cookie),
        keeps_cookies: sets && !adds,
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        out_group,
        flags,
        importance: if version >= Version::V14 { importance } else { 0 },
        matching,
        instructions: instruction::decode(version, data.rest())?,
    })
}

/// The flags that a version has.
fn flags_of(version: Version) -> u16 {
    match version {
        Version::V10 | Version::V11 => 0x3,
        Version::V12 => 0x7,
        _ => 0x1f,
    }
}

pub(super) fn encode_mod(codec: &Codec, out: &mut Writer, m: &FlowMod) {
    if codec.version == Version::V10 {
        encode_mod10(codec, out, m);
        return;
    }
    let cookie = match m.command {
        FlowCommand::Add => m.new_cookie.unwrap_or(0),
        _ => m.new_cookie.unwrap_or(m.cookie),
    };
    out.u64(cookie);
    out.u64(m.cookie_mask);
    out.u8(m.table.unwrap_or(ANY_TABLE));
    out.u8(m.command as u8);
    out.u16(m.idle_timeout);
    out.u16(m.hard_timeout);
    out.u16(m.priority);
    out.u32(m.buffer_id.unwrap_or(NO_BUFFER));
    out.u32(m.out_port.0);
    out.u32(m.out_group);
    out.u16(m.flags.0 & flags_of(codec.version));
    out.u16(if codec.version >= Version::V14 { m.importance } else { 0 });
    encode_match(codec.version, out, &m.matching);
    instruction::encode(out, codec.version, &m.instructions, &m.matching);
}

/// Whether a flow-mod needs Nicira's message in OpenFlow 1.0.
pub(super) fn needs_nx(codec: &Codec, m: &FlowMod) -> bool {
    codec.nxm || m.cookie_mask != 0 || !fixed::says_all10(&m.matching)
}

fn encode_mod10(codec: &Codec, out: &mut Writer, m: &FlowMod) {
    let nx = needs_nx(codec, m);
    if !nx {
        fixed::encode10(out, &m.matching);
    }
    let changes = m.command as u8 <= 2;
    out.u64(match m.new_cookie {
        Some(cookie) => cookie,
        None if changes && nx && m.command != FlowCommand::Add => u64::MAX,
        None => 0,
    });
    let table = if codec.table_id {
        m.table.unwrap_or(ANY_TABLE)
    } else {
        0
    };
    out.u16(u16::from_be_bytes([table, m.command as u8]));
    out.u16(m.idle_timeout);
    out.u16(m.hard_timeout);
    out.u16(m.priority);
    out.u32(m.buffer_id.unwrap_or(NO_BUFFER));
    out.u16(to10(m.out_port));
    out.u16(m.flags.0 & flags_of(Version::V10));
    if nx {
        let len_at = out.len();
        out.zeros(8);
        encode_nx_match(out, len_at, &m.matching, (m.cookie, m.cookie_mask));
    }
    instruction::encode(out, Version::V10, &m.instructions, &m.matching);
}

/// Writes Nicira's match, and its length to `len_at`.
pub(super) fn encode_nx_match(out: &mut Writer, len_at: usize, matching: &Match, cookie: (u64, u64)) {
    let start = out.len();
    oxm::encode_match(out, matching, Version::V10);
    oxm::encode_cookie(out, cookie.0, cookie.1);
    out.patch_len(len_at, start);
    out.pad8(start);
}

pub(super) fn decode_removed(codec: &Codec, data: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
    if codec.version >= Version::V15 {
        return decode_removed15(data);
    }
    let first = match codec.version {
        Version::V10 => Some(fixed::decode10(data)?),
        _ => None,
    };
    let (cookie, priority, reason) = (data.u64()?, data.u16()?, data.u8()?);
    let number = data.u8()?;
    let duration = duration(data)?;
    let idle_timeout = data.u16()?;
    let hard_timeout = data.u16()?;
    let (packets, bytes) = (data.u64()?, data.u64()?);
    let old = first.is_some();
    let matching = match first {
        Some(matching) => matching,
        None => decode_match(codec.version, data, oxm::Unknown::Refuse)?,
    };
    data.end()?;
    Ok(FlowRemoved {
        table: if old { None } else { Some(number) },
        reason,
        priority,
        cookie,
        duration,
        idle_timeout,
        hard_timeout: if old { 0 } else { hard_timeout },
        packets,
        bytes,
        matching,
    })
}

fn decode_removed15(data: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
    let (table, reason, priority) = (data.u8()?, data.u8()?, data.u16()?);
    let (idle_timeout, hard_timeout, cookie) = (data.u16()?, data.u16()?, data.u64()?);
    let matching = decode_match(Version::V15, data, oxm::Unknown::Refuse)?;
    let stats = oxs::decode(data)?;
    Ok(FlowRemoved {
        table: Some(table),
        reason,
        priority,
        cookie,
        duration: stats.duration(),
        idle_timeout,
        hard_timeout,
        packets: stats.packets(),
        bytes: stats.bytes(),
        matching,
    })
}

/// Nicira's message of a rule's end, from behind the vendor's header.
pub(super) fn decode_removed_nx(data: &mut Reader<'_>) -> Result<FlowRemoved, OfError> {
    let (cookie, priority, reason) = (data.u64()?, data.u16()?, data.u8()?);
    let number = data.u8()?;
    let duration = duration(data)?;
    let (idle_timeout, match_len) = (data.u16()?, data.u16()?);
    let (packets, bytes) = (data.u64()?, data.u64()?);
    let (matching, _) = decode_nx_match(data, match_len, oxm::Unknown::Refuse)?;
    data.end()?;
    Ok(FlowRemoved {
        table: number.checked_sub(1),
        reason,
        priority,
        cookie,
        duration,
        idle_timeout,
        hard_timeout: 0,
        packets,
        bytes,
        matching,
    })
}

/// The reason of a flow-removed in a version: reasons that the version lacks become a deletion.
fn reason(version: Version, reason: u8) -> u8 {
    const DELETE: u8 = 2;
    const GROUP_DELETE: u8 = 3;
    match reason {
        GROUP_DELETE if version < Version::V11 => DELETE,
        4.. if version < Version::V14 => DELETE,
        _ => reason,
    }
}

pub(super) fn encode_removed(codec: &Codec, out: &mut Writer, r: &FlowRemoved) {
    let reason = reason(codec.version, r.reason);
    if codec.version >= Version::V15 {
        out.u8(r.table.unwrap_or(0));
        out.u8(reason);
        out.u16(r.priority);
        out.u16(r.idle_timeout);
        out.u16(r.hard_timeout);
        out.u64(r.cookie);
        encode_match(codec.version, out, &r.matching);
        oxs::encode(out, &oxs::Stats::of(r.duration, None, r.packets, r.bytes));
        return;
    }
    let old = codec.version == Version::V10;
    let nx = old && codec.nxm;
    if old && !nx {
        fixed::encode10(out, &r.matching);
    }
    out.u64(r.cookie);
    out.u16(r.priority);
    out.u8(reason);
    out.u8(match (old, r.table) {
        (false, table) => table.unwrap_or(0),
        (true, Some(table)) if nx => table.saturating_add(1),
        (true, _) => 0,
    });
    put_duration(out, r.duration);
    out.u16(r.idle_timeout);
    let len_at = out.len();
    out.u16(if old { 0 } else { r.hard_timeout });
    out.u64(r.packets);
    out.u64(r.bytes);
    if nx {
        encode_nx_match(out, len_at, &r.matching, (0, 0));
    } else if !old {
        encode_match(codec.version, out, &r.matching);
    }
}

pub(super) fn duration(data: &mut Reader<'_>) -> Result<Duration, OfError> {
    Ok(Duration {
        sec: data.u32()?,
        nsec: data.u32()?,
    })
}

pub(super) fn put_duration(out: &mut Writer, duration: Duration) {
    out.u32(duration.sec);
    out.u32(duration.nsec);
}
