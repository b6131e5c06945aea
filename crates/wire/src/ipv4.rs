//! IPv4's header (RFC 791 §3.1).

use crate::Error;
use crate::checksum::{Sum, checksum, pseudo_ipv4};
use crate::view::{array_at, u16_at, view};
use core::net::Ipv4Addr;

mod field {
    use core::ops::Range;
    pub(super) const VERSION_IHL: usize = 0;
    pub(super) const TOS: usize = 1;
    pub(super) const TOTAL_LEN: Range<usize> = 2..4;
    pub(super) const ID: Range<usize> = 4..6;
    pub(super) const FRAGMENT: Range<usize> = 6..8;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: Range<usize> = 10..12;
    pub(super) const SRC: Range<usize> = 12..16;
    pub(super) const DST: Range<usize> = 16..20;
}

/// Length of the header without options.
pub const LEN: usize = field::DST.end;

/// Numbers of the protocols over IP (IANA "Protocol Numbers").
pub mod protocol {
    /// RFC 792.
    pub const ICMP: u8 = 1;
    /// RFC 9293.
    pub const TCP: u8 = 6;
    /// RFC 768.
    pub const UDP: u8 = 17;
    /// RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// RFC 9260.
    pub const SCTP: u8 = 132;
}

/// Don't fragment, in the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// More fragments follow, in the fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;

view! {
    /// A packet, perhaps with padding behind it.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        let len = self.data().len();
        if len < LEN {
            return Err(Error::Truncated);
        }
        if self.data()[field::VERSION_IHL] >> 4 != 4 || self.header_len() < LEN {
            return Err(Error::Malformed);
        }
        match usize::from(self.total_len()) {
            total if total < self.header_len() => Err(Error::Malformed),
            total if total > len => Err(Error::Truncated),
            _ => Ok(()),
        }
    }

    /// Length of the header with its options, in bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.data()[field::VERSION_IHL] & 0xf) * 4
    }

    /// DSCP and ECN.
    pub fn tos(&self) -> u8 {
        self.data()[field::TOS]
    }

    /// Length of header and payload.
    pub fn total_len(&self) -> u16 {
        u16_at(self.data(), field::TOTAL_LEN.start)
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        u16_at(self.data(), field::ID.start)
    }

    /// Flags (the upper 3 bits) and fragment offset in units of 8 bytes.
    pub fn fragment(&self) -> u16 {
        u16_at(self.data(), field::FRAGMENT.start)
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.data()[field::TTL]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.data()[field::PROTOCOL]
    }

    /// Checksum of the header.
    pub fn checksum(&self) -> u16 {
        u16_at(self.data(), field::CHECKSUM.start)
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        array_at::<4>(self.data(), field::SRC.start).into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        array_at::<4>(self.data(), field::DST.start).into()
    }

    /// The options, undecoded.
    pub fn options(&self) -> &[u8] {
        &self.data()[LEN..self.header_len()]
    }

    /// What follows the header, without padding.
    pub fn payload(&self) -> &[u8] {
        &self.data()[self.header_len()..usize::from(self.total_len())]
    }

    /// Whether the header's checksum is right.
    pub fn verify(&self) -> bool {
        checksum(&self.data()[..self.header_len()]) == 0
    }

    /// The sum of the pseudo header of the payload.
    pub fn pseudo(&self) -> Sum {
        pseudo_ipv4(self.src(), self.dst(), self.protocol(), self.payload().len() as u32)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets version 4 and the header's length, a multiple of 4 from 20 to 60.
    pub fn set_header_len(&mut self, len: usize) {
        self.buffer.as_mut()[field::VERSION_IHL] = 0x40 | (len / 4) as u8 & 0xf;
    }

    /// Sets DSCP and ECN.
    pub fn set_tos(&mut self, tos: u8) {
        self.buffer.as_mut()[field::TOS] = tos;
    }

    /// Sets the length of header and payload.
    pub fn set_total_len(&mut self, len: u16) {
        self.buffer.as_mut()[field::TOTAL_LEN].copy_from_slice(&len.to_be_bytes());
    }

    /// Sets the identification.
    pub fn set_id(&mut self, id: u16) {
        self.buffer.as_mut()[field::ID].copy_from_slice(&id.to_be_bytes());
    }

    /// Sets flags and fragment offset.
    pub fn set_fragment(&mut self, fragment: u16) {
        self.buffer.as_mut()[field::FRAGMENT].copy_from_slice(&fragment.to_be_bytes());
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.buffer.as_mut()[field::TTL] = ttl;
    }

    /// Sets the protocol of the payload.
    pub fn set_protocol(&mut self, protocol: u8) {
        self.buffer.as_mut()[field::PROTOCOL] = protocol;
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        self.buffer.as_mut()[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Sets the source address.
    pub fn set_src(&mut self, ip: Ipv4Addr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&ip.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, ip: Ipv4Addr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&ip.octets());
    }

    /// Computes and sets the header's checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum(&self.data()[..self.header_len()]);
        self.set_checksum(sum);
    }

    /// What follows the header, without padding.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let range = self.header_len()..usize::from(self.total_len());
        &mut self.buffer.as_mut()[range]
    }
}

/// An IPv4 header without options and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Length of the payload, at most 65 515.
    pub payload_len: u16,
}

impl Repr {
    /// Reads a header.
    ///
    /// # Errors
    /// Those of [`View::new_checked`]; [`Error::Checksum`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        if !view.verify() {
            return Err(Error::Checksum);
        }
        Ok(Repr {
            tos: view.tos(),
            id: view.id(),
            fragment: view.fragment(),
            ttl: view.ttl(),
            protocol: view.protocol(),
            src: view.src(),
            dst: view.dst(),
            payload_len: view.payload().len() as u16,
        })
    }

    /// Writes a header without options, with its checksum, to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_header_len(LEN);
        view.set_tos(self.tos);
        view.set_total_len(self.payload_len.saturating_add(LEN as u16));
        view.set_id(self.id);
        view.set_fragment(self.fragment);
        view.set_ttl(self.ttl);
        view.set_protocol(self.protocol);
        view.set_src(self.src);
        view.set_dst(self.dst);
        view.fill_checksum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(
            (tos, id, ttl, protocol) in any::<(u8, u16, u8, u8)>(),
            (src, dst) in any::<([u8; 4], [u8; 4])>(),
            offset in 0u16..0x2000,
            df: bool,
            mf: bool,
            payload in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let fragment = offset | if df { DONT_FRAGMENT } else { 0 } | if mf { MORE_FRAGMENTS } else { 0 };
            let repr = Repr { tos, id, fragment, ttl, protocol, src: src.into(), dst: dst.into(), payload_len: payload.len() as u16 };
            let mut data = [&[0; LEN][..], &payload, &[9; 3]].concat();
            repr.emit(&mut data);
            let (theirs, rest) = etherparse::Ipv4Header::from_slice(&data).unwrap();
            prop_assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
            prop_assert_eq!((theirs.source, theirs.destination, theirs.time_to_live), (src, dst, ttl));
            prop_assert_eq!((theirs.identification, theirs.protocol.0, theirs.dont_fragment, theirs.more_fragments), (id, protocol, df, mf));
            prop_assert_eq!((theirs.dscp.value(), theirs.ecn.value(), theirs.fragment_offset.value()), (tos >> 2, tos & 3, offset));
            prop_assert_eq!(rest.len(), payload.len() + 3);
            prop_assert_eq!(Repr::parse(&data), Ok(repr));
            let view = View::new_checked(&data).unwrap();
            prop_assert_eq!(view.payload(), &payload[..]);
        }

        #[test]
        fn no_bytes_make_it_panic(mut data in proptest::collection::vec(any::<u8>(), 0..70), ihl in 0u8..16) {
            if let Some(first) = data.first_mut() {
                *first = 0x40 | ihl;
            }
            let _ = Repr::parse(&data);
            if let Ok(view) = View::new_checked(&data) {
                let _ = (view.options(), view.payload(), view.pseudo());
            }
        }
    }
}
