//! What follows a VLAN tag's protocol identifier (IEEE 802.1Q §9.6): tag control information and
//! the type of what comes next.

use crate::view::{u16_at, view};
use crate::{Error, EtherType, Vid};

mod field {
    use core::ops::{Range, RangeFrom};
    pub(super) const TCI: Range<usize> = 0..2;
    pub(super) const KIND: Range<usize> = 2..4;
    pub(super) const PAYLOAD: RangeFrom<usize> = 4..;
}

/// Length of the header.
pub const LEN: usize = field::KIND.end;

view! {
    /// The payload of an Ethernet header or a tag whose type says VLAN.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        if self.data().len() < LEN {
            Err(Error::Truncated)
        } else {
            Ok(())
        }
    }

    /// Tag control information.
    pub fn tci(&self) -> u16 {
        u16_at(self.data(), field::TCI.start)
    }

    /// VLAN identifier.
    pub fn vid(&self) -> Vid {
        Vid::from_tci(self.tci())
    }

    /// Priority code point, 0 to 7.
    pub fn pcp(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Drop eligible indicator.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// Type of what follows.
    pub fn ether_type(&self) -> EtherType {
        EtherType(u16_at(self.data(), field::KIND.start))
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.data()[field::PAYLOAD]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the tag control information.
    pub fn set_tci(&mut self, tci: u16) {
        self.buffer.as_mut()[field::TCI].copy_from_slice(&tci.to_be_bytes());
    }

    /// Sets the VLAN identifier, leaving priority and drop eligibility.
    pub fn set_vid(&mut self, vid: Vid) {
        self.set_tci(self.tci() & 0xf000 | vid.get());
    }

    /// Sets the priority code point, of which the low three bits count.
    pub fn set_pcp(&mut self, pcp: u8) {
        self.set_tci(self.tci() & 0x1fff | u16::from(pcp & 7) << 13);
    }

    /// Sets the type of what follows.
    pub fn set_ether_type(&mut self, kind: EtherType) {
        self.buffer.as_mut()[field::KIND].copy_from_slice(&kind.0.to_be_bytes());
    }
}

/// A tag's control information and the type that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Tag control information.
    pub tci: u16,
    /// Type of the payload.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads a header.
    ///
    /// # Errors
    /// Those of [`View::new_checked`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        Ok(Repr {
            tci: view.tci(),
            ether_type: view.ether_type(),
        })
    }

    /// Writes the header to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_tci(self.tci);
        view.set_ether_type(self.ether_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SingleVlanHeader, VlanId, VlanPcp};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(pcp in 0u8..8, dei: bool, vid in 0u16..4096, kind: u16) {
            let theirs = SingleVlanHeader {
                pcp: VlanPcp::try_new(pcp).unwrap(),
                drop_eligible_indicator: dei,
                vlan_id: VlanId::try_new(vid).unwrap(),
                ether_type: etherparse::EtherType(kind),
            };
            let mut data = theirs.to_bytes();
            let view = View::new_checked(&data[..]).unwrap();
            prop_assert_eq!((view.pcp(), view.dei(), view.vid().get(), view.ether_type().0), (pcp, dei, vid, kind));
            let repr = Repr::parse(&data).unwrap();
            data.fill(0);
            repr.emit(&mut data);
            prop_assert_eq!(data, theirs.to_bytes());
            let mut view = View::new_unchecked(&mut data[..]);
            view.set_vid(Vid::from_tci(!vid));
            view.set_pcp(7 - pcp);
            prop_assert_eq!((view.pcp(), view.dei(), view.vid()), (7 - pcp, dei, Vid::from_tci(!vid)));
        }
    }
}
