//! Fragments in every order, with overlaps, copies, floods; and back to the same fragments.

use crate::packets::*;
use conntrack::fragment::{Drop, Reassembly, Received, Whole};
use conntrack::{Nanos, Nat, Packet, Range, Request, State};
use proptest::prelude::*;
use std::net::IpAddr;
use std::time::Duration;
use testkit::{Rng, checksum};

const NOW: Nanos = Nanos::from_secs(100);

/// The fragments of a packet with these sizes of data, multiples of eight but for the last.
fn split(packet: &[u8], sizes: &[usize], id: u32) -> Vec<Vec<u8>> {
    let v6 = packet[0] >> 4 == 6;
    let head = if v6 { 40 } else { 20 };
    let data = &packet[head..];
    let mut offset = 0;
    let mut fragments = Vec::new();
    while offset < data.len() {
        let size = sizes.get(fragments.len()).copied().unwrap_or(usize::MAX);
        let end = offset.saturating_add(size).min(data.len());
        let more = end < data.len();
        fragments.push(fragment(&packet[..head], offset, more, id, &data[offset..end]));
        offset = end;
    }
    fragments
}

fn fragment(header: &[u8], offset: usize, more: bool, id: u32, data: &[u8]) -> Vec<u8> {
    let mut packet = header.to_vec();
    if header[0] >> 4 == 6 {
        packet[4..6].copy_from_slice(&(8 + data.len() as u16).to_be_bytes());
        let next = std::mem::replace(&mut packet[6], 44);
        packet.extend([next, 0]);
        packet.extend((offset as u16 | u16::from(more)).to_be_bytes());
        packet.extend(id.to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&((offset / 8) as u16 | u16::from(more) << 13).to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(data);
    packet
}

fn big(v6: bool, from: u16, len: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..len).map(|n| (n * 7 / 4) as u8).collect();
    udp((host(v6, from), 5), (host(v6, 2), 53), &data)
}

fn give(reassembly: &Reassembly, fragment: &[u8], port: u32, now: Nanos) -> Received {
    reassembly.receive(fragment, fragment[0] >> 4 == 6, 0, port, now)
}

fn whole(received: Received) -> Whole {
    match received {
        Received::Whole(whole) => whole,
        other => panic!("{other:?}"),
    }
}

/// The packet as it is when it is whole: its identification stays in an IPv4 header.
fn data(packet: &[u8]) -> &[u8] {
    &packet[if packet[0] >> 4 == 6 { 40 } else { 20 }..]
}

proptest! {
    #[test]
    fn fragments_in_any_order_make_the_packet_and_come_back_as_they_were(
        v6: bool, len in 3000usize..9000, sizes in proptest::collection::vec(160usize..400, 0..20), seed: u64,
    ) {
        let packet = big(v6, 1, len);
        let sizes: Vec<usize> = sizes.into_iter().map(|size| size * 8).collect();
        let fragments = split(&packet, &sizes, 77);
        prop_assume!(fragments.len() > 1);
        let mut order: Vec<usize> = (0..fragments.len()).collect();
        let mut rng = Rng::new(seed);
        for n in 0..order.len() {
            let other = n + rng.below(order.len() - n);
            order.swap(n, other);
        }
        let reassembly = Reassembly::default();
        let (last, first) = order.split_last().unwrap();
        for n in first {
            prop_assert_eq!(give(&reassembly, &fragments[*n], 1, NOW), Received::Held);
            prop_assert_eq!(give(&reassembly, &fragments[*n], 1, NOW), Received::Dropped(Drop::Duplicate));
        }
        let whole = whole(give(&reassembly, &fragments[*last], 1, NOW));
        prop_assert_eq!(data(&whole.packet), data(&packet));
        prop_assert!(is_sound(&whole.packet));
        prop_assert_eq!(whole.split(), Some(fragments));
        prop_assert!(reassembly.is_empty());
    }

    /// Random pieces of two datagrams: what comes out was sent, byte for byte, and with an overlap
    /// nothing comes out.
    #[test]
    fn overlaps_never_give_a_packet(pieces in proptest::collection::vec((0usize..12, 1usize..6, any::<bool>()), 1..20), v6: bool) {
        const UNIT: usize = 1240;
        let reassembly = Reassembly::default();
        let packet = big(v6, 1, 12 * UNIT - 8);
        let head = if v6 { 40 } else { 20 };
        let mut seen = [0u32; 12];
        let mut clean = true;
        for (start, len, honest) in pieces {
            let end = (start + len).min(12);
            let mut bytes = packet[head + start * UNIT..head + end * UNIT].to_vec();
            if !honest {
                bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
            }
            let piece = fragment(&packet[..head], start * UNIT, end < 12, 5, &bytes);
            let received = give(&reassembly, &piece, 1, NOW);
            match &received {
                Received::Dropped(Drop::Duplicate) => continue,
                Received::Dropped(Drop::Overlap) => clean = false,
                Received::Held | Received::Whole(_) => prop_assert!(clean && seen[start..end].iter().all(|n| *n == 0)),
                other => prop_assert!(false, "{:?}", other),
            }
            seen[start..end].iter_mut().for_each(|n| *n += 1);
            if let Received::Whole(whole) = received {
                prop_assert!(seen.iter().all(|n| *n == 1));
                prop_assert_eq!(whole.packet.len(), packet.len());
                seen = [0; 12];
            }
        }
    }
}

#[test]
fn a_translated_packet_leaves_as_fragments_of_the_same_sizes() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let reassembly = Reassembly::default();
        let outside: IpAddr = host(v6, 200);
        let request = Request {
            nat: Some(Nat::Source(Range {
                addresses: Some((outside, outside)),
                ..Range::default()
            })),
            ..commit(0)
        };
        let fragments = split(&big(v6, 1, 4000), &[1480, 1480], 9);
        assert_eq!(bench.state(&request, fragments[0].clone()), INVALID, "a fragment alone");
        give(&reassembly, &fragments[1], 1, NOW);
        give(&reassembly, &fragments[0], 1, NOW);
        let mut whole = whole(give(&reassembly, &fragments[2], 1, NOW));
        let outcome = bench
            .tracker
            .track(&request, &mut Packet::new(&mut whole.packet, v6), NOW);
        assert_eq!(outcome.state, NEW | State::SNAT);
        let expected = split(&whole.packet, &[1480, 1480], 9);
        let mut sent = whole.split().unwrap();
        assert_eq!(
            sent.iter().map(Vec::len).collect::<Vec<_>>(),
            fragments.iter().map(Vec::len).collect::<Vec<_>>()
        );
        assert_eq!(sent, expected);
        // Whoever receives them gets the translated packet.
        let other = Reassembly::default();
        let last = sent.pop().unwrap();
        sent.iter().for_each(|fragment| drop(give(&other, fragment, 1, NOW)));
        let Received::Whole(received) = give(&other, &last, 1, NOW) else {
            panic!()
        };
        assert!(is_sound(&received.packet));
        assert_eq!(ends(&received.packet).0.0, outside);
    }
}

#[test]
fn extension_headers_before_the_fragment_header_stay() {
    let packet = big(true, 1, 3000);
    let mut fragments = split(&packet, &[1440, 1440], 3);
    for fragment in &mut fragments {
        // Destination options of 8 bytes before the fragment header.
        fragment.splice(40..40, [44, 0, 1, 4, 0, 0, 0, 0]);
        fragment[6] = 60;
        let len = fragment.len() as u16 - 40;
        fragment[4..6].copy_from_slice(&len.to_be_bytes());
    }
    let reassembly = Reassembly::default();
    give(&reassembly, &fragments[0], 1, NOW);
    give(&reassembly, &fragments[1], 1, NOW);
    let whole = whole(give(&reassembly, &fragments[2], 1, NOW));
    assert_eq!((whole.packet[6], whole.packet[40]), (60, 17));
    assert_eq!(&whole.packet[48..], &packet[40..]);
    assert_eq!(whole.split(), Some(fragments));
}

#[test]
fn hostile_fragments_are_dropped_by_cause() {
    let reassembly = Reassembly::default();
    let packet = big(false, 1, 4000);
    let header = &packet[..20];
    let dropped = |fragment: &[u8]| match give(&reassembly, fragment, 1, NOW) {
        Received::Dropped(why) => Some(why),
        _ => None,
    };
    assert_eq!(dropped(&packet), Some(Drop::Malformed), "no fragment");
    assert_eq!(
        dropped(&fragment(header, 0, true, 1, &[0; 1401])),
        Some(Drop::Malformed),
        "not eights"
    );
    assert_eq!(
        dropped(&fragment(header, 65528, false, 1, &[0; 100])),
        Some(Drop::Malformed),
        "beyond the end"
    );
    assert_eq!(
        dropped(&fragment(header, 800, false, 1, &[])),
        Some(Drop::Malformed),
        "nothing"
    );
    assert_eq!(dropped(&fragment(header, 0, true, 1, &[0; 1176])), Some(Drop::TooSmall));
    let mut wrong = fragment(header, 0, true, 1, &[0; 1400]);
    wrong[8] ^= 1;
    assert_eq!(dropped(&wrong), Some(Drop::Malformed), "header checksum");
    assert_eq!(dropped(&fragment(header, 0, true, 1, &[0; 1400])), None);
    assert_eq!(dropped(&fragment(header, 2800, false, 1, &[0; 8])), None);
    assert_eq!(
        dropped(&fragment(header, 3200, false, 1, &[0; 8])),
        Some(Drop::Overlap),
        "two ends"
    );
    assert_eq!(
        dropped(&fragment(header, 1400, true, 1, &[0; 1400])),
        Some(Drop::Overlap),
        "it stays spoiled"
    );
    let counts = reassembly.counts(false);
    assert_eq!(
        (counts.malformed, counts.too_small, counts.accepted, counts.overlapped),
        (5, 1, 2, 4)
    );
    assert!(reassembly.set_min_size(false, 400) && !reassembly.set_min_size(false, 399));
    assert_eq!(dropped(&fragment(header, 0, true, 2, &[0; 400])), None);
}

#[test]
fn zones_do_not_share_fragments_and_old_ones_go() {
    let reassembly = Reassembly::default();
    let fragments = split(&big(false, 1, 2000), &[1480], 1);
    assert_eq!(reassembly.receive(&fragments[0], false, 1, 1, NOW), Received::Held);
    assert_eq!(reassembly.receive(&fragments[1], false, 2, 1, NOW), Received::Held);
    assert_eq!(reassembly.waiting().len(), 2);
    let later = NOW + Duration::from_secs(15);
    assert_eq!(
        reassembly.receive(&fragments[1], false, 1, 1, later),
        Received::Held,
        "the first part is gone"
    );
    assert_eq!(reassembly.len(), 1);
    assert!(!reassembly.expire(later + Duration::from_secs(15), 10));
    assert!(reassembly.is_empty());
    assert_eq!(reassembly.counts(false).expired, 3);
}

#[test]
fn a_flood_of_one_port_leaves_room_for_another_and_memory_is_bounded() {
    let reassembly = Reassembly::default();
    reassembly.set_max(100);
    for n in 0..1000 {
        let first = fragment(&big(false, n, 4000)[..20], 0, true, u32::from(n), &[0; 1400]);
        let received = give(&reassembly, &first, 1, NOW);
        assert_eq!(received == Received::Held, n < 100);
    }
    let packet = big(false, 5000, 4000);
    let fragments = split(&packet, &[1480, 1480], 1);
    give(&reassembly, &fragments[0], 2, NOW);
    give(&reassembly, &fragments[1], 2, NOW);
    assert_eq!(
        data(&whole(give(&reassembly, &fragments[2], 2, NOW)).packet),
        data(&packet)
    );
    assert_eq!(reassembly.len(), 97);
    assert_eq!(reassembly.counts(false).purged, 3);
    // Spoiled datagrams are bounded too.
    reassembly.purge();
    for n in 0..1000 {
        let header = &big(false, n, 4000)[..20];
        give(&reassembly, &fragment(header, 0, true, 1, &[0; 1400]), 3, NOW);
        for _ in 0..3 {
            give(&reassembly, &fragment(header, 8, true, 1, &[1; 1400]), 3, NOW);
        }
        assert!(reassembly.len() <= 100.min(usize::from(n) + 1));
    }
}
