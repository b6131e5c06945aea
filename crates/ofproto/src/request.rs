//! Dispatch of requests.

use crate::agent::Core;
use crate::conn::{Conn, Kind};
use crate::env::Env;
use crate::events::Effect;
use crate::log;
use nanos::Nanos;
use openflow::model::{Body, BundleFeatures, CtFlush, Message, Role, StatsReply, StatsRequest};
use openflow::{Codec, HEADER_LEN, OfError, Version};

/// The flags of bundles that are supported.
const ATOMIC: u32 = 1;
const ORDERED: u32 = 2;

impl Core {
    /// Answers a message, whose bytes are `message`.
    pub(crate) fn message(&mut self, conn: &mut Conn, codec: Codec, message: &[u8], env: &impl Env, now: Nanos) {
        let xid = message
            .get(4..HEADER_LEN)
            .and_then(|xid| xid.try_into().ok())
            .map_or(0, u32::from_be_bytes);
        let done = codec.decode(message).and_then(|Message { body, .. }| {
            if conn.options.kind == Kind::Snoop {
                // A snooping peer gets replies to echo requests only.
                if let Body::EchoRequest(data) = body {
                    conn.send(xid, Body::EchoReply(data));
                }
                return Ok(());
            }
            self.request(conn, &codec, xid, body, message, env, now)
        });
        if let Err(error) = done
            && !is_error(message)
        {
            log::refused(&self.config.bridge, &conn.options.name, error, message);
            conn.refuse(xid, error, message);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a request is, and what it is about")]
    fn request(
        &mut self,
        conn: &mut Conn,
        codec: &Codec,
        xid: u32,
        body: Body,
        message: &[u8],
        env: &impl Env,
        now: Nanos,
    ) -> Result<(), OfError> {
        if conn.role == Role::Slave && only_for_masters(&body) {
            return Err(OfError::BrcIsSecondary);
        }
        match body {
            Body::Error(_) | Body::EchoReply(_) | Body::FlowAge => {}
            Body::EchoRequest(data) => conn.send(xid, Body::EchoReply(data)),
            Body::FeaturesRequest => {
                let features = self.features(conn.version());
                conn.send(xid, Body::FeaturesReply(features));
            }
            Body::GetConfigRequest => self.get_config(conn, xid),
            Body::SetConfig(config) => self.set_config(conn, config, env)?,
            Body::FlowMod(change) => {
                let command = change.command;
                self.flow_mod(conn, codec, xid, change, message, env)?;
                conn.flow_mods.count(command, 1, now);
            }
            Body::GroupMod(change) => self.group_mod(conn, xid, change, env)?,
            Body::MeterMod(change) => self.meter_mod(conn, xid, change, env)?,
            Body::TableMod(change) => self.table_mod(conn, xid, &change, env)?,
            Body::BundleControl(control) => self.bundle_control(conn, xid, control, message, now)?,
            Body::BundleAdd(add) => self.bundle_add(conn, *codec, &add, message, env, now)?,
            Body::FlowMonitorCancel(id) => self.monitor_cancel(conn, id)?,
            Body::PacketOut(packet) => self.packet_out(conn, &packet, env)?,
            Body::Resume(packet) => self.resume(conn, &packet, env)?,
            Body::PortMod(change) => self.port_mod(conn.id, &change, env)?,
            Body::BarrierRequest => conn.send(xid, Body::BarrierReply),
            Body::RoleRequest(asked) => self.role(conn, xid, asked)?,
            Body::GetAsyncRequest => {
                let masks = conn.masks();
                conn.send(xid, Body::GetAsyncReply(masks));
            }
            Body::SetAsync(masks) => {
                conn.masks = Some(masks.over(&conn.masks()));
                self.effects.push(Effect::ListenersChanged);
            }
            Body::SetFlowFormat { nxm } => self.agree(conn, |codec| codec.nxm = nxm)?,
            Body::FlowModTableId(on) => self.agree(conn, |codec| codec.table_id = on)?,
            Body::SetPacketInFormat(format) => conn.packet_in_format = format,
            Body::SetControllerId(id) => {
                conn.controller_id = id;
                self.effects.push(Effect::ListenersChanged);
            }
            Body::TlvTableRequest => {
                let table = self.tables(env, |tables| tables.options().table());
                conn.send(xid, Body::TlvTableReply(table));
            }
            Body::TlvTableMod { command, maps } => {
                let held = self.held_options();
                let bridge = &self.config.bridge;
                env.change(|switch, _| (switch.change_options(bridge, command, &maps, held), Vec::new()))?;
            }
            Body::CtFlushZone(zone) => env.flush_connections(&CtFlush {
                zone: Some(zone),
                ..CtFlush::default()
            }),
            Body::CtFlush(flush) => env.flush_connections(&flush),
            Body::QueueGetConfigRequest(port) => self.queue_config(conn, xid, port, env)?,
            Body::StatsRequest { more, request } => {
                if let Some(request) = conn.assemble(xid, more, request, message.len(), now)? {
                    self.statistics(conn, xid, request, env, now)?;
                }
            }
            _ => return Err(OfError::BrcBadType),
        }
        Ok(())
    }

    /// Nicira's extensions of OpenFlow 1.0; later versions ignore them.
    fn agree(&self, conn: &mut Conn, change: impl FnOnce(&mut Codec)) -> Result<(), OfError> {
        if let Some(codec) = conn.codec.as_mut().filter(|codec| codec.version == Version::V10) {
            change(codec);
        }
        Ok(())
    }

    fn statistics(
        &mut self,
        conn: &mut Conn,
        xid: u32,
        request: StatsRequest,
        env: &impl Env,
        now: Nanos,
    ) -> Result<(), OfError> {
        match request {
            StatsRequest::Desc => self.desc(conn, xid),
            StatsRequest::Flow(asked) => self.dump_flows(conn, xid, &asked, env)?,
            StatsRequest::FlowStats(asked) => self.dump_counters(conn, xid, &asked, env)?,
            StatsRequest::TableFeatures(asked) => self.table_features(conn, xid, &asked, env)?,
            StatsRequest::BundleFeatures(_) => {
                let features = BundleFeatures {
                    flags: ATOMIC | ORDERED,
                    schedule: None,
                };
                let reply = StatsReply::BundleFeatures(features);
                conn.send(xid, Body::StatsReply { more: false, reply });
            }
            StatsRequest::Group(group) => self.group_stats(conn, xid, group, env, now),
            StatsRequest::GroupDesc(group) => self.group_desc(conn, xid, group, env),
            StatsRequest::GroupFeatures => self.group_features(conn, xid),
            StatsRequest::Meter(meter) => self.meter_stats(conn, xid, meter, env, now)?,
            StatsRequest::MeterConfig(meter) => self.meter_config(conn, xid, meter, env)?,
            StatsRequest::MeterFeatures => self.meter_features(conn, xid),
            StatsRequest::ControllerStatus => self.effects.push(Effect::StatusWanted(conn.id, xid)),
            StatsRequest::TableDesc => self.table_desc(conn, xid, env),
            StatsRequest::FlowMonitor(requests) => self.flow_monitor(conn, xid, &requests, env)?,
            StatsRequest::Aggregate(asked) => self.aggregate(conn, xid, &asked, env)?,
            StatsRequest::Table => self.table_stats(conn, xid, env),
            StatsRequest::Port(port) => self.port_stats(conn, xid, port, env, now),
            StatsRequest::PortDesc(port) => self.port_desc(conn, xid, port),
            StatsRequest::Queue { port, queue } => self.queue_stats(conn, xid, (port, queue), env, now)?,
            StatsRequest::QueueDesc { port, queue } => self.queue_desc(conn, xid, (port, queue), env)?,
            StatsRequest::IpfixBridge => self.ipfix(conn, xid, false, env)?,
            StatsRequest::IpfixFlow => self.ipfix(conn, xid, true, env)?,
        }
        Ok(())
    }
}

/// Whether a message is an error, which is never answered with an error.
fn is_error(message: &[u8]) -> bool {
    message.get(1) == Some(&1)
}

/// Whether a slave may not send this (OpenFlow 1.3.5 §6.3.6).
fn only_for_masters(body: &Body) -> bool {
    if let Body::StatsRequest {
        request: StatsRequest::TableFeatures(asked),
        ..
    } = body
    {
        return !asked.is_empty();
    }
    matches!(
        body,
        Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::MeterMod(_)
            | Body::PacketOut(_)
            | Body::BundleControl(_)
            | Body::BundleAdd(_)
            | Body::Resume(_)
            | Body::TlvTableMod { .. }
            | Body::CtFlushZone(_)
    )
}
