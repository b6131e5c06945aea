//! System calls that no safe library offers, each behind a safe function. Together with the kernel
//! datapath's loader, the only place with `unsafe`.
//!
//! Rules of every function here
//! - It is sound for all arguments of a safe caller; each `unsafe` block states the reasons.
//! - Its error names the call ([`Error`]), except in the two calls per batch of packets, which
//!   return the bare error.
//! - It keeps no state: a type that owns its file descriptor holds everything that outlives the
//!   call. The exception is [`crash`], because the handler of a signal has no arguments of ours.
//!
//! Calls that `rustix` offers in a safe form (eventfd, epoll, netlink sockets, affinity of threads)
//! are used from there.
#![allow(unsafe_code, reason = "this is the crate that fences it")]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod bpf;
mod buffer;
mod counting_alloc;
pub mod crash;
pub mod cycles;
pub mod datagram;
mod error;
pub mod ethtool;
pub mod memory;
pub mod mii;
pub mod mmsg;
mod packet_ring;
mod packet_socket;
pub mod perf;
pub mod tap;
pub mod tcp;
pub mod thread;
pub mod timed;
#[cfg(feature = "tokio")]
pub mod watch;
pub mod xsk;

pub use buffer::Buffer;
pub use counting_alloc::CountingAlloc;
pub use error::{Error, Result, strerror};
pub use packet_ring::{PacketRing, RingPacket, RingSize};
pub use packet_socket::{PacketSocket, PacketStatistics};
