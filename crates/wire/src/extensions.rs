//! IPv6 extension headers (RFC 8200 §4).

use crate::headers::Frag;

// Bits of OpenFlow's `ipv6_exthdr` (OpenFlow 1.5 §7.2.3.8).
const NONEXT: u16 = 1 << 0;
const ESP: u16 = 1 << 1;
const AUTH: u16 = 1 << 2;
const DEST: u16 = 1 << 3;
const FRAG: u16 = 1 << 4;
const ROUTER: u16 = 1 << 5;
const HOP: u16 = 1 << 6;
const UNREP: u16 = 1 << 7;
const UNSEQ: u16 = 1 << 8;

/// The walk from an IPv6 header to what it carries.
pub(crate) struct Chain {
    /// The header that comes next; at the end of the walk that of the payload, or that of a
    /// fragment for a later one.
    pub(crate) next: u8,
    pub(crate) frag: Frag,
    /// The value of `ipv6_exthdr`.
    pub(crate) seen: u16,
    /// Whether no routing header has segments left.
    pub(crate) final_destination: bool,
    /// The place of the last header in the order of RFC 8200 §4.1.
    place: u8,
    /// Headers of destination options.
    destinations: u8,
}

impl Chain {
    /// Before the header of this number.
    #[inline(always)]
    pub(crate) fn new(next: u8) -> Chain {
        Chain {
            next,
            frag: Frag::No,
            seen: 0,
            final_destination: true,
            place: 0,
            destinations: 0,
        }
    }

    /// Whether the next header is an extension header.
    #[inline(always)]
    pub(crate) fn is_extension(&self) -> bool {
        matches!(self.next, 0 | 43 | 44 | 50 | 51 | 59 | 60)
    }

    /// Goes on to the payload, or to a later fragment's header; `None` where a header is cut short.
    #[cold]
    pub(crate) fn walk(&mut self, rest: &mut &[u8]) -> Option<()> {
        // Every header is at least 8 bytes long, so this ends after at most 8 192 of them.
        while self.frag != Frag::Later {
            self.note();
            if !matches!(self.next, 0 | 43 | 44 | 51 | 60) {
                break;
            }
            let header: &[u8; 8] = rest.first_chunk()?;
            let len = match self.next {
                44 => {
                    // The fragment header (RFC 8200 §4.5): an offset of 0 with more to come, or
                    // with reserved bits, is the first one; all zero is the whole.
                    let offset = u16::from_be_bytes([header[2], header[3]]);
                    if offset != 0 {
                        self.frag = if offset & !7 == 0 { Frag::First } else { Frag::Later };
                    }
                    8
                }
                // The authentication header counts in 4-byte units (RFC 4302 §2.2), the others in
                // 8-byte ones.
                51 => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            self.final_destination &= self.next != 43 || header[3] == 0;
            *rest = rest.get(len..)?;
            if self.frag != Frag::Later {
                self.next = header[0];
            }
        }
        Some(())
    }

    /// Notes the header that comes next.
    fn note(&mut self) {
        let (bit, place) = match self.next {
            0 => (HOP, 0),
            // Destination options stand before the routing header, or last.
            60 => (DEST, if self.seen & !(HOP | UNREP) == 0 { 1 } else { 6 }),
            43 => (ROUTER, 2),
            44 => (FRAG, 3),
            51 => (AUTH, 4),
            50 => (ESP, 5),
            59 => (NONEXT, 7),
            _ => return,
        };
        let repeated = match bit {
            DEST => {
                self.destinations = self.destinations.saturating_add(1);
                self.destinations > 2
            }
            _ => self.seen & bit != 0,
        };
        if repeated {
            self.seen |= UNREP;
        }
        // Hop-by-hop options belong directly behind the IPv6 header.
        if bit == HOP && self.seen & !UNREP != 0 && !repeated {
            self.seen |= UNSEQ;
            return;
        }
        if place < self.place {
            self.seen |= UNSEQ;
        }
        self.place = self.place.max(place);
        self.seen |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// The bits that a chain of these headers before TCP has.
    fn seen(headers: &[u8]) -> u16 {
        let mut bytes = Vec::new();
        for next in headers[1..].iter().chain(&[6]) {
            bytes.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
        }
        let mut chain = Chain::new(headers[0]);
        chain.walk(&mut &bytes[..]).unwrap();
        chain.seen
    }

    #[test]
    fn the_order_of_rfc_8200_is_expected_and_any_other_is_noted() {
        assert_eq!(seen(&[0, 60, 43, 44]), HOP | DEST | ROUTER | FRAG);
        assert_eq!(seen(&[0, 60, 43, 60]), HOP | DEST | ROUTER);
        assert_eq!(seen(&[60, 60]), DEST);
        assert_eq!(seen(&[43, 60]), ROUTER | DEST);
        assert_eq!(seen(&[44, 43]), FRAG | ROUTER | UNSEQ);
        assert_eq!(seen(&[43, 60, 44]), ROUTER | DEST | FRAG | UNSEQ);
        assert_eq!(seen(&[43, 0]), ROUTER | UNSEQ);
        assert_eq!(seen(&[59]), NONEXT);
        assert_eq!(seen(&[60, 50]), DEST | ESP);
        assert_eq!(seen(&[6]), 0);
    }

    #[test]
    fn what_comes_too_often_is_noted() {
        assert_eq!(seen(&[43, 43]), ROUTER | UNREP);
        assert_eq!(seen(&[60, 60, 60]), DEST | UNREP);
        assert_eq!(seen(&[0, 0]), HOP | UNREP);
        assert_eq!(seen(&[44, 43, 44]), FRAG | ROUTER | UNSEQ | UNREP);
    }

    #[test]
    fn authentication_counts_in_words() {
        let bytes = [&[60, 4][..], &[0; 22], &[17, 0, 0, 0, 0, 0, 0, 0, 9]].concat();
        let mut chain = Chain::new(51);
        let mut rest = &bytes[..];
        chain.walk(&mut rest).unwrap();
        assert_eq!((chain.next, chain.seen, rest), (17, AUTH | DEST, &[9][..]));
        let mut chain = Chain::new(51);
        assert_eq!(chain.walk(&mut &bytes[..23]), None);
    }
}
