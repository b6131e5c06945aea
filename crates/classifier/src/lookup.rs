//! The lookup, and the mask of consulted bits.
//!
//! A lookup first tries the subtables, the highest priorities first, and then makes the mask for
//! the rule that won. The mask proves that every packet with the same bits gets the same answer. It
//! has
//! - the mask of the winning rule;
//! - for each subtable tried that has a bucket for the packet: the subtable's mask, and for each
//!   match there that could have won, bits in which the packet differs;
//! - for each one tried that has none: a proof. A proof without new bits comes first; else those of
//!   the earliest stage that has any: the shortest prefix that no rule has, else the words up to
//!   there if no rule agrees with them. At worst, all words.

use smallvec::SmallVec;

use crate::arena::NONE;
use crate::classifier::{Classifier, RuleId};
use crate::prefixes::PrefixResults;
use crate::subtable::Subtable;
use crate::words::{Match, add_bits};

/// A rule that was found.
#[derive(Debug)]
pub struct Found<'a, R> {
    /// Its handle.
    pub id: RuleId,
    /// Its priority.
    pub priority: u32,
    /// The rule.
    pub rule: &'a R,
}

/// Number of tried subtables recorded without an allocation.
const INLINE: usize = 64;

/// A result to explain in the mask once the winning rule is known.
#[derive(Clone, Copy)]
enum Tried {
    /// A subtable that has no bucket for the key.
    Missed(u32),
    /// The first match of a bucket with matches of several masks.
    Bucket(u32),
}

impl<R, const N: usize> Classifier<R, N> {
    /// Prefetches the memory of a rule with this match. Before several lookups, prefetch for all of
    /// them.
    pub fn prefetch(&self, matching: &Match<N>) {
        let Some(shape) = self.shapes.find(matching.mask()) else {
            return;
        };
        for (home, _) in &self.shapes.get(shape).homes {
            let subtable = self.subtable(*home);
            subtable.index.prefetch(subtable.hash(matching.value(), self.hash));
        }
    }

    /// The rule of highest priority that matches `key`. Adds to `consulted` the bits that the
    /// answer depends on: every key with the same bits there has the same answer. Prefers bits that
    /// are in it already.
    ///
    /// Of several rules of that priority it returns always the same one until the rules change.
    pub fn lookup(&self, key: &[u64; N], consulted: &mut [u64; N]) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, |_, _| true)
    }

    /// As [`Classifier::lookup`], but only among rules that `accept` accepts.
    ///
    /// `accept` gets only rules that match, in no particular order, each at most once, and among
    /// them all with a higher priority than the returned one; `consulted` covers which those are. A
    /// caller that collects matches (conjunctions) or hides rules (a bundle under way) does it
    /// here; it disregards refused rules of lower priority than the one returned.
    pub fn lookup_where(
        &self,
        key: &[u64; N],
        consulted: &mut [u64; N],
        accept: impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, accept)
    }

    /// The rule of highest priority that matches `key`, without a mask, for callers that cache
    /// nothing.
    pub fn find(&self, key: &[u64; N]) -> Option<Found<'_, R>> {
        self.search::<false>(key, &mut [0; N], |_, _| true)
    }

    #[inline]
    fn search<const CONSULT: bool>(
        &self,
        key: &[u64; N],
        consulted: &mut [u64; N],
        mut accept: impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        let mut results = PrefixResults::new();
        let mut tried = SmallVec::<[Tried; INLINE]>::new();
        let mut best: Option<Found<'_, R>> = None;
        for ranked in &self.order {
            let floor = best.as_ref().map(|best| best.priority);
            if floor.is_some_and(|floor| floor >= ranked.max_priority) {
                break;
            }
            let subtable = self.subtable(ranked.subtable);
            if CONSULT
                && subtable
                    .tracked
                    .iter()
                    .any(|tracked| results.known_absent(tracked.set).is_some())
            {
                tried.push(Tried::Missed(ranked.subtable));
                continue;
            }
            match self.bucket(subtable, subtable.hash(key, self.hash), key) {
                None if CONSULT => {
                    // Stores the missing prefix for later subtables.
                    let _ = subtable
                        .tracked
                        .iter()
                        .any(|tracked| self.prefixes.absent(*tracked, key, &mut results).is_some());
                    tried.push(Tried::Missed(ranked.subtable));
                }
                None => {}
                Some(head) => {
                    if CONSULT {
                        subtable.widen(consulted, subtable.words.len());
                    }
                    let found = if subtable.foreign == 0 {
                        self.highest(head, floor, &mut accept)
                    } else {
                        tried.push(Tried::Bucket(head));
                        self.walk(head, floor, key, &mut accept)
                    };
                    best = found.or(best);
                }
            }
        }
        if CONSULT {
            if let Some(best) = &best {
                add_bits(consulted, &self.shapes.get(self.arenas.node(best.id.node).shape).mask);
            }
            let won = best.as_ref().map(|best| best.priority);
            for tried in tried {
                match tried {
                    Tried::Missed(subtable) => self.explain_miss(self.subtable(subtable), key, consulted, &mut results),
                    Tried::Bucket(head) => self.explain_bucket(head, won, key, consulted),
                }
            }
        }
        best
    }

    /// The highest accepted rule of a match, if it is above `floor`.
    #[inline]
    fn highest(
        &self,
        mut node: u32,
        floor: Option<u32>,
        accept: &mut impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        while node != NONE {
            let here = self.arenas.node(node);
            if floor.is_some_and(|floor| floor >= here.priority) {
                return None;
            }
            if let Some(rule) = &here.rule
                && accept(rule, here.priority)
            {
                return Some(Found {
                    id: self.id(node),
                    priority: here.priority,
                    rule,
                });
            }
            node = here.lower;
        }
        None
    }

    /// The same over all matches of a bucket, some of which may not match the key.
    fn walk(
        &self,
        head: u32,
        mut floor: Option<u32>,
        key: &[u64; N],
        accept: &mut impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        let mut best = None;
        let mut node = head;
        while node != NONE {
            let here = self.arenas.node(node);
            let shape = self.shapes.get(here.shape);
            if floor.is_none_or(|floor| floor < here.priority)
                && shape.equal(self.arenas.value(node), key)
                && let Some(found) = self.highest(node, floor, accept)
            {
                floor = Some(found.priority);
                best = Some(found);
            }
            node = here.chain;
        }
        best
    }

    /// Adds bits that prove that a subtable has no bucket for the key, unless present.
    fn explain_miss(&self, subtable: &Subtable, key: &[u64; N], consulted: &mut [u64; N], results: &mut PrefixResults) {
        for tracked in &subtable.tracked {
            let known = match results.known_absent(tracked.set) {
                None if tracked.field.is_in(consulted, tracked.len) => self.prefixes.absent(*tracked, key, results),
                known => known,
            };
            if known.is_some_and(|bits| tracked.field.is_in(consulted, bits)) {
                return;
            }
        }
        let mut state = self.hash.start();
        let (mut words, mut tracked) = (0, 0);
        for stage in &subtable.stages {
            let absent = subtable.tracked[tracked..stage.tracked_end]
                .iter()
                .filter_map(|tracked| Some((tracked.field, self.prefixes.absent(*tracked, key, results)?)))
                .min_by_key(|(field, bits)| field.lacks(consulted, *bits));
            if let Some((field, bits)) = absent {
                field.widen(consulted, bits);
                return;
            }
            if let Some(seen) = &stage.seen {
                for (word, bits) in &subtable.words[words..stage.words_end] {
                    state = self.hash.step(state, key[usize::from(*word)] & bits);
                }
                if !seen.contains(self.hash.finish(state)) {
                    subtable.widen(consulted, stage.words_end);
                    return;
                }
            }
            (words, tracked) = (stage.words_end, stage.tracked_end);
        }
        subtable.widen(consulted, subtable.words.len());
    }

    /// Adds bits that prove which matches of a bucket match the key, among the relevant ones: those
    /// that would have won against priority `won`, and those of rules that the caller refused.
    fn explain_bucket(&self, head: u32, won: Option<u32>, key: &[u64; N], consulted: &mut [u64; N]) {
        let mut node = head;
        while node != NONE {
            let here = self.arenas.node(node);
            if won.is_none_or(|won| here.priority >= won) {
                let shape = self.shapes.get(here.shape);
                let value = shape.unpack(self.arenas.value(node));
                let difference: [u64; N] = std::array::from_fn(|word| (value[word] ^ key[word]) & shape.mask[word]);
                if difference != [0; N] {
                    self.explain_difference(&difference, &shape.mask, consulted);
                } else if won != Some(here.priority) {
                    add_bits(consulted, &shape.mask);
                }
            }
            node = here.chain;
        }
    }

    /// Adds bits of `mask` with one that is set in `difference`, unless one is present or none is
    /// set.
    fn explain_difference(&self, difference: &[u64; N], mask: &[u64; N], consulted: &mut [u64; N]) {
        if difference
            .iter()
            .zip(&*consulted)
            .any(|(bits, known)| bits & known != 0)
        {
            return;
        }
        let Some(stage) = self
            .layout
            .stages()
            .find(|stage| difference[stage.clone()].iter().any(|bits| *bits != 0))
        else {
            return;
        };
        let reach = self
            .layout
            .fields()
            .iter()
            .filter(|field| stage.contains(&usize::from(field.word)) && field.prefix_len(mask).is_some())
            .filter_map(|field| Some((field, field.reach(difference)?)))
            .map(|(field, len)| (field.lacks(consulted, len), Some((field, len)), 0));
        let rest = stage
            .clone()
            .filter(|word| difference[*word] & self.layout.untracked(*word) != 0)
            .map(|word| (mask[word] & self.layout.untracked(word), word))
            .map(|(bits, word)| ((bits & !consulted[word]).count_ones(), None, word));
        match reach.chain(rest).min_by_key(|(lacks, ..)| *lacks) {
            Some((_, Some((field, len)), _)) => field.widen(consulted, len),
            Some((_, None, word)) => consulted[word] |= mask[word] & self.layout.untracked(word),
            // A field with a mask that is not a prefix.
            None => stage.for_each(|word| consulted[word] |= if difference[word] == 0 { 0 } else { mask[word] }),
        }
    }
}
