//! Changes of rules.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::OfError;
use openflow::model::FlowMod;

impl Core {
    pub(crate) fn flow_mod(&mut self, _conn: &mut Conn, change: &FlowMod, env: &impl Env) -> Result<(), OfError> {
        if change.buffer_id.is_some() {
            // No packets are kept.
            return Err(OfError::BrcBufferUnknown);
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
