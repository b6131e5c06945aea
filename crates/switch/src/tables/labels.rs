//! Outer headers: MPLS label stacks (RFC 3032) and backbone headers (IEEE 802.1Q §9.7).
//!
//! A key does not show what a received outer header covers. After such a header is popped, the
//! first action or table that reads what it covered recirculates the packet (`Pipeline::hides`).
//! The translator remembers what headers cover that it has pushed itself.

use super::freeze::Why;
use super::pipeline::Pipeline;
use dp::Action as Step;
use flow::{Field, Home, Key, MatchField, MatchPrerequisite};
use openflow::model::{Action, GroupType};
use wire::EtherType;

/// The fields of a label stack, the outermost entry first.
const STACK: [Field; 3] = [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2];
/// The bottom-of-stack bit of an entry.
const BOTTOM: u32 = 0x100;
/// The time to live of an entry.
const TTL: u32 = 0xff;

/// Whether a field is behind the Ethernet header and its tags.
fn is_payload(field: Field) -> bool {
    !field.info().prerequisite.is_of_ethernet() && !field.is_of_tunnel() && field != Field::PacketType
}

/// Clears the fields behind the Ethernet header and its tags.
pub(super) fn clear_payload(key: &mut Key) {
    let payload = |field: &&Field| is_payload(**field);
    Field::ALL.iter().filter(payload).for_each(|field| key.set(*field, 0));
}

/// Whether an action may read or write fields behind the Ethernet header.
fn looks_behind(action: &Action) -> bool {
    match action {
        Action::Output { .. }
        | Action::OutputTrunc { .. }
        | Action::OutputReg { .. }
        | Action::Enqueue { .. }
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::PushVlan(_)
        | Action::PopVlan
        | Action::StripVlan
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::SetTunnel { .. }
        | Action::Group(_)
        | Action::Note(_)
        | Action::Exit
        | Action::DebugRecirc
        | Action::DebugSlow
        | Action::Push(_)
        | Action::Meter(_)
        | Action::WriteMetadata { .. }
        | Action::Controller(_)
        | Action::CheckPktLarger { .. } => match action {
            Action::Push(src) => is_behind(src.field()),
            Action::OutputReg { src, .. } => is_behind(src.field()),
            _ => false,
        },
        Action::SetField { field, .. } => is_behind(*field),
        Action::Load { dst, .. } | Action::Pop(dst) => is_behind(dst.field()),
        Action::Move { src, dst } => is_behind(src.field()) || is_behind(dst.field()),
        _ => true,
    }
}

fn is_behind(field: MatchField) -> bool {
    match field.info().home {
        Home::Key { field, .. } => is_payload(field),
        _ => false,
    }
}

fn is_ip(key: &Key) -> bool {
    matches!(key.get(Field::EthType), 0x0800 | 0x86dd)
}

impl Pipeline<'_> {
    /// Freezes the packet before an action that needs fields that the key does not show. Whether it
    /// froze.
    pub(super) fn hides(&mut self, action: &Action) -> bool {
        let hides = self.packet.hidden && (looks_behind(action) || self.selects(action));
        if hides {
            self.freeze(Why::Recirculate);
        }
        hides
    }

    /// Whether an action is a group that selects a bucket by a hash of the packet.
    fn selects(&self, action: &Action) -> bool {
        let Action::Group(id) = action else { return false };
        let group = self.packet.place.bridge.and_then(|bridge| bridge.tables.group(*id));
        group.is_some_and(|group| group.kind == GroupType::Select)
    }

    /// Pushes a label, outside any other.
    pub(super) fn push_mpls(&mut self, ethertype: u16) {
        self.commit();
        let depth = self.depth_of_stack();
        let lse = match depth {
            0 => self.first_lse(),
            _ => self.read(Field::MplsLse0) as u32 & !BOTTOM,
        };
        let deepest = self.packet.state.key.get(Field::MplsLse2) as u32;
        if depth == STACK.len() && deepest & BOTTOM == 0 {
            // The decision is whether there is a third entry. Which received entry that is depends
            // on the pushes before.
            STACK.iter().for_each(|field| self.consult(*field, u128::MAX));
        }
        if depth == STACK.len() && deepest != 0 {
            self.error(|_| {
                String::from("dropping packet on which an MPLS push action can't be performed as it would have more MPLS LSEs than the 3 supported.")
            });
            return self.failed_for(dp::DropCause::Malformed, "Too many MPLS labels");
        }
        if depth == 0 {
            self.packet.covered.push(self.packet.state.key);
            clear_payload(&mut self.packet.state.key);
        }
        for at in (1..STACK.len()).rev() {
            let above = self.packet.state.key.get(STACK[at - 1]);
            self.packet.state.key.set(STACK[at], above);
        }
        self.packet.state.key.set(Field::MplsLse0, lse.into());
        self.packet.state.key.set(Field::EthType, ethertype.into());
        self.follow_type(ethertype);
        self.actions.push(Step::PushMpls { ethertype, lse });
        self.packet.hidden = false;
        self.packet.base.key = self.packet.state.key;
    }

    /// The first label of a packet: explicit null (RFC 3032 §2.1), with the priority and the time
    /// to live of an IP packet.
    pub(super) fn first_lse(&mut self) -> u32 {
        let kind = self.read(Field::EthType);
        let label: u32 = if kind == 0x86dd { 2 } else { 0 };
        if !self.meets(MatchPrerequisite::Ip) {
            return label << 12 | BOTTOM | 64;
        }
        self.consult(Field::IpTos, 0xfc);
        let tos = self.packet.state.key.get(Field::IpTos) as u32;
        let ttl = match self.read(Field::IpTtl) as u32 {
            0 => 64,
            ttl => ttl,
        };
        label << 12 | (tos >> 2 & 7) << 9 | BOTTOM | ttl
    }

    /// Pops a label; the whole stack, if the type is not that of labels.
    pub(super) fn pop_mpls(&mut self, ethertype: u16) {
        let depth = self.depth_of_stack();
        if depth == 0 {
            return;
        }
        let is_whole = self.packet.state.key.get(STACK[depth - 1]) as u32 & BOTTOM != 0;
        if is_whole {
            STACK[1..depth].iter().for_each(|field| self.show(*field, u128::MAX));
        }
        self.commit();
        self.consult_unshown(Field::MplsLse0, u128::MAX);
        let is_label = matches!(EtherType(ethertype), EtherType::MPLS | EtherType::MPLS_MULTICAST);
        let outer = self.packet.state.key.get(Field::EthType) as u16;
        let pops = if is_whole && !is_label { depth } else { 1 };
        let last = is_whole && pops == depth;
        self.spend(self.actions.len() / 32);
        if self.actions.iter().any(|step| matches!(step, Step::PushMpls { .. })) {
            // An entry that is deeper now was the outermost one.
            self.consult(Field::MplsLse0, u128::MAX);
        }
        for (at, field) in STACK.into_iter().enumerate() {
            self.consult_unshown(field, u128::MAX);
            let below = STACK.get(at + pops).map(|below| self.packet.state.key.get(*below));
            self.packet.state.key.set(field, below.unwrap_or_default());
        }
        for left in (0..pops).rev() {
            let ethertype = if left == 0 { ethertype } else { outer };
            self.actions.push(Step::PopMpls { ethertype });
        }
        match self.packet.covered.pop() {
            Some(inner) if last && inner.get(Field::EthType) == u128::from(ethertype) => self.uncover(&inner),
            inner if is_label && !last => {
                // The key has three entries. It shows the whole stack if the last is among them.
                let is_bottom = |field: &Field| self.packet.state.key.get(*field) as u32 & BOTTOM != 0;
                self.packet.hidden = !STACK.iter().any(is_bottom);
                self.packet.covered.extend(inner);
                self.packet.state.key.set(Field::EthType, ethertype.into());
            }
            _ => {
                self.packet.hidden = true;
                clear_payload(&mut self.packet.state.key);
                self.packet.state.key.set(Field::EthType, ethertype.into());
                if EtherType(ethertype).is_vlan() {
                    // The tag behind the label is now one of the packet's tags.
                    self.freeze(Why::Recirculate);
                }
            }
        }
        self.follow_type(ethertype);
        self.packet.base.key = self.packet.state.key;
    }

    /// Restores the packet under a header that this translation has pushed; outer fields stay.
    fn uncover(&mut self, inner: &Key) {
        let outside = |field: &&Field| !is_payload(**field);
        let mut key = *inner;
        for field in Field::ALL.iter().filter(outside) {
            key.set(*field, self.packet.state.key.get(*field));
        }
        key.set(Field::EthType, inner.get(Field::EthType));
        self.packet.state.key = key;
    }

    /// Number of labels, as far as the key shows them.
    fn depth_of_stack(&mut self) -> usize {
        if !self.meets(MatchPrerequisite::Mpls) {
            return 0;
        }
        let mut depth = 0;
        for field in STACK {
            self.consult(field, BOTTOM.into());
            let entry = self.packet.state.key.get(field) as u32;
            depth += 1;
            if entry & BOTTOM != 0 {
                return depth;
            }
        }
        depth
    }

    /// Writes to the outermost label stack entry.
    pub(super) fn set_lse(&mut self, value: u32, mask: u32) {
        if self.meets(MatchPrerequisite::Mpls) {
            self.consult(Field::MplsLse0, mask.into());
            let kept = self.packet.state.key.get(Field::MplsLse0) as u32 & !mask;
            self.packet.state.key.set(Field::MplsLse0, (kept | value & mask).into());
        }
    }

    /// Decrements the outermost label's time to live. Whether the action list continues.
    pub(super) fn dec_mpls_ttl(&mut self) -> bool {
        if !self.meets(MatchPrerequisite::Mpls) {
            return true;
        }
        self.consult(Field::MplsLse0, TTL.into());
        let ttl = self.packet.state.key.get(Field::MplsLse0) as u32 & TTL;
        if ttl > 1 {
            self.set_lse(ttl - 1, TTL);
            return true;
        }
        self.warning(|_| String::from("MPLS decrement TTL exception"));
        self.ttl_over(0);
        false
    }

    /// Copies the time to live of the next header to the outermost label.
    pub(super) fn copy_ttl_out(&mut self) {
        if !self.meets(MatchPrerequisite::Mpls) {
            return;
        }
        self.consult(Field::MplsLse0, BOTTOM.into());
        if self.packet.state.key.get(Field::MplsLse0) as u32 & BOTTOM == 0 {
            let ttl = self.read(Field::MplsLse1) as u32 & TTL;
            return self.set_lse(ttl, TTL);
        }
        match self.packet.covered.last() {
            // A header that was pushed here: the mask has its time to live.
            Some(inner) if is_ip(inner) => {
                let ttl = inner.get(Field::IpTtl) as u32;
                self.set_lse(ttl, TTL);
            }
            Some(_) => {}
            None => {
                self.commit();
                self.actions.push(Step::CopyTtlOut);
                self.packet.hidden = true;
            }
        }
    }

    /// Copies the time to live of the outermost label to the next header.
    pub(super) fn copy_ttl_in(&mut self) {
        if !self.meets(MatchPrerequisite::Mpls) {
            return;
        }
        let lse = self.read(Field::MplsLse0) as u32;
        let covered = self.packet.covered.last().copied();
        match covered.filter(|_| lse & BOTTOM != 0) {
            Some(inner) if is_ip(&inner) => {
                // Pop the label, change the header, push the label again.
                let ethertype = self.packet.state.key.get(Field::EthType) as u16;
                self.pop_mpls(inner.get(Field::EthType) as u16);
                self.packet.state.key.set(Field::IpTtl, (lse & TTL).into());
                self.push_mpls(ethertype);
                self.set_lse(lse, u32::MAX);
            }
            Some(_) => {}
            None => {
                self.commit();
                self.actions.push(Step::CopyTtlIn);
                if lse & BOTTOM == 0 {
                    let below = self.read(Field::MplsLse1) as u32 & !TTL | lse & TTL;
                    self.packet.state.key.set(Field::MplsLse1, below.into());
                    self.packet.base.key.set(Field::MplsLse1, below.into());
                }
            }
        }
    }

    /// Pushes a backbone header.
    pub(super) fn push_pbb(&mut self) {
        if self.is_bare() {
            return;
        }
        self.commit();
        self.touch_tags();
        let known = self.meets(MatchPrerequisite::Pbb);
        let isid = if known { self.read(Field::PbbIsid) as u32 } else { 0 };
        let pcp = self.packet.state.key.tag(0).map_or(0, |tag| u32::from(tag.tci >> 13));
        self.packet.covered.push(self.packet.state.key);
        clear_payload(&mut self.packet.state.key);
        self.packet.state.key.set_tag(0, None);
        self.packet.state.key.set_tag(1, None);
        self.packet.buried.clear();
        self.packet.base.buried.clear();
        self.packet.state.key.set(Field::EthType, 0x88e7);
        self.packet.state.key.set(Field::PbbIsid, isid.into());
        self.actions.push(Step::PushPbb { tci: pcp << 29 | isid });
        self.packet.hidden = false;
        self.packet.base.key = self.packet.state.key;
    }

    /// Pops a backbone header.
    pub(super) fn pop_pbb(&mut self) {
        if !self.meets(MatchPrerequisite::Pbb) || self.is_bare() {
            return;
        }
        self.commit();
        self.touch_tags();
        self.actions.push(Step::PopPbb);
        // The inner packet has its own addresses and tags: only the ingress port is known.
        self.packet.base.key = self.packet.state.key;
        self.packet.base.key.set(Field::EthType, 0);
        self.packet.covered.pop();
        self.freeze(Why::Recirculate);
    }
}
