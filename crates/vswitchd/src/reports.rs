//! Reports of workers that arrive while the switch's tables are locked. The next holder of the lock
//! applies them, so that no packet waits.

use dp::{Carried, Change, Credit, Effect};
use nanos::Nanos;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use switch::Switch;

/// Maximum number of reports of each kind applied under one lock.
const AT_ONCE: usize = 1024;

/// Maximum number of different waiting reports of each kind.
const MOST: usize = 1 << 18;

telemetry::counters! {
    /// Counters of a rule dropped because the backlog is full.
    CREDIT_DROPPED = "report_credit_dropped";
    /// MAC refreshes dropped because the backlog is full.
    EFFECT_DROPPED = "report_effect_dropped";
}

/// Waiting reports. Equal reports are merged, so that their number does not grow with the number of
/// packets.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<Waiting>,
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    credits: BTreeMap<Credit, Carried>,
    /// In the order of their last reports, because the order in which packets change rules matters.
    effects: BTreeMap<u64, Effect>,
    /// The index of each effect.
    places: HashMap<Effect, u64>,
    next_place: u64,
}

impl Reports {
    /// Queues credits.
    pub(crate) fn keep_credits(&self, credits: &[(Credit, Carried)]) {
        let mut waiting = self.waiting.lock();
        for (credit, carried) in credits {
            let is_full = waiting.credits.len() >= MOST;
            match waiting.credits.get_mut(credit) {
                Some(before) => *before = before.and(*carried),
                None if is_full => CREDIT_DROPPED.inc(),
                None => drop(waiting.credits.insert(*credit, *carried)),
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// Queues effects.
    pub(crate) fn keep_effects(&self, effects: &[Effect]) {
        let mut waiting = self.waiting.lock();
        for effect in effects {
            if waiting.effects.len() >= MOST && !waiting.places.contains_key(effect) {
                EFFECT_DROPPED.inc();
                continue;
            }
            let place = waiting.next_place;
            waiting.next_place += 1;
            if let Some(before) = waiting.places.insert(*effect, place) {
                waiting.effects.remove(&before);
            }
            waiting.effects.insert(place, *effect);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether reports are waiting.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Applies a limited number of waiting reports, the oldest first. Returns what changed.
    pub(crate) fn apply(&self, switch: &mut Switch, now: Nanos) -> Vec<Change> {
        if !self.any() {
            return Vec::new();
        }
        let (credits, effects) = {
            let mut waiting = self.waiting.lock();
            let next = |_| waiting.credits.pop_first();
            let credits: Vec<_> = (0..AT_ONCE).map_while(next).collect();
            let next = |_| waiting.effects.pop_first().map(|(_, effect)| effect);
            let effects: Vec<_> = (0..AT_ONCE).map_while(next).collect();
            for effect in &effects {
                waiting.places.remove(effect);
            }
            if waiting.is_empty() {
                *waiting = Waiting::default();
            }
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
        };
        let station = |n: u32| {
            let [_, a, b, c] = n.to_be_bytes();
            match seen {
                Effect::Learn { bridge, vlan, port, .. } => Effect::Learn {
                    bridge,
                    vlan,
                    mac: MacAddr([2, 0, 0, a, b, c]),
                    port,
                },
                context => context,
            }
        };
        let stations: Vec<Effect> = (0..2 * AT_ONCE as u32 + 1).map(station).collect();
        reports.keep_effects(&stations);
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

    #[test]
    fn an_effect_that_is_reported_again_comes_after_those_reported_meanwhile() {
        let reports = Reports::default();
        let [one, other] = [1, 2].map(Effect::Context);
        reports.keep_effects(&[one, other]);
        reports.keep_effects(&[one]);
        let waiting = reports.waiting.lock();
        assert!(waiting.effects.values().eq([&other, &one]));
    }

    #[test]
    fn reports_do_not_grow_with_the_number_of_packets() {
        let reports = Reports::default();
        let carried = Carried {
            packets: 1,
            bytes: 60,
            used: Nanos::ZERO,
        };
        for n in 0..3 * MOST as u128 {
            reports.keep_credits(&[(Credit(n % 10), carried)]);
            reports.keep_effects(&[Effect::Context(n as u32 % 10)]);
        }
        let counted = |reports: &Reports| {
            let waiting = reports.waiting.lock();
            (waiting.credits.len(), waiting.effects.len())
        };
        assert_eq!(counted(&reports), (10, 10));
        let packets: u64 = reports.waiting.lock().credits.values().map(|c| c.packets).sum();
        assert_eq!(packets, 3 * MOST as u64, "none is lost");
        for n in 0..2 * MOST as u32 {
            reports.keep_credits(&[(Credit(n.into()), carried)]);
            reports.keep_effects(&[Effect::Context(n)]);
        }
        assert_eq!(counted(&reports), (MOST, MOST));
        assert!(CREDIT_DROPPED.total() > 0 && EFFECT_DROPPED.total() > 0);
    }
}
