//! What the userspace datapath does, seen from outside.

mod away;
mod common;
mod credits;
mod datapath;
mod equivalence;
mod forwarding;
mod invalidation;
mod kernel;
mod line;
mod queues;
mod recirculation;
mod scheduled;
mod signatures;
