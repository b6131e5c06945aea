//! The classifier and its changes.

use std::cmp::Reverse;

use thiserror::Error;

use crate::arena::{Arenas, NONE};
use crate::layout::Layout;
use crate::prefixes::Prefixes;
use crate::shapes::Shapes;
use crate::subtable::Subtable;
use crate::words::{Hash, Match};

/// Matches that a bucket of a merged subtable takes in.
const CHAIN: usize = 8;

/// A rule's handle: stays valid until the rule is removed, and is not reused after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    pub(crate) node: u32,
    pub(crate) generation: u32,
}

impl RuleId {
    /// The handle as a number.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.node as u64
    }

    /// The handle of [`RuleId::to_bits`]. Of another number, it is the handle of no rule, or of
    /// any.
    pub const fn from_bits(bits: u64) -> RuleId {
        RuleId {
            node: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// Why a rule was not inserted. Returns the rule.
#[derive(Debug, Error)]
pub enum InsertError<R> {
    /// A rule of the same match and priority exists.
    #[error("a rule of the same match and priority exists")]
    Exists {
        /// The rule that is there.
        id: RuleId,
        /// The rule that was to be inserted.
        rule: R,
    },
    /// More than 67 million rules whose masks have equally many words.
    #[error("no room for another rule")]
    Full {
        /// The rule that was to be inserted.
        rule: R,
    },
}

/// Internal figures for diagnosis and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Rules.
    pub rules: usize,
    /// Distinct masks of rules.
    pub masks: usize,
    /// Subtables: the maximum that a lookup tries.
    pub subtables: usize,
}

/// A subtable and the highest priority in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) max_priority: u32,
    pub(crate) subtable: u32,
}

/// Rules by match and priority. See the crate's page.
#[derive(Debug)]
pub struct Classifier<R, const N: usize> {
    pub(crate) layout: Layout,
    pub(crate) hash: Hash,
    pub(crate) arenas: Arenas<R>,
    pub(crate) shapes: Shapes<N>,
    pub(crate) subtables: Vec<Option<Subtable>>,
    free_subtables: Vec<u32>,
    /// Live subtables, the highest priority first.
    pub(crate) order: Vec<Ranked>,
    pub(crate) prefixes: Prefixes,
    len: usize,
}

impl<R, const N: usize> Classifier<R, N> {
    /// An empty classifier of keys of `N` words. Without the seed nobody can choose rules or
    /// packets that collide.
    ///
    /// # Panics
    /// If `layout` is for another number of words.
    pub fn new(layout: Layout, seed: u64) -> Classifier<R, N> {
        assert_eq!(layout.words(), N, "the layout is for keys of another size");
        let hash = Hash::new(seed);
        Classifier {
            hash,
            arenas: Arenas::new(N),
            shapes: Shapes::new(hash),
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            order: Vec::new(),
            prefixes: Prefixes::new(layout.fields()),
            layout,
            len: 0,
        }
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Internal figures.
    pub fn stats(&self) -> Stats {
        Stats {
            rules: self.len,
            masks: self.shapes.len(),
            subtables: self.order.len(),
        }
    }

    /// Its memory, without memory that the rules point to. Takes time in proportion to the rules.
    pub fn memory_bytes(&self) -> usize {
        let subtables: usize = self.subtables.iter().flatten().map(Subtable::memory_bytes).sum();
        size_of::<Self>()
            + self.arenas.memory_bytes()
            + self.shapes.memory_bytes()
            + self.prefixes.memory_bytes()
            + self.subtables.capacity() * size_of::<Option<Subtable>>()
            + self.order.capacity() * size_of::<Ranked>()
            + subtables
    }

    /// The rule, unless it was removed.
    pub fn get(&self, id: RuleId) -> Option<&R> {
        let node = self.arenas.live(id.node)?;
        if node.generation == id.generation {
            node.rule.as_ref()
        } else {
            None
        }
    }

    /// The rule, unless it was removed.
    pub fn get_mut(&mut self, id: RuleId) -> Option<&mut R> {
        self.get(id)?;
        self.arenas.node_mut(id.node).rule.as_mut()
    }

    /// The rule of exactly this match and priority; of several, the one inserted last.
    pub fn find_strict(&self, matching: &Match<N>, priority: u32) -> Option<RuleId> {
        self.find_strict_where(matching, priority, |_| true)
    }

    /// As [`Classifier::find_strict`], of the rules that `accept` accepts.
    pub fn find_strict_where(&self, matching: &Match<N>, priority: u32, accept: impl Fn(&R) -> bool) -> Option<RuleId> {
        let shape = self.shapes.find(matching.mask())?;
        let mut node = self.shapes.get(shape).homes.iter().find_map(|(home, _)| {
            let subtable = self.subtable(*home);
            let head = self.bucket(subtable, subtable.hash(matching.value(), self.hash), matching.value())?;
            self.entry_in(head, shape, matching.value()).map(|place| place.node)
        })?;
        while node != NONE {
            let here = self.arenas.node(node);
            if here.priority < priority {
                return None;
            }
            if here.priority == priority && here.rule.as_ref().is_some_and(&accept) {
                return Some(self.id(node));
            }
            node = here.lower;
        }
        None
    }

    /// Adds a rule. A higher `priority` wins.
    ///
    /// # Errors
    /// Returns the rule if one of the same match and priority exists or there is no room.
    pub fn insert(&mut self, matching: &Match<N>, priority: u32, rule: R) -> Result<RuleId, InsertError<R>> {
        self.insert_as(matching, priority, rule, false)
    }

    /// As [`Classifier::insert`], also beside rules of the same match and priority; a lookup finds
    /// the last inserted one that it accepts. For tables that hold several versions of a rule for a
    /// while.
    ///
    /// # Errors
    /// Returns the rule if there is no room.
    pub fn insert_over(&mut self, matching: &Match<N>, priority: u32, rule: R) -> Result<RuleId, InsertError<R>> {
        self.insert_as(matching, priority, rule, true)
    }

    fn insert_as(&mut self, matching: &Match<N>, priority: u32, rule: R, over: bool) -> Result<RuleId, InsertError<R>> {
        let shape = self.shapes.intern(matching.mask());
        let result = self.insert_in(shape, matching, priority, rule, over);
        if self.shapes.get(shape).rules == 0 {
            self.forget_shape(shape);
        }
        result
    }

    /// Removes a rule. `None` if it was removed before.
    pub fn remove(&mut self, id: RuleId) -> Option<R> {
        self.get(id)?;
        let (shape, priority) = {
            let node = self.arenas.node(id.node);
            (node.shape, node.priority)
        };
        let value = self.shapes.get(shape).unpack(self.arenas.value(id.node));
        let homes = self.shapes.get(shape).homes.clone();
        let found = homes.iter().find_map(|(home, _)| {
            let subtable = self.subtable(*home);
            let hash = subtable.hash(&value, self.hash);
            let head = self.bucket(subtable, hash, &value)?;
            Some((*home, hash, self.entry_in(head, shape, &value)?))
        });
        let Some((home, hash, place)) = found else {
            unreachable!("a rule is in one of its shape's subtables");
        };
        self.unlink(home, hash, &place, id.node, &value);
        let rule = self.arenas.take(id.node);
        self.count_out(home, shape, priority);
        rule
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        *self = Classifier {
            layout: self.layout.clone(),
            hash: self.hash,
            arenas: Arenas::renewed(&self.arenas, N),
            shapes: Shapes::new(self.hash),
            subtables: Vec::new(),
            free_subtables: Vec::new(),
            order: Vec::new(),
            prefixes: Prefixes::new(self.layout.fields()),
            len: 0,
        };
    }

    pub(crate) fn subtable(&self, number: u32) -> &Subtable {
        match &self.subtables[number as usize] {
            Some(subtable) => subtable,
            None => unreachable!("a subtable lives as long as it has rules"),
        }
    }

    fn subtable_mut(&mut self, number: u32) -> &mut Subtable {
        match &mut self.subtables[number as usize] {
            Some(subtable) => subtable,
            None => unreachable!("a subtable lives as long as it has rules"),
        }
    }

    pub(crate) fn id(&self, node: u32) -> RuleId {
        RuleId {
            node,
            generation: self.arenas.node(node).generation,
        }
    }

    /// The first match of the bucket for `words`.
    #[inline]
    pub(crate) fn bucket(&self, subtable: &Subtable, hash: u32, words: &[u64; N]) -> Option<u32> {
        if subtable.foreign == 0 {
            return subtable.index.find(hash, |node| {
                let equal = |((word, bits), value): (&(u8, u64), &u64)| words[usize::from(*word)] & bits == *value;
                subtable.words.iter().zip(self.arenas.value(node)).all(equal)
            });
        }
        subtable.index.find(hash, |node| {
            let used = self.shapes.get(self.arenas.node(node).shape).used;
            let value = self.arenas.value(node);
            subtable.words.iter().all(|(word, bits)| {
                let at = (used & ((1 << word) - 1)).count_ones() as usize;
                (value[at] ^ words[usize::from(*word)]) & bits == 0
            })
        })
    }

    /// The place of a match in the chain of a bucket.
    fn entry_in(&self, head: u32, shape: u32, value: &[u64; N]) -> Option<Place> {
        let of_shape = self.shapes.get(shape);
        let mut place = Place {
            before: NONE,
            node: head,
        };
        while place.node != NONE {
            let node = self.arenas.node(place.node);
            if node.shape == shape && of_shape.equal(self.arenas.value(place.node), value) {
                return Some(place);
            }
            place = Place {
                before: place.node,
                node: node.chain,
            };
        }
        None
    }

    fn insert_in(
        &mut self,
        shape: u32,
        matching: &Match<N>,
        priority: u32,
        rule: R,
        over: bool,
    ) -> Result<RuleId, InsertError<R>> {
        let value = matching.value();
        let mut room = None;
        for at in 0..self.shapes.get(shape).homes.len() {
            let (home, _) = self.shapes.get(shape).homes[at];
            let subtable = self.subtable(home);
            let hash = subtable.hash(value, self.hash);
            let head = self.bucket(subtable, hash, value);
            if let Some(place) = head.and_then(|head| self.entry_in(head, shape, value)) {
                return self.insert_beside((home, hash), &place, priority, rule, over);
            }
            if room.is_none() && self.has_room(home, shape, head) {
                room = Some((home, hash, head));
            }
        }
        let (home, hash, head) = room.unwrap_or_else(|| self.find_home(shape, matching));
        let packed = self.shapes.get(shape).pack(value);
        let node = match self.arenas.put(rule, priority, shape, &packed) {
            Ok(node) => node,
            Err(rule) => {
                self.drop_if_empty(home);
                return Err(InsertError::Full { rule });
            }
        };
        match head {
            Some(head) => {
                self.arenas.node_mut(node).chain = self.arenas.node(head).chain;
                self.arenas.node_mut(head).chain = node;
            }
            None => {
                let Some(subtable) = &mut self.subtables[home as usize] else {
                    unreachable!("the rule's home was found or made above");
                };
                subtable.index.insert(hash, node);
                subtable.bucket_added(value, self.hash, &mut self.prefixes);
            }
        }
        self.count_in(home, shape, priority);
        Ok(self.id(node))
    }

    /// Adds a rule to a match that has rules.
    fn insert_beside(
        &mut self,
        (home, hash): (u32, u32),
        place: &Place,
        priority: u32,
        rule: R,
        over: bool,
    ) -> Result<RuleId, InsertError<R>> {
        let mut above = NONE;
        let mut below = place.node;
        let floor = if over { priority.saturating_add(1) } else { priority };
        while below != NONE && self.arenas.node(below).priority >= floor {
            if !over && self.arenas.node(below).priority == priority {
                return Err(InsertError::Exists {
                    id: self.id(below),
                    rule,
                });
            }
            above = below;
            below = self.arenas.node(below).lower;
        }
        let shape = self.arenas.node(place.node).shape;
        let value: smallvec::SmallVec<[u64; 8]> = self.arenas.value(place.node).into();
        let node = match self.arenas.put(rule, priority, shape, &value) {
            Ok(node) => node,
            Err(rule) => return Err(InsertError::Full { rule }),
        };
        self.arenas.node_mut(node).lower = below;
        if above != NONE {
            self.arenas.node_mut(above).lower = node;
        } else {
            self.arenas.node_mut(node).chain = std::mem::replace(&mut self.arenas.node_mut(below).chain, NONE);
            self.relink(home, hash, place, node);
        }
        self.count_in(home, shape, priority);
        Ok(self.id(node))
    }

    fn unlink(&mut self, home: u32, hash: u32, place: &Place, node: u32, value: &[u64; N]) {
        let (lower, chain) = (self.arenas.node(node).lower, self.arenas.node(node).chain);
        if place.node != node {
            let mut above = place.node;
            while self.arenas.node(above).lower != node {
                above = self.arenas.node(above).lower;
            }
            self.arenas.node_mut(above).lower = lower;
        } else if lower != NONE {
            self.arenas.node_mut(lower).chain = chain;
            self.relink(home, hash, place, lower);
        } else if chain != NONE || place.before != NONE {
            self.relink(home, hash, place, chain);
        } else if let Some(subtable) = &mut self.subtables[home as usize] {
            subtable.index.remove(hash, node);
            subtable.bucket_removed(value, self.hash, &mut self.prefixes);
        }
    }

    /// Replaces another node of a bucket by `node`.
    fn relink(&mut self, home: u32, hash: u32, place: &Place, node: u32) {
        if place.before == NONE {
            self.subtable_mut(home).index.replace(hash, place.node, node);
        } else {
            self.arenas.node_mut(place.before).chain = node;
        }
    }

    /// Whether a new match of a shape may go into a bucket.
    fn has_room(&self, home: u32, shape: u32, head: Option<u32>) -> bool {
        if self.subtable(home).own_shape == Some(shape) {
            return true;
        }
        let mut node = head.unwrap_or(NONE);
        let mut matches = 0;
        while node != NONE {
            matches += 1;
            node = self.arenas.node(node).chain;
        }
        matches < CHAIN
    }

    /// Finds a subtable for a match whose shape has none yet: its number, the hash there and the
    /// bucket.
    fn find_home(&mut self, shape: u32, matching: &Match<N>) -> (u32, u32, Option<u32>) {
        if let Some(own) = self.shapes.get(shape).own {
            let subtable = self.subtable(own);
            let hash = subtable.hash(matching.value(), self.hash);
            return (own, hash, self.bucket(subtable, hash, matching.value()));
        }
        let mask = *matching.mask();
        let mut wanted = mask;
        if self.order.len() >= self.layout.merging_from() {
            if let Some(found) = self.find_merged_home(shape, matching) {
                return found;
            }
            let relaxed = self.layout.relaxed(&mask);
            let taken = |ranked: &Ranked| self.subtable(ranked.subtable).has_mask(&relaxed);
            if !self.order.iter().any(taken) {
                wanted = relaxed;
            }
        }
        let subtable = Subtable::new(&wanted, &self.layout, &mut self.prefixes);
        let hash = subtable.hash(matching.value(), self.hash);
        let number = match self.free_subtables.pop() {
            Some(number) => number,
            None => {
                self.subtables.push(None);
                (self.subtables.len() - 1) as u32
            }
        };
        self.subtables[number as usize] = Some(subtable);
        if wanted == mask {
            self.own(number, shape);
        }
        (number, hash, None)
    }

    /// The most specific subtable that can hold the match and has room in its bucket.
    fn find_merged_home(&mut self, shape: u32, matching: &Match<N>) -> Option<(u32, u32, Option<u32>)> {
        let mut fitting: Vec<(Reverse<u32>, u32)> = self
            .order
            .iter()
            .map(|ranked| (self.subtable(ranked.subtable), ranked.subtable))
            .filter(|(subtable, _)| subtable.fits(matching.mask()))
            .map(|(subtable, number)| (Reverse(subtable.count_bits()), number))
            .collect();
        fitting.sort_unstable();
        for (_, number) in fitting {
            let subtable = self.subtable(number);
            if subtable.own_shape.is_none() && subtable.has_mask(matching.mask()) {
                self.own(number, shape);
            }
            let subtable = self.subtable(number);
            let hash = subtable.hash(matching.value(), self.hash);
            let head = self.bucket(subtable, hash, matching.value());
            if self.has_room(number, shape, head) {
                return Some((number, hash, head));
            }
        }
        None
    }

    /// Makes a shape, which has no rules in the subtable yet, the subtable's own.
    fn own(&mut self, subtable: u32, shape: u32) {
        debug_assert_eq!(self.shapes.get(shape).own, None);
        self.subtable_mut(subtable).own_shape = Some(shape);
        self.shapes.get_mut(shape).own = Some(subtable);
    }

    fn count_in(&mut self, home: u32, shape: u32, priority: u32) {
        let subtable = self.subtable_mut(home);
        let before = subtable.max_priority();
        subtable.rules += 1;
        subtable.foreign += usize::from(subtable.own_shape != Some(shape));
        subtable.priority_added(priority);
        self.rerank(home, before);
        let shape = self.shapes.get_mut(shape);
        shape.rules += 1;
        match shape.homes.iter_mut().find(|(number, _)| *number == home) {
            Some((_, rules)) => *rules += 1,
            None => shape.homes.push((home, 1)),
        }
        self.len += 1;
    }

    fn count_out(&mut self, home: u32, shape: u32, priority: u32) {
        let subtable = self.subtable_mut(home);
        let before = subtable.max_priority();
        subtable.rules -= 1;
        subtable.foreign -= usize::from(subtable.own_shape != Some(shape));
        subtable.priority_removed(priority);
        self.rerank(home, before);
        self.drop_if_empty(home);
        self.len -= 1;
        let of_shape = self.shapes.get_mut(shape);
        of_shape.rules -= 1;
        if let Some(at) = of_shape.homes.iter().position(|(number, _)| *number == home) {
            of_shape.homes[at].1 -= 1;
            if of_shape.homes[at].1 == 0 {
                of_shape.homes.remove(at);
            }
        }
        if of_shape.rules == 0 {
            self.forget_shape(shape);
        }
    }

    fn forget_shape(&mut self, shape: u32) {
        if let Some(own) = self.shapes.get(shape).own {
            self.subtable_mut(own).own_shape = None;
        }
        self.shapes.forget(shape);
    }

    fn drop_if_empty(&mut self, home: u32) {
        if self.subtable(home).rules == 0
            && let Some(gone) = self.subtables[home as usize].take()
        {
            self.prefixes.release(&gone.tracked);
            if let Some(shape) = gone.own_shape {
                self.shapes.get_mut(shape).own = None;
            }
            self.free_subtables.push(home);
        }
    }

    /// Moves a subtable to its place after its highest priority changed from `before`.
    fn rerank(&mut self, subtable: u32, before: Option<u32>) {
        let now = self.subtable(subtable).max_priority();
        if now == before {
            return;
        }
        let rank = |ranked: &Ranked| (Reverse(ranked.max_priority), ranked.subtable);
        if let Some(max_priority) = before {
            let old = Ranked { max_priority, subtable };
            if let Ok(at) = self.order.binary_search_by_key(&rank(&old), rank) {
                self.order.remove(at);
            }
        }
        if let Some(max_priority) = now {
            let new = Ranked { max_priority, subtable };
            let at = self.order.partition_point(|other| rank(other) < rank(&new));
            self.order.insert(at, new);
        }
    }
}

/// A match in a bucket's chain.
struct Place {
    /// The match before it; `NONE` for the first.
    before: u32,
    /// Its highest rule.
    node: u32,
}
