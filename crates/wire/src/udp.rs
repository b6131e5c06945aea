//! UDP (RFC 768).

use crate::Error;
use crate::checksum::Sum;
use crate::view::{u16_at, view};

mod field {
    use core::ops::Range;
    pub(super) const SRC: Range<usize> = 0..2;
    pub(super) const DST: Range<usize> = 2..4;
    pub(super) const LENGTH: Range<usize> = 4..6;
    pub(super) const CHECKSUM: Range<usize> = 6..8;
}

/// Length of the header.
pub const LEN: usize = field::CHECKSUM.end;

/// Where the checksum lies in the header.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

view! {
    /// A datagram.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        let len = self.data().len();
        if len < LEN {
            return Err(Error::Truncated);
        }
        match usize::from(self.length()) {
            length if length < LEN => Err(Error::Malformed),
            length if length > len => Err(Error::Truncated),
            _ => Ok(()),
        }
    }

    /// Source port.
    pub fn src(&self) -> u16 {
        u16_at(self.data(), field::SRC.start)
    }

    /// Destination port.
    pub fn dst(&self) -> u16 {
        u16_at(self.data(), field::DST.start)
    }

    /// Length of header and payload.
    pub fn length(&self) -> u16 {
        u16_at(self.data(), field::LENGTH.start)
    }

    /// Checksum; 0 where the sender made none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.data(), field::CHECKSUM.start)
    }

    /// What follows the header, up to the length in it.
    pub fn payload(&self) -> &[u8] {
        &self.data()[LEN..usize::from(self.length())]
    }

    /// Whether the checksum is right or absent; `pseudo` is the sum of the pseudo header.
    pub fn verify(&self, pseudo: Sum) -> bool {
        self.checksum() == 0 || pseudo.bytes(&self.data()[..usize::from(self.length())]).finish() == 0
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the source port.
    pub fn set_src(&mut self, port: u16) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the destination port.
    pub fn set_dst(&mut self, port: u16) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&port.to_be_bytes());
    }

    /// Sets the length of header and payload.
    pub fn set_length(&mut self, length: u16) {
        self.buffer.as_mut()[field::LENGTH].copy_from_slice(&length.to_be_bytes());
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Computes and sets the checksum over the length in the header; `pseudo` is the sum of the
    /// pseudo header.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(&self.data()[..usize::from(self.length())]).finish_udp();
        self.set_checksum(sum);
    }
}

/// A UDP header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Length of the payload, at most 65 527.
    pub payload_len: u16,
}

impl Repr {
    /// Reads a header. The checksum is the caller's to verify.
    ///
    /// # Errors
    /// Those of [`View::new_checked`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        Ok(Repr {
            src: view.src(),
            dst: view.dst(),
            payload_len: view.length() - LEN as u16,
        })
    }

    /// Writes the header, with checksum 0, to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_src(self.src);
        view.set_dst(self.dst);
        view.set_length(self.payload_len.saturating_add(LEN as u16));
        view.set_checksum(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_ipv4;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(src: u16, dst: u16, payload in proptest::collection::vec(any::<u8>(), 0..50)) {
            let length = (LEN + payload.len()) as u16;
            let mut theirs = etherparse::UdpHeader { source_port: src, destination_port: dst, length, checksum: 0 };
            theirs.checksum = theirs.calc_checksum_ipv4_raw([1; 4], [2; 4], &payload).unwrap();
            let mut data = [&theirs.to_bytes()[..], &payload].concat();
            let expected = data.clone();
            let repr = Repr::parse(&data).unwrap();
            let pseudo = pseudo_ipv4([1; 4].into(), [2; 4].into(), 17, data.len() as u32);
            prop_assert!(View::new_unchecked(&data).verify(pseudo));
            data[..LEN].fill(0);
            repr.emit(&mut data);
            View::new_unchecked(&mut data[..]).fill_checksum(pseudo);
            prop_assert_eq!(&data, &expected);
            let view = View::new_checked(&data).unwrap();
            prop_assert_eq!(view.payload(), &payload);
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = View::new_checked(&data) {
                let _ = (view.payload(), view.verify(Sum::ZERO));
            }
        }
    }
}
