//! The ingress policer of a port.
//!
//! Source: `ingress_policing_*` in ovs-vswitchd.conf.db(5): a rate in kbit/s with a burst in kbit
//! (0 is 8000), a rate in kpkts/s with a burst in kpkts (0 is 16). A rate of 0 does not police.
//! With both a packet passes only if both buckets cover it, and a packet that does not pass takes
//! from none.

use super::bucket::Bucket;
use crate::{ConfigError, Nanos};

/// Rates and bursts of an [`IngressPolicer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressPolicerConfig {
    kbits: u64,
    burst: u64,
    kpkts: u64,
    packets_burst: u64,
}

impl IngressPolicerConfig {
    /// With a rate of 0 to 2^32 kbit/s and a burst of 0 to 2^32 kbit, a rate of 0 to 2^32 kpkts/s
    /// and a burst of 0 to 2^32 kpkts.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming the column.
    pub fn new(kbits: u64, burst: u64, kpkts: u64, packets_burst: u64) -> Result<IngressPolicerConfig, ConfigError> {
        let or = |value, default| if value == 0 { default } else { value };
        const MOST: u64 = 1 << 32;
        Ok(IngressPolicerConfig {
            kbits: ConfigError::range("ingress_policing_rate", kbits, 0, MOST)?,
            burst: or(ConfigError::range("ingress_policing_burst", burst, 0, MOST)?, 8_000),
            kpkts: ConfigError::range("ingress_policing_kpkts_rate", kpkts, 0, MOST)?,
            packets_burst: or(
                ConfigError::range("ingress_policing_kpkts_burst", packets_burst, 0, MOST)?,
                16,
            ),
        })
    }

    /// Whether it polices anything.
    pub fn is_off(&self) -> bool {
        self.kbits == 0 && self.kpkts == 0
    }
}

/// A bucket of bytes and one of packets, each if it has a rate.
#[derive(Clone, Debug)]
pub struct IngressPolicer {
    bytes: Option<Bucket>,
    packets: Option<Bucket>,
}

impl IngressPolicer {
    /// With full buckets.
    pub fn new(config: IngressPolicerConfig) -> IngressPolicer {
        let bytes = (config.kbits * 125, config.burst * 125);
        let packets = (config.kpkts * 1_000, config.packets_burst * 1_000);
        let bucket = |(rate, depth)| (rate != 0).then(|| Bucket::new(rate, depth));
        IngressPolicer {
            bytes: bucket(bytes),
            packets: bucket(packets),
        }
    }

    /// Takes other rates and bursts; the tokens stay as far as they fit.
    pub fn change(&mut self, config: IngressPolicerConfig, now: Nanos) {
        let new = IngressPolicer::new(config);
        let keep = |old: &mut Option<Bucket>, new: Option<Bucket>, rate, depth| match (old.as_mut(), new) {
            (Some(bucket), Some(_)) => bucket.change(rate, depth, now),
            (_, new) => *old = new,
        };
        keep(&mut self.bytes, new.bytes, config.kbits * 125, config.burst * 125);
        keep(
            &mut self.packets,
            new.packets,
            config.kpkts * 1_000,
            config.packets_burst * 1_000,
        );
    }

    /// Whether a packet with these frames and bytes may pass; if so, takes its tokens.
    #[inline]
    pub fn pass(&mut self, bytes: u32, segments: u32, now: Nanos) -> bool {
        let wanted = [
            (&mut self.bytes, u64::from(bytes)),
            (&mut self.packets, u64::from(segments)),
        ];
        let mut pass = true;
        for (bucket, tokens) in wanted {
            if let Some(bucket) = bucket {
                bucket.fill(now);
                pass &= bucket.has(tokens);
            }
        }
        if pass {
            self.bytes.iter_mut().for_each(|bucket| bucket.take(u64::from(bytes)));
            self.packets
                .iter_mut()
                .for_each(|bucket| bucket.take(u64::from(segments)));
        }
        pass
    }
}
