//! Nicira's messages, and the Open Networking Foundation's bundles for OpenFlow 1.3.

use super::flow::{decode_mod_nx, decode_removed_nx, encode_mod, encode_removed, needs_nx};
use super::flow_stats::{decode_aggregate, decode_request_nx, decode_stats};
use super::stats::all;
use super::{Codec, EXPERIMENTER, bundle, event, finish, flush, group, header, monitor, packet};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version, oxm};

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
    pub(super) const CT_FLUSH: u32 = 32;
    /// The foundation's.
    pub(super) const ONF_MONITOR_CANCEL: u32 = 1870;
    pub(super) const ONF_MONITOR_PAUSED: u32 = 1871;
    pub(super) const ONF_MONITOR_RESUMED: u32 = 1872;
    pub(super) const ROLE_STATUS: u32 = 1911;
    pub(super) const REQUEST_FORWARD: u32 = 2350;
    pub(super) const BUNDLE_CONTROL: u32 = 2300;
    pub(super) const BUNDLE_ADD: u32 = 2301;
}

/// Nicira's formats of messages about rules: OpenFlow 1.0's and the newer match.
const FORMAT_OPENFLOW10: u32 = 0;
const FORMAT_NXM: u32 = 2;

/// Whether the parts of an experimenter's message have a multiple of 8 bytes.
pub(super) fn aligned(message: &[u8]) -> bool {
    let word = |at: usize| {
        message
            .get(at..at + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let kinds: &[u32] = match word(8) {
        Some(NICIRA) => &[
            kind::FLOW_MOD,
            kind::PACKET_IN2,
            kind::RESUME,
            kind::SET_ASYNC2,
            kind::TLV_TABLE_MOD,
            kind::GROUP_MOD,
            kind::CT_FLUSH,
        ],
        Some(ONF) => &[kind::ROLE_STATUS, kind::REQUEST_FORWARD, kind::BUNDLE_CONTROL],
        _ => &[],
    };
    word(12).is_some_and(|kind| kinds.contains(&kind))
}

/// Whether the parts of a request for an experimenter's statistics, whose header is at `at`, have a
/// multiple of 8 bytes.
pub(super) fn aligned_stats(message: &[u8], at: usize) -> bool {
    let word = |at: usize| {
        message
            .get(at..at + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    };
    let experimenter = message.get(8..10) == Some(&[0xff, 0xff]);
    let kind = (word(at), word(at + 4));
    experimenter && matches!(kind, (Some(NICIRA), Some(0..=2)) | (Some(ONF), Some(ONF_MONITOR)))
}

/// Reads a message of an experimenter, from behind the message's header.
pub(super) fn decode(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let (vendor, subtype) = (data.u32()?, data.u32()?);
    match vendor {
        NICIRA => decode_nicira(codec, subtype, data),
        ONF if codec.version == Version::V13 => match subtype {
            kind::ONF_MONITOR_CANCEL => Ok(Body::FlowMonitorCancel(data.u32()?)),
            kind::ONF_MONITOR_PAUSED => Ok(Body::FlowMonitorPaused),
            kind::ONF_MONITOR_RESUMED => Ok(Body::FlowMonitorResumed),
            kind::ROLE_STATUS => Ok(Body::RoleStatus(event::decode_role_status(data)?)),
            kind::REQUEST_FORWARD => super::decode_forwarded(codec, data),
            kind::BUNDLE_CONTROL => Ok(Body::BundleControl(bundle::decode_control(codec, data)?)),
            kind::BUNDLE_ADD => Ok(Body::BundleAdd(bundle::decode_add(codec, data)?)),
            _ => Err(OfError::BrcBadSubtype),
        },
        _ => Err(OfError::BrcBadVendor),
    }
}

fn decode_nicira(codec: &Codec, subtype: u32, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let first = codec.version == Version::V10;
    // Later versions have monitors of the foundation's, and of their own.
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
        kind::SET_ASYNC => Body::SetAsync(event::decode_async(data)?),
        kind::SET_ASYNC2 if codec.version < Version::V14 => Body::SetAsync(event::decode_async14(codec, data, true)?),
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
        kind::CT_FLUSH => Body::CtFlush(Box::new(flush::decode(data)?)),
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
        short_id: 0,
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
    let onf = codec.version == Version::V13;
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
        // The masks of three kinds of events have a message of their own; more are properties.
        Body::SetAsync(config) if codec.version < Version::V14 && config.given != AsyncConfig::GIVEN_OLD => {
            kind::SET_ASYNC2
        }
        Body::SetAsync(_) if codec.version < Version::V13 => kind::SET_ASYNC,
        Body::SetControllerId(_) => kind::SET_CONTROLLER_ID,
        Body::FlowMonitorCancel(_) if onf => return Some((ONF, kind::ONF_MONITOR_CANCEL)),
        Body::FlowMonitorPaused if onf => return Some((ONF, kind::ONF_MONITOR_PAUSED)),
        Body::FlowMonitorResumed if onf => return Some((ONF, kind::ONF_MONITOR_RESUMED)),
        Body::FlowMonitorCancel(_) => kind::MONITOR_CANCEL,
        Body::FlowMonitorPaused => kind::MONITOR_PAUSED,
        Body::FlowMonitorResumed => kind::MONITOR_RESUMED,
        Body::TlvTableMod { .. } => kind::TLV_TABLE_MOD,
        Body::TlvTableRequest => kind::TLV_TABLE_REQUEST,
        Body::TlvTableReply(_) => kind::TLV_TABLE_REPLY,
        Body::CtFlushZone(_) => kind::CT_FLUSH_ZONE,
        Body::CtFlush(_) => kind::CT_FLUSH,
        Body::RoleStatus(_) if codec.version < Version::V14 => return Some((ONF, kind::ROLE_STATUS)),
        Body::RequestForward(_) if codec.version < Version::V14 => return Some((ONF, kind::REQUEST_FORWARD)),
        Body::BundleControl(_) if codec.version < Version::V14 => return Some((ONF, kind::BUNDLE_CONTROL)),
        Body::BundleAdd(_) if codec.version < Version::V14 => return Some((ONF, kind::BUNDLE_ADD)),
        _ => return None,
    };
    Some((NICIRA, nicira))
}

/// Whether a version sends a message as an experimenter's.
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
        Body::PacketIn(packet) | Body::Resume(packet) => packet::encode_nx2(codec.version, out, packet),
        Body::SetAsync(config) if subtype == kind::SET_ASYNC2 => event::encode_async14(codec, out, config),
        Body::SetAsync(config) => event::encode_async(codec, out, config),
        Body::CtFlush(flush) => flush::encode(out, flush),
        Body::RoleStatus(status) => event::encode_role_status(out, status),
        Body::RequestForward(message) => codec.encode_to(out, message),
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
        Body::BundleControl(control) => bundle::encode_control(out, control),
        Body::BundleAdd(add) => bundle::encode_add(out, add),
        _ => {}
    }
    finish(out, start);
}

/// Subtypes of statistics that versions without groups have.
const GROUP: u32 = 7;
const GROUP_DESC: u32 = 8;
const GROUP_FEATURES: u32 = 9;
/// Statistics of IPFIX for a bridge.
pub(super) const IPFIX_BRIDGE: u32 = 3;
pub(super) const IPFIX_FLOW: u32 = 4;
/// The foundation's monitors of rules, for OpenFlow 1.3.
const ONF_MONITOR: u32 = 1870;

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

/// Writes the header of the foundation's monitors.
pub(super) fn onf_monitor_header(out: &mut Writer) {
    out.u32(ONF);
    out.u32(ONF_MONITOR);
}

fn decode_stats_header(codec: &Codec, data: &mut Reader<'_>) -> Result<u32, OfError> {
    match data.u32()? {
        NICIRA => {}
        ONF if codec.version > Version::V10 => match data.u32()? {
            ONF_MONITOR if codec.version == Version::V13 => return Ok(ONF_MONITOR),
            _ => return Err(OfError::BrcBadSubtype),
        },
        _ => return Err(OfError::BrcBadVendor),
    }
    let subtype = data.u32()?;
    if codec.version == Version::V10 {
        data.skip(4)?;
    }
    match subtype {
        0 | 1 if codec.version == Version::V10 => Ok(subtype),
        2 if codec.version < Version::V13 => Ok(subtype),
        IPFIX_BRIDGE | IPFIX_FLOW => Ok(subtype),
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
        IPFIX_BRIDGE => StatsRequest::IpfixBridge,
        IPFIX_FLOW => StatsRequest::IpfixFlow,
        ONF_MONITOR => StatsRequest::FlowMonitor(all(data, |data| monitor::decode_onf(codec.version, data))?),
        _ => StatsRequest::FlowMonitor(all(data, monitor::decode_nx)?),
    })
}

pub(super) fn decode_stats_reply(codec: &Codec, data: &mut Reader<'_>) -> Result<StatsReply, OfError> {
    Ok(match decode_stats_header(codec, data)? {
        0 => StatsReply::Flow {
            flows: all(data, |data| decode_stats(codec, true, data))?,
            nxm: true,
        },
        1 => StatsReply::Aggregate {
            stats: decode_aggregate(codec.version, data)?,
            nxm: true,
        },
        GROUP => StatsReply::Group(all(data, |data| group::decode_stats(codec, data))?),
        GROUP_DESC => StatsReply::GroupDesc(all(data, |data| group::decode_desc(codec, data))?),
        GROUP_FEATURES => StatsReply::GroupFeatures(group::decode_features(data)?),
        IPFIX_BRIDGE => StatsReply::IpfixBridge(decode_ipfix(data)?),
        IPFIX_FLOW => StatsReply::IpfixFlow(all(data, decode_ipfix)?),
        _ => StatsReply::FlowMonitor(all(data, |data| monitor::decode_update_nx(codec.version, data))?),
    })
}

fn decode_ipfix(data: &mut Reader<'_>) -> Result<IpfixStats, OfError> {
    let stats = IpfixStats {
        total_flows: data.u64()?,
        current_flows: data.u64()?,
        packets: data.u64()?,
        ipv4_packets: data.u64()?,
        ipv6_packets: data.u64()?,
        error_packets: data.u64()?,
        ipv4_error_packets: data.u64()?,
        ipv6_error_packets: data.u64()?,
        tx_packets: data.u64()?,
        tx_errors: data.u64()?,
        collector_set_id: data.u32()?,
    };
    data.skip(4)?;
    Ok(stats)
}

pub(super) fn encode_ipfix(out: &mut Writer, s: &IpfixStats) {
    for count in [
        s.total_flows,
        s.current_flows,
        s.packets,
        s.ipv4_packets,
        s.ipv6_packets,
        s.error_packets,
        s.ipv4_error_packets,
        s.ipv6_error_packets,
        s.tx_packets,
        s.tx_errors,
    ] {
        out.u64(count);
    }
    out.u32(s.collector_set_id);
    out.zeros(4);
}
