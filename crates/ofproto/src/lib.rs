//! The OpenFlow agent of a bridge: it answers the bridge's controllers and tools.
//!
//! An [`Agent`] keeps the bridge's connections and the state of the protocol on each. Its caller
//! hands over the bytes received on a connection ([`Agent::receive`]), lets the agent work on them
//! ([`Agent::run`]), sends the answers ([`Agent::transmit`]), and after each call does what
//! [`Agent::events`] says. Timers: the caller calls [`Agent::tick`] at [`Agent::deadline`]. The
//! agent reaches the switch through an [`Env`]. It has no socket, no clock, no thread.
//!
//! Invariants
//! - The agent answers every request in order, with its reply or with the specification's error,
//!   which quotes the request.
//! - Memory is bounded for each connection: while its peer does not read, the agent makes nothing
//!   for it. It makes long answers part by part, as the peer reads them, and locks the switch for
//!   one part only. It drops and counts packets for a slow controller.
//! - All connections share a memory budget. The agent refuses a request that exceeds it.
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
mod ipfix;
mod limit;
mod log;
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
mod work;

pub use agent::{Agent, Config, Run};
pub use conn::{Closed, ConnId, ConnStats, Kind, Options};
pub use env::{Env, PortCounters, QueueInfo};
pub use events::Event;
pub use limit::{Limit, LimitStats};
pub use ports::{PortInfo, TreeState};
