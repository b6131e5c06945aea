//! Balancing: buckets move from the member that carries most to the one that carries least.
//!
//! Hysteresis: nothing moves while the difference is small (3 % of the lesser load, or 1 Mbit/s), a
//! bucket moves only if it makes the difference a good deal less, and old load counts half at each
//! interval, so that a burst does not move traffic to and fro.

use super::{Bond, Event};
use nanos::Nanos;
use std::collections::BTreeMap;

/// A difference below this part of the lesser load is no imbalance.
const RELATIVE: u64 = 32;
/// Nor is one below so many bytes in a second.
const ABSOLUTE: u64 = 10_000;
/// Buckets that move in one interval at most.
const MOST_MOVES: usize = 64;

impl Bond {
    /// Moves buckets, and sets when that is done next.
    pub(super) fn rebalance(&mut self, now: Nanos) {
        let Some(interval) = self.config.rebalance else {
            self.rebalance_at = Nanos::MAX;
            return;
        };
        self.rebalance_at = now + interval;
        if self.is_balanced() {
            let least = ABSOLUTE * interval.as_secs().max(1);
            for _ in 0..MOST_MOVES {
                if !self.shift(least) {
                    break;
                }
            }
        }
        for bucket in &mut self.buckets {
            bucket.load /= 2;
        }
    }

    /// What each enabled member carries.
    pub(super) fn loads(&self) -> BTreeMap<&str, u64> {
        let enabled = self.members.iter().filter(|(_, member)| member.enabled);
        let mut loads: BTreeMap<&str, u64> = enabled.map(|(name, _)| (name.as_str(), 0)).collect();
        for bucket in &self.buckets {
            if let Some(load) = bucket.member.as_deref().and_then(|name| loads.get_mut(name)) {
                *load += bucket.load;
            }
        }
        loads
    }

    /// Moves one bucket, if that is worth it.
    fn shift(&mut self, least: u64) -> bool {
        let loads = self.loads();
        let most = loads.iter().max_by_key(|(_, load)| **load);
        let fewest = loads.iter().min_by_key(|(_, load)| **load);
        let (Some((from, high)), Some((to, low))) = (most, fewest) else {
            return false;
        };
        let (from, to, high, low) = ((*from).to_owned(), (*to).to_owned(), *high, *low);
        let gap = high - low;
        if gap < low / RELATIVE || gap < least {
            return false;
        }
        let left = |load: u64| gap.abs_diff(2 * load);
        let own = self.buckets.iter().enumerate();
        let own = own.filter(|(_, bucket)| bucket.member.as_deref() == Some(&from) && bucket.load > 0);
        let best = own.map(|(at, bucket)| (left(bucket.load), at, bucket.load)).min();
        let Some((_, at, load)) = best.filter(|(left, ..)| *left <= gap - gap / 10) else {
            return false;
        };
        self.buckets[at].member = Some(to.clone());
        self.note(Event::Shift {
            bucket: at as u8,
            load,
            from: (from, high - load),
            to: (to, low + load),
        });
        true
    }
}
