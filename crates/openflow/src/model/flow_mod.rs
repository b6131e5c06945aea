//! Rules in messages: their changes, statistics and ends.

use super::{Instructions, Match, Port};

/// Any group, in conditions on what rules send to.
pub const ANY_GROUP: u32 = 0xffff_ffff;

/// What to do with rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowCommand {
    /// Put one in, in place of one of the same match and priority.
    Add = 0,
    /// Change the instructions of those the match covers; without any, put one in.
    Modify = 1,
    /// The same for the one of this match and priority.
    ModifyStrict = 2,
    /// Take out those the match covers.
    Delete = 3,
    /// Take out the one of this match and priority.
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

/// What a rule was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowFlags(pub u16);

impl FlowFlags {
    /// Its end is told.
    pub const SEND_FLOW_REM: FlowFlags = FlowFlags(1);
    /// It may not overlap with others of its priority.
    pub const CHECK_OVERLAP: FlowFlags = FlowFlags(2);
    /// Counters begin anew.
    pub const RESET_COUNTS: FlowFlags = FlowFlags(4);
    /// Packets are not counted.
    pub const NO_PACKET_COUNTS: FlowFlags = FlowFlags(8);
    /// Bytes are not counted.
    pub const NO_BYTE_COUNTS: FlowFlags = FlowFlags(16);

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

/// A change of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// What to do.
    pub command: FlowCommand,
    /// The table; without it, the switch chooses, or all are meant.
    pub table: Option<u8>,
    /// For changes and deletions, rules are meant whose cookie has these bits under this mask.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// The cookie of new rules, and of changed ones where there is one.
    pub new_cookie: Option<u64>,
    /// Whether rules that are changed keep their cookies, and `new_cookie` is for one that is made:
    /// a modification of OpenFlow 1.1.
    pub keeps_cookies: bool,
    /// Seconds without packets until the rule ends; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until the rule ends; 0 for never.
    pub hard_timeout: u16,
    /// The highest wins.
    pub priority: u16,
    /// The packet that the new rule is for, if the switch has kept it.
    pub buffer_id: Option<u32>,
    /// For deletions, rules are meant that send to this port.
    pub out_port: Port,
    /// For deletions, rules are meant that send to this group.
    pub out_group: u32,
    /// What the rule is made with.
    pub flags: FlowFlags,
    /// The lowest goes first when room is needed.
    pub importance: u16,
    /// Its packets.
    pub matching: Match,
    /// What is done with them.
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
    /// Where they send to.
    pub out_port: Port,
    /// The group they send to.
    pub out_group: u32,
    /// The bits of their cookie.
    pub cookie: u64,
    /// Which bits of it.
    pub cookie_mask: u64,
    /// What covers their match.
    pub matching: Match,
    /// Whether it is Nicira's request, which OpenFlow 1.0 lacks fields for; the reply is then too.
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

/// A duration as messages have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duration {
    /// Whole seconds.
    pub sec: u32,
    /// And nanoseconds, less than a second of them.
    pub nsec: u32,
}

/// A rule and its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// The table.
    pub table: u8,
    /// How old it is.
    pub duration: Duration,
    /// The priority.
    pub priority: u16,
    /// Seconds, 0 for never.
    pub idle_timeout: u16,
    /// Seconds, 0 for never.
    pub hard_timeout: u16,
    /// Seconds since the last packet; only Nicira's messages tell.
    pub idle_age: Option<u16>,
    /// Seconds since the last change; only Nicira's messages tell.
    pub hard_age: Option<u16>,
    /// What it was made with.
    pub flags: FlowFlags,
    /// The lowest goes first when room is needed.
    pub importance: u16,
    /// The cookie.
    pub cookie: u64,
    /// Packets; `u64::MAX` where they are not counted.
    pub packets: u64,
    /// Bytes; `u64::MAX` where they are not counted.
    pub bytes: u64,
    /// Its packets.
    pub matching: Match,
    /// What is done with them.
    pub instructions: Instructions,
}

/// A rule's counters, without what it does (OpenFlow 1.5 §7.3.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCounters {
    /// The table.
    pub table: u8,
    /// Why they are told: 0 since they were asked for, 1 since a trigger was reached.
    pub reason: u8,
    /// The priority.
    pub priority: u16,
    /// How old it is.
    pub duration: Duration,
    /// Seconds since the last packet.
    pub idle_age: Option<u16>,
    /// Packets; `u64::MAX` where they are not counted.
    pub packets: u64,
    /// Bytes; `u64::MAX` where they are not counted.
    pub bytes: u64,
    /// Its packets.
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

/// The end of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// The table; OpenFlow 1.0 does not tell.
    pub table: Option<u8>,
    /// Why: 0 idle timeout, 1 hard timeout, 2 deleted, 3 its group was deleted, 4 its meter was, 5
    /// eviction.
    pub reason: u8,
    /// The priority.
    pub priority: u16,
    /// The cookie.
    pub cookie: u64,
    /// How old it was.
    pub duration: Duration,
    /// Seconds, 0 for never.
    pub idle_timeout: u16,
    /// Seconds, 0 for never; OpenFlow 1.0 does not tell.
    pub hard_timeout: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its packets.
    pub matching: Match,
}

/// What to do with a monitor of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MonitorCommand {
    /// Make one. Nicira's message has no other.
    #[default]
    Add = 0,
    /// Change one.
    Modify = 1,
    /// End one; only the number counts.
    Delete = 2,
}

/// A wish to hear of changes of rules (Nicira's, and OpenFlow 1.4 §7.3.5.17).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMonitorRequest {
    /// The monitor's number.
    pub id: u32,
    /// What to do.
    pub command: MonitorCommand,
    /// What is told: 1 rules there are, 2 new ones, 4 their ends, 8 changes; 0x10 with their
    /// actions, 0x20 the asker's own in full too, 0x40 the asker's own only (OpenFlow 1.4).
    pub flags: u16,
    /// Rules that send here.
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

/// A change of rules that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowUpdate {
    /// A rule came, went or changed.
    Full {
        /// 0 came, 1 went, 2 changed, 3 was there when the monitor was made: OpenFlow 1.4 tells
        /// that from those that came, Nicira's message does not.
        event: u16,
        /// Why it went.
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
        /// Its packets.
        matching: Match,
        /// What it does; empty if that was not asked for.
        instructions: Instructions,
    },
    /// What the asker itself did with the message of this number.
    Abbrev {
        /// The message's.
        xid: u32,
    },
    /// No more updates for now, since the controller is slow; OpenFlow 1.4. Nicira has a message of
    /// its own for this.
    Paused,
    /// Updates go on: OpenFlow 1.4.
    Resumed,
}
