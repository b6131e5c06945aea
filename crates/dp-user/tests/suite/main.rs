//! What the userspace datapath does, seen from outside.

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
mod signatures;
mod upcall_queue;
