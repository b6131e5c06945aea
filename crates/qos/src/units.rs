//! Units: time, rates, what a packet costs on a link.

use crate::ConfigError;
use std::fmt;
use std::ops::{Add, Sub};

/// A moment, or a length of time, in nanoseconds. The origin of times is arbitrary but fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// From microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// From milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// From seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// The time since an earlier moment; zero if it is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Picoseconds, up to a given length: a token bucket never needs more than its depth.
    pub(crate) fn picos_up_to(self, most: i64) -> i64 {
        (self.0.min(most.unsigned_abs() / 1_000) * 1_000) as i64
    }

    /// The moment that so many picoseconds end after this one, rounded up.
    pub(crate) fn after_picos(self, picos: i64) -> Nanos {
        Nanos(self.0.saturating_add((picos.max(0) as u64).div_ceil(1_000)))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.since(other)
    }
}

/// A rate of 1 bit/s to 2^42 bit/s (4.4 Tbit/s).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    bits: u64,
    /// Picoseconds a byte takes, with 20 binary places.
    picos_per_byte: u64,
}

impl Rate {
    /// The highest rate, in bit/s.
    pub const MAX: u64 = 1 << 42;

    /// A rate in bit/s; `key` names the setting in the error.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] for 0 and above [`Rate::MAX`].
    pub fn new(key: &'static str, bits: u64) -> Result<Rate, ConfigError> {
        ConfigError::range(key, bits, 1, Rate::MAX)?;
        let picos = (u128::from(8_000_000_000_000u64) << 20).div_ceil(u128::from(bits));
        Ok(Rate {
            bits,
            picos_per_byte: u64::try_from(picos).unwrap_or(u64::MAX),
        })
    }

    /// In bit/s.
    pub const fn bits_per_second(self) -> u64 {
        self.bits
    }

    /// Picoseconds that so many bytes take.
    #[inline]
    pub(crate) fn picos(self, bytes: u32) -> i64 {
        self.pace().picos(bytes)
    }

    /// The part that each packet needs.
    pub(crate) const fn pace(self) -> Pace {
        Pace(self.picos_per_byte)
    }

    /// As [`Rate::picos`], for depths of buckets: at most an hour.
    pub(crate) fn depth(self, bytes: u64) -> i64 {
        let picos = (u128::from(bytes) * u128::from(self.picos_per_byte)) >> 20;
        picos.min(3_600_000_000_000_000) as i64
    }

    /// Bytes that pass in a length of time.
    pub fn bytes_in(self, time: Nanos) -> u64 {
        (u128::from(self.bits) * u128::from(time.0) / 8_000_000_000).min(u128::from(u64::MAX)) as u64
    }
}

/// A [`Rate`] as the time of a byte: half as large, for records that each packet touches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(u64);

impl Pace {
    /// Picoseconds that so many bytes take.
    #[inline]
    pub(crate) fn picos(self, bytes: u32) -> i64 {
        ((u128::from(bytes) * u128::from(self.0)) >> 20) as i64
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s", self.bits)
    }
}

/// The link-layer overhead of a packet that rates count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLayer {
    overhead: u16,
    least: u16,
}

impl LinkLayer {
    /// The frame from its destination address to the end of its payload, nothing added, as Linux
    /// counts on an Ethernet device for `max-rate` and `min-rate`.
    pub const FRAME: LinkLayer = LinkLayer { overhead: 0, least: 0 };

    /// A frame's bytes on an Ethernet cable: 24 bytes more (preamble and start 8, check sequence 4,
    /// gap 12), at least 84.
    pub const ETHERNET: LinkLayer = LinkLayer {
        overhead: 24,
        least: 84,
    };

    /// An overhead of 0 to 1000 bytes a frame, and the fewest bytes that a frame takes with it, 0
    /// to 1000.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `overhead` or `mpu`.
    pub fn new(overhead: u64, least: u64) -> Result<LinkLayer, ConfigError> {
        ConfigError::range("overhead", overhead, 0, 1_000)?;
        ConfigError::range("mpu", least, 0, 1_000)?;
        Ok(LinkLayer {
            overhead: overhead as u16,
            least: least as u16,
        })
    }

    /// Bytes on the link of `segments` frames that have `bytes` together.
    #[inline]
    pub fn cost(self, bytes: u32, segments: u32) -> u32 {
        let segments = segments.max(1);
        bytes
            .saturating_add(segments.saturating_mul(u32::from(self.overhead)))
            .max(segments.saturating_mul(u32::from(self.least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_tells_the_time_of_bytes_to_a_part_in_a_million() {
        for bits in [1, 64_000, 1_000_000, 10_000_000_000, 400_000_000_000] {
            let rate = Rate::new("rate", bits).unwrap();
            let exact = 8e12 * 1500.0 / bits as f64;
            assert!((rate.picos(1500) as f64 - exact).abs() <= exact * 1e-6 + 1.0, "{bits}");
        }
        assert!(Rate::new("max-rate", 0).unwrap_err().to_string().contains("max-rate"));
    }

    #[test]
    fn ethernet_adds_24_bytes_a_segment_and_fills_short_frames() {
        assert_eq!(LinkLayer::ETHERNET.cost(1514, 1), 1538);
        assert_eq!(LinkLayer::ETHERNET.cost(42, 1), 84);
        assert_eq!(LinkLayer::ETHERNET.cost(3028, 2), 3076);
        assert_eq!(LinkLayer::FRAME.cost(60, 1), 60);
    }
}
