//! Points in time: what every crate takes as `now`. No clock is read here.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A monotonic time in nanoseconds since an arbitrary origin. Arithmetic saturates at both ends
/// (2⁶⁴ ns are 584 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Nanos = Nanos(0);
    /// The end of time: nothing happens then.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// This many milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// This many seconds after the origin.
    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs.saturating_mul(1_000_000_000))
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// The time that passed from `earlier` to `self`; zero where `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The nanoseconds of a duration, saturating.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Nanos {
    type Output = Nanos;
    fn add(self, duration: Duration) -> Nanos {
        Nanos(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Nanos {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Nanos {
    type Output = Nanos;
    fn sub(self, duration: Duration) -> Nanos {
        Nanos(self.0.saturating_sub(nanos(duration)))
    }
}

impl Sub<Nanos> for Nanos {
    type Output = Duration;
    fn sub(self, earlier: Nanos) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Nanos::ZERO - Duration::from_secs(1), Nanos::ZERO);
        assert_eq!(Nanos::MAX + Duration::MAX, Nanos::MAX);
        assert_eq!(Nanos(5) - Nanos(7), Duration::ZERO);
        assert_eq!(Nanos::from_millis(2) - Nanos::from_millis(1), Duration::from_millis(1));
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos::MAX);
    }
}
