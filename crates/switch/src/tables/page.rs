//! Walks over rules in steps, for callers that must not lock the tables for long.

use super::{Condition, FlowTables, Rule, RuleImage, RuleRef, TunnelOptions, words};
use crate::tables::WORDS;
use classifier::Entry;
use openflow::model;

/// Where a walk over the rules of tables continues. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    table: u8,
    at: classifier::Cursor,
}

/// A rule that a walk has found.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its handle.
    pub at: RuleRef,
    /// Its priority.
    pub priority: u16,
    /// The rule.
    pub rule: &'a Rule,
    entry: &'a Entry<'a, Rule, WORDS>,
    options: &'a TunnelOptions,
}

impl Found<'_> {
    /// Its match.
    pub fn matching(&self) -> model::Match {
        self.options.match_of(&self.entry.matching())
    }
}

impl FlowTables {
    /// Examines up to `max` rules from `from` on and shows those that meet a condition, in one
    /// table or all. Returns where to continue; `None` after the last rule. A rule that exists
    /// during the whole walk is found once, whatever is added and removed between the steps.
    pub fn page(
        &self,
        table: Option<u8>,
        condition: &Condition,
        from: Cursor,
        max: usize,
        show: impl FnMut(Found<'_>),
    ) -> Option<Cursor> {
        self.walk((table, false), condition, from, max, show)
    }

    /// As [`FlowTables::page`], with `latest` for the rules of the latest version.
    pub(super) fn walk(
        &self,
        (table, latest): (Option<u8>, bool),
        condition: &Condition,
        from: Cursor,
        max: usize,
        mut show: impl FnMut(Found<'_>),
    ) -> Option<Cursor> {
        let mut left = max;
        let mut cursor = from;
        for (number, there) in self.chosen(table).skip_while(|(number, _)| *number < from.table) {
            if number != cursor.table {
                cursor = Cursor {
                    table: number,
                    at: classifier::Cursor::default(),
                };
            }
            let mut looked_at = 0;
            let next = there.rules.page(latest, cursor.at, left, |entry| {
                looked_at += 1;
                if condition.meets(&entry) {
                    let at = RuleRef {
                        table: number,
                        id: entry.id,
                    };
                    show(Found {
                        at,
                        priority: entry.priority as u16,
                        rule: entry.rule,
                        entry: &entry,
                        options: &self.options,
                    });
                }
            });
            if let Some(at) = next {
                return Some(Cursor { table: number, at });
            }
            left -= looked_at;
            if left == 0 {
                // The start of the next table, if there is one.
                let table = number.checked_add(1)?;
                return Some(Cursor {
                    table,
                    at: classifier::Cursor::default(),
                });
            }
        }
        None
    }
}

impl Condition {
    /// Whether a rule that was found meets the condition.
    pub fn meets_found(&self, found: &Found<'_>) -> bool {
        self.meets(found.entry)
    }

    /// Whether a rule, as it was at one time, meets the condition.
    pub fn covers_image(&self, image: &RuleImage) -> bool {
        let words = || match &self.options {
            Some(options) => options.match_words(&image.matching),
            None => words::match_words(&image.matching),
        };
        self.accepts_image(image) && (self.is_any_match() || self.matching.covers(&words()))
    }

    /// Whether a rule meets the condition.
    fn meets(&self, entry: &Entry<'_, Rule, WORDS>) -> bool {
        (self.is_any_match() || self.matching.covers(&entry.matching())) && self.accepts(entry.rule)
    }
}
