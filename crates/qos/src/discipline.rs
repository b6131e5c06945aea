//! The transmit side of a port: one of the disciplines, and a speed.

use crate::police::{EgressPolicerConfig, TrTcmConfig};
use crate::{HfscConfig, HtbConfig, LeafConfig, NetemConfig, PortSpeed};

/// The configuration of a [`Port`](crate::Port).
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The discipline.
    pub discipline: Discipline,
    /// The speed of its link; `None` for that of the device.
    pub speed: Option<PortSpeed>,
}

impl PortConfig {
    /// A discipline on a port without a speed of its own.
    pub fn new(discipline: Discipline) -> PortConfig {
        PortConfig {
            discipline,
            speed: None,
        }
    }

    /// Whether a port with this configuration never holds a packet, so that it needs no scheduler.
    pub fn is_direct(&self) -> bool {
        matches!(self.discipline, Discipline::Noop) && self.speed.is_none()
    }
}

/// A kind of QoS and its parameters.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// One without classes: FIFO, `pfifo_fast`, SFQ, CoDel, FQ-CoDel. All queue numbers go into the
    /// one queue.
    Leaf(LeafConfig),
    /// Classes that borrow.
    Htb(HtbConfig),
    /// Classes with service curves.
    Hfsc(HfscConfig),
    /// Delay, jitter and loss.
    Netem(NetemConfig),
    /// Packets beyond a rate are dropped, none is delayed.
    EgressPolicer(EgressPolicerConfig),
    /// Packets beyond two rates are dropped, none is delayed.
    TrTcm(TrTcmPortConfig),
    /// None. With a speed, packets that wait for the link do so in a `pfifo_fast` of the usual
    /// length.
    Noop,
}

/// The meters of a port with `trtcm-policer`: a packet passes that of its queue, colour-blind, then
/// that of the port, colour-aware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrTcmPortConfig {
    /// The port's.
    pub port: TrTcmConfig,
    /// Those of the queues, by number. Packets of queues that are not here are of queue 0; without
    /// a queue 0, it has the port's parameters.
    pub queues: Vec<(u32, TrTcmConfig)>,
}
