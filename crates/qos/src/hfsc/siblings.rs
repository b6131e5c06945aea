//! The children of a class that compete for its service: finds the first in virtual time among
//! those whose upper limit lets them send.

use crate::tournament::Tournament;

/// Active children, by their ordinal among all. Each is either ready, or held by its upper limit or
/// that of all its own children.
#[derive(Debug)]
pub(crate) struct Siblings {
    /// By virtual time.
    ready: Tournament,
    /// By the time from which they may send.
    held: Tournament,
    /// All, by falling virtual time.
    latest: Tournament,
    pub(crate) active: u32,
    /// The virtual time of the child chosen last: a child that was held comes back no earlier.
    pub(crate) floor: u64,
    /// The greatest virtual time of a child when it became idle: the next busy period starts there.
    offset: u64,
}

impl Siblings {
    pub(crate) fn new(children: usize) -> Siblings {
        Siblings {
            ready: Tournament::new(children),
            held: Tournament::new(children),
            latest: Tournament::new(children),
            active: 0,
            floor: 0,
            offset: 0,
        }
    }

    /// The virtual time of the class, where a newly active child starts. Half-way between the first
    /// and the last, so that no child gets ahead of another by more than a constant, whatever their
    /// number (section 5 of the paper).
    pub(crate) fn time(&self) -> u64 {
        match self.latest.first() {
            Some((key, _)) => self.floor + (!key).saturating_sub(self.floor) / 2,
            None => self.offset,
        }
    }

    /// A child becomes active.
    pub(crate) fn join(&mut self) {
        if self.active == 0 {
            self.floor = self.offset;
        }
        self.active += 1;
    }

    /// Gives a child its virtual time, and the time from which it may send. `held` says whether it
    /// is held now; the caller keeps track of it, so only the right list is searched.
    #[inline]
    pub(crate) fn set(&mut self, child: u32, held: &mut bool, virtual_time: u64, from: u64, now: u64) {
        self.latest.set(child, !virtual_time);
        self.hold(child, held, virtual_time, from, now);
    }

    #[inline]
    pub(crate) fn hold(&mut self, child: u32, held: &mut bool, virtual_time: u64, from: u64, now: u64) {
        if from <= now {
            if std::mem::take(held) {
                self.held.remove(child);
            }
            self.ready.set(child, virtual_time);
        } else {
            if !std::mem::replace(held, true) {
                self.ready.remove(child);
            }
            self.held.set(child, from);
        }
    }

    /// A child has no packets any more.
    pub(crate) fn leave(&mut self, child: u32, held: &mut bool, virtual_time: u64) {
        if std::mem::take(held) {
            self.held.remove(child);
        } else {
            self.ready.remove(child);
        }
        self.latest.remove(child);
        self.active -= 1;
        self.offset = self.offset.max(virtual_time);
    }

    /// A child whose time to send has come.
    #[inline]
    pub(crate) fn due(&self, now: u64) -> Option<u32> {
        self.held
            .first()
            .filter(|(from, _)| *from <= now)
            .map(|(_, child)| child)
    }

    /// The first in virtual time of those that may send.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.ready.first()
    }

    /// Usually the next one after the first.
    #[inline]
    pub(crate) fn second(&self) -> u32 {
        self.ready.second()
    }

    /// When one of them may send: 0 if one may, `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn from(&self) -> u64 {
        match (self.ready.first(), self.held.first()) {
            (Some(_), _) => 0,
            (None, Some((from, _))) => from,
            (None, None) => u64::MAX,
        }
    }
}
