//! How rules end by themselves.

use super::update::{Log, TableEvent};
use super::{FlowTables, Removed, RuleRef};
use wire::Nanos;

/// Why a rule went, as messages number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// No packet came for its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout passed.
    HardTimeout = 1,
    /// A controller took it out.
    Delete = 2,
    /// Its group was deleted.
    GroupDelete = 3,
    /// Its meter was deleted.
    MeterDelete = 4,
    /// It made room for another.
    Eviction = 5,
}

/// Most rules that end in one call: one who holds the tables meanwhile does so for about a
/// millisecond.
const AT_ONCE: usize = 2048;

impl FlowTables {
    /// Takes out rules whose time is over, in the order of their ends; not more than some
    /// thousands, so that the next call may be due at once.
    pub fn tick(&mut self, now: Nanos) -> Vec<Removed> {
        let mut log = Log {
            everything: true,
            ..self.log()
        };
        self.end_old(now, &mut log);
        let removed = log.events.into_iter().filter_map(|event| match event {
            TableEvent::Removed(removed) => Some(removed),
            _ => None,
        });
        removed.collect()
    }

    /// As [`FlowTables::tick`], noting what somebody hears of.
    pub(crate) fn end_old(&mut self, now: Nanos, log: &mut Log) {
        for _ in 0..AT_ONCE {
            let Some((due, at)) = self.queue.first().copied().filter(|(due, _)| *due <= now) else {
                return;
            };
            let Some((ended, end)) = self.rule(at).map(|rule| (rule.ended(now), rule.end())) else {
                self.queue.remove(&(due, at));
                continue;
            };
            match (ended, end) {
                (Some(reason), _) => {
                    self.end(at, reason, now, log);
                    self.watch_room(at.table, log);
                }
                (None, Some(end)) => self.queue_at(at, end),
                (None, None) => self.unqueue(at),
            }
        }
    }

    /// Lets a rule end sooner: after so many seconds without packets, and in all, where that is not
    /// 0 and less than it has.
    pub(crate) fn shorten(&mut self, at: RuleRef, idle: u16, hard: u16) {
        let there = self
            .tables
            .get_mut(usize::from(at.table))
            .and_then(Option::as_deref_mut);
        let Some(rule) = there.and_then(|table| table.rules.get_mut(at.id)) else {
            return;
        };
        for (most, own) in [(idle, &mut rule.idle_timeout), (hard, &mut rule.hard_timeout)] {
            if most != 0 && (*own == 0 || *own > most) {
                *own = most;
            }
        }
        let (queued, end) = (rule.queued, rule.end());
        if let Some(end) = end.filter(|end| queued.is_none_or(|queued| *end < queued)) {
            if let Some(queued) = queued {
                self.queue.remove(&(queued, at));
            }
            self.queue_at(at, end);
        }
    }

    /// When [`FlowTables::tick`] has something to do; `None` while no rule ends by itself.
    pub fn next_event(&self) -> Option<Nanos> {
        if self.makers.has_orphans() {
            return Some(Nanos::ZERO);
        }
        self.queue.first().map(|(due, _)| *due)
    }

    /// Gives a rule a place in the queue, in the place of any that it has.
    pub(super) fn queue_at(&mut self, at: RuleRef, due: Nanos) {
        self.unqueue(at);
        let Some(rule) = self.there(at.table).and_then(|table| table.rules.get_mut(at.id)) else {
            return;
        };
        rule.queued = Some(due);
        self.queue.insert((due, at));
        self.note_evictable(at, true);
    }

    fn unqueue(&mut self, at: RuleRef) {
        self.note_evictable(at, false);
        let rule = self.there(at.table).and_then(|table| table.rules.get_mut(at.id));
        if let Some(due) = rule.and_then(|rule| rule.queued.take()) {
            self.queue.remove(&(due, at));
        }
    }
}
