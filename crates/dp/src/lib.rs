//! The waist between the switch and its datapaths.
//!
//! A *datapath* moves packets between ports and runs [`Action`]s from its caches; the *switch*
//! decides what those actions are. The two meet only here: a packet that misses every cache becomes
//! an [`Upcall`], the [`Slowpath`] answers with a [`Translation`], the datapath caches it as a
//! megaflow and goes on. When the switch's tables change, it publishes [`Change`]s and each
//! datapath drops the megaflows that depended on what changed.
//!
//! Invariants
//! - A megaflow never outlives the tables it was made from: a worker reads [`Changes::epoch`]
//!   before it translates and applies every later change before it uses the megaflow again.
//! - A translation's mask covers every bit that the decision looked at; packets equal under the
//!   mask get the same actions.
//! - Whatever a datapath drops is counted under a [`DropCause`].

mod action;
mod bond;
mod changes;
mod datapath;
mod drops;
mod encapsulation;
mod flow_hash;
pub mod geneve;
mod meter;
pub mod offload;
mod parse;
mod punt;
mod service;
mod set_field;
mod show;
mod track;
mod upcall;
mod user_data;
mod workers;

pub use action::{Action, MAX_RECIRCULATIONS};
pub use bond::{BOND_BUCKETS, BondTable, bucket_of_bond};
pub use changes::{Change, Changes, Dep, Region, merged};
pub use datapath::{
    CacheStats, Datapath, DpError, FlowDump, FlowStats, Limits, PortCounters, PutFlow, PutFlowError, QosReport,
};
pub use drops::DropCause;
pub use encapsulation::{PathLimit, Sequence, TunnelPush, cause_of_refusal, tunnel_of, write_tunnel};
pub use flow::{Key, Mask, PortNo};
pub use flow_hash::{FieldsHash, FlowHash};
pub use meter::{
    Band, BandEffect, BandStats, MAX_BANDS, MAX_METERS, MAX_PORT_METERS, MeterConfig, MeterStats, MeterUnit,
};
pub use parse::{ParseActionsError, parse_actions};
pub use punt::{Punt, PuntReason};
pub use service::NshPush;
pub use set_field::SetField;
pub use show::{ActionList, ufid};
pub use track::Track;
pub use upcall::{Answer, Carried, Credit, Effect, Slowpath, Translation, Upcall};
pub use user_data::{Direction, FlowSample, Labels, SampleData, ToController, UserData};
pub use workers::{
    Assign, AutoBalance, Perf, QueueReport, QueueRules, SHORTEST_LATENCY_HOLD, WorkerControl, WorkerReport,
};
