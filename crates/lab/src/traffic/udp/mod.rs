//! Datagrams: their round trips, and flows of them by a schedule.
//!
//! All times are taken by the programs, in user space, as the studies took them: just before the
//! call that sends and just after the call that received. So an RTT holds two system calls and a
//! wake-up at each end beside the way itself; the floor of the instrument, measured on a bare
//! cable, says how much that is.

mod dither;
mod echo;
mod flood;
mod header;
mod probe;
mod receive;
mod schedule;
mod send;
mod socket;
mod tracker;

pub use echo::Echo;
pub use flood::{Flood, Flooded, MOST_FLOOD, Sink, Sunk};
pub use probe::{Probe, Probed};
pub use receive::{Receive, ReceiveFlow, Received, ReceivedFlow};
pub use send::{Send, SendFlow, Sent, SentFlow};

pub(crate) use send::IMIX_MEAN;
pub(crate) use socket::set_buffers;

/// The most bytes of payload of a UDP datagram over IPv4.
pub const MOST_PAYLOAD: u32 = 65_507;
