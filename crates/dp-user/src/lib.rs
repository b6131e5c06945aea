//! The userspace datapath: run-to-completion workers, flow caches, action execution.
//!
//! [`DpUser`] implements [`dp::Datapath`]. It owns a few threads, the *workers*; each receive queue
//! belongs to one of them, which receives, looks up, changes and sends the packets of that queue
//! received it. Workers share nothing that changes with packets: each has its own caches, its own
//! way to send on every port and its own counters. What they do share is the queue of a port that
//! has a scheduler. [`pipeline`] shows a packet's way, stage by stage.
//!
//! Invariants
//! - A worker that has nothing to do sleeps.
//! - The control plane talks to workers by commands that they obey between batches; it never
//!   touches what is theirs.
//! - No packet is dropped without being counted under a [`dp::DropCause`].

mod actions;
mod batch;
mod command;
mod datapath;
mod dep_epochs;
mod device_facts;
mod devices;
mod edit;
mod egress;
mod flow_look;
mod hash;
mod ingress;
mod latency_request;
mod layers;
mod lines;
mod load;
mod megaflow;
mod meters;
mod options;
pub mod pipeline;
mod placement;
mod poll;
mod queued;
mod rewrite;
mod rx_queue;
mod scheduled;
mod signature;
mod stats;
mod upcall_queue;
mod worker;

pub use datapath::DpUser;
pub use options::Options;
