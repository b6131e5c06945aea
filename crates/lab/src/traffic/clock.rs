//! Time of the measuring programs: `CLOCK_MONOTONIC`, in nanoseconds.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::num::NonZeroU64;

/// A second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A millisecond.
pub(crate) const MILLI: u64 = 1_000_000;

/// A microsecond.
pub(crate) const MICRO: u64 = 1_000;

/// Now. Only differences mean something, and only on one machine (network namespaces share the
/// clock, guests have their own).
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs()
}

/// Nanoseconds of a number of seconds; negative and not-a-number are 0.
pub(crate) fn nanos(seconds: f64) -> u64 {
    (seconds * SECOND as f64) as u64
}

/// Seconds of a number of nanoseconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}

/// Microseconds of a number of nanoseconds.
pub(crate) fn micros(nanos: u64) -> f64 {
    nanos as f64 / MICRO as f64
}

/// Asks the kernel to end this thread's sleeps on time (the default slack is 50 µs) and to run it
/// soon after wake-up on a busy machine. If the kernel refuses, the reported lateness is larger.
pub(crate) fn be_punctual() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let _ = sys::thread::set_slice(SLICE);
}

/// A thread that measures works for less than this at a time.
const SLICE: std::time::Duration = std::time::Duration::from_micros(100);

/// Returns at this time or later by the scheduler's wake-up delay: sleeps until the last `spin`
/// nanoseconds and polls in these.
pub(crate) fn wait_until(at: u64, spin: u64) {
    let rise = at.saturating_sub(spin);
    if now() < rise {
        let wanted = Timespec {
            tv_sec: i64::try_from(rise / SECOND).unwrap_or(i64::MAX),
            tv_nsec: (rise % SECOND) as _,
        };
        // Interrupted by a signal, it returns early: the loop below then keeps the time.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &wanted);
    }
    while now() < at {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_woken_before_the_time() {
        for spin in [0, 20 * MICRO, MILLI] {
            let at = now() + 300 * MICRO;
            wait_until(at, spin);
            assert!(now() >= at);
        }
        wait_until(0, 0);
    }

    #[test]
    fn seconds_that_are_no_time_are_none() {
        assert_eq!(nanos(-1.0), 0);
        assert_eq!(nanos(f64::NAN), 0);
        assert_eq!(nanos(1.5), 1_500_000_000);
    }
}
