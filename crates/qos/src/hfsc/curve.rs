//! Service curves of two pieces, and their running versions.
//!
//! A curve gives the bytes due to a class as a function of time: slope `m1` for a time `d`, then
//! slope `m2`. A running curve starts at a time and an amount already served; updating it takes the
//! minimum with the curve restarted at the present time and amount (section 4 of the paper).
//!
//! Slopes are bytes a nanosecond with 48 binary places, their inverses nanoseconds a byte with 30.
//! Each point is computed from the curve's start, so errors do not accumulate.

use crate::units::Nanos;
use crate::{ConfigError, Rate};

const BYTES: u32 = 48;
const TIME: u32 = 30;

/// A two-piece linear service curve: `m1` bit/s for `d`, then `m2` bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    m1: Slope,
    d: u64,
    m2: Slope,
}

impl Curve {
    /// A curve of one rate in bit/s. `key` names it in errors.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`].
    pub fn linear(key: &'static str, rate: u64) -> Result<Curve, ConfigError> {
        Rate::new(key, rate)?;
        let slope = Slope::new(rate);
        Ok(Curve {
            m1: slope,
            d: 0,
            m2: slope,
        })
    }

    /// A curve of `m1` bit/s for `d` microseconds (up to 60 000 000), then `m2` bit/s. One of the
    /// rates may be 0, but for a concave curve (`m1` above `m2`) `d` must not be 0.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`].
    pub fn new(key: &'static str, m1: u64, d: u64, m2: u64) -> Result<Curve, ConfigError> {
        ConfigError::range(key, m1, 0, Rate::MAX)?;
        ConfigError::range(key, d, 0, 60_000_000)?;
        ConfigError::range(key, m2, u64::from(m1 == 0 || d == 0), Rate::MAX)?;
        Ok(Curve {
            m1: Slope::new(if d == 0 { m2 } else { m1 }),
            d: Nanos::from_micros(d).0,
            m2: Slope::new(m2),
        })
    }

    /// The rate in the long run, in bit/s.
    pub(crate) fn rate(&self) -> u64 {
        self.m2.bits
    }

    pub(crate) fn is_concave(&self) -> bool {
        self.m1.bits > self.m2.bits
    }

    /// It has one piece only.
    pub(crate) fn is_line(&self) -> bool {
        self.d == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slope {
    bits: u64,
    bytes_per_nano: u64,
    nanos_per_byte: u64,
}

impl Slope {
    fn new(bits: u64) -> Slope {
        let inverse = (8_000_000_000u128 << TIME).checked_div(u128::from(bits));
        Slope {
            bits,
            bytes_per_nano: ((u128::from(bits) << BYTES) / 8_000_000_000) as u64,
            nanos_per_byte: inverse.map_or(u64::MAX, |inverse| u64::try_from(inverse).unwrap_or(u64::MAX)),
        }
    }

    #[inline]
    fn bytes(&self, nanos: u64) -> u64 {
        ((u128::from(nanos) * u128::from(self.bytes_per_nano)) >> BYTES) as u64
    }
}

/// The time for so many bytes at the inverse of a slope, rounded up: never before the bytes are
/// due. `u64::MAX` is never.
#[inline]
fn nanos(bytes: u64, nanos_per_byte: u64) -> u64 {
    if bytes == 0 {
        return 0;
    }
    if nanos_per_byte == u64::MAX {
        return u64::MAX;
    }
    let product = u128::from(bytes) * u128::from(nanos_per_byte);
    u64::try_from((product + ((1 << TIME) - 1)) >> TIME).unwrap_or(u64::MAX)
}

/// A running curve of one piece: half as large as [`Running`], for records that each packet
/// touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    x: u64,
    y: u64,
    /// Nanoseconds a byte.
    m: u64,
}

impl Line {
    pub(crate) fn new(curve: &Curve) -> Line {
        Line::begun(curve, 0, 0)
    }

    /// As [`Running::time_of`].
    #[inline]
    pub(crate) fn time_of(&self, y: u64) -> u64 {
        self.x.saturating_add(nanos(y.saturating_sub(self.y), self.m))
    }

    /// As [`Running::restart`].
    pub(crate) fn restart(&mut self, curve: &Curve, x: u64, y: u64) {
        let is = self.y.saturating_add(curve.m2.bytes(x.saturating_sub(self.x)));
        if is >= y {
            *self = Line::begun(curve, x, y);
        }
    }

    /// As [`Running::begun`].
    pub(crate) fn begun(curve: &Curve, x: u64, y: u64) -> Line {
        Line {
            x,
            y,
            m: curve.m2.nanos_per_byte,
        }
    }

    /// As [`Running::delay`].
    #[inline]
    pub(crate) fn delay(&mut self, time: u64) {
        self.x = self.x.saturating_add(time);
    }
}

/// A curve that started at time `x` with `y` bytes served, with the values that each packet needs;
/// the rest is in the [`Curve`].
#[derive(Clone, Debug)]
pub(crate) struct Running {
    x: u64,
    y: u64,
    /// The first piece: how long, and how high.
    dx: u64,
    dy: u64,
    /// Nanoseconds a byte in each piece.
    m1: u64,
    m2: u64,
}

impl Running {
    pub(crate) fn new(curve: Curve) -> Running {
        Running {
            x: 0,
            y: 0,
            dx: curve.d,
            dy: curve.m1.bytes(curve.d),
            m1: curve.m1.nanos_per_byte,
            m2: curve.m2.nanos_per_byte,
        }
    }

    /// When so many bytes are due.
    #[inline]
    pub(crate) fn time_of(&self, y: u64) -> u64 {
        if y < self.y {
            return self.x;
        }
        let y = y - self.y;
        let time = if y <= self.dy && self.dy != 0 {
            nanos(y, self.m1).min(self.dx)
        } else {
            self.dx.saturating_add(nanos(y - self.dy, self.m2))
        };
        self.x.saturating_add(time)
    }

    /// When so many bytes would be due at its second slope from the beginning.
    #[inline]
    pub(crate) fn time_on_line(&self, y: u64) -> u64 {
        self.x.saturating_add(nanos(y.saturating_sub(self.y), self.m2))
    }

    /// How many bytes are due at a moment.
    pub(crate) fn bytes_at(&self, curve: &Curve, x: u64) -> u64 {
        let x = x.saturating_sub(self.x);
        let y = if x <= self.dx {
            curve.m1.bytes(x)
        } else {
            self.dy + curve.m2.bytes(x - self.dx)
        };
        self.y.saturating_add(y)
    }

    /// The minimum of itself and of the curve restarted at `x` with `y` served.
    pub(crate) fn restart(&mut self, curve: &Curve, x: u64, y: u64) {
        let fresh = Running::begun(curve, x, y);
        let (dx, dy) = (fresh.dx, fresh.dy);
        if !curve.is_concave() {
            // Convex curves: the later one is below if it is so where it begins.
            if self.bytes_at(curve, x) >= y {
                *self = fresh;
            }
            return;
        }
        if self.bytes_at(curve, x) <= y {
            // The running one is below from the beginning, and stays there.
            return;
        }
        if self.bytes_at(curve, x.saturating_add(dx)) >= y.saturating_add(dy) {
            *self = fresh;
            return;
        }
        // They cross while the fresh one is in its first piece and the running one in its second:
        // m1 up to there, then m2.
        let above = self.bytes_at(curve, x) - y;
        let gain = (curve.m1.bytes_per_nano - curve.m2.bytes_per_nano).max(1);
        let mut until = ((u128::from(above) << BYTES) / u128::from(gain)).min(u128::from(u64::MAX / 2)) as u64;
        // The running one may still be in its first piece, parallel to the fresh one, for a while.
        until = until.saturating_add((self.x.saturating_add(self.dx)).saturating_sub(x));
        *self = Running {
            dx: until,
            dy: curve.m1.bytes(until),
            ..fresh
        };
    }

    /// A curve begun at `x` with `y` served.
    pub(crate) fn begun(curve: &Curve, x: u64, y: u64) -> Running {
        Running {
            x,
            y,
            ..Running::new(*curve)
        }
    }

    /// Moves it to later times.
    #[inline]
    pub(crate) fn delay(&mut self, time: u64) {
        self.x = self.x.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_and_bytes_of_a_concave_curve_are_those_of_its_pieces() {
        let curve = Curve::new("rt", 8_000_000, 10_000, 800_000).unwrap();
        let running = Running::new(curve);
        assert_eq!(running.bytes_at(&curve, 5_000_000), 4_999);
        assert_eq!(running.bytes_at(&curve, 20_000_000), 10_998);
        assert_eq!(running.time_of(5_000), 5_000_000);
        assert_eq!(running.time_of(11_000), 20_010_000);
    }

    #[test]
    fn a_curve_without_slope_in_its_first_piece_waits_for_its_second() {
        let running = Running::new(Curve::new("rt", 0, 10_000, 8_000_000).unwrap());
        assert_eq!(running.time_of(0), 10_000_000);
        assert_eq!(running.time_of(1_000), 11_000_000);
        assert!(Curve::new("rt", 0, 10_000, 0).is_err());
        assert!(Curve::new("rt", 5, 0, 0).unwrap_err().to_string().contains("rt"));
    }

    proptest! {
        #[test]
        fn a_line_is_what_a_curve_of_one_piece_is(
            rate in 1u64..10_000_000_000,
            steps in prop::collection::vec((0u64..40_000_000, 0u64..100_000, 0u64..1_000), 1..20),
        ) {
            let curve = Curve::linear("ls", rate).unwrap();
            let (mut line, mut running) = (Line::new(&curve), Running::new(curve));
            let (mut x, mut y) = (0, 0);
            for (pause, bytes, late) in steps {
                (x, y) = (x + pause, y + bytes);
                line.restart(&curve, x, y);
                running.restart(&curve, x, y);
                line.delay(late);
                running.delay(late);
                for y in [0, y, y + 1_000, y + 1_000_000] {
                    prop_assert_eq!(line.time_of(y), running.time_of(y));
                    prop_assert_eq!(line.time_of(y), running.time_on_line(y));
                }
            }
        }

        /// Compares with the definition: the minimum of all curves started so far.
        #[test]
        fn a_running_curve_is_the_minimum_of_those_begun(
            m1 in 1_000_000u64..1_000_000_000, d in 1u64..50_000, m2 in 1_000_000u64..1_000_000_000,
            starts in prop::collection::vec((1u64..40_000_000, 0u64..100), 1..8),
        ) {
            let curve = Curve::new("rt", m1, d, m2).unwrap();
            let mut running = Running::new(curve);
            let mut begun: Vec<(u64, u64)> = vec![(0, 0)];
            let (mut x, mut y) = (0, 0);
            let due = |begun: &[(u64, u64)], at: u64| {
                begun.iter().map(|(x, y)| {
                    let dx = (at - x) as f64;
                    let d = d as f64 * 1e3;
                    *y as f64 + dx.min(d) * m1 as f64 / 8e9 + (dx - d).max(0.0) * m2 as f64 / 8e9
                }).fold(f64::MAX, f64::min)
            };
            for (pause, part) in starts {
                // As in the scheduler, the served bytes are at most a little ahead of the due
                // bytes.
                x += pause;
                y = (due(&begun, x) * part as f64 / 100.0).max(y as f64) as u64;
                begun.push((x, y));
                running.restart(&curve, x, y);
                for later in [0, 1_000_000, 10_000_000, 60_000_000, 1_000_000_000] {
                    let (is, wanted) = (running.bytes_at(&curve, x + later) as f64, due(&begun, x + later));
                    let convex_allowance = if m1 > m2 { 0.0 } else { d as f64 * 1e3 * (m2 - m1) as f64 / 8e9 };
                    // Whole bytes: where two curves cross, three roundings down add up at each
                    // restart.
                    let rounding = 3.0 * begun.len() as f64;
                    prop_assert!((is - wanted).abs() <= rounding + wanted * 1e-6 + convex_allowance, "{is} is not {wanted}");
                }
            }
        }
    }
}
