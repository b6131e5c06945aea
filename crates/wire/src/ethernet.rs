//! The Ethernet header (IEEE 802.3 clause 3): destination, source, type.

use crate::view::{array_at, u16_at, view};
use crate::{Error, EtherType, MacAddr};

mod field {
    use core::ops::{Range, RangeFrom};
    pub(super) const DST: Range<usize> = 0..6;
    pub(super) const SRC: Range<usize> = 6..12;
    pub(super) const KIND: Range<usize> = 12..14;
    pub(super) const PAYLOAD: RangeFrom<usize> = 14..;
}

/// Length of the header.
pub const LEN: usize = field::KIND.end;

view! {
    /// A frame without preamble and FCS.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        if self.data().len() < LEN {
            Err(Error::Truncated)
        } else {
            Ok(())
        }
    }

    /// Destination address.
    pub fn dst(&self) -> MacAddr {
        MacAddr(array_at(self.data(), field::DST.start))
    }

    /// Source address.
    pub fn src(&self) -> MacAddr {
        MacAddr(array_at(self.data(), field::SRC.start))
    }

    /// Type (or length, below 0x600) of what follows.
    pub fn ether_type(&self) -> EtherType {
        EtherType(u16_at(self.data(), field::KIND.start))
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.data()[field::PAYLOAD]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the destination address.
    pub fn set_dst(&mut self, mac: MacAddr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&mac.0);
    }

    /// Sets the source address.
    pub fn set_src(&mut self, mac: MacAddr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&mac.0);
    }

    /// Sets the type.
    pub fn set_ether_type(&mut self, kind: EtherType) {
        self.buffer.as_mut()[field::KIND].copy_from_slice(&kind.0.to_be_bytes());
    }

    /// What follows the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[field::PAYLOAD]
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
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
            dst: view.dst(),
            src: view.src(),
            ether_type: view.ether_type(),
        })
    }

    /// Writes the header to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_dst(self.dst);
        view.set_src(self.src);
        view.set_ether_type(self.ether_type);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(dst: [u8; 6], src: [u8; 6], kind: u16) {
            let repr = Repr { dst: MacAddr(dst), src: MacAddr(src), ether_type: EtherType(kind) };
            let mut data = [0; LEN];
            repr.emit(&mut data);
            let theirs = etherparse::Ethernet2Header { source: src, destination: dst, ether_type: etherparse::EtherType(kind) };
            prop_assert_eq!(data, theirs.to_bytes());
            prop_assert_eq!(Repr::parse(&data), Ok(repr));
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Repr::parse(&data).is_ok(), data.len() >= LEN);
        }
    }
}
