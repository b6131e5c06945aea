//! Tests of the userspace datapath by its public interface.

mod batches;
mod bonds;
mod common;
mod credits;
mod datapath;
mod equivalence;
mod forwarding;
mod invalidation;
mod kernel;
mod modules;
mod pending;
mod queues;
mod recirculation;
mod scheduled;
mod tunnels;
mod upcall_queue;
