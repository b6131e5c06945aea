//! The switch, its tables and its controllers in messages.

use super::PortDesc;
use flow::MatchField;
use std::net::Ipv6Addr;

/// The features of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// The datapath id.
    pub datapath_id: u64,
    /// The most packets that it buffers.
    pub n_buffers: u32,
    /// The number of tables.
    pub n_tables: u8,
    /// The auxiliary connection's number; OpenFlow 1.3 and later.
    pub auxiliary_id: u8,
    /// Its [`capabilities`].
    pub capabilities: u32,
    /// The supported actions, bit n for number n; OpenFlow 1.0.
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
    pub const QUEUE_STATS: u32 = 64;
    /// Addresses in ARP in OpenFlow 1.0 and 1.1.
    pub const ARP_MATCH_IP: u32 = 128;
    /// OpenFlow 1.4 and later.
    pub const BUNDLES: u32 = 512;
    /// OpenFlow 1.4 and later.
    pub const FLOW_MONITORING: u32 = 1024;
}

/// The configuration of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The fragment mode: 0 normal, 1 drop, 2 reassemble, 3 Nicira's match.
    pub flags: u16,
    /// The most bytes of a packet-in of a packet that matched no rule.
    pub miss_send_len: u16,
}

/// The description of a switch.
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
    /// The fields that it cannot match, as wildcard bits; OpenFlow 1.0.
    pub wildcards: u32,
    /// The most rules; until OpenFlow 1.2.
    pub max_entries: u32,
    /// Packets that match no rule: 0 to controllers, 1 to the next table, 2 dropped; OpenFlow 1.1
    /// and 1.2.
    pub miss: u32,
    /// The number of rules.
    pub active: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched a rule.
    pub matched: u64,
}

/// A table mod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// The table; 255 is all.
    pub table: u8,
    /// The treatment of packets that match no rule until OpenFlow 1.2; [`table_config`] from
    /// OpenFlow 1.4 on.
    pub config: u32,
    /// The eviction policy: see [`eviction`]; OpenFlow 1.4 and later.
    pub eviction: Option<u32>,
    /// The vacancy thresholds; OpenFlow 1.4 and later.
    pub vacancy: Option<Vacancy>,
}

/// Bits of a table's configuration: the treatment of packets that match no rule in OpenFlow 1.1 and
/// 1.2, other settings from 1.4 on.
pub mod table_config {
    /// Packets that match no rule are dropped.
    pub(crate) const MISS_DROP: u32 = 2;
    /// The mask of the treatment of packets that match no rule; 0 sends them to controllers.
    pub const MISS_MASK: u32 = 3;
    /// Rules may be evicted.
    pub const EVICTION: u32 = 4;
    /// Vacancy events are sent.
    pub const VACANCY: u32 = 8;
}

/// Bits of [`TableMod::eviction`].
pub mod eviction {
    /// By the switch's own policy.
    pub const OTHER: u32 = 1;
    /// The least important first.
    pub const IMPORTANCE: u32 = 2;
    /// Those with the shortest time left first.
    pub const LIFETIME: u32 = 4;
}

/// The vacancy thresholds of a table, in percent of free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// A vacancy-down event is sent below this.
    pub down: u8,
    /// A vacancy-up event is sent above this; more than `down`.
    pub up: u8,
    /// The current vacancy; 0 in table mods.
    pub now: u8,
}

/// A table description (OpenFlow 1.4 §7.3.5.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableDesc {
    /// The table.
    pub table: u8,
    /// See [`table_config`].
    pub config: u32,
    /// The eviction policy: see [`eviction`].
    pub eviction: Option<u32>,
    /// The vacancy thresholds.
    pub vacancy: Option<Vacancy>,
}

/// A vacancy event (OpenFlow 1.4 §7.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// 3: less than `vacancy.down` is free; 4: more than `vacancy.up` is.
    pub reason: u8,
    /// The table's description.
    pub desc: TableDesc,
}

/// The features of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
    /// The command in requests: 0 replace all tables by the given ones, 1 modify, 2 enable, 3
    /// disable; OpenFlow 1.5.
    pub command: u8,
    /// 1 ingress, 2 egress, 4 the first of the egress tables; OpenFlow 1.5.
    pub features: u32,
    /// Its name.
    pub name: String,
    /// The bits of metadata that it matches.
    pub metadata_match: u64,
    /// The bits of metadata that its rules write.
    pub metadata_write: u64,
    /// Its configuration or capabilities.
    pub config: u32,
    /// The most rules.
    pub max_entries: u32,
    /// Its properties: instructions, actions and fields.
    pub properties: Vec<TableProperty>,
}

/// An instruction or an action in a list of supported ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureId {
    /// Its type, in the version's own numbers.
    pub kind: u16,
    /// The experimenter id and subtype, for an experimenter's.
    pub data: Vec<u8>,
}

impl FeatureId {
    /// One of the version's own.
    pub const fn new(kind: u16) -> FeatureId {
        FeatureId { kind, data: Vec::new() }
    }
}

/// A field in a list of supported ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldId {
    /// The field.
    pub field: MatchField,
    /// Whether it may be masked; in [`TableProperty::Match`] only.
    pub masked: bool,
}

/// A property of a table. Each exists for rules, and (`miss`) for the table-miss rule; without the
/// second, the first holds for both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TableProperty {
    Instructions {
        miss: bool,
        ids: Vec<FeatureId>,
    },
    /// The tables that packets may go to.
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
    /// Fields that matches may wildcard.
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
    /// An unknown property, as received.
    Other(Property),
}

/// A property as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its type.
    pub kind: u16,
    /// Its bytes without header and padding.
    pub data: Vec<u8>,
}

/// A controller role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Role {
    /// In requests: do not change the role.
    NoChange = 0,
    /// Equal: full access, as others.
    Equal = 1,
    /// Master: full access, alone.
    Master = 2,
    /// Slave: read-only.
    Slave = 3,
}

/// A role request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMsg {
    /// The role.
    pub role: Role,
    /// The generation id; Nicira's message has none.
    pub generation: Option<u64>,
    /// Whether it is Nicira's message.
    pub nicira: bool,
    /// The controller's short id, 0 for none; OpenFlow 1.5.
    pub short_id: u16,
}

/// A role status: another party changed the controller's role (OpenFlow 1.4 §7.4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The new role.
    pub role: Role,
    /// The reason: 0 another became master, 1 configuration, 2 experimenter.
    pub reason: u8,
    /// The generation id.
    pub generation: Option<u64>,
}

/// The status of a controller (OpenFlow 1.5 §7.4.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Its short id.
    pub short_id: u16,
    /// Its role.
    pub role: Role,
    /// The reason: 0 request, 1 channel, 2 role, 3 added, 4 removed, 5 short id, 6 experimenter.
    pub reason: u8,
    /// Whether its channel is up.
    pub up: bool,
    /// Its channels.
    pub uris: Vec<String>,
}

/// The asynchronous messages that a controller gets, as bits of reasons: the first mask for masters
/// and equals, the second for slaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncConfig {
    /// The masks present in the message: bit n for property type n of OpenFlow 1.4, which is twice
    /// the index of the field below, plus one for masters. The others keep their values: see
    /// [`AsyncConfig::over`].
    pub given: u16,
    /// Packet-ins.
    pub packet_in: [u32; 2],
    /// Port status.
    pub port_status: [u32; 2],
    /// Flow removed.
    pub flow_removed: [u32; 2],
    /// Role status; OpenFlow 1.4 and later, like the following.
    pub role_status: [u32; 2],
    /// Table status.
    pub table_status: [u32; 2],
    /// Requestforward.
    pub request_forward: [u32; 2],
    /// Flow statistics; OpenFlow 1.5.
    pub flow_stats: [u32; 2],
    /// Controller status; OpenFlow 1.5.
    pub controller_status: [u32; 2],
}

impl AsyncConfig {
    /// The masks of OpenFlow 1.0 to 1.3, all of which their messages hold.
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

    /// The configuration of these masks, all present.
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

    /// The configuration after this message, if `before` was in force: the masks present in it, and
    /// those of `before` for the others. All are present then.
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

/// A bundle control message.
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

/// A time of scheduled bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleTime {
    /// Whole seconds.
    pub sec: u64,
    /// Nanoseconds, less than a second.
    pub nsec: u32,
}

/// The time features of scheduled bundles (OpenFlow 1.5 §7.3.5.20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleSchedule {
    /// The accuracy.
    pub accuracy: BundleTime,
    /// The longest time ahead.
    pub max_future: BundleTime,
    /// The longest time ago.
    pub max_past: BundleTime,
    /// Its clock.
    pub now: BundleTime,
}

/// Bundle features, or a request for them (OpenFlow 1.5 §7.3.5.20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleFeatures {
    /// In a request: 1 timestamp, 2 set the time features. In a reply: 1 atomic, 2 ordered, 4
    /// scheduled.
    pub flags: u32,
    /// The time features.
    pub schedule: Option<BundleSchedule>,
}

/// One direction of a connection, as far as known. IPv4 addresses are in their IPv6 form
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

/// A flush of connections: those that match everything given here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtFlush {
    /// Their protocol, 0 for any.
    pub proto: u8,
    /// Their zone.
    pub zone: Option<u16>,
    /// Value and mask of their mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of their label.
    pub label: Option<(u128, u128)>,
    /// Their first direction.
    pub orig: CtTuple,
    /// Their reply direction.
    pub reply: CtTuple,
}

/// IPFIX statistics.
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

/// A tunnel option and its field.
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
    /// The most bytes of options.
    pub max_space: u32,
    /// The most fields.
    pub max_fields: u16,
    /// The map.
    pub maps: Vec<TlvMap>,
}
