//! What workers report while somebody has the switch's tables: it waits for who has them next, so that no packet does.

use dp::{Carried, Change, Credit, Effect};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use switch::Switch;
use wire::Nanos;

/// Reports of each kind that are worked on while the tables are locked once.
const AT_ONCE: usize = 1024;

/// Reports that wait.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<Waiting>,
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    credits: VecDeque<(Credit, Carried)>,
    effects: VecDeque<Effect>,
}

impl Reports {
    /// Lets credits wait.
    pub(crate) fn keep_credits(&self, credits: &[(Credit, Carried)]) {
        self.waiting.lock().credits.extend(credits);
        self.any.store(true, Ordering::Release);
    }

    /// Lets effects wait.
    pub(crate) fn keep_effects(&self, effects: &[Effect]) {
        self.waiting.lock().effects.extend(effects);
        self.any.store(true, Ordering::Release);
    }

    /// Whether something waits.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Applies what waits, the oldest first and not too much of it at once. What has changed by it.
    pub(crate) fn apply(&self, switch: &mut Switch, now: Nanos) -> Vec<Change> {
        if !self.any() {
            return Vec::new();
        }
        let (credits, effects) = {
            let mut waiting = self.waiting.lock();
            let few = |len: usize| len.min(AT_ONCE);
            let credits = few(waiting.credits.len());
            let credits: Vec<_> = waiting.credits.drain(..credits).collect();
            let effects = few(waiting.effects.len());
            let effects: Vec<_> = waiting.effects.drain(..effects).collect();
            self.any.store(!waiting.is_empty(), Ordering::Release);
            (credits, effects)
        };
        switch.credit_all(&credits);
        switch.apply_late(&effects, now)
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.credits.is_empty() && self.effects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{MacAddr, Vid};

    #[test]
    fn what_waits_is_applied_in_parts_and_all_of_it() {
        let reports = Reports::default();
        let mut switch = Switch::new(1);
        assert!(!reports.any());
        let seen = Effect::Learn {
            bridge: 1,
            vlan: Vid::NONE,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            port: 1,
            gratuitous_arp: false,
        };
        reports.keep_effects(&vec![seen; 2 * AT_ONCE + 1]);
        let carried = Carried {
            packets: 1,
            bytes: 60,
            used: Nanos::ZERO,
        };
        reports.keep_credits(&[(Credit(7), carried)]);
        for left in [true, true, false] {
            assert!(reports.any());
            assert_eq!(reports.apply(&mut switch, Nanos::ZERO), []);
            assert_eq!(reports.any(), left);
        }
    }
}
