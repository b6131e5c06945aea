//! The entries to the translator, [`Pipeline`].

use crate::switch::Switch;
use crate::tables::{Context, Patience, Pipeline, Translated};
use dp::{PortNo, Upcall};
use flow::FlowState;
use nanos::Nanos;
use openflow::model::Action;

impl Switch {
    /// Translates a packet for it and all packets like it. Changes nothing. `None` where the
    /// caller's patience is over before the translation is done; with more patience, the answer is
    /// the same as if the caller had not asked before.
    ///
    /// `now` says what the translation's effects would change ([`Translated::news`]). The actions
    /// do not depend on the time: [`Switch::tick`] alone removes what is old.
    pub fn translate(&self, upcall: &Upcall<'_>, now: Nanos, patience: Patience<'_>) -> Option<Translated> {
        Pipeline::translate(self, upcall, patience).finish(now)
    }

    /// Translates a packet that a controller resumes (`NXT_RESUME`), with the fields and metadata
    /// that it has now. `handle` is [`ForController::continuation`]; `None` where it is not known
    /// any more. `Some(None)` is the `None` of [`Switch::translate`].
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

    /// Translates a packet-out with metadata. The port in the metadata is OpenFlow's; the key's is
    /// the datapath's, or any where there is none. `None` where there is no such bridge;
    /// `Some(None)` is the `None` of [`Switch::translate`].
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

    /// Translates the copies that mirrors take of a packet that a device of a bridge sends past the
    /// tables: a frame of a control protocol. `None` where the bridge has no mirrors, or is not
    /// there; `Some(None)` is the `None` of [`Switch::translate`].
    pub fn mirror_sent(
        &self,
        bridge: &str,
        device: PortNo,
        state: &FlowState,
        now: Nanos,
        patience: Patience<'_>,
    ) -> Option<Option<Translated>> {
        let bridge = self.bridges.get(self.bridge_ids.get(bridge)?)?;
        let copies = || Pipeline::copies_of_sent(self, state, (bridge, device), patience).finish(now);
        (!bridge.mirrors.is_empty()).then(copies)
    }
}

#[cfg(test)]
impl Switch {
    /// [`Switch::translate`], by a caller who waits until it is done.
    pub(crate) fn ask(&self, key: &dp::Key) -> Translated {
        let upcall = Upcall::new(key, &[]);
        self.translate(&upcall, Nanos::ZERO, Patience::Whole).unwrap()
    }
}
