//! Groups and meters in messages.

use super::{Action, Duration, Port, Value};
use flow::MatchField;

/// How a group treats its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    /// All of them.
    All = 0,
    /// One, by weight.
    Select = 1,
    /// The only one.
    Indirect = 2,
    /// The first that is live.
    FastFailover = 3,
}

impl GroupType {
    /// All of them, with their names in text.
    pub const ALL: [(GroupType, &'static str); 4] = [
        (GroupType::All, "all"),
        (GroupType::Select, "select"),
        (GroupType::Indirect, "indirect"),
        (GroupType::FastFailover, "ff"),
    ];
}

/// What to do with groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupCommand {
    /// Put one in.
    Add = 0,
    /// Change one.
    Modify = 1,
    /// Take one out, or all.
    Delete = 2,
    /// Put buckets in; OpenFlow 1.5.
    InsertBucket = 3,
    /// Take buckets out; OpenFlow 1.5.
    RemoveBucket = 5,
    /// Change one, or put it in; Nicira's.
    AddOrMod = 0x8000,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its number; OpenFlow 1.5 and Nicira's. Others number them in order.
    pub id: u32,
    /// Its share, in a select group.
    pub weight: u16,
    /// The port that must be up, in a failover group.
    pub watch_port: Port,
    /// The group that must be live, in a failover group.
    pub watch_group: u32,
    /// What it does.
    pub actions: Vec<Action>,
}

/// A change of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// What to do.
    pub command: GroupCommand,
    /// How the group treats its buckets.
    pub kind: GroupType,
    /// Which group; 0xfffffffc is all.
    pub group: u32,
    /// Where buckets are put in or taken out; OpenFlow 1.5.
    pub bucket_id: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// How it selects; OpenFlow 1.5.
    pub selection: Option<Selection>,
}

/// How a select group selects; a property of Netronome's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The method's name, 15 bytes at most; empty is the switch's own.
    pub method: String,
    /// Its parameter.
    pub param: u64,
    /// What of a packet the method looks at, in the order of the fields: the bits that are one in
    /// the value.
    pub fields: Vec<(MatchField, Value)>,
}

/// Numbers of buckets that a change of a group means more or other buckets by; numbers above
/// [`bucket_ids::MAX`] are no bucket's own.
pub mod bucket_ids {
    /// The highest that a bucket can have.
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
    /// Its number.
    pub group: u32,
    /// How it treats its buckets.
    pub kind: GroupType,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// How it selects; OpenFlow 1.5, and Nicira's for OpenFlow 1.0.
    pub selection: Option<Selection>,
}

/// A group's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its number.
    pub group: u32,
    /// How many rules and groups send to it.
    pub ref_count: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// How long it is there; OpenFlow 1.3 and later.
    pub duration: Duration,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// What groups there can be.
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

/// What to do with meters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterCommand {
    /// Put one in.
    Add = 0,
    /// Change one.
    Modify = 1,
    /// Take one out, or all.
    Delete = 2,
}

/// What a meter does above a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// The rate, in kbit/s or packets a second.
    pub rate: u32,
    /// The burst, in kbit or packets.
    pub burst: u32,
    /// What.
    pub kind: BandKind,
}

/// What a meter's band does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandKind {
    /// Drops the packet.
    Drop,
    /// Raises its drop precedence by so many levels.
    DscpRemark(u8),
}

/// Bits of a meter's flags.
pub mod meter_flags {
    /// Rates in kbit/s.
    pub const KBPS: u16 = 1;
    /// Rates in packets a second.
    pub const PKTPS: u16 = 2;
    /// Bursts are given.
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

/// A change of meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// What to do.
    pub command: MeterCommand,
    /// With what.
    pub config: MeterConfig,
}

/// A meter's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// Its number.
    pub meter: u32,
    /// How many rules use it.
    pub flows: u32,
    /// Packets that came in.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long it is there.
    pub duration: Duration,
    /// Packets and bytes of each band.
    pub bands: Vec<(u64, u64)>,
}

/// What meters there can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// How many.
    pub max_meters: u32,
    /// Kinds of bands, bit n for number n.
    pub band_types: u32,
    /// Capabilities: the bits of [`meter_flags`].
    pub capabilities: u32,
    /// How many bands a meter has.
    pub max_bands: u8,
    /// How many colours there are.
    pub max_color: u8,
    /// Bits of OpenFlow 1.5: 1 is meters in action sets, 2 any position in a list, 4 several in a
    /// list. Where there are none, the message is as short as in OpenFlow 1.3, which is all that
    /// `ovs-ofctl` takes.
    pub features: u32,
}
