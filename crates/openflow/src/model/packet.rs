//! Packets to and from controllers.

use super::{Action, Match, Port};

/// How packets are told to controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PacketInFormat {
    /// As the version has it.
    #[default]
    Standard = 0,
    /// Nicira's first.
    Nxt = 1,
    /// Nicira's second, with properties.
    Nxt2 = 2,
}

/// A packet for a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// In which message.
    pub format: PacketInFormat,
    /// The packet, if the switch keeps it.
    pub buffer_id: Option<u32>,
    /// Its whole length.
    pub total_len: u32,
    /// Why: 0 no rule, 1 an action, 2 its time to live.
    pub reason: u8,
    /// The table of the rule.
    pub table: u8,
    /// The cookie of the rule.
    pub cookie: u64,
    /// Metadata: the ingress port at least.
    pub metadata: Match,
    /// Its first bytes.
    pub data: Vec<u8>,
    /// What the action said.
    pub userdata: Vec<u8>,
    /// What the switch needs to go on, in its own words.
    pub continuation: Vec<u8>,
}

/// A packet from a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The packet that the switch kept.
    pub buffer_id: Option<u32>,
    /// Where it is as if it came in.
    pub in_port: Port,
    /// More of its metadata; OpenFlow 1.5.
    pub metadata: Match,
    /// What is done with it.
    pub actions: Vec<Action>,
    /// The packet, if the switch has not kept it.
    pub data: Vec<u8>,
}
