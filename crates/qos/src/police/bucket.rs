//! A token bucket that is exact: it holds units of 1/10^9 token, so that whole tokens a second fill
//! it without rounding.

use crate::Nanos;

const UNIT: u128 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: u64,
    depth: u128,
    level: u128,
    filled: Nanos,
}

impl Bucket {
    /// Full, of so many tokens, filled at so many a second.
    pub(crate) fn new(rate: u64, depth: u64) -> Bucket {
        let depth = u128::from(depth) * UNIT;
        Bucket {
            rate,
            depth,
            level: depth,
            filled: Nanos(0),
        }
    }

    /// Takes another rate and depth. The tokens stay as far as they fit.
    pub(crate) fn change(&mut self, rate: u64, depth: u64, now: Nanos) {
        self.fill(now);
        self.rate = rate;
        self.depth = u128::from(depth) * UNIT;
        self.level = self.level.min(self.depth);
    }

    #[inline]
    pub(crate) fn fill(&mut self, now: Nanos) {
        let time = now.since(self.filled);
        self.filled = self.filled.max(now);
        self.level = (self.level + u128::from(self.rate) * u128::from(time.0)).min(self.depth);
    }

    #[inline]
    pub(crate) fn has(&self, tokens: u64) -> bool {
        self.level >= u128::from(tokens) * UNIT
    }

    #[inline]
    pub(crate) fn take(&mut self, tokens: u64) {
        self.level = self.level.saturating_sub(u128::from(tokens) * UNIT);
    }
}
