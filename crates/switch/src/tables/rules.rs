//! A table's rules in two versions: the committed one, which lookups see, and the latest one.
//!
//! While a bundle is open, rules that it adds are *coming* and rules that it removes are *going*.
//! Lookups see the committed version; changes see the latest one. A commit raises one version
//! number; the rules are cleaned up afterwards, in steps.

use super::{Rule, WORDS};
use classifier::{Classifier, Cursor, Entry, Found, Match, RuleId};
use std::ops::{Deref, DerefMut};

/// The versions that have a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Span {
    /// All versions.
    #[default]
    Always,
    /// From this version on.
    From(u32),
    /// Before this version.
    Until(u32),
}

impl Span {
    fn holds(self, version: u32) -> bool {
        match self {
            Span::Always => true,
            Span::From(first) => version >= first,
            Span::Until(end) => version < end,
        }
    }
}

/// The rules of a table. The classifier holds them and knows nothing of versions.
#[derive(Debug)]
pub(crate) struct Rules {
    all: Classifier<Rule, WORDS>,
    /// The version that lookups see.
    committed: u32,
    /// The version that changes see.
    latest: u32,
    /// Number of rules that are not in all versions.
    spanned: usize,
    /// Number of rules in the latest version.
    len: usize,
    /// Number of rules in the committed version.
    len_committed: usize,
}

impl Deref for Rules {
    type Target = Classifier<Rule, WORDS>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Rules {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

impl Rules {
    pub(super) fn new(all: Classifier<Rule, WORDS>, committed: u32, latest: u32) -> Rules {
        Rules {
            all,
            committed,
            latest,
            spanned: 0,
            len: 0,
            len_committed: 0,
        }
    }

    /// As [`Classifier::lookup_where`], in the committed version.
    pub(crate) fn lookup_where<'a>(
        &'a self,
        key: &[u64; WORDS],
        consulted: &mut [u64; WORDS],
        mut accept: impl FnMut(&Rule, u32) -> bool,
    ) -> Option<Found<'a, Rule>> {
        let committed = self.committed;
        self.all.lookup_where(key, consulted, |rule, priority| {
            rule.span.holds(committed) && accept(rule, priority)
        })
    }

    /// Number of rules in the latest version.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of committed rules.
    pub(crate) fn committed_len(&self) -> usize {
        self.len_committed
    }

    /// As [`Classifier::page`], for the committed rules or those of the latest version.
    pub(crate) fn page(
        &self,
        latest: bool,
        from: Cursor,
        max: usize,
        mut visit: impl FnMut(Entry<'_, Rule, WORDS>),
    ) -> Option<Cursor> {
        let version = if latest { self.latest } else { self.committed };
        self.all.page(from, max, |entry| {
            if entry.rule.span.holds(version) {
                visit(entry);
            }
        })
    }

    /// The committed rules, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_, Rule, WORDS>> {
        let committed = self.committed;
        self.all.iter().filter(move |entry| entry.rule.span.holds(committed))
    }

    /// Whether a rule is in the committed version.
    pub(super) fn is_committed(&self, rule: &Rule) -> bool {
        rule.span.holds(self.committed)
    }

    /// Whether a rule is in the latest version.
    pub(super) fn is_latest(&self, rule: &Rule) -> bool {
        rule.span.holds(self.latest)
    }

    /// The latest version's rule of exactly this match and priority.
    pub(crate) fn find_strict(&self, matching: &Match<WORDS>, priority: u32) -> Option<RuleId> {
        self.all
            .find_strict_where(matching, priority, |rule| self.is_latest(rule))
    }

    /// The rules of the latest version whose matches `matching` covers.
    pub(super) fn covered_by(&self, matching: &Match<WORDS>) -> Vec<RuleId> {
        let mut found = self.all.covered_by(matching);
        if self.spanned > 0 {
            found.retain(|id| self.all.get(*id).is_some_and(|rule| self.is_latest(rule)));
        }
        found
    }

    /// A rule of the latest version with this priority whose match overlaps `matching`.
    pub(super) fn overlapping_at(&self, matching: &Match<WORDS>, priority: u32) -> Option<RuleId> {
        self.all
            .overlapping_at_where(matching, priority, |rule| self.is_latest(rule))
    }

    /// Adds a rule. The latest version has no rule of its match and priority.
    pub(super) fn put(&mut self, matching: &Match<WORDS>, priority: u32, rule: Rule) -> Option<RuleId> {
        let span = rule.span;
        let id = self.all.insert_over(matching, priority, rule).ok()?;
        self.count(span, 1);
        Some(id)
    }

    /// Removes a rule for good.
    pub(super) fn take(&mut self, id: RuleId) -> Option<Rule> {
        let rule = self.all.remove(id)?;
        self.count(rule.span, usize::MAX);
        Some(rule)
    }

    /// Sets the versions that have a rule.
    pub(super) fn set_span(&mut self, id: RuleId, span: Span) {
        let Some(rule) = self.all.get_mut(id) else { return };
        let before = std::mem::replace(&mut rule.span, span);
        self.count(before, usize::MAX);
        self.count(span, 1);
    }

    /// Sets the versions: the latest becomes the committed one (commit), the committed becomes the
    /// latest one (abort), or a new one becomes the latest (open).
    pub(super) fn set_versions(&mut self, committed: u32, latest: u32) {
        if committed != self.committed {
            self.len_committed = self.len;
        } else if latest < self.latest {
            self.len = self.len_committed;
        }
        self.committed = committed;
        self.latest = latest;
    }

    /// Adds a rule to the counts (1) or subtracts it (-1, wrapping).
    fn count(&mut self, span: Span, one: usize) {
        if span != Span::Always {
            self.spanned = self.spanned.wrapping_add(one);
        }
        if span.holds(self.latest) {
            self.len = self.len.wrapping_add(one);
        }
        if span.holds(self.committed) {
            self.len_committed = self.len_committed.wrapping_add(one);
        }
    }
}
