//! Forged and malformed frames.

use super::lab::{MS, SECOND, every, frame, packet, pair_up, states};
use crate::bfd::wire::{Packet, State};

/// Frames that are not from the peer of session 10.
fn forged() -> Vec<Vec<u8>> {
    let good = frame(&packet(State::Down));
    let mut frames: Vec<Vec<u8>> = (0..good.len()).map(|len| good[..len].to_vec()).collect();
    for other in [1, 9, 11, 20, u32::MAX] {
        let packet = Packet {
            your_discriminator: other,
            ..packet(State::AdminDown)
        };
        frames.push(frame(&packet));
    }
    let nobody = Packet {
        my_discriminator: 0,
        ..packet(State::Down)
    };
    let blind = Packet {
        your_discriminator: 0,
        ..packet(State::Up)
    };
    frames.extend([frame(&nobody), frame(&blind)]);
    let mut routed = good;
    // One hop more, with a checksum that is right again.
    routed[22] -= 1;
    routed[24] += 1;
    frames.push(routed);
    frames
}

#[test]
fn forged_frames_change_nothing_but_a_counter() {
    let mut network = pair_up(&every(100), &every(100));
    let forged = forged();
    let now = network.now();
    network.with(0, |end, _| {
        let before = (end.session.show(now), end.session.counters());
        for frame in &forged {
            end.session.receive(frame, now);
        }
        assert!(end.session.take_frame().is_none());
        let after = end.session.counters();
        assert_eq!(end.session.show(now), before.0);
        assert_eq!(after.refused - before.1.refused, forged.len() as u64);
        assert_eq!((after.rx, after.tx), (before.1.rx, before.1.tx));
    });
}

#[test]
fn a_flood_of_forged_frames_neither_ends_the_session_nor_delays_its_packets() {
    let mut network = pair_up(&every(10), &every(10));
    let forged = forged();
    for _ in 0..1000 {
        let now = network.now();
        network.with(0, |end, _| {
            forged.iter().for_each(|frame| end.session.receive(frame, now))
        });
        network.run_for(MS);
    }
    assert_eq!(states(&network), [State::Up, State::Up]);
    let flaps = [0, 1].map(|end| network.node(end).session.status().flap_count);
    assert_eq!(flaps, [1, 1]);
}

#[test]
fn states_that_change_without_end_are_told_at_most_a_hundred_times_a_second() {
    let mut network = pair_up(&every(100), &every(100));
    let sent = network.counts().sent;
    // From within the link, where discriminators can be read.
    for number in 0..100_000_u32 {
        let state = [State::Down, State::Init, State::Up, State::AdminDown][number as usize % 4];
        let now = network.now();
        network.with(0, |end, _| end.session.receive(&frame(&packet(state)), now));
        if number % 100 == 0 {
            network.run_for(MS);
        }
    }
    // The other end answers some.
    assert!(
        network.counts().sent - sent <= 2 * 101 + 20,
        "{}",
        network.counts().sent - sent
    );
    network.run_for(SECOND * 10);
    assert_eq!(states(&network), [State::Up, State::Up]);
}
