//! Rules by what they match: loose changes, overlap checks, dumps.

use std::ops::ControlFlow;

use crate::arena::NONE;
use crate::classifier::{Classifier, RuleId};
use crate::shapes::Shape;
use crate::words::{Match, is_subset};

/// A rule with all that it was inserted with.
#[derive(Debug)]
pub struct Entry<'a, R, const N: usize> {
    /// Its handle.
    pub id: RuleId,
    /// Its priority.
    pub priority: u32,
    /// The rule.
    pub rule: &'a R,
    shape: &'a Shape<N>,
    packed: &'a [u64],
}

impl<R, const N: usize> Entry<'_, R, N> {
    /// What it matches.
    pub fn matching(&self) -> Match<N> {
        Match::new(&self.shape.unpack(self.packed), &self.shape.mask)
    }
}

/// Position of a walk over all rules. The walk visits each rule that stays exactly once, whatever
/// rules are added or removed between the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(u32);

/// The relation of wanted rules to a match.
#[derive(Clone, Copy)]
enum Relation {
    /// Rules whose keys all match the given match.
    Covered,
    /// Rules with some key that matches the given match.
    Overlapping,
}

/// Where rules with a relation to a match can be.
struct Candidates {
    /// By number, whether rules of the shape can have the relation.
    shapes: Vec<bool>,
    /// Subtables where one bucket has all such rules.
    to_ask: Vec<u32>,
    /// Subtables where any bucket may have such rules.
    to_scan: Vec<u32>,
}

impl<R, const N: usize> Classifier<R, N> {
    /// The rule with its match and priority, unless it was removed.
    pub fn entry(&self, id: RuleId) -> Option<Entry<'_, R, N>> {
        self.get(id)?;
        self.entry_of(id.node)
    }

    /// All rules, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_, R, N>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let node = self.arenas.next_live(next)?;
            next = node + 1;
            self.entry_of(node)
        })
    }

    /// Calls `visit` for up to `max` rules from `from` on. Returns the next position, `None` after
    /// the last rule. Start with `Cursor::default()`. For dumps that must not hold the table for
    /// long.
    pub fn page(&self, from: Cursor, max: usize, mut visit: impl FnMut(Entry<'_, R, N>)) -> Option<Cursor> {
        let mut next = from.0;
        for _ in 0..max {
            let node = self.arenas.next_live(next)?;
            next = node + 1;
            if let Some(entry) = self.entry_of(node) {
                visit(entry);
            }
        }
        Some(Cursor(next))
    }

    /// The rules whose keys all match `matching`: the targets of a loose modification or deletion.
    pub fn covered_by(&self, matching: &Match<N>) -> Vec<RuleId> {
        self.collect(matching, Relation::Covered)
    }

    /// The number of rules that [`Classifier::covered_by`] reads; above `few`, any number above it.
    pub fn covered_cost(&self, matching: &Match<N>, few: usize) -> usize {
        let candidates = self.candidates(matching, Relation::Covered, None);
        let scanned = candidates.to_scan.iter().map(|home| self.subtable(*home).rules);
        let mut count = scanned.sum::<usize>();
        for subtable in candidates.to_ask.iter().map(|home| self.subtable(*home)) {
            let hash = subtable.hash(matching.value(), self.hash);
            let mut first = self.bucket(subtable, hash, matching.value()).unwrap_or(NONE);
            while first != NONE && count <= few {
                let mut node = first;
                while node != NONE && count <= few {
                    count += 1;
                    node = self.arenas.node(node).lower;
                }
                first = self.arenas.node(first).chain;
            }
        }
        count
    }

    /// The rules that overlap `matching`.
    pub fn overlapping(&self, matching: &Match<N>) -> Vec<RuleId> {
        self.collect(matching, Relation::Overlapping)
    }

    /// A rule of this priority that overlaps `matching`, which OpenFlow's check_overlap forbids.
    pub fn overlapping_at(&self, matching: &Match<N>, priority: u32) -> Option<RuleId> {
        self.overlapping_at_where(matching, priority, |_| true)
    }

    /// As [`Classifier::overlapping_at`], of the rules that `accept` accepts.
    pub fn overlapping_at_where(
        &self,
        matching: &Match<N>,
        priority: u32,
        accept: impl Fn(&R) -> bool,
    ) -> Option<RuleId> {
        let first = self.related(matching, Relation::Overlapping, Some(priority), |node| {
            match self.arenas.node(node).rule.as_ref().is_some_and(&accept) {
                true => ControlFlow::Break(node),
                false => ControlFlow::Continue(()),
            }
        });
        first.break_value().map(|node| self.id(node))
    }

    fn collect(&self, matching: &Match<N>, relation: Relation) -> Vec<RuleId> {
        let mut found = Vec::new();
        let all: ControlFlow<()> = self.related(matching, relation, None, |node| {
            found.push(self.id(node));
            ControlFlow::Continue(())
        });
        debug_assert!(all.is_continue());
        found
    }

    /// Calls `visit` for the nodes of rules with this relation to `matching` and the priority, if
    /// given.
    ///
    /// A subtable whose mask is a subset of the match's mask is searched by hash. Others are
    /// scanned; if they have most of the table, it is cheaper to scan all rules in memory order.
    fn related<B>(
        &self,
        matching: &Match<N>,
        relation: Relation,
        priority: Option<u32>,
        mut visit: impl FnMut(u32) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let candidates = self.candidates(matching, relation, priority);
        let is_wanted = |node: u32| {
            let shape = self.arenas.node(node).shape;
            candidates.shapes[shape as usize]
                && differ_nowhere(self.shapes.get(shape), self.arenas.value(node), matching)
        };
        let has_priority = |node: u32| priority.is_none_or(|priority| priority == self.arenas.node(node).priority);
        let rules: usize = candidates.to_scan.iter().map(|home| self.subtable(*home).rules).sum();
        if rules > self.len() / 16 {
            let mut next = 0;
            while let Some(node) = self.arenas.next_live(next) {
                next = node + 1;
                if has_priority(node) && is_wanted(node) {
                    visit(node)?;
                }
            }
            return ControlFlow::Continue(());
        }
        let mut visit_bucket = |head: u32| {
            let mut first = head;
            while first != NONE {
                let mut node = if is_wanted(first) { first } else { NONE };
                while node != NONE {
                    if has_priority(node) {
                        visit(node)?;
                    }
                    node = self.arenas.node(node).lower;
                }
                first = self.arenas.node(first).chain;
            }
            ControlFlow::Continue(())
        };
        for subtable in candidates.to_ask.iter().map(|home| self.subtable(*home)) {
            let hash = subtable.hash(matching.value(), self.hash);
            if let Some(head) = self.bucket(subtable, hash, matching.value()) {
                visit_bucket(head)?;
            }
        }
        for home in candidates.to_scan {
            for head in self.subtable(home).index.payloads() {
                visit_bucket(head)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn candidates(&self, matching: &Match<N>, relation: Relation, priority: Option<u32>) -> Candidates {
        let mut shapes = vec![false; self.shapes.end()];
        let mut homes = Vec::new();
        for (number, shape) in self.shapes.iter() {
            if matches!(relation, Relation::Overlapping) || is_subset(matching.mask(), &shape.mask) {
                shapes[number as usize] = true;
                homes.extend(shape.homes.iter().map(|(home, _)| *home));
            }
        }
        homes.sort_unstable();
        homes.dedup();
        homes.retain(|home| priority.is_none_or(|priority| self.subtable(*home).priorities.contains_key(&priority)));
        let (to_ask, to_scan) = homes
            .into_iter()
            .partition(|home| self.subtable(*home).fits(matching.mask()));
        Candidates {
            shapes,
            to_ask,
            to_scan,
        }
    }

    fn entry_of(&self, node: u32) -> Option<Entry<'_, R, N>> {
        let here = self.arenas.live(node)?;
        Some(Entry {
            id: self.id(node),
            priority: here.priority,
            rule: here.rule.as_ref()?,
            shape: self.shapes.get(here.shape),
            packed: self.arenas.value(node),
        })
    }
}

/// Whether a value of a shape and a match agree in the bits of both masks. If the shape has all
/// bits of the match, the match then covers it.
fn differ_nowhere<const N: usize>(shape: &Shape<N>, packed: &[u64], matching: &Match<N>) -> bool {
    shape
        .words()
        .zip(packed)
        .all(|(word, value)| (value ^ matching.value()[word]) & shape.mask[word] & matching.mask()[word] == 0)
}
