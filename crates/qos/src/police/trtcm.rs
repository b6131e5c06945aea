//! The two-rate three-color marker with in-profile traffic handled apart.
//!
//! Source: RFC 4115, section 3 (the marker). A packet that the committed bucket covers is green;
//! else one that the excess bucket covers is yellow; else it is red. In color-aware mode a packet
//! that arrives yellow can at best stay so, and one that arrives red stays red.

use super::bucket::Bucket;
use crate::{ConfigError, Nanos};

/// The color of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green,
    /// Within the excess rate.
    Yellow,
    /// Beyond both.
    Red,
}

/// Rates and depths of a [`TrTcm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrTcmConfig {
    cir: u64,
    cbs: u64,
    eir: u64,
    ebs: u64,
}

impl TrTcmConfig {
    /// With a committed and an excess rate of 0 to 2^40 bytes a second, and bursts of 0 to 2^40
    /// bytes. One of the bursts must be above 0 (section 3).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `cir`, `cbs`, `eir` or `ebs`.
    pub fn new(cir: u64, cbs: u64, eir: u64, ebs: u64) -> Result<TrTcmConfig, ConfigError> {
        Ok(TrTcmConfig {
            cir: ConfigError::range("cir", cir, 0, 1 << 40)?,
            cbs: ConfigError::range("cbs", cbs, u64::from(ebs == 0), 1 << 40)?,
            eir: ConfigError::range("eir", eir, 0, 1 << 40)?,
            ebs: ConfigError::range("ebs", ebs, 0, 1 << 40)?,
        })
    }

    /// The larger of the bursts, in bytes.
    pub(crate) const fn burst(self) -> u64 {
        if self.cbs > self.ebs { self.cbs } else { self.ebs }
    }
}

/// A committed and an excess bucket of bytes.
#[derive(Clone, Debug)]
pub struct TrTcm {
    committed: Bucket,
    excess: Bucket,
}

impl TrTcm {
    /// With full buckets.
    pub fn new(config: TrTcmConfig) -> TrTcm {
        TrTcm {
            committed: Bucket::new(config.cir, config.cbs),
            excess: Bucket::new(config.eir, config.ebs),
        }
    }

    /// Takes other rates and depths; the tokens stay as far as they fit.
    pub fn change(&mut self, config: TrTcmConfig, now: Nanos) {
        self.committed.change(config.cir, config.cbs, now);
        self.excess.change(config.eir, config.ebs, now);
    }

    /// The color of a packet of so many bytes that comes with a color: green for all is the
    /// color-blind mode.
    #[inline]
    pub fn color(&mut self, bytes: u32, was: Color, now: Nanos) -> Color {
        self.committed.fill(now);
        self.excess.fill(now);
        let bytes = u64::from(bytes);
        if was == Color::Green && self.committed.has(bytes) {
            self.committed.take(bytes);
            Color::Green
        } else if was != Color::Red && self.excess.has(bytes) {
            self.excess.take(bytes);
            Color::Yellow
        } else {
            Color::Red
        }
    }
}
