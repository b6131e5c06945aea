//! The switch itself, its tables and its controllers in messages.

use super::PortDesc;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// Its name; until OpenFlow 1.2.
    pub name: String,
    /// What it cannot match, as bits of OpenFlow 1.0's match; OpenFlow 1.0.
    pub wildcards: u32,
    /// How many rules it can have; until OpenFlow 1.2.
    pub max_entries: u32,
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
    /// How packets without rule are treated until OpenFlow 1.2; eviction and vacancy events later.
    pub config: u32,
    /// Properties as they came; OpenFlow 1.4 and later.
    pub properties: Vec<Property>,
}

/// What a table can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table: u8,
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
    pub properties: Vec<Property>,
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
}

/// Which events a controller hears of, as bits of reasons: the first of each is for masters and equals, the second for slaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncConfig {
    /// Packets.
    pub packet_in: [u32; 2],
    /// Ports.
    pub port_status: [u32; 2],
    /// Ends of rules.
    pub flow_removed: [u32; 2],
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
