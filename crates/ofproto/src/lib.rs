//! The OpenFlow agent of a bridge: what its controllers and tools say to it, and what it answers.
//!
//! An [`Agent`] keeps the bridge's connections and the state of the protocol on each. Its caller
//! hands over the bytes received on a connection ([`Agent::receive`]), lets the agent work on them
//! ([`Agent::run`]), sends the answers ([`Agent::transmit`]), and after each call does what
//! [`Agent::events`] says. Timers: the caller calls [`Agent::tick`] at [`Agent::deadline`]. The
//! agent reaches the switch through an [`Env`]. It has no socket, no clock, no thread.
//!
//! Invariants
//! - Every request is answered in order, with its answer or with the error that the specification
//!   has for it, which quotes it.
//! - Memory is bounded for each connection: while its peer does not read, nothing is made for it.
//!   Long answers are made part by part, as the peer takes them, and the switch is locked for one
//!   part only. Packets for a slow controller are dropped, and counted.
//! - Memory is bounded for all connections together by a budget that they share. A request that
//!   exceeds it is refused with an error.
//! - Nothing that a peer sends makes the agent panic.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agent;
mod asynchronous;
mod bundle;
mod conn;
mod describe;
mod dump;
mod env;
mod events;
mod features;
mod flows;
mod groups;
mod limit;
mod mass;
mod memory;
mod monitor;
mod outbox;
mod packet_in;
mod packet_out;
mod ports;
mod probe;
mod queues;
mod request;
mod settings;
mod unsupported;
mod work;

pub use agent::{Agent, Config, Run};
pub use conn::{Closed, ConnId, ConnStats, Kind, Options};
pub use env::{Env, PortCounters, QueueInfo};
pub use events::Event;
pub use limit::{Limit, LimitStats};
pub use ports::PortInfo;
