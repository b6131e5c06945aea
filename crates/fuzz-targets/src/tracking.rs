//! Connection tracking: packets in any order, lines of FTP in any pieces, fragments.

use conntrack::fragment::{Reassembly, Received};
use conntrack::{Checksum, Conntrack, Cursor, Filter, Helper, Nanos, Nat, Packet, PolicyId, Range, Request, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// Connections at most.
const MAX: u32 = 40;

/// Each step has a byte that says what it is, a byte of length or time, and for a packet a byte of
/// the request and its bytes. Every packet has one of the states that exclude each other, the limit
/// holds, and no tuple of a zone belongs to two connections.
pub fn tracking(data: &[u8]) {
    let shared = Conntrack::new(5);
    shared.set_max(MAX);
    shared.set_zone_limit(3, Some(8));
    let mut tracker = shared.tracker();
    let mut now = Nanos::from_secs(1);
    let mut rest = data;
    while let [what, value, behind @ ..] = rest {
        rest = behind;
        match what % 8 {
            0..=4 => {
                let [wish, behind @ ..] = rest else { break };
                let (packet, others) = behind.split_at(usize::from(*value).min(behind.len()));
                rest = others;
                let mut bytes = packet.to_vec();
                let v6 = bytes.first().is_some_and(|first| first >> 4 == 6);
                let mut packet = Packet::new(&mut bytes, v6);
                packet.in_port = u32::from(what >> 6);
                packet.checksum = *[Checksum::Good, Checksum::Verify, Checksum::Partial, Checksum::Good]
                    .get(usize::from(what >> 3 & 3))
                    .unwrap_or(&Checksum::Good);
                let outcome = tracker.track(&request(*wish, v6), &mut packet, now);
                let kinds = [State::NEW, State::EST, State::INV];
                let ones = kinds.iter().filter(|kind| outcome.state.has(**kind)).count();
                let related = outcome.state.has(State::REL);
                assert!(ones == 1 || ones == 0 && related, "{outcome:?}");
                assert!(outcome.state.has(State::TRK));
                assert!(outcome.refused.is_none() || !outcome.translated);
                if let Some(id) = outcome.connection {
                    assert_eq!(tracker.connection(id, now).map(|c| c.zone), Some(outcome.zone));
                }
            }
            5 => {
                now += Duration::from_secs(u64::from(*value));
                while !tracker.sweep(100, now).finished {}
            }
            6 => {
                let zone = Some(u16::from(value & 3));
                tracker.flush(&Filter {
                    zone,
                    ..Filter::default()
                });
                assert!(shared.zones().iter().all(|(own, _)| Some(*own) != zone));
            }
            _ => {
                shared.set_check_sequence(value & 1 == 0);
                shared.set_pickup(value & 2 == 0);
            }
        }
        assert!(shared.len() <= MAX as usize && shared.zone_limit(3).count <= 8);
    }
    unique(&mut tracker, now);
    handed_over(&mut tracker, now);
}

/// Another tracker takes all connections over, and has the same.
fn handed_over(tracker: &mut conntrack::Tracker, now: Nanos) {
    let mut records = Vec::new();
    let number = tracker.hand_over(false, now, |record| {
        records.extend_from_slice(record);
        Ok::<(), ()>(())
    });
    let shared = Conntrack::new(6);
    let done = shared
        .tracker()
        .take_over(&records, false, Duration::ZERO, now, |_| PolicyId(0));
    assert_eq!((Ok(done.connections), done.refused), (number, 0));
    assert_eq!(shared.len(), done.connections);
}

/// Records of connections that are taken over: whatever they say, no tuple of a zone belongs to two
/// connections, and they can be handed over again.
pub fn records(data: &[u8]) {
    let shared = Conntrack::new(7);
    shared.set_max(MAX);
    let (mut tracker, now) = (shared.tracker(), Nanos::from_secs(1));
    let done = tracker.take_over(data, true, Duration::from_secs(1), now, PolicyId);
    assert!(done.connections <= MAX as usize && shared.len() == done.connections);
    unique(&mut tracker, now);
    handed_over(&mut tracker, now);
}

fn request(wish: u8, v6: bool) -> Request {
    let address = |last: u8| match v6 {
        false => [10, 0, 0, last].into(),
        true => [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
    };
    let range = Range {
        addresses: Some((address(2), address(4))),
        ports: (wish & 0x40 != 0).then_some((1000, 1003)),
        persistent: wish & 0x80 != 0,
        ..Range::default()
    };
    let commit = wish & 4 != 0;
    Request {
        zone: u16::from(wish & 3),
        commit,
        force: commit && wish & 0xc0 == 0xc0,
        mark: (wish & 0x80 != 0).then_some((u32::from(wish), 0xff)),
        nat: match wish >> 3 & 3 {
            0 => None,
            1 => Some(Nat::Existing),
            2 => Some(Nat::Source(range)),
            _ => Some(Nat::Destination(range)),
        },
        helper: match wish >> 5 & 3 {
            1 => Some(Helper::Ftp),
            2 => Some(Helper::Tftp),
            _ => None,
        },
        ..Request::default()
    }
}

/// No tuple of a zone belongs to two connections.
fn unique(tracker: &mut conntrack::Tracker, now: Nanos) {
    let (mut all, mut next) = (Vec::new(), Some(Cursor::default()));
    while let Some(from) = next {
        next = tracker.connections(from, 1000, now, &mut all);
    }
    let mut owners = BTreeMap::new();
    for connection in all {
        for tuple in [connection.original, connection.reply] {
            let owner = *owners.entry((connection.zone, tuple)).or_insert(connection.id);
            assert_eq!(owner, connection.id, "{tuple:?}");
        }
        let _ = connection.line(conntrack::Style::default()).to_string();
    }
}

/// A byte of length, then so many bytes of a segment: the ports are those of the same bytes in one
/// segment, wherever they are cut.
pub fn ftp(data: &[u8]) {
    let Some((first, mut rest)) = data.split_first() else {
        return;
    };
    let (mut segments, mut seq, mut whole) = (Vec::new(), 1000_u32, Vec::new());
    while let [len, behind @ ..] = rest {
        let (segment, others) = behind.split_at(usize::from(*len).min(behind.len()));
        segments.push((seq, segment));
        whole.extend_from_slice(segment);
        seq = seq.wrapping_add(segment.len() as u32);
        rest = others;
    }
    let from_server = first & 1 == 1;
    let found = conntrack::alg::read_ftp(&segments, from_server);
    let at_once = conntrack::alg::read_ftp(&[(1000, &whole)], from_server);
    assert_eq!(found, at_once);
    // With a segment missing, nothing is found that is not there.
    if segments.len() > 2 {
        segments.remove(1);
        let partly = conntrack::alg::read_ftp(&segments, from_server);
        assert!(partly.iter().all(|port| found.contains(port)));
    }
}

/// Each step has a byte of flags, a byte of length and a fragment. What becomes whole is split into
/// fragments from which the same packet is reassembled.
pub fn fragments(data: &[u8]) {
    let reassembly = Reassembly::default();
    reassembly.set_max(30);
    reassembly.set_min_size(false, 400);
    let mut now = Nanos::from_secs(1);
    let mut rest = data;
    while let [flags, len, behind @ ..] = rest {
        let (head, others) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = others;
        let v6 = head.first().is_some_and(|first| first >> 4 == 6);
        // Zeros follow, so that fragments reach the least size.
        let mut packet = head.to_vec();
        packet.resize(head.len() + usize::from(flags >> 4) * 400, 0);
        if flags & 8 != 0 {
            now += Duration::from_secs(9);
        }
        let received = reassembly.receive(&packet, v6, u16::from(flags & 1), u32::from(flags >> 1 & 1), now);
        assert!(reassembly.len() <= 30);
        if let Received::Whole(whole) = received {
            let parts = whole.split().expect("nothing changed");
            let again = Reassembly::default();
            assert!(again.set_min_size(false, 400) && again.set_min_size(true, 400));
            let received = parts.iter().map(|part| again.receive(part, v6, 0, 0, now)).last();
            // The least size of IPv6 is above that of these fragments.
            if let Some(Received::Whole(second)) = received {
                assert_eq!(second.packet, whole.packet);
            }
        }
    }
    reassembly.expire(now + Duration::from_secs(15), 100);
    assert!(reassembly.is_empty());
}
