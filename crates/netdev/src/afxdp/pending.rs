//! Recognising a checksum that the sender left to a device.
//!
//! XDP passes bytes only. The host behind a virtual device may leave the checksum of its packets to
//! the device; then the field holds the sum of the pseudo header (RFC 9293 §3.1), or zero for SCTP,
//! and nothing else marks the packet. This module recognises that value. A packet whose complete
//! checksum equals that sum by chance is not harmed: computing the checksum gives the same value,
//! because `pseudo + data + checksum = 0xffff` with `checksum = pseudo` means `!(pseudo + data) =
//! pseudo`.

use crate::{Csum, checksum::SCTP};
use wire::EtherType;
use wire::checksum::{pseudo_ipv4, pseudo_ipv6};
use wire::headers::behind_tags;

const TAGS: usize = 2;

/// The checksum state of a packet from a virtual device.
#[inline]
pub(super) fn recognise(packet: &[u8]) -> Csum {
    find(packet).unwrap_or(Csum::Unknown)
}

#[inline]
fn find(packet: &[u8]) -> Option<Csum> {
    let (kind, at) = behind_tags(packet, TAGS)?;
    let ip = &packet[at..];
    let (protocol, header, pseudo) = match kind {
        EtherType::IPV4 => {
            let fixed: &[u8; 20] = ip.first_chunk()?;
            let header = usize::from(fixed[0] & 15) * 4;
            let fragmented = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
            let len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]])).checked_sub(header)?;
            if fragmented || header < 20 {
                return None;
            }
            let address = |at: usize| [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]].into();
            let pseudo = pseudo_ipv4(address(12), address(16), fixed[9], len as u32);
            (fixed[9], header, pseudo)
        }
        EtherType::IPV6 => {
            let fixed: &[u8; 40] = ip.first_chunk()?;
            let len = u16::from_be_bytes([fixed[4], fixed[5]]);
            let (src, dst): (&[u8; 16], &[u8; 16]) = (fixed[8..].first_chunk()?, fixed[24..].first_chunk()?);
            let pseudo = pseudo_ipv6((*src).into(), (*dst).into(), fixed[6], len.into());
            (fixed[6], 40, pseudo)
        }
        _ => return None,
    };
    let start = at + header;
    let offset = match protocol {
        6 => 16,
        17 => 6,
        132 => SCTP,
        _ => return None,
    };
    let field = be16(packet, start + usize::from(offset))?;
    let pending = match offset {
        SCTP => field == 0 && be16(packet, start + usize::from(offset) + 2)? == 0,
        _ => field == pseudo.fold(),
    };
    let start = u16::try_from(start).ok()?;
    pending.then_some(Csum::Partial { start, offset })
}

#[inline]
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, checksum};
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    fn udp(payload: &[u8], v6: bool) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = match v6 {
            true => ethernet.ipv6([1; 16], [2; 16], 64),
            false => ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        };
        let mut packet = Vec::new();
        ip.udp(7, 9).write(&mut packet, payload).unwrap();
        packet
    }

    /// The packet as a host leaves it to its device.
    fn unfinished(packet: &[u8], v6: bool) -> Vec<u8> {
        let mut packet = packet.to_vec();
        let start = if v6 { 54 } else { 34 };
        let len = (packet.len() - start) as u32;
        let pseudo = match v6 {
            true => pseudo_ipv6([1; 16].into(), [2; 16].into(), 17, len),
            false => pseudo_ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, len),
        };
        packet[start + 6..start + 8].copy_from_slice(&pseudo.fold().to_be_bytes());
        packet
    }

    #[test]
    fn a_checksum_that_was_left_to_the_device_is_recognised_behind_tags_too() {
        for v6 in [false, true] {
            let packet = udp(b"some payload", v6);
            let start = if v6 { 54 } else { 34 };
            assert_eq!(recognise(&packet), Csum::Unknown);
            let mut frame = Frame::from_slice(&unfinished(&packet, v6));
            for tag in 0..3 {
                let expected = match tag {
                    0..=2 => Csum::Partial {
                        start: start + 4 * tag,
                        offset: 6,
                    },
                    _ => Csum::Unknown,
                };
                assert_eq!(recognise(frame.data()), expected);
                frame.push_vlan(wire::VlanTag { tpid: 0x8100, tci: 5 }).unwrap();
            }
            assert_eq!(recognise(frame.data()), Csum::Unknown, "three tags");
        }
    }

    #[test]
    fn a_fragment_has_no_checksum_to_be_filled_in() {
        let mut packet = unfinished(&udp(b"some payload", false), false);
        packet[20] = 0x20;
        assert_eq!(recognise(&packet), Csum::Unknown);
    }

    #[test]
    fn what_is_taken_for_pending_by_chance_gets_the_checksum_that_it_had() {
        // Payloads of two bytes: for one of them the complete checksum is the pseudo header's sum.
        let mut met = 0;
        for value in 0..=u16::MAX {
            let packet = udp(&value.to_be_bytes(), false);
            if recognise(&packet) != Csum::Unknown {
                met += 1;
                let mut frame = Frame::from_slice(&packet);
                frame.offload.csum = recognise(&packet);
                checksum::fill(&mut frame).unwrap();
                assert_eq!(frame.data(), packet);
            }
        }
        assert!(met > 0);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_filling_in_gives_what_the_sender_would_have(
            bytes in proptest::collection::vec(any::<u8>(), 0..120),
            v6: bool,
        ) {
            let mut frame = Frame::from_slice(&bytes);
            frame.offload.csum = recognise(&bytes);
            let _ = checksum::fill(&mut frame);

            let packet = udp(&bytes, v6);
            let mut frame = Frame::from_slice(&unfinished(&packet, v6));
            frame.offload.csum = recognise(frame.data());
            checksum::fill(&mut frame).unwrap();
            prop_assert_eq!(frame.data(), &packet[..]);
        }
    }
}
