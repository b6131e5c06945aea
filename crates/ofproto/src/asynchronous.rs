//! Asynchronous messages: which of them a connection wants.

use crate::conn::{Conn, Kind};
use openflow::Version;
use openflow::model::{AsyncConfig, Role};

/// The reasons wanted by kind of event, as bits: the first mask for masters and equals, the second
/// for slaves.
pub(crate) type Masks = AsyncConfig;

/// An event, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    PacketIn(u8),
    PortStatus(u8),
    FlowRemoved(u8),
    RoleStatus(u8),
    TableStatus(u8),
    Forward(u8),
}

/// Reasons of packet-ins: no match, action, action set, group, packet-out.
const PACKET_IN: u32 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5;
const PORT_STATUS: u32 = 0b111;

/// The masks of a connection that has not set any.
pub(crate) fn default_masks(version: Version) -> Masks {
    let (packet_in, flow_removed) = if version >= Version::V14 {
        (PACKET_IN, 0x3f)
    } else {
        (0x03, 0x0f)
    };
    Masks {
        packet_in: [packet_in, 0],
        port_status: [PORT_STATUS, PORT_STATUS],
        flow_removed: [flow_removed, 0],
        given: AsyncConfig::GIVEN_ALL,
        ..AsyncConfig::default()
    }
}

impl Conn {
    /// The events that the connection wants.
    pub(crate) fn masks(&self) -> Masks {
        self.masks
            .unwrap_or_else(|| default_masks(self.version().unwrap_or(Version::V10)))
    }

    /// Whether the connection wants an event.
    pub(crate) fn wants(&self, event: AsyncEvent) -> bool {
        let silent = self.options.kind != Kind::Primary && self.miss_send_len == 0;
        if self.codec.is_none() || self.options.kind == Kind::Snoop || silent || self.closed.is_some() {
            return false;
        }
        let masks = self.masks();
        let (of_role, reason) = match event {
            AsyncEvent::PacketIn(reason) => (masks.packet_in, reason),
            AsyncEvent::TableStatus(reason) => (masks.table_status, reason),
            AsyncEvent::Forward(reason) => (masks.request_forward, reason),
            AsyncEvent::RoleStatus(reason) => (masks.role_status, reason),
            AsyncEvent::PortStatus(reason) => (masks.port_status, reason),
            AsyncEvent::FlowRemoved(reason) => (masks.flow_removed, reason),
        };
        let mask = of_role[usize::from(self.role == Role::Slave)];
        reason < 32 && mask & 1 << reason != 0
    }
}
