//! Commit: the actions that turn the datapath's packet into the one that tables see.

use super::labels::clear_payload;
use super::pipeline::Pipeline;
use super::words::{has_bits_beyond, mask_of};
use dp::{Action, SetField};
use flow::{Field, Key, Mask, TAG_PRESENT};

/// The fields that do not depend on the VLAN limit.
const BEFORE_PAYLOAD: Mask = {
    let mut mask = Mask::EMPTY;
    mask.add(Field::InPort);
    mask.add(Field::RecircId);
    mask.add(Field::EthDst);
    mask.add(Field::EthSrc);
    mask.add(Field::VlanTci0);
    mask.add(Field::VlanTpid0);
    mask.add(Field::VlanTci1);
    mask.add(Field::PktMark);
    mask.add(Field::SkbPriority);
    mask
};

impl Pipeline<'_> {
    /// The packet as tables see it under the VLAN limit: behind the last tag that counts, only the
    /// type is known. [`Pipeline::mask`] adds the bits that this has read.
    pub(super) fn visible(&self, key: &Key) -> Key {
        let mut seen = *key;
        seen.set(Field::RecircId, 0);
        if self.switch.vlan_limit < 2
            && let Some(inner) = key.tag(1)
        {
            clear_payload(&mut seen);
            seen.set_tag(1, None);
            seen.set(Field::EthType, inner.tpid.into());
        }
        seen
    }

    /// Whether the packet has a second tag that the VLAN limit hides from tables.
    pub(super) fn has_uncounted_tag(&self) -> bool {
        self.switch.vlan_limit < 2 && self.original.tag(1).is_some()
    }

    /// The bits of the key that were read. If nothing behind the outermost tag was read, the mask
    /// does not name the second tag either: one megaflow can cover all packets of a port.
    pub(super) fn mask(&mut self) -> Mask {
        if self.switch.vlan_limit < 2 && has_bits_beyond(&self.consulted, &BEFORE_PAYLOAD) {
            self.consult(Field::VlanTci1, TAG_PRESENT.into());
            if self.has_uncounted_tag() {
                self.consult(Field::VlanTpid1, u128::MAX);
                // The key does not show what rules match in such packets: any change of these
                // tables invalidates the megaflow.
                let tables = std::mem::take(&mut self.uncounted);
                tables.into_iter().for_each(|table| self.depend(table));
            }
        }
        mask_of(&self.consulted)
    }

    /// Appends the actions that turn the datapath's packet into the one that tables see. All bits
    /// that can differ are in the mask: a write adds the bits that it writes. The order is Open
    /// vSwitch's: headers, tags, mark.
    pub(super) fn commit(&mut self) {
        self.commit_with(|_| {});
    }

    /// As [`Pipeline::commit`], for a packet that leaves: the queue too.
    pub(super) fn commit_all(&mut self) {
        self.commit_with(Self::commit_queue);
    }

    fn commit_with(&mut self, queue: fn(&mut Self)) {
        if self.packet.base.key == self.packet.state.key && self.packet.base.buried == self.packet.buried {
            return queue(self);
        }
        // A header that was just pushed is changed where it is pushed.
        self.commit_nsh();
        self.commit_type();
        let pushed = matches!(
            self.actions[self.packet.own_steps..].last(),
            Some(Action::PushMpls { .. } | Action::AddMpls { .. })
        );
        if pushed {
            self.commit_label();
        }
        let elsewhere = [Field::VlanTci0, Field::SkbPriority, Field::MplsLse0, Field::PktMark];
        for field in Field::ALL
            .iter()
            .filter(|field| !elsewhere.contains(field) && !field.is_of_connection())
        {
            self.commit_field(*field);
        }
        if !pushed {
            self.commit_label();
        }
        self.commit_tags();
        queue(self);
        self.commit_field(Field::PktMark);
        self.packet.base.key = self.packet.state.key;
        self.packet.base.buried.clone_from(&self.packet.buried);
    }

    fn commit_field(&mut self, field: Field) {
        let (have, want) = (self.packet.base.key.get(field), self.packet.state.key.get(field));
        if have == want || self.lacks(field) {
            return;
        }
        // The bits that differ would do. All known bits are easier to read.
        let bits = mask_of(&self.consulted).get(field) | (have ^ want);
        if let Some(set) = SetField::new(field, want, bits) {
            self.actions.push(Action::SetField(set));
        }
    }

    /// Writes to the outermost label. If the last action has pushed it, changes that action.
    fn commit_label(&mut self) {
        let (have, want) = (
            self.packet.base.key.get(Field::MplsLse0) as u32,
            self.packet.state.key.get(Field::MplsLse0) as u32,
        );
        if have == want {
            return;
        }
        // Other copies also have a label that was pushed before this copy started.
        match self.actions[self.packet.own_steps..].last_mut() {
            Some(Action::PushMpls { lse, .. } | Action::AddMpls { lse, .. }) => *lse = want,
            _ => self.actions.push(Action::SetMpls {
                lse: want & (have ^ want),
                mask: have ^ want,
            }),
        }
    }

    /// Appends the action that chooses the queue, if tables have changed it.
    fn commit_queue(&mut self) {
        let queue = self.packet.state.key.get(Field::SkbPriority) as u32;
        if queue != self.packet.base.queue {
            self.actions.push(Action::SetQueue(queue));
            self.packet.base.queue = queue;
        }
    }
}

/// Removes actions at the end that have no visible effect.
pub(super) fn trim(actions: &mut Vec<Action>) {
    let shows = |action: &Action| {
        matches!(
            action,
            Action::Output(_)
                | Action::OutputBond(_)
                | Action::Punt { .. }
                | Action::Recirc(_)
                | Action::RecircByHash { .. }
                | Action::Meter(_)
                | Action::TunnelPop { .. }
                // A connection may begin.
                | Action::Ct(_)
        )
    };
    let mut kept = 0;
    let mut at = 0;
    while let Some(action) = actions.get(at) {
        let end = at + 1 + action.steps();
        if actions[at..end].iter().any(shows) {
            kept = end;
        }
        at = end;
    }
    actions.truncate(kept);
}

/// A clone that puts outer headers before the packet, and behind which there is nothing, may be the
/// packet itself.
pub(super) fn free_last_tunnel(actions: &mut Vec<Action>) {
    let mut at = 0;
    while let Some(action) = actions.get(at) {
        let behind = at + 1 + action.steps();
        if let (Action::Clone(_), Some(Action::TunnelPush(_))) = (action, actions.get(at + 1))
            && behind == actions.len()
        {
            actions.remove(at);
            return;
        }
        at = behind;
    }
}
