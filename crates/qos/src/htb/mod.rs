//! HTB: classes with a rate that they are sure of and one that they can come to by borrowing.
//!
//! Sources: M. Devera, "Hierarchical token bucket theory" (2002); S. Floyd and V. Jacobson, "Link-sharing and Resource Management Models for Packet
//! Networks", IEEE/ACM ToN 3(4), 1995 (the formal link-sharing guidelines); keys as in ovs-vswitchd.conf.db(5).
//!
//! - Each class has tokens at its rate and at its ceiling ([`credit`]). With both it is **green** and sends on its own; with ceiling tokens only it is
//!   **yellow** and sends what its parent lends, that again on its own or by borrowing; else it is **red**.
//! - A packet sent by a class that a class `height` steps above lends for is charged to that one and all above it, and to every class's ceiling.
//! - What can send is found top down by height: first leaves that are green, then those fed by green parents, and so on; on each height by priority. Among
//!   equals deficit round robin decides, at each class among its children, so that what is lent is shared by quanta whatever is below.
//! - Only classes with packets are in these lists, and only such that wait for tokens in a heap by their time.
//!
//! Cost: a packet passes the classes between leaf and root twice, and the heap once for each of them that is not green.
//!
//! Invariants: a class is active for a priority exactly when a leaf of that priority has packets and no class from the leaf to it, itself apart, is red. An
//! active class that is not red is in its parent's feed, a green one also in the row of its height; one not green is in the heap. A green class in a feed
//! is never chosen there, for it is in a row below, so it need not lose its turn there when it comes to tokens of its own.

mod config;
mod credit;
mod rounds;

use crate::pool::NIL;
use crate::queues::Queues;
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::tournament::Fronted;
use crate::{Nanos, Packet, Stats};
pub use config::{HtbClass, HtbConfig};
use credit::{Credit, Mode};
use rounds::Rounds;

const PRIORITIES: u32 = 8;

/// The class of the port. On a busy port it comes to the end of its tokens with every packet; it is alone in its rows, so it stays in their lists.
const ROOT: u32 = 0;

struct Class {
    parent: u32,
    height: u32,
    credit: Credit,
    mode: Mode,
    /// The priorities for which it is active, one bit each.
    active: u8,
    priority: u8,
    /// Its links, in rows and in its parent's feeds in turn: two of a leaf, two for each priority of others.
    links: u32,
    /// The first of the lists of its children.
    feeds: u32,
}

/// Hierarchical token bucket.
pub struct Htb<P> {
    classes: Vec<Class>,
    queues: Queues<P>,
    rounds: Rounds,
    /// By height: the priorities that classes can send at.
    rows: Vec<u8>,
    waiting: Fronted,
    /// The lists, and links in them, from a row down to the leaf chosen.
    path: Vec<(u32, u32)>,
}

impl<P: Packet> Htb<P> {
    /// An empty one.
    ///
    /// # Errors
    /// As [`HtbConfig::new`].
    pub fn new(config: &HtbConfig) -> Result<Htb<P>, crate::ConfigError> {
        let tree = config.tree()?;
        let heights = tree.heights[0] + 1;
        let quanta = config.quanta(&tree);
        let inner = (0..tree.parents.len()).filter(|class| !tree.is_leaf(*class)).count() as u32;
        let mut htb = Htb {
            classes: Vec::with_capacity(tree.parents.len()),
            queues: Queues::new(
                &tree,
                config.link,
                config.classes.iter().map(|class| (class.number, &class.leaf)),
            ),
            rounds: Rounds::new(((heights + inner) * PRIORITIES) as usize),
            rows: vec![0; heights as usize],
            waiting: Fronted::new(tree.parents.len()),
            path: Vec::with_capacity(heights as usize),
        };
        let mut feeds = heights * PRIORITIES;
        let ceilings = config.ceilings(&tree);
        for class in 0..tree.parents.len() {
            let spec = class.checked_sub(1).map(|n| &config.classes[n]);
            let rate = spec.map_or(config.rate, |spec| spec.min_rate);
            let ceil = ceilings[class];
            let burst = spec.and_then(|spec| spec.burst);
            let leaf = tree.is_leaf(class);
            let mut links = NIL;
            for _ in 0..if leaf { 2 } else { 2 * PRIORITIES } {
                links = links.min(htb.rounds.link(class as u32, quanta[class]));
            }
            htb.classes.push(Class {
                parent: tree.parents[class],
                height: tree.heights[class],
                credit: Credit::new(rate, ceil, HtbConfig::depth(rate, burst), HtbConfig::depth(ceil, burst)),
                mode: Mode::Green,
                active: 0,
                priority: spec.map_or(0, |spec| spec.priority),
                links,
                feeds: if leaf { NIL } else { feeds },
            });
            if !leaf {
                feeds += PRIORITIES;
            }
        }
        let Class { height, links, .. } = htb.classes[ROOT as usize];
        for priority in 0..PRIORITIES {
            let link = htb.in_row(links, height, priority);
            htb.rounds.insert(height * PRIORITIES + priority, link);
        }
        Ok(htb)
    }

    /// Takes other classes and parameters. Packets stay in the queue of their number with its tokens and counters; those of queues that are no more go
    /// to queue 0. Only what finds no room in another discipline is dropped.
    ///
    /// # Errors
    /// As [`HtbConfig::new`]; then nothing changes.
    pub fn change(
        &mut self,
        config: &HtbConfig,
        now: Nanos,
        dropped: &mut Dropped<'_, P>,
    ) -> Result<(), crate::ConfigError> {
        let mut new = Htb::new(config)?;
        new.classes[0].credit.inherit(&self.classes[0].credit);
        for class in 1..self.classes.len() {
            let to = new.queues.class_of(self.queues.numbers[class]).unwrap_or(NIL);
            if let Some(to) = new.classes.get_mut(to as usize) {
                to.credit.inherit(&self.classes[class].credit);
            }
        }
        let leaf = |class: u32| &config.classes[class as usize - 1].leaf;
        new.queues.inherit(&mut self.queues, leaf, now, dropped);
        for class in new.queues.backlogged() {
            new.activate(class, now);
        }
        *self = new;
        Ok(())
    }

    /// A leaf has packets, and had none.
    fn activate(&mut self, class: u32, now: Nanos) {
        let bit = 1 << self.classes[class as usize].priority;
        self.classes[class as usize].active = bit;
        self.look(class, now);
        self.place(class, bit, now);
    }

    /// A leaf has no packets any more.
    fn deactivate(&mut self, class: u32) {
        let bit = std::mem::take(&mut self.classes[class as usize].active);
        self.waiting.remove(class);
        self.unplace(class, bit);
    }

    /// Finds the mode of a class that is in no list.
    #[inline]
    fn look(&mut self, class: u32, now: Nanos) {
        let (mode, wait) = self.classes[class as usize].credit.state(now);
        self.classes[class as usize].mode = mode;
        self.wait(class, mode, wait, now);
    }

    /// Waits for the tokens that a class has not got.
    #[inline]
    fn wait(&mut self, class: u32, mode: Mode, wait: i64, now: Nanos) {
        if mode == Mode::Green {
            self.waiting.remove(class);
        } else {
            self.waiting.set(class, now.after_picos(wait).0);
        }
    }

    /// Puts an active class where it belongs by its mode, found anew.
    #[inline]
    fn refresh(&mut self, at: u32, (mode, wait): (Mode, i64), now: Nanos) {
        let class = &mut self.classes[at as usize];
        let (old, active) = (class.mode, class.active);
        if (old, mode) == (Mode::Green, Mode::Green) {
            return;
        }
        if (old == Mode::Red) != (mode == Mode::Red) {
            self.unplace(at, active);
            self.classes[at as usize].mode = mode;
            self.place(at, active, now);
        } else {
            class.mode = mode;
            match (old, mode) {
                (Mode::Green, _) => self.leave_row(at, active),
                (_, Mode::Green) => self.join_row(at, active),
                _ => {}
            }
        }
        self.wait(at, mode, wait, now);
    }

    fn join_row(&mut self, class: u32, priorities: u8) {
        let Class { height, links, .. } = self.classes[class as usize];
        let others = if class == ROOT { 0 } else { priorities };
        for priority in bits(others) {
            self.rounds
                .insert(height * PRIORITIES + priority, self.in_row(links, height, priority));
        }
        self.rows[height as usize] |= priorities;
    }

    fn leave_row(&mut self, class: u32, priorities: u8) {
        let Class { height, links, .. } = self.classes[class as usize];
        if class == ROOT {
            self.rows[height as usize] &= !priorities;
            return;
        }
        for priority in bits(priorities) {
            let link = self.in_row(links, height, priority);
            if self.rounds.remove(height * PRIORITIES + priority, link) {
                self.rows[height as usize] &= !(1 << priority);
            }
        }
    }

    /// The link that a class has in rows; the one after it is for its parent's feeds.
    #[inline]
    fn in_row(&self, links: u32, height: u32, priority: u32) -> u32 {
        if height == 0 { links } else { links + 2 * priority }
    }

    /// Puts a class into the lists of its mode for these priorities, and the classes above that become active by it.
    fn place(&mut self, mut class: u32, mut priorities: u8, now: Nanos) {
        loop {
            let Class {
                mode,
                parent,
                height,
                links,
                ..
            } = self.classes[class as usize];
            match mode {
                Mode::Red => return,
                Mode::Yellow => {}
                Mode::Green => self.join_row(class, priorities),
            }
            let Some(above) = self.classes.get(parent as usize) else {
                return;
            };
            let (feeds, was) = (above.feeds, above.active);
            let mut new = 0;
            for priority in bits(priorities) {
                let link = self.in_row(links, height, priority) + 1;
                if self.rounds.insert(feeds + priority, link) {
                    new |= 1 << priority;
                }
            }
            if new == 0 {
                return;
            }
            self.classes[parent as usize].active = was | new;
            if was == 0 {
                self.look(parent, now);
            }
            (class, priorities) = (parent, new);
        }
    }

    /// Takes a class out of the lists of its mode for these priorities, and the classes above that become inactive by it.
    fn unplace(&mut self, mut class: u32, mut priorities: u8) {
        loop {
            let Class {
                mode,
                parent,
                height,
                links,
                ..
            } = self.classes[class as usize];
            match mode {
                Mode::Red => return,
                Mode::Yellow => {}
                Mode::Green => self.leave_row(class, priorities),
            }
            let Some(above) = self.classes.get(parent as usize) else {
                return;
            };
            let feeds = above.feeds;
            let mut gone = 0;
            for priority in bits(priorities) {
                let link = self.in_row(links, height, priority) + 1;
                if self.rounds.remove(feeds + priority, link) {
                    gone |= 1 << priority;
                }
            }
            if gone == 0 {
                return;
            }
            self.classes[parent as usize].active &= !gone;
            if self.classes[parent as usize].active == 0 {
                self.waiting.remove(parent);
            }
            (class, priorities) = (parent, gone);
        }
    }

    /// The leaf whose turn it is in a row, with the way to it in `path`.
    #[inline]
    fn choose(&mut self, height: u32, priority: u32) -> Option<u32> {
        self.path.clear();
        let mut list = height * PRIORITIES + priority;
        loop {
            let (link, class) = self.rounds.next(list)?;
            self.path.push((list, link));
            let feeds = self.classes[class as usize].feeds;
            if feeds == NIL {
                return Some(class);
            }
            list = feeds + priority;
        }
    }

    /// So many bytes leave on the way chosen.
    #[inline]
    fn spend(&mut self, cost: u32) {
        for &(list, link) in &self.path {
            self.rounds.spend(list, link, cost);
        }
    }

    /// A packet left from a leaf, with what a class of some height has.
    #[inline]
    fn charge(&mut self, leaf: u32, height: u32, cost: u32, now: Nanos) {
        let mut at = leaf;
        while let Some(class) = self.classes.get_mut(at as usize) {
            let parent = class.parent;
            let state = class.credit.charge(cost, class.height < height, now);
            if class.active != 0 {
                self.refresh(at, state, now);
            }
            at = parent;
        }
    }
}

impl<P: Packet> Scheduler<P> for Htb<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        let class = self.queues.leaf_of(packet.queue());
        let lost = self.queues.put(class, packet, now, dropped);
        if self.classes[class as usize].active == 0 && !self.queues.is_empty(class) {
            self.activate(class, now);
        }
        lost.into()
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        while let Some((time, class)) = self.waiting.first()
            && time <= now.0
        {
            let state = self.classes[class as usize].credit.state(now);
            self.refresh(class, state, now);
        }
        loop {
            let height = self.rows.iter().position(|row| *row != 0)? as u32;
            let priority = self.rows[height as usize].trailing_zeros();
            let class = self.choose(height, priority)?;
            let cost = self.queues.stage(class, now, dropped).unwrap_or(0);
            let packet = self.queues.take(class, now);
            self.spend(cost);
            if self.queues.is_empty(class) {
                self.deactivate(class);
            }
            if packet.is_some() {
                self.charge(class, height, cost, now);
                return packet;
            }
        }
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        if self.queues.packets == 0 {
            None
        } else if self.rows.iter().any(|row| *row != 0) {
            Some(now)
        } else {
            self.waiting.first().map(|(time, _)| Nanos(time).max(now))
        }
    }

    fn packets(&self) -> u64 {
        self.queues.packets
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
            self.deactivate(class);
        }
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        let class = self.queues.leaf_of(queue);
        let ceil = self.classes.get(class as usize)?.credit.ceil;
        Some(ceil.bytes_in(Nanos::from_millis(1)))
    }
}

/// The bits that are set.
fn bits(mut set: u8) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        (set != 0).then(|| {
            set &= set - 1;
            bit
        })
    })
}
