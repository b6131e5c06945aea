//! Monitors of rules: Nicira's, and those of OpenFlow 1.4 and later (§7.3.5.17).

use super::flow::{ANY_TABLE, decode_nx_match, encode_nx_match, table};
use super::{decode_match, encode_match};
use crate::action::{port10, port11, to10};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, instruction, oxm};

/// The form of Nicira's, for versions that have no other.
pub(super) fn decode_nx(data: &mut Reader<'_>) -> Result<FlowMonitorRequest, OfError> {
    let (id, flags, out_port, match_len) = (data.u32()?, data.u16()?, port10(data.u16()?), data.u16()?);
    let table = table(data.u8()?);
    if flags & !0x3f != 0 || flags & 0xf == 0 {
        return Err(OfError::MofcBadFlags);
    }
    data.zeros(5, OfError::NxBrcMustBeZero)?;
    let (matching, _) = decode_nx_match(data, match_len, oxm::Unknown::Refuse)?;
    Ok(FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port,
        out_group: ANY_GROUP,
        table,
        matching,
    })
}

pub(super) fn encode_nx(out: &mut Writer, r: &FlowMonitorRequest) {
    out.u32(r.id);
    out.u16(r.flags);
    out.u16(to10(r.out_port));
    let len_at = out.len();
    out.u16(0);
    out.u8(r.table.unwrap_or(ANY_TABLE));
    out.zeros(5);
    encode_nx_match(out, len_at, &r.matching, (0, 0));
}

/// The form of the foundation's extension of OpenFlow 1.3: Nicira's, with the version's ports and
/// matches.
pub(super) fn decode_onf(version: Version, data: &mut Reader<'_>) -> Result<FlowMonitorRequest, OfError> {
    let (id, flags, match_len) = (data.u32()?, data.u16()?, data.u16()?);
    let out_port = port11(data.u32()?, OfError::BacBadOutPort)?;
    let table = table(data.u8()?);
    if flags & !0x3f != 0 || flags & 0xf == 0 {
        return Err(OfError::MofcBadFlags);
    }
    data.zeros(3, OfError::NxBrcMustBeZero)?;
    let matching = decode_match_of(version, data, match_len, oxm::Unknown::Refuse)?;
    Ok(FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port,
        out_group: ANY_GROUP,
        table,
        matching,
    })
}

/// Reads a match whose length, without its padding, is said before it too.
fn decode_match_of(version: Version, data: &mut Reader<'_>, len: u16, unknown: oxm::Unknown) -> Result<Match, OfError> {
    let said = match data.peek().first_chunk() {
        Some([_, _, a, b]) => u16::from_be_bytes([*a, *b]),
        None => 0,
    };
    match said == len {
        true => decode_match(version, data, unknown),
        false => Err(OfError::BmcBadLen),
    }
}

pub(super) fn encode_onf(version: Version, out: &mut Writer, r: &FlowMonitorRequest) {
    out.u32(r.id);
    out.u16(r.flags & 0x3f);
    let len_at = out.len();
    out.u16(0);
    out.u32(r.out_port.0);
    out.u8(r.table.unwrap_or(ANY_TABLE));
    out.zeros(3);
    encode_match_of(version, out, len_at, &r.matching);
}

/// Writes a match, and its length without its padding to `len_at`.
fn encode_match_of(version: Version, out: &mut Writer, len_at: usize, matching: &Match) {
    let start = out.len();
    encode_match(version, out, matching);
    let said = [out.0[start + 2], out.0[start + 3]];
    out.0[len_at..len_at + 2].copy_from_slice(&said);
}

/// The form of OpenFlow 1.4 and later.
pub(super) fn decode(version: Version, data: &mut Reader<'_>) -> Result<FlowMonitorRequest, OfError> {
    let id = data.u32()?;
    let (port, out_group, flags, number) = (data.u32()?, data.u32()?, data.u16()?, data.u8()?);
    let command = match data.u8()? {
        0 => MonitorCommand::Add,
        1 => MonitorCommand::Modify,
        2 => MonitorCommand::Delete,
        _ => return Err(OfError::MofcBadCommand),
    };
    if flags & !0x7f != 0 || command != MonitorCommand::Delete && flags & 0xf == 0 {
        return Err(OfError::MofcBadFlags);
    }
    let out_port = port11(port, OfError::BacBadOutPort)?;
    Ok(FlowMonitorRequest {
        id,
        command,
        flags,
        out_port,
        out_group,
        table: table(number),
        matching: decode_match(version, data, oxm::Unknown::Refuse)?,
    })
}

pub(super) fn encode(version: Version, out: &mut Writer, r: &FlowMonitorRequest) {
    out.u32(r.id);
    out.u32(r.out_port.0);
    out.u32(r.out_group);
    out.u16(r.flags);
    out.u8(r.table.unwrap_or(ANY_TABLE));
    out.u8(r.command as u8);
    encode_match(version, out, &r.matching);
}

/// Nicira's event that only names a message.
const NX_ABBREV: u16 = 3;

/// Reads an update in Nicira's form, or the foundation's of OpenFlow 1.3.
pub(super) fn decode_update_nx(version: Version, data: &mut Reader<'_>) -> Result<FlowUpdate, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let event = data.u16()?;
    match event {
        NX_ABBREV => {
            let xid = data.u32()?;
            data.end()?;
            return Ok(FlowUpdate::Abbrev { xid });
        }
        0..=2 => {}
        _ => return Err(OfError::NxBrcFmBadEvent),
    }
    let (reason, priority, idle_timeout, hard_timeout, match_len) =
        (data.u16()?, data.u16()?, data.u16()?, data.u16()?, data.u16()?);
    let table = data.u8()?;
    data.skip(1)?;
    let cookie = data.u64()?;
    let onf = version >= Version::V13;
    let matching = match onf {
        true => decode_match_of(version, &mut data, match_len, oxm::Unknown::Refuse)?,
        false => decode_nx_match(&mut data, match_len, oxm::Unknown::Refuse)?.0,
    };
    let instructions = match onf {
        true => instruction::decode(version, data.rest())?,
        false => instruction::decode_as_actions(version, data.rest())?,
    };
    Ok(FlowUpdate::Full {
        event,
        reason,
        priority,
        idle_timeout,
        hard_timeout,
        table,
        cookie,
        matching,
        instructions,
    })
}

/// Writes an update in Nicira's form, or the foundation's of OpenFlow 1.3. They have no word for
/// pauses, and tell rules that were there as if they came.
pub(super) fn encode_update_nx(version: Version, out: &mut Writer, update: &FlowUpdate) {
    let start = out.len();
    match update {
        FlowUpdate::Paused | FlowUpdate::Resumed => return,
        FlowUpdate::Abbrev { xid } => {
            out.u16(0);
            out.u16(NX_ABBREV);
            out.u32(*xid);
        }
        FlowUpdate::Full {
            event,
            reason,
            priority,
            idle_timeout,
            hard_timeout,
            table,
            cookie,
            matching,
            instructions,
        } => {
            let event = if *event == INITIAL { 0 } else { *event };
            for word in [0, event, *reason, *priority, *idle_timeout, *hard_timeout] {
                out.u16(word);
            }
            let len_at = out.len();
            out.u16(0);
            out.u8(*table);
            out.u8(0);
            out.u64(*cookie);
            match version >= Version::V13 {
                true => {
                    encode_match_of(version, out, len_at, matching);
                    instruction::encode(out, version, instructions, matching);
                }
                false => {
                    encode_nx_match(out, len_at, matching, (0, 0));
                    instruction::encode_as_actions(out, version, instructions, matching);
                }
            }
        }
    }
    out.patch_len(start, start);
}

/// The model's number of the event of a rule that was there.
const INITIAL: u16 = 3;
/// Events of OpenFlow 1.4: first of a rule that was there, then Nicira's three, then these.
const ABBREV: u16 = 4;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

pub(super) fn decode_update(version: Version, data: &mut Reader<'_>) -> Result<FlowUpdate, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let event = match data.u16()? {
        0 => INITIAL,
        event @ 1..=3 => event - 1,
        ABBREV => {
            let xid = data.u32()?;
            data.end()?;
            return Ok(FlowUpdate::Abbrev { xid });
        }
        event @ (PAUSED | RESUMED) => {
            data.skip(4)?;
            data.end()?;
            return Ok(match event {
                PAUSED => FlowUpdate::Paused,
                _ => FlowUpdate::Resumed,
            });
        }
        _ => return Err(OfError::NxBrcFmBadEvent),
    };
    let (table, reason) = (data.u8()?, data.u8()?);
    let (idle_timeout, hard_timeout, priority) = (data.u16()?, data.u16()?, data.u16()?);
    data.skip(4)?;
    let cookie = data.u64()?;
    let matching = decode_match(version, &mut data, oxm::Unknown::Refuse)?;
    Ok(FlowUpdate::Full {
        event,
        reason: reason.into(),
        priority,
        idle_timeout,
        hard_timeout,
        table,
        cookie,
        matching,
        instructions: instruction::decode(version, data.rest())?,
    })
}

pub(super) fn encode_update(version: Version, out: &mut Writer, update: &FlowUpdate) {
    let start = out.len();
    out.u16(0);
    match update {
        FlowUpdate::Abbrev { xid } => {
            out.u16(ABBREV);
            out.u32(*xid);
        }
        FlowUpdate::Paused | FlowUpdate::Resumed => {
            out.u16(if *update == FlowUpdate::Paused { PAUSED } else { RESUMED });
            out.zeros(4);
        }
        FlowUpdate::Full {
            event,
            reason,
            priority,
            idle_timeout,
            hard_timeout,
            table,
            cookie,
            matching,
            instructions,
        } => {
            out.u16(if *event == INITIAL { 0 } else { event + 1 });
            out.u8(*table);
            out.u8(*reason as u8);
            out.u16(*idle_timeout);
            out.u16(*hard_timeout);
            out.u16(*priority);
            out.zeros(4);
            out.u64(*cookie);
            encode_match(version, out, matching);
            instruction::encode(out, version, instructions, matching);
        }
    }
    out.patch_len(start, start);
}
