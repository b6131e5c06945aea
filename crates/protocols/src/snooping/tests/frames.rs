use super::*;
use crate::snooping::wire::{Malformed, Message, parse};
use proptest::prelude::*;

/// A frame of each kind.
fn all() -> Vec<Vec<u8>> {
    let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
    let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    vec![
        igmp(0x11, GROUP),
        igmp(0x12, GROUP),
        igmp(0x16, GROUP),
        igmp(0x17, GROUP),
        igmp3(1, GROUP, &[[10, 0, 0, 1], [10, 0, 0, 2]]),
        mld(130, group),
        mld(131, group),
        mld(132, group),
        mld2(4, group, &[source]),
    ]
}

#[test]
fn every_frame_cut_anywhere_is_refused() {
    for frame in all() {
        assert!(parse(&frame).is_ok(), "{frame:02x?}");
        for len in 0..frame.len() {
            assert!(parse(&frame[..len]).is_err(), "{len} of {frame:02x?}");
        }
        // Ethernet pads short frames.
        let padded = [&frame[..], &[0; 30]].concat();
        assert_eq!(parse(&padded), parse(&frame));
    }
}

#[test]
fn every_changed_byte_of_a_message_is_noticed() {
    for frame in all() {
        let start = if frame[12] == 0x08 { 14 + 24 } else { 14 + 48 };
        for at in start..frame.len() {
            for bit in 0..8 {
                let mut wrong = frame.clone();
                wrong[at] ^= 1 << bit;
                assert!(parse(&wrong).is_err(), "byte {at}");
            }
        }
    }
}

#[test]
fn every_wrong_length_is_refused() {
    // The number of records and of sources, with right checksums.
    for (kind, sources, records) in [(1, 2, 1), (1, 0xffff, 1), (1, 1, 2), (1, 1, 0xffff)] {
        let mut body = vec![0x22, 0, 0, 0, 0, 0];
        body.extend(u16::to_be_bytes(records));
        body.extend([kind, 0]);
        body.extend(u16::to_be_bytes(sources));
        body.extend(GROUP.octets());
        body.extend([10, 0, 0, 1]);
        let frame = ipv4(HOST, Vid::NONE, Ipv4Addr::LOCALHOST, GROUP, &body);
        assert_eq!(parse(&frame), Err(Malformed::Length));
        body[9] = 200;
        let frame = ipv4(HOST, Vid::NONE, Ipv4Addr::LOCALHOST, GROUP, &body);
        assert_eq!(parse(&frame), Err(Malformed::Length));
    }
    for len in [9, 10, 11] {
        let mut body = vec![0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        body.truncate(len);
        let frame = ipv4(HOST, Vid::NONE, Ipv4Addr::LOCALHOST, GROUP, &body);
        assert_eq!(parse(&frame), Err(Malformed::Length));
    }
}

#[test]
fn mld_needs_its_hop_limit_its_option_and_its_source() {
    let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
    let frame = mld(131, group);
    let with = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        parse(&frame)
    };
    assert_eq!(with(14 + 7, 2), Err(Malformed::HopLimit));
    assert_eq!(with(14 + 42, 1), Err(Malformed::RouterAlert));
    let body = &frame[14 + 48..];
    let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let zero = |body: &[u8]| {
        let mut body = body.to_vec();
        body[2..4].fill(0);
        body
    };
    let sent = |src, kind| {
        let mut body = zero(body);
        body[0] = kind;
        parse(&ipv6(HOST, Vid::NONE, src, group, &body))
    };
    assert_eq!(sent(global, 131), Err(Malformed::Source));
    assert!(sent(Ipv6Addr::UNSPECIFIED, 131).is_ok());
    assert_eq!(sent(Ipv6Addr::UNSPECIFIED, 130), Err(Malformed::Source));
}

#[test]
fn only_multicast_groups_count() {
    assert_eq!(parse(&igmp(0x16, Ipv4Addr::new(10, 0, 0, 1))), Err(Malformed::Group));
    assert_eq!(parse(&igmp3(4, Ipv4Addr::new(10, 0, 0, 1), &[])), Err(Malformed::Group));
    // Records of unknown types are skipped.
    let Ok(Message::Report(report)) = parse(&igmp3(9, GROUP, &[])) else {
        panic!("a report")
    };
    assert!(report.records.is_empty());
}

proptest! {
    #[test]
    fn nothing_makes_the_machine_panic(which in 0..9_usize, edits in prop::collection::vec((0..90_usize, any::<u8>()), 0..4)) {
        let mut frame = all().swap_remove(which);
        for (at, byte) in edits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        let mut machine = machine();
        machine.receive(1, Vid::NONE, &frame, Nanos::ZERO);
        machine.tick(Nanos::from_secs(1000));
        prop_assert!(machine.groups(Nanos::ZERO).is_empty());
    }
}
