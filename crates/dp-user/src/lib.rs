//! The userspace datapath: run-to-completion workers, flow caches, action execution.
//!
//! [`DpUser`] implements [`dp::Datapath`]. It owns a few threads, the *workers*; each serves some
//! receive queues, and the worker that receives a packet looks it up, changes it and sends it.
//! Workers share nothing that changes with packets: each has its own caches, its own transmit
//! handle for every port and its own counters. The one exception is the queue of a port with a
//! scheduler. [`pipeline`] shows a packet's path, stage by stage.
//!
//! Invariants
//! - A worker without work sleeps.
//! - The control plane controls workers by commands that they run between batches; it never touches
//!   their state.
//! - Every dropped packet is counted under a [`dp::DropCause`].

mod actions;
mod batch;
mod bonds;
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
mod sampler;
mod scheduled;
mod signature;
mod stats;
mod upcall_queue;
mod worker;

pub use datapath::{DpUser, LeftFlows};
pub use options::Options;
