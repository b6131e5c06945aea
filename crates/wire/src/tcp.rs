//! TCP's header (RFC 9293 §3.1).

use crate::Error;
use crate::checksum::Sum;
use crate::view::{u16_at, u32_at, view};

mod field {
    use core::ops::Range;
    pub(super) const SRC: Range<usize> = 0..2;
    pub(super) const DST: Range<usize> = 2..4;
    pub(super) const SEQ: Range<usize> = 4..8;
    pub(super) const ACK: Range<usize> = 8..12;
    pub(super) const FLAGS: Range<usize> = 12..14;
    pub(super) const WINDOW: Range<usize> = 14..16;
    pub(super) const CHECKSUM: Range<usize> = 16..18;
    pub(super) const URGENT: Range<usize> = 18..20;
}

/// Length of the header without options.
pub const LEN: usize = field::URGENT.end;

/// Where the checksum lies in the header.
pub const CHECKSUM_OFFSET: usize = field::CHECKSUM.start;

/// Bits of the flags field (RFC 9293 §3.1, RFC 3168 §6.1).
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u16 = 0x001;
    /// Synchronize sequence numbers.
    pub const SYN: u16 = 0x002;
    /// Reset the connection.
    pub const RST: u16 = 0x004;
    /// Push function.
    pub const PSH: u16 = 0x008;
    /// The acknowledgment field counts.
    pub const ACK: u16 = 0x010;
    /// The urgent pointer counts.
    pub const URG: u16 = 0x020;
    /// ECN echo.
    pub const ECE: u16 = 0x040;
    /// Congestion window reduced.
    pub const CWR: u16 = 0x080;
}

view! {
    /// A segment.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        let len = self.data().len();
        if len < LEN {
            return Err(Error::Truncated);
        }
        match self.header_len() {
            header if header < LEN => Err(Error::Malformed),
            header if header > len => Err(Error::Truncated),
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

    /// Sequence number.
    pub fn seq(&self) -> u32 {
        u32_at(self.data(), field::SEQ.start)
    }

    /// Acknowledgment number.
    pub fn ack(&self) -> u32 {
        u32_at(self.data(), field::ACK.start)
    }

    /// Length of the header with its options, in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.data()[field::FLAGS.start] >> 4) * 4
    }

    /// The 12 bits of flags, reserved ones included.
    pub fn flags(&self) -> u16 {
        u16_at(self.data(), field::FLAGS.start) & 0xfff
    }

    /// Window.
    pub fn window(&self) -> u16 {
        u16_at(self.data(), field::WINDOW.start)
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.data(), field::CHECKSUM.start)
    }

    /// Urgent pointer.
    pub fn urgent(&self) -> u16 {
        u16_at(self.data(), field::URGENT.start)
    }

    /// The options, undecoded.
    pub fn options(&self) -> &[u8] {
        &self.data()[LEN..self.header_len()]
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.data()[self.header_len()..]
    }

    /// Whether the checksum is right; `pseudo` is the sum of the pseudo header.
    pub fn verify(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.data()).finish() == 0
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

    /// Sets the sequence number.
    pub fn set_seq(&mut self, seq: u32) {
        self.buffer.as_mut()[field::SEQ].copy_from_slice(&seq.to_be_bytes());
    }

    /// Sets the acknowledgment number.
    pub fn set_ack(&mut self, ack: u32) {
        self.buffer.as_mut()[field::ACK].copy_from_slice(&ack.to_be_bytes());
    }

    /// Sets the header's length, a multiple of 4 from 20 to 60.
    pub fn set_header_len(&mut self, len: usize) {
        let byte = &mut self.buffer.as_mut()[field::FLAGS.start];
        *byte = *byte & 0xf | ((len / 4) as u8) << 4;
    }

    /// Sets the flags, of which the low 12 bits count.
    pub fn set_flags(&mut self, flags: u16) {
        let word = u16_at(self.data(), field::FLAGS.start) & 0xf000 | flags & 0xfff;
        self.buffer.as_mut()[field::FLAGS].copy_from_slice(&word.to_be_bytes());
    }

    /// Sets the window.
    pub fn set_window(&mut self, window: u16) {
        self.buffer.as_mut()[field::WINDOW].copy_from_slice(&window.to_be_bytes());
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Sets the urgent pointer.
    pub fn set_urgent(&mut self, urgent: u16) {
        self.buffer.as_mut()[field::URGENT].copy_from_slice(&urgent.to_be_bytes());
    }

    /// Computes and sets the checksum over the whole buffer; `pseudo` is the sum of the pseudo
    /// header.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let sum = pseudo.bytes(self.data()).finish();
        self.set_checksum(sum);
    }
}

/// A TCP header without options and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
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
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
        })
    }

    /// Writes a header without options, with checksum 0, to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_src(self.src);
        view.set_dst(self.dst);
        view.set_seq(self.seq);
        view.set_ack(self.ack);
        view.set_header_len(LEN);
        view.set_flags(self.flags);
        view.set_window(self.window);
        view.set_checksum(0);
        view.set_urgent(self.urgent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::pseudo_ipv6;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(src: u16, dst: u16, seq: u32, ack: u32, flags in 0u16..0x200, window: u16, urgent: u16,
                                     payload in proptest::collection::vec(any::<u8>(), 0..50)) {
            let repr = Repr { src, dst, seq, ack, flags, window, urgent };
            let mut data = [&[0; LEN][..], &payload].concat();
            repr.emit(&mut data);
            let pseudo = pseudo_ipv6([1; 16].into(), [2; 16].into(), 6, data.len() as u32);
            View::new_unchecked(&mut data[..]).fill_checksum(pseudo);
            prop_assert!(View::new_unchecked(&data[..]).verify(pseudo));
            prop_assert_eq!(Repr::parse(&data), Ok(repr));
            let (theirs, rest) = etherparse::TcpHeader::from_slice(&data).unwrap();
            prop_assert_eq!(rest, &payload[..]);
            prop_assert_eq!((theirs.source_port, theirs.destination_port), (src, dst));
            prop_assert_eq!((theirs.sequence_number, theirs.acknowledgment_number), (seq, ack));
            prop_assert_eq!((theirs.window_size, theirs.urgent_pointer), (window, urgent));
            prop_assert_eq!((theirs.syn, theirs.fin, theirs.ack, theirs.cwr),
                            (flags & flag::SYN != 0, flags & flag::FIN != 0, flags & flag::ACK != 0, flags & flag::CWR != 0));
            prop_assert_eq!(theirs.calc_checksum_ipv6_raw([1; 16], [2; 16], &payload), Ok(theirs.checksum));
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..70)) {
            if let Ok(view) = View::new_checked(&data) {
                let _ = (view.options(), view.payload());
            }
        }
    }
}
