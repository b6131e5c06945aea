//! VLAN tags: where a tag comes from, and who may change it.
//!
//! A packet has the tags that it was received with; `netdev` puts a tag back that the kernel has
//! taken off. Only two parties change them.
//!
//! **A port, for NORMAL**, by the rules of its `vlan_mode` ([`PortVlans`]). `ingress` decides the
//! VLAN of a packet that comes in, `egress` the tags of a packet that leaves:
//!
//! - `access`: takes packets without a VLAN into VLAN `tag`. Sends packets of that VLAN, and pops
//!   their tag.
//! - `trunk`: takes and sends packets of the VLANs in `trunks` (all where it is empty), with their
//!   tags.
//! - `native-tagged`: as `trunk`, and takes packets without a VLAN into VLAN `tag`.
//! - `native-untagged`: as `native-tagged`, and pops the tag of packets of VLAN `tag` that leave.
//! - `dot1q-tunnel`: takes packets of the VLANs in `cvlans` into VLAN `tag`: pushes a tag outside
//!   theirs. Sends packets of VLAN `tag`, and pops that tag.
//!
//! A tag of VLAN 0 has only a priority: the packet has no VLAN. A port pushes such a tag only where
//! `other_config:priority-tags` asks for it.
//!
//! **An OpenFlow action**: `push_vlan`, `pop_vlan`, `strip_vlan`, `mod_vlan_vid`, `mod_vlan_pcp`,
//! and writes to the `vlan_*` fields. They end in [`Pipeline::push_vlan`], [`Pipeline::pop_vlan`]
//! and [`Pipeline::set_tci`]. (`push_pbb` and `pop_pbb` put a header around the tags and take it
//! off.)
//!
//! The datapath decides nothing. It runs `PushVlan` and `PopVlan`, and both are made in two places:
//! [`Tags::change_to`] for packets that only NORMAL has seen, [`Pipeline::commit_tags`] for packets
//! that rules may have changed. A rewritten tag is a pop and a push.
//!
//! For NORMAL, tags are symbols, not values: a tag that came with the packet is known by its level,
//! and a tag that replaces it may keep "the priority of the tag at level 0". A part of the key gets
//! into the mask only when its value matters, so packets of all priorities share a megaflow
//! wherever no action spells the priority out.

use super::packet::Buried;
use super::pipeline::Pipeline;
use super::words::{self, StateWords};
use crate::{PortConfig, PriorityTags, VlanMode, VlanSet};
use dp::Action;
use flow::{Field, Key, TAG_PRESENT};
use smallvec::SmallVec;
use wire::{EtherType, Vid, VlanTag};

/// The fields of tags.
const TAGS: [Field; 4] = [Field::VlanTci0, Field::VlanTpid0, Field::VlanTci1, Field::VlanTpid1];

/// How a port maps tags to VLANs.
///
/// The rules are those of "VLAN Configuration" in ovs-vswitchd.conf.db(5) and of "The OVS Normal
/// Pipeline" in ovs-actions(7). Where these leave something open (a tag inside a tag, priorities),
/// the rules are what Open vSwitch 3.1 does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortVlans {
    mode: VlanMode,
    tag: Vid,
    trunks: VlanSet,
    cvlans: VlanSet,
    service_tpid: u16,
    priority_tags: PriorityTags,
}

impl PortVlans {
    pub(crate) fn new(config: &PortConfig) -> PortVlans {
        PortVlans {
            mode: config.vlan_mode,
            tag: config.tag.unwrap_or_default(),
            trunks: config.trunks.clone(),
            cvlans: config.cvlans.clone(),
            service_tpid: config.qinq_ethertype,
            priority_tags: config.priority_tags,
        }
    }

    /// How the port maps tags to VLANs.
    pub(crate) fn mode(&self) -> VlanMode {
        self.mode
    }

    /// The port's own VLAN.
    pub(crate) fn tag(&self) -> Vid {
        self.tag
    }

    /// The VLAN of a packet that comes in; `None` where the port does not take it. Makes the
    /// packet's tags those that it has inside the bridge, where the outermost one names the VLAN.
    pub(crate) fn ingress(&self, tags: &mut Tags, reader: &mut Reader<'_>) -> Option<Vid> {
        let vid = tags.vid(0, reader).unwrap_or_default();
        match self.mode {
            VlanMode::Trunk => self.trunk(vid).then_some(vid),
            VlanMode::Access if vid != Vid::NONE => None,
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid != Vid::NONE => self.native(vid).then_some(vid),
            VlanMode::Access | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                tags.set_vid(self.tag, reader);
                Some(self.tag)
            }
            VlanMode::Dot1qTunnel => {
                if !self.customer(vid) {
                    return None;
                }
                if tags.is_empty_tag(reader) {
                    tags.pop();
                }
                tags.push(self.service_tpid, self.tag);
                Some(self.tag)
            }
        }
    }

    /// The tags with which a packet of a VLAN leaves; `None` where the port does not carry it.
    pub(crate) fn egress(&self, vlan: Vid, tags: &Tags, reader: &mut Reader<'_>) -> Option<Tags> {
        let carries = match self.mode {
            VlanMode::Trunk => self.trunk(vlan),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => self.native(vlan),
            // A tag inside the VLAN's own is a customer's, for which an access port has no use.
            VlanMode::Access => vlan == self.tag && tags.vid(1, reader).unwrap_or_default() == Vid::NONE,
            VlanMode::Dot1qTunnel => vlan == self.tag && self.customer(tags.vid(1, reader).unwrap_or_default()),
        };
        carries.then(|| self.leave(vlan, tags, reader))
    }

    /// The tags with which a packet of a VLAN leaves, whether the port carries the VLAN or not.
    pub(crate) fn leave(&self, vlan: Vid, tags: &Tags, reader: &mut Reader<'_>) -> Tags {
        let strip = match self.mode {
            VlanMode::Trunk | VlanMode::NativeTagged => false,
            VlanMode::NativeUntagged => vlan == self.tag,
            VlanMode::Access | VlanMode::Dot1qTunnel => true,
        };
        let mut out = tags.clone();
        match tags.vid(0, reader) {
            // Came and leaves untagged.
            None => {}
            Some(_) if strip => {
                let inner = tags.vid(1, reader).is_some();
                out.pop();
                if inner && self.mode == VlanMode::Access {
                    out.pop();
                }
                let bare = !inner || self.mode == VlanMode::Access;
                if bare && self.priority_tags != PriorityTags::Never && tags.has_priority(reader) {
                    if !inner && tags.is_priority(reader) {
                        return tags.clone();
                    }
                    out.push_priority(tags);
                }
            }
            // A tag for nothing but a priority stays, whatever `priority-tags` says; one without
            // even that goes, unless it would bare another, which the next bridge would take for
            // the packet's VLAN.
            Some(Vid::NONE)
                if self.priority_tags != PriorityTags::Always
                    && !tags.has_priority(reader)
                    && !tags.has_inner(reader) =>
            {
                out.pop();
            }
            Some(_) => {}
        }
        out
    }

    /// The tag with which packets that came in untagged leave: `None` where the port does not carry
    /// the VLAN, `Some(None)` without a tag.
    pub(crate) fn tag_of(&self, vlan: Vid) -> Option<Option<Vid>> {
        let tagged = (vlan != Vid::NONE).then_some(vlan);
        let (carries, tag) = match self.mode {
            VlanMode::Trunk => (self.trunk(vlan), tagged),
            VlanMode::NativeTagged => (self.native(vlan), tagged),
            VlanMode::NativeUntagged => (self.native(vlan), tagged.filter(|_| vlan != self.tag)),
            VlanMode::Access => (vlan == self.tag, None),
            VlanMode::Dot1qTunnel => (vlan == self.tag && self.customer(Vid::NONE), None),
        };
        carries.then_some(tag)
    }

    fn trunk(&self, vid: Vid) -> bool {
        self.trunks.is_empty() || self.trunks.contains(vid)
    }

    /// Whether a port with a native VLAN carries a VLAN: VLAN 0 only where it is the native one.
    fn native(&self, vid: Vid) -> bool {
        vid == self.tag || vid != Vid::NONE && self.trunk(vid)
    }

    fn customer(&self, vid: Vid) -> bool {
        self.cvlans.is_empty() || self.cvlans.contains(vid)
    }
}

/// A packet's key, and the bits of it that were looked at so far.
pub(crate) struct Reader<'a> {
    key: &'a Key,
    consulted: &'a mut StateWords,
    /// Tags at this level and beyond are payload.
    limit: u8,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(key: &'a Key, consulted: &'a mut StateWords, limit: u8) -> Reader<'a> {
        Reader { key, consulted, limit }
    }

    pub(crate) fn read(&mut self, field: Field) -> u128 {
        words::consult(self.consulted, field, u128::MAX);
        self.key.get(field)
    }

    /// The VLAN of the packet's own tag at a level, when it is at this depth now; `None` where it
    /// has no such tag, or none that counts.
    fn vid(&mut self, level: u8, depth: usize) -> Option<Vid> {
        // A tag that was too deep to count does when it is the outermost one.
        if level >= self.limit.max(1) && (depth > 0 || level > 1) {
            return None;
        }
        let tci = self.bits(
            if level == 0 { Field::VlanTci0 } else { Field::VlanTci1 },
            0xfff | TAG_PRESENT,
        );
        (tci & TAG_PRESENT != 0).then_some(Vid::from_tci(tci))
    }

    /// Whether the packet came with a tag at a level; of those deeper than the key goes it is not
    /// known.
    fn is_present(&mut self, level: u8) -> bool {
        match level {
            0 => self.bits(Field::VlanTci0, TAG_PRESENT) != 0,
            1 => self.bits(Field::VlanTci1, TAG_PRESENT) != 0,
            _ => false,
        }
    }

    fn pcp(&mut self, level: u8) -> u16 {
        self.bits(if level == 0 { Field::VlanTci0 } else { Field::VlanTci1 }, 0xe000)
    }

    fn tpid(&mut self, level: u8) -> u16 {
        self.bits(if level == 0 { Field::VlanTpid0 } else { Field::VlanTpid1 }, 0xffff)
    }

    fn bits(&mut self, field: Field, bits: u16) -> u16 {
        words::consult(self.consulted, field, bits.into());
        self.key.get(field) as u16 & bits
    }
}

/// Where a part of a tag comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The packet's own tag at a level.
    Of(u8),
    /// Given.
    Is(u16),
}

/// A tag that the packet did not come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    tpid: Part,
    vid: Vid,
    /// The priority, in its place in the tag control information.
    pcp: Part,
}

impl Made {
    fn tag(&self, reader: &mut Reader<'_>) -> VlanTag {
        VlanTag {
            tpid: self.tpid(reader),
            tci: self.vid.get() | self.pcp(reader),
        }
    }

    fn tpid(&self, reader: &mut Reader<'_>) -> u16 {
        match self.tpid {
            Part::Of(level) => reader.tpid(level),
            Part::Is(tpid) => tpid,
        }
    }

    fn pcp(&self, reader: &mut Reader<'_>) -> u16 {
        match self.pcp {
            Part::Of(level) => reader.pcp(level),
            Part::Is(pcp) => pcp,
        }
    }
}

/// The tags of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    /// The outermost tags, innermost first.
    made: SmallVec<[Made; 2]>,
    /// Number of received tags that were removed; the others are below `made`.
    gone: u8,
}

impl Tags {
    /// The VLAN of the tag at a depth (0 is the outermost); `None` where there is no tag.
    pub(crate) fn vid(&self, depth: usize, reader: &mut Reader<'_>) -> Option<Vid> {
        match self.made.len().checked_sub(depth + 1) {
            Some(at) => Some(self.made[at].vid),
            None => reader.vid(self.gone + (depth - self.made.len()) as u8, depth),
        }
    }

    /// Whether the outermost tag, which must be there, has a priority that is not 0.
    pub(crate) fn has_priority(&self, reader: &mut Reader<'_>) -> bool {
        match self.made.last() {
            Some(tag) => tag.pcp(reader) != 0,
            None => reader.pcp(self.gone) != 0,
        }
    }

    /// Whether the outermost tag, which must be there, is for nothing but its priority.
    pub(crate) fn is_priority(&self, reader: &mut Reader<'_>) -> bool {
        self.vid(0, reader) == Some(Vid::NONE)
            && match self.made.last() {
                Some(tag) => tag.tpid(reader) == EtherType::VLAN.0,
                None => reader.tpid(self.gone) == EtherType::VLAN.0,
            }
    }

    /// Whether the outermost tag has neither VLAN nor priority, and bares no other.
    fn is_empty_tag(&self, reader: &mut Reader<'_>) -> bool {
        self.vid(0, reader) == Some(Vid::NONE) && !self.has_priority(reader) && !self.has_inner(reader)
    }

    /// Whether there is a tag inside the outermost one, also one too deep to count.
    pub(crate) fn has_inner(&self, reader: &mut Reader<'_>) -> bool {
        match 1usize.checked_sub(self.made.len()) {
            None => true,
            Some(depth) => reader.is_present(self.gone + depth as u8),
        }
    }

    /// Removes the outermost tag, which must be there.
    pub(crate) fn pop(&mut self) {
        if self.made.pop().is_none() {
            self.gone += 1;
        }
    }

    /// Adds a tag of priority 0.
    pub(crate) fn push(&mut self, tpid: u16, vid: Vid) {
        self.made.push(Made {
            tpid: Part::Is(tpid),
            vid,
            pcp: Part::Is(0),
        });
    }

    /// Adds a tag for nothing but the priority of the outermost tag of `other`, which must be
    /// there.
    pub(crate) fn push_priority(&mut self, other: &Tags) {
        let pcp = match other.made.last() {
            Some(tag) => tag.pcp,
            None => Part::Of(other.gone),
        };
        self.made.push(Made {
            tpid: Part::Is(EtherType::VLAN.0),
            vid: Vid::NONE,
            pcp,
        });
    }

    /// Gives the outermost tag another VLAN, leaving its type and priority; adds a tag where there
    /// is none.
    pub(crate) fn set_vid(&mut self, vid: Vid, reader: &mut Reader<'_>) {
        match self.vid(0, reader) {
            None => self.push(EtherType::VLAN.0, vid),
            Some(old) if old == vid => {}
            Some(_) => match self.made.last_mut() {
                Some(tag) => tag.vid = vid,
                None => {
                    let level = Part::Of(self.gone);
                    self.gone += 1;
                    self.made.push(Made {
                        tpid: level,
                        vid,
                        pcp: level,
                    });
                }
            },
        }
    }

    /// Where in a sequence of outputs a packet with these tags goes out best: what is popped off a
    /// packet's own tags cannot be put back with all its bits, and pushing last saves popping
    /// again.
    pub(crate) fn rank(&self) -> (u8, usize) {
        (self.gone, self.made.len())
    }

    /// Appends the actions that turn a packet with the tags of `self` into one with those of `to`,
    /// which must not rank lower.
    pub(crate) fn change_to(&self, to: &Tags, reader: &mut Reader<'_>, actions: &mut Vec<Action>) {
        let common = if self.gone == to.gone {
            self.made.iter().zip(&to.made).take_while(|(a, b)| a == b).count()
        } else {
            0
        };
        let pops = self.made.len() - common + usize::from(to.gone - self.gone);
        actions.extend(std::iter::repeat_n(Action::PopVlan, pops));
        for tag in &to.made[common..] {
            actions.push(Action::PushVlan(tag.tag(reader)));
        }
    }
}

impl Pipeline<'_> {
    /// The action `push_vlan`.
    pub(super) fn push_vlan(&mut self, tpid: u16) {
        self.touch_tags();
        self.show(Field::VlanTci0, u128::MAX);
        // As in Open vSwitch, which programs count on; OpenFlow 1.3.5 §5.12.1 would copy the
        // outermost tag's VLAN and priority.
        self.push_tag(VlanTag { tpid, tci: 0 });
    }

    /// The actions `pop_vlan` and `strip_vlan`.
    pub(super) fn pop_vlan(&mut self) {
        self.consult_unshown(Field::VlanTci0, TAG_PRESENT.into());
        if self.packet.state.key.tag(0).is_some() {
            self.pop_tag();
        }
    }

    /// Writes to the outermost tag's control information; a tag comes or goes with the bit that
    /// says that there is one.
    pub(super) fn set_tci(&mut self, value: u16, mask: u16) {
        self.touch_tags();
        self.show(Field::VlanTci0, (mask | TAG_PRESENT).into());
        let old = self.packet.state.key.get(Field::VlanTci0) as u16;
        let new = old & !mask | value & mask;
        match (old & TAG_PRESENT != 0, new & TAG_PRESENT != 0) {
            (true, true) => self.packet.state.key.set(Field::VlanTci0, new.into()),
            (false, true) => self.push_tag(VlanTag {
                tpid: EtherType::VLAN.0,
                tci: new & !TAG_PRESENT,
            }),
            (true, false) => self.pop_tag(),
            (false, false) => {}
        }
    }

    /// Pushes a tag.
    pub(super) fn push_tag(&mut self, tag: VlanTag) {
        self.touch_tags();
        let (outer, inner) = (self.packet.state.key.tag(0), self.packet.state.key.tag(1));
        if let Some(inner) = inner {
            self.packet.buried.insert(0, inner);
        }
        self.packet.state.key.set_tag(1, outer);
        self.packet.state.key.set_tag(0, Some(tag));
    }

    /// Pops the outermost tag.
    pub(super) fn pop_tag(&mut self) {
        self.touch_tags();
        let inner = self.packet.state.key.tag(1);
        let deeper = (!self.packet.buried.is_empty()).then(|| self.packet.buried.remove(0));
        self.packet.state.key.set_tag(0, inner);
        self.packet.state.key.set_tag(1, deeper);
    }

    /// Sends a copy of the packet with other tags. `tags` is about the tags of `key`, which the
    /// packet has.
    pub(super) fn send_with(&mut self, key: &Key, tags: &Tags, send: impl FnOnce(&mut Self)) {
        let mut changes = Vec::new();
        Tags::default().change_to(tags, &mut self.reader(key), &mut changes);
        self.aside(|copy| {
            for change in &changes {
                match change {
                    Action::PushVlan(tag) => copy.push_tag(*tag),
                    _ => copy.pop_tag(),
                }
            }
            send(copy);
        });
    }

    /// The key of the packet as tables see it, with the tag that the VLAN limit hides from them.
    pub(super) fn key_with_own_tags(&self) -> Key {
        let mut key = self.packet.state.key;
        if self.packet.own_tags && self.switch.vlan_limit < 2 {
            key.set_tag(1, self.original.tag(1));
        }
        key
    }

    /// Notes that the tags are written: all of their bits are in the mask.
    pub(super) fn touch_tags(&mut self) {
        self.packet.own_tags = false;
        for field in TAGS {
            self.consult_unshown(field, u128::MAX);
        }
    }

    /// Appends the pops and pushes that give the datapath's packet the tags that tables see.
    pub(super) fn commit_tags(&mut self) {
        let (have, want) = (
            all_tags(&self.packet.base.key, &self.packet.base.buried),
            all_tags(&self.packet.state.key, &self.packet.buried),
        );
        let common = have
            .iter()
            .rev()
            .zip(want.iter().rev())
            .take_while(|(a, b)| a == b)
            .count();
        let pops = have.len() - common;
        if pops > 0 {
            self.show(Field::VlanTci0, u128::MAX);
        }
        self.actions.extend(std::iter::repeat_n(Action::PopVlan, pops));
        let pushed = want[..want.len() - common].iter().rev();
        self.actions.extend(pushed.map(|tag| Action::PushVlan(*tag)));
    }
}

/// The tags of a packet, the outermost first.
fn all_tags(key: &Key, buried: &Buried) -> Buried {
    let all = [key.tag(0), key.tag(1)].into_iter().flatten();
    all.chain(buried.iter().copied()).collect()
}
