//! The control socket of a daemon: `ovs-appctl` sends a command, the daemon answers with text.
//!
//! One JSON-RPC request per command, `{"method": NAME, "params": [STRING…]}`; the result is a
//! string, and so is an error. [`Server`] is the daemon's side, [`call`] and [`target_path`] the
//! tool's.

mod client;
mod server;

use crate::jsonrpc::Limits;

pub use client::{TargetError, call, call_json, target_path};
pub use server::{Deferred, Document, Handler, Server};

/// The limits of commands.
const REQUEST_LIMITS: Limits = Limits {
    max_bytes: 1 << 20,
    max_depth: 8,
};
