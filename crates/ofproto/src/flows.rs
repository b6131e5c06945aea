//! Changes of rules.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::check::{self, Limits};
use openflow::model::{FlowCommand, FlowMod};
use openflow::{OfError, Version};

impl Core {
    pub(crate) fn flow_mod(&mut self, conn: &mut Conn, change: &FlowMod, env: &impl Env) -> Result<(), OfError> {
        if change.buffer_id.is_some() {
            // No packets are kept.
            return Err(OfError::BrcBufferUnknown);
        }
        if matches!(
            change.command,
            FlowCommand::Add | FlowCommand::Modify | FlowCommand::ModifyStrict
        ) {
            let version = conn.version().unwrap_or(Version::V10);
            let limits = Limits::default();
            check::instructions(version, change.table, &change.matching, &change.instructions, &limits)?;
        }
        let bridge = &self.config.bridge;
        env.change(|switch, now| match switch.flow_mod(bridge, change, now) {
            Ok(stale) => (Ok(()), stale),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.rules_ended = true;
        Ok(())
    }
}
