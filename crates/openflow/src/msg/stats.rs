//! Questions and answers of many parts: OpenFlow 1.0's statistics, later versions' multipart messages.

use super::{Codec, Moved, decode_port, encode_port, finish, flow, group, header, nicira, port, switch};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{MAX_LEN, OfError, Version};

const DESC: u16 = 0;
const FLOW: u16 = 1;
const AGGREGATE: u16 = 2;
const TABLE: u16 = 3;
const PORT: u16 = 4;
const QUEUE: u16 = 5;
const GROUP: u16 = 6;
const GROUP_DESC: u16 = 7;
const GROUP_FEATURES: u16 = 8;
const METER: u16 = 9;
const METER_CONFIG: u16 = 10;
const METER_FEATURES: u16 = 11;
const TABLE_FEATURES: u16 = 12;
const PORT_DESC: u16 = 13;
const QUEUE_DESC: u16 = 15;
const EXPERIMENTER: u16 = 0xffff;

/// The first version that has a type of statistics.
fn since(kind: u16) -> Version {
    match kind {
        0..=QUEUE | EXPERIMENTER => Version::V10,
        GROUP | GROUP_DESC => Version::V11,
        GROUP_FEATURES => Version::V12,
        PORT_DESC => Version::V10,
        QUEUE_DESC => Version::V14,
        _ => Version::V13,
    }
}

pub(super) fn decode_request(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let version = codec.version;
    let (kind, flags) = (data.u16()?, data.u16()?);
    if version > Version::V10 {
        data.skip(4)?;
    }
    if version < since(kind) {
        return Err(OfError::BrcBadStat);
    }
    let request = match kind {
        DESC => StatsRequest::Desc,
        FLOW => StatsRequest::Flow(flow::decode_request(codec, data)?),
        AGGREGATE => StatsRequest::Aggregate(flow::decode_request(codec, data)?),
        TABLE => StatsRequest::Table,
        PORT => {
            let port = decode_port(version, data)?;
            data.skip(if version == Version::V10 { 6 } else { 4 })?;
            StatsRequest::Port(port)
        }
        QUEUE => {
            let port = decode_port(version, data)?;
            if version == Version::V10 {
                data.skip(2)?;
            }
            let queue = data.u32()?;
            StatsRequest::Queue { port, queue }
        }
        GROUP => {
            let group = data.u32()?;
            data.skip(4)?;
            StatsRequest::Group(group)
        }
        GROUP_DESC if version >= Version::V15 => {
            let group = data.u32()?;
            data.skip(4)?;
            StatsRequest::GroupDesc(group)
        }
        GROUP_DESC => StatsRequest::GroupDesc(ALL_GROUPS),
        GROUP_FEATURES => StatsRequest::GroupFeatures,
        METER | METER_CONFIG => {
            let meter = data.u32()?;
            data.skip(4)?;
            match kind {
                METER => StatsRequest::Meter(meter),
                _ => StatsRequest::MeterConfig(meter),
            }
        }
        METER_FEATURES => StatsRequest::MeterFeatures,
        TABLE_FEATURES => {
            let mut features = Vec::new();
            while !data.is_empty() {
                features.push(switch::decode_table_features(data)?);
            }
            StatsRequest::TableFeatures(features)
        }
        PORT_DESC if version >= Version::V15 => {
            let port = decode_port(version, data)?;
            data.skip(4)?;
            StatsRequest::PortDesc(port)
        }
        PORT_DESC => StatsRequest::PortDesc(Port::ANY),
        QUEUE_DESC => {
            let port = decode_port(version, data)?;
            let queue = data.u32()?;
            StatsRequest::QueueDesc { port, queue }
        }
        EXPERIMENTER => nicira::decode_stats_request(codec, data)?,
        _ => return Err(OfError::BrcBadStat),
    };
    Ok(Body::StatsRequest {
        more: flags & 1 != 0,
        request,
    })
}

pub(super) fn encode_request(codec: &Codec, out: &mut Writer, xid: u32, more: bool, request: &StatsRequest) {
    let version = codec.version;
    let start = out.len();
    begin(
        codec,
        out,
        xid,
        Moved::StatsRequest,
        request_kind(version, request),
        more,
    );
    match request {
        StatsRequest::Flow(r) | StatsRequest::Aggregate(r) => {
            if r.nxm {
                let subtype = u32::from(matches!(request, StatsRequest::Aggregate(_)));
                nicira::stats_header(codec, out, subtype);
            }
            flow::encode_request(codec, out, r);
        }
        StatsRequest::Port(port) => {
            encode_port(version, out, *port);
            out.zeros(if version == Version::V10 { 6 } else { 4 });
        }
        StatsRequest::Queue { port, queue } => {
            encode_port(version, out, *port);
            if version == Version::V10 {
                out.zeros(2);
            }
            out.u32(*queue);
        }
        StatsRequest::QueueDesc { port, queue } => {
            encode_port(version, out, *port);
            out.u32(*queue);
        }
        StatsRequest::Group(_) | StatsRequest::GroupDesc(_) | StatsRequest::GroupFeatures
            if request_kind(version, request) == EXPERIMENTER =>
        {
            nicira::encode_group_request(codec, out, request);
        }
        StatsRequest::Group(number) | StatsRequest::Meter(number) | StatsRequest::MeterConfig(number) => {
            out.u32(*number);
            out.zeros(4);
        }
        StatsRequest::GroupDesc(number) if version >= Version::V15 => {
            out.u32(*number);
            out.zeros(4);
        }
        StatsRequest::PortDesc(port) if version >= Version::V15 => {
            out.u32(port.0);
            out.zeros(4);
        }
        StatsRequest::TableFeatures(features) => {
            features.iter().for_each(|f| switch::encode_table_features(out, f));
        }
        StatsRequest::FlowMonitor(requests) => {
            nicira::stats_header(codec, out, 2);
            requests.iter().for_each(|r| nicira::encode_monitor(out, r));
        }
        _ => {}
    }
    finish(out, start);
}

fn request_kind(version: Version, request: &StatsRequest) -> u16 {
    match request {
        StatsRequest::Group(_) | StatsRequest::GroupDesc(_) if version < Version::V11 => EXPERIMENTER,
        StatsRequest::GroupFeatures if version < Version::V12 => EXPERIMENTER,
        StatsRequest::QueueDesc { .. } => QUEUE_DESC,
        StatsRequest::Desc => DESC,
        StatsRequest::Flow(r) | StatsRequest::Aggregate(r) if r.nxm => EXPERIMENTER,
        StatsRequest::Flow(_) => FLOW,
        StatsRequest::Aggregate(_) => AGGREGATE,
        StatsRequest::Table => TABLE,
        StatsRequest::Port(_) => PORT,
        StatsRequest::Queue { .. } => QUEUE,
        StatsRequest::Group(_) => GROUP,
        StatsRequest::GroupDesc(_) => GROUP_DESC,
        StatsRequest::GroupFeatures => GROUP_FEATURES,
        StatsRequest::Meter(_) => METER,
        StatsRequest::MeterConfig(_) => METER_CONFIG,
        StatsRequest::MeterFeatures => METER_FEATURES,
        StatsRequest::TableFeatures(_) => TABLE_FEATURES,
        StatsRequest::PortDesc(_) => PORT_DESC,
        StatsRequest::FlowMonitor(_) => EXPERIMENTER,
    }
}

/// Writes the headers up to the body.
fn begin(codec: &Codec, out: &mut Writer, xid: u32, moved: Moved, kind: u16, more: bool) {
    header(out, codec.version.number(), moved.number(codec.version), xid);
    out.u16(kind);
    out.u16(more.into());
    if codec.version > Version::V10 {
        out.zeros(4);
    }
}

pub(super) fn decode_reply(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let (kind, flags) = (data.u16()?, data.u16()?);
    if codec.version > Version::V10 {
        data.skip(4)?;
    }
    if codec.version < since(kind) {
        return Err(OfError::BrcBadStat);
    }
    let reply = match kind {
        DESC => StatsReply::Desc(switch::decode_desc(data)?),
        FLOW => StatsReply::Flow {
            flows: all(data, |data| flow::decode_stats(codec, false, data))?,
            nxm: false,
        },
        AGGREGATE => StatsReply::Aggregate {
            stats: decode_aggregate(data)?,
            nxm: false,
        },
        TABLE => StatsReply::Table(all(data, |data| switch::decode_table_stats(codec, data))?),
        PORT => StatsReply::Port(all(data, |data| port::decode_stats(codec, data))?),
        QUEUE => StatsReply::Queue(all(data, |data| port::decode_queue_stats(codec, data))?),
        GROUP => StatsReply::Group(all(data, |data| group::decode_stats(codec, data))?),
        GROUP_DESC => StatsReply::GroupDesc(all(data, |data| group::decode_desc(codec, data))?),
        GROUP_FEATURES => StatsReply::GroupFeatures(group::decode_features(data)?),
        METER => StatsReply::Meter(all(data, group::decode_meter_stats)?),
        METER_CONFIG => StatsReply::MeterConfig(all(data, group::decode_meter_config)?),
        METER_FEATURES => StatsReply::MeterFeatures(group::decode_meter_features(data)?),
        TABLE_FEATURES => StatsReply::TableFeatures(all(data, switch::decode_table_features)?),
        PORT_DESC => StatsReply::PortDesc(all(data, |data| port::decode_desc(codec, data))?),
        QUEUE_DESC => StatsReply::QueueDesc(all(data, port::decode_queue_desc)?),
        EXPERIMENTER => nicira::decode_stats_reply(codec, data)?,
        _ => return Err(OfError::BrcBadStat),
    };
    Ok(Body::StatsReply {
        more: flags & 1 != 0,
        reply,
    })
}

/// Parts up to the end. Each takes at least a byte, or is an error.
pub(super) fn all<T>(
    data: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, OfError>,
) -> Result<Vec<T>, OfError> {
    let mut parts = Vec::new();
    while !data.is_empty() {
        parts.push(one(data)?);
    }
    Ok(parts)
}

pub(super) fn decode_aggregate(data: &mut Reader<'_>) -> Result<AggregateStats, OfError> {
    let stats = AggregateStats {
        packets: data.u64()?,
        bytes: data.u64()?,
        flows: data.u32()?,
    };
    data.skip(4)?;
    Ok(stats)
}

/// Writes parts into as many messages as they need.
struct Parts<'a> {
    codec: &'a Codec,
    out: &'a mut Writer,
    xid: u32,
    kind: u16,
    subtype: Option<u32>,
    /// Where the message at the end begins.
    start: usize,
}

impl Parts<'_> {
    fn begin(&mut self, more: bool) {
        self.start = self.out.len();
        begin(self.codec, self.out, self.xid, Moved::StatsReply, self.kind, more);
        if let Some(subtype) = self.subtype {
            nicira::stats_header(self.codec, self.out, subtype);
        }
    }

    fn put<T>(mut self, more: bool, parts: &[T], one: impl Fn(&mut Writer, &T)) {
        self.begin(more);
        for part in parts {
            let before = self.out.len();
            one(self.out, part);
            if self.out.len() - self.start <= MAX_LEN {
                continue;
            }
            // It goes to a message of its own, behind this one, which says so.
            let bytes = self.out.0.split_off(before);
            self.out.0[self.start + 11] |= 1;
            finish(self.out, self.start);
            self.begin(more);
            self.out.bytes(&bytes);
        }
        finish(self.out, self.start);
    }
}

pub(super) fn encode_reply(codec: &Codec, out: &mut Writer, xid: u32, more: bool, reply: &StatsReply) {
    let parts = |out, kind, subtype| Parts {
        codec,
        out,
        xid,
        kind,
        subtype,
        start: 0,
    };
    match reply {
        StatsReply::Desc(desc) => parts(out, DESC, None).put(more, &[desc], |out, desc| switch::encode_desc(out, desc)),
        StatsReply::Flow { flows, nxm } => {
            let (kind, subtype) = if *nxm { (EXPERIMENTER, Some(0)) } else { (FLOW, None) };
            parts(out, kind, subtype).put(more, flows, |out, f| flow::encode_stats(codec, *nxm, out, f));
        }
        StatsReply::Aggregate { stats, nxm } => {
            let (kind, subtype) = if *nxm {
                (EXPERIMENTER, Some(1))
            } else {
                (AGGREGATE, None)
            };
            parts(out, kind, subtype).put(more, &[stats], |out, s| {
                out.u64(s.packets);
                out.u64(s.bytes);
                out.u32(s.flows);
                out.zeros(4);
            });
        }
        StatsReply::Table(tables) => {
            parts(out, TABLE, None).put(more, tables, |out, t| switch::encode_table_stats(codec, out, t));
        }
        StatsReply::Port(ports) => {
            parts(out, PORT, None).put(more, ports, |out, p| port::encode_stats(codec, out, p));
        }
        StatsReply::Queue(queues) => {
            parts(out, QUEUE, None).put(more, queues, |out, q| port::encode_queue_stats(codec, out, q));
        }
        StatsReply::QueueDesc(queues) => {
            parts(out, QUEUE_DESC, None).put(more, queues, port::encode_queue_desc);
        }
        StatsReply::Group(groups) => {
            let (kind, subtype) = nicira::stats_kind(codec, Version::V11, GROUP, 7);
            parts(out, kind, subtype).put(more, groups, |out, g| group::encode_stats(codec, out, g));
        }
        StatsReply::GroupDesc(groups) => {
            let (kind, subtype) = nicira::stats_kind(codec, Version::V11, GROUP_DESC, 8);
            parts(out, kind, subtype).put(more, groups, |out, g| group::encode_desc(codec, out, g));
        }
        StatsReply::GroupFeatures(f) => {
            let (kind, subtype) = nicira::stats_kind(codec, Version::V12, GROUP_FEATURES, 9);
            parts(out, kind, subtype).put(more, &[f], |out, f| group::encode_features(out, f));
        }
        StatsReply::Meter(meters) => parts(out, METER, None).put(more, meters, group::encode_meter_stats),
        StatsReply::MeterConfig(meters) => parts(out, METER_CONFIG, None).put(more, meters, group::encode_meter_config),
        StatsReply::MeterFeatures(f) => {
            parts(out, METER_FEATURES, None).put(more, &[f], |out, f| group::encode_meter_features(codec, out, f));
        }
        StatsReply::TableFeatures(tables) => {
            parts(out, TABLE_FEATURES, None).put(more, tables, switch::encode_table_features);
        }
        StatsReply::PortDesc(ports) => {
            parts(out, PORT_DESC, None).put(more, ports, |out, p| port::encode_desc(codec, out, p));
        }
        StatsReply::FlowMonitor(updates) => {
            parts(out, EXPERIMENTER, Some(2)).put(more, updates, nicira::encode_update);
        }
    }
}
