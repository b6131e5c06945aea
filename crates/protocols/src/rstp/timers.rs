//! Timers of RSTP (IEEE 802.1D-2004 §17.13, §17.17).
//!
//! The standard counts whole seconds down. These are points in time; a timer that a state machine
//! sets again in each tick (the root port's recent root timer, for example) is *held*.

use core::time::Duration;
use nanos::Nanos;

/// The time in which a port tries whether its neighbour speaks RSTP (table 17-1).
pub(crate) const MIGRATE_TIME: Duration = Duration::from_secs(3);
/// A port may send one more BPDU after this (§17.22).
pub(crate) const TRANSMIT_TICK: Duration = Duration::from_secs(1);

/// A timer of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timer {
    /// It has reached 0.
    #[default]
    Expired,
    /// It reaches 0 then.
    Running(Nanos),
    /// It stays at its full value.
    Held,
}

impl Timer {
    pub(crate) fn start(full: Duration, now: Nanos) -> Timer {
        Timer::Running(now + full)
    }

    /// Whether it has reached 0.
    pub(crate) fn expired(self, now: Nanos) -> bool {
        match self {
            Timer::Expired => true,
            Timer::Running(until) => until <= now,
            Timer::Held => false,
        }
    }

    /// Lets a timer that was held run.
    pub(crate) fn release(&mut self, full: Duration, now: Nanos) {
        if *self == Timer::Held {
            *self = Timer::start(full, now);
        }
    }
}
