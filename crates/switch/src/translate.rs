//! From a packet's key to the actions for all packets like it.

use crate::switch::Switch;
use crate::tables::{Patience, Pipeline, Translated};
use dp::{Key, Translation};
use wire::Nanos;

impl Switch {
    /// What becomes of a packet, and of all that are like it. Changes nothing.
    /// [`Switch::translate_rules`] says more.
    pub fn translate(&self, key: &Key, _now: Nanos) -> Translation {
        self.translate_rules(key).translation
    }

    /// As [`Switch::translate`], with what was used, what controllers are to be told, and what
    /// [`Switch::accept`] needs.
    pub fn translate_rules(&self, key: &Key) -> Translated {
        match self.translate_within(key, Patience::Whole) {
            Some(translated) => translated,
            None => unreachable!("it is waited for until it is done"),
        }
    }

    /// As [`Switch::translate_rules`], by a caller with little patience: `None` where that is over
    /// before the translation is done. Who asks again with more gets the same as if they had not
    /// asked before.
    pub fn translate_within(&self, key: &Key, patience: Patience<'_>) -> Option<Translated> {
        Pipeline::translate(self, key, patience)
    }
}
