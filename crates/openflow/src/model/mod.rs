//! What messages mean, whatever version they come in.

mod action;
mod flow_mod;
mod group;
mod instruction;
mod learn;
mod matches;
mod message;
mod packet;
mod port;
mod switch;
mod value;

pub use action::{
    Action, Bundle, BundleAlgorithm, Controller, Ct, EncapProperty, HashFields, MAX_LEN_WHOLE, Multipath,
    MultipathAlgorithm, Nat, NatAddrs, NatKind, Port, Sample, SampleDirection, Zone,
};
pub use flow_mod::{
    ANY_GROUP, AggregateStats, Duration, FlowCommand, FlowCounters, FlowFlags, FlowMod, FlowMonitorRequest,
    FlowRemoved, FlowStats, FlowStatsRequest, FlowUpdate, MonitorCommand,
};
pub use group::{
    ALL_GROUPS, ALL_METERS, BandKind, Bucket, GroupCommand, GroupDesc, GroupFeatures, GroupMod, GroupStats, GroupType,
    MeterBand, MeterCommand, MeterConfig, MeterFeatures, MeterMod, MeterStats, Selection, bucket_ids, meter_flags,
};
pub use instruction::Instructions;
pub use learn::{Learn, LearnDst, LearnSpec, LearnSrc};
pub(crate) use matches::TAGGED;
pub use matches::{Entry, Match, TunMetadata};
pub use message::{Body, Message, StatsReply, StatsRequest};
pub use packet::{PacketIn, PacketInFormat, PacketOut};
pub use port::{
    ALL_QUEUES, OpticalPort, OpticalStats, PortDesc, PortMod, PortStats, PortStatus, QueueConfig, QueueStats, RFC2819,
    config, state,
};
pub use switch::{
    AsyncConfig, BundleAdd, BundleControl, BundleFeatures, BundleSchedule, BundleTime, Config, ControllerStatus,
    CtFlush, CtTuple, FeatureId, Features, FieldId, IpfixStats, Property, Role, RoleMsg, RoleStatus, SwitchDesc,
    TableDesc, TableFeatures, TableMod, TableProperty, TableStats, TableStatus, TlvMap, TlvTable, Vacancy,
    capabilities, eviction, table_config,
};
pub use value::{Subfield, Value};
