//! The bridge's ports in OpenFlow messages.

use crate::agent::Core;
use crate::conn::{Conn, ConnId};
use crate::dump::duration;
use crate::env::{Env, PortCounters};
use crate::events::Effect;
use flow::PortNo;
use nanos::Nanos;
use openflow::model::{self, Body, Message, Port, PortDesc, PortMod, PortStatus, StatsReply, config, state};
use openflow::{OfError, Version};
use std::collections::BTreeMap;
use switch::PortFlags;
use wire::MacAddr;

/// A port of the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its number.
    pub port: Port,
    /// Its interface's name.
    pub name: String,
    /// Its address.
    pub hw_addr: MacAddr,
    /// Whether it is administratively up.
    pub admin_up: bool,
    /// Whether it has a link.
    pub link_up: bool,
    /// Whether LACP, BFD and CFM say that the other end receives and sends.
    pub alive: bool,
    /// Its speed in bit/s; `None` if unknown.
    pub speed: Option<u64>,
    /// Whether it is full duplex.
    pub full_duplex: bool,
    /// The datapath port; `None` for a patch port.
    pub device: Option<PortNo>,
    /// When it was created.
    pub since: Nanos,
    /// Its state in the bridge's spanning tree, if it takes part.
    pub tree: Option<TreeState>,
}

/// The state of a port in a spanning tree (`ofp_port_state` of OpenFlow 1.0 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeState {
    /// It neither learns nor forwards yet.
    Listen,
    /// It learns and does not forward yet.
    Learn,
    /// It learns and forwards.
    Forward,
    /// It is not part of the tree.
    Block,
}

/// The flags of a port that a port mod can set, beside `PORT_DOWN`.
const SETTABLE: u32 =
    config::NO_STP | config::NO_RECV | config::NO_RECV_STP | config::NO_FLOOD | config::NO_FWD | config::NO_PACKET_IN;

/// Reasons of port status messages.
const ADDED: u8 = 0;
pub(crate) const DELETED: u8 = 1;
const MODIFIED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Ports {
    ports: BTreeMap<Port, OfPort>,
}

#[derive(Debug)]
pub(crate) struct OfPort {
    pub(crate) info: PortInfo,
    /// The flags set by port mods.
    config: u32,
}

impl OfPort {
    fn description(&self) -> PortDesc {
        let down = if self.info.admin_up { 0 } else { config::PORT_DOWN };
        let link = match (self.info.admin_up, self.info.link_up) {
            (true, true) if self.info.alive => state::LIVE,
            (_, true) => 0,
            (_, false) => state::LINK_DOWN,
        };
        let tree = match self.info.tree {
            None | Some(TreeState::Listen) => 0,
            Some(TreeState::Learn) => state::STP_LEARN,
            Some(TreeState::Forward) => state::STP_FORWARD,
            Some(TreeState::Block) => state::STP_BLOCK,
        };
        PortDesc {
            port: self.info.port,
            hw_addr: self.info.hw_addr,
            name: self.info.name.clone(),
            config: self.config | down,
            state: link | tree,
            current: features(self.info.speed, self.info.full_duplex),
            advertised: 0,
            supported: 0,
            peer: 0,
            current_speed: kbits(self.info.speed),
            max_speed: 0,
            ..PortDesc::default()
        }
    }
}

/// A port's flags for the switch. `NO_STP` has no effect, as in Open vSwitch.
fn flags(config: u32) -> PortFlags {
    let has = |bit: u32| config & bit != 0;
    PortFlags {
        no_recv: has(config::NO_RECV),
        no_recv_stp: has(config::NO_RECV_STP),
        no_flood: has(config::NO_FLOOD),
        no_fwd: has(config::NO_FWD),
        no_packet_in: has(config::NO_PACKET_IN),
    }
}

fn kbits(speed: Option<u64>) -> u32 {
    speed.map_or(0, |speed| u32::try_from(speed / 1000).unwrap_or(u32::MAX))
}

/// The bit of a rate, with the copper bit, which also stands for links without a medium (OpenFlow
/// 1.3.5 §7.2.1).
fn features(speed: Option<u64>, full_duplex: bool) -> u32 {
    const COPPER: u32 = 1 << 11;
    const OTHER: u32 = 1 << 10;
    let Some(speed) = speed else { return 0 };
    let bit = match (speed / 1_000_000, full_duplex) {
        (10, false) => 1 << 0,
        (10, true) => 1 << 1,
        (100, false) => 1 << 2,
        (100, true) => 1 << 3,
        (1_000, false) => 1 << 4,
        (1_000, true) => 1 << 5,
        (10_000, true) => 1 << 6,
        (40_000, true) => 1 << 7,
        (100_000, true) => 1 << 8,
        (1_000_000, true) => 1 << 9,
        _ => OTHER,
    };
    bit | COPPER
}

/// A change of a port, for controllers.
#[derive(Clone, Debug)]
pub(crate) struct PortChange {
    pub(crate) status: PortStatus,
    /// The port before a modification.
    pub(crate) before: Option<PortDesc>,
    /// The connection whose request changed it.
    pub(crate) by: Option<ConnId>,
}

impl PortChange {
    /// Whether a connection is to hear of the change. As in Open vSwitch, a version that cannot
    /// express the change has no message, and before OpenFlow 1.5 neither has the connection that
    /// asked for the change (1.5.1 §7.4.3).
    pub(crate) fn concerns(&self, conn: &Conn) -> bool {
        let Some(codec) = conn.codec else { return false };
        if self.by == Some(conn.id) && codec.version < Version::V15 {
            return false;
        }
        let Some(before) = &self.before else { return true };
        let encoded = |desc: &PortDesc| {
            let status = PortStatus {
                reason: self.status.reason,
                desc: desc.clone(),
            };
            let body = Body::PortStatus(Box::new(status));
            codec.encode(&Message { xid: 0, body })
        };
        encoded(before) != encoded(&self.status.desc)
    }
}

impl Ports {
    pub(crate) fn get(&self, port: Port) -> Option<&OfPort> {
        self.ports.get(&port)
    }

    /// Numbers and interfaces' names.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Port, &str)> {
        self.ports
            .iter()
            .map(|(number, port)| (*number, port.info.name.as_str()))
    }

    pub(crate) fn descriptions(&self) -> impl Iterator<Item = PortDesc> {
        self.ports.values().map(OfPort::description)
    }

    /// Replaces the ports and returns the changes.
    pub(crate) fn replace(&mut self, infos: Vec<PortInfo>) -> Vec<PortChange> {
        let mut changes = Vec::new();
        let mut status = |reason, port: &OfPort, before| {
            let desc = port.description();
            changes.push(PortChange {
                status: PortStatus { reason, desc },
                before,
                by: None,
            });
        };
        let mut old = std::mem::take(&mut self.ports);
        let infos: BTreeMap<Port, PortInfo> = infos.into_iter().map(|info| (info.port, info)).collect();
        old.retain(|number, port| {
            let stays = infos.get(number).is_some_and(|info| info.name == port.info.name);
            if !stays {
                status(DELETED, port, None);
            }
            stays
        });
        for (number, mut info) in infos {
            let port = match old.remove(&number) {
                Some(before) => {
                    info.since = before.info.since;
                    let described = before.description();
                    let port = OfPort { info, ..before };
                    if port.description() != described {
                        status(MODIFIED, &port, Some(described));
                    }
                    port
                }
                None => {
                    let port = OfPort { info, config: 0 };
                    status(ADDED, &port, None);
                    port
                }
            };
            self.ports.insert(number, port);
        }
        changes
    }
}

impl Core {
    /// Checks a port mod.
    pub(crate) fn check_port_mod(&self, change: &PortMod) -> Result<(), OfError> {
        let port = self.ports.get(change.port).ok_or(OfError::PmfcBadPort)?;
        if port.info.hw_addr != change.hw_addr && change.hw_addr != MacAddr([0; 6]) {
            return Err(OfError::PmfcBadHwAddr);
        }
        if change.mask & !(SETTABLE | config::PORT_DOWN) != 0 {
            return Err(OfError::PmfcBadConfig);
        }
        Ok(())
    }

    pub(crate) fn port_mod(&mut self, by: ConnId, change: &PortMod, env: &impl Env) -> Result<(), OfError> {
        self.check_port_mod(change)?;
        let port = self.ports.ports.get_mut(&change.port).ok_or(OfError::PmfcBadPort)?;
        let before = port.description();
        let settable = change.mask & SETTABLE;
        let wanted = port.config & !settable | change.config & settable;
        if wanted != port.config {
            let (bridge, number) = (&self.config.bridge, change.port.0);
            env.change(|switch, _| match switch.set_port_flags(bridge, number, flags(wanted)) {
                Ok(stale) => (Ok(()), stale),
                Err(error) => (Err(error), Vec::new()),
            })?;
            port.config = wanted;
        }
        if change.mask & config::PORT_DOWN != 0 {
            let up = change.config & config::PORT_DOWN == 0;
            if port.info.admin_up != up {
                env.set_port_up(&port.info.name, up).map_err(|_| OfError::PmfcEperm)?;
                port.info.admin_up = up;
                port.info.link_up &= up;
            }
        }
        let desc = port.description();
        if desc != before {
            self.effects.push(Effect::PortChanged(PortChange {
                status: PortStatus { reason: MODIFIED, desc },
                before: Some(before),
                by: Some(by),
            }));
        }
        Ok(())
    }

    pub(crate) fn port_desc(&self, conn: &mut Conn, xid: u32, port: Port) {
        let wanted = |desc: &PortDesc| port == Port::ANY || desc.port == port;
        let descriptions: Vec<PortDesc> = self.ports.descriptions().filter(wanted).collect();
        // As Open vSwitch: an unknown port gives an empty reply.
        let reply = StatsReply::PortDesc(descriptions);
        conn.send(xid, Body::StatsReply { more: false, reply });
    }

    pub(crate) fn port_stats(&self, conn: &mut Conn, xid: u32, port: Port, env: &impl Env, now: Nanos) {
        // OpenFlow 1.0's OFPP_NONE and the later OFPP_ANY have the same number here.
        let wanted = |other: &&OfPort| port == Port::ANY || other.info.port == port;
        let ports: Vec<&OfPort> = self.ports.ports.values().filter(wanted).collect();
        let stats = ports.into_iter().map(|port| {
            let counters = env.port_counters(&port.info.name);
            statistics(&port.info, counters, now)
        });
        let reply = StatsReply::Port(stats.collect());
        conn.send(xid, Body::StatsReply { more: false, reply });
    }
}

fn statistics(port: &PortInfo, counters: Option<PortCounters>, now: Nanos) -> model::PortStats {
    let known = counters.is_some();
    let c = counters.unwrap_or_default();
    let or_unknown = |value: u64| if known { value } else { u64::MAX };
    // No device counts these; they are unknown where the sum is.
    let none = or_unknown(if c.rx_errors == u64::MAX { u64::MAX } else { 0 });
    model::PortStats {
        port: port.port,
        rx_packets: or_unknown(c.rx_packets),
        tx_packets: or_unknown(c.tx_packets),
        rx_bytes: or_unknown(c.rx_bytes),
        tx_bytes: or_unknown(c.tx_bytes),
        rx_dropped: or_unknown(c.rx_dropped),
        tx_dropped: or_unknown(c.tx_dropped),
        rx_errors: or_unknown(c.rx_errors),
        tx_errors: or_unknown(c.tx_errors),
        rx_frame_errors: none,
        rx_over_errors: or_unknown(c.rx_over_errors),
        rx_crc_errors: none,
        collisions: none,
        duration: duration(port.since, now),
        custom: c.custom,
        ..model::PortStats::default()
    }
}
