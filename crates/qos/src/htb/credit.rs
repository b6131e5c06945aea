//! The credit of a class: its tokens and ceiling tokens, in picoseconds at its rates.

use crate::units::Pace;
use crate::{Nanos, Rate};

/// Limit of waiting times and of buckets (28 hours).
const LONGEST: i64 = 100_000_000_000_000_000;

/// The mode of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Send on its own.
    Green,
    /// Send what its parent lends.
    Yellow,
    /// Wait.
    Red,
}

/// The rate that a class is sure of and that which it can come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) own: Rate,
    pub(crate) ceil: Rate,
}

#[derive(Clone, Debug)]
pub(crate) struct Credit {
    at: Nanos,
    tokens: i64,
    ceil_tokens: i64,
    depth: i64,
    ceil_depth: i64,
    pace: Pace,
    ceil_pace: Pace,
}

impl Credit {
    /// Full buckets.
    pub(crate) fn new(rates: Rates, depth: i64, ceil_depth: i64) -> Credit {
        Credit {
            at: Nanos(0),
            tokens: depth,
            ceil_tokens: ceil_depth,
            depth,
            ceil_depth,
            pace: rates.own.pace(),
            ceil_pace: rates.ceil.pace(),
        }
    }

    /// Takes over the bytes of another's buckets, as far as there is room.
    pub(crate) fn inherit(&mut self, to: Rates, other: &Credit, from: Rates) {
        let scaled = |tokens: i64, from: Rate, to: Rate| {
            let scaled =
                i128::from(tokens) * i128::from(from.bits_per_second()) / i128::from(to.bits_per_second().max(1));
            scaled.clamp(i128::from(-LONGEST), i128::from(LONGEST)) as i64
        };
        self.tokens = scaled(other.tokens, from.own, to.own).min(self.depth);
        self.ceil_tokens = scaled(other.ceil_tokens, from.ceil, to.ceil).min(self.ceil_depth);
        self.at = other.at;
    }

    /// In how many picoseconds a class without a lender can send.
    pub(crate) fn until_ceiling(&self, now: Nanos) -> i64 {
        let passed = now.since(self.at).picos_up_to(LONGEST);
        (-(self.ceil_tokens + passed)).max(0)
    }

    /// Its mode, and in how many picoseconds it improves.
    #[inline]
    pub(crate) fn state(&self, now: Nanos) -> (Mode, i64) {
        let passed = now.since(self.at).picos_up_to(LONGEST);
        mode(self.tokens + passed, self.ceil_tokens + passed)
    }

    /// Charges a packet to rate and ceiling, or (`lent`) to the ceiling only. Returns the new
    /// [`Credit::state`].
    #[inline]
    pub(crate) fn charge(&mut self, bytes: u32, lent: bool, now: Nanos) -> (Mode, i64) {
        let passed = now.since(self.at).picos_up_to(LONGEST);
        // The payer changes from packet to packet, which a branch could not predict; so this is a
        // mask.
        let own = self.pace.picos(bytes) & (i64::from(lent) - 1);
        self.at = self.at.max(now);
        self.tokens = ((self.tokens + passed).min(self.depth) - own).max(-LONGEST);
        self.ceil_tokens =
            ((self.ceil_tokens + passed).min(self.ceil_depth) - self.ceil_pace.picos(bytes)).max(-LONGEST);
        mode(self.tokens, self.ceil_tokens)
    }

    /// As [`Credit::charge`] for a class without a lender. Returns in how many picoseconds it can
    /// send again.
    #[inline]
    pub(crate) fn charge_ceiling(&mut self, bytes: u32, now: Nanos) -> i64 {
        let passed = now.since(self.at).picos_up_to(LONGEST);
        self.at = self.at.max(now);
        let tokens = ((self.ceil_tokens + passed).min(self.ceil_depth) - self.ceil_pace.picos(bytes)).max(-LONGEST);
        self.ceil_tokens = tokens;
        (-tokens).max(0)
    }
}

/// The mode of a class with these tokens, and in how many picoseconds it improves.
#[inline]
fn mode(tokens: i64, ceil_tokens: i64) -> (Mode, i64) {
    if ceil_tokens < 0 {
        (Mode::Red, -ceil_tokens)
    } else if tokens < 0 {
        (Mode::Yellow, -tokens)
    } else {
        (Mode::Green, 0)
    }
}
