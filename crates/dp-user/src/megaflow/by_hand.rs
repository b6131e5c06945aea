//! Megaflows that a user adds and removes by hand.

use super::{FlowTable, MAX_MASKS};
use crate::command::FlowEdit;
use dp::{DropCause, PutFlow, PutFlowError, Translation};
use nanos::Nanos;

impl FlowTable {
    /// Adds, changes or removes a megaflow.
    ///
    /// # Errors
    /// Nothing has changed. To remove one that is not there is [`PutFlowError::Missing`].
    pub(crate) fn edit(&mut self, edit: &FlowEdit, now: Nanos) -> Result<(), PutFlowError> {
        let old = self.exactly(edit);
        let Some((actions, how)) = &edit.actions else {
            self.remove(old.ok_or(PutFlowError::Missing)?);
            return Ok(());
        };
        match (how, old) {
            (PutFlow::Add, Some(_)) => return Err(PutFlowError::Exists),
            (PutFlow::Modify, None) => return Err(PutFlowError::Missing),
            _ => {}
        }
        if self.subtables.len() >= MAX_MASKS && !self.subtables.has(&edit.mask) {
            return Err(PutFlowError::NoRoom);
        }
        let translation = Translation {
            actions: actions.clone(),
            mask: edit.mask,
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: actions.is_empty().then_some(DropCause::NoRule),
        };
        self.insert(&edit.key, edit.key.in_port(), &translation, 0, now);
        Ok(())
    }

    fn exactly(&mut self, edit: &FlowEdit) -> Option<u32> {
        if !self.subtables.has(&edit.mask) {
            return None;
        }
        let subtable = self.subtables.of(&edit.mask);
        let masked = edit.key.masked(&edit.mask);
        let hash = self.hasher.masked(&masked, self.subtables.pairs(subtable));
        self.subtables.find(subtable, hash, &masked, &self.storage)
    }
}
