//! Flow mods, flow statistics, flow removed, flow monitors.

use super::{Instructions, Match, Port};

/// Any group, in conditions on a rule's output.
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// The command of a flow mod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowCommand {
    /// Add a rule; it replaces one of the same match and priority.
    Add = 0,
    /// Modify the instructions of all rules that the match covers.
    Modify = 1,
    /// Modify the rule of this match and priority.
    ModifyStrict = 2,
    /// Delete all rules that the match covers.
    Delete = 3,
    /// Delete the rule of this match and priority.
    DeleteStrict = 4,
}

impl FlowCommand {
    /// All of them, by number.
    pub const ALL: [FlowCommand; 5] = [
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ];
}

/// The flags of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowFlags(pub u16);

impl FlowFlags {
    /// Send a message when it is removed.
    pub const SEND_FLOW_REM: FlowFlags = FlowFlags(1);
    /// Refuse it if it overlaps with others of its priority.
    pub const CHECK_OVERLAP: FlowFlags = FlowFlags(2);
    /// Reset the counters.
    pub const RESET_COUNTS: FlowFlags = FlowFlags(4);
    /// Packets are not counted.
    pub(crate) const NO_PACKET_COUNTS: FlowFlags = FlowFlags(8);
    /// Bytes are not counted.
    pub(crate) const NO_BYTE_COUNTS: FlowFlags = FlowFlags(16);

    /// Whether all flags of `other` are in these.
    pub const fn has(self, other: FlowFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the flags of `other`.
    #[must_use]
    pub const fn with(self, other: FlowFlags) -> FlowFlags {
        FlowFlags(self.0 | other.0)
    }
}

/// A flow mod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// The command.
    pub command: FlowCommand,
    /// The table; without it the switch chooses, or all tables are meant.
    pub table: Option<u8>,
    /// Modify and delete: the cookie bits under `cookie_mask` that a rule must have.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// The cookie of added rules, and of modified ones if present.
    pub new_cookie: Option<u64>,
    /// Whether modified rules keep their cookies and `new_cookie` is for an added one: a
    /// modification of OpenFlow 1.1.
    pub keeps_cookies: bool,
    /// The idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// The hard timeout in seconds; 0 for none.
    pub hard_timeout: u16,
    /// The priority; the highest wins.
    pub priority: u16,
    /// The buffered packet that the new rule is for.
    pub buffer_id: Option<u32>,
    /// Delete: only rules with an output to this port.
    pub out_port: Port,
    /// Delete: only rules with an output to this group.
    pub out_group: u32,
    /// The flags of the rule.
    pub flags: FlowFlags,
    /// The importance; the lowest is evicted first.
    pub importance: u16,
    /// The match.
    pub matching: Match,
    /// The instructions.
    pub instructions: Instructions,
}

impl Default for FlowMod {
    fn default() -> FlowMod {
        FlowMod {
            command: FlowCommand::Add,
            table: None,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: None,
            keeps_cookies: false,
            idle_timeout: 0,
            hard_timeout: 0,
            priority: 0x8000,
            buffer_id: None,
            out_port: Port::ANY,
            out_group: ANY_GROUP,
            flags: FlowFlags::default(),
            importance: 0,
            matching: Match::ANY,
            instructions: Instructions::default(),
        }
    }
}

/// A condition on rules, for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// Their table, or all.
    pub table: Option<u8>,
    /// A port that they send to.
    pub out_port: Port,
    /// A group that they send to.
    pub out_group: u32,
    /// The cookie bits.
    pub cookie: u64,
    /// The cookie mask.
    pub cookie_mask: u64,
    /// A match that covers theirs.
    pub matching: Match,
    /// Whether it is Nicira's request, for what OpenFlow 1.0 cannot express; the reply is Nicira's
    /// too.
    pub nxm: bool,
}

impl Default for FlowStatsRequest {
    fn default() -> FlowStatsRequest {
        FlowStatsRequest {
            table: None,
            out_port: Port::ANY,
            out_group: ANY_GROUP,
            cookie: 0,
            cookie_mask: 0,
            matching: Match::ANY,
            nxm: false,
        }
    }
}

/// A duration in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duration {
    /// Whole seconds.
    pub sec: u32,
    /// Nanoseconds, less than a second.
    pub nsec: u32,
}

impl Duration {
    /// A duration that is not known.
    pub const UNKNOWN: Duration = Duration {
        sec: u32::MAX,
        nsec: u32::MAX,
    };
}

/// A rule and its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// The table.
    pub table: u8,
    /// Its age.
    pub duration: Duration,
    /// The priority.
    pub priority: u16,
    /// The idle timeout in seconds, 0 for none.
    pub idle_timeout: u16,
    /// The hard timeout in seconds, 0 for none.
    pub hard_timeout: u16,
    /// Seconds since the last packet; in Nicira's messages only.
    pub idle_age: Option<u16>,
    /// Seconds since the last change; in Nicira's messages only.
    pub hard_age: Option<u16>,
    /// Its flags.
    pub flags: FlowFlags,
    /// The importance; the lowest is evicted first.
    pub importance: u16,
    /// The cookie.
    pub cookie: u64,
    /// Packets; `u64::MAX` if not counted.
    pub packets: u64,
    /// Bytes; `u64::MAX` if not counted.
    pub bytes: u64,
    /// The match.
    pub matching: Match,
    /// The instructions.
    pub instructions: Instructions,
}

/// A rule's counters, without its instructions (OpenFlow 1.5 §7.3.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCounters {
    /// The table.
    pub table: u8,
    /// The reason: 0 request, 1 trigger.
    pub reason: u8,
    /// The priority.
    pub priority: u16,
    /// Its age.
    pub duration: Duration,
    /// Seconds since the last packet.
    pub idle_age: Option<u16>,
    /// Packets; `u64::MAX` if not counted.
    pub packets: u64,
    /// Bytes; `u64::MAX` if not counted.
    pub bytes: u64,
    /// The match.
    pub matching: Match,
}

/// The sums of some rules' statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Rules.
    pub flows: u32,
}

/// A flow removed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// The table; absent in OpenFlow 1.0.
    pub table: Option<u8>,
    /// The reason: 0 idle timeout, 1 hard timeout, 2 deleted, 3 group deleted, 4 meter deleted, 5
    /// eviction.
    pub reason: u8,
    /// The priority.
    pub priority: u16,
    /// The cookie.
    pub cookie: u64,
    /// Its age.
    pub duration: Duration,
    /// The idle timeout in seconds, 0 for none.
    pub idle_timeout: u16,
    /// The hard timeout in seconds, 0 for none; absent in OpenFlow 1.0.
    pub hard_timeout: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// The match.
    pub matching: Match,
}

/// The command of a flow monitor request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MonitorCommand {
    /// Add a monitor. Nicira's message has no other command.
    #[default]
    Add = 0,
    /// Modify a monitor.
    Modify = 1,
    /// Delete a monitor; only its id counts.
    Delete = 2,
}

/// A flow monitor request (Nicira's, and OpenFlow 1.4 §7.3.5.17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitorRequest {
    /// The monitor's id.
    pub id: u32,
    /// The command.
    pub command: MonitorCommand,
    /// The flags: 1 initial rules, 2 added, 4 removed, 8 modified; 0x10 with instructions, 0x20 the
    /// client's own changes in full too, 0x40 the client's own only (OpenFlow 1.4).
    pub flags: u16,
    /// Rules that send to this port.
    pub out_port: Port,
    /// Rules that send to this group; OpenFlow 1.4.
    pub out_group: u32,
    /// Rules of this table, or of all.
    pub table: Option<u8>,
    /// Rules that this covers.
    pub matching: Match,
}

impl Default for FlowMonitorRequest {
    fn default() -> FlowMonitorRequest {
        FlowMonitorRequest {
            id: 0,
            command: MonitorCommand::Add,
            flags: 0,
            out_port: Port::ANY,
            out_group: ANY_GROUP,
            table: None,
            matching: Match::ANY,
        }
    }
}

/// A flow update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A rule was added, removed or modified.
    Full {
        /// The event: 0 added, 1 removed, 2 modified, 3 initial. Nicira's message uses 0 for
        /// initial rules too.
        event: u16,
        /// The reason of a removal.
        reason: u16,
        /// Its priority.
        priority: u16,
        /// Its idle timeout.
        idle_timeout: u16,
        /// Its hard timeout.
        hard_timeout: u16,
        /// Its table.
        table: u8,
        /// Its cookie.
        cookie: u64,
        /// The match.
        matching: Match,
        /// The instructions; empty unless requested.
        instructions: Instructions,
    },
    /// The client's own change, by its transaction id.
    Abbrev {
        /// The transaction id.
        xid: u32,
    },
    /// Updates are paused because the controller is slow; OpenFlow 1.4. Nicira has a message of its
    /// own for this.
    Paused,
    /// Updates are resumed; OpenFlow 1.4.
    Resumed,
}
