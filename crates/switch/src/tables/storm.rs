//! Storm control in a translation: meters of the ingress port before the copies that they limit.
//!
//! Broadcast and multicast packets are limited before any rule sees them, whatever rules do with
//! them; mirrors, captures and control protocols have them before. Unknown unicast is limited where
//! NORMAL floods it.

use super::normal::{Copies, Visit};
use super::pipeline::Pipeline;
use crate::bridge::Bridge;
use crate::storm::Storm;
use dp::Action;
use flow::Field;
use wire::MacAddr;

/// The bit of an address that says whether it is a group's.
const GROUP: u128 = 1 << 40;

impl Pipeline<'_> {
    /// Limits a received packet that is sent to many stations. The packet depends on its port
    /// already.
    pub(super) fn police_received(&mut self) {
        let Some(bridge) = self.packet.place.bridge.filter(|bridge| bridge.controlled) else {
            return;
        };
        let in_port = self.in_port();
        let [broadcast, multicast] = [Storm::Broadcast, Storm::Multicast].map(|storm| meter(bridge, in_port, storm));
        if broadcast.is_none() && multicast.is_none() {
            return;
        }
        self.consult(Field::EthDst, GROUP);
        if self.packet.state.key.get(Field::EthDst) & GROUP == 0 {
            return;
        }
        let dst = MacAddr::from_u64(self.read(Field::EthDst) as u64);
        let meter = if dst == MacAddr::BROADCAST {
            broadcast
        } else {
            multicast
        };
        self.actions.extend(meter.map(Action::Meter));
    }

    /// Sends the copies of a packet that NORMAL floods, if they are within the limit of their
    /// ingress port. What the limit drops are these copies only.
    pub(super) fn send_policed(&mut self, copies: Copies<'_>) {
        let Some(meter) = copies.meter.filter(|_| !copies.is_empty()) else {
            return self.send_copies(copies);
        };
        self.on_copy(|copy| {
            copy.actions.push(Action::Meter(meter));
            copy.send_copies(copies);
        });
    }
}

impl Visit<'_> {
    /// The meter of unknown unicast from the ingress port.
    pub(super) fn unknown_unicast(&self) -> Option<u32> {
        let (_, port) = self.from?;
        port.storm[Storm::UnknownUnicast as usize]
    }
}

fn meter(bridge: &Bridge, in_port: u32, storm: Storm) -> Option<u32> {
    let (port, _) = bridge.of_ports.get(&in_port)?;
    bridge.ports.get(port)?.storm[storm as usize]
}
