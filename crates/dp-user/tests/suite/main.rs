//! What the userspace datapath does, seen from outside.

mod common;
mod datapath;
mod forwarding;
mod invalidation;
