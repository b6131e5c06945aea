//! The action `ct`.

use super::*;
use conntrack::{Nat, Range, Request, State};
use dp::Track;

fn udp(from: u8, to: u8, payload: usize) -> Frame {
    let address = |last| Ipv4Addr::new(10, 0, 0, last);
    let packet = Packet::new(testkit::mac(from.into()), testkit::mac(to.into()))
        .ipv4(address(from), address(to))
        .udp(1000 + u16::from(from), 1000 + u16::from(to), &vec![7; payload]);
    Frame::from_slice(&packet.bytes())
}

fn ct(request: Request) -> Action {
    Action::Ct(Arc::new(Track {
        request,
        fragments: false,
    }))
}

fn commit() -> Request {
    Request {
        zone: 7,
        commit: true,
        mark: Some((5, 0xff)),
        ..Request::default()
    }
}

impl Fixture {
    /// Runs actions that recirculate; the keys of what was recirculated.
    fn recirculated(&mut self, frame: Frame, actions: &[Action]) -> Vec<Key> {
        self.run(frame, actions);
        let frames = std::mem::take(&mut self.actor.recirculated);
        let keys = frames
            .iter()
            .map(|frame| flow::extract(frame.data(), &frame.meta).unwrap());
        keys.collect()
    }
}

#[test]
fn a_recirculated_packet_has_what_the_tracker_says_of_it() {
    let mut fixture = Fixture::new();
    let state = |key: &Key| State::from_bits(key.get(Field::CtState) as u32);
    let actions = [ct(commit()), Action::Recirc(3)];
    let keys = fixture.recirculated(udp(1, 2, 10), &actions);
    let [key] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(state(key), State::TRK | State::NEW);
    assert_eq!((key.get(Field::CtZone), key.get(Field::CtMark)), (7, 5));
    assert_eq!(key.get(Field::CtIpv4Src), 0x0a00_0001);
    assert_eq!((key.get(Field::CtTpSrc), key.get(Field::CtProto)), (1001, 17));
    let keys = fixture.recirculated(udp(2, 1, 10), &actions);
    assert_eq!(state(&keys[0]), State::TRK | State::EST | State::RPL);
    assert_eq!(
        keys[0].get(Field::CtIpv4Src),
        0x0a00_0001,
        "that of the other direction"
    );
    // In another zone it is another connection, and without a commit none.
    let other = Request {
        zone: 8,
        ..Request::default()
    };
    let keys = fixture.recirculated(udp(2, 1, 10), &[ct(other), Action::Recirc(3)]);
    assert_eq!(state(&keys[0]), State::TRK | State::NEW);
    // What is no IP packet is invalid; nothing is left of a packet's connection behind `ct_clear`.
    let arp = Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x0806, &[0; 28]);
    let keys = fixture.recirculated(Frame::from_slice(&arp.bytes()), &actions);
    assert_eq!(state(&keys[0]), State::TRK | State::INV);
    let keys = fixture.recirculated(udp(1, 2, 10), &[ct(commit()), Action::CtClear, Action::Recirc(3)]);
    assert_eq!(state(&keys[0]), State::NONE);
}

#[test]
fn translated_packets_leave_with_right_checksums_and_their_answers_come_back() {
    let mut fixture = Fixture::new();
    let address = Some((Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 1).into()));
    let request = Request {
        nat: Some(Nat::Source(Range {
            addresses: address,
            ..Range::default()
        })),
        ..commit()
    };
    let out = Action::Output(PortNo(2));
    let [_, sent, _] = fixture.run(udp(1, 2, 10), &[ct(request), out.clone()]);
    let wanted = Packet::new(testkit::mac(1), testkit::mac(2))
        .ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 0, 0, 2))
        .udp(1001, 1002, &[7; 10]);
    assert_eq!(sent, [wanted.bytes()]);
    let answer = Packet::new(testkit::mac(2), testkit::mac(1))
        .ipv4(Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(192, 0, 2, 1))
        .udp(1002, 1001, &[7; 10]);
    let existing = Request {
        zone: 7,
        nat: Some(Nat::Existing),
        ..Request::default()
    };
    let [_, sent, _] = fixture.run(Frame::from_slice(&answer.bytes()), &[ct(existing), out]);
    let wanted = udp(2, 1, 10);
    assert_eq!(sent, [wanted.data().to_vec()]);
}

#[test]
fn fragments_wait_for_each_other_and_leave_as_they_came() {
    let mut fixture = Fixture::new();
    let whole = udp(1, 2, 2000);
    let fragment = |from: usize, to: usize, more: bool| {
        let mut bytes = whole.data()[..34].to_vec();
        bytes.extend(&whole.data()[34 + from..34 + to]);
        let total = (20 + to - from) as u16;
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        let offset = (from / 8) as u16 | if more { 0x2000 } else { 0 };
        bytes[20..22].copy_from_slice(&offset.to_be_bytes());
        bytes[24..26].fill(0);
        let sum = testkit::checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let end = whole.len() - 34;
    let (first, second) = (fragment(0, 1400, true), fragment(1400, end, false));
    let track = Action::Ct(Arc::new(Track {
        request: commit(),
        fragments: true,
    }));
    let actions = [track, Action::Output(PortNo(2))];
    let none: [Vec<Vec<u8>>; 3] = Default::default();
    assert_eq!(fixture.run(Frame::from_slice(&second), &actions), none);
    let [_, sent, _] = fixture.run(Frame::from_slice(&first), &actions);
    assert_eq!(sent, [first.clone(), second]);
    // One that overlaps ends its datagram.
    let overlapping = fragment(1392, end, false);
    assert_eq!(fixture.run(Frame::from_slice(&first), &actions), none);
    assert_eq!(fixture.run(Frame::from_slice(&overlapping), &actions), none);
    assert_eq!(fixture.dropped(DropCause::Fragment), 1);
}
