//! Frames around control packets.

use super::lab::{frame, packet};
use crate::bfd::datagram::{Refused, parse};
use crate::bfd::wire::{Malformed, State};
use proptest::prelude::*;
use wire::checksum::checksum;

/// Written by hand from RFC 791, RFC 768 and the figure of RFC 5880 §4.1; without checksums.
const BY_HAND: [u8; 66] = [
    0x00, 0x23, 0x20, 0x00, 0x00, 0x01, 2, 0, 0, 0, 0, 20, 0x08, 0x00, // Ethernet
    0x45, 0xc0, 0, 52, 0, 0, 0, 0, 255, 17, 0, 0, 169, 254, 1, 1, 169, 254, 1, 0, // IPv4
    0xc3, 0x50, 0x0e, 0xc8, 0, 32, 0, 0, // UDP
    0x20, 0xc0, 3, 24, 0, 0, 0, 20, 0, 0, 0, 10, 0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0, 0, 0, 0, 0,
];

/// Puts the IP checksum right after a change, and leaves out UDP's.
fn with(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = frame(&packet(State::Up));
    frame[40..42].fill(0);
    change(&mut frame);
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_frame_is_laid_out_as_the_standards_say() {
    let mut sent = frame(&packet(State::Up));
    assert_eq!(parse(&sent), Ok(packet(State::Up)));
    sent[24..26].fill(0);
    sent[40..42].fill(0);
    assert_eq!(sent, BY_HAND);
}

#[test]
fn tags_options_and_padding_do_not_matter() {
    let mut tagged = frame(&packet(State::Up));
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert_eq!(parse(&tagged), Ok(packet(State::Up)));
    let padded = [frame(&packet(State::Up)), vec![0xff; 20]].concat();
    assert_eq!(parse(&padded), Ok(packet(State::Up)));
    assert_eq!(parse(&with(|_| {})), Ok(packet(State::Up)));
}

#[test]
fn a_frame_cut_at_any_byte_is_refused() {
    let whole = frame(&packet(State::Up));
    for len in 0..whole.len() {
        assert!(parse(&whole[..len]).is_err(), "{len}");
    }
}

#[test]
fn wrong_lengths_are_refused() {
    for len in (0..=u16::MAX).filter(|len| *len != 52) {
        let frame = with(|frame| frame[16..18].copy_from_slice(&len.to_be_bytes()));
        assert_eq!(parse(&frame), Err(Refused::NotBfd), "IP length {len}");
    }
    for len in (0..=u16::MAX).filter(|len| *len != 32) {
        let frame = with(|frame| frame[38..40].copy_from_slice(&len.to_be_bytes()));
        let refused = match len {
            8..32 => Refused::Packet(Malformed::Length),
            _ => Refused::NotBfd,
        };
        assert_eq!(parse(&frame), Err(refused), "UDP length {len}");
    }
    for words in (0..16).filter(|words| *words != 5) {
        assert!(parse(&with(|frame| frame[14] = 0x40 | words)).is_err(), "{words}");
    }
    for len in (0..=255).filter(|len| *len != 24) {
        let frame = with(|frame| frame[45] = len);
        assert_eq!(parse(&frame), Err(Refused::Packet(Malformed::Length)), "length {len}");
    }
}

#[test]
fn a_frame_that_may_come_from_behind_a_router_is_refused() {
    for hops in 0..255 {
        assert_eq!(parse(&with(|frame| frame[22] = hops)), Err(Refused::TimeToLive));
    }
}

#[test]
fn other_protocols_ports_and_fragments_are_refused() {
    for (at, value) in [(12, 0x86), (14, 0x65), (20, 0x20), (21, 1), (23, 6), (37, 0xc9)] {
        assert_eq!(parse(&with(|frame| frame[at] = value)), Err(Refused::NotBfd), "{at}");
    }
}

#[test]
fn one_flipped_bit_anywhere_behind_the_ethernet_header_is_noticed() {
    let whole = frame(&packet(State::Up));
    for at in 14..whole.len() {
        for bit in 0..8 {
            let mut frame = whole.clone();
            frame[at] ^= 1 << bit;
            // The reserved bit of the fragment word is part of the checksum, too.
            assert!(parse(&frame).is_err(), "byte {at}, bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..90), cut in 0usize..66) {
        let _ = parse(&bytes);
        let mut frame = frame(&packet(State::Up));
        frame.truncate(cut);
        frame.extend(bytes);
        let _ = parse(&frame);
    }
}
