//! How rules end by themselves: timeouts, and making room.

use super::{FlowTables, Overflow, Removed, RuleRef};
use openflow::OfError;
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

impl FlowTables {
    /// Takes out the rules whose time is over, in the order of their ends.
    pub fn tick(&mut self, now: Nanos) -> Vec<Removed> {
        let mut removed = Vec::new();
        while let Some((due, at)) = self.queue.first().copied().filter(|(due, _)| *due <= now) {
            self.queue.remove(&(due, at));
            let Some((ended, end)) = self.rule(at).map(|rule| (rule.ended(now), rule.end())) else {
                continue;
            };
            match (ended, end) {
                (Some(reason), _) => removed.extend(self.take(at, reason, now)),
                (None, Some(end)) => self.queue_at(at, end),
                (None, None) => {}
            }
        }
        removed
    }

    /// Lets a rule end sooner: after so many seconds without packets, and in all, where that is not 0 and less than it has.
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
        self.queue.first().map(|(due, _)| *due)
    }

    /// Gives a rule that has no place in the queue one.
    pub(super) fn queue_at(&mut self, at: RuleRef, due: Nanos) {
        self.queue.insert((due, at));
        self.requeued(at, Some(due));
    }

    /// Notes where a rule is in the queue.
    fn requeued(&mut self, at: RuleRef, due: Option<Nanos>) {
        let Some(table) = self
            .tables
            .get_mut(usize::from(at.table))
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        let Some(rule) = table.rules.get_mut(at.id) else { return };
        let before = rule.rank(at.id);
        rule.queued = due;
        if table.overflow == Overflow::Evict {
            let after = rule.rank(at.id);
            table.evictable.remove(&before);
            table.evictable.insert(after);
        }
    }

    /// Makes room in a table for one more rule.
    pub(super) fn make_room(&mut self, table: u8, now: Nanos, removed: &mut Vec<Removed>) -> Result<(), OfError> {
        loop {
            let Some(there) = self.table(table) else { return Ok(()) };
            if there.limit.is_none_or(|limit| there.rules.len() < limit) {
                return Ok(());
            }
            // A rule that never ends and may not be evicted is the last of all; a table of none but the newcomer has nothing to give.
            let (_, _, id) = *there.evictable.first().ok_or(OfError::FmfcTableFull)?;
            let gone = self.take(RuleRef { table, id }, Reason::Eviction, now);
            removed.push(gone.ok_or(OfError::FmfcTableFull)?);
        }
    }
}
