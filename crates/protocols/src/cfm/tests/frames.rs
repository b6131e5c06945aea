//! Continuity check messages beside IEEE 802.1Q-2018 §21.6.

use super::lab::config;
use crate::cfm::MaintenancePoint;
use crate::cfm::wire::{EXTENDED_GROUP, GROUP, Malformed, Message};
use nanos::Nanos;
use proptest::prelude::*;
use wire::{MacAddr, Vid, VlanTag};

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

fn message() -> Message {
    Message {
        remote_defect: true,
        interval: 4,
        sequence: 0x0102_0304,
        point: 0x0506,
        of_association: true,
        interval_ms: 0x0708,
        extended_point: 0x1112_1314_1516_1718,
        down: true,
    }
}

/// Written by hand from the figure of §21.6.1 and from Open vSwitch's extensions.
fn by_hand() -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0x30, 2, 0, 0, 0, 0, 7, 0x89, 0x02];
    frame.extend([0, 1, 0x84, 70, 1, 2, 3, 4, 5, 6]);
    frame.extend([4, 3, b'o', b'v', b's', 2, 3, b'o', b'v', b's']);
    frame.extend([0; 38]);
    frame.extend([7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 1]);
    frame.extend([0; 6]);
    frame
}

#[test]
fn a_message_is_laid_out_as_the_standard_says() {
    assert_eq!(message().emit(SRC, GROUP, None), by_hand());
    assert_eq!(Message::parse(&by_hand()), Ok(message()));
    let tag = VlanTag::ctag(Vid::new(5).unwrap());
    assert_eq!(
        Message::parse(&message().emit(SRC, EXTENDED_GROUP, Some(tag))),
        Ok(message())
    );
}

#[test]
fn a_frame_cut_at_any_byte_is_refused_but_for_the_end_tlv() {
    let whole = by_hand();
    for len in 0..whole.len() - 1 {
        let refused = Message::parse(&whole[..len]);
        let expected = if len < 14 { Malformed::NotCfm } else { Malformed::Length };
        assert_eq!(refused, Err(expected), "{len}");
    }
    assert_eq!(Message::parse(&whole[..whole.len() - 1]), Ok(message()));
}

#[test]
fn other_types_opcodes_and_lengths_are_refused() {
    let with = |at: usize, value: u8| {
        let mut frame = by_hand();
        frame[at] = value;
        Message::parse(&frame)
    };
    assert_eq!(with(13, 3), Err(Malformed::NotCfm));
    for opcode in (0..=255).filter(|opcode| *opcode != 1) {
        assert_eq!(with(15, opcode), Err(Malformed::Opcode));
    }
    for offset in (0..=255).filter(|offset| *offset != 70) {
        assert_eq!(with(17, offset), Err(Malformed::Tlv));
    }
    for at in 24..72 {
        let other = with(at, 0x55).unwrap();
        assert!(!other.of_association, "{at}");
    }
}

#[test]
fn malformed_frames_change_nothing_but_a_counter() {
    let mut point = MaintenancePoint::new(&config(1, 1000, false), 1, Nanos::ZERO);
    let before = point.show(Nanos::ZERO);
    for len in 0..88 {
        point.receive(&by_hand()[..len]);
    }
    assert_eq!(point.show(Nanos::ZERO), before);
    assert_eq!((point.counters().refused, point.counters().rx), (88, 0));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 0usize..89) {
        let _ = Message::parse(&bytes);
        let mut frame = by_hand();
        frame.truncate(cut);
        frame.extend(bytes);
        let _ = Message::parse(&frame);
    }
}
