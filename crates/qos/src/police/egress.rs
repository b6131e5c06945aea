//! The egress policer with one rate.
//!
//! Source: RFC 2697's committed bucket; keys as `egress-policer` has them in
//! ovs-vswitchd.conf.db(5): `cir` in bytes a second, counted from the IP header on, `cbs` in bytes,
//! which must hold the largest packet.

use super::bucket::Bucket;
use crate::{ConfigError, Nanos};

/// Rate and depth of an [`EgressPolicer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressPolicerConfig {
    cir: u64,
    cbs: u64,
}

impl EgressPolicerConfig {
    /// With a committed rate of 1 to 2^40 bytes a second and a burst of 1 to 2^40 bytes.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `cir` or `cbs`.
    pub fn new(cir: u64, cbs: u64) -> Result<EgressPolicerConfig, ConfigError> {
        Ok(EgressPolicerConfig {
            cir: ConfigError::range("cir", cir, 1, 1 << 40)?,
            cbs: ConfigError::range("cbs", cbs, 1, 1 << 40)?,
        })
    }

    /// The burst, in bytes.
    pub(crate) const fn burst(self) -> u64 {
        self.cbs
    }
}

/// A bucket of bytes.
#[derive(Clone, Debug)]
pub struct EgressPolicer {
    bucket: Bucket,
}

impl EgressPolicer {
    /// With a full bucket.
    pub fn new(config: EgressPolicerConfig) -> EgressPolicer {
        EgressPolicer {
            bucket: Bucket::new(config.cir, config.cbs),
        }
    }

    /// Takes another rate and depth; the tokens stay as far as they fit.
    pub fn change(&mut self, config: EgressPolicerConfig, now: Nanos) {
        self.bucket.change(config.cir, config.cbs, now);
    }

    /// Whether a packet of this size may pass; if so, takes its tokens.
    #[inline]
    pub fn pass(&mut self, bytes: u32, now: Nanos) -> bool {
        self.bucket.fill(now);
        let pass = self.bucket.has(u64::from(bytes));
        if pass {
            self.bucket.take(u64::from(bytes));
        }
        pass
    }
}
