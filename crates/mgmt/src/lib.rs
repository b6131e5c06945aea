//! Management: what all daemons and tools of oxvs share.
//!
//! - [`paths`]: where sockets, databases and logs are.
//! - [`stream`]: remotes such as `unix:FILE`, `ptcp:6640` or `ssl:HOST:6653`, connected to or
//!   listened on.
//! - [`reconnect`]: when to reconnect, to probe, to disconnect.
//! - [`jsonrpc`]: JSON-RPC 1.0 as the database and the control sockets speak it.
//! - [`unixctl`]: the control socket of a daemon, both sides of it.
//! - [`vconn`]: the client's end of an OpenFlow connection.
//! - [`reclaim`]: returns freed memory to the system.
//! - [`daemon`]: detaching, pidfiles, the monitor that restarts a crashed daemon.
//! - [`out`]: standard output whose reader may close it.
//! - [`cli`]: command lines in the manner of `getopt_long`, with its messages.
//!
//! Everything async here runs on tokio's current-thread runtime inside a `LocalSet`; nothing
//! needs more than one thread. The parts that parse (`jsonrpc::Framer`, `stream::Remote`) do no
//! input or output of their own.

#![warn(clippy::print_stdout)]

pub mod capture;
pub mod cli;
pub mod daemon;
pub mod idl;
pub mod jsonrpc;
pub mod out;
pub mod paths;
pub mod pidfile;
mod predecessor;
pub mod reclaim;
pub mod reconnect;
pub mod stream;
pub mod unixctl;
pub mod vconn;

/// The system's text of an error, without Rust's `(os error N)`.
pub fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}
