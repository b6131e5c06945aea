//! The VLAN tags of a packet while it is translated, and the actions that make them so.
//!
//! Tags are symbols, not values: a tag that came with the packet is known by its level, and one
//! that replaces it may keep "the priority of the tag at level 0". A part of the key gets into the
//! mask only when its value matters, so that packets of all priorities share a megaflow wherever no
//! action spells the priority out.

use crate::tables::words::{self, StateWords};
use dp::Action;
use flow::{Field, Key, TAG_PRESENT};
use smallvec::SmallVec;
use wire::{EtherType, Vid, VlanTag};

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
    /// How many of the tags that the packet came with are gone; the others are under `made`.
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
