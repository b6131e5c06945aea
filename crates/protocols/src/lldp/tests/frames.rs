use super::*;
use crate::lldp::wire::WireError;
use proptest::prelude::*;

#[test]
fn what_is_sent_is_what_is_read() {
    for pdu in [full(9), Lldpdu::new(Id::chassis(mac(1)), Id::port("p"), 0)] {
        let frame = pdu.emit(mac(1));
        assert!(frame.len() >= 60);
        assert_eq!(Lldpdu::parse(&frame), Ok(pdu));
    }
}

#[test]
fn a_frame_is_open_vswitchs_byte_by_byte() {
    let mut pdu = Lldpdu::new(Id::chassis(mac(9)), Id::port("p1"), 120);
    pdu.system_name = b"n1".to_vec();
    pdu.system_description = b"d1".to_vec();
    pdu.capabilities = Some(Capabilities::BRIDGE);
    pdu.element = Some(Element::virtual_switch(mac(9)));
    pdu.assignments = vec![assignment(200, 20)];
    let zeros = "00".repeat(32);
    let expected = format!(
        "0180c200000e02000000000188cc020704020000000009040305703106020078\
         0a026e310c0264310e0400040004\
         fe3200040d0b{zeros}3800000002000000000900000000fe2900040d0c{zeros}00140000c80000"
    );
    assert_eq!(testkit::to_hex(&pdu.emit(mac(1))), expected.replace(' ', ""));
}

#[test]
fn every_frame_cut_anywhere_is_refused() {
    let frame = full(9).emit(mac(9));
    for len in 0..frame.len() {
        assert!(Lldpdu::parse(&frame[..len]).is_err(), "{len} bytes");
    }
    let padded = [&frame[..], &[0xff; 30]].concat();
    assert_eq!(Lldpdu::parse(&padded), Ok(full(9)));
}

#[test]
fn every_wrong_length_is_refused() {
    let frame = full(9).emit(mac(9));
    let mut at = 14;
    loop {
        let head = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (kind, len) = (head >> 9, head & 0x1ff);
        for wrong in (0..=0x1ff).filter(|wrong| *wrong != len) {
            let mut broken = frame.clone();
            broken[at..at + 2].copy_from_slice(&(kind << 9 | wrong).to_be_bytes());
            // What follows is read from another place: the result may be another LLDPDU, but never
            // the same.
            assert_ne!(Lldpdu::parse(&broken), Ok(full(9)), "type {kind}, length {wrong}");
        }
        if kind == 0 {
            break;
        }
        at += 2 + usize::from(len);
    }
}

#[test]
fn mandatory_tlvs_come_first_in_their_order_and_once() {
    assert!(Lldpdu::parse(&raw(&[CHASSIS, PORT, TTL, END])).is_ok());
    for wrong in [
        &[PORT, CHASSIS, TTL, END][..],
        &[CHASSIS, TTL, PORT, END],
        &[CHASSIS, PORT, END],
        &[CHASSIS, PORT, (5, b"name"), TTL, END],
        &[CHASSIS, PORT, TTL, TTL, END],
        &[CHASSIS, PORT, TTL, CHASSIS, END],
        &[END],
    ] {
        assert_eq!(Lldpdu::parse(&raw(wrong)), Err(WireError::Mandatory), "{wrong:?}");
    }
    assert_eq!(Lldpdu::parse(&raw(&[CHASSIS, PORT, TTL])), Err(WireError::Runt));
}

#[test]
fn tlvs_whose_contents_do_not_fit_are_refused() {
    let long = [b'x'; 256];
    let digest = [0; 32];
    let element = [&[0, 4, 0x0d, 11], &digest[..], &[0; 13]].concat();
    let assignments = [&[0, 4, 0x0d, 12], &digest[..], &[0; 6]].concat();
    for (wrong, why) in [
        ((0, &[0][..]), WireError::Length),
        ((4, &long), WireError::Length),
        ((7, &[0, 4, 0]), WireError::Length),
        ((8, &[]), WireError::Length),
        ((8, &[5, 1, 10, 0, 0, 9, 2, 0, 0, 0, 3]), WireError::Length),
        ((8, &[5, 1, 10, 0, 0, 9, 2, 0, 0, 0, 3, 1]), WireError::Length),
        ((8, &[1, 1, 2, 0, 0, 0, 3, 0]), WireError::Length),
        ((8, &[33, 1, 2, 0, 0, 0, 3, 0]), WireError::Length),
        ((127, &[0, 4, 0x0d]), WireError::Length),
        ((127, &element), WireError::Length),
        ((127, &assignments), WireError::Length),
    ] {
        assert_eq!(
            Lldpdu::parse(&raw(&[CHASSIS, PORT, TTL, wrong, END])),
            Err(why),
            "{wrong:?}"
        );
    }
    for wrong in [&[4][..], &[0, 1], &[8, 1], &[]] {
        assert_eq!(Lldpdu::parse(&raw(&[(1, wrong), PORT, TTL, END])), Err(WireError::Id));
        assert_eq!(
            Lldpdu::parse(&raw(&[CHASSIS, (2, wrong), TTL, END])),
            Err(WireError::Id)
        );
    }
    assert_eq!(
        Lldpdu::parse(&raw(&[CHASSIS, PORT, (3, &[9]), END])),
        Err(WireError::Length)
    );
}

#[test]
fn what_is_unknown_is_skipped_and_counted() {
    let frame = raw(&[
        CHASSIS,
        PORT,
        TTL,
        (99, b"x"),
        (127, &[0, 0x12, 0x0f, 1, 9]),
        (127, &[0, 4, 0x0d, 99]),
        END,
    ]);
    assert_eq!(Lldpdu::parse(&frame).unwrap().unrecognized, 3);
}

#[test]
fn frames_to_other_addresses_or_of_other_types_are_none() {
    let frame = full(9).emit(mac(9));
    for last in [0x00, 0x03, 0x0e] {
        let mut other = frame.clone();
        other[5] = last;
        assert!(Lldpdu::parse(&other).is_ok());
        other[5] = last + 1;
        assert_eq!(Lldpdu::parse(&other), Err(WireError::NotLldp));
    }
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    assert_eq!(Lldpdu::parse(&tagged), Ok(full(9)));
    let mut other = frame;
    other[13] = 0xcd;
    assert_eq!(Lldpdu::parse(&other), Err(WireError::NotLldp));
}

#[test]
fn identifiers_and_texts_are_readable_whatever_they_hold() {
    let pdu = |chassis: &[u8], port: &[u8]| Lldpdu::parse(&raw(&[(1, chassis), (2, port), TTL, END])).unwrap();
    let read = pdu(&[4, 2, 0, 0, 0, 0, 9], b"\x05eth9");
    assert_eq!(read.chassis_text(), ("mac", "02:00:00:00:00:09".to_owned()));
    assert_eq!(read.port_text(), ("ifname", "eth9".to_owned()));
    let read = pdu(&[5, 1, 10, 0, 0, 9], &[3, 2, 0, 0, 0, 0, 7]);
    assert_eq!(read.chassis_text(), ("network", "10.0.0.9".to_owned()));
    assert_eq!(read.port_text(), ("mac", "02:00:00:00:00:07".to_owned()));
    let read = pdu(b"\x07a\x1b[2Jb\n", b"\x07\xff\xfe");
    assert_eq!(read.chassis_text(), ("local", "a\u{fffd}[2Jb\u{fffd}".to_owned()));
    assert_eq!(read.port_text(), ("local", "\u{fffd}\u{fffd}".to_owned()));
}

#[test]
fn a_system_identifier_is_open_vswitchs() {
    let mut element = Element::virtual_switch(mac(9));
    assert!(element.is_named());
    assert_eq!(element.system_id(), "02:00:00:00:00:09:00:00:00:00:00:00");
    (element.connection, element.rest) = (0x2301, [0, 1]);
    assert_eq!(element.system_id(), "02:00:00:00:00:09:01:00:01:03:00:01");
    assert!(!Element::virtual_switch(MacAddr::ZERO).is_named());
}

proptest! {
    #[test]
    fn what_can_be_read_can_be_sent_and_read_again(body in proptest::collection::vec(any::<u8>(), 0..600), cut in 0..200_usize) {
        let head = raw(&[CHASSIS, PORT, TTL]);
        let _ = Lldpdu::parse(&[&head[..head.len() - cut.min(head.len())], &body[..]].concat());
        if let Ok(mut read) = Lldpdu::parse(&[&head[..], &body[..]].concat()) {
            let again = Lldpdu::parse(&read.emit(mac(1))).unwrap();
            read.unrecognized = 0;
            prop_assert_eq!(again, read);
        }
    }
}
