//! The environment of tests: namespaces, links, switches in sandboxes, packets, captures.
//!
//! For tests only; no crate of the product depends on it outside its `dev-dependencies`, and it
//! depends on none of them but `nanos`, so that its codecs are independent of the product's.
//!
//! - [`Netns`]: a network namespace with links to others ([`Netns::veth`]), in which commands and
//!   closures run.
//! - [`ping`], [`Iperf3`], [`send_frames`]: traffic between namespaces.
//! - [`Sandbox`], [`Daemon`]: directories of a switch of a test's own, and processes that end with
//!   the test.
//! - [`Vswitch`]: a whole switch in a sandbox, Debian's Open vSwitch as the oracle or our own
//!   binary, with the same client commands.
//! - [`Unixctl`]: a direct connection to a daemon's control socket.
//! - [`Packet`], [`pcap`]: frames to send, and captured frames.
//! - [`network`]: a simulated network on virtual time, for machines without I/O.
//! - [`Rng`]: numbers from a seed, the same on every run; [`random`]: rules and frames made of
//!   them.
//! - [`skip!`]: skips a test and prints the reason.
//!
//! Invariants
//! - Everything made here has its maker's process id in its name, and goes away with its value; the
//!   next process removes the remains of a killed one.
//! - Nothing outside the test's own namespaces and directories is touched.
//! - A helper that cannot do its work panics with the command and its output: which is the test's
//!   failure message.

mod collector;
mod command;
mod daemon;
pub mod ipfix;
mod netns;
pub mod network;
mod packet;
pub mod pcap;
pub mod random;
mod rng;
mod sandbox;
mod skip;
mod traffic;
mod tshark;
mod unixctl;
mod vswitch;

pub use collector::{Collector, dissect};
pub use command::{Done, run, try_run, try_run_in};
pub use daemon::{Daemon, eventually, eventually_within};
pub use netns::Netns;
pub use packet::{ArpOp, Packet, checksum, from_hex, mac, source_of, to_hex};
pub use rng::Rng;
pub use sandbox::Sandbox;
pub use skip::{Tier, has_tool, is_root, missing, one_in, say_skipped};
pub use traffic::{Capture, Iperf3, Ping, ping, send_frames};
pub use tshark::tshark;
pub use unixctl::Unixctl;
pub use vswitch::{Client, Devices, Options, Vswitch};
