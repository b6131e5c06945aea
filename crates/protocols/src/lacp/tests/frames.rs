use super::lab::{config, mac};
use crate::lacp::wire::{Info, Marker, SlowFrame, State, WireError};
use crate::lacp::{Lacp, timers};
use nanos::Nanos;
use proptest::prelude::*;

/// An LACPDU as the standard's figure 6-7 lays it out.
fn lacpdu() -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 2, 2, 0, 0, 0, 0, 9, 0x88, 0x09];
    frame.extend([
        1, 1, 1, 20, 0xff, 0xfe, 2, 0, 0, 0, 0, 9, 0, 5, 0, 128, 0, 7, 0x3d, 0, 0, 0,
    ]);
    frame.extend([2, 20, 0, 1, 2, 0, 0, 0, 0, 8, 0, 6, 0, 127, 0, 3, 0x82, 0, 0, 0]);
    frame.extend([3, 16]);
    frame.resize(124, 0);
    frame
}

#[test]
fn an_lacpdu_is_laid_out_as_the_standard_says() {
    let actor = Info {
        system_priority: 65534,
        system: mac(9),
        key: 5,
        port_priority: 128,
        port: 7,
        state: State(0x3d),
    };
    let partner = Info {
        system_priority: 1,
        system: mac(8),
        key: 6,
        port_priority: 127,
        port: 3,
        state: State(0x82),
    };
    let frame = SlowFrame::Lacp { actor, partner };
    assert_eq!(SlowFrame::parse(&lacpdu()), Ok(frame));
    assert_eq!(frame.emit(mac(9)), lacpdu());
    assert_eq!(
        actor.state.to_string(),
        "activity aggregation synchronized collecting distributing"
    );
}

#[test]
fn what_is_reserved_and_a_later_version_do_not_matter() {
    let mut frame = lacpdu();
    frame[15] = 2;
    frame[33..36].fill(0xff);
    frame[56..].fill(0xff);
    assert_eq!(SlowFrame::parse(&frame), SlowFrame::parse(&lacpdu()));
}

#[test]
fn a_frame_that_is_cut_or_of_another_type_is_refused() {
    for len in 0..56 {
        let refused = SlowFrame::parse(&lacpdu()[..len]);
        let expected = if len <= 14 { WireError::NotSlow } else { WireError::Runt };
        assert_eq!(refused, Err(expected), "{len}");
    }
    for (at, error) in [
        (0, WireError::NotSlow),
        (5, WireError::NotSlow),
        (12, WireError::NotSlow),
        (14, WireError::NotSlow),
        (16, WireError::Tlv),
        (17, WireError::Tlv),
        (36, WireError::Tlv),
        (37, WireError::Tlv),
    ] {
        let mut frame = lacpdu();
        frame[at] ^= 0x10;
        assert_eq!(SlowFrame::parse(&frame), Err(error), "{at}");
    }
}

#[test]
fn a_marker_is_answered_with_what_it_names_and_not_without_end() {
    let mut lacp = Lacp::new(&config(1, false, 2), Nanos::ZERO);
    let marker = Marker {
        port: 77,
        system: mac(5),
        transaction: 0x0102_0304,
    };
    let request = SlowFrame::Marker(marker).emit(mac(5));
    for _ in 0..100 {
        lacp.receive(1, &request, Nanos::ZERO);
    }
    let answers: Vec<_> = std::iter::from_fn(|| lacp.take_frame()).collect();
    assert_eq!(answers.len(), timers::BURST);
    let (member, frame) = &answers[0];
    assert_eq!(
        (*member, SlowFrame::parse(frame)),
        (1, Ok(SlowFrame::MarkerResponse(marker)))
    );
    assert_eq!(lacp.counters(1).map(|counters| counters.rx_markers), Some(100));
    lacp.receive(1, &request, Nanos::ZERO + timers::FAST);
    assert!(lacp.take_frame().is_some());
}

proptest! {
    #[test]
    fn what_is_sent_is_read_again(bytes in prop::array::uniform28(any::<u8>())) {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let info = |at: usize| Info {
            system_priority: u16_at(at),
            system: mac(bytes[at + 2]),
            key: u16_at(at + 3),
            port_priority: u16_at(at + 5),
            port: u16_at(at + 7),
            state: State(bytes[at + 9]),
        };
        let frame = SlowFrame::Lacp { actor: info(0), partner: info(14) };
        prop_assert_eq!(SlowFrame::parse(&frame.emit(mac(1))), Ok(frame));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..140), cut in 0usize..124) {
        let _ = SlowFrame::parse(&bytes);
        let mut frame = lacpdu();
        frame.truncate(cut);
        frame.extend(bytes);
        let _ = SlowFrame::parse(&frame);
    }
}
