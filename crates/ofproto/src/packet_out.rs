//! Packet-outs and resumed packets.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use crate::packet_in;
use flow::{FlowState, Key, MatchField, PortNo};
use openflow::check::{self, Limits};
use openflow::model::{Action, Match, PacketIn, PacketOut, Port};
use openflow::{OfError, Version};

/// The shortest packet: an Ethernet header.
const SHORTEST: usize = 14;

impl Core {
    pub(crate) fn packet_out(&self, conn: &Conn, out: &PacketOut, env: &impl Env) -> Result<(), OfError> {
        let (device, state) = self.check_packet_out(conn, out, env)?;
        let bridge = &self.config.bridge;
        env.send(device, &out.data, |switch, now, patience| {
            switch.packet_out(bridge, &state, &out.actions, now, patience)
        });
        Ok(())
    }

    /// Checks a packet-out and returns the packet as the datapath takes it.
    pub(crate) fn check_packet_out(
        &self,
        conn: &Conn,
        out: &PacketOut,
        env: &impl Env,
    ) -> Result<(PortNo, FlowState), OfError> {
        let version = conn.version().unwrap_or(Version::V10);
        if out.buffer_id.is_some() {
            // The switch buffers no packets.
            return Err(OfError::BrcBufferUnknown);
        }
        if is_of_another_type(&out.metadata) {
            return Err(OfError::BrcBadPacket);
        }
        let device = self.ingress(out.in_port)?;
        let mut known = Match::ANY;
        known.set(MatchField::InPortOxm, out.in_port.0.into(), u32::MAX.into());
        let key = key(version, &out.data, device)?;
        check::actions(version, &known_of(&key, known), &out.actions, &Limits::default())?;
        let through_tables = |action: &&Action| !matches!(action, Action::Output { port: Port::TABLE, .. });
        let others: Vec<Action> = out.actions.iter().filter(through_tables).cloned().collect();
        let bridge = &self.config.bridge;
        let mut state = with_metadata(key, out.in_port, &out.metadata);
        env.look(|switch| {
            let bridge = switch.bridge(bridge).ok_or(OfError::BrcBadPort)?;
            bridge.tables().options().give(&out.metadata, &mut state);
            bridge.tables().check_actions(&others)
        })?;
        Ok((device, state))
    }

    pub(crate) fn resume(&self, conn: &Conn, packet: &PacketIn, env: &impl Env) -> Result<(), OfError> {
        let handle = packet_in::handle(&packet.continuation).ok_or(OfError::NxRStale)?;
        if is_of_another_type(&packet.metadata) {
            return Err(OfError::NxRStale);
        }
        let device = self.ingress(packet.in_port())?;
        let key = key(conn.version().unwrap_or(Version::V10), &packet.data, device)?;
        let mut state = with_metadata(key, packet.in_port(), &packet.metadata);
        env.look(|switch| {
            if let Some(bridge) = switch.bridge(&self.config.bridge) {
                bridge.tables().options().give(&packet.metadata, &mut state);
            }
        });
        let sent = env.send(device, &packet.data, |switch, now, patience| {
            switch.resume(handle, &state, now, patience)
        });
        if sent { Ok(()) } else { Err(OfError::NxRStale) }
    }

    /// The datapath port of a packet's ingress port.
    fn ingress(&self, port: Port) -> Result<PortNo, OfError> {
        match self.ports.get(port) {
            Some(known) => Ok(known.info.device.unwrap_or(NO_DEVICE)),
            // The controller's own packet, or one without an ingress port.
            None if matches!(port, Port::CONTROLLER | Port::ANY) => Ok(NO_DEVICE),
            // As Open vSwitch: an unused port number is accepted like none.
            None if port.0 != 0 && port.0 < 0xff00 => Ok(NO_DEVICE),
            None => Err(OfError::BrcBadPort),
        }
    }
}

/// The number of no datapath port.
const NO_DEVICE: PortNo = PortNo(0);

fn key(version: Version, packet: &[u8], device: PortNo) -> Result<Key, OfError> {
    let short = if version >= Version::V12 {
        OfError::BrcBadPacket
    } else {
        OfError::BrcBadLen
    };
    let whole = Some(packet).filter(|packet| packet.len() >= SHORTEST);
    whole
        .and_then(|packet| flow::extract(packet, &device.into()))
        .ok_or(short)
}

/// Whether a packet is not of Ethernet: a controller cannot send such packets.
fn is_of_another_type(metadata: &Match) -> bool {
    metadata.get(MatchField::PacketType).is_some_and(|(kind, _)| kind != 0)
}

/// A packet with the metadata that a controller gives it.
fn with_metadata(key: Key, in_port: Port, metadata: &Match) -> FlowState {
    let mut state = FlowState::new(key, in_port.0);
    let of_packets = |field| field == MatchField::PktMark || Match::is_metadata(field);
    for entry in metadata.entries().iter().filter(|entry| of_packets(entry.field)) {
        state.set(entry.field, entry.value);
    }
    state
}

/// The fields of a packet, as far as actions depend on them.
fn known_of(key: &Key, mut known: Match) -> Match {
    let state = FlowState::new(*key, 0);
    for field in [
        MatchField::EthType,
        MatchField::VlanTci,
        MatchField::NwProto,
        MatchField::IpFrag,
        MatchField::Icmpv6Type,
        MatchField::Icmpv6Code,
    ] {
        let value = state.get(field);
        if value != 0 || field == MatchField::EthType {
            known.set(field, value, field.info().valid);
        }
    }
    known
}
