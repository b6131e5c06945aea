//! Work on many offloaded flows, in slices: a worker does one each turn, and carries packets
//! between.

use super::super::FlowTable;
use super::{Books, OffloadedFlows, PAUSE, Way, counted, news};
use dp::Credit;
use dp::offload::{MAX_FLOWS, OffloadedFlow};
use nanos::Nanos;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Idle timeout of an offloaded flow; the shorter one while more than half of all places are in
/// use.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_AMONG_MANY: Duration = Duration::from_secs(1);

/// Time between stopping and closing an offloaded flow: packets that passed just before have been
/// counted by then.
pub(super) const GRACE: Duration = Duration::from_millis(1);

/// Looked at in a slice; for each the kernel's counters are read.
const LOOK: u32 = 256;

/// Stopped in a slice.
const STOP: usize = 32;

/// Closed in a slice; each is a call of the kernel.
const CLOSE: usize = 32;

/// Number of offloaded flows of a port sampled to find one that was not used for long.
const SAMPLES: usize = 8;

/// An offloaded flow that is stopped.
pub(super) struct Closing {
    flow: OffloadedFlow,
    /// Packets and bytes that have been reported.
    told: (u64, u64),
    /// Where packets are counted, and how many bytes of each are not.
    credits: Credits,
    since: Nanos,
    /// Its connections stay open until it is closed.
    _way: Option<Arc<Way>>,
}

type Credits = SmallVec<[(Arc<[Credit]>, u32); 1]>;

impl Closing {
    pub(super) fn new(
        flow: OffloadedFlow,
        told: (u64, u64),
        credits: Credits,
        since: Nanos,
        way: Option<Arc<Way>>,
    ) -> Closing {
        Closing {
            flow,
            told,
            credits,
            since,
            _way: way,
        }
    }
}

/// A pass over all offloaded flows for those that can no longer be resumed.
#[derive(Default)]
pub(super) struct Review {
    next: u32,
    /// Number of places left to check.
    left: usize,
}

impl Review {
    /// Begins a pass over so many places, all that exist.
    pub(super) fn begin(&mut self, places: usize) {
        self.left = places;
    }
}

impl OffloadedFlows {
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

    /// Checks some places, and stops the offloaded flows that can no longer be resumed.
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
            if let Some(news) = news(&closing.flow, &mut closing.told) {
                for (credits, uncounted) in &closing.credits {
                    books.credit(credits, counted(news, *uncounted));
                }
            }
            self.by_kind.remove(closing.flow.kind());
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

    /// When more work is due, if ever.
    fn due(&self, now: Nanos) -> Option<Nanos> {
        if !self.retired.is_empty() || !self.released.is_empty() || self.review.left > 0 {
            return Some(Nanos::ZERO);
        }
        let due = self.closing.front()?.since + GRACE;
        Some(if due <= now { Nanos::ZERO } else { due })
    }
}

impl FlowTable {
    /// Stops a few offloaded flows that have to go, and closes a few that were stopped. Returns
    /// when it wants to be called again, if ever.
    pub(crate) fn tidy_offloaded(&mut self, now: Nanos) -> Option<Nanos> {
        self.give_way(now);
        let (offloaded, mut books) = self.books();
        let stopped = offloaded.stop_retired(STOP, &mut books, now);
        offloaded.review(STOP - stopped, &mut books, now);
        offloaded.close(&mut books, now);
        offloaded.release();
        offloaded.due(now)
    }

    pub(super) fn stop_offloaded_flow(&mut self, place: u32, now: Nanos) {
        let (offloaded, mut books) = self.books();
        offloaded.stop(place, &mut books, now);
    }

    /// Adds the counters of some offloaded flows to their megaflows, from the place `first` on;
    /// returns the place to go on from.
    pub(crate) fn tell_carried(&mut self, first: u32) -> Option<u32> {
        let (offloaded, mut books) = self.books();
        let (end, next) = slice(first, offloaded.open.len());
        for place in first..end {
            offloaded.tell(place, &mut books);
        }
        next
    }

    /// Begins to look at all offloaded flows.
    pub(in super::super) fn begin_ageing(&mut self) {
        self.offloaded.ageing = self.offloaded.any().then_some(0);
    }

    /// Adds the counters of some offloaded flows to their megaflows, and stops idle ones; returns
    /// `false` at the end of the pass.
    pub(in super::super) fn age_offloaded(&mut self, now: Nanos) -> bool {
        let (offloaded, mut books) = self.books();
        let Some(first) = offloaded.ageing else {
            return false;
        };
        let left = offloaded.deps.as_ref().map_or(MAX_FLOWS, |deps| deps.table().left());
        let idle = if left < MAX_FLOWS / 2 { IDLE_AMONG_MANY } else { IDLE };
        let (end, mut next) = slice(first, offloaded.open.len());
        let mut stopped = 0;
        for place in first..end {
            if stopped == STOP {
                next = Some(place);
                break;
            }
            offloaded.tell(place, &mut books);
            let open = offloaded.open[place as usize].as_ref();
            if open.is_some_and(|open| now.since(open.used) >= idle) {
                offloaded.stop(place, &mut books, now);
                stopped += 1;
            }
        }
        offloaded.ageing = next;
        true
    }

    /// Stops some offloaded flows of ports that exceed their share, while few are free: of a few
    /// random ones, the one used longest ago.
    fn give_way(&mut self, now: Nanos) {
        let offloaded = &mut self.offloaded;
        let Some(deps) = &offloaded.deps else { return };
        if !offloaded.any() || !deps.table().is_short() || now.since(offloaded.gave_way) < PAUSE {
            return;
        }
        offloaded.gave_way = now;
        let surplus = |port| offloaded.ports.get(port).map_or(0, |port| port.port.surplus());
        let most = offloaded.by_port.keys().map(|port| (surplus(port), *port)).max();
        let Some((surplus, port)) = most else { return };
        for _ in 0..surplus.min(STOP as u32) {
            let mut victim = None;
            for _ in 0..SAMPLES {
                let random = self.next_random();
                let Some(places) = self.offloaded.by_port.get(&port) else {
                    return;
                };
                let place = places[(random % places.len() as u64) as usize];
                let open = self.offloaded.open[place as usize].as_ref();
                let used = open.map_or(Nanos::ZERO, |open| open.used.max(open.flow.carried().used));
                if victim.is_none_or(|(oldest, _)| used < oldest) {
                    victim = Some((used, place));
                }
            }
            if let Some((_, place)) = victim {
                self.offloaded.tally.gave_way += 1;
                self.stop_offloaded_flow(place, now);
            }
        }
    }

    fn books(&mut self) -> (&mut OffloadedFlows, Books<'_>) {
        let books = Books {
            storage: &mut self.storage,
            credits: &mut self.credits,
        };
        (&mut self.offloaded, books)
    }
}

/// The end of a slice of `places` places that begins at `first`, and the start of the next.
fn slice(first: u32, places: usize) -> (u32, Option<u32>) {
    let end = (first + LOOK).min(places as u32);
    (end, ((end as usize) < places).then_some(end))
}
