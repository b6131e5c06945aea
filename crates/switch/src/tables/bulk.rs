//! Changes of very many rules. The rules are searched in steps and changed in steps of a bundle, so
//! other users of the tables wait for one step only, and packets see all of the change or none.

use super::condition::accepted;
use super::update::Log;
use super::{Condition, Cursor, FlowTables, RuleRef, TABLES};
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{FlowCommand, FlowMod};

impl FlowTables {
    /// Whether a flow-mod has to search for its rules among more than `few`.
    pub(crate) fn is_mass(&self, change: &FlowMod, few: usize) -> bool {
        let loose = matches!(change.command, FlowCommand::Modify | FlowCommand::Delete);
        if !loose || change.table.is_some_and(|table| table >= TABLES) {
            return false;
        }
        let rules = |(_, table): (u8, &super::Table)| table.rules.len();
        if self.chosen(change.table).map(rules).sum::<usize>() <= few {
            return false;
        }
        let Ok(matching) = accepted(&change.matching, &self.options) else {
            return false;
        };
        let cost = |(_, table): (u8, &super::Table)| table.rules.covered_cost(&matching, few);
        self.chosen(change.table).map(cost).sum::<usize>() > few
    }

    /// Examines up to `most` rules from `from` on, and appends those that a flow-mod covers.
    /// Returns where to continue; `None` after the last rule.
    pub(crate) fn find_meant(
        &self,
        change: &FlowMod,
        from: Cursor,
        most: usize,
        meant: &mut Vec<RuleRef>,
    ) -> Result<Option<Cursor>, OfError> {
        let condition = Condition::of_change(change, accepted(&change.matching, &self.options)?);
        Ok(self.walk((change.table, true), &condition, from, most, |found| {
            meant.push(found.at)
        }))
    }

    /// Applies a flow-mod to the rules that it covers, as far as they still exist and it still
    /// covers them.
    pub(crate) fn change_meant(
        &mut self,
        change: &FlowMod,
        meant: &[RuleRef],
        now: Nanos,
        log: &mut Log,
    ) -> Result<(), OfError> {
        let matching = accepted(&change.matching, &self.options)?;
        let condition = Condition::of_change(change, matching);
        let still = |at: &RuleRef| self.is_latest(*at) && self.rule(*at).is_some_and(|rule| condition.accepts(rule));
        let there: Vec<RuleRef> = meant.iter().copied().filter(still).collect();
        if change.command == FlowCommand::Delete {
            self.delete_each(&matching, &there, now, log);
        } else if !there.is_empty() || meant.is_empty() {
            self.modify_each(change, &matching, &there, now, log)?;
        }
        self.note_changed(log);
        Ok(())
    }
}
