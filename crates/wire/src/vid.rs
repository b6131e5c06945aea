//! VLAN identifiers and tags (IEEE 802.1Q §9.6).

use crate::EtherType;
use core::fmt;

/// A VLAN identifier, 0 to 4095. 0 stands for "no VLAN" (a priority tag, or untagged); 4095 is
/// reserved by the standard, but frames carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(u16);

impl Vid {
    /// No VLAN.
    pub const NONE: Vid = Vid(0);
    /// How many identifiers there are.
    pub const COUNT: usize = 4096;

    /// Checks the range.
    ///
    /// # Errors
    /// [`VidError`] where `vid` is greater than 4095.
    pub const fn new(vid: u16) -> Result<Vid, VidError> {
        if vid < 4096 { Ok(Vid(vid)) } else { Err(VidError(vid)) }
    }

    /// The identifier in a tag control information field: its low 12 bits.
    pub const fn from_tci(tci: u16) -> Vid {
        Vid(tci & 0xfff)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Vid {
    type Error = VidError;
    fn try_from(vid: u16) -> Result<Vid, VidError> {
        Vid::new(vid)
    }
}

impl From<Vid> for u16 {
    fn from(vid: Vid) -> u16 {
        vid.0
    }
}

impl fmt::Display for Vid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number is not a VLAN identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidError(pub u16);

impl fmt::Display for VidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not in the valid range 0 to 4095 of VLANs", self.0)
    }
}

impl core::error::Error for VidError {}

/// A VLAN tag as a frame carries it: the tag protocol identifier and the tag control information
/// (PCP 3 bits, DEI 1 bit, VID 12 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanTag {
    /// Tag protocol identifier: [`EtherType::VLAN`] (C-tag) or [`EtherType::QINQ`] (S-tag).
    pub tpid: u16,
    /// Tag control information.
    pub tci: u16,
}

impl VlanTag {
    /// Length of a tag in a frame, in bytes.
    pub const LEN: usize = 4;

    /// A C-tag (0x8100) of a VLAN, with priority 0.
    pub const fn ctag(vid: Vid) -> VlanTag {
        VlanTag {
            tpid: EtherType::VLAN.0,
            tci: vid.0,
        }
    }

    /// The VLAN identifier.
    pub const fn vid(self) -> Vid {
        Vid::from_tci(self.tci)
    }

    /// The priority code point, 0 to 7.
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// The drop eligible indicator (formerly the canonical format indicator).
    pub const fn dei(self) -> bool {
        self.tci & 0x1000 != 0
    }

    /// The tag as it stands in a frame.
    pub const fn to_bytes(self) -> [u8; 4] {
        let [a, b] = self.tpid.to_be_bytes();
        let [c, d] = self.tci.to_be_bytes();
        [a, b, c, d]
    }

    /// The tag that four bytes of a frame make.
    pub const fn from_bytes(bytes: [u8; 4]) -> VlanTag {
        let [a, b, c, d] = bytes;
        VlanTag {
            tpid: u16::from_be_bytes([a, b]),
            tci: u16::from_be_bytes([c, d]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vid_is_checked_once_at_the_edge() {
        assert_eq!(Vid::new(4095).map(Vid::get), Ok(4095));
        assert_eq!(Vid::new(4096), Err(VidError(4096)));
        assert_eq!(Vid::from_tci(0xf00a).get(), 10);
    }

    #[test]
    fn a_tag_splits_into_its_parts() {
        let tag = VlanTag::from_bytes([0x88, 0xa8, 0xb0, 0x0a]);
        assert_eq!((tag.tpid, tag.pcp(), tag.dei(), tag.vid().get()), (0x88a8, 5, true, 10));
        assert_eq!(tag.to_bytes(), [0x88, 0xa8, 0xb0, 0x0a]);
    }
}
