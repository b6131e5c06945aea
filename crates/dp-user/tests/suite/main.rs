//! What the userspace datapath does, seen from outside.

mod common;
mod datapath;
mod equivalence;
mod forwarding;
mod invalidation;
mod kernel;
