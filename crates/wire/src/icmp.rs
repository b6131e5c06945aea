//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type, code, checksum, and a word whose meaning the type
//! gives.

use crate::Error;
use crate::checksum::Sum;
use crate::view::{array_at, u16_at, view};

mod field {
    use core::ops::Range;
    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: Range<usize> = 2..4;
    pub(super) const REST: Range<usize> = 4..8;
}

/// Length of the header with the word that follows the checksum.
pub const LEN: usize = field::REST.end;

/// Where the checksum lies in the header.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

/// Types that differ between the two versions.
pub mod kind {
    /// Answer to an echo, IPv4.
    pub const ECHO_REPLY: u8 = 0;
    /// Echo, IPv4.
    pub const ECHO_REQUEST: u8 = 8;
    /// Echo, IPv6.
    pub const ECHO_REQUEST_V6: u8 = 128;
    /// Answer to an echo, IPv6.
    pub const ECHO_REPLY_V6: u8 = 129;
    /// Neighbour solicitation (RFC 4861 §4.3).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement (RFC 4861 §4.4).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
}

view! {
    /// A message.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        if self.data().len() < LEN {
            Err(Error::Truncated)
        } else {
            Ok(())
        }
    }

    /// Type.
    pub fn kind(&self) -> u8 {
        self.data()[field::KIND]
    }

    /// Code.
    pub fn code(&self) -> u8 {
        self.data()[field::CODE]
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.data(), field::CHECKSUM.start)
    }

    /// The word behind the checksum: of an echo, identifier and sequence number.
    pub fn rest(&self) -> [u8; 4] {
        array_at(self.data(), field::REST.start)
    }

    /// What follows.
    pub fn payload(&self) -> &[u8] {
        &self.data()[LEN..]
    }

    /// Whether the checksum is right; `pseudo` is the sum of the pseudo header for ICMPv6, and zero
    /// for ICMP.
    pub fn verify(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.data()).finish() == 0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the type.
    pub fn set_kind(&mut self, kind: u8) {
        self.buffer.as_mut()[field::KIND] = kind;
    }

    /// Sets the code.
    pub fn set_code(&mut self, code: u8) {
        self.buffer.as_mut()[field::CODE] = code;
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Sets the word behind the checksum.
    pub fn set_rest(&mut self, rest: [u8; 4]) {
        self.buffer.as_mut()[field::REST].copy_from_slice(&rest);
    }

    /// Computes and sets the checksum over the whole buffer; `pseudo` as for [`View::verify`].
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.data()).finish();
        self.set_checksum(sum);
    }
}

/// The header of a message without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The word behind the checksum.
    pub rest: [u8; 4],
}

impl Repr {
    /// Reads a header. The checksum is the caller's to verify.
    ///
    /// # Errors
    /// Those of [`View::new_checked`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        Ok(Repr {
            kind: view.kind(),
            code: view.code(),
            rest: view.rest(),
        })
    }

    /// Writes the header, with checksum 0, to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_kind(self.kind);
        view.set_code(self.code);
        view.set_checksum(0);
        view.set_rest(self.rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_ipv6;
    use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(id: u16, seq: u16, payload in proptest::collection::vec(any::<u8>(), 0..50)) {
            let echo = IcmpEchoHeader { id, seq };
            let rest = echo.to_bytes();
            let mut data = [&[0; LEN][..], &payload].concat();

            Repr { kind: kind::ECHO_REQUEST, code: 0, rest }.emit(&mut data);
            View::new_unchecked(&mut data[..]).fill_checksum(Sum::ZERO);
            let theirs = Icmpv4Header::with_checksum(Icmpv4Type::EchoRequest(echo), &payload);
            prop_assert_eq!(&data[..LEN], &theirs.to_bytes()[..]);
            prop_assert!(View::new_unchecked(&data).verify(Sum::ZERO));

            let pseudo = pseudo_ipv6([1; 16].into(), [2; 16].into(), 58, data.len() as u32);
            Repr { kind: kind::ECHO_REPLY_V6, code: 0, rest }.emit(&mut data);
            View::new_unchecked(&mut data[..]).fill_checksum(pseudo);
            let theirs = Icmpv6Header::with_checksum(Icmpv6Type::EchoReply(echo), [1; 16], [2; 16], &payload).unwrap();
            prop_assert_eq!(&data[..LEN], &theirs.to_bytes()[..]);
            prop_assert_eq!(Repr::parse(&data), Ok(Repr { kind: kind::ECHO_REPLY_V6, code: 0, rest }));
        }
    }

    #[test]
    fn a_message_without_its_second_word_is_truncated() {
        assert_eq!(Repr::parse(&[0; LEN - 1]), Err(Error::Truncated));
    }
}
