//! The lookup of a rule, with matches of several dimensions (ovs-fields(7), "Conjunctive Match
//! Fields").
//!
//! Rules with `conjunction` actions are dimensions of a conjunctive match. The match is complete if
//! a packet matches a rule of one priority for each of its dimensions, and no other rule of a
//! higher priority. The packet is then looked up again with the number of the match in `conj_id`.

use super::budget::cost;
use super::pipeline::Pipeline;
use super::words::{self, StateWords};
use super::{Rule, Rules};
use classifier::Found;
use flow::MatchField;
use openflow::model::{Action, Instructions};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a rule is a dimension of a match and has no other instructions.
fn is_dimension(rule: &Rule) -> bool {
    let first = rule.instructions.apply.first();
    matches!(first, Some(Action::Conjunction { .. } | Action::Note(_)))
        && rule
            .instructions
            .apply
            .iter()
            .any(|action| matches!(action, Action::Conjunction { .. }))
}

impl Pipeline<'_> {
    /// The rule for a packet.
    pub(super) fn find<'r>(&mut self, rules: &'r Rules, key: &StateWords) -> Option<Found<'r, Rule>> {
        let mut dimensions = SmallVec::<[(u32, Arc<Instructions>); 4]>::new();
        let bare = self.is_bare();
        let meets = |rule: &Rule| !(bare && rule.of_ethernet);
        let found = rules.lookup_where(key, &mut self.consulted, |rule, priority| {
            if !meets(rule) {
                return false;
            }
            let dimension = is_dimension(rule);
            if dimension {
                dimensions.push((priority, rule.instructions.clone()));
            }
            !dimension
        });
        if dimensions.is_empty() {
            return found;
        }
        let actions: usize = dimensions.iter().map(|(_, rule)| 1 + rule.apply.len()).sum();
        let per_lookup = cost::LOOKUP + cost::SUBTABLE * rules.stats().subtables;
        if !self.spend(4 * actions) {
            return None;
        }
        let floor = found.as_ref().map(|found| found.priority);
        dimensions.retain(|(priority, _)| floor.is_none_or(|floor| *priority > floor));
        dimensions.sort_by_key(|(priority, _)| Reverse(*priority));
        for same in dimensions.chunk_by(|a, b| a.0 == b.0) {
            for id in complete(same) {
                if !self.spend(per_lookup) {
                    return None;
                }
                let mut with_id = *key;
                words::put(&mut with_id, MatchField::ConjId, id.into());
                let whole = rules.lookup_where(&with_id, &mut self.consulted, |rule, _| {
                    meets(rule) && !is_dimension(rule)
                });
                if whole.is_some() {
                    return whole;
                }
            }
        }
        found
    }
}

/// The conjunctive matches that are complete by rules of one priority.
fn complete(rules: &[(u32, Arc<Instructions>)]) -> Vec<u32> {
    let mut seen = BTreeMap::<(u32, u8), u64>::new();
    for action in rules.iter().flat_map(|(_, instructions)| &instructions.apply) {
        if let Action::Conjunction { id, clause, n_clauses } = action {
            *seen.entry((*id, *n_clauses)).or_default() |= 1u64.checked_shl((*clause).into()).unwrap_or(0);
        }
    }
    let whole = |n: u8| u64::MAX >> (64 - u32::from(n).clamp(1, 64));
    let complete = seen.into_iter().filter(|((_, n), clauses)| *clauses == whole(*n));
    complete.map(|((id, _), _)| id).collect()
}
