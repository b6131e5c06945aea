//! Schedulers and policers: which packet leaves a port next, and when.
//!
//! Every discipline is sans-IO: it takes packets it owns and the time, and has no clock, socket,
//! thread or global. [`Scheduler`] is the contract of all.
//!
//! - [`Single`]: `pfifo_fast`, FIFO, SFQ, CoDel, FQ-CoDel, by [`LeafConfig`].
//! - [`Htb`]: classes that borrow.
//! - [`Hfsc`]: classes with service curves.
//! - [`Netem`]: delay, jitter and loss.
//! - [`Shaper`]: the speed of a port, around any other.
//! - [`police`]: policers, which queue nothing.
//! - [`Port`]: all of it for one port, by its [`PortConfig`].
//!
//! Rates are in bit/s of a frame from its destination address on, with the link-layer overhead of a
//! [`LinkLayer`] added: none by default for classes, as users of Linux's classes expect, that of
//! Ethernet for the speed of a port.
//!
//! Goal: tens of nanoseconds a packet. Packets are in one array ([`pool`]), queues are lists of
//! indices into it; no packet allocates, and no operation costs more than the logarithm of the
//! number of classes.
//!
//! ```
//! use qos::{LeafConfig, Nanos, Packet, PortSpeed, Scheduler, Shaper, Single};
//!
//! struct Frame(Vec<u8>);
//! impl Packet for Frame {
//!     fn bytes(&self) -> u32 { self.0.len() as u32 }
//!     fn flow_hash(&self) -> u64 { 0 }
//!     fn mark_ecn(&mut self) -> bool { false }
//! }
//!
//! // Two frames of 1226 bytes take 1 ms each at 10 Mbit/s, with the overhead of Ethernet.
//! let speed = Some(PortSpeed::new(10_000_000)?);
//! let mut port = Shaper::new(Single::new(&LeafConfig::default()), speed);
//! let mut now = Nanos::from_secs(1);
//! for _ in 0..2 {
//!     let _ = port.enqueue(Frame(vec![0; 1226]), now, &mut |_, _| ());
//! }
//! assert!(port.dequeue(now, &mut |_, _| ()).is_some());
//! assert!(port.dequeue(now, &mut |_, _| ()).is_none());
//! now = port.next_event(now).unwrap();
//! assert!(port.dequeue(now, &mut |_, _| ()).is_some());
//! # Ok::<(), qos::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod codel;
mod discipline;
mod error;
mod fifo;
mod flows;
mod fq_codel;
mod heap;
mod hfsc;
mod htb;
pub mod keys;
mod leaf;
mod netem;
mod packet;
pub mod police;
mod pool;
mod port;
mod queues;
mod ring;
mod scheduler;
mod sfq;
mod shaper;
mod single;
mod stats;
mod tournament;
mod tree;
mod units;

pub use codel::CodelConfig;
pub use discipline::{Discipline, PortConfig, TrTcmPortConfig};
pub use error::ConfigError;
pub use fifo::FifoConfig;
pub use fq_codel::FqCodelConfig;
pub use hfsc::{Curve, Hfsc, HfscClass, HfscConfig};
pub use htb::{Htb, HtbClass, HtbConfig};
pub use leaf::LeafConfig;
pub use netem::{Netem, NetemConfig};
pub use packet::{Packet, Priority};
pub use port::Port;
pub use scheduler::{Dropped, Enqueued, Scheduler};
pub use sfq::SfqConfig;
pub use shaper::{PortSpeed, Shaper};
pub use single::Single;
pub use stats::{Cause, Histogram, Stats};
pub use units::{LinkLayer, Nanos, Rate};
