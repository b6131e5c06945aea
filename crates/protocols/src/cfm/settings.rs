//! The settings of a maintenance point.

use super::wire::{EXTENDED_GROUP, GROUP};
use core::time::Duration;
use wire::{MacAddr, Vid};

/// Settings of a maintenance point: those of `Interface` in `ovs-vswitchd.conf.db(5)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its number: 1 to 8191, in extended mode any but 0.
    pub point: u64,
    /// Open vSwitch's extended mode.
    pub extended: bool,
    /// How often it sends.
    pub interval: Interval,
    /// Received data shows that the other end is there, too (extended mode only).
    pub demand: bool,
    /// Whether this end is operationally up; told in extended mode.
    pub up: bool,
    /// The VLAN tag of its messages.
    pub vlan: VlanTagging,
    /// Their priority: 0 to 7; they have a tag if it is not 0.
    pub priority: u8,
    /// Their Ethernet source.
    pub mac: MacAddr,
}

/// The VLAN of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanTagging {
    /// One VLAN; 0 for none.
    Vlan(Vid),
    /// Each message has another one.
    Random,
}

/// An interval between messages (IEEE 802.1Q-2018 table 21-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The number in messages: 1 to 7; 0 for one that only extended mode has.
    pub code: u8,
    /// In milliseconds, at least 3.
    pub millis: u32,
}

/// In demand mode a point does not look more often than for this interval.
const DEMAND: Duration = Duration::from_millis(500);

impl Interval {
    /// The standard's intervals, by number from 1 on. Open vSwitch rounds 3 1/3 ms down.
    const STANDARD: [u32; 7] = [3, 10, 100, 1000, 10_000, 60_000, 600_000];

    /// The interval for a wish in milliseconds: the next shorter one of the standard, and in
    /// extended mode the wish itself up to 65 535 ms.
    pub fn of(millis: u32, extended: bool) -> Interval {
        let at = Interval::STANDARD.iter().rposition(|known| *known <= millis);
        let at = at.unwrap_or_default();
        let mut interval = Interval {
            code: at as u8 + 1,
            millis: Interval::STANDARD[at],
        };
        if extended && interval.millis != millis {
            interval = Interval {
                code: 0,
                millis: millis.clamp(1, u16::MAX.into()),
            };
        }
        interval
    }

    pub(super) fn duration(self) -> Duration {
        Duration::from_millis(self.millis.into())
    }
}

impl Config {
    /// After so long without a message an end counts as lost: three and a half intervals.
    pub(super) fn patience(&self) -> Duration {
        let interval = self.interval.duration();
        let demand = self.extended && self.demand;
        (if demand { interval.max(DEMAND) } else { interval }) * 7 / 2
    }

    /// Whether a number is one of a maintenance point.
    pub fn is_point(number: u64, extended: bool) -> bool {
        number >= 1 && (extended || number <= 8191)
    }

    /// The Ethernet destination of messages, sent and received.
    pub fn group(&self) -> MacAddr {
        match self.extended {
            true => EXTENDED_GROUP,
            false => GROUP,
        }
    }
}
