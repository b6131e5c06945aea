//! What becomes of a packet: the entries to the one translator, [`Pipeline`].

use crate::switch::Switch;
use crate::tables::{Context, Patience, Pipeline, Translated};
use dp::Upcall;
use flow::FlowState;
use openflow::model::Action;
use wire::Nanos;

impl Switch {
    /// What becomes of a packet, and of all that are like it. Changes nothing. `None` where the
    /// caller's patience is over before the translation is done; asked again with more patience,
    /// the switch answers as if it had not been asked before.
    ///
    /// `now` says what the translation's effects would change ([`Translated::news`]). The actions
    /// do not depend on the time: [`Switch::tick`] alone removes what is old.
    pub fn translate(&self, upcall: &Upcall<'_>, now: Nanos, patience: Patience<'_>) -> Option<Translated> {
        Pipeline::translate(self, upcall.key, patience).finish(now)
    }

    /// What becomes of a packet that a controller lets go on (`NXT_RESUME`), as it is now, with the
    /// metadata that it has now: `handle` is [`ForController::continuation`]. `None` where that is
    /// not known any more, `Some(None)` as [`Switch::translate`].
    ///
    /// [`ForController::continuation`]: crate::tables::ForController::continuation
    pub fn resume(
        &self,
        handle: u32,
        state: &FlowState,
        now: Nanos,
        patience: Patience<'_>,
    ) -> Option<Option<Translated>> {
        match &**self.contexts.get(handle)? {
            Context::Recirculation(frozen) => {
                Some(Pipeline::resume(self, state, (frozen, handle), patience).finish(now))
            }
            _ => None,
        }
    }

    /// What actions make of a packet that a controller sends as if it had come in on a port, with
    /// metadata (packet-out). The port in the metadata is OpenFlow's; the key's is the datapath's,
    /// or any where there is none. `None` where there is no such bridge, `Some(None)` as
    /// [`Switch::translate`].
    pub fn packet_out(
        &self,
        bridge: &str,
        state: &FlowState,
        actions: &[Action],
        now: Nanos,
        patience: Patience<'_>,
    ) -> Option<Option<Translated>> {
        let id = *self.bridge_ids.get(bridge)?;
        Some(Pipeline::packet_out(self, state, (id, actions), patience).finish(now))
    }
}

#[cfg(test)]
impl Switch {
    /// [`Switch::translate`], by a caller who waits until it is done.
    pub(crate) fn ask(&self, key: &dp::Key) -> Translated {
        let upcall = Upcall { key, packet: &[] };
        self.translate(&upcall, Nanos::ZERO, Patience::Whole).unwrap()
    }
}
