//! The lookup, and what it says of the bits it looked at.
//!
//! The mask that comes out is a proof: every packet that has the same bits there takes the same way through the subtables. It has for each
//! subtable visited
//! - with a bucket for the packet: the subtable's mask; for the matches in the bucket that were tried, the rule's mask if it matched, else the
//!   leading bits of one prefix, or a word, in which it differs;
//! - without one: the bits of the cheapest reason found, looked for stage by stage: a prefix that no rule has, else the words up to the first
//!   stage that no rule agrees with, at worst all of them.

use crate::arena::NONE;
use crate::classifier::{Classifier, RuleId};
use crate::prefixes::Memo;
use crate::subtable::Subtable;

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

impl<R, const N: usize> Classifier<R, N> {
    /// The rule of highest priority that matches `key`. The bits that the answer depends on are added to `consulted`: for every key that has the
    /// same bits there, the answer is the same.
    ///
    /// Of several rules of that priority it is one, always the same until the rules change.
    pub fn lookup(&self, key: &[u64; N], consulted: &mut [u64; N]) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, |_, _| true)
    }

    /// As [`Classifier::lookup`], of the rules that `accept` accepts by rule and priority.
    ///
    /// It is asked only about rules that match and have a higher priority than the best one accepted so far, and about each at most once; among
    /// them are all that match and have a higher priority than the one returned. A caller that collects matches (conjunctions) or hides rules
    /// (a bundle under way) does it here; `consulted` covers the rules refused too.
    pub fn lookup_where(
        &self,
        key: &[u64; N],
        consulted: &mut [u64; N],
        accept: impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, accept)
    }

    /// The rule of highest priority that matches `key`, by someone who caches nothing.
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
        let mut memo = Memo::new();
        let mut best: Option<Found<'_, R>> = None;
        for ranked in &self.order {
            let floor = best.as_ref().map(|best| best.priority);
            if floor.is_some_and(|floor| floor >= ranked.max_priority) {
                break;
            }
            let subtable = self.subtable(ranked.subtable);
            if CONSULT && pass_over(subtable, consulted, &memo) {
                continue;
            }
            match self.bucket(subtable, subtable.hash(key, self.hash), key) {
                None if CONSULT => self.explain_miss(subtable, key, consulted, &mut memo),
                None => {}
                Some(head) => {
                    if CONSULT {
                        subtable.widen(consulted, subtable.words.len());
                    }
                    let found = if subtable.foreign == 0 {
                        self.highest(head, floor, &mut accept)
                    } else {
                        self.walk::<CONSULT>(head, floor, key, consulted, &mut accept)
                    };
                    best = found.or(best);
                }
            }
        }
        best
    }

    /// The highest rule of a match that is accepted, if it is above `floor`.
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

    /// The same over all matches of a bucket of which some may not match the key.
    fn walk<const CONSULT: bool>(
        &self,
        head: u32,
        mut floor: Option<u32>,
        key: &[u64; N],
        consulted: &mut [u64; N],
        accept: &mut impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        let mut best = None;
        let mut node = head;
        while node != NONE {
            let here = self.arenas.node(node);
            if floor.is_none_or(|floor| floor < here.priority) {
                let shape = self.shapes.get(here.shape);
                if shape.equal(self.arenas.value(node), key) {
                    if CONSULT {
                        consulted
                            .iter_mut()
                            .zip(&shape.mask)
                            .for_each(|(word, bits)| *word |= bits);
                    }
                    if let Some(found) = self.highest(node, floor, accept) {
                        floor = Some(found.priority);
                        best = Some(found);
                    }
                } else if CONSULT {
                    self.explain_mismatch(here.shape, self.arenas.value(node), key, consulted);
                }
            }
            node = here.chain;
        }
        best
    }

    /// Adds the bits that show that a subtable has no bucket for the key.
    fn explain_miss(&self, subtable: &Subtable, key: &[u64; N], consulted: &mut [u64; N], memo: &mut Memo) {
        let mut state = self.hash.start();
        let (mut words, mut tracked) = (0, 0);
        for stage in &subtable.stages {
            let absent = subtable.tracked[tracked..stage.tracked_end]
                .iter()
                .filter_map(|tracked| Some((self.prefixes.absent(*tracked, key, memo)?, tracked.field)))
                .min_by_key(|(bits, _)| *bits);
            if let Some((bits, field)) = absent {
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

    /// Adds bits that show that a match of a shape and value is not for the key, unless some are there.
    fn explain_mismatch(&self, shape: u32, packed: &[u64], key: &[u64; N], consulted: &mut [u64; N]) {
        let mask = &self.shapes.get(shape).mask;
        let value = self.shapes.get(shape).unpack(packed);
        let difference: [u64; N] = std::array::from_fn(|word| (value[word] ^ key[word]) & mask[word]);
        if difference
            .iter()
            .zip(&*consulted)
            .any(|(bits, known)| bits & known != 0)
        {
            return;
        }
        let reach = self
            .prefixes
            .fields()
            .iter()
            .filter(|field| field.prefix_len(mask).is_some())
            .filter_map(|field| Some((field.reach(&difference)?, field)))
            .min_by_key(|(len, _)| *len);
        if let Some((len, field)) = reach {
            field.widen(consulted, len);
        } else if let Some(word) = difference.iter().position(|bits| *bits != 0) {
            consulted[word] |= mask[word];
        }
    }
}

/// Whether what the lookup already knows of the packet's prefixes rules a subtable out; then says by which bits.
#[inline]
fn pass_over(subtable: &Subtable, consulted: &mut [u64], memo: &Memo) -> bool {
    for tracked in &subtable.tracked {
        if let Some(bits) = memo.known_absent(tracked.set) {
            tracked.field.widen(consulted, bits);
            return true;
        }
    }
    false
}
