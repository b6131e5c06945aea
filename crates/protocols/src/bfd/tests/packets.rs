//! Control packets beside RFC 5880 §4.1 and §6.8.6.

use crate::bfd::wire::{Malformed, Packet, State};

/// Up, poll, multiplier 3, 1 s and 100 ms: written by hand from the figure of §4.1.
const UP: [u8; 24] = [
    0x23, 0xe0, 3, 24, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0x0f, 0x42, 0x40, 0, 1, 0x86, 0xa0, 0, 0, 0, 0,
];

#[test]
fn a_packet_has_the_fields_of_the_standard_both_ways() {
    let packet = Packet::parse(&UP).unwrap();
    assert_eq!((packet.diagnostic, packet.state, packet.multiplier), (3, State::Up, 3));
    assert!(packet.poll && !packet.is_final && !packet.demand);
    assert_eq!((packet.my_discriminator, packet.your_discriminator), (7, 9));
    assert_eq!((packet.desired_min_tx, packet.required_min_rx), (1_000_000, 100_000));
    assert_eq!(packet.to_bytes(), UP);
}

#[test]
fn cut_packets_and_wrong_lengths_are_refused() {
    for cut in 0..UP.len() {
        assert_eq!(Packet::parse(&UP[..cut]), Err(Malformed::Length), "cut at {cut}");
    }
    for length in (0..=255).filter(|&length| length != 24) {
        let mut bytes = UP;
        bytes[3] = length;
        assert_eq!(Packet::parse(&bytes), Err(Malformed::Length), "length {length}");
    }
}

#[test]
fn each_check_of_the_standard_refuses() {
    let with = |at: usize, value: u8| {
        let mut bytes = UP;
        bytes[at] = value;
        Packet::parse(&bytes)
    };
    assert_eq!(with(0, 0x43), Err(Malformed::Version));
    assert_eq!(with(1, 0xc1), Err(Malformed::Multipoint));
    assert_eq!(with(1, 0xc4), Err(Malformed::Authentication));
    assert_eq!(with(2, 0), Err(Malformed::Multiplier));
    assert_eq!(with(7, 0), Err(Malformed::Discriminator));
    assert_eq!(with(11, 0), Err(Malformed::Discriminator));
    let mut down = UP;
    (down[1], down[11]) = (0x40, 0);
    assert_eq!(Packet::parse(&down).map(|packet| packet.state), Ok(State::Down));
}
