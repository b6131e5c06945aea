//! Megaflows that a user adds and removes by hand.

use super::FlowTable;
use crate::command::FlowEdit;
use dp::{DropCause, Translation};
use nanos::Nanos;

impl FlowTable {
    /// Adds or removes a megaflow; returns whether there was one with its key and mask.
    pub(crate) fn edit(&mut self, edit: &FlowEdit, now: Nanos) -> bool {
        let old = self.exactly(edit);
        match &edit.actions {
            Some(actions) => {
                let translation = Translation {
                    actions: actions.clone(),
                    mask: edit.mask,
                    deps: Default::default(),
                    effects: Default::default(),
                    credits: Default::default(),
                    drop: actions.is_empty().then_some(DropCause::NoRule),
                };
                self.insert(&edit.key, edit.key.in_port(), &translation, 0, now);
            }
            None => {
                if let Some(number) = old {
                    self.remove(number);
                }
            }
        }
        old.is_some()
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
