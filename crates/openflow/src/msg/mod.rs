//! Messages: bytes to model and back.

mod bundle;
pub(crate) mod event;
pub(crate) mod fixed;
mod flow;
mod flow_stats;
mod flush;
mod group;
mod monitor;
mod nicira;
mod oxs;
mod packet;
mod port;
mod port_stats;
pub(crate) mod property;
mod queue;
mod stats;
mod switch;
mod table;
mod table_property;

use crate::buf::{Reader, Writer};
use crate::model::{
    Body, FlowMonitorRequest, FlowUpdate, Match, Message, MonitorCommand, Port, StatsReply, StatsRequest,
};
use crate::{ErrorBody, HEADER_LEN, Hello, MAX_LEN, OfError, Version, Versions, oxm};

/// The negotiated version and flow format of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    /// The protocol version.
    pub version: Version,
    /// Whether OpenFlow 1.0's flow messages are Nicira's, with extensible matches.
    pub nxm: bool,
    /// Whether OpenFlow 1.0's flow-mods hold a table id.
    pub table_id: bool,
}

impl Codec {
    /// A codec of a version without extensions in force.
    pub const fn new(version: Version) -> Codec {
        Codec {
            version,
            nxm: false,
            table_id: false,
        }
    }

    /// Reads a message that [`crate::Framer`] returned.
    ///
    /// # Errors
    /// The error to answer with, quoting the message: [`ErrorBody::of`].
    pub fn decode(&self, data: &[u8]) -> Result<Message, OfError> {
        let mut message = Reader::new(data, OfError::BrcBadLen);
        let (version, kind, len) = (message.u8()?, message.u8()?, message.u16()?);
        let xid = message.u32()?;
        if usize::from(len) != data.len() {
            return Err(OfError::BrcBadLen);
        }
        if kind == HELLO {
            let body = Body::Hello(decode_hello(version, message.rest()));
            return Ok(Message { xid, body });
        }
        if version != self.version.number() {
            return Err(OfError::BrcBadVersion);
        }
        if !data.len().is_multiple_of(8) && self.aligned(kind, data) {
            return Err(OfError::BrcBadLen);
        }
        let body = self.decode_body(kind, &mut message)?;
        message.end()?;
        if let Body::BundleAdd(add) = &body {
            // The message inside must be valid by itself.
            let added = Reader::new(&add.message, OfError::BfcMsgBadLen).array::<HEADER_LEN>()?;
            if added[0] != version {
                return Err(OfError::BfcBadVersion);
            }
            // Packets and changes of flows, groups and ports; and Nicira's change of groups.
            if !matches!(added[1], EXPERIMENTER | 13..=16) {
                return Err(OfError::BfcMsgUnsup);
            }
            if added[4..] != xid.to_be_bytes() {
                return Err(OfError::BfcMsgBadXid);
            }
        }
        Ok(Message { xid, body })
    }

    /// Whether the parts of a type of message have a multiple of 8 bytes: it ends with matches,
    /// actions or properties.
    fn aligned(&self, kind: u8, data: &[u8]) -> bool {
        const STATS: [u16; 5] = [1, 2, 12, 16, 17];
        let version = self.version;
        match kind {
            EXPERIMENTER => nicira::aligned(data),
            14 => true,
            11 | 15 if version > Version::V10 => true,
            16 | 17 | 28 | 30..=33 if version >= Version::V14 => true,
            16 if version == Version::V10 => nicira::aligned_stats(data, 12),
            18 if version > Version::V10 => {
                let request = data.get(8..10).map(|b| u16::from_be_bytes([b[0], b[1]]));
                request.is_some_and(|kind| STATS.contains(&kind)) || nicira::aligned_stats(data, 16)
            }
            29 => version >= Version::V13,
            _ => false,
        }
    }

    /// Writes a message. A reply too long for one message becomes several.
    pub fn encode(&self, message: &Message) -> Vec<u8> {
        let mut out = Writer::new();
        self.encode_to(&mut out, message);
        out.0
    }

    /// Appends a message.
    pub fn append(&self, out: &mut Vec<u8>, message: &Message) {
        let mut writer = Writer(std::mem::take(out));
        self.encode_to(&mut writer, message);
        *out = writer.0;
    }

    fn encode_to(&self, out: &mut Writer, message: &Message) {
        let xid = message.xid;
        match &message.body {
            Body::StatsRequest { more, request } => stats::encode_request(self, out, xid, *more, request),
            Body::StatsReply { more, reply } => stats::encode_reply(self, out, xid, *more, reply),
            // From OpenFlow 1.4 on, pauses of monitors are among their updates, and cancelling a
            // monitor is a request.
            Body::FlowMonitorPaused | Body::FlowMonitorResumed if self.version >= Version::V14 => {
                let update = match message.body {
                    Body::FlowMonitorPaused => FlowUpdate::Paused,
                    _ => FlowUpdate::Resumed,
                };
                stats::encode_reply(self, out, xid, false, &StatsReply::FlowMonitor(vec![update]));
            }
            Body::FlowMonitorCancel(id) if self.version >= Version::V14 => {
                let cancel = FlowMonitorRequest {
                    id: *id,
                    command: MonitorCommand::Delete,
                    ..FlowMonitorRequest::default()
                };
                stats::encode_request(self, out, xid, false, &StatsRequest::FlowMonitor(vec![cancel]));
            }
            body if nicira::is_extension(self, body) => nicira::encode(self, out, xid, body),
            Body::Hello(hello) => {
                let mut message = Writer::new();
                header(&mut message, hello.version, HELLO, xid);
                encode_hello(&mut message, hello);
                finish(&mut message, 0);
                out.bytes(&message.0);
            }
            body => {
                let start = out.len();
                header(out, self.version.number(), self.kind(body), xid);
                self.encode_body(out, body);
                finish(out, start);
            }
        }
    }

    fn decode_body(&self, kind: u8, data: &mut Reader<'_>) -> Result<Body, OfError> {
        let version = self.version;
        let new = version != Version::V10;
        Ok(match kind {
            1 => Body::Error(ErrorBody::decode(
                version,
                Reader::new(data.rest(), OfError::BrcBadLen),
            )?),
            2 => Body::EchoRequest(data.rest().to_vec()),
            3 => Body::EchoReply(data.rest().to_vec()),
            EXPERIMENTER => nicira::decode(self, data)?,
            5 => Body::FeaturesRequest,
            6 => Body::FeaturesReply(switch::decode_features(self, data)?),
            7 => Body::GetConfigRequest,
            8 => Body::GetConfigReply(switch::decode_config(data)?),
            9 => Body::SetConfig(switch::decode_set_config(self, data)?),
            10 => Body::PacketIn(Box::new(packet::decode_in(self, data)?)),
            11 => Body::FlowRemoved(Box::new(flow::decode_removed(self, data)?)),
            12 => Body::PortStatus(Box::new(port::decode_status(self, data)?)),
            13 => Body::PacketOut(Box::new(packet::decode_out(self, data)?)),
            14 => Body::FlowMod(Box::new(flow::decode_mod(self, data)?)),
            15 if new => Body::GroupMod(group::decode_mod(self, data)?),
            17 if new => Body::TableMod(table::decode_mod(self, data)?),
            24 if version >= Version::V12 => Body::RoleRequest(event::decode_role(self, data)?),
            25 if version >= Version::V12 => Body::RoleReply(event::decode_role(self, data)?),
            26 if version >= Version::V13 => Body::GetAsyncRequest,
            27 if version == Version::V13 => Body::GetAsyncReply(event::decode_async(data)?),
            28 if version == Version::V13 => Body::SetAsync(event::decode_async(data)?),
            27 if version > Version::V13 => Body::GetAsyncReply(event::decode_async14(self, data, false)?),
            28 if version > Version::V13 => Body::SetAsync(event::decode_async14(self, data, true)?),
            29 if version >= Version::V13 => Body::MeterMod(group::decode_meter_mod(data)?),
            30 if version >= Version::V14 => Body::RoleStatus(event::decode_role_status(data)?),
            31 if version >= Version::V14 => Body::TableStatus(table::decode_status(data)?),
            32 if version >= Version::V14 => decode_forwarded(self, data)?,
            33 if version >= Version::V14 => Body::BundleControl(bundle::decode_control(self, data)?),
            34 if version >= Version::V14 => Body::BundleAdd(bundle::decode_add(self, data)?),
            35 if version >= Version::V15 => Body::ControllerStatus(event::decode_controller(data)?),
            // Other types have other numbers in OpenFlow 1.0.
            _ => match Moved::of(version, kind).ok_or(OfError::BrcBadType)? {
                Moved::PortMod => Body::PortMod(port::decode_mod(self, data)?),
                Moved::StatsRequest => stats::decode_request(self, data)?,
                Moved::StatsReply => stats::decode_reply(self, data)?,
                Moved::BarrierRequest => Body::BarrierRequest,
                Moved::BarrierReply => Body::BarrierReply,
                Moved::QueueRequest => Body::QueueGetConfigRequest(queue::decode_request(self, data)?),
                Moved::QueueReply => queue::decode_reply(self, data)?,
            },
        })
    }

    /// The type of a message that is not an extension.
    fn kind(&self, body: &Body) -> u8 {
        let moved = |kind: Moved| kind.number(self.version);
        match body {
            Body::Hello(_) => HELLO,
            Body::Error(_) => 1,
            Body::EchoRequest(_) => 2,
            Body::EchoReply(_) => 3,
            Body::FeaturesRequest => 5,
            Body::FeaturesReply(_) => 6,
            Body::GetConfigRequest => 7,
            Body::GetConfigReply(_) => 8,
            Body::SetConfig(_) => 9,
            Body::PacketIn(_) => 10,
            Body::FlowRemoved(_) => 11,
            Body::PortStatus(_) => 12,
            Body::PacketOut(_) => 13,
            Body::FlowMod(_) => 14,
            Body::GroupMod(_) => 15,
            Body::PortMod(_) => moved(Moved::PortMod),
            Body::TableMod(_) => 17,
            Body::StatsRequest { .. } => moved(Moved::StatsRequest),
            Body::StatsReply { .. } => moved(Moved::StatsReply),
            Body::BarrierRequest => moved(Moved::BarrierRequest),
            Body::BarrierReply => moved(Moved::BarrierReply),
            Body::QueueGetConfigRequest(_) => moved(Moved::QueueRequest),
            Body::QueueGetConfigReply { .. } => moved(Moved::QueueReply),
            Body::RoleRequest(_) => 24,
            Body::RoleReply(_) => 25,
            Body::GetAsyncRequest => 26,
            Body::GetAsyncReply(_) => 27,
            Body::SetAsync(_) => 28,
            Body::MeterMod(_) => 29,
            Body::RoleStatus(_) => 30,
            Body::TableStatus(_) => 31,
            Body::RequestForward(_) => 32,
            Body::BundleControl(_) => 33,
            Body::BundleAdd(_) => 34,
            Body::ControllerStatus(_) => 35,
            _ => EXPERIMENTER,
        }
    }

    fn encode_body(&self, out: &mut Writer, body: &Body) {
        match body {
            Body::Error(error) => error.encode(self.version, out),
            Body::EchoRequest(data) | Body::EchoReply(data) => out.bytes(data),
            Body::FeaturesReply(features) => switch::encode_features(self, out, features),
            Body::GetConfigReply(config) | Body::SetConfig(config) => switch::encode_config(out, config),
            Body::PacketIn(packet) => packet::encode_in(self, out, packet),
            Body::FlowRemoved(removed) => flow::encode_removed(self, out, removed),
            Body::PortStatus(status) => port::encode_status(self, out, status),
            Body::PacketOut(packet) => packet::encode_out(self, out, packet),
            Body::FlowMod(m) => flow::encode_mod(self, out, m),
            Body::GroupMod(m) => group::encode_mod(self, out, m),
            Body::PortMod(m) => port::encode_mod(self, out, m),
            Body::TableMod(m) => table::encode_mod(self, out, m),
            Body::MeterMod(m) => group::encode_meter_mod(out, m),
            Body::QueueGetConfigRequest(port) => queue::encode_request(self, out, *port),
            Body::QueueGetConfigReply { port, queues } => queue::encode_reply(self, out, *port, queues),
            Body::RoleRequest(role) | Body::RoleReply(role) => event::encode_role(self, out, role),
            Body::GetAsyncReply(config) | Body::SetAsync(config) => event::encode_async(self, out, config),
            Body::BundleControl(control) => bundle::encode_control(out, control),
            Body::BundleAdd(add) => bundle::encode_add(out, add),
            Body::RoleStatus(status) => event::encode_role_status(out, status),
            Body::TableStatus(status) => table::encode_status(out, status),
            Body::RequestForward(message) => self.encode_to(out, message),
            Body::ControllerStatus(status) => event::encode_controller(out, status),
            _ => {}
        }
    }
}

/// Reads a forwarded request: a whole message with a group or meter change.
fn decode_forwarded(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    const GROUP_MOD: u8 = 15;
    const METER_MOD: u8 = 29;
    let Some([version, kind, a, b, ..]) = data.peek().first_chunk::<HEADER_LEN>() else {
        return Err(OfError::BfcMsgBadLen);
    };
    let len = usize::from(u16::from_be_bytes([*a, *b]));
    if len < HEADER_LEN || len > data.len() {
        return Err(OfError::BfcMsgBadLen);
    }
    if *version != codec.version.number() {
        return Err(OfError::BrcBadVersion);
    }
    if !matches!(*kind, GROUP_MOD | METER_MOD) {
        return Err(OfError::BfcMsgUnsup);
    }
    let message = codec.decode(data.take(len)?)?;
    Ok(Body::RequestForward(Box::new(message)))
}

const HELLO: u8 = 0;
const EXPERIMENTER: u8 = 4;

/// Types with other numbers since OpenFlow 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    PortMod,
    StatsRequest,
    StatsReply,
    BarrierRequest,
    BarrierReply,
    QueueRequest,
    QueueReply,
}

impl Moved {
    const ALL: [(Moved, u8, u8); 7] = [
        (Moved::PortMod, 15, 16),
        (Moved::StatsRequest, 16, 18),
        (Moved::StatsReply, 17, 19),
        (Moved::BarrierRequest, 18, 20),
        (Moved::BarrierReply, 19, 21),
        (Moved::QueueRequest, 20, 22),
        (Moved::QueueReply, 21, 23),
    ];

    fn of(version: Version, kind: u8) -> Option<Moved> {
        let old = version == Version::V10;
        let found = Moved::ALL
            .into_iter()
            .find(|(_, v10, v11)| kind == if old { *v10 } else { *v11 });
        // OpenFlow 1.4 requests queues by multipart requests.
        let queues = version >= Version::V14;
        let found = found.map(|(moved, ..)| moved);
        found.filter(|m| !queues || !matches!(m, Moved::QueueRequest | Moved::QueueReply))
    }

    fn number(self, version: Version) -> u8 {
        let row = Moved::ALL.into_iter().find(|(moved, ..)| *moved == self);
        row.map_or(
            EXPERIMENTER,
            |(_, v10, v11)| if version == Version::V10 { v10 } else { v11 },
        )
    }
}

/// Reads a hello's body. Unknown elements are ignored, as the specification asks.
fn decode_hello(version: u8, body: &[u8]) -> Hello {
    const BITMAP: u16 = 1;
    let mut bitmap = None;
    let mut body = Reader::new(body, OfError::BrcBadLen);
    while let (Ok(kind), Ok(len)) = (body.u16(), body.u16()) {
        let len = usize::from(len);
        let Some(rest) = len.checked_sub(4) else { break };
        let Ok(element) = body.take(rest.min(body.len())) else {
            break;
        };
        if let (BITMAP, Some(word)) = (kind, element.first_chunk()) {
            bitmap = Some(Versions::from_bitmap(u32::from_be_bytes(*word)));
        }
        let _ = body.skip((len.next_multiple_of(8) - len).min(body.len()));
    }
    Hello { version, bitmap }
}

fn encode_hello(out: &mut Writer, hello: &Hello) {
    if let Some(bitmap) = hello.bitmap {
        out.u16(1);
        out.u16(8);
        out.u32(bitmap.bitmap());
    }
}

/// Writes a message's header; [`finish`] fills in the length.
fn header(out: &mut Writer, version: u8, kind: u8, xid: u32) {
    out.u8(version);
    out.u8(kind);
    out.u16(HEADER_LEN as u16);
    out.u32(xid);
}

/// Fills in the length of the message that began at `start`. A message that is too long is
/// truncated: only texts and payloads can be.
fn finish(out: &mut Writer, start: usize) {
    out.0.truncate(start + MAX_LEN);
    out.patch_len(start + 2, start);
}

/// Reads a match in a version's format. From OpenFlow 1.1 on, a match names its format; Open
/// vSwitch uses the newer one in 1.1 too.
fn decode_match(version: Version, data: &mut Reader<'_>, unknown: oxm::Unknown) -> Result<Match, OfError> {
    const FIXED: [u8; 2] = [0; 2];
    match version {
        Version::V10 => fixed::decode10(data),
        _ if data.peek().first_chunk() == Some(&FIXED) => fixed::decode11(data),
        _ => oxm::decode_ofp_match(data, unknown),
    }
}

/// Writes a match in a version's format; in OpenFlow 1.1, in the newer one if the old one cannot
/// express it.
fn encode_match(version: Version, out: &mut Writer, matching: &Match) {
    match version {
        Version::V10 => fixed::encode10(out, matching),
        Version::V11 if fixed::says_all11(matching) => fixed::encode11(out, matching),
        _ => oxm::encode_ofp_match(out, matching, version),
    }
}

/// Reads a port number in a version's format.
fn decode_port(version: Version, data: &mut Reader<'_>) -> Result<Port, OfError> {
    match version {
        Version::V10 => Ok(crate::action::port10(data.u16()?)),
        _ => crate::action::port11(data.u32()?, OfError::BacBadOutPort),
    }
}

/// Writes a port number in a version's format.
fn encode_port(version: Version, out: &mut Writer, port: Port) {
    match version {
        Version::V10 => out.u16(crate::action::to10(port)),
        _ => out.u32(port.0),
    }
}
