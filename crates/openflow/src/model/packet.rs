//! Packet-ins and packet-outs.

use super::{Action, Match, Port};

/// The format of packet-ins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PacketInFormat {
    /// The version's own.
    #[default]
    Standard = 0,
    /// Nicira's first format.
    Nxt = 1,
    /// Nicira's second format, with properties.
    Nxt2 = 2,
}

/// A packet-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The format of the message.
    pub format: PacketInFormat,
    /// The buffered packet, if the switch buffers it.
    pub buffer_id: Option<u32>,
    /// The length of the whole packet.
    pub total_len: u32,
    /// The reason: 0 no match, 1 an action, 2 an invalid TTL.
    pub reason: u8,
    /// The table of the rule.
    pub table: u8,
    /// The cookie of the rule.
    pub cookie: u64,
    /// Metadata: the ingress port at least.
    pub metadata: Match,
    /// The first bytes of the packet.
    pub data: Vec<u8>,
    /// The user data of the action.
    pub userdata: Vec<u8>,
    /// The continuation, opaque to the controller.
    pub continuation: Vec<u8>,
}

/// A packet-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The buffered packet.
    pub buffer_id: Option<u32>,
    /// Its ingress port.
    pub in_port: Port,
    /// Its other metadata; OpenFlow 1.5.
    pub metadata: Match,
    /// Its actions.
    pub actions: Vec<Action>,
    /// The packet, if the switch has not buffered it.
    pub data: Vec<u8>,
}
