//! Timeouts of rules.

use super::update::{Log, TableEvent};
use super::{FlowTables, Removed, RuleRef};
use nanos::Nanos;

/// Why a rule was removed, as messages number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Its idle timeout: no packet came.
    IdleTimeout = 0,
    /// Its hard timeout.
    HardTimeout = 1,
    /// A controller deleted it.
    Delete = 2,
    /// Its group was deleted.
    GroupDelete = 3,
    /// Its meter was deleted.
    MeterDelete = 4,
    /// It was evicted.
    Eviction = 5,
}

/// Most rules that expire in one call, which then holds the lock of the tables for about a
/// millisecond.
const AT_ONCE: usize = 2048;

impl FlowTables {
    /// Removes expired rules in the order of their expiry. It removes a few thousand at most, so
    /// the next call may be due at once.
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

    /// As [`FlowTables::tick`], with a log for the events.
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

    /// Shortens a rule's timeouts: idle and hard, if the new one is not 0 and less than the old
    /// one.
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

    /// When [`FlowTables::tick`] is due; `None` if no rule has a timeout.
    pub fn next_event(&self) -> Option<Nanos> {
        if self.makers.has_orphans() {
            return Some(Nanos::ZERO);
        }
        self.queue.first().map(|(due, _)| *due)
    }

    /// Sets a rule's time in the expiry queue.
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
