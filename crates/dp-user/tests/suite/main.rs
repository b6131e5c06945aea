//! What the userspace datapath does, seen from outside.

mod common;
mod forwarding;
mod invalidation;
