//! Questions and answers of many parts: OpenFlow 1.0's statistics, later versions' multipart
//! messages.

use super::{
    Codec, Moved, bundle, decode_port, encode_port, event, finish, flow_stats as flow, group, header, monitor, nicira,
    port, port_stats, queue, switch, table,
};
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
const TABLE_DESC: u16 = 14;
const QUEUE_DESC: u16 = 15;
const FLOW_MONITOR: u16 = 16;
const FLOW_STATS: u16 = 17;
const CONTROLLER_STATUS: u16 = 18;
const BUNDLE_FEATURES: u16 = 19;
const EXPERIMENTER: u16 = 0xffff;

/// The first version that has a type of statistics.
fn since(kind: u16) -> Version {
    match kind {
        0..=QUEUE | EXPERIMENTER => Version::V10,
        GROUP | GROUP_DESC => Version::V11,
        GROUP_FEATURES => Version::V12,
        PORT_DESC => Version::V10,
        TABLE_DESC | QUEUE_DESC | FLOW_MONITOR => Version::V14,
        FLOW_STATS | CONTROLLER_STATUS | BUNDLE_FEATURES => Version::V15,
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
            let features = all(data, |data| table::decode_features(codec, data))?;
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
        TABLE_DESC => StatsRequest::TableDesc,
        FLOW_MONITOR => StatsRequest::FlowMonitor(all(data, |data| monitor::decode(version, data))?),
        FLOW_STATS => StatsRequest::FlowStats(flow::decode_request(codec, data)?),
        CONTROLLER_STATUS => StatsRequest::ControllerStatus,
        BUNDLE_FEATURES => StatsRequest::BundleFeatures(bundle::decode_features(true, data)?),
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
        StatsRequest::FlowStats(r) => flow::encode_request(codec, out, r),
        StatsRequest::BundleFeatures(features) => bundle::encode_features(true, out, features),
        StatsRequest::IpfixBridge => nicira::stats_header(codec, out, nicira::IPFIX_BRIDGE),
        StatsRequest::IpfixFlow => nicira::stats_header(codec, out, nicira::IPFIX_FLOW),
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
            features.iter().for_each(|f| table::encode_features(codec, out, f));
        }
        StatsRequest::FlowMonitor(requests) if version < Version::V13 => {
            nicira::stats_header(codec, out, 2);
            requests.iter().for_each(|r| monitor::encode_nx(out, r));
        }
        StatsRequest::FlowMonitor(requests) if version == Version::V13 => {
            nicira::onf_monitor_header(out);
            requests.iter().for_each(|r| monitor::encode_onf(version, out, r));
        }
        StatsRequest::FlowMonitor(requests) => requests.iter().for_each(|r| monitor::encode(version, out, r)),
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
        StatsRequest::FlowMonitor(_) if version >= Version::V14 => FLOW_MONITOR,
        StatsRequest::FlowMonitor(_) | StatsRequest::IpfixBridge | StatsRequest::IpfixFlow => EXPERIMENTER,
        StatsRequest::TableDesc => TABLE_DESC,
        StatsRequest::FlowStats(_) => FLOW_STATS,
        StatsRequest::ControllerStatus => CONTROLLER_STATUS,
        StatsRequest::BundleFeatures(_) => BUNDLE_FEATURES,
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
            stats: flow::decode_aggregate(codec.version, data)?,
            nxm: false,
        },
        TABLE => StatsReply::Table(all(data, |data| table::decode_stats(codec, data))?),
        PORT => StatsReply::Port(all(data, |data| port_stats::decode(codec, data))?),
        QUEUE => StatsReply::Queue(all(data, |data| queue::decode_stats(codec, data))?),
        GROUP => StatsReply::Group(all(data, |data| group::decode_stats(codec, data))?),
        GROUP_DESC => StatsReply::GroupDesc(all(data, |data| group::decode_desc(codec, data))?),
        GROUP_FEATURES => StatsReply::GroupFeatures(group::decode_features(data)?),
        METER => StatsReply::Meter(all(data, group::decode_meter_stats)?),
        METER_CONFIG => StatsReply::MeterConfig(all(data, group::decode_meter_config)?),
        METER_FEATURES => StatsReply::MeterFeatures(group::decode_meter_features(codec, data)?),
        TABLE_FEATURES => StatsReply::TableFeatures(all(data, |data| table::decode_features(codec, data))?),
        PORT_DESC => StatsReply::PortDesc(all(data, |data| port::decode_desc(codec, data))?),
        QUEUE_DESC => StatsReply::QueueDesc(all(data, queue::decode_desc)?),
        TABLE_DESC => StatsReply::TableDesc(all(data, table::decode_desc)?),
        FLOW_MONITOR => StatsReply::FlowMonitor(all(data, |data| monitor::decode_update(codec.version, data))?),
        FLOW_STATS => StatsReply::FlowStats(all(data, flow::decode_counters)?),
        CONTROLLER_STATUS => StatsReply::ControllerStatus(all(data, event::decode_controller)?),
        BUNDLE_FEATURES => StatsReply::BundleFeatures(bundle::decode_features(false, data)?),
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

/// Writes parts into as many messages as they need.
struct Parts<'a> {
    codec: &'a Codec,
    out: &'a mut Writer,
    xid: u32,
    kind: u16,
    subtype: Option<u32>,
    /// Start of the last message.
    start: usize,
}

impl Parts<'_> {
    fn begin(&mut self, more: bool) {
        self.start = self.out.len();
        begin(self.codec, self.out, self.xid, Moved::StatsReply, self.kind, more);
        match self.subtype {
            Some(subtype) => nicira::stats_header(self.codec, self.out, subtype),
            None if self.kind == EXPERIMENTER => nicira::onf_monitor_header(self.out),
            None => {}
        }
    }

    fn put<T>(mut self, more: bool, parts: &[T], one: impl Fn(&mut Writer, &T)) {
        self.begin(more);
        let header = self.out.len() - self.start;
        for part in parts {
            let before = self.out.len();
            one(self.out, part);
            if self.out.len() - self.start <= MAX_LEN {
                continue;
            }
            // No message holds it, and its own lengths are wrong already. There is no better way: a
            // part goes into one message, an error would replace the other parts too, and a
            // truncated part would have wrong contents.
            if header + (self.out.len() - before) > MAX_LEN {
                self.out.0.truncate(before);
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

impl GroupDesc {
    /// Whether a message of each version holds the group's description and its statistics, which
    /// cannot be split.
    pub fn fits(&self) -> bool {
        let stats = GroupStats {
            group: self.group,
            ref_count: 0,
            packets: 0,
            bytes: 0,
            duration: Duration::default(),
            buckets: vec![(0, 0); self.buckets.len()],
        };
        Version::ALL.into_iter().map(Codec::new).all(|codec| {
            let descriptions = nicira::stats_kind(&codec, Version::V11, GROUP_DESC, 8);
            let statistics = nicira::stats_kind(&codec, Version::V11, GROUP, 7);
            holds(&codec, descriptions, |out| group::encode_desc(&codec, out, self))
                && holds(&codec, statistics, |out| group::encode_stats(&codec, out, &stats))
        })
    }
}

/// Whether a message holds a part.
fn holds(codec: &Codec, (kind, subtype): (u16, Option<u32>), part: impl FnOnce(&mut Writer)) -> bool {
    let mut out = Writer::new();
    let mut message = Parts {
        codec,
        out: &mut out,
        xid: 0,
        kind,
        subtype,
        start: 0,
    };
    message.begin(false);
    part(&mut out);
    out.len() <= MAX_LEN
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
            parts(out, kind, subtype).put(more, &[stats], |out, s| flow::encode_aggregate(codec.version, out, s));
        }
        StatsReply::Table(tables) => {
            parts(out, TABLE, None).put(more, tables, |out, t| table::encode_stats(codec, out, t));
        }
        StatsReply::Port(ports) => {
            parts(out, PORT, None).put(more, ports, |out, p| port_stats::encode(codec, out, p));
        }
        StatsReply::Queue(queues) => {
            parts(out, QUEUE, None).put(more, queues, |out, q| queue::encode_stats(codec, out, q));
        }
        StatsReply::QueueDesc(queues) => {
            parts(out, QUEUE_DESC, None).put(more, queues, queue::encode_desc);
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
            parts(out, TABLE_FEATURES, None).put(more, tables, |out, t| table::encode_features(codec, out, t));
        }
        StatsReply::PortDesc(ports) => {
            parts(out, PORT_DESC, None).put(more, ports, |out, p| port::encode_desc(codec, out, p));
        }
        StatsReply::FlowMonitor(updates) if codec.version < Version::V14 => {
            let subtype = (codec.version < Version::V13).then_some(2);
            parts(out, EXPERIMENTER, subtype).put(more, updates, |out, update| {
                monitor::encode_update_nx(codec.version, out, update);
            });
        }
        StatsReply::FlowMonitor(updates) => {
            parts(out, FLOW_MONITOR, None).put(more, updates, |out, update| {
                monitor::encode_update(codec.version, out, update);
            });
        }
        StatsReply::FlowStats(flows) => parts(out, FLOW_STATS, None).put(more, flows, flow::encode_counters),
        StatsReply::TableDesc(tables) => parts(out, TABLE_DESC, None).put(more, tables, table::encode_desc),
        StatsReply::ControllerStatus(controllers) => {
            parts(out, CONTROLLER_STATUS, None).put(more, controllers, event::encode_controller);
        }
        StatsReply::BundleFeatures(f) => {
            parts(out, BUNDLE_FEATURES, None).put(more, &[f], |out, f| bundle::encode_features(false, out, f));
        }
        StatsReply::IpfixBridge(s) => {
            parts(out, EXPERIMENTER, Some(nicira::IPFIX_BRIDGE)).put(more, &[s], |out, s| nicira::encode_ipfix(out, s));
        }
        StatsReply::IpfixFlow(all) => {
            parts(out, EXPERIMENTER, Some(nicira::IPFIX_FLOW)).put(more, all, nicira::encode_ipfix);
        }
    }
}
