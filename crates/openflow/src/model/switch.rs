//! The switch itself, its tables and its controllers in messages.

use super::PortDesc;
use flow::MatchField;
use std::net::Ipv6Addr;

/// What a switch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Its identifier.
    pub datapath_id: u64,
    /// How many packets it keeps.
    pub n_buffers: u32,
    /// How many tables it has.
    pub n_tables: u8,
    /// The auxiliary connection's number; OpenFlow 1.3 and later.
    pub auxiliary_id: u8,
    /// What it can do: see [`capabilities`].
    pub capabilities: u32,
    /// The actions it has, bit n for number n; OpenFlow 1.0.
    pub actions: u32,
    /// Its ports; until OpenFlow 1.2.
    pub ports: Vec<PortDesc>,
}

/// Bits of [`Features::capabilities`].
#[allow(missing_docs)]
pub mod capabilities {
    pub const FLOW_STATS: u32 = 1;
    pub const TABLE_STATS: u32 = 2;
    pub const PORT_STATS: u32 = 4;
    /// Spanning tree in OpenFlow 1.0, groups later.
    pub const STP_OR_GROUP_STATS: u32 = 8;
    pub const IP_REASM: u32 = 32;
    pub const QUEUE_STATS: u32 = 64;
    /// Addresses in ARP in OpenFlow 1.0 and 1.1.
    pub const ARP_MATCH_IP: u32 = 128;
    pub const PORT_BLOCKED: u32 = 256;
    /// OpenFlow 1.4 and later.
    pub const BUNDLES: u32 = 512;
    /// OpenFlow 1.4 and later.
    pub const FLOW_MONITORING: u32 = 1024;
}

/// How a switch is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How fragments are treated: 0 as packets, 1 dropped, 2 put together, 3 with Nicira's match.
    pub flags: u16,
    /// How many bytes of a packet without rule go to controllers.
    pub miss_send_len: u16,
}

/// A switch in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SwitchDesc {
    pub manufacturer: String,
    pub hardware: String,
    pub software: String,
    pub serial: String,
    pub datapath: String,
}

/// A table's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// Its name; until OpenFlow 1.2.
    pub name: String,
    /// What it cannot match, as bits of OpenFlow 1.0's match; OpenFlow 1.0.
    pub wildcards: u32,
    /// How many rules it can have; until OpenFlow 1.2.
    pub max_entries: u32,
    /// What becomes of packets without rule: 0 for controllers, 1 the next table, 2 dropped;
    /// OpenFlow 1.1 and 1.2.
    pub miss: u32,
    /// How many rules it has.
    pub active: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets found.
    pub matched: u64,
}

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// Which; 255 is all.
    pub table: u8,
    /// How packets without rule are treated until OpenFlow 1.2; [`table_config`] from OpenFlow 1.4
    /// on.
    pub config: u32,
    /// Which rules go when the table is full: see [`eviction`]; OpenFlow 1.4 and later.
    pub eviction: Option<u32>,
    /// When the table's fill is told; OpenFlow 1.4 and later.
    pub vacancy: Option<Vacancy>,
}

/// Bits of a table's configuration: OpenFlow 1.1 and 1.2 say what becomes of packets without rule,
/// 1.4 and later what else is done.
pub mod table_config {
    /// Packets without rule go on with the next table.
    pub const MISS_CONTINUE: u32 = 1;
    /// Packets without rule are dropped.
    pub const MISS_DROP: u32 = 2;
    /// The bits of what becomes of packets without rule; 0 is that controllers get them.
    pub const MISS_MASK: u32 = 3;
    /// Rules may go when there is no room for new ones.
    pub const EVICTION: u32 = 4;
    /// The table's fill is told.
    pub const VACANCY: u32 = 8;
}

/// Bits of [`TableMod::eviction`].
pub mod eviction {
    /// By the switch's own rules.
    pub const OTHER: u32 = 1;
    /// The least important first.
    pub const IMPORTANCE: u32 = 2;
    /// Those with the shortest time left first.
    pub const LIFETIME: u32 = 4;
}

/// When a table's fill is told: in percent of it that is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// Told when no more than this is free.
    pub down: u8,
    /// Told when as much as this is free again; more than `down`.
    pub up: u8,
    /// How much is free; 0 in changes.
    pub now: u8,
}

/// How a table is set (OpenFlow 1.4 §7.3.5.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDesc {
    /// The table.
    pub table: u8,
    /// See [`table_config`].
    pub config: u32,
    /// Which rules go when the table is full: see [`eviction`].
    pub eviction: Option<u32>,
    /// When the table's fill is told.
    pub vacancy: Option<Vacancy>,
}

/// A change of how full a table is (OpenFlow 1.4 §7.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// 3: less than `vacancy.down` is free; 4: more than `vacancy.up` is.
    pub reason: u8,
    /// How the table is.
    pub desc: TableDesc,
}

/// What a table can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
    /// What to do with it in requests: 0 replace all tables by those given, 1 change it, 2 enable,
    /// 3 disable; OpenFlow 1.5.
    pub command: u8,
    /// 1 ingress, 2 egress, 4 the first of the egress tables; OpenFlow 1.5.
    pub features: u32,
    /// Its name.
    pub name: String,
    /// Which bits of metadata it matches.
    pub metadata_match: u64,
    /// Which bits of metadata its rules write.
    pub metadata_write: u64,
    /// Its configuration or capabilities.
    pub config: u32,
    /// How many rules it can have.
    pub max_entries: u32,
    /// The rest: what instructions, actions and fields it has.
    pub properties: Vec<TableProperty>,
}

/// An instruction or an action in a list of those that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureId {
    /// Its type, in the version's own numbers.
    pub kind: u16,
    /// Of an experimenter's, what says which: its number first.
    pub data: Vec<u8>,
}

impl FeatureId {
    /// One of the version's own.
    pub const fn new(kind: u16) -> FeatureId {
        FeatureId { kind, data: Vec::new() }
    }
}

/// A field in a list of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldId {
    /// Which.
    pub field: MatchField,
    /// Whether it may be masked; said in [`TableProperty::Match`] only.
    pub masked: bool,
}

/// A part of what a table can do. Of each there are two: for rules, and (`miss`) for the rule of
/// all packets at priority 0; without the second, the first holds for both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TableProperty {
    Instructions {
        miss: bool,
        ids: Vec<FeatureId>,
    },
    /// The tables that packets may go on to.
    NextTables {
        miss: bool,
        tables: Vec<u8>,
    },
    WriteActions {
        miss: bool,
        ids: Vec<FeatureId>,
    },
    ApplyActions {
        miss: bool,
        ids: Vec<FeatureId>,
    },
    /// Fields that matches may have.
    Match(Vec<FieldId>),
    /// Fields that matches may lack.
    Wildcards(Vec<FieldId>),
    WriteSetField {
        miss: bool,
        fields: Vec<FieldId>,
    },
    ApplySetField {
        miss: bool,
        fields: Vec<FieldId>,
    },
    /// The tables that this one is a copy of; OpenFlow 1.4.
    SyncFrom(Vec<u8>),
    /// OpenFlow 1.5.
    WriteCopyField {
        miss: bool,
        fields: Vec<FieldId>,
    },
    /// OpenFlow 1.5.
    ApplyCopyField {
        miss: bool,
        fields: Vec<FieldId>,
    },
    /// Kinds of packets, each as `packet_type`; OpenFlow 1.5.
    PacketTypes(Vec<u32>),
    /// Another one, as it came.
    Other(Property),
}

/// A property as it is in the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its type.
    pub kind: u16,
    /// Its bytes without header and padding.
    pub data: Vec<u8>,
}

/// What a controller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Role {
    /// Only asks.
    NoChange = 0,
    /// All, as others.
    Equal = 1,
    /// All, alone.
    Master = 2,
    /// Only reads.
    Slave = 3,
}

/// A wish for, or an answer of, a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMsg {
    /// The role.
    pub role: Role,
    /// The count of elections; Nicira's message has none.
    pub generation: Option<u64>,
    /// Whether it is Nicira's message.
    pub nicira: bool,
    /// The controller's number, 0 for none; OpenFlow 1.5.
    pub short_id: u16,
}

/// That a controller's role was changed by others (OpenFlow 1.4 §7.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// What it is now.
    pub role: Role,
    /// Why: 0 another became master, 1 the switch was configured so, 2 an experimenter's reason.
    pub reason: u8,
    /// The count of elections.
    pub generation: Option<u64>,
}

/// How a controller stands to the switch (OpenFlow 1.5 §7.4.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Its number.
    pub short_id: u16,
    /// Its role.
    pub role: Role,
    /// Why it is told: 0 asked for, 1 channel, 2 role, 3 added, 4 removed, 5 its number, 6 an
    /// experimenter's reason.
    pub reason: u8,
    /// Whether its channel is up.
    pub up: bool,
    /// Its channels.
    pub uris: Vec<String>,
}

/// Which events a controller hears of, as bits of reasons: the first of each is for masters and
/// equals, the second for slaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncConfig {
    /// Which of the masks a message gives: bit n for property type n of OpenFlow 1.4, which is
    /// twice the mask's place below and one more for masters. The others stay as they were: see
    /// [`AsyncConfig::over`].
    pub given: u16,
    /// Packets.
    pub packet_in: [u32; 2],
    /// Ports.
    pub port_status: [u32; 2],
    /// Ends of rules.
    pub flow_removed: [u32; 2],
    /// Roles; OpenFlow 1.4 and later, as all that follow.
    pub role_status: [u32; 2],
    /// Tables.
    pub table_status: [u32; 2],
    /// Requests of others.
    pub request_forward: [u32; 2],
    /// Statistics of rules; OpenFlow 1.5.
    pub flow_stats: [u32; 2],
    /// Controllers; OpenFlow 1.5.
    pub controller_status: [u32; 2],
}

impl AsyncConfig {
    /// The masks that OpenFlow 1.0 to 1.3 have: all that a message of theirs gives.
    pub const GIVEN_OLD: u16 = 0x3f;
    /// All masks.
    pub const GIVEN_ALL: u16 = 0xffff;

    /// The masks in the order of their properties' types.
    pub fn masks(&self) -> [[u32; 2]; 8] {
        [
            self.packet_in,
            self.port_status,
            self.flow_removed,
            self.role_status,
            self.table_status,
            self.request_forward,
            self.flow_stats,
            self.controller_status,
        ]
    }

    /// The configuration of these masks, all of them given.
    pub fn from_masks(masks: [[u32; 2]; 8]) -> AsyncConfig {
        let [
            packet_in,
            port_status,
            flow_removed,
            role_status,
            table_status,
            request_forward,
            flow_stats,
            controller_status,
        ] = masks;
        AsyncConfig {
            given: AsyncConfig::GIVEN_ALL,
            packet_in,
            port_status,
            flow_removed,
            role_status,
            table_status,
            request_forward,
            flow_stats,
            controller_status,
        }
    }

    /// What holds after this message where `before` held: the masks that it gives, and those of
    /// before for the others. All are given then.
    #[must_use]
    pub fn over(&self, before: &AsyncConfig) -> AsyncConfig {
        let (new, mut masks) = (self.masks(), before.masks());
        for kind in 0..16 {
            if self.given & 1 << kind != 0 {
                let slave = usize::from(kind % 2 == 0);
                masks[kind / 2][slave] = new[kind / 2][slave];
            }
        }
        AsyncConfig::from_masks(masks)
    }
}

/// A step of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// The bundle.
    pub bundle: u32,
    /// 0 open, 2 close, 4 commit, 6 discard; one more for replies.
    pub kind: u16,
    /// 1 atomic, 2 ordered.
    pub flags: u16,
}

/// A message for a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// The bundle.
    pub bundle: u32,
    /// 1 atomic, 2 ordered.
    pub flags: u16,
    /// The message, with its header.
    pub message: Vec<u8>,
}

/// A moment or a span as bundles have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleTime {
    /// Whole seconds.
    pub sec: u64,
    /// And nanoseconds, less than a second of them.
    pub nsec: u32,
}

/// How well a switch keeps time for bundles (OpenFlow 1.5 §7.3.5.20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleSchedule {
    /// How exact it is.
    pub accuracy: BundleTime,
    /// How far ahead it can be told a time.
    pub max_future: BundleTime,
    /// How late.
    pub max_past: BundleTime,
    /// Its clock.
    pub now: BundleTime,
}

/// What of bundles there is, or is asked for (OpenFlow 1.5 §7.3.5.20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleFeatures {
    /// In a request: 1 with the clock, 2 set the schedule. In a reply: 1 atomic, 2 ordered, 4 at a
    /// time.
    pub flags: u32,
    /// How time is kept.
    pub schedule: Option<BundleSchedule>,
}

/// What is known of one direction of a connection. IPv4 addresses are in their IPv6 form
/// (`::ffff:0:0/96`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtTuple {
    /// Its source.
    pub src: Option<Ipv6Addr>,
    /// Its destination.
    pub dst: Option<Ipv6Addr>,
    /// Its source port.
    pub src_port: Option<u16>,
    /// Its destination port.
    pub dst_port: Option<u16>,
    /// Its ICMP identifier.
    pub icmp_id: Option<u16>,
    /// Its ICMP type.
    pub icmp_type: Option<u8>,
    /// Its ICMP code.
    pub icmp_code: Option<u8>,
}

/// Connections that are to be forgotten: those of which all that is said here holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtFlush {
    /// Their protocol, 0 for any.
    pub proto: u8,
    /// Their zone.
    pub zone: Option<u16>,
    /// Their first direction.
    pub orig: CtTuple,
    /// Their answering direction.
    pub reply: CtTuple,
}

/// What went to collectors of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct IpfixStats {
    pub total_flows: u64,
    pub current_flows: u64,
    pub packets: u64,
    pub ipv4_packets: u64,
    pub ipv6_packets: u64,
    pub error_packets: u64,
    pub ipv4_error_packets: u64,
    pub ipv6_error_packets: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// The collectors; 0 for the bridge's.
    pub collector_set_id: u32,
}

/// A tunnel option and the field that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvMap {
    /// The option's class.
    pub class: u16,
    /// The option's type.
    pub kind: u8,
    /// Its length in bytes, 4 to 124.
    pub len: u8,
    /// The field's number, 0 to 63.
    pub index: u16,
}

/// The map of tunnel options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvTable {
    /// How many bytes of options there can be.
    pub max_space: u32,
    /// How many fields there can be.
    pub max_fields: u16,
    /// The map.
    pub maps: Vec<TlvMap>,
}
