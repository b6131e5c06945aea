//! Nicira's messages, and the Open Networking Foundation's bundles for OpenFlow 1.3.

use super::flow::{
    decode_mod_nx, decode_nx_match, decode_removed_nx, decode_request_nx, decode_stats, encode_mod, encode_nx_match,
    encode_removed, needs_nx, table,
};
use super::stats::{all, decode_aggregate};
use super::{Codec, EXPERIMENTER, finish, group, header, packet, switch};
use crate::action::{port10, to10};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, instruction, oxm};

const NICIRA: u32 = 0x0000_2320;
const ONF: u32 = 0x4f4e_4600;

/// Subtypes of Nicira's messages.
mod kind {
    pub(super) const ROLE_REQUEST: u32 = 10;
    pub(super) const ROLE_REPLY: u32 = 11;
    pub(super) const SET_FLOW_FORMAT: u32 = 12;
    pub(super) const FLOW_MOD: u32 = 13;
    pub(super) const FLOW_REMOVED: u32 = 14;
    pub(super) const FLOW_MOD_TABLE_ID: u32 = 15;
    pub(super) const SET_PACKET_IN_FORMAT: u32 = 16;
    pub(super) const PACKET_IN: u32 = 17;
    pub(super) const FLOW_AGE: u32 = 18;
    pub(super) const SET_ASYNC: u32 = 19;
    pub(super) const SET_CONTROLLER_ID: u32 = 20;
    pub(super) const MONITOR_CANCEL: u32 = 21;
    pub(super) const MONITOR_PAUSED: u32 = 22;
    pub(super) const MONITOR_RESUMED: u32 = 23;
    pub(super) const TLV_TABLE_MOD: u32 = 24;
    pub(super) const TLV_TABLE_REQUEST: u32 = 25;
    pub(super) const TLV_TABLE_REPLY: u32 = 26;
    pub(super) const SET_ASYNC2: u32 = 27;
    pub(super) const RESUME: u32 = 28;
    pub(super) const CT_FLUSH_ZONE: u32 = 29;
    pub(super) const PACKET_IN2: u32 = 30;
    pub(super) const GROUP_MOD: u32 = 31;
    /// The foundation's.
    pub(super) const BUNDLE_CONTROL: u32 = 2300;
    pub(super) const BUNDLE_ADD: u32 = 2301;
}

/// Nicira's formats of messages about rules: OpenFlow 1.0's and the newer match.
const FORMAT_OPENFLOW10: u32 = 0;
const FORMAT_NXM: u32 = 2;

/// Reads a message of an experimenter, from behind the message's header.
pub(super) fn decode(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let (vendor, subtype) = (data.u32()?, data.u32()?);
    match vendor {
        NICIRA => decode_nicira(codec, subtype, data),
        ONF if codec.version == Version::V13 => match subtype {
            kind::BUNDLE_CONTROL => Ok(Body::BundleControl(switch::decode_bundle_control(data)?)),
            kind::BUNDLE_ADD => Ok(Body::BundleAdd(switch::decode_bundle_add(data)?)),
            _ => Err(OfError::BrcBadSubtype),
        },
        _ => Err(OfError::BrcBadVendor),
    }
}

fn decode_nicira(codec: &Codec, subtype: u32, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let first = codec.version == Version::V10;
    // Later versions have monitors of the foundation's and of their own.
    let monitors = codec.version < Version::V13;
    Ok(match subtype {
        kind::ROLE_REQUEST => Body::RoleRequest(decode_role(data)?),
        kind::ROLE_REPLY => Body::RoleReply(decode_role(data)?),
        kind::SET_FLOW_FORMAT if first => match data.u32()? {
            FORMAT_OPENFLOW10 => Body::SetFlowFormat { nxm: false },
            FORMAT_NXM => Body::SetFlowFormat { nxm: true },
            _ => return Err(OfError::BrcEperm),
        },
        kind::FLOW_MOD if first => Body::FlowMod(Box::new(decode_mod_nx(codec, data)?)),
        kind::GROUP_MOD if codec.version < Version::V15 => Body::GroupMod(group::decode_mod_nx(codec, data)?),
        kind::FLOW_REMOVED if first => Body::FlowRemoved(Box::new(decode_removed_nx(data)?)),
        kind::FLOW_MOD_TABLE_ID if first => {
            let set = data.u8()?;
            data.zeros(7, OfError::NxBrcMustBeZero)?;
            Body::FlowModTableId(set != 0)
        }
        kind::SET_PACKET_IN_FORMAT => match data.u32()? {
            0 => Body::SetPacketInFormat(PacketInFormat::Standard),
            1 => Body::SetPacketInFormat(PacketInFormat::Nxt),
            2 => Body::SetPacketInFormat(PacketInFormat::Nxt2),
            _ => return Err(OfError::BrcEperm),
        },
        kind::PACKET_IN => Body::PacketIn(Box::new(packet::decode_nx(data)?)),
        kind::PACKET_IN2 => Body::PacketIn(Box::new(packet::decode_nx2(data, oxm::Unknown::Skip)?)),
        kind::RESUME => Body::Resume(Box::new(packet::decode_nx2(data, oxm::Unknown::Refuse)?)),
        kind::FLOW_AGE => Body::FlowAge,
        kind::SET_ASYNC => Body::SetAsync(switch::decode_async(data)?),
        kind::SET_ASYNC2 => Body::SetAsync(switch::decode_async14(data)?),
        kind::SET_CONTROLLER_ID => {
            data.zeros(6, OfError::NxBrcMustBeZero)?;
            Body::SetControllerId(data.u16()?)
        }
        kind::MONITOR_CANCEL if monitors => Body::FlowMonitorCancel(data.u32()?),
        kind::MONITOR_PAUSED if monitors => Body::FlowMonitorPaused,
        kind::MONITOR_RESUMED if monitors => Body::FlowMonitorResumed,
        kind::TLV_TABLE_MOD => {
            let command = data.u16()?;
            data.skip(6)?;
            if command > 2 {
                return Err(OfError::NxTtmfcBadCommand);
            }
            let maps = decode_maps(data)?;
            Body::TlvTableMod { command, maps }
        }
        kind::TLV_TABLE_REQUEST => Body::TlvTableRequest,
        kind::TLV_TABLE_REPLY => {
            let (max_space, max_fields) = (data.u32()?, data.u16()?);
            data.skip(10)?;
            Body::TlvTableReply(TlvTable {
                max_space,
                max_fields,
                maps: decode_maps(data)?,
            })
        }
        kind::CT_FLUSH_ZONE => {
            data.zeros(6, OfError::NxBrcMustBeZero)?;
            Body::CtFlushZone(data.u16()?)
        }
        _ => return Err(OfError::BrcBadSubtype),
    })
}

fn decode_role(data: &mut Reader<'_>) -> Result<RoleMsg, OfError> {
    let role = match data.u32()? {
        0 => Role::Equal,
        1 => Role::Master,
        2 => Role::Slave,
        _ => return Err(OfError::RrfcBadRole),
    };
    Ok(RoleMsg {
        role,
        generation: None,
        nicira: true,
    })
}

fn decode_maps(data: &mut Reader<'_>) -> Result<Vec<TlvMap>, OfError> {
    all(data, |data| {
        let map = TlvMap {
            class: data.u16()?,
            kind: data.u8()?,
            len: data.u8()?,
            index: data.u16()?,
        };
        data.skip(2)?;
        if !map.len.is_multiple_of(4) || map.len > 124 {
            return Err(OfError::NxTtmfcBadOptLen);
        }
        if map.index > 63 {
            return Err(OfError::NxTtmfcBadFieldIdx);
        }
        Ok(map)
    })
}

fn encode_maps(out: &mut Writer, maps: &[TlvMap]) {
    for map in maps {
        out.u16(map.class);
        out.u8(map.kind);
        out.u8(map.len);
        out.u16(map.index);
        out.zeros(2);
    }
}

/// The vendor and subtype of a message that a version has no type of its own for.
fn subtype(codec: &Codec, body: &Body) -> Option<(u32, u32)> {
    let old = codec.version < Version::V12;
    let nicira = match body {
        Body::RoleRequest(role) if role.nicira || old => kind::ROLE_REQUEST,
        Body::RoleReply(role) if role.nicira || old => kind::ROLE_REPLY,
        Body::SetFlowFormat { .. } => kind::SET_FLOW_FORMAT,
        Body::FlowMod(m) if codec.version == Version::V10 && needs_nx(codec, m) => kind::FLOW_MOD,
        Body::FlowRemoved(_) if codec.version == Version::V10 && codec.nxm => kind::FLOW_REMOVED,
        Body::GroupMod(m) if group::needs_nx(codec, m) => kind::GROUP_MOD,
        Body::FlowModTableId(_) => kind::FLOW_MOD_TABLE_ID,
        Body::SetPacketInFormat(_) => kind::SET_PACKET_IN_FORMAT,
        Body::PacketIn(packet) => match packet.format {
            PacketInFormat::Standard => return None,
            PacketInFormat::Nxt => kind::PACKET_IN,
            PacketInFormat::Nxt2 => kind::PACKET_IN2,
        },
        Body::Resume(_) => kind::RESUME,
        Body::FlowAge => kind::FLOW_AGE,
        Body::SetAsync(_) if codec.version < Version::V13 => kind::SET_ASYNC,
        Body::SetControllerId(_) => kind::SET_CONTROLLER_ID,
        Body::FlowMonitorCancel(_) => kind::MONITOR_CANCEL,
        Body::FlowMonitorPaused => kind::MONITOR_PAUSED,
        Body::FlowMonitorResumed => kind::MONITOR_RESUMED,
        Body::TlvTableMod { .. } => kind::TLV_TABLE_MOD,
        Body::TlvTableRequest => kind::TLV_TABLE_REQUEST,
        Body::TlvTableReply(_) => kind::TLV_TABLE_REPLY,
        Body::CtFlushZone(_) => kind::CT_FLUSH_ZONE,
        Body::BundleControl(_) if codec.version < Version::V14 => return Some((ONF, kind::BUNDLE_CONTROL)),
        Body::BundleAdd(_) if codec.version < Version::V14 => return Some((ONF, kind::BUNDLE_ADD)),
        _ => return None,
    };
    Some((NICIRA, nicira))
}

/// Whether a message is an experimenter's in a version.
pub(super) fn is_extension(codec: &Codec, body: &Body) -> bool {
    subtype(codec, body).is_some()
}

pub(super) fn encode(codec: &Codec, out: &mut Writer, xid: u32, body: &Body) {
    let Some((vendor, subtype)) = subtype(codec, body) else {
        return;
    };
    let start = out.len();
    header(out, codec.version.number(), EXPERIMENTER, xid);
    out.u32(vendor);
    out.u32(subtype);
    match body {
        Body::RoleRequest(role) | Body::RoleReply(role) => out.u32(match role.role {
            Role::NoChange | Role::Equal => 0,
            Role::Master => 1,
            Role::Slave => 2,
        }),
        Body::SetFlowFormat { nxm } => out.u32(if *nxm { FORMAT_NXM } else { FORMAT_OPENFLOW10 }),
        Body::FlowMod(m) => encode_mod(codec, out, m),
        Body::FlowRemoved(r) => encode_removed(codec, out, r),
        Body::GroupMod(m) => group::encode_mod_nx(codec, out, m),
        Body::FlowModTableId(set) => {
            out.u8((*set).into());
            out.zeros(7);
        }
        Body::SetPacketInFormat(format) => out.u32(*format as u32),
        Body::PacketIn(packet) if packet.format == PacketInFormat::Nxt => packet::encode_nx(out, packet),
        Body::PacketIn(packet) | Body::Resume(packet) => packet::encode_nx2(out, packet),
        Body::SetAsync(config) => switch::encode_async(codec, out, config),
        Body::SetControllerId(number) | Body::CtFlushZone(number) => {
            out.zeros(6);
            out.u16(*number);
        }
        Body::FlowMonitorCancel(id) => out.u32(*id),
        Body::TlvTableMod { command, maps } => {
            out.u16(*command);
            out.zeros(6);
            encode_maps(out, maps);
        }
        Body::TlvTableReply(table) => {
            out.u32(table.max_space);
            out.u16(table.max_fields);
            out.zeros(10);
            encode_maps(out, &table.maps);
        }
        Body::BundleControl(control) => switch::encode_bundle_control(out, control),
        Body::BundleAdd(add) => switch::encode_bundle_add(out, add),
        _ => {}
    }
    finish(out, start);
}

/// Subtypes of statistics that versions without groups have.
const GROUP: u32 = 7;
const GROUP_DESC: u32 = 8;
const GROUP_FEATURES: u32 = 9;

/// The type of statistics, and Nicira's subtype in versions before the first that has the type.
pub(super) fn stats_kind(codec: &Codec, since: Version, kind: u16, subtype: u32) -> (u16, Option<u32>) {
    match codec.version < since {
        true => (0xffff, Some(subtype)),
        false => (kind, None),
    }
}

/// Writes a question about groups, in versions without.
pub(super) fn encode_group_request(codec: &Codec, out: &mut Writer, request: &StatsRequest) {
    let (subtype, group) = match request {
        StatsRequest::Group(group) => (GROUP, Some(group)),
        StatsRequest::GroupDesc(group) => (GROUP_DESC, Some(group)),
        _ => (GROUP_FEATURES, None),
    };
    stats_header(codec, out, subtype);
    if let Some(group) = group {
        out.u32(*group);
        out.zeros(4);
    }
}

/// Writes the header of an experimenter's statistics, from behind the statistics' own.
pub(super) fn stats_header(codec: &Codec, out: &mut Writer, subtype: u32) {
    out.u32(NICIRA);
    out.u32(subtype);
    if codec.version == Version::V10 {
        // Nicira's header is padded to 8 bytes in OpenFlow 1.0.
        out.zeros(4);
    }
}

fn decode_stats_header(codec: &Codec, data: &mut Reader<'_>) -> Result<u32, OfError> {
    if data.u32()? != NICIRA {
        return Err(OfError::BrcBadVendor);
    }
    let subtype = data.u32()?;
    if codec.version == Version::V10 {
        data.skip(4)?;
    }
    match subtype {
        0..=2 if codec.version <= Version::V13 => Ok(subtype),
        GROUP | GROUP_DESC if codec.version < Version::V11 => Ok(subtype),
        GROUP_FEATURES if codec.version < Version::V12 => Ok(subtype),
        _ => Err(OfError::BrcBadSubtype),
    }
}

pub(super) fn decode_stats_request(codec: &Codec, data: &mut Reader<'_>) -> Result<StatsRequest, OfError> {
    Ok(match decode_stats_header(codec, data)? {
        0 => StatsRequest::Flow(decode_request_nx(data)?),
        1 => StatsRequest::Aggregate(decode_request_nx(data)?),
        subtype @ (GROUP | GROUP_DESC) => {
            let group = data.u32()?;
            data.skip(4)?;
            match subtype {
                GROUP => StatsRequest::Group(group),
                _ => StatsRequest::GroupDesc(group),
            }
        }
        GROUP_FEATURES => StatsRequest::GroupFeatures,
        _ => StatsRequest::FlowMonitor(all(data, decode_monitor)?),
    })
}

pub(super) fn decode_stats_reply(codec: &Codec, data: &mut Reader<'_>) -> Result<StatsReply, OfError> {
    Ok(match decode_stats_header(codec, data)? {
        0 => StatsReply::Flow {
            flows: all(data, |data| decode_stats(codec, true, data))?,
            nxm: true,
        },
        1 => StatsReply::Aggregate {
            stats: decode_aggregate(data)?,
            nxm: true,
        },
        GROUP => StatsReply::Group(all(data, |data| group::decode_stats(codec, data))?),
        GROUP_DESC => StatsReply::GroupDesc(all(data, |data| group::decode_desc(codec, data))?),
        GROUP_FEATURES => StatsReply::GroupFeatures(group::decode_features(data)?),
        _ => StatsReply::FlowMonitor(all(data, decode_update)?),
    })
}

fn decode_monitor(data: &mut Reader<'_>) -> Result<FlowMonitorRequest, OfError> {
    let (id, flags, out_port, match_len) = (data.u32()?, data.u16()?, port10(data.u16()?), data.u16()?);
    let table = table(data.u8()?);
    data.zeros(5, OfError::NxBrcMustBeZero)?;
    if flags & !0x3f != 0 || flags & 0xf == 0 {
        return Err(OfError::MofcBadFlags);
    }
    let (matching, _) = decode_nx_match(data, match_len)?;
    Ok(FlowMonitorRequest {
        id,
        flags,
        out_port,
        table,
        matching,
    })
}

pub(super) fn encode_monitor(out: &mut Writer, r: &FlowMonitorRequest) {
    out.u32(r.id);
    out.u16(r.flags);
    out.u16(to10(r.out_port));
    let len_at = out.len();
    out.u16(0);
    out.u8(r.table.unwrap_or(255));
    out.zeros(5);
    encode_nx_match(out, len_at, &r.matching, (0, 0));
}

/// The event of an update that only names a message.
const ABBREV: u16 = 3;

fn decode_update(data: &mut Reader<'_>) -> Result<FlowUpdate, OfError> {
    let len = usize::from(data.u16()?).checked_sub(2).ok_or(OfError::BrcBadLen)?;
    let mut data = data.sub(len, OfError::BrcBadLen)?;
    let event = data.u16()?;
    match event {
        ABBREV => {
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
    let (matching, _) = decode_nx_match(&mut data, match_len)?;
    Ok(FlowUpdate::Full {
        event,
        reason,
        priority,
        idle_timeout,
        hard_timeout,
        table,
        cookie,
        matching,
        instructions: instruction::decode(Version::V10, data.rest())?,
    })
}

pub(super) fn encode_update(out: &mut Writer, update: &FlowUpdate) {
    let start = out.len();
    out.u16(0);
    match update {
        FlowUpdate::Abbrev { xid } => {
            out.u16(ABBREV);
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
            for word in [event, reason, priority, idle_timeout, hard_timeout] {
                out.u16(*word);
            }
            let len_at = out.len();
            out.u16(0);
            out.u8(*table);
            out.u8(0);
            out.u64(*cookie);
            encode_nx_match(out, len_at, matching, (0, 0));
            instruction::encode(out, Version::V10, instructions, matching);
        }
    }
    out.patch_len(start, start);
}
