//! Changes of very many rules, in steps: see [`Switch::is_mass_change`].

use crate::switch::Switch;
use crate::tables::{Cursor, RuleRef};
use dp::Change;
use openflow::OfError;
use openflow::model::FlowMod;
use wire::Nanos;

/// Rules that are looked at while the tables are held once.
const LOOK: usize = 512;

impl Switch {
    /// Whether a change of rules has to look at so many that others should have their turn
    /// meanwhile. Its caller then lets no other change the bridge's tables, finds the rules by
    /// [`Switch::find_meant`], and does [`Switch::change_meant`] to them: at once where they are
    /// few, else by some at a time within a bundle ([`Switch::bundle_open`]).
    pub fn is_mass_change(&self, bridge: &str, change: &FlowMod) -> bool {
        self.bridge(bridge)
            .is_some_and(|bridge| bridge.tables.is_mass(change, LOOK))
    }

    /// Adds some more of the rules that a change is about. Where to go on; `None` when all are
    /// found. Begin with the default.
    ///
    /// # Errors
    /// [`OfError::BmcBadField`] where no rule can match as the change does,
    /// [`OfError::FmfcUnknown`] where there is no such bridge.
    pub fn find_meant(
        &self,
        bridge: &str,
        change: &FlowMod,
        from: Cursor,
        meant: &mut Vec<RuleRef>,
    ) -> Result<Option<Cursor>, OfError> {
        let bridge = self.bridge(bridge).ok_or(OfError::FmfcUnknown)?;
        bridge.tables.find_meant(change, from, LOOK, meant)
    }

    /// Does what a change asks to rules that it is about: with `bundled` in the bundle under way,
    /// or for all to see. A modification that is about no rules is an addition where it may be.
    ///
    /// # Errors
    /// As [`Switch::flow_mod`]. Without `bundled` nothing is changed then; with it the caller gives
    /// the bundle up.
    pub fn change_meant(
        &mut self,
        bridge: &str,
        change: &FlowMod,
        meant: &[RuleRef],
        bundled: bool,
        now: Nanos,
    ) -> Result<Vec<Change>, OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::FmfcUnknown)?;
        let was_builtin = bridge.tables.is_builtin();
        let mut log = bridge.tables.log();
        bridge.tables.in_bundle(bundled);
        let done = bridge.tables.change_meant(change, meant, now, &mut log);
        bridge.tables.in_bundle(false);
        if !bundled {
            bridge.tables.delete_orphans(now, &mut log);
        }
        bridge.events.append(&mut log.events);
        done?;
        let id = bridge.id;
        let begins = was_builtin && !bridge.tables.is_builtin();
        Ok(self.changes_of_tables(id, begins, &log.stale))
    }
}
