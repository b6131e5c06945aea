//! IPv6's header (RFC 8200 §3). Extension headers are payload here.

use crate::Error;
use crate::checksum::{Sum, pseudo_ipv6};
use crate::view::{array_at, u16_at, u32_at, view};
use core::net::Ipv6Addr;

mod field {
    use core::ops::Range;
    pub(super) const FIRST: Range<usize> = 0..4;
    pub(super) const PAYLOAD_LEN: Range<usize> = 4..6;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SRC: Range<usize> = 8..24;
    pub(super) const DST: Range<usize> = 24..40;
}

/// Length of the header.
pub const LEN: usize = field::DST.end;

view! {
    /// A packet, perhaps with padding behind it.
}

impl<T: AsRef<[u8]>> View<T> {
    fn check(&self) -> Result<(), Error> {
        let len = self.data().len();
        if len < LEN {
            return Err(Error::Truncated);
        }
        if self.data()[0] >> 4 != 6 {
            return Err(Error::Malformed);
        }
        if usize::from(self.payload_len()) > len - LEN {
            Err(Error::Truncated)
        } else {
            Ok(())
        }
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (u32_at(self.data(), field::FIRST.start) >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.data(), field::FIRST.start) & 0xf_ffff
    }

    /// Length of what follows the header.
    pub fn payload_len(&self) -> u16 {
        u16_at(self.data(), field::PAYLOAD_LEN.start)
    }

    /// Kind of the header that follows.
    pub fn next_header(&self) -> u8 {
        self.data()[field::NEXT_HEADER]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.data()[field::HOP_LIMIT]
    }

    /// Source address.
    pub fn src(&self) -> Ipv6Addr {
        array_at::<16>(self.data(), field::SRC.start).into()
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv6Addr {
        array_at::<16>(self.data(), field::DST.start).into()
    }

    /// What follows the header, without padding.
    pub fn payload(&self) -> &[u8] {
        &self.data()[LEN..LEN + usize::from(self.payload_len())]
    }

    /// The sum of the pseudo header of the payload, where no extension header precedes it.
    pub fn pseudo(&self) -> Sum {
        pseudo_ipv6(
            self.src(),
            self.dst(),
            self.next_header(),
            u32::from(self.payload_len()),
        )
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets version 6, DSCP and ECN, and the flow label, of which the low 20 bits count.
    pub fn set_first(&mut self, traffic_class: u8, flow_label: u32) {
        let word = 6 << 28 | u32::from(traffic_class) << 20 | flow_label & 0xf_ffff;
        self.buffer.as_mut()[field::FIRST].copy_from_slice(&word.to_be_bytes());
    }

    /// Sets the length of what follows the header.
    pub fn set_payload_len(&mut self, len: u16) {
        self.buffer.as_mut()[field::PAYLOAD_LEN].copy_from_slice(&len.to_be_bytes());
    }

    /// Sets the kind of the header that follows.
    pub fn set_next_header(&mut self, next: u8) {
        self.buffer.as_mut()[field::NEXT_HEADER] = next;
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, limit: u8) {
        self.buffer.as_mut()[field::HOP_LIMIT] = limit;
    }

    /// Sets the source address.
    pub fn set_src(&mut self, ip: Ipv6Addr) {
        self.buffer.as_mut()[field::SRC].copy_from_slice(&ip.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, ip: Ipv6Addr) {
        self.buffer.as_mut()[field::DST].copy_from_slice(&ip.octets());
    }

    /// What follows the header, without padding.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = LEN + usize::from(self.payload_len());
        &mut self.buffer.as_mut()[LEN..end]
    }
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, at most 0xfffff.
    pub flow_label: u32,
    /// Length of the payload.
    pub payload_len: u16,
    /// Kind of the header that follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Repr {
    /// Reads a header.
    ///
    /// # Errors
    /// Those of [`View::new_checked`].
    pub fn parse(data: &[u8]) -> Result<Repr, Error> {
        let view = View::new_checked(data)?;
        Ok(Repr {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            src: view.src(),
            dst: view.dst(),
        })
    }

    /// Writes the header to the start of `data`.
    pub fn emit(&self, data: &mut [u8]) {
        let mut view = View::new_unchecked(data);
        view.set_first(self.traffic_class, self.flow_label);
        view.set_payload_len(self.payload_len);
        view.set_next_header(self.next_header);
        view.set_hop_limit(self.hop_limit);
        view.set_src(self.src);
        view.set_dst(self.dst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpNumber, Ipv6FlowLabel, Ipv6Header};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_etherparse(
            (traffic_class, next_header, hop_limit) in any::<(u8, u8, u8)>(),
            flow_label in 0u32..1 << 20,
            (src, dst) in any::<([u8; 16], [u8; 16])>(),
            len in 0u16..40,
        ) {
            let theirs = Ipv6Header {
                traffic_class,
                flow_label: Ipv6FlowLabel::try_new(flow_label).unwrap(),
                payload_length: len,
                next_header: IpNumber(next_header),
                hop_limit,
                source: src,
                destination: dst,
            };
            let mut data = [&theirs.to_bytes()[..], &[7; 50]].concat();
            let repr = Repr { traffic_class, flow_label, payload_len: len, next_header, hop_limit, src: src.into(), dst: dst.into() };
            prop_assert_eq!(Repr::parse(&data), Ok(repr));
            prop_assert_eq!(View::new_checked(&data).unwrap().payload().len(), usize::from(len));
            data[..LEN].fill(0);
            repr.emit(&mut data);
            prop_assert_eq!(&data[..LEN], &theirs.to_bytes()[..]);
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(view) = View::new_checked(&data) {
                let _ = (view.payload(), view.pseudo());
            }
        }
    }
}
