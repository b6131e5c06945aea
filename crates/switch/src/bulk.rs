//! Changes of very many rules, in steps: see [`Switch::is_mass_change`].

use crate::switch::Switch;
use crate::tables::{Cursor, RuleRef};
use dp::Change;
use nanos::Nanos;
use openflow::OfError;
use openflow::model::FlowMod;

/// Rules examined under one lock of the tables.
const LOOK: usize = 512;

impl Switch {
    /// Whether a flow-mod has to examine so many rules that it should be carried out in steps. The
    /// caller then allows no other change of the bridge's tables, finds the rules with
    /// [`Switch::find_meant`], and applies [`Switch::change_meant`] to them: all at once if they
    /// are few, otherwise some at a time within a bundle ([`Switch::bundle_open`]).
    pub fn is_mass_change(&self, bridge: &str, change: &FlowMod) -> bool {
        self.bridge(bridge)
            .is_some_and(|bridge| bridge.tables.is_mass(change, LOOK))
    }

    /// Appends some more of the rules that a flow-mod covers. Returns where to continue; `None`
    /// when all are found. Start with the default.
    ///
    /// # Errors
    /// [`OfError::BmcBadField`] if no rule can have the flow-mod's match, [`OfError::FmfcUnknown`]
    /// if there is no such bridge.
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

    /// Applies a flow-mod to the rules that it covers: with `bundled` in the open bundle, otherwise
    /// visibly at once. A modify that covers no rules adds one if its command allows that.
    ///
    /// # Errors
    /// As [`Switch::flow_mod`]. Without `bundled`, nothing has changed then; with it, the caller
    /// aborts the bundle.
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
