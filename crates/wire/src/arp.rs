//! Address resolution for IPv4 over Ethernet (RFC 826).

use crate::view::{array_at, u16_at, view};
use crate::{Error, MacAddr};
use core::net::Ipv4Addr;

mod field {
    use core::ops::Range;
    pub(super) const FORMAT: Range<usize> = 0..6;
    pub(super) const OPERATION: Range<usize> = 6..8;
    pub(super) const SHA: Range<usize> = 8..14;
    pub(super) const SPA: Range<usize> = 14..18;
    pub(super) const THA: Range<usize> = 18..24;
    pub(super) const TPA: Range<usize> = 24..28;
}

/// Length of a packet.
pub const LEN: usize = field::TPA.end;

/// Hardware type Ethernet, protocol type IPv4, and their addresses' lengths.
const FORMAT: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Asks for an address.
pub const REQUEST: u16 = 1;
/// Answers.
pub const REPLY: u16 = 2;

view! {
    /// An ARP packet.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        if self.data().len() < LEN {
            return Err(Error::Truncated);
        }
        if self.data()[field::FORMAT] == FORMAT {
            Ok(())
        } else {
            Err(Error::Malformed)
        }
    }

    /// Operation.
    pub fn operation(&self) -> u16 {
        u16_at(self.data(), field::OPERATION.start)
    }

    /// Sender's hardware address.
    pub fn sha(&self) -> MacAddr {
        MacAddr(array_at(self.data(), field::SHA.start))
    }

    /// Sender's protocol address.
    pub fn spa(&self) -> Ipv4Addr {
        array_at::<4>(self.data(), field::SPA.start).into()
    }

    /// Target's hardware address.
    pub fn tha(&self) -> MacAddr {
        MacAddr(array_at(self.data(), field::THA.start))
    }

    /// Target's protocol address.
    pub fn tpa(&self) -> Ipv4Addr {
        array_at::<4>(self.data(), field::TPA.start).into()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the operation.
    pub fn set_operation(&mut self, operation: u16) {
        self.buffer.as_mut()[field::OPERATION].copy_from_slice(&operation.to_be_bytes());
    }

    /// Sets the sender's hardware address.
    pub fn set_sha(&mut self, mac: MacAddr) {
        self.buffer.as_mut()[field::SHA].copy_from_slice(&mac.0);
    }

    /// Sets the sender's protocol address.
    pub fn set_spa(&mut self, ip: Ipv4Addr) {
        self.buffer.as_mut()[field::SPA].copy_from_slice(&ip.octets());
    }

    /// Sets the target's hardware address.
    pub fn set_tha(&mut self, mac: MacAddr) {
        self.buffer.as_mut()[field::THA].copy_from_slice(&mac.0);
    }

    /// Sets the target's protocol address.
    pub fn set_tpa(&mut self, ip: Ipv4Addr) {
        self.buffer.as_mut()[field::TPA].copy_from_slice(&ip.octets());
    }
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// [`REQUEST`], [`REPLY`] or another.
    pub operation: u16,
    /// Sender's hardware address.
    pub sha: MacAddr,
    /// Sender's protocol address.
    pub spa: Ipv4Addr,
    /// Target's hardware address.
    pub tha: MacAddr,
    /// Target's protocol address.
    pub tpa: Ipv4Addr,
}

impl Repr {
    /// Reads a packet.
    ///
    /// # Errors
    /// Those of [`View::new_checked`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        Ok(Repr {
            operation: view.operation(),
            sha: view.sha(),
            spa: view.spa(),
            tha: view.tha(),
            tpa: view.tpa(),
        })
    }

    /// Writes the packet to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        data[field::FORMAT].copy_from_slice(&FORMAT);
        let mut view = View::new_unchecked(data);
        view.set_operation(self.operation);
        view.set_sha(self.sha);
        view.set_spa(self.spa);
        view.set_tha(self.tha);
        view.set_tpa(self.tpa);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{ArpEthIpv4Packet, ArpOperation, ArpPacket};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(operation: u16, sha: [u8; 6], spa: [u8; 4], tha: [u8; 6], tpa: [u8; 4]) {
            let theirs: ArpPacket = ArpEthIpv4Packet {
                operation: ArpOperation(operation),
                sender_mac: sha,
                sender_ipv4: spa,
                target_mac: tha,
                target_ipv4: tpa,
            }
            .into();
            let repr = Repr { operation, sha: MacAddr(sha), spa: spa.into(), tha: MacAddr(tha), tpa: tpa.into() };
            let mut data = [0; LEN];
            repr.emit(&mut data);
            prop_assert_eq!(&data[..], &theirs.to_bytes()[..]);
            prop_assert_eq!(Repr::parse(&data), Ok(repr));
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Repr::parse(&data);
        }
    }

    #[test]
    fn other_kinds_of_addresses_are_refused() {
        let mut data = [0; LEN];
        assert_eq!(Repr::parse(&data), Err(Error::Malformed));
        data[..6].copy_from_slice(&FORMAT);
        assert!(Repr::parse(&data).is_ok());
        assert_eq!(Repr::parse(&data[..LEN - 1]), Err(Error::Truncated));
    }
}
