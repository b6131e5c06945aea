//! When the datagrams of a flow are due.

use crate::traffic::clock::SECOND;

/// Beginnings of a flow's datagrams at a constant bit rate, counted from the flow's first, without
/// any error that adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Bits of payload of a datagram.
    bits: u64,
    /// Bits a second; 0: all are due at once.
    rate: u64,
}

impl Schedule {
    /// For a payload size in bytes and a payload rate in bit/s.
    pub(crate) fn new(payload: u32, rate: u64) -> Schedule {
        Schedule {
            bits: u64::from(payload) * 8,
            rate,
        }
    }

    /// When datagram `n` is due, in nanoseconds after the first.
    pub(crate) fn due(&self, n: u64) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let nanos = u128::from(n) * u128::from(self.bits) * u128::from(SECOND) / u128::from(self.rate);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// How many are due before this time.
    pub(crate) fn before(&self, nanos: u64) -> u64 {
        if self.rate == 0 || nanos == 0 {
            return 0;
        }
        let bits = u128::from(self.bits) * u128::from(SECOND);
        u64::try_from((u128::from(nanos) * u128::from(self.rate)).div_ceil(bits.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_due_at_even_distances_and_none_is_lost_to_rounding() {
        // 500 bytes at 2.5 Mbit/s: 625 a second.
        let schedule = Schedule::new(500, 2_500_000);
        assert_eq!(
            (schedule.due(0), schedule.due(1), schedule.due(625)),
            (0, 1_600_000, SECOND)
        );
        // 100 bytes at 3 Mbit/s: 3750 a second, 266 666.6 ns apart.
        let schedule = Schedule::new(100, 3_000_000);
        assert_eq!(
            (schedule.due(1), schedule.due(3), schedule.due(3750 * 3600)),
            (266_666, 800_000, 3600 * SECOND)
        );
    }

    #[test]
    fn so_many_are_sent_in_a_time_as_the_rate_asks_for() {
        assert_eq!(Schedule::new(500, 2_500_000).before(10 * SECOND), 6250);
        assert_eq!(Schedule::new(100, 3_000_000).before(2 * SECOND), 7500);
        assert_eq!(Schedule::new(100, 3_000_000).before(0), 0);
        for n in 1..2000 {
            let schedule = Schedule::new(1440, 30_000_000);
            assert!(schedule.due(schedule.before(n * 1000) - 1) < n * 1000);
            assert!(schedule.due(schedule.before(n * 1000)) >= n * 1000 - 1);
        }
    }

    #[test]
    fn without_a_rate_all_are_due_at_once() {
        assert_eq!(Schedule::new(100, 0).due(1_000_000), 0);
        assert_eq!(Schedule::new(0, 5).before(SECOND), u64::from(5_u8) * SECOND);
    }
}
