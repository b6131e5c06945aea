//! HTB: classes with a guaranteed rate and a ceiling that they can reach by borrowing.
//!
//! Sources: M. Devera, "Hierarchical token bucket theory" (2002); S. Floyd and V. Jacobson,
//! "Link-sharing and Resource Management Models for Packet Networks", IEEE/ACM ToN 3(4), 1995 (the
//! formal link-sharing guidelines); keys as in ovs-vswitchd.conf.db(5).
//!
//! - Each class has tokens at its rate and at its ceiling ([`credit`]). With both it is **green**
//!   and sends on its own; with ceiling tokens only it is **yellow** and borrows from its parent,
//!   which has tokens or borrows itself; else it is **red**.
//! - A packet is charged to the rate of the lender `height` steps above and of all classes above
//!   it, and to the ceiling of every class on the path.
//! - The next leaf is found by the height of its lender: first green leaves, then leaves of green
//!   parents, and so on; within a height by priority. Among equals deficit round robin decides, at
//!   each class among its children, so that borrowed rate is shared by quanta.
//! - Only classes with packets are in these lists; those that wait for tokens are in a heap by
//!   time.
//!
//! Cost: a packet visits the classes between leaf and root twice, and the heap once for each that
//! is not green.
//!
//! Invariants: a class is active for a priority exactly when a leaf of that priority has packets
//! and no class from the leaf up to its child is red. An active class that is not red is in its
//! parent's feed, a green one also in the row of its height; one not green waits. A green class in
//! a feed is never chosen there, because it is in a lower row; so it keeps its turn there when it
//! gets tokens of its own.
//!
//! The root has no parent and no siblings, so it is in no list; the time when it has tokens is one
//! number.

mod config;
mod credit;
mod rounds;

use crate::pool::NIL;
use crate::queues::Queues;
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::tournament::Tournament;
use crate::{Nanos, Packet, Stats};
pub use config::{HtbClass, HtbConfig};
use credit::{Credit, Mode, Rates};
use rounds::Rounds;

const PRIORITIES: u32 = 8;

/// The class of the port.
const ROOT: u32 = 0;

/// From this many classes on, most of the data that a packet touches is in no near cache, and
/// prefetching the next leaves pays.
const LARGE: usize = 2_048;

/// The data of a class that each packet touches: one cache line.
#[derive(Clone)]
#[repr(C, align(64))]
struct Class {
    credit: Credit,
    parent: u32,
    mode: Mode,
    /// The priorities for which it is active, one bit each.
    active: u8,
    /// Of a leaf.
    priority: u8,
    is_leaf: bool,
}

const _: () = assert!(size_of::<Class>() == 64);

/// The further data of a class with children.
#[derive(Clone, Copy)]
struct Inner {
    height: u32,
    /// Its links, in rows and in its parent's feeds in turn, two for each priority. Those of a leaf
    /// are a pair of the class's own number.
    links: u32,
    /// The first of the lists of its children.
    feeds: u32,
}

/// Hierarchical token bucket.
pub struct Htb<P> {
    classes: Vec<Class>,
    /// By class; of leaves without meaning.
    inner: Vec<Inner>,
    rates: Vec<Rates>,
    queues: Queues<P>,
    rounds: Rounds,
    /// By height, the root's apart: the priorities that classes can send at.
    rows: Vec<u8>,
    /// All active classes that are not green, except the root, by the time when their mode
    /// improves. One that became inactive stays until then.
    waiting: Tournament,
    /// When the root has tokens.
    root_at: u64,
    /// The lists, and links in them, from the row or the root down to the parent of the leaf
    /// chosen.
    path: Vec<(u32, u32)>,
}

/// A leaf whose turn it is.
struct Chosen {
    leaf: u32,
    /// Of the class that lends, or its own.
    height: u32,
    list: u32,
    link: u32,
}

impl<P: Packet> Htb<P> {
    /// An empty one.
    ///
    /// # Errors
    /// As [`HtbConfig::new`].
    pub fn new(config: &HtbConfig) -> Result<Htb<P>, crate::ConfigError> {
        let tree = config.tree()?;
        let count = tree.parents.len();
        let heights = tree.heights[0];
        let quanta = config.quanta(&tree);
        let parents = (0..count).filter(|class| !tree.is_leaf(*class)).count() as u32;
        let mut htb = Htb {
            classes: Vec::with_capacity(count),
            inner: Vec::with_capacity(count),
            rates: Vec::with_capacity(count),
            queues: Queues::new(
                &tree,
                config.link,
                config.classes.iter().map(|class| (class.number, &class.leaf)),
            ),
            rounds: Rounds::new(((heights + parents) * PRIORITIES) as usize),
            rows: vec![0; heights as usize],
            waiting: Tournament::new(count),
            root_at: 0,
            path: Vec::with_capacity(heights as usize),
        };
        for (class, quantum) in quanta.iter().enumerate() {
            htb.rounds.pair(class as u32, *quantum);
        }
        let mut feeds = heights * PRIORITIES;
        let ceilings = config.ceilings(&tree);
        for (class, ceil) in ceilings.into_iter().enumerate() {
            let spec = class.checked_sub(1).map(|n| &config.classes[n]);
            let own = spec.map_or(config.rate, |spec| spec.min_rate);
            let rates = Rates { own, ceil };
            let burst = spec.and_then(|spec| spec.burst);
            let (own, ceil) = (HtbConfig::depth(own, burst), HtbConfig::depth(ceil, burst));
            let is_leaf = tree.is_leaf(class);
            htb.rates.push(rates);
            htb.classes.push(Class {
                credit: Credit::new(rates, own, ceil),
                parent: tree.parents[class],
                mode: Mode::Green,
                active: 0,
                priority: spec.map_or(0, |spec| spec.priority),
                is_leaf,
            });
            let mut inner = Inner {
                height: tree.heights[class],
                links: NIL,
                feeds: NIL,
            };
            if !is_leaf {
                inner.feeds = feeds;
                feeds += PRIORITIES;
                for _ in 0..PRIORITIES {
                    inner.links = inner.links.min(htb.rounds.pair(class as u32, quanta[class]));
                }
            }
            htb.inner.push(inner);
        }
        Ok(htb)
    }

    /// Takes other classes and parameters. Packets stay in the queue of their number with its
    /// tokens and counters; those of removed queues go to queue 0. Drops only packets that do not
    /// fit into a new discipline.
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
        for class in 0..self.classes.len() {
            let to = match class {
                0 => ROOT,
                _ => new.queues.class_of(self.queues.numbers[class]).unwrap_or(NIL),
            };
            if let Some(heir) = new.classes.get_mut(to as usize) {
                let rates = new.rates[to as usize];
                heir.credit
                    .inherit(rates, &self.classes[class].credit, self.rates[class]);
            }
        }
        let wait = new.classes[ROOT as usize].credit.until_ceiling(now);
        new.root_at = now.after_picos(wait).0;
        let leaf = |class: u32| &config.classes[class as usize - 1].leaf;
        new.queues.inherit(&mut self.queues, leaf, now, dropped);
        for class in new.queues.backlogged() {
            new.activate(class, now);
        }
        *self = new;
        Ok(())
    }

    /// A leaf becomes backlogged.
    #[inline(never)]
    fn activate(&mut self, leaf: u32, now: Nanos) {
        let class = &mut self.classes[leaf as usize];
        let bit = 1 << class.priority;
        class.active = bit;
        self.look(leaf, now);
        self.place(leaf, bit, now);
    }

    /// A leaf has no packets any more.
    fn deactivate(&mut self, leaf: u32) {
        let bit = std::mem::take(&mut self.classes[leaf as usize].active);
        self.unplace(leaf, bit);
    }

    /// Computes the mode of a class that is in no list.
    #[inline]
    fn look(&mut self, at: u32, now: Nanos) {
        let class = &mut self.classes[at as usize];
        let (mode, wait) = class.credit.state(now);
        class.mode = mode;
        if mode != Mode::Green {
            self.waiting.set(at, now.after_picos(wait).0);
        }
    }

    /// Makes a class wait for its tokens.
    #[inline]
    fn wait(&mut self, at: u32, mode: Mode, wait: i64, now: Nanos) {
        if mode == Mode::Green {
            self.waiting.remove(at);
        } else {
            self.waiting.set(at, now.after_picos(wait).0);
        }
    }

    /// Handles the first waiting class, which has its tokens or has become inactive.
    #[inline]
    fn due(&mut self, at: u32, now: Nanos) {
        let class = &self.classes[at as usize];
        let (mode, wait) = class.credit.state(now);
        let active = class.active != 0;
        if active && mode != Mode::Green {
            self.waiting.set(at, now.after_picos(wait).0);
        } else {
            self.waiting.remove_first();
        }
        if active {
            self.turn(at, mode, now);
        }
    }

    /// Moves an active class to the lists of its new mode.
    #[inline]
    fn turn(&mut self, at: u32, mode: Mode, now: Nanos) {
        let class = &mut self.classes[at as usize];
        let (old, active) = (class.mode, class.active);
        if (old == Mode::Red) != (mode == Mode::Red) {
            self.unplace(at, active);
            self.classes[at as usize].mode = mode;
            self.place(at, active, now);
            return;
        }
        class.mode = mode;
        match (old == Mode::Green, mode == Mode::Green) {
            (true, false) => self.leave_row(at, active),
            (false, true) => self.join_row(at, active),
            _ => {}
        }
    }

    /// The first of the lists of a class's height, and the link that it has in rows for the first
    /// priority; how far that of the next is from it. The link after each is for its parent's
    /// feeds.
    #[inline(always)]
    fn place_of(&self, at: u32) -> (u32, u32, u32) {
        if self.classes[at as usize].is_leaf {
            (0, 2 * at, 0)
        } else {
            let inner = &self.inner[at as usize];
            (inner.height, inner.links, 2)
        }
    }

    #[inline(always)]
    fn join_row(&mut self, at: u32, priorities: u8) {
        let (height, links, step) = self.place_of(at);
        for priority in bits(priorities) {
            self.rounds
                .insert(height * PRIORITIES + priority, links + step * priority);
        }
        self.rows[height as usize] |= priorities;
    }

    #[inline(always)]
    fn leave_row(&mut self, at: u32, priorities: u8) {
        let (height, links, step) = self.place_of(at);
        for priority in bits(priorities) {
            if self
                .rounds
                .remove(height * PRIORITIES + priority, links + step * priority)
            {
                self.rows[height as usize] &= !(1 << priority);
            }
        }
    }

    /// Puts a class into the lists of its mode for these priorities, and the classes above that
    /// become active by it.
    fn place(&mut self, at: u32, priorities: u8, now: Nanos) {
        let (mut parent, mut new) = self.enter(at, priorities);
        while new != 0 {
            let class = &mut self.classes[parent as usize];
            let was = class.active;
            class.active = was | new;
            if parent == ROOT {
                return;
            }
            if was == 0 {
                self.look(parent, now);
            }
            (parent, new) = self.enter(parent, new);
        }
    }

    /// Takes a class out of the lists of its mode for these priorities, and the classes above that
    /// become inactive by it.
    fn unplace(&mut self, at: u32, priorities: u8) {
        let (mut parent, mut gone) = self.leave(at, priorities);
        while gone != 0 {
            self.classes[parent as usize].active &= !gone;
            if parent == ROOT {
                return;
            }
            (parent, gone) = self.leave(parent, gone);
        }
    }

    /// Puts a class into the lists of its mode. The parent, and for what priorities it becomes
    /// active by that.
    #[inline(always)]
    fn enter(&mut self, at: u32, priorities: u8) -> (u32, u8) {
        let Class { mode, parent, .. } = self.classes[at as usize];
        match mode {
            Mode::Red => return (parent, 0),
            Mode::Yellow => {}
            Mode::Green => self.join_row(at, priorities),
        }
        let (_, links, step) = self.place_of(at);
        let feeds = self.inner[parent as usize].feeds;
        let mut new = 0;
        for priority in bits(priorities) {
            if self.rounds.insert(feeds + priority, links + step * priority + 1) {
                new |= 1 << priority;
            }
        }
        (parent, new)
    }

    /// Takes a class out of the lists of its mode. The parent, and for what priorities it becomes
    /// inactive by that.
    #[inline(always)]
    fn leave(&mut self, at: u32, priorities: u8) -> (u32, u8) {
        let Class { mode, parent, .. } = self.classes[at as usize];
        match mode {
            Mode::Red => return (parent, 0),
            Mode::Yellow => {}
            Mode::Green => self.leave_row(at, priorities),
        }
        let (_, links, step) = self.place_of(at);
        let feeds = self.inner[parent as usize].feeds;
        let mut gone = 0;
        for priority in bits(priorities) {
            if self.rounds.remove(feeds + priority, links + step * priority + 1) {
                gone |= 1 << priority;
            }
        }
        (parent, gone)
    }

    /// The leaf whose turn it is, with the path to its parent in `path`.
    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<Chosen> {
        self.path.clear();
        let row = self.rows.iter().position(|row| *row != 0);
        let (height, priority, mut list) = match row {
            Some(height) => {
                let priority = self.rows[height].trailing_zeros();
                let height = height as u32;
                (height, priority, height * PRIORITIES + priority)
            }
            None => {
                let active = self.classes[ROOT as usize].active;
                if active == 0 || self.root_at > now.0 {
                    return None;
                }
                let Inner { height, feeds, .. } = self.inner[ROOT as usize];
                let priority = active.trailing_zeros();
                (height, priority, feeds + priority)
            }
        };
        loop {
            let (link, class) = self.rounds.next(list)?;
            if self.classes[class as usize].is_leaf {
                let leaf = class;
                return Some(Chosen {
                    leaf,
                    height,
                    list,
                    link,
                });
            }
            self.path.push((list, link));
            list = self.inner[class as usize].feeds + priority;
        }
    }

    /// Prefetches the data of the next packets if it is too much for the near caches: the leaf
    /// after the next one of a list, the next one's packet, and the first waiting class.
    #[inline]
    fn look_ahead(&self, list: u32) {
        if self.classes.len() < LARGE {
            return;
        }
        let (link, after) = self.rounds.coming(list);
        // Links of leaves are by class; of others there are few.
        self.expect(after / 2);
        self.queues.expect_packet(link / 2);
        if let Some((_, class)) = self.waiting.first() {
            self.expect(class);
        }
    }

    #[inline]
    fn expect(&self, class: u32) {
        if let Some(record) = self.classes.get(class as usize) {
            sys::memory::prefetch(record);
            self.rounds.expect(2 * class);
            self.queues.expect(class);
        }
    }

    /// Charges the bytes along the chosen path.
    #[inline]
    fn spend(&mut self, chosen: &Chosen, cost: u32) {
        for &(list, link) in &self.path {
            self.rounds.spend(list, link, cost);
        }
        self.rounds.spend(chosen.list, chosen.link, cost);
    }

    /// A packet left from a leaf, with what a class of some height has.
    #[inline]
    fn charge(&mut self, leaf: u32, height: u32, cost: u32, now: Nanos) {
        let (mut at, mut own) = (leaf, 0);
        while at != ROOT {
            let class = &mut self.classes[at as usize];
            let parent = class.parent;
            let lent = own < height;
            let (mode, wait) = class.credit.charge(cost, lent, now);
            // Nothing changed: neither the mode nor the time that a yellow class waits for, as only
            // ceiling tokens were spent.
            let same = class.mode == mode && (mode == Mode::Green || (mode == Mode::Yellow && lent));
            if class.active != 0 && !same {
                self.turn(at, mode, now);
                self.wait(at, mode, wait, now);
            }
            (at, own) = (parent, self.inner[parent as usize].height);
        }
        // Its rate is its ceiling: it is green or red.
        let wait = self.classes[ROOT as usize].credit.charge_ceiling(cost, now);
        self.root_at = now.after_picos(wait).0;
    }
}

impl<P: Packet> Scheduler<P> for Htb<P> {
    #[inline(always)]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        let class = self.queues.leaf_of(packet.queue());
        let was_empty = self.queues.is_empty(class);
        let lost = self.queues.put(class, packet, now, dropped);
        if was_empty && !self.queues.is_empty(class) {
            self.activate(class, now);
        }
        lost.into()
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        while let Some(class) = self.waiting.first_until(now.0) {
            self.due(class, now);
        }
        loop {
            let chosen = self.choose(now)?;
            let Chosen { leaf, height, .. } = chosen;
            let popped = self.queues.pop(leaf, now, dropped);
            if let Some((_, cost)) = popped {
                self.spend(&chosen, cost);
            }
            if self.queues.is_empty(leaf) {
                self.deactivate(leaf);
            }
            if let Some((packet, cost)) = popped {
                self.charge(leaf, height, cost, now);
                self.look_ahead(chosen.list);
                return Some(packet);
            }
        }
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        if self.queues.packets == 0 {
            None
        } else if self.rows.iter().any(|row| *row != 0) {
            Some(now)
        } else {
            let root = Some(self.root_at).filter(|_| self.classes[ROOT as usize].active != 0);
            let others = self.waiting.first().map(|(time, _)| time);
            let first = root.into_iter().chain(others).min();
            first.map(|time| Nanos(time).max(now))
        }
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
            self.deactivate(class);
        }
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        let class = self.queues.leaf_of(queue);
        Some(self.rates.get(class as usize)?.ceil.bytes_in(Nanos::from_millis(1)))
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
