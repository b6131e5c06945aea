//! Changes of rules.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::check::{self, Limits};
use openflow::model::{FlowCommand, FlowMod};
use openflow::{Codec, OfError};

impl Core {
    pub(crate) fn flow_mod(
        &mut self,
        conn: &Conn,
        codec: &Codec,
        xid: u32,
        change: &FlowMod,
        env: &impl Env,
    ) -> Result<(), OfError> {
        check(codec, change)?;
        let mut from = None;
        loop {
            let bridge = &self.config.bridge;
            let (events, next) = env.change(|switch, now| match switch.flow_mod_part(bridge, change, from, now) {
                Ok((stale, next)) => (Ok((switch.take_events(bridge), next)), stale),
                Err(error) => (Err(error), Vec::new()),
            })?;
            self.note(events, Some((conn.id, xid)));
            from = next;
            if from.is_none() {
                return Ok(());
            }
        }
    }
}

/// Whether a change of rules makes sense, whatever rules there are.
pub(crate) fn check(codec: &Codec, change: &FlowMod) -> Result<(), OfError> {
    if change.buffer_id.is_some() {
        // No packets are kept.
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
