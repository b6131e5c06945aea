//! Groups and meters in messages.

use super::{Action, Duration, Port, Value};
use crate::field_order::field_place;
use flow::MatchField;

/// The type of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    /// All: every bucket.
    All = 0,
    /// Select: one bucket, by weight.
    Select = 1,
    /// Indirect: the only bucket.
    Indirect = 2,
    /// Fast failover: the first live bucket.
    FastFailover = 3,
}

impl GroupType {
    /// All types, with their names in text.
    pub const ALL: [(GroupType, &'static str); 4] = [
        (GroupType::All, "all"),
        (GroupType::Select, "select"),
        (GroupType::Indirect, "indirect"),
        (GroupType::FastFailover, "ff"),
    ];
}

/// The command of a group mod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupCommand {
    /// Add a group.
    Add = 0,
    /// Modify a group.
    Modify = 1,
    /// Delete a group, or all.
    Delete = 2,
    /// Insert buckets; OpenFlow 1.5.
    InsertBucket = 3,
    /// Remove buckets; OpenFlow 1.5.
    RemoveBucket = 5,
    /// Add or modify a group; Nicira's.
    AddOrMod = 0x8000,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its id; OpenFlow 1.5 and Nicira's. In other versions buckets are numbered in order.
    pub id: u32,
    /// Its weight, in a select group.
    pub weight: u16,
    /// The port to watch, in a fast failover group.
    pub watch_port: Port,
    /// The group to watch, in a fast failover group.
    pub watch_group: u32,
    /// Its actions.
    pub actions: Vec<Action>,
}

/// A group mod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// The command.
    pub command: GroupCommand,
    /// The type of the group.
    pub kind: GroupType,
    /// The group; 0xfffffffc is all.
    pub group: u32,
    /// The position of inserted or removed buckets; OpenFlow 1.5.
    pub bucket_id: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// Its selection method; OpenFlow 1.5.
    pub selection: Option<Selection>,
}

/// The selection method of a select group; a property of Netronome's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The method's name, 15 bytes at most; empty is the switch's own.
    pub method: String,
    /// Its parameter.
    pub param: u64,
    /// The fields that the method hashes: the bits that are one in the value. In the order in which
    /// Open vSwitch lists fields, as it has no other.
    pub fields: Vec<(MatchField, Value)>,
}

impl Selection {
    /// Puts the fields in order.
    pub(crate) fn sort(&mut self) {
        self.fields.sort_by_cached_key(|(field, _)| field_place(field.name()));
    }
}

/// Bucket ids with a meaning in group mods; ids above [`bucket_ids::MAX`] are no bucket's own.
pub mod bucket_ids {
    /// The highest id of a bucket.
    pub const MAX: u32 = 0xffff_ff00;
    /// The first of the group.
    pub const FIRST: u32 = 0xffff_fffd;
    /// The last of the group.
    pub const LAST: u32 = 0xffff_fffe;
    /// All of the group.
    pub const ALL: u32 = 0xffff_ffff;
}

/// All groups.
pub const ALL_GROUPS: u32 = 0xffff_fffc;

/// A group's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Its id.
    pub group: u32,
    /// Its type.
    pub kind: GroupType,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// Its selection method; OpenFlow 1.5, and Nicira's extension of OpenFlow 1.0.
    pub selection: Option<Selection>,
}

/// A group's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its id.
    pub group: u32,
    /// The number of rules and groups that refer to it.
    pub ref_count: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its age; OpenFlow 1.3 and later.
    pub duration: Duration,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// Group features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Types, bit n for number n.
    pub types: u32,
    /// Capabilities.
    pub capabilities: u32,
    /// The most groups of each type.
    pub max_groups: [u32; 4],
    /// The actions in groups of each type, bit n for number n.
    pub actions: [u32; 4],
}

/// The command of a meter mod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterCommand {
    /// Add a meter.
    Add = 0,
    /// Modify a meter.
    Modify = 1,
    /// Delete a meter, or all.
    Delete = 2,
}

/// A band of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// The rate, in kbit/s or packets a second.
    pub rate: u32,
    /// The burst, in kbit or packets.
    pub burst: u32,
    /// The type.
    pub kind: BandKind,
}

/// The type of a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandKind {
    /// Drops the packet.
    Drop,
    /// Raises its drop precedence by this number of levels.
    DscpRemark(u8),
}

/// Bits of a meter's flags.
pub mod meter_flags {
    /// Rates in kbit/s.
    pub const KBPS: u16 = 1;
    /// Rates in packets a second.
    pub const PKTPS: u16 = 2;
    /// The bands have bursts.
    pub const BURST: u16 = 4;
    /// Statistics are kept.
    pub const STATS: u16 = 8;
}

/// All meters.
pub const ALL_METERS: u32 = 0xffff_ffff;

/// A meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Its number.
    pub meter: u32,
    /// See [`meter_flags`].
    pub flags: u16,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

/// A meter mod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterCommand,
    /// The meter.
    pub config: MeterConfig,
}

/// A meter's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// Its number.
    pub meter: u32,
    /// The number of rules that use it.
    pub flows: u32,
    /// Packets that entered it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its age.
    pub duration: Duration,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}

/// Meter features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// The most meters.
    pub max_meters: u32,
    /// Kinds of bands, bit n for number n.
    pub band_types: u32,
    /// Capabilities: the bits of [`meter_flags`].
    pub capabilities: u32,
    /// The most bands of a meter.
    pub max_bands: u8,
    /// The most colours.
    pub max_color: u8,
    /// Bits of OpenFlow 1.5: 1 meters in action sets, 2 at any position in a list, 4 several in a
    /// list. If none is set, the message is as short as in OpenFlow 1.3; `ovs-ofctl` accepts no
    /// other.
    pub features: u32,
}
