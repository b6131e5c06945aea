//! Connection tracking without I/O.
//!
//! [`Conntrack`] has the connections and their settings, and all workers share it. Each thread has
//! a [`Tracker`], which takes packets ([`Packet`]) and what to do with them ([`Request`]: the
//! action `ct`), and says what they are ([`Outcome`]: `ct_state` and the other fields). Time comes
//! with the call.
//!
//! # How workers share connections
//!
//! The packets of a connection come from two ports, which may have two workers. A worker that finds
//! a connection takes no lock:
//! - A connection is two cache lines of atomics (IPv6: and an extension). What identifies it does
//!   not change during its life.
//! - TCP's numbers only grow and its states only advance. A worker computes the new words and
//!   writes them with compare-and-exchange (the module `tcp`). Counters are added to, the time of
//!   expiry is stored.
//! - The memory of an ended connection is used again only when every worker that could have found
//!   it has ended its batch (the module `table::epoch`).
//!
//! Alternatives considered: a lock for each connection is one atomic instruction cheaper than the
//! two of TCP's words, but a worker that is interrupted while it holds it delays the other one;
//! reference counts cost two atomic instructions for each packet on a line that workers share.
//!
//! Who adds, changes (mark, label) or removes a connection locks the shards of its two hashes.
//!
//! # Where things are
//!
//! | module | content |
//! |---|---|
//! | `packet`, `tuple`, `checksum` | what the tracker reads of a packet |
//! | `tracker`, `commit` | the way of a packet: lookup, known and new connections |
//! | `table` | connections in memory, lookups, when memory may be used again |
//! | `tcp`, `sctp`, `datagram` | the machines of the protocols |
//! | `nat` | choice of a tuple, rewriting of packets |
//! | [`alg`] | FTP and TFTP |
//! | [`fragment`] | reassembly before tracking, fragments behind it |
//! | `timeout`, `limits`, `counters` | policies, limits and statistics |
//! | `connection`, `flush`, `show` | what commands see and do |
//! | `bypass` | connections with packets that an offload forwards |
//! | `handover` | connections that a process leaves to the next one |
//!
//! The caller sweeps ([`Tracker::sweep`]) and expires fragments in steps of its own choice, and
//! drops packets of refused connections if its rules say so.
//!
//! # Invariants
//! - A packet of one zone never sees a connection of another one.
//! - A tuple of a zone belongs to one connection at most, in one direction.
//! - The number of connections is never above the limits. Half-open connections make room for new
//!   ones, the oldest of the switch's port with the most first. Others stay.
//! - NAT gives no tuple to two connections, and a reply undoes what the request's translation did.
//! - A packet cannot make the tracker allocate except by a commit.
#![deny(unsafe_code)]

pub mod alg;
mod bypass;
mod checksum;
mod commit;
mod connection;
mod conntrack;
mod counters;
mod datagram;
mod flush;
pub mod fragment;
mod handover;
mod limits;
mod nat;
mod packet;
mod random;
mod sctp;
mod show;
mod sparse;
mod state;
mod table;
mod tcp;
mod timeout;
mod tracker;
mod tuple;

pub use alg::Helper;
pub use bypass::{Bypass, Bypassing, Checks, Established, Numbers, Passed};
pub use checksum::Checksum;
pub use connection::{Connection, Cursor, Protocol, Swept};
pub use conntrack::Conntrack;
pub use counters::{Ended, Refusal, Statistics};
pub use flush::{Filter, Part};
pub use handover::TakenOver;
pub use limits::{DEFAULT_MAX, ZoneLimit};
pub use nanos::Nanos;
pub use nat::{Nat, PortsBy, Range};
pub use packet::{Before, Invalid, Packet};
pub use sctp::SctpState;
pub use show::{Line, Style};
pub use state::State;
pub use tcp::{TcpState, WindowScale};
pub use timeout::{PolicyId, Timeout};
pub use tracker::{ConnectionId, Outcome, Request, Tracker};
pub use tuple::Tuple;
