//! Limit of the bytes under way in a device: enough to keep it busy, and not much more, since no
//! scheduler orders the queue in the device.
//!
//! As Linux's byte queue limits (`Documentation/ABI/testing/sysfs-class-net-queues`), but from
//! outside the device: it uses when the device was full, when it ran empty, and how much it took in
//! between.

use nanos::Nanos;
use std::time::Duration;

/// The time that the bytes under way should last.
const LASTS: Duration = Duration::from_millis(4);

/// The bounds, in bytes: some packets; more than any device needs.
const LEAST: u64 = 16 << 10;
const MOST: u64 = 4 << 20;

/// The initial limit: one large segment and another that the device is taking.
const FIRST: u64 = 128 << 10;

/// See the module's page.
pub(super) struct Room {
    bytes: u64,
    /// When the device was full the last time.
    full: Option<Nanos>,
    /// Bytes that it has taken since.
    taken: u64,
    /// It has run empty since.
    starved: bool,
}

impl Room {
    pub(super) fn new() -> Room {
        Room {
            bytes: FIRST,
            full: None,
            taken: 0,
            starved: false,
        }
    }

    /// In bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Counts bytes that the device has taken.
    #[inline]
    pub(super) fn taken(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// It has run empty after it was full.
    pub(super) fn starved(&mut self) {
        self.starved = true;
    }

    /// It is full. Returns whether the room is another now.
    pub(super) fn full(&mut self, now: Nanos) -> bool {
        let before = self.bytes;
        // Full at both ends of the interval, so the device has sent as much as it has taken.
        let passed = self.full.map_or(Duration::ZERO, |full| now.since(full));
        if self.starved {
            self.bytes *= 2;
        } else if !passed.is_zero() && passed < Duration::from_secs(1) {
            let needed = u128::from(self.taken) * LASTS.as_nanos() / passed.as_nanos();
            let needed = needed.min(MOST.into()) as u64;
            // Little by little: one measurement is not much.
            if needed < self.bytes / 2 {
                self.bytes = needed.max(self.bytes / 2);
            }
        }
        self.bytes = self.bytes.clamp(LEAST, MOST);
        self.full = Some(now);
        self.taken = 0;
        self.starved = false;
        self.bytes != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a device of `rate` bytes a second that is offered frames again after `again`.
    fn settle(rate: u64, again: Duration) -> u64 {
        let mut room = Room::new();
        let (mut now, mut under_way) = (Nanos::from_secs(1), 0);
        for _ in 0..1_000 {
            let sent = rate * again.as_nanos() as u64 / 1_000_000_000;
            if sent >= under_way && under_way > 0 {
                room.starved();
            }
            under_way = under_way.saturating_sub(sent);
            room.taken(room.bytes.saturating_sub(under_way));
            under_way = under_way.max(room.bytes);
            now += again;
            room.full(now);
        }
        room.bytes
    }

    #[test]
    fn a_slow_device_gets_little_and_a_fast_one_as_much_as_it_needs() {
        assert_eq!(settle(125_000, Duration::from_millis(5)), LEAST);
        let fast = settle(1_250_000_000, Duration::from_micros(500));
        assert!((625_000..=MOST).contains(&fast), "{fast}");
        let usual = settle(12_500_000, Duration::from_millis(2));
        assert!((25_000..=FIRST).contains(&usual), "{usual}");
    }

    #[test]
    fn a_long_pause_says_nothing_of_a_devices_speed() {
        let mut room = Room::new();
        room.full(Nanos::from_secs(1));
        room.taken(1_000);
        assert!(!room.full(Nanos::from_secs(9)));
        assert_eq!(room.bytes(), FIRST as usize);
    }
}
