//! Changes of very many rules, which are looked for in steps, and changed in steps of a bundle:
//! whoever else wants the tables waits for one step, and packets see all or nothing of it.

use super::condition::accepted;
use super::update::Log;
use super::{Condition, Cursor, FlowTables, RuleRef, TABLES};
use openflow::OfError;
use openflow::model::{FlowCommand, FlowMod};
use wire::Nanos;

impl FlowTables {
    /// Whether a change has to look for the rules that it is about among more than `few`.
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

    /// Looks at up to `most` rules from `from` on, and adds those that a change is about. Where to
    /// go on; `None` behind the last rule.
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

    /// Does to rules what a change asks that is about them, as far as they are still there and
    /// meant.
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
