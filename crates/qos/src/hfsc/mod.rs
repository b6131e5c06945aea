//! HFSC: classes with service curves, which set delay and rate independently.
//!
//! Source: I. Stoica, H. Zhang, T. S. E. Ng, "A Hierarchical Fair Service Curve Algorithm for
//! Link-Sharing, Real-Time and Priority Services", IEEE/ACM ToN 8(2), 2000. Upper-limit curves are
//! an addition of its first implementations (tc-hfsc(7)); keys as in ovs-vswitchd.conf.db(5).
//!
//! - **Real time.** Packets of a leaf with such a curve have an eligible time and a deadline. While
//!   packets are eligible, the one with the earliest deadline leaves, whatever the tree says. No
//!   deadline is missed by more than the time of one maximum packet, if the curves together stay
//!   below the link.
//! - **Link sharing.** Else, from the root down, the active child of least virtual time is chosen.
//!   Virtual time is the child's service counted by its link-share curve. It counts bytes served by
//!   either criterion; deadlines count only bytes served in real time, so a class is not punished
//!   for using excess bandwidth.
//! - **Upper limit.** A class takes part in link sharing only when its limit curve has reached its
//!   service. An unused limit is not saved up.
//!
//! Cost: for each class from leaf to root a few steps in the heaps of its siblings; for real time,
//! a few in two heaps of all such leaves.
//!
//! Invariant: a class with a link-share curve is in its parent's [`Siblings`] exactly while it or a
//! descendant has packets; a leaf with a real-time curve is in one of the heaps `early` (by
//! eligible time) and `eligible` (by deadline) exactly while it has packets.

mod config;
mod curve;
mod records;
mod siblings;

use crate::pool::NIL;
use crate::queues::Queues;
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::tournament::Tournament;
use crate::{ConfigError, Nanos, Packet, Rate, Stats};
pub use config::{HfscClass, HfscConfig};
pub use curve::Curve;
use curve::{Line, Running};
use records::{Bent, Class, Curves, Has, Kind, Timed};
use siblings::Siblings;

/// How much a late call can catch up on an upper limit.
const SLACK: u64 = 500_000;

/// From this many classes on, most of the data that a packet touches is in no near cache, and
/// prefetching the next leaves pays.
const LARGE: usize = 2_048;

/// Hierarchical fair service curves.
pub struct Hfsc<P> {
    queues: Queues<P>,
    classes: Vec<Class>,
    /// By class, up to the last with a real-time or an upper-limit curve.
    timed: Vec<Timed>,
    bent: Bent,
    curves: Vec<Curves>,
    siblings: Vec<Siblings>,
    /// Children of each entry of `siblings`.
    children: Vec<Vec<u32>>,
    early: Tournament,
    eligible: Tournament,
    limits: Vec<Option<Rate>>,
}

impl<P: Packet> Hfsc<P> {
    /// An empty one.
    ///
    /// # Errors
    /// As [`HfscConfig::new`].
    pub fn new(config: &HfscConfig) -> Result<Hfsc<P>, ConfigError> {
        let tree = config.tree()?;
        let count = tree.parents.len();
        let mut children: Vec<Vec<u32>> = Vec::new();
        let mut place = vec![NIL; count];
        for class in (0..count).filter(|class| !tree.is_leaf(*class)) {
            place[class] = children.len() as u32;
            children.push(Vec::new());
        }
        let mut classes = Vec::with_capacity(count);
        let mut curves = Vec::with_capacity(count);
        for class in 0..count {
            let spec = class.checked_sub(1).map(|n| &config.classes[n]);
            let parent = tree.parents[class];
            let mut ordinal = 0;
            if parent != NIL {
                let siblings = &mut children[place[parent as usize] as usize];
                ordinal = siblings.len() as u32;
                siblings.push(class as u32);
            }
            let own = Curves {
                rt: spec.and_then(|spec| spec.rt),
                ls: spec.and_then(|spec| spec.ls),
                ul: spec.map_or(Some(config.ul), |spec| spec.ul),
            };
            curves.push(own);
            classes.push(Class {
                parent,
                ordinal,
                siblings: place[class],
                active: false,
                has: Has::new(&own),
                held: false,
                served: 0,
                virtual_time: 0,
                limited_until: 0,
                ls: own.ls.as_ref().map_or_else(Line::default, Line::new),
            });
        }
        let timed = curves.iter().rposition(|own| own.rt.is_some() || own.ul.is_some());
        let timed = timed.map_or(0, |last| last + 1);
        Ok(Hfsc {
            queues: Queues::new(
                &tree,
                config.link,
                config.classes.iter().map(|class| (class.number, &class.leaf)),
            ),
            classes,
            timed: curves.iter().take(timed).map(Timed::new).collect(),
            bent: Bent::new(&curves),
            curves,
            siblings: children.iter().map(|children| Siblings::new(children.len())).collect(),
            children,
            early: Tournament::new(count),
            eligible: Tournament::new(count),
            limits: (0..count as u32)
                .map(|class| config.limit(&tree.parents, class))
                .collect(),
        })
    }

    /// Takes other classes and curves. Packets stay in the queue of their number with its counters,
    /// and the progress of its real-time and upper-limit curves as far as these stay the same;
    /// packets of removed queues go to queue 0. Drops only packets that do not fit into a new
    /// discipline.
    ///
    /// # Errors
    /// As [`HfscConfig::new`]; then nothing changes.
    pub fn change(&mut self, config: &HfscConfig, now: Nanos, dropped: &mut Dropped<'_, P>) -> Result<(), ConfigError> {
        let mut new = Hfsc::new(config)?;
        for class in 0..self.classes.len() {
            let to = if class == 0 {
                Some(0)
            } else {
                new.queues.class_of(self.queues.numbers[class])
            };
            let Some(to) = to.map(|to| to as usize).filter(|to| *to < new.classes.len()) else {
                continue;
            };
            let (old_curves, curves) = (self.curves[class], new.curves[to]);
            if curves.rt.is_some() && curves.rt == old_curves.rt {
                new.timed[to].deadline = self.timed[class].deadline.clone();
                new.timed[to].served = self.timed[class].served;
                new.bent.inherit(Kind::RealTime, to, &mut self.bent, class);
            }
            if curves.ul.is_some() && curves.ul == old_curves.ul {
                new.timed[to].ul = self.timed[class].ul.clone();
                new.bent.inherit(Kind::UpperLimit, to, &mut self.bent, class);
                let (heir, old) = (&mut new.classes[to], &self.classes[class]);
                heir.limited_until = old.limited_until;
                heir.served = old.served;
                if let Some(curve) = &curves.ls {
                    heir.ls = Line::begun(curve, 0, old.served);
                    if let Some(ls) = new.bent.get_mut(Kind::LinkShare, to as u32) {
                        *ls = Running::begun(curve, 0, old.served);
                    }
                }
            }
        }
        let leaf = |class: u32| &config.classes[class as usize - 1].leaf;
        new.queues.inherit(&mut self.queues, leaf, now, dropped);
        for class in new.queues.backlogged() {
            new.activate(class, now, dropped);
        }
        *self = new;
        Ok(())
    }

    /// A leaf becomes backlogged.
    #[inline(never)]
    fn activate(&mut self, at: u32, now: Nanos, dropped: &mut Dropped<'_, P>) {
        if let Some(curve) = self.curves[at as usize].rt {
            let Some(next) = self.queues.stage(at, now, dropped) else {
                return;
            };
            let timed = &mut self.timed[at as usize];
            let has = self.classes[at as usize].has;
            let mut deadline = self.bent.run(Kind::RealTime, at, has, &mut timed.deadline);
            deadline.restart(&curve, now.0, timed.served);
            timed.next = next;
            self.schedule(at, now);
        }
        self.classes[at as usize].active = true;
        if self.classes[at as usize].has.has(Kind::LinkShare) {
            self.join(at, now);
        }
    }

    /// A class with a link-share curve becomes active among its siblings, and its parent too if it
    /// is the first.
    fn join(&mut self, mut at: u32, now: Nanos) {
        loop {
            let from = self.children_from(at);
            let class = &mut self.classes[at as usize];
            let Some(parent) = usize::try_from(class.parent).ok().filter(|_| class.parent != NIL) else {
                return self.limit_root(now);
            };
            class.active = true;
            let place = class.parent;
            let ordinal = class.ordinal;
            let class_siblings = self.classes[parent].siblings as usize;
            let siblings = &mut self.siblings[class_siblings];
            let time = siblings.time();
            let first = siblings.active == 0;
            siblings.join();
            let class = &mut self.classes[at as usize];
            class.virtual_time = class.virtual_time.max(time);
            let curves = &self.curves[at as usize];
            if let Some(curve) = &curves.ls {
                let mut ls = self.bent.run(Kind::LinkShare, at, class.has, &mut class.ls);
                ls.restart(curve, class.virtual_time, class.served);
            }
            if let Some(curve) = &curves.ul {
                let line = &mut self.timed[at as usize].ul;
                let mut ul = self.bent.run(Kind::UpperLimit, at, class.has, line);
                ul.restart(curve, now.0, class.served);
                class.limited_until = ul.time_of(class.served);
            }
            let until = class.limited_until.max(from);
            siblings.set(ordinal, &mut class.held, class.virtual_time, until, now.0);
            if !first {
                return self.refit(place, now);
            }
            at = place;
        }
    }

    /// The port has something to share after a pause.
    fn limit_root(&mut self, now: Nanos) {
        let root = &mut self.classes[0];
        root.active = true;
        if let Some(curve) = &self.curves[0].ul {
            let line = &mut self.timed[0].ul;
            let mut ul = self.bent.run(Kind::UpperLimit, 0, root.has, line);
            ul.restart(curve, now.0, root.served);
            root.limited_until = root.limited_until.max(ul.time_of(root.served));
        }
    }

    /// When one of a class's children may send; 0 for leaves.
    #[inline]
    fn children_from(&self, class: u32) -> u64 {
        self.siblings
            .get(self.classes[class as usize].siblings as usize)
            .map_or(0, Siblings::from)
    }

    /// Updates the classes above after the send time of a child changed.
    fn refit(&mut self, mut at: u32, now: Nanos) {
        loop {
            let from = self.children_from(at);
            let Class { parent, active, .. } = self.classes[at as usize];
            if parent == NIL || !active {
                return;
            }
            let place = self.classes[parent as usize].siblings as usize;
            let class = &mut self.classes[at as usize];
            let from = from.max(class.limited_until);
            self.siblings[place].hold(class.ordinal, &mut class.held, class.virtual_time, from, now.0);
            at = parent;
        }
    }

    /// Updates everything from the leaf to the root after bytes were served, or after the leaf
    /// became empty.
    #[inline]
    fn serve(&mut self, leaf: u32, cost: u32, mut empty: bool, now: Nanos) {
        let mut at = leaf;
        loop {
            let from = self.children_from(at);
            let class = &mut self.classes[at as usize];
            class.served += u64::from(cost);
            if class.active
                && class.has.has(Kind::UpperLimit)
                && let Some(timed) = self.timed.get_mut(at as usize)
            {
                let mut ul = self.bent.run(Kind::UpperLimit, at, class.has, &mut timed.ul);
                class.limited_until = ul.time_of(class.served);
                let least = now.0.saturating_sub(SLACK);
                if class.limited_until < least {
                    ul.delay(least - class.limited_until);
                    class.limited_until = least;
                }
            }
            if class.parent == NIL {
                class.active &= !empty;
                return;
            }
            let (parent, ordinal) = (class.parent, class.ordinal);
            let until = class.limited_until.max(from);
            let place = self.classes[parent as usize].siblings as usize;
            let siblings = &mut self.siblings[place];
            let class = &mut self.classes[at as usize];
            if class.active && class.has.has(Kind::LinkShare) {
                let mut ls = self.bent.run(Kind::LinkShare, at, class.has, &mut class.ls);
                class.virtual_time = ls.time_of(class.served);
                if class.virtual_time < siblings.floor {
                    ls.delay(siblings.floor - class.virtual_time);
                    class.virtual_time = siblings.floor;
                }
                if empty {
                    class.active = false;
                    siblings.leave(ordinal, &mut class.held, class.virtual_time);
                    empty = siblings.active == 0;
                } else {
                    siblings.set(ordinal, &mut class.held, class.virtual_time, until, now.0);
                }
            } else {
                // Served in real time only: its ancestors only count the bytes.
                class.active &= !empty;
                empty = false;
            }
            at = parent;
        }
    }

    /// Sets the deadline of a leaf's next packet and its place in the order of deadlines.
    #[inline]
    fn schedule(&mut self, class: u32, now: Nanos) {
        let Some(timed) = self.timed.get_mut(class as usize) else {
            return;
        };
        let was_eligible = timed.eligible;
        let has = self.classes[class as usize].has;
        let deadline = self.bent.run(Kind::RealTime, class, has, &mut timed.deadline);
        let from = if timed.concave {
            deadline.time_of(timed.served)
        } else {
            deadline.time_on_line(timed.served)
        };
        timed.eligible = from <= now.0;
        if timed.eligible {
            let due = deadline.time_of(timed.served + u64::from(timed.next));
            if !was_eligible {
                self.early.remove(class);
            }
            self.eligible.set(class, due);
        } else {
            if was_eligible {
                self.eligible.remove(class);
            }
            self.early.set(class, from);
        }
    }

    /// A leaf has no packets any more.
    fn unschedule(&mut self, class: u32) {
        if let Some(timed) = self.timed.get_mut(class as usize) {
            if std::mem::take(&mut timed.eligible) {
                self.eligible.remove(class);
            } else {
                self.early.remove(class);
            }
        }
    }

    /// Prefetches the data of the next packets, if it is too much for the near caches.
    #[inline]
    fn look_ahead(&self) {
        if self.classes.len() < LARGE {
            return;
        }
        let mut place = 0;
        while let Some((siblings, children)) = self.siblings.get(place).zip(self.children.get(place))
            && let Some((_, ordinal)) = siblings.first()
        {
            let child = children[ordinal as usize];
            if let Some(next) = children.get(siblings.second() as usize) {
                self.expect(*next);
            }
            self.queues.expect_packet(child);
            place = self.classes[child as usize].siblings as usize;
        }
        if let Some((_, class)) = self.eligible.first() {
            self.queues.expect_packet(class);
            self.expect(self.eligible.second());
        }
        if let Some(timed) = self.timed.get(self.early.second() as usize) {
            sys::memory::prefetch(timed);
        }
    }

    #[inline]
    fn expect(&self, class: u32) {
        if let Some(record) = self.classes.get(class as usize) {
            sys::memory::prefetch(record);
            if let Some(timed) = self.timed.get(class as usize) {
                sys::memory::prefetch(timed);
            }
            self.queues.expect(class);
        }
    }

    /// The leaf whose turn it is, and whether in real time.
    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<(u32, bool)> {
        while let Some((time, class)) = self.early.first()
            && time <= now.0
        {
            self.schedule(class, now);
        }
        if let Some((_, class)) = self.eligible.first() {
            return Some((class, true));
        }
        if self.classes[0].limited_until > now.0 {
            return None;
        }
        let mut at = 0;
        loop {
            let place = self.classes[at as usize].siblings as usize;
            let Some(siblings) = self.siblings.get_mut(place) else {
                return Some((at, false));
            };
            while let Some(ordinal) = siblings.due(now.0) {
                let child = &mut self.classes[self.children[place][ordinal as usize] as usize];
                siblings.hold(ordinal, &mut child.held, child.virtual_time, 0, now.0);
            }
            let (time, ordinal) = siblings.first()?;
            siblings.floor = siblings.floor.max(time);
            at = self.children[place][ordinal as usize];
        }
    }
}

impl<P: Packet> Scheduler<P> for Hfsc<P> {
    #[inline(always)]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        let class = self.queues.leaf_of(packet.queue());
        let was_empty = self.queues.is_empty(class);
        let lost = self.queues.put(class, packet, now, dropped);
        if was_empty && !self.queues.is_empty(class) {
            self.activate(class, now, dropped);
        }
        lost.into()
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        loop {
            let (class, real_time) = self.choose(now)?;
            let cost = self.queues.stage(class, now, dropped).unwrap_or(0);
            let packet = self.queues.take(class, now);
            let mut empty = self.queues.is_empty(class);
            if self.classes[class as usize].has.has(Kind::RealTime)
                && let Some(timed) = self.timed.get_mut(class as usize)
            {
                timed.served += if real_time { u64::from(cost) } else { 0 };
                match if empty {
                    None
                } else {
                    self.queues.stage(class, now, dropped)
                } {
                    Some(next) => {
                        timed.next = next;
                        self.schedule(class, now);
                    }
                    None => {
                        empty = true;
                        self.unschedule(class);
                    }
                }
            }
            self.serve(class, cost, empty, now);
            if packet.is_some() {
                self.look_ahead();
                return packet;
            }
        }
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        if self.queues.packets == 0 {
            return None;
        }
        if self.eligible.first().is_some() {
            return Some(now);
        }
        let real_time = self.early.first().map_or(u64::MAX, |(time, _)| time);
        let sharing = self.children_from(0).max(self.classes[0].limited_until);
        Some(Nanos(real_time.min(sharing)).max(now))
    }

    fn packets(&self) -> u64 {
        u64::from(self.queues.packets)
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        self.queues.each(each);
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        let busy = self.queues.backlogged();
        self.queues.drain(each);
        for class in busy {
            self.unschedule(class);
            self.serve(class, 0, true, Nanos(0));
        }
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        let class = self.queues.leaf_of(queue);
        let limit = self.limits.get(class as usize).copied().flatten()?;
        Some(limit.bytes_in(Nanos::from_millis(1)))
    }
}
