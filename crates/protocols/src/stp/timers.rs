//! Timers of the Spanning Tree Protocol (IEEE 802.1D-1998 §8.5.4, §8.5.6) and their bounds.

use super::wire::Times;
use core::time::Duration;
use nanos::Nanos;

/// The time by which a bridge ages what it passes on (§8.10.2: at most 1 s).
pub(crate) const MESSAGE_AGE_INCREMENT: Duration = Duration::from_secs(1);
/// The least interval between two Configuration BPDUs of a port (table 8-3).
pub(crate) const HOLD_TIME: Duration = Duration::from_secs(1);

/// The timers that a bridge uses as the root, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeTimes {
    /// 6 to 40; 20 by default.
    pub max_age: u16,
    /// 1 to 10; 2 by default.
    pub hello_time: u16,
    /// 4 to 30; 15 by default.
    pub forward_delay: u16,
}

impl Default for BridgeTimes {
    fn default() -> BridgeTimes {
        BridgeTimes {
            max_age: 20,
            hello_time: 2,
            forward_delay: 15,
        }
    }
}

impl BridgeTimes {
    /// In the units of a BPDU, without an age. Each timer is forced into its range, and then the
    /// maximum age and the forward delay grow until 2 × (forward delay − 1 s) ≥ maximum age ≥
    /// 2 × (hello time + 1 s) (§8.10.2).
    pub(crate) fn times(self) -> Times {
        let hello_time = self.hello_time.clamp(1, 10);
        let max_age = self.max_age.clamp(6, 40).max(2 * (hello_time + 1));
        let least_delay = Times::seconds(max_age) / 2 + Times::seconds(1);
        Times {
            message_age: 0,
            max_age: Times::seconds(max_age),
            hello_time: Times::seconds(hello_time),
            forward_delay: Times::seconds(self.forward_delay.clamp(4, 30)).max(least_delay),
        }
    }
}

/// The message age timer of a port: it starts with the age that the message had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    initial: Duration,
    started: Nanos,
}

impl Age {
    pub(crate) fn start(initial: Duration, now: Nanos) -> Age {
        Age { initial, started: now }
    }

    /// The age now.
    pub(crate) fn value(self, now: Nanos) -> Duration {
        self.initial + now.since(self.started)
    }

    /// When it reaches a maximum.
    pub(crate) fn due(self, most: Duration) -> Nanos {
        self.started + most.saturating_sub(self.initial)
    }
}
