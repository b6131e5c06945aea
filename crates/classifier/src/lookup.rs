//! The lookup, and what it says of the bits it looked at.
//!
//! First the subtables are tried, the highest priorities first; then the mask is made, when it is
//! known which rule won. The mask is a proof that no packet with the same bits there can have
//! another answer. It has
//! - the mask of the rule that won;
//! - for each subtable tried that has a bucket for the packet: the subtable's mask, and for each
//!   match there that could have won, bits in which the packet differs;
//! - for each one tried that has none: a reason why. A reason that needs no new bits comes first;
//!   else those of the earliest stage that has any: the shortest prefix that no rule has, else the
//!   words up to there if no rule agrees with them. At worst, all words.

use smallvec::SmallVec;

use crate::arena::NONE;
use crate::classifier::{Classifier, RuleId};
use crate::prefixes::Memo;
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

/// Subtables that a lookup can try before it needs memory for what it tried.
const INLINE: usize = 64;

/// What is to be explained when it is known which rule won.
#[derive(Clone, Copy)]
enum Tried {
    /// A subtable that has no bucket for the key.
    Missed(u32),
    /// The first match of a bucket that has matches of several masks.
    Bucket(u32),
}

impl<R, const N: usize> Classifier<R, N> {
    /// Asks for the memory where a rule of this match is or would be. Who is about to look for
    /// several asks for all of them first.
    pub fn prefetch(&self, matching: &Match<N>) {
        let Some(shape) = self.shapes.find(matching.mask()) else {
            return;
        };
        for (home, _) in &self.shapes.get(shape).homes {
            let subtable = self.subtable(*home);
            subtable.index.prefetch(subtable.hash(matching.value(), self.hash));
        }
    }

    /// The rule of highest priority that matches `key`. The bits that the answer depends on are
    /// added to `consulted`: for every key that has the same bits there, the answer is the same.
    /// Bits that are in it already are preferred over others.
    ///
    /// Of several rules of that priority it is one, always the same until the rules change.
    pub fn lookup(&self, key: &[u64; N], consulted: &mut [u64; N]) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, |_, _| true)
    }

    /// As [`Classifier::lookup`], of the rules that `accept` accepts by rule and priority.
    ///
    /// It is asked only about rules that match, in no particular order, about each at most once.
    /// Among them are all that match and have a higher priority than the one returned; `consulted`
    /// covers which those are. A caller that collects matches (conjunctions) or hides rules (a
    /// bundle under way) does it here; it disregards refused rules of lower priority than the one
    /// returned.
    pub fn lookup_where(
        &self,
        key: &[u64; N],
        consulted: &mut [u64; N],
        accept: impl FnMut(&R, u32) -> bool,
    ) -> Option<Found<'_, R>> {
        self.search::<true>(key, consulted, accept)
    }

    /// The rule of highest priority that matches `key`, for one who caches nothing.
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
                    .any(|tracked| memo.known_absent(tracked.set).is_some())
            {
                tried.push(Tried::Missed(ranked.subtable));
                continue;
            }
            match self.bucket(subtable, subtable.hash(key, self.hash), key) {
                None if CONSULT => {
                    // Finds out, for later subtables, which prefix is to blame.
                    let _ = subtable
                        .tracked
                        .iter()
                        .any(|tracked| self.prefixes.absent(*tracked, key, &mut memo).is_some());
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
                    Tried::Missed(subtable) => self.explain_miss(self.subtable(subtable), key, consulted, &mut memo),
                    Tried::Bucket(head) => self.explain_bucket(head, won, key, consulted),
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

    /// Adds bits that show that a subtable has no bucket for the key, unless they are there.
    fn explain_miss(&self, subtable: &Subtable, key: &[u64; N], consulted: &mut [u64; N], memo: &mut Memo) {
        for tracked in &subtable.tracked {
            let known = match memo.known_absent(tracked.set) {
                None if tracked.field.is_in(consulted, tracked.len) => self.prefixes.absent(*tracked, key, memo),
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
                .filter_map(|tracked| Some((tracked.field, self.prefixes.absent(*tracked, key, memo)?)))
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

    /// Adds bits that show which matches of a bucket are for the key, among those that matter where
    /// a rule of priority `won` was found: those that would have won, and those of rules that the
    /// caller refused.
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

    /// Adds bits of `mask` of which one is set in `difference`, unless one is there or none is set.
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
            // A field with a mask that is no prefix.
            None => stage.for_each(|word| consulted[word] |= if difference[word] == 0 { 0 } else { mask[word] }),
        }
    }
}
