//! Flow mods.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::check::{self, Limits};
use openflow::model::{FlowCommand, FlowFlags, FlowMod};
use openflow::{Codec, OfError, Version};

impl Core {
    pub(crate) fn flow_mod(
        &mut self,
        conn: &mut Conn,
        codec: &Codec,
        xid: u32,
        mut change: Box<FlowMod>,
        message: &[u8],
        env: &impl Env,
    ) -> Result<(), OfError> {
        check(codec, &change)?;
        if change.command == FlowCommand::Add && codec.version < Version::V12 {
            // Later versions have a flag for this (OpenFlow 1.0.2 §4.6, OpenFlow 1.1.0 §4.6).
            change.flags = change.flags.with(FlowFlags::RESET_COUNTS);
        }
        let bridge = &self.config.bridge;
        if may_be_mass(&change) && env.look(|switch| switch.is_mass_change(bridge, &change)) {
            self.begin_mass(conn, xid, change, message);
            return Ok(());
        }
        let events = env.change(|switch, now| match switch.flow_mod_and_events(bridge, &change, now) {
            Ok((stale, events)) => (Ok(events), stale),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.note(events, Some((conn.id, xid)));
        Ok(())
    }
}

/// Whether a flow mod may change many rules.
pub(crate) fn may_be_mass(change: &FlowMod) -> bool {
    matches!(change.command, FlowCommand::Modify | FlowCommand::Delete)
}

/// Checks a flow mod as far as that does not depend on the rules present.
pub(crate) fn check(codec: &Codec, change: &FlowMod) -> Result<(), OfError> {
    if change.buffer_id.is_some() {
        // The switch buffers no packets.
        return Err(OfError::BrcBufferUnknown);
    }
    if matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict) {
        return Ok(());
    }
    let limits = Limits::default();
    check::instructions(
        codec.version,
        change.table,
        &change.matching,
        &change.instructions,
        &limits,
    )
}
