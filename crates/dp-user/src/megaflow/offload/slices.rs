//! What is to be done with many shortcuts, in slices: a worker does one each turn, and packets come
//! between.

use super::super::FlowTable;
use super::{Books, PAUSE, Shortcuts, news};
use dp::Credit;
use dp::offload::{MAX_FLOWS, OffloadedFlow};
use std::sync::Arc;
use std::time::Duration;
use wire::Nanos;

/// A shortcut that carries nothing for so long is closed; while more than half of all that there
/// can be are in use, the shorter time.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_AMONG_MANY: Duration = Duration::from_secs(1);

/// How long after it was stopped a shortcut is closed: packets that were let through just before
/// have been counted then.
pub(super) const GRACE: Duration = Duration::from_millis(1);

/// Looked at in a slice; for each the kernel's counters are read.
const LOOK: u32 = 256;

/// Stopped in a slice.
const STOP: usize = 32;

/// Closed in a slice; each is a call of the kernel.
const CLOSE: usize = 32;

/// How many shortcuts of a port are looked at to find one that was not used for long.
const SAMPLES: usize = 8;

/// A shortcut that is stopped.
pub(super) struct Closing {
    shortcut: OffloadedFlow,
    /// Packets and bytes that have been reported.
    told: (u64, u64),
    credits: Arc<[Credit]>,
    since: Nanos,
}

impl Closing {
    pub(super) fn new(shortcut: OffloadedFlow, told: (u64, u64), credits: Arc<[Credit]>, since: Nanos) -> Closing {
        Closing {
            shortcut,
            told,
            credits,
            since,
        }
    }
}

/// A look at all shortcuts for those that can no longer be renewed.
#[derive(Default)]
pub(super) struct Review {
    next: u32,
    /// How many places are still to be looked at.
    left: usize,
}

impl Review {
    /// Has so many places, all that there are, looked at from now on.
    pub(super) fn begin(&mut self, places: usize) {
        self.left = places;
    }
}

impl Shortcuts {
    /// Stops some of those whose megaflows have gone.
    fn stop_retired(&mut self, most: usize, books: &mut Books<'_>, now: Nanos) -> usize {
        let mut stopped = 0;
        while stopped < most
            && let Some(&group) = self.retired.last()
        {
            match self.group(group).and_then(|group| group.places.last().copied()) {
                Some(place) => {
                    self.stop(place, books, now);
                    stopped += 1;
                }
                None => {
                    self.retired.pop();
                    self.forget_group(group);
                }
            }
        }
        stopped
    }

    /// Looks at some for those that can no longer be renewed, and stops these.
    fn review(&mut self, most: usize, books: &mut Books<'_>, now: Nanos) {
        let mut stopped = 0;
        for _ in 0..LOOK {
            if self.review.left == 0 || stopped == most {
                return;
            }
            self.review.left -= 1;
            let place = self.review.next % self.open.len().max(1) as u32;
            self.review.next = place + 1;
            let open = self.open.get(place as usize).and_then(Option::as_ref);
            if open.is_some_and(|open| self.is_stale(open)) {
                self.stop(place, books, now);
                stopped += 1;
            }
        }
    }

    /// Closes some of those that were stopped a while ago.
    fn close(&mut self, books: &mut Books<'_>, now: Nanos) {
        for _ in 0..CLOSE {
            if self.closing.front().is_none_or(|closing| closing.since + GRACE > now) {
                return;
            }
            let Some(mut closing) = self.closing.pop_front() else {
                return;
            };
            if let Some(news) = news(&closing.shortcut, &mut closing.told) {
                books.credit(&closing.credits, news);
            }
            self.by_key.remove(closing.shortcut.kind());
        }
    }

    /// Forgets what some groups depended on.
    fn release(&mut self) {
        let Some(deps) = &self.deps else { return };
        for _ in 0..STOP {
            match self.released.last() {
                Some(watched) if deps.try_unwatch(watched) => drop(self.released.pop()),
                _ => return,
            }
        }
    }

    /// When there is more to do, if ever.
    fn due(&self, now: Nanos) -> Option<Nanos> {
        if !self.retired.is_empty() || !self.released.is_empty() || self.review.left > 0 {
            return Some(Nanos::ZERO);
        }
        let due = self.closing.front()?.since + GRACE;
        Some(if due <= now { Nanos::ZERO } else { due })
    }
}

impl FlowTable {
    /// Stops a few shortcuts that have to go, and closes a few that were stopped. Returns when it
    /// wants to be called again, if ever.
    pub(crate) fn tidy_shortcuts(&mut self, now: Nanos) -> Option<Nanos> {
        self.give_way(now);
        let (shortcuts, mut books) = self.books();
        let stopped = shortcuts.stop_retired(STOP, &mut books, now);
        shortcuts.review(STOP - stopped, &mut books, now);
        shortcuts.close(&mut books, now);
        shortcuts.release();
        shortcuts.due(now)
    }

    pub(super) fn stop_shortcut(&mut self, place: u32, now: Nanos) {
        let (shortcuts, mut books) = self.books();
        shortcuts.stop(place, &mut books, now);
    }

    /// Tells megaflows what some shortcuts have carried for them, from the place `first` on;
    /// returns the place to go on from.
    pub(crate) fn tell_carried(&mut self, first: u32) -> Option<u32> {
        let (shortcuts, mut books) = self.books();
        let (end, next) = slice(first, shortcuts.open.len());
        for place in first..end {
            shortcuts.tell(place, &mut books);
        }
        next
    }

    /// Begins to look at all shortcuts.
    pub(in super::super) fn begin_ageing(&mut self) {
        self.shortcuts.ageing = self.shortcuts.any().then_some(0);
    }

    /// Tells megaflows what some shortcuts have carried for them, and stops those that carry
    /// nothing; `false` when all have been looked at.
    pub(in super::super) fn age_shortcuts(&mut self, now: Nanos) -> bool {
        let (shortcuts, mut books) = self.books();
        let Some(first) = shortcuts.ageing else {
            return false;
        };
        let left = shortcuts.deps.as_ref().map_or(MAX_FLOWS, |deps| deps.table().left());
        let idle = if left < MAX_FLOWS / 2 { IDLE_AMONG_MANY } else { IDLE };
        let (end, mut next) = slice(first, shortcuts.open.len());
        let mut stopped = 0;
        for place in first..end {
            if stopped == STOP {
                next = Some(place);
                break;
            }
            shortcuts.tell(place, &mut books);
            let open = shortcuts.open[place as usize].as_ref();
            if open.is_some_and(|open| now.since(open.used) >= idle) {
                shortcuts.stop(place, &mut books, now);
                stopped += 1;
            }
        }
        shortcuts.ageing = next;
        true
    }

    /// Stops some shortcuts of ports that have more than their share, while few are left: of a few
    /// taken at random, the one used longest ago.
    fn give_way(&mut self, now: Nanos) {
        let shortcuts = &mut self.shortcuts;
        let Some(deps) = &shortcuts.deps else { return };
        if !shortcuts.any() || !deps.table().is_short() || now.since(shortcuts.gave_way) < PAUSE {
            return;
        }
        shortcuts.gave_way = now;
        let surplus = |port| shortcuts.exits.get(port).map_or(0, |exit| exit.port.surplus());
        let most = shortcuts.by_port.keys().map(|port| (surplus(port), *port)).max();
        let Some((surplus, port)) = most else { return };
        for _ in 0..surplus.min(STOP as u32) {
            let mut victim = None;
            for _ in 0..SAMPLES {
                let random = self.next_random();
                let Some(places) = self.shortcuts.by_port.get(&port) else {
                    return;
                };
                let place = places[(random % places.len() as u64) as usize];
                let open = self.shortcuts.open[place as usize].as_ref();
                let used = open.map_or(Nanos::ZERO, |open| open.used.max(open.shortcut.carried().used));
                if victim.is_none_or(|(oldest, _)| used < oldest) {
                    victim = Some((used, place));
                }
            }
            if let Some((_, place)) = victim {
                self.shortcuts.tally.gave_way += 1;
                self.stop_shortcut(place, now);
            }
        }
    }

    fn books(&mut self) -> (&mut Shortcuts, Books<'_>) {
        let books = Books {
            storage: &mut self.storage,
            credits: &mut self.credits,
        };
        (&mut self.shortcuts, books)
    }
}

/// The end of a slice of so many places that begins at `first`, and where the next begins.
fn slice(first: u32, places: usize) -> (u32, Option<u32>) {
    let end = (first + LOOK).min(places as u32);
    (end, ((end as usize) < places).then_some(end))
}
